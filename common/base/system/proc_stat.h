/* proc_stat.h -- one line of /proc/PID/stat (proc_pid_stat(5)). */
#ifndef GP_PROC_STAT_H
#define GP_PROC_STAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct gp_proc_stat {
    char state; /* 'Z': it has ended and was not waited for; 'X': dead */
    pid_t parent, group;
    uint64_t start_time; /* clock ticks since boot: with the pid it names a process for ever */
    /* Size of the address space.  0: the process has exited, or is exiting; the kernel releases the memory of an exiting
     * process before its files. */
    uint64_t address_bytes;
} gp_proc_stat;

/* gp_proc_stat_read -- false: there is no such process; errno. */
bool gp_proc_stat_read(gp_proc_stat *out, pid_t pid);

#endif
