/* `gradpool cancel`: cancel one, several or all background jobs. */
#include <inttypes.h>
#include <math.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/jobs/job_wait.h"
#include "common/base/text/text.h"

typedef struct cancel_options {
    cli_common common;
    bool all;
    double grace;
    char profile[GP_PROFILE_NAME_MAX + 1];
} cancel_options;

static const gp_param cancel_params[] = {
    { .name = "all", GP_PARAM_FIELD(cancel_options, all), .help = "cancel all queued and running jobs" },
    { .name = "grace",
      GP_PARAM_FIELD(cancel_options, grace),
      .fallback = 10,
      .max = GP_CANCEL_GRACE_MS_MAX / 1000,
      .unit = "seconds",
      .help = "time from the request to stop until a running job is killed; 0: at once" },
    { .name = "profile",
      GP_PARAM_FIELD(cancel_options, profile),
      .help = "with --all: cancel all jobs of a cluster, in place of those of the pool" },
    CLI_REMOTE_PARAMS(cancel_options),
    CLI_COMMON_PARAMS(cancel_options),
    { 0 },
};

static int cancel_check(cli_call *call)
{
    const cancel_options *options = call->options;
    int code = CLI_OK;

    if (options->all == (call->word_count > 0))
        return cli_usage(call, options->all ? "give job numbers or --all, not both"
                                            : "which job? 'gradpool jobs' lists them; --all selects all");
    if (!options->all && options->profile[0] != '\0')
        return cli_usage(call, "--profile needs --all; a job of a cluster is PROFILE:ID");
    if (cluster_words(call, &code) || options->profile[0] != '\0') {
        if (code == CLI_OK && cli_given(call, "grace"))
            return cli_usage(call,
                             "--grace has no effect on jobs of a cluster: the engine has its own period");
        return code;
    }
    return job_numbers_check(call);
}

static gp_status cancel_run(cli_call *call, gp_error *err)
{
    const cancel_options *options = call->options;
    const int64_t grace_ms = (int64_t)ceil(options->grace * 1e3);
    uint32_t total = 0, count;
    gp_status status;

    if (options->profile[0] != '\0' || (!options->all && cluster_word(call->words[0])))
        return cluster_jobs_cancel(call, options->profile, err);
    /* jobs may be queued for a pool that is not running */
    status = cli_open(call, false, &call->pool, err);
    if (status != GP_OK)
        return status;
    for (int i = 0; i < (options->all ? 1 : call->word_count); i++) {
        uint64_t job = 0;

        if (!options->all)
            job_number(call->words[i], &job, err);
        /* Report the error and cancel the remaining jobs. */
        if (gp_job_cancel_grace(&count, call->pool, job, grace_ms, err) != GP_OK) {
            call->code = cli_fail(call, err);
            continue;
        }
        total += count;
        if (!options->all && count == 0 && !options->common.quiet)
            printf("job %" PRIu64 " has ended or was already canceled\n", job);
    }
    if (call->code == CLI_OK && !options->common.quiet && (total > 0 || options->all))
        printf("canceled %" PRIu32 " job%s\n", total, gp_plural(total));
    return GP_OK;
}

const cli_command cli_command_cancel = {
    .name = "cancel",
    .summary = "cancel queued jobs and stop running jobs; a training keeps its model",
    .usage = "JOB... | --all [--profile PROFILE] [--grace SECONDS]",
    .description =
        "Remove queued jobs from the queue, and ask running jobs to stop. A training saves the model "
        "before it stops. A job that is still running after 10 s (--grace) is killed; a second cancel can "
        "shorten this time. The command starts the pool "
        "if it is not running, because jobs may be queued for it. JOB is a number of `gradpool jobs`, "
        "or PROFILE:ID for a job of a cluster. Such a job is first marked, so that it does not requeue "
        "itself. The request to the engine is repeated until the engine confirms the end. After 60 s the "
        "command fails, and prints the engine's own command to try.",
    .examples = "  gradpool cancel 7\n"
                "  gradpool cancel --all\n"
                "  gradpool cancel 7 --grace 0\n"
                "  gradpool cancel hpc:4811\n",
    .options = cancel_params,
    .options_bytes = sizeof(cancel_options),
    .words_max = -1,
    .check = cancel_check,
    .run = cancel_run,
};
