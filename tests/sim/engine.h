/* engine.h -- the bones of a simulation: chance, a queue of happenings, faults as data, a trace.
 *
 * What a run does depends on its script alone: a seed, the size of the world, and a list of faults.  Chance comes from
 * one stream for each actor (a worker, a client, the disk, a fault), drawn from the seed and the actor's name.  So a
 * fault that is taken out of the list changes what follows from it and nothing else, and a script that fails can be
 * shrunk: faults are taken out as long as the same promise is broken (sim_shrink).  Scripts are one line of text, to be
 * pasted into found.def. */
#ifndef GP_SIM_ENGINE_H
#define GP_SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- chance: splitmix64 (Steele, Lea, Flood 2014) ---- */

typedef struct sim_dice {
    uint64_t state;
} sim_dice;

static inline uint64_t sim_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline sim_dice sim_dice_of(uint64_t seed, uint64_t actor, uint64_t number)
{
    return (
        sim_dice){ sim_mix(sim_mix(seed * 0x9e3779b97f4a7c15ull + actor) + number * 0xd1342543de82ef95ull) };
}

static inline uint64_t sim_draw64(sim_dice *dice)
{
    return sim_mix(dice->state += 0x9e3779b97f4a7c15ull);
}

static inline uint32_t sim_draw(sim_dice *dice, uint32_t below)
{
    return (uint32_t)(((sim_draw64(dice) >> 32) * below) >> 32);
}

static inline bool sim_chance(sim_dice *dice, uint32_t percent)
{
    return sim_draw(dice, 100) < percent;
}

/* ---- faults ---- */

typedef enum sim_fault_kind {
#define SIM_FAULT(name, word, weight, text) SIM_##name,
#include "tests/sim/faults.def"
#undef SIM_FAULT
    SIM_FAULT_KINDS
} sim_fault_kind;

typedef struct sim_fault {
    int64_t at_ms;
    sim_fault_kind kind;
    uint32_t target, amount; /* by kind: faults.def */
} sim_fault;

enum { SIM_FAULTS_MAX = 400, SIM_SCRIPT_BYTES = 64 + 40 * SIM_FAULTS_MAX };

typedef struct sim_script {
    uint64_t seed;
    uint32_t slots, clients, submitters;
    int64_t calm_ms; /* when the faults, and new work, end */
    uint32_t count;
    sim_fault faults[SIM_FAULTS_MAX]; /* by time */
} sim_script;

/* sim_script_draw -- the world and the faults of a seed: about `rate` faults a simulated second on average;
 * seeds differ in it. */
void sim_script_draw(sim_script *out, uint64_t seed, uint32_t rate);

/* "seed 7 slots 3 clients 2 submitters 1 calm 900: 120 kill-worker 1 0, 400 kill-scheduler 0 0" */
void sim_script_print(const sim_script *script, char text[SIM_SCRIPT_BYTES]);
/* False: text is no script; why says where. */
bool sim_script_parse(sim_script *out, const char *text, char why[120]);

/* How a run ended. */
typedef struct sim_outcome {
    bool kept;      /* all promises */
    char check[32]; /* else the name of the one that was broken, */
    char why[480];  /* the sentence, */
    int64_t at_ms;  /* and when */
    uint64_t events, trace;
} sim_outcome;

typedef void (*sim_run_fn)(void *context, const sim_script *script, sim_outcome *out);

/* sim_shrink -- as few faults and actors as break the same promise (delta debugging, Zeller and Hildebrandt 2002).
 *   script  fails with `outcome`; both are replaced by the smallest that were found
 * Returns the number of runs. */
uint32_t sim_shrink(sim_script *script, sim_outcome *outcome, sim_run_fn run, void *context);

/* ---- the queue ---- */

typedef struct sim_queue sim_queue;

sim_queue *sim_queue_new(size_t happening_bytes, uint32_t room);
void sim_queue_free(sim_queue *queue);
void sim_queue_clear(sim_queue *queue);
/* A new happening, to be filled in; NULL: there is no room.  Equal times come in the order of pushing. */
void *sim_queue_push(sim_queue *queue, int64_t at_us);
int64_t sim_queue_at(const sim_queue *queue); /* of the next; INT64_MAX = none */
/* The next, which is valid until sim_queue_drop() or sim_queue_again(). */
void *sim_queue_pop(sim_queue *queue);
void sim_queue_drop(sim_queue *queue);
void sim_queue_again(sim_queue *queue, int64_t at_us); /* the one popped last is pushed once more */

#endif
