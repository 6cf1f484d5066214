/* run.h -- the compute thread: it owns the backend, the trainer and the predictor, and touches no socket.
 *
 * States and what leads from one to the other stand at the top of run.c. */
#ifndef GP_RUN_H
#define GP_RUN_H

#include "common/base/error.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"
#include "worker/process/mailbox.h"
#include "worker/process/rendezvous.h"
#include "worker/train/trainer.h"

typedef struct gp_run gp_run;
struct gp_seat;

/* All borrowed for the thread's life. */
typedef struct gp_run_options {
    gp_mailbox *mailbox;
    gp_train_control *train;
    const gp_worker_device *device;
    const gp_backend_ops *backend_ops; /* NULL: every request is refused with device->excluded */
} gp_run_options;

/* gp_run_start -- start the thread; it waits for commands.  It is on the cores of the thread that calls this. */
gp_status gp_run_start(gp_run **out, const gp_run_options *options, gp_error *err);

/* gp_run_assign -- the group that what begins next belongs to (borrowed; NULL = none).  Control. */
void gp_run_assign(gp_run *run, gp_rendezvous *rendezvous);
/* gp_run_holds -- whether compute may still use that group.  Control. */
bool gp_run_holds(const gp_run *run, const gp_rendezvous *rendezvous);

/* gp_run_offer -- the link that GP_COMMAND_TASKS is about (borrowed; NULL = none).  Control; compute is in none. */
void gp_run_offer(gp_run *run, struct gp_seat *seat);

/* gp_run_stop -- post QUIT and wait for the end for at most timeout_ms.  GP_ETIMEDOUT: compute is stuck; *run must not
 * be used any more and is not freed: the process has to _exit().  Accepts NULL. */
gp_status gp_run_stop(gp_run *run, int timeout_ms, gp_error *err);

#endif
