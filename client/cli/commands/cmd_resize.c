/* `gradpool resize`: change the worker count of a running training or elastic team. */
#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/jobs/job_wait.h"
#include "common/base/text/text.h"

typedef struct resize_options {
    cli_common common;
} resize_options;

static const gp_param resize_params[] = { CLI_REMOTE_PARAMS(resize_options),
                                          CLI_COMMON_PARAMS(resize_options),
                                          { 0 } };

typedef struct resize_what {
    /* Job or lease to resize; the other one is 0. */
    uint64_t job, lease;
    uint32_t workers;
} resize_what;

/* Parse the words: "7" is a job, "lease:3" is a lease. */
static gp_status resize_parse(const cli_call *call, resize_what *out, gp_error *err)
{
    static const char prefix[] = "lease:";
    const char *what = call->words[0], *count = call->words[1];
    bool lease = strncmp(what, prefix, sizeof(prefix) - 1) == 0;
    char *end;
    unsigned long workers = strtoul(count, &end, 10);

    *out = (resize_what){ 0 };
    if (!isdigit((unsigned char)count[0]) || *end != '\0' || workers == 0 || workers > GP_MEMBERS_MAX)
        return gp_fail(err, GP_EINVAL, "the number of workers is '%.40s'; it must be from 1 to %u", count,
                       GP_MEMBERS_MAX);
    out->workers = (uint32_t)workers;
    if (!lease)
        return job_number(what, &out->job, err);
    if (job_number(what + sizeof(prefix) - 1, &out->lease, NULL) != GP_OK)
        return gp_fail(err, GP_EINVAL, "'%.40s' is not a lease; 'gradpool status' lists leases", what);
    return GP_OK;
}

static int resize_check(cli_call *call)
{
    resize_what what;
    gp_error err;

    if (call->word_count != 2)
        return cli_usage(call, "which job, and how many workers? usage: gradpool resize %s",
                         call->command->usage);
    return resize_parse(call, &what, &err) == GP_OK ? CLI_OK : cli_usage(call, "%s", err.message);
}

static gp_status resize_run(cli_call *call, gp_error *err)
{
    const resize_options *options = call->options;
    resize_what what;
    gp_status status = resize_parse(call, &what, err);

    if (status == GP_OK)
        status = gp_training_resize(call->pool, what.lease, what.job, what.workers, err);
    if (status == GP_OK && !options->common.quiet)
        printf("%s %" PRIu64 " continues with %" PRIu32
               " worker%s from its next step, or when enough workers are free\n",
               what.lease != 0 ? "lease" : "job", what.lease != 0 ? what.lease : what.job, what.workers,
               gp_plural(what.workers));
    return status;
}

const cli_command cli_command_resize = {
    .name = "resize",
    .summary = "change the number of workers of a running training or elastic team",
    .usage = "JOB N | lease:LEASE N",
    .description =
        "Change the number of workers of a training: fewer workers from the next step on, more workers "
        "when they are free and prepared. JOB is the number of a background job, LEASE that of a training "
        "in a terminal or program (`gradpool status`). The last `resize` counts. The lease of an elastic "
        "team, "
        "for example of `parfor --workers N:M` with a function, changes in the same way: a worker leaves "
        "after "
        "the call that it runs.",
    .examples = "  gradpool resize 7 2          # job 7 of 'gradpool jobs'\n"
                "  gradpool resize lease:3 4    # a training in a terminal, lease 3 of 'gradpool status'\n"
                "  gradpool resize 7 2 --pool gpu-box     # a job of a pool on another host\n",
    .options = resize_params,
    .options_bytes = sizeof(resize_options),
    .words_max = 2,
    .pool = CLI_POOL_RUNNING,
    .check = resize_check,
    .run = resize_run,
};
