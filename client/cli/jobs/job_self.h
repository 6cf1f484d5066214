/* Background job support inside the job's own process.
 *
 * The scheduler starts `gradpool WORDS` with GRADPOOL_JOB_* environment variables
 * (scheduler/jobs/job_process.h). This process waits on a start pipe until the scheduler has stored
 * the process id on disk, enters the working directory, sets the submitter's umask, and maintains
 * job.json in the job folder:
 *
 *     {"job": 7, "attempt": 1, ..., "pid": 4711, "state": "running"}
 *     {..., "state": "ended", "exit": {"code": 1, "error": "GP_EPEER", "message": "worker 2 ..."}}
 *
 * The last action of the process is to rename the second version over the first. The result is
 * therefore known even if no scheduler waits for the process. */
#ifndef GP_CLI_JOB_SELF_H
#define GP_CLI_JOB_SELF_H

#include <gradpool/gradpool.h>

#include "common/model/train_options.h"

/* Return the attempt number of this job; 1: not a job. Call before job_self_begin(), which clears
 * the variable. */
uint32_t job_self_attempt(void);

/* Initialize the job. Call this function first in main(): it waits on the start pipe. It does not
 * return if the pipe closes, or if the working directory does not exist. */
void job_self_begin(int argc, char **argv);

/* Return the job folder; NULL: this process is not a job. */
const char *job_self_folder(void);

/* Link a file of a run in another folder into the job folder, so that `top` and `logs -f` show the
 * curves of the run. Does nothing outside a job. The link fails if the folders are on different
 * file systems, and a symbolic one would not be followed: the first failure is reported.
 *   name  "metrics.jsonl" or "facts.json"; the file exists */
void job_self_link(const char *run_folder, const char *name);

/* Set `path` to FOLDER/result/NAME and create FOLDER/result. */
void job_self_result(const char *name, char *path, size_t bytes);

/* Add all training option values to job.json.
 *   write  do so now; false: only when the job ends */
void job_self_options(const gp_train_options *options, bool write);

/* Format the current time as in the daemon logs. */
void job_self_now(char text[32]);

/* Write the members of job.json that describe this process.
 *   options  training options; NULL: not known yet */
void job_self_put_command(gp_json_writer *writer, int argc, char **argv, const gp_train_options *options);

/* Remember the last error shown to the user, for job.json. */
void job_self_error(const gp_error *error);

/* Write the result to job.json. Call this function last in main(). */
void job_self_end(int code);

#endif
