/* onnx_layers.c -- operators that are one layer each: their attributes and constants become its settings. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx_map.h"

/* "key=" and a number that reads back as itself. */
static void put_number(char *settings, size_t bytes, const char *key, double number)
{
    size_t used = strlen(settings);

    snprintf(settings + used, bytes - used, "%s%s=%.17g", used == 0 ? "" : ";", key, number);
}

gp_status gp_onnx_map_scale(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                            const Onnx__TensorProto *factor, gp_error *err)
{
    char settings[64] = "";

    if (gp_onnx_floats(factor) == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "its factor is not a float32 number");
    put_number(settings, sizeof(settings), "factor", (double)gp_onnx_float_at(gp_onnx_floats(factor), 0));
    return gp_onnx_node_layer(m, node, "scale", settings, &x, 1, err);
}

gp_status gp_onnx_map_batchnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source *source = &m->sources[m->spec->layer_count];
    char settings[96] = "";
    float epsilon, momentum;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    for (size_t k = 0; k < 4 && status == GP_OK; k++) {
        status = gp_onnx_node_parameter(m, node, k + 1, 1, &source->tensors[k], err);
        if (status == GP_OK && source->tensors[k] == NULL)
            status = gp_fail(err, GP_ECORRUPT, "its scale, offset, mean or variance is missing");
    }
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "epsilon", 1e-5f, &epsilon, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "momentum", 0.9f, &momentum, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "training_mode", 0, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "epsilon", (double)epsilon);
    put_number(settings, sizeof(settings), "momentum", (double)(1.0f - momentum)); /* theirs: what stays */
    return gp_onnx_node_layer(m, node, "batchnorm", settings, &x, 1, err);
}

/* The scale and offset of a normalisation, and epsilon. */
static gp_status norm_parameters(gp_onnx_mapping *m, const Onnx__NodeProto *node, char *settings,
                                 size_t bytes, gp_error *err)
{
    gp_onnx_source *source = &m->sources[m->spec->layer_count];
    float epsilon;
    gp_status status = gp_onnx_node_float(node, "epsilon", 1e-5f, &epsilon, err);

    for (size_t k = 0; k < 2 && status == GP_OK; k++) {
        status = gp_onnx_node_parameter(m, node, k + 1, 1, &source->tensors[k], err);
        if (status == GP_OK && source->tensors[k] == NULL)
            status = gp_fail(err, GP_EUNSUPPORTED, "without a scale or an offset it is not supported");
    }
    if (status == GP_OK)
        put_number(settings, bytes, "epsilon", (double)epsilon);
    return status;
}

gp_status gp_onnx_map_groupnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool instance = strcmp(node->op_type, "InstanceNormalization") == 0;
    char settings[96] = "";
    int64_t groups = 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK && !instance && m->opset < 21)
        status =
            gp_fail(err, GP_EUNSUPPORTED,
                    "before opset 21 its scale is per group; from then on, per channel, it is supported");
    if (status == GP_OK)
        status = norm_parameters(m, node, settings, sizeof(settings), err);
    if (status == GP_OK && !instance)
        status = gp_onnx_node_int(node, "num_groups", 0, &groups, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "groups",
               instance ? (double)gp_onnx_shape_of(m, x).dim[0] : (double)groups);
    return gp_onnx_node_layer(m, node, "groupnorm", settings, &x, 1, err);
}

gp_status gp_onnx_map_layernorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[64] = "";
    int64_t axis;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", -1, &axis, err);
    if (status == GP_OK && (gp_onnx_shape_of(m, x).rank != 1 || (axis != -1 && axis != 1)))
        status = gp_fail(err, GP_EUNSUPPORTED, "it is supported over the features of a vector");
    if (status == GP_OK)
        status = norm_parameters(m, node, settings, sizeof(settings), err);
    return status == GP_OK ? gp_onnx_node_layer(m, node, "layernorm", settings, &x, 1, err) : status;
}

gp_status gp_onnx_map_lrn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[160] = "";
    int64_t size;
    float alpha, beta, bias;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "size", 0, &size, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 1e-4f, &alpha, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "beta", 0.75f, &beta, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "bias", 1.0f, &bias, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "size", (double)size);
    put_number(settings, sizeof(settings), "alpha", (double)alpha);
    put_number(settings, sizeof(settings), "beta", (double)beta);
    put_number(settings, sizeof(settings), "bias", (double)bias);
    return gp_onnx_node_layer(m, node, "crosschannelnorm", settings, &x, 1, err);
}

gp_status gp_onnx_map_global_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool average = strcmp(node->op_type, "GlobalAveragePool") == 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    return status == GP_OK
               ? gp_onnx_node_layer(m, node, average ? "globalavgpool" : "globalmaxpool", NULL, &x, 1, err)
               : status;
}

/* An end of Clip: an attribute before opset 11, an input since; `fallback` when absent. */
static gp_status clip_end(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                          float fallback, float *out, gp_error *err)
{
    const Onnx__TensorProto *tensor;
    gp_status status = gp_onnx_node_float(node, name, fallback, out, err);

    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, k, &tensor, err);
    if (status != GP_OK || tensor == NULL)
        return status;
    if (gp_onnx_count(tensor) != 1 || gp_onnx_floats(tensor) == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "its %s is not one float32 number", name);
    *out = gp_onnx_float_at(gp_onnx_floats(tensor), 0);
    return GP_OK;
}

gp_status gp_onnx_map_clip(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const double end = 3e38; /* as good as none */
    char settings[96] = "";
    float min, max;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = clip_end(m, node, 1, "min", -FLT_MAX, &min, err);
    if (status == GP_OK)
        status = clip_end(m, node, 2, "max", FLT_MAX, &max, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "min", fmax((double)min, -end));
    put_number(settings, sizeof(settings), "max", fmin((double)max, end));
    return gp_onnx_node_layer(m, node, "clip", settings, &x, 1, err);
}

gp_status gp_onnx_map_leaky_relu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[48] = "";
    float slope;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 0.01f, &slope, err);
    if (status != GP_OK)
        return status;
    put_number(settings, sizeof(settings), "slope", (double)slope);
    return gp_onnx_node_layer(m, node, "leakyrelu", settings, &x, 1, err);
}

/* A kind without settings that is called as its operator. */
gp_status gp_onnx_map_function(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const char *kind = NULL;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    for (size_t i = 0; gp_kinds[i] != NULL; i++)
        if (strcmp(gp_kinds[i]->onnx, node->op_type) == 0)
            kind = gp_kinds[i]->name;
    return status == GP_OK ? gp_onnx_node_layer(m, node, kind, NULL, &x, 1, err) : status;
}

/* ---- shapes ---- */

enum { LIST_MAX = 8 };

/* A short list of whole numbers: the k-th input, int64 or int32, or before it was one, an attribute.  *count is 0 when
 * it is absent. */
static gp_status node_list(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, const char *name,
                           int64_t list[LIST_MAX], size_t *count, gp_error *err)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);
    const Onnx__TensorProto *tensor;
    gp_status status = gp_onnx_node_constant(m, node, k, &tensor, err);
    bool numbers = true;

    if (status != GP_OK)
        return status;
    *count = tensor != NULL ? (size_t)gp_onnx_count(tensor) : attribute != NULL ? attribute->n_ints : 0;
    if (*count > LIST_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "its %s are %zu numbers; %d are read", name, *count, LIST_MAX);
    for (size_t i = 0; i < *count && numbers; i++) {
        if (tensor == NULL)
            list[i] = attribute->ints[i];
        else
            numbers = gp_onnx_int64_at(tensor, (int64_t)i, &list[i]);
    }
    return numbers ? GP_OK : gp_fail(err, GP_EUNSUPPORTED, "its %s are not int64 numbers", name);
}

/* An axis of [N, C, H, W] as one of [C, H, W]. */
static gp_status sample_axis(int64_t axis, const gp_shape *shape, int64_t *out, gp_error *err)
{
    *out = (axis < 0 ? axis + 1 + (int64_t)shape->rank : axis) - 1;
    if (*out < 0 || *out >= (int64_t)shape->rank)
        return gp_fail(err, GP_EUNSUPPORTED, "axis %" PRId64 " is not supported; 1 to %u are", axis,
                       shape->rank);
    return GP_OK;
}

gp_status gp_onnx_map_concat(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *x[GP_LAYER_INPUTS_MAX];
    char settings[48];
    int64_t axis;
    gp_status status = gp_onnx_node_int(node, "axis", 1, &axis, err);

    for (size_t k = 0; k < node->n_input && status == GP_OK; k++)
        status = gp_onnx_node_data(m, node, k, &x[k], err);
    if (status != GP_OK)
        return status;
    const gp_shape shape = gp_onnx_shape_of(m, x[0]);

    status = sample_axis(axis, &shape, &axis, err);
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "axis=%" PRId64, axis);
    return gp_onnx_node_layer(m, node, "concat", settings, x, node->n_input, err);
}

/* "key=1,2,3" */
static void put_list(char *settings, size_t bytes, const char *key, const int64_t *list, size_t count)
{
    size_t used = strlen(settings);

    used += (size_t)snprintf(settings + used, bytes - used, "%s%s=", used == 0 ? "" : ";", key);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(settings + used, bytes - used, "%s%" PRId64, i == 0 ? "" : ",", list[i]);
}

/* An end as ONNX counts it: negative from the back, beyond an end the end itself. */
static int64_t slice_end(int64_t end, int64_t size)
{
    if (end < 0)
        end = end < -size ? 0 : end + size;
    return end > size ? size : end;
}

gp_status gp_onnx_map_slice(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t starts[LIST_MAX], ends[LIST_MAX], axes[LIST_MAX], steps[LIST_MAX], start[3] = { 0 },
                                                                               size[3] = { 0 };
    size_t start_count, end_count, axis_count, step_count;
    char settings[160] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = node_list(m, node, 1, "starts", starts, &start_count, err);
    if (status == GP_OK)
        status = node_list(m, node, 2, "ends", ends, &end_count, err);
    if (status == GP_OK)
        status = node_list(m, node, 3, "axes", axes, &axis_count, err);
    if (status == GP_OK)
        status = node_list(m, node, 4, "steps", steps, &step_count, err);
    if (status != GP_OK)
        return status;
    const gp_shape shape = gp_onnx_shape_of(m, x);

    if (start_count == 0 || start_count != end_count || (axis_count != 0 && axis_count != start_count) ||
        (step_count != 0 && step_count != start_count))
        return gp_fail(err, GP_ECORRUPT, "its starts, ends, axes and steps are not as many");
    for (size_t i = 0; i < start_count && status == GP_OK; i++) {
        int64_t axis;

        if (step_count != 0 && steps[i] != 1)
            return gp_fail(err, GP_EUNSUPPORTED, "a step of %" PRId64 " is not supported; 1 is", steps[i]);
        status = sample_axis(axis_count == 0 ? (int64_t)i : axes[i], &shape, &axis, err);
        if (status != GP_OK)
            return status;
        start[axis] = slice_end(starts[i], shape.dim[axis]);
        size[axis] = slice_end(ends[i], shape.dim[axis]) - start[axis];
        if (size[axis] < 1)
            return gp_fail(err, GP_EUNSUPPORTED, "nothing is left along axis %" PRId64, axis + 1);
    }
    put_list(settings, sizeof(settings), "start", start, 3);
    put_list(settings, sizeof(settings), "size", size, 3);
    return gp_onnx_node_layer(m, node, "crop", settings, &x, 1, err);
}

gp_status gp_onnx_map_pad(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const Onnx__AttributeProto *mode = gp_onnx_node_attribute(node, "mode");
    const Onnx__TensorProto *constant;
    int64_t pads[LIST_MAX];
    size_t count;
    char settings[160] = "";
    float value;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = node_list(m, node, 1, "pads", pads, &count, err);
    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, 2, &constant, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "value", 0.0f, &value, err);
    if (status != GP_OK)
        return status;
    if (constant != NULL && gp_onnx_floats(constant) != NULL && gp_onnx_count(constant) == 1)
        value = gp_onnx_float_at(gp_onnx_floats(constant), 0);
    if (mode != NULL && (mode->s.len != 8 || memcmp(mode->s.data, "constant", 8) != 0))
        return gp_fail(err, GP_EUNSUPPORTED, "its mode is not constant");
    if (value != 0.0f)
        return gp_fail(err, GP_EUNSUPPORTED, "padding with %g is not supported; with 0 is", (double)value);
    if (count != 8 || pads[0] != 0 || pads[1] != 0 || pads[4] != 0 || pads[5] != 0)
        return gp_fail(err, GP_EUNSUPPORTED, "padding of height and width is supported, and of nothing else");
    put_list(settings, sizeof(settings), "padding", (const int64_t[]){ pads[2], pads[3], pads[6], pads[7] },
             4);
    return gp_onnx_node_layer(m, node, "pad", settings, &x, 1, err);
}

/* To [N, features] or [N, C, H, W]; 0 keeps a dimension, -1 is what is left. */
gp_status gp_onnx_map_reshape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t to[LIST_MAX];
    size_t count;
    char settings[96] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "allowzero", 0, err);
    if (status == GP_OK)
        status = node_list(m, node, 1, "shape", to, &count, err);
    if (status != GP_OK)
        return status;
    const gp_shape shape = gp_onnx_shape_of(m, x);
    const int64_t elements = gp_shape_count(&shape);
    bool keeps = count > 0 && (to[0] == 0 || to[0] == -1 || (m->batch != 0 && to[0] == m->batch));

    if (count != 2 && count != 4)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "only a reshape to two or four dimensions, [N, -1] or [N, C, H, W], is supported");
    for (size_t i = 1; i < count; i++)
        keeps = keeps && to[i] >= -1 && (to[0] != -1 || to[i] != -1);
    if (!keeps)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "a reshape to [%" PRId64 ", %" PRId64
                       "%s] is not supported; [N, -1] and [N, C, H, W] are",
                       to[0], to[1], count == 2 ? "" : ", ...");
    if (count == 4) {
        put_list(settings, sizeof(settings), "shape", to + 1, 3);
        return gp_onnx_node_layer(m, node, "reshape", settings, &x, 1, err);
    }
    if (to[1] == 0 ? shape.dim[0] != elements : to[1] != -1 && to[1] != elements)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "it reshapes to %" PRId64 " features and a sample has %" PRId64
                       "; only [N, -1] is supported",
                       to[1], elements);
    return gp_onnx_node_layer(m, node, "flatten", NULL, &x, 1, err);
}

gp_status gp_onnx_map_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t order[4];
    char settings[48] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK && gp_onnx_node_attribute(node, "perm") == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "without perm it would move the samples' axis");
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "perm", 4, 0, order, err);
    if (status != GP_OK)
        return status;
    if (order[0] != 0)
        return gp_fail(err, GP_EUNSUPPORTED, "its perm moves the samples' axis");
    for (int i = 1; i < 4; i++)
        if (order[i] < 1 || order[i] > 3)
            return gp_fail(err, GP_EUNSUPPORTED, "its perm has axis %" PRId64, order[i]);
        else
            order[i]--;
    put_list(settings, sizeof(settings), "order", order + 1, 3);
    return gp_onnx_node_layer(m, node, "transpose", settings, &x, 1, err);
}

/* ---- larger and smaller ---- */

/* Whether a text attribute says that, or is absent and that is its default. */
static bool attribute_is(const Onnx__NodeProto *node, const char *name, const char *fallback,
                         const char *word)
{
    const Onnx__AttributeProto *attribute = gp_onnx_node_attribute(node, name);

    if (attribute == NULL)
        return strcmp(fallback, word) == 0;
    return attribute->s.len == strlen(word) && memcmp(attribute->s.data, word, attribute->s.len) == 0;
}

gp_status gp_onnx_map_conv_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source *source = &m->sources[m->spec->layer_count];
    int64_t groups, stride[2], dilation[2], padding[4], extra[2];
    char settings[320] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 4, &source->tensors[0], err);
    if (status == GP_OK && source->tensors[0] == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 2, 1, &source->tensors[1], err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "group", 1, &groups, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "strides", 2, 1, stride, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "dilations", 2, 1, dilation, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "pads", 4, 0, padding, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "output_padding", 2, 0, extra, err);
    if (status == GP_OK && !attribute_is(node, "auto_pad", "NOTSET", "NOTSET"))
        status = gp_fail(err, GP_EUNSUPPORTED, "auto_pad is not supported here; write the padding as pads");
    if (status == GP_OK && (groups < 1 || source->tensors[0]->dims[1] > GP_CHANNELS_MAX / groups))
        status = gp_fail(err, GP_EUNSUPPORTED, "group=%" PRId64 " is not supported", groups);
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";bias=%s",
             source->tensors[0]->dims[1] * groups, groups, source->tensors[1] == NULL ? "false" : "true");
    put_list(settings, sizeof(settings), "kernel", source->tensors[0]->dims + 2, 2);
    put_list(settings, sizeof(settings), "stride", stride, 2);
    put_list(settings, sizeof(settings), "dilation", dilation, 2);
    put_list(settings, sizeof(settings), "padding", padding, 4);
    put_list(settings, sizeof(settings), "extra", extra, 2);
    return gp_onnx_node_layer(m, node, "transconv2d", settings, &x, 1, err);
}

/* The mode that the attributes of a Resize, or of an Upsample, say; NULL: none of ours. */
static const char *resize_mode(const gp_onnx_mapping *m, const Onnx__NodeProto *node)
{
    const char *fallback =
        strcmp(node->op_type, "Upsample") == 0 || m->opset < 11 ? "asymmetric" : "half_pixel";
    const char *const place = "coordinate_transformation_mode";

    if (attribute_is(node, "mode", "nearest", "nearest")) {
        bool floors =
            attribute_is(node, "nearest_mode", *fallback == 'a' ? "floor" : "round_prefer_floor", "floor");

        return floors && attribute_is(node, place, fallback, "asymmetric") ? "nearest" : NULL;
    }
    if (!attribute_is(node, "mode", "nearest", "linear"))
        return NULL;
    if (attribute_is(node, place, fallback, "half_pixel"))
        return "bilinear";
    if (attribute_is(node, place, fallback, "align_corners"))
        return "bilinear-corners";
    return attribute_is(node, place, fallback, "asymmetric") ? "bilinear-asymmetric" : NULL;
}

/* Height and width from the scales, which must make whole numbers of pixels, or positions would not be ours. */
static gp_status scaled_size(const Onnx__TensorProto *scales, const gp_shape *shape, int64_t size[2],
                             gp_error *err)
{
    const void *floats = scales == NULL ? NULL : gp_onnx_floats(scales);

    if (floats == NULL || gp_onnx_count(scales) != 4 || gp_onnx_float_at(floats, 0) != 1.0f ||
        gp_onnx_float_at(floats, 1) != 1.0f)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "it is supported with four numbers, of which the first two are 1");
    for (int i = 0; i < 2; i++) {
        double exact = (double)gp_onnx_float_at(floats, 2 + i) * (double)shape->dim[1 + i];

        if (!(exact >= 0.5 && exact < 65536.0) || fabs(exact - rint(exact)) > 1e-4)
            return gp_fail(err, GP_EUNSUPPORTED, "%g times %" PRId64 " pixels are no whole number",
                           (double)gp_onnx_float_at(floats, 2 + i), shape->dim[1 + i]);
        size[i] = (int64_t)rint(exact);
    }
    return GP_OK;
}

gp_status gp_onnx_map_resize(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool old =
        strcmp(node->op_type, "Upsample") == 0 || m->opset < 11; /* (X, scales) without the region between */
    const char *mode = resize_mode(m, node);
    const Onnx__TensorProto *scales = NULL;
    int64_t sizes[LIST_MAX], size[2];
    size_t count = 0;
    char settings[96] = "";
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK && mode == NULL)
        status =
            gp_fail(err, GP_EUNSUPPORTED,
                    "its mode is not supported; linear (half_pixel, align_corners, asymmetric) and nearest "
                    "(asymmetric, floor) are");
    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, old ? 1 : 2, &scales, err);
    if (status == GP_OK && !old)
        status = node_list(m, node, 3, "sizes", sizes, &count, err);
    if (status != GP_OK)
        return status;
    const gp_shape shape = gp_onnx_shape_of(m, x);

    if (shape.rank != 3)
        return gp_fail(err, GP_EUNSUPPORTED, "it is supported for images");
    if (count == 4 && sizes[1] == shape.dim[0])
        memcpy(size, sizes + 2, sizeof(size));
    else
        status = scaled_size(scales, &shape, size, err);
    if (status != GP_OK)
        return status;
    put_list(settings, sizeof(settings), "size", size, 2);
    snprintf(settings + strlen(settings), sizeof(settings) - strlen(settings), ";mode=%s", mode);
    return gp_onnx_node_layer(m, node, "resize", settings, &x, 1, err);
}
