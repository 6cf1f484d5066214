/* Command line of `gradpool sweep`. */
#include "client/cli/sweep/sweep_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/cluster/profile.h"
#include "client/sweep/sweep_points.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/model/train_options.h"

enum { TRIALS_DEFAULT = 30, ETA_DEFAULT = 3, ETA_MAX = 16, OPTION_BYTES = 24 };

static const char *const option_methods = "bayes, random, sobol or grid";
static const char bad_workers[] = "--workers is '%s'; it must be N or N:M, from 1 to %u";
static const char bad_stop[] = "--stop is '%s'; it must be none, asha or asha:ETA with 2 to %d";

const gp_param sweep_params[] = {
    { .name = "space",
      GP_PARAM_FIELD(sweep_options, space),
      .placeholder = "FILE",
      .help = "parameters as JSON, also conditional ones (docs/sweeps.md), in place of NAME=VALUES" },
    { .name = "trials",
      GP_PARAM_FIELD(sweep_options, trials),
      .fallback = -1,
      .min = 0,
      .max = SWEEP_TRIALS_MAX,
      .help = "number of trials [30; with lists only: all combinations]" },
    { .name = "method",
      GP_PARAM_FIELD(sweep_options, method),
      .placeholder = "METHOD",
      .help = "bayes, random, sobol or grid [bayes; with lists only and without --trials: grid]" },
    { .name = "objective",
      GP_PARAM_FIELD(sweep_options, objective),
      .placeholder = "NAME",
      .help = "validation-accuracy, validation-loss or validation-rmse; of a program: a member of its "
              "lines [validation-accuracy; of a program: objective]" },
    { .name = "minimize",
      GP_PARAM_FIELD(sweep_options, minimize),
      .help = "the lowest value wins; default for a loss and an rmse" },
    { .name = "maximize", GP_PARAM_FIELD(sweep_options, maximize), .help = "the highest value wins" },
    { .name = "stop",
      GP_PARAM_FIELD(sweep_options, stop),
      .fallback_text = "none",
      .placeholder = "RULE",
      .help = "early stopping: none, asha or asha:ETA; one of ETA [3] trials continues at each rung" },
    { .name = "min-epochs",
      GP_PARAM_FIELD(sweep_options, min_epochs),
      .fallback = 1,
      .min = 1,
      .max = 1e6,
      .help = "with --stop asha: epochs before the first decision" },
    { .name = "workers",
      GP_PARAM_FIELD(sweep_options, workers),
      .fallback_text = "1",
      .placeholder = "N|N:M",
      .help = "workers of each trial; with N:M running trials share the workers of the pool" },
    { .name = "max-concurrent",
      GP_PARAM_FIELD(sweep_options, max_concurrent),
      .min = 0,
      .max = SWEEP_CONCURRENT_MAX,
      .help = "trials at the same time; 0: as many as the pool has workers for" },
    { .name = "time-limit",
      GP_PARAM_FIELD(sweep_options, time_limit),
      .placeholder = "TIME",
      .help = "stop all trials after this time, such as 90m or 2h" },
    { .name = "until",
      GP_PARAM_FIELD(sweep_options, until),
      .placeholder = "VALUE",
      .help = "end when a trial reaches the value" },
    { .name = "max-failures",
      GP_PARAM_FIELD(sweep_options, max_failures),
      .fallback = SWEEP_FAILURES_MAX,
      .min = 0,
      .max = SWEEP_TRIALS_MAX,
      .help = "end after this many failures in a row; 0: never" },
    { .name = "keep",
      GP_PARAM_FIELD(sweep_options, keep),
      .fallback_text = "best",
      .placeholder = "best|N|all",
      .help = "models to keep: of the best trial, of the N best, or of all" },
    { .name = "confirm",
      GP_PARAM_FIELD(sweep_options, confirm),
      .placeholder = "N",
      .min = 0,
      .max = SWEEP_REPEATS_MAX,
      .help = "repeat the best trial with N other seeds; report the mean and the spread" },
    { .name = "seed",
      GP_PARAM_FIELD(sweep_options, seed),
      .min = 0,
      .max = 1e15,
      .help = "seed of the search; for the seed of the trainings, write --seed after --" },
    { .name = "priority",
      GP_PARAM_FIELD(sweep_options, priority),
      .min = -1000,
      .max = 1000,
      .help = "priority of the trials among the jobs of the pool" },
    { .name = "folder",
      GP_PARAM_FIELD(sweep_options, folder),
      .help = "folder of the sweep [new folder below gradpool-sweeps]" },
    { .name = "resume",
      GP_PARAM_FIELD(sweep_options, resume),
      .placeholder = "SWEEP",
      .help = "continue a sweep (its folder or job), also with more --trials" },
    { .name = "csv",
      GP_PARAM_FIELD(sweep_options, csv),
      .placeholder = "FILE",
      .help = "show: write the trials as CSV" },
    { .name = "optuna",
      GP_PARAM_FIELD(sweep_options, optuna),
      .placeholder = "FILE",
      .help = "show: write the trials as a journal that Optuna reads" },
    { .name = "plot",
      GP_PARAM_FIELD(sweep_options, plot),
      .placeholder = "FILE.png",
      .help = "show: draw the best so far and parallel coordinates" },
    { .name = "sort",
      GP_PARAM_FIELD(sweep_options, sort),
      .placeholder = "COLUMN",
      .help = "show: sort by trial, epochs, time, the objective or a parameter; -COLUMN reverses the order" },
    { .name = "retry-failed",
      GP_PARAM_FIELD(sweep_options, retry_failed),
      .help = "with --resume: retry the trials that failed or were lost" },
    CLI_JSON_PARAM(sweep_options),
    CLI_COMMON_PARAMS(sweep_options),
    { 0 },
};

/* ---- parts of the plan ---- */

/* Return whether the command of the trials is a training; otherwise it is a program. */
static bool trains(const cli_call *call)
{
    return call->rest_count > 0 && strcmp(call->rest[0], "train") == 0;
}

/* Return the value of an option in the command of the trials. NULL: not given. */
static const char *trial_option(const cli_call *call, const char *name)
{
    const size_t bytes = strlen(name);
    const char *value = NULL;

    for (int i = 1; i < call->rest_count; i++) {
        if (strcmp(call->rest[i], name) == 0 && i + 1 < call->rest_count)
            value = call->rest[i + 1];
        else if (strncmp(call->rest[i], name, bytes) == 0 && call->rest[i][bytes] == '=')
            value = call->rest[i] + bytes + 1;
    }
    return value;
}

const char *sweep_words_network(const cli_call *call)
{
    const char *name = trains(call) ? trial_option(call, "--network") : call->rest[0];
    const char *slash = name == NULL ? NULL : strrchr(name, '/');

    return name == NULL ? "model" : slash == NULL ? name : slash + 1;
}

/* Read "N" or "N:M". */
static bool read_workers(const char *text, sweep_plan *plan)
{
    char *end;
    unsigned long low = strtoul(text, &end, 10), high = low;

    if (end == text)
        return false;
    if (*end == ':')
        high = strtoul(end + 1, &end, 10);
    plan->workers_min = (uint32_t)low;
    plan->workers_max = (uint32_t)high;
    return *end == '\0' && low >= 1 && low <= high && high <= GP_MEMBERS_MAX && strchr(text, '-') == NULL;
}

/* Return the highest number of epochs of a trial: in the command, or of the parameter that
 * replaces it. */
static uint32_t highest_epochs(const sweep_plan *plan)
{
    double highest = sweep_points_epochs(plan), high;
    gp_space *space = NULL;

    if (gp_space_parse(&space, gp_buffer_text(&plan->space), sweep_points_type, NULL, NULL) != GP_OK)
        return (uint32_t)fmax(1, fmin(highest, INT32_MAX)); /* put_method() reports the error */
    for (uint32_t i = 0; i < space->count; i++) {
        const gp_space_parameter *p = &space->parameters[i];

        if (!sweep_points_is_epochs(p->name))
            continue;
        high = p->kind != GP_SPACE_LIST ? p->high : 0;
        for (uint32_t k = 0; k < p->count; k++)
            high = fmax(high, p->values[k].number);
        highest = p->condition_count > 0 ? fmax(highest, high) : high;
    }
    gp_space_free(space);
    return (uint32_t)fmax(1, fmin(highest, INT32_MAX));
}

/* Read "none", "asha" or "asha:ETA", and the epochs of a trial. The space and the command are in
 * the plan. */
static bool read_stop(const cli_call *call, sweep_plan *plan)
{
    const sweep_options *options = call->options;
    unsigned long eta = ETA_DEFAULT;
    char none[1] = "", *end = none;

    if (strcmp(options->stop, "none") == 0)
        return true;
    if (strncmp(options->stop, "asha", 4) != 0 || strchr(":", options->stop[4]) == NULL)
        return false;
    if (options->stop[4] == ':')
        eta = strtoul(options->stop + 5, &end, 10);
    plan->asha_eta = (uint32_t)eta;
    plan->epochs_min = (uint32_t)options->min_epochs;
    /* a program does not announce its epochs */
    plan->epochs_max = trains(call) ? highest_epochs(plan) : INT32_MAX;
    return *end == '\0' && eta >= 2 && eta <= ETA_MAX;
}

/* Set the space from a JSON file, as one line. */
static gp_status put_space_file(const char *path, sweep_plan *plan, gp_error *err)
{
    uint8_t *text = NULL;
    size_t bytes;
    gp_json *json = NULL;
    gp_json_writer writer;
    gp_status status = gp_file_read(&text, &bytes, path, GP_SEARCH_SPACE_BYTES_MAX, err);

    if (status == GP_OK)
        status = gp_json_parse(&json, (const char *)text, bytes, err);
    if (status == GP_OK && !gp_json_is_object(json))
        status = gp_fail(err, GP_EINVAL, "must be a JSON object with a member for each parameter");
    if (status == GP_OK) {
        gp_json_writer_init(&writer, &plan->space, false);
        gp_json_put_value(&writer, NULL, json);
        status = gp_json_writer_finish(&writer, err);
    }
    if (status != GP_OK)
        gp_error_prefix(err, "--space %s", path);
    gp_json_free(json);
    gp_free(text);
    return status;
}

/* Set the space from --space, or from the words NAME=VALUES. */
static gp_status put_space(const cli_call *call, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    gp_status status = GP_OK;

    if (options->space[0] != '\0')
        return put_space_file(options->space, plan, err);
    for (int i = 0; status == GP_OK && i < call->word_count; i++) {
        if (i > 0)
            status = gp_buffer_append(&plan->space, " ", 1, err);
        if (status == GP_OK)
            status = gp_buffer_append(&plan->space, call->words[i], strlen(call->words[i]), err);
    }
    return status;
}

/* Choose the method: a grid for lists, unless the number of trials is given. */
static gp_status put_method(const cli_call *call, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    sweep_points *points = NULL;
    gp_status status;

    plan->trials = options->trials > 0 ? (uint32_t)options->trials : TRIALS_DEFAULT;
    plan->method = GP_SEARCH_BAYES;
    if (options->method[0] != '\0' && !sweep_method_find(options->method, &plan->method))
        return gp_fail(err, GP_EINVAL, "--method is '%s'; it must be %s", options->method, option_methods);
    if (options->method[0] == '\0' && options->trials <= 0) {
        plan->method = GP_SEARCH_GRID;
        if (sweep_points_new(&points, plan, NULL) != GP_OK)
            plan->method = GP_SEARCH_BAYES;
        sweep_points_free(points);
        points = NULL;
    }
    if (plan->method == GP_SEARCH_GRID && options->trials <= 0)
        plan->trials = SWEEP_TRIALS_MAX;
    status = sweep_points_new(&points, plan, err);
    sweep_points_free(points);
    return status;
}

/* Set the objective and its direction. If the name does not imply a direction, check_program()
 * requires --minimize or --maximize. */
static void put_objective(const cli_call *call, sweep_plan *plan)
{
    const sweep_options *options = call->options;
    const char *name = options->objective[0] != '\0' ? options->objective
                       : trains(call)                ? "validation-accuracy"
                                                     : "objective";

    snprintf(plan->objective, sizeof(plan->objective), "%s", name);
    plan->minimize = !options->maximize &&
                     (options->minimize || strstr(name, "loss") != NULL || strstr(name, "rmse") != NULL);
}

/* Check that a text is valid UTF-8, because sweep.json stores it as JSON. */
static gp_status check_text(const char *what, const char *text, gp_error *err)
{
    return gp_utf8_valid((const uint8_t *)text, strlen(text))
               ? GP_OK
               : gp_fail(err, GP_EINVAL, "%s is not valid UTF-8, so sweep.json cannot store it: %.80s", what,
                         text);
}

/* Set the limits: --until, --max-failures and --keep. Of a resumed sweep, the others stay. */
static gp_status put_limits(const cli_call *call, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    char none[1] = "", *end = none;
    unsigned long models;

    if (cli_given(call, "max-failures"))
        plan->failures_max = (uint32_t)options->max_failures;
    if (options->until[0] != '\0')
        plan->goal = strtod(options->until, &end);
    if (options->until[0] != '\0' && (*end != '\0' || !isfinite(plan->goal)))
        return gp_fail(err, GP_EINVAL, "--until is '%s'; it must be a number", options->until);
    if (!cli_given(call, "keep"))
        return GP_OK;
    models = strtoul(options->keep, &end, 10);
    if (strcmp(options->keep, "best") == 0)
        plan->models = 1;
    else if (strcmp(options->keep, "all") == 0)
        plan->models = SWEEP_TRIALS_MAX;
    else if (*end == '\0' && models >= 1 && models <= SWEEP_TRIALS_MAX)
        plan->models = (uint32_t)models;
    else
        return gp_fail(err, GP_EINVAL, "--keep is '%s'; it must be best, all or a number from 1 to %d",
                       options->keep, SWEEP_TRIALS_MAX);
    return GP_OK;
}

gp_status sweep_words_plan(const cli_call *call, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    gp_status status = put_space(call, plan, err);

    plan->seed = (uint64_t)options->seed;
    plan->priority = (int32_t)options->priority;
    plan->concurrent = (uint32_t)options->max_concurrent;
    plan->repeats = (uint32_t)options->confirm;
    put_objective(call, plan);
    if (status == GP_OK && options->minimize && options->maximize)
        status = gp_fail(err, GP_EINVAL, "--minimize and --maximize exclude each other");
    if (status == GP_OK && !read_workers(options->workers, plan))
        status = gp_fail(err, GP_EINVAL, bad_workers, options->workers, GP_MEMBERS_MAX);
    for (int i = 0; status == GP_OK && i < call->rest_count; i++) {
        status = check_text("a word of the command", call->rest[i], err);
        if (status == GP_OK)
            status = sweep_plan_word(plan, call->rest[i], err);
    }
    if (status == GP_OK && !read_stop(call, plan))
        status = gp_fail(err, GP_EINVAL, bad_stop, options->stop, ETA_MAX);
    if (status == GP_OK)
        status = put_method(call, plan, err); /* the command decides on the types of the ranges */
    if (status == GP_OK)
        status = put_limits(call, plan, err);
    if (status == GP_OK && getcwd(plan->directory, sizeof(plan->directory)) == NULL)
        status = gp_fail_errno(err, GP_EIO, "cannot determine the current directory");
    if (status == GP_OK)
        status = check_text("the current directory", plan->directory, err);
    if (status == GP_OK && getrandom(plan->key, sizeof(plan->key), 0) != (ssize_t)sizeof(plan->key))
        status = gp_fail_errno(err, GP_EIO, "no random bytes for a key");
    return status;
}

/* Append the command of the trials for a message. */
static void command_text(const sweep_plan *plan, gp_buffer *out)
{
    for (const char *word = NULL; (word = sweep_plan_next(plan, word)) != NULL;) {
        if (out->bytes > 0)
            gp_buffer_append(out, " ", 1, NULL);
        gp_buffer_shell_word(out, word, NULL);
    }
}

/* Refuse an option that differs from that of the sweep.
 *   what          as the user knows it
 *   there, given  as texts */
static gp_status check_same(const char *what, const char *there, const char *given, gp_error *err)
{
    if (strcmp(there, given) == 0)
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "--resume continues a sweep as it was: its %s is '%.80s', not '%.80s'; begin a new sweep",
                   what, there, given);
}

/* Write the options of a sweep that have numbers, as the command line has them. */
static void option_texts(const sweep_plan *plan, char stop[OPTION_BYTES], char workers[OPTION_BYTES],
                         char epochs[OPTION_BYTES], char seed[OPTION_BYTES])
{
    if (plan->asha_eta > 0)
        snprintf(stop, OPTION_BYTES, "asha:%" PRIu32, plan->asha_eta);
    else
        snprintf(stop, OPTION_BYTES, "none");
    snprintf(workers, OPTION_BYTES, "%" PRIu32 ":%" PRIu32, plan->workers_min, plan->workers_max);
    snprintf(epochs, OPTION_BYTES, "%" PRIu32, plan->epochs_min);
    snprintf(seed, OPTION_BYTES, "%" PRIu64, plan->seed);
}

/* Compare the command and the parameters on the command line, if there are any, with those of the
 * sweep. */
static gp_status check_same_words(const cli_call *call, const sweep_plan *plan, const sweep_plan *given,
                                  gp_error *err)
{
    gp_buffer there, here;
    gp_status status = GP_OK;

    gp_buffer_init(&there, GP_JSON_BYTES_MAX);
    gp_buffer_init(&here, GP_JSON_BYTES_MAX);
    command_text(plan, &there);
    command_text(given, &here);
    if (given->space.bytes > 0)
        status = check_same("space", gp_buffer_text(&plan->space), gp_buffer_text(&given->space), err);
    if (status == GP_OK && call->rest_count > 0)
        status = check_same("command", gp_buffer_text(&there), gp_buffer_text(&here), err);
    gp_buffer_deinit(&there);
    gp_buffer_deinit(&here);
    return status;
}

/* Compare the options that define a sweep, as far as they are given. */
static gp_status check_same_options(const cli_call *call, const sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    sweep_plan given = { .seed = (uint64_t)options->seed };
    char there[4][OPTION_BYTES], here[4][OPTION_BYTES];
    static const char *const names[4] = { "stop", "workers", "min-epochs", "seed" };
    gp_status status = GP_OK;

    if (!read_workers(options->workers, &given))
        return gp_fail(err, GP_EINVAL, bad_workers, options->workers, GP_MEMBERS_MAX);
    if (!read_stop(call, &given))
        return gp_fail(err, GP_EINVAL, bad_stop, options->stop, ETA_MAX);
    given.epochs_min = (uint32_t)options->min_epochs;
    option_texts(plan, there[0], there[1], there[2], there[3]);
    option_texts(&given, here[0], here[1], here[2], here[3]);
    for (int i = 0; status == GP_OK && i < 4; i++)
        if (cli_given(call, names[i]))
            status = check_same(names[i], there[i], here[i], err);
    if (status == GP_OK && cli_given(call, "method"))
        status = check_same("method", sweep_method_word(plan->method), options->method, err);
    if (status == GP_OK && cli_given(call, "objective"))
        status = check_same("objective", plan->objective, options->objective, err);
    if (status == GP_OK && (options->minimize || options->maximize))
        status = check_same("direction", plan->minimize ? "--minimize" : "--maximize",
                            options->minimize ? "--minimize" : "--maximize", err);
    return status;
}

gp_status sweep_words_resume(const cli_call *call, sweep_plan *plan, gp_error *err)
{
    const sweep_options *options = call->options;
    sweep_plan given;
    gp_status status;

    sweep_plan_init(&given);
    status = put_space(call, &given, err);
    for (int i = 0; status == GP_OK && i < call->rest_count; i++)
        status = sweep_plan_word(&given, call->rest[i], err);
    if (status == GP_OK)
        status = check_same_words(call, plan, &given, err);
    sweep_plan_deinit(&given);
    if (status == GP_OK)
        status = check_same_options(call, plan, err);
    if (status == GP_OK)
        status = put_limits(call, plan, err);
    if (options->trials > 0)
        plan->trials = (uint32_t)options->trials;
    if (cli_given(call, "confirm"))
        plan->repeats = (uint32_t)options->confirm;
    if (cli_given(call, "max-concurrent"))
        plan->concurrent = (uint32_t)options->max_concurrent;
    if (cli_given(call, "priority"))
        plan->priority = (int32_t)options->priority;
    return status;
}

gp_status sweep_words_run(const cli_call *call, sweep_run_options *run, gp_error *err)
{
    const sweep_options *options = call->options;
    int64_t seconds = 0;
    gp_status status = GP_OK;

    run->retry = options->retry_failed;
    if (options->time_limit[0] != '\0')
        status = gp_profile_time_s(options->time_limit, &seconds, err);
    if (status != GP_OK)
        gp_error_prefix(err, "--time-limit");
    run->time_limit_ms = seconds * 1000;
    return status;
}
