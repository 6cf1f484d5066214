/* Helpers shared by the commands that work with jobs. */
#ifndef GP_CLI_JOB_WAIT_H
#define GP_CLI_JOB_WAIT_H

#include "client/cli/cli.h"

/* Parse a job number. GP_EINVAL: malformed; the message suits cli_usage(). */
gp_status job_number(const char *word, uint64_t *job, gp_error *err);

/* Check that all words are job numbers. Return CLI_OK, or the exit code after printing an error. */
int job_numbers_check(const cli_call *call);

/* Like gp_job_wait(), but reconnect after a scheduler failure, starting a new scheduler if
 * necessary. Opens *pool if it is NULL, and may replace it; the caller closes it. */
gp_status job_wait(const cli_call *call, gp_pool **pool, gp_job_info *infos, const uint64_t *jobs,
                   size_t count, bool any, int timeout_ms, gp_error *err);

/* Connect to a running pool and get a job. *pool must be NULL before the call; the caller closes it
 * even after a failure. */
gp_status job_refresh(const cli_call *call, gp_pool **pool, gp_job_info *info, uint64_t job, gp_error *err);

/* Print a line such as "job 7 (lenet): failed after 3.2 s, exit code 1: REASON". */
void job_print_end(FILE *out, const gp_job_info *info);

#endif
