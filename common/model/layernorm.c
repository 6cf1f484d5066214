/* Layer normalisation (Ba et al., 2016): all numbers of a sample together, scale and offset per channel. */
#include <stddef.h>

#include "common/model/graph.h"

typedef struct layernorm_settings {
    double epsilon;
} layernorm_settings;

static const gp_param layernorm_params[] = {
    { "epsilon", NULL, GP_PARAM_F64, offsetof(layernorm_settings, epsilon), .fallback = 1e-5, .min = 1e-12,
      .max = 1.0, .seed_name = "Epsilon", .torch_name = "eps", .help = "added to the variance" },
    { 0 },
};

static gp_op layernorm_op(const gp_lowering *lowering, gp_opcode code)
{
    const layernorm_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);

    op.factor[0] = settings->epsilon;
    op.number[0] = 1;
    return op;
}

static gp_status layernorm_infer(gp_infer *infer, gp_error *err)
{
    const layernorm_settings *settings = infer->settings;
    const gp_shape channels = gp_shape1(infer->inputs[0].dim[0]);
    (void)settings;
    (void)err;
    infer->output = infer->inputs[0];
    infer->parameter_count = 2;
    infer->parameters[0] =
        (gp_parameter_need){ .role = "scale", .shape = channels, .initializer = GP_INIT_ONES };
    infer->parameters[1] =
        (gp_parameter_need){ .role = "offset", .shape = channels, .initializer = GP_INIT_ZEROS };
    return GP_OK;
}

static gp_status layernorm_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = layernorm_op(lowering, GP_OP_GROUPNORM);
    const gp_shape moments = gp_shape2(2, op.number[0]);
    gp_status status = gp_lowering_save(lowering, 0, GP_F32, &moments, err);

    if (status != GP_OK)
        return status;
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->parameters[0];
    op.in[2] = lowering->parameters[1];
    op.out[0] = lowering->y;
    op.out[1] = lowering->saved[0];
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status layernorm_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = layernorm_op(lowering, GP_OP_GROUPNORM_BACKWARD);
    const gp_shape sums = gp_shape2(2, lowering->graph->values[lowering->parameters[0]].shape.dim[0]);
    gp_status status = gp_lowering_save(lowering, 1, GP_F32, &sums, err);

    if (status != GP_OK)
        return status;
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->dy;
    op.in[2] = lowering->parameters[0];
    op.in[3] = lowering->saved[0];
    op.out[0] = lowering->dx[0];
    op.out[1] = lowering->gradients[0];
    op.out[2] = lowering->gradients[1];
    op.out[3] = lowering->saved[1];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check layernorm_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 3, false },
    { { 1, { 9 } }, "epsilon=1e-4", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_layernorm = {
    .name = "layernorm",
    .onnx = "LayerNormalization",
    .help = "each sample to mean 0 and deviation 1, then scale and offset per channel",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = layernorm_params,
    .settings_bytes = sizeof(layernorm_settings),
    .checks = layernorm_checks,
    .infer = layernorm_infer,
    .forward = layernorm_forward,
    .backward = layernorm_backward,
};
