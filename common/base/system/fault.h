/* Fault injection: named points at which a test can kill, suspend or hang this process. fault.def
 * lists all points.
 *
 *   GRADPOOL_FAULT="exchange:3:kill@2"   SIGKILL when worker 2 passes `exchange` for the third time
 *   GRADPOOL_FAULT="POINT:N:ACTION[@INDEX[.INCARNATION]][,...]"   at most 8 faults
 *
 * ACTION is kill (SIGKILL), stop (SIGSTOP), exit (_exit(9)) or hang (the calling thread sleeps
 * forever). Without @INDEX a fault applies to every process that has the point. "@2.1" limits it to
 * the first incarnation of worker 2, so that the replacement is not affected. Schedulers and
 * commands have index 1. A scheduler's incarnation is its epoch, a job's is its attempt.
 *
 * GRADPOOL_FAULT_REPORT names a file. Before each action, "PID POINT ACTION" is appended to it.
 *
 * All builds contain the fault points. A point without an armed fault costs a load and a branch,
 * less than 1 ns (printed by tests/common/base/test_fault.c). */
#ifndef GP_FAULT_H
#define GP_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

/* Process kinds with fault points. The names appear in fault.def. */
typedef enum gp_fault_process {
    GP_FAULT_scheduler,
    GP_FAULT_worker,
    GP_FAULT_runner,
    GP_FAULT_client
} gp_fault_process;

/* One fault point. */
typedef struct gp_fault_entry {
    gp_fault_process process;
    const char *point, *when; /* name; state of the process when it passes the point */
} gp_fault_entry;

/* All points in fault.def. The last entry has a NULL point. */
extern const gp_fault_entry gp_fault_points[];

/* Whether any fault is armed. Only gp_fault_setup() writes it, before other threads start. */
extern bool gp_fault_armed;

/* Arm all faults in a specification that apply to this process.
 *   spec         GRADPOOL_FAULT's value; NULL or "": none
 *   process      this process's kind
 *   index        this process's number, from 1
 *   incarnation  how often this process was started, from 1
 * GP_EINVAL: invalid form or unknown point. GP_ELIMIT: more than 8 faults. No fault is armed
 * then. */
gp_status gp_fault_setup(const char *spec, gp_fault_process process, uint32_t index, uint32_t incarnation,
                         gp_error *err);

/* Arm the faults in the environment variable GRADPOOL_FAULT. */
gp_status gp_fault_arm(gp_fault_process process, uint32_t index, uint32_t incarnation, gp_error *err);

/* Count one pass, and perform the action for each fault whose count is reached. Callable from any
 * thread. */
void gp_fault_pass(const char *point);

/* Mark a fault point. `point` must be listed in fault.def. */
static inline void gp_fault_point(const char *point)
{
    if (__builtin_expect(gp_fault_armed, 0))
        gp_fault_pass(point);
}

#endif
