/* Run one program of an attempt: append its output to the job's log, and react to notices.
 *
 * The output passes through a pipe and this process, because only this process knows whether the
 * attempt is still the newest one: an outdated attempt must not write to the log. */
#ifndef GP_CLI_CLUSTER_ATTEMPT_RUN_H
#define GP_CLI_CLUSTER_ATTEMPT_RUN_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/base/system/fence.h"

/* Requests to end an attempt. They hold for all programs that it runs. */
typedef struct attempt_stops {
    bool noticed;  /* the engine sent SIGTERM or SIGUSR1 */
    bool canceled; /* the cancel mark exists */
    bool outdated; /* a newer attempt has begun, or the guard process has exited */
} attempt_stops;

/* Open files of an attempt. */
typedef struct attempt_files {
    const char *folder; /* job folder */
    gp_fence fence;
    int log, signals; /* opened for appending; signalfd for the notices */
    pid_t guard;      /* parent process, which ends what this process leaves (job_attempt.c) */
    bool copied;      /* output goes to standard error, too: the log of a container */
} attempt_files;

/* Open the log and block the signals of notices. Close the files also after an error. */
gp_status attempt_files_open(attempt_files *files, const char *folder, const gp_fence *fence, gp_error *err);
void attempt_files_close(attempt_files *files);

/* Append a line to the log and to standard error. */
void attempt_note(const attempt_files *files, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Update `stops` from pending signals and the job folder. */
void attempt_check(const attempt_files *files, attempt_stops *stops);

/* Run `gradpool WORDS` with the environment of this process until it exits.
 *   words  NULL-terminated; words[0] is "gradpool"
 *   code   exit code; 128 + N: ended by signal N
 *   stops  updated. A notice or a cancel stops the program with SIGINT, which lets a training end
 *          its step and write a checkpoint. A newer attempt kills it.
 * GP_EIO: the program cannot be started, or its output could not be written for a minute. */
gp_status attempt_run(const attempt_files *files, const char *const *words, int *code, attempt_stops *stops,
                      gp_error *err);

#endif
