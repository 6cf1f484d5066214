/* The search of a sweep; sweep_points.h describes the interface. */
#include "client/sweep/sweep_points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradpool/gradpool.h>

#include "client/sweep/sweep_command.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/params.h"
#include "common/base/text/text.h"
#include "common/model/train_options.h"
#include "common/search/search_state.h"

gp_search_type sweep_points_type(void *context, const char *name)
{
    const gp_param *param = gp_params_find(gp_train_options_table, name);

    (void)context;
    return param == NULL                 ? GP_SEARCH_UNTYPED
           : param->type == GP_PARAM_I64 ? GP_SEARCH_INTEGER
           : param->type == GP_PARAM_F64 ? GP_SEARCH_REAL
                                         : GP_SEARCH_UNTYPED;
}

bool sweep_points_is_epochs(const char *name)
{
    return gp_params_find(gp_train_options_table, name) ==
           gp_params_find(gp_train_options_table, "max-epochs");
}

double sweep_points_epochs(const sweep_plan *plan)
{
    double count = gp_params_find(gp_train_options_table, "max-epochs")->fallback;
    char name[SWEEP_PLACE_BYTES];

    for (const char *word = NULL; (word = sweep_plan_next(plan, word)) != NULL;) {
        const char *value = strchr(word, '=');

        if (!sweep_option_name(name, word))
            continue;
        value = value != NULL ? value + 1 : sweep_plan_next(plan, word);
        if (sweep_points_is_epochs(name))
            count = value != NULL ? strtod(value, NULL) : 0;
    }
    return count;
}

gp_status sweep_points_new(sweep_points **out, const sweep_plan *plan, gp_error *err)
{
    const gp_search_options options = { .method = plan->method,
                                        .seed = plan->seed,
                                        .minimize = plan->minimize,
                                        .trials_max = SWEEP_TRIALS_MAX,
                                        .asha_eta = plan->asha_eta,
                                        .epochs_min = plan->epochs_min,
                                        .epochs_max = plan->epochs_max,
                                        .type_of = sweep_plan_trains(plan) ? sweep_points_type : NULL };
    sweep_points *points = gp_calloc(1, sizeof(*points));
    gp_status status;

    if (points == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a search");
    points->asha_eta = plan->asha_eta;
    points->epochs_min = plan->epochs_min > 0 ? plan->epochs_min : 1;
    points->epochs_max = plan->epochs_max;
    points->command_epochs = sweep_plan_trains(plan) ? sweep_points_epochs(plan) : INFINITY;
    status = gp_search_new(&points->search, gp_buffer_text(&plan->space), &options, err);
    if (status != GP_OK) {
        gp_free(points);
        return status;
    }
    search_set_planned(points->search, plan->trials);
    *out = points;
    return GP_OK;
}

void sweep_points_free(sweep_points *points)
{
    if (points == NULL)
        return;
    gp_search_free(points->search);
    gp_buffer_free(points->values);
    gp_free(points);
}

char *sweep_points_importance(sweep_points *points)
{
    char *importance = NULL;

    return gp_search_importance(points->search, &importance, NULL) == GP_OK ? importance : NULL;
}

/* ---- values of a trial ---- */

gp_status sweep_points_space(gp_space **out, const sweep_plan *plan, gp_error *err)
{
    return gp_space_parse(out, gp_buffer_text(&plan->space),
                          sweep_plan_trains(plan) ? sweep_points_type : NULL, NULL, err);
}

gp_status sweep_point_read(sweep_point *out, const gp_space *space, const char *values, gp_error *err)
{
    gp_status status = gp_space_point_parse(space, values, out->value, err);

    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        out->applies[i] = gp_space_applies(&space->parameters[i], out->value, out->applies);
    return status;
}

const char *sweep_point_text(const sweep_point *point, const gp_space *space, uint32_t parameter,
                             char number[GP_NUMBER_BYTES])
{
    const gp_space_parameter *p = &space->parameters[parameter];

    if (!point->applies[parameter])
        return "";
    if (p->kind == GP_SPACE_LIST)
        return p->values[(uint32_t)point->value[parameter]].text;
    return gp_digits_text(point->value[parameter], number);
}

/* ---- interface of the state machine ---- */

/* Set the epochs of a trial from its parameter for them. */
static gp_status take_epochs(void *context, const char *name, const gp_json *value, gp_error *err)
{
    (void)err;
    if (sweep_points_is_epochs(name))
        *(double *)context = gp_json_number(value, *(double *)context);
    return GP_OK;
}

/* Set the epochs of the training of a trial. */
static void put_length(sweep_points *points, uint32_t trial, const char *values)
{
    gp_json *json = NULL;

    points->length[trial] = points->command_epochs;
    if (!isinf(points->command_epochs) && gp_json_parse(&json, values, strlen(values), NULL) == GP_OK)
        gp_json_each(json, take_epochs, &points->length[trial], NULL);
    gp_json_free(json);
}

static gp_status points_ask(void *context, const char **values, gp_error *err)
{
    sweep_points *points = context;
    uint32_t trial;
    char *next;
    gp_status status = gp_search_ask(points->search, &trial, &next, err);

    if (status != GP_OK)
        return status;
    gp_buffer_free(points->values);
    points->values = next;
    *values = next;
    put_length(points, trial, next);
    return GP_OK;
}

static gp_status points_add(void *context, const char *values, bool extra, gp_error *err)
{
    sweep_points *points = context;
    uint32_t trial;
    gp_status status = gp_search_add(points->search, values, &trial, err);

    if (status != GP_OK)
        return status;
    put_length(points, trial, values);
    if (extra)
        search_set_planned(points->search, points->search->planned + 1);
    return GP_OK;
}

/* Return whether a trial has reached a rung since epoch `before`. */
static bool is_rung(const sweep_points *points, uint32_t before, uint32_t epoch)
{
    for (uint64_t rung = points->epochs_min; rung < points->epochs_max && rung <= epoch;
         rung *= points->asha_eta)
        if (rung > before)
            return true;
    return false;
}

/* Report a value to the search if the trial has reached a rung. Other values decide nothing, and
 * would only make the journal longer. A trial whose last epoch is a rung is complete: the others
 * are compared with it, but it is not stopped. */
static sweep_verdict points_report(void *context, uint32_t trial, uint32_t epoch, double value)
{
    sweep_points *points = context;
    bool stop = false;

    if (points->asha_eta == 0 || !is_rung(points, points->epochs[trial], epoch))
        return SWEEP_NO_RUNG;
    points->epochs[trial] = epoch;
    gp_search_report(points->search, trial, epoch, value, &stop, NULL);
    return stop && epoch < points->length[trial] ? SWEEP_STOP : SWEEP_CONTINUE;
}

static void points_tell(void *context, uint32_t trial, sweep_state state, double value)
{
    sweep_points *points = context;

    gp_search_tell(points->search, trial,
                   state == SWEEP_DONE      ? GP_SEARCH_DONE
                   : state == SWEEP_STOPPED ? GP_SEARCH_STOPPED
                                            : GP_SEARCH_FAILED,
                   value, NULL);
}

sweep_search sweep_points_search(sweep_points *points)
{
    return (sweep_search){
        .context = points, .ask = points_ask, .add = points_add, .report = points_report, .tell = points_tell
    };
}
