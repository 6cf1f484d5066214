/* control_lease.c -- messages from the scheduler, and lease changes that this worker serves.
 *
 *   FREE ---grant---> SERVING ---revoke---> RESETTING ---compute idle---> FREE     reply: revoked
 *                       |  ^------------------,  |
 *                       '--a newer grant---> RESETTING ---compute idle---> SERVING reply: grant_ack
 *
 * A generation starts only after compute has freed the previous generation's trainer
 * (gp_trainer_free). The trainer then no longer writes to shared memory, so it cannot corrupt the
 * new group's data.
 *
 * A worker that serves tasks changes to the next lease generation without RESETTING: tasks
 * continue, the client stays attached, and the client's objects and values stay. Compute moves to
 * the new group when the next block starts. A block that is still running has lost a member and can
 * only fail. */
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/daemon/control_parts.h"
#include "worker/task/tasks.h"

/* ---- changing the lease ---- */

static void lease_drop(control *c)
{
    if (c->undelivered != 0)
        gp_log_event(GP_LOG_INFO, "messages-lost",
                     GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id },
                                 { "count", .number = (int64_t)c->undelivered }),
                     "cannot send all messages to the client of the lease");
    c->undelivered = 0;
    control_tasks_left(c);
    client_fds_drop(&c->fds);
    gp_run_assign(c->run, NULL);
    gp_rendezvous_free(c->older_group);
    gp_rendezvous_free(c->group);
    c->older_group = c->group = NULL;
    served_lease_end(&c->lease);
    counters_lease(&c->counters, false, gp_now_ms());
    current_work_end(&c->work);
    gp_train_control_reset(&c->train);
}

/* Start serving the waiting grant. On failure it is not acknowledged, so the scheduler replaces
 * this worker. */
static void lease_take(control *c)
{
    const gp_envelope grant = c->next;
    gp_rendezvous *earlier[] = { c->older_group, c->group };
    gp_error err;

    c->next = (gp_envelope){ 0 };
    if (gp_rendezvous_new(&c->group, grant.lease, grant.generation, &c->next_grant, c->mailbox, &err) !=
        GP_OK) {
        gp_log_event(GP_LOG_ERROR, "lease-refused", GP_LOG_WITH({ "lease", .number = (int64_t)grant.lease }),
                     "cannot serve the lease: %s", err.message);
        return;
    }
    served_lease_begin(&c->lease, &grant, &c->next_grant);
    counters_lease(&c->counters, true, gp_now_ms());
    c->ack = grant;
    gp_run_assign(c->run, c->group);
    /* Free the earlier groups that compute no longer uses. At most one is still in use. */
    c->older_group = NULL;
    for (int i = 0; i < 2; i++) {
        if (earlier[i] != NULL && gp_run_holds(c->run, earlier[i]))
            c->older_group = earlier[i];
        else
            gp_rendezvous_free(earlier[i]);
    }
    if (c->server != NULL) {
        atomic_store(&c->server->rank, c->next_grant.rank);
        atomic_store(&c->server->size, c->next_grant.members_count);
    }
    gp_log_event(GP_LOG_INFO, "lease-served",
                 GP_LOG_WITH({ "lease", .number = (int64_t)grant.lease },
                             { "generation", .number = grant.generation },
                             { "rank", .number = c->next_grant.rank },
                             { "ranks", .number = c->next_grant.members_count }),
                 "serving a lease");
    gp_fault_point("leased");
}

bool control_lease_continues(const control *c)
{
    return c->next.lease != 0 && c->next.lease == c->lease.id;
}

/* Post RESET to compute. Compute frees the lease state, unless the next generation continues with
 * it. */
static void reset_post(control *c)
{
    bool continues = control_lease_continues(c);
    gp_error err;

    atomic_store(&c->train.hold, continues ? c->next.lease : 0);
    c->work.unclean = true;
    c->work.keeps_state = c->work.keeps_state && continues;
    gp_mailbox_discard(c->mailbox);
    gp_train_control_abort(&c->train);
    if (c->server != NULL)
        gp_link_server_stop(c->server);
    if (gp_mailbox_post(c->mailbox, GP_COMMAND_RESET, NULL, &err) != GP_OK)
        control_end(c, GP_WORKER_EXIT_FAILED, 0, err.message);
}

void control_reset(control *c)
{
    if (c->lease.resetting)
        return;
    c->lease.resetting = true;
    if (c->runner != NULL)
        gp_runner_link_end(c->runner); /* kills all commands */
    if (c->work.unclean || c->work.keeps_state)
        reset_post(c);
    else
        control_reset_go(c);
}

void control_reset_done(control *c)
{
    c->work.unclean = false;
    control_reset_go(c);
}

void control_reset_go(control *c)
{
    if (c->work.unclean || c->runner != NULL)
        return;

    /* the lease was revoked during the reset */
    if (c->work.keeps_state && !control_lease_continues(c)) {
        reset_post(c);
        return;
    }
    lease_drop(c);
    if (c->next.lease != 0)
        lease_take(c);
    if (c->link.report_due)
        control_report(c);
    control_answer(c);
}

void control_answer(control *c)
{
    if (c->revoke.lease != 0 && !c->lease.resetting) {
        gp_fault_point("revoked");
        if (scheduler_link_send(&c->link, &c->revoke, &gp_msg_revoked,
                                &(gp_revoked){ .recycle = c->recycle }) == GP_OK)
            c->revoke = (gp_envelope){ 0 };
    }
    if (c->ack.lease != 0 &&
        scheduler_link_send(&c->link, &c->ack, &gp_msg_grant_ack, &(gp_grant_ack){ 0 }) == GP_OK)
        c->ack = (gp_envelope){ 0 };
}

/* ---- messages from the scheduler ---- */

/* Take a grant. A worker that serves tasks changes to the next lease generation at once; otherwise
 * compute is reset first. */
static gp_status on_grant(control *c, gp_incoming *in, gp_error *err)
{
    const gp_envelope *envelope = &in->envelope;
    const gp_grant *grant = &c->next_grant;

    /* decoding overwrites a waiting grant, which the scheduler has replaced */
    c->next = (gp_envelope){ 0 };
    if (gp_incoming_decode(in, &c->next_grant, err) != GP_OK)
        return err->code;
    const gp_slot *own = &grant->members[grant->rank];

    if (c->options->device->excluded[0] != '\0')
        return gp_fail(err, GP_ENODEV, "%s", c->options->device->excluded);
    if (envelope->lease == c->lease.id && envelope->generation < c->lease.generation)
        return gp_fail(err, GP_ESTALE, "lease %llu has generation %u here; the grant has generation %u",
                       (unsigned long long)c->lease.id, c->lease.generation, envelope->generation);
    if (envelope->lease == 0 || grant->rank >= grant->members_count || own->index != c->slot.index ||
        own->incarnation != c->slot.incarnation)
        return gp_fail(err, GP_EPROTO,
                       "malformed grant of lease %llu: it does not have worker %u.%u at rank %u of %u",
                       (unsigned long long)envelope->lease, c->slot.index, c->slot.incarnation, grant->rank,
                       grant->members_count);
    c->next = gp_reply_envelope(&in->envelope);
    c->ack = (gp_envelope){ 0 };
    if (c->work.kind == WORK_TASKS && control_lease_continues(c) && !c->lease.resetting) {
        lease_take(c);
        control_answer(c);
    } else {
        control_reset(c);
    }
    return GP_OK;
}

static gp_status on_revoke(control *c, gp_incoming *in, gp_error *err)
{
    gp_revoke revoke;

    if (gp_incoming_decode(in, &revoke, err) != GP_OK)
        return err->code;
    c->revoke = gp_reply_envelope(&in->envelope);
    if (c->next.lease == c->revoke.lease)
        c->next = (gp_envelope){ 0 };
    if (c->lease.id == c->revoke.lease) {
        gp_log_event(GP_LOG_INFO, "lease-revoked", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }),
                     "the lease was revoked: %s", revoke.reason);
        control_reset(c);
    } else {
        control_answer(c); /* this worker holds no state of that lease */
    }
    return GP_OK;
}

static void on_peer_lost(control *c, gp_incoming *in)
{
    gp_peer_lost lost;
    gp_error err;

    if (in->envelope.lease != c->lease.id || in->envelope.generation != c->lease.generation)
        return;
    if (gp_incoming_decode(in, &lost, &err) != GP_OK) {
        gp_log(GP_LOG_WARN, "message-damaged", "peer_lost: %s", err.message);
        return;
    }
    gp_log_event(GP_LOG_WARN, "peer-lost",
                 GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }, { "worker", .number = lost.index }),
                 "another worker of this lease failed: %s", lost.cause);
    if (c->server != NULL && served_lease_includes(&c->lease, lost.index, atomic_load(&c->server->world)))
        control_tasks_abort(c, 0);
    if (c->work.kind == WORK_TRAINING && served_lease_includes(&c->lease, lost.index, c->work.world)) {
        c->work.lost_index = lost.index;
        snprintf(c->work.lost_cause, sizeof(c->work.lost_cause), "%s", lost.cause);
        gp_train_control_abort(&c->train);
    }
}

void control_report(control *c)
{
    gp_worker_ready ready = { .slot = c->slot, .state = GP_WORKER_IDLE };

    c->link.report_due = c->lease.resetting; /* a lease that is being reset must not be reported */
    if (c->lease.resetting)
        return;
    if (c->lease.id == 0 && c->recycle) {
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0, "task code or values of an ended lease are loaded");
        return;
    }
    served_lease_report(&c->lease, &ready);
    if (c->options->device->excluded[0] != '\0') {
        ready.state = GP_WORKER_EXCLUDED;
        snprintf(ready.reason, sizeof(ready.reason), "%s", c->options->device->excluded);
    }
    gp_fault_point("reporting");
    if (scheduler_link_send(&c->link, &(gp_envelope){ 0 }, &gp_msg_worker_ready, &ready) != GP_OK)
        control_end(c, GP_WORKER_EXIT_FAILED, 0, "cannot send worker_ready to the scheduler");
    else
        gp_log(GP_LOG_DEBUG, "ready", "worker_ready %.2f ms after the start",
               (double)(gp_now_ns() - c->options->started_ns) * 1e-6);
}

/* Dispatch a message from the scheduler. Unknown message types are ignored: a newer scheduler
 * may send them. */
void control_scheduler(control *c, gp_incoming *in)
{
    gp_status status = GP_OK;
    gp_error_reply reply;
    bool first;
    gp_error err;

    if (in->envelope.epoch != 0 && in->envelope.epoch < c->link.epoch) {
        gp_log_event(GP_LOG_WARN, "message-stale",
                     GP_LOG_WITH({ "epoch", .number = (int64_t)in->envelope.epoch },
                                 { "ours", .number = (int64_t)c->link.epoch }),
                     "ignored a message of another epoch");
        return;
    }
    switch (in->envelope.message) {
    case GP_ID(welcome):
        control_report(c);
        break;
    case GP_ID(worker_welcome):
        first = !c->link.joined_before;
        c->link.joined = c->link.joined_before = true;
        if (first && !c->options->cold && c->options->device->excluded[0] == '\0' &&
            gp_mailbox_post(c->mailbox, GP_COMMAND_WARM, NULL, &err) != GP_OK)
            gp_log(GP_LOG_WARN, "message-damaged", "%s", err.message);
        break;
    case GP_ID(grant):
        status = on_grant(c, in, &err);
        break;
    case GP_ID(revoke):
        status = on_revoke(c, in, &err);
        break;
    case GP_ID(peer_lost):
        on_peer_lost(c, in);
        break;
    case GP_ID(quit):
        control_end(c, GP_WORKER_EXIT_ASKED, CONTROL_ASKED_MS, "the scheduler requested a shutdown");
        break;
    case GP_ID(error_reply):
        if (gp_incoming_decode(in, &reply, &err) != GP_OK)
            snprintf(reply.message, sizeof(reply.message), "%s", err.message);
        gp_log(GP_LOG_ERROR, "scheduler-error", "error from the scheduler: %s", reply.message);
        if (!c->link.joined)
            control_end(c, GP_WORKER_EXIT_FAILED, 0, "cannot join the pool");
        break;
    default:
        break;
    }
    if (status != GP_OK) {
        gp_envelope envelope = gp_reply_envelope(&in->envelope);

        reply = (gp_error_reply){ .code = err.code, .worker = c->options->index };
        snprintf(reply.message, sizeof(reply.message), "%s", err.message);
        gp_log(GP_LOG_WARN, "message-refused", "rejected a message: %s", err.message);
        scheduler_link_send(&c->link, &envelope, &gp_msg_error_reply, &reply);
    }
}
