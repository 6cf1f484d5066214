/* network.h -- what "--network" and "--model" mean: a name of the zoo, FILE.json, or FILE.onnx with weights. */
#ifndef GP_NETWORK_H
#define GP_NETWORK_H

#include "common/base/error.h"
#include "common/model/graph/graph.h"

typedef struct gp_network {
    gp_netspec *spec;
    float *weights;      /* the blob, or NULL: to be initialised */
    size_t mapped_bytes; /* weights is a read-only mapping of that many bytes; 0: from gp_malloc() */
    char **class_names;  /* or NULL */
    uint32_t class_count;
} gp_network;

/* gp_network_load -- read the network that `name` means.
 *   input, classes  of the data, for a name of the zoo; ignored for files
 * GP_ENOENT: neither a file nor a name, with the nearest name. */
gp_status gp_network_load(gp_network *out, const char *name, const gp_shape *input, uint32_t classes,
                          gp_error *err);
/* gp_network_read -- the same from the bytes of a JSON or ONNX file. */
gp_status gp_network_read(gp_network *out, const void *data, size_t bytes, gp_error *err);
void gp_network_deinit(gp_network *network);
/* gp_network_set_weights -- replace the weights. The network owns the new ones: a mapping of
 * mapped_bytes bytes, or memory from gp_malloc() if that is 0. NULL: none. */
void gp_network_set_weights(gp_network *network, float *weights, size_t mapped_bytes);

/* Whether the name is a file and not one of the zoo. */
bool gp_network_is_file(const char *name);

/* Replace the class names by those of a JSON array. */
gp_status gp_network_set_classes(gp_network *network, const char *json, size_t bytes, gp_error *err);

#endif
