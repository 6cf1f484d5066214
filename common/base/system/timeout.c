/* Implement timeout.h. Two atomic variables make up the running clock. */
#include "common/base/system/timeout.h"

#include <stdatomic.h>

static _Atomic int64_t read_ms;    /* CLOCK_MONOTONIC at the last reading */
static _Atomic int64_t running_ms; /* running time at the last reading */

/* The thread whose exchange covers an interval adds it, so each interval counts once. A thread that
 * reads at the same time may return a value without that interval. */
int64_t gp_running_ms(void)
{
    int64_t now = gp_now_ms(), passed = now - atomic_exchange(&read_ms, now);

    if (passed > GP_TIMEOUT_GAP_MS)
        passed = GP_TIMEOUT_GAP_MS;
    return atomic_fetch_add(&running_ms, passed) + passed;
}

gp_timeout gp_timeout_in(int64_t ms)
{
    return (gp_timeout){ .end_ms = gp_running_ms() + ms };
}

int64_t gp_timeout_left(gp_timeout timeout)
{
    int64_t left = timeout.end_ms - gp_running_ms();

    return left > 0 ? left : 0;
}

int gp_timeout_slice(gp_timeout timeout)
{
    int64_t left = gp_timeout_left(timeout);

    return left < GP_TIMEOUT_SLICE_MS ? (int)left : GP_TIMEOUT_SLICE_MS;
}
