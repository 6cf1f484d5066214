/* worker.h -- one worker of a team: its link, its door, the descriptors that it sent, and how its process ended.
 *
 *   DOWN --worker_dial()--> ATTACHING --worker_connect()--> OPENING --task_ready--> UP
 *    ^---------------- worker_close(): end of file at the door, or a grant with another incarnation -----------'
 *
 * team_link.c decides when a stage ends; the functions here do what the next stage needs. */
#ifndef GP_TEAM_WORKER_H
#define GP_TEAM_WORKER_H

#include "client/team/calls.h"
#include "client/pool/pool.h"
#include "common/base/system/timeout.h"

typedef enum team_stage { TEAM_DOWN, TEAM_ATTACHING, TEAM_OPENING, TEAM_UP } team_stage;

/* A memory file that the worker sent before the answer that names it. */
typedef struct worker_blob {
    uint64_t number;
    int fd;
} worker_blob;

typedef struct team_worker {
    gp_pool *pool;               /* the team's; it has the channel to the worker */
    uint32_t number;             /* in the team, from 1 */
    uint32_t index, incarnation; /* in the pool */
    team_stage stage;
    uint32_t pid;           /* of the linked process; 0: none */
    uint64_t awaited;       /* correlation of the reply that ends the stage; 0: none */
    int64_t dial_ms;        /* when to connect again in stage DOWN; INT64_MAX: when a grant comes */
    gp_timeout replacement; /* for stage UP to be reached again */
    int door;               /* -1: closed */
    gp_link *link;          /* NULL: none */
    bool dirty;             /* records are reserved in the link and not committed */
    bool blocked;           /* its next record is an item for a full queue */
    bool corrupt;           /* it sent invalid data; nothing more is read from it */
    bool replacing;         /* its replacement was requested */
    worker_blob *blobs;     /* received, and not yet named by an answer */
    uint32_t blob_count;
    uint32_t held;      /* payloads that it has mapped, those being released included */
    uint32_t releasing; /* those of `held` whose release is in the ring */
    int64_t clock_ns;   /* upper bound of our time at zero of the link's clock; INT64_MAX: unknown */
    int64_t last_ns;    /* end of its last call */
    /* How the last process ended: */
    uint32_t exit_pid;
    bool exit_known;         /* exit_report is set */
    bool exit_awaited;       /* calls wait for exit_report before they fail */
    gp_timeout exit_timeout; /* for exit_report */
    gp_worker_lost exit_report;
} team_worker;

void worker_init(team_worker *worker, gp_pool *pool, uint32_t number);

/* Return whether records of the link may be read now. */
static inline bool worker_readable(const team_worker *worker)
{
    return worker->stage == TEAM_UP && !worker->corrupt && !worker->blocked;
}

/* Write how messages name the worker: team_worker_name(), and a process of it.
 *   pid  of the process; 0: none */
const char *worker_name(const team_worker *worker, uint32_t pid, char name[TEAM_NAME_BYTES]);
/* Write how the last process of the worker ended.
 *   doing  "", or " while it ..." */
void worker_exit_text(const team_worker *worker, const char *doing, char *text, size_t bytes);

/* ---- stages ---- */

/* DOWN -> ATTACHING: connect to the worker of the current grant. */
gp_status worker_dial(team_worker *worker, gp_error *err);
/* ATTACHING -> OPENING: make a link, send its segment and the eventfd `bell` through the door, and request task_open. */
gp_status worker_connect(team_worker *worker, int bell, gp_error *err);
/* Close link and door, and forget the blobs and payloads of the process; the stage is the caller's. */
void worker_close(team_worker *worker);
/* Close the worker and connect again after a short delay. */
void worker_retry(team_worker *worker);

/* ---- requests ---- */

/* Request the end of the running call of that id: set its flag and fail the operations that it waits for. */
void worker_stop_call(const team_worker *worker, uint64_t id);
/* Ask the scheduler to kill and replace the worker, once for each process.
 *   reason  for its log and for error messages: "it did not end within 1 s" */
void worker_replace(team_worker *worker, const char *reason);
/* Stop reading from the worker and have it replaced: it sent `what`, which is invalid. */
void worker_mark_corrupt(team_worker *worker, const char *what);

/* ---- received ---- */

/* Receive all that is pending at the door.  False: end of file. */
bool worker_read_door(team_worker *worker);
/* Return the descriptor of a received blob; the caller closes it.  -1: the worker has sent none of that number. */
int worker_take_blob(team_worker *worker, uint64_t number);
/* Bound the link's clock by an answer that was seen now: it was not written later than now. */
void worker_clock_bound(team_worker *worker, const gp_answer *answer);
/* Estimate when a call began and ended by our clock.  The worker's times are hints only.  The estimates of one worker's
 * calls never overlap, although the bound of its clock improves between two calls. */
void worker_clock_estimate(team_worker *worker, const gp_answer *answer, int64_t ran_ns, int64_t now_ns,
                           int64_t *begun_ns, int64_t *ended_ns);

#endif
