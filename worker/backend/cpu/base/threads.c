#include "worker/backend/cpu/base/threads.h"

#include <sched.h>
#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { AFFINITY_SETS = 4 }; /* 4096 cores: the kernel rejects a mask smaller than its own */

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

/* Team of the calling thread, and the state of this thread before it was prepared. */
static _Thread_local struct {
    uint32_t threads; /* arguments of the last gp_threads_prepare(); threads 0: no call yet */
    const int *cores;
    bool prepared;
    bool pinned; /* `affinity` is valid */
    cpu_set_t affinity[AFFINITY_SETS];
    unsigned float_mode;
} team;

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

/* Save the state of the calling thread for gp_threads_restore(). */
static void team_save(uint32_t threads, const int *cores)
{
#if defined(__SSE2__)
    team.float_mode = _mm_getcsr();
#endif
    team.pinned = cores != NULL && sched_getaffinity(0, sizeof(team.affinity), team.affinity) == 0;
    team.threads = threads;
    team.cores = cores;
    team.prepared = true;
}

void gp_threads_prepare(uint32_t threads, const int *cores)
{
    if (team.prepared && team.threads == threads && team.cores == cores)
        return;
    gp_threads_restore();
    team_save(threads, cores);
    gp_threads_run(threads, prepare_share, (void *)(uintptr_t)cores);
}

void gp_threads_restore(void)
{
    if (!team.prepared)
        return;
#if defined(__SSE2__)
    _mm_setcsr(team.float_mode);
#endif
    if (team.pinned)
        sched_setaffinity(0, sizeof(team.affinity), team.affinity);
    team.prepared = false;
}

bool gp_threads_is_prepared(void)
{
    return team.prepared;
}

void gp_threads_resume(void)
{
    if (team.threads == 0 || team.prepared)
        return;
    team_save(team.threads, team.cores);
    prepare_share((void *)(uintptr_t)team.cores, 0, team.threads);
}

uint32_t gp_threads_prepared(void)
{
    return team.threads == 0 ? 1 : team.threads;
}
