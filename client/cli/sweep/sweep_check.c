/* Check the command line of a new sweep before anything starts. */
#include <errno.h>
#include <unistd.h>

#include "client/cli/sweep/sweep_words.h"
#include "client/sweep/sweep_command.h"
#include "client/sweep/sweep_points.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

enum { CHECKED_MAX = 64 }; /* values of a list that are checked */

/* Options of a training that the sweep sets. */
static const gp_param own_options[] = {
    { .name = "workers", .type = GP_PARAM_TEXT },
    { .name = "folder", .type = GP_PARAM_TEXT },
    { .name = "resume", .type = GP_PARAM_TEXT },
    { .name = "json", .type = GP_PARAM_BOOL },
    { .name = "checkpoint-path", .type = GP_PARAM_TEXT },
    { .name = "quiet", .type = GP_PARAM_BOOL },
    { .name = "pool", .type = GP_PARAM_TEXT },
    { 0 },
};

/* Return the name of the option in a word, such as "--folder" or "--folder=x", if the sweep sets
 * that option. NULL: another word. */
static const char *own_option(const char *word)
{
    const gp_param *param;
    char name[SWEEP_PLACE_BYTES];

    if (!sweep_option_name(name, word))
        return NULL;
    param = gp_params_find(own_options, name);
    return param != NULL ? param->name : NULL;
}

/* Check that a parameter of a training is not an option that the sweep sets, and is no other name
 * of an earlier parameter. With conditions, an option may have several ranges. */
static gp_status check_option(const sweep_plan *plan, const gp_space *space, uint32_t parameter,
                              gp_error *err)
{
    const gp_space_parameter *p = &space->parameters[parameter], *other;
    const gp_param *param = gp_params_find(gp_train_options_table, p->name);

    if (sweep_command_has_place(plan, p->name))
        return GP_OK;
    if (gp_params_find(own_options, p->name) != NULL)
        return gp_fail(err, GP_EINVAL, "the sweep sets --%s of its trials, so it cannot be a parameter",
                       gp_params_find(own_options, p->name)->name);
    for (uint32_t i = 0; i < parameter && param != NULL && p->condition_count == 0; i++) {
        other = &space->parameters[i];
        if (other->condition_count == 0 && !sweep_command_has_place(plan, other->name) &&
            gp_params_find(gp_train_options_table, other->name) == param)
            return gp_fail(err, GP_EINVAL, "%s and %s are the same option; remove one of them", other->name,
                           p->name);
    }
    return GP_OK;
}

/* Check that a parameter with a condition has no placeholder, because trials without the parameter
 * could not fill it. */
static gp_status check_condition(void *context, const char *name, const gp_json *parameter, gp_error *err)
{
    if (gp_json_member(parameter, "when") == NULL || !sweep_command_has_place(context, name))
        return GP_OK;
    return gp_fail(
        err, GP_EINVAL,
        "%s has a condition, so it cannot stand in {%s}; without a placeholder, it follows as --%s "
        "VALUE where it applies",
        name, name, name);
}

/* Check the names of the parameters of a training. */
static gp_status check_options(const sweep_plan *plan, gp_error *err)
{
    gp_space *space = NULL;
    gp_status status = sweep_points_space(&space, plan, err);

    for (uint32_t i = 0; status == GP_OK && i < space->count; i++)
        status = check_option(plan, space, i, err);
    gp_space_free(space);
    return status;
}

/* Check the parameters against the command: conditions, and the seed that --confirm changes.
 *   values  first point of the search */
static gp_status check_parameters(const sweep_plan *plan, const char *values, gp_error *err)
{
    const char *space = gp_buffer_text(&plan->space);
    gp_json *json = NULL;
    gp_status status = GP_OK;

    if (space[0] == '{' && gp_json_parse(&json, space, strlen(space), NULL) == GP_OK)
        status = gp_json_each(json, check_condition, (void *)(uintptr_t)plan, err);
    gp_json_free(json);
    json = NULL;
    if (status != GP_OK || plan->repeats == 0)
        return status;
    if (gp_json_parse(&json, values, strlen(values), NULL) == GP_OK && gp_json_member(json, "seed") != NULL)
        status = gp_fail(err, GP_EINVAL, "--confirm changes the seed, which is a parameter of this sweep");
    else if (!sweep_plan_trains(plan) && !sweep_command_has_place(plan, "seed"))
        status =
            gp_fail(err, GP_EINVAL, "--confirm needs the placeholder {seed} in the command of a program");
    gp_json_free(json);
    return status;
}

/* Check the command line of a trial with these values. Return the exit code; the error has been
 * printed. */
static int check_command(const cli_call *call, const sweep_plan *plan, const char *values)
{
    static const sweep_folder nowhere = { .path = "/tmp" };
    char *argv[CLI_WORDS_MAX + 2] = { call->argv[0] };
    sweep_command *command = NULL;
    gp_error err;
    int count = 1, code;

    if (sweep_command_new(&command, &nowhere, plan, 1, 0, values, plan->workers_min, &err) != GP_OK)
        return cli_usage(call, "%s", err.message);
    for (const char *const *word = sweep_command_words(command); *word != NULL && count < CLI_WORDS_MAX;)
        argv[count++] = (char *)(uintptr_t)*word++;
    code = cli_check_words(count, argv);
    sweep_command_free(command);
    return code;
}

/* Check the command of a training with one value of a parameter, and the others of `point`. */
static int check_value(const cli_call *call, const sweep_plan *plan, const gp_space *space,
                       const sweep_point *point, uint32_t parameter, double value)
{
    const char *name = space->parameters[parameter].name;
    sweep_point changed = *point;
    char *values, number[GP_NUMBER_BYTES], shown[80];
    gp_error err;
    int code;

    changed.value[parameter] = value;
    if (gp_space_point_text(space, changed.value, &values, &err) != GP_OK)
        return cli_usage(call, "%s", err.message);
    code = check_command(call, plan, values);
    changed.applies[parameter] = true;
    snprintf(shown, sizeof(shown), "%s", sweep_point_text(&changed, space, parameter, number));
    if (code != CLI_OK)
        cli_usage(call,
                  "trials with %s=%s would fail; remove the value, or let a parameter apply only with other "
                  "values (\"when\" in --space FILE)",
                  name, shown);
    gp_free(values);
    return code;
}

/* Check the command of a training with each value of the lists and both ends of the ranges. One
 * parameter at a time differs from the first point. */
static int check_values(const cli_call *call, const sweep_plan *plan, const char *first)
{
    gp_space *space = NULL;
    sweep_point point;
    gp_error err;
    int code = CLI_OK;

    if (sweep_points_space(&space, plan, &err) != GP_OK ||
        sweep_point_read(&point, space, first, &err) != GP_OK)
        code = cli_usage(call, "%s", err.message);
    for (uint32_t i = 0; code == CLI_OK && i < space->count; i++)
        if (!point.applies[i]) /* it may apply with another value of a list */
            point.value[i] = space->parameters[i].low;
    for (uint32_t i = 0; code == CLI_OK && i < space->count; i++) {
        const gp_space_parameter *p = &space->parameters[i];
        const uint32_t count = p->kind != GP_SPACE_LIST ? 2 : p->count < CHECKED_MAX ? p->count : CHECKED_MAX;

        if (!point.applies[i])
            continue; /* its value is not in the command of this point */
        for (uint32_t k = 0; code == CLI_OK && k < count; k++)
            code = check_value(call, plan, space, &point, i,
                               p->kind == GP_SPACE_LIST ? k
                               : k == 0                 ? p->low
                                                        : p->high);
    }
    gp_space_free(space);
    return code;
}

/* Check the command line of the first trial, with the first point of the search, and those of other
 * values. */
static int check_first(const cli_call *call, const sweep_plan *plan, gp_error *err)
{
    const char *values;
    sweep_points *points = NULL;
    sweep_search search;
    int code;
    gp_status status = sweep_points_new(&points, plan, err);

    if (status == GP_OK) {
        search = sweep_points_search(points);
        status = search.ask(search.context, &values, err);
    }
    if (status == GP_OK)
        status = check_parameters(plan, values, err);
    if (status == GP_OK && sweep_plan_trains(plan))
        status = check_options(plan, err);
    code = status == GP_OK ? check_command(call, plan, values) : cli_usage(call, "%s", err->message);
    if (code == CLI_OK && sweep_plan_trains(plan))
        code = check_values(call, plan, values);
    sweep_points_free(points);
    return code;
}

/* Check the words of a training. */
static int check_training(const cli_call *call)
{
    for (int i = 1; i < call->rest_count; i++) {
        const char *option = own_option(call->rest[i]);

        if (option != NULL)
            return cli_usage(call, "the sweep sets --%s of its trials; remove it after --", option);
    }
    return CLI_OK;
}

/* Check the words of a program. */
static int check_program(const cli_call *call, const sweep_plan *plan)
{
    static const char *const commands[] = { "predict", "evaluate", "spmd", "parfor", "sweep" };
    const sweep_options *options = call->options;
    const char *program = call->rest[0];
    sweep_points *points = NULL;
    const char *values;
    bool placed = true;

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(program, commands[i]) == 0)
            return cli_usage(
                call, "the trials of a sweep cannot be '%s'; write -- train ... or -- PROGRAM ...", program);
    if (plan->workers_min < plan->workers_max)
        return cli_usage(call, "--workers is '%s'; a program has a fixed number of workers",
                         options->workers);
    if (!options->minimize && !plan->minimize && !options->maximize &&
        strstr(plan->objective, "accuracy") == NULL)
        return cli_usage(call, "add --minimize or --maximize: is a low or a high '%s' good?",
                         plan->objective);
    if (strchr(program, '/') != NULL && strpbrk(program, " {") == NULL && access(program, X_OK) != 0)
        return cli_usage(call, "cannot run %s: %s", program, strerror(errno));
    if (call->rest_count > 1 || strchr(program, ' ') == NULL)
        return CLI_OK;
    if (sweep_points_new(&points, plan, NULL) == GP_OK) {
        sweep_search search = sweep_points_search(points);

        placed = search.ask(search.context, &values, NULL) != GP_OK || sweep_command_places_all(plan, values);
    }
    sweep_points_free(points);
    return placed ? CLI_OK
                  : cli_usage(call,
                              "a command line for the shell needs the placeholder {NAME} of each parameter");
}

int sweep_words_check(const cli_call *call)
{
    sweep_run_options run;
    sweep_plan plan;
    gp_error err;
    int code;

    if (call->word_count > 0 && ((const sweep_options *)call->options)->space[0] != '\0')
        return cli_usage(call, "'%s': give the parameters either as words or with --space", call->words[0]);
    if (call->word_count == 0 && ((const sweep_options *)call->options)->space[0] == '\0')
        return cli_usage(call, "no parameters; for example lr=log:1e-4:0.3 mini-batch-size=32,64");
    if (((const sweep_options *)call->options)->retry_failed)
        return cli_usage(call, "--retry-failed needs --resume FOLDER");
    if (call->rest_count == 0)
        return cli_usage(call, "the command of the trials is missing; write -- train --network ... after the "
                               "parameters");
    code = strcmp(call->rest[0], "train") == 0 ? check_training(call) : CLI_OK;
    if (code != CLI_OK)
        return code;
    sweep_plan_init(&plan);
    if (sweep_words_plan(call, &plan, &err) != GP_OK || sweep_words_run(call, &run, &err) != GP_OK)
        code = cli_usage(call, "%s", err.message);
    else
        code = sweep_plan_trains(&plan) ? CLI_OK : check_program(call, &plan);
    if (code == CLI_OK)
        code = check_first(call, &plan, &err);
    sweep_plan_deinit(&plan);
    return code;
}
