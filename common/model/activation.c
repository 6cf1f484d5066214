#include "common/model/activation.h"

gp_status gp_activation_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_op activation_op(gp_opcode code, gp_activation function, double first, double second)
{
    gp_op op = gp_op_init(code);

    op.function = function;
    op.factor[0] = first;
    op.factor[1] = second;
    return op;
}

gp_status gp_activation_forward(gp_lowering *lowering, gp_activation function, double first, double second,
                                gp_error *err)
{
    gp_op op = activation_op(GP_OP_ACTIVATION, function, first, second);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

gp_status gp_activation_backward(gp_lowering *lowering, gp_activation function, double first, double second,
                                 gp_error *err)
{
    gp_op op = activation_op(GP_OP_ACTIVATION_BACKWARD, function, first, second);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}
