/* channel_parts.h -- inside a channel: what opening it (channel.c) and messages through it (channel_messages.c) share. */
#ifndef GP_CHANNEL_PARTS_H
#define GP_CHANNEL_PARTS_H

#include "common/base/memory/buffer.h"
#include "proto/channel/channel.h"
#include "proto/channel/dial.h"
#include "proto/channel/gate.h"
#include "proto/local/listen.h"

struct gp_channel {
    void *socket;
    bool router;
    gp_gate *gate; /* of one that listens for other hosts */
    size_t payload_bytes_max;
    gp_listener listener; /* of routers; its descriptor belongs to ZeroMQ once bound */
    bool listening;
    gp_dial dial;             /* of a link to another host that is up: whether it broke */
    gp_buffer envelope, body; /* kept from send to send */
    gp_channel_stats stats;
};

#endif
