/* onnx_layers.c -- operators that map to one layer: their attributes and constants become layer
 * settings. */
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

/* Read the window attributes for 1 or 2 spatial dimensions.
 *   weights  kernel size if the node has no kernel_shape; NULL: kernel_shape is required */
static node_window node_window_read(gp_onnx_mapping *m, size_t spatial, const int64_t *weights)
{
    int64_t padding[4];
    node_window window = { .kernel = { 1, 1 }, .stride = { 1, 1 }, .dilation = { 1, 1 } };
    bool padded = false, said = !gp_onnx_node_attribute_is(m, "auto_pad", "NOTSET", "NOTSET");

    if (m->status != GP_OK)
        return window;
    gp_onnx_node_ints(m, "strides", spatial, 1, window.stride);
    gp_onnx_node_ints(m, "dilations", spatial, 1, window.dilation);
    gp_onnx_node_ints(m, "pads", 2 * spatial, 0, padding);
    gp_onnx_node_ints(m, "kernel_shape", spatial, 1, window.kernel);
    if (gp_onnx_node_attribute(m, "kernel_shape") == NULL) {
        if (weights == NULL)
            gp_onnx_fail(m, GP_ECORRUPT, "it has no kernel_shape");
        else
            memcpy(window.kernel, weights, spatial * sizeof(*weights));
    }
    for (size_t i = 0; i < spatial; i++) {
        window.padding[i] = padding[i];
        window.padding[2 + i] = padding[spatial + i];
        padded = padded || padding[i] != 0 || padding[spatial + i] != 0;
    }
    window.upper = said && gp_onnx_node_attribute_is(m, "auto_pad", "", "SAME_UPPER");
    window.lower = said && gp_onnx_node_attribute_is(m, "auto_pad", "", "SAME_LOWER");
    if (said && (padded ||
                 (!window.upper && !window.lower && !gp_onnx_node_attribute_is(m, "auto_pad", "", "VALID"))))
        gp_onnx_fail(
            m, GP_EUNSUPPORTED,
            "its auto_pad is not NOTSET, VALID, SAME_UPPER or SAME_LOWER, or it has both auto_pad and pads");
    return window;
}

static void put_window(char *settings, size_t bytes, const node_window *window)
{
    gp_onnx_put_list(settings, bytes, "kernel", window->kernel, 2);
    gp_onnx_put_list(settings, bytes, "stride", window->stride, 2);
    gp_onnx_put_list(settings, bytes, "dilation", window->dilation, 2);
    gp_onnx_put_list(settings, bytes, "padding", window->padding, 4);
}

/* Append the setting for padding that preserves the size. */
static void put_same(char *settings, const node_window *window)
{
    if (window->upper || window->lower)
        strcat(settings, window->upper ? ";same=upper" : ";same=lower");
}

static gp_onnx_value *windowed_input(gp_onnx_mapping *m)
{
    gp_onnx_value *x = gp_onnx_node_image(m, 0);

    if (x->rank < 2)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its input is a vector, but must be an image");
    return x;
}

/* Get the second input as weights, which are required. */
static gp_onnx_tensor node_weights(gp_onnx_mapping *m, size_t rank)
{
    const gp_onnx_tensor weights = gp_onnx_node_parameter(m, 1, rank);

    if (weights.data == NULL)
        gp_onnx_fail(m, GP_ECORRUPT, "it has no weights");
    return weights;
}

/* Get the weights and the optional bias of a convolution of x. */
static gp_onnx_source filter_source(gp_onnx_mapping *m, const gp_onnx_value *x)
{
    gp_onnx_source source = { .tensors[0] = node_weights(m, 1 + x->rank) };

    source.tensors[1] = gp_onnx_node_parameter(m, 2, 1);
    return source;
}

/* Add a convolution layer of either direction, with the settings that both have. */
static void filter_layer(gp_onnx_mapping *m, const char *kind, const gp_onnx_value *x,
                         const gp_onnx_source *source, const node_window *window, int64_t channels,
                         int64_t groups, const int64_t *extra)
{
    char settings[448];

    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";groups=%" PRId64 ";bias=%s", channels, groups,
             source->tensors[1].data == NULL ? "false" : "true");
    put_window(settings, sizeof(settings), window);
    if (extra != NULL)
        gp_onnx_put_list(settings, sizeof(settings), "extra", extra, 2);
    else
        put_same(settings, window);
    m->sources[m->spec->layer_count] = *source;
    gp_onnx_node_layer(m, kind, settings, x);
}

void gp_onnx_map_conv(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = windowed_input(m);
    const gp_onnx_source source = filter_source(m, x);
    const int64_t groups = gp_onnx_node_int(m, "group", 1);

    /* kernel_shape is compared with the weights when shapes are known */
    const node_window window = node_window_read(m, x->rank - 1, source.tensors[0].dims + 2);

    filter_layer(m, "conv2d", x, &source, &window, source.tensors[0].dims[0], groups, NULL);
}

/* Compute padding from the requested output size: the surplus is cut. The larger
 * part of an odd surplus is cut at the end if auto_pad is "upper", otherwise at the start. */
static void transposed_padding(gp_onnx_mapping *m, const gp_onnx_value *x, const int64_t extra[2],
                               node_window *window)
{
    const size_t spatial = x->rank - 1;
    const bool asked = gp_onnx_node_attribute(m, "output_shape") != NULL;
    int64_t size[2];

    gp_onnx_node_ints(m, "output_shape", spatial, 0, size);
    if (!asked && !window->upper && !window->lower)
        return;
    for (size_t i = 0; i < spatial; i++) {
        const int64_t reach = window->stride[i] * (x->dims[1 + i] - 1) + extra[i] +
                              (window->kernel[i] - 1) * window->dilation[i] + 1;

        if (!asked)
            size[i] = x->dims[1 + i] * window->stride[i];
        const int64_t total = reach - (size[i] < 1 ? 1 : size[i]);

        if (total < 0 || size[i] < 1)
            gp_onnx_fail(m, GP_EUNSUPPORTED,
                         "an output of %" PRId64 " exceeds the %" PRId64 " that its windows cover", size[i],
                         reach);
        window->padding[i] = window->upper ? total / 2 : total - total / 2;
        window->padding[2 + i] = total - window->padding[i];
    }
}

void gp_onnx_map_conv_transpose(gp_onnx_mapping *m)
{
    /* limit for each number, so that sums of products of two do not overflow */
    const int64_t reach_max = 1 << 16;
    const gp_onnx_value *x = windowed_input(m);
    const gp_onnx_source source = filter_source(m, x);
    const int64_t groups = gp_onnx_node_int(m, "group", 1);
    node_window window = node_window_read(m, x->rank - 1, source.tensors[0].dims + 2);
    int64_t extra[2] = { 0 };

    if (m->status == GP_OK)
        gp_onnx_node_ints(m, "output_padding", x->rank - 1, 0, extra);
    if (groups < 1 || source.tensors[0].dims[1] > GP_CHANNELS_MAX / groups)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "group=%" PRId64 " is not supported", groups);
    for (int i = 0; i < 2; i++)
        if (window.kernel[i] < 1 || window.kernel[i] > reach_max || window.stride[i] < 1 ||
            window.stride[i] > reach_max || window.dilation[i] < 1 || window.dilation[i] > reach_max ||
            extra[i] < 0 || extra[i] > reach_max)
            gp_onnx_fail(m, GP_EINVAL, "kernel, stride, dilation or output_padding is out of range");
    if (m->status != GP_OK)
        return;
    transposed_padding(m, x, extra, &window);
    filter_layer(m, "transconv2d", x, &source, &window, source.tensors[0].dims[1] * groups, groups, extra);
}

/* Map a pooling: over windows, or over the whole image. */
void gp_onnx_map_pool(gp_onnx_mapping *m)
{
    const bool average = strstr(m->node->op_type, "Average") != NULL, global = *m->node->op_type == 'G';
    char settings[384] = "";

    if (global) {
        gp_onnx_node_layer(m, average ? "globalavgpool" : "globalmaxpool", NULL, gp_onnx_node_image(m, 0));
        return;
    }
    const gp_onnx_value *x = windowed_input(m);
    const node_window window = node_window_read(m, x->rank - 1, NULL);

    put_window(settings, sizeof(settings), &window);
    put_same(settings, &window);
    if (gp_onnx_node_int(m, "count_include_pad", 0) != 0)
        strcat(settings, ";count-padding=true");
    if (gp_onnx_node_int(m, "ceil_mode", 0) != 0)
        strcat(settings, ";ceil=true");
    gp_onnx_node_fixed_int(m, "storage_order", 0);
    gp_onnx_node_layer(m, average ? "avgpool" : "maxpool", settings, x);
}

/* Map a ReduceMean over height and width, as exporters write a global average. */
void gp_onnx_map_reduce_mean(gp_onnx_mapping *m)
{
    int64_t axes[GP_ONNX_LIST_MAX];
    unsigned chosen = 0;
    gp_onnx_value *x = gp_onnx_node_image(m, 0);
    const size_t count = gp_onnx_node_list(m, 1, "axes", axes);
    const int64_t keep = gp_onnx_node_int(m, "keepdims", 1);

    for (size_t i = 0; i < count; i++)
        chosen |= 1u << gp_onnx_sample_axis(m, axes[i], x->rank);
    if (x->rank != 3 || count != 2 || chosen != 6)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "only height and width of images are supported");
    gp_onnx_value mean = *x;

    if (keep != 0) {
        gp_onnx_node_layer(m, "globalavgpool", NULL, x);
        return;
    }
    gp_onnx_append(m, m->node->name, "globalavgpool", NULL, &mean);
    gp_onnx_node_view(m, &mean, 1, mean.dims);
}

/* ---- products ---- */

/* Map a product. The weight is [inputs, outputs] if source->transposed, otherwise [outputs,
 * inputs]. */
static void map_product(gp_onnx_mapping *m, const gp_onnx_source *source, const gp_onnx_value *x)
{
    char settings[96];

    if (x->rank != 1)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its input has %" PRIu32 " dimensions, only %s supported",
                     x->rank + 1, *m->node->op_type == 'G' ? "2 are" : "2 to 4 are");
    snprintf(settings, sizeof(settings), "outputs=%" PRId64 ";bias=%s",
             source->tensors[0].dims[source->transposed ? 1 : 0],
             source->tensors[1].data == NULL ? "false" : "true");
    m->sources[m->spec->layer_count] = *source;

    /* an fc layer reads any shape as a vector */
    gp_onnx_node_layer(m, "fc", settings, x);
}

/* Get the third input of a Gemm: [outputs], or a tensor that broadcasts to it without the sample
 * axis. data NULL: absent. */
static gp_onnx_tensor gemm_bias(gp_onnx_mapping *m, int64_t outputs)
{
    const gp_onnx_tensor *c = gp_onnx_node_constant(m, 2);

    if (c == NULL)
        return (gp_onnx_tensor){ 0 };
    if (!gp_onnx_is_float(c) || c->rank > 2 || (c->rank == 2 && c->dims[0] != 1) ||
        (c->count != 1 && c->count != outputs))
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "its C must be one number or %" PRId64 " float32 numbers, one per output", outputs);
    gp_onnx_tensor bias = *c;

    bias.splat = c->splat || c->count != outputs; /* a single number is used for all outputs */
    bias.rank = 1;
    bias.dims[0] = bias.count = outputs;
    return bias;
}

void gp_onnx_map_gemm(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_data(m, 0);
    gp_onnx_source source = { .tensors[0] = node_weights(m, 2) };

    gp_onnx_node_fixed_int(m, "transA", 0);
    source.transposed = gp_onnx_node_int(m, "transB", 0) == 0;
    source.tensors[1] = gemm_bias(m, source.tensors[0].dims[source.transposed ? 1 : 0]);
    gp_onnx_tensor_scale(m, &source.tensors[0], gp_onnx_node_float(m, "alpha", 1.0f));
    if (source.tensors[1].data != NULL)
        gp_onnx_tensor_scale(m, &source.tensors[1], gp_onnx_node_float(m, "beta", 1.0f));
    map_product(m, &source, x);
}

/* Map a product with a matrix. Over the last axis of [N, ..., C] it is a convolution with one
 * pixel. */
void gp_onnx_map_matmul(gp_onnx_mapping *m)
{
    gp_onnx_value *x = gp_onnx_node_any(m, 0);
    const gp_onnx_source source = { .transposed = true, .tensors[0] = node_weights(m, 2) };
    const int64_t outputs = source.tensors[0].dims[1];
    char settings[96];

    if (x->rank != 2 && x->rank != 3) {
        map_product(m, &source, x);
        return;
    }
    const gp_onnx_value channels = gp_onnx_value_last(m, x);

    snprintf(settings, sizeof(settings), "channels=%" PRId64 ";kernel=1;bias=false", outputs);
    m->sources[m->spec->layer_count] = source;
    gp_onnx_node_like(m, "conv2d", settings, &channels);
    m->output->dims[channels.rank - 1] = outputs;
}

/* ---- normalization ---- */

/* Add a per-channel normalization for images, signals or vectors.
 *   count     number of parameters: scale, offset and others, as vectors
 *   settings  all but epsilon */
static void norm_layer(gp_onnx_mapping *m, const char *kind, const gp_onnx_value *x, size_t count,
                       const char *settings)
{
    char text[128] = "";
    gp_onnx_source source = { 0 };

    gp_onnx_put_number(text, sizeof(text), "epsilon", gp_onnx_node_float(m, "epsilon", 1e-5f));
    strcat(text, settings);
    for (size_t k = 0; k < count; k++) {
        source.tensors[k] = gp_onnx_node_parameter(m, k + 1, 1);
        if (source.tensors[k].data == NULL)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "it needs a scale and an offset");
    }
    m->sources[m->spec->layer_count] = source;
    gp_onnx_node_layer(m, kind, text, x);
}

void gp_onnx_map_batchnorm(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);
    char settings[48] = ";";

    /* in ONNX: the part that is kept */
    gp_onnx_put_number(settings + 1, sizeof(settings) - 1, "momentum",
                       (double)(1.0f - (float)gp_onnx_node_float(m, "momentum", 0.9f)));
    gp_onnx_node_fixed_int(m, "training_mode", 0);
    gp_onnx_node_fixed_int(m, "spatial", 1);
    if (m->opset < 7 && gp_onnx_node_attribute(m, "is_test") == NULL)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "is_test=0 is not supported; must be 1");
    gp_onnx_node_fixed_int(m, "is_test", 1);
    norm_layer(m, "batchnorm", x, 4, settings);
}

void gp_onnx_map_groupnorm(gp_onnx_mapping *m)
{
    const bool instance = *m->node->op_type == 'I';
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);
    char settings[48];

    if (!instance && m->opset < 21)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "it needs opset 21 or newer: in older ones its scale is per group, not per channel");
    snprintf(settings, sizeof(settings), ";groups=%" PRId64,
             instance ? x->dims[0] : gp_onnx_node_int(m, "num_groups", 0));
    norm_layer(m, "groupnorm", x, 2, settings);
}

void gp_onnx_map_layernorm(gp_onnx_mapping *m)
{
    gp_onnx_value *x = gp_onnx_node_any(m, 0);
    const int64_t axis = gp_onnx_node_int(m, "axis", -1);

    if (x->rank < 1 || x->rank > 3 || (axis != -1 && axis != (int64_t)x->rank))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "axis=%" PRId64 " is not supported; must be the last axis", axis);
    if (x->rank == 1) {
        gp_onnx_value_settle(m, x);
        norm_layer(m, "layernorm", x, 2, "");
        return;
    }
    const gp_onnx_value channels = gp_onnx_value_last(m, x);

    norm_layer(m, "layernorm", &channels, 2, ";over=channels");
    gp_onnx_node_shaped(m, &channels);
}

void gp_onnx_map_lrn(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_image(m, 0);
    const int64_t size = gp_onnx_node_int(m, "size", 0);
    char settings[160] = "";

    gp_onnx_put_list(settings, sizeof(settings), "size", &size, 1);
    gp_onnx_put_number(settings, sizeof(settings), "alpha", gp_onnx_node_float(m, "alpha", 1e-4f));
    gp_onnx_put_number(settings, sizeof(settings), "beta", gp_onnx_node_float(m, "beta", 0.75f));
    gp_onnx_put_number(settings, sizeof(settings), "bias", gp_onnx_node_float(m, "bias", 1.0f));
    gp_onnx_node_layer(m, "crosschannelnorm", settings, x);
}

/* ---- elementwise functions ---- */

/* Map an operator to the kind with this ONNX name, which has no settings. */
void gp_onnx_map_function(gp_onnx_mapping *m)
{
    const gp_kind *const *kind = gp_kinds;

    while (strcmp((*kind)->onnx, m->node->op_type) != 0)
        kind++;
    gp_onnx_node_like(m, (*kind)->name, NULL, gp_onnx_node_any(m, 0));
}

void gp_onnx_map_leaky_relu(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_any(m, 0);
    char settings[48] = "";

    gp_onnx_put_number(settings, sizeof(settings), "slope", gp_onnx_node_float(m, "alpha", 0.01f));
    gp_onnx_node_like(m, "leakyrelu", settings, x);
}

void gp_onnx_map_hard_sigmoid(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_any(m, 0);
    char settings[96] = "";

    gp_onnx_put_number(settings, sizeof(settings), "slope", gp_onnx_node_float(m, "alpha", 0.2f));
    gp_onnx_put_number(settings, sizeof(settings), "offset", gp_onnx_node_float(m, "beta", 0.5f));
    gp_onnx_node_like(m, "hardsigmoid", settings, x);
}

void gp_onnx_map_gelu(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_any(m, 0);
    const bool tanh = gp_onnx_node_attribute_is(m, "approximate", "none", "tanh");

    if (!tanh && !gp_onnx_node_attribute_is(m, "approximate", "none", "none"))
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its approximate must be none or tanh");
    gp_onnx_node_like(m, "gelu", tanh ? "approximate=tanh" : NULL, x);
}

/* Map a Clip. The bounds are attributes before opset 11 and inputs from opset 11. */
void gp_onnx_map_clip(gp_onnx_mapping *m)
{
    const double end = 3e38; /* effectively no bound */
    const gp_onnx_value *x = gp_onnx_node_any(m, 0);
    const double low = gp_onnx_node_float(m, "min", -FLT_MAX), high = gp_onnx_node_float(m, "max", FLT_MAX);
    const double min = gp_onnx_node_scalar(m, 1, "min", low), max = gp_onnx_node_scalar(m, 2, "max", high);
    char settings[96] = "";

    gp_onnx_put_number(settings, sizeof(settings), "min", fmax(min, -end));
    gp_onnx_put_number(settings, sizeof(settings), "max", fmin(max, end));
    gp_onnx_node_like(m, "clip", settings, x);
}

void gp_onnx_map_dropout(gp_onnx_mapping *m)
{
    const gp_onnx_value *x = gp_onnx_node_any(m, 0);
    const double rate = gp_onnx_node_scalar(m, 1, "ratio", gp_onnx_node_float(m, "ratio", 0.5f));
    const gp_onnx_tensor *training = gp_onnx_node_constant(m, 2);
    char settings[48];

    if (training != NULL && training->count != 1)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its training_mode must be one boolean");
    else if (training != NULL && rate != 0.0 && gp_onnx_real_at(training, 0) != 0.0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "training_mode is true: the model would drop values in predictions");
    snprintf(settings, sizeof(settings), "rate=%.9g", rate);
    gp_onnx_node_like(m, "dropout", settings, x);
}

/* ---- softmax ---- */

/* Map a softmax over the middle of three groups of sample axes, with sizes before, over, after:
 * reshape these to channels, and back. */
static void softmax_over(gp_onnx_mapping *m, const gp_onnx_value *x, const int64_t sizes[3])
{
    static const int64_t swapped[3] = { 1, 0, 2 };
    const bool vector = sizes[0] == 1 && sizes[2] == 1, moves = sizes[0] != 1;
    gp_onnx_value image = *x;

    gp_onnx_append_shape(m, &image, vector ? 1 : 3,
                         moves ? sizes : (const int64_t[]){ sizes[1], sizes[2], 1 });
    if (moves)
        gp_onnx_append_transpose(m, &image, swapped);
    gp_onnx_node_layer(m, "softmax", NULL, &image);
    if (moves)
        gp_onnx_append_transpose(m, m->output, swapped);
    m->output->rank = x->rank;
    memcpy(m->output->dims, x->dims, sizeof(x->dims));
}

/* Map a Softmax: to a loss if it is the output of a network that computes logits, otherwise to a
 * layer. */
void gp_onnx_map_softmax(gp_onnx_mapping *m)
{
    int64_t sizes[3] = { 1, 1, 1 };
    gp_onnx_value *x = gp_onnx_node_data(m, 0);
    const int64_t number = gp_onnx_node_int(m, "axis", m->opset < 13 ? 1 : -1);
    const int64_t axis = gp_onnx_sample_axis(m, number, x->rank);

    if (m->status != GP_OK)
        return;
    bool last = false;

    for (size_t k = 0; k < m->graph->n_output; k++)
        last |= strcmp(m->node->output[0], m->graph->output[k]->name) == 0;
    last = last && m->output->uses == 1 && !gp_netspec_gives_probabilities(m->spec, x->layer);

    /* before opset 13, softmax covers all axes from `axis` on */
    for (uint32_t i = 0; i < x->rank; i++)
        sizes[i < axis ? 0 : i == axis || m->opset < 13 ? 1 : 2] *= x->dims[i];
    if (last && sizes[0] == 1 && sizes[2] == 1 && sizes[1] >= 2) {
        gp_onnx_value vector = *x;

        gp_onnx_append_shape(m, &vector, 1, &sizes[1]);
        gp_onnx_node_layer(m, "crossentropy", NULL, &vector);
        return;
    }
    const bool pixels = last && x->rank == 3 && axis == 0 && sizes[1] >= 2 && m->opset >= 13;

    if (last && !pixels && m->loss == NULL)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "as the output of a network it needs one score per class; add a Flatten before it");
    if (x->rank <= 3 && axis == 0 && (m->opset >= 13 || x->rank == 1)) {
        gp_onnx_value_settle(m, x);
        gp_onnx_node_layer(m, pixels ? "pixelclassification" : "softmax", NULL, x);
    } else {
        softmax_over(m, x, sizes);
    }
}
