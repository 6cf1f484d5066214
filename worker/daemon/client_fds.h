/* client_fds.h -- descriptors that the client sends over the control socket, kept until the
 * request that uses them arrives.
 *
 *   ..._SEGMENT, ..._WAKEUP ---> links ----task_open------------------> compute
 *   ..._WEIGHTS, a memfd ------> weights --train_begin, predict_begin-> compute
 *
 * The worker sends the weights of a reply over the connection that sent
 * GP_CONTROL_SOCKET_WEIGHTS. One such connection is enough, because a
 * worker has one run at a time. */
#ifndef GP_CLIENT_FDS_H
#define GP_CLIENT_FDS_H

#include "proto/local/control_socket.h"

enum { CLIENT_LINKS_MAX = 4 };

/* Descriptors for one link, received over one connection. */
typedef struct client_link {
    uint64_t connection_id; /* connection that sent the descriptors; 0: this entry is free */
    int segment, wakeup_fd; /* owned; -1: not received yet */
} client_link;

/* Descriptors received from the lease's client. */
typedef struct client_fds {
    client_link links[CLIENT_LINKS_MAX];
    uint64_t weights_socket; /* the client's connection for weights; 0: none */
    int weights;             /* for the next train_begin or predict_begin (owned); -1: none */
} client_fds;

void client_fds_init(client_fds *fds);

/* Store the descriptor that a request carries. false: no free entry; the caller closes the
 * descriptor. */
bool client_fds_keep(client_fds *fds, const gp_control_socket_event *event);

/* Close the link of a connection that has ended. Weights received over the connection are kept
 * for the request that follows them. */
void client_fds_hangup(client_fds *fds, uint64_t connection_id);

/* Close all descriptors and forget all connections, when a lease ends. */
void client_fds_drop(client_fds *fds);

/* Return a link that has both descriptors. NULL: none. The caller closes the link with
 * client_link_close(). */
client_link *client_fds_link(client_fds *fds);
void client_link_close(client_link *link);

#endif
