/* memory.h -- available memory on this machine, and an estimate of the memory that a training
 * needs. */
#ifndef GP_MEMORY_H
#define GP_MEMORY_H

#include <stdint.h>

#include "common/base/error.h"
#include "worker/backend/backend.h"

/* Return the bytes that this process can allocate without being killed: the minimum of
 * MemAvailable, the remainder below the control group limits (v1 and v2), and
 * GRADPOOL_WORKER_MEMORY if set (bytes, with suffix K, M, G or T). UINT64_MAX: unknown. */
uint64_t gp_memory_available(void);

/* Memory of a plan in bytes, by sample count per call: fixed + each * samples. */
typedef struct gp_memory_model {
    double fixed, each;
} gp_memory_model;

/* Return an upper bound in bytes without compiling a plan: no two values of the phase share
 * memory. */
double gp_memory_bound(const gp_graph *graph, gp_phase phase, uint32_t samples);

/* Measure the memory of two small plans, which are freed again. If they cannot be compiled, use
 * gp_memory_bound(). */
gp_memory_model gp_memory_measure(const gp_backend_ops *ops, gp_backend *backend, const gp_graph *graph,
                                  const gp_plan_options *options, const gp_plan_memory *memory);

#endif
