/* `gradpool status`: show the pool with workers, leases and jobs. */
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

static int status_run(cli_call *call)
{
    const status_options *options = call->options;
    gp_pool *pool;
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_buffer text;
    gp_error err;
    gp_status status = cli_open(call, true, &pool, &err);

    if (status == GP_ENOPOOL && options->common.json)
        printf("{\"pool\": null}\n");
    if (status != GP_OK)
        return cli_fail(call, &err);
    status = pool_status(pool, &reply, &err);
    if (status == GP_OK)
        status = pool_jobs_glance(pool, POOL_JOBS_UNFINISHED, GP_JOB_ROWS_MAX, &jobs, &err);
    gp_pool_close(pool);
    if (status != GP_OK) {
        gp_free(reply);
        return cli_fail(call, &err);
    }
    if (!options->common.json) {
        show_status(reply);
        show_jobs_line(jobs);
    } else {
        gp_buffer_init(&text, GP_JSON_BYTES_MAX);
        status = pool_status_write(reply, jobs, &text, &err);
        if (status == GP_OK)
            printf("%s\n", gp_buffer_text(&text));
        gp_buffer_deinit(&text);
    }
    gp_free(reply);
    gp_free(jobs);
    return status == GP_OK ? CLI_OK : cli_fail(call, &err);
}

const cli_command cli_command_status = {
    .name = "status",
    .summary = "show the pool, its workers, leases and jobs",
    .usage = "[--json]",
    .examples = "  gradpool status\n"
                "  gradpool status --json | jq '.workers[].state'\n",
    .options = status_params,
    .options_bytes = sizeof(status_options),
    .run = status_run,
};
