/* shell.h -- the daemon around the core: sockets, processes, timers; one thread, one poll loop. */
#ifndef GP_SHELL_H
#define GP_SHELL_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/device/device_list.h"
#include "proto/local/places.h"
#include "scheduler/shell/hold.h"
#include "scheduler/process/plan.h"
#include "scheduler/process/survivors.h"

/* Borrowed while the shell runs. */
typedef struct gp_shell_options {
    const gp_places *places;
    gp_hold *hold;
    const char *worker_program;
    const gp_device_list *devices;
    const gp_plan_cores *cores;
    gp_plan_request request;
    int64_t idle_timeout_ms; /* 0 = never */
    int64_t suspect_ms,
        silence_ms;           /* a worker's silence until it is suspect, and until it is killed; 0 = never */
    const char *surroundings; /* for those who follow (surroundings.h); NULL: not known */
    const char *listen;       /* tcp://ADDRESS:PORT for clients on other hosts; NULL = none come in */
    bool follows; /* one that did not end as it was told: processes of it may live that nobody has found */
    gp_survivors *survivors; /* workers of an earlier scheduler; taken over by the shell */
    /* Told "ready\n", or "adopted\n" when the workers of an earlier scheduler are there, once clients are served; then
     * closed.  -1 = none. */
    int ready_fd;
} gp_shell_options;

/* gp_shell_run -- open the sockets, start the workers, serve until told to end (shutdown, SIGTERM, SIGINT, idle) and
 * all workers are gone; or until a later scheduler has taken the pool over, whose the workers are then.  SIGTERM, SIGINT and SIGHUP must be blocked in the calling thread.
 * Fails only before "ready" was said; the workers are gone then too. */
gp_status gp_shell_run(const gp_shell_options *options, gp_error *err);

#endif
