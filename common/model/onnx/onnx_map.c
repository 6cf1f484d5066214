/* onnx_map.c -- conversion of an ONNX graph to a netspec: graph walk, layer creation, operator
 * table.
 *
 * Nodes are in topological order and each value has one maker, so one pass is enough. Every name
 * is a value that is not made yet, the network input, a layer output or a constant. A node with
 * only constant inputs makes a constant (onnx_fold.c); any other node makes layers. Linear
 * operations per channel between the input and the first layer become the scale and offset of
 * the netspec. A MatMul becomes an fc layer without a bias, and an Add may supply the bias.
 *
 * ONNX tensors have any rank, netspec tensors are vectors and images. So a value has separate
 * dimensions in addition to those of the layer with its numbers: [N, 3, 4, 8, 8] between a Reshape
 * and a Transpose is a view of 12 channels. A layer that needs the actual shape gets a reshape
 * layer before it (gp_onnx_value_settle).
 *
 * The file stays whole: the operator table and the walk share the mapping state. */
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
    const char *pattern;           /* what it is supported for besides (onnx_pattern.c); NULL: nothing */
};

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
static void add_layer(gp_onnx_mapping *m, const char *wanted, const char *kind, const char *settings,
                      gp_onnx_value *const *inputs, size_t input_count, gp_onnx_value *output)
{
    const uint32_t layer = m->spec->layer_count;
    gp_infer infer = { .input_count = (uint32_t)input_count };
    char name[GP_NAME_MAX];
    const char *names[GP_LAYER_INPUTS_MAX];

    if (m->status != GP_OK)
        return;
    layer_name(m, wanted, kind, name);
    m->status = gp_netspec_add(m->spec, name, kind, settings, m->err);
    if (m->status != GP_OK)
        return;
    for (size_t k = 0; k < input_count; k++) {
        names[k] = inputs[k]->layer == GP_INPUT_LAYER ? "input" : m->spec->layers[inputs[k]->layer].name;
        infer.inputs[k] = gp_onnx_shape_of(m, inputs[k]);
    }
    infer.kind = m->spec->layers[layer].kind;
    infer.settings = m->spec->layers[layer].settings;
    m->status = gp_netspec_connect(m->spec, names, input_count, m->err);
    if (m->status == GP_OK)
        m->status = gp_kind_infer(&infer, m->err);
    if (m->status == GP_OK)
        m->status = gp_shape_check(&infer.output, GP_ONNX_SAMPLE_MAX, m->err);
    if (m->status != GP_OK)
        return;
    const bool signal = infer.output.rank == 3 && inputs[0]->rank == 2 && infer.output.dim[2] == 1;

    m->shapes[layer] = infer.output;
    output->role = GP_ONNX_VALUE_LAYER;
    output->layer = layer;
    output->channels_last = false;
    output->rank = signal ? 2 : infer.output.rank;
    for (uint32_t i = 0; i < output->rank; i++)
        output->dims[i] = infer.output.dim[i];
}

void gp_onnx_node_layer_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                           gp_onnx_value *const *inputs, size_t count)
{
    add_layer(m, m->node->name, kind, settings, inputs, count, m->output);
    if (m->status == GP_OK)
        m->made[m->output->layer] = m->output;
}

void gp_onnx_node_layer(gp_onnx_mapping *m, const char *kind, const char *settings, const gp_onnx_value *x)
{
    gp_onnx_value input = *x;

    gp_onnx_node_layer_of(m, kind, settings, (gp_onnx_value *const[]){ &input }, 1);
}

void gp_onnx_append(gp_onnx_mapping *m, const char *name, const char *kind, const char *settings,
                    gp_onnx_value *x)
{
    gp_onnx_value input = *x;

    add_layer(m, name, kind, settings, (gp_onnx_value *const[]){ &input }, 1, x);
}

void gp_onnx_append_of(gp_onnx_mapping *m, const char *kind, const char *settings,
                       gp_onnx_value *const *inputs, size_t count, gp_onnx_value *out)
{
    add_layer(m, NULL, kind, settings, inputs, count, out);
}

void gp_onnx_node_like(gp_onnx_mapping *m, const char *kind, const char *settings, const gp_onnx_value *x)
{
    gp_onnx_node_layer(m, kind, settings, x);
    gp_onnx_node_shaped(m, x);
}

void gp_onnx_node_shaped(gp_onnx_mapping *m, const gp_onnx_value *x)
{
    m->output->rank = x->rank;
    memcpy(m->output->dims, x->dims, sizeof(x->dims));
    m->output->channels_last = x->channels_last;
}

gp_shape gp_onnx_shape_of(const gp_onnx_mapping *m, const gp_onnx_value *value)
{
    return value->layer == GP_INPUT_LAYER ? m->spec->input : m->shapes[value->layer];
}

void gp_onnx_node_alias(gp_onnx_mapping *m, const gp_onnx_value *of)
{
    const gp_onnx_value kept = *m->output;

    *m->output = *of;
    m->output->name = kept.name;
    /* A single reader of the new name is not the only reader of the numbers. */
    if (kept.uses > of->uses)
        m->output->uses = kept.uses;
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

void gp_onnx_append_transpose(gp_onnx_mapping *m, gp_onnx_value *x, const int64_t order[3])
{
    char settings[48] = "";

    gp_onnx_put_list(settings, sizeof(settings), "order", order, 3);
    gp_onnx_append(m, NULL, "transpose", settings, x);
}

/* Append a transpose layer that swaps the deferred axis order of a value: forth, or back. The
 * dimensions in ONNX do not change. */
static void value_transpose(gp_onnx_mapping *m, gp_onnx_value *value, bool to_last)
{
    static const int64_t orders[2][3] = { { 1, 2, 0 }, { 2, 0, 1 } }, swapped[3] = { 1, 0, 2 };
    const gp_onnx_value before = *value;

    gp_onnx_append_transpose(m, value, before.rank == 2 ? swapped : orders[to_last]);
    value->rank = before.rank;
    memcpy(value->dims, before.dims, sizeof(value->dims));
    value->channels_last = to_last;
}

/* Apply the deferred Transpose, if any. */
static void value_plain(gp_onnx_mapping *m, gp_onnx_value *value)
{
    if (!value->channels_last || m->status != GP_OK)
        return;
    value_transpose(m, value, false);
    if (m->status == GP_OK)
        m->made[value->layer] = value;
}

gp_onnx_value gp_onnx_value_last(gp_onnx_mapping *m, gp_onnx_value *x)
{
    if (!x->channels_last)
        gp_onnx_value_settle(m, x);
    gp_onnx_value last = *x;

    if (!x->channels_last)
        value_transpose(m, &last, true);
    return last;
}

gp_onnx_value *gp_onnx_node_data(gp_onnx_mapping *m, size_t k)
{
    gp_onnx_value *x = gp_onnx_node_any(m, k);

    value_plain(m, x);
    return x;
}

/* ---- views ---- */

/* Return the netspec shape for these dimensions. */
static gp_shape plain_shape(uint32_t rank, const int64_t *dims)
{
    return rank == 1 ? gp_shape1(dims[0]) : gp_shape3(dims[0], dims[1], rank == 2 ? 1 : dims[2]);
}

/* Return the kind of layer that gives a sample this shape, and write its settings. */
static const char *shape_layer(char *settings, size_t bytes, const gp_shape *shape)
{
    *settings = '\0';
    if (shape->rank == 1)
        return "flatten";
    gp_onnx_put_list(settings, bytes, "shape", shape->dim, 3);
    return "reshape";
}

void gp_onnx_append_shape(gp_onnx_mapping *m, gp_onnx_value *x, uint32_t rank, const int64_t *dims)
{
    const gp_shape have = gp_onnx_shape_of(m, x), wanted = plain_shape(rank, dims);
    char settings[96];

    if (!gp_shape_equal(&have, &wanted))
        gp_onnx_append(m, NULL, shape_layer(settings, sizeof(settings), &wanted), settings, x);
}

void gp_onnx_value_settle(gp_onnx_mapping *m, gp_onnx_value *value)
{
    value_plain(m, value);
    if (value->rank < 1 || value->rank > 3)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its input has %" PRIu32 " dimensions; must have 2 to 4",
                     value->rank + 1);
    if (m->status != GP_OK)
        return;
    const gp_onnx_value view = *value;

    gp_onnx_append_shape(m, value, view.rank, view.dims);
    if (m->status == GP_OK && value->layer != view.layer)
        m->made[value->layer] = value;
    value->rank = view.rank; /* [C, L] keeps two dimensions */
    memcpy(value->dims, view.dims, sizeof(value->dims));
}

gp_onnx_value *gp_onnx_node_image(gp_onnx_mapping *m, size_t k)
{
    gp_onnx_value *x = gp_onnx_node_any(m, k);

    gp_onnx_value_settle(m, x);
    return x;
}

void gp_onnx_node_view(gp_onnx_mapping *m, const gp_onnx_value *x, uint32_t rank, const int64_t *dims)
{
    char settings[96];

    if (rank >= GP_ONNX_RANK_MAX)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "more than %d dimensions are not supported", GP_ONNX_RANK_MAX);
    if (m->status != GP_OK)
        return;
    if (rank == 1 || rank == 3) {
        const gp_shape shape = plain_shape(rank, dims);
        const char *kind = shape_layer(settings, sizeof(settings), &shape);

        gp_onnx_node_layer(m, kind, settings, x);
    } else {
        gp_onnx_node_alias(m, x);
    }
    m->output->rank = rank;
    memcpy(m->output->dims, dims, rank * sizeof(*dims));
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

static void map_identity(gp_onnx_mapping *m)
{
    gp_onnx_node_alias(m, gp_onnx_node_any(m, 0));
}

/* Return the dimensions of a layer as a constant. */
static void map_shape(gp_onnx_mapping *m)
{
    gp_onnx_node_fold(m, gp_onnx_fold_shape);
}

#define WINDOW_ATTRIBUTES "auto_pad dilations kernel_shape pads strides "
#define OLD_BROADCAST     "axis broadcast " /* before opset 7 */

static const map_operator operators[] = {
    { "Conv", WINDOW_ATTRIBUTES "group ", 2, 3, gp_onnx_map_conv, NULL, 0, NULL },
    { "Gemm", "alpha beta broadcast transA transB ", 2, 3, gp_onnx_map_gemm, NULL, 0, NULL },
    { "MatMul", "", 2, 2, gp_onnx_map_matmul, NULL, 0, NULL },
    { "Relu", "", 1, 1, gp_onnx_map_function, NULL, 0, NULL },
    { "MaxPool", WINDOW_ATTRIBUTES "ceil_mode storage_order ", 1, 1, gp_onnx_map_pool, NULL, 0, NULL },
    { "AveragePool", WINDOW_ATTRIBUTES "ceil_mode count_include_pad ", 1, 1, gp_onnx_map_pool, NULL, 0,
      NULL },
    { "GlobalAveragePool", "", 1, 1, gp_onnx_map_pool, NULL, 0, NULL },
    { "GlobalMaxPool", "", 1, 1, gp_onnx_map_pool, NULL, 0, NULL },
    { "ReduceMean", "axes keepdims noop_with_empty_axes ", 1, 2, gp_onnx_map_reduce_mean, NULL, 0, NULL },
    { "BatchNormalization", "epsilon is_test momentum spatial training_mode ", 5, 5, gp_onnx_map_batchnorm,
      NULL, 0, NULL },
    { "GroupNormalization", "epsilon num_groups stash_type ", 3, 3, gp_onnx_map_groupnorm, NULL, 0, NULL },
    { "InstanceNormalization", "epsilon ", 3, 3, gp_onnx_map_groupnorm, NULL, 0, NULL },
    { "LayerNormalization", "axis epsilon stash_type ", 2, 3, gp_onnx_map_layernorm, NULL, 0, NULL },
    { "LRN", "alpha beta bias size ", 1, 1, gp_onnx_map_lrn, NULL, 0, NULL },
    { "ConvTranspose", WINDOW_ATTRIBUTES "group output_padding output_shape ", 2, 3,
      gp_onnx_map_conv_transpose, NULL, 0, NULL },
    { "Resize",
      "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
      "keep_aspect_ratio_policy mode nearest_mode ",
      2, 4, gp_onnx_map_resize, NULL, 0, NULL },
    { "Upsample", "mode scales ", 1, 2, gp_onnx_map_resize, NULL, 0, NULL },
    { "LeakyRelu", "alpha ", 1, 1, gp_onnx_map_leaky_relu, NULL, 0, NULL },
    { "Clip", "max min ", 1, 3, gp_onnx_map_clip, NULL, 0, NULL },
    { "Sigmoid", "", 1, 1, gp_onnx_map_function, NULL, 0, NULL },
    { "Tanh", "", 1, 1, gp_onnx_map_function, NULL, 0, NULL },
    { "HardSigmoid", "alpha beta ", 1, 1, gp_onnx_map_hard_sigmoid, NULL, 0, NULL },
    { "HardSwish", "", 1, 1, gp_onnx_map_function, NULL, 0, NULL },
    { "Gelu", "approximate ", 1, 1, gp_onnx_map_gelu, NULL, 0, NULL },
    { "Erf", "", 1, 1, NULL, NULL, 0, "only in x * (1 + erf(x / sqrt(2))) / 2" },
    { "Flatten", "axis ", 1, 1, gp_onnx_map_flatten, gp_onnx_fold_flatten, 0, NULL },
    { "Reshape", "allowzero ", 2, 2, gp_onnx_map_reshape, gp_onnx_fold_reshape, 0, NULL },
    { "Squeeze", "axes ", 1, 2, gp_onnx_map_squeeze, gp_onnx_fold_squeeze, 0, NULL },
    { "Unsqueeze", "axes ", 1, 2, gp_onnx_map_squeeze, gp_onnx_fold_unsqueeze, 0, NULL },
    { "Transpose", "perm ", 1, 1, gp_onnx_map_transpose, gp_onnx_fold_transpose, 0, NULL },
    { "Concat", "axis ", 1, GP_ONNX_CONCAT_MAX, gp_onnx_map_concat, gp_onnx_fold_concat, 0, NULL },
    { "Slice", "axes ends starts ", 1, 5, gp_onnx_map_slice, gp_onnx_fold_slice, 0, NULL },
    { "Pad", "mode pads value ", 1, 4, gp_onnx_map_pad, NULL, 0, NULL },
    { "Add", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_ADD, NULL },
    { "Sum", "", 1, GP_LAYER_INPUTS_MAX, gp_onnx_map_sum, gp_onnx_fold_arithmetic, GP_ONNX_SUM, NULL },
    { "Mul", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_MUL, NULL },
    { "Sub", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_SUB, NULL },
    { "Div", OLD_BROADCAST, 2, 2, gp_onnx_map_arithmetic, gp_onnx_fold_arithmetic, GP_ONNX_DIV, NULL },
    { "Neg", "", 1, 1, gp_onnx_map_arithmetic, gp_onnx_fold_unary, GP_ONNX_NEG, NULL },
    { "Pow", "", 2, 2, NULL, NULL, 0, "only as the square in a layer normalization" },
    { "Sqrt", "", 1, 1, NULL, gp_onnx_fold_unary, GP_ONNX_SQRT,
      "only for constants, and as the deviation in a layer normalization" },
    { "Floor", "", 1, 1, NULL, gp_onnx_fold_unary, GP_ONNX_FLOOR, NULL },
    { "Ceil", "", 1, 1, NULL, gp_onnx_fold_unary, GP_ONNX_CEIL, NULL },
    { "Dropout", "is_test ratio seed ", 1, 3, gp_onnx_map_dropout, NULL, 0, NULL },
    { "Softmax", "axis ", 1, 1, gp_onnx_map_softmax, NULL, 0, NULL },
    { "Identity", "", 1, 1, map_identity, gp_onnx_fold_identity, 0, NULL },
    { "Shape", "end start ", 1, 1, map_shape, gp_onnx_fold_shape, 0, NULL },
    { "Constant", "value value_float value_floats value_int value_ints ", 0, 0, NULL, gp_onnx_fold_constant,
      0, NULL },
    { "ConstantOfShape", "value ", 1, 1, NULL, gp_onnx_fold_constant_of_shape, 0, NULL },
    { "Gather", "axis ", 2, 2, gp_onnx_map_gather, gp_onnx_fold_gather, 0, NULL },
    { "Range", "", 3, 3, NULL, gp_onnx_fold_range, 0, NULL },
    { "Cast", "round_mode saturate to ", 1, 1, NULL, gp_onnx_fold_cast, 0, NULL },
    { "Expand", "", 2, 2, NULL, gp_onnx_fold_expand, 0, NULL },
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

static void check_node(gp_onnx_mapping *m, const map_operator *about)
{
    const Onnx__NodeProto *node = m->node;
    char text[GP_ONNX_SHOWN_BYTES];

    if (about == NULL) {
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "this operator is not supported; docs/onnx.md lists the %d supported ones",
                     OPERATOR_COUNT);
        return;
    }
    if (node->n_input < about->inputs_min || node->n_input > about->inputs_max)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it has %zu inputs; must have %" PRIu32 " to %" PRIu32,
                     node->n_input, about->inputs_min, about->inputs_max);
    if (node->n_output == 0 || *node->output[0] == '\0')
        gp_onnx_fail(m, GP_ECORRUPT, "it has no output");
    /* Reject unknown attributes, because they might change the result. */
    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *name = node->attribute[i]->name == NULL ? "" : node->attribute[i]->name;
        size_t bytes = strlen(name);
        bool known = false;

        for (const char *at = about->attributes; *at != '\0' && !known; at += strcspn(at, " ") + 1)
            known = bytes == strcspn(at, " ") && memcmp(at, name, bytes) == 0;
        if (!known)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "its attribute '%s' is not supported; supported: %s",
                         gp_onnx_shown(text, name), *about->attributes == '\0' ? "none" : about->attributes);
    }
}

void gp_onnx_node_fold(gp_onnx_mapping *m, gp_onnx_fold_fn *fold)
{
    gp_onnx_tensor tensor = { .name = "" };
    void *block = NULL;

    fold(m, &tensor);
    if (m->status == GP_OK)
        m->status = gp_onnx_store_take(m->store, sizeof(tensor), &block, m->err);
    if (m->status != GP_OK)
        return;
    tensor.name = m->output->name;
    memcpy(block, &tensor, sizeof(tensor));
    m->output->role = tensor.per_sample != 0 ? GP_ONNX_VALUE_INDICES : GP_ONNX_VALUE_CONSTANT;
    m->output->tensor = block;
}

static void map_node(gp_onnx_mapping *m, const Onnx__NodeProto *node)
{
    const map_operator *about = operator_find(node);
    const bool gathers = about != NULL && about->map == gp_onnx_map_gather;
    char name[GP_ONNX_SHOWN_BYTES], type[GP_ONNX_SHOWN_BYTES];
    const char *called = node->name;

    m->node = node;
    check_node(m, about);
    unsigned roles = 0; /* roles of the node's inputs, as a bit mask */

    for (size_t k = 0; k < node->n_input; k++) {
        const gp_onnx_value *input = gp_onnx_node_input(m, k);

        roles |= input == NULL ? 0 : 1u << input->role;
    }
    if (m->status == GP_OK) {
        m->arithmetic = about->arithmetic;
        m->output = gp_onnx_value_find(m, node->output[0]);
        if ((roles & ~(1u << GP_ONNX_VALUE_CONSTANT)) == 0 && about->fold == NULL)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "all its inputs are constants, but it needs a layer as input");
        else if ((roles & ~(1u << GP_ONNX_VALUE_CONSTANT)) == 0)
            gp_onnx_node_fold(m, about->fold);
        else if (about->map == NULL)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "it is supported %s",
                         about->pattern != NULL ? about->pattern : "only for constant inputs");
        else if (!gathers && (roles & 1u << GP_ONNX_VALUE_FLAT))
            gp_onnx_fail(m, GP_EUNSUPPORTED, "it reads the numbers of all samples as one vector");
        else if (!gathers && (roles & 1u << GP_ONNX_VALUE_INDICES))
            gp_onnx_map_indices(m);
        else
            about->map(m);
    }
    if (m->status == GP_OK || m->status == GP_ENOMEM)
        return;
    if ((called == NULL || *called == '\0') && node->n_output > 0)
        called = node->output[0];
    gp_error_prefix(m->err, "node '%s' (%s, opset %" PRId64 ")", gp_onnx_shown(name, called),
                    gp_onnx_shown(type, node->op_type), m->opset);
}

/* Map the last node of a pattern as the operator that the pattern implements. */
static void map_fusion(gp_onnx_mapping *m, const Onnx__NodeProto *last, const gp_onnx_fusion *fusion)
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
    map_node(m, &node);
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

static void map_output(gp_onnx_mapping *m, const char *name)
{
    char text[GP_ONNX_SHOWN_BYTES];
    gp_onnx_value *made = gp_onnx_value_find(m, name);

    if (made == NULL || (made->role != GP_ONNX_VALUE_LAYER && made->role != GP_ONNX_VALUE_INPUT)) {
        gp_onnx_fail(m, GP_EINVAL, "no node computes the output '%s'", gp_onnx_shown(text, name));
        return;
    }
    if (made->role == GP_ONNX_VALUE_LAYER && (m->spec->layers[made->layer].kind->flags & GP_KIND_LOSS))
        return;
    gp_onnx_value scores = *made;

    while (scores.rank > 1 &&
           scores.dims[scores.rank - 1] == 1) /* [N, 1000, 1, 1] is one score per class too */
        scores.rank--;
    const char *loss = m->loss != NULL                                                ? m->loss
                       : scores.dims[0] < 2 || (scores.rank != 1 && scores.rank != 3) ? "mse"
                       : scores.rank == 1                                             ? "crossentropy"
                                                                                      : "pixelclassification";
    const gp_kind *kind = gp_kind_find(loss);

    if (kind == NULL || (kind->flags & GP_KIND_LOSS) == 0) {
        gp_onnx_fail(m, GP_EINVAL, "'%s' is not a supported loss", gp_onnx_shown(text, loss));
        return;
    }
    if (strcmp(kind->onnx, "Softmax") == 0) {
        drop_last_softmax(m, made);
        scores.layer = made->layer;
        if (made->layer != GP_INPUT_LAYER &&
            strcmp(m->spec->layers[made->layer].kind->name, "softmax") == 0 &&
            !gp_netspec_gives_probabilities(m->spec, m->spec->layers[made->layer].inputs[0]))
            gp_onnx_fail(m, GP_EUNSUPPORTED,
                         "the output '%s' is a Softmax that other layers also read; a loss needs its own",
                         gp_onnx_shown(text, name));
    }
    if (scores.rank >= 1 && scores.rank <= 3)
        gp_onnx_value_settle(m, &scores);
    else
        gp_onnx_append(m, NULL, "flatten", NULL, &scores);
    gp_onnx_append(m, m->graph->n_output == 1 ? "loss" : name, loss, NULL, &scores);
}

static gp_shape input_image(const gp_onnx_value *input)
{
    const int64_t *dims = input->dims;

    return gp_shape3(dims[0], input->rank < 2 ? 1 : dims[1], input->rank < 3 ? 1 : dims[2]);
}

/* Extract several network inputs from one sample, in which they are packed. Each is extracted by
 * separate layers. */
static void unpack_inputs(gp_onnx_mapping *m, gp_onnx_value *inputs, size_t count)
{
    int64_t first = 0;

    for (size_t i = 0; i < count; i++) {
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
        gp_onnx_append(m, NULL, "crop", settings, &part);
        const char *kind = shape_layer(settings, sizeof(settings), &shape);

        gp_onnx_append(m, inputs[i].name, kind, settings, &part);
        inputs[i].role = GP_ONNX_VALUE_LAYER;
        inputs[i].layer = part.layer;
        first += numbers;
    }
}

/* Return the sample shape: that of the only input, or a vector of the numbers in all inputs. */
static gp_shape input_shape(gp_onnx_mapping *m, const gp_onnx_value *inputs, size_t count)
{
    gp_shape shape = { 0 };
    int64_t all = 0;

    for (size_t i = 0; i < count && m->status == GP_OK; i++) {
        shape = input_image(&inputs[i]);
        m->status = gp_shape_check(&shape, GP_ONNX_SAMPLE_MAX, m->err);
        if (m->status == GP_OK)
            all += gp_shape_count(&shape);
    }
    return count > 1 ? gp_shape3(all, 1, 1) : shape;
}

static void mapping_run(gp_onnx_mapping *m)
{
    const Onnx__GraphProto *graph = m->graph;
    gp_onnx_value inputs[GP_INPUTS_MAX];
    const size_t count = gp_onnx_inputs(m, inputs);
    char name[GP_NAME_MAX];

    /* One entry more than the limit: the operator of the first excess layer fills in its source. */
    const size_t layers = GP_LAYERS_MAX + 1;

    if (graph->n_output < 1 || graph->n_output > GP_ENDS_MAX)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "the model has %zu outputs; must have 1 to %d", graph->n_output,
                     GP_ENDS_MAX);
    for (size_t k = 0; k < graph->n_output; k++)
        if (graph->output[k]->name == NULL)
            gp_onnx_fail(m, GP_ECORRUPT, "output %zu of the model has no name", k + 1);
    const gp_shape shape = input_shape(m, inputs, count);

    if (m->status == GP_OK)
        m->status = gp_netspec_new(&m->spec, "network", &shape, m->err);
    if (m->status != GP_OK)
        return;
    m->spec->scale_unknown = true; /* until arithmetic before the first layer defines the scale */
    layer_name(m, graph->name, "network", name);
    strcpy(m->spec->name, name);
    m->sources = gp_calloc(layers, sizeof(*m->sources));
    m->made = gp_calloc(layers, sizeof(gp_onnx_value *));
    m->shapes = gp_calloc(layers, sizeof(*m->shapes));
    if (m->sources == NULL || m->made == NULL || m->shapes == NULL)
        gp_onnx_fail(m, GP_ENOMEM, "no memory for a model of %zu nodes", graph->n_node);
    if (count > 1)
        unpack_inputs(m, inputs, count);
    if (m->status == GP_OK)
        gp_onnx_values_prepare(m, inputs, count);
    for (size_t n = 0; n < graph->n_node && m->status == GP_OK; n++)
        if (graph->node[n]->n_input == 0)
            map_node(m, graph->node[n]);
    if (m->status == GP_OK)
        gp_onnx_patterns_find(m);
    for (size_t n = 0; n < graph->n_node && m->status == GP_OK; n++)
        if (m->fusions[n].op_type != NULL)
            map_fusion(m, graph->node[n], &m->fusions[n]);
        else if (graph->node[n]->n_input != 0 && !m->fusions[n].skipped)
            map_node(m, graph->node[n]);
    for (size_t k = 0; k < graph->n_output && m->status == GP_OK; k++)
        map_output(m, graph->output[k]->name);
}

gp_status gp_onnx_map(gp_netspec **spec, gp_onnx_source **sources, gp_onnx_store *store,
                      const Onnx__GraphProto *graph, int64_t opset, const char *loss, gp_error *err)
{
    gp_onnx_mapping m = { .err = err,
                          .graph = graph,
                          .opset = opset,
                          .loss = loss,
                          .store = store,
                          .scale = { 1.0 },
                          .normalize_count = 1 };

    mapping_run(&m);
    gp_free(m.values);
    gp_free(m.constants);
    gp_free(m.fusions);
    gp_free(m.made);
    gp_free(m.shapes);
    if (m.status != GP_OK) {
        gp_netspec_free(m.spec);
        gp_free(m.sources);
        return m.status;
    }
    *spec = m.spec;
    *sources = m.sources;
    return GP_OK;
}
