/* Background job tables. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/show.h"

void show_jobs_line(const gp_jobs_reply *jobs)
{
    if (jobs->running + jobs->queued == 0)
        return;
    printf("\njobs: %" PRIu32 " running, %" PRIu32 " queued ('gradpool jobs' lists them)\n", jobs->running,
           jobs->queued);
}

show_table *show_jobs_new(void)
{
    return show_table_new(10, "job\tname\tstate\tsubmitted\tfor\tworkers\tattempts\texit\tcommand\t");
}

gp_status show_status_json(const gp_status_reply *status, const gp_jobs_reply *jobs, gp_error *err)
{
    gp_buffer text;

    gp_buffer_init(&text, GP_JSON_BYTES_MAX);
    gp_status written = pool_status_write(status, jobs, &text, err);

    if (written == GP_OK)
        printf("%s\n", gp_buffer_text(&text));
    gp_buffer_deinit(&text);
    return written;
}

void show_job_json(const gp_job_info *job, const char *end)
{
    gp_buffer text;
    gp_json_writer writer;

    gp_buffer_init(&text, 1 << 16);
    gp_json_writer_init(&writer, &text, false);
    pool_job_write(&writer, job);
    printf("%s%s", gp_buffer_text(&text), end);
    gp_buffer_deinit(&text);
}

void show_job(show_table *table, const gp_job_info *job)
{
    char submitted[32], run[40] = "-", workers[16] = "-", code[24] = "-";
    /* Use the submission time from the scheduler. Current time minus age would vary between
     * listings; it is used only if the time is unknown. */
    time_t then =
        job->submitted_ms > 0 ? (time_t)(job->submitted_ms / 1000) : time(NULL) - (time_t)job->age_seconds;
    struct tm local;

    localtime_r(&then, &local);
    strftime(submitted, sizeof(submitted), job->age_seconds < 20 * 3600 ? "%H:%M:%S" : "%Y-%m-%d %H:%M",
             &local);
    if (job->attempts > 0)
        cli_duration(job->run_seconds, run, sizeof(run));
    if (job->workers > 0)
        snprintf(workers, sizeof(workers), "%" PRIu32, job->workers);
    if (job->exit_code >= 0 || job->signal > 0)
        snprintf(code, sizeof(code), "%s%d", job->exit_code >= 0 ? "" : "signal ",
                 job->exit_code >= 0 ? job->exit_code : job->signal);
    show_cells(table, "%" PRIu64 "\t%s\t%s\t%s\t%s\t%s\t%" PRIu32 "\t%s\t%s\t%s", job->id, job->name,
               gp_job_state_word(job->state), submitted, run, workers, job->attempts, code, job->command,
               job->reason);
}
