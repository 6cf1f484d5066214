/* shell_jobs.h -- inside the shell: background jobs.
 *
 *   shell_jobs.c          the machine (jobs.h), its journal, its processes     shell_job_messages.c  what clients say
 *
 * Without a journal (its directory is on a network file system, the file is damaged, ...) the pool serves all the same;
 * every request about jobs is answered with the sentence why. */
#ifndef GP_SHELL_JOBS_H
#define GP_SHELL_JOBS_H

#include <poll.h>

#include "scheduler/jobs/job_process.h"
#include "scheduler/core/jobs.h"
#include "scheduler/jobs/journal.h"
#include "scheduler/shell/shell_parts.h"

enum {
    SHELL_JOBS_PROCESSES_MAX = 2 * GP_CORE_SLOTS_MAX, /* those that were dropped take a moment to end */
    SHELL_JOBS_PENDING_MAX = 256,
    SHELL_JOBS_WATCHES_MAX = 4096,
    SHELL_JOBS_CLIENT_WATCHES_MAX = 64,
};

typedef struct shell_job_watch {
    gp_core_id session;
    uint64_t correlation, job; /* job: 0 = all */
    uint64_t missed;           /* a change of this job could not be sent; 0 = none */
} shell_job_watch;

typedef struct shell_job_event { /* gp_jobs_event.text is borrowed, this one's is kept */
    gp_jobs_event event;
    char text[GP_ERROR_MESSAGE_MAX];
} shell_job_event;

typedef struct shell_jobs {
    gp_jobs *machine;
    gp_journal *journal;                /* NULL: there is none */
    const gp_journal_words *submitting; /* of the submit that is being stepped */
    gp_job_process processes[SHELL_JOBS_PROCESSES_MAX];
    shell_job_event pending[SHELL_JOBS_PENDING_MAX]; /* what carrying out actions led to */
    uint32_t pending_count;
    shell_job_watch watches[SHELL_JOBS_WATCHES_MAX];
    uint32_t watch_count;
    uint8_t boot[16];
    bool busy, held, stopped; /* as the core, and the machine, were last told */
    uint32_t capacity;
    gp_jobs_reply list; /* large; one at a time */
} shell_jobs;

/* ---- shell_jobs.c ---- */

void shell_jobs_step(shell *s, gp_jobs_event *event);

/* ---- shell_job_messages.c ---- */

void shell_jobs_tell(shell *s, const gp_jobs_action *action);
/* Changes that could not be sent before. */
void shell_jobs_tell_missed(shell *s);
/* Every watch ends with that sentence. */
void shell_jobs_end_watches(shell *s, gp_status status, const char *why);

#endif
