#include <inttypes.h>
#include <stddef.h>

#include "client/cli/cli.h"
#include "common/base/alloc.h"

typedef struct down_options {
    cli_common common;
    bool when_idle;
} down_options;

static const gp_param down_params[] = {
    { .name = "when-idle",
      .type = GP_PARAM_BOOL,
      .offset = offsetof(down_options, when_idle),
      .help = "let what runs finish first" },
    CLI_COMMON_PARAMS(down_options),
    { 0 },
};

static int down_run(cli_call *call)
{
    const down_options *options = call->options;
    gp_pool *pool;
    gp_error err;
    gp_status status = cli_open(call, true, &pool, &err);

    if (status == GP_ENOPOOL) {
        if (!options->common.quiet)
            fprintf(stderr, "no pool is running\n");
        return CLI_OK;
    }
    if (status != GP_OK)
        return cli_fail(call, &err);
    gp_status_reply *reply = NULL;
    uint32_t leases = 0, workers = 0;
    char name[sizeof(reply->pool)] = "";

    if (pool_status(pool, &reply, &err) == GP_OK) { /* only for the words at the end */
        snprintf(name, sizeof(name), "%s", reply->pool);
        leases = reply->leases_count;
        workers = reply->workers_count;
    }
    gp_free(reply);
    status = gp_pool_shutdown(pool, options->when_idle, &err);
    if (status == GP_OK && !options->when_idle)
        status = pool_wait_gone(pool, 5000, &err);
    gp_pool_close(pool);
    if (status != GP_OK)
        return cli_fail(call, &err);
    if (!options->common.quiet && options->when_idle && leases > 0)
        printf("pool %s ends after %" PRIu32 " lease%s\n", name, leases, leases == 1 ? "" : "s");
    else if (!options->common.quiet)
        printf("ended pool %s: %" PRIu32 " worker%s, %" PRIu32 " lease%s\n", name, workers,
               workers == 1 ? "" : "s", leases, leases == 1 ? "" : "s");
    return CLI_OK;
}

extern const cli_command cli_command_down;
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
