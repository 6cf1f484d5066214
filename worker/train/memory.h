/* memory.h -- how much of the machine's memory there still is, and what a training would take of it. */
#ifndef GP_MEMORY_H
#define GP_MEMORY_H

#include <stdint.h>

#include "common/base/error.h"
#include "worker/backend/backend.h"

/* gp_memory_available -- bytes that this process can still take without being killed: the least of what Linux calls
 * available, of what is left under the memory limits of its control groups (v1 and v2), and of GRADPOOL_WORKER_MEMORY
 * (bytes; K, M, G, T after the number) where that is set.  UINT64_MAX where nothing of it can be read. */
uint64_t gp_memory_available(void);

/* What a plan takes by samples of a call: fixed + each * samples. */
typedef struct gp_memory_model {
    double fixed, each;
} gp_memory_model;

/* gp_memory_bound -- an upper bound without compiling: every value of the phase in memory of its own. */
double gp_memory_bound(const gp_graph *graph, gp_phase phase, uint32_t samples);

/* gp_memory_measure -- from two small plans, which are freed again; where they cannot be had, from the bound. */
gp_memory_model gp_memory_measure(const gp_backend_ops *ops, gp_backend *backend, const gp_graph *graph,
                                  const gp_plan_options *options, const gp_plan_memory *memory);

#endif
