/* Calls as graphs, the last call in a step with exchange and commit, and results for the host.
 *
 * All ranks launch the first training step without graphs: libraries load kernels at their first
 * use, NCCL connects the ranks, and a sum must be part of a graph on all ranks or on none. From the
 * second step on, each call kind is recorded when it first occurs and replayed later. Values that
 * change from call to call are stored in the slot.
 *
 * NCCL requires that all ranks record a sum together and replay the graphs of this recording. In a
 * step with fewer samples, the last call of some ranks can be of another kind than usual. Its sums
 * are therefore launched without a graph, by all ranks.
 *
 * Aborting: the host clears `go` before it aborts running sums. If a rank's latch read `go` as set,
 * all sums in that step were complete on this rank. That rank has committed the step; all other
 * ranks have committed either this step or the previous one. */
#include "worker/backend/cuda/kernels/bodies.h"

#include "common/base/clock.h"
#include "worker/backend/cuda/plan/profile.h"
#include "worker/backend/cuda/plan/resident.h"

enum { WAIT_SPINS = 20000, WAIT_LEAST_NS = 20000, WAIT_MOST_NS = 300000, LOOK_NS = 1000000 };

/* ---- results from the device ---- */

static bool mail_came(const gp_kernel_reported *reported, uint64_t number)
{
    return __atomic_load_n(&reported->number, __ATOMIC_ACQUIRE) == number;
}

static const gp_kernel_reported *mail_of(const gp_resident_state *kept, uint64_t number)
{
    return &kept->mail->reported[(number - 1) % GP_KERNEL_REPORTED];
}

/* Return the earliest time at which the device could start the step. */
static int64_t step_since(const gp_resident_state *kept, uint64_t number)
{
    int64_t launched_ns = kept->launched_ns[(number - 1) % GP_KERNEL_REPORTED];

    return launched_ns > kept->told_ns ? launched_ns : kept->told_ns;
}

/* Wait for a step result. Results from short steps are read at once. Other conditions are checked
 * once per millisecond, because each check takes driver locks that launches need as well. */
static gp_status mail_wait(gp_plan *plan, uint64_t number, gp_error *err)
{
    const gp_kernel_reported *reported = mail_of(plan->resident, number);
    gp_timeout timeout;
    int64_t begin_ns, looked_ns, now_ns;
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < WAIT_SPINS; i++)
        if (mail_came(reported, number))
            return GP_OK;
    if (plan->resident->over)
        return gp_fail(err, GP_ECANCELED, "the training on the GPU was aborted");
    timeout = gp_device_timeout(plan->backend->device, number == 1, plan->resident->longest_ns);
    begin_ns = looked_ns = gp_now_ns();
    while (status == GP_OK && !mail_came(reported, number)) {
        int64_t sleep_ns;

        now_ns = gp_now_ns();
        if (now_ns - looked_ns >= LOOK_NS) {
            looked_ns = now_ns;
            status = gp_device_poll(plan->backend->device, err);
            /* Check for a hung device. A wait for peers has no time limit while they are alive, but
             * the device's own work in a step must complete within the timeout. */
            if (status == GP_OK && gp_timeout_left(timeout) <= 0 &&
                __atomic_load_n(&plan->resident->mail->computed, __ATOMIC_ACQUIRE) < number)
                status = gp_fail(
                    err, GP_EIO,
                    "no result from the GPU within %.1f s; the longest part of a step so far took %.3f s",
                    (double)(now_ns - step_since(plan->resident, number)) * 1e-9,
                    (double)plan->resident->longest_ns * 1e-9);
        }
        sleep_ns = (now_ns - begin_ns) / 16;
        sleep_ns = sleep_ns < WAIT_LEAST_NS  ? WAIT_LEAST_NS
                   : sleep_ns > WAIT_MOST_NS ? WAIT_MOST_NS
                                             : sleep_ns;
        if (status == GP_OK)
            nanosleep(&(struct timespec){ .tv_nsec = sleep_ns }, NULL);
    }
    /* the result may have arrived during the last check */
    return mail_came(reported, number) ? GP_OK : status;
}

/* ---- launching a call ---- */

static gp_status stamp(gp_plan *plan, int32_t kind, gp_error *err)
{
    gp_kernel_args args = { .call = plan->buffers.call,
                            .kept = plan->resident->kept,
                            .mail = plan->resident->mail_there,
                            .kind = kind };

    args.d[1] = plan->buffers.sums;
    return gp_device_launch(plan->backend->device, GP_KERNEL_stamp, &args, 1, err);
}

static gp_status call_pass(gp_plan *plan, bool first, bool last, gp_error *err)
{
    const uint32_t forward_count = plan->graph->ops[plan->options.phase].forward_count;
    gp_device *device = plan->backend->device;
    bool sums = last && gp_device_joined(device), turned = plan->resident->loss_ends_pass;
    const step_list *steps = &plan->steps;
    uint32_t next = 0;
    gp_status status = gp_profile_part(plan, PART_INPUT, err);

    if (status == GP_OK)
        status = gp_feed_launch(plan, err);
    if (status == GP_OK && first)
        status = gp_plan_launch(plan, &plan->prepare, 0, plan->prepare.count, err);
    for (uint32_t i = 0; i < steps->count && status == GP_OK; i++) {
        if (!turned && (steps->step[i].op >= forward_count || i + 1 == steps->count)) {
            turned = true;
            status = stamp(plan, 0, err);
        }
        if (status == GP_OK)
            status = gp_plan_launch(plan, steps, i, 1, err);
        if (status == GP_OK && i + 1 == steps->count && (!last || sums))
            /* before sums that do not overlap with computation; without sums, the commit does it */
            status = stamp(plan, last ? 2 : 1, err);
        if (status == GP_OK && sums) {
            /* Start summing the buckets that are complete after step i of the plan, while the main
             * lane continues. */
            const gp_resident_state *kept = plan->resident;
            bool forked = false;

            for (; next < kept->bucket_count && kept->buckets[next].after <= i && status == GP_OK; ++next) {
                if (!forked) {
                    forked = true;
                    status = gp_device_order(device, GP_LANE_PEERS, GP_EVENT_FORK, GP_LANE_MAIN, err);
                }
                if (status == GP_OK)
                    status = gp_device_sum(device, plan->buffers.gradients + kept->buckets[next].first,
                                           kept->buckets[next].count, false, err);
            }
        }
    }
    if (status == GP_OK && sums)
        status = gp_profile_part(plan, PART_EXCHANGE, err);

    /* Sum the header after the last bucket, and make the main lane wait for both. */
    if (status == GP_OK && sums)
        status = gp_device_order(device, GP_LANE_PEERS, GP_EVENT_FORK, GP_LANE_MAIN, err);
    if (status == GP_OK && sums)
        status = gp_device_sum(device, plan->buffers.sums, PLAN_SUMS, true, err);
    if (status == GP_OK && sums)
        status = gp_device_order(device, GP_LANE_MAIN, GP_EVENT_JOIN, GP_LANE_PEERS, err);
    if (status == GP_OK && last)
        status = gp_profile_part(plan, PART_COMMIT, err);
    if (status == GP_OK && last)
        status = gp_resident_commit(plan, !sums, err);
    return status == GP_OK ? gp_profile_end(plan, err) : status;
}

gp_status gp_steps_launch(gp_plan *plan, const gp_step_call *call, gp_error *err)
{
    gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;
    bool first = call->batch.first, last = call->batch.last;
    bool eager =
        gp_plan_eager(plan) || kept->launched == 0 || (last && call->shorter && gp_device_joined(device));
    gp_status status = kept->over ? gp_fail(err, GP_ESTATE, "the training on the GPU was aborted") : GP_OK;

    if (status == GP_OK)
        status = gp_profile_begin(plan, err);
    if (status == GP_OK)
        status = gp_feed_fill(plan, call, err);
    if (status == GP_OK && eager) {
        status = call_pass(plan, first, last, err);
    } else if (status == GP_OK) {
        gp_device_graph **graph = &kept->graphs[first][last];

        if (*graph == NULL) {
            /* Wait until the peers lane is idle. It takes part in the recording and
             * must not contain other work. */
            bool idle = false;

            status = mail_wait(plan, plan->resident->launched, err);
            while (status == GP_OK && !idle) {
                status = gp_device_idle(device, GP_LANE_PEERS, &idle, err);
                if (status == GP_OK && !idle)
                    status = gp_device_poll(device, err);
            }
        }
        if (status == GP_OK && *graph == NULL)
            status = gp_device_record(device, err);
        if (status == GP_OK && *graph == NULL)
            status = gp_plan_recorded(plan, graph, call_pass(plan, first, last, err), err);
        if (status == GP_OK)
            status = gp_device_replay(device, *graph, err);
    }
    if (status == GP_OK)
        status = gp_feed_used(plan, err);
    if (status == GP_OK && last)
        kept->launched_ns[kept->launched++ % GP_KERNEL_REPORTED] = gp_now_ns();
    return status;
}

void gp_steps_free_graphs(gp_plan *plan)
{
    for (int i = 0; i < 4; i++) {
        gp_device_graph_free(plan->resident->graphs[i / 2][i % 2]);
        plan->resident->graphs[i / 2][i % 2] = NULL;
    }
}

/* ---- results for the caller, and halting ---- */

gp_status gp_steps_reported(gp_plan *plan, gp_step_reported *out, gp_error *err)
{
    gp_resident_state *kept = plan->resident;
    const gp_kernel_reported *reported = mail_of(kept, kept->reported + 1);
    int64_t since_ns;
    gp_status status;

    if (kept->reported == kept->launched)
        return gp_fail(err, GP_ESTATE, "no step is in flight on the GPU");
    status = mail_wait(plan, kept->reported + 1, err);
    if (status != GP_OK)
        return status;
    since_ns = step_since(kept, kept->reported + 1);
    kept->told_ns = gp_now_ns();
    kept->longest_ns =
        kept->told_ns - since_ns > kept->longest_ns ? kept->told_ns - since_ns : kept->longest_ns;
    kept->reported++;
    *out = (gp_step_reported){ .samples = reported->sums[STEP_SAMPLES],
                               .loss_scale = reported->loss_scale,
                               .stop = reported->sums[STEP_STOP] > 0,
                               .pause = reported->sums[STEP_PAUSE] > 0,
                               .counts = reported->counts != 0,
                               .committed = reported->commit != 0,
                               .forward_ns = (int64_t)reported->forward_ns,
                               .backward_ns = (int64_t)reported->backward_ns,
                               .exchange_ns = (int64_t)reported->exchange_ns,
                               .commit_ns = (int64_t)reported->commit_ns };
    memcpy(out->sums, reported->sums, sizeof(out->sums));
    return GP_OK;
}

gp_status gp_steps_halt(gp_plan *plan, gp_error *err)
{
    gp_resident_state *kept = plan->resident;
    gp_status status;

    __atomic_store_n(&kept->mail->go, 0, __ATOMIC_SEQ_CST);
    status = gp_device_abort(plan->backend->device, err);
    gp_steps_free_graphs(plan);
    kept->over = true;
    return status;
}
