/* The process of a job: spawn it behind a gate, watch it through a pidfd, and find it again after a
 * scheduler restart.
 *
 * The child runs the `gradpool` command with the job's arguments, with the submitter's environment
 * and a few variables from the scheduler. First it reads one byte from descriptor 3. End of file
 * there means that the journal never stored the pid, so the child exits without doing anything.
 * Then it enters the job's directory. The scheduler never looks at that directory: it may be on a
 * file server that does not reply. The child writes its exit status to job.json in the job folder,
 * because the scheduler that started it may be gone by then. */
#ifndef GP_JOB_PROCESS_H
#define GP_JOB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "proto/local/paths.h"
#include "scheduler/core/jobs.h"
#include "scheduler/jobs/journal.h"

typedef struct gp_job_process {
    uint64_t job; /* job id; 0: none */
    uint32_t attempt;
    pid_t pid;
    uint64_t start_time;
    int pidfd;    /* readable after the process has exited */
    int gate;     /* write end of the gate pipe; -1: opened, or started by an earlier scheduler */
    bool adopted; /* started by an earlier scheduler, so not a child */
} gp_job_process;

/* Write the job folder's path, <state>/<host>/<pool>/jobs/<id>, to path. */
void gp_job_folder(const gp_paths *paths, uint64_t job, char *path, size_t bytes);

/* Find the largest id that has a job folder. 0: none. The journal may not know the job: a damaged
 * journal was moved away, but the results in the folders are still there.
 *   GP_ELIMIT: too many open files
 *   GP_EIO: cannot read the directory */
gp_status gp_job_folders_last(uint64_t *out, const gp_paths *paths, gp_error *err);

/* Spawn a job process behind the gate, in a new session. Standard input is /dev/null. Both outputs
 * are appended to `log` in the job folder, which is created.
 *   out      set to the new process
 *   job      job id
 *   attempt  attempt number, from 1
 *   words    command, environment and directory
 *   files    soft limit on descriptors: the scheduler has raised its own
 *   GP_EINVAL: the job is the cause; it can never start
 *   GP_EIO, GP_ENOMEM: cannot spawn any job now, for example while an upgrade replaces the
 *   command */
gp_status gp_job_spawn(gp_job_process *out, const gp_paths *paths, uint64_t job, uint32_t attempt,
                       const gp_journal_text *words, rlim_t files, gp_error *err);

/* Open the gate: the process starts to work. */
void gp_job_go(gp_job_process *process);

/* Discard a process at the gate: close the gate and kill the process. */
void gp_job_drop(gp_job_process *process);

/* Find the process of a journal row: the one with the recorded pid, start time and boot id.
 *   GP_ENOENT: the process has exited
 *   GP_EBUSY: the system refused to answer, for example for lack of descriptors; try again later */
gp_status gp_job_adopt(gp_job_process *out, const gp_jobs_job *job, gp_error *err);

/* Get the boot id of this machine. All zeros: not available. */
void gp_job_boot(uint8_t out[16]);

/* Send a signal to the process, or to the whole process group. */
void gp_job_signal(const gp_job_process *process, int number, bool group);

/* Result of an attempt. */
typedef struct gp_job_end {
    gp_jobs_exit exit;
    int32_t number;
    bool pool_lost;
    char text[GP_JOBS_REASON_BYTES];
} gp_job_end;

/* Collect a process that has exited, and empty *process. GP_ESTATE: the process is still running.
 * For other errors, see gp_job_read_end(); *process is empty then, too. */
gp_status gp_job_reap(gp_job_process *process, const gp_paths *paths, gp_job_end *end, gp_error *err);

/* Read the result of an attempt from job.json. GP_JOBS_EXIT_UNKNOWN: the attempt left no result.
 *   GP_EBUSY: cannot read the file now; try again later */
gp_status gp_job_read_end(const gp_paths *paths, uint64_t job, uint32_t attempt, gp_job_end *end,
                          gp_error *err);

/* Close all descriptors without signalling the process. */
void gp_job_process_deinit(gp_job_process *process);

#endif
