#include "worker/backend/cpu/base/threads.h"

#include <sched.h>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

void gp_threads_run(uint32_t threads, gp_share_fn share, void *context)
{
    if (threads == 1) {
        share(context, 0, 1);
        return;
    }
#if defined(_OPENMP)
#pragma omp parallel num_threads((int)threads)
    {
        /* The OpenMP runtime may provide fewer threads than requested; each then computes several
         * slices. */
        uint32_t step = (uint32_t)omp_get_num_threads();

        for (uint32_t t = (uint32_t)omp_get_thread_num(); t < threads; t += step)
            share(context, t, threads);
    }
#else
    for (uint32_t t = 0; t < threads; t++)
        share(context, t, threads);
#endif
}

static void prepare_share(void *context, uint32_t thread, uint32_t threads)
{
    const int *cores = context;

    (void)threads;
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* per-thread flags: flush to zero, and denormals are zero */
#endif
    if (cores != NULL) {
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET((size_t)cores[thread], &set);
        /* fails if the core no longer exists; the thread then runs unpinned */
        sched_setaffinity(0, sizeof(set), &set);
    }
}

/* team size set by gp_threads_prepare() */
static _Thread_local uint32_t prepared = 1;

void gp_threads_prepare(uint32_t threads, const int *cores)
{
    prepared = threads;
    gp_threads_run(threads, prepare_share, (void *)cores);
}

uint32_t gp_threads_prepared(void)
{
    return prepared;
}
