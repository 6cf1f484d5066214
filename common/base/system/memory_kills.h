/* memory_kills.h -- whether the kernel kills processes for lack of memory where a process lives.
 *
 * The kernel says nowhere which process it killed for that reason, but counts such kills for each memory control group
 * and for the whole system.  A process that dies of SIGKILL while its count grows was most likely one of them.  The
 * count is read about once a second, and a death is compared with the reading before the latest, so that kills which
 * are more than two seconds old do not count. */
#ifndef GP_MEMORY_KILLS_H
#define GP_MEMORY_KILLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gp_memory_kills {
    uint64_t earlier, latest; /* readings; UINT64_MAX: not known */
    int64_t latest_ms;        /* when `latest` was read */
    char path[256];           /* file that counts */
} gp_memory_kills;

/* gp_memory_kills_find -- choose the file that counts for a process.
 *   cgroups  text of its /proc/PID/cgroup
 *   root     where control groups are mounted: /sys/fs/cgroup
 * In order: memory.events of its group (version 2, alone or in a hybrid hierarchy), memory.oom_control of its group
 * (version 1), /proc/vmstat. */
void gp_memory_kills_find(gp_memory_kills *out, const char *cgroups, const char *root);

/* gp_memory_kills_begin -- find the file that counts for a living process and read it. */
void gp_memory_kills_begin(gp_memory_kills *kills, uint32_t pid);

/* gp_memory_kills_watch -- read again if the latest reading is a second old.  Call while the process lives; follows it
 * into another control group. */
void gp_memory_kills_watch(gp_memory_kills *kills, uint32_t pid, int64_t now_ms);

/* Return whether a process was killed since the reading before the latest. */
bool gp_memory_kills_grew(const gp_memory_kills *kills);

#endif
