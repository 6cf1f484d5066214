/* machine.h: state machine of one job on a cluster.
 *
 *            launch begins           id known          started by engine        begin.json
 *   WANTED --------------> LAUNCHING ---------> QUEUED --------------> STARTING ----------> RUNNING
 *     |                      |  ^                 ^                       |                  |
 *     |      outcome unknown,|  |                 '------ requeued -------'------------------'
 *     |      and not listed  '--'
 *     |
 *     |    cancel, from LAUNCHING, QUEUED, STARTING and RUNNING ---> CANCELING
 *     v                                                                  |
 *   ENDED <---- the engine has ended the job, in any state; refused -----'
 *
 * No daemon watches a job. The machine runs inside `submit`, `jobs`, `wait`, `logs` and `cancel`,
 * one command at a time (record.h), and each of them may be killed at any instruction. The rules:
 *
 * - The state is on disk before each outside effect but a cancel. A command that finds LAUNCHING
 *   therefore knows that an earlier command may have launched the job. Only a cancel is sent even
 *   if the state cannot be stored.
 * - A launch of unknown outcome is repeated only after two complete listings, at least
 *   CLUSTER_CONFIRM_MS apart, have answered without the job, and within CLUSTER_REPEAT_MS of the
 *   second one. The repeated launch has the same name.
 *   If the engine accepts the first launch later, a listing shows two jobs with that name; the
 *   machine keeps one and cancels the other (`stray`), but not while the newest attempt has a
 *   number and no begin.json: until then, either job may run it.
 * - A job that one listing lacks has not ended. It has ended if two complete listings at least
 *   CLUSTER_CONFIRM_MS apart lack it, or if a listing shows it as ended. Then the job folder is
 *   read once more: its result decides how the job ended.
 * - A listing that was requested before the last change of the job is ignored: another command may
 *   have launched the job in between. `changes` counts the changes.
 * - A job without a result that the engine no longer has is lost. It is no longer lost when the
 *   engine lists it again, or when its result appears.
 * - The time in the queue is unlimited. Only STARTING is timed, and a late start is only reported.
 * - A cancel is repeated until a listing shows that the job has ended. Ended jobs stay ended: a
 *   launch that the engine accepts later is canceled as soon as a listing shows it.
 * - A job with a result that the engine still lists after CLUSTER_RELEASE_MS is canceled there. An
 *   engine that crashed may have forgotten the end of the job.
 *
 * The machine is pure: cluster_step() applies an event to the job, and cluster_next() returns the
 * next action. Neither does I/O or reads a clock. Times are milliseconds of a monotonic clock,
 * which differs from host to host and after a reboot. The time of the first listing that lacks the
 * job is therefore kept twice: with the name of the clock on disk, for commands of the same host,
 * and in this process (`seen`), for a command that polls. */
#ifndef GP_CLUSTER_MACHINE_H
#define GP_CLUSTER_MACHINE_H

#include "client/cluster/engine.h"

enum {
    CLUSTER_CONFIRM_MS = 5000,    /* distance of the two listings that confirm an absence */
    CLUSTER_REPEAT_MS = 60000,    /* from the second of them to a repeated launch: two slow calls */
    CLUSTER_START_MS = 120000,    /* from the engine's start of a job to its first record */
    CLUSTER_LIST_MS = 15000,      /* poll interval of listings for a job that waits or runs */
    CLUSTER_LIST_SOON_MS = 1000,  /* while a launch, a cancel or an end awaits confirmation */
    CLUSTER_CANCEL_MS = 10000,    /* repeat interval of cancel requests */
    CLUSTER_RELEASE_MS = 120000,  /* from the result until the allocation is canceled */
    CLUSTER_FACTS_MS = 1000,      /* poll interval of the job folder */
    CLUSTER_LAUNCHES_MAX = 3,     /* launches of unknown outcome before the machine gives up */
    CLUSTER_CLOCK_BYTES = 40,     /* a boot id */
    CLUSTER_ELSEWHERE_MAX = 3,    /* then a measurement of another clock is given up */
    CLUSTER_EXIT_NO_OUTCOME = 125 /* exit code of a job that ended without a result */
};

typedef enum cluster_state {
    CLUSTER_WANTED,    /* not launched; nothing but the job folder is on disk */
    CLUSTER_LAUNCHING, /* a launch call has begun, and its outcome is unknown */
    CLUSTER_QUEUED,    /* the engine has accepted the job; no attempt runs */
    CLUSTER_STARTING,  /* the engine runs the job; the attempt has written no record yet */
    CLUSTER_RUNNING,   /* the newest attempt has written begin.json */
    CLUSTER_CANCELING, /* canceled by the user; the engine may still have the job */
    CLUSTER_ENDED,
    CLUSTER_STATES,
} cluster_state;

/* How a job ended. */
typedef enum cluster_end {
    CLUSTER_END_NONE,     /* not ended */
    CLUSTER_END_RESULT,   /* the job wrote its result: exit_code, reason */
    CLUSTER_END_CANCELED, /* without a result */
    CLUSTER_END_REFUSED,  /* the engine did not accept it, and never will: reason */
    CLUSTER_END_LOST,     /* the engine does not have it, and there is no result: reason */
    CLUSTER_ENDS,
} cluster_end;

/* Observations of this process, kept from pass to pass. */
typedef struct cluster_seen {
    char clock[CLUSTER_CLOCK_BYTES]; /* clock of all times here */
    uint64_t changes;                /* changes of the job after the last event */
    int64_t gone_ms;                 /* as in the job, but for listings of this process; 0: none */
    int64_t gone_sure_ms; /* request time of the last listing that confirmed the absence; 0: none */
    bool gone_ended;      /* since gone_ms, a listing showed the job as ended */
    bool live;            /* the last listing showed a live job; `entry` is valid */
    cluster_entry entry;
    cluster_facts facts;
    int64_t list_ms, facts_ms; /* last call, answered or not; 0: none */
    int64_t read_ms;           /* request time of the last facts that were read; 0: none */
    int64_t cancel_ms;         /* last cancel request; 0: none */
    bool mark_failed;          /* no cancel mark could be written; the next pass tries again */
} cluster_seen;

/* One job. record.h stores all members but `seen`. */
typedef struct cluster_job {
    char name[CLUSTER_NAME_BYTES]; /* launch name, set before the first step */
    cluster_state state;
    cluster_end end;
    char id[CLUSTER_ID_BYTES];         /* engine's id; "": unknown */
    char attempt_id[CLUSTER_ID_BYTES]; /* engine's id of the newest attempt; "": unknown */
    char stray_id[CLUSTER_ID_BYTES];   /* second job of this name, or one with a result, to cancel */
    uint32_t launches;                 /* launch calls begun */
    uint32_t attempt;                  /* newest attempt; 0: none */
    uint32_t attempts_over;            /* attempts up to this number have ended */
    bool canceled;                     /* the user has canceled the job */
    bool marked;                       /* the cancel mark exists */
    bool has_result;
    int exit_code; /* of the result, or CLUSTER_EXIT_NO_OUTCOME; -1: not ended, or canceled */
    char reason[CLUSTER_REASON_BYTES];
    int64_t begin_ms, end_ms; /* Unix time of the first begin and of the result; 0: unknown */

    int64_t starting_unix_ms;        /* when STARTING began */
    uint64_t changes;                /* changes of state, launches, attempts and absences */
    char clock[CLUSTER_CLOCK_BYTES]; /* clock of gone_ms */
    int64_t gone_ms;                 /* request time of the first listing without it; 0: it was live */
    uint32_t gone_elsewhere;         /* further such listings by commands with other clocks */

    cluster_seen seen; /* not on disk */
} cluster_job;

typedef enum cluster_event_kind {
    CLUSTER_OPENED,         /* clock: a command has read the record */
    CLUSTER_LAUNCH_BEGINS,  /* the caller launches as soon as this change is on disk */
    CLUSTER_LAUNCHED,       /* text: id */
    CLUSTER_LAUNCH_REFUSED, /* text: reason */
    CLUSTER_LAUNCH_UNKNOWN,
    CLUSTER_LISTED, /* requested_ms, changes, entries: those with the name of this job */
    CLUSTER_LIST_FAILED,
    CLUSTER_FACTS, /* requested_ms, facts */
    CLUSTER_FACTS_FAILED,
    CLUSTER_CANCEL, /* the user cancels the job */
    CLUSTER_MARKED, /* the cancel mark is on disk */
    CLUSTER_MARK_FAILED,
    CLUSTER_CANCEL_SENT,
    CLUSTER_STRAY_CANCEL_SENT,
} cluster_event_kind;

typedef struct cluster_event {
    cluster_event_kind kind;
    const char *text;
    int64_t requested_ms; /* when the listing or the read began */
    int64_t unix_ms;      /* wall clock, for reports and CLUSTER_RELEASE_MS */
    uint64_t changes;     /* job->changes when the listing was requested */
    const cluster_entry *entries;
    size_t entry_count;
    const cluster_facts *facts;
} cluster_event;

typedef enum cluster_action_kind {
    CLUSTER_DO_NOTHING, /* the job has ended */
    CLUSTER_DO_LAUNCH,
    CLUSTER_DO_LIST,
    CLUSTER_DO_READ,         /* read the facts in the job folder */
    CLUSTER_DO_MARK,         /* create the cancel mark */
    CLUSTER_DO_CANCEL,       /* cancel job->id */
    CLUSTER_DO_CANCEL_STRAY, /* cancel job->stray_id */
} cluster_action_kind;

typedef struct cluster_action {
    cluster_action_kind kind;
    int64_t due_ms; /* do it at this time; not later than now: at once */
} cluster_action;

/* Initialize a job in state WANTED. */
void cluster_job_init(cluster_job *job, const char *name);

/* Apply one event. */
void cluster_step(cluster_job *job, const cluster_event *event, int64_t now_ms);

/* Return the next action. */
cluster_action cluster_next(const cluster_job *job, int64_t now_ms);

/* Return whether the engine started the job more than CLUSTER_START_MS ago, but the attempt has
 * written no record. */
bool cluster_start_is_late(const cluster_job *job, int64_t unix_ms);

/* Return the name of a state or an end in records and JSON: "queued", "lost". */
const char *cluster_state_word(cluster_state state);
const char *cluster_end_word(cluster_end end);

#endif
