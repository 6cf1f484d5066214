/* tasks.h -- the compute thread while it serves a client's link: calls in, answers out
 * (proto/task/task_wire.h). */
#ifndef GP_TASKS_H
#define GP_TASKS_H

#include "worker/task/task_state.h"

/* ---- control ---- */

/* Create the link server for a link whose segment and wakeup eventfd arrived over the control
 * socket.
 *   segment, wakeup_fd  taken over on GP_OK only
 *   control_socket           connection on which they arrived (borrowed); blobs use a duplicate
 *   mailbox        wakes control (borrowed)
 *   spin           the worker has exclusive cores
 * GP_EPROTO, GP_EVERSION: not a valid link. */
gp_status gp_link_server_new(gp_link_server **out, int segment, int wakeup_fd, int control_socket,
                             gp_mailbox *mailbox, bool spin, gp_error *err);
void gp_link_server_free(gp_link_server *server); /* accepts NULL; compute must have left the link */

/* Make compute leave the link: a running task is canceled, waits end. May be called on any
 * thread. */
void gp_link_server_stop(gp_link_server *server);

/* Wake the client for answers that compute committed some time ago without waking it. Call it
 * periodically. */
void gp_link_server_nudge(gp_link_server *server);

/* ---- compute ---- */

/* Parameters of gp_tasks_serve(), borrowed until it returns. */
typedef struct gp_tasks_setup {
    gp_link_server *server;
    gp_mailbox *mailbox; /* a posted command ends the service */
    gp_tasks_host host;
    gp_train_control *train;
    const gp_worker_device *device;
    gp_objects *objects;
} gp_tasks_setup;

/* Serve the link until the client closes it, the link server is stopped, a command arrives, or the
 * link is found corrupt. All client objects are freed before the return. */
void gp_tasks_serve(const gp_tasks_setup *setup);

#endif
