/* client_fds.h -- descriptors that the client of the lease has sent through the control socket, for its next request.
 *
 *   GP_DOOR_SEGMENT, GP_DOOR_BELL ---> links ----task_open------------------> compute
 *   GP_DOOR_WEIGHTS, a memfd --------> weights --train_begin, predict_begin-> compute
 *
 * Weights of a reply go to the connection that sent GP_DOOR_WEIGHTS. One such connection is enough, because a worker has
 * one run at a time. */
#ifndef GP_CLIENT_FDS_H
#define GP_CLIENT_FDS_H

#include "proto/local/door.h"

enum { CLIENT_LINKS_MAX = 4 };

typedef struct client_link {
    uint64_t door_id;  /* connection that sent the descriptors; 0: this entry is free */
    int segment, bell; /* owned; -1: not received yet */
} client_link;

typedef struct client_fds {
    client_link links[CLIENT_LINKS_MAX];
    uint64_t weights_door; /* the client's connection for weights; 0: none */
    int weights;           /* for the next train_begin or predict_begin (owned); -1: none */
} client_fds;

void client_fds_init(client_fds *fds);
/* Keep the descriptor of a request. Return false if there is no room; the caller closes the descriptor then. */
bool client_fds_keep(client_fds *fds, const gp_door_event *event);
/* Close the link of a connection that has ended. Its weights stay, for the request that follows them. */
void client_fds_hangup(client_fds *fds, uint64_t door_id);
/* Close all descriptors and forget the connections: the lease ends. */
void client_fds_drop(client_fds *fds);

/* Return a link with both descriptors, or NULL; it is closed by client_link_close(). */
client_link *client_fds_link(client_fds *fds);
void client_link_close(client_link *link);

#endif
