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
    return show_table_new(10, (const char *[]){ "job", "name", "state", "submitted", "for", "workers",
                                                "attempts", "exit", "command", "" });
}

void show_job(show_table *table, const gp_job_info *job)
{
    char id[24], submitted[32], run[40] = "-", workers[16] = "-", attempts[16], code[24] = "-";
    /* Use the submission time from the scheduler. Current time minus age would vary between
     * listings; it is used only if the time is unknown. */
    time_t then =
        job->submitted_ms > 0 ? (time_t)(job->submitted_ms / 1000) : time(NULL) - (time_t)job->age_seconds;
    struct tm local;

    snprintf(id, sizeof(id), "%" PRIu64, job->id);
    localtime_r(&then, &local);
    strftime(submitted, sizeof(submitted), job->age_seconds < 20 * 3600 ? "%H:%M:%S" : "%Y-%m-%d %H:%M",
             &local);
    if (job->attempts > 0)
        cli_duration(job->run_seconds, run, sizeof(run));
    if (job->workers > 0)
        snprintf(workers, sizeof(workers), "%" PRIu32, job->workers);
    snprintf(attempts, sizeof(attempts), "%" PRIu32, job->attempts);
    if (job->exit_code >= 0)
        snprintf(code, sizeof(code), "%d", job->exit_code);
    else if (job->signal > 0)
        snprintf(code, sizeof(code), "signal %d", job->signal);
    show_row(table, (const char *[]){ id, job->name, gp_job_state_word(job->state), submitted, run, workers,
                                      attempts, code, job->command, job->reason });
}
