/* Batch norm of packed activations, with sums, clamps and masks in the same pass.
 *
 * An activation has `rows` rows (pixels in all samples) with `channels` elements. Sums over rows
 * are taken in chunks whose size depends only on the segment's shape, and the chunks are added in
 * order, so results are bitwise identical with any thread count. Within a chunk, row blocks are
 * summed in float32 and the block sums in float64.
 *
 * This file is compiled three times. onednn_norm_narrow.c includes it for bfloat16 activations, and
 * onednn_norm_wide.c for float32 with AVX-512 enabled for the whole file. Function clones do not
 * vectorise as well: their backward pass takes three times as long. */
#include "worker/backend/cpu/onednn/onednn_segment.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/base/bf16.h"
#include "worker/backend/cpu/loops/loops_inside.h"

#if defined(NORM_NARROW) || defined(NORM_WIDE)
#undef LOOP_CLONES
#define LOOP_CLONES
#endif
#ifdef NORM_NARROW
typedef uint16_t number;
#define READ(x)         bf16_float(x)
#define WRITTEN(y)      bf16_of_result(y)
#define NORM_LOOP(name) name##_narrow
#else
typedef float number;
#define READ(x)    (x)
#define WRITTEN(y) (y)
#ifdef NORM_WIDE
#define NORM_LOOP(name) name##_wide
#else
#define NORM_LOOP(name) name
#endif
#endif

enum { BLOCK_NUMBERS = 16384, BLOCK_ROWS_MIN = 8, WIDTH_MAX = 32 };

/* Mix inputs and layout. */
typedef struct mix_source {
    const number *a, *b, *mask; /* b and mask may be NULL */
    size_t a_stride, b_stride, channels;
    float low, high;
} mix_source;

/* A running loop. */
typedef struct norm_call {
    const gp_onednn_step *step;
    mix_source dy;
    const number *x;
    number *out, *kept; /* kept may be NULL: no other op reads dy */
    size_t rows;        /* batch rows->count samples */
    double *partials;   /* per chunk: [2][channels] */
    float *terms;       /* [3][channels], for the backward pass */
} norm_call;

static mix_source source_of(const gp_onednn_step *step)
{
    const gp_onednn_mix *mix = &step->mix;
    const number *b = gp_onednn_data(step, SLOT_B);

    return (mix_source){ .a = (const number *)gp_onednn_data(step, SLOT_A) + mix->channel[0],
                         .b = b == NULL ? NULL : b + mix->channel[1],
                         .mask = gp_onednn_data(step, SLOT_MASK),
                         .a_stride = mix->stride[0],
                         .b_stride = mix->stride[1],
                         .channels = step->channels,
                         .low = mix->low,
                         .high = mix->high };
}

static size_t block_rows(size_t channels)
{
    size_t rows = BLOCK_NUMBERS / channels;

    return rows > LOOP_ROWS_MAX ? LOOP_ROWS_MAX : rows < BLOCK_ROWS_MIN ? BLOCK_ROWS_MIN : rows;
}

/* Call a function with a constant channel count if possible. */
#define WIDTH_CALL(function, width, ...)                                                                     \
    do {                                                                                                     \
        if ((width) == 32)                                                                                   \
            function(32, __VA_ARGS__);                                                                       \
        else if ((width) == 16)                                                                              \
            function(16, __VA_ARGS__);                                                                       \
        else if ((width) == 8)                                                                               \
            function(8, __VA_ARGS__);                                                                        \
        else                                                                                                 \
            function((width), __VA_ARGS__);                                                                  \
    } while (0)

static size_t width_at(size_t c, size_t channels)
{
    size_t left = channels - c;

    return left >= 32 ? 32 : left >= 16 ? 16 : left >= 8 ? 8 : left;
}

/* ---- moments ---- */

/* Add x - origin to the first sum and (x - origin)^2 to the second, over a row block with
 * `width` channels. */
LOOP_INLINE void square_block(size_t width, const number *x, size_t rows, size_t stride, const number *origin,
                              double *first, double *second)
{
    float f[WIDTH_MAX] = { 0.0f }, s[WIDTH_MAX] = { 0.0f };

    for (size_t r = 0; r < rows; r++)
        for (size_t l = 0; l < width; l++) {
            float d = READ(x[r * stride + l]) - READ(origin[l]);

            f[l] += d;
            s[l] += d * d;
        }
    for (size_t l = 0; l < width; l++) {
        first[l] += (double)f[l];
        second[l] += (double)s[l];
    }
}

static size_t chunk_count(const norm_call *call)
{
    return (call->rows + call->step->mix.chunk_rows - 1) / call->step->mix.chunk_rows;
}

static loop_range chunk_rows(const norm_call *call, size_t chunk)
{
    loop_range rows = { chunk * call->step->mix.chunk_rows, (chunk + 1) * call->step->mix.chunk_rows };

    rows.end = rows.end > call->rows ? call->rows : rows.end;
    return rows;
}

LOOP_CLONES static void moments_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_call *call = context;
    const size_t channels = call->step->channels, block = block_rows(channels);
    loop_range chunks = loop_range_of(chunk_count(call), 1, thread, threads);

    for (size_t chunk = chunks.first; chunk < chunks.end; chunk++) {
        double *first = call->partials + chunk * 2 * channels, *second = first + channels;
        loop_range rows = chunk_rows(call, chunk);

        memset(first, 0, 2 * channels * sizeof(double));
        for (size_t r = rows.first; r < rows.end; r += block)
            for (size_t c = 0, width; c < channels; c += width) {
                size_t count = rows.end - r < block ? rows.end - r : block;

                width = width_at(c, channels);
                WIDTH_CALL(square_block, width, call->x + r * channels + c, count, channels, call->x + c,
                           first + c, second + c);
            }
    }
}

/* Add all chunk sums in order, into the first chunk's sums. */
static void partials_fold(const norm_call *call)
{
    const size_t numbers = 2 * call->step->channels, chunks = chunk_count(call);

    for (size_t chunk = 1; chunk < chunks; chunk++)
        for (size_t i = 0; i < numbers; i++)
            call->partials[i] += call->partials[chunk * numbers + i];
}

static void sum_add(const gp_onednn_run *run, float *to, double value)
{
    *to = (float)((run->batch->first ? 0.0 : (double)*to) + value);
}

static void shares_run(const gp_onednn_run *run, const norm_call *call, size_t numbers, gp_share_fn share)
{
    gp_threads_run(numbers < LOOP_SHARED_MIN ? 1 : run->segment->threads, share, (void *)(uintptr_t)call);
}

/* Replace the local sums by the sums from all ranks if batch norm is synchronised. *n becomes the
 * element count over all ranks. */
static gp_status sums_couple(const gp_onednn_run *run, double *sums, size_t channels, double *n,
                             gp_error *err)
{
    const gp_coupling *coupling = run->batch->coupling;
    gp_status status;

    if (coupling == NULL)
        return GP_OK;
    memcpy(coupling->sums, sums, 2 * channels * sizeof(double));
    coupling->sums[2 * channels] = *n;
    status = coupling->reduce(coupling->context, 2 * channels + 1, err);
    memcpy(sums, coupling->sums, 2 * channels * sizeof(double));
    *n = coupling->sums[2 * channels];
    return status;
}

gp_status NORM_LOOP(gp_onednn_loop_moments)(const gp_onednn_step *step, const gp_onednn_run *run,
                                            gp_error *err)
{
    const size_t channels = step->channels;
    const float *running = gp_onednn_data(step, SLOT_RUNNING), *scale = gp_onednn_data(step, SLOT_SCALE);
    float *mean = gp_onednn_data(step, SLOT_MOMENTS), *inverse = mean + channels,
          *factor = gp_onednn_data(step, SLOT_FACTOR);
    float *means = gp_onednn_data(step, SLOT_SUMS), *variances = gp_onednn_data(step, SLOT_SQUARES);
    norm_call call = { .step = step,
                       .x = gp_onednn_data(step, SLOT_X),
                       .rows = run->batch->count * step->pixels,
                       .partials = gp_onednn_data(step, SLOT_PARTIALS) };
    double n = (double)call.rows, *first = call.partials, *second = first + channels;
    gp_status status;

    shares_run(run, &call, call.rows * channels, moments_share);
    partials_fold(&call);
    /* The sums are relative to the first pixel, to avoid cancellation; convert them to sums
     * relative to the running mean. */
    for (size_t c = 0; c < channels; c++) {
        double m = first[c] / n, v = second[c] / n - m * m,
               shift = (double)READ(call.x[c]) + m - (double)running[c];

        first[c] = n * shift;
        second[c] = n * ((v > 0.0 ? v : 0.0) + shift * shift);
        sum_add(run, means + c, first[c]);
        sum_add(run, variances + c, second[c]);
    }
    status = sums_couple(run, call.partials, channels, &n, err);
    for (size_t c = 0; c < channels; c++) {
        double shift = first[c] / n, v = second[c] / n - shift * shift;

        mean[c] = (float)((double)running[c] + shift);
        inverse[c] = (float)(1.0 / sqrt((v > 0.0 ? v : 0.0) + step->mix.epsilon));
        factor[c] = inverse[c] * scale[c];
    }
    return status;
}

/* ---- mixes ---- */

/* Normalisation y = (x - a) * b + c. */
typedef struct mix_norm {
    const float *a, *b, *c;
} mix_norm;

typedef enum mix_post { MIX_PLAIN, MIX_BOUNDED, MIX_MASKED } mix_post;

/* Compute out = post(first + second) row by row. The flags are constants in all callers. */
LOOP_INLINE void mix_rows(const mix_source *s, number *out, loop_range rows, bool norm, bool two,
                          bool norm_two, mix_post post, const mix_norm norms[2])
{
    const float low = s->low, high = s->high;
    const mix_norm n = norms[0], m = norms[1];
    const size_t channels = s->channels;

    for (size_t r = rows.first; r < rows.end; r++) {
        const number *a = s->a + r * s->a_stride, *b = two ? s->b + r * s->b_stride : NULL;
        const number *mask = post == MIX_MASKED ? s->mask + r * channels : NULL;
        number *to = out + r * channels;

#pragma GCC ivdep
        for (size_t c = 0; c < channels; c++) {
            float g = norm ? (READ(a[c]) - n.a[c]) * n.b[c] + n.c[c] : READ(a[c]);

            if (two)
                g += norm_two ? (READ(b[c]) - m.a[c]) * m.b[c] + m.c[c] : READ(b[c]);
            if (post == MIX_BOUNDED) { /* NaN stays NaN, so that the loss reports it */
                g = g <= low ? low : g;
                g = g >= high ? high : g;
            } else if (post == MIX_MASKED) {
                g = (READ(mask[c]) > low) & (READ(mask[c]) < high) ? g : 0.0f;
            }
            to[c] = WRITTEN(g);
        }
    }
}

LOOP_INLINE void mix_terms(const mix_source *s, number *out, loop_range rows, mix_post post,
                           const mix_norm norms[2])
{
    bool norm = norms[0].a != NULL, norm_two = norms[1].a != NULL;

    if (s->b == NULL && !norm)
        mix_rows(s, out, rows, false, false, false, post, norms);
    else if (s->b == NULL)
        mix_rows(s, out, rows, true, false, false, post, norms);
    else if (!norm)
        mix_rows(s, out, rows, false, true, false, post, norms);
    else if (!norm_two)
        mix_rows(s, out, rows, true, true, false, post, norms);
    else
        mix_rows(s, out, rows, true, true, true, post, norms);
}

typedef struct mix_call {
    mix_source source;
    mix_norm norms[2];
    mix_post post;
    number *out;
    size_t rows;
} mix_call;

LOOP_CLONES static void mix_share(void *context, uint32_t thread, uint32_t threads)
{
    const mix_call *call = context;
    mix_source source = call->source;
    loop_range rows = loop_range_of(call->rows, 1, thread, threads);

    switch (call->post) {
    case MIX_PLAIN:
        mix_terms(&source, call->out, rows, MIX_PLAIN, call->norms);
        break;
    case MIX_BOUNDED:
        mix_terms(&source, call->out, rows, MIX_BOUNDED, call->norms);
        break;
    case MIX_MASKED:
        mix_terms(&source, call->out, rows, MIX_MASKED, call->norms);
        break;
    }
}

static mix_norm norm_of(const gp_onednn_step *step, gp_onednn_slot moments, gp_onednn_slot factor,
                        gp_onednn_slot offset)
{
    return (mix_norm){ gp_onednn_data(step, moments), gp_onednn_data(step, factor),
                       gp_onednn_data(step, offset) };
}

gp_status NORM_LOOP(gp_onednn_loop_mix)(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    mix_call call = { .source = source_of(step),
                      .norms = { norm_of(step, SLOT_MOMENTS, SLOT_FACTOR, SLOT_OFFSET),
                                 norm_of(step, SLOT_MOMENTS_B, SLOT_FACTOR_B, SLOT_OFFSET_B) },
                      .out = gp_onednn_data(step, SLOT_OUT),
                      .rows = run->segment->micro_batch * step->pixels };
    size_t numbers = call.rows * step->channels;

    (void)err;
    call.post = call.source.mask != NULL ? MIX_MASKED : step->mix.bounded ? MIX_BOUNDED : MIX_PLAIN;
    /* If the values are contiguous, process them as one long row, which may span several
     * samples. */
    if (call.norms[0].a == NULL && call.source.a_stride == step->channels &&
        (call.source.b == NULL || call.source.b_stride == step->channels)) {
        call.source.channels = call.source.a_stride = call.source.b_stride = 64;
        call.rows = numbers / 64;
        if (numbers % 64 != 0) {
            call.source.channels = call.source.a_stride = call.source.b_stride = step->channels;
            call.rows = numbers / step->channels;
        }
    }
    gp_threads_run(numbers < LOOP_SHARED_MIN ? 1 : run->segment->threads, mix_share, &call);
    return GP_OK;
}

/* ---- backward ---- */

/* Read dy of a row, which may itself be a mix. */
#define GRADIENT(g, s, two, masked, ra, rb, rm, l)                                                           \
    float g = READ((ra)[l]);                                                                                 \
    if (two)                                                                                                 \
        g += READ((rb)[l]);                                                                                  \
    if (masked)                                                                                              \
    g = (READ((rm)[l]) > (s)->low) & (READ((rm)[l]) < (s)->high) ? g : 0.0f

/* Add dy to the first sum and dy * (x - mean) * inverse to the second, over a row block. Store
 * dy in `resident`. */
LOOP_INLINE void project_block(size_t width, const mix_source *s, bool two, bool masked, bool keep,
                               size_t row, size_t rows, size_t c, const number *x, const float *mean,
                               const float *inverse, number *kept, double *first, double *second)
{
    float f[WIDTH_MAX] = { 0.0f }, p[WIDTH_MAX] = { 0.0f };

    for (size_t r = row; r < row + rows; r++) {
        const number *ra = s->a + r * s->a_stride + c, *rb = two ? s->b + r * s->b_stride + c : NULL;
        const number *rm = masked ? s->mask + r * s->channels + c : NULL, *rx = x + r * s->channels + c;
        number *rk = keep ? kept + r * s->channels + c : NULL;

#pragma GCC ivdep
        for (size_t l = 0; l < width; l++) {
            GRADIENT(g, s, two, masked, ra, rb, rm, l);
            f[l] += g;
            p[l] += g * ((READ(rx[l]) - mean[c + l]) * inverse[c + l]);
            if (keep)
                rk[l] = WRITTEN(g);
        }
    }
    for (size_t l = 0; l < width; l++) {
        first[c + l] += (double)f[l];
        second[c + l] += (double)p[l];
    }
}

LOOP_INLINE void project_chunks(const norm_call *call, bool two, bool masked, bool keep, loop_range chunks)
{
    const size_t channels = call->step->channels, block = block_rows(channels);
    const float *mean = gp_onednn_data(call->step, SLOT_MOMENTS), *inverse = mean + channels;
    const mix_source s = call->dy;

    for (size_t chunk = chunks.first; chunk < chunks.end; chunk++) {
        double *first = call->partials + chunk * 2 * channels, *second = first + channels;
        loop_range rows = chunk_rows(call, chunk);

        memset(first, 0, 2 * channels * sizeof(double));
        for (size_t r = rows.first; r < rows.end; r += block)
            for (size_t c = 0, width; c < channels; c += width) {
                size_t count = rows.end - r < block ? rows.end - r : block;

                width = width_at(c, channels);
                WIDTH_CALL(project_block, width, &s, two, masked, keep, r, count, c, call->x, mean, inverse,
                           call->kept, first, second);
            }
    }
}

LOOP_CLONES static void project_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_call *call = context;
    loop_range chunks = loop_range_of(chunk_count(call), 1, thread, threads);
    bool two = call->dy.b != NULL, masked = call->dy.mask != NULL, keep = call->kept != NULL;

#define PROJECT(two, masked, keep)                                                                           \
    case 4 * two + 2 * masked + keep:                                                                        \
        project_chunks(call, two, masked, keep, chunks);                                                     \
        break
    switch (4 * two + 2 * masked + keep) {
        PROJECT(0, 0, 0);
        PROJECT(0, 0, 1);
        PROJECT(0, 1, 0);
        PROJECT(0, 1, 1);
        PROJECT(1, 0, 0);
        PROJECT(1, 0, 1);
        PROJECT(1, 1, 0);
        PROJECT(1, 1, 1);
    }
#undef PROJECT
}

/* Compute dx = factor * dy - (x - mean) * slope - level row by row. */
LOOP_INLINE void gradient_rows(const norm_call *call, bool two, bool masked, loop_range rows)
{
    const size_t channels = call->step->channels;
    const float *mean = gp_onednn_data(call->step, SLOT_MOMENTS);
    const float *factor = call->terms, *slope = factor + channels, *level = slope + channels;
    const mix_source s = call->dy;

    for (size_t r = rows.first; r < rows.end; r++) {
        const number *ra = s.a + r * s.a_stride, *rb = two ? s.b + r * s.b_stride : NULL;
        const number *rm = masked ? s.mask + r * channels : NULL, *rx = call->x + r * channels;
        number *dx = call->out + r * channels;

#pragma GCC ivdep
        for (size_t c = 0; c < channels; c++) {
            GRADIENT(g, &s, two, masked, ra, rb, rm, c);
            dx[c] = WRITTEN(factor[c] * g - (READ(rx[c]) - mean[c]) * slope[c] - level[c]);
        }
    }
}

LOOP_CLONES static void gradient_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_call *call = context;
    loop_range rows = loop_range_of(call->rows, 1, thread, threads);

    if (call->dy.b == NULL && call->dy.mask == NULL)
        gradient_rows(call, false, false, rows);
    else if (call->dy.b == NULL)
        gradient_rows(call, false, true, rows);
    else if (call->dy.mask == NULL)
        gradient_rows(call, true, false, rows);
    else
        gradient_rows(call, true, true, rows);
}

/* Zero the rows beyond the batch, as required for gradients. */
static void rest_clear(const gp_onednn_run *run, const norm_call *call, number *values)
{
    const size_t channels = call->step->channels, all = run->segment->micro_batch * call->step->pixels;

    if (values != NULL)
        memset(values + call->rows * channels, 0, (all - call->rows) * channels * sizeof(*values));
}

gp_status NORM_LOOP(gp_onednn_loop_norm_backward)(const gp_onednn_step *step, const gp_onednn_run *run,
                                                  gp_error *err)
{
    const size_t channels = step->channels;
    const float *scale = gp_onednn_data(step, SLOT_SCALE), *moments = gp_onednn_data(step, SLOT_MOMENTS);
    float *dscale = gp_onednn_data(step, SLOT_SUMS), *doffset = gp_onednn_data(step, SLOT_SQUARES);
    norm_call call = { .step = step,
                       .dy = source_of(step),
                       .x = gp_onednn_data(step, SLOT_X),
                       .out = gp_onednn_data(step, SLOT_OUT),
                       .kept = gp_onednn_data(step, SLOT_KEPT),
                       .rows = run->batch->count * step->pixels,
                       .partials = gp_onednn_data(step, SLOT_PARTIALS) };
    double n = (double)call.rows;
    gp_status status;

    call.terms = (float *)(call.partials + 2 * channels * step->mix.chunks);
    shares_run(run, &call, call.rows * channels, project_share);
    partials_fold(&call);
    for (size_t c = 0; c < channels; c++) {
        sum_add(run, dscale + c, call.partials[channels + c]);
        sum_add(run, doffset + c, call.partials[c]);
    }
    status = sums_couple(run, call.partials, channels, &n, err);
    for (size_t c = 0; c < channels; c++) {
        double factor = (double)moments[channels + c] * (double)scale[c];

        call.terms[c] = (float)factor;
        call.terms[channels + c] =
            (float)(factor * (double)moments[channels + c] * call.partials[channels + c] / n);
        call.terms[2 * channels + c] = (float)(factor * call.partials[c] / n);
    }
    rest_clear(run, &call, call.kept);
    if (call.out == NULL || status != GP_OK)
        return status;
    if (call.kept != NULL)
        call.dy = (mix_source){ .a = call.kept, .a_stride = channels, .channels = channels };
    shares_run(run, &call, call.rows * channels, gradient_share);
    rest_clear(run, &call, call.out);
    return GP_OK;
}
