/* tasks.h -- the compute thread while it serves a client's link: calls in, answers out (proto/task/task_wire.h). */
#ifndef GP_TASKS_H
#define GP_TASKS_H

#include "worker/task/task_state.h"

/* ---- control ---- */

/* gp_seat_new -- for a link whose segment and bell came through the door.
 *   segment, bell  handed over on GP_OK only
 *   door           the connection that they came through (borrowed): blobs go through a copy of it
 *   mailbox        wakes control (borrowed)
 *   spin           the worker has cores of its own
 * GP_EPROTO, GP_EVERSION: no link of ours. */
gp_status gp_seat_new(gp_seat **out, int segment, int bell, int door, gp_mailbox *mailbox, bool spin,
                      gp_error *err);
void gp_seat_free(gp_seat *seat); /* accepts NULL; compute has left it */

/* Make compute leave the link: a task that runs is asked to end, waits end.  Any thread. */
void gp_seat_stop(gp_seat *seat);

/* Wake the client for answers that compute has committed but not announced for a while; now and then. */
void gp_seat_nudge(gp_seat *seat);

/* ---- compute ---- */

/* All borrowed until gp_tasks_serve() returns. */
typedef struct gp_tasks_setup {
    gp_seat *seat;
    gp_mailbox *mailbox; /* a command that is posted ends the service */
    gp_tasks_host host;
    gp_train_control *train;
    const gp_worker_device *device;
    gp_objects *objects;
} gp_tasks_setup;

/* gp_tasks_serve -- until the client closes the link, the seat is stopped, a command comes or the link turns out to be
 * corrupt.  All that the client put here is freed by then. */
void gp_tasks_serve(const gp_tasks_setup *setup);

#endif
