/* team_tasks.h -- the verbs of raw_zmq.h done with gradpool, through its public interface alone, and what only a pool
 * can do.  As there, a failure ends the program with a sentence. */
#ifndef GP_BENCH_TEAM_TASKS_H
#define GP_BENCH_TEAM_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct team_bench team_bench;

/* Runtime and state directories of a pool, for the processes forked from here on; free ends the pool if one was left
 * running in them.  A process that opens a pool must not fork. */
void team_place_new(void);
void team_place_free(void);

/* team_open -- start the pool, and a team of all its workers.
 *   workers      of the pool; with more than the caller may use cores they share them
 *   client_core  the caller is bound to it between the start of the pool and the opening of the team
 *   other_core   round trips go to the worker that runs there (any, if there is none) */
team_bench *team_open(int workers, int client_core, int other_core);
void team_close(team_bench *bench);

/* any: whichever worker the team chooses, instead of the one on the other core. */
void team_round_trips(team_bench *bench, int64_t *ns, int count, bool any);
void team_spmd(team_bench *bench, int64_t *ns, int count);

/* One future per task, all submitted, then all results read and freed; no-ops for 0 turns.  Seconds. */
double team_futures(team_bench *bench, uint64_t count, uint64_t turns);
/* One loop, one word of output per iteration.  Seconds. */
double team_loop(team_bench *bench, uint64_t count, uint64_t turns);
double team_bulk(team_bench *bench, size_t bytes);

typedef struct team_kill_report {
    double
        seconds; /* from the first submit to the last result; a worker is killed when a quarter has ended */
    int lost;    /* tasks without a result */
    int twice;   /* tasks that were finished more than once */
} team_kill_report;

/* BENCH_NAPS tasks that sleep for so long. */
team_kill_report team_kill(team_bench *bench, uint32_t nap_ms);

typedef struct team_queue_report {
    double bytes_each;   /* growth of private memory, client and daemons together, per task that waits */
    double tasks_second; /* once the workers are let go */
} team_queue_report;

team_queue_report team_queue(team_bench *bench, uint64_t count);

#endif
