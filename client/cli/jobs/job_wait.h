/* job_wait.h -- what the commands about jobs share. */
#ifndef GP_CLI_JOB_WAIT_H
#define GP_CLI_JOB_WAIT_H

#include "client/cli/cli.h"

/* "7" into *job; the sentence is for cli_usage(). */
gp_status job_number(const char *word, uint64_t *job, gp_error *err);

/* gp_job_wait(), which goes on with the next scheduler when one dies: that is started if need be.  *pool is opened, if
 * it is NULL, and may be another one afterwards; the caller closes it. */
gp_status job_wait(const cli_call *call, gp_pool **pool, gp_job_info *infos, const uint64_t *jobs,
                   size_t count, bool any, int timeout_ms, gp_error *err);

/* The pool, which must run, and the job; the caller closes *pool, which is NULL before, in any case. */
gp_status job_look(const cli_call *call, gp_pool **pool, gp_job_info *info, uint64_t job, gp_error *err);

/* "job 7 (lenet): failed after 3.2 s, exit code 1: sentence" */
void job_say_end(FILE *out, const gp_job_info *info);

#endif
