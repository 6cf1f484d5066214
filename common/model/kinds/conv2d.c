/* conv2d.c -- two-dimensional convolution (cross-correlation, as in other frameworks), with
 * groups and dilation. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/window.h"
#include "common/model/kinds/wiring.h"

typedef struct conv2d_settings {
    int64_t channels;
    gp_window_settings window;
    int64_t groups;
    bool bias;
} conv2d_settings;

#define FIELD(member) offsetof(conv2d_settings, member)

static const gp_param conv2d_params[] = {
    { "channels", NULL, GP_PARAM_I64, FIELD(channels), .min = 1, .max = GP_CHANNELS_MAX,
      .seed_name = "NumFilters", .torch_name = "out_channels", .help = "output channels" },
    { "kernel", NULL, GP_PARAM_I64, FIELD(window.kernel), .count = 2, .min = 1, .max = GP_WINDOW_MAX,
      .seed_name = "FilterSize", .torch_name = "kernel_size", .unit = "pixels", .help = "height, width" },
    { "stride", NULL, GP_PARAM_I64, FIELD(window.stride), .count = 2, .fallback = 1, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "Stride", .torch_name = "stride", .unit = "pixels",
      .help = "stride: height, width" },
    { "dilation", NULL, GP_PARAM_I64, FIELD(window.dilation), .count = 2, .fallback = 1, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "DilationFactor", .torch_name = "dilation", .unit = "pixels",
      .help = "distance of neighboring kernel elements: height, width" },
    { "padding", NULL, GP_PARAM_I64, FIELD(window.padding), .count = 4, .max = GP_WINDOW_MAX,
      .seed_name = "Padding", .torch_name = "padding", .unit = "pixels",
      .help = "zeros around the input: top, left, bottom, right" },
    { "same", NULL, GP_PARAM_WORD, FIELD(window.same), .words = gp_window_same_words, .seed_name = "Padding",
      .help = "pad so that the output has ceil(input / stride) pixels: an odd pixel after (upper) or before "
              "(lower)" },
    { "groups", NULL, GP_PARAM_I64, FIELD(groups), .fallback = 1, .min = 1, .max = GP_CHANNELS_MAX,
      .seed_name = "NumGroups", .torch_name = "groups",
      .help = "number of groups of channels that are convolved separately" },
    { "bias", NULL, GP_PARAM_BOOL, FIELD(bias), .fallback = 1, .torch_name = "bias",
      .help = "add one learned number per channel" },
    { 0 },
};

static gp_status conv2d_infer(gp_infer *infer, gp_error *err)
{
    const conv2d_settings *settings = infer->settings;
    gp_window window;
    int64_t out[2];

    if (settings->channels == 0)
        return gp_fail(err, GP_EINVAL, "channels is missing; set channels=N");
    gp_status status =
        gp_window_resolve(&window, out, &settings->window, settings->groups, &infer->inputs[0], err);

    if (status != GP_OK)
        return status;
    int64_t in_channels = infer->inputs[0].dim[0], groups = settings->groups;

    if (in_channels % groups != 0 || settings->channels % groups != 0)
        return gp_fail(err, GP_EINVAL,
                       "%" PRId64 " groups do not divide %" PRId64 " input and %" PRId64
                       " output channels; use a common divisor",
                       groups, in_channels, settings->channels);
    int64_t taps = settings->window.kernel[0] * settings->window.kernel[1];

    infer->output = gp_shape3(settings->channels, out[0], out[1]);
    const gp_parameter_need weight = { .shape =
                                           gp_shape4(settings->channels, in_channels / groups,
                                                     settings->window.kernel[0], settings->window.kernel[1]),
                                       .fan_in = taps * (in_channels / groups),
                                       .fan_out = taps * (settings->channels / groups) };

    gp_wire_infer_weights(infer, &weight, settings->channels, settings->bias);
    return GP_OK;
}

static gp_status conv2d_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const conv2d_settings *settings = lowering->settings;
    int64_t out[2];

    return gp_window_resolve(&op->window, out, &settings->window, settings->groups,
                             &lowering->graph->values[lowering->x[0]].shape, err);
}

static const gp_kind_check conv2d_checks[] = {
    { { 3, { 1, 5, 7 } }, "channels=2;kernel=3", 2, false },
    { { 3, { 3, 6, 5 } }, "channels=4;kernel=3,2;stride=2,1;padding=1,0,2,1;bias=false", 1, false },
    { { 3, { 4, 9, 8 } }, "channels=6;kernel=3,2;groups=2;dilation=2,3;stride=2,3;padding=2", 3, false },
    { { 3, { 3, 4, 4 } }, "channels=3;kernel=1;groups=3", 1, false },
    { { 3, { 2, 1, 9 } }, "channels=5;kernel=1,9", 2, false },
    { { 3, { 2, 6, 5 } }, "channels=4;kernel=2,3;stride=1,2;same=lower", 2, false },
    { { 3, { 3, 7, 6 } }, "channels=3;groups=3;kernel=3;stride=2;dilation=2,1;same=upper", 2, false },
    /* some windows contain only padding */
    { { 3, { 1, 2, 2 } }, "channels=1;kernel=2;padding=2;stride=3", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_conv2d = {
    .name = "conv2d",
    .onnx = "Conv",
    .help = "convolution over height and width",
    .settings_table = conv2d_params,
    .settings_bytes = sizeof(conv2d_settings),
    .checks = conv2d_checks,
    .infer = conv2d_infer,
    .op = GP_OP_CONV2D,
    .op_backward = GP_OP_CONV2D_BACKWARD_DATA,
    .op_weights = GP_OP_CONV2D_BACKWARD_WEIGHTS,
    .prepare = conv2d_prepare,
};
