/* crosschannelnorm.c -- local response normalization over neighboring channels (Krizhevsky et
 * al., NIPS 2012), as in AlexNet and GoogLeNet. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct crosschannelnorm_settings {
    double alpha, beta, bias;
    int64_t size;
} crosschannelnorm_settings;

static const gp_param crosschannelnorm_params[] = {
    { "size", NULL, GP_PARAM_I64, offsetof(crosschannelnorm_settings, size), .fallback = 5, .min = 1,
      .max = 1024, .seed_name = "WindowChannelSize", .torch_name = "size",
      .help = "number of channels in a window" },
    { "alpha", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, alpha), .fallback = 1e-4, .max = 1e3,
      .seed_name = "Alpha", .torch_name = "alpha", .help = "factor of the mean square" },
    { "beta", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, beta), .fallback = 0.75, .max = 10.0,
      .seed_name = "Beta", .torch_name = "beta", .help = "power" },
    { "bias", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, bias), .fallback = 1.0, .min = 1e-5,
      .max = 1e3, .seed_name = "K", .torch_name = "k", .help = "constant added to the mean square" },
    { 0 },
};

static gp_status crosschannelnorm_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const crosschannelnorm_settings *settings = lowering->settings;
    const gp_shape shape = lowering->graph->values[lowering->y].shape;
    const uint32_t slot = lowering->dy == GP_NO_VALUE ? 0 : 1;

    op->number[0] = (int32_t)settings->size;
    gp_status status = gp_lowering_save(lowering, slot, false, GP_F32, &shape, err);

    op->out[1] = lowering->saved[slot];
    if (slot == 1)
        op->in[2] = lowering->saved[0];
    return status;
}

static const gp_kind_check crosschannelnorm_checks[] = {
    { { 3, { 7, 3, 2 } }, "size=3;alpha=0.5", 2, false },
    { { 3, { 6, 2, 3 } }, "size=4;alpha=0.3;beta=0.6;bias=2", 2, false },
    { { 3, { 2, 3, 3 } }, "size=5;alpha=0.2", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_crosschannelnorm = {
    .name = "crosschannelnorm",
    .onnx = "LRN",
    .help = "each number divided by a power of the squares in neighboring channels",
    .settings_table = crosschannelnorm_params,
    .settings_bytes = sizeof(crosschannelnorm_settings),
    .checks = crosschannelnorm_checks,
    .op = GP_OP_LRN,
    .op_backward = GP_OP_LRN_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .factors = 3,
    .prepare = crosschannelnorm_prepare,
};
