/* Compute threads of the CPU backend: an OpenMP team that one calling thread starts.
 *
 * Builds without OpenMP run the slices one after another on the calling thread, with the same
 * results. These are the TSan builds, because libgomp is not instrumented. */
#ifndef GP_CPU_THREADS_H
#define GP_CPU_THREADS_H

#include <stdint.h>

/* Compute slice `thread` out of `threads` slices. */
typedef void (*gp_share_fn)(void *context, uint32_t thread, uint32_t threads);

/* Call share(context, t, threads) for every t in [0, threads) and wait for all calls. While the
 * calling thread and `threads` stay the same, slice t always runs on the same thread. */
void gp_threads_run(uint32_t threads, gp_share_fn share, void *context);

/* Configure the calling thread's OpenMP team: pin thread t to cores[t] (NULL: no pinning) and flush
 * denormals to zero. Call once from the thread that runs plans. */
void gp_threads_prepare(uint32_t threads, const int *cores);

/* Return the team size that the calling thread configured. 1: none configured. */
uint32_t gp_threads_prepared(void);

#endif
