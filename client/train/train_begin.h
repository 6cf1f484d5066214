/* train_begin.h: the train_begin message of a training with the payloads for every rank. */
#ifndef GP_TRAIN_BEGIN_H
#define GP_TRAIN_BEGIN_H

#include "client/pool/pool.h"
#include "common/base/memory/buffer.h"
#include "common/model/network.h"
#include "common/model/train_options.h"

typedef struct gp_begin_message {
    gp_train_begin fields;
    gp_buffer network;      /* network description (netspec) as JSON; written by the caller */
    gp_buffer options;      /* training options as JSON; empty until the worker count is known */
    gp_buffer classes;      /* class names as JSON; empty if the data has them in network order */
    int weights_fd;         /* initial weights, sealed; owned; -1: none */
    uint64_t weights_bytes; /* size of the initial weights; 0: none */
} gp_begin_message;

void gp_begin_message_init(gp_begin_message *message);
void gp_begin_message_deinit(gp_begin_message *message);

/* Replace the options of the message. */
gp_status gp_begin_message_set_options(gp_begin_message *message, const gp_train_options *options,
                                       gp_error *err);

/* Move the network's weights, if there are any, into a sealed memory file for all ranks and
 * groups. */
gp_status gp_begin_message_set_weights(gp_begin_message *message, gp_network *network, size_t bytes,
                                       gp_error *err);

/* Send train_begin to one rank.
 *   fields        message->fields, or a modified copy
 *   with_weights  also send the initial weights
 *   correlation   set to the id of the message; may be NULL
 * GP_EPEER, GP_EBUSY: the worker cannot be reached. */
gp_status gp_begin_message_send(const gp_begin_message *message, gp_pool *pool, uint32_t rank,
                                const gp_train_begin *fields, bool with_weights, uint64_t *correlation,
                                gp_error *err);

#endif
