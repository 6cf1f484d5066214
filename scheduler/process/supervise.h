/* Worker processes: spawn them, watch them through pidfds, kill them and find out why they
 * exited. */
#ifndef GP_SUPERVISE_H
#define GP_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/base/system/memory_kills.h"
#include "scheduler/core/core.h"

typedef struct gp_child {
    pid_t pid; /* process id; 0: no process */
    int pidfd; /* readable after the process has exited; -1: none */
    uint32_t incarnation;
    bool adopted;          /* started by an earlier scheduler, so the exit status is not available here */
    gp_memory_kills kills; /* out-of-memory kill counter of the cgroup, sampled at each heartbeat */
} gp_child;

/* Find the worker executable: $GRADPOOL_WORKER, or gradpool-worker next to this executable or in
 * ../libexec/gradpool.
 *   GP_ENOENT: not found; the message lists the places searched */
gp_status gp_supervise_program(char *path, size_t bytes, gp_error *err);

/* Find the command that runs jobs: $GRADPOOL_CLIENT, or gradpool next to this executable or in
 * ../bin. */
gp_status gp_supervise_client(char *path, size_t bytes, gp_error *err);

/* Spawn a worker in a new session with default signal handlers. It inherits only the
 * pool secrets and descriptors 0 to 2. The worker output is appended to config->log.
 *   index        slot number, from 0
 *   incarnation  number of this process in the slot
 *   failures     earlier processes of the slot that failed
 *   cold         the worker opens its GPU only for work
 *   GP_EIO: cannot spawn; errno is set */
gp_status gp_supervise_spawn(gp_child *out, const char *program, const char *pool,
                             const gp_core_slot_config *config, uint32_t index, uint32_t incarnation,
                             uint64_t failures, bool cold, gp_error *err);

/* Open a log to append to, and create it if it is missing. Never blocks, although a job can replace
 * its log with a FIFO. Return 0 or an error number. ENXIO: not a regular file. */
int gp_supervise_open_log(int *out, const char *path);

/* Spawn a process in a new session, with standard input from /dev/null. The process inherits the
 * working directory and these descriptors: `log` as both outputs, then the gate and the pool
 * secrets, numbered from 3 on. Return 0 or an error number.
 *   log   descriptor for standard output and standard error
 *   gate  descriptor to pass on; -1: none */
int gp_supervise_spawn_with(pid_t *pid, const char *program, int log, int gate, char **arguments,
                            char **environment);

/* Return field 22 of /proc/PID/stat: the start time in clock ticks since boot. With the pid, it
 * identifies a process uniquely. 0: see errno. ENOENT, ESRCH: there is no such process. */
uint64_t gp_supervise_start_time(pid_t pid);

/* Send SIGKILL to the worker and its process group. An adopted worker is killed alone: its children
 * exit by themselves, and the group number may have been reused. */
void gp_supervise_kill(const gp_child *child);

/* Collect an exited worker: set event->death, number and out_of_memory, and empty *child. False:
 * the worker has not exited. */
bool gp_supervise_reap(gp_child *child, gp_core_event *event);

#endif
