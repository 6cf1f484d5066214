/* timeout.h -- timeouts that a suspended process does not take for the failure of its peers.
 *
 * While a process is suspended (SIGSTOP, a debugger, a paused container), CLOCK_MONOTONIC
 * continues, replies of peers wait unread, and the peers may be suspended too. So timeouts are
 * measured in running time: a clock of this process on which the interval between two readings, by
 * any of its threads, is at most GP_TIMEOUT_GAP_MS long. An event loop reads it more often:
 *
 *   for (gp_timeout timeout = gp_timeout_in(ms); gp_timeout_left(timeout) > 0;)
 *       poll(fds, count, gp_timeout_slice(timeout));
 *
 * A loop that reports a timeout reads the clock first and polls once more after that. */
#ifndef GP_TIMEOUT_H
#define GP_TIMEOUT_H

#include "common/base/clock.h"

enum { GP_TIMEOUT_SLICE_MS = 250, GP_TIMEOUT_GAP_MS = 2 * GP_TIMEOUT_SLICE_MS };

typedef struct gp_timeout {
    int64_t end_ms; /* on the clock of gp_running_ms() */
} gp_timeout;

/* Return the running time of this process, in milliseconds since an unspecified point. Any thread
 * may call it. */
int64_t gp_running_ms(void);

gp_timeout gp_timeout_in(int64_t ms);
/* Return the milliseconds until the timeout; 0: it is reached. */
int64_t gp_timeout_left(gp_timeout timeout);
/* Return how long to poll: until the timeout, at most GP_TIMEOUT_SLICE_MS. */
int gp_timeout_slice(gp_timeout timeout);

#endif
