/* control.h -- the control thread: every socket of the daemon, one poll loop, no computing. */
#ifndef GP_CONTROL_H
#define GP_CONTROL_H

#include "common/base/error.h"
#include "proto/local/places.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"

/* How the process ends. */
enum {
    GP_WORKER_EXIT_ASKED = 0,  /* quit, SIGTERM, SIGINT */
    GP_WORKER_EXIT_FAILED = 1, /* could not start or join; the log says why */
    GP_WORKER_EXIT_ORPHAN = 3, /* there was no scheduler for too long */
};

/* All borrowed during gp_control_run(). */
typedef struct gp_control_options {
    const gp_places *places;
    uint32_t index, incarnation;
    gp_worker_device *device;
    const gp_backend_ops *backend_ops; /* of the device's kind; NULL = none: device->excluded says why */
    int64_t started_ns;                /* when main() began: for the log */
} gp_control_options;

/* gp_control_run -- join the pool and serve it until told to end; returns the exit code.  SIGTERM, SIGINT and SIGHUP
 * must be blocked in the calling thread.  Where compute does not end in time, it does not return but calls
 * _exit(). */
int gp_control_run(const gp_control_options *options);

#endif
