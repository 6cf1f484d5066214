#include "worker/daemon/current_work.h"

#include <stdio.h>

/* Command properties: the work that a command starts (WORK_IDLE: none), and whether that work may
 * keep state for the next lease generation. */
static const struct {
    work_kind begins;
    bool keeps_state;
} commands[] = {
    [GP_COMMAND_TRAIN] = { WORK_TRAINING, true },
    [GP_COMMAND_PREPARE] = { WORK_PREPARING, true },
    [GP_COMMAND_PREDICT_BEGIN] = { WORK_PREDICTING, false },
    [GP_COMMAND_PREDICT_END] = { WORK_IDLE, false },
};

bool current_work_begins(gp_command_kind command)
{
    return commands[command].begins != WORK_IDLE;
}

void current_work_begin(current_work *work, gp_command_kind command, const gp_peer *peer,
                        const gp_envelope *request, uint32_t world)
{
    work->unclean = true;
    if (!current_work_begins(command))
        return;
    work->kind = commands[command].begins;
    work->keeps_state = commands[command].keeps_state;
    work->peer = *peer;
    work->envelope = gp_reply_envelope(request);
    work->world = world;
}

void current_work_end(current_work *work)
{
    work->kind = WORK_IDLE;
    work->lost_index = 0;
}

gp_status current_work_check(const current_work *work, uint32_t message, uint32_t worker, gp_error *err)
{
    static const char *const doing[] = { "idle", "training", "predicting", "running tasks", "preparing" };
    bool idle_needed =
        message == GP_ID(train_begin) || message == GP_ID(predict_begin) || message == GP_ID(task_open);

    if (idle_needed && work->kind != WORK_IDLE)
        return gp_fail(err, GP_ESTATE, "worker %u is %s: it runs one operation at a time", worker,
                       doing[work->kind]);
    if (!idle_needed && work->kind != WORK_PREDICTING)
        return gp_fail(err, GP_ESTATE, "no prediction is open; open one first");
    return GP_OK;
}

void current_work_explain(const current_work *work, gp_reply *reply, uint32_t worker)
{
    gp_train_done *done = &reply->body.train_done;
    gp_error_reply *error = &reply->body.error;

    if (reply->type == &gp_msg_error_reply)
        error->worker = worker;
    if (work->lost_index == 0)
        return;
    if (reply->type == &gp_msg_train_done && done->status != GP_OK) {
        done->status = GP_EPEER;
        done->stop_reason = GP_STOP_FAILED;
        snprintf(done->message, sizeof(done->message), "worker %u failed: %s", work->lost_index,
                 work->lost_cause);
    } else if (reply->type == &gp_msg_error_reply) {
        error->code = GP_EPEER;
        error->worker = work->lost_index;
        snprintf(error->message, sizeof(error->message), "worker %u failed: %s", work->lost_index,
                 work->lost_cause);
    }
}
