/* Pipelined predictions: samples to the device, one graph, results back. */
#include "worker/backend/cuda/plan/predict.h"
#include "worker/backend/cuda/plan/profile.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

_Static_assert((int)GP_SLOTS == (int)GP_PREDICTIONS_AHEAD, "a slot for each prediction under way");

enum { WAIT_SPINS = 2000, WAIT_LEAST_NS = 10000, WAIT_MOST_NS = 300000 };

/* ---- memory ---- */

void gp_predict_close(gp_plan *plan)
{
    gp_predict *predict = plan->predict;
    gp_device *device = plan->backend->device;
    gp_error ignored;

    if (predict == NULL)
        return;
    gp_device_wait(device, GP_LANE_INPUT, &ignored);
    gp_device_wait(device, GP_LANE_MAIN, &ignored);
    gp_device_wait(device, GP_LANE_OUTPUT, &ignored);
    gp_device_graph_free(predict->graph);
    gp_slots_free(&predict->calls, device);
    gp_slots_free(&predict->answers, device);
    gp_free(predict);
    plan->predict = NULL;
}

gp_status gp_predict_open(gp_plan *plan, gp_error *err)
{
    const size_t rows = plan->options.micro_batch;
    gp_predict *predict = gp_calloc(1, sizeof(*predict));
    gp_kernel_args *input = gp_plan_input(plan);
    gp_status status;

    if (predict == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for predictions");
    plan->predict = predict;
    predict->targets_at = gp_slot_aligned(sizeof(gp_kernel_call));
    predict->samples_at = predict->targets_at + gp_slot_aligned(rows * plan->graph->target_bytes);
    predict->scores_at = gp_slot_aligned(PLAN_SUMS * sizeof(double));
    status = gp_slots_take(&predict->calls, &plan->heap,
                           predict->samples_at + gp_slot_aligned(rows * gp_slot_sample_bytes(plan)), err);
    if (status == GP_OK)
        status = gp_slots_take(
            &predict->answers, &plan->heap,
            predict->scores_at + gp_slot_aligned(rows * plan->graph->score_count * sizeof(float)), err);
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &predict->kept, sizeof(*predict->kept), err);
    if (status == GP_OK)
        status = gp_device_clear(plan->backend->device, predict->kept, sizeof(*predict->kept), err);
    if (status != GP_OK)
        return status;
    if (plan->backend->eager)
        snprintf(predict->pieces, sizeof(predict->pieces), "eager launches were requested");
    input->bytes = predict->calls.mirrors + predict->samples_at;
    input->count = predict->calls.bytes;
    return GP_OK;
}

/* ---- the pass ---- */

static gp_status pass_launch(gp_plan *plan, gp_error *err)
{
    const gp_predict *predict = plan->predict;
    gp_device *device = plan->backend->device;
    const size_t words = plan->options.micro_batch * (plan->graph->target_bytes / sizeof(uint32_t));
    const size_t scores = plan->options.micro_batch * (size_t)plan->graph->score_count;
    gp_kernel_args targets = { .call = plan->buffers.call,
                               .kept = predict->kept,
                               .bytes = predict->calls.mirrors + predict->targets_at,
                               .count = predict->calls.bytes };
    gp_kernel_args answer = { .call = plan->buffers.call,
                              .bytes = predict->answers.mirrors,
                              .count = predict->answers.bytes,
                              .n = { PLAN_SUMS, (uint32_t)plan->graph->score_count } };
    gp_status status = gp_profile_part(plan, PART_INPUT, err);

    if (status == GP_OK)
        status = gp_slot_turn(plan, predict->kept, &predict->calls, err);
    targets.y[0].data = plan->buffers.targets;
    if (status == GP_OK && words != 0)
        status = gp_device_launch(device, GP_KERNEL_feed_targets, &targets, (uint32_t)words, err);
    if (status == GP_OK)
        status = gp_plan_launch(plan, &plan->steps, 0, plan->steps.count, err);
    answer.y[0].data = predict->answers.mirrors + predict->scores_at;
    answer.f[2] = plan->buffers.scores;
    answer.d[1] = plan->buffers.sums;
    if (status == GP_OK)
        status = gp_profile_part(plan, PART_OUTPUT, err);
    if (status == GP_OK)
        status = gp_device_launch(device, GP_KERNEL_predict_answer, &answer,
                                  (uint32_t)(scores < PLAN_SUMS ? PLAN_SUMS : scores), err);
    return status == GP_OK ? gp_profile_end(plan, err) : status;
}

/* ---- launch and take ---- */

static gp_status samples_put(gp_plan *plan, const gp_batch *batch, uint32_t slot, gp_error *err)
{
    const gp_predict *predict = plan->predict;
    char *pinned = gp_slot_pinned(&predict->calls, slot);
    const size_t bytes = batch->count * gp_slot_sample_bytes(plan);
    gp_kernel_call call = gp_plan_call(batch);

    memcpy(pinned, &call, sizeof(call));
    if (batch->targets != NULL && batch->count != 0)
        memcpy(pinned + predict->targets_at, batch->targets, batch->count * plan->graph->target_bytes);
    if (batch->count != 0)
        memcpy(pinned + predict->samples_at, batch->samples, bytes);
    return gp_slot_put(&predict->calls, plan->backend->device, slot, predict->samples_at + bytes, err);
}

static gp_status answer_fetch(gp_plan *plan, const gp_batch *batch, uint32_t slot, gp_error *err)
{
    const gp_predict *predict = plan->predict;
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_order(device, GP_LANE_OUTPUT, GP_EVENT_USED + slot, GP_LANE_MAIN, err);

    if (status == GP_OK)
        status = gp_device_fetch(
            device, gp_slot_pinned(&predict->answers, slot), gp_slot_mirror(&predict->answers, slot),
            predict->scores_at + batch->count * (size_t)plan->graph->score_count * sizeof(float), err);
    return status == GP_OK ? gp_device_note(device, GP_EVENT_OUT + slot, GP_LANE_OUTPUT, err) : status;
}

static gp_status predict_launch(gp_plan *plan, const gp_batch *batch, gp_error *err)
{
    gp_predict *predict = plan->predict;
    const uint32_t slot = (uint32_t)(predict->launched % GP_PREDICTIONS_AHEAD);
    gp_status status = GP_OK;

    if (predict->over || predict->launched - predict->taken == GP_PREDICTIONS_AHEAD)
        return gp_fail(err, GP_ESTATE, "%s",
                       predict->over ? "an earlier prediction on the GPU failed"
                                     : "two predictions are in flight on the GPU");
    status = gp_profile_begin(plan, err);
    if (status == GP_OK && batch->first && !batch->unchanged) { /* parameters may have changed */
        status = gp_buffers_put_parameters(&plan->buffers, plan->backend->device, plan->graph,
                                           plan->memory.parameters, err);
        if (status == GP_OK)
            status = gp_plan_launch(plan, &plan->prepare, 0, plan->prepare.count, err);
    }
    if (status == GP_OK)
        /* the slot is free: the previous result was taken */
        status = samples_put(plan, batch, slot, err);
    if (status == GP_OK) {
        /* Run the pass. If it cannot be recorded, launch each step: slower but
         * otherwise equivalent. */
        if (predict->graph == NULL && predict->warm && predict->pieces[0] == '\0' && !gp_plan_eager(plan)) {
            gp_error why;
            gp_status recorded = gp_device_record(plan->backend->device, &why);

            if (recorded == GP_OK)
                recorded = gp_plan_recorded(plan, &predict->graph, pass_launch(plan, &why), &why);
            if (recorded != GP_OK)
                snprintf(predict->pieces, sizeof(predict->pieces), "%.190s", why.message);
        }
        predict->warm = true;
        status = predict->graph != NULL && !gp_plan_eager(plan)
                     ? gp_device_replay(plan->backend->device, predict->graph, err)
                     : pass_launch(plan, err);
    }
    if (status == GP_OK)
        status = answer_fetch(plan, batch, slot, err);
    predict->over = status != GP_OK;
    if (status != GP_OK)
        return status;
    predict->compared[slot] = batch->targets != NULL;
    predict->launched++;
    if (plan->custom_loss.present && batch->first && batch->targets != NULL)
        memset(plan->memory.sums, 0, GP_SUMS * sizeof(double));
    return GP_OK;
}

/* Wait for a result. Sleeps only briefly at first, so that small networks have a low latency. */
static gp_status answer_wait(gp_plan *plan, uint32_t slot, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_predict *predict = plan->predict;
    gp_timeout timeout = gp_device_timeout(device, predict->taken == 0, predict->longest_ns);
    const int64_t begin_ns = gp_now_ns();
    int64_t waited_ns = 0;
    bool passed = false;
    gp_status status = GP_OK;

    for (uint32_t i = 0; status == GP_OK && !passed; i++) {
        int64_t sleep_ns = waited_ns / 16,
                left_ms = gp_timeout_left(timeout); /* read before the device is queried */

        waited_ns = gp_now_ns() - begin_ns;
        status = gp_device_passed(device, GP_EVENT_OUT + slot, &passed, err);
        sleep_ns = sleep_ns < WAIT_LEAST_NS  ? WAIT_LEAST_NS
                   : sleep_ns > WAIT_MOST_NS ? WAIT_MOST_NS
                                             : sleep_ns;
        if (status == GP_OK && !passed && left_ms == 0)
            return gp_fail(err, GP_ETIMEDOUT,
                           "no result from the GPU within %.1f s; the longest prediction so far took %.3f s",
                           (double)waited_ns * 1e-9, (double)predict->longest_ns * 1e-9);
        if (status == GP_OK && !passed && i >= WAIT_SPINS)
            nanosleep(&(struct timespec){ .tv_nsec = sleep_ns }, NULL);
    }
    predict->longest_ns = waited_ns > predict->longest_ns ? waited_ns : predict->longest_ns;
    return status;
}

static gp_status predict_take(gp_plan *plan, const float **scores, gp_error *err)
{
    gp_predict *predict = plan->predict;
    const uint32_t slot = (uint32_t)(predict->taken % GP_PREDICTIONS_AHEAD);
    const char *answer = gp_slot_pinned(&predict->answers, slot);
    gp_status status;

    if (predict->taken == predict->launched)
        return gp_fail(err, GP_ESTATE, "no prediction is in flight on the GPU");
    status = answer_wait(plan, slot, err);
    predict->over = predict->over || status != GP_OK;
    if (status != GP_OK)
        return status;
    predict->taken++;
    if (predict->compared[slot] && !plan->custom_loss.present)
        memcpy(plan->memory.sums, answer, GP_SUMS * sizeof(double));
    *scores = (const float *)(const void *)(answer + predict->scores_at);
    return GP_OK;
}

static const char *predict_pieces(const gp_plan *plan)
{
    return plan->predict->pieces;
}

gp_status gp_predict_run(gp_plan *plan, const gp_batch *batch, gp_error *err)
{
    const float *scores;
    gp_status status = predict_launch(plan, batch, err);

    if (status == GP_OK)
        status = predict_take(plan, &scores, err);
    if (status == GP_OK && plan->memory.scores != NULL)
        memcpy(plan->memory.scores, scores, batch->count * (size_t)plan->graph->score_count * sizeof(float));
    return status;
}

const gp_backend_predictions gp_plan_predictions = {
    .launch = predict_launch,
    .take = predict_take,
    .pieces = predict_pieces,
};
