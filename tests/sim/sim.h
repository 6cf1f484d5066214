/* sim.h -- a cluster in one thread: the real core, invented workers, clients, network and clock.
 *
 * Everything that happens is an event in one queue ordered by simulated time; all chance comes from one
 * seed, so (seed, mutant) replays exactly.  Workers and clients are honest to the protocol but may die,
 * hang, come up without a device, or leave at any moment; what a dead process had sent may be lost or may
 * arrive late, what it was sent is lost.  Between two live processes messages arrive in order.
 * When the scheduler is killed they live on, dial the next one and say what they hold; some come late, some die first.
 *
 * The checks (sim_check.c) know the truth: what each invented process really holds.  A broken promise is
 * kept as a sentence in sim->failure, and the run ends. */
#ifndef GP_SIM_H
#define GP_SIM_H

#include "scheduler/core.h"
#include "scheduler/core_parts.h"

enum { SIM_SLOTS = 6, SIM_CLIENTS = 12, SIM_PROCESSES = 4096, SIM_QUEUE = 4096 };

/* An invented worker process.  The index in sim->processes is its pid - 1. */
typedef struct sim_process {
    uint32_t slot, incarnation;
    uint64_t epoch;   /* of the scheduler it serves: has dialled */
    uint64_t watched; /* epoch of the scheduler that hears of its death */
    bool alive, ready, hung;
    bool claims; /* holds the slot's device */
    uint64_t lease;
    uint32_t generation;
    gp_core_id token;
    int64_t out_ms, in_ms; /* when the last message from it, to it arrives: the next comes after that */
} sim_process;

typedef enum sim_client_state { SIM_AWAY, SIM_THINKING, SIM_WAITING, SIM_HOLDING } sim_client_state;

typedef struct sim_client {
    sim_client_state state;
    gp_core_id session;
    uint64_t correlation; /* of the ask it waits for */
    uint64_t asked;       /* sequence of its ask in the order of arrival, 0 = has not arrived */
    uint64_t lease;
    uint32_t generation;
    bool repairing; /* a member died: the next formation is awaited */
    bool leaving;   /* said that it does not want to wait any longer */
    bool whole;     /* nothing has happened to its lease but the scheduler's death: it must go on as it is */
    uint64_t epoch; /* of the scheduler it has dialled */
    gp_core_claim claim; /* its lease, as it was last told of it */
    int64_t out_ms, in_ms;
} sim_client;

typedef enum sim_what {
    SIM_TO_CORE,     /* event */
    SIM_TO_PROCESS,  /* action, for process number */
    SIM_TO_CLIENT,   /* action, for client number */
    SIM_SPAWN_DONE,  /* process number says it is ready, or that it has no device, or dies */
    SIM_CLIENT_ACTS, /* client number decides what to do */
    SIM_CHAOS,       /* the fault maker decides whom to hit */
    SIM_BEATS,
    SIM_WORKER_DIALS, /* process number dials the scheduler that followed its own */
    SIM_CLIENT_DIALS, /* and client number */
} sim_what;

/* The parts of an action that an invented process reads. */
typedef struct sim_letter {
    gp_core_action_kind kind;
    uint64_t lease, correlation;
    uint32_t generation, member_count;
    gp_core_id token;
    gp_core_member members[SIM_SLOTS];
} sim_letter;

typedef struct sim_happening {
    int64_t at_ms;
    uint64_t order; /* of those at the same time */
    sim_what what;
    uint32_t number;
    uint64_t epoch; /* of the scheduler meant; others never get it */
    gp_core_id session;
    gp_core_event event;
    gp_core_wish wish;
    sim_letter letter;
} sim_happening;

typedef struct sim {
    uint64_t seed, draws;
    gp_core *core;
    gp_core_action *actions;
    uint64_t epoch;
    uint32_t slot_count;
    gp_core_slot_config plan[GP_CORE_SLOTS_MAX];
    int64_t now_ms, calm_ms; /* faults stop at calm_ms */
    uint32_t ticks_here;     /* ticks at this same time */
    bool exited;
    uint64_t order, steps, asks;
    sim_process processes[SIM_PROCESSES];
    uint32_t process_count;
    sim_client clients[SIM_CLIENTS];
    sim_happening *queue; /* a binary heap */
    uint32_t queue_count;
    uint64_t grants, deaths, restarts, hangs,
        claims;                   /* how much was tried; claims: those that were granted */
    uint64_t lease_last;          /* the largest id seen in this epoch */
    uint32_t generation_last[64]; /* of lease id & 63 */
    uint64_t generation_of[64];
    char failure[480];
} sim;

/* One run: 40 simulated seconds of faults, then calm until all is well or the patience is over, then the
 * pool is shut down.  Returns whether all promises were kept; if not, s->failure says which. */
bool sim_run(sim *s, uint64_t seed);

/* ---- sim_check.c ---- */

/* Called for each action before it is carried out, and after each step. */
void sim_check_action(sim *s, const gp_core_action *action);
void sim_check_state(sim *s);
/* Whether everybody got an answer and all slots are back. */
bool sim_settled(const sim *s, char why[480]);
void sim_fail(sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

sim_client *sim_find_client(sim *s, const gp_core_id *session);
sim_process *sim_find_process(sim *s, uint32_t slot, uint32_t incarnation);

#endif
