/* State machine for background jobs: queue them, run them and record how they end.
 *
 *             insert durable             spawned, durable, gate opened
 *   SUBMIT ---> QUEUED ----> STARTING -----------------> RUNNING ----> DONE | FAILED | LOST
 *                 |  ^          |                         |  |
 *                 |  '----------+-------------------------'  '-cancel-> STOPPING -> CANCELED | DONE
 *                 |     the scheduler failed (at most GP_JOBS_ATTEMPTS_MAX attempts)
 *                 '--- cancel ---> CANCELED
 *
 * The state machine is pure, like core.h: gp_jobs_step(state, event, now) calls `act` for each
 * action, in order. It uses no files, sockets, processes or clock. A client learns only durable
 * facts: each INSERT, UPDATE or DELETE action has a number, and dependent replies and notifications
 * wait until the event PERSISTED reports that number or a larger one.
 *
 * - A job starts only after the journal has its row. The process runs only after the journal has
 * the process id: START spawns it behind a gate, GO opens the gate. After any crash, a new
 * scheduler therefore knows all processes that ran, and two processes of one job never run at the
 * same time.
 * - A sweep submits trials and waits for them, so it must not take the place of one: sweeps do not
 * count against the capacity, but have a limit of their own. A sweep has no state besides its
 * files, so one that a signal killed is queued again.
 * - The keeper, which runs the detached calls of exited programs, has the kind of a sweep and the
 * command "results keep". One keeper runs beside the sweeps, because calls and their readers wait
 * for it. The submit of a keeper while another one is queued returns the queued one.
 * - If the journal fails, the state machine acknowledges nothing more. Pending and new requests
 * get the error message, no further job starts, and running jobs continue.
 *
 * act must not call gp_jobs_step(). */
#ifndef GP_JOBS_H
#define GP_JOBS_H

#include "scheduler/core/core.h"

enum {
    GP_JOBS_ATTEMPTS_MAX = 3,
    GP_JOBS_SWEEPS_MAX = 16, /* default of sweeps_max */
    GP_JOBS_NAME_BYTES = 64,
    GP_JOBS_COMMAND_BYTES = 96,
    GP_JOBS_REASON_BYTES = 200,
};

/* Job states. The journal and the protocol store these numbers. */
typedef enum gp_jobs_state {
    GP_JOBS_NONE = 0, /* not durable yet */
    GP_JOBS_QUEUED = 1,
    GP_JOBS_STARTING = 2, /* never durable: a row holds QUEUED or RUNNING */
    GP_JOBS_RUNNING = 3,
    GP_JOBS_STOPPING = 4, /* canceled, but the process has not exited yet */
    GP_JOBS_DONE = 5,
    GP_JOBS_FAILED = 6,
    GP_JOBS_CANCELED = 7,
    GP_JOBS_LOST = 8, /* all attempts were lost with their schedulers */
    GP_JOBS_STATES = 9,
} gp_jobs_state;

/* Job kinds. The journal and the protocol store these numbers. */
typedef enum gp_jobs_kind {
    GP_JOBS_ORDINARY = 0,
    GP_JOBS_SWEEP = 1, /* controls trials and leases no workers; also the keeper */
    GP_JOBS_TRIAL = 2, /* submitted by a sweep, which keeps the record of it */
    GP_JOBS_KINDS = 3,
} gp_jobs_kind;

typedef enum gp_jobs_exit {
    GP_JOBS_EXIT_NONE = 0, /* still running, or never started */
    GP_JOBS_EXIT_CODE = 1,
    GP_JOBS_EXIT_SIGNAL = 2,
    GP_JOBS_EXIT_UNKNOWN = 3, /* exited while no scheduler could collect the exit status */
} gp_jobs_exit;

/* Linked lists that a job can be in. */
typedef enum gp_jobs_list {
    GP_JOBS_BY_ID,   /* all jobs */
    GP_JOBS_WRITTEN, /* jobs with unpersisted rows, ordered by `written` */
    GP_JOBS_ENDED,   /* ended jobs except trials, ordered by end time */
    GP_JOBS_ENDED_TRIALS,
    GP_JOBS_LISTS,
} gp_jobs_list;

/* Neighbours in a list, as entry numbers; 0: none. */
typedef struct gp_jobs_links {
    uint32_t previous, next;
} gp_jobs_links;

typedef struct gp_jobs_job {
    uint64_t id; /* from 1, never reused; 0: this entry is free */
    /* with seq: identifies the submit request, so that a repeated request finds the same job */
    uint8_t submitter[16];
    uint64_t seq;
    gp_jobs_kind kind;
    int32_t priority;
    gp_jobs_state state;
    uint32_t attempts; /* attempts started */
    bool cancel;       /* cancel requested */
    int32_t pid;       /* process of the last attempt */
    uint64_t start_time;
    uint8_t boot[16];                           /* boot id of the machine at that attempt */
    int64_t submitted_ms, started_ms, ended_ms; /* wall clock, ms since 1970; 0: not yet */
    gp_jobs_exit exit;
    int32_t number;   /* exit code or signal */
    uint32_t workers; /* workers held now, or the maximum held */
    char name[GP_JOBS_NAME_BYTES], command[GP_JOBS_COMMAND_BYTES], reason[GP_JOBS_REASON_BYTES];
    /* The journal does not store the fields from here on. */
    gp_jobs_state durable; /* state that clients may see */
    uint64_t written;      /* number of the last action */
    bool spawned;          /* the process waits at the gate */
    bool term_sent;        /* SIGTERM was sent */
    uint32_t grace_ms;     /* if cancel: SIGTERM -> SIGKILL */
    bool foreign;          /* the attempt started under an earlier scheduler */
    int64_t due_ms;        /* if term_sent: time to send SIGKILL */
    int64_t done_ms;       /* monotonic time when this scheduler recorded the end */
    uint32_t heap_place;   /* heap position from 1; 0: not waiting */
    gp_jobs_links links[GP_JOBS_LISTS];
} gp_jobs_job;

typedef enum gp_jobs_event_kind {
    GP_JOBS_EVENT_TICK,
    GP_JOBS_EVENT_SUBMIT,         /* client, correlation, submit */
    GP_JOBS_EVENT_CANCEL,         /* client, correlation, job (0: all jobs), grace_ms */
    GP_JOBS_EVENT_CAPACITY,       /* count: maximum concurrent processes, except sweeps and keeper */
    GP_JOBS_EVENT_HOLD,           /* count: 1: start no jobs, let running ones finish; 0: resume */
    GP_JOBS_EVENT_STOP,           /* the pool shuts down: stop and requeue running jobs */
    GP_JOBS_EVENT_PERSISTED,      /* persisted */
    GP_JOBS_EVENT_JOURNAL_FAILED, /* status, text; permanent */
    GP_JOBS_EVENT_ADOPTED,        /* job: the recorded process is alive */
    GP_JOBS_EVENT_SPAWNED,        /* job, attempt, pid, start_time, boot */
    GP_JOBS_EVENT_UNBORN,         /* job, attempt, status, text: the process could not be spawned */
    GP_JOBS_EVENT_ENDED,          /* job, attempt, exit, number, pool_lost, text */
    GP_JOBS_EVENT_WORKERS,        /* job, count: workers held now */
} gp_jobs_event_kind;

typedef struct gp_jobs_submit {
    uint8_t submitter[16];
    uint64_t seq;
    gp_jobs_kind kind;
    int32_t priority;
    const char *name, *command;
} gp_jobs_submit;

/* Input to one step. Zero the struct, then set kind and the fields listed for that kind. The step
 * borrows all pointers. */
typedef struct gp_jobs_event {
    gp_jobs_event_kind kind;
    int64_t clock_ms;  /* wall clock; always set */
    gp_core_id client; /* session that receives the reply */
    uint64_t correlation;
    const gp_jobs_submit *submit;
    uint64_t job;
    uint32_t attempt, count;
    uint64_t persisted;
    int32_t pid;
    uint64_t start_time;
    uint8_t boot[16];
    uint32_t grace_ms;
    gp_jobs_exit exit;
    int32_t number;
    bool pool_lost;   /* the job ended, or reports that it ended, because the pool was gone */
    gp_status status; /* UNBORN: GP_EINVAL, GP_ENOENT: the job is the cause; others: try again later */
    const char *text;
} gp_jobs_event;

typedef enum gp_jobs_action_kind {
    /* Journal writes; all have a number. */
    GP_JOBS_INSERT, /* job; the texts are in the submit event of this step */
    GP_JOBS_UPDATE, /* job */
    GP_JOBS_DELETE, /* job: delete the row and the folder */
    /* Actions that the shell carries out. */
    /* job, attempt: load the command, spawn it at the gate; reply with SPAWNED or UNBORN */
    GP_JOBS_START,
    GP_JOBS_GO,   /* job: open the gate */
    GP_JOBS_DROP, /* job: discard the process at the gate */
    GP_JOBS_TERM, /* job: send SIGTERM to the process */
    GP_JOBS_KILL, /* job: send SIGKILL to the process group */
    /* Messages to clients. */
    GP_JOBS_ACCEPTED,  /* client, correlation, job, known */
    GP_JOBS_CANCELING, /* client, correlation, count */
    GP_JOBS_ERROR,     /* client, correlation, status, text */
    GP_JOBS_CHANGED,   /* job: notify watching clients that the durable state changed */
    GP_JOBS_BROKEN,    /* status, text: notify watching clients that the journal failed */
} gp_jobs_action_kind;

/* Output of a step, valid during the call to act. */
typedef struct gp_jobs_action {
    gp_jobs_action_kind kind;
    uint64_t number;
    const gp_jobs_job *job;
    uint64_t id; /* job id; also set for ACCEPTED, where job may be NULL */
    uint32_t attempt, count;
    bool known; /* the submit was a repetition */
    gp_core_id client;
    uint64_t correlation;
    gp_status status;
    const char *text;
} gp_jobs_action;

typedef void (*gp_jobs_act)(void *context, const gp_jobs_action *action);

typedef struct gp_jobs_config {
    uint32_t unfinished_max; /* further submits are refused with GP_EBUSY */
    uint32_t finished_max;   /* number of ended jobs to keep, except trials; newest first */
    uint32_t trials_max;     /* number of ended trials to keep, newest first */
    /* keep all jobs that ended more recently than this, so that their submit can be repeated */
    int64_t repeat_ms;
    /* replies that wait for the journal; further requests are refused with GP_EBUSY */
    uint32_t replies_max;
    uint32_t capacity;   /* maximum concurrent processes, except sweeps and keeper; 0: start no job */
    uint32_t sweeps_max; /* maximum concurrent sweeps, except the keeper */
    int64_t cancel_ms;   /* SIGTERM -> SIGKILL for a canceled job */
    int64_t stop_ms;     /* SIGTERM -> SIGKILL when the pool shuts down */
} gp_jobs_config;

typedef struct gp_jobs gp_jobs;

/* Return the defaults: 100,000 unfinished; 1,000 finished and 200 trials, 1 minute; 65,536 replies;
 * 1 process; 16 sweeps; 10 s to cancel; 2 s to stop. */
gp_jobs_config gp_jobs_config_default(void);

/* Create a state machine without jobs. All memory that config allows is reserved here, but touched
 * only when used. Free *out with gp_jobs_free().
 *   GP_ENOMEM: out of memory */
gp_status gp_jobs_new(gp_jobs **out, const gp_jobs_config *config, gp_jobs_act act, void *context,
                      gp_error *err);
void gp_jobs_free(gp_jobs *jobs);

/* Load one journal row. Call this in id order, before the first step.
 *   GP_ELIMIT: more rows than config allows
 *   GP_ECORRUPT: invalid or duplicate row */
gp_status gp_jobs_load(gp_jobs *jobs, const gp_jobs_job *row, gp_error *err);

/* Finish loading. New jobs get ids from next_id on. Then send ADOPTED or ENDED for each job for
 * which gp_jobs_orphaned() returns true. */
void gp_jobs_begin(gp_jobs *jobs, uint64_t next_id);

/* Return whether a row belongs to a job that had a process under an earlier scheduler. */
bool gp_jobs_orphaned(const gp_jobs_job *job);

/* Process one event. now_ms is monotonic and never decreases. */
void gp_jobs_step(gp_jobs *jobs, const gp_jobs_event *event, int64_t now_ms);

/* Return when the next tick is needed; INT64_MAX: never. */
int64_t gp_jobs_due(const gp_jobs *jobs);

/* Find a job by id. NULL: no such job. */
const gp_jobs_job *gp_jobs_find(const gp_jobs *jobs, uint64_t id);

/* Return whether a job awaits the process of that attempt: a START action has neither been followed
 * by SPAWNED or UNBORN nor been canceled. */
bool gp_jobs_awaits(const gp_jobs *jobs, uint64_t id, uint32_t attempt);

/* Iterate over the jobs: return the job with the smallest id above `id`, or the largest id below it
 * (0: the largest of all). NULL: no such job. */
const gp_jobs_job *gp_jobs_after(const gp_jobs *jobs, uint64_t id);
const gp_jobs_job *gp_jobs_before(const gp_jobs *jobs, uint64_t id);

/* Return the number of jobs in a state, durable or not. */
uint32_t gp_jobs_count(const gp_jobs *jobs, gp_jobs_state state);

/* Return the number of jobs that have a process or are about to get one, including sweeps. */
uint32_t gp_jobs_active(const gp_jobs *jobs);

/* Return whether work is pending: processes, queued jobs that can start, or rows that are not
 * durable. The processes of sweeps do not count between the events HOLD and STOP. */
bool gp_jobs_busy(const gp_jobs *jobs);

/* Return whether the journal has all rows, or has failed. */
bool gp_jobs_durable(const gp_jobs *jobs);

/* Return why the journal failed. NULL: the journal works. */
const gp_error *gp_jobs_failure(const gp_jobs *jobs);

bool gp_jobs_state_ended(gp_jobs_state state);

/* Return the state name: "queued", "starting", "running", "stopping", "done", "failed", "canceled"
 * or "lost". */
const char *gp_jobs_state_word(gp_jobs_state state);

#endif
