/* Identifies processes uniquely and detects their exit, with pidfds. */
#ifndef GP_COMM_PROCESS_H
#define GP_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

/* Read a process's start time in clock ticks since boot (field 22 of /proc/PID/stat). GP_EPEER: no
 * such process. */
gp_status gp_process_start_time(pid_t pid, uint64_t *ticks, gp_error *err);

/* Open a pidfd for the process with this PID and start time; the caller closes it. GP_EPEER: the
 * process exited, and another one may have the same PID. */
gp_status gp_process_open(pid_t pid, uint64_t start_time, int *pidfd, gp_error *err);

/* Return true if the process exited, whether or not it was reaped. The process memory is gone by
 * then: the kernel releases the address space before the pidfd becomes readable. */
bool gp_process_dead(int pidfd);

#endif
