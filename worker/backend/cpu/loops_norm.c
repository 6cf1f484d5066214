/* loops_norm.c -- normalisations: moments of channels, then one multiply and add per element.
 *
 * All are written over strips: up to LOOP_LANES numbers side by side, row after row.  In packed order the lanes are
 * channels and the rows are pixels; in dense order lanes and rows are the pixels of one channel, and the lanes' sums
 * are added up at the end. */
#include "worker/backend/cpu/loops_inside.h"

#include <math.h>

typedef struct strip {
    size_t rows, stride, lanes;
} strip;

/* Two sums per lane. */
typedef struct strip_sums {
    double first[LOOP_LANES], second[LOOP_LANES];
} strip_sums;

/* Per lane, what a strip is computed with. */
typedef struct strip_terms {
    float a[LOOP_LANES], b[LOOP_LANES], c[LOOP_LANES];
} strip_terms;

/* first += x - a, second += (x - a)^2. */
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

/* first += dy, second += dy * (x - a) * b. */
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

/* y = (x - a) * b + c. */
LOOP_INLINE void strip_scale(const strip *s, size_t lanes, const float *x, float *y, const strip_terms *terms)
{
    for (size_t r = 0; r < s->rows; r++)
        for (size_t l = 0; l < lanes; l++)
            y[r * s->stride + l] = (x[r * s->stride + l] - terms->a[l]) * terms->b[l] + terms->c[l];
}

/* What the backward pass of a normalisation multiplies and subtracts, per lane. */
typedef struct strip_back {
    float mean[LOOP_LANES], inverse[LOOP_LANES], scale[LOOP_LANES], dy[LOOP_LANES], projection[LOOP_LANES];
} strip_back;

/* dx = scale * (dy - mean of dy - normalised x * projection). */
LOOP_INLINE void strip_backward(const strip *s, size_t lanes, const float *x, const float *dy, float *dx,
                                const strip_back *b)
{
    for (size_t r = 0; r < s->rows; r++)
        for (size_t l = 0; l < lanes; l++) {
            size_t i = r * s->stride + l;
            float normalised = (x[i] - b->mean[l]) * b->inverse[l];

            dx[i] = b->scale[l] * (dy[i] - b->dy[l] - normalised * b->projection[l]);
        }
}

/* Full strips have a number of lanes that the compiler knows. */
#define STRIP_CALL(function, s, ...)                                                                         \
    do {                                                                                                     \
        if ((s)->lanes == LOOP_LANES)                                                                        \
            function((s), LOOP_LANES, __VA_ARGS__);                                                          \
        else                                                                                                 \
            function((s), (s)->lanes, __VA_ARGS__);                                                          \
    } while (0)

/* The strips of channels [c, c + width) of one sample: at most two (the pixels that fill no row of lanes). */
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

/* Channels that go together: a strip's lanes, or one. */
LOOP_INLINE size_t channel_width(const loop_image *image, bool packed, size_t c, size_t end)
{
    size_t left = end - c;

    (void)image;
    return !packed ? 1 : left < LOOP_LANES ? left : LOOP_LANES;
}

/* In dense order the lanes are pixels of one channel: their sums belong together. */
LOOP_INLINE void sums_fold(strip_sums *sums, bool packed)
{
    for (size_t l = 1; l < LOOP_LANES && !packed; l++) {
        sums->first[0] += sums->first[l];
        sums->second[0] += sums->second[l];
    }
}

/* The value for channel c + l, or for all lanes where they are one channel. */
LOOP_INLINE void lanes_fill(float *lanes, const float *values, bool packed, size_t width)
{
    for (size_t l = 0; l < LOOP_LANES; l++)
        lanes[l] = values[packed && l < width ? l : 0];
}

/* --- batch norm -------------------------------------------------------------------------------------- */

static void sum_add(const gp_loop_call *call, uint32_t slot, size_t c, double value)
{
    float *to = call->out[slot].data + c;

    *to = (float)((call->batch->first ? 0.0 : (double)*to) + value);
}

/* Moments of channels [c, c + width): relative to the first pixel, so that squares do not cancel. */
LOOP_INLINE void batchnorm_moments(const gp_loop_call *call, const loop_image *x, size_t c, size_t width)
{
    const size_t samples = call->batch->count;
    const double n = (double)samples * (double)x->pixels;
    float *mean = call->out[1].data, *inverse = mean + x->channels;
    strip strips[2];
    size_t offsets[2], count = image_strips(x, call->packed, width, strips, offsets);
    strip_sums sums = { .first = { 0.0 } };
    strip_terms terms;

    lanes_fill(terms.a, x->data + c * x->channel_stride, call->packed, width);
    for (size_t i = 0; i < samples; i++)
        for (size_t k = 0; k < count; k++)
            STRIP_CALL(strip_square, &strips[k],
                       x->data + i * x->sample_stride + c * x->channel_stride + offsets[k], &terms, &sums);
    sums_fold(&sums, call->packed);
    for (size_t l = 0; l < width; l++) {
        double m = sums.first[l] / n, v = sums.second[l] / n - m * m;
        double shift = (double)terms.a[l] + m - (double)call->in[3].data[c + l];

        v = v > 0.0 ? v : 0.0;
        mean[c + l] = (float)((double)terms.a[l] + m);
        inverse[c + l] = (float)(1.0 / sqrt(v + call->op->factor[0]));
        sum_add(call, 2, c + l, n * shift);
        sum_add(call, 3, c + l, n * (v + shift * shift));
    }
}

LOOP_INLINE void batchnorm_scale(const gp_loop_call *call, const loop_image *x, float *y, size_t c,
                                 size_t width, const float *mean, const float *factor)
{
    strip strips[2];
    size_t offsets[2], count = image_strips(x, call->packed, width, strips, offsets);
    strip_terms terms;

    lanes_fill(terms.a, mean, call->packed, width);
    lanes_fill(terms.b, factor, call->packed, width);
    lanes_fill(terms.c, call->in[2].data + c, call->packed, width);
    for (size_t i = 0; i < call->rows; i++)
        for (size_t k = 0; k < count; k++) {
            size_t at = i * x->sample_stride + c * x->channel_stride + offsets[k];

            STRIP_CALL(strip_scale, &strips[k], x->data + at, y + at, &terms);
        }
}

LOOP_CLONES static void batchnorm_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);
    const float *mean = call->out[1].data, *inverse = mean + x.channels;
    float factor[LOOP_LANES];

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = channel_width(&x, call->packed, c, range.end);
        batchnorm_moments(call, &x, c, width);
        for (size_t l = 0; l < width; l++)
            factor[l] = inverse[c + l] * call->in[1].data[c + l];
        batchnorm_scale(call, &x, call->out[0].data, c, width, mean + c, factor);
    }
}

gp_status gp_loop_batchnorm(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, (size_t)gp_shape_count(&call->in[0].shape) * call->rows, batchnorm_share);
    return GP_OK;
}

LOOP_CLONES static void batchnorm_infer_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);
    const float *scale = call->in[1].data, *mean = call->in[3].data, *variance = call->in[4].data;
    float factor[LOOP_LANES];

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = channel_width(&x, call->packed, c, range.end);
        for (size_t l = 0; l < width; l++)
            factor[l] = (float)((double)scale[c + l] / sqrt((double)variance[c + l] + call->op->factor[0]));
        batchnorm_scale(call, &x, call->out[0].data, c, width, mean + c, factor);
    }
}

gp_status gp_loop_batchnorm_infer(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, (size_t)gp_shape_count(&call->in[0].shape) * call->rows, batchnorm_infer_share);
    return GP_OK;
}

/* Sum of dy and of dy * normalised x of channels [c, c + width), into the gradients and `back`. */
LOOP_INLINE void batchnorm_project(const gp_loop_call *call, const loop_image *x, size_t c, size_t width,
                                   strip_back *back)
{
    const double n = (double)call->batch->count * (double)x->pixels;
    const float *mean = call->in[3].data, *inverse = mean + x->channels;
    float dy_mean[LOOP_LANES], projection[LOOP_LANES], factor[LOOP_LANES];
    strip strips[2];
    size_t offsets[2], count = image_strips(x, call->packed, width, strips, offsets);
    strip_sums sums = { .first = { 0.0 } };
    strip_terms terms;

    lanes_fill(terms.a, mean + c, call->packed, width);
    lanes_fill(terms.b, inverse + c, call->packed, width);
    for (size_t i = 0; i < call->batch->count; i++)
        for (size_t k = 0; k < count; k++) {
            size_t at = i * x->sample_stride + c * x->channel_stride + offsets[k];

            STRIP_CALL(strip_project, &strips[k], x->data + at, call->in[1].data + at, &terms, &sums);
        }
    sums_fold(&sums, call->packed);
    for (size_t l = 0; l < width; l++) {
        dy_mean[l] = (float)(sums.first[l] / n);
        projection[l] = (float)(sums.second[l] / n);
        factor[l] = inverse[c + l] * call->in[2].data[c + l];
        sum_add(call, 1, c + l, sums.second[l]);
        sum_add(call, 2, c + l, sums.first[l]);
    }
    lanes_fill(back->mean, mean + c, call->packed, width);
    lanes_fill(back->inverse, inverse + c, call->packed, width);
    lanes_fill(back->scale, factor, call->packed, width);
    lanes_fill(back->dy, dy_mean, call->packed, width);
    lanes_fill(back->projection, projection, call->packed, width);
}

LOOP_CLONES static void batchnorm_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);
    strip strips[2];
    size_t offsets[2];
    strip_back back;

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = channel_width(&x, call->packed, c, range.end);
        batchnorm_project(call, &x, c, width, &back);
        for (size_t i = 0; i < call->batch->count && call->out[0].data != NULL; i++)
            for (size_t k = 0, count = image_strips(&x, call->packed, width, strips, offsets); k < count;
                 k++) {
                size_t at = i * x.sample_stride + c * x.channel_stride + offsets[k];

                STRIP_CALL(strip_backward, &strips[k], x.data + at, call->in[1].data + at,
                           call->out[0].data + at, &back);
            }
    }
}

gp_status gp_loop_batchnorm_backward(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, (size_t)gp_shape_count(&call->in[0].shape) * call->rows, batchnorm_backward_share);
    loop_clear_rest(call, &call->out[0]);
    return GP_OK;
}

/* --- softmax over channels --------------------------------------------------------------------------- */

LOOP_CLONES static void softmax_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->rows * x.pixels, 16, thread, threads);
    const size_t step = x.channel_stride;

    for (size_t i = range.first; i < range.end; i++) {
        size_t at = i / x.pixels * x.sample_stride + i % x.pixels * x.pixel_stride;
        const float *from = x.data + at;
        float *to = call->out[0].data + at, largest = from[0], sum = 0.0f;

        for (size_t c = 1; c < x.channels; c++)
            largest = from[c * step] > largest ? from[c * step] : largest;
        for (size_t c = 0; c < x.channels; c++)
            sum += to[c * step] = expf(from[c * step] - largest);
        for (size_t c = 0; c < x.channels; c++)
            to[c * step] /= sum;
    }
}

gp_status gp_loop_softmax(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, (size_t)gp_shape_count(&call->in[0].shape) * call->rows, softmax_share);
    return GP_OK;
}

LOOP_CLONES static void softmax_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image y = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->rows * y.pixels, 16, thread, threads);
    const size_t step = y.channel_stride;

    for (size_t i = range.first; i < range.end; i++) {
        size_t at = i / y.pixels * y.sample_stride + i % y.pixels * y.pixel_stride;
        const float *from = y.data + at, *dy = call->in[1].data + at;
        float *dx = call->out[0].data + at, sum = 0.0f;

        for (size_t c = 0; c < y.channels; c++)
            sum += dy[c * step] * from[c * step];
        for (size_t c = 0; c < y.channels; c++)
            dx[c * step] = from[c * step] * (dy[c * step] - sum);
    }
}

gp_status gp_loop_softmax_backward(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, (size_t)gp_shape_count(&call->in[0].shape) * call->rows, softmax_backward_share);
    return GP_OK;
}
