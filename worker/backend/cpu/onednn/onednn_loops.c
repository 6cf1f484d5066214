/* Loops for steps without a suitable oneDNN primitive.
 *
 * Work is divided by element or by sample into one slice per thread. One slice writes each output
 * element, and one thread adds sums over samples in order. */
#include "common/model/kinds/norm_fold.h"
#include "worker/backend/cpu/onednn/onednn_segment.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

#include <math.h>
#include <string.h>

#include "worker/backend/cpu/base/bf16.h"
#include "worker/backend/cpu/base/labels.h"
#include "worker/backend/cpu/loops/loops_inside.h"

enum { SHARE_ALIGNMENT = 16 };

typedef struct loop_call {
    const gp_onednn_step *step;
    const gp_onednn_run *run;
    size_t count; /* elements or samples */
} loop_call;

static loop_range share_of(const loop_call *call, uint32_t thread, uint32_t threads, size_t alignment)
{
    return loop_range_of(call->count, alignment, thread, threads);
}

static void shares_run(const gp_onednn_step *step, const gp_onednn_run *run, size_t count, size_t elements,
                       gp_share_fn share)
{
    loop_call call = { step, run, count };

    gp_threads_run(elements < LOOP_SHARED_MIN ? 1 : run->segment->threads, share, &call);
}

/* Store element i of x, as bfloat16 if `narrow`. */
LOOP_INLINE void sample_put(void *x, size_t i, float value, const bool narrow)
{
    if (narrow)
        ((uint16_t *)x)[i] = bf16_of(value);
    else
        ((float *)x)[i] = value;
}

/* Normalise one sample of the batch into packed order. */
LOOP_INLINE void samples_row(const gp_onednn_step *step, const gp_onednn_run *run, size_t sample, void *x,
                             const bool narrow)
{
    const gp_netspec *spec = run->segment->graph->spec;
    const uint8_t *u8 = (const uint8_t *)run->batch->samples + sample * step->count;
    const float *f32 = (const float *)run->batch->samples + sample * step->count;

    for (size_t c = 0; c < step->channels; c++) {
        size_t rule = spec->normalize_count == 1 ? 0 : c, from = c * step->pixels;
        float scale = (float)spec->scale[rule], offset = (float)spec->offset[rule];

        if (run->segment->sample_dtype == GP_U8)
            for (size_t i = 0; i < step->pixels; i++)
                sample_put(x, i * step->channels + c, (float)u8[from + i] * scale + offset, narrow);
        else
            for (size_t i = 0; i < step->pixels; i++)
                sample_put(x, i * step->channels + c, f32[from + i] * scale + offset, narrow);
    }
}

static void samples_share(void *context, uint32_t thread, uint32_t threads)
{
    const loop_call *call = context;
    loop_range range = share_of(call, thread, threads, 1);
    size_t bytes = call->step->count * (call->step->narrow ? sizeof(uint16_t) : sizeof(float));

    for (size_t n = range.first; n < range.end; n++) {
        void *x = (char *)call->step->data[0] + n * bytes;

        if (n >= call->run->batch->count)
            memset(x, 0, bytes);
        else if (call->step->narrow)
            samples_row(call->step, call->run, n, x, true);
        else
            samples_row(call->step, call->run, n, x, false);
    }
}

gp_status gp_onednn_loop_samples(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    (void)err;
    shares_run(step, run, run->segment->micro_batch, step->count * run->segment->micro_batch, samples_share);
    return GP_OK;
}

static void copy_share(void *context, uint32_t thread, uint32_t threads)
{
    const loop_call *call = context;
    loop_range range = share_of(call, thread, threads, SHARE_ALIGNMENT);
    const float *x = call->step->data[0];
    float *y = call->step->data[1];

    if (y != x) /* an in-place copy needs no work */
        memcpy(y + range.first, x + range.first, (range.end - range.first) * sizeof(*y));
}

gp_status gp_onednn_loop_copy(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    size_t count = step->count * run->segment->micro_batch;

    (void)err;
    shares_run(step, run, count, count, copy_share);
    return GP_OK;
}

static void accumulate_share(void *context, uint32_t thread, uint32_t threads)
{
    const loop_call *call = context;
    loop_range range = share_of(call, thread, threads, SHARE_ALIGNMENT);
    const float *part = call->step->data[0];
    float *gradient = call->step->data[1];

    for (size_t i = range.first; i < range.end; i++)
        gradient[i] += part[i];
}

gp_status gp_onednn_loop_accumulate(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    (void)err;
    shares_run(step, run, step->count, step->count, accumulate_share);
    return GP_OK;
}

static void product_share(void *context, uint32_t thread, uint32_t threads)
{
    const loop_call *call = context;
    const gp_onednn_step *step = call->step;
    loop_range range = share_of(call, thread, threads, SHARE_ALIGNMENT);

    gp_wide_product(gp_onednn_data(step, SLOT_X), call->run->segment->micro_batch, step->count,
                    gp_onednn_data(step, SLOT_SCALE), range.first, range.end,
                    gp_onednn_data(step, SLOT_OFFSET), step->mix.bounded, gp_onednn_data(step, SLOT_OUT),
                    step->channels);
}

gp_status gp_onednn_loop_product(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    (void)err;
    shares_run(step, run, step->channels, step->count * step->channels, product_share);
    return GP_OK;
}

/* Convert a step to a loop call in loops.h; the image has step->channels and step->pixels. */
static gp_loop_call bias_call_of(const gp_onednn_step *step, const gp_onednn_run *run, gp_loop_operand *image,
                                 void *data)
{
    *image = (gp_loop_operand){ .data = data,
                                .shape = gp_shape3((int64_t)step->channels, (int64_t)step->pixels, 1) };
    return (gp_loop_call){ .batch = run->batch,
                           .rows = run->segment->micro_batch,
                           .threads = run->segment->threads,
                           .packed = true };
}

gp_status gp_onednn_loop_bias(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    gp_loop_operand y;
    gp_loop_call call = bias_call_of(step, run, &y, step->data[1]);

    (void)err;
    gp_loop_bias_add(&call, &y, step->data[0]);
    return GP_OK;
}

gp_status gp_onednn_loop_bias_gradient(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    gp_loop_operand dy;
    gp_loop_call call = bias_call_of(step, run, &dy, step->data[0]);

    (void)err;
    gp_loop_bias_gradient(&call, &dy, step->data[1]);
    return GP_OK;
}

gp_status gp_onednn_loop_plain(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const gp_segment *segment = run->segment;
    gp_loop_call call = { .op = step->op,
                          .batch = run->batch,
                          .memory = &segment->memory,
                          .rows = segment->micro_batch,
                          .threads = segment->threads,
                          .packed = step->packed,
                          .narrow = step->narrow };

    for (uint32_t i = 0; i < step->argument_count; i++) {
        bool in = step->roles[i] < GP_OP_VALUES_MAX;
        int slot = in ? step->roles[i] : step->roles[i] - GP_OP_VALUES_MAX;

        *(in ? &call.in[slot] : &call.out[slot]) = (gp_loop_operand){
            .data = step->data[i],
            .shape = segment->graph->values[in ? step->op->in[slot] : step->op->out[slot]].shape,
        };
    }
    return gp_loop_compute(step->plain, &call, err);
}

/* Compute one sample's loss in nats, and whether the label has the largest logit. */
static void softmax_row(const gp_segment *segment, size_t sample, const float *logits, size_t classes,
                        int32_t label, float *dlogits)
{
    float *scores = segment->memory.scores == NULL ? NULL : segment->memory.scores + sample * classes;
    size_t largest = 0;
    double total = 0.0;

    for (size_t k = 1; k < classes; k++)
        if (logits[k] > logits[largest])
            largest = k;
    for (size_t k = 0; k < classes; k++)
        total += exp((double)logits[k] - (double)logits[largest]);
    segment->losses[sample] = label < 0 ? 0.0 : log(total) + logits[largest] - logits[label];
    segment->hits[sample] = label >= 0 && largest == (size_t)label;
    for (size_t k = 0; k < classes; k++) {
        double score = exp((double)logits[k] - (double)logits[largest]) / total;

        if (scores != NULL && segment->phase == GP_PHASE_INFER)
            scores[k] = (float)score;
        if (dlogits != NULL)
            dlogits[k] = label < 0 ? 0.0f : (float)(score - (k == (size_t)label ? 1.0 : 0.0));
    }
}

static void softmax_share(void *context, uint32_t thread, uint32_t threads)
{
    const loop_call *call = context;
    const gp_onednn_step *step = call->step;
    const gp_batch *batch = call->run->batch;
    loop_range range = share_of(call, thread, threads, 1);
    const float *logits = step->data[0];
    float *dlogits = step->argument_count > 1 ? step->data[1] : NULL;

    for (size_t n = range.first; n < range.end; n++) {
        float *row = dlogits == NULL ? NULL : dlogits + n * step->count;

        if (n < batch->count)
            softmax_row(call->run->segment, n, logits + n * step->count, step->count,
                        batch->targets == NULL ? -1 : ((const int32_t *)batch->targets)[n], row);
        else if (row != NULL)
            memset(row, 0, step->count * sizeof(*row));
    }
}

gp_status gp_onednn_loop_softmax_xent(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const gp_segment *segment = run->segment;
    const gp_batch *batch = run->batch;
    const int32_t *labels = batch->targets;
    double part[GP_SUMS] = { 0.0 };
    gp_status status = labels_check(labels, batch->count, step->count, err);

    if (status != GP_OK)
        return status;
    shares_run(step, run, segment->micro_batch, step->count * segment->micro_batch, softmax_share);
    if (labels == NULL)
        return GP_OK;
    for (uint32_t n = 0; n < batch->count; n++) {
        part[GP_SUM_LOSS] += segment->losses[n];
        part[GP_SUM_WEIGHT] += labels[n] < 0 ? 0.0 : 1.0;
        part[GP_SUM_CLASSED] += labels[n] < 0 ? 0.0 : 1.0;
        part[GP_SUM_CORRECT] += segment->hits[n] ? 1.0 : 0.0;
    }
    for (int i = 0; i < GP_SUMS; i++)
        segment->memory.sums[i] += part[i];
    return GP_OK;
}

gp_status gp_onednn_loop_norm_fold(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err)
{
    const float *weight = gp_onednn_data(step, SLOT_X), *bias = gp_onednn_data(step, SLOT_A);
    const float *scale = gp_onednn_data(step, SLOT_SCALE), *offset = gp_onednn_data(step, SLOT_OFFSET);
    const float *mean = gp_onednn_data(step, SLOT_RUNNING), *variance = gp_onednn_data(step, SLOT_SQUARES);
    float *to = gp_onednn_data(step, SLOT_OUT), *level = gp_onednn_data(step, SLOT_KEPT);

    (void)run;
    (void)err;
    for (size_t o = 0; o < step->channels; o++) {
        double factor = gp_norm_factor(scale[o], variance[o], step->mix.epsilon);

        level[o] = (float)gp_norm_level(factor, bias == NULL ? 0.0f : bias[o], mean[o], offset[o]);
        for (size_t i = o * step->count; i < (o + 1) * step->count; i++)
            to[i] = (float)factor * weight[i];
    }
    return GP_OK;
}
