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

/* ---- layers for the current node; its first output becomes theirs ---- */

/* Fill m->fusions. Constants from nodes without inputs must be known before. */
void gp_onnx_patterns_find(gp_onnx_mapping *m);

/* Add one layer. inputs, x: as returned by gp_onnx_node_image(). */
void gp_onnx_node_layer(gp_onnx_mapping *m, const char *kind, const char *settings, const gp_onnx_value *x);
void gp_onnx_node_layer_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                           gp_onnx_value *const *inputs, size_t count);

/* Add one elementwise layer. The output has the dimensions of x, of any rank. */
void gp_onnx_node_like(gp_onnx_mapping *m, const char *kind, const char *settings, const gp_onnx_value *x);

/* Make the output another name for a value, without a layer. */
void gp_onnx_node_alias(gp_onnx_mapping *m, const gp_onnx_value *of);

/* Give the numbers of x other dimensions: with a layer if a netspec supports the shape,
 * otherwise as a view. */
void gp_onnx_node_view(gp_onnx_mapping *m, const gp_onnx_value *x, uint32_t rank, const int64_t *dims);

/* Give the output the dimensions and the axis order of x. */
void gp_onnx_node_shaped(gp_onnx_mapping *m, const gp_onnx_value *x);

/* Append a layer after *x with a name that belongs to no node. *x is set to its output, which
 * is not one of the graph's values. */
void gp_onnx_append(gp_onnx_mapping *m, const char *name, const char *kind, const char *settings,
                    gp_onnx_value *x);

/* Append a layer with several inputs. *out is set to its output. */
void gp_onnx_append_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                       gp_onnx_value *const *inputs, size_t count, gp_onnx_value *out);

/* Append a layer that gives the sample the shape [dims[0], dims[1], dims[2]], or a vector if
 * rank is 1, unless x has this shape. */
void gp_onnx_append_shape(gp_onnx_mapping *m, gp_onnx_value *x, uint32_t rank, const int64_t *dims);

/* Append a transpose layer with this axis order. */
void gp_onnx_append_transpose(gp_onnx_mapping *m, gp_onnx_value *x, const int64_t order[3]);

/* Get the k-th input as data of any rank, in the order of its dimensions. A deferred Transpose
 * is applied. */
gp_onnx_value *gp_onnx_node_data(gp_onnx_mapping *m, size_t k);

/* Return x with its last axis as the layer's channels, with a transpose layer if necessary. x
 * has two or three dimensions. */
gp_onnx_value gp_onnx_value_last(gp_onnx_mapping *m, gp_onnx_value *x);

/* Return the number of channels, in either axis order. */
int64_t gp_onnx_channels(const gp_onnx_value *x);

/* Get the k-th input as data of at most three dimensions per sample: [F], [C, L] as C x L x 1,
 * or [C, H, W]. A flatten or reshape layer is inserted if its layer has another shape. */
gp_onnx_value *gp_onnx_node_image(gp_onnx_mapping *m, size_t k);
void gp_onnx_value_settle(gp_onnx_mapping *m, gp_onnx_value *value);

/* Return the shape of one sample in the netspec, for a layer output or the network input. */
gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value);

/* Append "key=1,2,3" to settings, after a ';' if necessary. */
void gp_onnx_put_list(char *settings, size_t bytes, const char *key, const int64_t *list, size_t count);

/* Append "key=" and a number that is parsed back exactly. */
void gp_onnx_put_number(char *settings, size_t bytes, const char *key, double number);

/* Convert an axis of [N, ...] to an axis of a sample with this rank. The sample axis is
 * rejected. Return 0 after a failure. */
int64_t gp_onnx_sample_axis(gp_onnx_mapping *m, int64_t axis, uint32_t rank);

/* ---- one function per operator with data inputs; the table is in onnx_map.c ---- */

typedef void gp_onnx_map_fn(gp_onnx_mapping *m);
gp_onnx_map_fn gp_onnx_map_conv, gp_onnx_map_conv_transpose, gp_onnx_map_pool, gp_onnx_map_reduce_mean,
    gp_onnx_map_gemm, gp_onnx_map_matmul, gp_onnx_map_function, gp_onnx_map_batchnorm, gp_onnx_map_groupnorm,
    gp_onnx_map_layernorm, gp_onnx_map_lrn, gp_onnx_map_clip, gp_onnx_map_leaky_relu,
    gp_onnx_map_hard_sigmoid, gp_onnx_map_gelu, gp_onnx_map_dropout, gp_onnx_map_softmax;
gp_onnx_map_fn gp_onnx_map_concat, gp_onnx_map_slice, gp_onnx_map_pad, gp_onnx_map_flatten,
    gp_onnx_map_reshape, gp_onnx_map_squeeze, gp_onnx_map_transpose, gp_onnx_map_resize, gp_onnx_map_gather;
gp_onnx_map_fn gp_onnx_map_arithmetic, gp_onnx_map_sum;

/* Map any operator except Gather that reads indices which depend on the sample. */
gp_onnx_map_fn gp_onnx_map_indices;

/* ---- one function per operator with only constant inputs: compute the output tensor ---- */

typedef void gp_onnx_fold_fn(gp_onnx_mapping *m, gp_onnx_tensor *out);
gp_onnx_fold_fn gp_onnx_fold_constant, gp_onnx_fold_constant_of_shape, gp_onnx_fold_shape,
    gp_onnx_fold_gather, gp_onnx_fold_unsqueeze, gp_onnx_fold_squeeze, gp_onnx_fold_concat,
    gp_onnx_fold_slice, gp_onnx_fold_cast, gp_onnx_fold_arithmetic, gp_onnx_fold_unary, gp_onnx_fold_identity,
    gp_onnx_fold_reshape, gp_onnx_fold_flatten, gp_onnx_fold_transpose, gp_onnx_fold_expand,
    gp_onnx_fold_range;

/* Set the current node's output to a tensor that `fold` computes. */
void gp_onnx_node_fold(gp_onnx_mapping *m, gp_onnx_fold_fn *fold);

/* Unsqueeze a tensor along the axes given by the node. */
void gp_onnx_fold_unsqueeze_of(gp_onnx_mapping *m, const gp_onnx_tensor *x, gp_onnx_tensor *out);

/* Clamp a slice bound for this step as ONNX specifies. A negative bound counts from the end. */
int64_t gp_onnx_slice_bound(int64_t bound, int64_t size, int64_t step_size, bool is_start);

/* Create a tensor with this type and shape. Return its memory in the store, to be filled in.
 * NULL: failed. */
void *gp_onnx_tensor_new(gp_onnx_mapping *m, gp_onnx_tensor *out, int32_t type, uint32_t rank,
                         const int64_t *dims);

/* Compute a (+, -, *, /) b elementwise, with NumPy broadcasting. op: one of these. Also used to
 * fold constants into parameters. */
void gp_onnx_tensor_combine(gp_onnx_mapping *m, gp_onnx_tensor *out, gp_onnx_arithmetic op,
                            const gp_onnx_tensor *a, const gp_onnx_tensor *b);

/* Multiply a tensor by a factor. The result is in the store, unless the factor is 1. */
void gp_onnx_tensor_scale(gp_onnx_mapping *m, gp_onnx_tensor *tensor, double factor);

#endif
