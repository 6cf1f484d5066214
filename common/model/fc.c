/* Fully connected layer over an input of any shape, read as a vector in channel, height, width order. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/graph.h"

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
        return gp_fail(err, GP_EINVAL, "the number of outputs is not given; say outputs=N");
    infer->output = gp_shape1(settings->outputs);
    infer->parameters[0] = (gp_parameter_need){ .role = "weight",
                                                .shape = gp_shape2(settings->outputs, inputs),
                                                .fan_in = inputs,
                                                .fan_out = settings->outputs,
                                                .initializer = GP_INIT_WEIGHTS };
    infer->parameters[1] = (gp_parameter_need){ .role = "bias",
                                                .shape = gp_shape1(settings->outputs),
                                                .initializer = GP_INIT_ZEROS };
    infer->parameter_count = settings->bias ? 2 : 1;
    return GP_OK;
}

static gp_status fc_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_FC);

    op.in[0] = lowering->x[0];
    op.in[1] = lowering->parameters[0];
    op.in[2] = lowering->parameters[1];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status fc_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_FC_BACKWARD_WEIGHTS);

    op.in[0] = lowering->x[0];
    op.in[1] = lowering->dy;
    op.out[0] = lowering->gradients[0];
    op.out[1] = lowering->gradients[1];
    gp_status status = gp_lowering_emit(lowering, &op, err);

    if (status != GP_OK || lowering->dx[0] == GP_NO_VALUE)
        return status;
    op = gp_op_init(GP_OP_FC_BACKWARD_DATA);
    op.in[0] = lowering->dy;
    op.in[1] = lowering->parameters[0];
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
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
    .help = "fully connected: every output sees every input",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = fc_params,
    .settings_bytes = sizeof(fc_settings),
    .checks = fc_checks,
    .infer = fc_infer,
    .forward = fc_forward,
    .backward = fc_backward,
};
