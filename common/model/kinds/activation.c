#include "common/model/kinds/activation.h"

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
    return gp_wire_forward(lowering, activation_op(GP_OP_ACTIVATION, function, first, second), err);
}

gp_status gp_activation_backward(gp_lowering *lowering, gp_activation function, double first, double second,
                                 gp_error *err)
{
    gp_op op = activation_op(GP_OP_ACTIVATION_BACKWARD, function, first, second);

    return gp_activation_reads_input(function) ? gp_wire_backward_input(lowering, op, err)
                                               : gp_wire_backward_output(lowering, op, err);
}
