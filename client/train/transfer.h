/* transfer.h: transfer learning: start a training from a trained network with a new classifier and
 * frozen layers. */
#ifndef GP_TRANSFER_H
#define GP_TRANSFER_H

#include <gradpool/gradpool.h>

#include "common/data/store/store.h"
#include "common/model/edit.h"
#include "common/model/network.h"

typedef struct gp_transfer {
    const char *classes;   /* "auto" or a number; NULL: keep the classifier */
    const char *source;    /* data source, for messages */
    uint32_t data_classes; /* classes in the data; 0: none */
    const char *const *data_names;

    /* learn-rate factors for weights and biases in a new classifier; 0: 1 */
    double head_factors[2];
    const char *freeze_up_to; /* last frozen layer; NULL: none */
    gp_init_rule rule;        /* initialization of new weights */
    uint64_t seed;
} gp_transfer;

/* Edit the network in place. With `classes`, replace the classifier, unless network and data have
 * the same class names in any order.
 *   edited  set to the change list, owned by the caller; spec, graph and weights move to the
 *           network and are NULL here
 * GP_EINVAL: no classes, one class, or another number than in the data; no classifier was found; no
 * such layer. */
gp_status gp_network_transfer(gp_network *network, const gp_transfer *how, gp_edited *edited, gp_error *err);

/* Return whether the network keeps its classifier, because no other classes are requested. */
bool gp_transfer_keeps_head(const gp_network *network, const gp_transfer *how);

/* Parse a class count, "auto" or "K".
 *   source        data source, for messages; NULL: no data, and K is not checked
 *   data_classes  classes in the data, for "auto" and to check K
 * GP_EINVAL: neither form; K differs from the data, or is below 2. */
gp_status gp_transfer_classes(uint32_t *classes, const char *text, const char *source, uint32_t data_classes,
                              gp_error *err);

/* Convert a change to the public structure. `output` receives the shape as text and must outlive
 * the result. */
gp_layer_change gp_transfer_change(const gp_edit_change *change, char output[64]);

/* Load FILE.onnx, or a network that `gradpool model get NAME` has put into the cache. GP_ENOENT:
 * neither exists; the error message says how to get it. GP_EINVAL: the network has no weights. */
gp_status gp_network_pretrained(gp_network *out, const char *name, gp_error *err);

/* Append the names of the network's `count` classes, by which workers number the labels in the
 * data, as JSON. A class without a name has its number. */
gp_status gp_network_classes_write(const gp_network *network, uint32_t count, gp_buffer *out, gp_error *err);

/* Check that the network accepts samples with this shape, and the losses accept these targets.
 * GP_EINVAL: they do not. */
gp_status gp_network_check_data(const gp_graph *graph, const gp_store_info *info, gp_error *err);

#endif
