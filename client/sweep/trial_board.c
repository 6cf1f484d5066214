/* Implement trial_board.h. */
#include "client/sweep/trial_board.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "client/runs/run_reader.h"
#include "client/runs/tensorboard.h"
#include "client/sweep/sweep_points.h"

enum { PATH = SWEEP_PATH_MAX + 100 };

/* The curves of a trial. */
typedef struct curves {
    tensorboard *board;
    const char *objective;
    double now_s;
    int64_t step; /* of the line that is read */
    bool has_objective;
} curves;

/* Values of a trial as hyperparameters. */
typedef struct values {
    tensorboard_hparam list[GP_SEARCH_PARAMETERS_MAX];
    uint32_t count;
} values;

static gp_status add_value(void *context, const char *name, const gp_json *value, gp_error *err)
{
    values *v = context;
    const char *text = gp_json_text(value, NULL);
    const bool boolean = gp_json_is_bool(value);
    (void)err;

    if (v->count < GP_SEARCH_PARAMETERS_MAX)
        v->list[v->count++] =
            (tensorboard_hparam){ .name = name,
                                  .type = text != NULL ? TENSORBOARD_TEXT
                                          : boolean    ? TENSORBOARD_BOOL
                                                       : TENSORBOARD_NUMBER,
                                  .number = boolean ? gp_json_bool(value, false) : gp_json_number(value, NAN),
                                  .text = text };
    return GP_OK;
}

/* Add a member of a line to its curve, if it is a number. */
static gp_status add_point(void *context, const char *name, const gp_json *value, gp_error *err)
{
    curves *c = context;
    (void)err;

    if (!gp_json_is_number(value) || strcmp(name, "step") == 0 || strcmp(name, "epoch") == 0)
        return GP_OK;
    c->has_objective |= strcmp(name, c->objective) == 0;
    tensorboard_scalar(c->board, name, c->step, c->now_s, gp_json_number(value, NAN));
    return GP_OK;
}

/* Add the lines of metrics.jsonl. Without a step, the number of the line counts. */
static void add_curves(curves *c, const char *folder)
{
    run_lines *lines = run_lines_new(folder, "metrics.jsonl");
    const char *text;
    size_t bytes;

    for (int64_t number = 1; lines != NULL && (text = run_lines_next(lines, &bytes)) != NULL; number++) {
        run_line line;

        if (!run_line_parse(&line, text, bytes))
            continue;
        c->step = gp_json_integer(gp_json_member(line.json, "step"),
                                  gp_json_integer(gp_json_member(line.json, "epoch"), number));
        gp_json_each(line.json, add_point, c, NULL);
        run_line_deinit(&line);
    }
    run_lines_free(lines);
}

void trial_board_write(const sweep_folder *folder, const sweep_plan *plan, uint32_t number,
                       const sweep_trial *trial)
{
    const char *const metrics[] = { plan->objective };
    const bool succeeded = trial->state == SWEEP_DONE || trial->state == SWEEP_STOPPED;
    curves c = { .objective = plan->objective, .now_s = (double)time(NULL) };
    char path[PATH];
    gp_json *json = NULL;
    values v = { .count = 0 };
    int problem;

    sweep_folder_trial(folder, number, NULL, path);
    if (gp_json_parse(&json, trial->values, strlen(trial->values), NULL) == GP_OK &&
        tensorboard_open(&c.board, path, NULL) == GP_OK) {
        gp_json_each(json, add_value, &v, NULL);
        tensorboard_hparams(c.board, path, c.now_s, v.list, v.count, metrics, 1);
        add_curves(&c, path);
        if (!c.has_objective && isfinite(trial->value))
            tensorboard_scalar(c.board, plan->objective, trial->epoch, c.now_s, trial->value);
        tensorboard_end_session(c.board, c.now_s, succeeded ? TENSORBOARD_SUCCEEDED : TENSORBOARD_FAILED);
        tensorboard_close(c.board, &problem);
    }
    gp_json_free(json);
}
