/* onnx_map.h -- conversion of an ONNX graph to a netspec.
 *
 *   onnx_map.c         walks the graph
 *   onnx_layers.c      operators that map to one layer
 *   onnx_shapes.c      operators that move numbers
 *   onnx_arithmetic.c  arithmetic with constants
 *   onnx_fold.c        nodes with only constant inputs
 *   onnx_pattern.c     groups of nodes that form one layer
 *   onnx_indices.c     nodes that compute indices */
#ifndef GP_ONNX_MAP_H
#define GP_ONNX_MAP_H

#include "common/model/onnx/onnx_node.h"

#define GP_ONNX_SAMPLE_MAX ((int64_t)1 << 28) /* maximum elements of one sample in any value */

/* Maximum inputs of a Concat, which is split into layers of up to GP_LAYER_INPUTS_MAX inputs;
 * DenseNet-201 has 49. */
#define GP_ONNX_CONCAT_MAX (GP_LAYER_INPUTS_MAX * GP_LAYER_INPUTS_MAX)

/* Convert the nodes to a netspec and one source per layer.
 *   sources  freed with gp_free(); the numbers belong to the graph or the store
 *   opset    must be in the supported range
 *   loss     see gp_onnx_options */
gp_status gp_onnx_map(gp_netspec **spec, gp_onnx_source **sources, gp_onnx_store *store,
                      const Onnx__GraphProto *graph, int64_t opset, const char *loss, gp_error *err);

/* ---- layers for a node; the node's first output becomes theirs ---- */

/* Fill m->fusions. Constants from nodes without inputs must be known before. */
gp_status gp_onnx_patterns_find(gp_onnx_mapping *m, gp_error *err);

/* Add one layer for a node. inputs: as returned by gp_onnx_node_image(). */
gp_status gp_onnx_node_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             const char *settings, gp_onnx_value *const *inputs, size_t input_count,
                             gp_error *err);

/* Add one elementwise layer for a node. The output has the dimensions of x, of any rank. */
gp_status gp_onnx_node_like(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                            const char *settings, gp_onnx_value *x, gp_error *err);

/* Make the node's output another name for a value, without a layer. */
void gp_onnx_node_alias(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *of);

/* Give the numbers of x other dimensions: with a layer if a netspec supports the shape,
 * otherwise as a view. */
gp_status gp_onnx_node_view(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x, uint32_t rank,
                            const int64_t *dims, gp_error *err);

/* Append a layer after *x with a name that belongs to no node. *x is set to its output, which
 * is not one of the graph's values. */
gp_status gp_onnx_append(gp_onnx_mapping *m, const char *name, const char *kind, const char *settings,
                         gp_onnx_value *x, gp_error *err);

/* Append a layer with several inputs. *out is set to its output. */
gp_status gp_onnx_append_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                            gp_onnx_value *const *inputs, size_t count, gp_onnx_value *out, gp_error *err);

/* Get the k-th input as data of any rank, in the order of its dimensions. A deferred Transpose
 * is applied. */
gp_status gp_onnx_node_data(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                            gp_error *err);

/* Set *out to x with its last axis as the layer's channels, with a transpose layer if necessary.
 * x has two or three dimensions. */
gp_status gp_onnx_value_last(gp_onnx_mapping *m, gp_onnx_value *x, gp_onnx_value *out, gp_error *err);

/* Give the node's output the dimensions and the axis order of x. */
void gp_onnx_node_shaped(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x);

/* Return the number of channels, in either axis order. */
int64_t gp_onnx_channels(const gp_onnx_value *x);

/* Get the k-th input as data of at most three dimensions per sample: [F], [C, L] as C x L x 1,
 * or [C, H, W]. A flatten or reshape layer is inserted if its layer has another shape. */
gp_status gp_onnx_node_image(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                             gp_error *err);
gp_status gp_onnx_value_settle(gp_onnx_mapping *m, gp_onnx_value *value, gp_error *err);

/* Return the shape of one sample in the netspec, for a layer output or the network input. */
gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value);

/* Append "key=1,2,3" to settings, after a ';' if necessary. */
void gp_onnx_put_list(char *settings, size_t bytes, const char *key, const int64_t *list, size_t count);

/* Append "key=" and a number that is parsed back exactly. */
void gp_onnx_put_number(char *settings, size_t bytes, const char *key, double number);

/* Convert an axis of [N, ...] to an axis of a sample with this rank. The sample axis is
 * rejected. */
gp_status gp_onnx_sample_axis(int64_t axis, uint32_t rank, int64_t *out, gp_error *err);

/* ---- one function per operator with data inputs; the table is in onnx_map.c ---- */

typedef gp_status gp_onnx_map_fn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
gp_onnx_map_fn gp_onnx_map_conv, gp_onnx_map_conv_transpose, gp_onnx_map_pool, gp_onnx_map_global_pool,
    gp_onnx_map_reduce_mean, gp_onnx_map_gemm, gp_onnx_map_matmul, gp_onnx_map_function,
    gp_onnx_map_batchnorm, gp_onnx_map_groupnorm, gp_onnx_map_layernorm, gp_onnx_map_lrn, gp_onnx_map_clip,
    gp_onnx_map_leaky_relu, gp_onnx_map_hard_sigmoid, gp_onnx_map_gelu, gp_onnx_map_erf, gp_onnx_map_pow,
    gp_onnx_map_sqrt, gp_onnx_map_dropout, gp_onnx_map_softmax;
gp_onnx_map_fn gp_onnx_map_concat, gp_onnx_map_slice, gp_onnx_map_pad, gp_onnx_map_flatten,
    gp_onnx_map_reshape, gp_onnx_map_squeeze, gp_onnx_map_transpose, gp_onnx_map_resize, gp_onnx_map_identity,
    gp_onnx_map_shape, gp_onnx_map_gather;
gp_onnx_map_fn gp_onnx_map_arithmetic, gp_onnx_map_sum;

/* Map any operator except Gather that reads indices which depend on the sample. */
gp_onnx_map_fn gp_onnx_map_indices;

/* ---- one function per operator with only constant inputs: compute the output tensor ---- */

typedef gp_status gp_onnx_fold_fn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                  gp_error *err);
gp_onnx_fold_fn gp_onnx_fold_constant, gp_onnx_fold_constant_of_shape, gp_onnx_fold_shape,
    gp_onnx_fold_gather, gp_onnx_fold_unsqueeze, gp_onnx_fold_squeeze, gp_onnx_fold_concat,
    gp_onnx_fold_slice, gp_onnx_fold_cast, gp_onnx_fold_arithmetic, gp_onnx_fold_unary, gp_onnx_fold_identity,
    gp_onnx_fold_reshape, gp_onnx_fold_flatten, gp_onnx_fold_transpose, gp_onnx_fold_expand,
    gp_onnx_fold_range;

/* Unsqueeze a tensor along the axes given by the node. */
gp_status gp_onnx_fold_unsqueeze_of(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_tensor *x,
                                    gp_onnx_tensor *out, gp_error *err);

/* Compute a (+, -, *, /) b elementwise, with NumPy broadcasting. op: one of these. Also used to
 * fold constants into parameters. */
gp_status gp_onnx_tensor_combine(gp_onnx_tensor *out, gp_onnx_store *store, gp_onnx_arithmetic op,
                                 const gp_onnx_tensor *a, const gp_onnx_tensor *b, gp_error *err);

/* Multiply a tensor by a factor. The result is in the store, unless the factor is 1. */
gp_status gp_onnx_tensor_scale(gp_onnx_tensor *tensor, gp_onnx_store *store, double factor, gp_error *err);

#endif
