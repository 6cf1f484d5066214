/* jobs.h -- background jobs: what was submitted, what of it runs, and how it ended.
 *
 *             insert durable             spawned, durable, told to go
 *   SUBMIT ---> QUEUED ----> STARTING -----------------> RUNNING ----> DONE | FAILED | LOST
 *                 |  ^          |                           |  \
 *                 |  '----------+---------------------------'   cancel ---> STOPPING ---> CANCELED | DONE
 *                 |        the attempt ended with its scheduler (at most GP_JOBS_ATTEMPTS_MAX attempts)
 *                 '--- cancel ---> CANCELED
 *
 * Pure, as core.h is: gp_jobs_step(state, event, now) calls `act` for each action, in order; no files, sockets,
 * processes or clock.  Nothing is told to anybody before it is durable: an INSERT, UPDATE or DELETE action has a
 * number, answers and news that depend on it wait for the event PERSISTED with that number or a larger one.
 *
 *   - A job begins only when the journal has its row; a process of it does anything only when the journal has the
 *     process's pid (START spawns it at a gate, GO opens the gate).  So whatever dies, a new scheduler knows of every
 *     process that did something, and no two processes of a job ever work at the same time.
 *   - When the journal fails, nothing more is acknowledged: held and new requests get the sentence why, nothing more
 *     begins, what runs goes on.
 *
 * act must not call gp_jobs_step(). */
#ifndef GP_JOBS_H
#define GP_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_JOBS_ATTEMPTS_MAX = 3,
    GP_JOBS_NAME_BYTES = 64,
    GP_JOBS_COMMAND_BYTES = 96,
    GP_JOBS_REASON_BYTES = 200,
};

/* These numbers stand in the journal and on the wire. */
typedef enum gp_jobs_state {
    GP_JOBS_NONE = 0, /* not durable yet */
    GP_JOBS_QUEUED = 1,
    GP_JOBS_STARTING = 2, /* never durable: a row says QUEUED or RUNNING */
    GP_JOBS_RUNNING = 3,
    GP_JOBS_STOPPING = 4, /* canceled, its process has yet to end */
    GP_JOBS_DONE = 5,
    GP_JOBS_FAILED = 6,
    GP_JOBS_CANCELED = 7,
    GP_JOBS_LOST = 8, /* every attempt ended with its scheduler */
    GP_JOBS_STATES = 9,
} gp_jobs_state;

typedef enum gp_jobs_exit {
    GP_JOBS_EXIT_NONE = 0, /* it has not ended, or never began */
    GP_JOBS_EXIT_CODE = 1,
    GP_JOBS_EXIT_SIGNAL = 2,
    GP_JOBS_EXIT_UNKNOWN = 3, /* it ended while nobody who could ask was there */
} gp_jobs_exit;

/* Who is told: a client's session.  The same 16 bytes as gp_core_id. */
typedef struct gp_jobs_client {
    uint8_t bytes[16];
} gp_jobs_client;

/* Lists that a job can be in. */
typedef enum gp_jobs_list {
    GP_JOBS_BY_ID,   /* all */
    GP_JOBS_WRITTEN, /* those whose row is being written, in the order of `written` */
    GP_JOBS_ENDED,   /* in the order of their end */
    GP_JOBS_LISTS,
} gp_jobs_list;

/* Numbers of entries; 0: none. */
typedef struct gp_jobs_links {
    uint32_t previous, next;
} gp_jobs_links;

typedef struct gp_jobs_job {
    uint64_t id;           /* from 1, never used again; 0 = this entry is free */
    uint8_t submitter[16]; /* with seq: which submit it was, so that a repeated one finds the same job */
    uint64_t seq;
    int32_t priority;
    gp_jobs_state state;
    uint32_t attempts; /* begun */
    bool cancel;       /* asked for */
    int32_t pid;       /* of the last attempt's process */
    uint64_t start_time;
    uint8_t boot[16];                           /* the machine's boot id then */
    int64_t submitted_ms, started_ms, ended_ms; /* by the wall clock, since 1970; 0 = not yet */
    gp_jobs_exit exit;
    int32_t number;   /* exit code or signal */
    uint32_t workers; /* it holds, or held at most */
    char name[GP_JOBS_NAME_BYTES], command[GP_JOBS_COMMAND_BYTES], reason[GP_JOBS_REASON_BYTES];
    /* From here on: not in the journal. */
    gp_jobs_state durable; /* the state that others may know of */
    uint64_t written;      /* number of its last action */
    bool spawned, told;    /* at the gate; was sent TERM */
    bool foreign;          /* its attempt began under an earlier scheduler */
    int64_t due_ms;        /* told: KILL then */
    int64_t done_ms;       /* monotonic: when it came to be one of the ended here */
    uint32_t heap_place;   /* from 1; 0 = it does not wait */
    gp_jobs_links links[GP_JOBS_LISTS];
} gp_jobs_job;

typedef enum gp_jobs_event_kind {
    GP_JOBS_EVENT_TICK,
    GP_JOBS_EVENT_SUBMIT,         /* client, correlation, submit */
    GP_JOBS_EVENT_CANCEL,         /* client, correlation, job; 0 = all */
    GP_JOBS_EVENT_CAPACITY,       /* count: processes at once */
    GP_JOBS_EVENT_HOLD,           /* count: 1 = begin no more, let what runs end; 0 = go on */
    GP_JOBS_EVENT_STOP,           /* the pool ends now: what runs is stopped and queued again */
    GP_JOBS_EVENT_PERSISTED,      /* persisted */
    GP_JOBS_EVENT_JOURNAL_FAILED, /* status, text; for ever */
    GP_JOBS_EVENT_ADOPTED,        /* job: the process in its row is alive */
    GP_JOBS_EVENT_SPAWNED,        /* job, attempt, pid, start_time, boot */
    GP_JOBS_EVENT_UNBORN,         /* job, attempt, text: could not be spawned */
    GP_JOBS_EVENT_ENDED,          /* job, attempt, exit, number, pool_lost, text */
    GP_JOBS_EVENT_WORKERS,        /* job, count: it holds so many */
} gp_jobs_event_kind;

typedef struct gp_jobs_submit {
    uint8_t submitter[16];
    uint64_t seq;
    int32_t priority;
    const char *name, *command;
} gp_jobs_submit;

/* Zero it, then set kind and what the kind needs.  Borrowed during the step. */
typedef struct gp_jobs_event {
    gp_jobs_event_kind kind;
    int64_t clock_ms; /* the wall clock; always */
    gp_jobs_client client;
    uint64_t correlation;
    const gp_jobs_submit *submit;
    uint64_t job;
    uint32_t attempt, count;
    uint64_t persisted;
    int32_t pid;
    uint64_t start_time;
    uint8_t boot[16];
    gp_jobs_exit exit;
    int32_t number;
    bool pool_lost; /* it ended, or says that it ended, because its pool was gone */
    gp_status status;
    const char *text;
} gp_jobs_event;

typedef enum gp_jobs_action_kind {
    /* To the journal; number. */
    GP_JOBS_INSERT, /* job; the words are those of the submit that is being stepped */
    GP_JOBS_UPDATE, /* job */
    GP_JOBS_DELETE, /* job: its row and its folder */
    /* Done by the shell. */
    GP_JOBS_START, /* job, attempt: fetch its words, spawn it at the gate; answer SPAWNED or UNBORN */
    GP_JOBS_GO,    /* job: open the gate */
    GP_JOBS_DROP,  /* job: its process at the gate is not wanted */
    GP_JOBS_TERM,  /* job: SIGTERM to its process */
    GP_JOBS_KILL,  /* job: SIGKILL to its group */
    /* To clients. */
    GP_JOBS_ACCEPTED,  /* client, correlation, job, known */
    GP_JOBS_CANCELING, /* client, correlation, count */
    GP_JOBS_ERROR,     /* client, correlation, status, text */
    GP_JOBS_CHANGED,   /* job: to whoever watches; its durable state is another */
    GP_JOBS_BROKEN,    /* status, text: to whoever watches; the journal failed */
} gp_jobs_action_kind;

/* Borrowed during the call of act. */
typedef struct gp_jobs_action {
    gp_jobs_action_kind kind;
    uint64_t number;
    const gp_jobs_job *job;
    uint64_t id; /* of job; set for ACCEPTED too, where job may be gone */
    uint32_t attempt, count;
    bool known; /* the submit was a repetition */
    gp_jobs_client client;
    uint64_t correlation;
    gp_status status;
    const char *text;
} gp_jobs_action;

typedef void (*gp_jobs_act)(void *context, const gp_jobs_action *action);

typedef struct gp_jobs_config {
    uint32_t unfinished_max; /* a submit over it is refused with GP_EBUSY */
    uint32_t finished_max;   /* of the finished ones so many, the last to end, are kept */
    int64_t finished_age_ms; /* and none that ended longer ago */
    int64_t
        repeat_ms; /* but all that ended less than this ago: a submit may be repeated so long after its job's end */
    uint32_t replies_max; /* answers that wait for the journal; a request over it is refused with GP_EBUSY */
    uint32_t capacity;    /* processes at once */
    int64_t cancel_ms;    /* TERM -> KILL of a canceled one */
    int64_t stop_ms;      /* TERM -> KILL when the pool ends */
} gp_jobs_config;

typedef struct gp_jobs gp_jobs;

/* 100,000 unfinished; 1,000 finished, 30 days, 1 minute; 65,536 replies; 1 process; 10 s; 2 s. */
gp_jobs_config gp_jobs_config_default(void);

/* gp_jobs_new -- memory for all that config allows is reserved here, and touched only when it is used.
 *   out  released with gp_jobs_free()
 * GP_ENOMEM. */
gp_status gp_jobs_new(gp_jobs **out, const gp_jobs_config *config, gp_jobs_act act, void *context,
                      gp_error *err);
void gp_jobs_free(gp_jobs *jobs);

/* gp_jobs_load -- a row of the journal; in the order of ids, before the first step.
 * GP_ELIMIT: more than config allows.  GP_ECORRUPT: the row makes no sense. */
gp_status gp_jobs_load(gp_jobs *jobs, const gp_jobs_job *row, gp_error *err);

/* gp_jobs_begin -- after the last row: ids go on from next_id.  Each job for which gp_jobs_orphaned() is true must
 * then get ADOPTED or ENDED. */
void gp_jobs_begin(gp_jobs *jobs, uint64_t next_id);
bool gp_jobs_orphaned(const gp_jobs_job *job);

/* now_ms: monotonic, never less than before. */
void gp_jobs_step(gp_jobs *jobs, const gp_jobs_event *event, int64_t now_ms);

/* When the next tick is needed at the latest; INT64_MAX = never. */
int64_t gp_jobs_due(const gp_jobs *jobs);

/* NULL: there is none. */
const gp_jobs_job *gp_jobs_find(const gp_jobs *jobs, uint64_t id);
/* The job with the smallest id over `id`, or the largest under it (0 = of all); NULL: there is none. */
const gp_jobs_job *gp_jobs_after(const gp_jobs *jobs, uint64_t id);
const gp_jobs_job *gp_jobs_before(const gp_jobs *jobs, uint64_t id);

/* How many are in that state (as decided, durable or not). */
uint32_t gp_jobs_count(const gp_jobs *jobs, gp_jobs_state state);
/* With a process, or about to have one. */
uint32_t gp_jobs_active(const gp_jobs *jobs);
/* Whether something is left to do: processes, queued jobs that will begin, rows that are not durable. */
bool gp_jobs_busy(const gp_jobs *jobs);
/* The sentence, or NULL: the journal works. */
const char *gp_jobs_failure(const gp_jobs *jobs);

bool gp_jobs_state_ended(gp_jobs_state state);
/* "queued", "starting", "running", "stopping", "done", "failed", "canceled", "lost" */
const char *gp_jobs_state_word(gp_jobs_state state);

#endif
