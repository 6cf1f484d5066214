#include <stddef.h>

#include "client/cli/cli.h"
#include "common/base/clock.h"

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
    status = gp_pool_shutdown(pool, options->when_idle, &err);
    if (status == GP_OK && !options->when_idle)
        status = pool_wait_gone(pool, 5000, &err);
    gp_pool_close(pool);
    return status == GP_OK ? CLI_OK : cli_fail(call, &err);
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
