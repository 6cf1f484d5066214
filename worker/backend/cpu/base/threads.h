/* Compute threads of the CPU backend: an OpenMP team that one calling thread starts.
 *
 * Builds without OpenMP run the slices one after another on the calling thread, with the same
 * results. These are the TSan builds, because libgomp is not instrumented. */
#ifndef GP_CPU_THREADS_H
#define GP_CPU_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* Compute slice `thread` out of `threads` slices. */
typedef void (*gp_share_fn)(void *context, uint32_t thread, uint32_t threads);

/* Call share(context, t, threads) for every t in [0, threads) and wait for all calls. While the
 * calling thread and `threads` stay the same, slice t always runs on the same thread. */
void gp_threads_run(uint32_t threads, gp_share_fn share, void *context);

/* Prepare the calling thread and its OpenMP team to run plans: pin thread t to cores[t] (NULL: no
 * pinning) and flush denormals to zero. gp_threads_restore() ends this for the calling thread only;
 * the other threads of the team stay prepared. No effect if the thread is already prepared with the
 * same arguments.
 *   cores  must stay valid until gp_threads_restore(), and for later gp_threads_resume() */
void gp_threads_prepare(uint32_t threads, const int *cores);

/* Restore the CPU affinity and the floating-point mode that the calling thread had before it was
 * prepared. Call it before the thread starts other threads or returns to user code. No effect if
 * the thread is not prepared. */
void gp_threads_restore(void);

/* Return whether the calling thread is prepared. */
bool gp_threads_is_prepared(void);

/* Prepare the calling thread, but not its team, with the arguments of its last
 * gp_threads_prepare(). No effect if the thread is prepared, or was never prepared. */
void gp_threads_resume(void);

/* Return the team size of the calling thread's last gp_threads_prepare(). 1: no call yet. */
uint32_t gp_threads_prepared(void);

#endif
