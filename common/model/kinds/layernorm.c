/* layernorm.c -- layer normalization (Ba et al., 2016) with a scale and an offset per channel.
 * It covers all numbers of a sample or, as in ConvNeXt and transformers, the channels of each
 * pixel. */
#include <stddef.h>

#include "common/model/kinds/groupnorm.h"

enum { LAYERNORM_SAMPLE, LAYERNORM_CHANNELS }; /* indices in layernorm_over */

static const char *const layernorm_over[] = { "sample", "channels", NULL };

typedef struct layernorm_settings {
    double epsilon;
    int over;
} layernorm_settings;

static const gp_param layernorm_params[] = {
    { "epsilon", NULL, GP_PARAM_F64, offsetof(layernorm_settings, epsilon), .fallback = 1e-5, .min = 1e-12,
      .max = 1.0, .seed_name = "Epsilon", .torch_name = "eps", .help = "added to the variance" },
    { "over", NULL, GP_PARAM_WORD, offsetof(layernorm_settings, over), .words = layernorm_over,
      .help = "sample: over all numbers of a sample; channels: over the channels of each pixel" },
    { 0 },
};

static gp_status layernorm_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const layernorm_settings *settings = lowering->settings;

    return gp_groupnorm_prepare(lowering, op, settings->over == LAYERNORM_CHANNELS ? GP_GROUPNORM_PIXELS : 1,
                                err);
}

static const gp_kind_check layernorm_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 3, false },
    { { 1, { 9 } }, "epsilon=1e-4", 2, false },
    { { 3, { 5, 3, 4 } }, "over=channels", 3, false },
    { { 3, { 19, 5, 9 } }, "over=channels;epsilon=1e-3", 2, true },
    { { 1, { 6 } }, "over=channels", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_layernorm = {
    .name = "layernorm",
    .onnx = "LayerNormalization",
    .help = "normalize each sample or pixel to mean 0 and deviation 1, then scale and shift each channel",
    .settings_table = layernorm_params,
    .settings_bytes = sizeof(layernorm_settings),
    .checks = layernorm_checks,
    .infer = gp_groupnorm_infer,
    .op = GP_OP_GROUPNORM,
    .op_backward = GP_OP_GROUPNORM_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .factors = 1,
    .prepare = layernorm_prepare,
};
