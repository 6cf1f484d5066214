/* onnx_node.h -- what a node of an ONNX graph reads: values by name, constants, attributes.  For onnx_map.c. */
#ifndef GP_ONNX_NODE_H
#define GP_ONNX_NODE_H

#include "common/model/onnx_proto.h"

typedef enum gp_onnx_value_role {
    GP_ONNX_VALUE_UNMADE,
    GP_ONNX_VALUE_INPUT,
    GP_ONNX_VALUE_LAYER,
    GP_ONNX_VALUE_CONSTANT,
} gp_onnx_value_role;

typedef struct gp_onnx_value {
    const char *name;
    gp_onnx_value_role role;
    uint32_t layer;                  /* GP_INPUT_LAYER for the network's input */
    uint32_t uses;                   /* readers of this name, the graph's outputs among them */
    const Onnx__TensorProto *tensor; /* of a constant */
} gp_onnx_value;

/* What must hold once shapes are known. */
typedef struct gp_onnx_expectation {
    bool vector_input;   /* a matrix product: its input must be flat already */
    gp_onnx_value *made; /* the value of the node itself, for the Add after a MatMul */
} gp_onnx_expectation;

/* A graph on its way to a netspec. */
typedef struct gp_onnx_mapping {
    const Onnx__GraphProto *graph;
    int64_t opset, batch; /* batch: 0 when symbolic */
    gp_netspec *spec;
    gp_onnx_source *sources;           /* per layer; layers are at most nodes + 1 */
    gp_onnx_expectation *expectations; /* per layer */
    gp_shape *shapes;                  /* per layer: of its output */
    gp_onnx_value *values;             /* sorted by name */
    size_t value_count;
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    uint32_t normalize_count;
} gp_onnx_mapping;

/* ---- values ---- */

/* Fill values: initializers, the outputs of all nodes, and the network's input.  GP_ECORRUPT: a name made twice. */
gp_status gp_onnx_values_prepare(gp_onnx_mapping *m, const char *input, gp_error *err);
/* NULL when there is none of that name. */
gp_onnx_value *gp_onnx_value_find(const gp_onnx_mapping *m, const char *name);

/* "node 'x' (Conv, opset 13): " before the message in err; returns status. */
gp_status gp_onnx_node_failed(const gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_status status,
                              gp_error *err);
/* gp_onnx_show() of a name that may be NULL. */
const char *gp_onnx_shown(char text[GP_ONNX_SHOWN_BYTES], const char *name);

/* ---- the k-th input of a node ---- */

/* Any value; NULL when it is absent, which ONNX writes as too few inputs or as "". */
gp_status gp_onnx_node_input(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                             gp_onnx_value **out, gp_error *err);
/* As the data that flows: the network's input or a layer; never NULL. */
gp_status gp_onnx_node_data(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                            gp_onnx_value **out, gp_error *err);
/* As numbers of the file; NULL when absent. */
gp_status gp_onnx_node_constant(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                                const Onnx__TensorProto **out, gp_error *err);
/* As float32 parameters of that rank; NULL when absent. */
gp_status gp_onnx_node_parameter(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, size_t rank,
                                 const Onnx__TensorProto **out, gp_error *err);

/* ---- attributes; where one is absent, the fallback ---- */

/* NULL when absent. */
const Onnx__AttributeProto *gp_onnx_node_attribute(const Onnx__NodeProto *node, const char *name);
gp_status gp_onnx_node_int(const Onnx__NodeProto *node, const char *name, int64_t fallback, int64_t *out,
                           gp_error *err);
/* A number that must have one value, which is also its default. */
gp_status gp_onnx_node_fixed_int(const Onnx__NodeProto *node, const char *name, int64_t only, gp_error *err);
gp_status gp_onnx_node_float(const Onnx__NodeProto *node, const char *name, float fallback, float *out,
                             gp_error *err);
/* Exactly count numbers. */
gp_status gp_onnx_node_ints(const Onnx__NodeProto *node, const char *name, size_t count, int64_t fallback,
                            int64_t *out, gp_error *err);

/* ---- numbers of tensors that passed gp_onnx_wire_check() ---- */

/* Element index of what gp_onnx_floats() returned. */
float gp_onnx_float_at(const void *floats, int64_t index);
/* False when the tensor is not int64 or has no such element. */
bool gp_onnx_int64_at(const Onnx__TensorProto *tensor, int64_t index, int64_t *out);

#endif
