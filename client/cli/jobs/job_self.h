/* job_self.h -- when this process is a background job: its gate, its folder, and the record it leaves.
 *
 * The scheduler starts `gradpool WORDS` with GRADPOOL_JOB_* in its environment (scheduler/jobs/job_process.h).  This process
 * waits at the gate until its pid is on disk, takes the submitter's umask, and keeps job.json in its folder:
 *
 *     {"job": 7, "attempt": 1, ..., "pid": 4711, "state": "running"}
 *     {..., "state": "ended", "exit": {"code": 1, "error": "GP_EPEER", "message": "worker 2 ..."}}
 *
 * the second renamed over the first as the last thing it does: so its end is known although nobody may wait for it. */
#ifndef GP_CLI_JOB_SELF_H
#define GP_CLI_JOB_SELF_H

#include <gradpool/gradpool.h>

#include "common/model/train_options.h"

/* Which attempt of a job this is; 1 in no job.  Before job_self_begin(). */
uint32_t job_self_attempt(void);

/* First in main(): waits at the gate.  Does not return when the gate closes. */
void job_self_begin(int argc, char **argv);

/* The job's folder; NULL: this is no job. */
const char *job_self_folder(void);

/* folder/result/name; makes the folder. */
void job_self_result(const char *name, char *path, size_t bytes);

/* Write the values of all training options into the job's record. */
void job_self_options(const gp_train_options *options);

/* Write the members that describe this process to the JSON object of a job.json.
 *   options  NULL: not known yet */
void job_self_put_command(gp_json_writer *writer, int argc, char **argv, const gp_train_options *options);

/* The last error that was shown to the user. */
void job_self_error(const gp_error *error);

/* Last in main(). */
void job_self_end(int code);

#endif
