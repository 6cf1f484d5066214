/* Detect whether the kernel probably killed a process for lack of memory.
 *
 * The kernel does not report which process its OOM killer killed, but it counts such kills for each
 * memory control group and for the whole system. If a process is killed by SIGKILL while its count
 * grows, the OOM killer was the most likely cause. The count is read about once a second and
 * compared with the reading before the latest, so kills more than about two seconds old are
 * ignored. */
#ifndef GP_MEMORY_KILLS_H
#define GP_MEMORY_KILLS_H

#include <stdbool.h>
#include <stdint.h>

/* OOM kill counts for one process. */
typedef struct gp_memory_kills {
    uint64_t earlier, latest; /* last two readings; UINT64_MAX: unknown */
    int64_t latest_ms;        /* when `latest` was read */
    char path[256];           /* file with the count */
} gp_memory_kills;

/* Choose the file that contains the count for a process.
 *   cgroups  content read from /proc/PID/cgroup
 *   root     control group mount point: /sys/fs/cgroup
 * Preferred order: the group's memory.events (version 2, also in a hybrid hierarchy), the group's
 * memory.oom_control (version 1), /proc/vmstat. */
void gp_memory_kills_find(gp_memory_kills *out, const char *cgroups, const char *root);

/* Choose the file for a running process, and read the count. */
void gp_memory_kills_begin(gp_memory_kills *kills, uint32_t pid);

/* Read the count again if the latest reading is at least one second old. Call regularly while the
 * process runs. Follows the process into another control group. */
void gp_memory_kills_watch(gp_memory_kills *kills, uint32_t pid, int64_t now_ms);

/* Return whether the count has grown since the reading before the latest. */
bool gp_memory_kills_grew(const gp_memory_kills *kills);

#endif
