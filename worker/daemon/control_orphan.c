/* control_orphan.c -- the link to the scheduler, and life without one.
 *
 *   LINKED --end of file, or a newer scheduler calls--> ORPHAN --a scheduler of no older epoch answers--> LINKED
 *                                                          |
 *                                                          '--4.5 s without a lease--> the process ends
 *
 * A lease goes on without a scheduler for as long as the process that holds it lives: its work comes straight from the
 * client, and the gradients never crossed the scheduler.  What the dead scheduler had ordered and we had not yet
 * acknowledged (another lease, a revoke) is dropped: the next one decides from what we say that we serve. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "proto/task/task_wire.h"
#include "worker/comm/process.h"
#include "worker/daemon/control_parts.h"

enum {
    ORPHAN_MS = 4500, /* without a scheduler and without a lease: 5 s after a crash nobody is left */
    JOIN_MS = 5000,   /* for a scheduler that was found to say welcome */
    REDIAL_MS = 2,    /* the first wait; then twice as long each time */
    REDIAL_LAST_MS = 100,
    LINK_MS = 2000,  /* for one link */
    ANSWER_MS = 250, /* for a scheduler that listens to answer the door; our clients wait meanwhile */
};

/* Connect to the scheduler. Each attempt has a time limit, after which the scheduler is checked
 * for failure. */
static gp_status dial_link(control *c, const char *endpoint, int timeout_ms, gp_error *err)
{
    /* No heartbeats: a scheduler that is stopped for a while cannot answer them, and a link that is made again is another
     * sender's.  That it is dead is seen at its door. */
    gp_channel_options to_scheduler = { .security = GP_SECURITY_NONE };
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    int64_t left = timeout_ms;
    gp_status status;

    do {
        status = gp_channel_connect(&c->scheduler, endpoint, &to_scheduler,
                                    left < LINK_MS ? (int)left : LINK_MS, err);
        left = gp_timeout_left(timeout);
    } while (status == GP_EPEER && !gp_door_gone(c->scheduler_door) && left > 0);
    return status;
}

gp_status control_dial(control *c, int timeout_ms, gp_error *err)
{
    gp_door_hello knock = { .protocol_min = GP_PROTOCOL_MIN,
                            .protocol_max = GP_PROTOCOL,
                            .role = GP_ROLE_WORKER,
                            .pid = (uint32_t)getpid() };
    gp_hello hello = { .role = GP_ROLE_WORKER,
                       .protocol_min = GP_PROTOCOL_MIN,
                       .protocol_max = GP_PROTOCOL,
                       .build = GP_BUILD,
                       .pid = (uint32_t)getpid() };
    char endpoint[GP_TEXT_ENDPOINT + 8];
    gp_door_reply reply;
    gp_status status = gp_door_connect(&c->scheduler_door, &reply, c->options->places->scheduler_door, &knock,
                                       timeout_ms, err);

    if (status != GP_OK)
        return status;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", c->options->places->scheduler_socket);
    if (reply.epoch < c->epoch)
        status = gp_fail(err, GP_ESTALE, "a scheduler of epoch %llu answers; one of %llu was here",
                         (unsigned long long)reply.epoch, (unsigned long long)c->epoch);
    if (status == GP_OK)
        status = dial_link(c, endpoint, timeout_ms, err);
    if (status == GP_OK) {
        c->epoch = reply.epoch;
        c->joined = false;
        status = control_tell(c, &(gp_envelope){ .correlation = 1 }, &gp_msg_hello, &hello);
    }
    if (status == GP_OK)
        return GP_OK;
    gp_channel_close(c->scheduler, 0);
    c->scheduler = NULL;
    close(c->scheduler_door);
    c->scheduler_door = -1;
    return status;
}

void control_orphaned(control *c)
{
    gp_channel_close(c->scheduler, 0);
    c->scheduler = NULL;
    if (c->scheduler_door >= 0)
        close(c->scheduler_door);
    c->scheduler_door = -1;
    c->joined = c->acking = c->revoking = c->reporting = false;
    /* The next generation of what we serve is taken all the same: a training waits for it. */
    c->granting = c->granting && c->resetting && c->next_envelope.lease == c->lease;
    gp_fault_point("orphaned");
    c->redial_ms = gp_now_ms();
    c->orphan = gp_timeout_in(ORPHAN_MS);
    c->redial_wait_ms = REDIAL_MS;
}

void control_called(control *c, const gp_door_event *knock)
{
    gp_door_request secrets = { .what = GP_DOOR_SECRETS };
    uint64_t epoch;
    gp_error err;

    gp_door_admit(c->door, knock->id, c->epoch);
    gp_log_event(GP_LOG_INFO, "scheduler-calls", GP_LOG_WITH({ "scheduler", .number = knock->pid }),
                 "a scheduler calls");
    if (gp_secrets_fd() >= 0 &&
        gp_door_send_fd(gp_door_peer_fd(c->door, knock->id), &secrets, gp_secrets_fd(), &err) != GP_OK)
        gp_log(GP_LOG_WARN, "secrets-missing", "it was not given the pool's secrets: %s", err.message);
    memcpy(&epoch, knock->hello.session, sizeof(epoch));
    c->called =
        c->called || c->scheduler == NULL || epoch != c->epoch; /* else we have found it before it called */
}

/* A lease ends with the process that holds it: there is nobody else to end it now. */
static void watch_client(control *c)
{
    if (c->lease == 0 || c->resetting || (c->client_pidfd >= 0 && !gp_process_dead(c->client_pidfd)))
        return;
    gp_log_event(GP_LOG_INFO, "client-dead", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                 "the client of the lease is dead");
    control_reset(c);
}

static void redial(control *c)
{
    int64_t now = gp_now_ms();
    gp_error err;

    if (control_dial(c, ANSWER_MS, &err) == GP_OK) {
        gp_log_event(GP_LOG_INFO, "scheduler-found", GP_LOG_WITH({ "epoch", .number = (int64_t)c->epoch }),
                     "found a scheduler");
        control_join_begin(c, JOIN_MS);
        /* It has called before it answered: it is given the secrets before it hears that we are ready. */
        control_doors(c);
        return;
    }
    c->redial_ms = now + c->redial_wait_ms;
    c->redial_wait_ms = 2 * c->redial_wait_ms < REDIAL_LAST_MS ? 2 * c->redial_wait_ms : REDIAL_LAST_MS;
}

void control_orphan_serve(control *c)
{
    if (c->called && !c->ending) {
        if (c->scheduler != NULL)
            control_orphaned(c);
        c->redial_ms = gp_now_ms();
    }
    c->called = false;
    if (c->scheduler != NULL || c->ending)
        return;
    watch_client(c);
    if (c->lease != 0 && !c->resetting)
        c->orphan = gp_timeout_in(ORPHAN_MS);
    if (c->lease == 0 && c->recycle) { /* the dead scheduler would have replaced us */
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0,
                    "code or values of a lease that has ended are in this process");
        return;
    }
    if (gp_now_ms() >= c->redial_ms)
        redial(c);
    if (gp_timeout_left(c->orphan) == 0 && c->scheduler == NULL)
        control_end(c, GP_WORKER_EXIT_ORPHAN, 0, "there was no scheduler for 4.5 s");
}

int64_t control_orphan_due(const control *c)
{
    return c->scheduler != NULL || c->ending ? INT64_MAX : c->redial_ms;
}
