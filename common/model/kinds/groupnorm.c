/* groupnorm.c -- group normalization (Wu & He, ECCV 2018): normalizes groups of channels within
 * each sample, so samples do not affect each other. With one channel per group it is instance
 * normalization. */
#include "common/model/kinds/groupnorm.h"

#include <inttypes.h>
#include <stddef.h>

typedef struct groupnorm_settings {
    int64_t groups;
    double epsilon;
} groupnorm_settings;

static const gp_param groupnorm_params[] = {
    { "groups", NULL, GP_PARAM_I64, offsetof(groupnorm_settings, groups), .fallback = 32, .min = 1,
      .max = GP_CHANNELS_MAX, .seed_name = "NumGroups", .torch_name = "num_groups",
      .help = "groups of channels" },
    { "epsilon", NULL, GP_PARAM_F64, offsetof(groupnorm_settings, epsilon), .fallback = 1e-5, .min = 1e-12,
      .max = 1.0, .seed_name = "Epsilon", .torch_name = "eps", .help = "added to the variance" },
    { 0 },
};

void gp_groupnorm_infer(gp_infer *infer)
{
    const gp_shape channels = gp_shape1(infer->inputs[0].dim[0]);

    infer->output = infer->inputs[0];
    infer->parameter_count = 2;
    infer->parameters[0] =
        (gp_parameter_need){ .role = "scale", .shape = channels, .initializer = GP_INIT_ONES };
    infer->parameters[1] =
        (gp_parameter_need){ .role = "offset", .shape = channels, .initializer = GP_INIT_ZEROS };
}

static gp_op groupnorm_op(gp_opcode code, int64_t groups, double epsilon)
{
    gp_op op = gp_op_init(code);

    op.factor[0] = epsilon;
    op.number[0] = groups == GP_GROUPNORM_PIXELS ? 1 : (int32_t)groups;
    op.number[1] = groups == GP_GROUPNORM_PIXELS;
    return op;
}

gp_status gp_groupnorm_forward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err)
{
    gp_op op = groupnorm_op(GP_OP_GROUPNORM, groups, epsilon);
    const gp_shape *x = &lowering->graph->values[lowering->x[0]].shape;
    const int64_t pixels = gp_shape_count(x) / x->dim[0];
    const gp_shape moments = gp_shape2(2, groups == GP_GROUPNORM_PIXELS ? pixels : groups);
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

gp_status gp_groupnorm_backward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err)
{
    gp_op op = groupnorm_op(GP_OP_GROUPNORM_BACKWARD, groups, epsilon);
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

static gp_status groupnorm_infer(gp_infer *infer, gp_error *err)
{
    const groupnorm_settings *settings = infer->settings;
    const int64_t channels = infer->inputs[0].dim[0];

    if (channels % settings->groups != 0)
        return gp_fail(err, GP_EINVAL,
                       "%" PRId64 " groups do not divide its %" PRId64 " channels; use a divisor",
                       settings->groups, channels);
    gp_groupnorm_infer(infer);
    return GP_OK;
}

static gp_status groupnorm_forward(gp_lowering *lowering, gp_error *err)
{
    const groupnorm_settings *settings = lowering->settings;

    return gp_groupnorm_forward(lowering, settings->groups, settings->epsilon, err);
}

static gp_status groupnorm_backward(gp_lowering *lowering, gp_error *err)
{
    const groupnorm_settings *settings = lowering->settings;

    return gp_groupnorm_backward(lowering, settings->groups, settings->epsilon, err);
}

static const gp_kind_check groupnorm_checks[] = {
    { { 3, { 6, 3, 4 } }, "groups=3", 3, false },
    { { 3, { 40, 3, 2 } }, "groups=4;epsilon=1e-3", 2, true },
    { { 3, { 4, 3, 3 } }, "groups=4", 2, false },
    { { 1, { 8 } }, "groups=2", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_groupnorm = {
    .name = "groupnorm",
    .onnx = "GroupNormalization",
    .help = "each group of channels of a sample to mean 0 and deviation 1, then scale and offset",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = groupnorm_params,
    .settings_bytes = sizeof(groupnorm_settings),
    .checks = groupnorm_checks,
    .infer = groupnorm_infer,
    .forward = groupnorm_forward,
    .backward = groupnorm_backward,
};
