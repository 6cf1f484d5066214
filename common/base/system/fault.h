/* fault.h -- named places where a test can make this process die, stop or hang; fault.def lists them.
 *
 *   GRADPOOL_FAULT="exchange:3:kill@2"     the third time worker 2 comes to `exchange`, it gets SIGKILL
 *   GRADPOOL_FAULT="POINT:N:ACTION[@INDEX[.INCARNATION]][,...]"     at most 8
 *
 * ACTION: kill (SIGKILL), stop (SIGSTOP), exit (_exit(9)), hang (the calling thread sleeps for ever).
 * Without @INDEX every process that has the point; with @2.1 only the first incarnation of worker 2, so that its
 * replacement lives.  A scheduler and a command have index 1; a scheduler's incarnation is its epoch, a job's its attempt.
 * GRADPOOL_FAULT_TOLD names a file to which "PID POINT ACTION" is appended before the action.
 *
 * Points are in every build.  Unarmed, one is a load and a branch that is never taken: under 1 ns (tests/common/base/test_fault.c
 * prints it). */
#ifndef GP_FAULT_H
#define GP_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum gp_fault_process {
    GP_FAULT_scheduler,
    GP_FAULT_worker,
    GP_FAULT_runner,
    GP_FAULT_client
} gp_fault_process;

typedef struct gp_fault_entry {
    gp_fault_process process;
    const char *point, *when;
} gp_fault_entry;

/* The table of fault.def; the last has a point of NULL. */
extern const gp_fault_entry gp_fault_points[];

extern bool gp_fault_armed; /* written by gp_fault_setup() only, before other threads start */

/* gp_fault_setup -- arm the faults of spec (NULL or "" = none) that are meant for this process.
 * GP_EINVAL: not of the form above, or there is no such point; nothing is armed. */
gp_status gp_fault_setup(const char *spec, gp_fault_process process, uint32_t index, uint32_t incarnation,
                         gp_error *err);

/* The same from GRADPOOL_FAULT. */
gp_status gp_fault_arm(gp_fault_process process, uint32_t index, uint32_t incarnation, gp_error *err);

/* Count a passing, and act when it is the n-th.  Any thread. */
void gp_fault_pass(const char *point);

static inline void gp_fault_point(const char *point)
{
    if (__builtin_expect(gp_fault_armed, 0))
        gp_fault_pass(point);
}

#endif
