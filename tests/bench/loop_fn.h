/* loop_fn.h: request and reply between bench_loops and its task. */
#ifndef GP_BENCH_LOOP_FN_H
#define GP_BENCH_LOOP_FN_H

#include <stdint.h>

typedef struct loop_request {
    char network[64], data[64];
    uint32_t batch, steps;
    uint32_t custom_loss; /* 1: cross-entropy computed by the task */
} loop_request;

typedef struct loop_times {
    double seconds; /* from the end of the first step to the end of the last */
    double cpu;     /* CPU time in the compute thread during that interval, s */
} loop_times;

#endif
