/* Parse /proc/PID/stat, see proc_pid_stat(5). */
#ifndef GP_PROC_STAT_H
#define GP_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Process status. */
typedef struct gp_proc_stat {
    char state; /* 'Z': zombie, exited but not yet reaped; 'X': dead */
    pid_t parent, group;

    /* Start time in clock ticks since boot. PID and start time together identify a process
     * uniquely. */
    uint64_t start_time;

    /* Address space size. 0: the process has exited or is exiting. The kernel releases an exiting
     * process's memory before it closes the files. */
    uint64_t address_bytes;
} gp_proc_stat;

/* Read a process's status. False: see errno. ENOENT, ESRCH: there is no such process. */
bool gp_proc_stat_read(gp_proc_stat *out, pid_t pid);

#endif
