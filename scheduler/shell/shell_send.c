/* Outgoing messages: core actions, replies and status. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "proto/device/device_holder.h"
#include "scheduler/shell/shell_remote.h"

#ifndef GP_BUILD
#define GP_BUILD "gradpool"
#endif

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%.*s", (int)sizeof(to) - 1, (from))

gp_envelope shell_reply_envelope(const shell *s, const gp_envelope *to)
{
    gp_envelope envelope = { .correlation = to->correlation,
                             .epoch = s->core->config.epoch,
                             .lease = to->lease,
                             .generation = to->generation };

    memcpy(envelope.session, to->session, sizeof(envelope.session));
    return envelope;
}

static gp_channel *link_of(shell *s, const gp_peer *peer)
{
    return peer->remote ? s->listener.channel : s->channel;
}

gp_status shell_send(shell *s, const gp_peer *peer, const gp_envelope *envelope, const gp_message_type *type,
                     const void *message, const gp_payload *payload, gp_error *err)
{
    return gp_channel_send(link_of(s, peer), peer, envelope, type, message, payload, payload != NULL, err);
}

void shell_reply_error(shell *s, const gp_incoming *in, gp_status status, const char *format, ...)
{
    gp_error error = { .code = status };
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error.message, sizeof(error.message), format, arguments);
    va_end(arguments);
    /* Errors from other hosts are counted instead of logged at WARN, so that they cannot fill the
     * log. */
    gp_log(in->peer.remote ? GP_LOG_DEBUG : GP_LOG_WARN, "message-refused", "rejected a message: %s",
           error.message);
    if (gp_channel_reply_error(link_of(s, &in->peer), &in->peer, &in->envelope, &error, 0, NULL) != GP_OK)
        gp_log(GP_LOG_DEBUG, "message-unsent", "cannot send an error reply: the sender disconnected");
}

bool shell_decode(shell *s, const gp_incoming *in, void *message)
{
    gp_error err;

    if (gp_incoming_decode(in, message, &err) == GP_OK)
        return true;
    shell_reply_error(s, in, err.code, "%s", err.message);
    return false;
}

bool shell_hello_read(shell *s, const gp_incoming *in, gp_hello *hello)
{
    uint32_t protocol;
    gp_error err;

    if (gp_incoming_decode(in, hello, &err) == GP_OK &&
        gp_protocol_choose(&protocol, hello->protocol_min, hello->protocol_max, &err) == GP_OK)
        return true;
    shell_reply_error(s, in, err.code, "%s", err.message);
    return false;
}

void shell_send_welcome(shell *s, const gp_incoming *in)
{
    gp_envelope envelope = shell_reply_envelope(s, &in->envelope);
    gp_welcome welcome = { .protocol = GP_PROTOCOL,
                           .build = GP_BUILD,
                           .pid = (uint32_t)getpid(),
                           .uptime_ms = (uint64_t)(gp_now_ms() - s->started_ms) };
    gp_error err;

    COPY_TEXT(welcome.pool, s->options->paths->pool);
    if (shell_send(s, &in->peer, &envelope, &gp_msg_welcome, &welcome, NULL, &err) != GP_OK)
        gp_log(GP_LOG_WARN, "message-unsent", "cannot send welcome: %s", err.message);
}

/* ---- slot descriptions ---- */

_Static_assert((int)GP_TEXT_RESOURCES == (int)GP_RESOURCES_BYTES &&
                   (int)GP_TEXT_RESOURCES_SETTING == (int)GP_RESOURCE_SETTING_BYTES,
               "messages have room for all resources");

/* Describe a slot: as the worker reported it, or else as planned. */
static void fill_slot(const shell *s, uint32_t index, gp_slot *out)
{
    const gp_core_slot *slot = &s->core->slots[index];
    const gp_core_slot_config *config = &slot->config;
    const shell_worker *worker = &s->workers[index];

    if (worker->peer.bytes != 0 && worker->slot.incarnation == slot->incarnation) {
        *out = worker->slot;
        gp_resources_text(&config->resources, out->resources); /* a setting of the pool */
        return;
    }
    memset(out, 0, sizeof(*out));
    gp_resources_text(&config->resources, out->resources);
    out->index = index + 1;
    out->incarnation = slot->incarnation == 0 ? 1 : slot->incarnation;
    out->pid = (uint32_t)slot->pid;
    out->device_kind = config->kind == GP_CORE_GPU ? GP_DEVICE_CUDA : GP_DEVICE_CPU;
    out->device_index = config->device_index;
    COPY_TEXT(out->device_uuid, config->uuid);
    COPY_TEXT(out->device_name, config->name);
    COPY_TEXT(out->cores, config->cores);
    out->core_count = config->threads;
    out->shared = config->shared;
    COPY_TEXT(out->log, config->log);
}

/* ---- messages to workers ---- */

void shell_send_to_worker(shell *s, const gp_core_action *action)
{
    shell_worker *worker = &s->workers[action->slot];
    const gp_core_lease *lease = gp_core_lease_find(s->core, action->lease);
    gp_envelope envelope = { .epoch = s->core->config.epoch,
                             .lease = action->lease,
                             .generation = action->generation };
    const gp_message_type *type = &gp_msg_quit;
    gp_error err;

    if (worker->child.incarnation != action->incarnation || worker->peer.bytes == 0)
        return; /* no link: the reply deadline or the process exit handles it */
    if (action->kind == GP_CORE_GRANT) {
        gp_grant *grant = &s->out.grant;

        type = &gp_msg_grant;
        memset(grant, 0, sizeof(*grant));
        memcpy(grant->token, action->token.bytes, sizeof(grant->token));
        grant->client_pid = lease == NULL ? 0 : (uint32_t)lease->pid;
        grant->members_count = action->member_count;
        for (uint32_t i = 0; i < action->member_count; i++) {
            fill_slot(s, action->members[i].slot, &grant->members[i]);
            if (action->members[i].slot == action->slot)
                grant->rank = i;
        }
    } else if (action->kind == GP_CORE_PEER_LOST) {
        type = &gp_msg_peer_lost;
        s->out.peer_lost =
            (gp_peer_lost){ .index = action->lost_slot + 1, .incarnation = action->lost_incarnation };
        COPY_TEXT(s->out.peer_lost.cause, action->text);
    } else if (action->kind == GP_CORE_REVOKE) {
        gp_fault_point("revoking");
        type = &gp_msg_revoke;
        s->out.revoke = (gp_revoke){ .reason = "the lease ended" };
    } /* otherwise quit, which has no fields */
    gp_status status = shell_send(s, &worker->peer, &envelope, type, &s->out, NULL, &err);

    if (action->kind == GP_CORE_GRANT)
        gp_fault_point("granting");
    if (status != GP_OK)
        gp_log_event(GP_LOG_WARN, "message-unsent", GP_LOG_WITH({ "worker", .number = action->slot + 1 }),
                     "cannot send to a worker: %s", err.message);
}

/* ---- messages to clients ---- */

/* Write the message for a core action to *out. Return the type. */
static const gp_message_type *client_message(const shell *s, const gp_core_action *action, shell_message *out)
{
    switch (action->kind) {
    case GP_CORE_LEASE_GRANT:
        memset(&out->lease_grant, 0, sizeof(out->lease_grant));
        memcpy(out->lease_grant.token, action->token.bytes, sizeof(out->lease_grant.token));
        out->lease_grant.slots_count = action->member_count;
        for (uint32_t i = 0; i < action->member_count; i++)
            fill_slot(s, action->members[i].slot, &out->lease_grant.slots[i]);
        return &gp_msg_lease_grant;
    case GP_CORE_LEASE_CHANGE:
        memset(&out->lease_change, 0, sizeof(out->lease_change));
        out->lease_change.workers = action->workers;
        out->lease_change.asked = action->asked;
        out->lease_change.joining_count = action->member_count;
        for (uint32_t i = 0; i < action->member_count; i++)
            fill_slot(s, action->members[i].slot, &out->lease_change.joining[i]);
        return &gp_msg_lease_change;
    case GP_CORE_LEASE_WAIT:
        out->lease_wait = (gp_lease_wait){ .position = action->position };
        COPY_TEXT(out->lease_wait.reason, action->text);
        return &gp_msg_lease_wait;
    case GP_CORE_LEASE_ENDED:
        out->lease_ended = (gp_lease_ended){ .code = action->status };
        COPY_TEXT(out->lease_ended.reason, action->text);
        return &gp_msg_lease_ended;
    case GP_CORE_WORKER_LOST:
        out->worker_lost = (gp_worker_lost){ .index = action->lost_slot + 1,
                                             .incarnation = action->lost_incarnation,
                                             .signal = -1,
                                             .exit_code = -1,
                                             .step = action->lost_step,
                                             .out_of_memory = action->lost_out_of_memory };
        if (action->lost_death == GP_CORE_DIED_SIGNAL)
            out->worker_lost.signal = action->lost_number;
        if (action->lost_death == GP_CORE_DIED_EXIT) {
            out->worker_lost.signal = 0;
            out->worker_lost.exit_code = action->lost_number;
        }
        COPY_TEXT(out->worker_lost.cause, action->text);
        COPY_TEXT(out->worker_lost.log, s->core->slots[action->lost_slot].config.log);
        return &gp_msg_worker_lost;
    case GP_CORE_WORKER_SUSPECT:
        out->worker_suspect = (gp_worker_suspect){ .index = action->lost_slot + 1,
                                                   .incarnation = action->lost_incarnation,
                                                   .silent_ms = (uint64_t)action->silent_ms };
        COPY_TEXT(out->worker_suspect.text, action->text);
        return &gp_msg_worker_suspect;
    case GP_CORE_ERROR:
        out->error = (gp_error_reply){ .code = action->status };
        COPY_TEXT(out->error.message, action->text);
        return &gp_msg_error_reply;
    default:
        return &gp_msg_ok_reply; /* an empty message */
    }
}

void shell_send_to_client(shell *s, const gp_core_action *action)
{
    shell_client *client = shell_find_client(s, &action->session);
    gp_envelope envelope = { .correlation = action->correlation,
                             .epoch = s->core->config.epoch,
                             .lease = action->lease,
                             .generation = action->generation };
    gp_status status;
    gp_error err;

    memcpy(envelope.session, action->session.bytes, sizeof(envelope.session));

    /* Record a resize before the reply confirms it: this process may exit directly after it. */
    if (action->kind == GP_CORE_RESIZED && s->resizing != NULL)
        shell_record(s, s->resizing->devices, s->resizing->resources);
    if (client == NULL || client->peer.bytes == 0) {
        /* Not admitted yet: the control socket delivers the refusal. */
        s->refusal.session = action->session;
        snprintf(s->refusal.reason, sizeof(s->refusal.reason), "%s", action->text);
        return;
    }
    if (action->kind == GP_CORE_RESIZED) {
        shell_send_status(s, &client->peer, &envelope);
        return;
    }
    if (action->kind == GP_CORE_LEASE_GRANT) {
        shell_jobs_note_workers(s);
        gp_fault_point("granted");
    }
    status = shell_send(s, &client->peer, &envelope, client_message(s, action, &s->out), &s->out, NULL, &err);
    if (action->kind == GP_CORE_LEASE_GRANT)
        gp_fault_point("answered");
    if (status == GP_OK)
        return;
    gp_log_event(GP_LOG_WARN, "client-unreached", GP_LOG_WITH({ "client", .number = client->pid }),
                 "cannot send to a client: %s", err.message);
    /* The client must not miss a grant: it would hold the lease forever without knowing. Disconnect
     * the client instead. */
    if ((status != GP_EPEER || !client->peer.remote) && action->kind != GP_CORE_LEASE_WAIT &&
        action->kind != GP_CORE_WORKER_SUSPECT)
        shell_drop_client(s, client);
}

/* ---- status ---- */

static void fill_lease_rows(const shell *s, gp_status_reply *status)
{
    const gp_core *core = s->core;

    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX && status->leases_count < GP_LEASES_MAX; i++) {
        const gp_core_lease *lease = &core->leases[i];
        gp_lease_row *row = &status->leases[status->leases_count];

        if (lease->id == 0)
            continue;
        status->leases_count++;
        row->lease = lease->id;
        row->generation = lease->generation;
        row->client_pid = (uint32_t)lease->pid;
        row->state = GP_LEASE_GRANTED;
        COPY_TEXT(row->purpose, lease->description);
        row->workers = (uint32_t)__builtin_popcountll(lease->formed);
        row->age_ms = (uint64_t)(core->now_ms - lease->since_ms);
    }
    for (uint32_t i = 0; i < core->ask_count && status->leases_count < GP_LEASES_MAX; i++) {
        const gp_core_ask *ask = &core->asks[i];
        gp_lease_row *row = &status->leases[status->leases_count++];

        /* the id that the request gets if no client leaves the queue */
        row->lease = core->lease_next + i;
        row->client_pid = (uint32_t)ask->pid;
        row->state = GP_LEASE_QUEUED;
        COPY_TEXT(row->purpose, ask->wish.description);
        row->workers = ask->named != 0 ? (uint32_t)__builtin_popcountll(ask->named) : ask->wish.min;
        row->age_ms = (uint64_t)(core->now_ms - ask->asked_ms);
    }
}

void shell_send_devices(shell *s, const gp_peer *peer, const gp_envelope *to)
{
    gp_envelope envelope = shell_reply_envelope(s, to);
    gp_devices_reply reply = { .cores = s->options->cores->count };
    gp_device_list *list = gp_malloc(sizeof(*list));
    gp_buffer text;
    gp_error err;
    gp_status status = list == NULL ? gp_fail(&err, GP_ENOMEM, "no memory for the device list") : GP_OK;

    gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
    if (status == GP_OK) {
        *list = *s->options->devices;
        gp_device_list_holders(list, s->options->paths->device_dir); /* current holders */
        status = gp_device_list_write(list, &text, &err);
    }
    if (status == GP_OK)
        status = shell_send(s, peer, &envelope, &gp_msg_devices_reply, &reply,
                            &(gp_payload){ .data = text.data, .bytes = text.bytes }, &err);
    if (status != GP_OK)
        gp_log(GP_LOG_WARN, "message-unsent", "cannot send the device list: %s", err.message);
    gp_buffer_deinit(&text);
    gp_free(list);
}

void shell_send_status(shell *s, const gp_peer *peer, const gp_envelope *to)
{
    static const char *const words[] = { "starting", "idle", "busy", "excluded", "dead" };
    gp_envelope envelope = shell_reply_envelope(s, to);
    gp_status_reply *status = &s->out.status;
    gp_error err;

    memset(status, 0, sizeof(*status));
    COPY_TEXT(status->pool, s->options->paths->pool);
    status->scheduler_pid = (uint32_t)getpid();
    status->uptime_ms = (uint64_t)(gp_now_ms() - s->started_ms);
    status->epoch = s->core->config.epoch;
    status->idle_timeout_ms = (uint64_t)s->core->config.idle_ms;
    status->accepting = s->core->accepting && s->core->stopping == GP_CORE_RUNNING;
    status->workers_count = s->core->slot_count;
    for (uint32_t i = 0; i < status->workers_count; i++) {
        const gp_core_slot *slot = &s->core->slots[i];
        gp_worker_row *row = &status->workers[i];
        char text[GP_ERROR_MESSAGE_MAX];

        fill_slot(s, i, &row->slot);
        while (strcmp(words[row->state], gp_core_slot_word(slot)) != 0)
            row->state++;
        COPY_TEXT(row->reason, slot->reason);
        if (slot->suspect) {
            row->silent_ms = (uint64_t)gp_core_slot_silence(s->core, slot);
            COPY_TEXT(row->reason, gp_core_text_silence(s->core, slot, text));
        }
        row->lease = slot->lease;
        row->step = slot->step;
    }
    totals_get(&s->totals, status);
    fill_lease_rows(s, status);
    if (s->listener.bound[0] != '\0') {
        remote_counts counts = remote_listener_count(&s->listener);

        COPY_TEXT(status->listen, s->listener.bound);
        status->remote_links = counts.links;
        status->remote_refused = counts.refused;
        status->remote_cut = counts.cut;
    }
    if (shell_send(s, peer, &envelope, &gp_msg_status_reply, status, NULL, &err) != GP_OK)
        gp_log(GP_LOG_WARN, "message-unsent", "cannot send the status: %s", err.message);
}
