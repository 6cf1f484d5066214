/* Startup, poll loop and core actions of the scheduler daemon. */
#include "scheduler/shell/shell.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/base/system/process.h"
#include "scheduler/shell/pool_record.h"
#include "scheduler/shell/shell_jobs.h"
#include "scheduler/shell/shell_remote.h"

enum {
    LOCK_CHECK_MS = 1000, /* interval between checks of the pool lock */
    DRAIN_MS = 200,       /* at exit: time to send queued messages */

    /* loop(): index of the first worker and maximum index of the first job in the pollfd array */
    FIRST_WORKER = 6,
    FIRST_JOB = FIRST_WORKER + GP_CORE_SLOTS_MAX,
    INCARNATION_BITS = 16 /* each epoch has 2^16 incarnation numbers per slot */
};

/* ---- events and actions ---- */

void shell_pend(shell *s, const gp_core_event *event)
{
    assert(s->pending_count < SHELL_PENDING_MAX);
    s->pending[s->pending_count++] = *event;
}

static void step_once(shell *s, const gp_core_event *event)
{
    size_t count;

    totals_event(&s->totals, event);
    count = gp_core_step(s->core, s->actions, event, gp_now_ms());
    for (size_t i = 0; i < count; i++) {
        const gp_core_action *action = &s->actions[i];

        totals_action(&s->totals, s->core, action);
        switch (action->kind) {
        case GP_CORE_SPAWN:
            shell_spawn(s, action->slot, action->incarnation);
            break;
        case GP_CORE_KILL:
            if (s->workers[action->slot].child.incarnation == action->incarnation)
                gp_supervise_kill(&s->workers[action->slot].child);
            break;
        case GP_CORE_EXIT:
            s->exit = true;
            break;
        case GP_CORE_LOG:
            gp_log(GP_LOG_WARN, "note", "%s", action->text);
            break;
        case GP_CORE_SUSPECT:
            gp_log_event(GP_LOG_WARN, action->silent_ms != 0 ? "worker-suspect" : "worker-well",
                         GP_LOG_WITH({ "worker", .number = action->slot + 1 },
                                     { "incarnation", .number = action->incarnation },
                                     { "silent-ms", .number = action->silent_ms }),
                         "%s", action->text);
            break;
        case GP_CORE_GRANT:
        case GP_CORE_REVOKE:
        case GP_CORE_PEER_LOST:
        case GP_CORE_QUIT:
            shell_send_to_worker(s, action);
            break;
        default:
            shell_send_to_client(s, action);
        }
    }
}

void shell_step(shell *s, const gp_core_event *event)
{
    step_once(s, event);
    shell_flush(s);
}

void shell_flush(shell *s)
{
    for (uint32_t i = 0; i < s->pending_count; i++) { /* step_once() may append events */
        gp_core_event next = s->pending[i];

        step_once(s, &next);
    }
    s->pending_count = 0;
}

/* ---- poll loop ---- */

/* Check at intervals of LOCK_CHECK_MS whether this process still holds the pool lock.
 *
 * loop() calls this function directly after poll(), because this process may have been suspended
 * while another scheduler took over the pool. In that case, stop the loop and leave the workers to
 * that scheduler. If the lock file was only removed or replaced, make the core stop granting
 * leases. */
static void check_lock(shell *s)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_LOCK };

    if (gp_now_ms() - s->checked_ms < LOCK_CHECK_MS)
        return;
    s->checked_ms = gp_now_ms();
    event.holds = gp_pool_lock_valid(s->options->lock, s->options->paths);
    if (!event.holds && gp_pool_lock_followed(s->options->lock, s->options->paths)) {
        gp_log_event(GP_LOG_ERROR, "pool-followed",
                     GP_LOG_WITH({ "epoch", .number = (int64_t)s->options->lock->epoch }),
                     "a newer scheduler runs this pool; exiting and leaving the workers to it");
        s->followed = true;
        return;
    }
    if (event.holds == s->holds)
        return;
    s->holds = event.holds;
    gp_log(GP_LOG_ERROR, "lock-lost",
           event.holds ? "%s is the locked file again; granting leases"
                       : "%s is no longer the locked file; granting no leases",
           s->options->paths->lock);
    shell_step(s, &event);
}

/* Shut down at once after the owner of the pool has exited. */
static void check_owner(shell *s)
{
    const gp_core_event end = { .kind = GP_CORE_EVENT_SHUTDOWN, .grace_ms = SHELL_OWNER_GRACE_MS };

    if (!gp_owner_exited(&s->owner))
        return;
    gp_owner_close(&s->owner); /* the descriptor would wake every poll() from here on */
    if (s->core->stopping == GP_CORE_STOPPING)
        return;
    gp_log_event(GP_LOG_INFO, "owner-exited", GP_LOG_WITH({ "process", .number = s->owner.pid }),
                 "the owner of the pool has exited; shutting down");
    gp_fault_point("owner-exited");
    shell_step(s, &end);
}

/* Return the timeout for poll(): the time until the next deadline of the core, the jobs or the
 * remote listener, at most LOCK_CHECK_MS. 0: a deadline has passed, or a message is pending. */
static int timeout_ms(shell *s)
{
    int64_t left = gp_core_due(s->core) - gp_now_ms();

    if (gp_jobs_due(s->jobs->machine) - gp_now_ms() < left)
        left = gp_jobs_due(s->jobs->machine) - gp_now_ms();
    int remote = remote_listener_due_ms(&s->listener);

    if (left <= 0 || gp_channel_pending(s->channel))
        return 0;
    if (remote >= 0 && remote < left)
        return remote;
    return left > LOCK_CHECK_MS ? LOCK_CHECK_MS : (int)left;
}

static void loop(shell *s)
{
    const gp_core_event tick = { .kind = GP_CORE_EVENT_TICK }, end = { .kind = GP_CORE_EVENT_SHUTDOWN };
    struct signalfd_siginfo info;
    gp_incoming in;

    while (!s->followed && (!s->exit || shell_jobs_finishing(s))) {
        check_owner(s);
        const gp_channel *remote = s->listener.channel;
        struct pollfd fds[FIRST_JOB + SHELL_JOBS_FDS_MAX] = {
            { .fd = gp_control_socket_fd(s->control_socket), .events = POLLIN },
            { .fd = gp_channel_fd(s->channel), .events = POLLIN },
            { .fd = s->signals, .events = POLLIN },
            { .fd = remote != NULL ? gp_channel_fd(remote) : -1, .events = POLLIN },
            { .fd = remote != NULL ? gp_channel_watch_fd(remote) : -1, .events = POLLIN },
            { .fd = s->owner.fd, .events = POLLIN },
        };

        uint32_t slots[GP_CORE_SLOTS_MAX], workers = 0;

        /* Skip slots without a process. poll() fails if the array has more entries than
         * RLIMIT_NOFILE, even if some have fd -1. */
        for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
            if (s->workers[i].child.pidfd >= 0) {
                fds[FIRST_WORKER + workers] =
                    (struct pollfd){ .fd = s->workers[i].child.pidfd, .events = POLLIN };
                slots[workers++] = i;
            }
        struct pollfd *jobs = &fds[FIRST_WORKER + workers];
        uint32_t job_fds = shell_jobs_poll(s, jobs);

        poll(fds, FIRST_WORKER + workers + job_fds, timeout_ms(s));
        gp_log_tick();
        check_lock(s);
        if (s->followed)
            break;
        for (uint32_t i = 0; i < workers; i++) {
            if (fds[FIRST_WORKER + i].revents != 0)
                shell_reap(s, slots[i]);
        }
        for (int i = 0; i < SHELL_MESSAGES_AT_ONCE && gp_channel_receive(s->channel, &in, NULL) == GP_OK;
             i++) {
            if (!shell_handle_worker(s, &in))
                shell_handle_client(s, &in);
            gp_incoming_close(&in);
        }
        shell_watch_holders(s);
        shell_serve_control_socket(s);
        shell_watch_clients(s);
        shell_remote_serve(s);
        while (read(s->signals, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGHUP) /* the scheduler outlives its terminal */
                continue;
            gp_log_event(
                GP_LOG_INFO, "shutdown-asked",
                GP_LOG_WITH({ "signal", .number = info.ssi_signo }, { "from", .number = info.ssi_pid }),
                "received a signal to shut down");
            shell_step(s, &end);
        }
        shell_jobs_serve(s, jobs, job_fds);
        shell_step(s, &tick);
        if (s->core->slot_count != s->recorded_workers) /* a worker left that was in use */
            shell_record(s, s->devices, s->resources);
    }
}

/* Copy the setting of the resources as one line. "none" becomes "". */
static void resources_keep(char out[GP_TEXT_RESOURCES_SETTING], const char *setting)
{
    snprintf(out, GP_TEXT_RESOURCES_SETTING, "%s",
             setting == NULL || strcmp(setting, "none") == 0 ? "" : setting);
    for (char *at = out; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' ';
}

void shell_record(shell *s, const char *devices, const char *resources)
{
    gp_pool_record record = { .workers = s->core->slot_count,
                              .idle_ms = s->core->config.idle_ms,
                              .suspect_ms = s->core->config.suspect_ms,
                              .silence_ms = s->core->config.beat_ms,
                              .process_env = (char *)(uintptr_t)s->options->process_env };
    gp_error err;

    if (devices != s->devices)
        snprintf(s->devices, sizeof(s->devices), "%s", devices != NULL ? devices : "");
    if (resources != s->resources)
        resources_keep(s->resources, resources);
    s->recorded_workers = record.workers;
    snprintf(record.devices, sizeof(record.devices), "%s", s->devices);
    snprintf(record.resources, sizeof(record.resources), "%s", s->resources);
    if (s->owner.pid != 0)
        snprintf(record.owner, sizeof(record.owner), "%d:%" PRIu64, (int)s->owner.pid, s->owner.start_time);
    record.temporary = s->owner.temporary;
    snprintf(record.listen, sizeof(record.listen), "%s", s->listener.bound);
    if (gp_pool_record_write(&record, s->options->paths, &err) != GP_OK)
        gp_log(GP_LOG_WARN, "record-unwritten",
               "cannot record the settings of the pool for the next scheduler: %s", err.message);
}

/* ---- startup and shutdown ---- */

/* Plan the workers and create the core.
 *
 * If the previous scheduler crashed, its workers may still run. Each epoch therefore has its own
 * range of incarnation numbers, so that no number of the previous scheduler is used again. */
static gp_status open_core(shell *s, gp_error *err)
{
    const gp_shell_options *options = s->options;
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config *plan = gp_calloc(GP_CORE_SLOTS_MAX, sizeof(*plan));
    uint32_t count;
    gp_status status;

    if (plan == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the worker plan");
    config.epoch = options->lock->epoch;
    config.clients_max = SHELL_CLIENTS_ALL;
    config.idle_ms = options->idle_timeout_ms;
    config.suspect_ms = options->suspect_ms;
    config.beat_ms = options->silence_ms;
    if (options->follows)
        config.incarnation_base = (uint32_t)(config.epoch - 1) << INCARNATION_BITS;
    status =
        gp_plan_make(plan, &count, &options->request, options->devices, options->cores, options->paths, err);
    if (status == GP_OK)
        status = gp_core_new(&s->core, &config, plan, count, gp_now_ms(), err);
    gp_free(plan);
    if (status != GP_OK)
        return status;
    s->actions = gp_calloc(gp_core_actions_max(s->core), sizeof(*s->actions));
    return s->actions != NULL && shell_sessions_init(s)
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for the scheduler's actions");
}

/* Compute the maximum number of clients from the descriptor limit, and open the local sockets. */
static gp_status open_sockets(shell *s, gp_error *err)
{
    const gp_paths *paths = s->options->paths;
    gp_channel_options link = { .security = GP_SECURITY_NONE };

    /* Descriptors per worker, with that of its client's process, and per client; OURS: all others
     * (journal, jobs, ZeroMQ threads). The hard limit counts, because gp_channel_bind() raises the
     * soft limit to it. */
    enum { OURS = 48, WORKERS = 5, CLIENTS = 2 };
    struct rlimit limit = { .rlim_max = RLIM_INFINITY };
    rlim_t reserved = OURS + WORKERS * s->core->slot_count, possible;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < reserved + CLIENTS)
        return gp_fail(
            err, GP_ELIMIT,
            "a pool of %u workers needs at least %u file descriptors, but the limit is %u; raise ulimit -n",
            s->core->slot_count, (unsigned)reserved + CLIENTS, (unsigned)limit.rlim_max);
    possible = (limit.rlim_max - reserved) / CLIENTS;
    s->clients_max = possible < SHELL_CLIENTS_MAX ? (uint32_t)possible : SHELL_CLIENTS_MAX;

    gp_status status = gp_daemon_signals_open(&s->signals, err);

    if (status == GP_OK)
        status = gp_channel_bind(&s->channel, paths->scheduler_socket, &link, err);
    if (status == GP_OK) /* last: a client connects to the channel after its admission here */
        status =
            gp_control_socket_open(&s->control_socket, paths->scheduler_control_socket, SHELL_LOCAL_MAX, err);
    return status;
}

gp_status gp_shell_run(const gp_shell_options *options, gp_error *err)
{
    const gp_core_event tick = { .kind = GP_CORE_EVENT_TICK };
    shell *s = gp_calloc(1, sizeof(*s));
    bool adopts;
    gp_status status;

    if (s == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the scheduler");
    s->options = options;
    s->owner = options->owner;
    s->signals = -1;
    s->holds = true;
    s->started_ms = s->checked_ms = gp_now_ms();
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
        s->workers[i].child.pidfd = s->workers[i].call = s->workers[i].holder = -1;
    status = open_core(s, err);
    if (status == GP_OK)
        status = open_sockets(s, err);
    if (status == GP_OK)
        status = shell_jobs_open(s, err);
    if (status == GP_OK) /* last: remote clients can connect from here on */
        status = remote_listener_open(&s->listener, s->options, err);
    if (status == GP_OK) {
        gp_log_event(GP_LOG_INFO, "pool-up",
                     GP_LOG_WITH({ "pool", .text = options->paths->pool },
                                 { "workers", .number = s->core->slot_count },
                                 { "epoch", .number = (int64_t)options->lock->epoch }),
                     "the pool is ready");
        adopts = shell_adopt(s);
        shell_step(s, &tick); /* the first tick spawns the workers */
        shell_record(s, options->request.devices, options->request.resources);
        gp_fault_point("opened");
        if (options->ready_fd >= 0) {
            const char *word = adopts ? "adopted\n" : "ready\n";

            if (write(options->ready_fd, word, strlen(word)) != (ssize_t)strlen(word))
                gp_log(GP_LOG_WARN, "starter-gone", "cannot report readiness to the starting process: %s",
                       strerror(errno));
            close(options->ready_fd);
        }
        loop(s);
        if (!s->followed)
            unlink(options->paths->record);
        gp_log(GP_LOG_INFO, "ends", "ends");
    }
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
        shell_hang_up(&s->workers[i]);
    shell_forget_holders(s);
    shell_jobs_close(s);
    gp_control_socket_close(s->control_socket);
    remote_listener_close(&s->listener, DRAIN_MS);
    gp_channel_close(s->channel, DRAIN_MS);
    if (s->signals >= 0)
        close(s->signals);
    if (s->owner.pid != 0 && !s->followed)
        gp_owner_remove_files(&s->owner, options->paths);
    gp_owner_close(&s->owner);
    gp_core_free(s->core);
    gp_index_deinit(&s->sessions);
    gp_free(s->actions);
    gp_free(s);
    return status;
}
