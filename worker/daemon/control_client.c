/* control_client.c -- what clients ask and are answered; and the way of what compute says to them.
 *
 * Only the client that showed the token of the present grant is served, and each of its messages must carry the
 * lease and generation of that grant: what an older client, or an older group, still has under way is refused. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/daemon/control_parts.h"

static void tell_client(control *c, const gp_incoming *in, const gp_message_type *type, const void *message)
{
    gp_envelope envelope = { .correlation = in->envelope.correlation,
                             .lease = in->envelope.lease,
                             .generation = in->envelope.generation };
    gp_error err;

    if (gp_channel_send(c->clients, &in->peer, &envelope, type, message, NULL, 0, &err) != GP_OK)
        gp_log(GP_LOG_INFO, "message-unsent", "%s did not reach a client: %s", type->name, err.message);
}

static void refuse(control *c, const gp_incoming *in, const gp_error *error)
{
    gp_error err;

    gp_log(GP_LOG_WARN, "message-refused", "refused %s: %s", in->type == NULL ? "a message" : in->type->name,
           error->message);
    if (gp_channel_reply_error(c->clients, &in->peer, &in->envelope, error, c->options->index, &err) != GP_OK)
        gp_log(GP_LOG_INFO, "message-unsent", "the refusal did not reach the client: %s", err.message);
}

/* ---- joining ---- */

static void on_hello(control *c, gp_incoming *in)
{
    gp_welcome welcome = { .pid = (uint32_t)getpid() };
    gp_hello hello;
    gp_error err;

    if (gp_incoming_decode(in, &hello, &err) != GP_OK ||
        gp_protocol_choose(&welcome.protocol, hello.protocol_min, hello.protocol_max, &err) != GP_OK) {
        refuse(c, in, &err);
        return;
    }
    snprintf(welcome.build, sizeof(welcome.build), "%s", GP_BUILD);
    snprintf(welcome.pool, sizeof(welcome.pool), "%s", c->options->places->pool);
    welcome.uptime_ms = (uint64_t)(gp_now_ns() - c->options->started_ns) / 1000000;
    tell_client(c, in, &gp_msg_welcome, &welcome);
}

/* A lease that is being changed is nobody's. */
static gp_status lease_check(const control *c, const gp_envelope *envelope, gp_error *err)
{
    if (c->lease == 0 || c->resetting)
        return gp_fail(err, GP_ESTALE, "worker %u serves no lease now; lease %llu has ended here",
                       c->options->index, (unsigned long long)envelope->lease);
    if (envelope->lease != c->lease || envelope->generation != c->generation)
        return gp_fail(err, GP_ESTALE,
                       "worker %u serves lease %llu generation %u; asked for was lease %llu generation %u",
                       c->options->index, (unsigned long long)c->lease, c->generation,
                       (unsigned long long)envelope->lease, envelope->generation);
    return GP_OK;
}

/* In a time that does not tell how much of it was right. */
bool control_token_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (int i = 0; i < 16; i++)
        difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static void on_attach(control *c, gp_incoming *in)
{
    gp_attach attach;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &attach, &err);

    if (status == GP_OK)
        status = lease_check(c, &in->envelope, &err);
    if (status == GP_OK && !control_token_equal(attach.token, c->grant.token))
        status = gp_fail(&err, GP_EPERM, "the token is not that of lease %llu", (unsigned long long)c->lease);
    if (status != GP_OK) {
        refuse(c, in, &err);
        return;
    }
    c->attached = true;
    c->client = in->peer;
    memcpy(c->client_session, in->envelope.session, sizeof(c->client_session));
    gp_fault_point("attached");
    tell_client(c, in, &gp_msg_ok_reply, &(gp_ok_reply){ 0 });
}

/* ---- work ---- */

/* Whether the sender may ask for work at all. */
static gp_status attached_check(const control *c, const gp_incoming *in, gp_error *err)
{
    if (c->ending)
        return gp_fail(err, GP_ESTATE, "worker %u is ending", c->options->index);
    if (lease_check(c, &in->envelope, err) != GP_OK)
        return err->code;
    if (!c->attached || !gp_peer_equal(&c->client, &in->peer))
        return gp_fail(err, GP_EPERM, "attach to lease %llu first", (unsigned long long)c->lease);
    return GP_OK;
}

static gp_status work_check(const control *c, const gp_incoming *in, gp_error *err)
{
    static const char *const doing[] = { "idle", "training", "predicting", "serving tasks", "preparing" };
    uint32_t message = in->envelope.message;
    bool free_needed =
        message == GP_ID(train_begin) || message == GP_ID(predict_begin) || message == GP_ID(task_open);

    if (attached_check(c, in, err) != GP_OK)
        return err->code;
    if (free_needed && c->work != WORK_IDLE)
        return gp_fail(err, GP_ESTATE, "worker %u is %s; one run at a time", c->options->index,
                       doing[c->work]);
    if (!free_needed && c->work != WORK_PREDICTING)
        return gp_fail(err, GP_ESTATE, "no prediction is open; begin one first");
    return GP_OK;
}

/* What a command begins, and whether it may leave what the next generation of its lease goes on with. */
static const struct {
    control_work begins;
    bool holds;
} works[] = {
    [GP_COMMAND_TRAIN] = { WORK_TRAINING, true },
    [GP_COMMAND_PREPARE] = { WORK_PREPARING, true },
    [GP_COMMAND_PREDICT_BEGIN] = { WORK_PREDICTING, false },
    [GP_COMMAND_PREDICT_END] = { WORK_IDLE, false },
};

static void on_work(control *c, gp_incoming *in, gp_command_kind kind)
{
    gp_envelope envelope = in->envelope;
    gp_peer peer = in->peer;
    gp_train_begin begin = { .workers = 0 };
    gp_error err;
    gp_status status;

    if (works[kind].begins != WORK_IDLE)
        in->fd = control_weights_take(c);
    status = work_check(c, in, &err);
    if (status == GP_OK && kind == GP_COMMAND_TRAIN)
        status = gp_incoming_decode(in, &begin, &err);
    if (status != GP_OK) {
        refuse(c, in, &err);
        return;
    }
    if (begin.prepare != 0)
        kind = GP_COMMAND_PREPARE;
    if (works[kind].begins != WORK_IDLE)
        gp_train_control_reset(
            &c->train); /* here, not in compute: a stop that comes next must not be undone */
    if (gp_mailbox_post(c->mailbox, kind, in, &err) != GP_OK) {
        refuse(c, in, &err);
        return;
    }
    c->used = true;
    if (works[kind].begins != WORK_IDLE) {
        c->work = works[kind].begins;
        c->work_peer = peer;
        c->work_envelope = (gp_envelope){ .correlation = envelope.correlation,
                                          .lease = envelope.lease,
                                          .generation = envelope.generation };
        c->work_world = begin.workers;
        c->holds = works[kind].holds;
        c->lost_index = 0;
    }
}

/* Its answer is train_done.  One that comes when the training has just ended is not wrong. */
static void on_train_stop(control *c, gp_incoming *in)
{
    gp_train_stop stop;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &stop, &err);
    uint32_t going = 0;

    if (status == GP_OK)
        status = lease_check(c, &in->envelope, &err);
    if (status == GP_OK && (!c->attached || !gp_peer_equal(&c->client, &in->peer)))
        status = gp_fail(&err, GP_EPERM, "attach to lease %llu first", (unsigned long long)c->lease);
    if (status != GP_OK)
        refuse(c, in, &err);
    else if (c->work == WORK_TRAINING && stop.hard)
        gp_train_control_abort(&c->train);
    else if (c->work == WORK_TRAINING && stop.pause != 0)
        atomic_store(&c->train.pause, 1);
    else if (c->work == WORK_TRAINING)
        atomic_compare_exchange_strong(&c->train.stop, &going, 1);
}

static void on_run_open(control *c, gp_incoming *in)
{
    gp_run_open open;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &open, &err);

    if (status == GP_OK)
        status = attached_check(c, in, &err);
    if (status == GP_OK)
        status = control_run_open(c, &err);
    if (status != GP_OK)
        refuse(c, in, &err);
    else
        tell_client(c, in, &gp_msg_ok_reply, &(gp_ok_reply){ 0 });
}

static void on_task_open(control *c, gp_incoming *in)
{
    gp_task_ready ready = { .link_version = GP_LINK_VERSION, .task_abi = GP_TASK_ABI };
    gp_task_open open;
    gp_error err;
    gp_status status = work_check(c, in, &err);

    if (status == GP_OK)
        status = gp_incoming_decode(in, &open, &err);
    if (status == GP_OK)
        status = control_tasks_open(c, &open, &err);
    if (status != GP_OK)
        refuse(c, in, &err);
    else
        tell_client(c, in, &gp_msg_task_ready, &ready);
}

/* Of an older generation too: the block is in it. */
static void on_task_stop(control *c, gp_incoming *in)
{
    gp_task_stop stop;
    gp_error err;

    if (gp_incoming_decode(in, &stop, &err) == GP_OK && in->envelope.lease == c->lease && c->attached &&
        gp_peer_equal(&c->client, &in->peer))
        control_tasks_cancel(c, &stop);
}

void control_client(control *c, gp_incoming *in)
{
    gp_error err;

    switch (in->envelope.message) {
    case GP_ID(hello):
        on_hello(c, in);
        break;
    case GP_ID(attach):
        on_attach(c, in);
        break;
    case GP_ID(train_begin):
        on_work(c, in, GP_COMMAND_TRAIN);
        break;
    case GP_ID(train_stop):
        on_train_stop(c, in);
        break;
    case GP_ID(predict_begin):
        on_work(c, in, GP_COMMAND_PREDICT_BEGIN);
        break;
    case GP_ID(predict_ask):
        on_work(c, in, GP_COMMAND_PREDICT_ASK);
        break;
    case GP_ID(predict_end):
        on_work(c, in, GP_COMMAND_PREDICT_END);
        break;
    case GP_ID(run_open):
        on_run_open(c, in);
        break;
    case GP_ID(task_open):
        on_task_open(c, in);
        break;
    case GP_ID(task_stop):
        on_task_stop(c, in);
        break;
    default:
        gp_fail(&err, GP_EUNSUPPORTED, "a worker does not understand message %u", in->envelope.message);
        refuse(c, in, &err);
    }
}

/* ---- what compute says ---- */

/* Send a message of the compute thread to a client. A client that is gone counts as served, and one
 * that reads nothing does not delay the end of its lease.
 * GP_EBUSY: the client's queue is full; send the message again later.
 * Other codes: the message cannot be sent at all, for example because a payload is over the frame
 * limit. */
static gp_status pass_on(control *c, const gp_peer *peer, const gp_envelope *envelope,
                         const gp_message_type *type, const void *message, gp_blob *const *blobs,
                         uint32_t count, gp_error *err)
{
    gp_payload payloads[GP_REPLY_PAYLOADS] = { 0 };
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        if (gp_blob_fd(blobs[i]) >= 0)
            status = control_weights_send(c, gp_blob_fd(blobs[i]), err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        payloads[i] = gp_blob_payload(blobs[i]);
    if (status == GP_OK)
        status = gp_channel_send(c->clients, peer, envelope, type, message, payloads, count, err);
    if (status == GP_EPEER || (status == GP_EBUSY && c->resetting)) {
        c->unheard++; /* logged once, when the lease ends: there may be thousands */
        return GP_OK;
    }
    if (status != GP_OK && status != GP_EBUSY)
        gp_log(GP_LOG_ERROR, "message-unsent", "cannot send %s to the client: %s", type->name, err->message);
    return status;
}

/* Send the oldest step or validation message to the client. Return false if there is none, or if the client's queue is full. */
static bool news_pass_on(control *c)
{
    static const gp_message_type *const types[] = { [GP_NEWS_STEPS] = &gp_msg_train_steps,
                                                    [GP_NEWS_VALIDATION] = &gp_msg_train_validation,
                                                    [GP_NEWS_VALIDATING] = &gp_msg_train_validating };
    const gp_news kind = gp_mailbox_peek_news(c->mailbox, &c->news);
    gp_error err;

    if (kind == GP_NEWS_NONE)
        return false;
    if (pass_on(c, &c->work_peer, &c->work_envelope, types[kind], &c->news, NULL, 0, &err) == GP_EBUSY) {
        c->blocked = true;
        return false;
    }
    gp_mailbox_drop_news(c->mailbox);
    return true;
}

/* A training that ended because a member died says so, whatever the collective met first. */
static void done_explain(const control *c, gp_train_done *done)
{
    if (c->lost_index == 0 || done->status == GP_OK)
        return;
    done->status = GP_EPEER;
    done->stop_reason = GP_STOP_FAILED;
    snprintf(done->message, sizeof(done->message), "worker %u was lost: %s", c->lost_index, c->lost_cause);
}

/* The same for a training that had not begun its steps: its answer is an error. */
static void error_explain(const control *c, gp_error_reply *reply)
{
    reply->worker = c->options->index;
    if (c->lost_index == 0)
        return;
    reply->code = GP_EPEER;
    reply->worker = c->lost_index;
    snprintf(reply->message, sizeof(reply->message), "worker %u was lost: %s", c->lost_index, c->lost_cause);
}

/* Send an error_reply in place of a reply that cannot be sent, so that the client does not wait for
 * ever.
 * err: in, why the reply cannot be sent; out, why the error_reply cannot. */
static gp_status reply_replace(control *c, const gp_reply *unsent, gp_error *err)
{
    gp_error_reply reply = { .code = err->code, .worker = c->options->index };
    gp_status status;

    snprintf(reply.message, sizeof(reply.message), "cannot send %s: %.200s", unsent->type->name,
             err->message);
    status = pass_on(c, &unsent->peer, &unsent->envelope, &gp_msg_error_reply, &reply, NULL, 0, err);
    return status == GP_ENOMEM ? GP_EBUSY : status;
}

static bool reply_pass_on(control *c)
{
    const gp_reply *reply = gp_mailbox_peek_reply(c->mailbox);
    gp_reply told;
    gp_error err;
    gp_status status;
    bool idle;

    if (reply == NULL)
        return false;
    if (reply->type == NULL) {
        bool left = reply->left;

        gp_mailbox_drop_reply(c->mailbox);
        if (left)
            control_tasks_left(c);
        else
            control_reset_done(c);
        return true;
    }
    told = *reply;
    if (told.type == &gp_msg_train_done)
        done_explain(c, &told.body.train_done);
    if (told.type == &gp_msg_error_reply)
        error_explain(c, &told.body.error);
    status = pass_on(c, &told.peer, &told.envelope, told.type, &told.body, told.payloads, told.payload_count,
                     &err);
    if (status != GP_OK && status != GP_EBUSY && told.type != &gp_msg_train_note)
        status = reply_replace(c, &told, &err);
    if (status == GP_EBUSY) {
        c->blocked = true;
        return false;
    }
    idle = told.idle;
    gp_mailbox_drop_reply(c->mailbox);
    if (idle) {
        c->work = WORK_IDLE;
        c->lost_index = 0;
    }
    return true;
}

void control_outbound(control *c)
{
    c->blocked = false;
    while (news_pass_on(c) || (!c->blocked && reply_pass_on(c)))
        ;
}
