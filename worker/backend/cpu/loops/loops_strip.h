/* Strips: the basic loops of normalisations.
 *
 * A strip has rows of up to LOOP_LANES neighbouring elements (lanes). In packed order, lanes are
 * channels and rows are pixels. In dense order, lanes and rows are pixels in one channel, and the
 * sums over all lanes are added last. */
#ifndef GP_CPU_LOOPS_STRIP_H
#define GP_CPU_LOOPS_STRIP_H

#include "worker/backend/cpu/loops/loops_inside.h"

/* Rows of `lanes` elements, `stride` elements apart. */
typedef struct strip {
    size_t rows, stride, lanes;
} strip;

/* Two sums per lane. */
typedef struct strip_sums {
    double first[LOOP_LANES], second[LOOP_LANES];
} strip_sums;

/* Constants per lane; the meaning depends on the function. */
typedef struct strip_terms {
    float a[LOOP_LANES], b[LOOP_LANES], c[LOOP_LANES];
} strip_terms;

/* Add x - a to the first sum and (x - a)^2 to the second. */
LOOP_INLINE void strip_square(const strip *s, size_t lanes, const float *x, const strip_terms *terms,
                              strip_sums *sums)
{
    for (size_t from = 0; from < s->rows; from += LOOP_ROWS_MAX) {
        size_t end = from + LOOP_ROWS_MAX < s->rows ? from + LOOP_ROWS_MAX : s->rows;
        float first[LOOP_LANES] = { 0.0f }, second[LOOP_LANES] = { 0.0f };

        for (size_t r = from; r < end; r++)
            for (size_t l = 0; l < lanes; l++) {
                float d = x[r * s->stride + l] - terms->a[l];

                first[l] += d;
                second[l] += d * d;
            }
        for (size_t l = 0; l < lanes; l++) {
            sums->first[l] += (double)first[l];
            sums->second[l] += (double)second[l];
        }
    }
}

/* Add dy to the first sum and dy * (x - a) * b to the second. */
LOOP_INLINE void strip_project(const strip *s, size_t lanes, const float *x, const float *dy,
                               const strip_terms *terms, strip_sums *sums)
{
    for (size_t from = 0; from < s->rows; from += LOOP_ROWS_MAX) {
        size_t end = from + LOOP_ROWS_MAX < s->rows ? from + LOOP_ROWS_MAX : s->rows;
        float first[LOOP_LANES] = { 0.0f }, second[LOOP_LANES] = { 0.0f };

        for (size_t r = from; r < end; r++)
            for (size_t l = 0; l < lanes; l++) {
                float d = dy[r * s->stride + l];

                first[l] += d;
                second[l] += d * ((x[r * s->stride + l] - terms->a[l]) * terms->b[l]);
            }
        for (size_t l = 0; l < lanes; l++) {
            sums->first[l] += (double)first[l];
            sums->second[l] += (double)second[l];
        }
    }
}

/* Compute y = (x - a) * b + c. */
LOOP_INLINE void strip_scale(const strip *s, size_t lanes, const float *x, float *y, const strip_terms *terms)
{
    for (size_t r = 0; r < s->rows; r++)
        for (size_t l = 0; l < lanes; l++)
            y[r * s->stride + l] = (x[r * s->stride + l] - terms->a[l]) * terms->b[l] + terms->c[l];
}

/* Constants per lane for a normalisation's backward pass. */
typedef struct strip_back {
    float mean[LOOP_LANES], inverse[LOOP_LANES], scale[LOOP_LANES], dy[LOOP_LANES], projection[LOOP_LANES];
} strip_back;

/* Compute dx = scale * dy - b->dy - normalised x * projection. */
LOOP_INLINE void strip_backward(const strip *s, size_t lanes, const float *x, const float *dy, float *dx,
                                const strip_back *b)
{
    for (size_t r = 0; r < s->rows; r++)
        for (size_t l = 0; l < lanes; l++) {
            size_t i = r * s->stride + l;
            float normalised = (x[i] - b->mean[l]) * b->inverse[l];

            dx[i] = b->scale[l] * dy[i] - b->dy[l] - normalised * b->projection[l];
        }
}

/* Call a strip function with a constant lane count for full strips, so that the compiler unrolls
 * it. */
#define STRIP_CALL(function, s, ...)                                                                         \
    do {                                                                                                     \
        if ((s)->lanes == LOOP_LANES)                                                                        \
            function((s), LOOP_LANES, __VA_ARGS__);                                                          \
        else                                                                                                 \
            function((s), (s)->lanes, __VA_ARGS__);                                                          \
    } while (0)

/* Divide channels [c, c + width) of one sample into strips, and return how many: at most two. The
 * second strip holds the pixels that do not fill a row. */
LOOP_INLINE size_t image_strips(const loop_image *image, bool packed, size_t width, strip strips[2],
                                size_t offsets[2])
{
    size_t whole = image->pixels / LOOP_LANES, rest = image->pixels % LOOP_LANES, count = 0;

    offsets[0] = 0;
    if (packed) {
        strips[0] = (strip){ image->pixels, image->channels, width };
        return 1;
    }
    if (whole != 0)
        strips[count++] = (strip){ whole, LOOP_LANES, LOOP_LANES };
    offsets[count] = whole * LOOP_LANES;
    if (rest != 0)
        strips[count++] = (strip){ 1, rest, rest };
    return count;
}

/* Return the number of channels processed together: up to LOOP_LANES in packed order, one in dense
 * order. */
LOOP_INLINE size_t channel_width(bool packed, size_t c, size_t end)
{
    size_t left = end - c;

    return !packed ? 1 : left < LOOP_LANES ? left : LOOP_LANES;
}

/* Add all lane sums in dense order, where they belong to one channel. */
LOOP_INLINE void sums_fold(strip_sums *sums, bool packed)
{
    for (size_t l = 1; l < LOOP_LANES && !packed; l++) {
        sums->first[0] += sums->first[l];
        sums->second[0] += sums->second[l];
    }
}

/* Fill the lanes with values of channels c + l, or with one value in dense order. */
LOOP_INLINE void lanes_fill(float *lanes, const float *values, bool packed, size_t width)
{
    for (size_t l = 0; l < LOOP_LANES; l++)
        lanes[l] = values[packed && l < width ? l : 0];
}

#endif
