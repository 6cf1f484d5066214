/* job_process.h -- the process of a job: spawned at a gate, watched through a pidfd, found again by a later scheduler.
 *
 * The child is the `gradpool` command with the job's words, in the job's directory, with the submitter's variables and
 * a few of ours; before anything else it reads one byte from descriptor 3.  End of file there means that its pid never
 * became durable, and it ends without having done anything.  How it ended it writes itself into job.json in its folder:
 * the scheduler that started it may be gone by then. */
#ifndef GP_JOB_PROCESS_H
#define GP_JOB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "proto/local/places.h"
#include "scheduler/core/jobs.h"
#include "scheduler/jobs/journal.h"

typedef struct gp_job_process {
    uint64_t job; /* 0 = none */
    uint32_t attempt;
    pid_t pid;
    uint64_t start_time;
    int pidfd;    /* readable when it has ended */
    int gate;     /* write end; -1 = opened, or not ours */
    bool adopted; /* not our child */
} gp_job_process;

/* The folder of a job: <state>/<host>/<pool>/jobs/<id>. */
void gp_job_folder(const gp_places *places, uint64_t job, char *path, size_t bytes);

/* gp_job_spawn -- at the gate, in a process group of its own, standard input from /dev/null, both outputs appended to
 * `log` in the job's folder, which is made.
 * GP_ENOENT: the command, or the job's directory, is not there.  GP_EIO, GP_ENOMEM. */
gp_status gp_job_spawn(gp_job_process *out, const gp_places *places, uint64_t job, uint32_t attempt,
                       const gp_journal_words *words, gp_error *err);

/* Let it begin. */
void gp_job_go(gp_job_process *process);

/* It is not wanted: the gate closes, and it is killed. */
void gp_job_drop(gp_job_process *process);

/* gp_job_adopt -- the process that a row names, if it is alive: same pid, same start time, same boot. */
bool gp_job_adopt(gp_job_process *out, const gp_jobs_job *job);

/* The boot id of this machine; zeros = not known. */
void gp_job_boot(uint8_t out[16]);

void gp_job_signal(const gp_job_process *process, int number, bool group);

/* How an attempt ended. */
typedef struct gp_job_end {
    gp_jobs_exit exit;
    int32_t number;
    bool pool_lost;
    char text[GP_JOBS_REASON_BYTES];
} gp_job_end;

/* gp_job_reap -- true: it has ended; *process is empty afterwards. */
bool gp_job_reap(gp_job_process *process, const gp_places *places, gp_job_end *end);

/* gp_job_read_end -- what an attempt that nobody watched says of its end; GP_JOBS_EXIT_UNKNOWN if nothing. */
void gp_job_read_end(const gp_places *places, uint64_t job, uint32_t attempt, gp_job_end *end);

/* Close what is open, touch no process. */
void gp_job_process_deinit(gp_job_process *process);

#endif
