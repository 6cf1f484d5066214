/* Mean over height and width: a pooling whose window is the input. */
#include <stddef.h>

#include "common/model/graph.h"
#include "common/model/window.h"

static const gp_param globalavgpool_params[] = { { 0 } };

/* A window as large as the input.  GP_EINVAL: the input is not [C, H, W], or larger than windows can be. */
static gp_status globalavgpool_window(gp_window *window, const gp_shape *input, gp_error *err)
{
    gp_window_settings settings = { .kernel = { 1, 1 } };
    int64_t out[2];

    for (uint32_t i = 1; i < input->rank && i < 3; i++) {
        if (input->dim[i] > GP_WINDOW_MAX)
            return gp_fail(err, GP_EINVAL, "its input has %lld pixels along an axis; at most %d are possible",
                           (long long)input->dim[i], GP_WINDOW_MAX);
        settings.kernel[i - 1] = input->dim[i];
    }
    return gp_window_resolve(window, out, &settings, 1, input, err);
}

static gp_status globalavgpool_infer(gp_infer *infer, gp_error *err)
{
    gp_window window;
    gp_status status = globalavgpool_window(&window, &infer->inputs[0], err);

    infer->output = gp_shape3(infer->inputs[0].dim[0], 1, 1);
    return status;
}

static gp_op globalavgpool_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    globalavgpool_window(&op.window, &lowering->graph->values[lowering->x[0]].shape,
                         NULL); /* infer has seen it succeed */
    op.pool = GP_POOL_AVERAGE;
    return op;
}

static gp_status globalavgpool_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = globalavgpool_op(lowering, GP_OP_POOL);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status globalavgpool_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = globalavgpool_op(lowering, GP_OP_POOL_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
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
    .infer = globalavgpool_infer,
    .forward = globalavgpool_forward,
    .backward = globalavgpool_backward,
};
