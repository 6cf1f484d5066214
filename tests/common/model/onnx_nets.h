/* onnx_nets.h: networks written by test_onnx.c and onnx_tool.c; together they cover everything that
 * the writer supports. */
#ifndef GP_ONNX_NETS_H
#define GP_ONNX_NETS_H

#include "common/base/memory/alloc.h"
#include "common/model/graph/graph.h"

/* Build a network with normal weights from a fixed seed; free it with net_free().
 *
 *   lenet
 *   mixed        groups, dilation, asymmetric padding, a maximum over padding, means with and
 *                without padding, a residual add, dropout, scale and offset per channel
 *   residual     batch norm, "same" and "ceil" windows, depthwise convolution, global pooling,
 *                activations
 *   branches     concat, crop, pad, multiply, reshape, transpose, softmax
 *   norms        local response, group, instance and layer norm
 *   gates        layer norm over pixels, GELU, hard sigmoid and swish
 *   upward       transposed convolution and resizing
 *   pixels, dice, values, robust   one network for each loss; ends: four losses
 *   independent  sigmoids and values
 *   tiny         a few bytes of weights */
typedef struct net {
    gp_netspec *spec;
    gp_graph *graph;
    float *blob;
} net;

typedef struct net_layer {
    const char *name, *kind, *settings, *inputs[3];
} net_layer;

static inline void net_free(net *n)
{
    gp_graph_free(n->graph);
    gp_netspec_free(n->spec);
    gp_free(n->blob);
    *n = (net){ 0 };
}

static inline gp_status net_finish(net *n, double sigma, gp_error *err)
{
    gp_status status = gp_graph_new(&n->graph, n->spec, err);

    if (status != GP_OK)
        return status;
    n->blob = gp_malloc(n->graph->blob_count * sizeof(float));
    if (n->blob == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for weights");
    gp_graph_initialize(n->graph, (gp_init_rule){ GP_INIT_NORMAL, sigma }, 20, n->blob);

    /* running statistics of 0 and 1 would prove nothing */
    for (uint32_t p = 0; p < n->graph->parameter_count; p++)
        for (int64_t i = 0; i < n->graph->parameters[p].count; i++)
            if (n->graph->parameters[p].statistic != GP_STATISTIC_NONE)
                n->blob[n->graph->parameters[p].offset + (size_t)i] += 0.0625f * (float)(i % 5);
    return GP_OK;
}

static inline gp_status net_add_layers(gp_netspec *spec, const net_layer *layers, size_t count, gp_error *err)
{
    gp_status status = GP_OK;

    for (size_t i = 0; i < count && status == GP_OK; i++) {
        size_t inputs = 0;

        while (inputs < 3 && layers[i].inputs[inputs] != NULL)
            inputs++;
        status = gp_netspec_add(spec, layers[i].name, layers[i].kind, layers[i].settings, err);
        if (status == GP_OK && inputs != 0)
            status = gp_netspec_connect(spec, layers[i].inputs, inputs, err);
    }
    return status;
}

static inline gp_status net_build_mixed(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=6;kernel=3,2;groups=2;dilation=2,3;padding=2,0,1,3", { 0 } },
        { "relu1", "relu", NULL, { 0 } },
        { "pool1", "maxpool", "kernel=3;stride=2,1;padding=1,2,0,1", { 0 } },
        { "conv2", "conv2d", "channels=6;kernel=3;padding=1;bias=false;weight-learn-rate-factor=0.5", { 0 } },
        { "conv3", "conv2d", "channels=6;kernel=1", { "pool1" } },
        { "res", "add", NULL, { "conv2", "pool1", "conv3" } },
        { "relu2", "relu", NULL, { 0 } },
        { "drop1", "dropout", "rate=0.25", { 0 } },
        { "res2", "add", NULL, { "drop1", "res" } },
        { "pool2", "avgpool", "kernel=3,2;stride=2;padding=1,0,2,1;count-padding=true", { 0 } },
        { "pool3", "avgpool", "kernel=2;padding=0,1,1,0", { 0 } },
        { "fc1", "fc", "outputs=16", { 0 } },
        { "relu3", "relu", NULL, { 0 } },
        { "drop2", "dropout", NULL, { 0 } },
        { "flat", "flatten", NULL, { 0 } },
        { "fc2", "fc", "outputs=5;bias=false", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    static const double scale[] = { 0.5, -1.25, 0.01, 1 }, offset[] = { 0.1, 0, -0.3, 2 };
    const gp_shape input = gp_shape3(4, 13, 11);
    gp_status status = gp_netspec_new(&n->spec, "mixed", &input, err);

    if (status == GP_OK)
        status = gp_netspec_normalize(n->spec, scale, offset, 4, err);
    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_residual(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=8;kernel=3;stride=2;same=upper;bias=false", { 0 } },
        { "bn1", "batchnorm", "epsilon=1e-3;momentum=0.25", { 0 } },
        { "relu1", "clip", "min=0;max=0.9", { 0 } },
        { "pool1", "maxpool", "kernel=3;stride=2;ceil=true", { 0 } },
        { "depth", "conv2d", "channels=8;groups=8;kernel=3;padding=1;bias=false", { 0 } },
        { "bn2", "batchnorm", NULL, { 0 } },
        { "leaky", "leakyrelu", "slope=0.2", { 0 } },
        { "third", "scale", "factor=0.3", { 0 } },
        { "sum", "add", NULL, { "third", "pool1" } },
        { "dilated", "maxpool", "kernel=2;stride=1;dilation=2,1;same=lower", { 0 } },
        { "sigmoid", "sigmoid", NULL, { 0 } },
        { "mean", "globalavgpool", NULL, { 0 } },
        { "max", "globalmaxpool", NULL, { "sigmoid" } },
        { "both", "add", NULL, { "mean", "max" } },
        { "fc", "fc", "outputs=9", { 0 } },
        { "bn3", "batchnorm", NULL, { 0 } },
        { "tanh", "tanh", NULL, { 0 } },
        { "head", "fc", "outputs=5", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    const gp_shape input = gp_shape3(3, 14, 11);
    gp_status status = gp_netspec_new(&n->spec, "residual", &input, err);

    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_branches(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=6;kernel=3", { 0 } },
        { "relu1", "relu", NULL, { 0 } },
        { "left", "conv2d", "channels=4;kernel=1", { "relu1" } },
        { "right", "conv2d", "channels=4;kernel=3;padding=1", { "relu1" } },
        { "both", "concat", NULL, { "left", "right", "relu1" } },
        { "squeeze", "globalavgpool", NULL, { "both" } },
        { "excite", "conv2d", "channels=14;kernel=1", { 0 } },
        { "gate", "sigmoid", NULL, { 0 } },
        { "scaled", "multiply", NULL, { "both", "gate" } },
        { "padded", "pad", "padding=1,0,2,1", { 0 } },
        { "part", "crop", "start=2,1,0;size=9,6,0", { 0 } },
        { "turned", "transpose", "order=2,0,1", { 0 } },
        { "reshaped", "reshape", "shape=0,6,-1", { 0 } },
        { "attention", "softmax", NULL, { 0 } },
        { "weighted", "multiply", NULL, { "attention", "reshaped" } },
        { "side", "concat", "axis=2", { "weighted", "attention" } },
        { "flat", "flatten", NULL, { 0 } },
        { "end", "crop", "start=3,0,0;size=100,0,0", { 0 } },
        { "head", "fc", "outputs=5", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    const gp_shape input = gp_shape3(2, 10, 9);
    gp_status status = gp_netspec_new(&n->spec, "branches", &input, err);

    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_norms(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=12;kernel=3", { 0 } },
        { "lrn", "crosschannelnorm", "size=3;alpha=0.7;beta=0.6;bias=1.5", { 0 } },
        { "conv2", "conv2d", "channels=12;kernel=3;padding=1", { 0 } },
        { "groups", "groupnorm", "groups=4;epsilon=1e-3", { 0 } },
        { "conv3", "conv2d", "channels=12;kernel=1", { 0 } },
        { "instances", "groupnorm", "groups=12", { 0 } },
        { "relu", "relu", NULL, { 0 } },
        { "whole", "layernorm", NULL, { 0 } },
        { "pool", "avgpool", "kernel=2", { 0 } },
        { "fc", "fc", "outputs=10", { 0 } },
        { "layer", "layernorm", "epsilon=1e-4", { 0 } },
        { "head", "fc", "outputs=5", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    const gp_shape input = gp_shape3(2, 9, 8);
    gp_status status = gp_netspec_new(&n->spec, "norms", &input, err);

    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_gates(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=6;kernel=3;padding=1", { 0 } },
        { "pixels", "layernorm", "over=channels;epsilon=1e-4", { 0 } },
        { "up", "conv2d", "channels=10;kernel=1", { 0 } },
        { "gelu", "gelu", NULL, { 0 } },
        { "down", "conv2d", "channels=6;kernel=1", { 0 } },
        { "sum", "add", NULL, { "down", "conv1" } },
        { "swish", "hardswish", NULL, { 0 } },
        { "mean", "globalavgpool", NULL, { 0 } },
        { "squeeze", "conv2d", "channels=6;kernel=1", { 0 } },
        { "gate", "hardsigmoid", "slope=0.3;offset=0.4", { 0 } },
        { "gated", "multiply", NULL, { "swish", "gate" } },
        { "fc", "fc", "outputs=10", { 0 } },
        { "features", "layernorm", "over=channels", { 0 } },
        { "tanh", "gelu", "approximate=tanh", { 0 } },
        { "head", "fc", "outputs=5", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    const gp_shape input = gp_shape3(2, 6, 5);
    gp_status status = gp_netspec_new(&n->spec, "gates", &input, err);

    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_upward(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "conv1", "conv2d", "channels=4;kernel=3;stride=2", { 0 } },
        { "up1", "transconv2d", "channels=6;kernel=3;stride=2;padding=1,0,1,1;extra=1,0;groups=2", { 0 } },
        { "relu1", "relu", NULL, { 0 } },
        { "near", "resize", "scale=2,3", { 0 } },
        { "conv2", "conv2d", "channels=5;kernel=3;stride=3", { 0 } },
        { "squares", "resize", "size=7,10;mode=bilinear", { 0 } },
        { "corners", "resize", "size=11,4;mode=bilinear-corners", { 0 } },
        { "begins", "resize", "scale=2;mode=bilinear-asymmetric", { 0 } },
        { "up2", "transconv2d", "channels=3;kernel=2;stride=1;dilation=2;bias=false", { 0 } },
        { "pool", "avgpool", "kernel=4", { 0 } },
        { "head", "fc", "outputs=5", { 0 } },
        { "loss", "crossentropy", NULL, { 0 } },
    };
    const gp_shape input = gp_shape3(2, 9, 11);
    gp_status status = gp_netspec_new(&n->spec, "upward", &input, err);

    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_build_ends(net *n, const char *name, const net_layer *ends, size_t count,
                                       gp_error *err)
{
    static const net_layer trunk[] = {
        { "conv1", "conv2d", "channels=5;kernel=3;padding=1", { 0 } },
        { "tanh1", "tanh", NULL, { 0 } },
        { "conv2", "conv2d", "channels=4;kernel=1", { 0 } },
    };
    const gp_shape input = gp_shape3(3, 5, 6);
    gp_status status = gp_netspec_new(&n->spec, name, &input, err);

    if (status == GP_OK)
        status = net_add_layers(n->spec, trunk, sizeof(trunk) / sizeof(trunk[0]), err);
    return status == GP_OK ? net_add_layers(n->spec, ends, count, err) : status;
}

static inline gp_status net_build_losses(net *n, const char *name, gp_error *err)
{
    static const net_layer losses[] = {
        { "pixels", "pixelclassification", NULL, { 0 } },
        { "dice", "dice", NULL, { 0 } },
        { "values", "mse", NULL, { 0 } },
        { "robust", "huber", NULL, { 0 } },
    };
    static const net_layer all[] = {
        { "pool", "globalavgpool", NULL, { 0 } },   { "class", "fc", "outputs=3", { 0 } },
        { "classes", "crossentropy", NULL, { 0 } }, { "pixels", "dice", "loss-factor=0.5", { "conv2" } },
        { "values", "mse", NULL, { "conv1" } },     { "number", "huber", NULL, { "pool" } },
    };

    static const net_layer independent[] = {
        { "pool", "globalavgpool", NULL, { 0 } },   { "class", "fc", "outputs=3", { 0 } },
        { "each", "sigmoid", NULL, { 0 } },         { "drop", "dropout", NULL, { 0 } },
        { "classes", "crossentropy", NULL, { 0 } }, { "values", "mse", NULL, { "conv1" } },
    };

    if (strcmp(name, "independent") == 0)
        return net_build_ends(n, name, independent, sizeof(independent) / sizeof(independent[0]), err);
    if (strcmp(name, "ends") == 0)
        return net_build_ends(n, name, all, sizeof(all) / sizeof(all[0]), err);
    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++)
        if (strcmp(name, losses[i].name) == 0)
            return net_build_ends(n, name, &losses[i], 1, err);
    return gp_zoo_build(&n->spec, name, NULL, 0, err);
}

static inline gp_status net_build_tiny(net *n, gp_error *err)
{
    static const net_layer layers[] = {
        { "c", "conv2d", "channels=2;kernel=2", { 0 } },
        { "d", "dropout", NULL, { 0 } },
        { "f", "fc", "outputs=2", { 0 } },
        { "l", "crossentropy", NULL, { 0 } },
    };
    const double scale = 0.5, offset = 0.0;
    const gp_shape input = gp_shape3(1, 3, 3);
    gp_status status = gp_netspec_new(&n->spec, "tiny", &input, err);

    if (status == GP_OK)
        status = gp_netspec_normalize(n->spec, &scale, &offset, 1, err);
    return status == GP_OK ? net_add_layers(n->spec, layers, sizeof(layers) / sizeof(layers[0]), err)
                           : status;
}

static inline gp_status net_new(net *n, const char *name, gp_error *err)
{
    gp_status status;

    *n = (net){ 0 };
    if (strcmp(name, "mixed") == 0)
        status = net_build_mixed(n, err);
    else if (strcmp(name, "branches") == 0)
        status = net_build_branches(n, err);
    else if (strcmp(name, "upward") == 0)
        status = net_build_upward(n, err);
    else if (strcmp(name, "gates") == 0)
        status = net_build_gates(n, err);
    else if (strcmp(name, "norms") == 0)
        status = net_build_norms(n, err);
    else if (strcmp(name, "residual") == 0)
        status = net_build_residual(n, err);
    else if (strcmp(name, "tiny") == 0)
        status = net_build_tiny(n, err);
    else
        status = net_build_losses(n, name, err);
    return status == GP_OK ? net_finish(n, 0.2, err) : status;
}

#endif
