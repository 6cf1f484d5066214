/* onnx_shapes.c -- operators that move numbers without computing: reshaping, slicing, padding
 * and resizing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

int64_t gp_onnx_sample_axis(gp_onnx_mapping *m, int64_t axis, uint32_t rank)
{
    const int64_t of_sample = (axis < 0 ? axis + 1 + (int64_t)rank : axis) - 1;

    if (of_sample < 0 || of_sample >= (int64_t)rank)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "axis %" PRId64 " is not supported; must be 1 to %" PRIu32, axis,
                     rank);
    return m->status == GP_OK ? of_sample : 0;
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

void gp_onnx_map_flatten(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_data(m, 0);
    const int64_t number = gp_onnx_node_int(m, "axis", 1), features = value_count(x);
    const int64_t axis = number < 0 ? number + 1 + (int64_t)x->rank : number;

    if (axis != 1)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "axis=%" PRId64 " is not supported; must be 1", axis);
    gp_onnx_node_view(m, x, 1, &features);
}

/* Map a Reshape. 0 keeps a dimension, -1 is the remainder of a sample if the first dimension is
 * the sample axis. */
void gp_onnx_map_reshape(gp_onnx_mapping *m)
{
    int64_t to[GP_ONNX_LIST_MAX];
    size_t open = 0;
    const gp_onnx_value *x = gp_onnx_node_data(m, 0);
    const int64_t zero = gp_onnx_node_int(m, "allowzero", 0), all = value_count(x);
    const size_t count = gp_onnx_node_dims(m, 1, "shape", to);
    int64_t rest = all;

    const bool keeps = count > 0 && (to[0] == 0 || to[0] == -1 || to[0] == GP_ONNX_SAMPLES ||
                                     (m->batch != 0 && to[0] == m->batch));

    if (!keeps)
        gp_onnx_fail(
            m, GP_EUNSUPPORTED,
            "only reshapes to [N, ...], [0, ...] and [-1, ...] are supported, which keep the sample axis");
    if (m->status != GP_OK)
        return;
    if (count == 1 && to[0] == -1 && all != 1) { /* all samples in one vector */
        gp_onnx_node_alias(m, x);
        m->output->role = GP_ONNX_VALUE_FLAT;
        return;
    }
    for (size_t i = 1; i < count && m->status == GP_OK; i++) {
        if (to[i] == 0 && (zero != 0 || i > x->rank))
            gp_onnx_fail(m, GP_EUNSUPPORTED, "a dimension of 0 at position %zu is not supported", i + 1);
        else if (to[i] == 0)
            to[i] = x->dims[i - 1];
        if (to[i] == -1 && open == 0 && to[0] != -1)
            open = i;
        else if (to[i] < 1 || rest % to[i] != 0)
            gp_onnx_fail(m, GP_EUNSUPPORTED,
                         "dimension %zu, %" PRId64 ", does not match the %" PRId64 " numbers of a sample",
                         i + 1, to[i], all);
        else
            rest /= to[i];
    }
    if (open != 0)
        to[open] = rest;
    else if (rest != 1)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "its dimensions have a part of the %" PRId64
                     " numbers of a sample, which would move the sample axis",
                     all);
    gp_onnx_node_view(m, x, (uint32_t)count - 1, to + 1);
}

/* Map Squeeze and Unsqueeze along any axes except the sample axis. */
void gp_onnx_map_squeeze(gp_onnx_mapping *m)
{
    const bool more = *m->node->op_type == 'U';
    int64_t axes[GP_ONNX_LIST_MAX], dims[2 * GP_ONNX_LIST_MAX];
    bool chosen[2 * GP_ONNX_LIST_MAX] = { false };
    uint32_t rank = 0, from = 0;
    const gp_onnx_value *x = gp_onnx_node_data(m, 0);
    const size_t count = gp_onnx_node_list(m, 1, "axes", axes);
    const uint32_t wide = more ? x->rank + (uint32_t)count : x->rank;

    if (count == 0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "without axes it may remove the sample axis");
    for (size_t i = 0; i < count; i++) {
        const int64_t axis = gp_onnx_sample_axis(m, axes[i], wide);

        if (chosen[axis] || (!more && x->dims[axis] != 1))
            gp_onnx_fail(m, GP_EINVAL, "axis %" PRId64 " is present twice or has not size 1", axes[i]);
        chosen[axis] = true;
    }
    if (m->status != GP_OK)
        return;
    for (uint32_t i = 0; i < wide; i++)
        if (more || !chosen[i])
            dims[rank++] = more && chosen[i] ? 1 : x->dims[more ? from++ : i];
    gp_onnx_node_view(m, x, rank, dims);
}

/* Merge axes that stay adjacent into groups and drop axes of size 1. Return the number of groups;
 * group g of the output is group place[g] of the input. */
static uint32_t transpose_groups(const gp_onnx_value *x, const int64_t *order, int64_t size[GP_ONNX_RANK_MAX],
                                 int64_t place[GP_ONNX_RANK_MAX])
{
    uint32_t groups = 0;
    int64_t first[GP_ONNX_RANK_MAX], last = -1;

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
        place[g] = 0;
        for (uint32_t k = 0; k < groups; k++)
            place[g] += first[k] < first[g];
    }
    return groups;
}

/* Add a transpose layer for an image. */
static void transpose_layer(gp_onnx_mapping *m, const gp_onnx_value *image, const int64_t order[3])
{
    char settings[48] = "";

    gp_onnx_put_list(settings, sizeof(settings), "order", order, 3);
    gp_onnx_node_layer(m, "transpose", settings, image);
}

/* Transpose as an image with up to three groups of axes. */
static void transpose_by_groups(gp_onnx_mapping *m, const gp_onnx_value *x, const int64_t *order)
{
    int64_t size[GP_ONNX_RANK_MAX], place[GP_ONNX_RANK_MAX] = { 0 }, from[3] = { 1, 1, 1 };
    const uint32_t groups = transpose_groups(x, order, size, place);
    gp_onnx_value image = *x;

    if (groups > 3) {
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it permutes %" PRIu32 " groups of axes, at most 3 are supported",
                     groups);
        return;
    }
    if (groups <= 1) {
        gp_onnx_node_alias(m, x);
        return;
    }
    for (uint32_t g = 0; g < 3; g++)
        if (g < groups)
            from[place[g]] = size[g];
        else
            place[g] = g;
    gp_onnx_append_shape(m, &image, 3, from);
    transpose_layer(m, &image, place);
}

void gp_onnx_map_transpose(gp_onnx_mapping *m)
{
    int64_t order[GP_ONNX_RANK_MAX];
    unsigned seen = 0;
    gp_onnx_value *x = gp_onnx_node_any(m, 0);

    if (gp_onnx_node_attribute(m, "perm") == NULL)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "without perm it would move the sample axis");
    gp_onnx_node_ints(m, "perm", 1 + x->rank, 0, order);
    if (order[0] != 0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its perm moves the sample axis");
    for (uint32_t i = 0; i < x->rank && m->status == GP_OK; i++) {
        order[i] = order[i + 1] - 1;
        if (order[i] < 0 || order[i] >= (int64_t)x->rank || (seen >> order[i] & 1))
            gp_onnx_fail(m, GP_EINVAL, "its perm has axis %" PRId64 " twice or out of range", order[i] + 1);
        else
            seen |= 1u << order[i];
    }
    if (m->status != GP_OK)
        return;

    /* Switch between channels first and channels last without a layer. */
    bool rotates = x->rank == 2 || x->rank == 3;

    /* The first axis moves to the end, or from channels last the last axis to the front. */
    for (uint32_t i = 0; i < x->rank && rotates; i++)
        rotates = order[i] == (int64_t)((i + (x->channels_last ? x->rank - 1 : 1)) % x->rank);
    const bool last = rotates && !x->channels_last;

    if (rotates ? last : x->rank == 3)
        gp_onnx_value_settle(m, x);
    else if (!rotates)
        x = gp_onnx_node_data(m, 0);
    const gp_onnx_value before = *x;

    if (rotates)
        gp_onnx_node_alias(m, x);
    else if (x->rank == 3)
        transpose_layer(m, x, order);
    else
        transpose_by_groups(m, x, order);
    m->output->channels_last = last;
    m->output->rank = before.rank;
    for (uint32_t i = 0; i < before.rank; i++)
        m->output->dims[i] = before.dims[order[i]];
}

/* ---- slicing, concatenation and padding ---- */

void gp_onnx_map_concat(gp_onnx_mapping *m)
{
    gp_onnx_value *x[GP_ONNX_CONCAT_MAX], groups[GP_LAYER_INPUTS_MAX];
    size_t count = m->node->n_input;
    const int64_t number = gp_onnx_node_int(m, "axis", 1);
    char settings[48];

    for (size_t k = 0; k < count; k++) {
        x[k] = gp_onnx_node_image(m, k);
        if (x[k]->rank != x[0]->rank)
            gp_onnx_fail(m, GP_EINVAL, "its inputs have different ranks");
    }
    const int64_t axis = gp_onnx_sample_axis(m, number, x[0]->rank);

    if (m->status != GP_OK)
        return;
    if (count == 1) {
        gp_onnx_node_alias(m, x[0]);
        return;
    }
    snprintf(settings, sizeof(settings), "axis=%" PRId64, axis);
    if (count > GP_LAYER_INPUTS_MAX) {
        /* Form as many groups of adjacent inputs as a layer accepts, each with a separate layer. */
        for (size_t k = 0, first = 0, end; k < GP_LAYER_INPUTS_MAX; k++, first = end) {
            end = (k + 1) * count / GP_LAYER_INPUTS_MAX;
            if (end - first == 1)
                groups[k] = *x[first];
            else
                gp_onnx_append_of(m, "concat", settings, x + first, end - first, &groups[k]);
            x[k] = &groups[k];
        }
        count = GP_LAYER_INPUTS_MAX;
    }
    gp_onnx_node_layer_of(m, "concat", settings, x, count);
}

void gp_onnx_map_slice(gp_onnx_mapping *m)
{
    int64_t start[3] = { 0 }, size[3] = { 0 };
    gp_onnx_slices slices;
    char settings[160] = "";
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);

    gp_onnx_node_slices(m, &slices);
    if (slices.count == 0)
        gp_onnx_fail(m, GP_ECORRUPT, "its starts, ends, axes and steps have different sizes");
    for (size_t i = 0; i < slices.count && m->status == GP_OK; i++) {
        if (slices.steps[i] != 1)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "a step of %" PRId64 " is not supported; must be 1",
                         slices.steps[i]);
        if (slices.axes[i] == 0 && slices.starts[i] == 0 &&
            (slices.ends[i] >= INT32_MAX || (m->batch != 0 && slices.ends[i] >= m->batch)))
            continue; /* all samples */
        const int64_t axis = gp_onnx_sample_axis(m, slices.axes[i], x->rank);

        start[axis] = gp_onnx_slice_bound(slices.starts[i], x->dims[axis], 1, true);
        size[axis] = gp_onnx_slice_bound(slices.ends[i], x->dims[axis], 1, false) - start[axis];
        if (size[axis] < 1)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "axis %" PRId64 " would be empty", axis + 1);
    }
    gp_onnx_put_list(settings, sizeof(settings), "start", start, 3);
    gp_onnx_put_list(settings, sizeof(settings), "size", size, 3);
    gp_onnx_node_layer(m, "crop", settings, x);
}

/* Read the padding of height and width from the pads for the given axes, or for all axes. */
static void pad_read(gp_onnx_mapping *m, const gp_onnx_value *x, int64_t padding[4])
{
    int64_t pads[GP_ONNX_LIST_MAX], axes[GP_ONNX_LIST_MAX];
    const size_t count = gp_onnx_node_list(m, 1, "pads", pads);
    size_t axis_count = gp_onnx_node_list(m, 3, "axes", axes);

    if (axis_count == 0)
        for (; axis_count <= x->rank; axis_count++)
            axes[axis_count] = (int64_t)axis_count;
    if (count != 2 * axis_count)
        gp_onnx_fail(m, GP_ECORRUPT, "it has %zu pads for %zu axes", count, axis_count);
    for (size_t i = 0; i < axis_count && m->status == GP_OK; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + 1 + (int64_t)x->rank : axes[i];

        if (pads[i] == 0 && pads[axis_count + i] == 0)
            continue;
        if (axis < 2 || axis > (int64_t)x->rank) {
            gp_onnx_fail(m, GP_EUNSUPPORTED, "only padding of height and width is supported");
            return;
        }
        padding[axis - 2] = pads[i];
        padding[axis] = pads[axis_count + i];
    }
}

void gp_onnx_map_pad(gp_onnx_mapping *m)
{
    int64_t padding[4] = { 0 };
    char settings[160] = "";
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);

    pad_read(m, x, padding);
    const double value = gp_onnx_node_scalar(m, 2, "constant_value", gp_onnx_node_float(m, "value", 0.0f));

    if (!gp_onnx_node_attribute_is(m, "mode", "constant", "constant"))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its mode must be constant");
    if (value != 0.0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "padding with %g is not supported; must be 0", value);
    gp_onnx_put_list(settings, sizeof(settings), "padding", padding, 4);
    gp_onnx_node_layer(m, "pad", settings, x);
}

/* ---- resizing ---- */

/* Return whether a Resize has the form before opset 11, as an Upsample always has. */
static bool is_old_resize(const gp_onnx_mapping *m)
{
    return *m->node->op_type == 'U' || m->opset < 11;
}

/* Return the resize mode for the attributes of a Resize or Upsample. NULL: not supported. With
 * half-pixel coordinates and an integer scale factor, the nearest pixel is the same as with
 * asymmetric coordinates: (x + 1/2) / s - 1/2 rounds to floor(x / s). */
static const char *resize_mode(const gp_onnx_mapping *m, bool *multiples)
{
    const bool old = is_old_resize(m);
    const char *const place = "coordinate_transformation_mode", *fallback = old ? "asymmetric" : "half_pixel";
    const char *const rounds = old ? "floor" : "round_prefer_floor";
    const bool half = gp_onnx_node_attribute_is(m, place, fallback, "half_pixel") ||
                      gp_onnx_node_attribute_is(m, place, fallback, "half_pixel_symmetric");
    const bool corner = gp_onnx_node_attribute_is(m, place, fallback, "asymmetric");

    *multiples = false;
    if (!gp_onnx_node_attribute_is(m, "keep_aspect_ratio_policy", "stretch", "stretch"))
        return NULL;
    if (gp_onnx_node_attribute_is(m, "mode", "nearest", "nearest")) {
        *multiples = half && (gp_onnx_node_attribute_is(m, "nearest_mode", rounds, "round_prefer_floor") ||
                              gp_onnx_node_attribute_is(m, "nearest_mode", rounds, "round_prefer_ceil"));
        return *multiples || (corner && gp_onnx_node_attribute_is(m, "nearest_mode", rounds, "floor"))
                   ? "nearest"
                   : NULL;
    }
    if (!gp_onnx_node_attribute_is(m, "mode", "nearest", "linear"))
        return NULL;
    if (half)
        return "bilinear";
    if (gp_onnx_node_attribute_is(m, place, fallback, "align_corners"))
        return "bilinear-corners";
    return corner ? "bilinear-asymmetric" : NULL;
}

/* Set the requested size along one axis of [N, C, H, W]; only height and width may change. A
 * scale must give an integer number of pixels, because positions would differ otherwise. */
static void resize_axis(gp_onnx_mapping *m, const gp_onnx_value *x, int64_t axis, bool is_size, double number,
                        int64_t size[2])
{
    const int64_t place = axis < 0 ? axis + 1 + (int64_t)x->rank : axis;

    if (place < 0 || place > (int64_t)x->rank) {
        gp_onnx_fail(m, GP_EINVAL, "it has no axis %" PRId64, axis);
        return;
    }
    if (place < 2) {
        if (is_size ? place != 0 && number != (double)x->dims[0] : number != 1.0)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "only height and width can change, not axis %" PRId64, place);
        return;
    }
    double exact = is_size ? number : number * (double)x->dims[place - 1];

    if (!(exact >= 0.5 && exact < 65536.0) || fabs(exact - rint(exact)) > 1e-4)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "%g times %" PRId64 " pixels is not a whole number", number,
                     x->dims[place - 1]);
    else
        size[place - 2] = (int64_t)rint(exact);
}

static void resize_size(gp_onnx_mapping *m, const gp_onnx_value *x, int64_t size[2])
{
    /* Older versions have no region input between the image and the scales; the oldest have the
     * scales as an attribute. */
    const bool old = is_old_resize(m);
    const Onnx__AttributeProto *list = gp_onnx_node_attribute(m, "scales");
    const Onnx__AttributeProto *axes = gp_onnx_node_attribute(m, "axes");
    const gp_onnx_tensor *scales = gp_onnx_node_constant(m, old ? 1 : 2);
    const size_t axis_count = axes != NULL ? axes->n_ints : 1 + (size_t)x->rank;
    int64_t sizes[GP_ONNX_LIST_MAX];
    size_t count = old ? 0 : gp_onnx_node_dims(m, 3, "sizes", sizes);
    const bool is_size = count != 0;

    if (!is_size && scales != NULL && !gp_onnx_is_float(scales))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its scales are not float32 numbers");
    if (!is_size)
        count = scales != NULL ? (size_t)scales->count : list != NULL ? list->n_floats : 0;
    if (count == 0 || count != axis_count)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it has %zu scales or sizes for %zu axes", count, axis_count);
    for (size_t i = 0; i < count && m->status == GP_OK; i++) {
        double number = is_size          ? (double)sizes[i]
                        : scales != NULL ? gp_onnx_real_at(scales, (int64_t)i)
                                         : (double)list->floats[i];

        resize_axis(m, x, axes != NULL ? axes->ints[i] : (int64_t)i, is_size, number, size);
    }
}

void gp_onnx_map_resize(gp_onnx_mapping *m)
{
    bool multiples;
    const char *mode = resize_mode(m, &multiples);
    char settings[96] = "";
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);
    int64_t size[2] = { x->dims[1], x->dims[2] };

    if (mode == NULL)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "its mode is not supported; must be linear (half_pixel, align_corners, asymmetric) or "
                     "nearest (asymmetric with floor; half_pixel with round_prefer_...)");
    gp_onnx_node_fixed_int(m, "antialias", 0);
    gp_onnx_node_fixed_int(m, "exclude_outside", 0);
    if (x->rank != 3)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it is supported only for images");
    resize_size(m, x, size);
    if (m->status != GP_OK)
        return;
    if (multiples && (size[0] % x->dims[1] != 0 || size[1] % x->dims[2] != 0))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "nearest with half_pixel is supported only for integer scales");
    gp_onnx_put_list(settings, sizeof(settings), "size", size, 2);
    snprintf(settings + strlen(settings), sizeof(settings) - strlen(settings), ";mode=%s", mode);
    gp_onnx_node_layer(m, "resize", settings, x);
}
