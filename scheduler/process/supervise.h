/* supervise.h -- worker processes: spawned, watched through a pidfd, killed, and asked what they died of. */
#ifndef GP_SUPERVISE_H
#define GP_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/base/system/memory_kills.h"
#include "scheduler/core/core.h"

typedef struct gp_child {
    pid_t pid; /* 0 = none */
    int pidfd; /* readable when it has ended; -1 = none */
    uint32_t incarnation;
    bool adopted;          /* a child of an earlier scheduler: the signal that it dies of cannot be known */
    gp_memory_kills kills; /* watched with each beat of a worker */
} gp_child;

/* gp_supervise_program -- the worker's executable: $GRADPOOL_WORKER, or gradpool-worker beside our own, or in
 * ../libexec/gradpool.  GP_ENOENT names where it was looked for. */
gp_status gp_supervise_program(char *path, size_t bytes, gp_error *err);

/* gp_supervise_client -- the command that jobs run: $GRADPOOL_CLIENT, or gradpool beside us or in ../bin. */
gp_status gp_supervise_client(char *path, size_t bytes, gp_error *err);

/* gp_supervise_spawn -- a worker in its own process group, all signals at their defaults, no descriptor of ours, its
 * output appended to config->log.
 *   index  of the slot, from 0
 * GP_EIO; errno stays set. */
gp_status gp_supervise_spawn(gp_child *out, const char *program, const char *pool,
                             const gp_core_slot_config *config, uint32_t index, uint32_t incarnation,
                             gp_error *err);

/* Field 22 of /proc/PID/stat, in clock ticks since boot: with the pid it names a process for ever.  0 = there is none. */
uint64_t gp_supervise_start_time(pid_t pid);

/* SIGKILL to the process and its group; of an adopted one to the process alone: what it started ends with it by itself,
 * and the number of its group may be another's by now. */
void gp_supervise_kill(const gp_child *child);

/* gp_supervise_reap -- set event->death, ->number and ->out_of_memory to the cause of its end; *child is empty
 * afterwards.  False: it has not ended. */
bool gp_supervise_reap(gp_child *child, gp_core_event *event);

#endif
