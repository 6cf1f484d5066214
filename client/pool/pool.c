/* The client side of a pool: send and receive messages, and lease workers. pool.h describes the
 * states of a handle; pool_dial.c connects to the scheduler. The file stays whole: all functions
 * share these states. */
#include "client/pool/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/forks.h"
#include "common/base/system/timeout.h"
#include "common/base/printable.h"
#include "common/base/text/text.h"
#include "proto/device/device_holder.h"
#include "proto/device/device_probe.h"
#include "proto/local/control_socket.h"

/* Queued: libzmq sends hello and attach when the link is up. Messages from a worker that failed,
 * such as the trained weights, stay readable. */
static const gp_channel_options worker_link = { .security = GP_SECURITY_NONE, .bulk = true, .queued = true };

const char *gp_version(void)
{
    return GP_BUILD;
}

void pool_note(gp_pool *pool, const char *format, ...)
{
    char sentence[512];
    va_list arguments;

    if (pool->note == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);

    /* the message may quote file names with control characters */
    pool->note(pool->note_context, gp_printable(sentence));
}

const char *pool_log_place(const gp_pool *pool)
{
    return pool->remote != NULL ? "the state directory of the pool's host" : pool->paths.log_dir;
}

void pool_note_skipped(gp_pool *pool, uint64_t count, const char (*names)[128], uint32_t named)
{
    enum { TOLD = 3 };
    char text[TOLD * 130] = "";
    size_t bytes = 0;

    if (count == 0)
        return;
    for (uint32_t i = 0; i < named && i < TOLD; i++)
        bytes += (size_t)snprintf(text + bytes, sizeof(text) - bytes, "%s%s", i == 0 ? "" : ", ", names[i]);
    pool_note(pool, "%" PRIu64 " image%s could not be read and %s skipped: %s%s; see the worker logs in %s",
              count, gp_plural(count), count == 1 ? "was" : "were", text, count > TOLD ? ", ..." : "",
              pool_log_place(pool));
}

gp_status pool_check_process(const gp_pool *pool, gp_error *err)
{
    if (pool->forks == gp_forks())
        return GP_OK;
    return gp_fail(err, GP_ESTATE,
                   "process %d is a fork of the process that opened this pool; a child cannot use the "
                   "handle: open pools after fork()",
                   (int)getpid());
}

/* ---- incoming messages ---- */

void pool_message_close(pool_message *message)
{
    if (message->from != POOL_NOBODY)
        gp_incoming_close(&message->in);
    message->from = POOL_NOBODY;
}

/* Close the links to all workers. Flush queued messages first: libzmq 4.3.4 leaks the frames of a
 * partly received message when a socket closes while its I/O thread still sends. (The end of the
 * pipe overtakes the close command, and libzmq does not roll the message back.) A request to the
 * scheduler flushes, because the same I/O thread sends it; otherwise let_out() waits
 * POOL_LET_OUT_MS. */
static void pool_close_workers(gp_pool *pool)
{
    for (uint32_t i = 0; i < GP_MEMBERS_MAX; i++)
        pool_close_worker(pool, i);
    pool->links = 0;
}

/* Wait a short time, so that messages to workers are sent before their links are closed. */
static void let_out(const gp_pool *pool)
{
    if (pool->links > 0)
        poll(NULL, 0, POOL_LET_OUT_MS);
}

/* Record the loss of a worker. A loss ends that generation of the lease: a grant of it is void, and
 * the scheduler sends another one. */
static void pool_add_lost(gp_pool *pool, const gp_worker_lost *lost, uint32_t generation)
{
    if (pool->lost.index == 0)
        pool->lost = *lost;
    pool->is_lost[lost->index] = true;
    if (generation >= pool->generation)
        pool->regranted = false;
}

static void pool_forget_lost(gp_pool *pool)
{
    pool->lost = (gp_worker_lost){ 0 };
    memset(pool->is_lost, 0, sizeof(pool->is_lost));
}

/* Apply an unsolicited message about the lease to the handle: worker lost or suspect, new grant,
 * resize, or lease end. Messages for other leases or older generations are ignored. */
static void pool_take_event(gp_pool *pool, const gp_incoming *in)
{
    gp_lease_grant grant;
    gp_worker_lost lost;
    gp_worker_suspect suspect;
    gp_error ignored;

    if (in->type == NULL)
        return;
    switch (in->envelope.message) {
    case GP_ID(worker_lost):
        if (in->envelope.lease == pool->lease && gp_incoming_decode(in, &lost, &ignored) == GP_OK)
            pool_add_lost(pool, &lost, in->envelope.generation);
        break;
    case GP_ID(worker_suspect):
        if (in->envelope.lease == pool->lease && gp_incoming_decode(in, &suspect, &ignored) == GP_OK)
            pool_note(pool, "%s", suspect.text);
        break;
    case GP_ID(lease_grant):
        if (pool->lease != 0 && in->envelope.lease == pool->lease &&
            in->envelope.generation > pool->generation && gp_incoming_decode(in, &grant, &ignored) == GP_OK) {
            pool->grant = grant;
            pool->generation = in->envelope.generation;
            pool->regranted = true;
            pool->elastic.kept = 0;
            pool->elastic.change.workers = 0;
        }
        break;
    case GP_ID(lease_change):
        if (pool->lease != 0 && in->envelope.lease == pool->lease &&
            in->envelope.generation == pool->generation &&
            gp_incoming_decode(in, &pool->elastic.change, &ignored) == GP_OK && pool->elastic.change.asked)
            pool->claim.workers_max = pool->elastic.change.workers;
        break;
    case GP_ID(lease_ended):
        if (in->envelope.lease == pool->lease && gp_incoming_decode(in, &pool->ended, &ignored) == GP_OK)
            pool->revoked = true;
        break;
    default:
        break;
    }
}

bool pool_worker_pending(gp_pool *pool, uint32_t rank)
{
    return pool->workers[rank] != NULL && gp_channel_pending(pool->workers[rank]);
}

bool pool_worker_drained(gp_pool *pool, uint32_t rank)
{
    gp_channel *link = pool->workers[rank];

    if (link == NULL)
        return true;
    if (gp_channel_pending(link))
        return false;
    struct pollfd fd = { .fd = gp_channel_fd(link), .events = POLLIN };

    poll(&fd, 1, POOL_FINAL_MESSAGE_MS);
    return !gp_channel_pending(link);
}

static gp_envelope pool_envelope(gp_pool *pool)
{
    gp_envelope envelope = { .correlation = ++pool->correlation,
                             .epoch = pool->epoch,
                             .lease = pool->lease,
                             .generation = pool->generation };

    memcpy(envelope.session, pool->session, sizeof(envelope.session));
    return envelope;
}

gp_hello pool_hello(void)
{
    gp_hello hello = { .role = GP_ROLE_CLIENT,
                       .protocol_min = GP_PROTOCOL_MIN,
                       .protocol_max = GP_PROTOCOL,
                       .pid = (uint32_t)getpid() };

    snprintf(hello.build, sizeof(hello.build), "%s", GP_BUILD);
    return hello;
}

/* Receive one pending message: from the scheduler, or else from the workers in round-robin order.
 * Never blocks. GP_ETIMEDOUT: no message is pending. */
static gp_status pool_receive(gp_pool *pool, pool_message *out, gp_error *err)
{
    gp_status status = gp_channel_receive(pool->scheduler, &out->in, err);

    if (status == GP_OK) {
        if (pool->remote != NULL)
            pool->remote->received_ms = gp_now_ms();
        out->from = POOL_SCHEDULER;
        pool_take_event(pool, &out->in);
        return GP_OK;
    }
    for (uint32_t n = 0; status == GP_ETIMEDOUT && !pool->dialling && n < pool->links; n++) {
        uint32_t i = (pool->turn + n) % pool->links;

        if (pool->workers[i] == NULL)
            continue;
        status = gp_channel_receive(pool->workers[i], &out->in, err);
        if (status == GP_OK) {
            out->from = POOL_WORKER;
            out->rank = i;
            pool->turn = i + 1;
        }
    }
    return status;
}

gp_status pool_next(gp_pool *pool, pool_message *out, int timeout_ms, gp_error *err)
{
    int64_t deadline = gp_now_ms() + timeout_ms;
    bool listened = false;
    gp_status status = pool_check_process(pool, err);

    out->from = POOL_NOBODY;
    if (status != GP_OK)
        return status;
    for (;;) {
        struct pollfd fds[GP_MEMBERS_MAX + 2];
        nfds_t count = 0;

        status = pool_receive(pool, out, err);
        if (status == GP_OK && pool_remote_forgotten(pool, out)) {
            pool_message_close(out);
            return pool_reconnect(pool, err);
        }
        if (status != GP_ETIMEDOUT)
            return status;
        fds[count++] = (struct pollfd){ .fd = pool->control_socket, .events = POLLIN };
        fds[count++] = (struct pollfd){ .fd = gp_channel_fd(pool->scheduler), .events = POLLIN };

        /* The scheduler may have sent messages before it exited: the end of file on the control
         * socket can overtake them. */
        if (!listened && pool_is_gone(pool)) {
            listened = true;
            if (gp_channel_pending(pool->scheduler) || poll(&fds[1], 1, POOL_FINAL_MESSAGE_MS) > 0)
                continue;
        }
        if (pool_is_gone(pool) || pool_remote_stale(pool))
            return pool_reconnect(pool, err);
        bool pending = gp_channel_pending(pool->scheduler);

        for (uint32_t i = 0; !pool->dialling && i < pool->links; i++)
            if (pool->workers[i] != NULL) {
                pending |= pool_worker_pending(pool, i);
                fds[count++] = (struct pollfd){ .fd = gp_channel_fd(pool->workers[i]), .events = POLLIN };
            }
        int64_t left = deadline - gp_now_ms();

        if (pending)
            continue;
        if (left <= 0)
            return GP_OK;

        /* wake up often enough to notice a silent link */
        if (pool->remote != NULL && left > POOL_SLICE_MS)
            left = POOL_SLICE_MS;
        if (poll(fds, count, (int)left) < 0)
            return errno == EINTR ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot wait for the pool");
    }
}

gp_status pool_error_from(const gp_incoming *in, gp_error *err)
{
    gp_error_reply reply;
    gp_status status = gp_incoming_decode(in, &reply, err);

    return status != GP_OK ? status : gp_fail(err, (gp_status)reply.code, "%s", reply.message);
}

/* ---- outgoing messages ---- */

/* Send a message. Wait up to wait_ms while the queue is full or the link is not up. GP_EPEER:
 * there is no link, or the scheduler failed. */
static gp_status pool_send(const gp_pool *pool, gp_channel *channel, const gp_envelope *envelope,
                           const gp_message_type *type, const void *message, const gp_payload *payloads,
                           size_t payload_count, int wait_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(wait_ms);

    if (channel == NULL)
        return gp_fail(err, GP_EPEER, "there is no link to the worker");
    for (;;) {
        gp_status status =
            gp_channel_send(channel, NULL, envelope, type, message, payloads, payload_count, err);

        if (status != GP_EBUSY)
            return status;

        /* the scheduler failed, so the link stays down */
        if (channel == pool->scheduler && pool_is_gone(pool))
            return pool_scheduler_gone(pool, err);
        if (gp_timeout_left(timeout) == 0)
            return status;
        poll(NULL, 0, 1);
    }
}

gp_status pool_post_with(gp_pool *pool, const gp_message_type *type, const void *message,
                         const gp_payload *payloads, size_t payload_count, uint64_t *correlation,
                         gp_error *err)
{
    gp_status usable = pool_check_process(pool, err);

    if (usable != GP_OK)
        return usable;
    for (;;) {
        /* after a pause the remote scheduler may have closed the session */
        bool gone = pool_is_gone(pool) || pool_remote_stale(pool);
        gp_status status = gone ? pool_reconnect(pool, err) : GP_OK;
        gp_envelope envelope = pool_envelope(pool);

        if (correlation != NULL)
            *correlation = envelope.correlation;
        if (status == GP_OK)
            status = pool_send(pool, pool->scheduler, &envelope, type, message, payloads, payload_count,
                               pool->dialling ? POOL_HELLO_SEND_MS : POOL_SEND_MS, err);

        /* restart the silence timeout, so that the reply has its full time */
        if (status == GP_OK && pool->remote != NULL)
            pool->remote->received_ms = gp_now_ms();
        if (status != GP_EPEER || gone)
            return status;
    }
}

gp_status pool_post(gp_pool *pool, const gp_message_type *type, const void *message, uint64_t *correlation,
                    gp_error *err)
{
    return pool_post_with(pool, type, message, NULL, 0, correlation, err);
}

gp_status pool_post_to_worker(gp_pool *pool, uint32_t rank, const gp_message_type *type, const void *message,
                              const gp_payload *payloads, size_t payload_count, uint64_t *correlation,
                              gp_error *err)
{
    gp_envelope envelope = pool_envelope(pool);

    if (correlation != NULL)
        *correlation = envelope.correlation;
    gp_status status = pool_send(pool, pool->workers[rank], &envelope, type, message, payloads, payload_count,
                                 POOL_SEND_MS, err);

    if (status != GP_OK)
        gp_error_prefix(err, "worker %" PRIu32, pool->grant.slots[rank].index);
    return status;
}

gp_status pool_try_worker(gp_pool *pool, uint32_t rank, const gp_message_type *type, const void *message,
                          const gp_payload *payload, uint64_t *correlation, gp_error *err)
{
    gp_envelope envelope = pool_envelope(pool);

    if (correlation != NULL)
        *correlation = envelope.correlation;
    return pool_send(pool, pool->workers[rank], &envelope, type, message, payload, payload != NULL, 0, err);
}

gp_status pool_request(gp_pool *pool, const gp_message_type *type, const void *message,
                       const gp_message_type *reply_type, pool_message *reply, int timeout_ms, gp_error *err)
{
    uint64_t correlation;
    gp_status status = pool_post(pool, type, message, &correlation, err);
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    uint64_t asked = pool->reunions;
    bool reported = false;

    while (status == GP_OK) {
        int64_t left = gp_timeout_left(timeout);

        /* The new scheduler has not seen the request. All requests are idempotent: send it
         * again. */
        if (pool->reunions != asked) {
            asked = pool->reunions;
            status = pool_post(pool, type, message, &correlation, err);
            timeout = gp_timeout_in(timeout_ms);
            continue;
        }
        if (!reported && timeout_ms - left >= POOL_ANSWER_TOLD_MS) {
            reported = true;
            pool_note(
                pool,
                "the scheduler of pool %s has not replied to '%s' for %d s; still waiting (Ctrl-C cancels)",
                pool->paths.pool, type->name, POOL_ANSWER_TOLD_MS / 1000);
        }

        /* Read pending messages even after the timeout: this process may have been suspended, and
         * the reply may already be here. */
        status = pool_next(pool, reply, gp_timeout_slice(timeout), err);
        if (status == GP_OK && reply->from == POOL_NOBODY && left == 0 && pool->reunions == asked)
            return gp_fail(err, GP_ETIMEDOUT,
                           "the scheduler of pool %s did not reply to '%s' within %d ms; its log is %s",
                           pool->paths.pool, type->name, timeout_ms, pool->paths.scheduler_log);
        if (status != GP_OK || reply->from == POOL_NOBODY)
            continue;
        if (reply->from == POOL_SCHEDULER && reply->in.envelope.correlation == correlation) {
            if (reply->in.type == reply_type)
                return GP_OK;
            if (reply->in.type == &gp_msg_error_reply)
                status = pool_error_from(&reply->in, err);
        }
        pool_message_close(reply);
    }
    return status;
}

gp_status pool_ask(gp_pool *pool, const gp_message_type *type, const void *message,
                   const gp_message_type *reply_type, void *reply, int timeout_ms, gp_error *err)
{
    pool_message in;
    gp_status status = pool_request(pool, type, message, reply_type, &in, timeout_ms, err);

    if (status != GP_OK)
        return status;
    status = gp_incoming_decode(&in.in, reply, err);
    pool_message_close(&in);
    return status;
}

gp_status pool_ask_new(gp_pool *pool, const gp_message_type *type, const void *message,
                       const gp_message_type *reply_type, void **reply, gp_error *err)
{
    void *memory = gp_calloc(1, reply_type->size);
    gp_status status;

    if (memory == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a reply to '%s'", type->name);
    status = pool_ask(pool, type, message, reply_type, memory, POOL_ANSWER_MS, err);
    if (status == GP_OK)
        *reply = memory;
    else
        gp_free(memory);
    return status;
}

/* ---- opening and closing ---- */

/* Report a newly started pool and, unless the caller chose the devices, why GPUs are not used.
 * Otherwise users who expect GPU workers see only CPU workers, without an explanation. */
static void note_started(gp_pool *pool, const char *devices)
{
    gp_device_list *list = NULL;
    char why[GP_DEVICE_REASON + 80];
    uint32_t cores;

    pool_note(pool, "started pool %s (scheduler pid %" PRIu32 ")", pool->paths.pool, pool->scheduler_pid);
    if (pool->note == NULL || !gp_device_probe_needed() ||
        (devices != NULL && devices[0] != '\0' && strcmp(devices, "auto") != 0))
        return;
    list = gp_calloc(1, sizeof(*list));
    if (list != NULL && pool_devices(pool, list, &cores, NULL) == GP_OK) {
        for (uint32_t i = 0; i < list->count; i++)
            if (gp_device_left_out(list, i, why, sizeof(why)))
                pool_note(pool, "GPU %" PRIu32 " (%.60s) is excluded: %s", list->devices[i].index,
                          list->devices[i].name, why);
        if (list->count == 0 && list->note[0] != '\0')
            pool_note(pool, "no GPU is usable: %s", list->note);
    }
    gp_free(list);
}

/* Write a name that no other pool has: the pool is removed with its owner. */
static const char *owned_name(char text[GP_POOL_NAME_MAX + 1], uint32_t owner_pid)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), 0) < 0) /* the pid alone is unique on most hosts */
        random = 0;
    snprintf(text, GP_POOL_NAME_MAX + 1, "owned-%" PRIu32 "-%08" PRIx32, owner_pid, random);
    return text;
}

gp_status gp_pool_open(gp_pool **out, const gp_pool_options *options, gp_error *err)
{
    static const gp_pool_options defaults;
    gp_status usable = gp_channel_check_process(err);
    gp_pool *pool;
    char own_name[GP_POOL_NAME_MAX + 1];
    const char *name;
    bool started = false;

    if (usable != GP_OK)
        return usable;
    pool = gp_calloc(1, sizeof(*pool));
    if (pool == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a pool handle");
    if (options == NULL)
        options = &defaults;
    pool->control_socket = -1;
    pool->forks = gp_forks();
    for (uint32_t i = 0; i < GP_MEMBERS_MAX; i++)
        pool->worker_sockets[i] = -1;
    pool->note = options->note;
    pool->note_context = options->context;
    name = options->pool != NULL ? options->pool : getenv("GRADPOOL_POOL");
    gp_status status = GP_OK;

    if (getrandom(pool->session, sizeof(pool->session), 0) != (ssize_t)sizeof(pool->session))
        status = gp_fail_errno(err, GP_EIO, "no random bytes for a session");
    if (options->owner_pid != 0 && options->pool == NULL)
        name = owned_name(own_name, options->owner_pid);
    if (status == GP_OK)
        status = pool_remote_find(&pool->remote, options, name, err);
    if (status == GP_OK && pool->remote == NULL)
        status = gp_paths_find(&pool->paths, name, err);
    else if (status == GP_OK) /* error messages use this text instead of a log path */
        snprintf(pool->paths.scheduler_log, sizeof(pool->paths.scheduler_log), "on the host of %s",
                 pool->remote->endpoint);
    if (status == GP_OK && pool->remote != NULL &&
        (options->secret_env != NULL || options->listen != NULL || options->owner_pid != 0))
        status = pool_needs_host(pool, "starting a pool or changing its secrets", err);
    if (status == GP_OK && options->owner_pid != 0 && options->attach_only)
        status = gp_fail(err, GP_EINVAL,
                         "owner_pid and attach_only exclude each other: only a new pool "
                         "gets an owner");
    if (status == GP_OK) /* check the form; the scheduler assigns them to the workers */
        status = gp_resources_assign(NULL, 0, 0, options->resources, false, err);
    if (status == GP_OK)
        status = pool_dial(pool, options, &started, err);
    if (status == GP_OK && options->owner_pid != 0 && !started)
        status = gp_fail(err, GP_EBUSY,
                         "pool %s is already running (scheduler pid %" PRIu32
                         "); an owned pool needs a name that no running pool has",
                         pool->paths.pool, pool->scheduler_pid);
    if (status != GP_OK) {
        gp_pool_close(pool);
        return status;
    }
    pool->owned = options->owner_pid == (uint32_t)getpid();
    if (started)
        note_started(pool, options->devices);
    *out = pool;
    return GP_OK;
}

void gp_pool_close(gp_pool *pool)
{
    if (pool == NULL)
        return;

    /* Forked child: do not touch the parent's sockets. The ZeroMQ threads do not exist in this
     * process. */
    if (pool->forks != gp_forks()) {
        if (pool->control_socket >= 0)
            close(pool->control_socket);
        gp_free(pool);
        return;
    }
    pool_release(pool);
    pool_close_workers(pool);
    if (pool->owned)
        pool_end_owned(pool);
    gp_channel_close(pool->scheduler, 200);
    if (pool->control_socket >= 0)
        close(pool->control_socket);
    pool_remote_free(pool->remote);
    gp_free(pool);
}

/* ---- leases ---- */

void pool_close_worker(gp_pool *pool, uint32_t rank)
{
    gp_channel_close(pool->workers[rank], 0);
    pool->workers[rank] = NULL;
    if (pool->worker_sockets[rank] >= 0)
        close(pool->worker_sockets[rank]);
    pool->worker_sockets[rank] = -1;
}

gp_status pool_greet_worker(gp_pool *pool, uint32_t rank, int *control_socket, int timeout_ms, gp_error *err)
{
    gp_control_socket_hello hello = { .protocol_min = GP_PROTOCOL_MIN,
                                      .protocol_max = GP_PROTOCOL,
                                      .role = GP_ROLE_CLIENT,
                                      .pid = (uint32_t)getpid() };
    gp_control_socket_reply reply;

    memcpy(hello.session, pool->session, sizeof(hello.session));
    return gp_control_socket_connect(control_socket, &reply, pool->grant.slots[rank].door, &hello, timeout_ms,
                                     err);
}

gp_control_socket_request pool_control_request(const gp_pool *pool, uint32_t what)
{
    gp_control_socket_request request = { .what = what,
                                          .lease = pool->lease,
                                          .generation = pool->generation };

    memcpy(request.token, pool->grant.token, sizeof(request.token));
    return request;
}

gp_status pool_dial_worker(gp_pool *pool, uint32_t rank, uint64_t *attached, gp_error *err)
{
    gp_hello hello = pool_hello();
    gp_attach attach = { .client_pid = (uint32_t)getpid() };
    gp_envelope envelope = pool_envelope(pool);

    pool_close_worker(pool, rank);
    pool->links = rank < pool->links ? pool->links : rank + 1;
    memcpy(attach.token, pool->grant.token, sizeof(attach.token));
    *attached = envelope.correlation;
    gp_status status =
        gp_channel_connect(&pool->workers[rank], pool->grant.slots[rank].endpoint, &worker_link, 0, err);

    if (status == GP_OK)
        status = gp_channel_send(pool->workers[rank], NULL, &envelope, &gp_msg_hello, &hello, NULL, 0, err);
    if (status == GP_OK)
        status = gp_channel_send(pool->workers[rank], NULL, &envelope, &gp_msg_attach, &attach, NULL, 0, err);
    if (status != GP_OK)
        pool_close_worker(pool, rank);
    return status;
}

static bool is_stopped(const volatile sig_atomic_t *stop)
{
    return stop != NULL && *stop != 0;
}

/* Connect and attach to every worker in the current grant. GP_ESTALE: the lease changed
 * meanwhile. GP_ECANCELED: *stop is not 0; err is not set. */
static gp_status pool_attach_all(gp_pool *pool, const volatile sig_atomic_t *stop, gp_timeout timeout,
                                 gp_error *err)
{
    uint64_t waits[GP_MEMBERS_MAX];
    uint32_t missing = pool->grant.slots_count;

    for (uint32_t i = 0; i < pool->grant.slots_count; i++) {
        gp_status status = pool_dial_worker(pool, i, &waits[i], err);

        if (status != GP_OK)
            return status;
    }
    while (missing > 0 && !is_stopped(stop)) {
        pool_message in;
        int64_t left = gp_timeout_left(timeout);
        gp_status status = pool_next(pool, &in, gp_timeout_slice(timeout), err);

        if (status == GP_OK && in.from == POOL_NOBODY && left == 0)
            status = gp_fail(err, GP_ETIMEDOUT, "%" PRIu32 " leased worker%s did not reply", missing,
                             gp_plural(missing));
        if (status != GP_OK || pool->regranted || pool->revoked) {
            if (status == GP_OK)
                pool_message_close(&in);
            return status != GP_OK ? status : gp_fail(err, GP_ESTALE, "the lease changed");
        }
        if (in.from == POOL_WORKER && in.in.type == &gp_msg_error_reply)
            status = pool_error_from(&in.in, err);
        else if (in.from == POOL_WORKER && in.in.type == &gp_msg_ok_reply &&
                 in.in.envelope.correlation == waits[in.rank])
            missing--;
        pool_message_close(&in);
        if (status != GP_OK)
            return status;
    }
    return missing == 0 ? GP_OK : GP_ECANCELED;
}

gp_status pool_attach(gp_pool *pool, const volatile sig_atomic_t *stop, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(POOL_ATTACH_MS);

    for (;;) {
        gp_error why = { 0 };

        let_out(pool);
        pool_close_workers(pool);
        pool->regranted = false;
        pool_forget_lost(pool);
        gp_status status = pool_attach_all(pool, stop, timeout, &why);

        if (status == GP_OK)
            return GP_OK;

        /* A worker failed between grant and attach. The scheduler replaces it and sends a new
         * grant. */
        while (!is_stopped(stop) && !pool->regranted && !pool->revoked && gp_timeout_left(timeout) > 0) {
            pool_message in;
            gp_status next = pool_next(pool, &in, 100, err);

            if (next != GP_OK)
                return next;
            pool_message_close(&in);
        }
        if (pool->revoked)
            return gp_fail(err, GP_ECANCELED, "the lease ended: %s", pool->ended.reason);
        if (is_stopped(stop))
            return gp_fail(err, GP_ECANCELED, "canceled before all leased workers of pool %s replied",
                           pool->paths.pool);
        if (!pool->regranted)
            return gp_fail(err, status, "%s", why.message);
    }
}

static gp_status lease_ask_fill(const gp_pool *pool, gp_lease_ask *ask, const gp_lease_request *request,
                                const char *purpose, gp_error *err)
{
    static const uint32_t environments[] = { GP_ENV_ANY, GP_ENV_CPU, GP_ENV_GPU };
    gp_resource_table needs;

    *ask = (gp_lease_ask){ .workers_min = request->workers_min,
                           .workers_max = request->workers_max,
                           .environment = environments[request->environment],
                           .priority = request->priority,
                           .wait = !request->no_wait };
    ask->workers_floor = pool->elastic.floor;
    ask->team = pool->elastic.team;
    snprintf(ask->purpose, sizeof(ask->purpose), "%s", purpose);
    if (request->priority < -GP_PRIORITY_MAX || request->priority > GP_PRIORITY_MAX)
        return gp_fail(err, GP_EINVAL, "priority %d; it must be from %d to %d", request->priority,
                       -GP_PRIORITY_MAX, GP_PRIORITY_MAX);
    if (request->devices != NULL &&
        (size_t)snprintf(ask->devices, sizeof(ask->devices), "%s", request->devices) >= sizeof(ask->devices))
        return gp_fail(err, GP_ELIMIT, "the device list is longer than %zu bytes", sizeof(ask->devices) - 1);
    if (gp_resources_parse(&needs, request->needs, err) != GP_OK)
        return err->code;
    gp_resources_text(&needs, ask->needs);
    return GP_OK;
}

/* Keep the lease's request for a claim after a scheduler failure. With a device list, the claim
 * names exactly the number of granted workers. */
static void claim_fill(gp_pool *pool, const gp_lease_ask *ask)
{
    bool listed = ask->devices[0] != '\0';
    uint32_t granted = pool->grant.slots_count;

    pool->claim = (gp_lease_claim){ .workers_min = listed ? granted : ask->workers_min,
                                    .workers_max = listed ? granted : ask->workers_max,
                                    .workers_floor = ask->workers_floor,
                                    .team = ask->team,
                                    .environment = ask->environment };
    snprintf(pool->claim.purpose, sizeof(pool->claim.purpose), "%s", ask->purpose);
    snprintf(pool->claim.needs, sizeof(pool->claim.needs), "%s", ask->needs);
}

/* Store the lease of a grant in the handle. The caller must release the lease even if the grant
 * cannot be decoded, because the scheduler has assigned the workers. */
static gp_status lease_take(gp_pool *pool, const gp_incoming *in, const gp_lease_ask *ask, gp_error *err)
{
    gp_status status = gp_incoming_decode(in, &pool->grant, err);

    pool->lease = in->envelope.lease;
    pool->generation = in->envelope.generation;
    pool->revoked = false;
    pool->elastic.kept = 0;
    pool->elastic.change.workers = 0;
    if (status == GP_OK)
        claim_fill(pool, ask);
    return status;
}

/* Withdraw the lease request `asked`, which has no reply yet. If the scheduler granted the lease
 * before it received lease_leave, the grant arrives before the reply: release that lease. A new
 * scheduler does not know the request, so the wait ends with a reconnection. */
static void lease_leave(gp_pool *pool, const gp_lease_ask *ask, uint64_t asked)
{
    const uint64_t reunions = pool->reunions;
    gp_timeout timeout = gp_timeout_in(POOL_LEAVE_MS);
    uint64_t left;
    bool waiting = pool_post(pool, &gp_msg_lease_leave, &(gp_lease_leave){ 0 }, &left, NULL) == GP_OK;

    while (waiting && pool->reunions == reunions) {
        pool_message in;
        const bool late = gp_timeout_left(timeout) == 0;

        if (pool_next(pool, &in, gp_timeout_slice(timeout), NULL) != GP_OK)
            break;
        if (in.from == POOL_SCHEDULER && in.in.envelope.correlation == asked &&
            in.in.type == &gp_msg_lease_grant)
            lease_take(pool, &in.in, ask, NULL);
        waiting = in.from == POOL_NOBODY ? !late : in.in.envelope.correlation != left;
        pool_message_close(&in);
    }
    if (pool->lease != 0)
        pool_release(pool);
}

gp_status pool_lease(gp_pool *pool, const gp_lease_request *request, const char *purpose,
                     const volatile sig_atomic_t *stop, gp_error *err)
{
    gp_lease_ask ask;
    uint64_t correlation, asked;
    bool answered = false; /* granted or refused */
    gp_status status = pool_needs_host(pool, purpose, err);

    if (status == GP_OK)
        status = lease_ask_fill(pool, &ask, request, purpose, err);

    pool->ended = (gp_lease_ended){ 0 };
    if (status == GP_OK)
        status = pool_post(pool, &gp_msg_lease_ask, &ask, &correlation, err);
    gp_fault_point("lease-asked");
    if (status != GP_OK)
        return status;
    asked = pool->reunions;
    while (status == GP_OK && !answered) {
        pool_message in;
        gp_lease_wait wait;

        /* The new scheduler does not know the queue order: requests join at the end. */
        if (pool->reunions != asked) {
            asked = pool->reunions;
            status = pool_post(pool, &gp_msg_lease_ask, &ask, &correlation, err);
            continue;
        }

        if (is_stopped(stop)) {
            status = gp_fail(err, GP_ECANCELED, "left the queue of pool %s", pool->paths.pool);
            break;
        }
        status = pool_next(pool, &in, 200, err);
        if (status != GP_OK || in.from == POOL_NOBODY)
            continue;
        if (in.from == POOL_SCHEDULER && in.in.envelope.correlation == correlation) {
            answered = in.in.type == &gp_msg_error_reply || in.in.type == &gp_msg_lease_grant;
            if (in.in.type == &gp_msg_error_reply)
                status = pool_error_from(&in.in, err);
            else if (in.in.type == &gp_msg_lease_grant)
                status = lease_take(pool, &in.in, &ask, err);
            else if (in.in.type == &gp_msg_lease_wait && gp_incoming_decode(&in.in, &wait, NULL) == GP_OK)
                pool_note(pool, "waiting for workers: %s", wait.reason);
        }
        pool_message_close(&in);
    }
    if (status == GP_OK) {
        gp_fault_point("lease-held");
        status = pool_attach(pool, stop, err);
        gp_fault_point("lease-attached");
    }
    if (status != GP_OK && pool->lease != 0)
        pool_release(pool);
    else if (status != GP_OK && !answered && status != GP_EPEER) /* GP_EPEER: no scheduler has the request */
        lease_leave(pool, &ask, correlation);
    return status;
}

/* Prepare for a lease with a fixed number of workers. */
static void pool_elastic_reset(pool_elastic *elastic)
{
    elastic->floor = 0;
    elastic->team = false;
    elastic->change.workers = 0;
}

void pool_release(gp_pool *pool)
{
    gp_ok_reply ok;

    /* Send the release even if the scheduler failed: the next scheduler keeps the lease while this
     * process is alive. */
    if (pool->lease != 0 && !pool->revoked && !pool->no_successor)
        pool_ask(pool, &gp_msg_lease_release, &(gp_lease_release){ 0 }, &gp_msg_ok_reply, &ok, POOL_ANSWER_MS,
                 NULL);
    else
        let_out(pool);
    pool_close_workers(pool);
    if (pool->lease != 0)
        gp_fault_point("lease-released");
    pool->lease = 0;
    pool->generation = 0;
    pool->grant.slots_count = 0;
    pool_elastic_reset(&pool->elastic);
    pool_forget_lost(pool);
    pool->regranted = pool->revoked = false;
}
