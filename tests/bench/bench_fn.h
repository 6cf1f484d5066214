/* bench_fn.h: data shared by bench_tasks and its tasks. */
#ifndef GP_BENCH_FN_H
#define GP_BENCH_FN_H

#include <stdatomic.h>
#include <stdint.h>

enum { BENCH_NAPS = 200, BENCH_WORKERS_MAX = 16 };

/* A file mapped by client and tasks: it survives killed workers. */
typedef struct bench_ledger {
    _Atomic int32_t pid[BENCH_WORKERS_MAX]; /* pid of the worker with this index in the team */
    _Atomic uint32_t begun[BENCH_NAPS], ended[BENCH_NAPS];
    _Atomic uint32_t ended_count;
    _Atomic uint32_t waiting; /* tasks waiting at the gate */
    _Atomic uint32_t open;    /* the gate is open */
} bench_ledger;

typedef struct bench_nap {
    uint32_t number; /* below BENCH_NAPS */
    uint32_t ms;
    char ledger[64]; /* path */
} bench_nap;

#endif
