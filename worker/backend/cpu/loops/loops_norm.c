/* Batch norm and softmax: ops that combine the samples in a call, or the channels in a pixel. */
#include <math.h>
#include <string.h>

#include "worker/backend/cpu/loops/loops_strip.h"

/* ---- batch norm ---- */

/* One pass over the channels. Batch norm has three phases: sum the moments of each channel over the
 * local samples; with a coupling, add the sums from all ranks; then scale the channels. Without a
 * coupling, the first and the last phase are one pass, so that a channel is still in the cache when
 * it is scaled. */
typedef struct norm_pass {
    const gp_loop_call *call;
    /* phases in this pass */
    bool sums, apply;
} norm_pass;

/* Add to channel c of output `slot`, which is overwritten if batch->first is set. */
static void sum_add(const gp_loop_call *call, uint32_t slot, size_t c, double value)
{
    float *to = call->out[slot].data + c;

    *to = (float)((call->batch->first ? 0.0 : (double)*to) + value);
}

/* Run the phases: one pass without a coupling, otherwise two with a reduction between them. */
static gp_status passes_run(const gp_loop_call *call, gp_share_fn share, gp_error *err)
{
    const gp_coupling *coupling = call->batch->coupling;
    const size_t channels = loop_image_of(call, &call->in[0]).channels;
    const size_t elements = (size_t)gp_shape_count(&call->in[0].shape) * call->rows;
    const uint32_t threads = elements < LOOP_SHARED_MIN ? 1 : call->threads;
    norm_pass pass = { call, .sums = true, .apply = coupling == NULL };
    gp_status status;

    if (coupling != NULL)
        coupling->sums[2 * channels] =
            (double)call->batch->count * (double)loop_image_of(call, &call->in[0]).pixels;
    gp_threads_run(threads, share, &pass);
    if (coupling == NULL)
        return GP_OK;
    status = coupling->reduce(coupling->context, 2 * channels + 1, err);
    pass = (norm_pass){ call, .apply = true };
    if (status == GP_OK)
        gp_threads_run(threads, share, &pass);
    return status;
}

/* Compute the moments of channels [c, c + width) over this call, and update the sums for running
 * statistics. */
LOOP_INLINE void batchnorm_moments(const gp_loop_call *call, const loop_image *x, size_t c, size_t width)
{
    const double n = (double)call->batch->count * (double)x->pixels;
    const gp_coupling *coupling = call->batch->coupling;
    float *mean = call->out[1].data, *inverse = mean + x->channels;
    double m[LOOP_LANES], v[LOOP_LANES];

    strip_moments(call, x, c, width, m, v);
    for (size_t l = 0; l < width; l++) {
        double shift = m[l] - (double)call->in[3].data[c + l];

        mean[c + l] = (float)m[l];
        inverse[c + l] = (float)(1.0 / sqrt(v[l] + call->op->factor[0]));
        sum_add(call, 2, c + l, n * shift);
        sum_add(call, 3, c + l, n * (v[l] + shift * shift));
        if (coupling != NULL) {
            coupling->sums[c + l] = n * shift;
            coupling->sums[x->channels + c + l] = n * (v[l] + shift * shift);
        }
    }
}

/* Compute the moments over the samples on all ranks, from sums relative to the running mean. */
static void batchnorm_coupled_moments(const gp_loop_call *call, const loop_image *x, size_t c, size_t width)
{
    const double *sums = call->batch->coupling->sums, n = sums[2 * x->channels];
    float *mean = call->out[1].data, *inverse = mean + x->channels;

    for (size_t i = c; i < c + width; i++) {
        double shift = sums[i] / n, variance = sums[x->channels + i] / n - shift * shift;

        variance = variance > 0.0 ? variance : 0.0;
        mean[i] = (float)((double)call->in[3].data[i] + shift);
        inverse[i] = (float)(1.0 / sqrt(variance + call->op->factor[0]));
    }
}

/* Normalise and scale channels [c, c + width) of all samples. */
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
    const norm_pass *pass = context;
    const gp_loop_call *call = pass->call;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);
    const float *mean = call->out[1].data, *inverse = mean + x.channels;
    float factor[LOOP_LANES];

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = channel_width(call->packed, c, range.end);
        if (pass->sums)
            batchnorm_moments(call, &x, c, width);
        else
            batchnorm_coupled_moments(call, &x, c, width);
        for (size_t l = 0; l < width; l++)
            factor[l] = inverse[c + l] * call->in[1].data[c + l];
        if (pass->apply)
            batchnorm_scale(call, &x, call->out[0].data, c, width, mean + c, factor);
    }
}

static gp_status batchnorm_run(const gp_loop_call *call, gp_error *err)
{
    return passes_run(call, batchnorm_share, err);
}

const gp_loop gp_loop_batchnorm = { .run = batchnorm_run };

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

const gp_loop gp_loop_batchnorm_infer = { .share = batchnorm_infer_share, .in_place = true };

/* Sum dy and dy * normalised x over channels [c, c + width), and add the sums to the parameter
 * gradients. */
LOOP_INLINE void batchnorm_project(const gp_loop_call *call, const loop_image *x, size_t c, size_t width,
                                   strip_sums *sums)
{
    const gp_coupling *coupling = call->batch->coupling;

    strip_projections(call, x, call->in[1].data, call->in[3].data, c, width, sums);
    for (size_t l = 0; l < width; l++) {
        sum_add(call, 1, c + l, sums->second[l]);
        sum_add(call, 2, c + l, sums->first[l]);
        if (coupling != NULL) {
            coupling->sums[c + l] = sums->first[l];
            coupling->sums[x->channels + c + l] = sums->second[l];
        }
    }
}

/* Compute the constants of the backward pass for channels [c, c + width).
 *   sums  sums of dy and of dy * normalised x
 *   n     number of elements in each sum */
LOOP_INLINE void batchnorm_back(const gp_loop_call *call, const loop_image *x, size_t c, size_t width,
                                const strip_sums *sums, double n, strip_back *back)
{
    const float *mean = call->in[3].data, *inverse = mean + x->channels;
    float dy_mean[LOOP_LANES], projection[LOOP_LANES], factor[LOOP_LANES];

    for (size_t l = 0; l < width; l++) {
        factor[l] = inverse[c + l] * call->in[2].data[c + l];
        dy_mean[l] = (float)((double)factor[l] * sums->first[l] / n);
        projection[l] = (float)((double)factor[l] * sums->second[l] / n);
    }
    lanes_fill(back->mean, mean + c, call->packed, width);
    lanes_fill(back->inverse, inverse + c, call->packed, width);
    lanes_fill(back->scale, factor, call->packed, width);
    lanes_fill(back->dy, dy_mean, call->packed, width);
    lanes_fill(back->projection, projection, call->packed, width);
}

LOOP_CLONES static void batchnorm_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_pass *pass = context;
    const gp_loop_call *call = pass->call;
    loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);
    double n = (double)call->batch->count * (double)x.pixels;
    strip strips[2];
    size_t offsets[2];
    strip_sums sums;
    strip_back back;

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = channel_width(call->packed, c, range.end);
        if (pass->sums)
            batchnorm_project(call, &x, c, width, &sums);
        else {
            const double *all = call->batch->coupling->sums;

            memcpy(sums.first, all + c, width * sizeof(*all));
            memcpy(sums.second, all + x.channels + c, width * sizeof(*all));
            n = all[2 * x.channels];
        }
        if (!pass->apply || call->out[0].data == NULL)
            continue;
        batchnorm_back(call, &x, c, width, &sums, n, &back);
        for (size_t i = 0; i < call->batch->count; i++)
            for (size_t k = 0, count = image_strips(&x, call->packed, width, strips, offsets); k < count;
                 k++) {
                size_t at = i * x.sample_stride + c * x.channel_stride + offsets[k];

                STRIP_CALL(strip_backward, &strips[k], x.data + at, call->in[1].data + at,
                           call->out[0].data + at, &back);
            }
    }
}

static gp_status batchnorm_backward_run(const gp_loop_call *call, gp_error *err)
{
    gp_status status = passes_run(call, batchnorm_backward_share, err);

    loop_clear_rest(call, &call->out[0]);
    return status;
}

const gp_loop gp_loop_batchnorm_backward = { .run = batchnorm_backward_run };

/* ---- softmax over channels ---- */

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

const gp_loop gp_loop_softmax = { .share = softmax_share };

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

const gp_loop gp_loop_softmax_backward = { .share = softmax_backward_share };
