/* sim.h: one simulated job on a simulated engine, with commands that are killed at random.
 *
 * A run is a pure function of its seed. First come faults: commands die between any two effects,
 * the disk is full, and the engine loses replies, accepts launches late, loses cancel requests,
 * omits the job from a listing, is down, requeues the job, kills it, forgets it or does not notice
 * its end. Then the world settles: the faults end, and `gradpool jobs` runs every few seconds.
 * sim.c lists the promises that are checked. */
#ifndef GP_CLUSTER_SIM_H
#define GP_CLUSTER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/client/cluster/sim/bugs.h"

/* What happened in runs, to prove that the faults are not rare. */
typedef struct sim_tally {
    uint64_t deaths, launches, relaunches, late_accepts, strays, requeues, results, cancels, losses, returns,
        refusals, glitches, releases;
} sim_tally;

/* Run one simulation and add to `tally`. Return NULL if all promises held, else the broken one. */
const char *sim_run(uint64_t seed, sim_tally *tally);

/* Print each event of the next runs. */
extern bool sim_trace;

#endif
