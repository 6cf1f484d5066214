/* control_weights.c -- weights as sealed descriptors, through the door, between compute and the client of the lease.
 *
 *   client: GP_DOOR_WEIGHTS with a memfd ---> offer --train_begin, predict_begin---> compute
 *   compute: train_done with a sealed blob ---> the connection of the offer, then the message
 *
 * One offer is enough, because a worker has one run at a time. */
#include <unistd.h>

#include "common/base/text/log.h"
#include "proto/task/task_wire.h"
#include "worker/daemon/control_parts.h"

static void offer_close(control *c)
{
    if (c->weights_fd >= 0)
        close(c->weights_fd);
    c->weights_fd = -1;
}

bool control_weights_request(control *c, const gp_door_event *event)
{
    const gp_door_request *request = &event->request;

    if (request->what != GP_DOOR_WEIGHTS)
        return false;
    if (request->lease != c->lease || request->generation != c->generation || c->resetting ||
        !control_token_equal(request->token, c->grant.token)) {
        gp_log_event(GP_LOG_INFO, "descriptors-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)request->lease }),
                     "refused weights of another lease or generation");
        if (event->fd >= 0)
            close(event->fd);
        return true;
    }
    offer_close(c);
    c->weights_door = event->id;
    c->weights_fd = event->fd;
    return true;
}

void control_weights_gone(control *c, uint64_t door_id)
{
    if (c->weights_door == door_id)
        c->weights_door = 0;
}

int control_weights_take(control *c)
{
    int fd;

    control_doors(c); /* the client sent the descriptor before the message */
    fd = c->weights_fd;
    c->weights_fd = -1;
    return fd;
}

gp_status control_weights_send(control *c, int fd, gp_error *err)
{
    gp_door_request request = { .what = GP_DOOR_WEIGHTS, .lease = c->lease, .generation = c->generation };

    control_doors(c);
    if (c->weights_door == 0)
        return gp_fail(err, GP_ESTATE, "the client has no connection for weights at the door of worker %u",
                       c->options->index);
    return gp_door_send_fd(gp_door_peer_fd(c->door, c->weights_door), &request, fd, err);
}

void control_weights_drop(control *c)
{
    offer_close(c);
    c->weights_door = 0;
}
