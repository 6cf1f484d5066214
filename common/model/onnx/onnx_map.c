/* onnx_map.c -- conversion of an ONNX graph to a netspec: graph walk, layer creation, operator
 * table.
 *
 * Nodes are in topological order and each value has one maker, so one pass is enough. Every name
 * is a value that is not made yet, the network input, a layer output or a constant. A node with
 * only constant inputs makes a constant (onnx_fold.c); any other node makes layers. Linear
 * operations per channel between the input and the first layer become the scale and offset of
 * the netspec. A MatMul becomes an fc layer without a bias, and an Add may supply the bias.
 *
 * ONNX tensors have any rank, netspec tensors are vectors and images. So a value has its own
 * dimensions in addition to those of the layer with its numbers: [N, 3, 4, 8, 8] between a
 * Reshape and a Transpose is a view of 12 channels. A layer that needs the actual shape gets a
 * reshape layer before it (gp_onnx_value_settle). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/onnx/onnx_map.h"

typedef struct map_operator map_operator;
struct map_operator {
    const char *name;
    const char *attributes; /* supported attributes, each followed by a space */
    uint32_t inputs_min, inputs_max;
    gp_onnx_map_fn *map;           /* NULL: constants only */
    gp_onnx_fold_fn *fold;         /* NULL: data only */
    gp_onnx_arithmetic arithmetic; /* 0: none */
};

/* Reject unknown attributes, because they might change the result. */
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

/* Create a netspec layer name: the wanted name, made printable, truncated, and numbered if it is
 * in use. */
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

/* Add a layer with these inputs. *output is set to its output. */
static gp_status add_layer(gp_onnx_mapping *m, const char *wanted, const char *kind, const char *settings,
                           gp_onnx_value *const *inputs, size_t input_count, gp_onnx_value *output,
                           gp_error *err)
{
    const uint32_t layer = m->spec->layer_count;
    gp_infer infer = { .input_count = (uint32_t)input_count };
    char name[GP_NAME_MAX];
    const char *names[GP_LAYER_INPUTS_MAX];

    layer_name(m, wanted, kind, name);
    gp_status status = gp_netspec_add(m->spec, name, kind, settings, err);

    if (status != GP_OK)
        return status;
    for (size_t k = 0; k < input_count; k++) {
        names[k] = inputs[k]->layer == GP_INPUT_LAYER ? "input" : m->spec->layers[inputs[k]->layer].name;
        infer.inputs[k] = gp_onnx_shape_of(m, inputs[k]);
    }
    infer.settings = m->spec->layers[layer].settings;
    status = gp_netspec_connect(m->spec, names, input_count, err);
    if (status == GP_OK)
        status = m->spec->layers[layer].kind->infer(&infer, err);
    if (status == GP_OK)
        status = gp_shape_check(&infer.output, GP_ONNX_SAMPLE_MAX, err);
    if (status != GP_OK)
        return status;
    m->shapes[layer] = infer.output;
    output->role = GP_ONNX_VALUE_LAYER;
    output->layer = layer;
    output->channels_last = false;
    output->rank =
        infer.output.rank == 3 && inputs[0]->rank == 2 && infer.output.dim[2] == 1 ? 2 : infer.output.rank;
    for (uint32_t i = 0; i < output->rank; i++)
        output->dims[i] = infer.output.dim[i];
    return GP_OK;
}

gp_status gp_onnx_node_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             const char *settings, gp_onnx_value *const *inputs, size_t input_count,
                             gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    gp_status status = add_layer(m, node->name, kind, settings, inputs, input_count, made, err);

    if (status == GP_OK)
        m->made[made->layer] = made;
    return status;
}

gp_status gp_onnx_append(gp_onnx_mapping *m, const char *name, const char *kind, const char *settings,
                         gp_onnx_value *x, gp_error *err)
{
    gp_onnx_value input = *x, *const inputs[] = { &input };

    return add_layer(m, name, kind, settings, inputs, 1, x, err);
}

gp_status gp_onnx_append_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                            gp_onnx_value *const *inputs, size_t count, gp_onnx_value *out, gp_error *err)
{
    return add_layer(m, NULL, kind, settings, inputs, count, out, err);
}

gp_status gp_onnx_node_like(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                            const char *settings, gp_onnx_value *x, gp_error *err)
{
    gp_status status = gp_onnx_node_layer(m, node, kind, settings, &x, 1, err);

    if (status == GP_OK)
        gp_onnx_node_shaped(m, node, x);
    return status;
}

void gp_onnx_node_shaped(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);

    made->rank = x->rank;
    memcpy(made->dims, x->dims, sizeof(made->dims));
    made->channels_last = x->channels_last;
}

gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value)
{
    return value->layer == GP_INPUT_LAYER ? m->spec->input : m->shapes[value->layer];
}

void gp_onnx_node_alias(const gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *of)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]), kept = *made;

    *made = *of;
    made->name = kept.name;
    made->uses = kept.uses;
}

/* ---- axis order ----
 *
 * Networks such as ConvNeXt permute images to [N, H, W, C], normalize and multiply over the last
 * axis, and permute back. In a netspec, channels are always first. So a Transpose that moves the
 * channels to the end makes no layer: its output is the same layer with channels_last set.
 * Elementwise operators and operators on the channels keep channels_last, and the Transpose back
 * clears it. Before any other reader, a transpose layer is inserted. */

int64_t gp_onnx_channels(const gp_onnx_value *x)
{
    return x->rank == 0 ? 1 : x->dims[x->channels_last ? x->rank - 1 : 0];
}

/* Append a transpose layer with this axis order. The dimensions in ONNX do not change. */
static gp_status value_transpose(gp_onnx_mapping *m, gp_onnx_value *value, const int64_t order[3],
                                 gp_error *err)
{
    const gp_onnx_value before = *value;
    char settings[48] = "";

    gp_onnx_put_list(settings, sizeof(settings), "order", order, 3);
    gp_status status = gp_onnx_append(m, NULL, "transpose", settings, value, err);

    value->rank = before.rank;
    memcpy(value->dims, before.dims, sizeof(value->dims));
    return status;
}

/* Apply the deferred Transpose, if any. */
static gp_status value_plain(gp_onnx_mapping *m, gp_onnx_value *value, gp_error *err)
{
    static const int64_t last[3] = { 1, 2, 0 }, last_of_two[3] = { 1, 0, 2 };

    if (!value->channels_last)
        return GP_OK;
    gp_status status = value_transpose(m, value, value->rank == 2 ? last_of_two : last, err);

    if (status == GP_OK)
        m->made[value->layer] = value;
    return status;
}

gp_status gp_onnx_value_last(gp_onnx_mapping *m, gp_onnx_value *x, gp_onnx_value *out, gp_error *err)
{
    static const int64_t first[3] = { 2, 0, 1 }, first_of_two[3] = { 1, 0, 2 };
    gp_status status = x->channels_last ? GP_OK : gp_onnx_value_settle(m, x, err);

    *out = *x;
    if (status != GP_OK || x->channels_last)
        return status;
    status = value_transpose(m, out, x->rank == 2 ? first_of_two : first, err);
    out->channels_last = true;
    return status;
}

gp_status gp_onnx_node_data(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                            gp_error *err)
{
    gp_status status = gp_onnx_node_any(m, node, k, out, err);

    return status == GP_OK ? value_plain(m, *out, err) : status;
}

/* ---- views ---- */

/* Return the netspec shape for these dimensions. */
static gp_shape plain_shape(uint32_t rank, const int64_t *dims)
{
    return rank == 1 ? gp_shape1(dims[0]) : gp_shape3(dims[0], dims[1], rank == 2 ? 1 : dims[2]);
}

static void shape_settings(char *settings, size_t bytes, const gp_shape *shape)
{
    *settings = '\0';
    if (shape->rank == 3)
        gp_onnx_put_list(settings, bytes, "shape", shape->dim, 3);
}

gp_status gp_onnx_value_settle(gp_onnx_mapping *m, gp_onnx_value *value, gp_error *err)
{
    char settings[96];
    gp_status status = value_plain(m, value, err);

    if (status != GP_OK)
        return status;
    if (value->rank < 1 || value->rank > 3)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "its input has %" PRIu32 " dimensions; 2 to 4 are supported here", value->rank + 1);
    const gp_shape shape = gp_onnx_shape_of(m, value), wanted = plain_shape(value->rank, value->dims);
    const gp_onnx_value view = *value;

    if (gp_shape_equal(&shape, &wanted))
        return GP_OK;
    shape_settings(settings, sizeof(settings), &wanted);
    status = gp_onnx_append(m, NULL, wanted.rank == 1 ? "flatten" : "reshape", settings, value, err);

    if (status == GP_OK)
        m->made[value->layer] = value;
    value->rank = view.rank; /* [C, L] keeps two dimensions */
    memcpy(value->dims, view.dims, sizeof(value->dims));
    return status;
}

gp_status gp_onnx_node_image(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, gp_onnx_value **out,
                             gp_error *err)
{
    gp_status status = gp_onnx_node_data(m, node, k, out, err);

    return status == GP_OK ? gp_onnx_value_settle(m, *out, err) : status;
}

gp_status gp_onnx_node_view(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x, uint32_t rank,
                            const int64_t *dims, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    gp_status status = GP_OK;
    char settings[96];

    if (rank >= GP_ONNX_RANK_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "over %d dimensions are not supported", GP_ONNX_RANK_MAX);
    if (rank == 1 || rank == 3) {
        const gp_shape shape = plain_shape(rank, dims);

        shape_settings(settings, sizeof(settings), &shape);
        status = gp_onnx_node_layer(m, node, rank == 1 ? "flatten" : "reshape", settings, &x, 1, err);
    } else {
        gp_onnx_node_alias(m, node, x);
    }
    made->rank = rank;
    memcpy(made->dims, dims, rank * sizeof(*dims));
    return status;
}

/* ---- settings ---- */

void gp_onnx_put_list(char *settings, size_t bytes, const char *key, const int64_t *list, size_t count)
{
    size_t used = strlen(settings);

    used += (size_t)snprintf(settings + used, bytes - used, "%s%s=", used == 0 ? "" : ";", key);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(settings + used, bytes - used, "%s%" PRId64, i == 0 ? "" : ",", list[i]);
}

void gp_onnx_put_number(char *settings, size_t bytes, const char *key, double number)
{
    size_t used = strlen(settings);

    snprintf(settings + used, bytes - used, "%s%s=%.17g", used == 0 ? "" : ";", key, number);
}

/* ---- the graph ---- */

#define WINDOW_ATTRIBUTES "auto_pad dilations kernel_shape pads strides "
#define OLD_BROADCAST     "axis broadcast " /* before opset 7 */

static const map_operator operators[] = {
    { "Conv", WINDOW_ATTRIBUTES "group ", 2, 3, gp_onnx_map_conv, NULL, 0 },
    { "Gemm", "alpha beta broadcast transA transB ", 2, 3, gp_onnx_map_gemm, NULL, 0 },
    { "MatMul", "", 2, 2, gp_onnx_map_matmul, NULL, 0 },
    { "Relu", "", 1, 1, gp_onnx_map_function, NULL, 0 },
    { "MaxPool", WINDOW_ATTRIBUTES "ceil_mode storage_order ", 1, 1, gp_onnx_map_pool, NULL, 0 },
    { "AveragePool", WINDOW_ATTRIBUTES "ceil_mode count_include_pad ", 1, 1, gp_onnx_map_pool, NULL, 0 },
    { "GlobalAveragePool", "", 1, 1, gp_onnx_map_global_pool, NULL, 0 },
    { "GlobalMaxPool", "", 1, 1, gp_onnx_map_global_pool, NULL, 0 },
    { "ReduceMean", "axes keepdims noop_with_empty_axes ", 1, 2, gp_onnx_map_reduce_mean, NULL, 0 },
    { "BatchNormalization", "epsilon is_test momentum spatial training_mode ", 5, 5, gp_onnx_map_batchnorm,
      NULL, 0 },
    { "GroupNormalization", "epsilon num_groups stash_type ", 3, 3, gp_onnx_map_groupnorm, NULL, 0 },
    { "InstanceNormalization", "epsilon ", 3, 3, gp_onnx_map_groupnorm, NULL, 0 },
    { "LayerNormalization", "axis epsilon stash_type ", 2, 3, gp_onnx_map_layernorm, NULL, 0 },
    { "LRN", "alpha beta bias size ", 1, 1, gp_onnx_map_lrn, NULL, 0 },
    { "ConvTranspose", WINDOW_ATTRIBUTES "group output_padding output_shape ", 2, 3,
      gp_onnx_map_conv_transpose, NULL, 0 },
    { "Resize",
      "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
      "keep_aspect_ratio_policy mode nearest_mode ",
      2, 4, gp_onnx_map_resize, NULL, 0 },
    { "Upsample", "mode scales ", 1, 2, gp_onnx_map_resize, NULL, 0 },
    { "LeakyRelu", "alpha ", 1, 1, gp_onnx_map_leaky_relu, NULL, 0 },
    { "Clip", "max min ", 1, 3, gp_onnx_map_clip, NULL, 0 },
    { "Sigmoid", "", 1, 1, gp_onnx_map_function, NULL, 0 },
    { "Tanh", "", 1, 1, gp_onnx_map_function, NULL, 0 },
    { "HardSigmoid", "alpha beta ", 1, 1, gp_onnx_map_hard_sigmoid, NULL, 0 },
    { "HardSwish", "", 1, 1, gp_onnx_map_function, NULL, 0 },
    { "Gelu", "approximate ", 1, 1, gp_onnx_map_gelu, NULL, 0 },
    { "Erf", "", 1, 1, gp_onnx_map_erf, NULL, 0 },
    { "Flatten", "axis ", 1, 1, gp_onnx_map_flatten, gp_onnx_fold_flatten, 0 },
    { "Reshape", "allowzero ", 2, 2, gp_onnx_map_reshape, gp_onnx_fold_reshape, 0 },
    { "Squeeze", "axes ", 1, 2, gp_onnx_map_squeeze, gp_onnx_fold_squeeze, 0 },
    { "Unsqueeze", "axes ", 1, 2, gp_onnx_map_squeeze, gp_onnx_fold_unsqueeze, 0 },
    { "Transpose", "perm ", 1, 1, gp_onnx_map_transpose, gp_onnx_fold_transpose, 0 },
    { "Concat", "axis ", 1, GP_ONNX_CONCAT_MAX, gp_onnx_map_concat, gp_onnx_fold_concat, 0 },
    { "Slice", "axes ends starts ", 1, 5, gp_onnx_map_slice, gp_onnx_fold_slice, 0 },
    { "Pad", "mode pads value ", 1, 4, gp_onnx_map_pad, NULL, 0 },
    { "Add", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_ADD },
    { "Sum", "", 1, GP_LAYER_INPUTS_MAX, gp_onnx_map_sum, gp_onnx_fold_arithmetic, GP_ONNX_SUM },
    { "Mul", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_MUL },
    { "Sub", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_SUB },
    { "Div", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_DIV },
    { "Neg", "", 1, 1, gp_onnx_map_arithmetic, gp_onnx_fold_unary, GP_ONNX_NEG },
    { "Pow", "", 2, 2, gp_onnx_map_pow, NULL, 0 },
    { "Sqrt", "", 1, 1, gp_onnx_map_sqrt, gp_onnx_fold_unary, GP_ONNX_SQRT },
    { "Floor", "", 1, 1, NULL, gp_onnx_fold_unary, GP_ONNX_FLOOR },
    { "Ceil", "", 1, 1, NULL, gp_onnx_fold_unary, GP_ONNX_CEIL },
    { "Dropout", "is_test ratio seed ", 1, 3, gp_onnx_map_dropout, NULL, 0 },
    { "Softmax", "axis ", 1, 1, gp_onnx_map_softmax, NULL, 0 },
    { "Identity", "", 1, 1, gp_onnx_map_identity, gp_onnx_fold_identity, 0 },
    { "Shape", "end start ", 1, 1, gp_onnx_map_shape, gp_onnx_fold_shape, 0 },
    { "Constant", "value value_float value_floats value_int value_ints ", 0, 0, NULL, gp_onnx_fold_constant,
      0 },
    { "ConstantOfShape", "value ", 1, 1, NULL, gp_onnx_fold_constant_of_shape, 0 },
    { "Gather", "axis ", 2, 2, gp_onnx_map_gather, gp_onnx_fold_gather, 0 },
    { "Range", "", 3, 3, NULL, gp_onnx_fold_range, 0 },
    { "Cast", "round_mode saturate to ", 1, 1, NULL, gp_onnx_fold_cast, 0 },
    { "Expand", "", 2, 2, NULL, gp_onnx_fold_expand, 0 },
};

enum { OPERATOR_COUNT = sizeof(operators) / sizeof(operators[0]) };

static const map_operator *operator_find(const Onnx__NodeProto *node)
{
    bool standard = node->domain == NULL || *node->domain == '\0' || strcmp(node->domain, "ai.onnx") == 0;

    for (size_t i = 0; i < OPERATOR_COUNT && standard && node->op_type != NULL; i++)
        if (strcmp(operators[i].name, node->op_type) == 0)
            return &operators[i];
    return NULL;
}

static gp_status check_node(const Onnx__NodeProto *node, const map_operator *about, gp_error *err)
{
    if (about == NULL)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "this operator is not supported; docs/onnx.md lists the %d that are", OPERATOR_COUNT);
    if (node->n_input < about->inputs_min || node->n_input > about->inputs_max)
        return gp_fail(err, GP_EUNSUPPORTED, "it has %zu inputs; %" PRIu32 " to %" PRIu32 " are supported",
                       node->n_input, about->inputs_min, about->inputs_max);
    if (node->n_output == 0 || *node->output[0] == '\0')
        return gp_fail(err, GP_ECORRUPT, "it has no output");
    return check_attributes(node, about, err);
}

/* Return the roles of a node's inputs as a bit mask. */
static gp_status input_roles(const gp_onnx_mapping *m, const Onnx__NodeProto *node, unsigned *roles,
                             gp_error *err)
{
    gp_status status = GP_OK;
    gp_onnx_value *input;

    *roles = 0;
    for (size_t k = 0; k < node->n_input && status == GP_OK; k++) {
        status = gp_onnx_node_input(m, node, k, &input, err);
        if (status == GP_OK && input != NULL)
            *roles |= 1u << input->role;
    }
    return status;
}

static gp_status fold_node(gp_onnx_mapping *m, const Onnx__NodeProto *node, const map_operator *about,
                           gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    gp_onnx_tensor *tensor;
    void *block;
    gp_status status;

    if (about->fold == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "all its inputs are constants; it is supported as a layer only");
    status = gp_onnx_store_take(m->store, sizeof(*tensor), &block, err);
    if (status != GP_OK)
        return status;
    tensor = block;
    status = about->fold(m, node, tensor, err);
    if (status != GP_OK)
        return status;
    tensor->name = made->name;
    made->role = tensor->per_sample != 0 ? GP_ONNX_VALUE_INDICES : GP_ONNX_VALUE_CONSTANT;
    made->tensor = tensor;
    return GP_OK;
}

static gp_status map_node(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const map_operator *about = operator_find(node);
    gp_status status = check_node(node, about, err);
    const bool gathers = about != NULL && about->map == gp_onnx_map_gather;
    unsigned roles = 0;

    if (status == GP_OK) {
        m->arithmetic = about->arithmetic;
        status = input_roles(m, node, &roles, err);
    }
    if (status == GP_OK && (roles & ~(1u << GP_ONNX_VALUE_CONSTANT)) == 0)
        status = fold_node(m, node, about, err);
    else if (status == GP_OK && about->map == NULL)
        status = gp_fail(err, GP_EUNSUPPORTED, "it is supported where all its inputs are constants");
    else if (status == GP_OK && !gathers && (roles & 1u << GP_ONNX_VALUE_FLAT))
        status = gp_fail(err, GP_EUNSUPPORTED, "it reads the numbers of all samples as one vector");
    else if (status == GP_OK && !gathers && (roles & 1u << GP_ONNX_VALUE_INDICES))
        status = gp_onnx_map_indices(m, node, err);
    else if (status == GP_OK)
        status = about->map(m, node, err);
    return status == GP_OK || status == GP_ENOMEM ? status : gp_onnx_node_failed(m, node, status, err);
}

/* Map the last node of a pattern as the operator that the pattern implements. */
static gp_status map_fusion(gp_onnx_mapping *m, const Onnx__NodeProto *last, const gp_onnx_fusion *fusion,
                            gp_error *err)
{
    Onnx__AttributeProto epsilon = ONNX__ATTRIBUTE_PROTO__INIT, *attributes[] = { &epsilon };
    Onnx__NodeProto node = *last;
    char *inputs[3];

    epsilon.name = gp_onnx_text("epsilon");
    epsilon.has_f = true;
    epsilon.f = fusion->epsilon;
    node.op_type = gp_onnx_text(fusion->op_type);
    node.input = inputs;
    for (node.n_input = 0; node.n_input < 3 && fusion->inputs[node.n_input] != NULL; node.n_input++)
        inputs[node.n_input] = gp_onnx_text(fusion->inputs[node.n_input]);
    node.attribute = attributes;
    node.n_attribute = *fusion->op_type == 'L' ? 1 : 0;
    return map_node(m, &node, err);
}

/* Map all nodes, constants first: a pattern may depend on a constant that follows its first
 * node. */
static gp_status map_nodes(gp_onnx_mapping *m, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_status status = GP_OK;

    for (size_t n = 0; n < graph->n_node && status == GP_OK; n++)
        if (graph->node[n]->n_input == 0)
            status = map_node(m, graph->node[n], err);
    if (status == GP_OK)
        status = gp_onnx_patterns_find(m, err);
    for (size_t n = 0; n < graph->n_node && status == GP_OK; n++)
        if (m->fusions[n].op_type != NULL)
            status = map_fusion(m, graph->node[n], &m->fusions[n], err);
        else if (graph->node[n]->n_input != 0 && !m->fusions[n].skipped)
            status = map_node(m, graph->node[n], err);
    return status;
}

/* Remove a final softmax that is read only by the network output, directly or flattened: the
 * cross-entropy includes it. A softmax of probabilities is kept, because a cross-entropy after
 * probabilities returns these as scores. */
static void drop_last_softmax(gp_onnx_mapping *m, gp_onnx_value *output)
{
    const uint32_t count = m->spec->layer_count;
    gp_layer *layers = m->spec->layers;

    if (output->role != GP_ONNX_VALUE_LAYER || output->layer + 1 != count)
        return;
    bool flat = count >= 2 && strcmp(layers[count - 1].kind->name, "flatten") == 0 &&
                layers[count - 1].inputs[0] == count - 2;
    const uint32_t softmax = count - (flat ? 2 : 1);

    if (strcmp(layers[softmax].kind->name, "softmax") != 0 ||
        gp_shape_count(&m->shapes[softmax]) != m->shapes[softmax].dim[0] ||
        gp_netspec_gives_probabilities(m->spec, layers[softmax].inputs[0]))
        return;
    if (flat) {
        layers[count - 1].inputs[0] = layers[softmax].inputs[0];
        layers[softmax] = layers[count - 1];
        m->shapes[softmax] = m->shapes[count - 1];
        output->layer = softmax;
    } else {
        output->layer = layers[softmax].inputs[0];
    }
    m->spec->layer_count--;
}

/* Return the loss for an output: a classification loss if the shape permits, otherwise mse. */
static const char *loss_of(const gp_onnx_mapping *m, const gp_onnx_value *scores)
{
    if (m->loss != NULL)
        return m->loss;
    if (scores->dims[0] < 2 || (scores->rank != 1 && scores->rank != 3))
        return "mse";
    return scores->rank == 1 ? "crossentropy" : "pixelclassification";
}

static gp_status map_output(gp_onnx_mapping *m, const char *name, gp_error *err)
{
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *made = gp_onnx_value_find(m, name);
    gp_status status = GP_OK;

    if (made == NULL || (made->role != GP_ONNX_VALUE_LAYER && made->role != GP_ONNX_VALUE_INPUT))
        return gp_fail(err, GP_EINVAL, "the output '%s' is made by no node", gp_onnx_shown(text, name));
    if (made->role == GP_ONNX_VALUE_LAYER && (m->spec->layers[made->layer].kind->flags & GP_KIND_LOSS))
        return GP_OK;
    gp_onnx_value scores = *made;

    while (scores.rank > 1 &&
           scores.dims[scores.rank - 1] == 1) /* [N, 1000, 1, 1] is one score per class too */
        scores.rank--;
    const char *loss = loss_of(m, &scores);
    const gp_kind *kind = gp_kind_find(loss);

    if (kind == NULL || (kind->flags & GP_KIND_LOSS) == 0)
        return gp_fail(err, GP_EINVAL, "'%s' is no loss that a network could end in",
                       gp_onnx_shown(text, loss));
    if (strcmp(kind->onnx, "Softmax") == 0) {
        drop_last_softmax(m, made);
        scores.layer = made->layer;
        if (made->layer != GP_INPUT_LAYER &&
            strcmp(m->spec->layers[made->layer].kind->name, "softmax") == 0 &&
            !gp_netspec_gives_probabilities(m->spec, m->spec->layers[made->layer].inputs[0]))
            return gp_fail(err, GP_EUNSUPPORTED,
                           "the output '%s' is a Softmax that other layers read too; a loss takes its own",
                           gp_onnx_shown(text, name));
    }
    if (scores.rank >= 1 && scores.rank <= 3)
        status = gp_onnx_value_settle(m, &scores, err);
    else
        status = gp_onnx_append(m, NULL, "flatten", NULL, &scores, err);
    return status == GP_OK
               ? gp_onnx_append(m, m->graph->n_output == 1 ? "loss" : name, loss, NULL, &scores, err)
               : status;
}

static gp_status mapping_allocate(gp_onnx_mapping *m, gp_error *err)
{
    /* One entry more than the limit: the operator of the first excess layer fills in its source. */
    const size_t layers = GP_LAYERS_MAX + 1;

    m->sources = gp_calloc(layers, sizeof(*m->sources));
    m->made = gp_calloc(layers, sizeof(gp_onnx_value *));
    m->shapes = gp_calloc(layers, sizeof(*m->shapes));
    if (m->sources == NULL || m->made == NULL || m->shapes == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a model of %zu nodes", m->graph->n_node);
    return GP_OK;
}

static gp_shape input_image(const gp_onnx_value *input)
{
    const int64_t *dims = input->dims;

    return gp_shape3(dims[0], input->rank < 2 ? 1 : dims[1], input->rank < 3 ? 1 : dims[2]);
}

/* Extract several network inputs from one sample, in which they are packed. Each is extracted by
 * its own layers. */
static gp_status unpack_inputs(gp_onnx_mapping *m, gp_onnx_value *inputs, size_t count, gp_error *err)
{
    gp_status status = GP_OK;
    int64_t first = 0;

    for (size_t i = 0; i < count && status == GP_OK; i++) {
        const gp_shape image = input_image(&inputs[i]);
        const int64_t numbers = gp_shape_count(&image); /* checked by input_shape() */
        gp_onnx_value part = { .role = GP_ONNX_VALUE_INPUT,
                               .layer = GP_INPUT_LAYER,
                               .rank = 3,
                               .dims = { m->spec->input.dim[0], 1, 1 } };
        const gp_shape shape = plain_shape(inputs[i].rank, inputs[i].dims);
        char settings[96] = "";

        gp_onnx_put_list(settings, sizeof(settings), "start", (const int64_t[]){ first, 0, 0 }, 3);
        gp_onnx_put_list(settings, sizeof(settings), "size", (const int64_t[]){ numbers, 1, 1 }, 3);
        status = gp_onnx_append(m, NULL, "crop", settings, &part, err);
        shape_settings(settings, sizeof(settings), &shape);
        if (status == GP_OK)
            status = gp_onnx_append(m, inputs[i].name, shape.rank == 1 ? "flatten" : "reshape", settings,
                                    &part, err);
        inputs[i].role = GP_ONNX_VALUE_LAYER;
        inputs[i].layer = part.layer;
        first += numbers;
    }
    return status;
}

/* Set the sample shape: that of the only input, or a vector of the numbers in all inputs. */
static gp_status input_shape(gp_shape *out, const gp_onnx_value *inputs, size_t count, gp_error *err)
{
    gp_status status = GP_OK;
    int64_t all = 0;

    for (size_t i = 0; i < count && status == GP_OK; i++) {
        *out = input_image(&inputs[i]);
        status = gp_shape_check(out, GP_ONNX_SAMPLE_MAX, err);
        if (status == GP_OK)
            all += gp_shape_count(out);
    }
    if (status == GP_OK && count > 1)
        *out = gp_shape3(all, 1, 1);
    return status;
}

static gp_status mapping_run(gp_onnx_mapping *m, gp_error *err)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_onnx_value inputs[GP_INPUTS_MAX];
    size_t count;
    char name[GP_NAME_MAX];
    gp_shape shape;
    gp_status status = gp_onnx_inputs(inputs, &count, &m->batch, graph, err);

    if (status != GP_OK)
        return status;
    if (graph->n_output < 1 || graph->n_output > GP_ENDS_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "the model has %zu outputs; 1 to %d are supported",
                       graph->n_output, GP_ENDS_MAX);
    for (size_t k = 0; k < graph->n_output; k++)
        if (graph->output[k]->name == NULL)
            return gp_fail(err, GP_ECORRUPT, "output %zu of the model has no name", k + 1);
    status = input_shape(&shape, inputs, count, err);
    if (status == GP_OK)
        status = gp_netspec_new(&m->spec, "network", &shape, err);
    if (status != GP_OK)
        return status;
    m->spec->scale_unknown = true; /* until arithmetic before the first layer defines the scale */
    layer_name(m, graph->name, "network", name);
    strcpy(m->spec->name, name);
    status = mapping_allocate(m, err);
    if (status == GP_OK)
        status = count == 1 ? GP_OK : unpack_inputs(m, inputs, count, err);
    if (status == GP_OK)
        status = gp_onnx_values_prepare(m, inputs, count, err);
    if (status == GP_OK)
        status = map_nodes(m, err);
    for (size_t k = 0; k < graph->n_output && status == GP_OK; k++)
        status = map_output(m, graph->output[k]->name, err);
    return status;
}

gp_status gp_onnx_map(gp_netspec **spec, gp_onnx_source **sources, gp_onnx_store *store,
                      const Onnx__GraphProto *graph, int64_t opset, const char *loss, gp_error *err)
{
    gp_onnx_mapping m = {
        .graph = graph, .opset = opset, .loss = loss, .store = store, .scale = { 1.0 }, .normalize_count = 1
    };
    gp_status status = mapping_run(&m, err);

    gp_free(m.values);
    gp_free(m.constants);
    gp_free(m.fusions);
    gp_free(m.made);
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
