/* State machine of a sweep: choose points, run each as a trial, record how it ended.
 *
 *          line durable         job known, runs                 job ended
 *   ASKED --------------> SUBMITTED ---------> RUNNING ------------------> DONE | FAILED | LOST
 *     ^                       |                   |--stop: line durable--> STOPPING --> STOPPED
 *     '---- the attempt was lost or interrupted --'
 *
 * The state machine is pure: sweep_step(sweep, event) calls `act` for each action, in order. It
 * uses no files, sockets, processes or clock. A journal of lines (trial_lines.h) is the only state
 * that survives the controller. Each APPEND action has a number, and an action that depends on a
 * line waits until the event APPENDED reports that number or a larger one:
 *
 * - A trial is submitted only after its line is durable. A controller that restarts repeats the
 * submit of each trial without an end, with the same sequence number, and finds the same job. Thus
 * a trial has one job per attempt, and an attempt begins only when the job of the last one has
 * ended.
 * - The end of a trial frees its slot before its line is durable. One sync then serves this line
 * and the line of the next trial, which follows it in the journal.
 * - A job is stopped only after the line with the reason is durable. Otherwise a restarted
 * controller would take the stop for a cancel by the user.
 * - The search learns values in the order of the lines: replaying them restores it. If the journal
 * fails, no line and no trial follow, and running trials end without a record; the next controller
 * finds their results.
 *
 * Elastic trials share the workers of the pool: the running ones get equal parts between
 * workers_min and workers_max. A slot that another trial will fill counts as filled, so that sizes
 * change only when the number of concurrent trials does.
 *
 * The user can add points, and retry trials that ended without a result. Both become trials of
 * their own, which come in addition to trials_max. Their lines name the request, so that a
 * controller that restarts knows which requests it has taken. After the last trial, the best one is
 * repeated with further seeds; a repeat is never stopped early and never counts as the best trial.
 *
 * act must not call sweep_step(). */
#ifndef GP_SWEEP_CORE_H
#define GP_SWEEP_CORE_H

#include "client/sweep/trial_lines.h"
#include "common/base/error.h"

enum {
    SWEEP_TRIALS_MAX = 10000,
    SWEEP_CONCURRENT_MAX = 256,
    SWEEP_WAITING_MAX = 1024, /* trials of the user that wait for a slot */
    SWEEP_LOSSES_MAX = 3,     /* lost attempts of a trial */
    SWEEP_ATTEMPTS_MAX = 65535,
    SWEEP_REPEATS_MAX = 100,
};

/* Trial: a point of the space and the state of the training with it. */
typedef struct sweep_trial {
    sweep_state state;
    uint32_t attempt, losses; /* from 1; attempts that were lost */
    char *values, *how;       /* owned */
    uint32_t of, repeat;      /* trial whose point this is, and number of the repeat; 0: none */
    char *request;            /* of the user; owned; NULL: none */
    uint32_t epoch;           /* last epoch reported, or epochs of the ended trial */
    double value;             /* objective at that epoch; NaN: none */
    uint32_t rung;            /* last epoch reported to the search */
    uint32_t workers;         /* size as last requested; 0: unknown */
    bool stop;                /* a stop was decided; the trial ends as STOPPED */
    bool interrupted;         /* the controller was interrupted; a cancel does not end the trial */
    bool resumed;             /* an earlier controller may have submitted this attempt */
    bool known;               /* the pool acknowledged the job of this attempt */
    bool stop_sent;
    uint64_t line; /* number of the last line about the trial */
    char *text;    /* why the trial failed; owned; NULL: no reason */
} sweep_trial;

/* Reasons for the end of a sweep. */
typedef enum sweep_reason {
    SWEEP_REASON_NONE,
    SWEEP_REASON_TRIALS,    /* all trials have ended */
    SWEEP_REASON_EXHAUSTED, /* all points of the space were tried */
    SWEEP_REASON_GOAL,      /* a value reached the goal */
    SWEEP_REASON_TIME,      /* the time limit was reached */
    SWEEP_REASON_FAILURES,  /* too many trials failed in a row */
    SWEEP_REASON_HALTED,    /* interrupted; a restarted controller continues */
    SWEEP_REASON_JOURNAL,   /* the journal failed; a restarted controller continues */
    SWEEP_REASON_SEARCH,    /* the search failed */
} sweep_reason;

typedef enum sweep_event_kind {
    SWEEP_EVENT_BEGIN,      /* the replay is complete */
    SWEEP_EVENT_APPENDED,   /* number: all lines up to it are durable */
    SWEEP_EVENT_UNWRITABLE, /* text: the journal failed; permanent */
    SWEEP_EVENT_SUBMITTED,  /* trial, attempt: the pool has the job */
    SWEEP_EVENT_RUNNING,    /* trial, attempt: the job runs */
    SWEEP_EVENT_VALUE,      /* trial, attempt, epoch, value: a validation */
    SWEEP_EVENT_ENDED,      /* trial, attempt, outcome, epoch, value, text: the job has ended */
    SWEEP_EVENT_ADD,        /* values, text: run a point of the user; text: number of the request */
    SWEEP_EVENT_RETRY,      /* trial, text: run the point of a trial that ended without a result */
    SWEEP_EVENT_WORKERS,    /* count: workers of the pool that trials can lease */
    SWEEP_EVENT_TIME,       /* the time limit was reached: stop running trials */
    SWEEP_EVENT_HALT,       /* the user interrupts the sweep */
} sweep_event_kind;

/* How the job of an attempt ended. */
typedef enum sweep_outcome {
    SWEEP_OUTCOME_DONE,     /* the training is complete */
    SWEEP_OUTCOME_FAILED,   /* the training failed by itself, for the reason `text` */
    SWEEP_OUTCOME_CANCELED, /* a client canceled the job */
    SWEEP_OUTCOME_LOST,     /* no result: a signal, or a shutdown of the pool */
} sweep_outcome;

/* Input to one step. The step borrows all pointers. */
typedef struct sweep_event {
    sweep_event_kind kind;
    uint64_t number;
    uint32_t trial, attempt, epoch, count;
    double value; /* NaN: none */
    sweep_outcome outcome;
    const char *text, *values;
} sweep_event;

typedef enum sweep_action_kind {
    SWEEP_APPEND,    /* number, line: append to the journal; reply with APPENDED or UNWRITABLE */
    SWEEP_SUBMIT,    /* trial, attempt, workers: submit the job; reply with SUBMITTED */
    SWEEP_STOP_JOB,  /* trial, attempt: cancel the job */
    SWEEP_SIZE,      /* trial, attempt, workers: resize the training */
    SWEEP_LINK_BEST, /* trial: the model of the sweep is that of this trial */
    SWEEP_OVER,      /* reason, text: nothing is left to do; the last action */
} sweep_action_kind;

/* Output of a step, valid during the call to act. */
typedef struct sweep_action {
    sweep_action_kind kind;
    uint64_t number;
    const sweep_line *line;
    uint32_t trial, attempt, workers;
    sweep_reason reason;
    const char *text;
} sweep_action;

typedef void (*sweep_act)(void *context, const sweep_action *action);

/* Verdict of a search about a trial at an epoch. */
typedef enum sweep_verdict {
    SWEEP_NO_RUNG,  /* the search decides nothing at this epoch */
    SWEEP_CONTINUE, /* recorded; the trial continues */
    SWEEP_STOP,     /* recorded; the trial is not worth its cost */
} sweep_verdict;

/* Interface to a search, which chooses the points. Trials have the numbers 1, 2, ... in the order
 * of ask() and add(). */
typedef struct sweep_search {
    void *context;

    /* Propose a point as JSON, valid until the next call. GP_ENOENT: no point is left. */
    gp_status (*ask)(void *context, const char **values, gp_error *err);

    /* Add a point that the journal contains, that the user requested or that is repeated. `extra`:
     * the trial comes in addition to trials_max. */
    gp_status (*add)(void *context, const char *values, bool extra, gp_error *err);
    sweep_verdict (*report)(void *context, uint32_t trial, uint32_t epoch, double value);
    void (*tell)(void *context, uint32_t trial, sweep_state state, double value);
} sweep_search;

typedef struct sweep_config {
    uint32_t trials_max;     /* 1 to SWEEP_TRIALS_MAX; the user's points and repeats are extra */
    uint32_t concurrent_max; /* 1 to SWEEP_CONCURRENT_MAX */
    uint32_t workers_min, workers_max;
    uint32_t failures_max; /* end after this many failures in a row; 0: no limit */
    uint32_t repeats;      /* of the best trial, with further seeds, after all others */
    bool minimize;
    double goal;     /* end when a value reaches it; NaN: none */
    const char *how; /* name of the method, for the journal; borrowed */
    sweep_search search;
} sweep_config;

typedef struct sweep sweep;

/* Create a sweep without trials. Free *out with sweep_free(). GP_EINVAL: config has a value out of
 * range. GP_ENOMEM: out of memory. */
gp_status sweep_new(sweep **out, const sweep_config *config, sweep_act act, void *context, gp_error *err);
void sweep_free(sweep *s); /* accepts NULL */

/* Replay a line of the journal. Call this in order, before the event BEGIN.
 *   GP_ECORRUPT: the line contradicts the lines before it
 *   GP_ELIMIT: too many trials */
gp_status sweep_replay(sweep *s, const sweep_line *line, gp_error *err);

/* Process one event. ADD and RETRY are ignored if the sweep is ending or full: sweep_requested()
 * reports it. Events for a trial that has ended, or for an earlier attempt, are ignored. */
void sweep_step(sweep *s, const sweep_event *event);

/* Return a trial, from 1. NULL: no such trial. */
const sweep_trial *sweep_find(const sweep *s, uint32_t trial);

/* Return the trial that runs a request of the user; 0: none. */
uint32_t sweep_requested(const sweep *s, const char *request);

/* Return whether a trial can be retried: it failed, was lost or was stopped, and is no repeat. */
bool sweep_can_retry(const sweep_trial *trial);

/* Return whether all trials have ended (idle), and also that no further trial is planned
 * (complete). The search is not asked. */
bool sweep_is_idle(const sweep *s);
bool sweep_is_complete(const sweep *s);

/* Return whether the best trial has reached sweep_config.goal. False: also without a goal or a best
 * trial. */
bool sweep_has_goal(const sweep *s);

uint32_t sweep_count(const sweep *s); /* trials so far; the last one has this number */
uint32_t sweep_best(const sweep *s);  /* best trial that is done, of equal ones the first; 0: none */

#endif
