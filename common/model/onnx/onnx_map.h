/* onnx_map.h -- from the nodes of an ONNX graph to a netspec.  onnx_map.c walks the graph; the operators are in
 * onnx_layers.c (one layer each), onnx_shapes.c (those that move numbers), onnx_arithmetic.c (with constants) and
 * onnx_fold.c (of constants alone); onnx_pattern.c finds nodes that are one layer together, and
 * onnx_indices.c reads those that compute indices. */
#ifndef GP_ONNX_MAP_H
#define GP_ONNX_MAP_H

#include "common/model/onnx/onnx_node.h"

#define GP_ONNX_SAMPLE_MAX ((int64_t)1 << 28) /* elements of one sample anywhere in the network */

/* Inputs of a Concat, which becomes layers of up to GP_LAYER_INPUTS_MAX; DenseNet-201 has 49. */
#define GP_ONNX_CONCAT_MAX (GP_LAYER_INPUTS_MAX * GP_LAYER_INPUTS_MAX)

/* The netspec that the nodes say, and a source per layer (gp_free()), whose numbers are the graph's or the store's.
 * opset is in the range we read.  loss: as of gp_onnx_options. */
gp_status gp_onnx_map(gp_netspec **spec, gp_onnx_source **sources, gp_onnx_store *store,
                      const Onnx__GraphProto *graph, int64_t opset, const char *loss, gp_error *err);

/* ---- layers of a node; its first output becomes theirs ---- */

/* Fill m->fusions. The constants that nodes without inputs make must be known by then. */
gp_status gp_onnx_patterns_find(gp_onnx_mapping *m, gp_error *err);

/* One layer, of inputs as gp_onnx_node_image() gives them. */
gp_status gp_onnx_node_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             const char *settings, gp_onnx_value *const *inputs, size_t input_count,
                             gp_error *err);
/* The same for a kind that works on each number by itself: what it makes has the dimensions of x, whatever they are. */
gp_status gp_onnx_node_like(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                            const char *settings, gp_onnx_value *x, gp_error *err);
/* No layer: the output is another name of the value. */
void gp_onnx_node_alias(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *of);
/* The numbers of x in other dimensions: a layer where a netspec can say them, else a view until it can. */
gp_status gp_onnx_node_view(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x, uint32_t rank,
                            const int64_t *dims, gp_error *err);

/* A further layer behind *x, of no node's name; *x is what it makes, and not among the graph's values. */
gp_status gp_onnx_append(gp_onnx_mapping *m, const char *name, const char *kind, const char *settings,
                         gp_onnx_value *x, gp_error *err);

/* The same of several inputs; *out is what it makes. */
gp_status gp_onnx_append_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                            gp_onnx_value *const *inputs, size_t count, gp_onnx_value *out, gp_error *err);

/* The k-th input as data of any rank, in the order of its dimensions: a Transpose that was put off is made now. */
gp_status gp_onnx_node_data(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                            gp_error *err);
/* Set *out to x with its last axis as the channels of its layer, which a transpose layer moves there where it must.
 * x has two or three dimensions. */
gp_status gp_onnx_value_last(gp_onnx_mapping *m, gp_onnx_value *x, gp_onnx_value *out, gp_error *err);
/* Give the node's output the dimensions of x, and its order. */
void gp_onnx_node_shaped(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x);
/* The channels of data in either order. */
int64_t gp_onnx_channels(const gp_onnx_value *x);

/* The k-th input as data of at most three dimensions a sample: [F], [C, L] as C x L x 1, or [C, H, W].  A flatten or
 * reshape layer is put before where the layer that makes it has another shape. */
gp_status gp_onnx_node_image(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                             gp_error *err);
gp_status gp_onnx_value_settle(gp_onnx_mapping *m, gp_onnx_value *value, gp_error *err);

/* The shape of one sample of a layer's output or of the network's input, as the netspec has it. */
gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value);

/* Append "key=1,2,3" to settings, behind a ';' where needed. */
void gp_onnx_put_list(char *settings, size_t bytes, const char *key, const int64_t *list, size_t count);
/* Append "key=" and a number that reads back as itself. */
void gp_onnx_put_number(char *settings, size_t bytes, const char *key, double number);

/* An axis of [N, ...] as one of a sample of that rank; the samples' axis is refused. */
gp_status gp_onnx_sample_axis(int64_t axis, uint32_t rank, int64_t *out, gp_error *err);

/* ---- one function per operator, in the table of onnx_map.c: some input is data ---- */

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

/* Any operator that reads indices which depend on the sample, but Gather. */
gp_onnx_map_fn gp_onnx_map_indices;

/* ---- and the same where all inputs are constants: the tensor that it makes ---- */

typedef gp_status gp_onnx_fold_fn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                  gp_error *err);
gp_onnx_fold_fn gp_onnx_fold_constant, gp_onnx_fold_constant_of_shape, gp_onnx_fold_shape,
    gp_onnx_fold_gather, gp_onnx_fold_unsqueeze, gp_onnx_fold_squeeze, gp_onnx_fold_concat,
    gp_onnx_fold_slice, gp_onnx_fold_cast, gp_onnx_fold_arithmetic, gp_onnx_fold_unary, gp_onnx_fold_identity,
    gp_onnx_fold_reshape, gp_onnx_fold_flatten, gp_onnx_fold_transpose, gp_onnx_fold_expand,
    gp_onnx_fold_range;

/* Unsqueeze a tensor by the axes of the node. */
gp_status gp_onnx_fold_unsqueeze_of(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_tensor *x,
                                    gp_onnx_tensor *out, gp_error *err);

/* a (+, -, *, /) b, elementwise and broadcast as NumPy does; op is one of these.  For the folding of constants
 * into parameters too. */
gp_status gp_onnx_tensor_combine(gp_onnx_tensor *out, gp_onnx_store *store, gp_onnx_arithmetic op,
                                 const gp_onnx_tensor *a, const gp_onnx_tensor *b, gp_error *err);

/* tensor * factor, in the store unless the factor is 1. */
gp_status gp_onnx_tensor_scale(gp_onnx_tensor *tensor, gp_onnx_store *store, double factor, gp_error *err);

#endif
