/* onnx_node.h -- what a node of an ONNX graph reads: values by name, constants, attributes.  For onnx_map.c. */
#ifndef GP_ONNX_NODE_H
#define GP_ONNX_NODE_H

#include "common/model/onnx/onnx_tensor.h"

typedef enum gp_onnx_value_role {
    GP_ONNX_VALUE_UNMADE,
    GP_ONNX_VALUE_INPUT,
    GP_ONNX_VALUE_LAYER,
    GP_ONNX_VALUE_CONSTANT,
    GP_ONNX_VALUE_INDICES, /* a tensor that depends on the sample (onnx_indices.c) */
    GP_ONNX_VALUE_FLAT,    /* the numbers of all samples of a layer, or of the input, as one vector */
} gp_onnx_value_role;

typedef struct gp_onnx_value {
    const char *name;
    gp_onnx_value_role role;
    uint32_t layer;         /* GP_INPUT_LAYER for the network's input */
    uint32_t uses;          /* readers of this name, the graph's outputs among them */
    uint32_t maker, reader; /* 1 + index of the node that makes it, and of the last that reads it; 0: none */
    /* Of data: one sample as ONNX sees it, without the samples' axis.  The layer's own shape has the same numbers in
     * the same order, but may differ: a netspec knows vectors and images only. */
    uint32_t rank;
    int64_t dims[GP_ONNX_RANK_MAX - 1];
    bool channels_last; /* dims are [..., C], but the layer holds [C, ...]: a Transpose not made yet */
    const gp_onnx_tensor *tensor; /* of a constant */
} gp_onnx_value;

/* Where the numbers of one layer's parameters are. */
typedef struct gp_onnx_source {
    gp_onnx_tensor
        tensors[GP_LAYER_PARAMETERS_MAX]; /* in the order of the layer's parameters, checked to be float32 */
    bool transposed;                      /* the first is [inputs, outputs] */
} gp_onnx_source;

/* How onnx_pattern.c treats a node; all zero: it is mapped by itself. */
typedef struct gp_onnx_fusion {
    bool skipped;        /* it is a part of a pattern that another node ends */
    const char *op_type; /* of the pattern that it ends, "Gelu" or "LayerNormalization"; NULL: it ends none */
    const char *inputs[3]; /* of that operator, as many as it has */
    float epsilon;         /* of LayerNormalization */
} gp_onnx_fusion;

/* A graph on its way to a netspec. */
/* What an operator does with each number, as the table of onnx_map.c has it. */
typedef enum gp_onnx_arithmetic {
    GP_ONNX_NONE,
    GP_ONNX_ADD,
    GP_ONNX_SUM,
    GP_ONNX_SUB,
    GP_ONNX_MUL,
    GP_ONNX_DIV,
    GP_ONNX_NEG,
    GP_ONNX_SQRT,
    GP_ONNX_FLOOR,
    GP_ONNX_CEIL
} gp_onnx_arithmetic;

typedef struct gp_onnx_mapping {
    gp_onnx_arithmetic arithmetic; /* of the node that is mapped or folded */
    const Onnx__GraphProto *graph;
    int64_t opset, batch; /* batch: 0 when symbolic */
    const char *loss;     /* that outputs end in; NULL: by their shape */
    gp_netspec *spec;
    gp_onnx_source *sources; /* per layer, as of the next two */
    gp_onnx_value **made;    /* the value of the node that the layer was made for */
    gp_shape *shapes;        /* of its output */
    gp_onnx_fusion *fusions; /* per node */
    gp_onnx_value *values;   /* sorted by name */
    size_t value_count;
    gp_onnx_tensor *constants; /* of the initializers */
    gp_onnx_store *store;      /* of what is computed */
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    uint32_t normalize_count;
} gp_onnx_mapping;

/* ---- values ---- */

/* Sort the initializers by name, and find one; all else relies on the first. */
void gp_onnx_initializers_sort(Onnx__GraphProto *graph);
const Onnx__TensorProto *gp_onnx_initializer_find(const Onnx__GraphProto *graph, const char *name);

/* The inputs that are no initializers, of which there is one at least: float32 of shape [N, F], [N, C, L] or [N, C, H, W].
 * dims: of one sample; batch: the first dimension, 0 when symbolic or not the same for all. */
gp_status gp_onnx_inputs(gp_onnx_value inputs[GP_INPUTS_MAX], size_t *count, int64_t *batch,
                         const Onnx__GraphProto *graph, gp_error *err);

/* Fill values: initializers, the outputs of all nodes, and the network's inputs.  GP_ECORRUPT: a name made twice. */
gp_status gp_onnx_values_prepare(gp_onnx_mapping *m, const gp_onnx_value *inputs, size_t count,
                                 gp_error *err);
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
/* As the data that flows: the network's input or a layer; never NULL.  Of any rank, and perhaps with its channels last;
 * see gp_onnx_node_data() and gp_onnx_node_image() of onnx_map.h. */
gp_status gp_onnx_node_any(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                           gp_onnx_value **out, gp_error *err);
/* As numbers of the file or computed of such; NULL when absent. */
gp_status gp_onnx_node_constant(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                                const gp_onnx_tensor **out, gp_error *err);
/* As one float32 number, into *out, which stays as it is when the input is absent. */
gp_status gp_onnx_node_scalar(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                              const char *name, float *out, gp_error *err);
/* As float32 parameters of that rank; out->data is NULL when absent. */
gp_status gp_onnx_node_parameter(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, size_t rank,
                                 gp_onnx_tensor *out, gp_error *err);

/* A short list of whole numbers: the k-th input, int64 or int32, or where it was one once, the attribute of that name.
 * *count is 0 when there is none. */
enum { GP_ONNX_LIST_MAX = 8 };
gp_status gp_onnx_node_list(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                            int64_t list[GP_ONNX_LIST_MAX], size_t *count, gp_error *err);
/* The same for the dimensions of a batch, of which the first may be GP_ONNX_SAMPLES. */
gp_status gp_onnx_node_dims(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                            int64_t list[GP_ONNX_LIST_MAX], size_t *count, gp_error *err);

/* What a Slice cuts: of axis axes[i] from starts[i] to ends[i] in steps of steps[i]; axes and steps that are not there are
 * 0, 1, 2 ... and 1.  GP_ECORRUPT: not as many of each. */
typedef struct gp_onnx_slices {
    int64_t starts[GP_ONNX_LIST_MAX], ends[GP_ONNX_LIST_MAX], axes[GP_ONNX_LIST_MAX], steps[GP_ONNX_LIST_MAX];
    size_t count;
} gp_onnx_slices;

gp_status gp_onnx_node_slices(const gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_slices *out,
                              gp_error *err);

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

/* Whether a text attribute says that word, or is absent and that is its default. */
bool gp_onnx_node_says(const Onnx__NodeProto *node, const char *name, const char *fallback, const char *word);

#endif
