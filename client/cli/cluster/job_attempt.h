/* `gradpool job-attempt FOLDER [COMMAND_FILE MESSAGE_FILE]`: run one attempt of a cluster job
 * inside its allocation.
 *
 * The engine's script starts this process. It is not a command for users, so no help lists it. In a
 * container of Kubernetes it has all three words (attempt_container.h), and copies the log to
 * standard output.
 *
 *   1. take the next attempt number in the job folder, which fences older attempts
 *   2. start a pool on the granted cores or GPUs, with runtime and state directories on this host
 *   3. run the job's command in this pool, and append its output to the log
 *   4. end the pool, remove the directories
 *   5. write the result, or ask the engine to queue the job again
 *
 * Two processes do this: one runs the attempt, and its parent, the guard, ends the pool and removes
 * the directories if the first one is killed. Each ends the attempt if the other exits.
 *
 * The engine announces the end of the allocation (time limit, pre-emption) with SIGTERM. The
 * command then stops with a checkpoint, from which the next attempt resumes. */
#ifndef GP_CLI_CLUSTER_JOB_ATTEMPT_H
#define GP_CLI_CLUSTER_JOB_ATTEMPT_H

/* Run an attempt. argv[2] is the job folder. argv[3] and argv[4] are optional: the file with the
 * command of the job, and the file for the termination message. Return the exit code of the
 * process. */
int job_attempt_main(int argc, char **argv);

#endif
