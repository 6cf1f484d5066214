/* core.h -- the scheduler's mind: which worker processes there should be, who holds which of them.
 *
 * Pure: gp_core_step(state, event, now) -> actions.  No sockets, files, clock, threads or allocation
 * after gp_core_new(); the shell (shell.c) turns sockets, pidfds and timers into events and carries the
 * actions out, the simulation (tests/sim) does the same with invented ones.  All of the state is visible
 * here to be read (status, tests); only the core's own files write it.
 *
 * The words used:
 *   slot        a worker's place in the pool: index, device, cores.  Slots outlive processes.
 *   incarnation which process sits in the slot; counts from 1, each spawn adds one.  What an older
 *               incarnation says is dropped.
 *   lease       slots held by one client.  Its id is never used again within an epoch.
 *   generation  which formation of a lease; each member that is lost adds one.  A client is told of a
 *               generation only when every member has acknowledged it.
 *   elastic     of a lease whose client goes on with fewer members, and takes more (resize.c).
 *   claim       a lease that a worker or a client says it has from an earlier scheduler (adopt.c).
 *
 * Times are milliseconds of one monotonic clock; a step's now_ms is never less than the one before. */
#ifndef GP_CORE_H
#define GP_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "scheduler/core/index.h"

enum {
    GP_CORE_SLOTS_MAX = 64, /* workers of a pool; members are a 64-bit mask */
    GP_CORE_DESCRIPTION_MAX = 96,
    GP_CORE_DEVICES_MAX = 256, /* bytes of a device list */
    GP_CORE_EARLY_DEATHS_MAX = 5,
};

/* A session or a token: 128 random bits, made outside (the core draws nothing). */
typedef struct gp_core_id {
    uint8_t bytes[16];
} gp_core_id;

typedef enum gp_core_device_kind { GP_CORE_CPU, GP_CORE_GPU } gp_core_device_kind;

/* What a slot is made of.  Zero the struct before filling it: two are compared byte by byte. */
typedef struct gp_core_slot_config {
    gp_core_device_kind kind;
    uint32_t device_index; /* GPU: CUDA ordinal */
    uint32_t threads;      /* cores owned */
    bool shared;           /* more workers than cores: unpinned */
    char uuid[64];         /* GPU: "GPU-..." */
    char name[96];         /* "NVIDIA H200", "AMD EPYC ..." */
    char pci[32];          /* GPU: bus id */
    char label[64];        /* for sentences: "cpu cores 0-3", "GPU 1" */
    char cores[128];       /* "0-3,8"; "" = unpinned */
    char log[160];         /* the worker's log file */
} gp_core_slot_config;

typedef enum gp_core_process {
    GP_CORE_ABSENT, /* none; respawned at due_ms unless condemned or not wanted */
    GP_CORE_AWAITED, /* lives since an earlier scheduler and has not reported to us; killed at due_ms, after adopt_ms */
    GP_CORE_STARTING, /* spawned, not ready; killed at due_ms */
    GP_CORE_READY,    /* has its device, serves */
    GP_CORE_EXCLUDED, /* alive without a device, never granted; tried again at due_ms (0 = never) */
    GP_CORE_DYING,    /* told to quit or killed; (again) killed at due_ms */
} gp_core_process;

/* What a worker does: a silent one is ended only where that loses nothing of its user's. */
typedef enum gp_core_work { GP_CORE_OURS, GP_CORE_TRAINING, GP_CORE_USERS } gp_core_work;

typedef struct gp_core_slot {
    gp_core_slot_config config;
    bool wanted;    /* part of the pool */
    bool condemned; /* died too often while starting: not respawned until the next resize */
    gp_core_process process;
    uint32_t incarnation;
    int32_t pid;    /* 0 = not known (yet) */
    int64_t due_ms; /* see gp_core_process */
    bool
        kept; /* its process died with an earlier scheduler: it is for the client whose it was, until core->kept_ms */
    int64_t beat_ms;   /* last sign of life */
    uint64_t step;     /* the compute thread's progress counter, as last beaten */
    bool suspect;      /* READY: overdue for config.suspect_ms or longer; told once */
    gp_core_work work; /* as last beaten, like the next two */
    int64_t stretch_ms,
        stretch_max_ms; /* of a training: in the present stretch of a step, in the longest that ended */
    uint64_t lease;     /* the lease whose member it is, or 0 */
    uint64_t revoking;  /* the lease it has yet to give back, or 0 */
    bool excused;       /* it stood still when it was to give that back, and its second began anew */
    uint32_t granted;   /* generation last sent to this incarnation, 0 = none */
    uint32_t acked;     /* generation it acknowledged, 0 = none */
    int64_t answer_ms;  /* when an answer to grant or revoke is overdue; 0 = none expected */
    uint64_t claim;     /* an earlier scheduler's lease that it serves and no client has claimed yet, or 0 */
    int32_t claim_pid;  /* the living process that holds it, as the workers say; 0 = nobody */
    gp_core_id claim_session; /* of that process */
    uint32_t claim_generation;
    uint32_t tries; /* times in a row that its device was taken */
    uint32_t early; /* deaths before ready, in a row within the window */
    int64_t early_since_ms;
    gp_core_id claim_token;
    uint64_t deaths;                   /* since the scheduler began; quits not counted */
    char reason[GP_ERROR_MESSAGE_MAX]; /* why excluded or condemned; "" otherwise */
} gp_core_slot;

typedef enum gp_core_environment { GP_CORE_ANY, GP_CORE_ONLY_CPU, GP_CORE_ONLY_GPU } gp_core_environment;

typedef enum gp_core_phase {
    GP_CORE_GATHER, /* a member has no ready process yet */
    GP_CORE_OFFER,  /* all members were sent this generation, some have not acknowledged it */
    GP_CORE_HELD,   /* the client was told */
} gp_core_phase;

typedef struct gp_core_lease {
    uint64_t id; /* 0 = this entry is free */
    uint32_t generation, min;
    uint64_t members; /* mask of slots */
    uint64_t formed;  /* of them, those in the present formation: all, but for an elastic lease */
    gp_core_phase phase;
    bool told;             /* the client knows some generation of it */
    uint32_t floor;        /* elastic: the fewest members it goes on with; 0 = it is not */
    uint32_t want;         /* elastic: the most that it takes */
    uint32_t told_size;    /* what the client was told that it can be, in this generation; 0 = nothing */
    uint64_t told_joining; /* and by whom it would grow */
    uint64_t joining;      /* members that have prepared for the formation that was asked for */
    bool asked;            /* `want` is what somebody asked for */
    gp_core_environment environment;
    uint64_t named;       /* slots it was given by name; 0 = any that fit */
    gp_core_id session;   /* who holds it */
    uint64_t correlation; /* of the ask; grants answer it */
    gp_core_id token;
    int64_t since_ms;
    int32_t pid;
    char description[GP_CORE_DESCRIPTION_MAX]; /* "train lenet" */
} gp_core_lease;

typedef struct gp_core_client {
    gp_core_id session;
    int32_t pid;
} gp_core_client;

/* What a client asks for.  (0, 0): every worker of the pool that fits, waiting until all are free.
 * (n, n): exactly n.  (n, m): n to m, as many as are free once n are.  (n, 0): n or more. */
typedef struct gp_core_wish {
    uint32_t min, max;
    uint32_t floor; /* elastic: the fewest that its client goes on with; 0 = all that it has */
    gp_core_environment environment;
    int32_t priority;                  /* higher is served first; equal ones in order */
    bool no_wait;                      /* GP_EBUSY at once instead of waiting */
    char devices[GP_CORE_DEVICES_MAX]; /* "1,3", "cuda:0", UUIDs: exactly these; "" = any */
    char description[GP_CORE_DESCRIPTION_MAX];
    gp_core_id token; /* of the lease to come */
} gp_core_wish;

typedef struct gp_core_ask {
    gp_core_wish wish;
    gp_core_id session;
    uint64_t correlation;
    int32_t pid;
    uint64_t named; /* mask of the named devices' slots, 0 = none named */
    int64_t asked_ms;
    int64_t told_ms; /* when lease_wait was last sent; 0 = never */
    uint32_t told_position;
    uint64_t told_holder;
} gp_core_ask;

typedef struct gp_core_member {
    uint32_t slot, incarnation;
    int32_t pid;
} gp_core_member;

/* What a client says of the lease that an earlier scheduler gave it. */
typedef struct gp_core_claim {
    gp_core_id token;
    uint32_t min;
    uint32_t floor, want; /* as in gp_core_lease; want 0: as many as there are */
    gp_core_environment environment;
    uint32_t member_count;
    gp_core_member members[GP_CORE_SLOTS_MAX];
    char description[GP_CORE_DESCRIPTION_MAX];
} gp_core_claim;

typedef enum gp_core_death_kind {
    GP_CORE_DIED_UNKNOWN,
    GP_CORE_DIED_SIGNAL,
    GP_CORE_DIED_EXIT,
    GP_CORE_DIED_UNBORN, /* could not be spawned; number = errno */
} gp_core_death_kind;

typedef enum gp_core_event_kind {
    GP_CORE_EVENT_TICK,
    GP_CORE_EVENT_CLIENT_CONNECTED, /* session; pid */
    GP_CORE_EVENT_CLIENT_GONE,      /* session */
    GP_CORE_EVENT_LEASE_CLAIM,      /* session, correlation, lease, generation, claim */
    GP_CORE_EVENT_LEASE_ASK,        /* session, correlation, wish */
    GP_CORE_EVENT_LEASE_LEAVE,      /* session, correlation: all asks it was not granted yet */
    GP_CORE_EVENT_LEASE_RELEASE,    /* session, correlation, lease */
    GP_CORE_EVENT_LEASE_RESIZE,     /* session, correlation, lease (anybody's), workers */
    GP_CORE_EVENT_LEASE_FORM, /* session, correlation, lease, generation, joining: nobody is in it any more */
    GP_CORE_EVENT_WORKER_REPLACE, /* session, correlation, lease, slot, incarnation, reason */
    GP_CORE_EVENT_CLIENT_SPOKE,   /* session: status and the like, only pushes idle shutdown back */
    GP_CORE_EVENT_RESIZE,         /* session, correlation, plan, plan_count, idle_ms; answer: RESIZED */
    GP_CORE_EVENT_SHUTDOWN,       /* session, correlation (both zero: a signal), when_idle */
    GP_CORE_EVENT_LOCK,           /* holds: whether the lock path is still our inode */
    GP_CORE_EVENT_JOBS,           /* holds: whether background jobs run or wait; the pool is not idle then */
    /* slot, incarnation, pid: a worker of an earlier scheduler lives; before the first tick.  holds: it is so young that it may
     * stand in for one whose client has not been back yet. */
    GP_CORE_EVENT_WORKER_FOUND,
    /* From here on: slot and incarnation are always set. */
    GP_CORE_EVENT_WORKER_SPAWNED, /* pid */
    /* usable, else reason; lease, generation, token = what it still holds; pid, session = for whom (0: nobody who lives) */
    GP_CORE_EVENT_WORKER_READY,
    GP_CORE_EVENT_WORKER_BEAT,    /* step, work, stretch_ms, stretch_max_ms */
    GP_CORE_EVENT_WORKER_GRANTED, /* acknowledges lease, generation */
    GP_CORE_EVENT_WORKER_REVOKED, /* acknowledges lease; recycle */
    GP_CORE_EVENT_WORKER_UNHELD,  /* the process for whom it held a lease is dead */
    GP_CORE_EVENT_WORKER_DIED,    /* death, number; reason: its last words, NULL or "" where it left none */
} gp_core_event_kind;

/* Zero it, then set kind and what the kind needs.  Borrowed during the step. */
typedef struct gp_core_event {
    gp_core_event_kind kind;
    uint64_t epoch; /* as the envelope said; 0 = made by the shell.  Another epoch's events are dropped. */
    gp_core_id session;
    uint64_t correlation;
    uint64_t lease;
    uint32_t generation;
    uint32_t slot, incarnation;
    int32_t pid;
    gp_core_id token;
    const gp_core_wish *wish;
    const gp_core_claim *claim;
    uint32_t workers;
    uint64_t joining; /* mask of slots */
    const gp_core_slot_config *plan;
    uint32_t plan_count;
    int64_t idle_ms; /* as in gp_core_config */
    bool when_idle;
    bool holds;
    bool usable;
    bool recycle; /* the process must not serve another lease */
    uint64_t step;
    gp_core_work work;
    int64_t stretch_ms, stretch_max_ms;
    gp_core_death_kind death;
    int number;
    bool out_of_memory; /* the kernel killed it for lack of memory */
    const char *reason;
} gp_core_event;

typedef enum gp_core_action_kind {
    /* Done by the shell itself. */
    GP_CORE_SPAWN,   /* slot, incarnation: core->slots[slot].config says what */
    GP_CORE_KILL,    /* slot, incarnation: SIGKILL */
    GP_CORE_EXIT,    /* all workers are gone */
    GP_CORE_LOG,     /* a warning for the log: text */
    GP_CORE_SUSPECT, /* for the log: slot, incarnation, silent_ms (0: it is well again), text */
    /* To the worker in slot, incarnation. */
    GP_CORE_GRANT,     /* lease, generation, token, members */
    GP_CORE_REVOKE,    /* lease, generation */
    GP_CORE_PEER_LOST, /* lease, generation that is over, lost_slot, lost_incarnation, text */
    GP_CORE_QUIT,
    /* To the client of session. */
    GP_CORE_LEASE_GRANT, /* correlation, lease, generation, token, members */
    GP_CORE_LEASE_WAIT,  /* correlation, position, held_ms, text */
    GP_CORE_LEASE_ENDED, /* lease, generation, status, text */
    GP_CORE_WORKER_LOST, /* lease, generation that is over, lost_*, text */
    GP_CORE_WORKER_SUSPECT, /* lease, generation, lost_slot, lost_incarnation, silent_ms (0: it is well again), text */
    /* lease, generation, workers, asked, members: it can be, or is to be, so many; who would join */
    GP_CORE_LEASE_CHANGE,
    GP_CORE_OK,      /* correlation */
    GP_CORE_RESIZED, /* correlation: answer with the status */
    GP_CORE_ERROR,   /* correlation, status, text */
} gp_core_action_kind;

typedef struct gp_core_action {
    gp_core_action_kind kind;
    uint32_t slot, incarnation;
    gp_core_id session;
    uint64_t correlation;
    uint64_t lease;
    uint32_t generation;
    gp_core_id token;
    uint32_t lost_slot, lost_incarnation;
    gp_core_death_kind lost_death;
    int lost_number;
    bool lost_out_of_memory;
    uint64_t lost_step;
    uint32_t workers;
    bool asked;
    uint32_t position; /* in the queue, from 1 */
    int64_t held_ms;   /* how long the holder has held */
    int64_t silent_ms;
    gp_status status;
    uint32_t member_count; /* members stand in the order of their slots: that order is the rank */
    gp_core_member members[GP_CORE_SLOTS_MAX];
    char text[GP_ERROR_MESSAGE_MAX];
} gp_core_action;

typedef enum gp_core_stopping { GP_CORE_RUNNING, GP_CORE_STOP_WHEN_IDLE, GP_CORE_STOPPING } gp_core_stopping;

/* Milliseconds; 0 in idle_ms, suspect_ms and beat_ms switches that deadline off. */
typedef struct gp_core_config {
    uint64_t epoch;
    uint32_t clients_max; /* more are refused with GP_EBUSY */
    uint32_t waits_max;   /* asks in the queue; more are refused with GP_EBUSY */
    int64_t idle_ms;      /* pool without lease or client message: shut down */
    int64_t start_ms;     /* spawned -> ready */
    int64_t answer_ms;    /* revoke -> revoked (of one that beats), quit -> dead */
    int64_t grant_ms;     /* first grant -> acknowledged */
    int64_t regrant_ms;   /* later grants: a survivor may have to finish a step before it can leave it */
    int64_t suspect_ms;   /* silence after which a ready worker is suspect: shown, and otherwise let be */
    int64_t
        beat_ms; /* silence after which it is killed, unless slot.c (`The silent`) says longer, or never */
    int64_t adopt_ms; /* for reports of workers and clients of an earlier scheduler */
    int64_t keep_ms;  /* for clients whose workers died with it, of whom nobody reports */
    /* Added to the first incarnation of each slot: those of two schedulers must not be the same. */
    uint32_t incarnation_base;
} gp_core_config;

typedef struct gp_core {
    gp_core_config config;
    gp_core_stopping stopping;
    bool exited;
    bool jobs;      /* run or wait */
    bool accepting; /* false: the lock path is no longer our inode; nothing is granted */
    int64_t now_ms, active_ms;
    int64_t adopting_ms; /* reports of an earlier scheduler's workers are awaited until then; 0 = no more */
    int64_t
        kept_ms; /* slots of workers that died with an earlier scheduler are nobody else's until then; 0 = no more */
    uint64_t lease_next;
    uint64_t lease_own;                  /* the first id that this scheduler gave; 0 = none yet */
    uint64_t adopted[GP_CORE_SLOTS_MAX]; /* ids of leases that were claimed, and may have ended since */
    uint32_t adopted_count;
    uint64_t stale; /* events dropped as of an older epoch, incarnation, lease or generation, or no session */
    uint32_t slot_count; /* slots[0 .. slot_count) are wanted */
    gp_core_slot slots[GP_CORE_SLOTS_MAX];
    gp_core_lease leases[GP_CORE_SLOTS_MAX];
    gp_core_client *clients; /* clients_max entries, [0, client_count) in use, in no order */
    uint32_t client_count;
    gp_index sessions; /* of clients, by session; entry n is clients[n - 1] */
    gp_core_ask *asks; /* the queue: asks[0] is the head */
    uint32_t ask_count;
    /* Where the running step writes; NULL between steps. */
    gp_core_action *actions;
    size_t action_count, action_max;
} gp_core;

/* Defaults of everything but the epoch: 1024 clients, 64 waits, 30 min idle, 60 s to start, 1 s to
 * answer, 5 s and 15 s to acknowledge a grant, suspect after 5 s of silence and killed after 15 s, 2 s for
 * reports, 0.5 s for clients of whom nobody reports. */
gp_core_config gp_core_config_default(void);

/* A core for the slots of plan[0 .. plan_count); nothing is spawned before the first tick.
 *   out   released with gp_core_free()
 * GP_EINVAL: no slot, or more than GP_CORE_SLOTS_MAX.  GP_ENOMEM. */
gp_status gp_core_new(gp_core **out, const gp_core_config *config, const gp_core_slot_config *plan,
                      uint32_t plan_count, int64_t now_ms, gp_error *err);
void gp_core_free(gp_core *core);

/* How many actions one step can emit at most. */
size_t gp_core_actions_max(const gp_core *core);

/* One event.  Writes the actions, to be carried out in order, and returns their number.
 *   actions  room for gp_core_actions_max() */
size_t gp_core_step(gp_core *core, gp_core_action *actions, const gp_core_event *event, int64_t now_ms);

/* When the next tick is needed at the latest (an absolute time; at most 1 s after `core->now_ms`). */
int64_t gp_core_due(const gp_core *core);

/* "starting", "idle", "busy", "excluded" or "dead": what a slot is called in listings. */
const char *gp_core_slot_word(const gp_core_slot *slot);

/* For how long a ready worker has given no sign of life, or its training has been in one stretch of a step. */
int64_t gp_core_slot_silence(const gp_core *core, const gp_core_slot *slot);

/* "no sign of life for 7 s; it runs code of its user and is left alone" into text, which is returned. */
char *gp_core_words_silence(const gp_core *core, const gp_core_slot *slot, char text[GP_ERROR_MESSAGE_MAX]);

/* The lease with this id, or NULL. */
const gp_core_lease *gp_core_lease_find(const gp_core *core, uint64_t id);

/* "3 m 20 s" into text, which is returned. */
char *gp_core_duration(char *text, size_t bytes, int64_t ms);

#endif
