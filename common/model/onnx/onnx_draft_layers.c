/* onnx_draft_layers.c -- conversion of each layer kind to one or two nodes.
 *
 * A node has the name of its layer, a tensor has the name of its parameter ("conv1.weight"), and an
 * output value is named "conv1.out". The suffixes keep these names distinct for any layer names.
 * Dropout has no node, as it is the identity outside training: the next layers read the input of
 * the dropout. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/model/onnx/onnx_draft.h"

/* Add a convolution of either direction with the window, except for the groups. */
static gp_draft_node *draft_filter(gp_onnx_draft *draft, uint32_t layer, const char *op_type)
{
    const gp_window *window = &draft->ops[layer]->window;
    gp_draft_node *node = gp_draft_add_layer(draft, layer, op_type);

    gp_draft_add_parameters(draft, node, layer);
    gp_draft_set_ints(node, "kernel_shape", window->kernel, 2);
    gp_draft_set_ints(node, "strides", window->stride, 2);
    gp_draft_set_ints(node, "dilations", window->dilation, 2);
    gp_draft_set_ints(node, "pads", window->padding, 4);
    return node;
}

static void draft_conv2d(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_set_int(draft_filter(draft, layer, "Conv"), "group", draft->ops[layer]->window.groups);
}

static void draft_pool(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    gp_draft_node *node =
        gp_draft_add_layer(draft, layer, op->pool == GP_POOL_MAX ? "MaxPool" : "AveragePool");

    gp_draft_set_ints(node, "kernel_shape", op->window.kernel, 2);
    gp_draft_set_ints(node, "strides", op->window.stride, 2);
    gp_draft_set_ints(node, "pads", op->window.padding, 4);
    bool dilated = op->window.dilation[0] != 1 || op->window.dilation[1] != 1;

    if (dilated && op->pool != GP_POOL_MAX)
        gp_draft_needs(draft, 19);
    if (dilated)
        gp_draft_set_ints(node, "dilations", op->window.dilation, 2);
    if (op->pool != GP_POOL_MAX)
        gp_draft_set_int(node, "count_include_pad", op->pool == GP_POOL_AVERAGE_COUNT_PADDING);
}

/* Add a further node for a layer, named "norm1.ROLE", with one input and the output
 * "norm1.ENDING". */
static gp_draft_node *draft_beside(gp_onnx_draft *draft, uint32_t layer, const char *op_type,
                                   const char *role, const char *ending, const char *input)
{
    char name[VALUE_NAME_MAX], output[VALUE_NAME_MAX];

    snprintf(name, sizeof(name), "%s.%s", draft->spec->layers[layer].name, role);
    snprintf(output, sizeof(output), "%s.%s", draft->spec->layers[layer].name, ending);
    gp_draft_node *node = gp_draft_add_node(draft, op_type, name, output);

    gp_draft_node_input(node, input);
    return node;
}

/* Convert an fc layer to Gemm. Gemm multiplies matrices, while an fc layer reads any shape as a
 * vector, so a Flatten may precede it. */
static void draft_fc(gp_onnx_draft *draft, uint32_t layer)
{
    const uint32_t input = draft->spec->layers[layer].inputs[0];
    gp_draft_node *flatten = NULL;

    if (input == GP_INPUT_LAYER || draft->graph->outputs[input].rank != 1) {
        flatten =
            draft_beside(draft, layer, "Flatten", "flatten", "vector", gp_draft_layer_input(draft, layer, 0));
        gp_draft_set_int(flatten, "axis", 1);
    }
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Gemm");

    if (flatten != NULL)
        node->inputs[0] = flatten->output_name;
    gp_draft_add_parameters(draft, node, layer);
    gp_draft_set_int(node, "transB", 1);
}

static void draft_batchnorm(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "BatchNormalization");

    gp_draft_add_parameters(draft, node, layer);
    gp_draft_set_float(node, "epsilon", draft->ops[layer]->factor[0]);
    for (uint32_t p = 0; p < draft->graph->parameter_count; p++)
        if (draft->graph->parameters[p].layer == layer &&
            draft->graph->parameters[p].statistic == GP_STATISTIC_MEAN)
            gp_draft_set_float(node, "momentum", 1.0 - draft->graph->parameters[p].statistic_rate);
}

/* Convert a layer norm over the channels of each pixel. ONNX normalizes over the last axes only,
 * so an image is transposed. */
static void draft_layernorm_pixels(gp_onnx_draft *draft, uint32_t layer)
{
    static const int32_t last[4] = { 0, 2, 3, 1 }, first[4] = { 0, 3, 1, 2 };
    const bool image = draft->graph->outputs[layer].rank == 3;
    gp_draft_node *before = NULL, *node, *behind;

    if (image) {
        before = draft_beside(draft, layer, "Transpose", "last", "channels",
                              gp_draft_layer_input(draft, layer, 0));
        gp_draft_set_ints(before, "perm", last, 4);
    }
    node = gp_draft_add_layer(draft, layer, "LayerNormalization");
    gp_draft_add_parameters(draft, node, layer);
    gp_draft_set_int(node, "axis", -1);
    gp_draft_set_float(node, "epsilon", draft->ops[layer]->factor[0]);
    gp_draft_needs(draft, 17);
    if (!image)
        return;
    node->inputs[0] = before->output_name;
    snprintf(node->output_name, sizeof(node->output_name), "%s.norm", draft->spec->layers[layer].name);
    behind = draft_beside(draft, layer, "Transpose", "first", "out", node->output_name);
    gp_draft_set_ints(behind, "perm", first, 4);
    draft->values[layer] = behind->output_name;
}

/* Convert a group norm: one channel per group is InstanceNormalization; a vector with one group
 * is LayerNormalization; other groups need opset 21, the first with a scale per channel. */
static void draft_groupnorm(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_shape *shape = &draft->graph->outputs[layer];
    bool instances = op->number[0] == shape->dim[0] && shape->rank == 3;
    bool whole = op->number[0] == 1 && shape->rank == 1;

    if (op->number[1] != 0) {
        draft_layernorm_pixels(draft, layer);
        return;
    }
    gp_draft_node *node = gp_draft_add_layer(draft, layer,
                                             instances ? "InstanceNormalization"
                                             : whole   ? "LayerNormalization"
                                                       : "GroupNormalization");

    gp_draft_add_parameters(draft, node, layer);
    gp_draft_set_float(node, "epsilon", op->factor[0]);
    if (!instances && !whole)
        gp_draft_set_int(node, "num_groups", op->number[0]);
    gp_draft_needs(draft, instances ? GP_ONNX_OPSET : whole ? 17 : 21);
}

static void draft_lrn(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "LRN");

    gp_draft_set_int(node, "size", op->number[0]);
    gp_draft_set_float(node, "alpha", op->factor[0]);
    gp_draft_set_float(node, "beta", op->factor[1]);
    gp_draft_set_float(node, "bias", op->factor[2]);
}

static void draft_transconv2d(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_shape *x = &draft->graph->values[op->in[0]].shape, *y = &draft->graph->values[op->out[0]].shape;
    gp_draft_node *node = draft_filter(draft, layer, "ConvTranspose");
    int32_t extra[2];

    for (int i = 0; i < 2; i++)
        extra[i] = (int32_t)y->dim[1 + i] + op->window.padding[i] + op->window.padding[2 + i] -
                   op->window.dilation[i] * (op->window.kernel[i] - 1) - 1 -
                   op->window.stride[i] * ((int32_t)x->dim[1 + i] - 1);
    gp_draft_set_ints(node, "output_padding", extra, 2);
    gp_draft_set_int(node, "group", op->window.groups);
}

static void draft_resize(gp_onnx_draft *draft, uint32_t layer)
{
    static const char *const places[] = { "asymmetric", "half_pixel", "align_corners", "asymmetric" };
    const gp_op *op = draft->ops[layer];
    const gp_shape *x = &draft->graph->values[op->in[0]].shape, *y = &draft->graph->values[op->out[0]].shape;
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Resize");

    float scales[4] = { 1.0f, 1.0f };

    gp_draft_node_input(node, ""); /* no region of interest */
    for (int i = 0; i < 2; i++) {
        const double from = (double)x->dim[1 + i], to = (double)y->dim[1 + i];

        /* The scale factor must give exactly `to` pixels after rounding down, in float32 and in
         * float64. */
        scales[2 + i] = (float)to / (float)from;
        while (floor(from * (double)scales[2 + i]) < to)
            scales[2 + i] = nextafterf(scales[2 + i], INFINITY);
        if (op->number[0] == GP_RESIZE_NEAREST && y->dim[1 + i] % x->dim[1 + i] != 0)
            draft->refused = "nearest interpolation with a fractional scale has no exact ONNX form";
    }
    gp_draft_add_numbers(draft, node, "scales", false, 1, 4, scales);
    gp_draft_set_text(node, "mode", op->number[0] == GP_RESIZE_NEAREST ? "nearest" : "linear");
    gp_draft_set_text(node, "coordinate_transformation_mode", places[op->number[0]]);
    if (op->number[0] == GP_RESIZE_NEAREST)
        gp_draft_set_text(node, "nearest_mode", "floor");
}

static void draft_concat(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_set_int(gp_draft_add_layer(draft, layer, "Concat"), "axis", 1 + draft->ops[layer]->number[0]);
}

static void draft_crop(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_shape *shape = &draft->graph->outputs[layer];
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Slice");
    int64_t starts[3], ends[3], axes[3];

    for (uint32_t i = 0; i < shape->rank; i++) {
        starts[i] = draft->ops[layer]->number[i];
        ends[i] = starts[i] + shape->dim[i];
        axes[i] = 1 + i;
    }
    gp_draft_add_numbers(draft, node, "starts", true, 1, shape->rank, starts);
    gp_draft_add_numbers(draft, node, "ends", true, 1, shape->rank, ends);
    gp_draft_add_numbers(draft, node, "axes", true, 1, shape->rank, axes);
}

static void draft_pad(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_op *op = draft->ops[layer];
    const gp_value *x = &draft->graph->values[op->in[0]], *y = &draft->graph->values[op->out[0]];
    int64_t pads[8] = { 0 };

    for (int i = 1; i < 3; i++) {
        pads[1 + i] = op->number[i];
        pads[5 + i] = y->shape.dim[i] - x->shape.dim[i] - op->number[i];
    }
    gp_draft_add_numbers(draft, gp_draft_add_layer(draft, layer, "Pad"), "pads", true, 1, 8, pads);
}

static void draft_reshape(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_shape *shape = &draft->graph->outputs[layer];
    const int64_t to[4] = { 0, shape->dim[0], shape->dim[1], shape->dim[2] };

    gp_draft_add_numbers(draft, gp_draft_add_layer(draft, layer, "Reshape"), "shape", true, 1, 4, to);
}

static void draft_transpose(gp_onnx_draft *draft, uint32_t layer)
{
    const int32_t *order = draft->ops[layer]->number;
    const int32_t perm[4] = { 0, 1 + order[0], 1 + order[1], 1 + order[2] };

    gp_draft_set_ints(gp_draft_add_layer(draft, layer, "Transpose"), "perm", perm, 4);
}

/* Add a node that works along the channels. */
static void draft_along_channels(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_set_int(gp_draft_add_layer(draft, layer, draft->spec->layers[layer].kind->onnx), "axis", 1);
}

/* Convert a scale layer to a product with one number. */
static void draft_scale(gp_onnx_draft *draft, uint32_t layer)
{
    const float factor = (float)draft->ops[layer]->factor[0];

    gp_draft_add_numbers(draft, gp_draft_add_layer(draft, layer, "Mul"), "factor", false, 1, 1, &factor);
}

static void draft_hard_swish(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_add_layer(draft, layer, "HardSwish");
    gp_draft_needs(draft, 14);
}

static void draft_gelu(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Gelu");

    gp_draft_set_text(node, "approximate",
                      draft->ops[layer]->function == GP_ACTIVATION_GELU_TANH ? "tanh" : "none");
    gp_draft_needs(draft, 20);
}

static void draft_clip(gp_onnx_draft *draft, uint32_t layer)
{
    const float min = (float)draft->ops[layer]->factor[0], max = (float)draft->ops[layer]->factor[1];
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Clip");

    gp_draft_add_numbers(draft, node, "min", false, 0, 1, &min);
    gp_draft_add_numbers(draft, node, "max", false, 0, 1, &max);
}

static void draft_add(gp_onnx_draft *draft, uint32_t layer)
{
    gp_draft_add_layer(draft, layer, draft->spec->layers[layer].input_count == 2 ? "Add" : "Sum");
}

static void draft_dropout(gp_onnx_draft *draft, uint32_t layer)
{
    draft->values[layer] = gp_draft_layer_input(draft, layer, 0);
}

static void draft_values(gp_onnx_draft *draft, uint32_t layer)
{
    strcpy(gp_draft_add_layer(draft, layer, "Identity")->output_name, gp_draft_output_name(draft, layer));
}

/* Convert a classification loss to the function that computes the scores in inference. */
static void draft_classes(gp_onnx_draft *draft, uint32_t layer)
{
    const gp_end *end = draft->graph->ends;

    while (end->layer != layer)
        end++;
    if (end->scores_as_is) {
        draft_values(draft, layer);
        return;
    }
    gp_draft_node *node = gp_draft_add_layer(draft, layer, "Softmax");

    strcpy(node->output_name, gp_draft_output_name(draft, layer));
    gp_draft_set_int(node, "axis", 1);
}

/* Conversions by kind. Without a function, the node has only the inputs of the layer, and the
 * factors of the operation as attributes. */
static const struct {
    const char *kind;
    void (*draft)(gp_onnx_draft *draft, uint32_t layer);
} layer_drafts[] = {
    { "conv2d", draft_conv2d },
    { "transconv2d", draft_transconv2d },
    { "resize", draft_resize },
    { "fc", draft_fc },
    { "relu", NULL },
    { "leakyrelu", NULL },
    { "clip", draft_clip },
    { "sigmoid", NULL },
    { "tanh", NULL },
    { "hardsigmoid", NULL },
    { "hardswish", draft_hard_swish },
    { "gelu", draft_gelu },
    { "maxpool", draft_pool },
    { "avgpool", draft_pool },
    { "globalavgpool", NULL },
    { "globalmaxpool", NULL },
    { "batchnorm", draft_batchnorm },
    { "groupnorm", draft_groupnorm },
    { "layernorm", draft_groupnorm },
    { "crosschannelnorm", draft_lrn },
    { "flatten", draft_along_channels },
    { "softmax", draft_along_channels },
    { "add", draft_add },
    { "multiply", NULL },
    { "scale", draft_scale },
    { "concat", draft_concat },
    { "crop", draft_crop },
    { "pad", draft_pad },
    { "reshape", draft_reshape },
    { "transpose", draft_transpose },
    { "dropout", draft_dropout },
    { "crossentropy", draft_classes },
    { "pixelclassification", draft_classes },
    { "dice", draft_classes },
    { "mse", draft_values },
    { "huber", draft_values },
};

gp_status gp_draft_layers(gp_onnx_draft *draft, gp_error *err)
{
    enum { COUNT = sizeof(layer_drafts) / sizeof(layer_drafts[0]) };

    for (uint32_t i = 0; i < draft->spec->layer_count; i++) {
        const gp_layer *layer = &draft->spec->layers[i];
        size_t d = 0;

        while (d < COUNT && strcmp(layer_drafts[d].kind, layer->kind->name) != 0)
            d++;
        if (d == COUNT)
            return gp_fail(err, GP_EUNSUPPORTED,
                           "%s (%s): this kind cannot be exported to ONNX; remove the layer", layer->name,
                           layer->kind->name);
        if (layer_drafts[d].draft != NULL) {
            layer_drafts[d].draft(draft, i);
        } else {
            gp_draft_node *node = gp_draft_add_layer(draft, i, layer->kind->onnx);

            for (uint32_t k = 0; k < layer->kind->factors; k++)
                gp_draft_set_float(node, k == 0 ? "alpha" : "beta", draft->ops[i]->factor[k]);
        }
        if (draft->refused != NULL)
            return gp_fail(err, GP_EUNSUPPORTED, "%s (%s): %s", layer->name, layer->kind->name,
                           draft->refused);
    }
    return GP_OK;
}
