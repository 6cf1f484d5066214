/* process.h -- naming a process for ever, and knowing that it is dead. */
#ifndef GP_COMM_PROCESS_H
#define GP_COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

/* Field 22 of /proc/PID/stat: clock ticks since boot.  GP_EPEER: there is no such process. */
gp_status gp_process_start_time(pid_t pid, uint64_t *ticks, gp_error *err);

/* A pidfd of the process with that pid and start time, closed by the caller.  GP_EPEER: it is gone (another
 * process may have its pid now). */
gp_status gp_process_open(pid_t pid, uint64_t start_time, int *pidfd, gp_error *err);

/* Dead means that its address space is gone, reaped or not: the kernel releases the memory before it
 * reports the pidfd readable. */
bool gp_process_dead(int pidfd);

#endif
