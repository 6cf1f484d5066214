/* globalavgpool.c -- mean over height and width: pooling with the whole input as window. */
#include <stddef.h>

#include "common/model/kinds/pooling.h"

static const gp_param globalavgpool_params[] = { { 0 } };

static gp_status globalavgpool_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_pooling_forward(lowering, GP_POOL_AVERAGE, NULL, err);
}

static gp_status globalavgpool_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_pooling_backward(lowering, GP_POOL_AVERAGE, NULL, err);
}

static const gp_kind_check globalavgpool_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 2, false },
    { { 3, { 17, 1, 1 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_globalavgpool = {
    .name = "globalavgpool",
    .onnx = "GlobalAveragePool",
    .help = "mean of each channel",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = globalavgpool_params,
    .checks = globalavgpool_checks,
    .infer = gp_pooling_global_infer,
    .forward = globalavgpool_forward,
    .backward = globalavgpool_backward,
};
