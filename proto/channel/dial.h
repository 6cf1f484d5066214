/* dial.h -- inside proto/: how a link to another host comes up, or why it does not, and whether it broke since.
 *
 * zmq_connect() says nothing of either: it dials again and again.  Its monitor tells of every attempt, so that a wrong key, a
 * port at which nobody listens and one that takes connections and says nothing are told apart, each as soon as it is known.
 *
 * It is of the thread of the socket that dials. */
#ifndef GP_DIAL_H
#define GP_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/channel/zmq_monitor.h"

enum {
    GP_DIAL_HANDSHAKE_MS = 2000, /* of sockets that dial and of those that listen for other hosts */
    GP_DIAL_RETRY_MS = 100,
};

/* What the monitor has told; zero-initialise.  A handshake that ends is `closed` if the other side, or the network,
 * closed the connection, `failed` if the answer was wrong, and `unanswered` if this side ended it, when GP_DIAL_HANDSHAKE_MS were over.  Where we were
 * held up and hear at once that it began and ended, it counts as unanswered: who ends one does so soon. */
typedef struct gp_dial {
    gp_zmq_monitor monitor;
    bool connected, turned_away;
    int64_t heard_ms;     /* when the monitor was last listened to: what it tells now is not older */
    int64_t connected_ms; /* not before that */
    int64_t ended_ms;     /* the link ended then, and ZeroMQ has not said that it tries again; 0 = neither */
    bool broken;          /* it ended, since that was asked last */
    unsigned closed, failed, unanswered, refused;
} gp_dial;

/* gp_dial_begin -- before zmq_connect(); events: ZMQ_EVENT_*.  GP_ELIMIT. */
gp_status gp_dial_begin(gp_dial *dial, void *socket, int events, gp_error *err);

/* Wait until the link is up, at most timeout_ms. A dial without gp_dial_begin() (a link on this
 * host) fails by its timeout only. GP_EPEER: no reply. GP_EPERM: the peer refuses this process's
 * key, or its own key is not the expected one; *unproved: the handshake ended without proof of
 * either. GP_EIO. */
gp_status gp_dial_wait(gp_dial *dial, void *socket, const char *endpoint, int timeout_ms, bool *unproved,
                       gp_error *err);

/* gp_dial_broke -- whether the link ended since that was asked last. */
bool gp_dial_broke(gp_dial *dial);

void gp_dial_end(gp_dial *dial); /* before the socket is closed; also one that was not begun */

#endif
