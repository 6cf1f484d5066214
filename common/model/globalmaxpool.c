/* Maximum over height and width: a pooling whose window is the input. */
#include <stddef.h>

#include "common/model/graph.h"
#include "common/model/window.h"

static const gp_param globalmaxpool_params[] = { { 0 } };

/* A window as large as the input.  GP_EINVAL: the input is not [C, H, W], or larger than windows can be. */
static gp_status globalmaxpool_window(gp_window *window, const gp_shape *input, gp_error *err)
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

static gp_status globalmaxpool_infer(gp_infer *infer, gp_error *err)
{
    gp_window window;
    gp_status status = globalmaxpool_window(&window, &infer->inputs[0], err);

    infer->output = gp_shape3(infer->inputs[0].dim[0], 1, 1);
    return status;
}

static gp_op globalmaxpool_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    globalmaxpool_window(&op.window, &lowering->graph->values[lowering->x[0]].shape,
                         NULL); /* infer has seen it succeed */
    op.pool = GP_POOL_MAX;
    return op;
}

static gp_status globalmaxpool_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = globalmaxpool_op(lowering, GP_OP_POOL);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    if (lowering->phase == GP_PHASE_TRAIN) {
        const gp_shape shape = lowering->graph->values[lowering->y].shape;
        gp_status status = gp_lowering_save(lowering, 0, GP_I32, &shape, err);

        if (status != GP_OK)
            return status;
        op.out[1] = lowering->saved[0];
    }
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status globalmaxpool_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = globalmaxpool_op(lowering, GP_OP_POOL_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.in[1] = lowering->saved[0];
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
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
    .infer = globalmaxpool_infer,
    .forward = globalmaxpool_forward,
    .backward = globalmaxpool_backward,
};
