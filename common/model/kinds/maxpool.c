/* maxpool.c -- maximum pooling. Training saves the position of each maximum for the backward
 * pass; inference does not. */
#include <stdbool.h>
#include "common/model/kinds/pooling.h"

static const gp_param maxpool_params[] = {
    GP_POOLING_PARAMS,
    { 0 },
};

static const gp_kind_check maxpool_checks[] = {
    { { 3, { 2, 4, 6 } }, "kernel=2", 2, false },
    { { 3, { 1, 5, 4 } }, "kernel=3,2;stride=1,2;padding=1,0,2,1", 1, false },
    { { 3, { 3, 7, 7 } }, "kernel=3;stride=2;padding=1", 3, false },
    { { 3, { 1, 3, 3 } }, "kernel=1;stride=2", 1, false },
    { { 3, { 2, 6, 8 } }, "kernel=3;stride=2;ceil=true", 2, false },
    { { 3, { 2, 6, 5 } }, "kernel=2,3;stride=1,2;same=lower", 1, false },
    { { 3, { 1, 7, 8 } }, "kernel=2,3;stride=1;dilation=3,2;padding=1,2,2,0", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_maxpool = {
    .name = "maxpool",
    .onnx = "MaxPool",
    .help = "maximum over windows",
    .settings_table = maxpool_params,
    .settings_bytes = sizeof(gp_pooling_settings),
    .checks = maxpool_checks,
    .infer = gp_pooling_infer,
    .op = GP_OP_POOL,
    .op_backward = GP_OP_POOL_BACKWARD,
    .pool = GP_POOL_MAX,
    .prepare = gp_pooling_prepare,
};
