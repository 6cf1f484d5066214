/* globalavgpool.c -- mean over height and width: pooling with the whole input as window. */
#include <stddef.h>

#include "common/model/kinds/pooling.h"

static const gp_kind_check globalavgpool_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 2, false },
    { { 3, { 17, 1, 1 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_globalavgpool = {
    .name = "globalavgpool",
    .onnx = "GlobalAveragePool",
    .help = "mean of each channel",
    .settings_table = gp_no_params,
    .checks = globalavgpool_checks,
    .infer = gp_pooling_infer,
    .op = GP_OP_POOL,
    .op_backward = GP_OP_POOL_BACKWARD,
    .pool = GP_POOL_AVERAGE,
    .prepare = gp_pooling_prepare,
};
