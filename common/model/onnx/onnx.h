/* onnx.h -- a trained network to and from an ONNX file (docs/model-files.md).
 *
 * Written: opset 13, or the first that has what the network needs, IR version 8; input "input" [N, C, H, W] of stored values, output "scores" [N, classes].
 * The netspec stands in metadata_props "gradpool.network", the class names in "gradpool.classes", so that
 * reading gives back what was written, dropout included.
 * Read: our files, and files from elsewhere of opset 6 to 28 whose operators we have layer kinds for. */
#ifndef GP_ONNX_H
#define GP_ONNX_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/netspec.h"

/* gp_onnx_save -- write the model to a file. A model of more than bytes_max bytes keeps its weights in
 * PATH.data (ONNX external data), and the two files must stay together.
 *   bytes_max  0: 2 GiB, where protobuf ends; less for tests
 * The other parameters and the errors are those of gp_onnx_write(). GP_EIO: a file cannot be written. */
gp_status gp_onnx_save(const char *path, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                       const char *const *class_names, uint32_t class_count, size_t bytes_max, gp_error *err);

/* gp_onnx_write -- append the model to buffer.
 *   graph        made by gp_graph_new(spec)
 *   blob         graph->blob_count weights in the graph's layout
 *   class_names  class_count names in UTF-8, as many as the network has classes; or NULL, 0
 * On failure the buffer holds what it held before.
 * GP_ELIMIT: over 2 GiB, where protobuf ends.  GP_EUNSUPPORTED: a layer kind has no ONNX form here. */
gp_status gp_onnx_write(gp_buffer *buffer, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                        const char *const *class_names, uint32_t class_count, gp_error *err);

/* How to read; all may be NULL or 0. */
typedef struct gp_onnx_options {
    const char
        *folder; /* where the model's file is: weights in other files are looked for there; NULL: refused */
    size_t repeated_max; /* weights that may be filled with numbers the file has once; 0: 2^28 (1 GiB) */
    const char *
        loss; /* of outputs that are no Softmax; NULL: crossentropy of a vector, pixelclassification of an image
                          * of two channels at least, else mse.  Not for files of ours, which say it. */
} gp_onnx_options;

/* gp_onnx_read -- the network and its weights; data may be any bytes.
 *   spec         released with gp_netspec_free(); gp_graph_new() accepts it
 *   blob         the weights in the layout of gp_graph_new(spec), released with gp_free()
 *   class_names  each name and the array released with gp_free(); NULL, 0 when the file has none
 *   options      NULL: all defaults
 * GP_ECORRUPT: damaged, cut short or not ONNX.  GP_EUNSUPPORTED: an operator, attribute, opset or place of data
 * that is not read; the message names the node and what is read.  GP_EINVAL: the network makes no sense. */
gp_status gp_onnx_read(gp_netspec **spec, float **blob, char ***class_names, uint32_t *class_count,
                       const void *data, size_t bytes, const gp_onnx_options *options, gp_error *err);

#endif
