/* Batch norm and softmax: ops that combine the samples in a call, or the channels in a pixel. */
#include <math.h>

#include "worker/backend/cpu/loops/loops_inside.h"

/* ---- batch norm ----
 *
 * oneDNN segments train batch norm by separate loops (onednn_norm.c), so the speed of training
 * matters here only without oneDNN. */

/* One pass over the channels. Batch norm has three phases: sum each channel over the local samples;
 * with a coupling, add the sums from all ranks; then compute the output from the sums. Without a
 * coupling, the first and the last phase are one pass. */
typedef struct norm_pass {
    const gp_loop_call *call;
    /* phases in this pass */
    bool sums, apply;
} norm_pass;

/* Sums over one channel and the element count. */
typedef struct norm_sums {
    double first, second, n;
} norm_sums;

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
    const loop_image x = loop_image_of(call, &call->in[0]);
    const uint32_t threads = x.sample_stride * call->rows < LOOP_SHARED_MIN ? 1 : call->threads;
    norm_pass pass = { call, .sums = true, .apply = coupling == NULL };
    gp_status status;

    if (coupling != NULL)
        coupling->sums[2 * x.channels] = (double)call->batch->count * (double)x.pixels;
    gp_threads_run(threads, share, &pass);
    if (coupling == NULL)
        return GP_OK;
    status = coupling->reduce(coupling->context, 2 * x.channels + 1, err);
    pass = (norm_pass){ call, .apply = true };
    if (status == GP_OK)
        gp_threads_run(threads, share, &pass);
    return status;
}

/* Store a channel's local sums for the reduction, or replace them by those from all ranks. */
static void sums_couple(const norm_pass *pass, size_t channels, size_t c, norm_sums *sums)
{
    double *all = pass->call->batch->coupling == NULL ? NULL : pass->call->batch->coupling->sums;

    if (all != NULL && pass->sums) {
        all[c] = sums->first;
        all[channels + c] = sums->second;
    } else if (all != NULL) {
        *sums = (norm_sums){ all[c], all[channels + c], all[2 * channels] };
    }
}

/* Sum x - running mean and (x - running mean)^2 over channel c. The sums are taken relative to the
 * first pixel, to avoid cancellation. */
static norm_sums moments_sum(const gp_loop_call *call, const loop_image *x, size_t c)
{
    const float *from = x->data + c * x->channel_stride;
    norm_sums sums = { .n = (double)call->batch->count * (double)x->pixels };
    double mean, variance, shift;

    for (size_t i = 0; i < call->batch->count; i++)
        for (size_t p = 0; p < x->pixels; p++) {
            double d = (double)from[i * x->sample_stride + p * x->pixel_stride] - (double)from[0];

            sums.first += d;
            sums.second += d * d;
        }
    mean = sums.first / sums.n;
    variance = sums.second / sums.n - mean * mean;
    shift = (double)from[0] + mean - (double)call->in[3].data[c];
    sums.first = sums.n * shift;
    sums.second = sums.n * ((variance > 0.0 ? variance : 0.0) + shift * shift);
    return sums;
}

static void batchnorm_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_pass *pass = context;
    const gp_loop_call *call = pass->call;
    const loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);

    for (size_t c = range.first; c < range.end; c++) {
        float *mean = call->out[1].data + c, *inverse = mean + x.channels, factor;
        double shift, variance;
        norm_sums sums = { .n = 0.0 };

        if (pass->sums) {
            sums = moments_sum(call, &x, c);
            sum_add(call, 2, c, sums.first);
            sum_add(call, 3, c, sums.second);
        }
        sums_couple(pass, x.channels, c, &sums);
        if (!pass->apply)
            continue;
        shift = sums.first / sums.n;
        variance = sums.second / sums.n - shift * shift;
        *mean = (float)((double)call->in[3].data[c] + shift);
        *inverse = (float)(1.0 / sqrt((variance > 0.0 ? variance : 0.0) + call->op->factor[0]));
        factor = *inverse * call->in[1].data[c];
        for (size_t i = 0; i < call->rows; i++)
            for (size_t p = 0; p < x.pixels; p++) {
                size_t at = i * x.sample_stride + c * x.channel_stride + p * x.pixel_stride;

                call->out[0].data[at] = (x.data[at] - *mean) * factor + call->in[2].data[c];
            }
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
    float factor[LOOP_CHANNELS_ALIGNMENT];

    for (size_t c = range.first, width; c < range.end; c += width) {
        width = range.end - c < LOOP_CHANNELS_ALIGNMENT ? range.end - c : LOOP_CHANNELS_ALIGNMENT;
        for (size_t l = 0; l < width; l++)
            factor[l] = (float)((double)scale[c + l] / sqrt((double)variance[c + l] + call->op->factor[0]));
        for (size_t i = 0; i < call->rows; i++)
            for (size_t p = 0; p < x.pixels; p++) {
                const size_t at = i * x.sample_stride + p * x.pixel_stride + c * x.channel_stride;

                for (size_t l = 0; l < width; l++)
                    call->out[0].data[at + l * x.channel_stride] =
                        (x.data[at + l * x.channel_stride] - mean[c + l]) * factor[l] +
                        call->in[2].data[c + l];
            }
    }
}

const gp_loop gp_loop_batchnorm_infer = { .share = batchnorm_infer_share, .in_place = true };

static void batchnorm_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const norm_pass *pass = context;
    const gp_loop_call *call = pass->call;
    const loop_image x = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(x.channels, LOOP_CHANNELS_ALIGNMENT, thread, threads);

    for (size_t c = range.first; c < range.end; c++) {
        const float mean = call->in[3].data[c], inverse = call->in[3].data[x.channels + c],
                    factor = inverse * call->in[2].data[c];
        const float *from = x.data + c * x.channel_stride, *dy = call->in[1].data + c * x.channel_stride;
        float *dx = call->out[0].data == NULL ? NULL : call->out[0].data + c * x.channel_stride;
        norm_sums sums = { .n = (double)call->batch->count * (double)x.pixels };

        for (size_t i = 0; i < call->batch->count && pass->sums; i++)
            for (size_t p = 0; p < x.pixels; p++) {
                size_t at = i * x.sample_stride + p * x.pixel_stride;

                sums.first += (double)dy[at];
                sums.second += (double)(dy[at] * ((from[at] - mean) * inverse));
            }
        if (pass->sums) {
            sum_add(call, 1, c, sums.second);
            sum_add(call, 2, c, sums.first);
        }
        sums_couple(pass, x.channels, c, &sums);
        for (size_t i = 0; i < call->batch->count && pass->apply && dx != NULL; i++)
            for (size_t p = 0; p < x.pixels; p++) {
                size_t at = i * x.sample_stride + p * x.pixel_stride;

                dx[at] = factor * dy[at] - (float)((double)factor * sums.first / sums.n) -
                         (from[at] - mean) * inverse * (float)((double)factor * sums.second / sums.n);
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
