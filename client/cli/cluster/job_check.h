/* `gradpool job-check GPUS DATA`: the command of the job that `gradpool cluster validate` submits.
 *
 * It runs in the pool of an attempt. It is not a command for users, so no help lists it. For each
 * check it writes a line to the log, which validate_job.c reads:
 *
 *     gradpool-check devices passed 2 workers (cpu)
 *     gradpool-check data failed cannot open the data /d: No such file or directory
 *
 * Then the process becomes a training with checkpoints, which runs until the job is stopped. */
#ifndef GP_CLI_CLUSTER_JOB_CHECK_H
#define GP_CLI_CLUSTER_JOB_CHECK_H

#define JOB_CHECK_PREFIX "gradpool-check "

/* Directory of the checkpoints in the job folder. */
#define JOB_CHECK_CHECKPOINTS "checkpoint"

/* Run the checks.
 *   argv[2]  GPUs that the profile requests
 *   argv[3]  data source; "": none
 *   folder   job folder; NULL: this process is not a job
 * Return the exit code of the process. */
int job_check_main(int argc, char **argv, const char *folder);

#endif
