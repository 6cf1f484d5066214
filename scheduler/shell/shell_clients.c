/* Control socket and messages of local clients.
 *
 * A client is a process with an open control socket connection. When the process exits, the kernel
 * closes the connection in any client state. Messages on the channel belong to the
 * session that the client announced on the control socket. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "scheduler/shell/shell_parts.h"
#include "proto/task/task_wire.h"

static uint64_t session_hash(const void *s, uint32_t entry)
{
    return gp_index_hash(((const shell *)s)->clients[entry - 1].session.bytes);
}

static bool session_is(const void *s, uint32_t entry, const void *session)
{
    return memcmp(&((const shell *)s)->clients[entry - 1].session, session, sizeof(gp_core_id)) == 0;
}

bool shell_sessions_init(shell *s)
{
    s->sessions = (gp_index){ .owner = s, .hash = session_hash, .is = session_is };
    return gp_index_init(&s->sessions, SHELL_PEERS_MAX);
}

shell_client *shell_find_client(shell *s, const gp_core_id *session)
{
    uint32_t entry = gp_index_find(&s->sessions, gp_index_hash(session->bytes), session);

    return entry == 0 ? NULL : &s->clients[entry - 1];
}

static bool is_remote(const shell_client *client)
{
    return client->control_socket == SHELL_REMOTE_CONNECTION;
}

void shell_keep_client(shell *s, shell_client *client, const shell_client *who)
{
    *client = *who;
    gp_index_add(&s->sessions, (uint32_t)(client - s->clients) + 1);
    s->client_count += !is_remote(client);
}

void shell_forget_client(shell *s, shell_client *client)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_CLIENT_GONE, .session = client->session };

    shell_jobs_forget_client(s, &client->session);
    gp_index_remove(&s->sessions, (uint32_t)(client - s->clients) + 1);
    s->client_count -= !is_remote(client);
    client->control_socket = 0;
    client->peer.bytes = 0;
    shell_pend(s, &event);
}

void shell_drop_client(shell *s, shell_client *client)
{
    if (client->peer.remote)
        gp_channel_cut(s->listener.channel, &client->peer);
    else
        gp_control_socket_drop(s->control_socket, client->control_socket);
    shell_forget_client(s, client);
}

bool shell_is_refused(const shell_refusal *refusal, const gp_core_id *session)
{
    return refusal->reason[0] != '\0' && memcmp(&refusal->session, session, sizeof(*session)) == 0;
}

/* Admit or refuse a new connection on the control socket. */
static void client_connected(shell *s, const gp_control_socket_event *greeting)
{
    static const gp_core_id nobody;
    gp_core_event event = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .pid = greeting->pid };
    bool full = s->client_count == s->clients_max;

    /* a worker connects only to detect when the scheduler exits; it registers with worker_ready */
    if (greeting->hello.role == GP_ROLE_WORKER) {
        gp_control_socket_admit(s->control_socket, greeting->id, s->core->config.epoch);
        return;
    }
    memcpy(event.session.bytes, greeting->hello.session, sizeof(event.session.bytes));
    if (memcmp(&event.session, &nobody, sizeof(nobody)) == 0 ||
        shell_find_client(s, &event.session) != NULL) {
        gp_control_socket_refuse(s->control_socket, greeting->id, GP_EINVAL,
                                 "invalid hello: the session id must be unique and not zero");
        return;
    }
    s->refusal.reason[0] = '\0';
    gp_fault_point("knocked");
    if (full) /* the core must not register a client that is refused */
        snprintf(s->refusal.reason, sizeof(s->refusal.reason),
                 "the pool has reached its limit of %u clients; try again later", s->clients_max);
    else
        shell_step(s, &event);
    if (full || shell_is_refused(&s->refusal, &event.session)) {
        gp_control_socket_refuse(s->control_socket, greeting->id, GP_EBUSY, s->refusal.reason);
        return;
    }
    shell_keep_client(
        s, &s->clients[gp_control_socket_index(greeting->id)],
        &(shell_client){ .control_socket = greeting->id, .session = event.session, .pid = greeting->pid });
    gp_control_socket_admit(s->control_socket, greeting->id, s->core->config.epoch);
}

void shell_serve_control_socket(shell *s)
{
    gp_control_socket_request answer = { .what = GP_CONTROL_SOCKET_SECRETS };
    gp_control_socket_event event;
    gp_error err;

    for (int i = 0; i < SHELL_MESSAGES_AT_ONCE; i++) {
        gp_control_socket_next(s->control_socket, &event);
        if (event.kind == GP_CONTROL_SOCKET_NOTHING)
            return;
        shell_client *client = &s->clients[gp_control_socket_index(event.id)];

        if (event.kind == GP_CONTROL_SOCKET_HELLO) {
            client_connected(s, &event);
        } else if (event.kind != GP_CONTROL_SOCKET_GONE) {
            /* Replace the pool secrets with those from a client. The reply carries
             * the status in place of a lease. */
            if (event.request.what == GP_CONTROL_SOCKET_SECRETS && event.fd >= 0) {
                answer.lease = (uint64_t)gp_secrets_copy(gp_secrets_fd(), event.fd, &err);
                s->secrets_reported = true;
                gp_log(GP_LOG_INFO, "secrets-told", "the secrets of the pool were %s",
                       answer.lease == GP_OK ? "replaced" : "not replaced");
                if (gp_control_socket_send_fd(gp_control_socket_peer_fd(s->control_socket, event.id), &answer,
                                              -1, &err) != GP_OK)
                    gp_log(GP_LOG_WARN, "message-unsent", "%s", err.message);
            }
            if (event.fd >= 0)
                close(event.fd);
        } else if (client->control_socket == event.id) { /* else a worker, or a client that was dropped */
            gp_log_event(GP_LOG_INFO, "client-gone", GP_LOG_WITH({ "client", .number = client->pid }),
                         "a client disconnected");
            shell_forget_client(s, client);
        }
        shell_flush(s); /* all clients may disconnect in one iteration */
    }
}

static void holder_set(shell_holder *holder, uint64_t lease)
{
    if (holder->lease != 0 && holder->pidfd >= 0)
        close(holder->pidfd);
    *holder = (shell_holder){ .lease = lease, .pidfd = -1 };
}

void shell_watch_clients(shell *s)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        const gp_core_lease *lease = &s->core->leases[i];
        shell_client *client = lease->id == 0 ? NULL : shell_find_client(s, &lease->session);
        shell_holder *holder = &s->holders[i];
        struct pollfd ended = { .events = POLLIN };

        if (holder->lease != lease->id)
            holder_set(holder, lease->id);
        if (client == NULL)
            continue;
        errno = 0;
        if (holder->pidfd < 0)
            holder->pidfd = gp_control_socket_peer_pidfd(s->control_socket, client->control_socket);
        ended.fd = holder->pidfd;
        if (holder->pidfd < 0 ? errno != ESRCH : poll(&ended, 1, 0) <= 0)
            continue;
        gp_log_event(GP_LOG_INFO, "client-gone", GP_LOG_WITH({ "client", .number = client->pid }),
                     "a client exited; a process that it forked has not closed the connection");
        shell_drop_client(s, client);
        shell_flush(s);
    }
}

void shell_forget_holders(shell *s)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
        holder_set(&s->holders[i], 0);
}

/* ---- messages ---- */

static gp_core_environment environment_of(uint32_t said)
{
    return said == GP_ENV_CPU ? GP_CORE_ONLY_CPU : said == GP_ENV_GPU ? GP_CORE_ONLY_GPU : GP_CORE_ANY;
}

static void handle_ask(shell *s, const gp_incoming *in, gp_core_event *event)
{
    gp_core_wish wish = { .min = 0 };
    gp_lease_ask ask;
    gp_error err;

    if (!shell_decode(s, in, &ask))
        return;
    if (gp_resources_parse(&wish.needs, ask.needs, &err) != GP_OK) {
        shell_reply_error(s, in, err.code, "%s", err.message);
        return;
    }
    wish.min = ask.workers_min;
    wish.max = ask.workers_max;
    wish.environment = environment_of(ask.environment);
    wish.priority = ask.priority;
    wish.no_wait = !ask.wait;
    wish.floor = ask.workers_floor;
    wish.team = ask.team != 0;
    wish.of_job = !in->peer.remote && shell_jobs_has_process(s, shell_find_client(s, &event->session)->pid);
    snprintf(wish.devices, sizeof(wish.devices), "%s", ask.devices);
    snprintf(wish.description, sizeof(wish.description), "%s", ask.purpose);
    if (getrandom(wish.token.bytes, sizeof(wish.token.bytes), 0) != (ssize_t)sizeof(wish.token.bytes)) {
        shell_reply_error(s, in, GP_EIO, "cannot get random bytes for a lease token: %s", strerror(errno));
        return;
    }
    gp_fault_point("asked");
    event->kind = GP_CORE_EVENT_LEASE_ASK;
    event->wish = &wish;
    shell_step(s, event);
}

static void handle_claim(shell *s, const gp_incoming *in, gp_core_event *event)
{
    static gp_lease_claim said;
    static gp_core_claim claim;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &said, &err);

    for (uint32_t i = 0; status == GP_OK && i < said.members_count; i++) {
        if (said.members[i].index > GP_CORE_SLOTS_MAX)
            status = gp_fail(&err, GP_ESTALE, "this pool has no worker %u", said.members[i].index);
        else
            claim.members[i] = (gp_core_member){ .slot = said.members[i].index - 1,
                                                 .incarnation = said.members[i].incarnation };
    }
    if (status == GP_OK)
        status = gp_resources_parse(&claim.needs, said.needs, &err);
    if (status != GP_OK) {
        shell_reply_error(s, in, status, "%s", err.message);
        return;
    }
    memcpy(claim.token.bytes, said.token, sizeof(claim.token.bytes));
    claim.min = said.workers_min;
    claim.floor = said.workers_floor;
    claim.team = said.team != 0;
    claim.want = said.workers_max;
    claim.environment = environment_of(said.environment);
    claim.member_count = said.members_count;
    snprintf(claim.description, sizeof(claim.description), "%s", said.purpose);
    event->kind = GP_CORE_EVENT_LEASE_CLAIM;
    event->claim = &claim;
    shell_step(s, event);
}

static void handle_lease_resize(shell *s, const gp_incoming *in, gp_core_event *event)
{
    gp_lease_resize resize;

    if (!shell_decode(s, in, &resize))
        return;
    event->kind = GP_CORE_EVENT_LEASE_RESIZE;
    event->lease = resize.lease != 0 ? resize.lease : shell_jobs_lease(s, resize.job);
    event->workers = resize.workers;
    if (event->lease == 0)
        shell_reply_error(
            s, in, GP_ESTALE,
            "job %llu has no workers; list jobs with `gradpool jobs` and leases with `gradpool status`",
            (unsigned long long)resize.job);
    else
        shell_step(s, event);
}

/* Plan a new pool size and pass it to the core. If the core accepts it, its reply updates the pool
 * record. */
static void handle_resize(shell *s, const gp_incoming *in, gp_core_event *event)
{
    static gp_core_slot_config plan[GP_CORE_SLOTS_MAX];
    gp_resize resize;
    gp_plan_request request;
    gp_error err;
    gp_status status = gp_incoming_decode(in, &resize, &err);

    if (status == GP_OK) {
        request =
            (gp_plan_request){ .workers = resize.workers,
                               .devices = resize.devices[0] != '\0' ? resize.devices
                                          : s->devices[0] != '\0'   ? s->devices
                                                                    : NULL,
                               .resources = resize.resources[0] != '\0' ? resize.resources : s->resources,
                               .strict = resize.resources[0] != '\0' };
        status = gp_plan_make(plan, &event->plan_count, &request, s->options->devices, s->options->cores,
                              s->options->paths, &err);
    }
    if (status != GP_OK) {
        shell_reply_error(s, in, err.code, "%s", err.message);
        return;
    }
    event->kind = GP_CORE_EVENT_RESIZE;
    event->plan = plan;
    event->idle_ms = (int64_t)resize.idle_timeout_ms;
    s->resizing = &request;
    shell_step(s, event);
    s->resizing = NULL;
}

void shell_handle_request(shell *s, const gp_incoming *in, gp_core_event *event)
{
    gp_worker_replace replace;
    gp_lease_form form;
    gp_shutdown shutdown;

    switch (in->envelope.message) {
    case GP_ID(status_get):
    case GP_ID(devices_get):
        event->kind = GP_CORE_EVENT_CLIENT_SPOKE;
        shell_step(s, event);
        (in->envelope.message == GP_ID(status_get) ? shell_send_status : shell_send_devices)(s, &in->peer,
                                                                                             &in->envelope);
        break;
    case GP_ID(lease_ask):
        handle_ask(s, in, event);
        break;
    case GP_ID(lease_claim):
        handle_claim(s, in, event);
        break;
    case GP_ID(lease_leave):
    case GP_ID(lease_release):
        event->kind = in->envelope.message == GP_ID(lease_leave) ? GP_CORE_EVENT_LEASE_LEAVE
                                                                 : GP_CORE_EVENT_LEASE_RELEASE;
        shell_step(s, event);
        break;
    case GP_ID(lease_resize):
        handle_lease_resize(s, in, event);
        break;
    case GP_ID(lease_form):
        if (!shell_decode(s, in, &form))
            return;
        event->kind = GP_CORE_EVENT_LEASE_FORM;
        event->joining = form.joining;
        event->workers = form.workers;
        shell_step(s, event);
        break;
    case GP_ID(worker_replace):
        if (gp_incoming_decode(in, &replace, NULL) != GP_OK || replace.index > GP_CORE_SLOTS_MAX) {
            shell_reply_error(s, in, GP_EINVAL, "malformed worker_replace: no such worker");
            return;
        }
        event->kind = GP_CORE_EVENT_WORKER_REPLACE;
        event->slot = replace.index - 1;
        event->incarnation = replace.incarnation;
        event->reason = replace.reason;
        shell_step(s, event);
        break;
    case GP_ID(resize):
        handle_resize(s, in, event);
        break;
    case GP_ID(shutdown):
        if (!shell_decode(s, in, &shutdown))
            return;
        gp_log(GP_LOG_INFO, "shutdown-asked", "shutdown requested%s", shutdown.when_idle ? " when idle" : "");
        gp_fault_point("closing");
        event->kind = GP_CORE_EVENT_SHUTDOWN;
        event->when_idle = shutdown.when_idle;
        shell_step(s, event);
        break;
    default:
        event->kind = GP_CORE_EVENT_CLIENT_SPOKE;
        shell_step(s, event);
        if (shell_jobs_handle(s, in, &event->session))
            break;
        shell_reply_error(s, in, GP_EUNSUPPORTED, "unexpected message %u from a client",
                          in->envelope.message);
    }
}

void shell_handle_client(shell *s, const gp_incoming *in)
{
    gp_core_event event = { .epoch = in->envelope.epoch,
                            .correlation = in->envelope.correlation,
                            .lease = in->envelope.lease,
                            .generation = in->envelope.generation };
    shell_client *client;
    gp_hello hello;

    memcpy(event.session.bytes, in->envelope.session, sizeof(event.session.bytes));
    client = shell_find_client(s, &event.session);
    if (in->envelope.message == GP_ID(hello)) {
        /* Reply with welcome. The session must be known from the control socket. */
        if (!shell_hello_read(s, in, &hello))
            return;
        if ((client == NULL && hello.role != GP_ROLE_WORKER) || (client != NULL && client->key[0] != '\0')) {
            shell_reply_error(s, in, GP_EPERM, "no hello from this session on the control socket");
            return;
        }
        if (client != NULL)
            client->peer = in->peer;
        shell_send_welcome(s, in);
    } else if (client == NULL || !gp_peer_equal(&client->peer, &in->peer)) {
        shell_reply_error(s, in, GP_EPERM,
                          "no hello from this session on the control socket and on the link");
    } else if (event.epoch != 0 && event.epoch != s->core->config.epoch) {
        shell_reply_error(s, in, GP_ESTALE,
                          "stale message: this scheduler has epoch %llu, the message epoch %llu",
                          (unsigned long long)s->core->config.epoch, (unsigned long long)event.epoch);
    } else {
        shell_handle_request(s, in, &event);
    }
}
