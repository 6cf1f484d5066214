/* control_orphan.c -- operation without a scheduler.
 *
 *   LINKED --end of file, or a newer scheduler calls--> ORPHAN --a scheduler of no older epoch
 *   answers--> LINKED
 *                                                         |
 *                                                         '--4.5 s without a lease--> the
 *                                                         process exits
 *
 * A lease remains valid without a scheduler while the client process is alive: work comes directly
 * from the client, and gradients never pass through the scheduler. Requests of the failed scheduler
 * that this worker had not acknowledged (another lease, a revoke) are dropped. The next scheduler
 * decides from this worker's report. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory/secret.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "proto/task/task_wire.h"
#include "worker/daemon/control_parts.h"

void control_orphaned(control *c)
{
    scheduler_link_lose(&c->link);
    c->ack = c->revoke = (gp_envelope){ 0 };
    /* Keep the grant for the next generation while the lease is being reset: a training waits for
     * it. */
    if (!c->lease.resetting || !control_lease_continues(c))
        c->next = (gp_envelope){ 0 };
    gp_fault_point("orphaned");
}

void control_called(control *c, const gp_control_socket_event *greeting)
{
    gp_control_socket_request secrets = { .what = GP_CONTROL_SOCKET_SECRETS };
    uint64_t epoch;
    gp_error err;

    gp_control_socket_admit(c->control_socket, greeting->id, c->link.epoch);
    gp_log_event(GP_LOG_INFO, "scheduler-calls", GP_LOG_WITH({ "scheduler", .number = greeting->pid }),
                 "a new scheduler connected");
    if (gp_secrets_fd() >= 0 &&
        gp_control_socket_send_fd(gp_control_socket_peer_fd(c->control_socket, greeting->id), &secrets,
                                  gp_secrets_fd(), &err) != GP_OK)
        gp_log(GP_LOG_WARN, "secrets-missing", "cannot send the secrets of the pool to the scheduler: %s",
               err.message);
    memcpy(&epoch, greeting->hello.session, sizeof(epoch));

    /* Ignore a call from the scheduler that this worker is already connected to. */
    if (c->link.channel == NULL || epoch != c->link.epoch)
        c->link.called = true;
}

void control_orphan_serve(control *c)
{
    bool called = c->link.called;

    c->link.called = false;
    if (c->end_ms != 0)
        return;
    if (called && c->link.channel != NULL)
        control_orphaned(c);
    else if (called)
        c->link.redial_ms = 0;
    if (c->link.channel != NULL)
        return;
    /* End the lease after the client has exited, because no scheduler will revoke it. */
    if (c->lease.id != 0 && !c->lease.resetting && served_lease_client_exited(&c->lease)) {
        gp_log_event(GP_LOG_INFO, "client-dead", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }),
                     "the client of the lease exited");
        control_reset(c);
    }
    if (c->lease.id != 0 && !c->lease.resetting)
        scheduler_link_extend(&c->link);
    if (c->lease.id == 0 && c->recycle) { /* the failed scheduler would have replaced this worker */
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0, "task code or values of an ended lease are loaded");
        return;
    }
    if (scheduler_link_redial(&c->link, c->options->paths)) {
        gp_log_event(GP_LOG_INFO, "scheduler-found",
                     GP_LOG_WITH({ "epoch", .number = (int64_t)c->link.epoch }),
                     "connected to a new scheduler");
        /* The scheduler connected to this worker before it replied: send the secrets before
         * worker_ready. */
        control_serve_socket(c);
    } else if (gp_timeout_left(c->link.deadline) == 0) {
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0, "no scheduler was found within 4.5 s");
    }
}

int64_t control_orphan_due(const control *c)
{
    return c->link.channel != NULL || c->end_ms != 0 ? INT64_MAX : c->link.redial_ms;
}
