/* onnx_draft.c -- the ONNX form of a network in memory: nodes, tensors, inputs and outputs.
 * onnx_draft_layers.c converts layers to nodes. */
#include "common/model/onnx/onnx_draft.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* ---- nodes ---- */

gp_draft_node *gp_draft_add_node(gp_onnx_draft *draft, const char *op_type, const char *name,
                                 const char *output)
{
    gp_draft_node *node = &draft->nodes[draft->proto.n_node];

    onnx__node_proto__init(&node->proto);
    snprintf(node->name, sizeof(node->name), "%s", name);
    snprintf(node->output_name, sizeof(node->output_name), "%s", output);
    node->output = node->output_name;
    node->proto.name = node->name;
    node->proto.op_type = gp_onnx_text(op_type);
    node->proto.input = node->inputs;
    node->proto.output = &node->output;
    node->proto.n_output = 1;
    node->proto.attribute = node->attributes;
    draft->node_list[draft->proto.n_node++] = &node->proto;
    return node;
}

void gp_draft_node_input(gp_draft_node *node, const char *value)
{
    assert(node->proto.n_input < GP_LAYER_INPUTS_MAX);
    node->inputs[node->proto.n_input++] = gp_onnx_text(value);
}

static Onnx__AttributeProto *node_add_attribute(gp_draft_node *node, const char *name,
                                                Onnx__AttributeProto__AttributeType type)
{
    assert(node->proto.n_attribute < NODE_ATTRIBUTES_MAX);
    Onnx__AttributeProto *attribute = &node->attribute[node->proto.n_attribute];

    onnx__attribute_proto__init(attribute);
    attribute->name = gp_onnx_text(name);
    attribute->has_type = true;
    attribute->type = type;
    node->attributes[node->proto.n_attribute++] = attribute;
    return attribute;
}

void gp_draft_set_int(gp_draft_node *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);

    attribute->has_i = true;
    attribute->i = value;
}

void gp_draft_set_ints(gp_draft_node *node, const char *name, const int32_t *values, uint32_t count)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    assert(node->int_count + count <= NODE_INTS_MAX);
    attribute->ints = node->ints + node->int_count;
    attribute->n_ints = count;
    for (uint32_t i = 0; i < count; i++)
        node->ints[node->int_count++] = values[i];
}

void gp_draft_set_text(gp_draft_node *node, const char *name, const char *word)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);

    attribute->has_s = true;
    attribute->s.data = (uint8_t *)gp_onnx_text(word);
    attribute->s.len = strlen(word);
}

void gp_draft_set_float(gp_draft_node *node, const char *name, double value)
{
    Onnx__AttributeProto *attribute =
        node_add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);

    attribute->has_f = true;
    attribute->f = (float)value;
}

/* ---- tensors ---- */

const char *gp_draft_add_tensor(gp_onnx_draft *draft, const char *name, const gp_shape *shape,
                                const float *data)
{
    gp_draft_tensor *tensor = &draft->tensors[draft->proto.n_initializer];

    onnx__tensor_proto__init(&tensor->proto);
    memcpy(tensor->dims, shape->dim, sizeof(tensor->dims));
    tensor->proto.name = gp_onnx_text(name);
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

void gp_draft_add_numbers(gp_onnx_draft *draft, gp_draft_node *node, const char *role, bool whole,
                          uint32_t rank, uint32_t count, const void *numbers)
{
    const gp_shape shape = { .rank = rank, .dim = { count } };
    const uint32_t k = node->constant_count++;

    assert(k < NODE_CONSTANTS_MAX && count <= NODE_LIST_MAX);
    snprintf(node->constant_names[k], sizeof(node->constant_names[k]), "%.*s.%s", GP_NAME_MAX, node->name,
             role);
    gp_draft_node_input(node, gp_draft_add_tensor(draft, node->constant_names[k], &shape, NULL));
    Onnx__TensorProto *tensor = &draft->tensors[draft->proto.n_initializer - 1].proto;

    if (whole)
        tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    tensor->has_raw_data = true;
    tensor->raw_data.data = (uint8_t *)node->constants[k];
    tensor->raw_data.len = count * (whole ? sizeof(int64_t) : sizeof(float));
    memcpy(node->constants[k], numbers, tensor->raw_data.len);
}

/* Add the layer's tensors as inputs of its node. */
void gp_draft_add_parameters(gp_onnx_draft *draft, gp_draft_node *node, uint32_t layer)
{
    for (uint32_t p = 0; p < draft->graph->parameter_count; p++) {
        const gp_parameter *parameter = &draft->graph->parameters[p];

        if (parameter->layer == layer)
            gp_draft_node_input(
                node, gp_draft_add_tensor(draft, parameter->name, &parameter->shape,
                                          draft->blob == NULL ? NULL : draft->blob + parameter->offset));
    }
}

/* ---- layers ---- */

void gp_draft_needs(gp_onnx_draft *draft, int64_t opset)
{
    if (draft->opset < opset)
        draft->opset = opset;
}

const char *gp_draft_layer_input(const gp_onnx_draft *draft, uint32_t layer, uint32_t k)
{
    uint32_t input = draft->spec->layers[layer].inputs[k];

    return input == GP_INPUT_LAYER ? draft->start : draft->values[input];
}

gp_draft_node *gp_draft_add_layer(gp_onnx_draft *draft, uint32_t layer, const char *op_type)
{
    const gp_layer *about = &draft->spec->layers[layer];
    char output[VALUE_NAME_MAX];

    snprintf(output, sizeof(output), "%s.out", about->name);
    gp_draft_node *node = gp_draft_add_node(draft, op_type, about->name, output);

    for (uint32_t k = 0; k < about->input_count; k++)
        gp_draft_node_input(node, gp_draft_layer_input(draft, layer, k));
    draft->values[layer] = node->output_name;
    return node;
}

const char *gp_draft_output_name(const gp_onnx_draft *draft, uint32_t layer)
{
    return draft->graph->end_count == 1 ? "scores" : draft->spec->layers[layer].name;
}

/* ---- inputs and outputs ---- */

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
    gp_draft_node *node = gp_draft_add_node(draft, op_type, name, output);

    gp_draft_node_input(node, draft->start);
    gp_draft_node_input(node, gp_draft_add_tensor(draft, name, &shape, floats));
    draft->start = node->output_name;
}

static void draft_port_init(gp_draft_port *port, const char *name, const gp_shape *shape)
{
    onnx__value_info_proto__init(&port->proto);
    onnx__type_proto__init(&port->type);
    onnx__type_proto__tensor__init(&port->tensor);
    onnx__tensor_shape_proto__init(&port->shape);
    port->list[0] = &port->proto;
    port->proto.name = gp_onnx_text(name);
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
            dim->dim_param = gp_onnx_text("N");
        else
            dim->dim_value = shape->dim[i - 1];
    }
}

static gp_status draft_allocate(gp_onnx_draft *draft, gp_error *err)
{
    const size_t layers = draft->spec->layer_count;
    const size_t nodes = 3 * layers + 2,
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
    draft->proto.name = gp_onnx_text(spec->name);
    draft->proto.node = draft->node_list;
    draft->proto.initializer = draft->tensor_list;
    draft_port_init(&draft->input, "input", &spec->input);
    for (uint32_t i = 0; i < draft->graph->end_count; i++) {
        const uint32_t layer = draft->graph->ends[i].layer;

        draft_port_init(&draft->outputs[i], gp_draft_output_name(draft, layer),
                        &draft->graph->outputs[layer]);
        draft->output_list[i] = &draft->outputs[i].proto;
    }
    draft->proto.input = draft->input.list;
    draft->proto.output = draft->output_list;
    draft->proto.n_input = 1;
    draft->proto.n_output = draft->graph->end_count;
    draft->start = "input";
    draft_normalize(draft, "Mul", spec->scale, draft->scale, 1.0, "input.scale");
    draft_normalize(draft, "Add", spec->offset, draft->offset, 0.0, "input.offset");
    return gp_draft_layers(draft, err);
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
