#include "client/runs/run_board.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/runs/metrics_line.h"
#include "client/runs/tensorboard.h"
#include "common/base/memory/alloc.h"

/* STEP_MS: shortest interval between two steps in the file, without RUN_BOARD_STEPS. FLUSH_MS: how
 * long events may stay in memory. */
enum { STEP_MS = 500, FLUSH_MS = 1000, WORKERS_MAX = 256, OPTIONS_MAX = 200 };

/* Phase times of one worker since they were last written. */
typedef struct phase_sums {
    uint64_t steps;
    double ms[STEP_PHASES];
} phase_sums;

struct run_board {
    tensorboard *file;
    bool every_step;
    int64_t step_ms, phases_ms, flushed_ms; /* when steps and phases were written and flushed; 0: not yet */
    uint64_t samples;                       /* of all workers since step_ms */
    uint64_t last_step;
    phase_sums sums[WORKERS_MAX + 1];
};

static double wall_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- options ---- */

/* Write the effective options as a text with a table. */
static void write_text(run_board *board, const char *network, const char *data,
                       const gp_train_options *options)
{
    gp_buffer text;
    char value[1024];

    gp_buffer_init(&text, TENSORBOARD_TEXT_MAX);
    gp_buffer_printf(&text, NULL, "| option | value |\n|---|---|\n| network | %s |\n| data | %s |\n", network,
                     data);
    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++)
        gp_buffer_printf(&text, NULL, "| %s | %s |\n", param->name,
                         gp_params_format(param, options, value, sizeof(value)));
    tensorboard_text(board->file, "options", 0, wall_s(), gp_buffer_text(&text));
    gp_buffer_deinit(&text);
}

/* Convert an option to a hyperparameter.
 *   text  memory for the value of a word or a list */
static tensorboard_hparam hparam_of(const gp_param *param, const gp_train_options *options, char *text,
                                    size_t bytes)
{
    const void *at = (const char *)options + param->offset;
    tensorboard_hparam out = { .name = param->name, .type = TENSORBOARD_NUMBER, .text = text };

    if (param->type == GP_PARAM_BOOL) {
        out.type = TENSORBOARD_BOOL;
        out.number = *(const bool *)at;
    } else if (param->type == GP_PARAM_I64 && param->count <= 1) {
        out.number = (double)*(const int64_t *)at;
    } else if (param->type == GP_PARAM_F64 && param->count <= 1) {
        out.number = *(const double *)at;
    } else {
        out.type = TENSORBOARD_TEXT;
        gp_params_format(param, options, text, bytes);
    }
    return out;
}

/* Write the hyperparameters: network, data, and all options but free texts, such as paths. */
static void write_hparams(run_board *board, const char *folder, const char *network, const char *data,
                          const gp_train_options *options)
{
    /* a training has an accuracy or an rmse; the other column stays empty */
    static const char *const metrics[] = { "loss/validation", "accuracy/validation", "rmse/validation",
                                           "loss/train" };
    char values[OPTIONS_MAX][32];
    tensorboard_hparam hparams[OPTIONS_MAX + 2] = {
        { .name = "network", .type = TENSORBOARD_TEXT, .text = network },
        { .name = "data", .type = TENSORBOARD_TEXT, .text = data },
    };
    uint32_t count = 2;

    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++)
        if (param->type != GP_PARAM_TEXT && count < OPTIONS_MAX) {
            hparams[count] = hparam_of(param, options, values[count], sizeof(values[count]));
            count++;
        }
    tensorboard_hparams(board->file, folder, wall_s(), hparams, count, metrics, 4);
}

gp_status run_board_open(run_board **out, const char *folder, run_board_mode mode, const char *network,
                         const char *data, const gp_train_options *options, uint64_t first, gp_error *err)
{
    run_board *board = NULL;
    gp_status status;

    *out = NULL;
    if (mode == RUN_BOARD_NONE)
        return GP_OK;
    board = gp_calloc(1, sizeof(*board));
    if (board == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the TensorBoard file");
    status = tensorboard_open(&board->file, folder, err);
    if (status != GP_OK) {
        gp_free(board);
        return status;
    }
    board->every_step = mode == RUN_BOARD_STEPS;
    if (first > 0)
        tensorboard_resume(board->file, (int64_t)first, wall_s());
    write_text(board, network, data, options);
    write_hparams(board, folder, network, data, options);
    tensorboard_flush(board->file);
    *out = board;
    return GP_OK;
}

/* ---- curves ---- */

/* Write a value, unless the training does not have it. */
static void scalar(run_board *board, const char *tag, uint64_t step, double now_s, double value, bool exists)
{
    if (exists)
        tensorboard_scalar(board->file, tag, (int64_t)step, now_s, value);
}

/* Write the mean phase times of each worker, and begin new sums. */
static void write_phases(run_board *board, uint64_t step, double now_s)
{
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++) {
        phase_sums *sums = &board->sums[worker];

        for (int phase = 0; phase < STEP_PHASES && sums->steps > 0; phase++) {
            char tag[40];

            snprintf(tag, sizeof(tag), "worker-%" PRIu32 "/%s_ms", worker, step_phase_names[phase]);
            tensorboard_scalar(board->file, tag, (int64_t)step, now_s, sums->ms[phase] / (double)sums->steps);
        }
        *sums = (phase_sums){ 0 };
    }
}

/* Write a step of rank 0, if one is due. */
static void write_step(run_board *board, const gp_train_step *step, int64_t now_ms)
{
    const double now_s = wall_s();
    const int64_t elapsed_ms = now_ms - board->step_ms;
    uint32_t workers = 0;

    if (board->step_ms != 0 && !board->every_step && elapsed_ms < STEP_MS)
        return;
    scalar(board, "loss/train", step->step, now_s, step->loss, true);
    scalar(board, "accuracy/train", step->step, now_s, step->accuracy, !isnan(step->accuracy));
    scalar(board, "rmse/train", step->step, now_s, step->rmse, !isnan(step->rmse));
    scalar(board, "learn_rate", step->step, now_s, step->learn_rate, true);
    scalar(board, "images_per_second", step->step, now_s, (double)board->samples * 1e3 / (double)elapsed_ms,
           board->step_ms != 0 && elapsed_ms > 0);
    board->step_ms = now_ms;
    board->samples = 0;
    for (uint32_t worker = 0; worker <= WORKERS_MAX; worker++)
        workers += board->sums[worker].steps > 0;
    if (board->every_step || now_ms - board->phases_ms >= STEP_MS * (int64_t)(workers + 1)) {
        write_phases(board, step->step, now_s);
        board->phases_ms = now_ms;
    }
}

static void flush_if_due(run_board *board, int64_t now_ms)
{
    if (now_ms - board->flushed_ms < FLUSH_MS)
        return;
    tensorboard_flush(board->file);
    board->flushed_ms = now_ms;
}

void run_board_step(run_board *board, const gp_train_step *step, int64_t now_ms)
{
    phase_sums *sums = &board->sums[step->worker <= WORKERS_MAX ? step->worker : 0];

    sums->steps++;
    step_phases_add(sums->ms, step);
    board->samples += step->samples;
    if (step->rank != 0)
        return;
    board->last_step = step->step;
    write_step(board, step, now_ms);
    flush_if_due(board, now_ms);
}

void run_board_validation(run_board *board, const gp_train_validation_result *v)
{
    const double now_s = wall_s();

    scalar(board, "loss/validation", v->step, now_s, v->loss, true);
    scalar(board, "accuracy/validation", v->step, now_s, v->accuracy, !isnan(v->accuracy));
    scalar(board, "rmse/validation", v->step, now_s, v->rmse, !isnan(v->rmse));
    tensorboard_flush(board->file);
}

uint64_t run_board_close(run_board *board, bool succeeded, int *problem)
{
    uint64_t lost;

    if (board == NULL)
        return 0;
    write_phases(board, board->last_step, wall_s());
    tensorboard_end_session(board->file, wall_s(), succeeded ? TENSORBOARD_SUCCEEDED : TENSORBOARD_FAILED);
    lost = tensorboard_close(board->file, problem);
    gp_free(board);
    return lost;
}
