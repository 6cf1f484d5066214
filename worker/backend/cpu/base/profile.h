/* profile.h -- where the time of a plan of the CPU goes, piece by piece: for benchmarks. */
#ifndef GP_CPU_PROFILE_H
#define GP_CPU_PROFILE_H

#include "worker/backend/backend.h"

typedef struct gp_profile_line {
    const char *what;   /* "conv2d_backward_data", "reorder" */
    const char *kernel; /* the library's name for how it is done, or "loop" */
    uint32_t layer;     /* whose; GP_INPUT_LAYER: the network's input */
    bool forward;
    int64_t ns; /* processor time of the driving thread: what other programs take does not count */
} gp_profile_line;

typedef void (*gp_profile_fn)(void *context, const gp_profile_line *line);

/* Call with fn NULL first, to have times counted from then on; then: the pieces of all segments of a plan of gp_backend_cpu that tell their time apart, in their order. */
void gp_cpu_profile(const gp_plan *plan, gp_profile_fn fn, void *context);

#endif
