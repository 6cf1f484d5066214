#include "client/cli/job_wait.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"

enum { RETRIES = 20, RETRY_MS = 100 };

gp_status job_number(const char *word, uint64_t *job, gp_error *err)
{
    char *end;
    unsigned long long number = strtoull(word, &end, 10);

    if (!isdigit((unsigned char)word[0]) || *end != '\0' || number == 0 || number > INT64_MAX)
        return gp_fail(err, GP_EINVAL,
                       "'%.40s' is no job; jobs are numbers from 1, 'gradpool jobs' lists them", word);
    *job = number;
    return GP_OK;
}

gp_status job_wait(const cli_call *call, gp_pool **pool, gp_job_info *infos, const uint64_t *jobs,
                   size_t count, bool any, int timeout_ms, gp_error *err)
{
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : gp_now_ms() + timeout_ms;
    gp_status status = GP_OK;

    for (int tries = 0; tries < RETRIES; tries++) {
        int64_t left = deadline - gp_now_ms();

        if (*pool == NULL)
            status = cli_open(call, false, pool, err);
        if (status != GP_OK)
            return status;
        status = gp_job_wait(infos, *pool, jobs, count, any,
                             timeout_ms < 0 ? -1
                             : left > 0     ? (int)left
                                            : 0,
                             &cli_stop, err);
        if (status != GP_EPEER)
            return status;
        gp_pool_close(*pool); /* the scheduler died: the next one has the jobs */
        *pool = NULL;
        gp_sleep_ms(RETRY_MS);
        status = GP_OK;
    }
    return gp_fail(err, GP_EPEER, "the scheduler died %d times while this waited", RETRIES);
}

void job_say_end(FILE *out, const gp_job_info *info)
{
    char time[40];

    fprintf(out, "job %" PRIu64 "%s%s%s: %s", info->id, info->name[0] != '\0' ? " (" : "", info->name,
            info->name[0] != '\0' ? ")" : "", gp_job_state_word(info->state));
    if (info->attempts > 0)
        fprintf(out, " after %s", cli_duration(info->run_seconds, time, sizeof(time)));
    if (info->exit_code > 0)
        fprintf(out, ", exit code %d", info->exit_code);
    if (info->reason[0] != '\0')
        fprintf(out, ": %s", info->reason);
    fprintf(out, "\n");
}
