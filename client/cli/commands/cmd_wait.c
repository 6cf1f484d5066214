/* `gradpool wait`: wait for background jobs and return the exit code of the job. */
#include <inttypes.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_wait.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"

typedef struct wait_options {
    cli_common common;
    bool any;
    double timeout;
} wait_options;

static const gp_param wait_params[] = {
    { .name = "any", GP_PARAM_FIELD(wait_options, any), .help = "return when any of the jobs has ended" },
    { .name = "timeout",
      GP_PARAM_FIELD(wait_options, timeout),
      .max = 1e6,
      .unit = "seconds",
      .help = "timeout in seconds; 0: none" },
    CLI_JSON_PARAM(wait_options),
    CLI_REMOTE_PARAMS(wait_options),
    CLI_COMMON_PARAMS(wait_options),
    { 0 },
};

/* Exit codes besides the job's own, as used by timeout(1) and shells. */
enum { EXIT_TIMED_OUT = 124, EXIT_NO_OUTCOME = 125, EXIT_SIGNAL = 128 };

static int wait_check(cli_call *call)
{
    int code = CLI_OK;

    if (call->word_count == 0)
        return cli_usage(call, "which job? 'gradpool jobs' lists them");
    return cluster_words(call, &code) ? code : job_numbers_check(call);
}

/* Print an ended job's result, and set call->code if it is still CLI_OK. */
static void report(cli_call *call, const gp_job_info *info)
{
    const wait_options *options = call->options;

    if (!gp_job_state_ended(info->state))
        return;
    if (call->code == CLI_OK && info->state != GP_JOB_DONE)
        call->code = info->state == GP_JOB_CANCELED ? CLI_INTERRUPTED
                     : info->state != GP_JOB_FAILED ? EXIT_NO_OUTCOME
                     : info->signal > 0             ? EXIT_SIGNAL + info->signal
                     : info->exit_code > 0          ? info->exit_code
                                                    : CLI_FAILED;
    if (options->common.json) {
        show_job_json(info, "\n");
    } else if (!options->common.quiet) {
        job_print_end(stdout, info);
    }
}

static gp_status wait_run(cli_call *call, gp_error *err)
{
    const wait_options *options = call->options;
    uint64_t jobs[CLI_WORDS_MAX];

    if (cluster_word(call->words[0]))
        return cluster_jobs_wait(call, options->any, options->timeout, err);
    /* Allocate the array: it is too large for the stack. */
    gp_job_info *infos = gp_calloc((size_t)call->word_count, sizeof(*infos));

    if (infos == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %d jobs", call->word_count);
    for (int i = 0; i < call->word_count; i++)
        job_number(call->words[i], &jobs[i], err);
    cli_catch_interrupts();
    gp_status status = job_wait(call, &call->pool, infos, jobs, (size_t)call->word_count, options->any,
                                options->timeout > 0 ? (int)(options->timeout * 1000) : -1, err);

    if (status != GP_OK)
        call->code = status == GP_ETIMEDOUT   ? EXIT_TIMED_OUT
                     : status == GP_ECANCELED ? CLI_INTERRUPTED
                                              : EXIT_NO_OUTCOME;
    for (int i = 0; status == GP_OK && i < call->word_count; i++)
        report(call, &infos[i]);
    gp_free(infos);
    return status;
}

const cli_command cli_command_wait = {
    .name = "wait",
    .summary = "wait for jobs and return their exit code",
    .usage = "JOB... [--any] [--timeout SECONDS]",
    .description =
        "Wait until all of the jobs have ended, or with --any the first of them. JOB is a number of "
        "`gradpool jobs`, or PROFILE:ID for a job of a cluster.",
    .examples = "  gradpool wait 7 && echo done\n"
                "  gradpool wait 7 8 9 --any\n"
                "  gradpool wait hpc:4803\n",
    .exit_codes =
        "that of the first JOB on the command line that did not succeed; with --any, that of the first\n"
        "JOB that has ended.  0: done; 1 to 123: the job failed with that code; 128 + N: signal N killed\n"
        "the job; 130: the job was canceled, or the wait was interrupted; 124: --timeout expired; 125: the\n"
        "job is lost or unknown, or the pool was shut down; on a cluster: the engine ended or forgot the "
        "job,\n"
        "and there is no result.\n",
    .options = wait_params,
    .options_bytes = sizeof(wait_options),
    .words_max = -1,
    .check = wait_check,
    .run = wait_run,
};
