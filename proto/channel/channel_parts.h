/* Channel internals, shared by opening and closing (channel.c) and message transfer
 * (channel_messages.c). */
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
    gp_gate *gate; /* connection guard of a listener for other hosts; else NULL */
    size_t payload_bytes_max;
    gp_listener listener; /* local ROUTER only; ZeroMQ owns the descriptor after the bind */
    bool listening;
    gp_dial dial;             /* link to another host, once it is up: detects whether it broke */
    gp_buffer envelope, body; /* buffers reused by each send */
    gp_channel_stats stats;
};

#endif
