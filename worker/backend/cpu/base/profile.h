/* Per-operation times of a CPU plan, for benchmarks. */
#ifndef GP_CPU_PROFILE_H
#define GP_CPU_PROFILE_H

#include "worker/backend/backend.h"

/* Time of one operation. */
typedef struct gp_profile_line {
    const char *what;   /* operation: "conv2d_backward_data", "reorder" */
    const char *kernel; /* implementation name from the library, or "loop" */
    uint32_t layer;     /* layer index; GP_INPUT_LAYER: the network input */
    bool forward;
    int64_t ns; /* CPU time of the thread that runs the plan; independent of other processes */
} gp_profile_line;

typedef void (*gp_profile_fn)(void *context, const gp_profile_line *line);

/* Report the times of all operations of a plan in execution order, for the segments that measure
 * them. The first call must pass `fn` NULL, which starts the measurement. */
void gp_cpu_profile(const gp_plan *plan, gp_profile_fn fn, void *context);

#endif
