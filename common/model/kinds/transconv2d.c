/* transconv2d.c -- transposed convolution: the backward-data pass of a convolution as a layer,
 * which enlarges an image by the stride. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/window.h"
#include "common/model/kinds/wiring.h"

typedef struct transconv2d_settings {
    int64_t channels;
    gp_window_settings window;
    int64_t groups, extra[2];
    bool bias;
} transconv2d_settings;

#define FIELD(member) offsetof(transconv2d_settings, member)

static const gp_param transconv2d_params[] = {
    { "channels", NULL, GP_PARAM_I64, FIELD(channels), .min = 1, .max = GP_CHANNELS_MAX,
      .seed_name = "NumFilters", .torch_name = "out_channels", .help = "output channels" },
    { "kernel", NULL, GP_PARAM_I64, FIELD(window.kernel), .count = 2, .min = 1, .max = GP_WINDOW_MAX,
      .seed_name = "FilterSize", .torch_name = "kernel_size", .unit = "pixels", .help = "height, width" },
    { "stride", NULL, GP_PARAM_I64, FIELD(window.stride), .count = 2, .fallback = 1, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "Stride", .torch_name = "stride", .unit = "pixels",
      .help = "stride of the output: height, width" },
    { "dilation", NULL, GP_PARAM_I64, FIELD(window.dilation), .count = 2, .fallback = 1, .min = 1,
      .max = GP_WINDOW_MAX, .torch_name = "dilation", .unit = "pixels",
      .help = "distance of neighboring kernel elements: height, width" },
    { "padding", NULL, GP_PARAM_I64, FIELD(window.padding), .count = 4, .max = GP_WINDOW_MAX,
      .seed_name = "Cropping", .torch_name = "padding", .unit = "pixels",
      .help = "rows and columns removed from the output: top, left, bottom, right" },
    { "extra", NULL, GP_PARAM_I64, FIELD(extra), .count = 2, .max = GP_WINDOW_MAX,
      .torch_name = "output_padding", .unit = "pixels",
      .help = "rows and columns added at the bottom and right; less than the stride" },
    { "groups", NULL, GP_PARAM_I64, FIELD(groups), .fallback = 1, .min = 1, .max = GP_CHANNELS_MAX,
      .torch_name = "groups", .help = "number of groups of channels that are convolved separately" },
    { "bias", NULL, GP_PARAM_BOOL, FIELD(bias), .fallback = 1, .torch_name = "bias",
      .help = "add one learned number per channel" },
    { 0 },
};

static gp_status transconv2d_infer(gp_infer *infer, gp_error *err)
{
    const transconv2d_settings *settings = infer->settings;
    const gp_shape *in = &infer->inputs[0];
    int64_t out[2], taps = settings->window.kernel[0] * settings->window.kernel[1];

    if (settings->channels == 0 || taps == 0)
        return gp_fail(err, GP_EINVAL,
                       "channels or kernel is missing; set channels=N and kernel=K (or kernel=height,width)");
    if (gp_wire_check_image(in, err) != GP_OK)
        return GP_EINVAL;
    if (in->dim[0] % settings->groups != 0 || settings->channels % settings->groups != 0)
        return gp_fail(err, GP_EINVAL,
                       "%" PRId64 " groups do not divide %" PRId64 " input and %" PRId64 " output channels",
                       settings->groups, in->dim[0], settings->channels);
    for (int i = 0; i < 2; i++) {
        out[i] = (in->dim[1 + i] - 1) * settings->window.stride[i] +
                 settings->window.dilation[i] * (settings->window.kernel[i] - 1) + 1 + settings->extra[i] -
                 settings->window.padding[i] - settings->window.padding[2 + i];
        if (settings->extra[i] >= settings->window.stride[i] && settings->extra[i] > 0)
            return gp_fail(err, GP_EINVAL, "extra=%" PRId64 " must be less than the stride %" PRId64,
                           settings->extra[i], settings->window.stride[i]);
        if (out[i] < 1)
            return gp_fail(err, GP_EINVAL, "the padding leaves no output of an input of %" PRId64 "x%" PRId64,
                           in->dim[1], in->dim[2]);
    }
    infer->output = gp_shape3(settings->channels, out[0], out[1]);
    const gp_parameter_need weight = { .shape =
                                           gp_shape4(in->dim[0], settings->channels / settings->groups,
                                                     settings->window.kernel[0], settings->window.kernel[1]),
                                       .fan_in = taps * (in->dim[0] / settings->groups),
                                       .fan_out = taps * (settings->channels / settings->groups) };

    gp_wire_infer_weights(infer, &weight, settings->channels, settings->bias);
    return GP_OK;
}

/* Set the window: that of a convolution from output to input; rounding down removes the pixels
 * that `extra` adds. */
static gp_status transconv2d_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const transconv2d_settings *settings = lowering->settings;
    int64_t out[2];

    return gp_window_resolve(&op->window, out, &settings->window, settings->groups,
                             &lowering->graph->values[lowering->y].shape, err);
}

static const gp_kind_check transconv2d_checks[] = {
    { { 3, { 2, 3, 4 } }, "channels=3;kernel=3;stride=2;padding=1;extra=1", 2, false },
    { { 3, { 4, 3, 2 } },
      "channels=2;kernel=2,3;stride=2,1;groups=2;bias=false;dilation=2,1;padding=0,1,1,0",
      2,
      false },
    { { 3, { 3, 4, 4 } }, "channels=2;kernel=2;stride=2", 1, false },
    { { 3, { 2, 3, 3 } }, "channels=4;kernel=1;stride=3;extra=2,1", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_transconv2d = {
    .name = "transconv2d",
    .onnx = "ConvTranspose",
    .help = "transposed convolution: learned upsampling",
    .settings_table = transconv2d_params,
    .settings_bytes = sizeof(transconv2d_settings),
    .checks = transconv2d_checks,
    .infer = transconv2d_infer,
    .op = GP_OP_TRANSCONV2D,
    .op_backward = GP_OP_TRANSCONV2D_BACKWARD_DATA,
    .op_weights = GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS,
    .prepare = transconv2d_prepare,
};
