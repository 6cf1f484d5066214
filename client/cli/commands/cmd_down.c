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
    { .name = "when-idle", GP_PARAM_FIELD(down_options, when_idle), .help = "let what runs finish first" },
    CLI_REMOTE_PARAMS(down_options),
    CLI_COMMON_PARAMS(down_options),
    { 0 },
};

/* Size of the pool for the final message; members that cannot be read stay 0. */
typedef struct gp_size {
    char pool[64];
    /* running: jobs that run; waiting: jobs queued for the next pool. */
    uint32_t workers, leases, running, waiting;
} gp_size;

/* Read the size of the pool before the shutdown. */
static void measure(gp_pool *pool, gp_size *size)
{
    gp_status_reply *reply;
    gp_jobs_reply *jobs;

    if (pool_status(pool, &reply, NULL) == GP_OK) {
        snprintf(size->pool, sizeof(size->pool), "%s", reply->pool);
        size->leases = reply->leases_count;
        size->workers = reply->workers_count;
        gp_free(reply);
    }
    if (pool_jobs_page(pool, 0, 0, 1, &jobs, NULL) == GP_OK) {
        size->running = jobs->running;
        size->waiting = jobs->queued;
        gp_free(jobs);
    }
}

/* Print the result. A shutdown at once also returns running jobs to the queue. */
static void say_ended(const gp_size *size, bool when_idle)
{
    uint32_t waiting = size->waiting + (when_idle ? 0 : size->running);

    if (when_idle && size->leases + size->running > 0)
        printf("pool %s ends after %" PRIu32 " lease%s and %" PRIu32 " job%s\n", size->pool, size->leases,
               gp_plural(size->leases), size->running, gp_plural(size->running));
    else
        printf("ended pool %s: %" PRIu32 " worker%s, %" PRIu32 " lease%s\n", size->pool, size->workers,
               gp_plural(size->workers), size->leases, gp_plural(size->leases));
    if (waiting > 0)
        printf("%" PRIu32 " job%s for the next pool\n", waiting, waiting == 1 ? " waits" : "s wait");
}

static gp_status down_run(cli_call *call, gp_error *err)
{
    const down_options *options = call->options;
    gp_size size = { .workers = 0 };
    gp_status status = cli_open(call, true, &call->pool, err);

    if (status == GP_ENOPOOL) {
        if (!options->common.quiet)
            fprintf(stderr, "no pool is running\n");
        return GP_OK;
    }
    if (status != GP_OK)
        return status;
    measure(call->pool, &size);
    status = gp_pool_shutdown(call->pool, options->when_idle, err);
    if (status == GP_OK && !options->when_idle)
        status = pool_wait_gone(call->pool, POOL_GONE_MS, err);
    if (status == GP_OK && !options->common.quiet)
        say_ended(&size, options->when_idle);
    return status;
}

const cli_command cli_command_down = {
    .name = "down",
    .summary = "end the pool",
    .usage = "[--when-idle]",
    .examples = "  gradpool down                    now: what runs is stopped\n"
                "  gradpool down --when-idle        after the last lease\n",
    .options = down_params,
    .options_bytes = sizeof(down_options),
    .run = down_run,
};
