/* Options that select workers, and their conversion to a lease request. */
#include <ctype.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "common/base/memory/alloc.h"

static const char *const environment_words[] = { "parallel-auto", "auto",         "cpu",          "gpu",
                                                 "multi-gpu",     "parallel-cpu", "parallel-gpu", NULL };

const gp_param cli_lease_options[] = {
    { .name = "workers",
      .alias = "n",
      GP_PARAM_FIELD(cli_lease, workers),
      .basic = true,
      .placeholder = "N|N:M",
      .help = "exactly N workers, or N to M [all of the pool]" },
    { .name = "devices",
      GP_PARAM_FIELD(cli_lease, devices),
      .basic = true,
      .help = "named devices: 1,3 or cuda:0 or a UUID" },
    { .name = "execution-environment",
      GP_PARAM_FIELD(cli_lease, environment),
      .words = environment_words,
      .seed_name = "ExecutionEnvironment",
      .placeholder = "KIND",
      .help =
          "parallel-auto: GPU workers if there are any, else all CPU workers; auto, cpu, gpu: one worker" },
    { .name = "no-wait", GP_PARAM_FIELD(cli_lease, no_wait), .help = "fail instead of waiting for workers" },
    { .name = "priority",
      GP_PARAM_FIELD(cli_lease, priority),
      .min = -GP_PRIORITY_MAX,
      .max = GP_PRIORITY_MAX,
      .help = "in the queue for workers: higher is served first" },
    { 0 },
};

/* Parse "2" or "2:4". GP_EINVAL: malformed, zero, or more than GP_MEMBERS_MAX. */
static gp_status lease_parse_workers(const char *text, gp_lease_request *out, gp_error *err)
{
    char *end;
    unsigned long least = strtoul(text, &end, 10), most = least;

    if (*end == ':')
        most = strtoul(end + 1, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || least == 0 || most < least ||
        most > GP_MEMBERS_MAX)
        return gp_fail(err, GP_EINVAL, "--workers is '%s'; it must be N or N:M with 1 <= N <= M <= %u", text,
                       GP_MEMBERS_MAX);
    out->workers_min = (uint32_t)least;
    out->workers_max = (uint32_t)most;
    return GP_OK;
}

/* Convert the options that need no pool. The one-worker environments (auto, cpu, gpu) exclude
 * --workers. */
static gp_status lease_parse(const cli_lease *lease, gp_lease_request *out, gp_error *err)
{
    bool one = lease->environment == CLI_ENV_AUTO || lease->environment == CLI_ENV_CPU ||
               lease->environment == CLI_ENV_GPU;

    if (one && lease->workers[0] != '\0')
        return gp_fail(err, GP_EINVAL,
                       "--execution-environment %s means one worker; drop --workers %s or use parallel-auto",
                       environment_words[lease->environment], lease->workers);
    if (one)
        out->workers_min = out->workers_max = 1;
    return lease->workers[0] == '\0' ? GP_OK : lease_parse_workers(lease->workers, out, err);
}

gp_status cli_lease_check(const cli_lease *lease, gp_error *err)
{
    return lease_parse(lease, &(gp_lease_request){ 0 }, err);
}

/* Report whether the pool has a usable worker with a GPU. */
static gp_status pool_has_gpu(gp_pool *pool, bool *has, gp_error *err)
{
    gp_status_reply *reply = NULL;
    gp_status status = pool_status(pool, &reply, err);

    if (status != GP_OK)
        return status;
    *has = false;
    for (uint32_t i = 0; i < reply->workers_count; i++)
        *has |=
            reply->workers[i].slot.device_kind == GP_DEVICE_CUDA && reply->workers[i].state <= GP_WORKER_BUSY;
    gp_free(reply);
    return GP_OK;
}

gp_status cli_lease_request(const cli_call *call, gp_pool *pool, gp_lease_request *out, gp_error *err)
{
    const cli_lease *lease = &call->lease;
    bool gpu;

    *out = (gp_lease_request){ .no_wait = lease->no_wait,
                               .priority = (int32_t)lease->priority,
                               .devices = lease->devices[0] != '\0' ? lease->devices : NULL };
    gp_status status = lease_parse(lease, out, err);

    if (status == GP_OK)
        status = pool_has_gpu(pool, &gpu, err);
    if (status != GP_OK)
        return status;
    switch ((cli_environment)lease->environment) {
    case CLI_ENV_GPU:
    case CLI_ENV_MULTI_GPU:
    case CLI_ENV_PARALLEL_GPU:
        if (!gpu)
            return gp_fail(
                err, GP_ENODEV,
                "--execution-environment %s: no worker of this pool has a GPU of its own; 'gradpool devices' "
                "shows what there is, parallel-auto uses the CPU workers",
                environment_words[lease->environment]);
        out->environment = GP_ENVIRONMENT_GPU;
        break;
    case CLI_ENV_CPU:
    case CLI_ENV_PARALLEL_CPU:
        out->environment = GP_ENVIRONMENT_CPU;
        break;
    case CLI_ENV_AUTO:
    case CLI_ENV_PARALLEL_AUTO:
        out->environment = gpu ? GP_ENVIRONMENT_GPU : GP_ENVIRONMENT_ANY;
        break;
    }
    return GP_OK;
}
