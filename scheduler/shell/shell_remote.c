/* Clients on other hosts, if the pool listens for them.
 *
 * No Unix socket and no kernel credentials exist here: the key identifies a client (ZAP User-Id),
 * and a session belongs to the key that sent the first hello. One table lists the allowed requests;
 * local and remote clients share the code that handles them. Requests that need memory or
 * descriptors on this host, such as leases, are not allowed. */
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "scheduler/shell/shell_remote.h"

enum {
    /* a session is dropped after this silence; the client then sends hello again */
    SESSION_IDLE_MS = 120000,
    KEY_SESSIONS_MAX = 16,
};

/* Requests that remote clients may send, and whether observers may send them, too. */
static const struct remote_verb {
    uint32_t message;
    bool observer;
} verbs[] = {
    { GP_ID(status_get), true },    { GP_ID(devices_get), true }, { GP_ID(jobs_get), true },
    { GP_ID(job_ask), true },       { GP_ID(job_watch), true },   { GP_ID(job_read), true },
    { GP_ID(job_put), false },      { GP_ID(job_stop), false },   { GP_ID(shutdown), false },
    { GP_ID(lease_resize), false },
};

/* ---- sessions ---- */

/* Create a session for a remote client. NULL: refused; an error reply was sent. */
static shell_client *session_begin(shell *s, const gp_incoming *in)
{
    static const gp_core_id nobody;
    gp_core_event event = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED };
    shell_client *client = NULL;
    uint32_t own = 0; /* sessions of this key */

    for (uint32_t i = SHELL_LOCAL_MAX; i < SHELL_PEERS_MAX; i++) {
        if (s->clients[i].control_socket == 0)
            client = &s->clients[i];
        else
            own += strcmp(s->clients[i].key, in->owner.key) == 0;
    }
    memcpy(event.session.bytes, in->envelope.session, sizeof(event.session.bytes));
    if (memcmp(&event.session, &nobody, sizeof(nobody)) == 0) {
        shell_reply_error(s, in, GP_EINVAL, "invalid hello: the session id must not be zero");
        return NULL;
    }
    if (client == NULL || own == KEY_SESSIONS_MAX) {
        s->listener.denied++;
        shell_reply_error(
            s, in, GP_EBUSY,
            "the pool has reached its limit of %u clients on other hosts, or of %u per key; try again later",
            (unsigned)SHELL_REMOTE_MAX, (unsigned)KEY_SESSIONS_MAX);
        return NULL;
    }
    s->refusal.reason[0] = '\0';
    shell_step(s, &event);
    if (shell_is_refused(&s->refusal, &event.session)) {
        shell_reply_error(s, in, GP_EBUSY, "%s", s->refusal.reason);
        return NULL;
    }
    shell_client who = { .control_socket = SHELL_REMOTE_CONNECTION,
                         .session = event.session,
                         .peer = in->peer,
                         .received_ms = gp_now_ms() };

    memcpy(who.key, in->owner.key, sizeof(who.key));
    shell_keep_client(s, client, &who);
    return client;
}

/* Check whether the key and the session permit a message, and process it. */
static void hear(shell *s, const gp_incoming *in)
{
    gp_core_event event = { .epoch = in->envelope.epoch, .correlation = in->envelope.correlation };
    const struct remote_verb *verb = NULL;
    bool is_hello = in->envelope.message == GP_ID(hello);
    shell_client *client;
    gp_hello hello;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (verbs[i].message == in->envelope.message)
            verb = &verbs[i];
    memcpy(event.session.bytes, in->envelope.session, sizeof(event.session.bytes));
    client = shell_find_client(s, &event.session);
    if (client != NULL && strcmp(client->key, in->owner.key) != 0) {
        s->listener.denied++; /* the session belongs to this host or to another key */
        shell_reply_error(s, in, GP_EPERM, "this session belongs to another client");
        return;
    }
    if (client != NULL) {
        client->peer = in->peer; /* the link may be new; the key identifies the client */
        client->received_ms = gp_now_ms();
    }
    if (in->owner.role == GP_KEY_WORKER || (!is_hello && verb == NULL)) {
        s->listener.denied++;
        shell_reply_error(
            s, in, in->owner.role == GP_KEY_WORKER ? GP_EPERM : GP_EUNSUPPORTED,
            in->owner.role == GP_KEY_WORKER
                ? "worker keys cannot be used here; create a client key: gradpool key add --role client"
                : "this command needs shared memory with the workers; run it on the pool's host, or there "
                  "with `gradpool submit`");
    } else if (is_hello) {
        if (!shell_hello_read(s, in, &hello))
            return;
        if (client == NULL) {
            client = session_begin(s, in);
            if (client == NULL)
                return;
            gp_log_event(GP_LOG_INFO, "remote-client",
                         GP_LOG_WITH({ "key", .text = in->owner.name }, { "process", .number = hello.pid }),
                         "a client on another host connected");
        }
        shell_send_welcome(s, in);
    } else if (!verb->observer && in->owner.role != GP_KEY_CLIENT) {
        s->listener.denied++;
        shell_reply_error(s, in, GP_EPERM, "permission denied: key '%s' has the role observer",
                          in->owner.name);
    } else if (client == NULL) {
        shell_reply_error(s, in, GP_EPEER, "no hello from this session on this link, or the session expired");
    } else if (event.epoch != 0 && event.epoch != s->core->config.epoch) {
        shell_reply_error(s, in, GP_ESTALE,
                          "stale message: this scheduler has epoch %" PRIu64 ", the message epoch %" PRIu64,
                          s->core->config.epoch, event.epoch);
    } else {
        if (!verb->observer)
            gp_log_event(GP_LOG_INFO, "remote-request",
                         GP_LOG_WITH({ "key", .text = in->owner.name },
                                     { "message", .text = in->type != NULL ? in->type->name : "?" }),
                         "request from a client on another host");
        shell_handle_request(s, in, &event);
    }
}

/* ---- poll loop ---- */

void shell_remote_serve(shell *s)
{
    gp_incoming in;
    gp_peer peer;

    if (!remote_listener_ready(&s->listener, s->options))
        return;
    for (int i = 0; i < SHELL_MESSAGES_AT_ONCE && gp_channel_receive(s->listener.channel, &in, NULL) == GP_OK;
         i++) {
        hear(s, &in);
        gp_incoming_close(&in);
    }
    gp_channel_watch(s->listener.channel);
    while (gp_channel_next_gone(s->listener.channel, &peer))
        for (uint32_t i = SHELL_LOCAL_MAX; i < SHELL_PEERS_MAX; i++)
            if (s->clients[i].control_socket != 0 && gp_peer_equal(&s->clients[i].peer, &peer))
                shell_forget_client(s, &s->clients[i]);
    if (remote_listener_check_due(&s->listener)) {
        bool changed = remote_listener_key_changed(&s->listener, s->options);

        for (uint32_t i = SHELL_LOCAL_MAX; i < SHELL_PEERS_MAX; i++)
            if (s->clients[i].control_socket != 0 &&
                (changed || gp_now_ms() - s->clients[i].received_ms > SESSION_IDLE_MS))
                shell_forget_client(s, &s->clients[i]);
        if (changed)
            remote_listener_restart(&s->listener);
    }
    shell_flush(s);
}

/* ---- jobs from other hosts ---- */

gp_status shell_remote_environment(const gp_frame *given, gp_buffer *out, gp_error *err)
{
    static const struct variable {
        const char *name;
        bool of_host;
    } variables[] = {
#define GP_JOB_VARIABLE(name, of_host) { #name, of_host },
#include "proto/message/job_variables.def"
#undef GP_JOB_VARIABLE
    };
    gp_status status = gp_buffer_append(out, given->data, given->bytes, err);

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]) && status == GP_OK; i++) {
        const struct variable *v = &variables[i];
        const char *value = v->of_host ? getenv(v->name) : NULL;

        for (size_t at = 0, bytes = strlen(v->name); value != NULL && at < given->bytes;
             at += strlen((const char *)given->data + at) + 1)
            if (strncmp((const char *)given->data + at, v->name, bytes) == 0 &&
                given->data[at + bytes] == '=')
                value = NULL; /* the submitter's value has priority */
        if (value == NULL)
            continue;
        status = gp_buffer_printf(out, err, "%s=%s", v->name, value);
        if (status == GP_OK)
            status = gp_buffer_append(out, "", 1, err);
    }
    return status;
}

const char *shell_remote_home(void)
{
    const char *home = getenv("HOME");
    const struct passwd *entry = home == NULL || home[0] != '/' ? getpwuid(geteuid()) : NULL;

    return entry != NULL ? entry->pw_dir : home != NULL && home[0] == '/' ? home : "/";
}
