/* control_tasks.c -- the client's tasks and commands: the link that compute serves, and the runner
 * process.
 *
 * `revoked`, and the grant_ack for another lease, are sent only after both have ended. The next
 * client on this worker therefore finds no process left by an earlier client's commands. */
#include <string.h>
#include <unistd.h>

#include "common/base/text/log.h"
#include "proto/local/runner_wire.h"
#include "proto/task/task_wire.h"
#include "worker/daemon/control_parts.h"
#include "worker/task/tasks.h"

/* ---- tasks ---- */

gp_status control_tasks_open(control *c, const gp_task_open *open, gp_error *err)
{
    client_link *link;
    gp_status status;

    if (open->link_version != GP_LINK_VERSION || open->task_abi != GP_TASK_ABI)
        return gp_fail(err, GP_EVERSION,
                       "version mismatch: the client has link version %u and task ABI %u, worker %u has %d "
                       "and %d; install the same version of gradpool on both sides",
                       open->link_version, open->task_abi, c->options->index, GP_LINK_VERSION, GP_TASK_ABI);
    control_serve_socket(c); /* receive the descriptors that the client sent before this message */
    link = client_fds_link(&c->fds);
    if (link == NULL)
        return gp_fail(err, GP_ESTATE, "worker %u did not receive the descriptors of the link",
                       c->options->index);
    status = gp_link_server_new(&c->server, link->segment, link->wakeup_fd,
                                gp_control_socket_peer_fd(c->control_socket, link->connection_id), c->mailbox,
                                !c->options->device->shared, err);
    if (status == GP_OK) {
        link->segment = link->wakeup_fd = -1;
        c->server_socket = link->connection_id;
        c->lease.client_left = false; /* the end of an earlier link may have been noticed after the attach */
    }
    client_link_close(link);
    if (status != GP_OK)
        return status;
    c->server->output = open->output != 0;
    atomic_store(&c->server->rank, c->lease.grant.rank);
    atomic_store(&c->server->size, c->lease.grant.members_count);
    gp_train_control_reset(&c->train);
    gp_run_offer(c->run, c->server);
    status = gp_mailbox_post(c->mailbox, GP_COMMAND_TASKS, NULL, err);
    if (status != GP_OK) {
        control_tasks_left(c);
        return status;
    }
    c->work.unclean = true;
    c->work.kind = WORK_TASKS;
    return GP_OK;
}

void control_tasks_left(control *c)
{
    if (c->server == NULL)
        return;
    c->recycle = c->recycle || atomic_load(&c->server->used) != 0;
    c->lease.client_left = true;
    gp_run_offer(c->run, NULL);

    /* notifies the client; compute has already closed the copy */
    gp_control_socket_drop(c->control_socket, c->server_socket);
    gp_link_server_free(c->server);
    c->server = NULL;
    c->server_socket = 0;
    if (c->work.kind == WORK_TASKS)
        current_work_end(&c->work);
}

/* Compute updates the running call before the communicator, so while the lock is held neither
 * can belong to a later block. */
void control_tasks_abort(control *c, uint64_t call)
{
    gp_train_control *train = &c->train;

    if (c->server == NULL)
        return;
    pthread_mutex_lock(&train->lock);
    if (train->comm != NULL && (call == 0 || gp_link_running(c->server->link) == call))
        gp_comm_abort(train->comm, train->generation);
    pthread_mutex_unlock(&train->lock);
}

int control_tasks_abandoned_fd(const control *c)
{
    return c->revoke.lease != 0 && c->server != NULL ? c->lease.client_pidfd : -1;
}

bool control_tasks_abandoned(const control *c)
{
    return control_tasks_abandoned_fd(c) >= 0 && gp_link_running(c->server->link) != 0 &&
           served_lease_client_exited(&c->lease);
}

/* ---- commands ---- */

gp_status control_run_open(control *c, gp_error *err)
{
    gp_status status;

    control_run_watch(c);
    if (c->runner != NULL && gp_runner_link_fresh(c->runner) && c->work.kind == WORK_TASKS)
        /* A repeated request: the first reply was lost with the link when the lease was renewed. */
        return GP_OK;
    if (c->runner != NULL)
        return gp_fail(err, GP_EBUSY, "worker %u is still stopping earlier commands; try again",
                       c->options->index);
    if (c->work.kind != WORK_IDLE)
        return gp_fail(err, GP_ESTATE, "worker %u is busy: it runs one operation at a time",
                       c->options->index);
    status = gp_runner_link_open(&c->runner, c->options->index, err);
    if (status == GP_OK)
        c->work.kind = WORK_TASKS;
    return status;
}

/* Reply with the client's end of the runner socket. A reply without a descriptor means refused. */
void control_run_fetch(control *c, uint64_t id, const gp_control_socket_request *request)
{
    gp_control_socket_request reply = { .what = GP_RUNNER_WHAT,
                                        .lease = c->lease.id,
                                        .generation = c->lease.generation };
    bool granted = c->runner != NULL && request->generation == c->lease.generation &&
                   served_lease_authorizes(&c->lease, request);
    int fd = granted ? gp_runner_link_take(c->runner) : -1;
    gp_error err;

    if (fd < 0)
        gp_log_event(GP_LOG_INFO, "runner-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)request->lease },
                                 { "generation", .number = request->generation }),
                     "rejected a request to the runner");
    if (gp_control_socket_send_fd(gp_control_socket_peer_fd(c->control_socket, id), &reply, fd, &err) !=
        GP_OK)
        gp_log(GP_LOG_INFO, "runner-unanswered", "cannot reply to a request to the runner: %s", err.message);
    if (fd >= 0)
        close(fd);
}

void control_run_watch(control *c)
{
    if (c->runner == NULL || !gp_runner_link_gone(c->runner))
        return;
    gp_runner_link_close(c->runner);
    c->runner = NULL;
    if (c->lease.resetting)
        control_reset_go(c);
    else if (c->work.kind == WORK_TASKS)
        current_work_end(&c->work);
}
