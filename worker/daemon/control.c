/* control.c -- the control thread: opens and closes all sockets, runs the event loop, sends
 * heartbeats, and shuts down the process. */
#include "worker/daemon/control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "proto/local/runner_wire.h"
#include "proto/task/task_wire.h"
#include "worker/comm/process.h"
#include "worker/daemon/control_parts.h"
#include "worker/daemon/signals.h"
#include "worker/task/blobs.h"
#include "worker/task/tasks.h"

enum {
    EVENT_MS = 50,   /* interval between training messages to the client */
    JOIN_MS = 15000, /* time limit for the first scheduler reply; the disk and cores may be busy */
    STOP_MS = 200,   /* time limit for the compute thread to exit */
    LINGER_MS = 100, /* time for queued replies to be sent before sockets close */
    PEERS_MAX = 2 * GP_WORKERS_MAX,
};

/* ---- opening ---- */

static gp_status control_open(control *c, gp_error *err)
{
    gp_channel_options to_clients = { .security = GP_SECURITY_NONE, .bulk = true };
    const gp_control_options *options = c->options;
    const gp_worker_device *device = options->device;
    gp_run_options run = { .train = &c->train, .device = device, .backend_ops = options->backend_ops };
    gp_slot *slot = &c->slot;
    char socket[GP_TEXT_ENDPOINT];
    gp_status status;

    gp_train_control_init(&c->train);
    slot->index = options->index;
    slot->incarnation = options->incarnation;
    slot->pid = (uint32_t)getpid();
    gp_paths_worker_file(options->paths, options->index, options->incarnation, "", socket);
    snprintf(slot->endpoint, sizeof(slot->endpoint), "ipc://%.100s", socket);
    gp_paths_worker_file(options->paths, options->index, options->incarnation, ".door", slot->door);
    gp_paths_worker_log(options->paths, options->index, slot->log);
    slot->device_kind = device->kind;
    slot->device_index = device->ordinal;
    snprintf(slot->device_uuid, sizeof(slot->device_uuid), "%s", device->uuid);
    snprintf(slot->device_name, sizeof(slot->device_name), "%s", device->name);
    snprintf(slot->cores, sizeof(slot->cores), "%s", device->cores_text);
    slot->core_count = device->core_count;
    slot->shared = device->shared;
    status = gp_process_start_time(getpid(), &slot->start_time, err);
    if (status == GP_OK)
        status = gp_mailbox_new(&c->mailbox, err);
    run.mailbox = c->mailbox;
    /* The sockets that clients and other workers connect to must be open before worker_ready: the
     * scheduler then publishes the paths. */
    if (status == GP_OK)
        status = gp_channel_bind(&c->clients, c->slot.endpoint + strlen("ipc://"), &to_clients, err);
    if (status == GP_OK)
        status = gp_control_socket_open(&c->control_socket, c->slot.door, PEERS_MAX, err);
    if (status == GP_OK)
        status = gp_run_start(&c->run, &run, err);
    if (status == GP_OK)
        status = scheduler_link_open(&c->link, c->options->paths, JOIN_MS, JOIN_MS, err);
    return status;
}

/* ---- closing ---- */

void control_end(control *c, int exit_code, int within_ms, const char *why)
{
    int64_t end_ms = gp_now_ms() + within_ms;

    if (c->end_ms != 0 && c->end_ms <= end_ms)
        return;
    gp_log(exit_code == GP_WORKER_EXIT_ASKED ? GP_LOG_INFO : GP_LOG_WARN, "ends", "exiting: %s", why);
    if (c->end_ms == 0)
        c->exit_code = exit_code;
    c->end_ms = end_ms;
    c->next = (gp_envelope){ 0 };
    /* Abort a training, but keep the lease until train_done has been sent to the client. */
    gp_train_control_abort(&c->train);
    if (c->work.kind != WORK_TRAINING)
        control_reset(c);
}

/* Exit without waiting for compute. */
static _Noreturn void control_leave(control *c, int exit_code)
{
    gp_control_socket_close(c->control_socket);
    gp_channel_close(c->clients, 0); /* unlinks the socket path */
    _exit(exit_code);
}

static void control_close(control *c)
{
    gp_error err;

    if (gp_run_stop(c->run, STOP_MS, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "close-failed", "%s; exiting without waiting for it", err.message);
        control_leave(c, c->exit_code);
    }
    gp_runner_link_close(c->runner);
    control_tasks_left(c);
    client_fds_drop(&c->fds);
    gp_rendezvous_free(c->older_group);
    gp_rendezvous_free(c->group);
    gp_control_socket_close(c->control_socket);
    scheduler_link_close(&c->link, LINGER_MS);
    gp_channel_close(c->clients, LINGER_MS);
    gp_mailbox_free(c->mailbox); /* after the channels, which may still send mailbox blobs */
    gp_train_control_deinit(&c->train);
    served_lease_end(&c->lease);
}

/* ---- heartbeats ---- */

static gp_worker_work beat_work(const current_work *work)
{
    return work->kind == WORK_TRAINING ? GP_WORK_TRAINING
           : work->kind == WORK_TASKS  ? GP_WORK_USERS
                                       : GP_WORK_OURS;
}

/* Send a heartbeat if one is due, and act on a scheduler that does not reply to hello in time. */
static void beat(control *c)
{
    gp_beat message = {
        .state = c->options->device->excluded[0] != '\0' ? GP_WORKER_EXCLUDED
                 : c->lease.id != 0                      ? GP_WORKER_BUSY
                                                         : GP_WORKER_IDLE,
        .work = beat_work(&c->work),
    };
    gp_envelope envelope = { .lease = c->lease.id, .generation = c->lease.generation };
    /* gp_running_ms() excludes periods in which this process was suspended */
    int64_t now = gp_running_ms(), since = atomic_load(&c->train.stretch_since_ms);

    if (!scheduler_link_beat_due(&c->link, message.work))
        return;
    message.progress = atomic_load(&c->train.progress);
    message.step = atomic_load(&c->train.step);
    message.epoch = atomic_load(&c->train.epoch);
    message.stretch_ms = since == 0 || since >= now ? 0 : (uint64_t)(now - since);
    message.stretch_max_ms = (uint64_t)atomic_load(&c->train.stretch_max_ms);
    message.recycle = gp_run_unused(c->run);
    counters_get(&c->counters, &c->train, gp_now_ms(), &message);
    if (c->link.joined)
        scheduler_link_send(&c->link, &envelope, &gp_msg_beat, &message);
    else if (c->link.channel == NULL || c->link.report_due || gp_timeout_left(c->link.deadline) > 0)
        return;
    else if (c->link.joined_before)
        control_orphaned(c); /* another scheduler may reply */
    else
        control_end(c, GP_WORKER_EXIT_FAILED, 0, "no reply from the scheduler within 15 s");
}

/* ---- the control socket ---- */

/* Keep descriptors that a client sends for tasks or weights; refuse those of another lease. */
static void descriptors_keep(control *c, const gp_control_socket_event *event)
{
    const gp_control_socket_request *request = &event->request;
    bool weights = request->what == GP_CONTROL_SOCKET_WEIGHTS;
    bool ours = served_lease_authorizes(&c->lease, request) &&
                (!weights || request->generation == c->lease.generation);

    if (!weights && event->fd < 0)
        return;
    if (!ours || !client_fds_keep(&c->fds, event)) {
        gp_log_event(GP_LOG_INFO, "descriptors-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)request->lease }),
                     weights ? "rejected weights of another lease or generation"
                             : "rejected the descriptors of a link");
        if (event->fd >= 0)
            close(event->fd);
    }
}

static void on_request(control *c, const gp_control_socket_event *event)
{
    gp_error err;

    switch (event->request.what) {
    case GP_CONTROL_SOCKET_SEGMENT:
    case GP_CONTROL_SOCKET_WAKEUP:
    case GP_CONTROL_SOCKET_WEIGHTS:
        descriptors_keep(c, event);
        return;
    case GP_CONTROL_SOCKET_BLOB:
        /* Keep the descriptor of a large task argument for compute. On failure
         * the link is closed. */
        if (c->server == NULL || c->server_socket != event->id)
            break;
        if (gp_blobs_add(c->server->blobs, event->request.lease, event->fd, &err) != GP_OK) {
            gp_log_event(GP_LOG_WARN, "link-ended", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }),
                         "closing the link: %s", err.message);
            gp_link_server_stop(c->server);
        }
        return;
    case GP_RUNNER_WHAT:
        control_run_fetch(c, event->id, &event->request);
        break;
    default:
        gp_rendezvous_serve(c->lease.resetting ? NULL : c->group, c->control_socket, event->id,
                            &event->request);
    }
    if (event->fd >= 0)
        close(event->fd);
}

void control_serve_socket(control *c)
{
    gp_blobs *blobs = c->server == NULL ? NULL : c->server->blobs; /* no event frees the blobs */
    gp_control_socket_event event;

    if (blobs != NULL)
        gp_blobs_look_begin(blobs);
    for (gp_control_socket_next(c->control_socket, &event); event.kind != GP_CONTROL_SOCKET_NOTHING;
         gp_control_socket_next(c->control_socket, &event)) {
        if (event.kind == GP_CONTROL_SOCKET_REQUEST) {
            on_request(c, &event);
        } else if (event.kind == GP_CONTROL_SOCKET_GONE) {
            gp_rendezvous_forget(c->group, event.id);
            client_fds_hangup(&c->fds, event.id);
            if (c->server != NULL && c->server_socket == event.id) {
                gp_log_event(GP_LOG_INFO, "client-gone",
                             GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }),
                             "the client of the lease disconnected");
                c->lease.client_left = true;
                gp_link_server_stop(c->server);
            }
        } else if (event.hello.role == GP_ROLE_SCHEDULER) {
            control_called(c, &event);
        } else {
            gp_control_socket_admit(c->control_socket, event.id, c->link.epoch);
        }
    }
    if (blobs != NULL)
        gp_blobs_look_end(blobs);
}

/* ---- the loop ---- */

/* Return the poll timeout in milliseconds: the time until the next timer is due. 0: messages are
 * pending. */
static int poll_ms(control *c)
{
    int64_t now = gp_now_ms(), until = c->link.beat_ms;
    bool event = c->work.kind == WORK_TRAINING || c->work.kind == WORK_TASKS;

    if ((c->link.channel != NULL && gp_channel_pending(c->link.channel)) || gp_channel_pending(c->clients))
        return 0;
    if (control_orphan_due(c) < until)
        until = control_orphan_due(c);
    if ((event || c->blocked || c->ack.lease != 0 || c->revoke.lease != 0) && now + EVENT_MS < until)
        until = now + EVENT_MS;
    if (c->end_ms != 0 && c->end_ms < until)
        until = c->end_ms;
    return until > now ? (int)(until - now) : 0;
}

static bool control_done(const control *c)
{
    return c->end_ms != 0 && ((c->work.kind != WORK_TRAINING && !c->lease.resetting && !c->blocked) ||
                              gp_now_ms() >= c->end_ms);
}

static void control_loop(control *c)
{
    gp_incoming in;
    int number;

    while (!control_done(c)) {
        struct pollfd fds[] = {
            { .fd = c->link.channel == NULL ? -1 : gp_channel_fd(c->link.channel), .events = POLLIN },
            { .fd = gp_channel_fd(c->clients), .events = POLLIN },
            { .fd = gp_control_socket_fd(c->control_socket), .events = POLLIN },
            { .fd = gp_mailbox_fd(c->mailbox), .events = POLLIN },
            { .fd = gp_signals_fd(), .events = POLLIN },
            { .fd = c->link.control_socket, .events = POLLIN },
            { .fd = c->runner == NULL ? -1 : gp_runner_link_fd(c->runner), .events = POLLIN },
            { .fd = control_tasks_abandoned_fd(c), .events = POLLIN },
        };

        poll(fds, sizeof(fds) / sizeof(fds[0]), poll_ms(c));
        gp_signals_restore();
        gp_log_tick();
        if (fds[3].revents != 0)
            gp_mailbox_calm(c->mailbox);
        while ((number = gp_signals_next()) != 0)
            if (number != SIGHUP) /* ignore SIGHUP: a closing terminal does not stop a daemon */
                control_end(c, GP_WORKER_EXIT_ASKED, CONTROL_ASKED_MS,
                            number == SIGTERM ? "SIGTERM" : "SIGINT");
        while (c->link.channel != NULL && gp_channel_receive(c->link.channel, &in, NULL) == GP_OK) {
            control_scheduler(c, &in);
            gp_incoming_close(&in);
        }
        while (gp_channel_receive(c->clients, &in, NULL) == GP_OK) {
            control_client(c, &in);
            gp_incoming_close(&in); /* no effect if the message was handed over to compute */
        }
        control_serve_socket(c);
        gp_rendezvous_answer(c->group, c->control_socket);
        control_outbound(c);
        if (c->server != NULL)
            gp_link_server_nudge(c->server);
        control_answer(c);
        if (control_tasks_abandoned(c)) {
            /* Exit while compute is still running a call. The scheduler starts a replacement. */
            gp_log_event(GP_LOG_INFO, "ends", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }),
                         "exiting: the client of the running task has exited");
            control_leave(c, GP_WORKER_EXIT_ASKED);
        }
        if (fds[5].revents != 0 && c->link.control_socket >= 0 &&
            gp_control_socket_gone(c->link.control_socket)) {
            gp_log_event(GP_LOG_WARN, "scheduler-gone",
                         GP_LOG_WITH({ "lease", .number = (int64_t)c->lease.id }), "the scheduler exited%s",
                         c->lease.id != 0 ? "; keeping the lease" : "");
            control_orphaned(c);
        }
        control_orphan_serve(c);
        control_run_watch(c);
        beat(c);
    }
}

int gp_control_run(const gp_control_options *options)
{
    control *c = gp_calloc(1, sizeof(*c)); /* on the heap: it contains two grants, 50 KiB each */
    gp_error err;
    int exit_code;

    if (c == NULL) {
        gp_log(GP_LOG_ERROR, "start-failed", "no memory for the control thread");
        return GP_WORKER_EXIT_FAILED;
    }
    c->options = options;
    c->counters.failures = options->failures;
    c->link.control_socket = c->lease.client_pidfd = -1;
    client_fds_init(&c->fds);
    if (control_open(c, &err) == GP_OK) {
        control_loop(c);
    } else {
        gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
        c->exit_code = GP_WORKER_EXIT_FAILED;
    }
    exit_code = c->exit_code;
    control_close(c);
    gp_free(c);
    return exit_code;
}
