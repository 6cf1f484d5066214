/* Simulation engine: random numbers, event queue, fault scripts and shrinking.
 *
 * The script alone determines a run: a seed, the world size and a list of faults. Each actor (a
 * worker, a client, the disk, a fault) has its own random stream, derived from the seed and the
 * actor's name. Removing a fault from the list therefore changes only what follows from it, so a
 * failing script can be shrunk: sim_shrink() removes faults as long as the same promise is broken.
 * A script is one line of text, to be pasted into found.def. */
#ifndef GP_SIM_ENGINE_H
#define GP_SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) ---- */

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
    uint32_t target, amount; /* depends on kind, see faults.def */
} sim_fault;

enum { SIM_FAULTS_MAX = 400, SIM_SCRIPT_BYTES = 64 + 40 * SIM_FAULTS_MAX };

typedef struct sim_script {
    uint64_t seed;
    uint32_t slots, clients, submitters;
    int64_t calm_ms; /* time when faults and new work stop */
    uint32_t count;
    sim_fault faults[SIM_FAULTS_MAX]; /* sorted by time */
} sim_script;

/* Draw the world and the faults for a seed. `rate` is the average number of faults per simulated
 * second; it varies between seeds. In every sixth seed only schedulers fail, about once per
 * second. */
void sim_script_draw(sim_script *out, uint64_t seed, uint32_t rate);

/* Write a script as text, for example "seed 7 slots 3 clients 2 submitters 1 calm 900: 120
 * kill-worker 1 0, 400 kill-scheduler 0 0". */
void sim_script_print(const sim_script *script, char text[SIM_SCRIPT_BYTES]);

/* Parse a script. False: malformed; `why` names the position. */
bool sim_script_parse(sim_script *out, const char *text, char why[120]);

/* Result of a run. */
typedef struct sim_outcome {
    bool kept;      /* all promises were kept */
    char check[32]; /* if not: name of the broken promise */
    char why[480];  /* error message */
    int64_t at_ms;  /* time of the failure */
    uint64_t events, trace;
} sim_outcome;

typedef void (*sim_run_fn)(void *context, const sim_script *script, sim_outcome *out);

/* Shrink a failing script by delta debugging (Zeller and Hildebrandt 2002): remove faults and
 * actors while the same promise is broken. Return the number of runs.
 *   script   failing script; replaced by the smallest one found
 *   outcome  result of that script; replaced as well
 *   run      function that runs a script
 *   context  passed to run */
uint32_t sim_shrink(sim_script *script, sim_outcome *outcome, sim_run_fn run, void *context);

/* ---- event queue ---- */

typedef struct sim_queue sim_queue;

/* Create a queue with room for `room` events. NULL: out of memory. */
sim_queue *sim_queue_new(size_t happening_bytes, uint32_t room);
void sim_queue_free(sim_queue *queue);
void sim_queue_clear(sim_queue *queue);

/* Add an event and return it, to be filled in. NULL: the queue is full. Events at the same time
 * keep their order. */
void *sim_queue_push(sim_queue *queue, int64_t at_us);
int64_t sim_queue_at(const sim_queue *queue); /* time of the next event; INT64_MAX: none */

/* Remove and return the next event. It is valid until sim_queue_drop() or sim_queue_again(). */
void *sim_queue_pop(sim_queue *queue);
void sim_queue_drop(sim_queue *queue);
/* add the last popped event again, at another time */
void sim_queue_again(sim_queue *queue, int64_t at_us);

#endif
