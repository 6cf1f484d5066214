/* Daemon around the core: sockets, processes and timers in one thread with one poll loop. */
#ifndef GP_SHELL_H
#define GP_SHELL_H

#include <stdint.h>
#include <sys/resource.h>

#include "common/base/error.h"
#include "proto/device/device_list.h"
#include "proto/local/paths.h"
#include "scheduler/shell/pool_lock.h"
#include "scheduler/process/plan.h"
#include "scheduler/process/orphans.h"
#include "scheduler/process/owner.h"

/* Options of the shell, borrowed while it runs. */
typedef struct gp_shell_options {
    const gp_paths *paths;
    gp_pool_lock *lock;
    const char *worker_program;
    const gp_device_list *devices;
    const gp_plan_cores *cores;
    gp_plan_request request;
    rlim_t files;            /* soft limit on descriptors for jobs; the shell raises its own */
    int64_t idle_timeout_ms; /* 0: never */
    /* silence until a worker is reported as suspect, and until it is killed; 0: never */
    int64_t suspect_ms, silence_ms;
    /* process attributes for the next scheduler (process_env.h); NULL: unknown */
    const char *process_env;
    const char *listen; /* tcp://ADDRESS:PORT for clients on other hosts; NULL: no remote clients */
    /* The previous scheduler crashed. Some of its worker processes may be alive without having been
     * found. */
    bool follows;
    gp_owner owner;      /* the pool shuts down when this process exits; the shell takes ownership */
    gp_orphans *orphans; /* workers from the previous scheduler; the shell takes ownership */
    /* Receives "ready\n", or "adopted\n" if workers from the previous scheduler were found, as soon
     * as clients are served. Closed afterwards. -1: none. */
    int ready_fd;
} gp_shell_options;

/* Open the sockets, start the workers and serve clients. Returns after a shutdown request, SIGTERM,
 * SIGINT, the idle timeout or the exit of the owner, when all workers have exited. Also returns
 * when a later scheduler has taken over the pool; that scheduler then owns the workers. SIGTERM,
 * SIGINT and SIGHUP must be blocked in the calling thread. Errors are possible only before "ready";
 * then no worker is left. */
gp_status gp_shell_run(const gp_shell_options *options, gp_error *err);

#endif
