/* `gradpool status`: show the pool with its workers, leases and jobs. */
#include <stddef.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"

typedef struct status_options {
    cli_common common;
} status_options;

static const gp_param status_params[] = {
    CLI_JSON_PARAM(status_options),
    CLI_REMOTE_PARAMS(status_options),
    CLI_COMMON_PARAMS(status_options),
    { 0 },
};

static gp_status status_run(cli_call *call, gp_error *err)
{
    const bool json = ((const status_options *)call->options)->common.json;
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_status status = cli_open(call, true, &call->pool, err);

    /* With --json, standard output is a valid document even if no pool runs. */
    if (status == GP_ENOPOOL && json)
        printf("{\"pool\": null}\n");
    if (status == GP_OK)
        status = pool_status(call->pool, &reply, err);
    if (status == GP_OK)
        status = pool_jobs_glance(call->pool, POOL_JOBS_UNFINISHED, GP_JOB_ROWS_MAX, &jobs, err);
    if (status == GP_OK && json) {
        status = show_status_json(reply, jobs, err);
    } else if (status == GP_OK) {
        show_status(reply, NULL);
        show_jobs_line(jobs);
    }
    gp_free(reply);
    gp_free(jobs);
    return status;
}

const cli_command cli_command_status = {
    .name = "status",
    .summary = "show the pool with its workers, leases and jobs",
    .usage = "[--json]",
    .description =
        "Print the workers of the pool with their state, device, cores, process and lease, followed by "
        "the leases and a summary of the jobs. The command fails if no pool is running, and never starts "
        "one. `gradpool top` shows the same continuously.",
    .examples = "  gradpool status\n"
                "  gradpool status --json | jq '.workers[].state'\n",
    .options = status_params,
    .options_bytes = sizeof(status_options),
    .run = status_run,
};
