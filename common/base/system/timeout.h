/* Timeouts that exclude the time during which this process is suspended.
 *
 * While a process is suspended (SIGSTOP, a debugger, a paused container), CLOCK_MONOTONIC
 * continues, peers' replies remain unread, and the peers may be suspended too. Without this module,
 * the process would then report healthy peers as failed. Timeouts are therefore measured in running
 * time: a clock of this process that advances by at most GP_TIMEOUT_GAP_MS between two readings by
 * any thread. Event loops read the clock more often than that:
 *
 *   for (gp_timeout timeout = gp_timeout_in(ms); gp_timeout_left(timeout) > 0;)
 *       poll(fds, count, gp_timeout_slice(timeout));
 *
 * A loop that reports a timeout reads the clock first, and polls once more after that. */
#ifndef GP_TIMEOUT_H
#define GP_TIMEOUT_H

#include "common/base/clock.h"

/* longest poll; largest advance per reading */
enum { GP_TIMEOUT_SLICE_MS = 250, GP_TIMEOUT_GAP_MS = 2 * GP_TIMEOUT_SLICE_MS };

/* A deadline in running time. */
typedef struct gp_timeout {
    int64_t end_ms; /* compared with gp_running_ms() */
} gp_timeout;

/* Return this process's running time in milliseconds since an unspecified point. Callable from any
 * thread. */
int64_t gp_running_ms(void);

/* Return a timeout that expires after `ms` milliseconds running time. */
gp_timeout gp_timeout_in(int64_t ms);

/* Return the remaining milliseconds. 0: expired. */
int64_t gp_timeout_left(gp_timeout timeout);

/* Return the time to poll: until the timeout expires, but at most GP_TIMEOUT_SLICE_MS. */
int gp_timeout_slice(gp_timeout timeout);

#endif
