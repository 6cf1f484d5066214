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
static gp_status inputs_alike(gp_onnx_mapping *m, const Onnx__NodeProto *node,
                              gp_onnx_value *x[GP_LAYER_INPUTS_MAX], gp_error *err)
{
    gp_status status = GP_OK;
    bool last = true;

    for (size_t k = 0; k < node->n_input && status == GP_OK; k++) {
        status = gp_onnx_node_any(m, node, k, &x[k], err);
        last = status == GP_OK && last && x[k]->channels_last;
    }
    for (size_t k = 0; k < node->n_input && status == GP_OK; k++) {
        if (!last)
            status = gp_onnx_node_image(m, node, k, &x[k], err);
        if (status == GP_OK && x[k]->rank != x[0]->rank)
            status = gp_fail(err, GP_EUNSUPPORTED, "its inputs have different numbers of dimensions");
    }
    return status;
}

/* Add an elementwise layer for these inputs. The output has the dimensions of the first input. */
static gp_status layer_alike(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                             gp_onnx_value *const *x, size_t count, gp_error *err)
{
    gp_status status = gp_onnx_node_layer(m, node, kind, NULL, x, count, err);

    if (status == GP_OK && x[0]->channels_last)
        gp_onnx_node_shaped(m, node, x[0]);
    return status;
}

gp_status gp_onnx_map_sum(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];
    gp_status status = inputs_alike(m, node, x, err);

    if (status != GP_OK)
        return status;
    if (node->n_input == 1) {
        gp_onnx_node_alias(m, node, x[0]);
        return GP_OK;
    }
    return layer_alike(m, node, "add", x, node->n_input, err);
}

static gp_status map_product_of_layers(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];
    gp_status status = inputs_alike(m, node, x, err);

    if (status != GP_OK)
        return status;
    gp_onnx_value *const swapped[2] = { x[1], x[0] };
    const gp_shape first = gp_onnx_shape_of(m, x[0]), second = gp_onnx_shape_of(m, x[1]);

    /* the second input may have one number per channel */
    bool swap = gp_shape_count(&second) > gp_shape_count(&first);

    return layer_alike(m, node, "multiply", swap ? swapped : x, 2, err);
}

/* ---- layer and constant ---- */

/* x * scale + shift. count: 1, or the number of channels. data NULL: scale 1 or shift 0. */
typedef struct affine {
    gp_onnx_tensor scale, shift;
    int64_t count;
} affine;

/* Convert the constant to a vector of one number, or of one number per channel if it aligns with
 * [N, C, ...]. ONNX aligns from the right, and before opset 7 from `axis` on. */
static gp_status constant_vector(const gp_onnx_mapping *m, const Onnx__NodeProto *node,
                                 const gp_onnx_value *x, const gp_onnx_tensor *c, gp_onnx_tensor *out,
                                 gp_error *err)
{
    int64_t first = 1 + (int64_t)x->rank - (int64_t)c->rank;
    gp_status status = m->opset < 7 ? gp_onnx_node_int(node, "axis", first, &first, err) : GP_OK;

    if (status != GP_OK)
        return status;
    const int64_t channels = gp_onnx_channels(x), axis = x->channels_last ? (int64_t)x->rank : 1;
    bool fits = gp_onnx_is_float(c) && (c->count == 1 || (x->rank > 0 && c->count == channels));

    first = first < 0 && m->opset < 7 ? first + 1 + (int64_t)x->rank : first;

    /* the only axis other than 1 must be the channel axis */
    for (uint32_t i = 0; i < c->rank && fits; i++)
        fits = c->dims[i] == 1 || (first + (int64_t)i == axis && c->dims[i] == channels);
    if (!fits || c->rank > 1 + x->rank)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "with a constant it is supported for one float32 number, or one per channel, shaped [C, 1, 1] "
            "for images");
    *out = *c;
    out->rank = 1;
    out->dims[0] = c->count;
    return GP_OK;
}

static gp_status one_number(gp_onnx_tensor *out, gp_onnx_store *store, double number, gp_error *err)
{
    const int64_t one = 1;
    const float value = (float)number;
    void *data;
    gp_status status =
        gp_onnx_tensor_new(out, store, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 1, &one, &data, err);

    if (status == GP_OK)
        memcpy(data, &value, sizeof(value));
    return status;
}

/* Express the node as an affine function of x. left: c op x, otherwise x op c. */
static gp_status affine_of(gp_onnx_mapping *m, const gp_onnx_tensor *c, bool left, affine *out, gp_error *err)
{
    gp_onnx_tensor unit;
    gp_status status = GP_OK;

    *out = (affine){ .count = c->count };
    if (m->arithmetic == GP_ONNX_MUL) {
        out->scale = *c;
    } else if (m->arithmetic == GP_ONNX_DIV && !left) {
        status = one_number(&unit, m->store, 1.0, err);
        return status == GP_OK ? gp_onnx_tensor_combine(&out->scale, m->store, GP_ONNX_DIV, &unit, c, err)
                               : status;
    } else if (m->arithmetic == GP_ONNX_DIV) {
        return gp_fail(err, GP_EUNSUPPORTED, "a constant divided by a layer is not supported");
    } else {
        out->shift = *c;
        if (m->arithmetic == GP_ONNX_SUB && !left)
            status = gp_onnx_tensor_scale(&out->shift, m->store, -1.0, err);
        else if (m->arithmetic == GP_ONNX_SUB)
            status = one_number(&out->scale, m->store, -1.0, err);
    }
    return status;
}

/* Merge the affine function into the scale and offset of the netspec: (x * a + b) * scale +
 * shift is linear in x again. *done false: not possible. */
static gp_status into_normalization(gp_onnx_mapping *m, const gp_onnx_value *x, const affine *by, bool *done,
                                    gp_error *err)
{
    *done = x->role == GP_ONNX_VALUE_INPUT && m->spec->layer_count == 0 && x->uses == 1 &&
            (by->count == 1 || by->count <= GP_NORMALIZE_MAX);
    if (!*done)
        return GP_OK;
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
    return gp_netspec_normalize(m->spec, m->scale, m->offset, m->normalize_count, err);
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

/* Create a bias with one number per channel for a layer that had none. */
static gp_status bias_new(gp_onnx_mapping *m, gp_layer *layer, int64_t channels, const gp_onnx_tensor *shift,
                          gp_onnx_tensor *bias, gp_error *err)
{
    const gp_param *param = gp_params_find(layer->kind->settings_table, "bias");
    gp_onnx_tensor zeros;
    void *data;
    gp_status status = gp_params_set(param, layer->settings, "true", err);

    if (status == GP_OK && shift->count == channels) {
        *bias = *shift;
        return GP_OK;
    }
    if (status == GP_OK)
        status = gp_onnx_tensor_new(&zeros, m->store, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 1, &channels,
                                    &data, err);
    if (status != GP_OK)
        return status;
    memset(data, 0, (size_t)channels * sizeof(float));
    return gp_onnx_tensor_combine(bias, m->store, GP_ONNX_ADD, &zeros, shift, err);
}

static gp_status into_layer(gp_onnx_mapping *m, const gp_onnx_value *x, const affine *by, bool *done,
                            gp_error *err)
{
    int scale, offset;
    gp_status status = GP_OK;

    *done = false;
    if (x->role != GP_ONNX_VALUE_LAYER || x->uses != 1 || m->made[x->layer] != x)
        return GP_OK;
    gp_layer *layer = &m->spec->layers[x->layer];
    gp_onnx_tensor *tensors = m->sources[x->layer].tensors;
    const int64_t channels = m->shapes[x->layer].dim[0];

    affine_places(layer->kind->name, &scale, &offset);
    if (offset < 0 || (by->scale.data != NULL && scale < 0) || (by->count != 1 && by->count != channels))
        return GP_OK;
    if (by->scale.data != NULL) {
        status =
            gp_onnx_tensor_combine(&tensors[scale], m->store, GP_ONNX_MUL, &tensors[scale], &by->scale, err);
        if (status == GP_OK)
            status = gp_onnx_tensor_combine(&tensors[offset], m->store, GP_ONNX_MUL, &tensors[offset],
                                            &by->scale, err);
    }
    if (status == GP_OK && by->shift.data != NULL && tensors[offset].data == NULL)
        status = bias_new(m, layer, channels, &by->shift, &tensors[offset], err);
    else if (status == GP_OK && by->shift.data != NULL)
        status = gp_onnx_tensor_combine(&tensors[offset], m->store, GP_ONNX_ADD, &tensors[offset], &by->shift,
                                        err);
    *done = true;
    return status;
}

/* Create a parameter with one number per channel from the constant, or from `fill` if there is
 * no constant. */
static gp_status affine_parameter(gp_onnx_mapping *m, const gp_onnx_tensor *from, int64_t channels,
                                  double fill, gp_onnx_tensor *out, gp_error *err)
{
    gp_status status = GP_OK;

    if (from->data != NULL)
        *out = *from;
    else
        status = one_number(out, m->store, fill, err);
    if (status != GP_OK || out->count == channels)
        return status;
    out->splat = true;
    out->dims[0] = out->count = channels;
    return GP_OK;
}

static gp_status as_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x, const affine *by,
                          gp_error *err)
{
    gp_onnx_value image = *x;
    gp_onnx_source source = { 0 };
    char settings[192], shape[64] = "";
    const bool fixed = by->count == 1; /* a single number for all channels is not learned */
    const int64_t channels = gp_onnx_channels(x), as_image[3] = { channels, 1, 1 };
    gp_shape have = gp_onnx_shape_of(m, x);
    gp_status status = GP_OK;

    if (have.rank == 1) {
        gp_onnx_put_list(shape, sizeof(shape), "shape", as_image, 3);
        status = gp_onnx_append(m, NULL, "reshape", shape, &image, err);
    }
    /* A factor of 1 that the file does not contain is not learned either. Without an addition
     * there is no bias. */
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";kernel=1%s%s%s", channels,
             channels,
             fixed || by->scale.data == NULL ? ";weight-learn-rate-factor=0;weight-l2-factor=0" : "",
             by->shift.data == NULL ? ";bias=false" : "",
             fixed && by->shift.data != NULL ? ";bias-learn-rate-factor=0" : "");
    if (status == GP_OK)
        status = affine_parameter(m, &by->scale, channels, 1.0, &source.tensors[0], err);
    if (status == GP_OK && by->shift.data != NULL)
        status = affine_parameter(m, &by->shift, channels, 0.0, &source.tensors[1], err);
    if (status != GP_OK)
        return status;
    source.tensors[0].rank = 4;
    for (int i = 1; i < 4; i++)
        source.tensors[0].dims[i] = 1;
    m->sources[m->spec->layer_count] = source;
    status = gp_onnx_node_like(m, node, "conv2d", settings, &image, err);
    gp_onnx_node_shaped(m, node, x);
    return status;
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

static gp_status map_affine(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                            const affine *by, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    char settings[64] = "";
    bool done;
    gp_status status = into_normalization(m, x, by, &done, err);

    if (is_in_front(m)) /* the model normalizes its own input */
        m->spec->scale_unknown = false;

    if (status == GP_OK && !done && by->count == 1 && by->shift.data == NULL) {
        gp_onnx_put_number(settings, sizeof(settings), "factor", gp_onnx_real_at(&by->scale, 0));
        return gp_onnx_node_like(m, node, "scale", settings, x, err);
    }
    if (status == GP_OK && !done) {
        status = into_layer(m, x, by, &done, err);
        if (status == GP_OK && done)
            m->made[x->layer] = made; /* a further constant may be merged too */
    }
    if (status != GP_OK)
        return status;
    if (!done) {
        status = x->channels_last ? GP_OK : gp_onnx_value_settle(m, x, err);
        return status == GP_OK ? as_layer(m, node, x, by, err) : status;
    }
    gp_onnx_node_alias(m, node, x);
    return GP_OK;
}

gp_status gp_onnx_map_arithmetic(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *a, *b = NULL;
    gp_onnx_tensor vector;
    affine by;
    gp_status status = gp_onnx_node_input(m, node, 0, &a, err);

    if (status == GP_OK)
        status = gp_onnx_node_input(m, node, 1, &b, err);
    if (status != GP_OK)
        return status;
    if (m->arithmetic == GP_ONNX_NEG && a != NULL) {
        by = (affine){ .count = 1 };
        status = one_number(&by.scale, m->store, -1.0, err);
        return status == GP_OK ? map_affine(m, node, a, &by, err) : status;
    }
    if (a == NULL || b == NULL)
        return gp_fail(err, GP_ECORRUPT, "an input is missing");
    const bool left = a->role == GP_ONNX_VALUE_CONSTANT;

    if (!left && b->role != GP_ONNX_VALUE_CONSTANT) {
        if (m->arithmetic == GP_ONNX_SUB || m->arithmetic == GP_ONNX_DIV)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "it is supported with a constant; of two layers, Add and Mul are");
        return m->arithmetic == GP_ONNX_ADD ? gp_onnx_map_sum(m, node, err)
                                            : map_product_of_layers(m, node, err);
    }
    const gp_onnx_tensor *c;

    status = gp_onnx_node_constant(m, node, left ? 0 : 1, &c, err);
    if (status == GP_OK)
        status = constant_vector(m, node, left ? b : a, c, &vector, err);
    if (status == GP_OK)
        status = affine_of(m, &vector, left, &by, err);
    return status == GP_OK ? map_affine(m, node, left ? b : a, &by, err) : status;
}
