/* groupnorm.c -- group normalization (Wu & He, ECCV 2018): normalizes groups of channels within
 * each sample, so samples do not affect each other. With one channel per group it is instance
 * normalization. */
#include "common/model/kinds/groupnorm.h"

#include <inttypes.h>
#include <stddef.h>

typedef struct groupnorm_settings {
    double epsilon;
    int64_t groups;
} groupnorm_settings;

static const gp_param groupnorm_params[] = {
    { "groups", NULL, GP_PARAM_I64, offsetof(groupnorm_settings, groups), .fallback = 32, .min = 1,
      .max = GP_CHANNELS_MAX, .seed_name = "NumGroups", .torch_name = "num_groups",
      .help = "number of groups of channels" },
    { "epsilon", NULL, GP_PARAM_F64, offsetof(groupnorm_settings, epsilon), .fallback = 1e-5, .min = 1e-12,
      .max = 1.0, .seed_name = "Epsilon", .torch_name = "eps", .help = "added to the variance" },
    { 0 },
};

gp_status gp_groupnorm_infer(gp_infer *infer, gp_error *err)
{
    const gp_shape channels = gp_shape1(infer->inputs[0].dim[0]);

    (void)err;
    infer->parameter_count = 2;
    infer->parameters[0] =
        (gp_parameter_need){ .role = "scale", .shape = channels, .initializer = GP_INIT_ONES };
    infer->parameters[1] =
        (gp_parameter_need){ .role = "offset", .shape = channels, .initializer = GP_INIT_ZEROS };
    return GP_OK;
}

gp_status gp_groupnorm_prepare(gp_lowering *lowering, gp_op *op, int64_t groups, gp_error *err)
{
    const gp_shape *x = &lowering->graph->values[lowering->x[0]].shape;
    const bool pixels = groups == GP_GROUPNORM_PIXELS, forward = lowering->dy == GP_NO_VALUE;
    const int64_t groups_in_sample = pixels ? gp_shape_count(x) / x->dim[0] : groups;
    const gp_shape sums = gp_shape2(2, forward ? groups_in_sample : x->dim[0]);
    gp_status status = gp_lowering_save(lowering, forward ? 0 : 1, false, GP_F32, &sums, err);

    op->number[0] = pixels ? 1 : (int32_t)groups;
    op->number[1] = pixels;
    *(forward ? &op->out[1] : &op->in[3]) = lowering->saved[0];
    op->out[3] = lowering->saved[1];
    return status;
}

static gp_status groupnorm_infer(gp_infer *infer, gp_error *err)
{
    const groupnorm_settings *settings = infer->settings;
    const int64_t channels = infer->inputs[0].dim[0];

    if (channels % settings->groups != 0)
        return gp_fail(err, GP_EINVAL, "%" PRId64 " groups do not divide %" PRId64 " channels; use a divisor",
                       settings->groups, channels);
    return gp_groupnorm_infer(infer, err);
}

static gp_status groupnorm_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    return gp_groupnorm_prepare(lowering, op, ((const groupnorm_settings *)lowering->settings)->groups, err);
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
    .help = "normalize each group of channels of a sample to mean 0 and deviation 1, then scale and shift",
    .settings_table = groupnorm_params,
    .settings_bytes = sizeof(groupnorm_settings),
    .checks = groupnorm_checks,
    .infer = groupnorm_infer,
    .op = GP_OP_GROUPNORM,
    .op_backward = GP_OP_GROUPNORM_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .factors = 1,
    .prepare = groupnorm_prepare,
};
