/* control_parts.h -- the state of the control thread, for the control*.c files only.
 *
 * Each part (scheduler_link, served_lease, ...) has a separate header and separate functions; the
 * control_*.c files connect the parts. */
#ifndef GP_CONTROL_PARTS_H
#define GP_CONTROL_PARTS_H

#include "worker/daemon/client_fds.h"
#include "worker/daemon/control.h"
#include "worker/daemon/counters.h"
#include "worker/daemon/current_work.h"
#include "worker/daemon/run.h"
#include "worker/daemon/scheduler_link.h"
#include "worker/daemon/served_lease.h"
#include "worker/exec/runner_link.h"
#include "worker/process/rendezvous.h"
#include "worker/task/task_state.h"
#include "worker/train/trainer.h"

enum {
    /* time limit for compute to stop after quit or a signal; the worker exits within 1 s */
    CONTROL_ASKED_MS = 700,
};

/* State of the control thread. */
typedef struct control {
    const gp_control_options *options;
    gp_slot slot; /* this worker, as the scheduler and other workers see it */

    /* Sockets and threads, for the process lifetime. */
    scheduler_link link;
    gp_channel *clients;
    gp_control_socket *control_socket; /* control socket: clients, other workers, new schedulers */
    gp_mailbox *mailbox;
    gp_train_control train;
    gp_run *run; /* the compute thread */
    counters counters;

    /* The served lease, and everything that ends with it. */
    served_lease lease;
    gp_rendezvous *group; /* rendezvous group for the lease generation; NULL: no lease */
    /* group of an earlier generation, still used by compute; NULL: none */
    gp_rendezvous *older_group;
    current_work work;
    client_fds fds;

    /* link server of the tasks; compute uses it until it reports that it has left; NULL: none */
    gp_link_server *server;
    uint64_t server_socket; /* connection that belongs to the link server; 0: none */
    gp_runner_link *runner; /* link to the runner process for the client's commands; NULL: none */
    /* messages that the client did not receive: it exited or does not read the link */
    uint64_t undelivered;
    bool blocked; /* a message to the client did not fit into the queue: retry soon */

    /* Envelopes of scheduler requests that await an action. lease 0: none, because scheduler
     * messages carry a nonzero lease. */
    gp_envelope next;   /* grant to take once compute is reset; the body is next_grant */
    gp_envelope ack;    /* grant_ack to send */
    gp_envelope revoke; /* revoked to send, once compute is reset */
    gp_grant next_grant;

    bool recycle;   /* the process holds code or values of a lease and must not serve another lease */
    int exit_code;  /* valid once end_ms is set */
    int64_t end_ms; /* when to stop waiting for compute and exit; 0: the process is not ending */
} control;

/* ---- control.c ---- */

/* Shut the worker down with this exit code, at most within_ms from now. An earlier deadline
 * stays in force. */
void control_end(control *c, int exit_code, int within_ms, const char *why);
void control_serve_socket(control *c); /* handle all control socket events */

/* ---- control_lease.c: messages from the scheduler, and lease changes ---- */

/* Handle a message from the scheduler. */
void control_scheduler(control *c, gp_incoming *in);
/* Stop compute and commands; the lease ends when they have stopped, which may be at once. */
void control_reset(control *c);
void control_reset_done(control *c); /* Continue a reset after compute has finished its part. */
/* End the lease if compute is reset and no command runs; then take the waiting grant, if any. */
void control_reset_go(control *c);
void control_answer(control *c); /* Send the replies to the scheduler that are due. */

/* Send worker_ready with this worker and the lease to the scheduler, now or once compute is
 * reset. */
void control_report(control *c);
/* Return whether the waiting grant is the served lease's next generation. */
bool control_lease_continues(const control *c);

/* ---- control_orphan.c: operation without a scheduler ---- */

/* The connection has failed, or another scheduler takes over: drop the link. */
void control_orphaned(control *c);

/* Look for a scheduler, end the lease if the client has exited, and shut down after the time
 * limit. */
void control_orphan_serve(control *c);
int64_t control_orphan_due(const control *c); /* time of the next control_orphan_serve() call */
void control_called(control *c, const gp_control_socket_event *greeting); /* a scheduler has connected */

/* ---- control_client.c: messages from clients, and messages from compute to clients ---- */

/* Handle a message from a client; refuse it if it is not valid now. */
void control_client(control *c, gp_incoming *in);

/* Send compute's pending messages to the client, until the client queue is full. */
void control_outbound(control *c);

/* ---- control_tasks.c: tasks and commands ---- */

/* Create the link server for a client and let compute serve the link. GP_EVERSION: the client
 * has another link or task version. GP_ESTATE: the descriptors have not arrived. */
gp_status control_tasks_open(control *c, const gp_task_open *open, gp_error *err);
void control_tasks_left(control *c); /* Free the link server after compute has left it. */

/* Abort the running block's collective operations. call: abort only if the block belongs to this
 * call; 0: any call. */
void control_tasks_abort(control *c, uint64_t call);

/* Return whether a call is still running although the client has exited and the lease is
 * revoked. */
bool control_tasks_abandoned(const control *c);

/* Return a descriptor to poll for that condition. -1: the condition cannot occur now. */
int control_tasks_abandoned_fd(const control *c);

/* Start the runner process. GP_EBUSY: commands of an earlier run are still ending. GP_ESTATE:
 * this worker is busy. */
gp_status control_run_open(control *c, gp_error *err);
/* Send the client's end of the runner's socket to a control socket connection. */
void control_run_fetch(control *c, uint64_t id, const gp_control_socket_request *request);
void control_run_watch(control *c); /* Detect that the runner process has exited. */

#endif
