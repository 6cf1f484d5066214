/* `gradpool submit`: queue a command as a background job. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/run/inputs.h"
#include "client/cli/run/template.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/text/spell.h"
#include "common/base/text/text.h"

extern char **environ;

typedef struct submit_options {
    cli_common common;
    char name[64], env[1024], directory[1024];
    char profile[GP_PROFILE_NAME_MAX + 1], time[24];
    int64_t priority;
    bool dry_run, no_checkpoint, array;
} submit_options;

static const gp_param submit_params[] = {
    { .name = "name", GP_PARAM_FIELD(submit_options, name), .help = "name of the job in listings" },
    { .name = "priority",
      GP_PARAM_FIELD(submit_options, priority),
      .min = -GP_PRIORITY_MAX,
      .max = GP_PRIORITY_MAX,
      .help = "priority; jobs with higher values start first" },
    { .name = "env",
      GP_PARAM_FIELD(submit_options, env),
      .help = "more environment variables for the job: A,B (docs/gradpool.md)" },
    { .name = "directory",
      GP_PARAM_FIELD(submit_options, directory),
      .help = "working directory, an absolute path on the pool's host; default: this one, or on another host "
              "your home" },
    { .name = "profile",
      GP_PARAM_FIELD(submit_options, profile),
      .help = "run the job on a cluster, with this profile of `gradpool cluster`" },
    { .name = "time",
      GP_PARAM_FIELD(submit_options, time),
      .help = "with --profile: time limit, such as 90m or 24h; default: as in the profile" },
    { .name = "dry-run",
      GP_PARAM_FIELD(submit_options, dry_run),
      .help = "with --profile: print the script for the engine, and launch nothing" },
    { .name = "no-checkpoint",
      GP_PARAM_FIELD(submit_options, no_checkpoint),
      .help = "with --profile: accept that a requeued training starts again from step 0" },
    { .name = "array",
      GP_PARAM_FIELD(submit_options, array),
      .help = "with --profile and the command parfor: one job for each combination of the inputs" },
    CLI_JSON_PARAM(submit_options),
    CLI_REMOTE_PARAMS(submit_options),
    CLI_COMMON_PARAMS(submit_options),
    { 0 },
};

/* SUBMIT_MS: how long to retry after a scheduler failure. */
enum { SUBMIT_MS = 30000, RETRY_MS = 100, VARIABLES_MAX = GP_JOB_VARIABLES_MAX, ARRAY_MAX = 1000 };

/* Commands that can run as background jobs. */
static const char *const job_commands[] = { "train", "predict", "evaluate", "spmd", "parfor", "sweep", NULL };

/* Return the word of a job that sets an option of `gradpool`; NULL: none. */
static const char *job_option(const char *const *words, const char *option)
{
    const size_t bytes = strlen(option);

    for (int i = 1; words[i] != NULL && strcmp(words[i], "--") != 0; i++)
        if (strncmp(words[i], option, bytes) == 0 && words[i][bytes] == '=')
            return words[i];
        else if (strcmp(words[i], option) == 0)
            return words[i + 1] != NULL ? words[i + 1] : words[i];
    return NULL;
}

/* Return the command of each job of an array, the words after `parfor INPUTS --`; NULL: none. */
static const char *const *array_command(const cli_call *call)
{
    for (int i = 1; i < call->word_count; i++)
        if (strcmp(call->words[i], "--") == 0)
            return i + 1 < call->word_count ? &call->words[i + 1] : NULL;
    return NULL;
}

/* Check the words of an array: parfor INPUT... -- COMMAND. */
static int array_check(const cli_call *call)
{
    const char *const *command = array_command(call);
    const char *path;

    if (strcmp(call->words[0], "parfor") != 0 || command == NULL)
        return cli_usage(call, "--array needs the command 'parfor INPUT... -- train ...'");
    for (int i = 1; strcmp(call->words[i], "--") != 0; i++)
        if (call->words[i][0] == '-' && call->words[i][1] == '-')
            return cli_usage(call, "%s has no effect with --array: each input is a job of its own",
                             call->words[i]);
    for (size_t i = 0; job_commands[i] != NULL; i++)
        if (strcmp(command[0], job_commands[i]) == 0) {
            path = job_option(command, "--checkpoint-path");
            return path == NULL || strchr(path, '{') != NULL
                       ? CLI_OK
                       : cli_usage(call,
                                   "the jobs would share the checkpoints in '%s'; write for example "
                                   "--checkpoint-path ck-{#}",
                                   path);
        }
    return cli_usage(call, "--array cannot run '%s'; train, predict, evaluate, spmd and parfor can be jobs",
                     command[0]);
}

/* Check the options for clusters. */
static int cluster_check(const cli_call *call)
{
    const submit_options *options = call->options;
    const char *const *words = call->words;
    int code;
    int64_t seconds;
    gp_error err;

    if (options->profile[0] == '\0') {
        if (options->time[0] != '\0' || options->dry_run || options->no_checkpoint || options->array)
            return cli_usage(call, "--time, --dry-run, --no-checkpoint and --array need --profile");
        return CLI_OK;
    }
    if (cli_given(call, "pool") || options->priority != 0)
        return cli_usage(call, "--profile and --%s exclude each other",
                         options->priority != 0 ? "priority" : "pool");
    if (options->time[0] != '\0' && gp_profile_time_s(options->time, &seconds, &err) != GP_OK)
        return cli_usage(call, "--time: %s", err.message);
    if (options->array) {
        code = array_check(call);
        if (code != CLI_OK)
            return code;
        words = array_command(call);
    }
    if (strcmp(words[0], "train") == 0 && !options->no_checkpoint &&
        job_option(words, "--checkpoint-path") == NULL)
        return cli_usage(call,
                         "the engine may requeue a training; add --checkpoint-path FOLDER after '--' to "
                         "resume it then, or --no-checkpoint before '--' to start it again");
    return CLI_OK;
}

/* Check the command to be queued, so that errors appear now and not in the job's log. */
static int submit_check(cli_call *call)
{
    const submit_options *options = call->options;
    char *words[CLI_WORDS_MAX + 2] = { call->argv[0] };
    const char *near = NULL;
    unsigned distance = 0;
    bool known = false, elsewhere;
    gp_error err;
    int code;

    if (gp_printable_check("job name", options->name, &err) != GP_OK)
        return cli_usage(call, "--name: %s", err.message);
    if (call->word_count == 0)
        return cli_usage(call, "the command is missing; usage: gradpool submit %s", call->command->usage);
    for (size_t i = 0; job_commands[i] != NULL; i++) {
        known |= strcmp(call->words[0], job_commands[i]) == 0;
        gp_spell_offer(call->words[0], job_commands[i], &near, &distance);
    }
    if (!known && near != NULL)
        return cli_usage(call, "'%s' cannot be a job; did you mean '%s'?", call->words[0], near);
    if (!known)
        return cli_usage(call, "'%s' cannot be a job; train, predict, evaluate, spmd, parfor and sweep can",
                         call->words[0]);
    for (int i = 0; i < call->word_count; i++) {
        words[i + 1] = (char *)(uintptr_t)call->words[i];
        if (strcmp(call->words[i], "--") == 0)
            known = false; /* the remaining words belong to a program */
        if (known && (strcmp(call->words[i], "--pool") == 0 || strncmp(call->words[i], "--pool=", 7) == 0))
            return cli_usage(call,
                             "a job runs in the pool to which it is submitted; give --pool before '--'");
    }
    code = cluster_check(call);
    if (code != CLI_OK)
        return code;
    if (options->profile[0] != '\0')
        return cli_check_words(call->word_count + 1, words);
    if (cli_elsewhere(call, &elsewhere, &err) != GP_OK)
        return cli_fail(call, &err);
    /* the pool's host may have other files than this host: skip the check */
    return elsewhere ? CLI_OK : cli_check_words(call->word_count + 1, words);
}

/* Choose the environment variables for the job; `chosen` is NULL-terminated and borrows the
 * strings. A remote host has its own PATH and HOME, so a remote job only gets the variables named
 * by --env, a list "A,B". */
static void choose_variables(const char *extra, bool remote, const char *chosen[VARIABLES_MAX + 1])
{
    size_t count = 0;

    for (char **at = environ; *at != NULL && count < VARIABLES_MAX; at++) {
        size_t bytes = strcspn(*at, "=");
        bool named = false;
        char name[128];

        for (const char *word = extra; *word != '\0' && !named; word += strspn(word, ",")) {
            named = strcspn(word, ",") == bytes && memcmp(word, *at, bytes) == 0;
            word += strcspn(word, ",");
        }
        snprintf(name, sizeof(name), "%.*s", (int)bytes, *at);
        if (named || (!remote && bytes < sizeof(name) && gp_job_variable_allowed(name)))
            chosen[count++] = *at;
    }
    chosen[count] = NULL;
}

/* Submit the job; retry after a scheduler failure. All attempts use the same random key: if the
 * reply to the first attempt was lost, the scheduler finds the existing job by the key. */
static gp_status submit_go(const cli_call *call, gp_job_request *request, uint64_t *job, gp_error *err)
{
    const submit_options *options = call->options;
    const char *variables[VARIABLES_MAX + 1];
    int64_t deadline = gp_now_ms() + SUBMIT_MS;
    gp_status status;

    if (getrandom(request->key, sizeof(request->key), 0) != (ssize_t)sizeof(request->key))
        return gp_fail_errno(err, GP_EIO, "cannot generate a random key");
    for (;;) {
        gp_pool *pool = NULL;

        status = cli_open(call, false, &pool, err);
        if (status == GP_OK) {
            choose_variables(options->env, pool->remote != NULL, variables);
            request->environment = variables;
            status = gp_job_submit(job, pool, request, err);
        }
        gp_pool_close(pool);
        if ((status != GP_EPEER && status != GP_ENOPOOL) || gp_now_ms() >= deadline)
            return status;
        gp_sleep_ms(RETRY_MS);
    }
}

/* Check the command of one job of an array. CLI_OK: it is valid; otherwise the exit code. */
static int array_command_check(const cli_call *call, const char *const *words, size_t count)
{
    char *checked[CLI_WORDS_MAX + 2] = { call->argv[0] };

    for (size_t i = 0; i < count && i < CLI_WORDS_MAX; i++)
        checked[i + 1] = (char *)(uintptr_t)words[i];
    return cli_check_words((int)count + 1, checked);
}

/* Write the jobs of an array from `first` to `last`, such as "jobs 3 to 5". */
static const char *jobs_text(char text[48], uint64_t first, uint64_t last)
{
    if (first == last)
        snprintf(text, 48, "job %" PRIu64, first);
    else
        snprintf(text, 48, "jobs %" PRIu64 " to %" PRIu64, first, last);
    return text;
}

/* Complete the error of a job of an array: the jobs before it are submitted, those after it are
 * not.
 *   job  name of the array, PROFILE:ARRAY */
static void array_explain(const char *job, uint32_t done, uint64_t total, gp_error *err)
{
    char before[48], after[48];

    gp_error_suffix(err,
                    "submitted: %s (%s)%s%s; submit the missing inputs as another array, or run 'gradpool "
                    "cancel %s'",
                    jobs_text(before, 1, done), job, done + 1 < total ? "; not submitted: " : "",
                    done + 1 < total ? jobs_text(after, done + 2, total) : "", job);
    gp_error_prefix(err, "job %" PRIu32 " of %" PRIu64, done + 1, total);
}

/* Submit a job for each combination of the inputs. */
static gp_status submit_array(cli_call *call, cluster_place *place, cluster_submit *submit, gp_error *err)
{
    const submit_options *options = call->options;
    const char *const *command = array_command(call), *const * values;
    const int input_count = (int)(command - call->words) - 2;
    const char *names[INPUTS_SOURCES_MAX];
    char array[CLUSTER_ARRAY_BYTES], job[GP_PROFILE_NAME_MAX + CLUSTER_ARRAY_BYTES + 2] = "";
    cli_template *template = NULL;
    inputs_state state = INPUTS_VALUES;
    cli_inputs *inputs;
    uint64_t total;
    uint32_t done = 0;
    gp_status status = inputs_new(&inputs, call->words + 1, input_count, NULL, false, err);

    if (status != GP_OK)
        return status;
    total = inputs_count(inputs);
    for (int i = 0; i < inputs_sources(inputs); i++)
        names[i] = inputs_name(inputs, i);
    status =
        total == 0 || total > ARRAY_MAX
            ? gp_fail(err, GP_ELIMIT, "the inputs have %" PRIu64 " combinations; an array has 1 to %d jobs",
                      total, ARRAY_MAX)
            : template_new(&template, command, call->word_count - input_count - 2, names,
                           inputs_sources(inputs), false, err);
    if (status == GP_OK && !template_has_place(template))
        status = gp_fail(err, GP_EINVAL,
                         "the command has no replacement string; write for example --lr {} or --lr {lr}");
    if (status == GP_OK)
        status = cluster_array_new(array, err);
    if (status == GP_OK)
        snprintf(job, sizeof(job), "%s:%s", place->profile.name, array);
    submit->array = array;
    while (status == GP_OK && (status = inputs_next(inputs, &state, &values, err)) == GP_OK &&
           state == INPUTS_VALUES) {
        status = template_fill(template, values, done + 1, 1, &submit->words, err);
        for (submit->word_count = 0; status == GP_OK && submit->words[submit->word_count] != NULL;)
            submit->word_count++;
        submit->array_index = done + 1;
        if (status == GP_OK && done == 0)
            call->code = array_command_check(call, submit->words, submit->word_count);
        if (call->code != CLI_OK)
            break;
        if (status == GP_OK)
            status = cluster_jobs_submit(call, place, submit, err);
        done += status == GP_OK;
        if (options->dry_run)
            break;
    }
    if (status != GP_OK && done > 0)
        array_explain(job, done, total, err);
    template_free(template);
    inputs_free(inputs);
    if (status != GP_OK || call->code != CLI_OK || options->dry_run)
        return status;
    printf(options->common.json ? "{\"job\": \"%s\"}\n" : "%s\n", job);
    if (!options->common.quiet && !options->common.json)
        fprintf(stderr, "%" PRIu32 " jobs are queued: %s.1 to %s.%" PRIu32 "\n", done, job, job, done);
    return GP_OK;
}

/* Submit the job to a cluster. */
static gp_status submit_cluster(cli_call *call, gp_error *err)
{
    const submit_options *options = call->options;
    const char *variables[VARIABLES_MAX + 1];
    cluster_submit submit = { .profile = options->profile,
                              .label = options->name,
                              .time = options->time,
                              .directory = options->directory,
                              .variables = variables,
                              .requeue = true,
                              .dry_run = options->dry_run,
                              .words = call->words,
                              .word_count = (size_t)call->word_count,
                              .array = "" };
    cluster_place *place;
    gp_status status = cluster_place_open(&place, options->profile, err);

    if (status != GP_OK)
        return status;
    choose_variables(options->env, place->site.engine->facts != NULL, variables);
    status = options->array ? submit_array(call, place, &submit, err)
                            : cluster_jobs_submit(call, place, &submit, err);
    gp_free(place);
    return status;
}

static gp_status submit_run(cli_call *call, gp_error *err)
{
    const submit_options *options = call->options;
    const bool sweep = strcmp(call->words[0], "sweep") == 0;
    gp_job_request request = { .words = call->words,
                               .kind = sweep ? GP_JOB_SWEEP : GP_JOB_ORDINARY,
                               .name = options->name,
                               .priority = (int32_t)options->priority,
                               .directory = options->directory[0] != '\0' ? options->directory : NULL };
    uint64_t job;
    gp_status status;

    if (options->profile[0] != '\0')
        return submit_cluster(call, err);
    status = submit_go(call, &request, &job, err);
    if (status != GP_OK)
        return status;
    printf(options->common.json ? "{\"job\": %" PRIu64 "}\n" : "%" PRIu64 "\n", job);
    if (!options->common.quiet && !options->common.json)
        fprintf(stderr, "job %" PRIu64 " is queued; follow it with 'gradpool logs %" PRIu64 " -f'\n", job,
                job);
    return GP_OK;
}

const cli_command cli_command_submit = {
    .name = "submit",
    .summary = "run a gradpool command as a background job",
    .usage = "[--name NAME] [--priority N] -- train|predict|evaluate|spmd|parfor|sweep ...",
    .description =
        "Put a command into the queue of the pool and print the number of the job. The job is written to "
        "disk before the number is printed, and needs no terminal. It runs in the directory and with the "
        "umask of `submit`, with an empty standard input, and writes its output to a log file "
        "(`gradpool logs`). "
        "`gradpool jobs` lists the jobs.\n\n"
        "The command line of the job is checked at once; models and data are checked when the job runs, "
        "so a job may use the output of an earlier one.\n\n"
        "With --profile the job runs on a cluster: `gradpool cluster` manages profiles. The command prints "
        "PROFILE:ID with the engine's id. The job is written to the folder of the profile before it is "
        "launched; if the command is interrupted, the next `gradpool jobs --profile` continues it. "
        "--array submits one job for each combination of the inputs of `parfor`, and prints PROFILE:ARRAY; "
        "PROFILE:ARRAY.N is one of the jobs.",
    .examples =
        "  gradpool submit -- train --network lenet --data digits --epochs 10\n"
        "  J=$(gradpool submit --quiet --name night -- train --network lenet --data digits)\n"
        "  gradpool submit --pool gpu-box --directory /data/run1 -- train --network lenet --data digits\n"
        "                                   on another host, with its profile (docs/security.md)\n"
        "  gradpool submit --profile hpc --time 24h -- train --network lenet --data digits --checkpoint-path "
        "ck\n"
        "                                   on a cluster (docs/clusters.md)\n"
        "  gradpool submit --array --profile hpc -- parfor lr=0.1,0.01 -- train --network lenet --data "
        "digits \\\n"
        "      --initial-learn-rate {lr} --checkpoint-path ck-{#}\n"
        "  gradpool wait $J && gradpool submit -- predict --model model.onnx --data digits\n",
    .options = submit_params,
    .options_bytes = sizeof(submit_options),
    .words_max = -1,
    .rest_is_words = true,
    .check = submit_check,
    .run = submit_run,
};
