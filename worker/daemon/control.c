/* control.c -- the control thread's loop: it opens and closes every socket, beats, and knows when to end. */
#include "worker/daemon/control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "proto/local/runner_wire.h"
#include "worker/task/blobs.h"
#include "worker/comm/process.h"
#include "worker/daemon/control_parts.h"
#include "worker/task/tasks.h"

enum {
    BEAT_MS = 500,
    NEWS_MS = 50,    /* how often a client hears of a training */
    JOIN_MS = 15000, /* for the scheduler to answer: it lives, and its disk may be busy, and its cores */
    STOP_MS = 200,   /* for the compute thread to see that it is over */
    DRAIN_MS = 100,  /* for the last answers to leave */
    PEERS_MAX = 2 * GP_WORKERS_MAX,
};

/* ---- opening ---- */

static gp_status slot_fill(control *c, gp_error *err)
{
    const gp_control_options *options = c->options;
    const gp_worker_device *device = options->device;
    gp_slot *slot = &c->slot;
    char socket[GP_TEXT_ENDPOINT];

    slot->index = options->index;
    slot->incarnation = options->incarnation;
    slot->pid = (uint32_t)getpid();
    gp_places_worker_socket(options->places, options->index, options->incarnation, socket);
    snprintf(slot->endpoint, sizeof(slot->endpoint), "ipc://%.100s", socket);
    gp_places_worker_door(options->places, options->index, options->incarnation, slot->door);
    gp_places_worker_log(options->places, options->index, slot->log);
    slot->device_kind = device->kind;
    slot->device_index = device->ordinal;
    snprintf(slot->device_uuid, sizeof(slot->device_uuid), "%s", device->uuid);
    snprintf(slot->device_name, sizeof(slot->device_name), "%s", device->name);
    snprintf(slot->cores, sizeof(slot->cores), "%s", device->cores_text);
    slot->core_count = device->core_count;
    slot->shared = device->shared;
    return gp_process_start_time(getpid(), &slot->start_time, err);
}

static gp_status signals_open(control *c, gp_error *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return c->signals < 0 ? gp_fail_errno(err, GP_EIO, "no descriptor for signals") : GP_OK;
}

/* Sockets of ours first: who is told of us by the scheduler can reach us at once. */
static gp_status sockets_open(control *c, gp_error *err)
{
    gp_channel_options to_clients = { .security = GP_SECURITY_NONE, .bulk = true };
    gp_status status = gp_channel_bind(&c->clients, c->slot.endpoint + strlen("ipc://"), &to_clients, err);

    if (status == GP_OK)
        status = gp_door_open(&c->door, c->slot.door, PEERS_MAX, err);
    return status;
}

static gp_status control_open(control *c, gp_error *err)
{
    gp_run_options run = { .train = &c->train,
                           .device = c->options->device,
                           .backend_ops = c->options->backend_ops };
    gp_status status;

    gp_train_control_init(&c->train);
    status = slot_fill(c, err);
    if (status == GP_OK)
        status = signals_open(c, err);
    if (status == GP_OK)
        status = gp_mailbox_new(&c->mailbox, err);
    run.mailbox = c->mailbox;
    if (status == GP_OK)
        status = sockets_open(c, err);
    if (status == GP_OK)
        status = gp_run_start(&c->run, &run, err);
    if (status == GP_OK)
        status = control_dial(c, JOIN_MS, err);
    control_join_begin(c, JOIN_MS);
    c->beat_ms = gp_now_ms() + BEAT_MS;
    return status;
}

/* ---- closing ---- */

void control_end(control *c, int exit_code, int within_ms, const char *why)
{
    int64_t end_ms = gp_now_ms() + within_ms;

    if (c->ending && c->end_ms <= end_ms)
        return;
    gp_log(exit_code == GP_WORKER_EXIT_ASKED ? GP_LOG_INFO : GP_LOG_WARN, "ends", "ends: %s", why);
    if (!c->ending)
        c->exit_code = exit_code;
    c->ending = true;
    c->end_ms = end_ms;
    c->granting = false;
    /* The present training is stopped, not forgotten: its train_done is the last that its client hears. */
    gp_train_control_abort(&c->train);
    if (c->work != WORK_TRAINING)
        control_reset(c);
}

static void control_close(control *c)
{
    gp_error err;

    if (gp_run_stop(c->run, STOP_MS, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "close-failed", "%s; the process ends without it", err.message);
        gp_door_close(c->door);
        gp_channel_close(c->clients, 0); /* removes the socket's path */
        _exit(c->exit_code);
    }
    gp_runner_link_close(c->runner);
    control_tasks_drop(c);
    control_weights_drop(c);
    gp_rendezvous_free(c->older);
    gp_rendezvous_free(c->group);
    gp_door_close(c->door);
    gp_channel_close(c->scheduler, DRAIN_MS);
    gp_channel_close(c->clients, DRAIN_MS);
    gp_mailbox_free(
        c->mailbox); /* after the channels: a blob may still be theirs, but never the other way round */
    gp_train_control_deinit(&c->train);
    if (c->scheduler_door >= 0)
        close(c->scheduler_door);
    if (c->client_pidfd >= 0)
        close(c->client_pidfd);
    if (c->signals >= 0)
        close(c->signals);
}

/* ---- the loop ---- */

gp_status control_tell(control *c, const gp_envelope *envelope, const gp_message_type *type,
                       const void *message)
{
    gp_envelope filled = *envelope;
    gp_error err;
    gp_status status;

    if (c->scheduler == NULL)
        return GP_EPEER; /* whatever it is: the next one is told all that counts */
    filled.epoch = c->epoch;
    status = gp_channel_send(c->scheduler, NULL, &filled, type, message, NULL, 0, &err);
    if (status != GP_OK)
        gp_log_event(GP_LOG_WARN, "message-unsent", GP_LOG_WITH({ "message", .text = type->name }),
                     "%s did not reach the scheduler: %s", type->name, err.message);
    else if (type == &gp_msg_worker_ready)
        gp_log(GP_LOG_DEBUG, "ready", "worker_ready %.2f ms after the start",
               (double)(gp_now_ns() - c->options->started_ns) * 1e-6);
    return status;
}

static gp_worker_work work_of(const control *c)
{
    switch (c->work) {
    case WORK_TRAINING:
        return GP_WORK_TRAINING;
    case WORK_TASKS:
        return GP_WORK_USERS;
    default:
        return GP_WORK_OURS;
    }
}

/* Return how long the compute thread has been in its part of a step, without the time in which
 * this process was suspended. */
static int64_t stretch_of(const control *c)
{
    int64_t now = gp_running_ms(), since = atomic_load(&c->train.stretch_since_ms);

    return since == 0 || since >= now ? 0 : now - since;
}

void control_join_begin(control *c, int timeout_ms)
{
    c->join = gp_timeout_in(timeout_ms);
}

static void beat(control *c)
{
    int64_t stretch_ms = stretch_of(c);
    gp_beat message = {
        .state = c->options->device->excluded[0] != '\0' ? GP_WORKER_EXCLUDED
                 : c->lease != 0                         ? GP_WORKER_BUSY
                                                         : GP_WORKER_IDLE,
        .progress = atomic_load(&c->train.progress),
        .step = atomic_load(&c->train.step),
        .epoch = atomic_load(&c->train.epoch),
        .work = work_of(c),
        .stretch_ms = (uint64_t)stretch_ms,
        .stretch_max_ms = (uint64_t)atomic_load(&c->train.stretch_max_ms),
    };
    gp_envelope envelope = { .lease = c->lease, .generation = c->generation };

    if (gp_now_ms() < c->beat_ms && message.work == c->beaten_work)
        return;
    c->beaten_work = message.work;
    c->beat_ms = gp_now_ms() + BEAT_MS;
    if (c->joined)
        control_tell(c, &envelope, &gp_msg_beat, &message);
    else if (c->scheduler != NULL && !c->reporting && gp_timeout_left(c->join) == 0) {
        if (c->warmed)
            control_orphaned(c); /* another may answer */
        else
            control_end(c, GP_WORKER_EXIT_FAILED, 0, "the scheduler did not answer within 15 s");
    }
}

void control_doors(control *c)
{
    gp_door_event event;
    gp_blobs *blobs = c->seat == NULL ? NULL : c->seat->blobs; /* nothing in here frees it */

    if (blobs != NULL)
        gp_blobs_look_begin(blobs);
    for (gp_door_next(c->door, &event); event.kind != GP_DOOR_NOTHING; gp_door_next(c->door, &event))
        switch (event.kind) {
        case GP_DOOR_KNOCK:
            if (event.hello.role == GP_ROLE_SCHEDULER)
                control_called(c, &event);
            else
                gp_door_admit(c->door, event.id, c->epoch);
            break;
        case GP_DOOR_REQUEST:
            if (control_tasks_request(c, &event) || control_weights_request(c, &event))
                break;
            if (event.fd >= 0)
                close(event.fd); /* peers send us none: we fetch */
            if (event.request.what == GP_RUNNER_WHAT) {
                control_run_fetch(c, event.id, &event.request);
                break;
            }
            gp_rendezvous_serve(c->resetting ? NULL : c->group, c->door, event.id, &event.request);
            break;
        case GP_DOOR_GONE:
            gp_rendezvous_forget(c->group, event.id);
            control_tasks_gone(c, event.id);
            control_weights_gone(c, event.id);
            break;
        case GP_DOOR_NOTHING:
            break;
        }
    if (blobs != NULL)
        gp_blobs_look_end(blobs);
}

static void signals_serve(control *c)
{
    struct signalfd_siginfo info;

    while (read(c->signals, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo != SIGHUP) /* a terminal that closes is not ours */
            control_end(c, GP_WORKER_EXIT_ASKED, CONTROL_ASKED_MS,
                        info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void channels_serve(control *c)
{
    gp_incoming in;
    gp_error err;

    while (c->scheduler != NULL && gp_channel_receive(c->scheduler, &in, &err) == GP_OK) {
        control_scheduler(c, &in);
        gp_incoming_close(&in);
    }
    while (gp_channel_receive(c->clients, &in, &err) == GP_OK) {
        control_client(c, &in);
        gp_incoming_close(&in); /* one that was handed over is empty now */
    }
}

/* How long nothing has to be looked at unless a descriptor says so. */
static int patience_ms(control *c)
{
    int64_t now = gp_now_ms(), until = c->beat_ms;

    if ((c->scheduler != NULL && gp_channel_pending(c->scheduler)) || gp_channel_pending(c->clients))
        return 0;
    if (control_orphan_due(c) < until)
        until = control_orphan_due(c);
    if ((c->work == WORK_TRAINING || c->work == WORK_TASKS || c->blocked || c->acking || c->revoking) &&
        now + NEWS_MS < until)
        until = now + NEWS_MS;
    if (c->ending && c->end_ms < until)
        until = c->end_ms;
    return until > now ? (int)(until - now) : 0;
}

static bool control_done(const control *c)
{
    return c->ending &&
           ((c->work != WORK_TRAINING && !c->resetting && !c->blocked) || gp_now_ms() >= c->end_ms);
}

static void scheduler_door_serve(control *c)
{
    if (c->scheduler_door < 0 || !gp_door_gone(c->scheduler_door))
        return;
    gp_log_event(GP_LOG_WARN, "scheduler-gone", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                 "the scheduler is gone%s", c->lease != 0 ? "; the lease goes on" : "");
    control_orphaned(c);
}

/* End the process although its compute thread runs; the scheduler starts another worker in its place. */
static _Noreturn void exit_at_once(control *c)
{
    gp_log_event(GP_LOG_INFO, "ends", GP_LOG_WITH({ "lease", .number = (int64_t)c->lease }),
                 "ends: the client of the running task has exited");
    gp_door_close(c->door);
    gp_channel_close(c->clients, 0); /* removes the socket's path */
    _exit(GP_WORKER_EXIT_ASKED);
}

static void control_loop(control *c)
{
    while (!control_done(c)) {
        struct pollfd fds[] = {
            { .fd = c->scheduler == NULL ? -1 : gp_channel_fd(c->scheduler), .events = POLLIN },
            { .fd = gp_channel_fd(c->clients), .events = POLLIN },
            { .fd = gp_door_fd(c->door), .events = POLLIN },
            { .fd = gp_mailbox_fd(c->mailbox), .events = POLLIN },
            { .fd = c->signals, .events = POLLIN },
            { .fd = c->scheduler_door, .events = POLLIN },
            { .fd = c->runner == NULL ? -1 : gp_runner_link_fd(c->runner), .events = POLLIN },
            { .fd = c->revoking && c->seat != NULL ? c->client_pidfd : -1, .events = POLLIN },
        };

        poll(fds, sizeof(fds) / sizeof(fds[0]), patience_ms(c));
        gp_log_tick();
        if (fds[3].revents != 0)
            gp_mailbox_calm(c->mailbox);
        signals_serve(c);
        channels_serve(c);
        control_doors(c);
        gp_rendezvous_answer(c->group, c->door);
        control_outbound(c);
        if (c->seat != NULL)
            gp_seat_nudge(c->seat);
        control_answer(c);
        if (control_tasks_abandoned(c))
            exit_at_once(c);
        if (fds[5].revents != 0)
            scheduler_door_serve(c);
        control_orphan_serve(c);
        control_run_watch(c);
        beat(c);
    }
}

int gp_control_run(const gp_control_options *options)
{
    control *c = gp_calloc(1, sizeof(*c)); /* two grants of 50 KiB each */
    gp_error err;
    int exit_code;

    if (c == NULL) {
        gp_log(GP_LOG_ERROR, "start-failed", "no memory for the control thread");
        return GP_WORKER_EXIT_FAILED;
    }
    c->options = options;
    c->scheduler_door = c->signals = c->client_pidfd = c->weights_fd = -1;
    for (int i = 0; i < TASK_OFFERS_MAX; i++)
        c->offers[i].segment = c->offers[i].bell = -1;
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
