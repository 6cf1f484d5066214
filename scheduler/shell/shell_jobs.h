/* Background jobs inside the shell.
 *
 *   shell_jobs.c          state machine (jobs.h), journal and processes
 *   shell_job_messages.c  client messages
 *
 * If the journal cannot be opened (network file system, damaged file and so on), the pool runs
 * without it. Each request about jobs then gets the error message. A journal that another process
 * has locked, such as a suspended earlier scheduler, is opened once it is free. */
#ifndef GP_SHELL_JOBS_H
#define GP_SHELL_JOBS_H

#include <poll.h>

#include "scheduler/jobs/job_process.h"
#include "scheduler/core/jobs.h"
#include "scheduler/jobs/journal.h"
#include "scheduler/shell/shell_parts.h"

enum {
    SHELL_JOBS_PENDING_MAX = 256,
    SHELL_JOBS_WATCHES_MAX = 4096,
    SHELL_JOBS_CLIENT_WATCHES_MAX = 64,
};

typedef struct shell_job_watch {
    gp_core_id session;
    uint64_t correlation, job; /* job id; 0: all jobs */
    uint64_t missed;           /* a job whose change could not be sent; 0: none */
} shell_job_watch;

typedef struct shell_job_event { /* event with a copy of the text, unlike gp_jobs_event */
    gp_jobs_event event;
    char text[GP_ERROR_MESSAGE_MAX];
} shell_job_event;

typedef struct shell_jobs {
    gp_jobs *machine;
    gp_journal *journal; /* NULL: no journal */
    int64_t retry_ms;    /* without a journal: time to try again to open it; 0: never */
    int64_t orphans_ms;  /* time to search again for jobs of an earlier scheduler; 0: never */
    /* command of the submit event that the state machine is processing */
    const gp_journal_text *submitting;
    gp_job_process processes[SHELL_JOBS_PROCESSES_MAX];
    shell_job_event pending[SHELL_JOBS_PENDING_MAX]; /* events caused by executing actions */
    uint32_t pending_count;
    shell_job_watch watches[SHELL_JOBS_WATCHES_MAX];
    uint32_t watch_count;
    uint8_t boot[16];
    bool busy, held; /* values last reported to the core and the state machine */
    int64_t stop_ms; /* time when the state machine was notified of the shutdown; 0: not yet */
    uint32_t capacity;
    gp_jobs_reply list; /* large reply buffer, used for one reply at a time */
} shell_jobs;

/* ---- shell_jobs.c ---- */

/* Pass an event to the state machine, and then all events that it caused. */
void shell_jobs_step(shell *s, gp_jobs_event *event);

/* ---- shell_job_messages.c ---- */

/* Send the client message for an action of the state machine. */
void shell_jobs_notify(shell *s, const gp_jobs_action *action);

/* Retry changes that could not be sent before. */
void shell_jobs_notify_missed(shell *s);

/* End all watches with an error reply. */
void shell_jobs_end_watches(shell *s, gp_status status, const char *why);

#endif
