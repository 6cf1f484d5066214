/* trainer_exchange.c -- what the ranks of a training add up: gradients bucket by bucket, then the head of the arena. */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/train/exact.h"
#include "common/base/system/fault.h"
#include "worker/train/trainer_state.h"

void gp_trainer_progress(gp_trainer *trainer)
{
    atomic_fetch_add_explicit(&trainer->control->progress, 1, memory_order_relaxed);
}

/* gp_ready_fn: all-reduce the buckets that are complete, in order. */
gp_status gp_trainer_exchange(void *context, size_t final_count, gp_error *err)
{
    gp_trainer *trainer = context;
    int64_t begin_ns = gp_now_ns();
    gp_status status = GP_OK;

    bool stretch = gp_train_control_rest(trainer->control);

    while (status == GP_OK && trainer->buckets_done < trainer->bucket_count) {
        const bucket *next = &trainer->buckets[trainer->buckets_done];

        if (next->first + next->count > final_count)
            break;
        if (trainer->buckets_done > 0)
            gp_fault_point("between-buckets");
        gp_fault_point("exchange");
        status = gp_comm_all_reduce(trainer->comm, trainer->gradients + next->first, next->count, GP_F32,
                                    GP_COMM_SUM, err);
        trainer->buckets_done++;
        gp_trainer_progress(trainer);
    }
    trainer->exchange_ns += gp_now_ns() - begin_ns;
    if (stretch)
        gp_train_control_stretch(trainer->control);
    return status;
}

/* ---- exchange of integers: what a block gave is added to ours, then all ranks' are added ---- */

void gp_trainer_exact_begin(gp_trainer *trainer, bool gradients)
{
    size_t count = EXACT_COUNT + (gradients ? 2 * trainer->graph->blob_count : 0);

    memset(trainer->exact, 0, count * sizeof(int64_t));
}

/* After a call that overwrote sums and gradients. */
void gp_trainer_exact_take(gp_trainer *trainer, bool gradients)
{
    size_t count = trainer->graph->blob_count;
    int64_t *sums = trainer->exact, *high = trainer->exact + EXACT_COUNT;

    sums[EXACT_BAD] += (int64_t)gp_exact_add_f64(sums, sums + GP_SUMS, trainer->header, GP_SUMS);
    if (gradients)
        sums[EXACT_BAD] += (int64_t)gp_exact_add(high, high + count, trainer->gradients, count);
}

gp_status gp_trainer_exact_exchange(gp_trainer *trainer, gp_error *err)
{
    size_t count = trainer->graph->blob_count;
    int64_t *words = trainer->exact + EXACT_COUNT;
    int64_t begin_ns = gp_now_ns();
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < 2 * trainer->bucket_count && status == GP_OK; i++) {
        const bucket *part = &trainer->buckets[i / 2];

        gp_fault_point("exchange");
        status = gp_comm_all_reduce(trainer->comm, words + i % 2 * count + part->first, part->count, GP_I64,
                                    GP_COMM_SUM, err);
        gp_trainer_progress(trainer);
    }
    trainer->exchange_ns += gp_now_ns() - begin_ns;
    if (status == GP_OK)
        gp_exact_get(trainer->gradients, words, words + count, count);
    return status;
}

static gp_status exact_exchange_header(gp_trainer *trainer, uint64_t count, gp_error *err)
{
    int64_t *sums = trainer->exact;
    gp_status status;

    sums[EXACT_SAMPLES] = (int64_t)count;
    sums[EXACT_STOP] = atomic_load(&trainer->control->stop) == 1;
    sums[EXACT_PAUSE] = atomic_load(&trainer->control->pause);
    status = gp_comm_all_reduce(trainer->comm, sums, EXACT_COUNT, GP_I64, GP_COMM_SUM, err);
    gp_exact_get_f64(trainer->header, sums, sums + GP_SUMS, GP_SUMS);
    trainer->header[HEADER_STOP] = (double)sums[EXACT_STOP];
    trainer->header[HEADER_PAUSE] = (double)sums[EXACT_PAUSE];
    trainer->header[HEADER_SAMPLES] = (double)sums[EXACT_SAMPLES];
    if (sums[EXACT_BAD] != 0)
        trainer->header[GP_SUM_LOSS] = NAN;
    return status;
}

gp_status gp_trainer_exchange_header(gp_trainer *trainer, uint64_t count, gp_error *err)
{
    int64_t begin_ns = gp_now_ns();
    gp_status status;

    if (trainer->options.reproducible) {
        status = exact_exchange_header(trainer, count, err);
        trainer->exchange_ns += gp_now_ns() - begin_ns;
        return status;
    }

    trainer->header[HEADER_STOP] = atomic_load(&trainer->control->stop) == 1;
    trainer->header[HEADER_PAUSE] = atomic_load(&trainer->control->pause);
    trainer->header[HEADER_SAMPLES] = (double)count;
    status = gp_comm_all_reduce(trainer->comm, trainer->header, HEADER_COUNT, GP_F64, GP_COMM_SUM, err);
    trainer->exchange_ns += gp_now_ns() - begin_ns;
    return status;
}
