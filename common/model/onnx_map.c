/* onnx_map.c -- the nodes of an ONNX graph as a netspec: one function per operator, and one table of them.  Those that
 * look at more than their own node are here, those that are simply a layer are in onnx_layers.c.
 *
 * Nodes stand in topological order and each value has one maker, so one pass does: every name is a value that is
 * not made yet, the network's input, a layer's output or a constant.  What stands between the input and the first
 * layer and is linear per channel (Mul, Add, Sub, Div with a constant) is folded into the netspec's scale and
 * offset; a MatMul is an fc layer without a bias, to which an Add of a constant gives one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/model/onnx_map.h"

#define SAMPLE_ELEMENTS_MAX ((int64_t)1 << 28)

typedef struct map_operator map_operator;
struct map_operator {
    const char *name;
    const char *attributes; /* those that map reads, each followed by a space */
    uint32_t inputs_min, inputs_max;
    gp_status (*map)(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err);
};

/* An attribute that we do not read might change what the node computes. */
static gp_status check_attributes(const Onnx__NodeProto *node, const map_operator *about, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];

    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *name = node->attribute[i]->name == NULL ? "" : node->attribute[i]->name;
        size_t bytes = strlen(name);
        bool known = false;

        for (const char *at = about->attributes; *at != '\0' && !known; at += strcspn(at, " ") + 1)
            known = bytes == strcspn(at, " ") && memcmp(at, name, bytes) == 0;
        if (!known)
            return gp_fail(err, GP_EUNSUPPORTED, "its attribute '%s' is not supported; read are: %s",
                           gp_onnx_shown(text, name),
                           *about->attributes == '\0' ? "none" : about->attributes);
    }
    return GP_OK;
}

/* ---- layers ---- */

/* A name that a netspec takes: the node's, made printable, cut, and numbered when it is taken. */
static void layer_name(const gp_onnx_mapping *m, const char *wanted, const char *kind, char name[GP_NAME_MAX])
{
    char stem[GP_NAME_MAX - 12];
    size_t used = 0;

    for (; wanted != NULL && wanted[used] != '\0' && used < sizeof(stem) - 1; used++) {
        char c = wanted[used];

        stem[used] = c <= ' ' || c > '~' || c == '"' || c == '\\' ? '_' : c;
    }
    stem[used] = '\0';
    if (used == 0)
        snprintf(name, GP_NAME_MAX, "%s%" PRIu32, kind, m->spec->layer_count + 1);
    else
        snprintf(name, GP_NAME_MAX, "%s", stem);
    for (uint32_t i = 2; strcmp(name, "input") == 0 || gp_netspec_find(m->spec, name) != m->spec->layer_count;
         i++)
        snprintf(name, GP_NAME_MAX, "%s_%" PRIu32, used == 0 ? kind : stem, i);
}

static gp_status add_layer(gp_onnx_mapping *m, const char *wanted, const char *kind, const char *settings,
                           gp_onnx_value *const *inputs, size_t input_count, gp_error *err)
{
    char name[GP_NAME_MAX];
    const char *names[GP_LAYER_INPUTS_MAX];

    layer_name(m, wanted, kind, name);
    gp_status status = gp_netspec_add(m->spec, name, kind, settings, err);

    if (status != GP_OK)
        return status;
    for (size_t k = 0; k < input_count; k++)
        names[k] = inputs[k]->layer == GP_INPUT_LAYER ? "input" : m->spec->layers[inputs[k]->layer].name;
    return gp_netspec_connect(m->spec, names, input_count, err);
}

gp_status gp_onnx_node_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             const char *settings, gp_onnx_value *const *inputs, size_t input_count,
                             gp_error *err)
{
    uint32_t layer = m->spec->layer_count;
    gp_status status = add_layer(m, node->name, kind, settings, inputs, input_count, err);

    if (status != GP_OK)
        return status;
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);

    made->role = GP_ONNX_VALUE_LAYER;
    made->layer = layer;
    m->expectations[layer].made = made;

    gp_infer infer = { .input_count = (uint32_t)input_count, .settings = m->spec->layers[layer].settings };

    for (size_t k = 0; k < input_count; k++)
        infer.inputs[k] = gp_onnx_shape_of(m, inputs[k]);
    status = m->spec->layers[layer].kind->infer(&infer, err);
    if (status == GP_OK)
        status = gp_shape_check(&infer.output, SAMPLE_ELEMENTS_MAX, err);
    m->shapes[layer] = infer.output;
    return status;
}

gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value)
{
    return value->layer == GP_INPUT_LAYER ? m->spec->input : m->shapes[value->layer];
}

/* The output is another name of the input. */
static void node_alias(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *of)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);

    made->role = of->role;
    made->layer = of->layer;
    made->tensor = of->tensor;
}

/* ---- operators ---- */

static bool bytes_are(const ProtobufCBinaryData *bytes, const char *word)
{
    return bytes->len == strlen(word) && memcmp(bytes->data, word, bytes->len) == 0;
}

/* "kernel=3,3;stride=...": the settings that convolution and pooling share. */
static gp_status node_window(const Onnx__NodeProto *node, const int64_t kernel[2], char *settings,
                             size_t bytes, gp_error *err)
{
    const Onnx__AttributeProto *automatic = gp_onnx_node_attribute(node, "auto_pad");
    int64_t stride[2], dilation[2], padding[4];
    gp_status status = gp_onnx_node_ints(node, "strides", 2, 1, stride, err);

    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "dilations", 2, 1, dilation, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "pads", 4, 0, padding, err);
    if (status != GP_OK)
        return status;
    bool padded = padding[0] != 0 || padding[1] != 0 || padding[2] != 0 || padding[3] != 0;
    bool explicit = automatic == NULL || bytes_are(&automatic->s, "NOTSET");
    bool upper = !explicit && bytes_are(&automatic->s, "SAME_UPPER");
    bool lower = !explicit && bytes_are(&automatic->s, "SAME_LOWER");

    if (!explicit && (padded || (!upper && !lower && !bytes_are(&automatic->s, "VALID"))))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "its auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER, or has pads beside it");
    int used =
        snprintf(settings, bytes,
                 "kernel=%" PRId64 ",%" PRId64 ";stride=%" PRId64 ",%" PRId64 ";padding=%" PRId64 ",%" PRId64
                 ",%" PRId64 ",%" PRId64,
                 kernel[0], kernel[1], stride[0], stride[1], padding[0], padding[1], padding[2], padding[3]);

    snprintf(settings + used, bytes - (size_t)used, ";dilation=%" PRId64 ",%" PRId64 "%s", dilation[0],
             dilation[1],
             upper   ? ";same=upper"
             : lower ? ";same=lower"
                     : "");
    return GP_OK;
}

static gp_status map_conv(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__TensorProto *weight, *bias;
    char window[320], settings[448];
    int64_t groups, kernel[2];
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 4, &weight, err);
    if (status == GP_OK && weight == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 2, 1, &bias, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "group", 1, &groups, err);
    if (status == GP_OK)
        status = gp_onnx_node_attribute(node, "kernel_shape") == NULL
                     ? (memcpy(kernel, weight->dims + 2, sizeof(kernel)), GP_OK)
                     : gp_onnx_node_ints(node, "kernel_shape", 2, 0, kernel, err);
    if (status == GP_OK) /* kernel_shape against the weights: when shapes are known */
        status = node_window(node, kernel, window, sizeof(window), err);
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";bias=%s;%s",
             weight->dims[0], groups, bias == NULL ? "false" : "true", window);
    m->sources[m->spec->layer_count] = (gp_onnx_source){ .tensors = { weight, bias } };
    return gp_onnx_node_layer(m, node, "conv2d", settings, &x, 1, err);
}

static gp_status map_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool average = strcmp(node->op_type, "AveragePool") == 0;
    char settings[384];
    int64_t kernel[2], count_padding, ceil;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "kernel_shape", 2, 0, kernel, err);
    if (status == GP_OK)
        status = node_window(node, kernel, settings, sizeof(settings) - 48, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "ceil_mode", 0, &ceil, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "storage_order", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "count_include_pad", 0, &count_padding, err);
    if (status != GP_OK)
        return status;
    if (average && count_padding != 0)
        strcat(settings, ";count-padding=true");
    if (ceil != 0)
        strcat(settings, ";ceil=true");
    return gp_onnx_node_layer(m, node, average ? "avgpool" : "maxpool", settings, &x, 1, err);
}

/* weight is [inputs, outputs], or [outputs, inputs] when it is not to be transposed. */
static gp_status map_product(gp_onnx_mapping *m, const Onnx__NodeProto *node, const Onnx__TensorProto *weight,
                             bool transposed, const Onnx__TensorProto *bias, gp_onnx_value *x, gp_error *err)
{
    char settings[96];
    uint32_t layer = m->spec->layer_count;

    snprintf(settings, sizeof(settings), "outputs=%" PRId64 ";bias=%s", weight->dims[transposed ? 1 : 0],
             bias == NULL ? "false" : "true");
    m->sources[layer] = (gp_onnx_source){ .tensors = { weight, bias }, .transposed = transposed };
    m->expectations[layer].vector_input = true;
    return gp_onnx_node_layer(m, node, "fc", settings, &x, 1, err);
}

static gp_status map_gemm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__TensorProto *weight, *bias;
    int64_t trans_b;
    float alpha, beta;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 2, &weight, err);
    if (status == GP_OK && weight == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 2, 1, &bias, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "transA", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "transB", 0, &trans_b, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 1.0f, &alpha, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "beta", 1.0f, &beta, err);
    if (status == GP_OK && (alpha != 1.0f || beta != 1.0f))
        status = gp_fail(err, GP_EUNSUPPORTED, "alpha=%g, beta=%g are not supported; 1 and 1 are",
                         (double)alpha, (double)beta);
    return status == GP_OK ? map_product(m, node, weight, trans_b == 0, bias, x, err) : status;
}

static gp_status map_matmul(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__TensorProto *weight;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 2, &weight, err);
    if (status == GP_OK && weight == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    return status == GP_OK ? map_product(m, node, weight, true, NULL, x, err) : status;
}

static gp_status map_relu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    return status == GP_OK ? gp_onnx_node_layer(m, node, "relu", NULL, &x, 1, err) : status;
}

static gp_status map_flatten(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "axis", 1, err);
    return status == GP_OK ? gp_onnx_node_layer(m, node, "flatten", NULL, &x, 1, err) : status;
}

static gp_status map_dropout(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__TensorProto *ratio;
    char settings[48];
    float rate;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "ratio", 0.5f, &rate, err);
    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, 1, &ratio, err);
    if (status != GP_OK)
        return status;
    if (ratio != NULL) {
        if (gp_onnx_count(ratio) != 1 || gp_onnx_floats(ratio) == NULL)
            return gp_fail(err, GP_EUNSUPPORTED, "its ratio is not one float32 number");
        rate = gp_onnx_float_at(gp_onnx_floats(ratio), 0);
    }
    snprintf(settings, sizeof(settings), "rate=%.9g", (double)rate);
    return gp_onnx_node_layer(m, node, "dropout", settings, &x, 1, err);
}

/* The end of a classification, or a layer; before opset 13 it was over all axes from `axis` on. */
static gp_status map_softmax(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t axis;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", m->opset < 13 ? 1 : -1, &axis, err);
    if (status != GP_OK)
        return status;
    const gp_shape shape = gp_onnx_shape_of(m, x);
    bool last = strcmp(node->output[0], m->graph->output[0]->name) == 0 &&
                gp_onnx_value_find(m, node->output[0])->uses == 1;

    axis = axis < 0 ? axis + 1 + (int64_t)shape.rank : axis;
    if (axis != 1)
        return gp_fail(err, GP_EUNSUPPORTED, "axis=%" PRId64 " is not supported; 1, the classes, is", axis);
    if (last && shape.rank == 1)
        return gp_onnx_node_layer(m, node, "crossentropy", NULL, &x, 1, err);
    if (last)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "as the network's output it reads one score per class; put a Flatten before");
    if (m->opset < 13 && gp_shape_count(&shape) != shape.dim[0])
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "over channels and pixels together it is not supported; from opset 13 on it is over channels");
    return gp_onnx_node_layer(m, node, "softmax", NULL, &x, 1, err);
}

static gp_status map_identity(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_input(m, node, 0, &x, err);

    if (status == GP_OK && x == NULL)
        return gp_fail(err, GP_ECORRUPT, "it has no input");
    if (status == GP_OK)
        node_alias(m, node, x);
    return status;
}

static gp_status map_constant(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, "value");
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);

    if (attribute == NULL || attribute->t == NULL)
        return gp_fail(err, GP_ECORRUPT, "it has no value");
    made->role = GP_ONNX_VALUE_CONSTANT;
    made->tensor = attribute->t;
    return GP_OK;
}

/* ---- arithmetic: sums of layers, a bias, the input's scale and offset ---- */

static gp_status map_sum(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];
    gp_status status = GP_OK;

    for (size_t k = 0; k < node->n_input && status == GP_OK; k++)
        status = gp_onnx_node_data(m, node, k, &x[k], err);
    return status == GP_OK ? gp_onnx_node_layer(m, node, "add", NULL, x, node->n_input, err) : status;
}

/* Whether the tensor is one number, or one per channel when aligned with [N, C, H, W] from the right. */
static bool broadcasts(const gp_onnx_mapping *m, const Onnx__TensorProto *tensor)
{
    const int64_t count = gp_onnx_count(tensor);

    if (gp_onnx_floats(tensor) == NULL || tensor->n_dims > 4)
        return false;
    if (count == 1)
        return true;
    return count == m->spec->input.dim[0] && count <= GP_NORMALIZE_MAX && tensor->n_dims >= 3 &&
           tensor->dims[tensor->n_dims - 3] == count;
}

/* (x * scale + offset) op c is again linear in x. */
static void fold(gp_onnx_mapping *m, const char *op, const void *floats, int64_t count)
{
    while (m->normalize_count < count) {
        m->scale[m->normalize_count] = m->scale[0];
        m->offset[m->normalize_count++] = m->offset[0];
    }
    for (uint32_t i = 0; i < m->normalize_count; i++) {
        double c = (double)gp_onnx_float_at(floats, count == 1 ? 0 : i);

        if (strcmp(op, "Add") == 0 || strcmp(op, "Sub") == 0) {
            m->offset[i] += *op == 'A' ? c : -c;
            continue;
        }
        m->scale[i] = *op == 'M' ? m->scale[i] * c : m->scale[i] / c;
        m->offset[i] = *op == 'M' ? m->offset[i] * c : m->offset[i] / c;
    }
}

static gp_status map_normalization(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x,
                                   const gp_onnx_value *c, gp_error *err)
{
    if (m->spec->layer_count != 0 || x->uses != 1)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "arithmetic on the input is supported when all of the network reads its result");
    if (!broadcasts(m, c->tensor))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "arithmetic on the input is supported with one float32 number, or one per channel of up "
            "to %d, shaped [C, 1, 1]",
            GP_NORMALIZE_MAX);
    fold(m, node->op_type, gp_onnx_floats(c->tensor), gp_onnx_count(c->tensor));
    node_alias(m, node, x);
    return gp_netspec_normalize(m->spec, m->scale, m->offset, m->normalize_count, err);
}

/* An Add of [outputs] or [1, outputs] right behind a MatMul that nothing else reads. */
static gp_status map_bias(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x,
                          const gp_onnx_value *c, gp_error *err)
{
    gp_layer *layer = &m->spec->layers[x->layer];
    gp_onnx_source *source = &m->sources[x->layer];
    const Onnx__TensorProto *bias = c->tensor;
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);

    if (strcmp(layer->kind->name, "fc") != 0 || source->tensors[1] != NULL || x->uses != 1 ||
        m->expectations[x->layer].made != x)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "adding a constant is supported on the input, and right behind a MatMul as its bias");
    int64_t outputs = source->tensors[0]->dims[source->transposed ? 1 : 0];

    if (gp_onnx_floats(bias) == NULL || gp_onnx_count(bias) != outputs || bias->n_dims < 1 ||
        bias->n_dims > 2 || bias->dims[bias->n_dims - 1] != outputs)
        return gp_fail(err, GP_EUNSUPPORTED, "a bias of %" PRId64 " float32 numbers is supported here",
                       outputs);
    /* The Add's own name would be as good; the product's is what the weights are called after. */
    const gp_param *param = gp_params_find(layer->kind->settings_table, "bias");
    gp_status status = gp_params_set(param, layer->settings, "true", err);

    if (status != GP_OK)
        return status;
    source->tensors[1] = bias;
    made->role = GP_ONNX_VALUE_LAYER;
    made->layer = x->layer;
    return GP_OK;
}

static gp_status map_arithmetic(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool adds = strcmp(node->op_type, "Add") == 0, commutes = adds || strcmp(node->op_type, "Mul") == 0;
    gp_onnx_value *a, *b;
    gp_status status = gp_onnx_node_input(m, node, 0, &a, err);

    if (status == GP_OK)
        status = gp_onnx_node_input(m, node, 1, &b, err);
    if (status != GP_OK)
        return status;
    if (a == NULL || b == NULL)
        return gp_fail(err, GP_ECORRUPT, "an input is missing");
    if (commutes && a->role == GP_ONNX_VALUE_CONSTANT) {
        gp_onnx_value *constant = a;

        a = b;
        b = constant;
    }
    if (adds && a->role != GP_ONNX_VALUE_CONSTANT && b->role != GP_ONNX_VALUE_CONSTANT)
        return map_sum(m, node, err);
    if (*node->op_type == 'M' && a->role == GP_ONNX_VALUE_LAYER && b->role == GP_ONNX_VALUE_LAYER) {
        gp_onnx_value *const factors[2] = { a, b }, *const other[2] = { b, a };
        const gp_shape first = gp_onnx_shape_of(m, a), second = gp_onnx_shape_of(m, b);
        bool swapped =
            gp_shape_count(&second) > gp_shape_count(&first); /* the second may be one per channel */

        return gp_onnx_node_layer(m, node, "multiply", NULL, swapped ? other : factors, 2, err);
    }
    if (a->role == GP_ONNX_VALUE_INPUT && b->role == GP_ONNX_VALUE_CONSTANT)
        return map_normalization(m, node, a, b, err);
    if (*node->op_type == 'M' && a->role == GP_ONNX_VALUE_LAYER && b->role == GP_ONNX_VALUE_CONSTANT &&
        gp_onnx_count(b->tensor) == 1)
        return gp_onnx_map_scale(m, node, a, b->tensor, err);
    if (adds && a->role == GP_ONNX_VALUE_LAYER && b->role == GP_ONNX_VALUE_CONSTANT)
        return map_bias(m, node, a, b, err);
    return gp_fail(
        err, GP_EUNSUPPORTED,
        "it is supported between the network's input and a constant, and as Mul and Add of layers");
}

/* ---- the graph ---- */

#define WINDOW_ATTRIBUTES "auto_pad dilations kernel_shape pads strides "

static const map_operator operators[] = {
    { "Conv", WINDOW_ATTRIBUTES "group ", 2, 3, map_conv },
    { "Gemm", "alpha beta transA transB ", 2, 3, map_gemm },
    { "MatMul", "", 2, 2, map_matmul },
    { "Relu", "", 1, 1, map_relu },
    { "MaxPool", WINDOW_ATTRIBUTES "ceil_mode storage_order ", 1, 1, map_pool },
    { "AveragePool", WINDOW_ATTRIBUTES "ceil_mode count_include_pad ", 1, 1, map_pool },
    { "GlobalAveragePool", "", 1, 1, gp_onnx_map_global_pool },
    { "GlobalMaxPool", "", 1, 1, gp_onnx_map_global_pool },
    { "BatchNormalization", "epsilon momentum training_mode ", 5, 5, gp_onnx_map_batchnorm },
    { "GroupNormalization", "epsilon num_groups stash_type ", 3, 3, gp_onnx_map_groupnorm },
    { "InstanceNormalization", "epsilon ", 3, 3, gp_onnx_map_groupnorm },
    { "LayerNormalization", "axis epsilon stash_type ", 2, 3, gp_onnx_map_layernorm },
    { "LRN", "alpha beta bias size ", 1, 1, gp_onnx_map_lrn },
    { "ConvTranspose", WINDOW_ATTRIBUTES "group output_padding ", 2, 3, gp_onnx_map_conv_transpose },
    { "Resize", "coordinate_transformation_mode cubic_coeff_a extrapolation_value mode nearest_mode ", 2, 4,
      gp_onnx_map_resize },
    { "Upsample", "mode scales ", 1, 2, gp_onnx_map_resize },
    { "LeakyRelu", "alpha ", 1, 1, gp_onnx_map_leaky_relu },
    { "Clip", "max min ", 1, 3, gp_onnx_map_clip },
    { "Sigmoid", "", 1, 1, gp_onnx_map_function },
    { "Tanh", "", 1, 1, gp_onnx_map_function },
    { "Flatten", "axis ", 1, 1, map_flatten },
    { "Reshape", "allowzero ", 2, 2, gp_onnx_map_reshape },
    { "Transpose", "perm ", 1, 1, gp_onnx_map_transpose },
    { "Concat", "axis ", 1, GP_LAYER_INPUTS_MAX, gp_onnx_map_concat },
    { "Slice", "axes ends starts ", 1, 5, gp_onnx_map_slice },
    { "Pad", "mode pads value ", 1, 3, gp_onnx_map_pad },
    { "Add", "", 2, 2, map_arithmetic },
    { "Sum", "", 2, GP_LAYER_INPUTS_MAX, map_sum },
    { "Mul", "", 2, 2, map_arithmetic },
    { "Sub", "", 2, 2, map_arithmetic },
    { "Div", "", 2, 2, map_arithmetic },
    { "Dropout", "ratio seed ", 1, 3, map_dropout },
    { "Softmax", "axis ", 1, 1, map_softmax },
    { "Identity", "", 1, 1, map_identity },
    { "Constant", "value ", 0, 0, map_constant },
};

enum { OPERATOR_COUNT = sizeof(operators) / sizeof(operators[0]) };

static gp_status map_node(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const map_operator *about = NULL;
    bool standard = node->domain == NULL || *node->domain == '\0' || strcmp(node->domain, "ai.onnx") == 0;
    gp_status status;

    for (size_t i = 0; i < OPERATOR_COUNT && standard && node->op_type != NULL && about == NULL; i++)
        if (strcmp(operators[i].name, node->op_type) == 0)
            about = &operators[i];
    if (about == NULL)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "this operator is not supported; docs/model-files.md lists the %d that are",
                         OPERATOR_COUNT);
    else if (node->n_input < about->inputs_min || node->n_input > about->inputs_max)
        status = gp_fail(err, GP_EUNSUPPORTED, "it has %zu inputs; %" PRIu32 " to %" PRIu32 " are supported",
                         node->n_input, about->inputs_min, about->inputs_max);
    else if (node->n_output == 0 || *node->output[0] == '\0')
        status = gp_fail(err, GP_ECORRUPT, "it has no output");
    else
        status = check_attributes(node, about, err);
    if (status == GP_OK)
        status = about->map(m, node, err);
    return status == GP_OK || status == GP_ENOMEM ? status : gp_onnx_node_failed(m, node, status, err);
}

/* A network that ends in Softmax, Flatten ends in flatten, crossentropy: the softmax must not be taken twice. */
static void drop_last_softmax(gp_onnx_mapping *m)
{
    const uint32_t count = m->spec->layer_count;
    gp_layer *layers = m->spec->layers;

    if (count < 2 || strcmp(layers[count - 1].kind->name, "flatten") != 0 ||
        layers[count - 1].inputs[0] != count - 2 || strcmp(layers[count - 2].kind->name, "softmax") != 0 ||
        gp_shape_count(&m->shapes[count - 2]) != m->shapes[count - 2].dim[0])
        return;
    layers[count - 1].inputs[0] = layers[count - 2].inputs[0];
    layers[count - 2] = layers[count - 1];
    m->expectations[count - 1].made->layer = count - 2;
    m->expectations[count - 2] = m->expectations[count - 1];
    m->shapes[count - 2] = m->shapes[count - 1];
    m->spec->layer_count--;
}

static gp_status map_output(gp_onnx_mapping *m, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];
    const char *name = m->graph->output[0]->name;
    gp_onnx_value *made = gp_onnx_value_find(m, name);

    if (made != NULL && made->role == GP_ONNX_VALUE_LAYER && made->layer + 1 == m->spec->layer_count)
        drop_last_softmax(m);
    if (made == NULL || (made->role != GP_ONNX_VALUE_LAYER && made->role != GP_ONNX_VALUE_INPUT))
        return gp_fail(err, GP_EINVAL, "the output '%s' is made by no node", gp_onnx_shown(text, name));
    if (made->role == GP_ONNX_VALUE_LAYER && (m->spec->layers[made->layer].kind->flags & GP_KIND_LOSS))
        return GP_OK;
    return add_layer(m, "loss", "crossentropy", NULL, &made, 1, err);
}

/* The promises of single nodes, now that shapes are known. */
static gp_status check_expectations(const gp_onnx_mapping *m, gp_error *err)
{
    gp_graph *graph;
    gp_status status = gp_graph_new(&graph, m->spec, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < m->spec->layer_count && status == GP_OK; i++) {
        const gp_layer *layer = &m->spec->layers[i];
        const gp_onnx_expectation *expected = &m->expectations[i];

        if (expected->vector_input &&
            (layer->inputs[0] == GP_INPUT_LAYER || graph->outputs[layer->inputs[0]].rank != 1))
            status = gp_fail(err, GP_EUNSUPPORTED,
                             "%s multiplies a matrix with images; put a Flatten before it", layer->name);
    }
    gp_graph_free(graph);
    return status;
}

gp_status gp_onnx_input(const char **name, gp_shape *shape, int64_t *batch, const Onnx__GraphProto *graph,
                        gp_error *err)
{
    const Onnx__ValueInfoProto *input = NULL;
    char text[GP_ONNX_SHOWN_BYTES];

    for (size_t i = 0; i < graph->n_input; i++) {
        bool constant = graph->input[i]->name == NULL; /* before IR version 4 initializers are inputs too */

        for (size_t k = 0; k < graph->n_initializer && !constant; k++)
            constant = graph->initializer[k]->name != NULL &&
                       strcmp(graph->initializer[k]->name, graph->input[i]->name) == 0;
        if (constant)
            continue;
        if (input != NULL)
            return gp_fail(err, GP_EUNSUPPORTED, "the model has several inputs; one is supported");
        input = graph->input[i];
    }
    if (input == NULL)
        return gp_fail(err, GP_EINVAL, "the model has no input");
    const Onnx__TypeProto *type = input->type;
    const Onnx__TypeProto__Tensor *tensor =
        type != NULL && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ? type->tensor_type : NULL;

    if (tensor == NULL || tensor->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ||
        tensor->shape == NULL || tensor->shape->n_dim != 4)
        return gp_fail(err, GP_EUNSUPPORTED, "the input '%s' is not float32 of shape [N, C, H, W]",
                       gp_onnx_shown(text, input->name));
    *shape = gp_shape3(0, 0, 0);
    for (size_t i = 0; i < 4; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        bool known = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;

        if (i == 0)
            *batch = known && dim->dim_value > 0 ? dim->dim_value : 0;
        else if (known)
            shape->dim[i - 1] = dim->dim_value;
        else
            return gp_fail(
                err, GP_EUNSUPPORTED,
                "dimension %zu of the input '%s' is open; channels, height and width must be numbers", i + 1,
                gp_onnx_shown(text, input->name));
    }
    *name = input->name;
    return GP_OK;
}

static gp_status mapping_run(gp_onnx_mapping *m, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    const char *input;
    gp_shape shape;
    char name[GP_NAME_MAX];
    size_t layers = graph->n_node + 1;
    gp_status status = gp_onnx_input(&input, &shape, &m->batch, graph, err);

    if (status != GP_OK)
        return status;
    if (graph->n_output != 1 || graph->output[0]->name == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "the model has %zu outputs; one is supported", graph->n_output);
    status = gp_netspec_new(&m->spec, "network", &shape, err);
    if (status != GP_OK)
        return status;
    layer_name(m, graph->name, "network", name);
    strcpy(m->spec->name, name);
    m->sources = gp_calloc(layers, sizeof(*m->sources));
    m->expectations = gp_calloc(layers, sizeof(*m->expectations));
    m->shapes = gp_calloc(layers, sizeof(*m->shapes));
    if (m->sources == NULL || m->expectations == NULL || m->shapes == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a model of %zu nodes", graph->n_node);
    status = gp_onnx_values_prepare(m, input, err);
    for (size_t n = 0; n < graph->n_node && status == GP_OK; n++)
        status = map_node(m, graph->node[n], err);
    if (status == GP_OK)
        status = map_output(m, err);
    return status == GP_OK ? check_expectations(m, err) : status;
}

gp_status gp_onnx_map(gp_netspec **spec, gp_onnx_source **sources, const Onnx__GraphProto *graph,
                      int64_t opset, gp_error *err)
{
    gp_onnx_mapping m = { .graph = graph, .opset = opset, .scale = { 1.0 }, .normalize_count = 1 };
    gp_status status = mapping_run(&m, err);

    gp_free(m.values);
    gp_free(m.expectations);
    gp_free(m.shapes);
    if (status != GP_OK) {
        gp_netspec_free(m.spec);
        gp_free(m.sources);
        return status;
    }
    *spec = m.spec;
    *sources = m.sources;
    return GP_OK;
}
