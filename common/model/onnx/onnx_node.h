/* onnx_node.h -- access to the inputs of an ONNX node: values by name, constants, attributes.
 * Used by onnx_map.c. */
#ifndef GP_ONNX_NODE_H
#define GP_ONNX_NODE_H

#include "common/model/onnx/onnx_tensor.h"

/* Role of a named value in the graph. */
typedef enum gp_onnx_value_role {
    GP_ONNX_VALUE_UNMADE,
    GP_ONNX_VALUE_INPUT,
    GP_ONNX_VALUE_LAYER,
    GP_ONNX_VALUE_CONSTANT,
    GP_ONNX_VALUE_INDICES, /* tensor that depends on the sample (onnx_indices.c) */
    GP_ONNX_VALUE_FLAT,    /* layer output or input, with all samples flattened into one vector */
} gp_onnx_value_role;

/* Named value in the graph. */
typedef struct gp_onnx_value {
    const char *name;
    gp_onnx_value_role role;
    uint32_t layer; /* GP_INPUT_LAYER: the network input */
    uint32_t uses;  /* number of readers, including graph outputs */
    /* 1 + node index: node that makes the value, and last node that reads it; 0: none */
    uint32_t maker, reader;
    /* For data: dimensions of one sample in ONNX, without the sample axis. The layer's shape has
     * the same numbers in the same order but may differ, because a netspec has only vectors and
     * images. */
    uint32_t rank;
    int64_t dims[GP_ONNX_RANK_MAX - 1];
    bool channels_last;           /* dims are [..., C], but the layer has [C, ...]: a Transpose is deferred */
    const gp_onnx_tensor *tensor; /* data of a constant */
} gp_onnx_value;

/* Data of the parameters of one layer. */
typedef struct gp_onnx_source {
    /* in the layer's parameter order; checked to be float32 */
    gp_onnx_tensor tensors[GP_LAYER_PARAMETERS_MAX];
    bool transposed; /* the first tensor is [inputs, outputs] */
} gp_onnx_source;

/* Treatment of a node by onnx_pattern.c; all zero: map the node by itself. */
typedef struct gp_onnx_fusion {
    bool skipped; /* part of a pattern that ends at another node */
    /* operator that the pattern ending here replaces, "Gelu" or "LayerNormalization"; NULL: none */
    const char *op_type;
    const char *inputs[3]; /* inputs of that operator */
    float epsilon;         /* for LayerNormalization */
} gp_onnx_fusion;

/* Arithmetic of an operator, from the table in onnx_map.c. */
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

/* State of the conversion of a graph to a netspec.
 *
 * Errors are sticky: the first failure is recorded in `status` and `err`. After a failure, the
 * functions below and those in onnx_map.h do nothing and return 0, NULL or the fallback. So an
 * operator reads all its inputs and attributes, and then checks `status` once. */
typedef struct gp_onnx_mapping {
    const Onnx__NodeProto *node; /* current node */
    gp_onnx_value *output;       /* value of the current node's first output */
    gp_status status;
    gp_error *err;
    gp_onnx_value none;            /* returned for an input that could not be read */
    gp_onnx_arithmetic arithmetic; /* arithmetic of the current node */
    const Onnx__GraphProto *graph;
    int64_t opset, batch; /* batch: 0: symbolic */
    const char *loss;     /* loss for outputs; NULL: chosen by shape */
    gp_netspec *spec;
    gp_onnx_source *sources; /* [layer], like made and shapes */
    gp_onnx_value **made;    /* [layer] value of the node for which the layer was added */
    gp_shape *shapes;        /* [layer] output shape */
    gp_onnx_fusion *fusions; /* [node] */
    gp_onnx_value *values;   /* sorted by name */
    size_t value_count;
    gp_onnx_tensor *constants; /* data of the initializers */
    gp_onnx_store *store;      /* memory of computed tensors */
    double scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    uint32_t normalize_count;
} gp_onnx_mapping;

/* Record a failure, unless one is recorded. */
#define gp_onnx_fail(m, code, ...)                                                                           \
    (void)((m)->status == GP_OK && ((m)->status = gp_fail((m)->err, (code), __VA_ARGS__)))

/* ---- values ---- */

/* Sort the initializers by name, or find one. Sort before any search. */
void gp_onnx_initializers_sort(Onnx__GraphProto *graph);
const Onnx__TensorProto *gp_onnx_initializer_find(const Onnx__GraphProto *graph, const char *name);

/* Get the inputs that are not initializers, at least one: float32 of shape [N, F], [N, C, L] or
 * [N, C, H, W]. Set m->batch to the first dimension, or to 0 if it is symbolic or not equal for
 * all inputs. Return the number of inputs. */
size_t gp_onnx_inputs(gp_onnx_mapping *m, gp_onnx_value inputs[GP_INPUTS_MAX]);

/* Fill in the values: initializers, node outputs and network inputs. GP_ECORRUPT: a name is
 * defined twice. */
void gp_onnx_values_prepare(gp_onnx_mapping *m, const gp_onnx_value *inputs, size_t count);

/* Find a value by name. NULL: not found. */
gp_onnx_value *gp_onnx_value_find(const gp_onnx_mapping *m, const char *name);

/* Make a name printable with gp_onnx_show(); name may be NULL. */
const char *gp_onnx_shown(char text[GP_ONNX_SHOWN_BYTES], const char *name);

/* ---- the k-th input of the current node ---- */

/* Get an input of any role. NULL: absent, because there are fewer inputs or the name is "". */
gp_onnx_value *gp_onnx_node_input(gp_onnx_mapping *m, size_t k);

/* Get an input as data: the network input or a layer output; never NULL. The rank is arbitrary
 * and the channels may be last; see gp_onnx_node_data() and gp_onnx_node_image() in onnx_map.h. */
gp_onnx_value *gp_onnx_node_any(gp_onnx_mapping *m, size_t k);

/* Get an input as a constant, stored or computed. NULL: absent. */
const gp_onnx_tensor *gp_onnx_node_constant(gp_onnx_mapping *m, size_t k);

/* Get an input as one float32 number. */
double gp_onnx_node_scalar(gp_onnx_mapping *m, size_t k, const char *name, double fallback);

/* Get an input as float32 parameters of this rank. data NULL: absent. */
gp_onnx_tensor gp_onnx_node_parameter(gp_onnx_mapping *m, size_t k, size_t rank);

/* Get a short list of integers: the k-th input, int64 or int32, or in older opsets the attribute
 * with this name. Return the length; 0: absent. */
enum { GP_ONNX_LIST_MAX = 8 };
size_t gp_onnx_node_list(gp_onnx_mapping *m, size_t k, const char *name, int64_t list[GP_ONNX_LIST_MAX]);

/* Get the dimensions of a batch as a list. The first may be GP_ONNX_SAMPLES. */
size_t gp_onnx_node_dims(gp_onnx_mapping *m, size_t k, const char *name, int64_t list[GP_ONNX_LIST_MAX]);

/* Range of a Slice: from starts[i] to ends[i] with step steps[i] along axes[i]. Missing axes are
 * 0, 1, 2 ..., missing steps are 1. GP_ECORRUPT: the lengths differ. */
typedef struct gp_onnx_slices {
    int64_t starts[GP_ONNX_LIST_MAX], ends[GP_ONNX_LIST_MAX], axes[GP_ONNX_LIST_MAX], steps[GP_ONNX_LIST_MAX];
    size_t count;
} gp_onnx_slices;

void gp_onnx_node_slices(gp_onnx_mapping *m, gp_onnx_slices *out);

/* ---- attributes of the current node; an absent attribute has the fallback value ---- */

/* Find an attribute. NULL: absent. */
const Onnx__AttributeProto *gp_onnx_node_attribute(const gp_onnx_mapping *m, const char *name);
int64_t gp_onnx_node_int(gp_onnx_mapping *m, const char *name, int64_t fallback);

/* Check that an attribute has its only supported value, which is also the default. */
void gp_onnx_node_fixed_int(gp_onnx_mapping *m, const char *name, int64_t only);

/* Return a float32 attribute. */
double gp_onnx_node_float(gp_onnx_mapping *m, const char *name, float fallback);

/* Get exactly `count` integers. */
void gp_onnx_node_ints(gp_onnx_mapping *m, const char *name, size_t count, int64_t fallback, int64_t *out);

/* Return whether a text attribute has the value `word`, where `fallback` is the default. */
bool gp_onnx_node_attribute_is(const gp_onnx_mapping *m, const char *name, const char *fallback,
                               const char *word);

#endif
