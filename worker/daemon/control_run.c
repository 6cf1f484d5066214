/* control_run.c -- the runner beside us: opened for the client of the lease, gone before the lease is.
 *
 * `revoked`, and the acknowledgement of a grant that follows another lease, wait for it: who gets this worker next
 * finds nothing running that an earlier client's commands left. */
#include <string.h>
#include <unistd.h>

#include "common/base/text/log.h"
#include "proto/local/runner_wire.h"
#include "worker/daemon/control_parts.h"

gp_status control_run_open(control *c, gp_error *err)
{
    control_run_watch(c);
    if (c->runner != NULL && gp_runner_link_fresh(c->runner) && c->work == WORK_TASKS)
        return GP_OK; /* asked again: the first answer was lost with its link when the lease was renewed */
    if (c->runner != NULL)
        return gp_fail(err, GP_EBUSY, "worker %u still ends the commands that ran before; try again",
                       c->options->index);
    if (c->work != WORK_IDLE)
        return gp_fail(err, GP_ESTATE, "worker %u is busy; one run at a time", c->options->index);
    gp_status status = gp_runner_link_open(&c->runner, c->options->index, err);

    if (status == GP_OK)
        c->work = WORK_TASKS;
    return status;
}

/* The client asks for its end of the runner's socket; an answer without a descriptor is a refusal. */
void control_run_fetch(control *c, uint64_t id, const gp_door_request *request)
{
    gp_door_request answer = { .what = GP_RUNNER_WHAT, .lease = c->lease, .generation = c->generation };
    bool ours = c->runner != NULL && !c->resetting && request->lease == c->lease &&
                request->generation == c->generation &&
                memcmp(request->token, c->grant.token, sizeof(request->token)) == 0;
    int fd = ours ? gp_runner_link_take(c->runner) : -1;
    gp_error err;

    if (fd < 0)
        gp_log_event(GP_LOG_INFO, "runner-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)request->lease },
                                 { "generation", .number = request->generation }),
                     "turned a request for the runner away");
    if (gp_door_send_fd(gp_door_peer_fd(c->door, id), &answer, fd, &err) != GP_OK)
        gp_log(GP_LOG_INFO, "runner-unanswered", "a request for the runner was not answered: %s",
               err.message);
    if (fd >= 0)
        close(fd);
}

void control_run_end(control *c)
{
    if (c->runner != NULL)
        gp_runner_link_end(c->runner);
}

void control_run_watch(control *c)
{
    if (c->runner == NULL || !gp_runner_link_gone(c->runner))
        return;
    gp_runner_link_close(c->runner);
    c->runner = NULL;
    if (c->resetting)
        control_reset_go(c);
    else if (c->work == WORK_TASKS)
        c->work = WORK_IDLE; /* the client is done with it */
}
