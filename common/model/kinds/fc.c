/* fc.c -- fully connected layer. It reads an input of any shape as a vector in channel, height,
 * width order. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/wiring.h"

enum { OUTPUTS_MAX = 1 << 20 };

typedef struct fc_settings {
    int64_t outputs;
    bool bias;
} fc_settings;

static const gp_param fc_params[] = {
    { "outputs", NULL, GP_PARAM_I64, offsetof(fc_settings, outputs), .min = 1, .max = OUTPUTS_MAX,
      .seed_name = "OutputSize", .torch_name = "out_features", .help = "number of outputs" },
    { "bias", NULL, GP_PARAM_BOOL, offsetof(fc_settings, bias), .fallback = 1, .torch_name = "bias",
      .help = "add one learned number per output" },
    { 0 },
};

static gp_status fc_infer(gp_infer *infer, gp_error *err)
{
    const fc_settings *settings = infer->settings;
    int64_t inputs = gp_shape_count(&infer->inputs[0]);

    if (settings->outputs == 0)
        return gp_fail(err, GP_EINVAL, "outputs is missing; set outputs=N");
    infer->output = gp_shape1(settings->outputs);
    const gp_parameter_need weight = { .shape = gp_shape2(settings->outputs, inputs),
                                       .fan_in = inputs,
                                       .fan_out = settings->outputs };

    gp_wire_infer_weights(infer, &weight, settings->outputs, settings->bias);
    return GP_OK;
}

static const gp_kind_check fc_checks[] = {
    { { 3, { 2, 3, 5 } }, "outputs=7", 3, false },
    { { 1, { 6 } }, "outputs=4;bias=false", 2, false },
    { { 1, { 1 } }, "outputs=2", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_fc = {
    .name = "fc",
    .onnx = "Gemm",
    .help = "fully connected layer",
    .settings_table = fc_params,
    .settings_bytes = sizeof(fc_settings),
    .checks = fc_checks,
    .infer = fc_infer,
    .op = GP_OP_FC,
    .op_backward = GP_OP_FC_BACKWARD_DATA,
    .op_weights = GP_OP_FC_BACKWARD_WEIGHTS,
};
