/* globalmaxpool.c -- maximum over height and width: pooling with the whole input as window. */
#include <stddef.h>

#include "common/model/kinds/pooling.h"

static const gp_param globalmaxpool_params[] = { { 0 } };

static gp_status globalmaxpool_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_pooling_forward(lowering, GP_POOL_MAX, NULL, err);
}

static gp_status globalmaxpool_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_pooling_backward(lowering, GP_POOL_MAX, NULL, err);
}

static const gp_kind_check globalmaxpool_checks[] = {
    { { 3, { 3, 4, 5 } }, NULL, 2, false },
    { { 3, { 17, 1, 1 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_globalmaxpool = {
    .name = "globalmaxpool",
    .onnx = "GlobalMaxPool",
    .help = "maximum of each channel",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = globalmaxpool_params,
    .checks = globalmaxpool_checks,
    .infer = gp_pooling_global_infer,
    .forward = globalmaxpool_forward,
    .backward = globalmaxpool_backward,
};
