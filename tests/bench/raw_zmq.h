/* raw_zmq.h: the reference for bench_tasks: plain C and ZeroMQ, written by an expert.
 *
 * One ROUTER in the calling process, one DEALER in each forked worker, ipc sockets: no named
 * functions, futures, recovery or input checks. The code wastes nothing: small messages are stored
 * inside zmq_msg_t, a worker answers in the received message, large payloads are not copied, and a
 * window of outstanding messages keeps all workers busy. */
#ifndef GP_BENCH_RAW_ZMQ_H
#define GP_BENCH_RAW_ZMQ_H

#include <stddef.h>
#include <stdint.h>

enum { RAW_WORKERS_MAX = 16 };

typedef struct raw_pool raw_pool;

/* Fork the workers, each pinned to a core (-1: not pinned), and wait until all have answered. Call
 * it before the process has threads or other sockets, which the workers would inherit. Any failure
 * here or below ends the program with a message. */
raw_pool *raw_open(int workers, const int *cores);
void raw_close(raw_pool *pool); /* returns when the workers are reaped */

/* Send single no-ops to worker 0; store nanoseconds for each. */
void raw_round_trips(raw_pool *pool, int64_t *ns, int count);

/* Send an empty message to all workers and wait for all answers; store nanoseconds for each
 * round. */
void raw_spmd(raw_pool *pool, int64_t *ns, int count);

/* Run `count` tasks with `turns` turns of bench_burn() on all workers; return the seconds.
 *   batch   tasks per message; argument and result have 8 bytes each
 *   window  most messages per worker, waiting and running */
double raw_tasks(raw_pool *pool, uint64_t count, unsigned batch, unsigned window, uint64_t turns);

/* Send `bytes` bytes to every worker and receive as many from each; return the seconds. The worker
 * stamps each page, and the caller reads one word per page. */
double raw_bulk(raw_pool *pool, size_t bytes);

/* The same between processes whose malloc never returns pages to the kernel, so that payloads use
 * existing pages: the limit of tuning. Client and workers are separate processes, forked by
 * raw_kept_open(). Call it before the first raw_open(): malloc options must be set before the first
 * thread. */
typedef struct raw_kept raw_kept;

raw_kept *raw_kept_open(int workers, const int *cores);
double raw_kept_bulk(raw_kept *kept, size_t bytes);
void raw_kept_close(raw_kept *kept);

#endif
