/* transfer.h -- a trained network begins another training: another head, frozen layers. */
#ifndef GP_TRANSFER_H
#define GP_TRANSFER_H

#include <gradpool/gradpool.h>

#include "common/data/store/store.h"
#include "common/model/edit.h"
#include "common/model/network.h"

typedef struct gp_transfer {
    const char *classes;   /* "auto", a number, or NULL: the head stays */
    const char *source;    /* the data, for people */
    uint32_t data_classes; /* 0: it has none */
    const char *const *data_names;
    double head_factors[2];   /* learn-rate factors of a new head's weights and biases; 0 = 1 */
    const char *freeze_up_to; /* NULL = nothing is frozen */
    gp_init_rule rule;        /* of new weights */
    uint64_t seed;
} gp_transfer;

/* gp_network_transfer -- edit the network in place.
 * With classes, a new head is put on unless the network's class names are those of the data, in any order.
 *   edited  spec, graph and weights are the network's afterwards and NULL here; the changes are the caller's
 * GP_EINVAL: the classes are none, one, or not as many as the data's; no head is found; no such layer. */
gp_status gp_network_transfer(gp_network *network, const gp_transfer *how, gp_edited *edited, gp_error *err);

/* Return whether the network keeps its head: no other classes are wanted. */
bool gp_transfer_keeps_head(const gp_network *network, const gp_transfer *how);

/* gp_transfer_classes -- what "auto" or "K" means.
 *   source, data_classes  the data, for people and for auto; NULL, 0 = there is none, and K is believed
 * GP_EINVAL: neither; K is not the data's number, or below 2. */
gp_status gp_transfer_classes(uint32_t *classes, const char *text, const char *source, uint32_t data_classes,
                              gp_error *err);

/* A change as users see it; output: its shape as text. */
gp_layer_change gp_transfer_change(const gp_edit_change *change, char output[64]);

/* gp_network_pretrained -- load FILE.onnx, or what `gradpool model get NAME` has put into the cache.
 * GP_ENOENT: neither; the sentence says how to get it.  GP_EINVAL: a network without weights. */
gp_status gp_network_pretrained(gp_network *out, const char *name, gp_error *err);

/* GP_EINVAL unless the network takes samples of that shape and its losses compare with such targets. */
gp_status gp_network_check_data(const gp_graph *graph, const gp_store_info *info, gp_error *err);

#endif
