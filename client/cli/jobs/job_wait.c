/* Look up and wait for jobs, across scheduler failures. */
#include "client/cli/jobs/job_wait.h"

#include "client/cli/show.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"

/* Attempts to reach the next scheduler, and the delay between them. */
enum { RETRIES = 20, RETRY_MS = 100 };

gp_status job_number(const char *word, uint64_t *job, gp_error *err)
{
    char *end;
    unsigned long long number = strtoull(word, &end, 10);

    if (!isdigit((unsigned char)word[0]) || *end != '\0' || number == 0 || number > INT64_MAX)
        return gp_fail(err, GP_EINVAL,
                       "'%.40s' is not a job; give a number from 1, 'gradpool jobs' lists jobs", word);
    *job = number;
    return GP_OK;
}

int job_numbers_check(const cli_call *call)
{
    uint64_t job;
    gp_error err;

    for (int i = 0; i < call->word_count; i++)
        if (job_number(call->words[i], &job, &err) != GP_OK)
            return cli_usage(call, "%s", err.message);
    return CLI_OK;
}

/* After a scheduler failure, close the pool and return whether to try again: the next scheduler
 * restores the jobs. */
static bool retry(gp_pool **pool, gp_status status, int *tries)
{
    if (status != GP_EPEER || ++*tries > RETRIES)
        return false;
    gp_pool_close(*pool);
    *pool = NULL;
    gp_sleep_ms(RETRY_MS);
    return true;
}

gp_status job_wait(const cli_call *call, gp_pool **pool, gp_job_info *infos, const uint64_t *jobs,
                   size_t count, bool any, int timeout_ms, gp_error *err)
{
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : gp_now_ms() + timeout_ms;
    gp_status status;
    int tries = 0;

    do {
        int64_t left = deadline - gp_now_ms();

        status = *pool == NULL ? cli_open(call, false, pool, err) : GP_OK;
        if (status == GP_OK)
            status = gp_job_wait(infos, *pool, jobs, count, any,
                                 timeout_ms < 0 ? -1
                                 : left > 0     ? (int)left
                                                : 0,
                                 &cli_stop, err);
    } while (retry(pool, status, &tries));
    return status;
}

gp_status job_refresh(const cli_call *call, gp_pool **pool, gp_job_info *info, uint64_t job, gp_error *err)
{
    gp_status status;
    int tries = 0;

    do {
        status = cli_open(call, tries == 0, pool, err);
        if (status == GP_OK)
            status = gp_job_get(info, *pool, job, err);
    } while (retry(pool, status, &tries));
    return status;
}

void job_print_end(FILE *out, const gp_job_info *info)
{
    char time[40], name[sizeof(info->name)], reason[sizeof(info->reason)];

    fprintf(out, "job %" PRIu64 "%s%s%s: %s", info->id, info->name[0] != '\0' ? " (" : "",
            show_clean(name, sizeof(name), info->name), info->name[0] != '\0' ? ")" : "",
            gp_job_state_word(info->state));
    if (info->attempts > 0)
        fprintf(out, " after %s", cli_duration(info->run_seconds, time, sizeof(time)));
    if (info->exit_code > 0)
        fprintf(out, ", exit code %d", info->exit_code);
    if (info->reason[0] != '\0')
        fprintf(out, ": %s", show_clean(reason, sizeof(reason), info->reason));
    fprintf(out, "\n");
}
