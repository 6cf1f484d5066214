/* worker.h: one worker of a team: link, control socket, received descriptors, and process exit.
 *
 *   DOWN --pool_dial_worker()--> ATTACHING --worker_connect()--> OPENING --task_ready--> UP
 *    ^-- worker_close(): end of file on the control socket, or a grant with another incarnation --'
 *
 * team_link.c decides when a stage ends. The functions here do the work of the next stage. */
#ifndef GP_TEAM_WORKER_H
#define GP_TEAM_WORKER_H

#include "client/team/calls.h"
#include "client/pool/pool.h"
#include "common/base/system/timeout.h"

typedef enum team_stage { TEAM_DOWN, TEAM_ATTACHING, TEAM_OPENING, TEAM_UP } team_stage;

typedef struct team_worker {
    gp_pool *pool;               /* pool handle of the team, with the channel to the worker */
    uint32_t number;             /* number in the team, from 1 */
    uint32_t index, incarnation; /* identity in the pool */
    team_stage stage;
    uint32_t pid;     /* process of the link; 0: none */
    uint64_t awaited; /* correlation of the reply that ends the stage; 0: none */

    /* time of the next connection attempt in stage DOWN; INT64_MAX: wait for a grant */
    int64_t dial_ms;
    gp_timeout replacement; /* time limit to reach stage UP again */
    int control_socket;     /* control socket; -1: closed */
    gp_link *link;          /* NULL: none */
    bool dirty;             /* the link has reserved records that are not committed */
    bool blocked;           /* the next record is an item for a full queue */
    bool corrupt;           /* the worker sent invalid data; read nothing more */
    uint32_t held;          /* payloads mapped by the worker, including those being released */
    uint32_t releasing;     /* part of `held` with a release in the ring */

    /* latest local time at which the link clock was 0; INT64_MAX: unknown */
    int64_t clock_ns;
    int64_t last_ns; /* end of the last call */

    /* Exit of the last process. */
    uint32_t exit_pid;
    bool exit_known;         /* exit_report is valid */
    bool exit_awaited;       /* calls wait for exit_report before they fail */
    gp_timeout exit_timeout; /* time limit for exit_report */
    gp_worker_lost exit_report;
} team_worker;

/* Return whether records may be read from the link now. */
static inline bool worker_readable(const team_worker *worker)
{
    return worker->stage == TEAM_UP && !worker->corrupt && !worker->blocked;
}

/* Write the worker's name for messages: team_worker_name(), and optionally a process id.
 *   pid  process to name; 0: none */
const char *worker_name(const team_worker *worker, uint32_t pid, char name[TEAM_NAME_BYTES]);

/* Write how the last process of the worker exited.
 *   doing  "", or a text such as " while it ran this call" */
void worker_exit_text(const team_worker *worker, const char *doing, char *text, size_t bytes);

/* ---- stages ---- */

/* ATTACHING -> OPENING: create a link, send the segment and the wakeup eventfd `wakeup_fd` over the
 * control socket, and request task_open.
 *   output  request the lines that tasks print */
gp_status worker_connect(team_worker *worker, int wakeup_fd, bool output, gp_error *err);

/* Close the link and the control socket, and forget the payloads of the process. The caller sets
 * the stage. */
void worker_close(team_worker *worker);

/* ---- requests ---- */

/* Ask the scheduler to kill and replace the worker, unless it has failed already.
 *   reason  text for the scheduler log and error messages: "it did not end within 1 s" */
void worker_replace(team_worker *worker, const char *reason);

/* Stop reading from the worker and request a replacement: it sent invalid data, described by
 * `what`. */
void worker_mark_corrupt(team_worker *worker, const char *what);

/* ---- receiving ---- */

/* Return whether the worker's end of the control socket is open. Blobs that it sent before it
 * closed its end can still be received. */
bool worker_is_connected(const team_worker *worker);

/* Receive the memory file that a record names. Others stay in the queue of the socket until their
 * records are read: descriptors of this process are scarce.
 *   fd  set to the descriptor, owned by the caller
 * GP_EPROTO: the worker has not sent this number. GP_EIO: this process has no free descriptor; the
 * file is lost. */
gp_status worker_take_blob(team_worker *worker, uint64_t number, int *fd, gp_error *err);

/* Improve the bound of the link clock with an answer read now: the worker wrote it no later than
 * now. */
void worker_clock_bound(team_worker *worker, const gp_answer *answer);

/* Estimate the start and end of a call in local time. The worker's times are only hints. The
 * estimates for calls of one worker never overlap, although the clock bound improves between
 * calls. */
void worker_clock_estimate(team_worker *worker, const gp_answer *answer, int64_t ran_ns, int64_t now_ns,
                           int64_t *begun_ns, int64_t *ended_ns);

#endif
