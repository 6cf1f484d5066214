/* threads.h -- the compute threads of the CPU backend: OpenMP's, entered by one driving thread only.
 *
 * Without OpenMP (thread sanitizer builds: libgomp is not instrumented) the same shares run one after another on
 * the driving thread, with the same results. */
#ifndef GP_CPU_THREADS_H
#define GP_CPU_THREADS_H

#include <stdint.h>

typedef void (*gp_share_fn)(void *context, uint32_t thread, uint32_t threads);

/* Run share(context, t, threads) for every t in [0, threads), share t always on the same thread while the driving
 * thread and `threads` stay the same; returns when all are done. */
void gp_threads_run(uint32_t threads, gp_share_fn share, void *context);

/* Make the calling thread's OpenMP team compute the way we want: pinned to cores[t] (NULL: not pinned), denormals
 * flushed to zero.  Call once from the driving thread. */
void gp_threads_prepare(uint32_t threads, const int *cores);

/* The size of the team that the calling thread has prepared; 1 if it has not. */
uint32_t gp_threads_prepared(void);

#endif
