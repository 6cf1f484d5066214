/* team_tasks.h: the measurements in raw_zmq.h with gradpool through the public interface, and
 * others that need a pool. A failure ends the program with a message. */
#ifndef GP_BENCH_TEAM_TASKS_H
#define GP_BENCH_TEAM_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct team_bench team_bench;

/* Create runtime and state directories for the pools of processes forked later. team_place_free()
 * ends a pool left in them. A process that opens a pool must not fork. */
void team_place_new(void);
void team_place_free(void);

/* Start the pool and open a team on all workers.
 *   workers      worker count; they share cores if the caller has fewer
 *   client_core  core for the caller, bound after the pool starts and before the team opens
 *   other_core   round trips use the worker on this core, or any worker without such a core */
team_bench *team_open(int workers, int client_core, int other_core);
void team_close(team_bench *bench);

/* any: use the worker chosen by the team, not the one on the other core. */
void team_round_trips(team_bench *bench, int64_t *ns, int count, bool any);
void team_spmd(team_bench *bench, int64_t *ns, int count);

/* Submit one future per task, then read and free all results; 0 turns: no-ops. Return the
 * seconds. */
double team_futures(team_bench *bench, uint64_t count, uint64_t turns);

/* Run one loop with an output word per iteration; return the seconds. */
double team_loop(team_bench *bench, uint64_t count, uint64_t turns);
double team_bulk(team_bench *bench, size_t bytes);

typedef struct team_kill_report {
    double seconds; /* from the first submit to the last result; a worker is killed after a quarter */
    int lost;       /* tasks without a result */
    int twice;      /* tasks completed more than once */
} team_kill_report;

/* Run BENCH_NAPS tasks that sleep nap_ms each, and kill a worker. */
team_kill_report team_kill(team_bench *bench, uint32_t nap_ms);

typedef struct team_queue_report {
    double bytes_each;   /* private memory growth in client and daemons per waiting task */
    double tasks_second; /* after the workers are released */
} team_queue_report;

team_queue_report team_queue(team_bench *bench, uint64_t count);

#endif
