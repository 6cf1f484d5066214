/* fault.h -- named places where a test can make this process die, stop or hang.
 *
 *   GRADPOOL_FAULT="exchange:3:kill@2"     the third time worker 2 comes to `exchange`, it gets SIGKILL
 *   GRADPOOL_FAULT="POINT:N:ACTION[@INDEX[.INCARNATION]][,...]"     at most 8
 *
 * ACTION: kill (SIGKILL), stop (SIGSTOP), exit (_exit(9)), hang (the calling thread sleeps for ever).
 * Without @INDEX every worker of the pool; with @2.1 only the first incarnation of worker 2, so that its
 * replacement lives.  Points in use: ready, loading, forward, exchange, between-buckets, commit, validation,
 * predict, checkpoint, done; task_begin, task_done (before the answer is committed), task_answered.  A point that nothing passes
 * is no error: it never fires.
 *
 * Unarmed, a point is one load and a branch that is never taken. */
#ifndef GP_FAULT_H
#define GP_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

extern bool gp_fault_armed; /* written by gp_fault_setup() only, before other threads start */

/* gp_fault_setup -- arm the faults of spec (NULL or "" = none) that are meant for this worker.
 * GP_EINVAL: not of the form above; nothing is armed. */
gp_status gp_fault_setup(const char *spec, uint32_t index, uint32_t incarnation, gp_error *err);

/* Count a passing, and act when it is the n-th.  Any thread. */
void gp_fault_pass(const char *point);

static inline void gp_fault_point(const char *point)
{
    if (__builtin_expect(gp_fault_armed, 0))
        gp_fault_pass(point);
}

#endif
