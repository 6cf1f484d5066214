/* Load a network from the argument of --network or --model: a zoo name, FILE.json, or FILE.onnx
 * with weights. */
#ifndef GP_NETWORK_H
#define GP_NETWORK_H

#include "common/base/error.h"
#include "common/model/graph/graph.h"

/* A network with optional weights and class names. */
typedef struct gp_network {
    gp_netspec *spec;
    float *weights;      /* parameter blob; NULL: not trained yet, initialize */
    size_t mapped_bytes; /* weights is a read-only mapping with this size; 0: from gp_malloc() */
    char **class_names;  /* [class_count]; NULL: unknown */
    uint32_t class_count;
} gp_network;

/* Load a network.
 *   name     zoo name or file
 *   input    sample shape, for a zoo name; ignored for files
 *   classes  classes in the data, for a zoo name; ignored for files
 * GP_ENOENT: `name` is neither a file nor a zoo name; the message suggests the nearest name. */
gp_status gp_network_load(gp_network *out, const char *name, const gp_shape *input, uint32_t classes,
                          gp_error *err);

/* Read a network from a JSON or ONNX file's content. ONNX models with external data are
 * rejected. */
gp_status gp_network_read(gp_network *out, const void *data, size_t bytes, gp_error *err);

/* Free or unmap everything in the network. */
void gp_network_deinit(gp_network *network);

/* Replace the weights. The network takes ownership.
 *   weights       new weights; NULL: none
 *   mapped_bytes  size of the mapping; 0: memory from gp_malloc() */
void gp_network_set_weights(gp_network *network, float *weights, size_t mapped_bytes);

/* Return whether a name denotes a file: it contains '/' or ends with .onnx or .json. */
bool gp_network_is_file(const char *name);

/* Replace the class names by the strings in a JSON array. */
gp_status gp_network_set_classes(gp_network *network, const char *json, size_t bytes, gp_error *err);

#endif
