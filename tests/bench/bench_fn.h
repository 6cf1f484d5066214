/* bench_fn.h -- what bench_tasks and its tasks tell each other. */
#ifndef GP_BENCH_FN_H
#define GP_BENCH_FN_H

#include <stdatomic.h>
#include <stdint.h>

enum { BENCH_NAPS = 200, BENCH_WORKERS_MAX = 16 };

/* A file mapped by the client and by the tasks: what a killed worker wrote stays. */
typedef struct bench_ledger {
    _Atomic int32_t pid[BENCH_WORKERS_MAX]; /* of the worker with that place in the team */
    _Atomic uint32_t begun[BENCH_NAPS], ended[BENCH_NAPS];
    _Atomic uint32_t ended_count;
    _Atomic uint32_t waiting; /* tasks at the gate */
    _Atomic uint32_t open;    /* the gate */
} bench_ledger;

typedef struct bench_nap {
    uint32_t number; /* below BENCH_NAPS */
    uint32_t ms;
    char ledger[64]; /* path */
} bench_nap;

#endif
