/* onnx.h -- save networks as ONNX files and read them (docs/model-files.md).
 *
 * Writing: opset 13, or the first opset that supports the network; IR version 8. Input "input"
 * [N, C, H, W] of stored values, output "scores" [N, classes]. The metadata contain the netspec
 * ("gradpool.network") and the class names ("gradpool.classes"), so that reading restores the
 * network exactly, including dropout.
 *
 * Reading: files written by gradpool, and other files with opset 6 to 28 whose operators map to
 * layer kinds. */
#ifndef GP_ONNX_H
#define GP_ONNX_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/netspec.h"

/* Write the model to a file. If it exceeds bytes_max, the weights go to PATH.data (ONNX external
 * data), and the two files must stay together.
 *   bytes_max  0: 2 GiB, the protobuf limit; smaller in tests
 * The other parameters and errors are those of gp_onnx_write(). GP_EIO: a file cannot be
 * written. */
gp_status gp_onnx_save(const char *path, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                       const char *const *class_names, uint32_t class_count, size_t bytes_max, gp_error *err);

/* Append the model to the buffer. On failure the buffer is unchanged.
 *   graph        result of gp_graph_new(spec)
 *   blob         graph->blob_count weights in the graph layout
 *   class_names  class_count UTF-8 names, as many as the network has classes; or NULL, 0
 * GP_ELIMIT: over 2 GiB, the protobuf limit. GP_EUNSUPPORTED: a layer kind has no ONNX form. */
gp_status gp_onnx_write(gp_buffer *buffer, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                        const char *const *class_names, uint32_t class_count, gp_error *err);

/* Read options; each may be NULL or 0. */
typedef struct gp_onnx_options {
    /* directory of the model, for external data files; NULL: refuse external data */
    const char *folder;
    /* maximum number of weights that are filled from a single stored number; 0: 2^28 (1 GiB) */
    size_t repeated_max;

    /* loss for outputs without Softmax; NULL: crossentropy for a vector, pixelclassification
     * for an image with at least two channels, otherwise mse. Ignored for files written by
     * gradpool, which name the loss */
    const char *loss;
} gp_onnx_options;

/* Parse class names, a JSON list of texts. Free them with gp_class_names_free(). GP_EINVAL: another
 * value. */
gp_status gp_class_names_parse(char ***names, uint32_t *count, const char *json, size_t bytes, gp_error *err);
void gp_class_names_free(char **names, uint32_t count);

/* Read a network and its weights. The data are not trusted.
 *   spec         freed with gp_netspec_free(); gp_graph_new() accepts it
 *   blob         weights in the layout of gp_graph_new(spec), freed with gp_free()
 *   class_names  freed with gp_class_names_free(); NULL, 0: the file has none
 *   options      NULL: defaults
 * GP_ECORRUPT: damaged, truncated or not ONNX. GP_EUNSUPPORTED: an operator, attribute, opset or
 * data location is not supported; the message names the node and the supported forms. GP_EINVAL:
 * the network is invalid. */
gp_status gp_onnx_read(gp_netspec **spec, float **blob, char ***class_names, uint32_t *class_count,
                       const void *data, size_t bytes, const gp_onnx_options *options, gp_error *err);

#endif
