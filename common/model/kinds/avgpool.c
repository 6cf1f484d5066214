/* avgpool.c -- average pooling. A setting decides whether padding counts as pixels with value 0. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/pooling.h"

static const gp_param avgpool_params[] = {
    GP_POOLING_PARAMS,
    { "count-padding", NULL, GP_PARAM_BOOL, offsetof(gp_pooling_settings, count_padding),
      .seed_name = "PaddingValue", .torch_name = "count_include_pad",
      .help = "include padding in the divisor" },
    { 0 },
};

static const gp_kind_check avgpool_checks[] = {
    { { 3, { 2, 4, 6 } }, "kernel=2", 2, false },
    { { 3, { 1, 5, 4 } }, "kernel=3,2;stride=1,2;padding=1,0,2,1", 1, false },
    { { 3, { 3, 7, 5 } }, "kernel=3;stride=2;padding=1;count-padding=true", 3, false },
    { { 3, { 1, 3, 3 } }, "kernel=1;stride=2", 1, false },
    { { 3, { 2, 6, 7 } }, "kernel=3,2;stride=2;padding=1,0,0,1;ceil=true", 2, false },
    { { 3, { 2, 5, 6 } }, "kernel=3;stride=2;same=upper", 1, false },
    { { 3, { 1, 7, 6 } }, "kernel=2;stride=1;dilation=2,3;padding=1;count-padding=true", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_avgpool = {
    .name = "avgpool",
    .onnx = "AveragePool",
    .help = "mean over windows",
    .settings_table = avgpool_params,
    .settings_bytes = sizeof(gp_pooling_settings),
    .checks = avgpool_checks,
    .infer = gp_pooling_infer,
    .op = GP_OP_POOL,
    .op_backward = GP_OP_POOL_BACKWARD,
    .pool = GP_POOL_AVERAGE,
    .prepare = gp_pooling_prepare,
};
