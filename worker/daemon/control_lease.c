/* control_lease.c -- the lease that a worker serves.
 *
 *   FREE ---grant---> SERVING ---revoke---> RESETTING ---compute idle---> FREE      answers revoked
 *                       |  ^------------------,  |
 *                       '--a newer grant---> RESETTING ---compute idle---> SERVING  answers grant_ack
 *
 * A generation begins only when compute has let go of the one before: its stores into shared memory have ended
 * (gp_trainer_free), so a peer of the new group never meets them.
 *
 * A worker that serves tasks takes the next generation of its lease over as it is: tasks on it go on, its client stays
 * attached, and what was put on it stays.  Compute moves to the new group when it begins the next block; a block that
 * it is still in has lost a member and can only end. */
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/comm/process.h"
#include "worker/daemon/control_parts.h"

/* ---- changing ---- */

static void lease_drop(control *c)
{
    if (c->unheard != 0)
        gp_log_event(
            GP_LOG_INFO, "messages-lost",
            GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }, { "count", .number = (int64_t)c->unheard }),
            "the client of the lease did not get some messages");
    c->unheard = 0;
    control_tasks_drop(c);
    control_weights_drop(c);
    gp_run_assign(c->run, NULL);
    gp_rendezvous_free(c->older);
    gp_rendezvous_free(c->group);
    c->older = c->group = NULL;
    c->lease = 0;
    c->generation = 0;
    if (c->client_pidfd >= 0)
        close(c->client_pidfd);
    c->client_pidfd = -1;
    c->attached = false;
    c->work = WORK_IDLE;
    c->lost_index = 0;
    gp_train_control_reset(&c->train);
}

/* Free the groups before the present one that compute has left: at most one is kept, which it is in. */
static void group_retire(control *c, gp_rendezvous *last)
{
    gp_rendezvous *groups[] = { c->older, last };

    c->older = NULL;
    for (int i = 0; i < 2; i++) {
        if (groups[i] != NULL && gp_run_holds(c->run, groups[i]))
            c->older = groups[i];
        else
            gp_rendezvous_free(groups[i]);
    }
}

static void lease_take(control *c)
{
    gp_rendezvous *last = c->group, *next;
    gp_error err;

    c->granting = false;
    if (gp_rendezvous_new(&next, c->next_envelope.lease, c->next_envelope.generation, &c->next_grant,
                          c->mailbox, &err) != GP_OK) {
        gp_log_event(GP_LOG_ERROR, "lease-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)c->next_envelope.lease }),
                     "the lease is not served: %s", err.message);
        return; /* unacknowledged, so the scheduler replaces us */
    }
    c->group = next;
    c->lease = c->next_envelope.lease;
    c->generation = c->next_envelope.generation;
    c->grant = c->next_grant;
    c->grant_envelope = c->next_envelope;
    if (c->client_pidfd < 0) /* should it be dead already: the scheduler knows */
        c->client_pidfd = (int)syscall(SYS_pidfd_open, (pid_t)c->grant.client_pid, 0);
    c->acking = true;
    gp_run_assign(c->run, c->group);
    group_retire(c, last);
    control_tasks_regroup(c);
    gp_log_event(GP_LOG_INFO, "lease-served",
                 GP_LOG_WITH({ "lease", .number = (int64_t)c->lease },
                             { "generation", .number = c->generation }, { "rank", .number = c->grant.rank },
                             { "ranks", .number = c->grant.members_count }),
                 "serves a lease");
    gp_fault_point("leased");
}

/* What compute holds of the lease is for the generation that comes next, or for nobody. */
static void reset_post(control *c)
{
    bool goes_on = c->granting && c->next_envelope.lease == c->lease;
    gp_error err;

    atomic_store(&c->train.hold, goes_on ? c->lease : 0);
    c->holds = c->holds && goes_on;
    c->used = true;
    gp_mailbox_discard(c->mailbox);
    gp_train_control_abort(&c->train);
    control_tasks_stop(c);
    if (gp_mailbox_post(c->mailbox, GP_COMMAND_RESET, NULL, &err) != GP_OK)
        control_end(c, GP_WORKER_EXIT_FAILED, 0, err.message);
}

void control_reset(control *c)
{
    if (c->resetting)
        return;
    c->resetting = true;
    control_run_end(c);
    if (c->used || c->holds)
        reset_post(c);
    else
        control_reset_go(c);
}

void control_reset_done(control *c)
{
    c->used = false;
    control_reset_go(c);
}

void control_reset_go(control *c)
{
    if (c->used || c->runner != NULL)
        return;
    if (c->holds && !(c->granting && c->next_envelope.lease == c->lease)) { /* revoked meanwhile */
        reset_post(c);
        return;
    }
    c->resetting = false;
    lease_drop(c);
    if (c->granting)
        lease_take(c);
    if (c->reporting)
        control_report(c);
    control_answer(c);
}

void control_answer(control *c)
{
    if (c->revoking && !c->resetting)
        gp_fault_point("revoked");
    if (c->revoking && !c->resetting &&
        control_tell(c, &c->revoke_envelope, &gp_msg_revoked, &(gp_revoked){ .recycle = c->recycle }) ==
            GP_OK)
        c->revoking = false;
    if (c->acking && control_tell(c, &c->grant_envelope, &gp_msg_grant_ack, &(gp_grant_ack){ 0 }) == GP_OK)
        c->acking = false;
}

/* ---- messages ---- */

static void tell_error(control *c, const gp_envelope *to, const gp_error *error)
{
    gp_error_reply reply = { .code = error->code, .worker = c->options->index };
    gp_envelope envelope = { .correlation = to->correlation,
                             .lease = to->lease,
                             .generation = to->generation };

    snprintf(reply.message, sizeof(reply.message), "%s", error->message);
    gp_log(GP_LOG_WARN, "message-refused", "refused: %s", error->message);
    control_tell(c, &envelope, &gp_msg_error_reply, &reply);
}

static bool grant_is_older(const control *c, const gp_envelope *envelope)
{
    return envelope->lease == c->lease && envelope->generation < c->generation;
}

static gp_status grant_check(const control *c, const gp_envelope *envelope, const gp_grant *grant,
                             gp_error *err)
{
    const gp_slot *own = &grant->members[grant->rank];

    if (c->options->device->excluded[0] != '\0')
        return gp_fail(err, GP_ENODEV, "%s", c->options->device->excluded);
    if (grant_is_older(c, envelope))
        return gp_fail(err, GP_ESTALE, "lease %llu is at generation %u here; this grant is of generation %u",
                       (unsigned long long)c->lease, c->generation, envelope->generation);
    if (envelope->lease == 0 || grant->rank >= grant->members_count || own->index != c->slot.index ||
        own->incarnation != c->slot.incarnation)
        return gp_fail(err, GP_EPROTO, "the grant of lease %llu does not name worker %u.%u at rank %u of %u",
                       (unsigned long long)envelope->lease, c->slot.index, c->slot.incarnation, grant->rank,
                       grant->members_count);
    return GP_OK;
}

static void on_grant(control *c, gp_incoming *in)
{
    gp_error err;

    if (gp_incoming_decode(in, &c->next_grant, &err) != GP_OK ||
        grant_check(c, &in->envelope, &c->next_grant, &err) != GP_OK) {
        c->granting = false; /* next_grant was overwritten; its sender knows of the newer one */
        tell_error(c, &in->envelope, &err);
        return;
    }
    c->next_envelope = (gp_envelope){ .correlation = in->envelope.correlation,
                                      .lease = in->envelope.lease,
                                      .generation = in->envelope.generation };
    c->granting = true;
    c->acking = false;
    if (c->work == WORK_TASKS && c->lease == in->envelope.lease && !c->resetting) {
        lease_take(c);
        control_answer(c);
    } else {
        control_reset(c);
    }
}

static void on_revoke(control *c, gp_incoming *in)
{
    gp_revoke revoke;
    gp_error err;

    if (gp_incoming_decode(in, &revoke, &err) != GP_OK) {
        tell_error(c, &in->envelope, &err);
        return;
    }
    c->revoke_envelope = (gp_envelope){ .correlation = in->envelope.correlation,
                                        .lease = in->envelope.lease,
                                        .generation = in->envelope.generation };
    c->revoking = true;
    if (c->granting && c->next_envelope.lease == in->envelope.lease)
        c->granting = false;
    if (c->lease == in->envelope.lease) {
        gp_log_event(GP_LOG_INFO, "lease-revoked", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                     "the lease is revoked: %s", revoke.reason);
        control_reset(c);
    } else {
        control_answer(c); /* nothing of it is here */
    }
}

/* Whether the present training has that member among its ranks. */
static bool training_has(const control *c, uint32_t index)
{
    for (uint32_t rank = 0; c->work == WORK_TRAINING && rank < c->work_world && rank < c->grant.members_count;
         rank++)
        if (c->grant.members[rank].index == index)
            return true;
    return false;
}

static void on_peer_lost(control *c, gp_incoming *in)
{
    gp_peer_lost lost;
    gp_error err;

    if (in->envelope.lease != c->lease || in->envelope.generation != c->generation)
        return;
    if (gp_incoming_decode(in, &lost, &err) != GP_OK) {
        gp_log(GP_LOG_WARN, "message-damaged", "peer_lost: %s", err.message);
        return;
    }
    gp_log_event(GP_LOG_WARN, "peer-lost",
                 GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }, { "worker", .number = lost.index }),
                 "a worker of this lease is gone: %s", lost.cause);
    control_tasks_lost(c, lost.index);
    if (!training_has(c, lost.index))
        return;
    c->lost_index = lost.index;
    snprintf(c->lost_cause, sizeof(c->lost_cause), "%s", lost.cause);
    gp_train_control_abort(&c->train);
}

static void on_error(control *c, gp_incoming *in)
{
    gp_error_reply reply;
    gp_error err;

    if (gp_incoming_decode(in, &reply, &err) != GP_OK)
        snprintf(reply.message, sizeof(reply.message), "%s", err.message);
    gp_log(GP_LOG_ERROR, "scheduler-error", "the scheduler says: %s", reply.message);
    if (!c->joined)
        control_end(c, GP_WORKER_EXIT_FAILED, 0, "could not join the pool");
}

void control_report(control *c)
{
    gp_worker_ready ready = { .slot = c->slot,
                              .state = c->lease != 0 ? GP_WORKER_BUSY : GP_WORKER_IDLE,
                              .lease = c->lease,
                              .generation = c->generation };

    c->reporting = c->resetting; /* what it serves is about to change */
    if (c->resetting)
        return;
    if (c->lease == 0 && c->recycle) {
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0,
                    "code or values of a lease that has ended are in this process");
        return;
    }
    if (c->lease != 0)
        memcpy(ready.token, c->grant.token, sizeof(ready.token));
    /* Who has not come to us may not know of the lease, and would never claim it. */
    if (c->lease != 0 && c->attached && c->client_pidfd >= 0 && !gp_process_dead(c->client_pidfd)) {
        ready.client_pid = c->grant.client_pid;
        memcpy(ready.client_session, c->client_session, sizeof(ready.client_session));
    }
    if (c->options->device->excluded[0] != '\0') {
        ready.state = GP_WORKER_EXCLUDED;
        snprintf(ready.reason, sizeof(ready.reason), "%s", c->options->device->excluded);
    }
    gp_fault_point("reporting");
    if (control_tell(c, &(gp_envelope){ 0 }, &gp_msg_worker_ready, &ready) != GP_OK)
        control_end(c, GP_WORKER_EXIT_FAILED, 0, "could not report to the scheduler");
}

static void on_worker_welcome(control *c)
{
    gp_error err;

    c->joined = true;
    if (c->warmed)
        return;
    c->warmed = true;
    if (c->options->device->excluded[0] == '\0' &&
        gp_mailbox_post(c->mailbox, GP_COMMAND_WARM, NULL, &err) != GP_OK)
        gp_log(GP_LOG_WARN, "message-damaged", "%s", err.message);
}

void control_scheduler(control *c, gp_incoming *in)
{
    if (in->envelope.epoch != 0 && in->envelope.epoch < c->epoch) {
        gp_log_event(GP_LOG_WARN, "message-stale",
                     GP_LOG_WITH({ "epoch", .number = (int64_t)in->envelope.epoch },
                                 { "ours", .number = (int64_t)c->epoch }),
                     "ignored a message of another scheduler's epoch");
        return;
    }
    switch (in->envelope.message) {
    case GP_ID(welcome):
        control_report(c);
        break;
    case GP_ID(worker_welcome):
        on_worker_welcome(c);
        break;
    case GP_ID(grant):
        on_grant(c, in);
        break;
    case GP_ID(revoke):
        on_revoke(c, in);
        break;
    case GP_ID(peer_lost):
        on_peer_lost(c, in);
        break;
    case GP_ID(quit):
        control_end(c, GP_WORKER_EXIT_ASKED, CONTROL_ASKED_MS, "told to quit");
        break;
    case GP_ID(error_reply):
        on_error(c, in);
        break;
    default: /* ok_reply, and what newer schedulers may say */
        break;
    }
}
