/* onnx_draft.h -- the ONNX form of a network during construction; see gp_onnx_draft_new() in
 * onnx_proto.h. */
#ifndef GP_ONNX_DRAFT_H
#define GP_ONNX_DRAFT_H

#include "common/model/onnx/onnx_proto.h"

enum {
    NODE_ATTRIBUTES_MAX = 6,
    NODE_INTS_MAX = 14,
    NODE_CONSTANTS_MAX = 4,
    NODE_LIST_MAX = 8,
    VALUE_NAME_MAX = GP_NAME_MAX + 16
};

/* Node with the memory for its name, inputs and attributes. */
typedef struct gp_draft_node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attribute[NODE_ATTRIBUTES_MAX], *attributes[NODE_ATTRIBUTES_MAX];
    int64_t ints[NODE_INTS_MAX];
    uint32_t int_count;
    char *inputs[GP_LAYER_INPUTS_MAX], *output;
    char name[VALUE_NAME_MAX], output_name[VALUE_NAME_MAX];
    char constant_names[NODE_CONSTANTS_MAX][VALUE_NAME_MAX];
    int64_t constants[NODE_CONSTANTS_MAX][NODE_LIST_MAX]; /* or float32 numbers */
    uint32_t constant_count;
} gp_draft_node;

/* Tensor with the memory for its dimensions. */
typedef struct gp_draft_tensor {
    Onnx__TensorProto proto;
    int64_t dims[GP_RANK_MAX];
} gp_draft_tensor;

/* Graph input or output with its type, float [N, ...]. */
typedef struct gp_draft_port {
    Onnx__ValueInfoProto proto, *list[1];
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[1 + GP_RANK_MAX], *dims[1 + GP_RANK_MAX];
} gp_draft_port;

/* ONNX graph under construction. */
struct gp_onnx_draft {
    const gp_netspec *spec;
    const gp_graph *graph;
    const float *blob;
    Onnx__GraphProto proto;
    gp_draft_port input, outputs[GP_ENDS_MAX]; /* outputs: one per loss */
    Onnx__ValueInfoProto *output_list[GP_ENDS_MAX];
    gp_draft_node *nodes;
    Onnx__NodeProto **node_list;
    gp_draft_tensor *tensors;
    Onnx__TensorProto **tensor_list;
    const gp_op **ops;   /* [layer] first inference op */
    const char **values; /* [layer] name of the output value */
    const char *start;   /* name of the normalized network input */
    const char *refused; /* why a layer has no ONNX form; NULL: all have one */
    int64_t opset;       /* minimum opset for the nodes, at least GP_ONNX_OPSET */
    float scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
};

/* ---- nodes: memory for all is allocated in advance ---- */

gp_draft_node *gp_draft_add_node(gp_onnx_draft *draft, const char *op_type, const char *name,
                                 const char *output);

/* Add the node for a layer. It reads the inputs of the layer and its output is "NAME.out". */
gp_draft_node *gp_draft_add_layer(gp_onnx_draft *draft, uint32_t layer, const char *op_type);

/* Return the name of a layer's k-th input value. */
const char *gp_draft_layer_input(const gp_onnx_draft *draft, uint32_t layer, uint32_t k);

/* Return the name of a network output: "scores", or the layer name if there are several outputs. */
const char *gp_draft_output_name(const gp_onnx_draft *draft, uint32_t layer);

/* Raise the opset of the file to at least this one. */
void gp_draft_needs(gp_onnx_draft *draft, int64_t opset);

/* ---- inputs and attributes of a node; names and values are borrowed ---- */

void gp_draft_node_input(gp_draft_node *node, const char *value);
void gp_draft_set_int(gp_draft_node *node, const char *name, int64_t value);
void gp_draft_set_ints(gp_draft_node *node, const char *name, const int32_t *values, uint32_t count);
void gp_draft_set_text(gp_draft_node *node, const char *name, const char *word);
void gp_draft_set_float(gp_draft_node *node, const char *name, double value);

/* Add a tensor to the file and return its name. Name and data are borrowed; data may be NULL. */
const char *gp_draft_add_tensor(gp_onnx_draft *draft, const char *name, const gp_shape *shape,
                                const float *data);

/* Add an input to a node: numbers of rank 0 ("clip1.min") or 1 ("crop1.starts"), or the parameters
 * of the layer.
 *   whole  numbers are int64; false: float32 */
void gp_draft_add_numbers(gp_onnx_draft *draft, gp_draft_node *node, const char *role, bool whole,
                          uint32_t rank, uint32_t count, const void *numbers);
void gp_draft_add_parameters(gp_onnx_draft *draft, gp_draft_node *node, uint32_t layer);

/* ---- onnx_draft_layers.c ---- */

/* Add the nodes of all layers. GP_EUNSUPPORTED: a layer has no ONNX form. */
gp_status gp_draft_layers(gp_onnx_draft *draft, gp_error *err);

#endif
