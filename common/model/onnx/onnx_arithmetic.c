/* onnx_arithmetic.c -- Add, Sub, Mul, Div, Neg and Sum with at least one data input.
 *
 * With two layers, these become add and multiply layers. With a constant, either one number or
 * one number per channel, the operator is x * scale + shift. The first possible form is used:
 *
 * - the scale and offset of the network, directly after the input;
 * - a scale layer, for a factor of one number;
 * - the parameters of the convolution, product or normalization that computes x, if x has no
 *   other reader;
 * - a convolution with one pixel and one channel per group. A single number for all channels
 *   stays fixed in training; numbers per channel are learned, as they were in the original
 *   network. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

/* ---- two layers ---- */

/* Get the inputs of an elementwise operator: unchanged if the channels of all are last,
 * otherwise as images. */
static void inputs_alike(gp_onnx_mapping *m, gp_onnx_value *x[GP_LAYER_INPUTS_MAX])
{
    bool last = true;

    for (size_t k = 0; k < m->node->n_input; k++) {
        x[k] = gp_onnx_node_any(m, k);
        last = last && x[k]->channels_last;
    }
    for (size_t k = 0; k < m->node->n_input; k++) {
        if (!last)
            gp_onnx_value_settle(m, x[k]);
        if (x[k]->rank != x[0]->rank)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "its inputs have different ranks");
    }
}

/* Add an elementwise layer for these inputs. The output has the dimensions of the first input. */
static void layer_alike(gp_onnx_mapping *m, const char *kind, gp_onnx_value *const *x, size_t count)
{
    gp_onnx_node_layer_of(m, kind, NULL, x, count);
    if (x[0]->channels_last)
        gp_onnx_node_shaped(m, x[0]);
}

void gp_onnx_map_sum(gp_onnx_mapping *m)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];

    inputs_alike(m, x);
    if (m->node->n_input == 1)
        gp_onnx_node_alias(m, x[0]);
    else
        layer_alike(m, "add", x, m->node->n_input);
}

static void map_product_of_layers(gp_onnx_mapping *m)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];

    inputs_alike(m, x);
    if (m->status != GP_OK)
        return;
    gp_onnx_value *const swapped[2] = { x[1], x[0] };
    const gp_shape first = gp_onnx_shape_of(m, x[0]), second = gp_onnx_shape_of(m, x[1]);

    /* the second input may have one number per channel */
    bool swap = gp_shape_count(&second) > gp_shape_count(&first);

    layer_alike(m, "multiply", swap ? swapped : x, 2);
}

/* ---- layer and constant ---- */

/* x * scale + shift. count: 1, or the number of channels. data NULL: scale 1 or shift 0. */
typedef struct affine {
    gp_onnx_tensor scale, shift;
    int64_t count;
} affine;

/* Return the constant as a vector of one number, or of one number per channel if it aligns with
 * [N, C, ...]. ONNX aligns from the right, and before opset 7 from `axis` on. */
static gp_onnx_tensor constant_vector(gp_onnx_mapping *m, const gp_onnx_value *x, const gp_onnx_tensor *c)
{
    const int64_t right = 1 + (int64_t)x->rank - (int64_t)c->rank, channels = gp_onnx_channels(x);
    const int64_t axis = x->channels_last ? (int64_t)x->rank : 1;
    int64_t first = m->opset < 7 ? gp_onnx_node_int(m, "axis", right) : right;
    bool fits = gp_onnx_is_float(c) && (c->count == 1 || (x->rank > 0 && c->count == channels));
    gp_onnx_tensor vector = *c;

    first = first < 0 && m->opset < 7 ? first + 1 + (int64_t)x->rank : first;

    /* the only axis other than 1 must be the channel axis */
    for (uint32_t i = 0; i < c->rank && fits; i++)
        fits = c->dims[i] == 1 || (first + (int64_t)i == axis && c->dims[i] == channels);
    if (!fits || c->rank > 1 + x->rank)
        gp_onnx_fail(
            m, GP_EUNSUPPORTED,
            "its constant must be one float32 number, or one per channel, with shape [C, 1, 1] for images");
    vector.rank = 1;
    vector.dims[0] = c->count;
    return vector;
}

/* Return a vector with this number `count` times. */
static gp_onnx_tensor numbers_of(gp_onnx_mapping *m, double number, int64_t count)
{
    const int64_t one = 1;
    const float value = (float)number;
    gp_onnx_tensor vector = { 0 };
    void *data = gp_onnx_tensor_new(m, &vector, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 1, &one);

    if (data != NULL)
        memcpy(data, &value, sizeof(value));
    vector.dims[0] = vector.count = count;
    vector.splat = count != 1;
    return vector;
}

/* Express the node as an affine function of x. left: c op x, otherwise x op c. */
static affine affine_of(gp_onnx_mapping *m, const gp_onnx_tensor *c, bool left)
{
    affine by = { .count = c->count };

    if (m->arithmetic == GP_ONNX_MUL) {
        by.scale = *c;
    } else if (m->arithmetic == GP_ONNX_DIV && left) {
        gp_onnx_fail(m, GP_EUNSUPPORTED, "a constant divided by a layer is not supported");
    } else if (m->arithmetic == GP_ONNX_DIV) {
        const gp_onnx_tensor unit = numbers_of(m, 1.0, 1);

        gp_onnx_tensor_combine(m, &by.scale, GP_ONNX_DIV, &unit, c);
    } else {
        by.shift = *c;
        if (m->arithmetic == GP_ONNX_SUB && !left)
            gp_onnx_tensor_scale(m, &by.shift, -1.0);
        else if (m->arithmetic == GP_ONNX_SUB)
            by.scale = numbers_of(m, -1.0, 1);
    }
    return by;
}

/* Merge the affine function into the scale and offset of the netspec: (x * a + b) * scale +
 * shift is linear in x again. Return false if this is not possible. */
static bool into_normalization(gp_onnx_mapping *m, const gp_onnx_value *x, const affine *by)
{
    if (x->role != GP_ONNX_VALUE_INPUT || m->spec->layer_count != 0 || x->uses != 1 ||
        by->count > GP_NORMALIZE_MAX)
        return false;
    while (m->normalize_count < by->count) {
        m->scale[m->normalize_count] = m->scale[0];
        m->offset[m->normalize_count++] = m->offset[0];
    }
    for (uint32_t i = 0; i < m->normalize_count; i++) {
        const gp_onnx_tensor *scale = &by->scale, *shift = &by->shift;
        double a = scale->data == NULL ? 1.0 : gp_onnx_real_at(scale, scale->count == 1 ? 0 : i);
        double b = shift->data == NULL ? 0.0 : gp_onnx_real_at(shift, shift->count == 1 ? 0 : i);

        m->scale[i] *= a;
        m->offset[i] = m->offset[i] * a + b;
    }
    m->status = gp_netspec_normalize(m->spec, m->scale, m->offset, m->normalize_count, m->err);
    return true;
}

/* Find the parameter indices of a layer's output scale and offset. -1: none. */
static void affine_places(const char *kind, int *scale, int *offset)
{
    static const struct {
        const char *kind;
        int scale, offset;
    } kinds[] = {
        { "conv2d", -1, 1 },   { "transconv2d", -1, 1 }, { "fc", -1, 1 },
        { "batchnorm", 0, 1 }, { "groupnorm", 0, 1 },    { "layernorm", 0, 1 },
    };

    *scale = *offset = -1;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].kind, kind) == 0) {
            *scale = kinds[i].scale;
            *offset = kinds[i].offset;
        }
}

/* Return a parameter with one number per channel from a vector of one number or of all. */
static gp_onnx_tensor affine_parameter(const gp_onnx_tensor *from, int64_t channels)
{
    gp_onnx_tensor parameter = *from;

    parameter.splat = from->splat || from->count != channels;
    parameter.dims[0] = parameter.count = channels;
    return parameter;
}

/* Merge the affine function into the parameters of the layer that computes x. Return false if
 * this is not possible. */
static bool into_layer(gp_onnx_mapping *m, const gp_onnx_value *x, const affine *by)
{
    int scale, offset;

    if (x->role != GP_ONNX_VALUE_LAYER || x->uses != 1 || m->made[x->layer] != x)
        return false;
    gp_layer *layer = &m->spec->layers[x->layer];
    gp_onnx_tensor *tensors = m->sources[x->layer].tensors;
    const int64_t channels = m->shapes[x->layer].dim[0];

    affine_places(layer->kind->name, &scale, &offset);
    if (offset < 0 || (by->scale.data != NULL && scale < 0) || (by->count != 1 && by->count != channels))
        return false;
    if (by->scale.data != NULL) {
        gp_onnx_tensor_combine(m, &tensors[scale], GP_ONNX_MUL, &tensors[scale], &by->scale);
        gp_onnx_tensor_combine(m, &tensors[offset], GP_ONNX_MUL, &tensors[offset], &by->scale);
    }
    if (by->shift.data == NULL)
        return true;
    if (tensors[offset].data != NULL) {
        gp_onnx_tensor_combine(m, &tensors[offset], GP_ONNX_ADD, &tensors[offset], &by->shift);
    } else if (m->status == GP_OK) { /* the layer gets a bias */
        const gp_param *bias = gp_params_find(layer->kind->settings_table, "bias");

        m->status = gp_params_set(bias, layer->settings, "true", m->err);
        tensors[offset] = affine_parameter(&by->shift, channels);
    }
    return true;
}

static void as_layer(gp_onnx_mapping *m, const gp_onnx_value *x, const affine *by)
{
    gp_onnx_value image = *x;
    gp_onnx_source source = { 0 };
    char settings[192];
    const bool fixed = by->count == 1; /* a single number for all channels is not learned */
    const int64_t channels = gp_onnx_channels(x), as_image[3] = { channels, 1, 1 };

    if (gp_onnx_shape_of(m, x).rank == 1)
        gp_onnx_append_shape(m, &image, 3, as_image);
    /* A factor of 1 that the file does not contain is not learned either. Without an addition
     * there is no bias. */
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";kernel=1%s%s%s", channels,
             channels,
             fixed || by->scale.data == NULL ? ";weight-learn-rate-factor=0;weight-l2-factor=0" : "",
             by->shift.data == NULL ? ";bias=false" : "",
             fixed && by->shift.data != NULL ? ";bias-learn-rate-factor=0" : "");
    source.tensors[0] =
        by->scale.data != NULL ? affine_parameter(&by->scale, channels) : numbers_of(m, 1.0, channels);
    if (by->shift.data != NULL)
        source.tensors[1] = affine_parameter(&by->shift, channels);
    source.tensors[0].rank = 4;
    for (int i = 1; i < 4; i++)
        source.tensors[0].dims[i] = 1;
    m->sources[m->spec->layer_count] = source;
    gp_onnx_node_layer(m, "conv2d", settings, &image);
    gp_onnx_node_shaped(m, x);
}

/* Return whether all layers so far only move numbers. */
static bool is_in_front(const gp_onnx_mapping *m)
{
    static const char *const moving[] = { "crop", "reshape", "flatten", "transpose", "concat", "pad" };

    for (uint32_t i = 0; i < m->spec->layer_count; i++) {
        bool moves = false;

        for (size_t k = 0; k < sizeof(moving) / sizeof(moving[0]); k++)
            moves = moves || strcmp(m->spec->layers[i].kind->name, moving[k]) == 0;
        if (!moves)
            return false;
    }
    return true;
}

static void map_affine(gp_onnx_mapping *m, gp_onnx_value *x, const affine *by)
{
    char settings[64] = "";

    if (m->status != GP_OK)
        return;
    bool done = into_normalization(m, x, by);

    if (is_in_front(m)) /* the model normalizes its own input */
        m->spec->scale_unknown = false;
    if (!done && by->count == 1 && by->shift.data == NULL) {
        gp_onnx_put_number(settings, sizeof(settings), "factor", gp_onnx_real_at(&by->scale, 0));
        gp_onnx_node_like(m, "scale", settings, x);
        return;
    }
    if (!done && (done = into_layer(m, x, by)))
        m->made[x->layer] = m->output; /* a further constant may be merged too */
    if (done) {
        gp_onnx_node_alias(m, x);
        return;
    }
    if (!x->channels_last)
        gp_onnx_value_settle(m, x);
    as_layer(m, x, by);
}

void gp_onnx_map_arithmetic(gp_onnx_mapping *m)
{
    gp_onnx_value *a = gp_onnx_node_input(m, 0), *b = gp_onnx_node_input(m, 1);

    if (m->arithmetic == GP_ONNX_NEG && a != NULL) {
        const affine by = { .count = 1, .scale = numbers_of(m, -1.0, 1) };

        map_affine(m, a, &by);
        return;
    }
    if (a == NULL || b == NULL) {
        gp_onnx_fail(m, GP_ECORRUPT, "an input is missing");
        return;
    }
    const bool left = a->role == GP_ONNX_VALUE_CONSTANT;
    const bool both = !left && b->role != GP_ONNX_VALUE_CONSTANT;

    if (both && m->arithmetic == GP_ONNX_ADD) {
        gp_onnx_map_sum(m);
    } else if (both && m->arithmetic == GP_ONNX_MUL) {
        map_product_of_layers(m);
    } else if (both) {
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "it needs a constant; only Add and Mul are supported for two layers");
    } else {
        const gp_onnx_tensor *c = gp_onnx_node_constant(m, left ? 0 : 1);

        if (c == NULL)
            return;
        const gp_onnx_tensor vector = constant_vector(m, left ? b : a, c);
        const affine by = affine_of(m, &vector, left);

        map_affine(m, left ? b : a, &by);
    }
}
