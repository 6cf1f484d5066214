/* Scheduler core: decide which worker processes run in a pool and which client holds them.
 *
 * The core is pure: gp_core_step(state, event, now) -> actions. It uses no sockets, files, clock or
 * threads, and allocates no memory after gp_core_new(). The shell (shell.c) turns sockets, pidfds
 * and timers into events and carries out the actions. The simulation (tests/sim) does the same with
 * simulated sources. The whole state is public so that status and tests can read it; only the files
 * in core/ write it.
 *
 * Terms:
 *   slot         a worker position in the pool with an index, a device and cores; it outlives
 *                processes
 *   incarnation  number of the process in a slot, from 1; each spawn adds one. The core drops
 *                messages from older incarnations.
 *   lease        slots held by one client. Ids are never reused within an epoch.
 *   generation   number of a lease's formation, that is, its current group of workers. Each lost
 *                member adds one. The client receives a generation only after all members
 *                acknowledged it.
 *   elastic      a lease whose client continues with fewer members and accepts new ones
 *                (resize.c)
 *   team         an elastic lease for calls: a failed member is awaited, members keep their ranks,
 *                and members above the minimum leave while other clients wait
 *   claim        a lease that a worker or a client reports from an earlier scheduler (adopt.c)
 *
 * Times are milliseconds on one monotonic clock. now_ms never decreases from step to step. */
#ifndef GP_CORE_H
#define GP_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/text/resources.h"
#include "scheduler/core/index.h"

enum {
    GP_CORE_SLOTS_MAX = 64, /* maximum workers per pool; a 64-bit mask holds the members */
    GP_CORE_DESCRIPTION_MAX = 96,
    GP_CORE_DEVICES_MAX = 256, /* bytes in a device list */
    GP_CORE_EARLY_DEATHS_MAX = 5,
};

/* Session id or lease token: 128 random bits. The caller generates them; the core draws no random
 * numbers. */
typedef struct gp_core_id {
    uint8_t bytes[16];
} gp_core_id;

typedef enum gp_core_device_kind { GP_CORE_CPU, GP_CORE_GPU } gp_core_device_kind;

/* Device and cores that a slot uses. Zero the struct before filling it: configurations are compared
 * byte by byte. */
typedef struct gp_core_slot_config {
    gp_core_device_kind kind;
    uint32_t device_index; /* GPU: CUDA ordinal */
    uint32_t threads;      /* owned cores */
    bool shared;           /* the pool has more workers than cores: unpinned */
    char uuid[64];         /* GPU: "GPU-..." */
    char name[96];         /* "NVIDIA H200", "AMD EPYC ..." */
    char pci[32];          /* GPU: PCI bus id */
    char label[64];        /* for messages: "cpu cores 0-3", "GPU 1" */
    char cores[128];       /* "0-3,8"; "": unpinned */
    char log[160];         /* worker log file */
    gp_resource_table resources;
} gp_core_slot_config;

typedef enum gp_core_process {
    GP_CORE_ABSENT, /* no process; respawned at due_ms unless disabled or unwanted */
    /* survived an earlier scheduler and has not reported yet; killed at due_ms, after adopt_ms */
    GP_CORE_AWAITED,
    GP_CORE_STARTING, /* spawned, not ready yet; killed at due_ms */
    GP_CORE_READY,    /* owns a device and serves requests */
    GP_CORE_EXCLUDED, /* alive without a device, never granted; retried at due_ms, 0: never */
    GP_CORE_DYING,    /* asked to quit or killed; killed (again) at due_ms */
} gp_core_process;

/* Kind of work in progress. The core kills a silent worker only if no user state is lost.
 *   GP_CORE_OURS      gradpool code; the call can be repeated
 *   GP_CORE_TRAINING  a training step
 *   GP_CORE_USERS     user code; never killed for silence */
typedef enum gp_core_work { GP_CORE_OURS, GP_CORE_TRAINING, GP_CORE_USERS } gp_core_work;

typedef struct gp_core_slot {
    gp_core_slot_config config;
    bool wanted;   /* slot belongs to the pool */
    bool disabled; /* exited too often while starting: not respawned until the next resize */
    gp_core_process process;
    uint32_t incarnation;
    int32_t pid;    /* process id; 0: not known yet */
    int64_t due_ms; /* deadline of the current process state, see gp_core_process */
    /* the process exited along with an earlier scheduler; reserved for the previous client until
     * core->kept_ms */
    bool kept;
    int64_t beat_ms;   /* time of the last heartbeat */
    uint64_t step;     /* progress counter of the compute thread from the last heartbeat */
    bool suspect;      /* READY, but silent for config.suspect_ms or longer; reported once */
    gp_core_work work; /* from the last heartbeat, like stretch_ms and stretch_max_ms */
    /* training: duration of the current stretch of a step, and of the longest finished stretch */
    int64_t stretch_ms, stretch_max_ms;
    uint64_t lease;    /* lease that the slot is a member of; 0: none */
    uint64_t revoking; /* lease that the worker still has to give back; 0: none */
    bool grace_used;   /* the revoke deadline was extended once because the worker was suspended */
    uint32_t granted;  /* generation last sent to this incarnation; 0: none */
    uint32_t acked;    /* generation that the worker acknowledged; 0: none */
    int64_t answer_ms; /* deadline for the reply to a grant or revoke; 0: no reply expected */
    /* earlier scheduler's lease that the worker serves and no client has claimed yet; 0: none */
    uint64_t claim;
    /* live process that holds the claimed lease, as reported by the workers; 0: none */
    int32_t claim_pid;
    gp_core_id claim_session; /* session of the holder process */
    uint32_t claim_generation;
    uint32_t tries; /* consecutive attempts that found the device in use */
    uint32_t early; /* consecutive processes that exited before they were ready */
    bool answered;  /* the process has sent worker_ready, or was adopted */
    gp_core_id claim_token;
    /* unexpected exits since the scheduler started; requested exits are not counted */
    uint64_t deaths;
    char reason[GP_ERROR_MESSAGE_MAX]; /* why the slot is excluded or disabled; "": neither */
} gp_core_slot;

typedef enum gp_core_environment { GP_CORE_ANY, GP_CORE_ONLY_CPU, GP_CORE_ONLY_GPU } gp_core_environment;

typedef enum gp_core_phase {
    GP_CORE_GATHER, /* a member has no ready process yet */
    GP_CORE_OFFER,  /* all members received this generation; some have not acknowledged it */
    GP_CORE_HELD,   /* the client received this generation */
} gp_core_phase;

typedef struct gp_core_lease {
    uint64_t id; /* lease id; 0: this entry is free */
    uint32_t generation, min;
    uint64_t members; /* mask of member slots */
    uint64_t formed;  /* members in the current formation: all members unless the lease is elastic */
    gp_core_phase phase;
    bool reported;  /* the client received at least one generation */
    uint32_t floor; /* elastic: minimum members that the client continues with; 0: not elastic */
    uint32_t want;  /* elastic: maximum members that the lease accepts */
    /* size that the last lease_change of this generation reported; 0: none sent */
    uint32_t announced_size;
    uint64_t reported_joining; /* mask of slots that the last lease_change named as joining */
    uint64_t joining;          /* members that are prepared for the requested formation */
    bool team;                 /* see the terms above; floor is not 0 */
    uint32_t joins;            /* team: slots that have joined since the lease began */
    /* position of each member in the order of joining; first members: 0 */
    uint32_t joined[GP_CORE_SLOTS_MAX];
    bool asked; /* another client requested `want` */
    gp_core_environment environment;
    gp_resource_table needs; /* as in gp_core_wish */
    uint64_t named;          /* mask of slots requested by name; 0: any compatible slot */
    gp_core_id session;      /* session of the holder */
    uint64_t correlation;    /* correlation of the request; the first grant replies to it */
    gp_core_id token;
    int64_t asked_ms; /* when the client requested the lease */
    int64_t since_ms;
    int32_t pid;
    char description[GP_CORE_DESCRIPTION_MAX]; /* "train lenet" */
} gp_core_lease;

typedef struct gp_core_client {
    gp_core_id session;
    int32_t pid;
} gp_core_client;

/* Lease request from a client.
 *   (0, 0)  all compatible workers in the pool; waits until all are free
 *   (n, n)  exactly n
 *   (n, m)  n to m: all free workers up to m, once n are free
 *   (n, 0)  n or more */
typedef struct gp_core_wish {
    uint32_t min, max;
    uint32_t floor; /* elastic: minimum members that the client continues with; 0: all members */
    bool team;      /* as in gp_core_lease */
    bool of_job;    /* a process of a running job asks: served until the pool stops */
    gp_core_environment environment;
    gp_resource_table needs;           /* resources that each member must have */
    int32_t priority;                  /* higher is served first; equal priorities in arrival order */
    bool no_wait;                      /* fail with GP_EBUSY instead of waiting */
    char devices[GP_CORE_DEVICES_MAX]; /* "1,3", "cuda:0", UUIDs: exactly these devices; "": any */
    char description[GP_CORE_DESCRIPTION_MAX];
    gp_core_id token; /* token for the new lease */
} gp_core_wish;

typedef struct gp_core_ask {
    gp_core_wish wish;
    gp_core_id session;
    uint64_t correlation;
    int32_t pid;
    uint64_t named; /* mask of the named devices' slots; 0: no device named */
    int64_t asked_ms;
    int64_t reported_ms; /* time of the last lease_wait message; 0: none sent */
    uint32_t reported_position;
    uint64_t reported_holder;
} gp_core_ask;

typedef struct gp_core_member {
    uint32_t slot, incarnation;
    int32_t pid;
} gp_core_member;

/* Lease from an earlier scheduler, as the client describes it. */
typedef struct gp_core_claim {
    gp_core_id token;
    uint32_t min;
    uint32_t floor, want; /* as in gp_core_lease; want 0: no maximum */
    bool team;            /* as in gp_core_lease */
    gp_core_environment environment;
    gp_resource_table needs; /* as in gp_core_wish */
    uint32_t member_count;
    gp_core_member members[GP_CORE_SLOTS_MAX]; /* by rank */
    char description[GP_CORE_DESCRIPTION_MAX];
} gp_core_claim;

typedef enum gp_core_death_kind {
    GP_CORE_DIED_UNKNOWN,
    GP_CORE_DIED_SIGNAL,
    GP_CORE_DIED_EXIT,
    GP_CORE_DIED_UNBORN, /* could not be spawned; number = errno */
    /* could not be spawned because the machine lacks a resource; number = errno */
    GP_CORE_DIED_SHORTAGE,
} gp_core_death_kind;

typedef enum gp_core_event_kind {
    GP_CORE_EVENT_TICK,
    GP_CORE_EVENT_CLIENT_CONNECTED, /* session; pid */
    GP_CORE_EVENT_CLIENT_GONE,      /* session */
    GP_CORE_EVENT_LEASE_CLAIM,      /* session, correlation, lease, generation, claim */
    GP_CORE_EVENT_LEASE_ASK,        /* session, correlation, wish */
    /* session, correlation: drop all requests that the client has not seen granted */
    GP_CORE_EVENT_LEASE_LEAVE,
    GP_CORE_EVENT_LEASE_RELEASE, /* session, correlation, lease */
    /* session, correlation, lease (may belong to another session), workers */
    GP_CORE_EVENT_LEASE_RESIZE,
    /* session, correlation, lease, generation; joining: the client's workers have left the
     * formation; for a team workers: new size, members of higher ranks have no calls any more */
    GP_CORE_EVENT_LEASE_FORM,
    GP_CORE_EVENT_WORKER_REPLACE, /* session, correlation, lease, slot, incarnation, reason */
    /* session: status and similar requests; only postpones the idle shutdown */
    GP_CORE_EVENT_CLIENT_SPOKE,
    /* session, correlation, plan, plan_count, idle_ms; reply: RESIZED. A slot in use changes when
     * it is free. */
    GP_CORE_EVENT_RESIZE,
    /* session, correlation (both zero: a signal, or the owner has exited), when_idle, grace_ms */
    GP_CORE_EVENT_SHUTDOWN,
    GP_CORE_EVENT_LOCK, /* holds: the lock path still names our inode */
    GP_CORE_EVENT_JOBS, /* holds: background jobs run or wait, so the pool is not idle */
    /* slot, incarnation, pid: a worker from an earlier scheduler is alive; sent before the first
     * tick. holds: the worker is so young that it may replace one whose client has not reconnected
     * yet. */
    GP_CORE_EVENT_WORKER_FOUND,
    /* All events from here on set slot and incarnation. */
    GP_CORE_EVENT_WORKER_SPAWNED, /* pid */
    /* usable, else reason; lease, generation, token: the lease that the worker still holds; pid,
     * session: the lease holder (pid 0: no live process) */
    GP_CORE_EVENT_WORKER_READY,
    GP_CORE_EVENT_WORKER_BEAT,    /* step, work, stretch_ms, stretch_max_ms, recycle */
    GP_CORE_EVENT_WORKER_GRANTED, /* acknowledges lease, generation */
    GP_CORE_EVENT_WORKER_REVOKED, /* acknowledges lease; recycle */
    GP_CORE_EVENT_WORKER_UNHELD,  /* the process that held the worker's lease has exited */
    /* death, number; reason: message from the worker before it exited, NULL or "": none */
    GP_CORE_EVENT_WORKER_DIED,
} gp_core_event_kind;

/* Input to one step. Zero the struct, then set kind and the fields listed for that kind. The core
 * borrows all pointers during the step. */
typedef struct gp_core_event {
    gp_core_event_kind kind;
    /* epoch from the envelope; 0: made by the shell. Events from another epoch are dropped. */
    uint64_t epoch;
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
    int64_t grace_ms; /* time for workers to exit before they are killed; 0: config.answer_ms */
    bool holds;
    bool usable;
    /* REVOKED: the process must not serve another lease. BEAT: replace the process, if it has no
     * lease, by one that opens its device only for work. */
    bool recycle;
    uint64_t step;
    gp_core_work work;
    int64_t stretch_ms, stretch_max_ms;
    gp_core_death_kind death;
    int number;
    bool out_of_memory; /* the kernel killed it because memory ran out */
    const char *reason;
} gp_core_event;

typedef enum gp_core_action_kind {
    /* Actions that the shell carries out by itself. */
    /* slot, incarnation: spawn a worker as core->slots[slot].config and core->cold describe */
    GP_CORE_SPAWN,
    GP_CORE_KILL,    /* slot, incarnation: send SIGKILL */
    GP_CORE_EXIT,    /* all workers have exited */
    GP_CORE_LOG,     /* text: log a warning */
    GP_CORE_SUSPECT, /* slot, incarnation, silent_ms (0: recovered), text: log a suspicion */
    /* Messages to the worker in slot, incarnation. */
    GP_CORE_GRANT,     /* lease, generation, token, members */
    GP_CORE_REVOKE,    /* lease, generation */
    GP_CORE_PEER_LOST, /* lease, generation that ended, lost_slot, lost_incarnation, text */
    GP_CORE_QUIT,
    /* Messages to the client with that session. */
    GP_CORE_LEASE_GRANT, /* correlation, lease, generation, token, members */
    GP_CORE_LEASE_WAIT,  /* correlation, position, held_ms, text */
    GP_CORE_LEASE_ENDED, /* lease, generation, status, text */
    GP_CORE_WORKER_LOST, /* lease, generation that ended, lost_*, text */
    /* lease, generation, lost_slot, lost_incarnation, silent_ms (0: recovered), text */
    GP_CORE_WORKER_SUSPECT,
    /* lease, generation, workers (possible or requested size), asked, members (workers that would
     * join) */
    GP_CORE_LEASE_CHANGE,
    GP_CORE_OK,      /* correlation */
    GP_CORE_RESIZED, /* correlation: reply with the status */
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
    uint32_t position; /* queue position, from 1 */
    int64_t held_ms;   /* how long the holder has held the lease */
    int64_t silent_ms;
    gp_status status;
    uint32_t member_count; /* in the order of joining, then by slot; the index is the rank */
    gp_core_member members[GP_CORE_SLOTS_MAX];
    char text[GP_ERROR_MESSAGE_MAX];
} gp_core_action;

typedef enum gp_core_stopping { GP_CORE_RUNNING, GP_CORE_STOP_WHEN_IDLE, GP_CORE_STOPPING } gp_core_stopping;

/* Limits and deadlines. Times are milliseconds; 0 disables idle_ms, suspect_ms and beat_ms. */
typedef struct gp_core_config {
    uint64_t epoch;
    uint32_t clients_max; /* further clients are refused with GP_EBUSY */
    uint32_t waits_max;   /* maximum queued requests; further ones are refused with GP_EBUSY */
    int64_t idle_ms;      /* shut down the pool after this time without a lease or client message */
    int64_t start_ms;     /* spawned -> ready */
    int64_t answer_ms;    /* revoke -> revoked while heartbeats arrive; quit -> exited */
    int64_t grant_ms;     /* first grant -> acknowledged */
    /* later grants: a surviving member may have to finish a step before it can leave the old
     * formation */
    int64_t regrant_ms;
    /* silence after which a ready worker is reported as suspect; no other effect */
    int64_t suspect_ms;
    /* silence after which a worker is killed, except where slot.c allows a longer silence */
    int64_t beat_ms;
    int64_t adopt_ms; /* time for reports from workers and clients of an earlier scheduler */
    /* time for clients whose workers exited along with the earlier scheduler, so no worker reports
     * them */
    int64_t keep_ms;
    /* Added to the first incarnation of each slot and to the first lease id, so that two schedulers
     * never use the same ones. */
    uint32_t incarnation_base;
} gp_core_config;

typedef struct gp_core {
    gp_core_config config;
    gp_core_stopping stopping;
    bool exited;
    bool jobs;      /* background jobs run or wait */
    bool accepting; /* false: the lock path no longer names our inode; the core grants no lease */
    int64_t now_ms, active_ms;
    int64_t adopting_ms; /* end of the report period after a restart; 0: over */
    int64_t kept_ms;     /* end of the reservation for slots marked `kept`; 0: over */
    uint64_t lease_next;
    uint64_t lease_own;                  /* first lease id that this scheduler assigned; 0: none yet */
    uint64_t adopted[GP_CORE_SLOTS_MAX]; /* ids of claimed leases; some may have ended */
    uint32_t adopted_count;
    /* dropped events: old epoch, incarnation, lease or generation, or an unknown session */
    uint64_t stale;
    uint32_t slot_count; /* slots[0 .. slot_count) are wanted */
    /* Last resize: number of slots, and the mask of slots in use to which it does not apply yet.
     * plan[s] is the next configuration of such a slot. */
    uint32_t planned;
    uint64_t outdated;
    gp_core_slot_config plan[GP_CORE_SLOTS_MAX];
    gp_core_slot slots[GP_CORE_SLOTS_MAX];
    uint64_t cold; /* mask of slots whose next process opens its device only for work */
    gp_core_lease leases[GP_CORE_SLOTS_MAX];
    /* room for clients_max entries; [0, client_count) are in use, unordered */
    gp_core_client *clients;
    uint32_t client_count;
    gp_index sessions; /* index from session to clients; entry n is clients[n - 1] */
    gp_core_ask *asks; /* request queue; asks[0] is the head */
    uint32_t ask_count;
    /* Output array of the running step; NULL between steps. */
    gp_core_action *actions;
    size_t action_count, action_max;
} gp_core;

/* Return the default configuration; the caller sets the epoch. Defaults: 1024 clients, 64 waits, 30
 * min idle, 60 s to start, 1 s to reply, 5 s to acknowledge a first grant and 15 s a later one, 5 s
 * of silence until suspect and 15 s until killed, 2 s for reports, 0.5 s for clients that no worker
 * reports. */
gp_core_config gp_core_config_default(void);

/* Create a core for the slots plan[0 .. plan_count). The first tick spawns the workers. Free *out
 * with gp_core_free().
 *   GP_EINVAL: no slot, or more than GP_CORE_SLOTS_MAX
 *   GP_ENOMEM: out of memory */
gp_status gp_core_new(gp_core **out, const gp_core_config *config, const gp_core_slot_config *plan,
                      uint32_t plan_count, int64_t now_ms, gp_error *err);

/* Free a core. NULL is allowed. */
void gp_core_free(gp_core *core);

/* Return the maximum number of actions that one step can emit. */
size_t gp_core_actions_max(const gp_core *core);

/* Process one event. Write the resulting actions, in the order in which to carry them out, and
 * return their number.
 *   actions  array with room for gp_core_actions_max() actions
 *   now_ms   current time, not before the previous step */
size_t gp_core_step(gp_core *core, gp_core_action *actions, const gp_core_event *event, int64_t now_ms);

/* Return the absolute time by which the next tick is needed, at most 1 s after core->now_ms. */
int64_t gp_core_due(const gp_core *core);

/* Return the state name for listings: "starting", "idle", "busy", "excluded" or "dead". */
const char *gp_core_slot_word(const gp_core_slot *slot);

/* Return for how long a ready worker has been silent, in ms. For a training, include the current
 * stretch of the step. */
int64_t gp_core_slot_silence(const gp_core *core, const gp_core_slot *slot);

/* Write a message such as "no sign of life for 7 s; it runs code of its user and is left alone" to
 * text and return text. */
char *gp_core_text_silence(const gp_core *core, const gp_core_slot *slot, char text[GP_ERROR_MESSAGE_MAX]);

/* Find a lease by id. NULL: no such lease. */
const gp_core_lease *gp_core_lease_find(const gp_core *core, uint64_t id);

/* Format a duration like "3 m 20 s" into text and return text. */
char *gp_core_duration(char *text, size_t bytes, int64_t ms);

#endif
