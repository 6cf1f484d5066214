/* team.h -- inside a team: its workers, links, and what it holds; for the files of the team and futures alone.
 *
 *   team.c           open and close, entering and leaving a call, units
 *   team_lasting.c   what is said to every worker, and again to each that replaces one
 *   team_link.c      workers: attached, linked, opened; their doors; death and replacement
 *   team_payloads.c  which worker has which payload
 *   team_answers.c   what workers say: results, items, lines
 *   team_drive.c     waiting, and the thread that drives while no call is made
 *   dispatch.c       which call goes where (pure)
 *   future.c, function.c, values.c, queue.c, shared.c   what users see
 *   spmd.c, parfor.c, parfor_chunk.c                    blocks and loops
 *
 * A worker's way:
 *
 *   DOWN --grant: dial, hello, attach--> ATTACHING --ok: door, descriptors, task_open--> OPENING --task_ready--> UP
 *    ^------------------------ the door's end of file, or a grant with another incarnation ------------------------'
 *
 * Death is known from the worker's door at once.  First its answers are taken, for what it has committed counts; then
 * what it had not begun goes elsewhere, and the one that it ran counts an attempt.
 *
 * One mutex guards all.  Who calls holds it until the call returns, also while it sleeps; the background thread holds
 * it but when it sleeps.  A callback runs with it held, and enters again without taking it. */
#ifndef GP_TEAM_H
#define GP_TEAM_H

#include <pthread.h>

#include "client/team/dispatch.h"
#include "client/pool/pool.h"
#include "client/team/shared.h"
#include "client/team/team_parts.h"
#include "common/base/system/timeout.h"
#include "proto/local/door.h"

enum {
    TEAM_OPEN_MS = 10000,    /* for all links of a new team */
    TEAM_REDIAL_MS = 500,    /* after an attempt that failed, while the grant stands */
    TEAM_REPLACE_MS = 30000, /* a worker that is not back by then breaks the team */
    TEAM_FACTS_MS = 5000,    /* how a worker died is waited for so long: the scheduler may be busy */
    TEAM_DOOR_MS = 2000,
    TEAM_LOOK_MS = 10,   /* doors and scheduler, while answers come without a pause */
    TEAM_SLEEP_MS = 250, /* the longest sleep; also how soon `stop` is seen without a signal */
    TEAM_STOP_MS = 50,
    TEAM_BACKGROUND_MS = 1,  /* calls must have ceased for so long */
    TEAM_DEATHS_MAX = 3,     /* of workers, by something that every new one is told again */
    TEAM_HEAP_MAX = 1 << 20, /* bytes of a payload that is a memory file only on its way */
    TEAM_BLOBS_MAX = 4096,   /* descriptors from one worker that no answer has named yet */
};

typedef enum team_stage { TEAM_DOWN, TEAM_ATTACHING, TEAM_OPENING, TEAM_UP } team_stage;

typedef struct team_blob {
    uint64_t number;
    int fd;
} team_blob;

typedef struct team_worker {
    team_stage stage;
    uint32_t index, incarnation; /* in the pool */
    uint32_t pid;                /* of the process that is linked */
    uint64_t awaited;            /* correlation of the answer that ends the stage */
    int64_t dial_ms;             /* when to try (again) */
    gp_timeout down;             /* for the stage TEAM_UP */
    int door;
    gp_link *link;
    bool dirty;      /* records are reserved that were not committed */
    bool blocked;    /* its next answer is an item for a queue that is full */
    bool last_words; /* it is dead: what it said is taken, although a queue is full */
    bool corrupt;    /* what it sends is nonsense: its replacement was asked for */
    bool replacing;
    team_blob *blobs; /* that came, unnamed */
    uint32_t blob_count, blob_room;
    uint32_t held, leaving; /* payloads from here, and those of them that it was told to release */
    int64_t clock_ns; /* our time when the link's clock began, or somewhat later; INT64_MAX = not known */
    int64_t last_ns;  /* when its last call ended */
    /* Of the process that died last: */
    uint32_t lost_pid;
    bool lost_known;
    bool facts_awaited; /* something waits for them */
    gp_timeout facts;   /* for `lost` */
    gp_worker_lost lost;
} team_worker;

/* A payload that workers have. */
typedef struct team_given {
    gp_shared *shared;
    uint64_t workers; /* bit w - 1 */
    uint64_t leaving; /* those that were told to release it and may not have done so yet */
} team_given;

struct team_lasting {
    team_lasting *next, *previous;
    gp_team *team;
    team_call call; /* its payload is ours */
    gp_shared *shared;
    uint64_t wanted, answered; /* workers */
    uint32_t pending;          /* units on their way */
    uint32_t deaths;           /* of workers while they did this, since one answered */
    bool removed;
    gp_status status;
    gp_error error;
};

typedef struct future_slab future_slab;

struct gp_team {
    pthread_mutex_t mutex;
    gp_pool *pool;
    dispatch *dispatch;
    uint32_t forks; /* gp_forks() of the process that opened the team */
    uint32_t size, up;
    team_worker workers[GP_MEMBERS_MAX]; /* of grant.slots */
    int bell;                            /* eventfd: answers are there */
    gp_spin spin;
    uint64_t id_next;
    int64_t opened_ns, now_ns, looked_ns;
    uint64_t reunions; /* pool->reunions when we last looked */
    const volatile sig_atomic_t *stop;
    void (*log)(void *context, uint32_t worker, const char *line);
    void *context;
    gp_status broken; /* not GP_OK: nothing can be run any more; why is in why */
    gp_error why;
    bool asleep;  /* the links were told so */
    bool patient; /* the call that waits does so for many */

    team_given *given;
    uint32_t given_count, given_room;
    uint64_t left_seen; /* shared_left_count() when unused ones were last looked for */
    team_lasting *lasting, *lasting_last;

    /* Futures (future.c). */
    future_slab *slabs;
    team_unit *futures_free;
    unit_list ended; /* and not given by gp_team_next() */
    uint64_t units;  /* submitted and not ended: futures, blocks, what lasts */
    uint64_t coming; /* of them, futures that gp_team_next() will give */
    gp_team_info info;
    uint64_t marked_ended, marked_failed; /* of those that a wait has marked */

    /* Functions and queues. */
    struct team_object *objects;
    uint32_t object_count, function_count;
    struct gp_function_entry *functions;
    struct team_value *values;
    gp_queue *queues;

    /* Blocks and loops (spmd.c, parfor.c). */
    struct {
        uint32_t group; /* of the last block; 0 = none */
        uint32_t group_world, group_generation;
        bool group_spoilt; /* the next block needs another */
        uint32_t loop;     /* of the last loop */
    } numbers;

    /* The background thread (team_drive.c). */
    pthread_t thread;
    int kick; /* eventfd: wakes it */
    bool started;
    bool parked;   /* it sleeps until it is kicked */
    bool watching; /* it sleeps in the place of whoever made the last call */
    bool ending;
    uint64_t calls; /* so far */
};

#define EACH_WORKER(team, w) for (uint32_t w = 1; w <= (team)->size; w++)

static inline team_worker *worker_of(gp_team *team, uint32_t worker)
{
    return &team->workers[worker - 1];
}

/* ---- team.c ---- */

/* Nothing can be run any more: all units are over with that status. */
void team_break(gp_team *team, const gp_error *why);
/* Like team_enter(), but no call in the sense of the background thread: a look. */
void team_lock(gp_team *team);
void team_unlock(gp_team *team);
/* Whether this thread is in a callback of the team: it has the mutex already, and must not wait. */
bool team_in_callback(const gp_team *team);
void team_log_line(gp_team *team, uint32_t worker, const char *line);
/* Marks this thread as in a callback; what it was before, for team_callback_end(). */
const gp_team *team_callback_begin(const gp_team *team);
void team_callback_end(const gp_team *before);
/* A unit has ended: tell its owner, and go on with what waited for it. */
void team_end(gp_team *team, team_unit *unit, const team_outcome *outcome);
/* End what is over. */
void team_end_over(gp_team *team);
/* The unit's payload is not needed any more. */
void unit_payload_free(team_unit *unit);
/* Fill the unit's record from a call, copying or taking the payload over. */
gp_status unit_fill(gp_team *team, team_unit *unit, const team_call *call, gp_error *err);
/* Send what is ready, and ring. */
void team_send(gp_team *team);
void team_flush(gp_team *team);

/* ---- team_lasting.c ---- */

/* All that lasts, to a worker that is new. */
void team_lasting_replay(gp_team *team, uint32_t worker);

/* ---- team_payloads.c ---- */

/* The payload is there before the record that names it.  False: not now. */
bool team_give(gp_team *team, uint32_t worker, gp_shared *shared);
/* It has nothing: its process is new. */
void team_given_forget(gp_team *team, uint32_t worker);
void team_release_unused(gp_team *team);
void team_given_free(gp_team *team);

/* ---- team_link.c ---- */

extern const dispatch_hooks team_hooks;

gp_status team_link_all(gp_team *team, gp_error *err);
/* What the scheduler and workers say by messages, and what is behind the doors; does not wait. */
void team_look(gp_team *team);
/* When a worker's stage wants attention although nothing came; INT64_MAX = never. */
int64_t team_link_next_ns(const gp_team *team);
void team_link_tick(gp_team *team);
void team_worker_corrupt(gp_team *team, uint32_t worker, const char *what);
/* The descriptor of a blob that came; -1 = none of that number. */
int team_blob_take(gp_team *team, uint32_t worker, uint64_t number);
/* Return whether a worker has begun the unit; false while it waits, also in the worker's ring. */
bool team_unit_begun(const gp_team *team, const team_unit *unit);
void team_worker_close(gp_team *team, uint32_t worker);
/* Write how the last process of a worker ended.
 *   doing  "", or " while it ..." */
void team_death_words(const gp_team *team, uint32_t worker, const char *doing, char *text, size_t bytes);

/* ---- team_answers.c ---- */

/* Take the answers of one worker, also the last of one that died.  Whether there were any. */
bool team_drain(gp_team *team, uint32_t worker);

/* ---- team_drive.c ---- */

/* Take answers, end what ended, send what is ready.  Whether there was anything. */
bool team_pump(gp_team *team);
void team_background_begin(gp_team *team); /* there is work for it; the thread starts with the first */
void team_background_end(gp_team *team);
void team_awake(gp_team *team);

/* ---- queue.c, future.c ---- */

void future_ended(gp_team *team, team_unit *unit, const team_outcome *outcome);
void futures_free(gp_team *team);
void queue_take(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes);
/* Whether its queue is full and makes its senders wait: then that worker's ring is left alone. */
bool queue_blocks(const gp_team *team, const char *name);
void queues_free(gp_team *team);
/* Whether no worker has refused it. */
gp_status function_check(const gp_function *function, gp_error *err);
void functions_free(gp_team *team);
void values_free(gp_team *team);

#endif
