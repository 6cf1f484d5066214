/* loops_norm.c -- batch norm and softmax: what couples the samples of a call, or the channels of a pixel. */
#include <math.h>

#include "worker/backend/cpu/loops_strip.h"

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
        width = channel_width(call->packed, c, range.end);
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
        width = channel_width(call->packed, c, range.end);
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
        factor[l] = inverse[c + l] * call->in[2].data[c + l];
        dy_mean[l] = (float)((double)factor[l] * sums.first[l] / n);
        projection[l] = (float)((double)factor[l] * sums.second[l] / n);
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
        width = channel_width(call->packed, c, range.end);
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
