/* crosschannelnorm.c -- local response normalization over neighboring channels (Krizhevsky et
 * al., NIPS 2012), as in AlexNet and GoogLeNet. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct crosschannelnorm_settings {
    int64_t size;
    double alpha, beta, bias;
} crosschannelnorm_settings;

static const gp_param crosschannelnorm_params[] = {
    { "size", NULL, GP_PARAM_I64, offsetof(crosschannelnorm_settings, size), .fallback = 5, .min = 1,
      .max = 1024, .seed_name = "WindowChannelSize", .torch_name = "size", .help = "channels in a window" },
    { "alpha", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, alpha), .fallback = 1e-4, .max = 1e3,
      .seed_name = "Alpha", .torch_name = "alpha", .help = "factor of the mean square" },
    { "beta", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, beta), .fallback = 0.75, .max = 10.0,
      .seed_name = "Beta", .torch_name = "beta", .help = "power" },
    { "bias", NULL, GP_PARAM_F64, offsetof(crosschannelnorm_settings, bias), .fallback = 1.0, .min = 1e-5,
      .max = 1e3, .seed_name = "K", .torch_name = "k", .help = "added to the mean square" },
    { 0 },
};

static gp_op crosschannelnorm_op(const gp_lowering *lowering, gp_opcode code)
{
    const crosschannelnorm_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);

    op.number[0] = (int32_t)settings->size;
    op.factor[0] = settings->alpha;
    op.factor[1] = settings->beta;
    op.factor[2] = settings->bias;
    return op;
}

static gp_status crosschannelnorm_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = crosschannelnorm_op(lowering, GP_OP_LRN);
    const gp_shape shape = lowering->graph->values[lowering->y].shape;
    gp_status status = gp_lowering_save(lowering, 0, GP_F32, &shape, err);

    if (status != GP_OK)
        return status;
    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    op.out[1] = lowering->saved[0];
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status crosschannelnorm_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = crosschannelnorm_op(lowering, GP_OP_LRN_BACKWARD);
    const gp_shape shape = lowering->graph->values[lowering->y].shape;
    gp_status status = GP_OK;

    if (lowering->dx[0] != GP_NO_VALUE)
        status = gp_lowering_save(lowering, 1, GP_F32, &shape, err);
    if (status != GP_OK || lowering->dx[0] == GP_NO_VALUE)
        return status;
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->dy;
    op.in[2] = lowering->saved[0];
    op.out[0] = lowering->dx[0];
    op.out[1] = lowering->saved[1];
    return gp_lowering_emit(lowering, &op, err);
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
    .help = "each number over a power of its neighbouring channels' squares",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = crosschannelnorm_params,
    .settings_bytes = sizeof(crosschannelnorm_settings),
    .checks = crosschannelnorm_checks,
    .infer = gp_wire_infer_same,
    .forward = crosschannelnorm_forward,
    .backward = crosschannelnorm_backward,
};
