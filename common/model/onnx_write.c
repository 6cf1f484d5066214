/* onnx_write.c -- a network as ONNX: a node or two per layer, an initializer per parameter.
 *
 * Names: a node has its layer's name, a parameter's tensor the parameter's ("conv1.weight"), and what a layer
 * makes is "conv1.out": the endings keep the three apart whatever the layers are called.  Dropout makes no node
 * (it is the identity outside training); who reads it reads what it reads. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/model/onnx.h"
#include "common/model/onnx_proto.h"

enum {
    NODE_ATTRIBUTES_MAX = 6,
    NODE_INTS_MAX = 14,
    NODE_CONSTANTS_MAX = 4,
    NODE_LIST_MAX = 8,
    VALUE_NAME_MAX = GP_NAME_MAX + 16
};

typedef struct draft_node {
    Onnx__NodeProto proto;
    Onnx__AttributeProto attribute[NODE_ATTRIBUTES_MAX], *attributes[NODE_ATTRIBUTES_MAX];
    int64_t ints[NODE_INTS_MAX];
    uint32_t int_count;
    char *inputs[GP_LAYER_INPUTS_MAX], *output;
    char name[VALUE_NAME_MAX], output_name[VALUE_NAME_MAX];
    char constant_names[NODE_CONSTANTS_MAX][VALUE_NAME_MAX];
    float constants[NODE_CONSTANTS_MAX];
    int64_t lists[NODE_CONSTANTS_MAX][NODE_LIST_MAX];
    uint32_t constant_count;
} draft_node;

typedef struct draft_tensor {
    Onnx__TensorProto proto;
    int64_t dims[GP_RANK_MAX];
} draft_tensor;

/* float [N, ...]: the type of the graph's input and output. */
typedef struct draft_port {
    Onnx__ValueInfoProto proto, *list[1];
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dim[1 + GP_RANK_MAX], *dims[1 + GP_RANK_MAX];
} draft_port;

struct gp_onnx_draft {
    const gp_netspec *spec;
    const gp_graph *graph;
    const float *blob;
    Onnx__GraphProto proto;
    draft_port input, outputs[GP_ENDS_MAX]; /* of each loss */
    Onnx__ValueInfoProto *output_list[GP_ENDS_MAX];
    draft_node *nodes;
    Onnx__NodeProto **node_list;
    draft_tensor *tensors;
    Onnx__TensorProto **tensor_list;
    const gp_op **ops;   /* per layer: its first op in inference */
    const char **values; /* per layer: the name of what it makes */
    const char *start;   /* the name of the network's normalised input */
    const char *refused; /* why a layer has no ONNX form; NULL */
    int64_t opset;       /* the least that has what the nodes say, from GP_ONNX_OPSET on */
    float scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
};

/* protobuf-c has no const; nothing is written through it. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ---- nodes ---- */

static draft_node *draft_add_node(gp_onnx_draft *draft, const char *op_type, const char *name,
                                  const char *output)
{
    draft_node *node = &draft->nodes[draft->proto.n_node];

    onnx__node_proto__init(&node->proto);
    snprintf(node->name, sizeof(node->name), "%s", name);
    snprintf(node->output_name, sizeof(node->output_name), "%s", output);
    node->output = node->output_name;
    node->proto.name = node->name;
    node->proto.op_type = text(op_type);
    node->proto.input = node->inputs;
    node->proto.output = &node->output;
    node->proto.n_output = 1;
    node->proto.attribute = node->attributes;
    draft->node_list[draft->proto.n_node++] = &node->proto;
    return node;
}

static void node_add_input(draft_node *node, const char *value)
{
    assert(node->proto.n_input < GP_LAYER_INPUTS_MAX);
    node->inputs[node->proto.n_input++] = text(value);
}

static Onnx__AttributeProto *node_add_attribute(draft_node *node, const char *name,
                                                Onnx__AttributeProto__AttributeType type)
{
    assert(node->proto.n_attribute < NODE_ATTRIBUTES_MAX);
    Onnx__AttributeProto *attribute = &node->attribute[node->proto.n_attribute];

    onnx__attribute_proto__init(attribute);
    attribute->name = text(name);
    attribute->has_type = true;
    attribute->type = type;
    node->attributes[node->proto.n_attribute++] = attribute;
    return attribute;
}

static void node_set_int(draft_node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);

    attribute->has_i = true;
    attribute->i = value;
}

static void node_set_ints(draft_node *node, const char *name, const int32_t *values, uint32_t count)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    assert(node->int_count + count <= NODE_INTS_MAX);
    attribute->ints = node->ints + node->int_count;
    attribute->n_ints = count;
    for (uint32_t i = 0; i < count; i++)
        node->ints[node->int_count++] = values[i];
}

static void node_set_text(draft_node *node, const char *name, const char *word)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);

    attribute->has_s = true;
    attribute->s.data = (uint8_t *)text(word);
    attribute->s.len = strlen(word);
}

static void node_set_float(draft_node *node, const char *name, double value)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);

    attribute->has_f = true;
    attribute->f = (float)value;
}

/* ---- tensors ---- */

static const char *draft_add_tensor(gp_onnx_draft *draft, const char *name, const gp_shape *shape,
                                    const float *data)
{
    draft_tensor *tensor = &draft->tensors[draft->proto.n_initializer];

    onnx__tensor_proto__init(&tensor->proto);
    memcpy(tensor->dims, shape->dim, sizeof(tensor->dims));
    tensor->proto.name = text(name);
    tensor->proto.dims = tensor->dims;
    tensor->proto.n_dims = shape->rank;
    tensor->proto.has_data_type = true;
    tensor->proto.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    if (data != NULL) {
        tensor->proto.has_raw_data = true;
        tensor->proto.raw_data.data = (uint8_t *)(uintptr_t)data;
        tensor->proto.raw_data.len = (size_t)gp_shape_count(shape) * sizeof(float);
    }
    draft->tensor_list[draft->proto.n_initializer++] = &tensor->proto;
    return name;
}

/* A number as a further input: "clip1.min". */
static void node_add_constant(gp_onnx_draft *draft, draft_node *node, const char *role, double value)
{
    const gp_shape scalar = { 0 };
    uint32_t k = node->constant_count++;

    assert(k < NODE_CONSTANTS_MAX);
    node->constants[k] = (float)value;
    snprintf(node->constant_names[k], sizeof(node->constant_names[k]), "%.*s.%s", GP_NAME_MAX, node->name,
             role);
    node_add_input(node, draft_add_tensor(draft, node->constant_names[k], &scalar, &node->constants[k]));
}

/* Whole numbers as a further input: "crop1.starts". */
static void node_add_list(gp_onnx_draft *draft, draft_node *node, const char *role, const int64_t *list,
                          uint32_t count)
{
    const gp_shape shape = gp_shape1(count);
    uint32_t k = node->constant_count++;

    assert(k < NODE_CONSTANTS_MAX && count <= NODE_LIST_MAX);
    memcpy(node->lists[k], list, count * sizeof(*list));
    snprintf(node->constant_names[k], sizeof(node->constant_names[k]), "%.*s.%s", GP_NAME_MAX, node->name,
             role);
    node_add_input(node, draft_add_tensor(draft, node->constant_names[k], &shape, NULL));
    draft_tensor *tensor = &draft->tensors[draft->proto.n_initializer - 1];

    tensor->proto.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    tensor->proto.has_raw_data = true;
    tensor->proto.raw_data.data = (uint8_t *)node->lists[k];
    tensor->proto.raw_data.len = count * sizeof(*list);
}

/* The layer's tensors as further inputs of its node. */
static void node_add_parameters(gp_onnx_draft *draft, draft_node *node, uint32_t layer)
{
    for (uint32_t p = 0; p < draft->graph->parameter_count; p++) {
        const gp_parameter *parameter = &draft->graph->parameters[p];

        if (parameter->layer == layer)
            node_add_input(node,
                           draft_add_tensor(draft, parameter->name, &parameter->shape,
                                            draft->blob == NULL ? NULL : draft->blob + parameter->offset));
    }
}

/* ---- layers ---- */

static void draft_needs(gp_onnx_draft *draft, int64_t opset)
{
    if (draft->opset < opset)
        draft->opset = opset;
}

static const char *layer_input(const gp_onnx_draft *draft, uint32_t layer, uint32_t k)
{
    uint32_t input = draft->spec->layers[layer].inputs[k];

    return input == GP_INPUT_LAYER ? draft->start : draft->values[input];
}

static draft_node *draft_add_layer(gp_onnx_draft *draft, uint32_t layer, const char *op_type)
{
    const gp_layer *about = &draft->spec->layers[layer];
    char output[VALUE_NAME_MAX];

    snprintf(output, sizeof(output), "%s.out", about->name);
    draft_node *node = draft_add_node(draft, op_type, about->name, output);

    for (uint32_t k = 0; k < about->input_count; k++)
        node_add_input(node, layer_input(draft, layer, k));
    draft->values[layer] = node->output_name;
    return node;
}

static void draft_conv2d(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_window *window = &draft->ops[layer]->window;
    draft_node *node = draft_add_layer(draft, layer, "Conv");

    node_add_parameters(draft, node, layer);
    node_set_ints(node, "kernel_shape", window->kernel, 2);
    node_set_ints(node, "strides", window->stride, 2);
    node_set_ints(node, "dilations", window->dilation, 2);
    node_set_ints(node, "pads", window->padding, 4);
    node_set_int(node, "group", window->groups);
}

static void draft_pool(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    draft_node *node = draft_add_layer(draft, layer, op->pool == GP_POOL_MAX ? "MaxPool" : "AveragePool");

    node_set_ints(node, "kernel_shape", op->window.kernel, 2);
    node_set_ints(node, "strides", op->window.stride, 2);
    node_set_ints(node, "pads", op->window.padding, 4);
    bool dilated = op->window.dilation[0] != 1 || op->window.dilation[1] != 1;

    if (dilated && op->pool != GP_POOL_MAX)
        draft_needs(draft, 19);
    if (dilated)
        node_set_ints(node, "dilations", op->window.dilation, 2);
    if (op->pool != GP_POOL_MAX)
        node_set_int(node, "count_include_pad", op->pool == GP_POOL_AVERAGE_COUNT_PADDING);
}

/* Gemm multiplies matrices; our kind reads any shape as a vector, so a Flatten may stand before it. */
static void draft_fc(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_layer *about = &draft->spec->layers[layer];
    uint32_t input = about->inputs[0];
    draft_node *flatten = NULL;

    if (input == GP_INPUT_LAYER || draft->graph->outputs[input].rank != 1) {
        char name[VALUE_NAME_MAX], output[VALUE_NAME_MAX];

        snprintf(name, sizeof(name), "%s.flatten", about->name);
        snprintf(output, sizeof(output), "%s.vector", about->name);
        flatten = draft_add_node(draft, "Flatten", name, output);
        node_add_input(flatten, layer_input(draft, layer, 0));
        node_set_int(flatten, "axis", 1);
    }
    draft_node *node = draft_add_layer(draft, layer, "Gemm");

    if (flatten != NULL)
        node->inputs[0] = flatten->output_name;
    node_add_parameters(draft, node, layer);
    node_set_int(node, "transB", 1);
}

/* A node of the layer's inputs alone. */
static void draft_plain(gp_onnx_draft *draft, uint32_t layer)
{
    draft_add_layer(draft, layer, draft->spec->layers[layer].kind->onnx);
}

static void draft_batchnorm(gp_onnx_draft *draft, uint32_t layer)
{
    draft_node *node = draft_add_layer(draft, layer, "BatchNormalization");

    node_add_parameters(draft, node, layer);
    node_set_float(node, "epsilon", draft->ops[layer]->factor[0]);
    for (uint32_t p = 0; p < draft->graph->parameter_count; p++)
        if (draft->graph->parameters[p].layer == layer &&
            draft->graph->parameters[p].statistic == GP_STATISTIC_MEAN)
            node_set_float(node, "momentum", 1.0 - draft->graph->parameters[p].statistic_rate);
}

/* Groups of one channel are instances; a vector's one group is a layer; opset 21 is the first with groups that have a
 * scale per channel. */
static void draft_groupnorm(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_shape *shape = &draft->graph->outputs[layer];
    bool instances = op->number[0] == shape->dim[0] && shape->rank == 3;
    bool whole = op->number[0] == 1 && shape->rank == 1;
    draft_node *node = draft_add_layer(draft, layer,
                                       instances ? "InstanceNormalization"
                                       : whole   ? "LayerNormalization"
                                                 : "GroupNormalization");

    node_add_parameters(draft, node, layer);
    node_set_float(node, "epsilon", op->factor[0]);
    if (!instances && !whole)
        node_set_int(node, "num_groups", op->number[0]);
    draft_needs(draft, instances ? GP_ONNX_OPSET : whole ? 17 : 21);
}

static void draft_lrn(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    draft_node *node = draft_add_layer(draft, layer, "LRN");

    node_set_int(node, "size", op->number[0]);
    node_set_float(node, "alpha", op->factor[0]);
    node_set_float(node, "beta", op->factor[1]);
    node_set_float(node, "bias", op->factor[2]);
}

static void draft_transconv2d(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_shape *x = &draft->graph->values[op->in[0]].shape, *y = &draft->graph->values[op->out[0]].shape;
    draft_node *node = draft_add_layer(draft, layer, "ConvTranspose");
    int32_t extra[2];

    for (int i = 0; i < 2; i++)
        extra[i] = (int32_t)y->dim[1 + i] + op->window.padding[i] + op->window.padding[2 + i] -
                   op->window.dilation[i] * (op->window.kernel[i] - 1) - 1 -
                   op->window.stride[i] * ((int32_t)x->dim[1 + i] - 1);
    node_add_parameters(draft, node, layer);
    node_set_ints(node, "kernel_shape", op->window.kernel, 2);
    node_set_ints(node, "strides", op->window.stride, 2);
    node_set_ints(node, "dilations", op->window.dilation, 2);
    node_set_ints(node, "pads", op->window.padding, 4);
    node_set_ints(node, "output_padding", extra, 2);
    node_set_int(node, "group", op->window.groups);
}

/* A factor that makes exactly that many pixels, in float32 and float64 alike, once it is rounded down. */
static float resize_scale(int64_t from, int64_t to)
{
    float scale = (float)to / (float)from;

    while (floor((double)from * (double)scale) < (double)to)
        scale = nextafterf(scale, INFINITY);
    return scale;
}

static void draft_resize(gp_onnx_draft *draft, uint32_t layer)
{
    static const char *const places[] = { "asymmetric", "half_pixel", "align_corners", "asymmetric" };
    const gp_op *op = draft->ops[layer];
    const gp_shape *x = &draft->graph->values[op->in[0]].shape, *y = &draft->graph->values[op->out[0]].shape;
    const gp_shape four = gp_shape1(4);
    draft_node *node = draft_add_layer(draft, layer, "Resize");

    node_add_input(node, ""); /* no region */
    node->constants[0] = node->constants[1] = 1.0f;
    for (int i = 0; i < 2; i++) {
        node->constants[2 + i] = resize_scale(x->dim[1 + i], y->dim[1 + i]);
        if (op->number[0] == GP_RESIZE_NEAREST && y->dim[1 + i] % x->dim[1 + i] != 0)
            draft->refused =
                "the nearest pixel at a scale that is no whole number has no ONNX form that is exact";
    }
    snprintf(node->constant_names[0], sizeof(node->constant_names[0]), "%.*s.scales", GP_NAME_MAX,
             node->name);
    node_add_input(node, draft_add_tensor(draft, node->constant_names[0], &four, node->constants));
    node_set_text(node, "mode", op->number[0] == GP_RESIZE_NEAREST ? "nearest" : "linear");
    node_set_text(node, "coordinate_transformation_mode", places[op->number[0]]);
    if (op->number[0] == GP_RESIZE_NEAREST)
        node_set_text(node, "nearest_mode", "floor");
}

static void draft_concat(gp_onnx_draft *draft, uint32_t layer)
{
    node_set_int(draft_add_layer(draft, layer, "Concat"), "axis", 1 + draft->ops[layer]->number[0]);
}

static void draft_crop(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_shape *shape = &draft->graph->outputs[layer];
    draft_node *node = draft_add_layer(draft, layer, "Slice");
    int64_t starts[3], ends[3], axes[3];

    for (uint32_t i = 0; i < shape->rank; i++) {
        starts[i] = draft->ops[layer]->number[i];
        ends[i] = starts[i] + shape->dim[i];
        axes[i] = 1 + i;
    }
    node_add_list(draft, node, "starts", starts, shape->rank);
    node_add_list(draft, node, "ends", ends, shape->rank);
    node_add_list(draft, node, "axes", axes, shape->rank);
}

static void draft_pad(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_value *x = &draft->graph->values[op->in[0]], *y = &draft->graph->values[op->out[0]];
    int64_t pads[8] = { 0 };

    for (int i = 1; i < 3; i++) {
        pads[1 + i] = op->number[i];
        pads[5 + i] = y->shape.dim[i] - x->shape.dim[i] - op->number[i];
    }
    node_add_list(draft, draft_add_layer(draft, layer, "Pad"), "pads", pads, 8);
}

static void draft_reshape(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_shape *shape = &draft->graph->outputs[layer];
    const int64_t to[4] = { 0, shape->dim[0], shape->dim[1], shape->dim[2] };

    node_add_list(draft, draft_add_layer(draft, layer, "Reshape"), "shape", to, 4);
}

static void draft_transpose(gp_onnx_draft *draft, uint32_t layer)
{
    const int32_t *order = draft->ops[layer]->number;
    const int32_t perm[4] = { 0, 1 + order[0], 1 + order[1], 1 + order[2] };

    node_set_ints(draft_add_layer(draft, layer, "Transpose"), "perm", perm, 4);
}

static void draft_softmax(gp_onnx_draft *draft, uint32_t layer)
{
    node_set_int(draft_add_layer(draft, layer, "Softmax"), "axis", 1);
}

/* A product with one number. */
static void draft_scale(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_shape one = gp_shape1(1);
    draft_node *node = draft_add_layer(draft, layer, "Mul");

    node->constants[0] = (float)draft->ops[layer]->factor[0];
    snprintf(node->constant_names[0], sizeof(node->constant_names[0]), "%.*s.factor", GP_NAME_MAX,
             node->name);
    node_add_input(node, draft_add_tensor(draft, node->constant_names[0], &one, node->constants));
}

static void draft_leaky_relu(gp_onnx_draft *draft, uint32_t layer)
{
    node_set_float(draft_add_layer(draft, layer, "LeakyRelu"), "alpha", draft->ops[layer]->factor[0]);
}

static void draft_clip(gp_onnx_draft *draft, uint32_t layer)
{
    draft_node *node = draft_add_layer(draft, layer, "Clip");

    node_add_constant(draft, node, "min", draft->ops[layer]->factor[0]);
    node_add_constant(draft, node, "max", draft->ops[layer]->factor[1]);
}

static void draft_flatten(gp_onnx_draft *draft, uint32_t layer)
{
    node_set_int(draft_add_layer(draft, layer, "Flatten"), "axis", 1);
}

static void draft_add(gp_onnx_draft *draft, uint32_t layer)
{
    draft_add_layer(draft, layer, draft->spec->layers[layer].input_count == 2 ? "Add" : "Sum");
}

static void draft_dropout(gp_onnx_draft *draft, uint32_t layer)
{
    draft->values[layer] = layer_input(draft, layer, 0);
}

/* What an end of the network is called outside: "scores", or by its layer where there are several. */
static const char *output_name(const gp_onnx_draft *draft, uint32_t layer)
{
    return draft->graph->end_count == 1 ? "scores" : draft->spec->layers[layer].name;
}

static void draft_classes(gp_onnx_draft *draft, uint32_t layer)
{
    draft_node *node = draft_add_layer(draft, layer, "Softmax");

    strcpy(node->output_name, output_name(draft, layer));
    node_set_int(node, "axis", 1);
}

static void draft_values(gp_onnx_draft *draft, uint32_t layer)
{
    strcpy(draft_add_layer(draft, layer, "Identity")->output_name, output_name(draft, layer));
}

static const struct {
    const char *kind;
    void (*draft)(gp_onnx_draft *draft, uint32_t layer);
} layer_drafts[] = {
    { "conv2d", draft_conv2d },
    { "transconv2d", draft_transconv2d },
    { "resize", draft_resize },
    { "fc", draft_fc },
    { "relu", draft_plain },
    { "leakyrelu", draft_leaky_relu },
    { "clip", draft_clip },
    { "sigmoid", draft_plain },
    { "tanh", draft_plain },
    { "maxpool", draft_pool },
    { "avgpool", draft_pool },
    { "globalavgpool", draft_plain },
    { "globalmaxpool", draft_plain },
    { "batchnorm", draft_batchnorm },
    { "groupnorm", draft_groupnorm },
    { "layernorm", draft_groupnorm },
    { "crosschannelnorm", draft_lrn },
    { "flatten", draft_flatten },
    { "softmax", draft_softmax },
    { "add", draft_add },
    { "multiply", draft_plain },
    { "scale", draft_scale },
    { "concat", draft_concat },
    { "crop", draft_crop },
    { "pad", draft_pad },
    { "reshape", draft_reshape },
    { "transpose", draft_transpose },
    { "dropout", draft_dropout },
    { "crossentropy", draft_classes },
    { "pixelclassification", draft_classes },
    { "dice", draft_classes },
    { "mse", draft_values },
    { "huber", draft_values },
};

static gp_status draft_layers(gp_onnx_draft *draft, gp_error *err)
{
    enum { COUNT = sizeof(layer_drafts) / sizeof(layer_drafts[0]) };

    for (uint32_t i = 0; i < draft->spec->layer_count; i++) {
        const gp_layer *layer = &draft->spec->layers[i];
        size_t d = 0;

        while (d < COUNT && strcmp(layer_drafts[d].kind, layer->kind->name) != 0)
            d++;
        if (d == COUNT)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "%s (%s): this kind cannot be written as ONNX yet; leave the layer out",
                           layer->name, layer->kind->name);
        layer_drafts[d].draft(draft, i);
        if (draft->refused != NULL)
            return gp_fail(err, GP_EUNSUPPORTED, "%s (%s): %s", layer->name, layer->kind->name,
                           draft->refused);
    }
    return GP_OK;
}

/* ---- ends ---- */

static void draft_normalize(gp_onnx_draft *draft, const char *op_type, const double *numbers, float *floats,
                            double neutral, const char *name)
{
    const uint32_t count = draft->spec->normalize_count;
    gp_shape shape = count == 1 ? (gp_shape){ 0 } : gp_shape3(count, 1, 1);
    bool needed = false;
    char output[VALUE_NAME_MAX];

    for (uint32_t i = 0; i < count; i++) {
        floats[i] = (float)numbers[i];
        needed |= numbers[i] != neutral;
    }
    if (!needed)
        return;
    snprintf(output, sizeof(output), "%s.out", name);
    draft_node *node = draft_add_node(draft, op_type, name, output);

    node_add_input(node, draft->start);
    node_add_input(node, draft_add_tensor(draft, name, &shape, floats));
    draft->start = node->output_name;
}

static void draft_port_init(draft_port *port, const char *name, const gp_shape *shape)
{
    onnx__value_info_proto__init(&port->proto);
    onnx__type_proto__init(&port->type);
    onnx__type_proto__tensor__init(&port->tensor);
    onnx__tensor_shape_proto__init(&port->shape);
    port->list[0] = &port->proto;
    port->proto.name = text(name);
    port->proto.type = &port->type;
    port->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    port->type.tensor_type = &port->tensor;
    port->tensor.has_elem_type = true;
    port->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    port->tensor.shape = &port->shape;
    port->shape.n_dim = 1 + shape->rank;
    port->shape.dim = port->dims;
    for (uint32_t i = 0; i <= shape->rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = port->dims[i] = &port->dim[i];

        onnx__tensor_shape_proto__dimension__init(dim);
        dim->value_case = i == 0 ? ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                                 : ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        if (i == 0)
            dim->dim_param = text("N");
        else
            dim->dim_value = shape->dim[i - 1];
    }
}

static gp_status draft_allocate(gp_onnx_draft *draft, gp_error *err)
{
    const size_t layers = draft->spec->layer_count;
    const size_t nodes = 2 * layers + 2,
                 tensors = draft->graph->parameter_count + 2 + NODE_CONSTANTS_MAX * layers;

    draft->nodes = gp_calloc(nodes, sizeof(*draft->nodes));
    draft->node_list = gp_calloc(nodes, sizeof(Onnx__NodeProto *));
    draft->tensors = gp_calloc(tensors, sizeof(*draft->tensors));
    draft->tensor_list = gp_calloc(tensors, sizeof(Onnx__TensorProto *));
    draft->ops = gp_calloc(layers, sizeof(const gp_op *));
    draft->values = gp_calloc(layers, sizeof(const char *));
    if (draft->nodes == NULL || draft->node_list == NULL || draft->tensors == NULL ||
        draft->tensor_list == NULL || draft->ops == NULL || draft->values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the ONNX form of %zu layers", layers);
    return GP_OK;
}

static gp_status draft_fill(gp_onnx_draft *draft, gp_error *err)
{
    const gp_ops *ops = &draft->graph->ops[GP_PHASE_INFER];
    const gp_netspec *spec = draft->spec;

    for (uint32_t i = ops->count; i-- > 0;)
        draft->ops[ops->op[i].layer] = &ops->op[i];
    onnx__graph_proto__init(&draft->proto);
    draft->proto.name = text(spec->name);
    draft->proto.node = draft->node_list;
    draft->proto.initializer = draft->tensor_list;
    draft_port_init(&draft->input, "input", &spec->input);
    for (uint32_t i = 0; i < draft->graph->end_count; i++) {
        const uint32_t layer = draft->graph->ends[i].layer;

        draft_port_init(&draft->outputs[i], output_name(draft, layer), &draft->graph->outputs[layer]);
        draft->output_list[i] = &draft->outputs[i].proto;
    }
    draft->proto.input = draft->input.list;
    draft->proto.output = draft->output_list;
    draft->proto.n_input = 1;
    draft->proto.n_output = draft->graph->end_count;
    draft->start = "input";
    draft_normalize(draft, "Mul", spec->scale, draft->scale, 1.0, "input.scale");
    draft_normalize(draft, "Add", spec->offset, draft->offset, 0.0, "input.offset");
    return draft_layers(draft, err);
}

gp_status gp_onnx_draft_new(gp_onnx_draft **out, const gp_netspec *spec, const gp_graph *graph,
                            const float *blob, gp_error *err)
{
    gp_onnx_draft *draft = gp_calloc(1, sizeof(*draft));

    if (draft == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the ONNX form of a network");
    assert(spec->layer_count == graph->spec->layer_count);
    draft->spec = spec;
    draft->graph = graph;
    draft->blob = blob;
    draft->opset = GP_ONNX_OPSET;
    gp_status status = draft_allocate(draft, err);

    if (status == GP_OK)
        status = draft_fill(draft, err);
    if (status != GP_OK) {
        gp_onnx_draft_free(draft);
        return status;
    }
    *out = draft;
    return GP_OK;
}

void gp_onnx_draft_free(gp_onnx_draft *draft)
{
    if (draft == NULL)
        return;
    gp_free(draft->nodes);
    gp_free(draft->node_list);
    gp_free(draft->tensors);
    gp_free(draft->tensor_list);
    gp_free(draft->ops);
    gp_free(draft->values);
    gp_free(draft);
}

Onnx__GraphProto *gp_onnx_draft_graph(gp_onnx_draft *draft)
{
    return &draft->proto;
}

/* ---- the file ---- */

static gp_status pack_model(gp_buffer *buffer, Onnx__GraphProto *graph, int64_t version, const char *network,
                            const char *classes, gp_error *err)
{
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = { &opset };
    Onnx__StringStringEntryProto pair[2], *pairs[] = { &pair[0], &pair[1] };
    const char *const keys[] = { GP_ONNX_KEY_NETWORK, GP_ONNX_KEY_CLASSES };

    for (int i = 0; i < 2; i++) {
        onnx__string_string_entry_proto__init(&pair[i]);
        pair[i].key = text(keys[i]);
        pair[i].value = text(i == 0 ? network : classes);
    }
    opset.domain = text("");
    opset.has_version = model.has_ir_version = true;
    opset.version = version;
    model.ir_version = ONNX__VERSION__IR_VERSION;
    model.producer_name = text("gradpool");
    model.producer_version = text(GP_VERSION);
    model.opset_import = opsets;
    model.n_opset_import = 1;
    model.graph = graph;
    model.metadata_props = pairs;
    model.n_metadata_props = classes == NULL ? 1 : 2;
    size_t bytes = onnx__model_proto__get_packed_size(&model);

    if (bytes > GP_ONNX_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "the model has %zu bytes; an ONNX file ends at %zu (2 GiB)", bytes,
                       GP_ONNX_BYTES_MAX);
    gp_status status = gp_buffer_reserve(buffer, bytes, err);

    if (status != GP_OK)
        return status;
    onnx__model_proto__pack(&model, buffer->data + buffer->bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = '\0';
    return GP_OK;
}

static gp_status write_classes(gp_buffer *json, const char *const *names, uint32_t count, gp_error *err)
{
    gp_json_writer writer;

    gp_json_writer_init(&writer, json, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < count; i++)
        gp_json_put_text(&writer, NULL, names[i]);
    gp_json_end_array(&writer);
    return gp_json_writer_finish(&writer, err);
}

gp_status gp_onnx_write(gp_buffer *buffer, const gp_netspec *spec, const gp_graph *graph, const float *blob,
                        const char *const *class_names, uint32_t class_count, gp_error *err)
{
    gp_onnx_draft *draft = NULL;
    gp_buffer network, classes;
    gp_status status;

    if (class_count != 0 && class_count != graph->class_count)
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " class names for a network of %" PRIu32 " classes",
                       class_count, graph->class_count);
    gp_buffer_init(&network, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&classes, GP_JSON_BYTES_MAX);
    status = gp_netspec_to_json(spec, &network, false, err);
    if (status == GP_OK && class_count != 0)
        status = write_classes(&classes, class_names, class_count, err);
    if (status == GP_OK)
        status = gp_onnx_draft_new(&draft, spec, graph, blob, err);
    if (status == GP_OK)
        status = pack_model(buffer, gp_onnx_draft_graph(draft), draft->opset, gp_buffer_text(&network),
                            class_count == 0 ? NULL : gp_buffer_text(&classes), err);
    gp_onnx_draft_free(draft);
    gp_buffer_deinit(&network);
    gp_buffer_deinit(&classes);
    return status;
}
