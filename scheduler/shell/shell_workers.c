/* Worker processes and their messages.
 *
 * A message is accepted from a worker only on the link where the current process of the slot (same
 * slot, incarnation and pid) sent worker_ready. Surviving workers of an earlier scheduler
 * (orphans.h) are accepted, too. A survivor that was not found because it was still starting is
 * refused, and exits. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/process.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "proto/local/listen.h"
#include "proto/task/task_wire.h"
#include "scheduler/shell/shell_parts.h"

void shell_spawn(shell *s, uint32_t slot, uint32_t incarnation)
{
    shell_worker *worker = &s->workers[slot];
    gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_SPAWNED, .slot = slot, .incarnation = incarnation };
    gp_error err;

    worker->peer.bytes = 0;
    worker->spawned_ns = gp_now_ns();
    gp_fault_point("spawning");
    if (gp_supervise_spawn(&worker->child, s->options->worker_program, s->options->paths->pool,
                           &s->core->slots[slot].config, slot, incarnation, s->totals.slots[slot].failures,
                           (s->core->cold >> slot & 1) != 0, &err) == GP_OK) {
        event.pid = worker->child.pid;
        gp_log_event(GP_LOG_INFO, "worker-spawned",
                     GP_LOG_WITH({ "worker", .number = slot + 1 }, { "process", .number = event.pid },
                                 { "incarnation", .number = incarnation }),
                     "started a worker on %s", s->core->slots[slot].config.label);
        gp_fault_point("spawned");
    } else {
        event.kind = GP_CORE_EVENT_WORKER_DIED;
        event.number = errno;
        event.death = gp_spawn_is_shortage(event.number) ? GP_CORE_DIED_SHORTAGE : GP_CORE_DIED_UNBORN;
        gp_log(GP_LOG_ERROR, "spawn-failed", "%s", err.message);
    }
    shell_pend(s, &event);
}

void shell_reap(shell *s, uint32_t slot)
{
    shell_worker *worker = &s->workers[slot];
    gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_DIED, .slot = slot };
    pid_t pid = worker->child.pid;
    char words[GP_TEXT_WORDS], path[GP_TEXT_ENDPOINT];
    ssize_t bytes = 0;
    int file;

    if (!gp_supervise_reap(&worker->child, &event))
        return;
    gp_fault_point("reaped");
    shell_hang_up(worker);
    event.incarnation = worker->child.incarnation;
    worker->peer.bytes = 0;
    /* A worker that was killed may leave sockets. The names include the incarnation, so no other
     * worker uses them. */
    gp_paths_worker_file(s->options->paths, slot + 1, event.incarnation, "", path);
    gp_listener_forget(path, pid);
    gp_paths_worker_file(s->options->paths, slot + 1, event.incarnation, ".door", path);
    gp_listener_forget(path, pid);
    /* Read and remove the message in which a worker recorded why it exited. Non-printable
     * characters become spaces. "": no message. */
    gp_paths_worker_file(s->options->paths, slot + 1, event.incarnation, ".words", path);
    file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
        bytes = read(file, words, sizeof(words) - 1);
        close(file);
        unlink(path);
    }
    words[bytes > 0 ? bytes : 0] = '\0';
    for (char *at = words; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = ' ';
    event.reason = words;
    shell_step(s, &event);
}

static void forget_holder(shell_worker *worker)
{
    if (worker->holder >= 0)
        close(worker->holder);
    worker->holder = -1;
}

void shell_hang_up(shell_worker *worker)
{
    if (worker->call >= 0)
        close(worker->call);
    worker->call = -1;
    forget_holder(worker);
}

void shell_watch_holders(shell *s)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        shell_worker *worker = &s->workers[i];
        struct pollfd ended = { .fd = worker->holder, .events = POLLIN };
        gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_UNHELD,
                                .slot = i,
                                .incarnation = worker->child.incarnation };

        if (worker->holder < 0)
            continue;
        if (s->core->slots[i].claim == 0) { /* claimed, or the worker has exited */
            forget_holder(worker);
        } else if (poll(&ended, 1, 0) > 0) {
            forget_holder(worker);
            shell_step(s, &event);
        }
    }
}

/* Receive the pool secrets that an adopted worker sent on the call. All processes of a pool share
 * one memory object, so that new secrets reach all of them. Replace the object of this process by
 * theirs. */
static void take_secrets(shell *s, const shell_worker *worker)
{
    gp_control_socket_request request;
    gp_control_socket_reply reply;
    gp_error err;
    int fd = -1;

    if (worker->call < 0 || recv(worker->call, &reply, sizeof(reply), MSG_DONTWAIT) != sizeof(reply) ||
        gp_control_socket_receive_fd(worker->call, &request, &fd, 0, &err) != GP_OK || fd < 0)
        return;
    if (request.what == GP_CONTROL_SOCKET_SECRETS && gp_secrets_fd() >= 0 &&
        (s->secrets_reported ? gp_secrets_copy(fd, gp_secrets_fd(), &err)
                             : gp_secrets_copy(gp_secrets_fd(), fd, &err)) == GP_OK &&
        dup3(fd, gp_secrets_fd(), O_CLOEXEC) >= 0)
        s->secrets_reported = true;
    close(fd);
}

bool shell_adopt(shell *s)
{
    gp_orphans *orphans = s->options->orphans;
    uint32_t count = orphans->count;
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    for (uint32_t i = 0; i < count; i++) {
        gp_survivor *found = &orphans->workers[i];
        shell_worker *worker = &s->workers[found->slot];
        /* start_time counts from boot: field 22 of /proc/PID/stat */
        int64_t age_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 -
                         (int64_t)found->start_time * 1000 / sysconf(_SC_CLK_TCK);
        gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_FOUND,
                                .slot = found->slot,
                                .incarnation = found->child.incarnation,
                                .pid = found->child.pid,
                                .holds = age_ms < 2 * s->core->config.keep_ms };

        gp_log_event(GP_LOG_INFO, "worker-adopted",
                     GP_LOG_WITH({ "worker", .number = found->slot + 1 }, { "process", .number = event.pid },
                                 { "incarnation", .number = event.incarnation }),
                     "adopted a worker of an earlier scheduler");
        worker->child = found->child;
        worker->start_time = found->start_time;
        worker->call = found->control_socket;
        worker->spawned_ns = gp_now_ns();
        shell_step(s, &event);
        gp_survivor_call(found, s->core->config.epoch);
        gp_fault_point("adopting");
    }
    orphans->count = 0; /* the shell now owns them */
    return count != 0;
}

/* Process worker_ready: check that the sender is the current process of the slot, then welcome it
 * and inform the core. */
static void handle_ready(shell *s, const gp_incoming *in)
{
    gp_worker_ready ready;
    gp_envelope envelope = shell_reply_envelope(s, &in->envelope);
    gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_READY, .epoch = in->envelope.epoch };
    shell_worker *worker;
    gp_error err;

    if (!shell_decode(s, in, &ready))
        return;
    event.slot = ready.slot.index - 1;
    worker = event.slot < GP_CORE_SLOTS_MAX ? &s->workers[event.slot] : NULL;
    if (worker == NULL || worker->child.pid == 0 || (uint32_t)worker->child.pid != ready.slot.pid ||
        worker->child.incarnation != ready.slot.incarnation ||
        (worker->child.adopted && worker->start_time != 0 && worker->start_time != ready.slot.start_time)) {
        shell_reply_error(s, in, GP_ESTALE,
                          "worker %u, incarnation %u, with pid %u does not belong to this scheduler",
                          ready.slot.index, ready.slot.incarnation, ready.slot.pid);
        return;
    }
    take_secrets(s, worker);
    shell_hang_up(worker);
    gp_fault_point("welcoming");
    worker->peer = in->peer;
    worker->slot = ready.slot;
    event.incarnation = ready.slot.incarnation;
    event.usable = ready.state != GP_WORKER_EXCLUDED && ready.state != GP_WORKER_DEAD;
    event.reason = ready.reason;
    event.lease = ready.lease;
    event.generation = ready.generation;
    /* The worker has just seen the holder of the lease alive. */
    if (worker->child.adopted && ready.lease != 0 && ready.client_pid != 0)
        worker->holder = pidfd_open((pid_t)ready.client_pid, 0);
    event.pid = worker->holder >= 0 ? (int32_t)ready.client_pid : 0;
    memcpy(event.session.bytes, ready.client_session, sizeof(event.session.bytes));
    memcpy(event.token.bytes, ready.token, sizeof(event.token.bytes));
    gp_log_event(GP_LOG_INFO, "worker-ready", GP_LOG_WITH({ "worker", .number = ready.slot.index }),
                 "the worker is %s, %.1f ms after %s%s%s", event.usable ? "ready" : "excluded",
                 (double)(gp_now_ns() - worker->spawned_ns) * 1e-6,
                 worker->child.adopted ? "it was contacted" : "it was started", event.usable ? "" : ": ",
                 event.usable ? "" : ready.reason);
    if (shell_send(s, &in->peer, &envelope, &gp_msg_worker_welcome, &(gp_worker_welcome){ 0 }, NULL, &err) !=
        GP_OK)
        gp_log_event(GP_LOG_WARN, "message-unsent", GP_LOG_WITH({ "worker", .number = ready.slot.index }),
                     "cannot send worker_welcome: %s", err.message);
    shell_step(s, &event);
}

/* Process any other message from a known worker. */
static void handle_known(shell *s, shell_worker *worker, const gp_incoming *in)
{
    gp_core_event event = { .epoch = in->envelope.epoch,
                            .slot = (uint32_t)(worker - s->workers),
                            .incarnation = worker->child.incarnation,
                            .lease = in->envelope.lease,
                            .generation = in->envelope.generation };
    gp_error_reply error;
    gp_revoked revoked;
    gp_beat beat;
    gp_status status = GP_OK;
    gp_error err;

    switch (in->envelope.message) {
    case GP_ID(beat):
        status = gp_incoming_decode(in, &beat, &err);
        if (status != GP_OK)
            break;
        gp_memory_kills_watch(&worker->child.kills, (uint32_t)worker->child.pid, gp_now_ms());
        event.kind = GP_CORE_EVENT_WORKER_BEAT;
        event.step = beat.step;
        event.work = (gp_core_work)beat.work;
        event.stretch_ms = (int64_t)beat.stretch_ms;
        event.stretch_max_ms = (int64_t)beat.stretch_max_ms;
        event.recycle = beat.recycle != 0;
        totals_beat(&s->totals, event.slot, &beat);
        break;
    case GP_ID(grant_ack):
        event.kind = GP_CORE_EVENT_WORKER_GRANTED;
        break;
    case GP_ID(revoked):
        status = gp_incoming_decode(in, &revoked, &err);
        event.kind = GP_CORE_EVENT_WORKER_REVOKED;
        event.recycle = status == GP_OK && revoked.recycle != 0;
        break;
    case GP_ID(error_reply):
        if (gp_incoming_decode(in, &error, &err) == GP_OK)
            gp_log_event(GP_LOG_WARN, "worker-error", GP_LOG_WITH({ "worker", .number = event.slot + 1 }),
                         "error from the worker: %s", error.message);
        return;
    default:
        shell_reply_error(s, in, GP_EUNSUPPORTED, "unexpected message %u from a worker",
                          in->envelope.message);
        return;
    }
    if (status == GP_OK)
        shell_step(s, &event);
    else
        gp_log_event(GP_LOG_WARN, "message-damaged", GP_LOG_WITH({ "worker", .number = event.slot + 1 }),
                     "%s", err.message);
}

bool shell_handle_worker(shell *s, const gp_incoming *in)
{
    if (in->envelope.message == GP_ID(worker_ready)) {
        handle_ready(s, in);
        return true;
    }
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        if (s->workers[i].peer.bytes != 0 && gp_peer_equal(&s->workers[i].peer, &in->peer)) {
            handle_known(s, &s->workers[i], in);
            return true;
        }
    }
    /* a late message from a worker that has exited */
    return in->type != NULL && in->type->direction == GP_DIR_WORKER_TO_SCHEDULER;
}
