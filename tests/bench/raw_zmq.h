/* raw_zmq.h -- the reference of bench_tasks: what plain C and ZeroMQ give a person who knows both.
 *
 * One ROUTER in the calling process, one DEALER in each of the forked workers, ipc sockets, nothing else: no
 * functions by name, no futures, no recovery, no checks of what arrives.  Nothing is wasted either: small messages
 * live inside zmq_msg_t, a worker answers in the message it got, large payloads are sent from where they lie and are
 * read where they arrived, and a window of outstanding messages keeps every worker fed. */
#ifndef GP_BENCH_RAW_ZMQ_H
#define GP_BENCH_RAW_ZMQ_H

#include <stddef.h>
#include <stdint.h>

enum { RAW_WORKERS_MAX = 16 };

typedef struct raw_pool raw_pool;

/* raw_open -- fork the workers, each pinned to its core (-1: left alone), and wait until all have answered.
 * Call it before the process has threads or sockets of others: the workers inherit them.  Any failure here or below
 * ends the program with a sentence: a benchmark has no other use for it. */
raw_pool *raw_open(int workers, const int *cores);
void raw_close(raw_pool *pool); /* returns when the workers are reaped */

/* One no-op at a time, to worker 0: nanoseconds of each. */
void raw_round_trips(raw_pool *pool, int64_t *ns, int count);

/* An empty message to every worker, an answer from every worker: nanoseconds of each. */
void raw_spmd(raw_pool *pool, int64_t *ns, int count);

/* raw_tasks -- count tasks of that many turns of bench_burn() over all workers; seconds.
 *   batch   tasks in a message; each has 8 bytes of argument and 8 bytes of result
 *   window  messages a worker has at most, waiting and running */
double raw_tasks(raw_pool *pool, uint64_t count, unsigned batch, unsigned window, uint64_t turns);

/* raw_bulk -- that many bytes to every worker and as many back from each; the worker stamps each page, the caller
 * reads one word of each page.  Seconds. */
double raw_bulk(raw_pool *pool, size_t bytes);

/* The same between processes whose malloc never gives pages back to the kernel, so that payloads land in pages that
 * are there already: what tuning can get.  Client and workers are processes of their own, forked by raw_kept_open(),
 * which must come before the first raw_open(): malloc must know before the first thread. */
typedef struct raw_kept raw_kept;

raw_kept *raw_kept_open(int workers, const int *cores);
double raw_kept_bulk(raw_kept *kept, size_t bytes);
void raw_kept_close(raw_kept *kept);

#endif
