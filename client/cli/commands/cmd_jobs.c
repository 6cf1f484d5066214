/* `gradpool jobs`: list background jobs. */
#include <inttypes.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"

typedef struct jobs_options {
    cli_common common;
    bool all;
    bool trials;
    bool all_profiles;
    char profile[GP_PROFILE_NAME_MAX + 1];
} jobs_options;

static const gp_param jobs_params[] = {
    { .name = "all", GP_PARAM_FIELD(jobs_options, all), .help = "also show jobs that have ended" },
    { .name = "trials",
      GP_PARAM_FIELD(jobs_options, trials),
      .help = "also show the trials of sweeps; default: a sweep has one line" },
    { .name = "profile",
      GP_PARAM_FIELD(jobs_options, profile),
      .help = "list the jobs of a cluster, in place of those of the pool" },
    { .name = "all-profiles",
      GP_PARAM_FIELD(jobs_options, all_profiles),
      .help = "list the jobs of all clusters" },
    CLI_JSON_PARAM(jobs_options),
    CLI_REMOTE_PARAMS(jobs_options),
    CLI_COMMON_PARAMS(jobs_options),
    { 0 },
};

/* Output of a listing. */
typedef struct gp_listing {
    show_table *table; /* NULL: JSON */
    bool trials;       /* include trials */
    uint64_t count, hidden;
} gp_listing;

/* Count and skip a job that the listing does not include. */
static bool is_hidden(gp_listing *listing, const gp_job_info *info)
{
    bool hidden = info->kind == GP_JOB_TRIAL && !listing->trials;

    listing->hidden += hidden;
    return hidden;
}

static bool list_row(void *context, const gp_job_info *info)
{
    gp_listing *listing = context;

    if (is_hidden(listing, info))
        return true;
    show_job(listing->table, info);
    listing->count++;
    return true;
}

/* Print one job as JSON. Writing one object at a time bounds the memory: there may be 100,000
 * jobs. */
static bool list_json(void *context, const gp_job_info *info)
{
    if (is_hidden(context, info))
        return true;
    printf("%s\n  ", ((gp_listing *)context)->count++ == 0 ? "" : ",");
    show_job_json(info, "");
    return true;
}

static gp_status jobs_run(cli_call *call, gp_error *err)
{
    const jobs_options *options = call->options;
    gp_listing listing = { .trials = options->trials };
    gp_jobs_reply *page;
    uint32_t ended;
    gp_status status;

    if (options->all_profiles)
        return cluster_jobs_list_all(call, options->all, err);
    if (options->profile[0] != '\0')
        return cluster_jobs_list(call, options->profile, options->all, err);
    status = cli_open(call, true, &call->pool, err);
    if (status != GP_OK)
        return status;
    if (options->common.json) {
        printf("[");
        status = gp_job_list(call->pool, options->all, list_json, &listing, err);
        printf("%s]\n", listing.count > 0 ? "\n" : "");
        return status;
    }
    listing.table = show_jobs_new();
    status = gp_job_list(call->pool, options->all, list_row, &listing, err);
    if (listing.count == 0 && status == GP_OK)
        printf(options->all ? "no jobs\n" : "no running or queued jobs\n");
    if (listing.count == 0)
        show_table_free(listing.table);
    else
        show_table_print_free(listing.table);
    if (listing.hidden > 0 && status == GP_OK && !options->common.quiet)
        printf("trials of sweeps: %" PRIu64 "; 'gradpool jobs%s --trials' lists them\n", listing.hidden,
               options->all ? " --all" : "");
    if (options->all || status != GP_OK || options->common.quiet ||
        pool_jobs_page(call->pool, 0, 0, 1, &page, NULL) != GP_OK)
        return status;
    ended = page->done + page->failed + page->canceled + page->lost;
    if (ended > 0)
        printf("ended: %" PRIu32 " (%" PRIu32 " done, %" PRIu32 " failed, %" PRIu32 " canceled, %" PRIu32
               " lost); 'gradpool jobs --all' lists them\n",
               ended, page->done, page->failed, page->canceled, page->lost);
    gp_free(page);
    return GP_OK;
}

const cli_command cli_command_jobs = {
    .name = "jobs",
    .summary = "list background jobs",
    .usage = "[--all] [--trials] [--profile PROFILE|--all-profiles] [--json]",
    .description =
        "List queued and running jobs, the newest first, with state, time, workers, attempts, exit code "
        "and command. `gradpool submit` adds jobs, `gradpool logs` prints the output of one, and "
        "`gradpool cancel` stops it. A sweep has one line; with --trials its trials follow.\n\n"
        "With --profile the command lists the jobs that `gradpool submit --profile` gave to a cluster. It "
        "makes one listing of the engine, and continues what an interrupted command left undone. If the "
        "engine does not reply, the engine column has the time of the last reply. An array of jobs has one "
        "line.",
    .examples = "  gradpool jobs\n"
                "  gradpool jobs --all --json | jq '.[] | select(.state == \"failed\")'\n"
                "  gradpool jobs --profile hpc\n",
    .options = jobs_params,
    .options_bytes = sizeof(jobs_options),
    .run = jobs_run,
};
