/* `gradpool metrics`: the state of the pool for Prometheus. */
#include "client/cli/cli.h"
#include "client/runs/prometheus.h"
#include "common/base/memory/alloc.h"

typedef struct metrics_options {
    cli_common common;
    bool open_metrics;
} metrics_options;

static const gp_param metrics_params[] = {
    { .name = "openmetrics",
      GP_PARAM_FIELD(metrics_options, open_metrics),
      .help = "print OpenMetrics 1.0.0 instead of the Prometheus text format 0.0.4" },
    CLI_REMOTE_PARAMS(metrics_options),
    CLI_COMMON_PARAMS(metrics_options),
    { 0 },
};

enum { METRICS_BYTES_MAX = 8 << 20 };

/* Get the totals of the jobs. If the pool cannot record jobs, set *out to NULL and report the
 * reason through the note callback. */
static gp_status totals_get(gp_jobs_reply **out, gp_pool *pool, gp_error *err)
{
    gp_error why;
    const gp_status status = pool_jobs_page(pool, 0, POOL_JOBS_UNFINISHED, 1, out, &why);

    if (status == GP_EPEER || status == GP_ETIMEDOUT || status == GP_ENOMEM)
        return gp_fail(err, status, "%s", why.message);
    if (status != GP_OK) {
        pool_note(pool, "jobs: %s", why.message);
        *out = NULL;
    }
    return GP_OK;
}

static gp_status metrics_run(cli_call *call, gp_error *err)
{
    const metrics_options *options = call->options;
    gp_status_reply *reply = NULL;
    gp_jobs_reply *jobs = NULL;
    gp_buffer text;
    gp_status status = pool_status(call->pool, &reply, err);

    gp_buffer_init(&text, METRICS_BYTES_MAX);
    if (status == GP_OK)
        status = totals_get(&jobs, call->pool, err);
    if (status == GP_OK)
        status = prometheus_write(&text, reply, jobs, gp_version(), options->open_metrics, err);
    if (status == GP_OK)
        fputs(gp_buffer_text(&text), stdout);
    gp_buffer_deinit(&text);
    gp_free(reply);
    gp_free(jobs);
    return status;
}

const cli_command cli_command_metrics = {
    .name = "metrics",
    .summary = "print the state of the pool for Prometheus",
    .usage = "[--openmetrics]",
    .description =
        "Print workers, leases, jobs and counters of the pool in the text format of Prometheus. The counters "
        "of a worker begin at 0 with its process and continue if the scheduler is replaced; those of the "
        "scheduler begin at 0 with the scheduler.\n\n"
        "For the textfile collector of node_exporter, write to a temporary file and rename it. The command "
        "fails if no pool is running, and never starts one.",
    .examples = "  gradpool metrics\n"
                "  gradpool metrics > gradpool.prom.tmp && mv gradpool.prom.tmp gradpool.prom\n"
                "  gradpool metrics --openmetrics | grep samples\n",
    .options = metrics_params,
    .options_bytes = sizeof(metrics_options),
    .pool = CLI_POOL_RUNNING,
    .run = metrics_run,
};
