/* `gradpool down`: shut down the pool, at once or when it is idle. */
#include <inttypes.h>

#include "client/cli/cli.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/text.h"

typedef struct down_options {
    cli_common common;
    bool when_idle;
} down_options;

static const gp_param down_params[] = {
    { .name = "when-idle",
      GP_PARAM_FIELD(down_options, when_idle),
      .help = "finish running leases and jobs first" },
    CLI_REMOTE_PARAMS(down_options),
    CLI_COMMON_PARAMS(down_options),
    { 0 },
};

static gp_status down_run(cli_call *call, gp_error *err)
{
    const down_options *options = call->options;
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_status status = cli_open(call, true, &call->pool, err);

    if (status == GP_ENOPOOL) {
        if (!options->common.quiet)
            fprintf(stderr, "no pool is running\n");
        return GP_OK;
    }
    if (status != GP_OK)
        return status;
    /* the state before the shutdown, for the final message */
    if (pool_status(call->pool, &reply, NULL) != GP_OK)
        reply = NULL;
    if (pool_jobs_page(call->pool, 0, 0, 1, &jobs, NULL) != GP_OK)
        jobs = NULL;
    status = gp_pool_shutdown(call->pool, options->when_idle, err);
    if (status == GP_OK && !options->when_idle)
        status = pool_wait_gone(call->pool, POOL_GONE_MS, err);
    if (status == GP_OK && !options->common.quiet && reply != NULL) {
        uint32_t leases = reply->leases_count, running = jobs != NULL ? jobs->running : 0;
        /* a shutdown at once also returns running jobs to the queue */
        uint32_t waiting = (jobs != NULL ? jobs->queued : 0) + (options->when_idle ? 0 : running);

        if (options->when_idle && leases + running > 0)
            printf("pool %s shuts down after %" PRIu32 " lease%s and %" PRIu32 " job%s\n", reply->pool,
                   leases, gp_plural(leases), running, gp_plural(running));
        else
            printf("pool %s was shut down: %" PRIu32 " worker%s, %" PRIu32 " lease%s\n", reply->pool,
                   reply->workers_count, gp_plural(reply->workers_count), leases, gp_plural(leases));
        if (waiting > 0)
            printf("%" PRIu32 " job%s for the next pool\n", waiting, waiting == 1 ? " waits" : "s wait");
    }
    gp_free(reply);
    gp_free(jobs);
    return status;
}

const cli_command cli_command_down = {
    .name = "down",
    .summary = "shut down the pool",
    .usage = "[--when-idle]",
    .description =
        "Shut down the pool at once, or with --when-idle after the running leases and jobs. Queued jobs, "
        "and jobs that the shutdown interrupts, wait for the next pool. The command succeeds if no pool "
        "is running.",
    .examples = "  gradpool down                    at once: stop running work\n"
                "  gradpool down --when-idle        after the last lease\n",
    .options = down_params,
    .options_bytes = sizeof(down_options),
    .run = down_run,
};
