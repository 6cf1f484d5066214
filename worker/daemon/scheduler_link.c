#include "worker/daemon/scheduler_link.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "proto/message/messages.h"

enum {
    BEAT_MS = 500,
    /* exit after this time without a scheduler and a lease; all processes exit within 5 s of a
     * crash */
    ORPHAN_MS = 4500,
    REJOIN_MS = 5000, /* time limit for worker_welcome after a redial */
    REDIAL_MS = 2,    /* first delay between attempts; doubles each time */
    REDIAL_MAX_MS = 100,
    ATTEMPT_MS = 2000, /* for one attempt to connect the channel */
    /* time limit for the control socket when redialling; the worker serves no client meanwhile */
    ANSWER_MS = 250,
};

gp_status scheduler_link_open(scheduler_link *link, const gp_paths *paths, int dial_ms, int join_ms,
                              gp_error *err)
{
    gp_control_socket_hello greeting = { .protocol_min = GP_PROTOCOL_MIN,
                                         .protocol_max = GP_PROTOCOL,
                                         .role = GP_ROLE_WORKER,
                                         .pid = (uint32_t)getpid() };
    gp_hello hello = { .role = GP_ROLE_WORKER,
                       .protocol_min = GP_PROTOCOL_MIN,
                       .protocol_max = GP_PROTOCOL,
                       .build = GP_BUILD,
                       .pid = (uint32_t)getpid() };
    char endpoint[GP_TEXT_ENDPOINT + 8];
    gp_control_socket_reply reply;
    gp_channel_options options = { .security = GP_SECURITY_NONE };
    int64_t left = dial_ms;
    gp_status status = gp_control_socket_connect(&link->control_socket, &reply,
                                                 paths->scheduler_control_socket, &greeting, dial_ms, err);
    gp_timeout timeout = gp_timeout_in(dial_ms);

    if (status != GP_OK)
        return status;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", paths->scheduler_socket);
    if (reply.epoch < link->epoch)
        status = gp_fail(err, GP_ESTALE, "a scheduler of epoch %llu replied; expected epoch %llu or later",
                         (unsigned long long)reply.epoch, (unsigned long long)link->epoch);
    /* Connect in attempts, each at most ATTEMPT_MS long. Between attempts, check whether the
     * scheduler has exited. ZeroMQ heartbeats are off: a suspended scheduler cannot answer them,
     * and a reconnected link has another peer identity. The control socket reports a scheduler
     * exit. */
    if (status == GP_OK)
        do {
            status = gp_channel_connect(&link->channel, endpoint, &options,
                                        left < ATTEMPT_MS ? (int)left : ATTEMPT_MS, err);
            left = gp_timeout_left(timeout);
        } while (status == GP_EPEER && !gp_control_socket_gone(link->control_socket) && left > 0);
    if (status == GP_OK) {
        link->epoch = reply.epoch;
        link->joined = false;
        status = scheduler_link_send(link, &(gp_envelope){ .correlation = 1 }, &gp_msg_hello, &hello);
    }
    if (status == GP_OK)
        link->deadline = gp_timeout_in(join_ms);
    else
        scheduler_link_close(link, 0);
    return status;
}

void scheduler_link_close(scheduler_link *link, int linger_ms)
{
    gp_channel_close(link->channel, linger_ms);
    link->channel = NULL;
    if (link->control_socket >= 0)
        close(link->control_socket);
    link->control_socket = -1;
}

void scheduler_link_lose(scheduler_link *link)
{
    scheduler_link_close(link, 0);
    link->joined = link->report_due = false;
    link->redial_ms = gp_now_ms();
    link->redial_wait_ms = REDIAL_MS;
    scheduler_link_extend(link);
}

void scheduler_link_extend(scheduler_link *link)
{
    link->deadline = gp_timeout_in(ORPHAN_MS);
}

bool scheduler_link_redial(scheduler_link *link, const gp_paths *paths)
{
    int64_t now = gp_now_ms();
    gp_error err;

    if (now < link->redial_ms)
        return false;
    if (scheduler_link_open(link, paths, ANSWER_MS, REJOIN_MS, &err) == GP_OK)
        return true;
    link->redial_ms = now + link->redial_wait_ms;
    link->redial_wait_ms =
        2 * link->redial_wait_ms < REDIAL_MAX_MS ? 2 * link->redial_wait_ms : REDIAL_MAX_MS;
    return false;
}

gp_status scheduler_link_send(scheduler_link *link, const gp_envelope *envelope, const gp_message_type *type,
                              const void *message)
{
    gp_envelope filled = *envelope;
    gp_error err;
    gp_status status;

    if (link->channel == NULL)
        return GP_EPEER;
    filled.epoch = link->epoch;
    status = gp_channel_send(link->channel, NULL, &filled, type, message, NULL, 0, &err);
    if (status != GP_OK)
        gp_log_event(GP_LOG_WARN, "message-unsent", GP_LOG_WITH({ "message", .text = type->name }),
                     "cannot send %s to the scheduler: %s", type->name, err.message);
    return status;
}

bool scheduler_link_beat_due(scheduler_link *link, uint32_t work)
{
    if (gp_now_ms() < link->beat_ms && work == link->beat_work)
        return false;
    link->beat_work = work;
    link->beat_ms = gp_now_ms() + BEAT_MS;
    return true;
}
