/* control.h -- the control thread, which owns every socket of the worker and serves them in one
 * poll loop. */
#ifndef GP_CONTROL_H
#define GP_CONTROL_H

#include "common/base/error.h"
#include "proto/local/paths.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"

/* Worker process exit codes. */
enum {
    GP_WORKER_EXIT_ASKED = 0,  /* quit message, SIGTERM or SIGINT */
    GP_WORKER_EXIT_FAILED = 1, /* startup or joining the pool failed; the log has the cause */
    GP_WORKER_EXIT_ORPHAN = 3, /* no scheduler was found within the time limit */
};

/* Parameters of gp_control_run(). The pointers are borrowed until it returns. */
typedef struct gp_control_options {
    const gp_paths *paths;
    uint32_t index, incarnation;
    uint32_t failures; /* earlier processes of this index that failed */
    gp_worker_device *device;

    /* backend for the device kind; NULL: the worker is excluded, see device->excluded */
    const gp_backend_ops *backend_ops;
    bool cold;          /* open the backend for the first work, not when the worker joins the pool */
    int64_t started_ns; /* main() start, for the startup time in the log */
} gp_control_options;

/* Join the pool and serve it until shutdown. Return the exit code.
 *
 * The calling thread must block SIGTERM, SIGINT and SIGHUP. If the compute thread does not exit
 * in time, this function calls _exit() and does not return. */
int gp_control_run(const gp_control_options *options);

#endif
