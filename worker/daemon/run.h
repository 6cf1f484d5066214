/* run.h -- the compute thread, which owns the backend, the trainer and the predictor, and uses
 * no socket.
 *
 * run.c describes the states and their transitions. */
#ifndef GP_RUN_H
#define GP_RUN_H

#include "common/base/error.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"
#include "worker/process/mailbox.h"
#include "worker/process/rendezvous.h"
#include "worker/train/trainer.h"

typedef struct gp_run gp_run;
struct gp_link_server;

/* Parameters of gp_run_start(). The pointers are borrowed until the thread exits. */
typedef struct gp_run_options {
    gp_mailbox *mailbox;
    gp_train_control *train;
    const gp_worker_device *device;
    const gp_backend_ops *backend_ops; /* NULL: every request fails with device->excluded */
} gp_run_options;

/* Start the compute thread. It inherits the caller's CPU affinity and waits for commands. */
gp_status gp_run_start(gp_run **out, const gp_run_options *options, gp_error *err);

/* Set the group for the work that starts next. rendezvous is borrowed; NULL: none. Called by
 * control. */
void gp_run_assign(gp_run *run, gp_rendezvous *rendezvous);

/* Return whether compute may still use this group. Called by control. */
bool gp_run_holds(const gp_run *run, const gp_rendezvous *rendezvous);

/* Return whether compute has had a GPU backend open without work for GRADPOOL_GPU_IDLE seconds. */
bool gp_run_unused(const gp_run *run);

/* Set the link server for the next GP_COMMAND_TASKS. server is borrowed; NULL: none. Called by
 * control while compute serves no link. */
void gp_run_offer(gp_run *run, struct gp_link_server *server);

/* Post QUIT and wait up to timeout_ms for the thread to exit; then free *run. Accepts NULL.
 *
 * GP_ETIMEDOUT: compute is stuck. *run is not freed and must not be used any more; the process
 * has to call _exit(). */
gp_status gp_run_stop(gp_run *run, int timeout_ms, gp_error *err);

#endif
