#include "common/model/kinds/pooling.h"

#include "common/model/kinds/wiring.h"

gp_status gp_pooling_infer(gp_infer *infer, const gp_window_settings *settings, gp_window *window,
                           gp_error *err)
{
    int64_t out[2];
    gp_status status = gp_window_resolve(window, out, settings, 1, &infer->inputs[0], err);

    if (status != GP_OK)
        return status;
    infer->output = gp_shape3(infer->inputs[0].dim[0], out[0], out[1]);
    return gp_window_check_padding(window, &infer->inputs[0], out, err);
}

static gp_status window_of_input(gp_window *window, const gp_shape *input, gp_error *err)
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

gp_status gp_pooling_global_infer(gp_infer *infer, gp_error *err)
{
    gp_window window;
    gp_status status = window_of_input(&window, &infer->inputs[0], err);

    infer->output = gp_shape3(infer->inputs[0].dim[0], 1, 1);
    return status;
}

static gp_op pooling_op(const gp_lowering *lowering, gp_opcode code, gp_pool_kind pool,
                        const gp_window_settings *settings)
{
    const gp_shape *input = &lowering->graph->values[lowering->x[0]].shape;
    gp_op op = gp_op_init(code);
    int64_t out[2];

    if (settings != NULL) /* cannot fail: infer succeeded with these settings */
        gp_window_resolve(&op.window, out, settings, 1, input, NULL);
    else
        window_of_input(&op.window, input, NULL);
    op.pool = pool;
    return op;
}

/* Emit a pooling op. Training saves the position of each maximum for the backward pass;
 * inference does not. */
gp_status gp_pooling_forward(gp_lowering *lowering, gp_pool_kind pool, const gp_window_settings *settings,
                             gp_error *err)
{
    gp_op op = pooling_op(lowering, GP_OP_POOL, pool, settings);

    if (pool == GP_POOL_MAX && lowering->phase == GP_PHASE_TRAIN) {
        const gp_shape shape = lowering->graph->values[lowering->y].shape;
        gp_status status = gp_lowering_save(lowering, 0, GP_I32, &shape, err);

        if (status != GP_OK)
            return status;
        op.out[1] = lowering->saved[0];
    }
    return gp_wire_forward(lowering, op, err);
}

gp_status gp_pooling_backward(gp_lowering *lowering, gp_pool_kind pool, const gp_window_settings *settings,
                              gp_error *err)
{
    gp_op op = pooling_op(lowering, GP_OP_POOL_BACKWARD, pool, settings);

    if (pool == GP_POOL_MAX)
        op.in[1] = lowering->saved[0];
    return gp_wire_backward(lowering, op, err);
}
