/* control_client.c -- messages from clients, and messages from the compute thread to clients.
 *
 * Only the client that presented the token of the current grant is served. Each message must
 * carry that grant's lease and generation, so late messages from an earlier client or group are
 * refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "proto/task/task_wire.h"
#include "worker/daemon/control_parts.h"

static void reply(control *c, const gp_incoming *in, const gp_message_type *type, const void *message)
{
    gp_envelope envelope = gp_reply_envelope(&in->envelope);
    gp_error err;

    if (gp_channel_send(c->clients, &in->peer, &envelope, type, message, NULL, 0, &err) != GP_OK)
        gp_log(GP_LOG_INFO, "message-unsent", "cannot send %s to a client: %s", type->name, err.message);
}

/* ---- requests: an error makes control_client() refuse the message ---- */

/* Check that the attached client sent the message, and that this worker is not shutting down. */
static gp_status client_check(const control *c, const gp_incoming *in, gp_error *err)
{
    if (c->end_ms != 0)
        return gp_fail(err, GP_ESTATE, "worker %u is shutting down", c->options->index);
    return served_lease_check_client(&c->lease, in, c->options->index, err);
}

/* Check the client as client_check() does, and that the current work allows the message. */
static gp_status work_check(const control *c, const gp_incoming *in, gp_error *err)
{
    if (client_check(c, in, err) != GP_OK)
        return err->code;
    return current_work_check(&c->work, in->envelope.message, c->options->index, err);
}

/* Hand a training or prediction message over to compute. */
static gp_status on_work(control *c, gp_incoming *in, gp_command_kind kind, gp_error *err)
{
    const gp_envelope envelope = in->envelope;
    const gp_peer peer = in->peer;
    gp_train_begin begin = { .workers = 0 };

    if (current_work_begins(kind)) {
        control_serve_socket(c); /* the client sent the weights descriptor before the message */
        in->fd = c->fds.weights;
        c->fds.weights = -1;
    }
    if (work_check(c, in, err) != GP_OK ||
        (kind == GP_COMMAND_TRAIN && gp_incoming_decode(in, &begin, err) != GP_OK))
        return err->code;
    if (begin.prepare != 0)
        kind = GP_COMMAND_PREPARE;

    /* Reset here and not in compute: compute could undo a stop request that arrives next. */
    if (current_work_begins(kind))
        gp_train_control_reset(&c->train);
    if (gp_mailbox_post(c->mailbox, kind, in, err) != GP_OK)
        return err->code;
    current_work_begin(&c->work, kind, &peer, &envelope, begin.workers);
    return GP_OK;
}

/* Stop or pause the training; the client gets train_done as the reply. A stop that arrives after
 * the training or the lease has ended has no effect: an error reply could overtake the last steps
 * and train_done, and the client would take it for the end of this rank. */
static gp_status on_train_stop(control *c, gp_incoming *in, gp_error *err)
{
    gp_train_stop stop;
    uint32_t running = 0;

    if (gp_incoming_decode(in, &stop, err) != GP_OK)
        return err->code;
    gp_status status = served_lease_check_client(&c->lease, in, c->options->index, err);

    if (status != GP_OK)
        return status == GP_ESTALE ? GP_OK : status;
    if (c->work.kind == WORK_TRAINING && stop.hard)
        gp_train_control_abort(&c->train);
    else if (c->work.kind == WORK_TRAINING && stop.pause != 0)
        atomic_store(&c->train.pause, 1);
    else if (c->work.kind == WORK_TRAINING)
        atomic_compare_exchange_strong(&c->train.stop, &running, 1);
    return GP_OK;
}

static gp_status client_request(control *c, gp_incoming *in, gp_error *err)
{
    gp_welcome welcome = { .pid = (uint32_t)getpid() };
    gp_task_ready ready = { .link_version = GP_LINK_VERSION, .task_abi = GP_TASK_ABI };
    gp_hello hello;
    gp_attach attach;
    gp_run_open run;
    gp_task_open open;
    gp_task_stop stop;

    switch (in->envelope.message) {
    case GP_ID(hello):
        if (gp_incoming_decode(in, &hello, err) != GP_OK ||
            gp_protocol_choose(&welcome.protocol, hello.protocol_min, hello.protocol_max, err) != GP_OK)
            return err->code;
        snprintf(welcome.build, sizeof(welcome.build), "%s", GP_BUILD);
        snprintf(welcome.pool, sizeof(welcome.pool), "%s", c->options->paths->pool);
        welcome.uptime_ms = (uint64_t)(gp_now_ns() - c->options->started_ns) / 1000000;
        reply(c, in, &gp_msg_welcome, &welcome);
        return GP_OK;
    case GP_ID(attach):
        if (gp_incoming_decode(in, &attach, err) != GP_OK ||
            served_lease_attach(&c->lease, in, attach.token, c->options->index, err) != GP_OK)
            return err->code;
        gp_fault_point("attached");
        reply(c, in, &gp_msg_ok_reply, &(gp_ok_reply){ 0 });
        return GP_OK;
    case GP_ID(train_begin):
        return on_work(c, in, GP_COMMAND_TRAIN, err);
    case GP_ID(train_stop):
        return on_train_stop(c, in, err);
    case GP_ID(predict_begin):
        return on_work(c, in, GP_COMMAND_PREDICT_BEGIN, err);
    case GP_ID(predict_ask):
        return on_work(c, in, GP_COMMAND_PREDICT_ASK, err);
    case GP_ID(predict_end):
        return on_work(c, in, GP_COMMAND_PREDICT_END, err);
    case GP_ID(run_open):
        if (gp_incoming_decode(in, &run, err) != GP_OK || client_check(c, in, err) != GP_OK ||
            control_run_open(c, err) != GP_OK)
            return err->code;
        reply(c, in, &gp_msg_ok_reply, &(gp_ok_reply){ 0 });
        return GP_OK;
    case GP_ID(task_open):
        if (work_check(c, in, err) != GP_OK || gp_incoming_decode(in, &open, err) != GP_OK ||
            control_tasks_open(c, &open, err) != GP_OK)
            return err->code;
        reply(c, in, &gp_msg_task_ready, &ready);
        return GP_OK;
    case GP_ID(task_stop):
        /* Cancel one call's block. The call may belong to an older lease generation. Ignore
         * malformed messages, other leases and other clients. */
        if (gp_incoming_decode(in, &stop, NULL) == GP_OK && stop.call != 0 &&
            in->envelope.lease == c->lease.id && gp_peer_equal(&c->lease.client, &in->peer))
            control_tasks_abort(c, stop.call);
        return GP_OK;
    default:
        return gp_fail(err, GP_EUNSUPPORTED, "unexpected message %u to a worker", in->envelope.message);
    }
}

void control_client(control *c, gp_incoming *in)
{
    gp_error error, err;

    if (client_request(c, in, &error) == GP_OK)
        return;
    gp_log(GP_LOG_WARN, "message-refused", "rejected %s: %s", in->type == NULL ? "a message" : in->type->name,
           error.message);
    if (gp_channel_reply_error(c->clients, &in->peer, &in->envelope, &error, c->options->index, &err) !=
        GP_OK)
        gp_log(GP_LOG_INFO, "message-unsent", "cannot send an error reply to the client: %s", err.message);
}

/* ---- messages from compute ---- */

/* Send a message from compute to a client. Messages to a client that has exited are dropped. So
 * are messages to a client that does not read, while the lease is being reset.
 *
 *   GP_EBUSY     the client's queue is full; send the message again later
 *   other codes  the message cannot be sent, for example because a payload exceeds the frame
 *                limit */
static gp_status pass_on(control *c, const gp_peer *peer, const gp_envelope *envelope,
                         const gp_message_type *type, const void *message, gp_blob *const *blobs,
                         uint32_t count, gp_error *err)
{
    const gp_control_socket_request request = { .what = GP_CONTROL_SOCKET_WEIGHTS,
                                                .lease = c->lease.id,
                                                .generation = c->lease.generation };
    gp_payload payloads[GP_REPLY_PAYLOADS] = { 0 };
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        if (gp_blob_fd(blobs[i]) < 0)
            continue;
        control_serve_socket(c); /* the connection may have ended */
        status = c->fds.weights_socket == 0
                     ? gp_fail(err, GP_ESTATE, "the client has no connection for weights to worker %u",
                               c->options->index)
                     : gp_control_socket_send_fd(
                           gp_control_socket_peer_fd(c->control_socket, c->fds.weights_socket), &request,
                           gp_blob_fd(blobs[i]), err);
    }
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        payloads[i] = gp_blob_payload(blobs[i]);
    if (status == GP_OK)
        status = gp_channel_send(c->clients, peer, envelope, type, message, payloads, count, err);
    if (status == GP_EPEER || (status == GP_EBUSY && c->lease.resetting)) {
        /* Count the message; the total is logged once when the lease ends, as there may be
         * thousands. */
        c->undelivered++;
        return GP_OK;
    }
    if (status != GP_OK && status != GP_EBUSY)
        gp_log(GP_LOG_ERROR, "message-unsent", "cannot send %s to the client: %s", type->name, err->message);
    return status;
}

/* Send the oldest reply from compute. false: no reply is pending, or the queue is full. */
static bool reply_pass_on(control *c)
{
    const gp_reply *oldest = gp_mailbox_peek_reply(c->mailbox);
    gp_reply sent;
    gp_error err;
    gp_status status;

    if (oldest == NULL)
        return false;
    sent = *oldest;
    if (sent.type == NULL) { /* compute has left the task link, or finished a reset */
        gp_mailbox_drop_reply(c->mailbox);
        if (sent.left)
            control_tasks_left(c);
        else
            control_reset_done(c);
        return true;
    }
    current_work_explain(&c->work, &sent, c->options->index);
    status = pass_on(c, &sent.peer, &sent.envelope, sent.type, &sent.body, sent.payloads, sent.payload_count,
                     &err);
    if (status != GP_OK && status != GP_EBUSY && sent.type != &gp_msg_train_note) {
        /* Send an error_reply instead, so that the client does not wait forever. */
        gp_error_reply error = { .code = err.code, .worker = c->options->index };

        snprintf(error.message, sizeof(error.message), "cannot send %s: %.200s", sent.type->name,
                 err.message);
        status = pass_on(c, &sent.peer, &sent.envelope, &gp_msg_error_reply, &error, NULL, 0, &err);
        status = status == GP_ENOMEM ? GP_EBUSY : status;
    }
    if (status == GP_EBUSY) {
        c->blocked = true;
        return false;
    }
    if (status == GP_OK && sent.type == &gp_msg_predict_part)
        counters_add_samples(&c->counters, sent.body.predict_part.count);
    gp_mailbox_drop_reply(c->mailbox);
    if (sent.idle)
        current_work_end(&c->work);
    return true;
}

void control_outbound(control *c)
{
    static const gp_message_type *const types[] = { [GP_MAILBOX_EVENT_STEPS] = &gp_msg_train_steps,
                                                    [GP_MAILBOX_EVENT_VALIDATION] = &gp_msg_train_validation,
                                                    [GP_MAILBOX_EVENT_VALIDATING] =
                                                        &gp_msg_train_validating };
    gp_mailbox_event_message event;
    gp_error err;

    c->blocked = false;
    do {
        /* Send all step and validation messages that precede the next reply. */
        for (gp_mailbox_event_kind kind;
             (kind = gp_mailbox_peek_event(c->mailbox, &event)) != GP_MAILBOX_EVENT_NONE;
             gp_mailbox_drop_event(c->mailbox)) {
            if (kind == GP_MAILBOX_EVENT_STEPS)
                counters_get_usage(&c->counters, gp_now_ms(), &event.steps);
            if (pass_on(c, &c->work.peer, &c->work.envelope, types[kind], &event, NULL, 0, &err) ==
                GP_EBUSY) {
                c->blocked = true;
                return;
            } else if (kind == GP_MAILBOX_EVENT_STEPS) {
                counters_add_steps(&c->counters, &event.steps);
            }
        }
    } while (reply_pass_on(c));
}
