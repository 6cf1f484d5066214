#include "client/team/worker.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GP_TASK_NO_ABI
#include <gradpool/task.h>

#include "common/base/clock.h"
#include "proto/local/control_socket.h"

enum { CONTROL_SOCKET_MS = 2000 };

const char *worker_name(const team_worker *worker, uint32_t pid, char name[TEAM_NAME_BYTES])
{
    char in_pool[24] = "", process[20] = "";
    bool differs = worker->index != worker->number;

    if (differs)
        snprintf(in_pool, sizeof(in_pool), "%" PRIu32 " in the pool", worker->index);
    if (pid != 0)
        snprintf(process, sizeof(process), "%spid %" PRIu32, differs ? ", " : "", pid);
    snprintf(name, TEAM_NAME_BYTES, differs || pid != 0 ? "worker %" PRIu32 " (%s%s)" : "worker %" PRIu32,
             worker->number, in_pool, process);
    return name;
}

void worker_exit_text(const team_worker *worker, const char *doing, char *text, size_t bytes)
{
    const gp_worker_lost *report = &worker->exit_report;
    char name[TEAM_NAME_BYTES];

    worker_name(worker, worker->exit_pid, name);
    if (!worker->exit_known)
        snprintf(text, bytes, "%s exited%s for an unknown reason; its log is %s", name, doing,
                 worker->pool->grant.slots[worker->number - 1].log);
    else if (report->out_of_memory != 0)
        snprintf(text, bytes, "%s was killed because memory ran out%s; its log is %s", name, doing,
                 report->log);
    else if (report->signal > 0)
        snprintf(text, bytes, "%s was killed by signal %" PRId32 " (%s)%s; its log is %s", name,
                 report->signal,
                 sigdescr_np(report->signal) == NULL ? "unknown" : sigdescr_np(report->signal), doing,
                 report->log);
    else if (report->signal == 0 && report->exit_code >= 0)
        snprintf(text, bytes, "%s exited with code %" PRId32 "%s; its log is %s", name, report->exit_code,
                 doing, report->log);
    else
        snprintf(text, bytes, "%s ended%s: %s", name, doing, report->cause);
}

/* ---- stages ---- */

gp_status worker_connect(team_worker *worker, int wakeup_fd, bool output, gp_error *err)
{
    gp_pool *pool = worker->pool;
    gp_control_socket_request request = pool_control_request(pool, GP_CONTROL_SOCKET_SEGMENT);
    gp_task_open open = { .link_version = GP_LINK_VERSION, .task_abi = GP_TASK_ABI, .output = output };
    int segment = -1;

    worker_close(worker);
    worker->pid = pool->grant.slots[worker->number - 1].pid;
    gp_status status =
        pool_greet_worker(pool, worker->number - 1, &worker->control_socket, CONTROL_SOCKET_MS, err);

    if (status == GP_OK)
        status = gp_link_new(&worker->link, &segment, err);
    if (status == GP_OK)
        status = gp_control_socket_send_fd(worker->control_socket, &request, segment, err);
    request.what = GP_CONTROL_SOCKET_WAKEUP;
    if (status == GP_OK)
        status = gp_control_socket_send_fd(worker->control_socket, &request, wakeup_fd, err);
    if (segment >= 0)
        close(segment);
    if (status == GP_OK)
        status =
            pool_try_worker(pool, worker->number - 1, &gp_msg_task_open, &open, NULL, &worker->awaited, err);
    if (status == GP_OK)
        worker->stage = TEAM_OPENING;
    return status;
}

void worker_close(team_worker *worker)
{
    gp_link_free(worker->link);
    worker->link = NULL;
    if (worker->control_socket >= 0)
        close(worker->control_socket);
    worker->control_socket = -1;
    worker->held = worker->releasing = 0;
}

/* ---- requests ---- */

void worker_replace(team_worker *worker, const char *reason)
{
    gp_worker_replace request = { .index = worker->index, .incarnation = worker->incarnation };
    gp_error ignored;

    if (worker->stage == TEAM_DOWN)
        return;
    snprintf(request.reason, sizeof(request.reason), "%s", reason);
    pool_post(worker->pool, &gp_msg_worker_replace, &request, NULL, &ignored);
}

void worker_mark_corrupt(team_worker *worker, const char *what)
{
    char reason[GP_TEXT_REASON];

    if (worker->corrupt)
        return;
    worker->corrupt = true;
    snprintf(reason, sizeof(reason), "a task corrupted its memory: %.180s", what);
    worker_replace(worker, reason);
}

/* ---- receiving ---- */

bool worker_is_connected(const team_worker *worker)
{
    struct pollfd end = { .fd = worker->control_socket };

    return poll(&end, 1, 0) <= 0 || (end.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
}

gp_status worker_take_blob(team_worker *worker, uint64_t number, int *fd, gp_error *err)
{
    gp_control_socket_request request = { .lease = 0 };

    /* Blobs arrive in the order of their records. One without a record belongs to an item whose
     * task was canceled while it waited for space in the ring. */
    while (request.lease != number) {
        int received = -1;
        gp_status status = gp_control_socket_receive_fd(worker->control_socket, &request, &received, 0, err);

        if (status == GP_EIO)
            return status;
        if (status != GP_OK)
            return gp_fail(err, GP_EPROTO, "the worker did not send blob %" PRIu64, number);
        if (request.lease == number && received >= 0)
            *fd = received;
        else if (received >= 0)
            close(received);
        else
            return gp_fail(err, GP_EPROTO, "the worker sent blob %" PRIu64 " without a descriptor", number);
    }
    return GP_OK;
}

void worker_clock_bound(team_worker *worker, const gp_answer *answer)
{
    int64_t zero_ns = gp_now_ns() - (int64_t)(answer->ended_ns & INT64_MAX);

    if (answer->kind == GP_ANSWER_DONE && zero_ns < worker->clock_ns)
        worker->clock_ns = zero_ns;
}

void worker_clock_estimate(team_worker *worker, const gp_answer *answer, int64_t ran_ns, int64_t now_ns,
                           int64_t *begun_ns, int64_t *ended_ns)
{
    int64_t since_ns = (int64_t)(answer->ended_ns & INT64_MAX);

    *ended_ns = now_ns;
    if (worker->clock_ns >= 0 && since_ns <= now_ns - worker->clock_ns)
        *ended_ns = worker->clock_ns + since_ns;
    if (*ended_ns < worker->last_ns)
        *ended_ns = worker->last_ns;
    *begun_ns = ran_ns < *ended_ns - worker->last_ns ? *ended_ns - ran_ns : worker->last_ns;
    worker->last_ns = *ended_ns;
}
