#include "worker/exec/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "proto/local/runner_wire.h"
#include "worker/exec/descendants.h"
#include "worker/exec/runner_start.h"

enum {
    ANSWERS_MAX = 2 * GP_RUNNER_JOBS_MAX + 8, /* STARTED and ENDED for each job, and refusals */
    END_TIMEOUT_MS = 60000,                   /* wait for processes that sleep in the kernel */
    /* wait for a live client to receive the last replies */
    REPORT_MS = 1000,
    EXIT_FAILED = 1,
};

/* A running command. */
typedef struct job {
    uint64_t id; /* 0: free slot */
    pid_t pid;
    int64_t started_ns;
    /* the client requested a kill; other group members are killed when the command exits */
    bool killed;
    int64_t kill_ms; /* when SIGKILL follows SIGTERM; 0: never */
    int signal;      /* signal to send; 0: none */
} job;

/* Runner process state. */
typedef struct runner {
    int client, worker, signals;
    job jobs[GP_RUNNER_JOBS_MAX];
    uint32_t running;
    /* ring buffer of replies that the client has not received yet */
    gp_runner_answer answers[ANSWERS_MAX];
    uint32_t answer_first, answer_count;
} runner;

/* ---- replies ---- */

static gp_runner_answer *answer_add(runner *r, gp_runner_event kind, uint64_t id)
{
    gp_runner_answer *answer = &r->answers[(r->answer_first + r->answer_count) % ANSWERS_MAX];

    r->answer_count++;
    *answer = (gp_runner_answer){ .kind = kind, .job = id };
    return answer;
}

/* Return true if another request can be accepted. Each request adds at most one reply now and one
 * when the command exits. */
static bool answers_have_room(const runner *r)
{
    return r->answer_count + r->running + 2 <= ANSWERS_MAX;
}

/* Send queued replies until the socket is full. false: the client disconnected. */
static bool answers_send(runner *r)
{
    while (r->answer_count > 0) {
        gp_status status = gp_runner_answer_send(r->client, &r->answers[r->answer_first], NULL);

        if (status == GP_EBUSY)
            return true;
        if (status != GP_OK)
            return false;
        r->answer_first = (r->answer_first + 1) % ANSWERS_MAX;
        r->answer_count--;
    }
    return true;
}

/* ---- jobs ---- */

static job *job_find(runner *r, uint64_t id)
{
    for (size_t i = 0; i < GP_RUNNER_JOBS_MAX; i++)
        if (r->jobs[i].id == id)
            return &r->jobs[i];
    return NULL;
}

/* Start a command and queue a STARTED reply. On failure, *exit_code is the exit code that a shell
 * would report. */
static gp_status job_start(runner *r, const gp_runner_request *request, const int fds[GP_RUNNER_FDS],
                           int *exit_code, gp_error *err)
{
    gp_runner_spec spec;
    void *memory = NULL;
    job *place = job_find(r, 0);
    int64_t started_ns;
    pid_t pid = 0;

    gp_fault_point("command-begin");
    *exit_code = 126;
    if (job_find(r, request->job) != NULL)
        return gp_fail(err, GP_EINVAL, "job %llu is already running", (unsigned long long)request->job);
    if (place == NULL)
        return gp_fail(err, GP_ELIMIT, "the worker has reached its limit of %d running commands",
                       GP_RUNNER_JOBS_MAX);
    gp_status status = gp_runner_spec_read(&spec, &memory, fds[0], request->spec_bytes, err);

    started_ns = gp_now_ns();
    if (status == GP_OK)
        status = gp_runner_start(&pid, exit_code, &spec, fds + 1, err);
    if (status == GP_OK) {
        *place = (job){ .id = request->job, .pid = pid, .started_ns = started_ns };
        r->running++;
        gp_fault_point("command-started");
        answer_add(r, GP_RUNNER_STARTED, request->job)->pid = (uint32_t)pid;
    }
    gp_free(memory);
    return status;
}

/* Schedule the signals that kill a job: SIGTERM, then SIGKILL after grace_ms. 0: SIGKILL at
 * once. */
static void job_kill(job *j, uint32_t grace_ms)
{
    j->killed = true;
    j->kill_ms = grace_ms > 0 ? gp_now_ms() + grace_ms : 0;
    j->signal = grace_ms > 0 ? SIGTERM : SIGKILL;
}

/* Send `number` to all jobs that are due, with one /proc snapshot. The jobs are not reaped yet, so
 * their PIDs cannot be reused. */
static void jobs_signal(runner *r, int number)
{
    pid_t leaders[GP_RUNNER_JOBS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < GP_RUNNER_JOBS_MAX; i++)
        if (r->jobs[i].id != 0 && r->jobs[i].signal == number) {
            leaders[count++] = r->jobs[i].pid;
            r->jobs[i].signal = 0;
        }
    if (count == 0)
        return;
    gp_descendants_signal_trees(leaders, count, number);
    for (size_t i = 0; i < count; i++)
        kill(-leaders[i], SIGCONT); /* a stopped process handles no signal before it continues */
}

static double timeval_seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Queue an ENDED reply and free the slot. */
static void job_end(runner *r, job *j, int status, const struct rusage *usage)
{
    gp_runner_answer *answer = answer_add(r, GP_RUNNER_ENDED, j->id);

    gp_fault_point("command-ended");
    answer->pid = (uint32_t)j->pid;
    answer->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    answer->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    answer->core = WIFSIGNALED(status) && WCOREDUMP(status);
    answer->seconds = (double)(gp_now_ns() - j->started_ns) * 1e-9;
    answer->user_seconds = timeval_seconds(usage->ru_utime);
    answer->system_seconds = timeval_seconds(usage->ru_stime);
    answer->rss_bytes = (uint64_t)usage->ru_maxrss * 1024;
    *j = (job){ 0 };
    r->running--;
}

/* Reap all children that exited: commands, and orphaned descendants of commands. */
static void jobs_reap(runner *r)
{
    for (;;) {
        siginfo_t info = { .si_pid = 0 };
        struct rusage usage;
        int status;
        job *j = NULL;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        for (size_t i = 0; i < GP_RUNNER_JOBS_MAX && j == NULL; i++)
            if (r->jobs[i].id != 0 && r->jobs[i].pid == info.si_pid)
                j = &r->jobs[i];
        if (j != NULL && j->killed)
            /* Kill group members that ignored SIGTERM. The leader is not reaped yet, so the group
             * ID cannot be reused. */
            kill(-j->pid, SIGKILL);
        if (wait4(info.si_pid, &status, 0, &usage) != info.si_pid)
            return;
        if (j != NULL)
            job_end(r, j, status, &usage);
    }
}

/* ---- requests ---- */

/* Serve pending requests. false: the client disconnected or sent a malformed request. */
static bool requests_serve(runner *r)
{
    while (answers_have_room(r)) {
        gp_runner_request request;
        int fds[GP_RUNNER_FDS], exit_code;
        uint32_t fd_count;
        gp_error err;
        gp_status status = gp_runner_ask_receive(r->client, &request, fds, &fd_count, &err);
        job *j;

        if (status == GP_ETIMEDOUT)
            return true;
        if (status != GP_OK) {
            if (status != GP_EPEER)
                gp_log(GP_LOG_WARN, "client-damaged", "malformed request from the client: %s", err.message);
            return false;
        }
        if (request.kind == GP_RUNNER_START && job_start(r, &request, fds, &exit_code, &err) != GP_OK) {
            gp_runner_answer *answer = answer_add(r, GP_RUNNER_FAILED, request.job);

            answer->status = err.code;
            answer->exit_code = exit_code;
            snprintf(answer->text, sizeof(answer->text), "%.*s", (int)sizeof(answer->text) - 1, err.message);
        }
        j = request.kind == GP_RUNNER_KILL ? job_find(r, request.job) : NULL;
        if (j != NULL) /* NULL: the job has just ended */
            job_kill(j, request.grace_ms);
        for (uint32_t i = 0; i < fd_count; i++)
            close(fds[i]);
    }
    return true;
}

/* ---- process ---- */

static void runner_loop(runner *r)
{
    int timeout_ms = -1;
    for (bool alive = true; alive;) {
        struct pollfd fds[] = {
            { .fd = r->client,
              .events = (short)((answers_have_room(r) ? POLLIN : 0) | (r->answer_count > 0 ? POLLOUT : 0)) },
            { .fd = r->worker, .events = POLLIN },
            { .fd = r->signals, .events = POLLIN },
        };
        struct signalfd_siginfo info;

        poll(fds, sizeof(fds) / sizeof(fds[0]), timeout_ms);
        while (fds[2].revents != 0 && read(r->signals, &info, sizeof(info)) == sizeof(info))
            alive = alive && info.ssi_signo != SIGTERM;
        jobs_reap(r);
        alive = alive && fds[1].revents == 0;
        alive = alive && requests_serve(r);
        /* Send SIGKILL to the jobs whose grace period is over, and wait until the next is due. */
        const int64_t now = gp_now_ms();

        timeout_ms = -1;
        for (job *j = r->jobs; j < r->jobs + GP_RUNNER_JOBS_MAX; j++)
            if (j->kill_ms != 0 && j->kill_ms <= now)
                job_kill(j, 0);
            else if (j->kill_ms != 0 && (timeout_ms < 0 || j->kill_ms - now < timeout_ms))
                timeout_ms = (int)(j->kill_ms - now);
        jobs_signal(r, SIGTERM);
        jobs_signal(r, SIGKILL);
        alive = alive && answers_send(r) && (fds[0].revents & (POLLHUP | POLLERR)) == 0;
    }
}

/* Report a command that exited before the runner killed it, so that the client does not repeat it
 * elsewhere. */
static void end_reaped(void *context, pid_t pid, int status)
{
    runner *r = context;
    struct rusage none = { 0 };

    for (size_t i = 0; i < GP_RUNNER_JOBS_MAX; i++)
        if (r->jobs[i].id != 0 && r->jobs[i].pid == pid && WIFEXITED(status))
            job_end(r, &r->jobs[i], status, &none);
}

int gp_runner_main(int client, int worker)
{
    runner *r = gp_calloc(1, sizeof(*r));
    sigset_t all, heard;
    int64_t deadline;

    if (r == NULL)
        return EXIT_FAILED;
    r->client = client;
    r->worker = worker;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&heard);
    sigaddset(&heard, SIGCHLD);
    sigaddset(&heard, SIGTERM);
    r->signals = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
        fcntl(r->client, F_SETFD, FD_CLOEXEC) != 0 || fcntl(r->worker, F_SETFD, FD_CLOEXEC) != 0) {
        gp_log(GP_LOG_ERROR, "runner-failed", "cannot start the runner: %s", strerror(errno));
        gp_free(r);
        return EXIT_FAILED;
    }
    runner_loop(r);
    /* Kill all descendants and send the last replies. The client's socket stays open until then:
     * end of file notifies the client that no process is left. Kill the commands first: a shell
     * whose child is killed would continue with the next command or exit normally. */
    for (size_t i = 0; i < GP_RUNNER_JOBS_MAX; i++)
        if (r->jobs[i].id != 0)
            kill(-r->jobs[i].pid, SIGKILL);
    if (!gp_descendants_end(END_TIMEOUT_MS, end_reaped, r))
        gp_log(GP_LOG_WARN, "process-hangs",
               "a process of a command does not exit after SIGKILL: it hangs in the kernel");
    deadline = gp_now_ms() + REPORT_MS;
    while (answers_send(r) && r->answer_count > 0 && gp_now_ms() < deadline)
        poll(&(struct pollfd){ .fd = r->client, .events = POLLOUT }, 1, 100);
    gp_free(r);
    return 0;
}
