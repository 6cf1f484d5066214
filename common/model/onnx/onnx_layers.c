/* onnx_layers.c -- operators that map to one layer: their attributes and constants become layer
 * settings. The file is long but not divided: one function per operator. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

/* ---- windows: convolution and pooling ---- */

/* Window attributes for height and width. A one-dimensional signal has width 1. */
typedef struct node_window {
    int64_t kernel[2], stride[2], dilation[2], padding[4];
    bool upper, lower; /* padding that preserves the size */
} node_window;

static gp_status node_pair(const Onnx__NodeProto *node, const char *name, size_t spatial, int64_t out[2],
                           gp_error *err)
{
    out[1] = 1;
    return gp_onnx_node_ints(node, name, spatial, 1, out, err);
}

/* Read the window attributes for 1 or 2 spatial dimensions.
 *   weights  kernel size if the node has no kernel_shape; NULL: kernel_shape is required */
static gp_status node_window_read(const Onnx__NodeProto *node, size_t spatial, const int64_t *weights,
                                  node_window *out, gp_error *err)
{
    int64_t padding[4];
    gp_status status = node_pair(node, "strides", spatial, out->stride, err);

    if (status == GP_OK)
        status = node_pair(node, "dilations", spatial, out->dilation, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "pads", 2 * spatial, 0, padding, err);
    if (status == GP_OK)
        status = node_pair(node, "kernel_shape", spatial, out->kernel, err);
    if (status != GP_OK)
        return status;
    if (gp_onnx_node_attribute(node, "kernel_shape") == NULL) {
        if (weights == NULL)
            return gp_fail(err, GP_ECORRUPT, "it has no kernel_shape");
        memcpy(out->kernel, weights, spatial * sizeof(*weights));
    }
    memset(out->padding, 0, sizeof(out->padding));
    for (size_t i = 0; i < spatial; i++) {
        out->padding[i] = padding[i];
        out->padding[2 + i] = padding[spatial + i];
    }
    bool padded =
        out->padding[0] != 0 || out->padding[1] != 0 || out->padding[2] != 0 || out->padding[3] != 0;
    bool said = !gp_onnx_node_says(node, "auto_pad", "NOTSET", "NOTSET");

    out->upper = said && gp_onnx_node_says(node, "auto_pad", "", "SAME_UPPER");
    out->lower = said && gp_onnx_node_says(node, "auto_pad", "", "SAME_LOWER");
    if (said && (padded || (!out->upper && !out->lower && !gp_onnx_node_says(node, "auto_pad", "", "VALID"))))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "its auto_pad is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER, or has pads beside it");
    return GP_OK;
}

static void put_window(char *settings, size_t bytes, const node_window *window)
{
    gp_onnx_put_list(settings, bytes, "kernel", window->kernel, 2);
    gp_onnx_put_list(settings, bytes, "stride", window->stride, 2);
    gp_onnx_put_list(settings, bytes, "dilation", window->dilation, 2);
    gp_onnx_put_list(settings, bytes, "padding", window->padding, 4);
}

/* Get the data input (image or signal), the weights, and the optional bias. */
static gp_status filter_inputs(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value **x,
                               gp_onnx_source *source, gp_error *err)
{
    gp_status status = gp_onnx_node_image(m, node, 0, x, err);

    if (status == GP_OK && (*x)->rank < 2)
        status = gp_fail(err, GP_EUNSUPPORTED, "its input is a vector of features; images are supported");
    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 1 + (*x)->rank, &source->tensors[0], err);
    if (status == GP_OK && source->tensors[0].data == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    return status == GP_OK ? gp_onnx_node_parameter(m, node, 2, 1, &source->tensors[1], err) : status;
}

gp_status gp_onnx_map_conv(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source source = { 0 };
    node_window window;
    char settings[448];
    int64_t groups;
    gp_onnx_value *x;
    gp_status status = filter_inputs(m, node, &x, &source, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "group", 1, &groups, err);
    if (status == GP_OK) /* kernel_shape is compared with the weights when shapes are known */
        status = node_window_read(node, x->rank - 1, source.tensors[0].dims + 2, &window, err);
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";bias=%s",
             source.tensors[0].dims[0], groups, source.tensors[1].data == NULL ? "false" : "true");
    put_window(settings, sizeof(settings), &window);
    if (window.upper || window.lower)
        strcat(settings, window.upper ? ";same=upper" : ";same=lower");
    m->sources[m->spec->layer_count] = source;
    return gp_onnx_node_layer(m, node, "conv2d", settings, &x, 1, err);
}

/* Compute padding from the requested output size: the surplus is cut. The larger
 * part of an odd surplus is cut at the end if auto_pad is "upper", otherwise at the start. */
static gp_status transposed_padding(const Onnx__NodeProto *node, const gp_onnx_value *x,
                                    const int64_t extra[2], node_window *window, gp_error *err)
{
    const size_t spatial = x->rank - 1;
    const bool asked = gp_onnx_node_attribute(node, "output_shape") != NULL;
    int64_t size[2];
    gp_status status = gp_onnx_node_ints(node, "output_shape", spatial, 0, size, err);

    if (status != GP_OK || (!asked && !window->upper && !window->lower))
        return status;
    for (size_t i = 0; i < spatial; i++) {
        const int64_t reach = window->stride[i] * (x->dims[1 + i] - 1) + extra[i] +
                              (window->kernel[i] - 1) * window->dilation[i] + 1;

        if (!asked)
            size[i] = x->dims[1 + i] * window->stride[i];
        const int64_t total = reach - (size[i] < 1 ? 1 : size[i]);

        if (total < 0 || size[i] < 1)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "an output of %" PRId64 " is not within the %" PRId64 " that its windows reach",
                           size[i], reach);
        window->padding[i] = window->upper ? total / 2 : total - total / 2;
        window->padding[2 + i] = total - window->padding[i];
    }
    return GP_OK;
}

gp_status gp_onnx_map_conv_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    /* limit for each number, so that sums of products of two do not overflow */
    const int64_t reach_max = 1 << 16;
    gp_onnx_source source = { 0 };
    int64_t groups, extra[2] = { 0 };
    node_window window;
    char settings[448];
    gp_onnx_value *x;
    gp_status status = filter_inputs(m, node, &x, &source, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "group", 1, &groups, err);
    if (status == GP_OK)
        status = node_window_read(node, x->rank - 1, source.tensors[0].dims + 2, &window, err);
    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "output_padding", x->rank - 1, 0, extra, err);
    if (status == GP_OK && (groups < 1 || source.tensors[0].dims[1] > GP_CHANNELS_MAX / groups))
        status = gp_fail(err, GP_EUNSUPPORTED, "group=%" PRId64 " is not supported", groups);
    for (int i = 0; i < 2 && status == GP_OK; i++)
        if (window.kernel[i] < 1 || window.kernel[i] > reach_max || window.stride[i] < 1 ||
            window.stride[i] > reach_max || window.dilation[i] < 1 || window.dilation[i] > reach_max ||
            extra[i] < 0 || extra[i] > reach_max)
            status = gp_fail(err, GP_EINVAL, "a kernel, stride, dilation or output_padding is out of range");
    if (status == GP_OK)
        status = transposed_padding(node, x, extra, &window, err);
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";bias=%s",
             source.tensors[0].dims[1] * groups, groups, source.tensors[1].data == NULL ? "false" : "true");
    put_window(settings, sizeof(settings), &window);
    gp_onnx_put_list(settings, sizeof(settings), "extra", extra, 2);
    m->sources[m->spec->layer_count] = source;
    return gp_onnx_node_layer(m, node, "transconv2d", settings, &x, 1, err);
}

gp_status gp_onnx_map_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool average = strcmp(node->op_type, "AveragePool") == 0;
    char settings[384] = "";
    int64_t count_padding, ceil;
    node_window window;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK && x->rank < 2)
        status = gp_fail(err, GP_EUNSUPPORTED, "its input is a vector of features; images are supported");
    if (status == GP_OK)
        status = node_window_read(node, x->rank - 1, NULL, &window, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "ceil_mode", 0, &ceil, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "storage_order", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "count_include_pad", 0, &count_padding, err);
    if (status != GP_OK)
        return status;
    put_window(settings, sizeof(settings), &window);
    if (window.upper || window.lower)
        strcat(settings, window.upper ? ";same=upper" : ";same=lower");
    if (average && count_padding != 0)
        strcat(settings, ";count-padding=true");
    if (ceil != 0)
        strcat(settings, ";ceil=true");
    return gp_onnx_node_layer(m, node, average ? "avgpool" : "maxpool", settings, &x, 1, err);
}

gp_status gp_onnx_map_global_pool(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool average = strcmp(node->op_type, "GlobalAveragePool") == 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    return status == GP_OK
               ? gp_onnx_node_layer(m, node, average ? "globalavgpool" : "globalmaxpool", NULL, &x, 1, err)
               : status;
}

/* Map a ReduceMean over height and width, as exporters write a global average. */
gp_status gp_onnx_map_reduce_mean(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t axes[GP_ONNX_LIST_MAX], axis, keep;
    bool chosen[GP_ONNX_RANK_MAX] = { false };
    size_t count;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 1, "axes", axes, &count, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "keepdims", 1, &keep, err);
    for (size_t i = 0; status == GP_OK && i < count; i++) {
        status = gp_onnx_sample_axis(axes[i], x->rank, &axis, err);
        if (status == GP_OK)
            chosen[axis] = true;
    }
    if (status != GP_OK)
        return status;
    if (x->rank != 3 || count != 2 || !chosen[1] || !chosen[2])
        return gp_fail(err, GP_EUNSUPPORTED, "it is supported over the height and width of images");
    gp_onnx_value mean = *x;

    if (keep != 0)
        return gp_onnx_node_layer(m, node, "globalavgpool", NULL, &x, 1, err);
    status = gp_onnx_append(m, node->name, "globalavgpool", NULL, &mean, err);
    return status == GP_OK ? gp_onnx_node_view(m, node, &mean, 1, mean.dims, err) : status;
}

/* ---- products ---- */

/* Map a product. The weight is [inputs, outputs] if source->transposed, otherwise [outputs,
 * inputs]. */
static gp_status map_product(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_source *source,
                             gp_onnx_value *x, gp_error *err)
{
    char settings[96];

    if (source->tensors[0].data == NULL)
        return gp_fail(err, GP_ECORRUPT, "it has no weights");
    if (x->rank != 1)
        return gp_fail(err, GP_EUNSUPPORTED, "its input has %" PRIu32 " dimensions; %s supported",
                       x->rank + 1, *node->op_type == 'G' ? "2 are" : "2 to 4 are");
    snprintf(settings, sizeof(settings), "outputs=%" PRId64 ";bias=%s",
             source->tensors[0].dims[source->transposed ? 1 : 0],
             source->tensors[1].data == NULL ? "false" : "true");
    m->sources[m->spec->layer_count] = *source;

    /* an fc layer reads any shape as a vector */
    return gp_onnx_node_layer(m, node, "fc", settings, &x, 1, err);
}

/* Get the third input of a Gemm: [outputs], or a tensor that broadcasts to it without the sample
 * axis. */
static gp_status gemm_bias(gp_onnx_mapping *m, const Onnx__NodeProto *node, int64_t outputs,
                           gp_onnx_tensor *bias, gp_error *err)
{
    const gp_onnx_tensor *c;
    gp_onnx_tensor whole;
    void *data;
    gp_status status = gp_onnx_node_constant(m, node, 2, &c, err);

    if (status != GP_OK || c == NULL)
        return status;
    if (!gp_onnx_is_float(c) || c->rank > 2 || (c->rank == 2 && c->dims[0] != 1) ||
        (c->count != 1 && c->count != outputs))
        return gp_fail(err, GP_EUNSUPPORTED,
                       "its C is not one number or %" PRId64 " float32 numbers, one per output", outputs);
    *bias = *c;
    bias->rank = 1;
    bias->dims[0] = outputs;
    bias->count = outputs;
    if (c->count == outputs)
        return GP_OK;

    /* Use a single number for all outputs. */
    status = gp_onnx_tensor_new(&whole, m->store, c->type, 0, NULL, &data, err);
    if (status != GP_OK)
        return status;
    memcpy(data, c->data, sizeof(float));
    bias->data = data;
    bias->splat = true;
    return GP_OK;
}

gp_status gp_onnx_map_gemm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source source = { 0 };
    int64_t trans_b;
    float alpha, beta;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 2, &source.tensors[0], err);
    if (status == GP_OK && source.tensors[0].data == NULL)
        status = gp_fail(err, GP_ECORRUPT, "it has no weights");
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "transA", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "transB", 0, &trans_b, err);
    if (status == GP_OK)
        status = gemm_bias(m, node, source.tensors[0].dims[trans_b == 0 ? 1 : 0], &source.tensors[1], err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 1.0f, &alpha, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "beta", 1.0f, &beta, err);
    if (status == GP_OK)
        status = gp_onnx_tensor_scale(&source.tensors[0], m->store, (double)alpha, err);
    if (status == GP_OK && source.tensors[1].data != NULL)
        status = gp_onnx_tensor_scale(&source.tensors[1], m->store, (double)beta, err);
    if (status != GP_OK)
        return status;
    source.transposed = trans_b == 0;
    return map_product(m, node, &source, x, err);
}

/* Map a product over the last axis of [N, ..., C] to a convolution with one pixel. */
static gp_status map_product_of_axis(gp_onnx_mapping *m, const Onnx__NodeProto *node,
                                     const gp_onnx_source *source, gp_onnx_value *x, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]), channels, *inputs[] = { &channels };
    char settings[96];
    gp_status status = gp_onnx_value_last(m, x, &channels, err);

    if (status != GP_OK)
        return status;
    if (source->tensors[0].data == NULL)
        return gp_fail(err, GP_ECORRUPT, "it has no weights");
    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";kernel=1;bias=false",
             source->tensors[0].dims[1]);
    m->sources[m->spec->layer_count] = *source;
    status = gp_onnx_node_layer(m, node, "conv2d", settings, inputs, 1, err);
    gp_onnx_node_shaped(m, node, &channels);
    made->dims[made->rank - 1] = source->tensors[0].dims[1];
    return status;
}

gp_status gp_onnx_map_matmul(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source source = { .transposed = true };
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_parameter(m, node, 1, 2, &source.tensors[0], err);
    if (status != GP_OK)
        return status;
    return x->rank == 2 || x->rank == 3 ? map_product_of_axis(m, node, &source, x, err)
                                        : map_product(m, node, &source, x, err);
}

/* ---- normalization ---- */

/* Get scale, offset and further parameters as vectors, and the epsilon setting. */
static gp_status norm_parameters(gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t count,
                                 gp_onnx_source *source, char *settings, size_t bytes, gp_error *err)
{
    float epsilon;
    gp_status status = gp_onnx_node_float(node, "epsilon", 1e-5f, &epsilon, err);

    for (size_t k = 0; k < count && status == GP_OK; k++) {
        status = gp_onnx_node_parameter(m, node, k + 1, 1, &source->tensors[k], err);
        if (status == GP_OK && source->tensors[k].data == NULL)
            status = gp_fail(err, GP_EUNSUPPORTED, "without a scale or an offset it is not supported");
    }
    if (status == GP_OK)
        gp_onnx_put_number(settings, bytes, "epsilon", (double)epsilon);
    return status;
}

/* Add a per-channel normalization for images, signals or vectors. */
static gp_status norm_layer(gp_onnx_mapping *m, const Onnx__NodeProto *node, const char *kind,
                            const char *settings, const gp_onnx_source *source, gp_onnx_value *x,
                            gp_error *err)
{
    m->sources[m->spec->layer_count] = *source;
    return gp_onnx_node_layer(m, node, kind, settings, &x, 1, err);
}

gp_status gp_onnx_map_batchnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source source = { 0 };
    char settings[96] = "";
    float momentum;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK)
        status = norm_parameters(m, node, 4, &source, settings, sizeof(settings), err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "momentum", 0.9f, &momentum, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "training_mode", 0, err);
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "spatial", 1, err);
    if (status == GP_OK && m->opset < 7 && gp_onnx_node_attribute(node, "is_test") == NULL)
        status = gp_fail(err, GP_EUNSUPPORTED, "is_test=0 is not supported; 1 is");
    if (status == GP_OK)
        status = gp_onnx_node_fixed_int(node, "is_test", 1, err);
    if (status != GP_OK)
        return status;
    gp_onnx_put_number(settings, sizeof(settings), "momentum",
                       (double)(1.0f - momentum)); /* in ONNX: the part that is kept */
    return norm_layer(m, node, "batchnorm", settings, &source, x, err);
}

gp_status gp_onnx_map_groupnorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    bool instance = strcmp(node->op_type, "InstanceNormalization") == 0;
    gp_onnx_source source = { 0 };
    char settings[96] = "";
    int64_t groups = 0;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

    if (status == GP_OK && !instance && m->opset < 21)
        status =
            gp_fail(err, GP_EUNSUPPORTED,
                    "before opset 21 its scale is per group; from then on, per channel, it is supported");
    if (status == GP_OK)
        status = norm_parameters(m, node, 2, &source, settings, sizeof(settings), err);
    if (status == GP_OK && !instance)
        status = gp_onnx_node_int(node, "num_groups", 0, &groups, err);
    if (status != GP_OK)
        return status;
    groups = instance ? x->dims[0] : groups;
    gp_onnx_put_list(settings, sizeof(settings), "groups", &groups, 1);
    return norm_layer(m, node, "groupnorm", settings, &source, x, err);
}

gp_status gp_onnx_map_layernorm(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_source source = { 0 };
    char settings[64] = "";
    int64_t axis;
    gp_onnx_value *x;
    gp_onnx_value channels;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", -1, &axis, err);
    if (status == GP_OK && (x->rank < 1 || x->rank > 3 || (axis != -1 && axis != (int64_t)x->rank)))
        status = gp_fail(err, GP_EUNSUPPORTED, "axis=%" PRId64 " is not supported; the last axis is", axis);
    if (status == GP_OK)
        status = norm_parameters(m, node, 2, &source, settings, sizeof(settings), err);
    if (status == GP_OK && x->rank == 1) {
        status = gp_onnx_value_settle(m, x, err);
        return status == GP_OK ? norm_layer(m, node, "layernorm", settings, &source, x, err) : status;
    }
    if (status == GP_OK)
        status = gp_onnx_value_last(m, x, &channels, err);
    if (status != GP_OK)
        return status;
    strcat(settings, ";over=channels");
    status = norm_layer(m, node, "layernorm", settings, &source, &channels, err);
    gp_onnx_node_shaped(m, node, &channels);
    return status;
}

gp_status gp_onnx_map_lrn(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[160] = "";
    int64_t size;
    float alpha, beta, bias;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_image(m, node, 0, &x, err);

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
    gp_onnx_put_list(settings, sizeof(settings), "size", &size, 1);
    gp_onnx_put_number(settings, sizeof(settings), "alpha", (double)alpha);
    gp_onnx_put_number(settings, sizeof(settings), "beta", (double)beta);
    gp_onnx_put_number(settings, sizeof(settings), "bias", (double)bias);
    return gp_onnx_node_layer(m, node, "crosschannelnorm", settings, &x, 1, err);
}

/* ---- elementwise functions ---- */

/* Map an operator to the kind with this ONNX name, which has no settings. */
gp_status gp_onnx_map_function(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const char *kind = NULL;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    for (size_t i = 0; gp_kinds[i] != NULL; i++)
        if (strcmp(gp_kinds[i]->onnx, node->op_type) == 0)
            kind = gp_kinds[i]->name;
    return status == GP_OK ? gp_onnx_node_like(m, node, kind, NULL, x, err) : status;
}

gp_status gp_onnx_map_leaky_relu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[48] = "";
    float slope;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 0.01f, &slope, err);
    if (status != GP_OK)
        return status;
    gp_onnx_put_number(settings, sizeof(settings), "slope", (double)slope);
    return gp_onnx_node_like(m, node, "leakyrelu", settings, x, err);
}

gp_status gp_onnx_map_hard_sigmoid(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    char settings[96] = "";
    float slope, offset;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "alpha", 0.2f, &slope, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "beta", 0.5f, &offset, err);
    if (status != GP_OK)
        return status;
    gp_onnx_put_number(settings, sizeof(settings), "slope", (double)slope);
    gp_onnx_put_number(settings, sizeof(settings), "offset", (double)offset);
    return gp_onnx_node_like(m, node, "hardsigmoid", settings, x, err);
}

gp_status gp_onnx_map_gelu(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const bool tanh = gp_onnx_node_says(node, "approximate", "none", "tanh");
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK && !tanh && !gp_onnx_node_says(node, "approximate", "none", "none"))
        status = gp_fail(err, GP_EUNSUPPORTED, "its approximate is neither none nor tanh");
    return status == GP_OK ? gp_onnx_node_like(m, node, "gelu", tanh ? "approximate=tanh" : NULL, x, err)
                           : status;
}

/* Reject operators that are supported only as part of a pattern (onnx_pattern.c). */
gp_status gp_onnx_map_erf(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    (void)m;
    (void)node;
    return gp_fail(err, GP_EUNSUPPORTED, "it is supported as a part of x * (1 + erf(x / sqrt(2))) / 2 only");
}

gp_status gp_onnx_map_pow(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    (void)m;
    (void)node;
    return gp_fail(err, GP_EUNSUPPORTED, "it is supported as the square of a layer normalization only");
}

gp_status gp_onnx_map_sqrt(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    (void)m;
    (void)node;
    return gp_fail(err, GP_EUNSUPPORTED,
                   "it is supported for constants, and as the deviation of a layer normalization");
}

/* Map a Clip. The bounds are attributes before opset 11 and inputs from opset 11. */
gp_status gp_onnx_map_clip(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const double end = 3e38; /* effectively no bound */
    char settings[96] = "";
    float min, max;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "min", -FLT_MAX, &min, err);
    if (status == GP_OK)
        status = gp_onnx_node_float(node, "max", FLT_MAX, &max, err);
    if (status == GP_OK)
        status = gp_onnx_node_scalar(m, node, 1, "min", &min, err);
    if (status == GP_OK)
        status = gp_onnx_node_scalar(m, node, 2, "max", &max, err);
    if (status != GP_OK)
        return status;
    gp_onnx_put_number(settings, sizeof(settings), "min", fmax((double)min, -end));
    gp_onnx_put_number(settings, sizeof(settings), "max", fmin((double)max, end));
    return gp_onnx_node_like(m, node, "clip", settings, x, err);
}

gp_status gp_onnx_map_dropout(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    const gp_onnx_tensor *training;
    char settings[48];
    float rate;
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_any(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_float(node, "ratio", 0.5f, &rate, err);
    if (status == GP_OK)
        status = gp_onnx_node_scalar(m, node, 1, "ratio", &rate, err);
    if (status == GP_OK)
        status = gp_onnx_node_constant(m, node, 2, &training, err);
    if (status == GP_OK && training != NULL && training->count != 1)
        status = gp_fail(err, GP_EUNSUPPORTED, "its training_mode is not one truth value");
    if (status == GP_OK && training != NULL && rate != 0.0f && gp_onnx_real_at(training, 0) != 0.0)
        status =
            gp_fail(err, GP_EUNSUPPORTED, "training_mode is true: it would drop when the network is used");
    if (status != GP_OK)
        return status;
    snprintf(settings, sizeof(settings), "rate=%.9g", (double)rate);
    return gp_onnx_node_like(m, node, "dropout", settings, x, err);
}

/* ---- softmax ---- */

/* Map a softmax over the middle of three groups of sample axes, with sizes before, over, after:
 * reshape these to channels, and back. */
static gp_status softmax_over(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_value *x,
                              const int64_t sizes[3], gp_error *err)
{
    static const int64_t swapped[3] = { 1, 0, 2 };
    const gp_shape have = gp_onnx_shape_of(m, x), plain = gp_shape3(sizes[0], sizes[1], sizes[2]);
    gp_onnx_value image = *x, *inputs[] = { &image }, *made = gp_onnx_value_find(m, node->output[0]);
    const bool vector = sizes[0] == 1 && sizes[2] == 1, moves = sizes[0] != 1;
    char shape[96] = "", order[48] = "";
    gp_status status = GP_OK;

    gp_onnx_put_list(shape, sizeof(shape), "shape",
                     moves ? sizes : (const int64_t[]){ sizes[1], sizes[2], 1 }, 3);
    gp_onnx_put_list(order, sizeof(order), "order", swapped, 3);
    if (vector && have.rank != 1)
        status = gp_onnx_append(m, NULL, "flatten", NULL, &image, err);
    else if (!vector && !gp_shape_equal(&have, &plain))
        status = gp_onnx_append(m, NULL, "reshape", shape, &image, err);
    if (status == GP_OK && moves)
        status = gp_onnx_append(m, NULL, "transpose", order, &image, err);
    if (status == GP_OK)
        status = gp_onnx_node_layer(m, node, "softmax", NULL, inputs, 1, err);
    if (status == GP_OK && moves)
        status = gp_onnx_append(m, NULL, "transpose", order, made, err);
    made->rank = x->rank;
    memcpy(made->dims, x->dims, sizeof(made->dims));
    return status;
}

static bool is_output(const gp_onnx_mapping *m, const char *name)
{
    bool found = false;

    for (size_t k = 0; k < m->graph->n_output; k++)
        found = found || strcmp(name, m->graph->output[k]->name) == 0;
    return found;
}

/* Map a Softmax: to a loss if it is the output of a network that computes logits, otherwise to a
 * layer. */
gp_status gp_onnx_map_softmax(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t axis, sizes[3] = { 1, 1, 1 };
    gp_onnx_value *x;
    gp_status status = gp_onnx_node_data(m, node, 0, &x, err);

    if (status != GP_OK)
        return status;
    const bool last = is_output(m, node->output[0]) && gp_onnx_value_find(m, node->output[0])->uses == 1 &&
                      !gp_netspec_gives_probabilities(m->spec, x->layer);

    status = gp_onnx_node_int(node, "axis", m->opset < 13 ? 1 : -1, &axis, err);
    if (status == GP_OK)
        status = gp_onnx_sample_axis(axis, x->rank, &axis, err);
    if (status != GP_OK)
        return status;

    /* before opset 13, softmax covers all axes from `axis` on */
    for (uint32_t i = 0; i < x->rank; i++)
        sizes[i < axis ? 0 : i == axis || m->opset < 13 ? 1 : 2] *= x->dims[i];
    if (last && sizes[0] == 1 && sizes[2] == 1 && sizes[1] >= 2) {
        gp_onnx_value vector = *x, *inputs[] = { &vector };

        if (gp_onnx_shape_of(m, x).rank != 1)
            status = gp_onnx_append(m, NULL, "flatten", NULL, &vector, err);
        return status == GP_OK ? gp_onnx_node_layer(m, node, "crossentropy", NULL, inputs, 1, err) : status;
    }
    const bool pixels = last && x->rank == 3 && axis == 0 && sizes[1] >= 2 && m->opset >= 13;

    if (last && !pixels && m->loss == NULL)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "as the network's output it reads one score per class; put a Flatten before");
    if (x->rank <= 3 && axis == 0 && (m->opset >= 13 || x->rank == 1)) {
        status = gp_onnx_value_settle(m, x, err);
        return status == GP_OK
                   ? gp_onnx_node_layer(m, node, pixels ? "pixelclassification" : "softmax", NULL, &x, 1, err)
                   : status;
    }
    return softmax_over(m, node, x, sizes, err);
}
