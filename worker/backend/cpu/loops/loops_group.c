/* Normalisations within a sample: over channel groups, over the channels in each pixel, and over
 * neighbouring channels. */
#include <math.h>

#include "worker/backend/cpu/loops/loops_strip.h"

/* ---- group norm ---- */

/* State of a walk over a sample's channels in order, one group after the other. */
typedef struct group_walk {
    size_t channels; /* channels per group */
    double n;        /* elements per group */
    /* sums over the current group */
    double first, second;
} group_walk;

static group_walk group_walk_of(const gp_loop_call *call, const loop_image *x)
{
    size_t channels = x->channels / (size_t)call->op->number[0];

    return (group_walk){ .channels = channels, .n = (double)(channels * x->pixels) };
}

/* Sum x - a and (x - a)^2 over channels [c, c + width) in sample i, where a is each channel's first
 * pixel. */
LOOP_INLINE void group_sums(const gp_loop_call *call, const loop_image *x, size_t i, size_t c, size_t width,
                            strip_terms *terms, strip_sums *sums)
{
    const float *from = x->data + i * x->sample_stride + c * x->channel_stride;
    strip strips[2];
    size_t offsets[2], count = image_strips(x, call->packed, width, strips, offsets);

    *sums = (strip_sums){ .first = { 0.0 } };
    lanes_fill(terms->a, from, call->packed, width);
    for (size_t k = 0; k < count; k++)
        STRIP_CALL(strip_square, &strips[k], from + offsets[k], terms, sums);
    sums_fold(sums, call->packed);
}

/* Compute mean and 1 / standard deviation of each group of sample i, into `moments` [2, groups]. */
LOOP_INLINE void group_moments(const gp_loop_call *call, const loop_image *x, size_t i)
{
    group_walk walk = group_walk_of(call, x);
    const size_t groups = (size_t)call->op->number[0];
    float *moments = call->out[1].data + i * 2 * groups;

    for (size_t c = 0, width; c < x->channels; c += width) {
        strip_terms terms;
        strip_sums sums;

        width = channel_width(call->packed, c, x->channels);
        group_sums(call, x, i, c, width, &terms, &sums);
        for (size_t l = 0; l < width; l++) {
            double a = (double)terms.a[l], pixels = (double)x->pixels;
            size_t g = (c + l) / walk.channels;

            walk.first += sums.first[l] + pixels * a;
            walk.second += sums.second[l] + 2.0 * a * sums.first[l] + pixels * a * a;
            if ((c + l + 1) % walk.channels != 0)
                continue;
            double mean = walk.first / walk.n, variance = walk.second / walk.n - mean * mean;

            moments[g] = (float)mean;
            moments[groups + g] =
                (float)(1.0 / sqrt((variance > 0.0 ? variance : 0.0) + call->op->factor[0]));
            walk.first = walk.second = 0.0;
        }
    }
}

/* Normalise and scale sample i with the sample's moments. */
LOOP_INLINE void group_scale(const gp_loop_call *call, const loop_image *x, size_t i)
{
    const group_walk walk = group_walk_of(call, x);
    const size_t groups = (size_t)call->op->number[0];
    const float *moments = call->out[1].data + i * 2 * groups;

    for (size_t c = 0, width; c < x->channels; c += width) {
        float mean[LOOP_LANES], factor[LOOP_LANES];
        size_t at = i * x->sample_stride + c * x->channel_stride, offsets[2];
        strip strips[2];
        strip_terms terms;

        width = channel_width(call->packed, c, x->channels);
        for (size_t l = 0; l < width; l++) {
            size_t g = (c + l) / walk.channels;

            mean[l] = moments[g];
            factor[l] = moments[groups + g] * call->in[1].data[c + l];
        }
        lanes_fill(terms.a, mean, call->packed, width);
        lanes_fill(terms.b, factor, call->packed, width);
        lanes_fill(terms.c, call->in[2].data + c, call->packed, width);
        for (size_t k = 0, count = image_strips(x, call->packed, width, strips, offsets); k < count; k++)
            STRIP_CALL(strip_scale, &strips[k], x->data + at + offsets[k],
                       call->out[0].data + at + offsets[k], &terms);
    }
}

LOOP_CLONES static void groupnorm_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->rows, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        group_moments(call, &x, i);
        group_scale(call, &x, i);
    }
}

static size_t call_elements(const gp_loop_call *call)
{
    return (size_t)gp_shape_count(&call->in[0].shape) * call->rows;
}

/* ---- layer norm over the channels in each pixel ----
 *
 * Each of LOOP_LANES sums adds every LOOP_LANES-th channel. The compiler vectorises that for packed
 * activations, whose channels are contiguous; dense images are only slow. */

LOOP_INLINE float lanes_sum(float sum[LOOP_LANES])
{
    for (size_t l = 1; l < LOOP_LANES; l++)
        sum[0] += sum[l];
    return sum[0];
}

/* Normalise the channels of a pixel. Needs two passes over them for the moments: a single pass over
 * squares would cancel for values far from 0.
 *   step  elements between channels */
LOOP_INLINE void layernorm_pixel(const gp_loop_call *call, const float *from, float *to, size_t channels,
                                 const size_t step, float *mean, float *inverse)
{
    const float *scale = call->in[1].data, *offset = call->in[2].data;
    const float count = (float)channels, epsilon = (float)call->op->factor[0];
    float sum[LOOP_LANES] = { 0.0f }, square[LOOP_LANES] = { 0.0f };

    for (size_t c = 0; c < channels; c += LOOP_LANES)
        for (size_t l = 0; l < LOOP_LANES && c + l < channels; l++)
            sum[l] += from[(c + l) * step];
    *mean = lanes_sum(sum) / count;
    for (size_t c = 0; c < channels; c += LOOP_LANES)
        for (size_t l = 0; l < LOOP_LANES && c + l < channels; l++)
            square[l] += (from[(c + l) * step] - *mean) * (from[(c + l) * step] - *mean);
    *inverse = 1.0f / sqrtf(lanes_sum(square) / count + epsilon);
    for (size_t c = 0; c < channels; c++)
        to[c * step] = (from[c * step] - *mean) * *inverse * scale[c] + offset[c];
}

LOOP_CLONES static void layernorm_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    const loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->rows, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++)
        for (size_t p = 0; p < x.pixels; p++) {
            float *mean = call->out[1].data + i * 2 * x.pixels + p, *inverse = mean + x.pixels;
            const size_t at = i * x.sample_stride + p * x.pixel_stride;

            if (x.channel_stride == 1)
                layernorm_pixel(call, x.data + at, call->out[0].data + at, x.channels, 1, mean, inverse);
            else
                layernorm_pixel(call, x.data + at, call->out[0].data + at, x.channels, x.channel_stride, mean,
                                inverse);
        }
}

static gp_status groupnorm_run(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, call_elements(call), call->op->number[1] != 0 ? layernorm_share : groupnorm_share);
    return GP_OK;
}

const gp_loop gp_loop_groupnorm = { .run = groupnorm_run };

/* Sum dy and dy * normalised x over each channel of sample i, into `to` [2, C]. */
LOOP_INLINE void group_project(const gp_loop_call *call, const loop_image *x, size_t i, float *to)
{
    const group_walk walk = group_walk_of(call, x);
    const size_t groups = (size_t)call->op->number[0];
    const float *moments = call->in[3].data + i * 2 * groups;

    for (size_t c = 0, width; c < x->channels; c += width) {
        float mean[LOOP_LANES], inverse[LOOP_LANES];
        size_t at = i * x->sample_stride + c * x->channel_stride, offsets[2];
        strip strips[2];
        strip_terms terms;
        strip_sums sums = { .first = { 0.0 } };

        width = channel_width(call->packed, c, x->channels);
        for (size_t l = 0; l < width; l++) {
            mean[l] = moments[(c + l) / walk.channels];
            inverse[l] = moments[groups + (c + l) / walk.channels];
        }
        lanes_fill(terms.a, mean, call->packed, width);
        lanes_fill(terms.b, inverse, call->packed, width);
        for (size_t k = 0, count = image_strips(x, call->packed, width, strips, offsets); k < count; k++)
            STRIP_CALL(strip_project, &strips[k], x->data + at + offsets[k],
                       call->in[1].data + at + offsets[k], &terms, &sums);
        sums_fold(&sums, call->packed);
        for (size_t l = 0; l < width; l++) {
            to[c + l] = (float)sums.first[l];
            to[x->channels + c + l] = (float)sums.second[l];
        }
    }
}

/* Compute dx for one sample from the sums: subtract the group means of dy * scale and of the
 * projection. */
LOOP_INLINE void group_backward(const gp_loop_call *call, const loop_image *x, size_t i, const float *sums)
{
    const group_walk walk = group_walk_of(call, x);
    const size_t groups = (size_t)call->op->number[0];
    const float *moments = call->in[3].data + i * 2 * groups, *scale = call->in[2].data;
    float first[LOOP_LANES], second[LOOP_LANES], mean[LOOP_LANES], inverse[LOOP_LANES], factor[LOOP_LANES];
    size_t known = groups;
    double mean_dy = 0.0, mean_projection = 0.0;

    for (size_t c = 0, width; c < x->channels; c += width) {
        size_t at = i * x->sample_stride + c * x->channel_stride, offsets[2];
        strip strips[2];
        strip_back back;

        width = channel_width(call->packed, c, x->channels);
        for (size_t l = 0; l < width; l++) {
            size_t g = (c + l) / walk.channels;

            if (g != known) {
                mean_dy = mean_projection = 0.0;
                for (size_t k = g * walk.channels; k < (g + 1) * walk.channels; k++) {
                    mean_dy += (double)scale[k] * (double)sums[k] / walk.n;
                    mean_projection += (double)scale[k] * (double)sums[x->channels + k] / walk.n;
                }
                known = g;
            }
            mean[l] = moments[g];
            inverse[l] = moments[groups + g];
            factor[l] = inverse[l] * scale[c + l];
            first[l] = (float)((double)inverse[l] * mean_dy);
            second[l] = (float)((double)inverse[l] * mean_projection);
        }
        lanes_fill(back.mean, mean, call->packed, width);
        lanes_fill(back.inverse, inverse, call->packed, width);
        lanes_fill(back.scale, factor, call->packed, width);
        lanes_fill(back.dy, first, call->packed, width);
        lanes_fill(back.projection, second, call->packed, width);
        for (size_t k = 0, count = image_strips(x, call->packed, width, strips, offsets); k < count; k++)
            STRIP_CALL(strip_backward, &strips[k], x->data + at + offsets[k],
                       call->in[1].data + at + offsets[k], call->out[0].data + at + offsets[k], &back);
    }
}

LOOP_CLONES static void groupnorm_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->batch->count, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        float *sums = call->out[3].data + i * 2 * x.channels;

        group_project(call, &x, i, sums);
        if (call->out[0].data != NULL)
            group_backward(call, &x, i, sums);
    }
}

/* Operands for the backward pass of a layer norm, for one pixel of a sample. */
typedef struct pixel_back {
    const float *x, *dy, *scale;
    float mean, inverse;
    float *dx;   /* NULL: not requested */
    float *sums; /* [2, C] for the sample, added to */
} pixel_back;

LOOP_INLINE void pixel_backward(const pixel_back *b, size_t channels, const size_t step)
{
    const float mean = b->mean, inverse = b->inverse;
    float first[LOOP_LANES] = { 0.0f }, second[LOOP_LANES] = { 0.0f };

    for (size_t c = 0; c < channels; c += LOOP_LANES)
        for (size_t l = 0; l < LOOP_LANES && c + l < channels; l++) {
            float dy = b->dy[(c + l) * step], normal = (b->x[(c + l) * step] - mean) * inverse;

            first[l] += dy * b->scale[c + l];
            second[l] += dy * b->scale[c + l] * normal;
            b->sums[c + l] += dy;
            b->sums[channels + c + l] += dy * normal;
        }
    first[0] = lanes_sum(first) / (float)channels;
    second[0] = lanes_sum(second) / (float)channels;
    for (size_t c = 0; b->dx != NULL && c < channels; c++)
        b->dx[c * step] = inverse * (b->dy[c * step] * b->scale[c] - first[0] -
                                     (b->x[c * step] - mean) * inverse * second[0]);
}

LOOP_CLONES static void layernorm_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    const loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->batch->count, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        pixel_back back = { .scale = call->in[2].data, .sums = call->out[3].data + i * 2 * x.channels };
        const float *moments = call->in[3].data + i * 2 * x.pixels;

        memset(back.sums, 0, 2 * x.channels * sizeof(float));
        for (size_t p = 0; p < x.pixels; p++) {
            const size_t at = i * x.sample_stride + p * x.pixel_stride;

            back.x = x.data + at;
            back.dy = call->in[1].data + at;
            back.dx = call->out[0].data == NULL ? NULL : call->out[0].data + at;
            back.mean = moments[p];
            back.inverse = moments[x.pixels + p];
            if (x.channel_stride == 1)
                pixel_backward(&back, x.channels, 1);
            else
                pixel_backward(&back, x.channels, x.channel_stride);
        }
    }
}

/* Add up the parameter gradients of all samples, in order and on one thread. */
static void groupnorm_gradients(const gp_loop_call *call)
{
    const size_t channels = (size_t)gp_shape_count(&call->in[2].shape);

    for (size_t k = 0; k < 2 * channels; k++) {
        float *to = k < channels ? call->out[2].data + k : call->out[1].data + k - channels;
        double sum = call->batch->first ? 0.0 : (double)*to;

        for (size_t i = 0; i < call->batch->count; i++)
            sum += (double)call->out[3].data[i * 2 * channels + k];
        *to = (float)sum;
    }
}

static gp_status groupnorm_backward_run(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, call_elements(call),
                    call->op->number[1] != 0 ? layernorm_backward_share : groupnorm_backward_share);
    groupnorm_gradients(call);
    loop_clear_rest(call, &call->out[0]);
    return GP_OK;
}

const gp_loop gp_loop_groupnorm_backward = { .run = groupnorm_backward_run };

/* ---- local response norm ---- */

/* Compute to[c] += factor * sum of f(c + o) over the window.
 *   square  f is the square of `from`, otherwise `from`
 *   before  channels in the window before c
 *   behind  channels in the window after c
 *   rows    number of channels
 *   step    elements per channel */
LOOP_INLINE void window_add(float *to, const float *from, bool square, float factor, ptrdiff_t before,
                            ptrdiff_t behind, ptrdiff_t rows, ptrdiff_t step)
{
    for (ptrdiff_t o = -before; o <= behind; o++) {
        ptrdiff_t first = o < 0 ? -o : 0, end = o > 0 ? rows - o : rows;

        for (ptrdiff_t e = first * step; e < end * step; e++) {
            float value = from[e + o * step];

            to[e] += factor * (square ? value * value : value);
        }
    }
}

/* Return d ^ -beta. The usual beta (0.75) needs no logarithm. */
LOOP_INLINE float inverse_power(float d, float beta)
{
    return beta == 0.75f ? 1.0f / sqrtf(d * sqrtf(d)) : powf(d, -beta);
}

LOOP_CLONES static void lrn_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    const size_t size = (size_t)call->op->number[0], pieces = call->packed ? x.pixels : 1;
    const size_t step = call->packed ? 1 : x.pixels, count = x.channels * step;
    const float alpha = (float)(call->op->factor[0] / (double)size), beta = (float)call->op->factor[1];
    loop_range range = loop_range_of(call->rows * pieces, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        const float *from = x.data + i * count;
        float *d = call->out[1].data + i * count, *y = call->out[0].data + i * count;

        for (size_t e = 0; e < count; e++)
            d[e] = (float)call->op->factor[2];
        window_add(d, from, true, alpha, (ptrdiff_t)((size - 1) / 2), (ptrdiff_t)(size / 2),
                   (ptrdiff_t)x.channels, (ptrdiff_t)step);
        for (size_t e = 0; e < count; e++)
            y[e] = from[e] * inverse_power(d[e], beta);
    }
}

const gp_loop gp_loop_lrn = { .share = lrn_share };

LOOP_CLONES static void lrn_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image x = loop_image_of(call, &call->in[0]);
    const size_t size = (size_t)call->op->number[0], pieces = call->packed ? x.pixels : 1;
    const size_t step = call->packed ? 1 : x.pixels, count = x.channels * step;
    const float beta = (float)call->op->factor[1];
    const float factor = (float)(-2.0 * call->op->factor[0] * call->op->factor[1] / (double)size);
    loop_range range = loop_range_of(call->rows * pieces, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        const float *from = x.data + i * count, *dy = call->in[1].data + i * count,
                    *d = call->in[2].data + i * count;
        float *terms = call->out[1].data + i * count, *dx = call->out[0].data + i * count;

        for (size_t e = 0; e < count; e++) {
            dx[e] = 0.0f;
            terms[e] = dy[e] * from[e] * inverse_power(d[e], beta) / d[e];
        }
        window_add(dx, terms, false, factor, (ptrdiff_t)(size / 2), (ptrdiff_t)((size - 1) / 2),
                   (ptrdiff_t)x.channels, (ptrdiff_t)step);
        for (size_t e = 0; e < count; e++)
            dx[e] = dx[e] * from[e] + dy[e] * inverse_power(d[e], beta);
    }
}

static gp_status lrn_backward_run(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, call_elements(call), lrn_backward_share);
    loop_clear_rest(call, &call->out[0]);
    return GP_OK;
}

const gp_loop gp_loop_lrn_backward = { .run = lrn_backward_run };
