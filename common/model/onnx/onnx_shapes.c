/* onnx_shapes.c -- operators that move numbers without computing: reshaping, slicing, padding
 * and resizing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

gp_status gp_onnx_sample_axis(int64_t axis, uint32_t rank, int64_t *out, gp_error *err)
{
    *out = (axis < 0 ? axis + 1 + (int64_t)rank : axis) - 1;
    if (*out < 0 || *out >= (int64_t)rank)
        return gp_fail(err, GP_EUNSUPPORTED, "axis %" PRId64 " is not supported; 1 to %" PRIu32 " are", axis,
                       rank);
    return GP_OK;
}

static int64_t value_count(const gp_onnx_value *value)
{
    int64_t count = 1;

    for (uint32_t i = 0; i < value->rank; i++)
        /* cannot overflow: the layer's shape was checked, and a view has equal size */
        count *= value->dims[i];
    return count;
}

/* ---- reshaping ---- */

gp_status gp_onnx_map_identity(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        gp_onnx_node_alias(m, node, x);
    return status;
}

gp_status gp_onnx_map_flatten(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t axis, features;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", 1, &axis, err);
    if (status != GP_OK)
        return status;
    axis = axis < 0 ? axis + 1 + (int64_t)x->rank : axis;
    if (axis != 1)
        return gp_fail(err, GP_EUNSUPPORTED, "axis=%" PRId64 " is not supported; 1 is", axis);
    features = value_count(x);
    return gp_onnx_node_view(m, node, x, 1, &features, err);
}

/* Return whether the first dimension of a Reshape remains the sample axis. */
static bool keeps_samples(const gp_onnx_mapping *m, int64_t first)
{
    return first == 0 || first == -1 || first == GP_ONNX_SAMPLES || (m->batch != 0 && first == m->batch);
}

/* Map a Reshape. 0 keeps a dimension, -1 is the remainder of a sample if the first dimension is
 * the sample axis. */
gp_status gp_onnx_map_reshape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t to[GP_ONNX_LIST_MAX], zero, rest;
    size_t count, open = 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "allowzero", 0, &zero, err);
    if (status == GP_OK)
        status = gp_onnx_node_dims(m, node, 1, "shape", to, &count, err);
    if (status != GP_OK)
        return status;
    if (count == 0 || !keeps_samples(m, to[0]))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "a reshape that moves the samples' axis is not supported; [N, ...], [0, ...] and [-1, ...] are");
    if (count == 1 && to[0] == -1 && value_count(x) != 1) { /* all samples in one vector */
        gp_onnx_node_alias(m, node, x);
        gp_onnx_value_find(m, node->output[0])->role = GP_ONNX_VALUE_FLAT;
        return GP_OK;
    }
    rest = value_count(x);
    for (size_t i = 1; i < count; i++) {
        if (to[i] == 0 && (zero != 0 || i > x->rank))
            return gp_fail(err, GP_EUNSUPPORTED, "a dimension of 0 at place %zu is not supported", i + 1);
        if (to[i] == 0)
            to[i] = x->dims[i - 1];
        if (to[i] == -1 && open == 0 && to[0] != -1) {
            open = i;
            continue;
        }
        if (to[i] < 1 || rest % to[i] != 0)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "dimension %zu, %" PRId64 ", does not fit the %" PRId64 " numbers of a sample",
                           i + 1, to[i], value_count(x));
        rest /= to[i];
    }
    if (open != 0)
        to[open] = rest;
    else if (rest != 1)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "its dimensions hold a part of the %" PRId64
                       " numbers of a sample: the samples' axis would move",
                       value_count(x));
    return gp_onnx_node_view(m, node, x, (uint32_t)count - 1, to + 1, err);
}

/* Map Squeeze and Unsqueeze along any axes except the sample axis. */
gp_status gp_onnx_map_squeeze(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const bool more = *node->op_type == 'U';
    int64_t axes[GP_ONNX_LIST_MAX], dims[2 * GP_ONNX_LIST_MAX], axis;
    bool chosen[2 * GP_ONNX_LIST_MAX] = { false };
    size_t count;
    uint32_t rank = 0, from = 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 1, "axes", axes, &count, err);
    if (status == GP_OK && count == 0)
        status = gp_fail(err, GP_EUNSUPPORTED, "without axes it might take away the samples' axis");
    if (status != GP_OK)
        return status;
    const uint32_t wide = more ? x->rank + (uint32_t)count : x->rank;

    for (size_t i = 0; i < count; i++) {
        status = gp_onnx_sample_axis(axes[i], wide, &axis, err);
        if (status != GP_OK)
            return status;
        if (chosen[axis] || (!more && x->dims[axis] != 1))
            return gp_fail(err, GP_EINVAL, "axis %" PRId64 " is named twice or is not of size 1", axes[i]);
        chosen[axis] = true;
    }
    for (uint32_t i = 0; i < wide; i++)
        if (more || !chosen[i])
            dims[rank++] = more && chosen[i] ? 1 : x->dims[more ? from++ : i];
    return gp_onnx_node_view(m, node, x, rank, dims, err);
}

/* Return the dimensions as a constant. An unknown dimension is the number of samples. */
gp_status gp_onnx_map_shape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    int64_t dims[GP_ONNX_RANK_MAX], start, end, count;
    gp_onnx_tensor *tensor;
    void *data;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status != GP_OK)
        return status;
    const int64_t rank = 1 + (int64_t)x->rank;

    dims[0] = GP_ONNX_SAMPLES;
    memcpy(dims + 1, x->dims, x->rank * sizeof(*dims));
    status = gp_onnx_node_int(node, "start", 0, &start, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "end", rank, &end, err);
    if (status != GP_OK)
        return status;
    start = start < -rank ? 0 : start < 0 ? start + rank : start > rank ? rank : start;
    end = end < -rank ? 0 : end < 0 ? end + rank : end > rank ? rank : end;
    count = end > start ? end - start : 0;
    status = gp_onnx_store_take(m->store, sizeof(*tensor), &data, err);
    if (status != GP_OK)
        return status;
    tensor = data;
    status =
        gp_onnx_tensor_new(tensor, m->store, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 1, &count, &data, err);
    if (status != GP_OK)
        return status;
    memcpy(data, dims + start, (size_t)count * sizeof(*dims));
    made->role = GP_ONNX_VALUE_CONSTANT;
    made->tensor = tensor;
    return GP_OK;
}

/* Merge axes that stay adjacent into groups and drop axes of size 1. At most three groups are
 * supported. */
static uint32_t transpose_groups(const gp_onnx_value *x, const int64_t *order, int64_t size[GP_ONNX_RANK_MAX],
                                 int64_t place[GP_ONNX_RANK_MAX])
{
    uint32_t group_of[GP_ONNX_RANK_MAX], groups = 0;
    int64_t first[GP_ONNX_RANK_MAX], last = -1, start = 0;

    for (uint32_t i = 0; i < x->rank; i++) { /* in the order after the transpose */
        if (x->dims[order[i]] == 1)
            continue;
        bool follows = groups > 0;

        for (int64_t k = last + 1; k < order[i] && follows; k++)
            follows = x->dims[k] == 1;
        if (!follows || order[i] < last) {
            first[groups] = order[i];
            size[groups++] = 1;
        }
        size[groups - 1] *= x->dims[order[i]];
        last = order[i];
    }
    for (uint32_t g = 0; g < groups; g++) { /* position of each group before the transpose */
        start = 0;
        for (uint32_t k = 0; k < groups; k++)
            start += first[k] < first[g];
        group_of[g] = (uint32_t)start;
    }
    for (uint32_t g = 0; g < groups; g++)
        place[g] = group_of[g];
    return groups;
}

/* Transpose as an image with up to three groups of axes. Group g of the output is group place[g]
 * of the input. */
static gp_status transpose_by_groups(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                                     const int64_t *order, gp_error *err)
{
    int64_t size[GP_ONNX_RANK_MAX], place[GP_ONNX_RANK_MAX] = { 0 }, from[3] = { 1, 1, 1 };
    const uint32_t groups = transpose_groups(x, order, size, place);
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]), image = *x, *inputs[] = { &image };
    char settings[96] = "";

    if (groups > 3)
        return gp_fail(err, GP_EUNSUPPORTED, "it moves %" PRIu32 " groups of axes; up to 3 are supported",
                       groups);
    for (uint32_t g = 0; g < 3; g++)
        if (g < groups)
            from[place[g]] = size[g];
        else
            place[g] = g;
    if (groups <= 1) {
        gp_onnx_node_alias(m, node, x);
        return GP_OK;
    }
    const gp_shape shape = gp_onnx_shape_of(m, x), wanted = gp_shape3(from[0], from[1], from[2]);
    gp_status status = GP_OK;

    if (!gp_shape_equal(&shape, &wanted)) {
        gp_onnx_put_list(settings, sizeof(settings), "shape", from, 3);
        status = gp_onnx_append(m, NULL, "reshape", settings, &image, err);
    }
    *settings = '\0';
    gp_onnx_put_list(settings, sizeof(settings), "order", place, 3);
    if (status == GP_OK)
        status = gp_onnx_node_layer(m, node, "transpose", settings, inputs, 1, err);
    made->rank = x->rank;
    return status;
}

/* Return whether the order moves the first axis to the end (back: the last axis to the front)
 * and keeps the order of the others. */
static bool is_rotation(const int64_t *order, uint32_t rank, bool back)
{
    bool rotates = true;

    for (uint32_t i = 0; i < rank && rotates; i++)
        rotates = order[i] == (int64_t)((i + (back ? rank - 1 : 1)) % rank);
    return rotates;
}

/* Switch between channels first and channels last without a layer. */
static gp_status transpose_channels(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                                    const int64_t *order, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]);
    gp_status status = x->channels_last ? GP_OK : gp_onnx_value_settle(m, x, err);

    if (status != GP_OK)
        return status;
    gp_onnx_node_alias(m, node, x);
    made->channels_last = !x->channels_last;
    for (uint32_t i = 0; i < x->rank; i++)
        made->dims[i] = x->dims[order[i]];
    return GP_OK;
}

gp_status gp_onnx_map_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]), *x;
    int64_t order[GP_ONNX_RANK_MAX];
    bool seen[GP_ONNX_RANK_MAX] = { false };
    char settings[48] = "";
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK && gp_onnx_node_attribute(node, "perm") == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "without perm it would move the samples' axis");
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "perm", 1 + x->rank, 0, order, err);
    if (status == GP_OK && order[0] != 0)
        status = gp_fail(err, GP_EUNSUPPORTED, "its perm moves the samples' axis");
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++) {
        order[i] = order[i + 1] - 1;
        if (order[i] < 0 || order[i] >= (int64_t)x->rank || seen[order[i]])
            return gp_fail(err, GP_EINVAL, "its perm has axis %" PRId64 " twice or out of range",
                           order[i] + 1);
        seen[order[i]] = true;
    }
    if ((x->rank == 2 || x->rank == 3) && is_rotation(order, x->rank, x->channels_last))
        return transpose_channels(m, node, x, order, err);
    status = gp_onnx_node_data(m, node, 0, &x, err);
    if (status != GP_OK)
        return status;
    const gp_onnx_value before = *x;

    if (x->rank == 3 && (status = gp_onnx_value_settle(m, x, err)) == GP_OK) {
        gp_onnx_put_list(settings, sizeof(settings), "order", order, 3);
        status = gp_onnx_node_layer(m, node, "transpose", settings, &x, 1, err);
    } else if (x->rank != 3) {
        status = transpose_by_groups(m, node, x, order, err);
    }
    made->rank = before.rank;
    for (uint32_t i = 0; i < before.rank; i++)
        made->dims[i] = before.dims[order[i]];
    return status;
}

/* ---- slicing, concatenation and padding ---- */

/* Concatenate more inputs than a layer accepts: form as many groups of adjacent inputs as it
 * accepts, each with its own layer. */
static gp_status concat_groups(gp_onnx_mapping *m, const char *settings, gp_onnx_value **x, size_t count,
                               gp_onnx_value groups[GP_LAYER_INPUTS_MAX], gp_error *err)
{
    gp_status status = GP_OK;

    for (size_t k = 0; k < GP_LAYER_INPUTS_MAX && status == GP_OK; k++) {
        size_t first = k * count / GP_LAYER_INPUTS_MAX, end = (k + 1) * count / GP_LAYER_INPUTS_MAX;

        if (end - first == 1)
            groups[k] = *x[first];
        else
            status = gp_onnx_append_of(m, "concat", settings, x + first, end - first, &groups[k], err);
    }
    for (size_t k = 0; k < GP_LAYER_INPUTS_MAX; k++)
        x[k] = &groups[k];
    return status;
}

gp_status gp_onnx_map_concat(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x[GP_ONNX_CONCAT_MAX], groups[GP_LAYER_INPUTS_MAX];
    size_t count = node->n_input;
    char settings[48];
    int64_t axis;
    gp_status status = gp_onnx_node_int(node, "axis", 1, &axis, err);

    for (size_t k = 0; k < node->n_input && status == GP_OK; k++) {
        status = gp_onnx_node_image(m, node, k, &x[k], err);
        if (status == GP_OK && x[k]->rank != x[0]->rank)
            status = gp_fail(err, GP_EINVAL, "its inputs have different numbers of dimensions");
    }
    if (status == GP_OK)
        status = gp_onnx_sample_axis(axis, x[0]->rank, &axis, err);
    if (status != GP_OK)
        return status;
    if (node->n_input == 1) {
        gp_onnx_node_alias(m, node, x[0]);
        return GP_OK;
    }
    snprintf(settings, sizeof(settings), "axis=%" PRId64, axis);
    if (count > GP_LAYER_INPUTS_MAX) {
        status = concat_groups(m, settings, x, count, groups, err);
        count = GP_LAYER_INPUTS_MAX;
    }
    return status == GP_OK ? gp_onnx_node_layer(m, node, "concat", settings, x, count, err) : status;
}

/* Clamp a slice bound. A negative bound counts from the end. */
static int64_t slice_bound(int64_t bound, int64_t size)
{
    if (bound < 0)
        bound = bound < -size ? 0 : bound + size;
    return bound > size ? size : bound;
}

gp_status gp_onnx_map_slice(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t start[3] = { 0 }, size[3] = { 0 };
    gp_onnx_slices slices;
    char settings[160] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_slices(m, node, &slices, err);
    if (status == GP_OK && slices.count == 0)
        status = gp_fail(err, GP_ECORRUPT, "its starts, ends, axes and steps are not as many");
    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < slices.count && status == GP_OK; i++) {
        int64_t axis = slices.axes[i];

        if (slices.steps[i] != 1)
            return gp_fail(err, GP_EUNSUPPORTED, "a step of %" PRId64 " is not supported; 1 is",
                           slices.steps[i]);
        if (axis == 0 && slices.starts[i] == 0 &&
            (slices.ends[i] >= INT32_MAX || (m->batch != 0 && slices.ends[i] >= m->batch)))
            continue; /* all samples */
        status = gp_onnx_sample_axis(axis, x->rank, &axis, err);
        if (status != GP_OK)
            return status;
        start[axis] = slice_bound(slices.starts[i], x->dims[axis]);
        size[axis] = slice_bound(slices.ends[i], x->dims[axis]) - start[axis];
        if (size[axis] < 1)
            return gp_fail(err, GP_EUNSUPPORTED, "nothing is left along axis %" PRId64, axis + 1);
    }
    gp_onnx_put_list(settings, sizeof(settings), "start", start, 3);
    gp_onnx_put_list(settings, sizeof(settings), "size", size, 3);
    return gp_onnx_node_layer(m, node, "crop", settings, &x, 1, err);
}

/* Read the padding of height and width from the pads for the given axes, or for all axes. */
static gp_status pad_read(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x,
                          int64_t padding[4], gp_error *err)
{
    int64_t pads[GP_ONNX_LIST_MAX], axes[GP_ONNX_LIST_MAX];
    size_t count, axis_count;
    gp_status status = gp_onnx_node_list(m, node, 1, "pads", pads, &count, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 3, "axes", axes, &axis_count, err);
    if (status != GP_OK)
        return status;
    if (axis_count == 0)
        for (; axis_count <= x->rank; axis_count++)
            axes[axis_count] = (int64_t)axis_count;
    if (count != 2 * axis_count)
        return gp_fail(err, GP_ECORRUPT, "it has %zu pads for %zu axes", count, axis_count);
    for (size_t i = 0; i < axis_count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + 1 + (int64_t)x->rank : axes[i];

        if (pads[i] == 0 && pads[axis_count + i] == 0)
            continue;
        if (axis < 2 || axis > (int64_t)x->rank)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "padding of height and width is supported, and of nothing else");
        padding[axis - 2] = pads[i];
        padding[axis] = pads[axis_count + i];
    }
    return GP_OK;
}

gp_status gp_onnx_map_pad(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t padding[4] = { 0 };
    char settings[160] = "";
    float value;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK)
        status = pad_read(m, node, x, padding, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "value", 0.0f, &value, err);
    if (status == GP_OK)
        status = gp_onnx_node_scalar(m, node, 2, "constant_value", &value, err);
    if (status == GP_OK && !gp_onnx_node_says(node, "mode", "constant", "constant"))
        status = gp_fail(err, GP_EUNSUPPORTED, "its mode is not constant");
    if (status == GP_OK && value != 0.0f)
        status = gp_fail(err, GP_EUNSUPPORTED, "padding with %g is not supported; with 0 is", (double)value);
    if (status != GP_OK)
        return status;
    gp_onnx_put_list(settings, sizeof(settings), "padding", padding, 4);
    return gp_onnx_node_layer(m, node, "pad", settings, &x, 1, err);
}

/* ---- resizing ---- */

/* Return the resize mode for the attributes of a Resize or Upsample. NULL: not supported. With
 * half-pixel coordinates and an integer scale factor, the nearest pixel is the same as with
 * asymmetric coordinates: (x + 1/2) / s - 1/2 rounds to floor(x / s). */
static const char *resize_mode(const gp_onnx_mapping *m, const Onnx__NodeProto *node, bool *multiples)
{
    const bool old = strcmp(node->op_type, "Upsample") == 0 || m->opset < 11;
    const char *const place = "coordinate_transformation_mode", *fallback = old ? "asymmetric" : "half_pixel";
    const char *const rounds = old ? "floor" : "round_prefer_floor";
    const bool half = gp_onnx_node_says(node, place, fallback, "half_pixel") ||
                      gp_onnx_node_says(node, place, fallback, "half_pixel_symmetric");
    const bool corner = gp_onnx_node_says(node, place, fallback, "asymmetric");

    *multiples = false;
    if (!gp_onnx_node_says(node, "keep_aspect_ratio_policy", "stretch", "stretch"))
        return NULL;
    if (gp_onnx_node_says(node, "mode", "nearest", "nearest")) {
        *multiples = half && (gp_onnx_node_says(node, "nearest_mode", rounds, "round_prefer_floor") ||
                              gp_onnx_node_says(node, "nearest_mode", rounds, "round_prefer_ceil"));
        return *multiples || (corner && gp_onnx_node_says(node, "nearest_mode", rounds, "floor")) ? "nearest"
                                                                                                  : NULL;
    }
    if (!gp_onnx_node_says(node, "mode", "nearest", "linear"))
        return NULL;
    if (half)
        return "bilinear";
    if (gp_onnx_node_says(node, place, fallback, "align_corners"))
        return "bilinear-corners";
    return corner ? "bilinear-asymmetric" : NULL;
}

/* Set the requested size along one axis of [N, C, H, W]; only height and width may change. A
 * scale must give an integer number of pixels, because positions would differ otherwise. */
static gp_status resize_axis(const gp_onnx_value *x, int64_t axis, bool is_size, double number,
                             int64_t size[2], gp_error *err)
{
    const int64_t place = axis < 0 ? axis + 1 + (int64_t)x->rank : axis;

    if (place < 0 || place > (int64_t)x->rank)
        return gp_fail(err, GP_EINVAL, "it has no axis %" PRId64, axis);
    if (place < 2) {
        bool same = is_size ? place == 0 || number == (double)x->dims[0] : number == 1.0;

        return same ? GP_OK
                    : gp_fail(err, GP_EUNSUPPORTED,
                              "it is supported along height and width; axis %" PRId64 " changes", place);
    }
    double exact = is_size ? number : number * (double)x->dims[place - 1];

    if (!(exact >= 0.5 && exact < 65536.0) || fabs(exact - rint(exact)) > 1e-4)
        return gp_fail(err, GP_EUNSUPPORTED, "%g times %" PRId64 " pixels are no whole number", number,
                       x->dims[place - 1]);
    size[place - 2] = (int64_t)rint(exact);
    return GP_OK;
}

static gp_status resize_size(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_value *x,
                             int64_t size[2], gp_error *err)
{
    /* Older versions have no region input between the image and the scales; the oldest have the
     * scales as an attribute. */
    const bool old = strcmp(node->op_type, "Upsample") == 0 || m->opset < 11;
    const Onnx__AttributeProto *list = gp_onnx_node_attribute(node, "scales");
    const Onnx__AttributeProto *axes = gp_onnx_node_attribute(node, "axes");
    const gp_onnx_tensor *scales;
    int64_t sizes[GP_ONNX_LIST_MAX];
    size_t count = 0;
    gp_status status = gp_onnx_node_constant(m, node, old ? 1 : 2, &scales, err);

    if (status == GP_OK && !old)
        status = gp_onnx_node_dims(m, node, 3, "sizes", sizes, &count, err);
    if (status != GP_OK)
        return status;
    const bool is_size = count != 0;

    if (!is_size && scales != NULL && !gp_onnx_is_float(scales))
        return gp_fail(err, GP_EUNSUPPORTED, "its scales are not float32 numbers");
    if (!is_size)
        count = scales != NULL ? (size_t)scales->count : list != NULL ? list->n_floats : 0;
    if (count == 0 || count != (axes != NULL ? axes->n_ints : 1 + (size_t)x->rank))
        return gp_fail(err, GP_EUNSUPPORTED, "it has %zu scales or sizes for %zu axes", count,
                       axes != NULL ? axes->n_ints : 1 + (size_t)x->rank);
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        double number = is_size          ? (double)sizes[i]
                        : scales != NULL ? gp_onnx_real_at(scales, (int64_t)i)
                                         : (double)list->floats[i];

        status = resize_axis(x, axes != NULL ? axes->ints[i] : (int64_t)i, is_size, number, size, err);
    }
    return status;
}

gp_status gp_onnx_map_resize(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool multiples;
    const char *mode = resize_mode(m, node, &multiples);
    char settings[96] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK && mode == NULL)
        status =
            gp_fail(err, GP_EUNSUPPORTED,
                    "its mode is not supported; linear (half_pixel, align_corners, asymmetric) and nearest "
                    "(asymmetric with floor; half_pixel with round_prefer_...) are");
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "antialias", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "exclude_outside", 0, err);
    if (status == GP_OK && x->rank != 3)
        status = gp_fail(err, GP_EUNSUPPORTED, "it is supported for images");
    if (status != GP_OK)
        return status;
    int64_t size[2] = { x->dims[1], x->dims[2] };

    status = resize_size(m, node, x, size, err);
    if (status != GP_OK)
        return status;
    if (multiples && (size[0] % x->dims[1] != 0 || size[1] % x->dims[2] != 0))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "the nearest pixel by half_pixel is supported where height and width become whole multiples");
    gp_onnx_put_list(settings, sizeof(settings), "size", size, 2);
    snprintf(settings + strlen(settings), sizeof(settings) - strlen(settings), ";mode=%s", mode);
    return gp_onnx_node_layer(m, node, "resize", settings, &x, 1, err);
}
