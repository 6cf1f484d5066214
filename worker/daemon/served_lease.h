/* served_lease.h -- the lease that a worker serves: the grant, and the client that may use the
 * worker. */
#ifndef GP_SERVED_LEASE_H
#define GP_SERVED_LEASE_H

#include "proto/channel/channel.h"
#include "proto/local/control_socket.h"
#include "proto/message/messages.h"

/* The served lease; id 0: none. */
typedef struct served_lease {
    uint64_t id;                /* 0: the worker is free */
    uint32_t generation;        /* grant generation */
    bool resetting;             /* compute and commands are being stopped; requests are refused meanwhile */
    int client_pidfd;           /* pidfd of the process that holds the lease (owned); -1: unknown */
    gp_peer client;             /* attached client; bytes 0: no client has attached */
    uint8_t client_session[16]; /* the attached client's session */
    bool client_left;           /* it has closed the link for tasks, and has not attached again */
    gp_grant grant;
} served_lease;

/* Start serving the lease and generation in the envelope. An attached client stays attached. */
void served_lease_begin(served_lease *lease, const gp_envelope *envelope, const gp_grant *grant);

/* Clear the lease, the token and the client. */
void served_lease_end(served_lease *lease);

/* Check that a message belongs to the served lease and generation, and that the attached client
 * sent it.
 *   worker  worker index for the error message
 * GP_ESTALE: the message belongs to another lease or generation, or the lease is being reset.
 * GP_EPERM: another client sent it. */
gp_status served_lease_check_client(const served_lease *lease, const gp_incoming *in, uint32_t worker,
                                    gp_error *err);
/* Attach a message's sender as the lease's client. GP_EPERM: the token is wrong. */
gp_status served_lease_attach(served_lease *lease, const gp_incoming *in, const uint8_t *token,
                              uint32_t worker, gp_error *err);

/* Return whether a request at the control socket shows the lease and the lease token. Requests with
 * an older generation pass, as a client may send them while the generation changes. */
bool served_lease_authorizes(const served_lease *lease, const gp_control_socket_request *request);

/* Return whether a worker is among the first `world` grant members. */
bool served_lease_includes(const served_lease *lease, uint32_t worker, uint32_t world);
/* Return whether the process that holds the lease has exited, or is unknown. */
bool served_lease_client_exited(const served_lease *lease);

/* Fill in the lease fields of worker_ready. The client is reported only if it has attached and has
 * not left: another client may not have received the grant yet, and would never claim the lease.
 * One that has left may have released the lease, and this worker may never receive the revoke of a
 * scheduler that has exited since. */
void served_lease_report(const served_lease *lease, gp_worker_ready *ready);

#endif
