/* Connect the job state machine (jobs.h) to the journal and the processes. */
#include "scheduler/shell/shell_jobs.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"

/* Interval between attempts to open a journal that another process has locked, and to find the
 * processes or results of earlier jobs. The poll loop wakes at least this often. */
enum { RETRY_MS = 1000 };

/* Time for these searches in a shutdown. */
enum { SEARCH_MS = 2 * RETRY_MS };

static gp_job_process *find_process(shell_jobs *jobs, uint64_t job)
{
    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++) {
        if (jobs->processes[i].job == job)
            return &jobs->processes[i];
    }
    return NULL;
}

/* ---- events ---- */

/* Queue an event for the state machine, to be processed after the current step. */
static void pend(shell *s, gp_jobs_event_kind kind, uint64_t job, uint32_t attempt, gp_status status,
                 const char *text)
{
    shell_job_event *next = &s->jobs->pending[s->jobs->pending_count];

    if (s->jobs->pending_count == SHELL_JOBS_PENDING_MAX)
        return; /* only journal failures can be this many, and the first one is sufficient */
    s->jobs->pending_count++;
    next->event = (gp_jobs_event){ .kind = kind, .job = job, .attempt = attempt, .status = status };
    snprintf(next->text, sizeof(next->text), "%s", text);
}

void shell_jobs_step(shell *s, gp_jobs_event *event)
{
    shell_jobs *jobs = s->jobs;

    event->clock_ms = gp_unix_ms();
    gp_jobs_step(jobs->machine, event, gp_now_ms());
    for (uint32_t i = 0; i < jobs->pending_count; i++) { /* may grow during the loop */
        shell_job_event next = jobs->pending[i];

        next.event.text = next.text;
        next.event.clock_ms = event->clock_ms;
        gp_jobs_step(jobs->machine, &next.event, gp_now_ms());
    }
    jobs->pending_count = 0;
}

/* ---- actions ---- */

/* Queue a row for the journal. A failure ends the journal. */
static void write_row(shell *s, const gp_jobs_action *action)
{
    shell_jobs *jobs = s->jobs;
    char folder[GP_TEXT_FOLDER];
    gp_status status;
    gp_error err;

    if (jobs->journal == NULL || gp_jobs_failure(jobs->machine) != NULL)
        return; /* the journal has failed, and all clients were notified */
    gp_job_folder(s->options->paths, action->id, folder, sizeof(folder));
    if (action->kind == GP_JOBS_INSERT)
        status = gp_journal_insert(jobs->journal, action->number, action->job, jobs->submitting, &err);
    else if (action->kind == GP_JOBS_UPDATE)
        status = gp_journal_update(jobs->journal, action->number, action->job, &err);
    else
        status = gp_journal_delete(jobs->journal, action->number, action->id, folder, &err);
    if (status != GP_OK)
        pend(s, GP_JOBS_EVENT_JOURNAL_FAILED, 0, 0, status, err.message);
}

/* Execute one action of the state machine. */
static void act(void *context, const gp_jobs_action *action)
{
    shell *s = context;
    gp_job_process *process = find_process(s->jobs, action->id);
    const gp_jobs_job *job = action->job;
    gp_error err;

    switch (action->kind) {
    case GP_JOBS_INSERT:
    case GP_JOBS_UPDATE:
    case GP_JOBS_DELETE:
        write_row(s, action);
        break;
    case GP_JOBS_START:
        if (gp_journal_fetch(s->jobs->journal, action->id, action->attempt, &err) != GP_OK)
            pend(s, GP_JOBS_EVENT_UNBORN, action->id, action->attempt, err.code, err.message);
        break;
    case GP_JOBS_GO:
        gp_fault_point("job-going");
        if (process != NULL)
            gp_job_go(process);
        break;
    case GP_JOBS_DROP:
        if (process != NULL)
            gp_job_drop(process);
        break;
    case GP_JOBS_TERM:
        if (process != NULL)
            gp_job_signal(process, SIGTERM, false);
        break;
    case GP_JOBS_KILL:
        if (process != NULL)
            gp_job_signal(process, SIGKILL, true);
        break;
    case GP_JOBS_BROKEN:
        gp_log(GP_LOG_ERROR, "journal-failed", "jobs: %s", action->text);
        shell_jobs_end_watches(s, action->status, action->text);
        break;
    case GP_JOBS_CHANGED:
        /* thousands of jobs may arrive per second */
        if (job->durable != GP_JOBS_QUEUED || job->reason[0] != '\0')
            gp_log_event(GP_LOG_INFO, "job-state",
                         GP_LOG_WITH({ "job", .number = (int64_t)job->id },
                                     { "state", .text = gp_jobs_state_word(job->durable) }),
                         "%s%s%s", job->command, job->reason[0] != '\0' ? ": " : "", job->reason);
        shell_jobs_notify(s, action);
        break;
    default:
        shell_jobs_notify(s, action);
    }
}

/* ---- journal and process events ---- */

/* Spawn the job whose command the journal has fetched. */
static void handle_words(shell *s, gp_journal_report *report)
{
    gp_jobs_event event = { .kind = GP_JOBS_EVENT_SPAWNED, .job = report->job, .attempt = report->attempt };
    gp_job_process *process = find_process(s->jobs, 0);
    gp_error err;
    gp_status status = GP_OK;

    if (!gp_jobs_awaits(s->jobs->machine, report->job, report->attempt)) { /* canceled meanwhile */
        gp_journal_text_deinit(&report->words);
        return;
    }
    if (report->kind == GP_JOURNAL_UNFETCHED) {
        err = report->error;
        status = err.code;
    } else if (process == NULL) {
        status = gp_fail(&err, GP_EBUSY, "too many processes of earlier jobs have not exited yet");
    } else {
        status = gp_job_spawn(process, s->options->paths, report->job, report->attempt, &report->words,
                              s->options->files, &err);
    }
    gp_journal_text_deinit(&report->words);
    if (status == GP_OK) {
        event.pid = process->pid;
        event.start_time = process->start_time;
        memcpy(event.boot, s->jobs->boot, sizeof(event.boot));
        gp_log_event(GP_LOG_INFO, "job-started",
                     GP_LOG_WITH({ "job", .number = (int64_t)report->job },
                                 { "attempt", .number = report->attempt },
                                 { "process", .number = process->pid }),
                     "started a job");
        gp_fault_point("job-spawned");
    } else {
        if (process != NULL)
            *process = (gp_job_process){ .pidfd = -1, .gate = -1 };
        gp_log_event(GP_LOG_WARN, "job-unstarted", GP_LOG_WITH({ "job", .number = (int64_t)report->job }),
                     "cannot start a job: %s", err.message);
        event.kind = GP_JOBS_EVENT_UNBORN;
        event.status = status;
        event.text = err.message;
    }
    shell_jobs_step(s, &event);
}

static void handle_journal(shell *s)
{
    gp_journal_report report;

    for (;;) {
        gp_jobs_event event = { .kind = GP_JOBS_EVENT_PERSISTED };

        gp_journal_next(s->jobs->journal, &report);
        switch (report.kind) {
        case GP_JOURNAL_NOTHING:
            return;
        case GP_JOURNAL_PERSISTED:
            event.persisted = report.number;
            shell_jobs_step(s, &event);
            break;
        case GP_JOURNAL_FETCHED:
        case GP_JOURNAL_UNFETCHED:
            handle_words(s, &report);
            break;
        case GP_JOURNAL_FAILED:
            event.kind = GP_JOBS_EVENT_JOURNAL_FAILED;
            event.status = report.error.code;
            event.text = report.error.message;
            shell_jobs_step(s, &event);
            break;
        }
    }
}

uint64_t shell_jobs_lease(const shell *s, uint64_t job)
{
    for (int i = 0; job != 0 && i < SHELL_JOBS_PROCESSES_MAX; i++) {
        if (s->jobs->processes[i].job != job)
            continue;
        for (uint32_t l = 0; l < GP_CORE_SLOTS_MAX; l++)
            if (s->core->leases[l].id != 0 && s->core->leases[l].pid == s->jobs->processes[i].pid)
                return s->core->leases[l].id;
    }
    return 0;
}

/* Record the maximum number of workers that each job has held in the current attempt. Leases are
 * sampled here: when a lease is granted, when a client asks, and when the job ends. */
void shell_jobs_note_workers(shell *s)
{
    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++) {
        const gp_job_process *process = &s->jobs->processes[i];
        const gp_jobs_job *job = process->job != 0 ? gp_jobs_find(s->jobs->machine, process->job) : NULL;
        gp_jobs_event event = { .kind = GP_JOBS_EVENT_WORKERS, .job = process->job };

        if (job == NULL)
            continue;
        for (uint32_t l = 0; l < GP_CORE_SLOTS_MAX; l++)
            if (s->core->leases[l].id != 0 && s->core->leases[l].pid == process->pid)
                event.count += (uint32_t)__builtin_popcountll(s->core->leases[l].members);
        if (event.count > job->workers)
            shell_jobs_step(s, &event);
    }
}

bool shell_jobs_has_process(const shell *s, pid_t pid)
{
    const pid_t leader = getsid(pid);

    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++)
        if (s->jobs->processes[i].job != 0 && s->jobs->processes[i].pid == leader)
            return true;
    return false;
}

/* Pass the end of an attempt to the state machine. */
static void report_end(shell *s, uint64_t job, uint32_t attempt, const gp_job_end *end)
{
    gp_jobs_event event = { .kind = GP_JOBS_EVENT_ENDED,
                            .job = job,
                            .attempt = attempt,
                            .exit = end->exit,
                            .number = end->number,
                            .pool_lost = end->pool_lost,
                            .text = end->text };

    shell_jobs_step(s, &event);
}

/* ---- startup and shutdown ---- */

static gp_status load_row(void *context, const gp_jobs_job *row, gp_error *err)
{
    return gp_jobs_load(context, row, err);
}

/* Find the processes of jobs that ran under an earlier scheduler, or read how they ended. A job for
 * which the system refuses an answer keeps its state, because it may still run or be done; try
 * again later. */
static void find_orphans(shell *s)
{
    shell_jobs *jobs = s->jobs;
    const bool first = jobs->orphans_ms == 0;

    jobs->orphans_ms = 0;
    for (const gp_jobs_job *job = gp_jobs_after(jobs->machine, 0); job != NULL;
         job = gp_jobs_after(jobs->machine, job->id)) {
        gp_jobs_event event = { .kind = GP_JOBS_EVENT_ADOPTED, .job = job->id };
        gp_job_process *process = find_process(jobs, 0);
        gp_job_end end;
        gp_error err;
        gp_status status;

        if (!gp_jobs_orphaned(job) || find_process(jobs, job->id) != NULL)
            continue;
        status = process == NULL ? gp_fail(&err, GP_EBUSY, "too many processes of earlier jobs")
                                 : gp_job_adopt(process, job, &err);
        if (status == GP_OK) {
            gp_log_event(
                GP_LOG_INFO, "job-adopted",
                GP_LOG_WITH({ "job", .number = (int64_t)job->id }, { "process", .number = process->pid }),
                "the job is still running");
            shell_jobs_step(s, &event);
            continue;
        }
        const bool gone = status == GP_ENOENT;

        if (gone)
            status = gp_job_read_end(s->options->paths, job->id, job->attempts, &end, &err);
        if (status == GP_OK || (gone && job->cancel)) /* without a result, the job is canceled */
            report_end(s, job->id, job->attempts, &end);
        else
            jobs->orphans_ms = gp_now_ms() + RETRY_MS;
        if (status != GP_OK && first)
            gp_log_event(GP_LOG_WARN, "job-unknown", GP_LOG_WITH({ "job", .number = (int64_t)job->id }),
                         "%s; trying again", err.message);
    }
}

static gp_status new_machine(shell *s, gp_jobs **out, gp_error *err)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.capacity = 0; /* no job starts before the loop runs */
    if (s->owner.pid != 0)
        config.stop_ms = SHELL_OWNER_GRACE_MS;
    return gp_jobs_new(out, &config, act, s, err);
}

/* Replace the state machine. */
static void set_machine(shell_jobs *jobs, gp_jobs *machine)
{
    gp_jobs_free(jobs->machine);
    jobs->machine = machine;
    jobs->capacity = 0;
    jobs->orphans_ms = jobs->stop_ms = 0;
    jobs->held = false;
}

/* Open the journal and load it into a new state machine. */
static gp_status open_journal(shell *s, gp_error *err)
{
    char folders[GP_TEXT_FOLDER];
    gp_jobs *machine = NULL;
    gp_journal *journal = NULL;
    uint64_t next_id = 1, last_folder = 0;
    gp_status status;

    snprintf(folders, sizeof(folders), "%s/jobs", s->options->paths->state_dir);
    status = gp_directory_secure(folders, err);
    if (status == GP_OK)
        status = gp_journal_open(&journal, s->options->paths->state_dir, err);
    if (status == GP_OK)
        status = new_machine(s, &machine, err);
    if (status == GP_OK)
        status = gp_journal_load(journal, load_row, machine, &next_id, err);
    if (status == GP_OK)
        status = gp_job_folders_last(&last_folder, s->options->paths, err);
    if (status == GP_OK)
        status = gp_journal_start(journal, err);
    if (status != GP_OK) {
        gp_journal_close(journal);
        gp_jobs_free(machine);
        return status;
    }
    s->jobs->journal = journal;
    set_machine(s->jobs, machine);
    gp_jobs_begin(machine, next_id > last_folder ? next_id : last_folder + 1);
    find_orphans(s);
    return GP_OK;
}

/* Open the journal. If that fails, create a state machine that refuses requests with the reason.
 * GP_ENOMEM: out of memory. */
static gp_status open_jobs(shell *s, gp_error *err)
{
    gp_jobs_event failed = { .kind = GP_JOBS_EVENT_JOURNAL_FAILED };
    gp_jobs *machine;
    gp_error why;
    gp_status status;

    failed.status = open_journal(s, &why);
    s->jobs->retry_ms = failed.status == GP_EBUSY ? gp_now_ms() + RETRY_MS : 0;
    if (failed.status == GP_OK)
        return GP_OK;
    if (failed.status == GP_EBUSY && s->jobs->machine != NULL)
        return GP_OK; /* it refuses requests for this reason already */
    status = new_machine(s, &machine, err);
    if (status != GP_OK)
        return status;
    set_machine(s->jobs, machine);
    failed.text = why.message;
    shell_jobs_step(s, &failed);
    return GP_OK;
}

/* Open the journal once the process that had locked it has exited. That process is not a child, so
 * no event announces the exit. */
static void retry_journal(shell *s)
{
    shell_jobs *jobs = s->jobs;
    gp_error err;

    if (jobs->retry_ms == 0 || gp_now_ms() < jobs->retry_ms)
        return;
    if (open_jobs(s, &err) != GP_OK)
        jobs->retry_ms = gp_now_ms() + RETRY_MS;
    if (jobs->journal != NULL)
        gp_log(GP_LOG_INFO, "journal-opened", "the job journal is free; accepting jobs");
}

gp_status shell_jobs_open(shell *s, gp_error *err)
{
    shell_jobs *jobs = gp_calloc(1, sizeof(*jobs));

    if (jobs == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for jobs");
    s->jobs = jobs;
    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++)
        jobs->processes[i] = (gp_job_process){ .pidfd = -1, .gate = -1 };
    gp_job_boot(jobs->boot);
    return open_jobs(s, err);
}

void shell_jobs_close(shell *s)
{
    if (s->jobs == NULL)
        return;
    gp_journal_close(s->jobs->journal);
    gp_jobs_free(s->jobs->machine);
    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++)
        gp_job_process_deinit(&s->jobs->processes[i]);
    gp_free(s->jobs);
    s->jobs = NULL;
}

/* ---- poll loop ---- */

uint32_t shell_jobs_poll(const shell *s, struct pollfd fds[SHELL_JOBS_FDS_MAX])
{
    const shell_jobs *jobs = s->jobs;
    uint32_t count = 0;

    if (jobs->journal != NULL)
        fds[count++] = (struct pollfd){ .fd = gp_journal_fd(jobs->journal), .events = POLLIN };
    for (int i = 0; i < SHELL_JOBS_PROCESSES_MAX; i++) {
        if (jobs->processes[i].job != 0)
            fds[count++] = (struct pollfd){ .fd = jobs->processes[i].pidfd, .events = POLLIN };
    }
    return count;
}

/* Pass changes of the core to the job state machine and vice versa. */
static void synchronize(shell *s)
{
    shell_jobs *jobs = s->jobs;
    bool lock = s->core->stopping != GP_CORE_RUNNING || !s->core->accepting;
    bool stop = s->core->stopping == GP_CORE_STOPPING;
    gp_jobs_event event = { .kind = GP_JOBS_EVENT_HOLD, .count = lock };
    gp_core_event news = { .kind = GP_CORE_EVENT_JOBS };

    /* before the capacity of a new state machine, which starts jobs */
    if (lock != jobs->held) {
        jobs->held = lock;
        shell_jobs_step(s, &event);
    }
    if (s->core->slot_count != jobs->capacity) {
        jobs->capacity = s->core->slot_count;
        event.kind = GP_JOBS_EVENT_CAPACITY;
        event.count = s->core->slot_count;
        shell_jobs_step(s, &event);
    }
    if (stop && jobs->stop_ms == 0) {
        jobs->stop_ms = gp_now_ms();
        event.kind = GP_JOBS_EVENT_STOP;
        shell_jobs_step(s, &event);
        shell_jobs_end_watches(
            s, GP_ENOPOOL,
            "the pool is shutting down; unfinished jobs are queued and restart with the next pool");
    }
    news.holds = gp_jobs_busy(jobs->machine);
    if (news.holds != jobs->busy) {
        jobs->busy = news.holds;
        shell_step(s, &news);
    }
}

bool shell_jobs_finishing(const shell *s)
{
    shell_jobs *jobs = s->jobs;

    if (!gp_jobs_busy(jobs->machine))
        return false;
    if (jobs->orphans_ms == 0 || jobs->stop_ms == 0 || gp_now_ms() - jobs->stop_ms < SEARCH_MS)
        return true;
    /* Do not wait for jobs whose process is unknown: the next scheduler searches for them again. */
    for (const gp_jobs_job *job = gp_jobs_after(jobs->machine, 0); job != NULL;
         job = gp_jobs_after(jobs->machine, job->id))
        if (job->state == GP_JOBS_STARTING || (gp_jobs_orphaned(job) && find_process(jobs, job->id) != NULL))
            return true;
    return !gp_jobs_durable(jobs->machine);
}

void shell_jobs_serve(shell *s, const struct pollfd *fds, uint32_t count)
{
    gp_jobs_event tick = { .kind = GP_JOBS_EVENT_TICK };
    shell_jobs *jobs = s->jobs;
    gp_job_process ended;
    gp_job_end end;
    gp_status status;
    gp_error err;

    for (uint32_t i = 0; i < count; i++) {
        if (fds[i].revents == 0)
            continue;
        if (jobs->journal != NULL && fds[i].fd == gp_journal_fd(jobs->journal)) {
            handle_journal(s);
            continue;
        }
        for (int p = 0; p < SHELL_JOBS_PROCESSES_MAX; p++) {
            if (jobs->processes[p].job != 0 && jobs->processes[p].pidfd == fds[i].fd) {
                shell_jobs_note_workers(s);
                ended = jobs->processes[p];
                status = gp_job_reap(&jobs->processes[p], s->options->paths, &end, &err);
                if (status == GP_OK) {
                    gp_fault_point("job-reaped");
                    report_end(s, ended.job, ended.attempt, &end);
                } else if (status != GP_ESTATE) {
                    gp_log_event(GP_LOG_WARN, "job-unknown",
                                 GP_LOG_WITH({ "job", .number = (int64_t)ended.job }), "%s; trying again",
                                 err.message);
                    jobs->orphans_ms = gp_now_ms() + RETRY_MS;
                }
                break;
            }
        }
    }
    retry_journal(s);
    if (jobs->orphans_ms != 0 && gp_now_ms() >= jobs->orphans_ms)
        find_orphans(s);
    if (gp_now_ms() >= gp_jobs_due(jobs->machine))
        shell_jobs_step(s, &tick);
    shell_jobs_notify_missed(s);
    synchronize(s);
}
