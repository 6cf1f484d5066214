/* train_control.c -- the interface through which the control thread observes and stops a
 * training. */
#include <inttypes.h>
#include <string.h>

#include "common/base/system/timeout.h"
#include "worker/train/trainer.h"

void gp_train_control_init(gp_train_control *control)
{
    memset(control, 0, sizeof(*control));
    pthread_mutex_init(&control->lock, NULL);
}

void gp_train_control_deinit(gp_train_control *control)
{
    pthread_mutex_destroy(&control->lock);
}

void gp_train_control_reset(gp_train_control *control)
{
    atomic_store(&control->stop, 0);
    atomic_store(&control->pause, 0);
    atomic_store(&control->progress, 0);
    atomic_store(&control->step, 0);
    atomic_store(&control->epoch, 0);
    atomic_store(&control->stretch_since_ms, 0);
    atomic_store(&control->stretch_max_ms, 0);
}

void gp_train_control_span_begin(gp_train_control *control)
{
    atomic_store_explicit(&control->stretch_since_ms, gp_running_ms(), memory_order_relaxed);
}

void gp_train_control_progress(gp_train_control *control)
{
    atomic_fetch_add_explicit(&control->progress, 1, memory_order_relaxed);
}

gp_status gp_train_control_check(const gp_train_control *control, uint64_t step, gp_error *err)
{
    if (atomic_load_explicit(&control->stop, memory_order_relaxed) < 2)
        return GP_OK;
    return gp_fail(err, GP_ECANCELED, "stopped in step %" PRIu64, step + 1);
}

bool gp_train_control_span_end(gp_train_control *control)
{
    int64_t since = atomic_exchange_explicit(&control->stretch_since_ms, 0, memory_order_relaxed);

    /* +1: a completed stretch never counts as 0 ms */
    int64_t took_ms = since == 0 ? 0 : gp_running_ms() - since + 1;

    if (took_ms > atomic_load_explicit(&control->stretch_max_ms, memory_order_relaxed))
        atomic_store_explicit(&control->stretch_max_ms, took_ms, memory_order_relaxed);
    return since != 0;
}

void gp_train_control_abort(gp_train_control *control)
{
    atomic_store(&control->stop, 2);
    pthread_mutex_lock(&control->lock);
    if (control->comm != NULL)
        gp_comm_abort(control->comm, control->generation);
    pthread_mutex_unlock(&control->lock);
}

void gp_train_control_set_comm(gp_train_control *control, gp_comm *comm, uint32_t generation)
{
    pthread_mutex_lock(&control->lock);
    control->comm = comm;
    control->generation = generation;
    pthread_mutex_unlock(&control->lock);
}
