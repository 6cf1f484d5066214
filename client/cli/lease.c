/* Options that select workers, and their conversion to a lease request. */
#include <ctype.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "common/base/memory/alloc.h"

static const char *const environment_words[] = { "parallel-auto", "auto",         "cpu",          "gpu",
                                                 "multi-gpu",     "parallel-cpu", "parallel-gpu", NULL };

/* Meaning of each word: one worker or several, and their kind (ANY: GPUs, if there are any). */
static const struct environment {
    bool one;
    gp_lease_environment kind;
} environments[] = { { false, GP_ENVIRONMENT_ANY }, { true, GP_ENVIRONMENT_ANY },
                     { true, GP_ENVIRONMENT_CPU },  { true, GP_ENVIRONMENT_GPU },
                     { false, GP_ENVIRONMENT_GPU }, { false, GP_ENVIRONMENT_CPU },
                     { false, GP_ENVIRONMENT_GPU } };

const gp_param cli_lease_options[] = {
    { .name = "workers",
      .alias = "n",
      GP_PARAM_FIELD(cli_lease, workers),
      .basic = true,
      .placeholder = "N|N:M",
      .help = "number of workers: N, or N:M for N to M [all of the pool]" },
    { .name = "devices",
      GP_PARAM_FIELD(cli_lease, devices),
      .basic = true,
      .help = "devices: 1,3 or cuda:0 or a UUID" },
    { .name = "execution-environment",
      GP_PARAM_FIELD(cli_lease, environment),
      .words = environment_words,
      .seed_name = "ExecutionEnvironment",
      .placeholder = "KIND",
      .help = "parallel-auto: all GPU workers, or without GPUs all CPU workers; auto, cpu, gpu: one worker" },
    { .name = "no-wait", GP_PARAM_FIELD(cli_lease, no_wait), .help = "fail instead of waiting for workers" },
    { .name = "priority",
      GP_PARAM_FIELD(cli_lease, priority),
      .min = -GP_PRIORITY_MAX,
      .max = GP_PRIORITY_MAX,
      .help = "priority in the queue for workers; higher values are served first" },
    { .name = "needs",
      GP_PARAM_FIELD(cli_lease, needs),
      .placeholder = "NAME=N,...",
      .help = "minimum resources of each worker, as set by `up --resource`" },
    { 0 },
};

/* Convert the options that need no pool: --workers is "2" or "2:4". The one-worker environments
 * (auto, cpu, gpu) exclude it. */
static gp_status lease_parse(const cli_lease *lease, gp_lease_request *out, gp_error *err)
{
    const char *text = lease->workers;
    char *end;
    unsigned long least, most;

    if (environments[lease->environment].one && text[0] != '\0')
        return gp_fail(err, GP_EINVAL,
                       "--execution-environment %s uses one worker; drop --workers %s or use parallel-auto",
                       environment_words[lease->environment], text);
    if (text[0] == '\0') {
        out->workers_min = out->workers_max = environments[lease->environment].one;
        return GP_OK;
    }
    least = most = strtoul(text, &end, 10);
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

gp_status cli_lease_check(const cli_lease *lease, gp_error *err)
{
    gp_resource_table needs;
    gp_status status = lease_parse(lease, &(gp_lease_request){ 0 }, err);

    return status == GP_OK ? gp_resources_parse(&needs, lease->needs, err) : status;
}

gp_status cli_lease_request(const cli_call *call, gp_pool *pool, gp_lease_request *out, gp_error *err)
{
    const cli_lease *lease = &call->lease;
    gp_status_reply *reply = NULL;
    bool gpu = false; /* the pool has a usable worker with a GPU */

    *out = (gp_lease_request){ .no_wait = lease->no_wait,
                               .priority = (int32_t)lease->priority,
                               .devices = lease->devices[0] != '\0' ? lease->devices : NULL,
                               .environment = environments[lease->environment].kind,
                               .needs = lease->needs[0] != '\0' ? lease->needs : NULL };
    gp_status status = lease_parse(lease, out, err);

    if (status == GP_OK)
        status = pool_status(pool, &reply, err);
    for (uint32_t i = 0; status == GP_OK && i < reply->workers_count; i++)
        gpu |=
            reply->workers[i].slot.device_kind == GP_DEVICE_CUDA && reply->workers[i].state <= GP_WORKER_BUSY;
    gp_free(reply);
    if (status == GP_OK && out->environment == GP_ENVIRONMENT_GPU && !gpu)
        return gp_fail(err, GP_ENODEV,
                       "--execution-environment %s: no worker of this pool has a GPU of its own; 'gradpool "
                       "devices' lists the GPUs; parallel-auto uses CPU workers",
                       environment_words[lease->environment]);
    if (out->environment == GP_ENVIRONMENT_ANY && gpu)
        out->environment = GP_ENVIRONMENT_GPU;
    return status;
}
