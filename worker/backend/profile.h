/* Times of the operations of a plan, for benchmarks. */
#ifndef GP_PROFILE_H
#define GP_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

/* Time of one operation. */
typedef struct gp_profile_line {
    const char *what;   /* operation: "conv2d_backward_data", "reorder" */
    const char *kernel; /* implementation name from the library, or "loop" */
    uint32_t layer;     /* layer index; GP_INPUT_LAYER: the network input */
    bool forward;
    /* Sum over all runs. CPU: time of the thread that runs the plan, which does not depend on other
     * processes. GPU: time on the device. */
    int64_t ns;
} gp_profile_line;

typedef void (*gp_profile_fn)(void *context, const gp_profile_line *line);

#endif
