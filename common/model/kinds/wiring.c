#include "common/model/kinds/wiring.h"

gp_status gp_wire_infer_same(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

gp_status gp_wire_forward(gp_lowering *lowering, gp_op op, gp_error *err)
{
    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

gp_status gp_wire_backward(gp_lowering *lowering, gp_op op, gp_error *err)
{
    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

/* Emit a backward op with two inputs: a value of the forward pass and dy. */
static gp_status wire_backward_of(gp_lowering *lowering, gp_op op, uint32_t value, gp_error *err)
{
    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = value;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

gp_status gp_wire_backward_input(gp_lowering *lowering, gp_op op, gp_error *err)
{
    return wire_backward_of(lowering, op, lowering->x[0], err);
}

gp_status gp_wire_backward_output(gp_lowering *lowering, gp_op op, gp_error *err)
{
    return wire_backward_of(lowering, op, lowering->y, err);
}

void gp_wire_infer_weights(gp_infer *infer, const gp_parameter_need *weight, int64_t outputs, bool bias)
{
    infer->parameters[0] = *weight;
    infer->parameters[0].role = "weight";
    infer->parameters[0].initializer = GP_INIT_WEIGHTS;
    infer->parameters[1] =
        (gp_parameter_need){ .role = "bias", .shape = gp_shape1(outputs), .initializer = GP_INIT_ZEROS };
    infer->parameter_count = bias ? 2 : 1;
}

gp_status gp_wire_weighted_forward(gp_lowering *lowering, gp_op op, gp_error *err)
{
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->parameters[0];
    op.in[2] = lowering->parameters[1];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

gp_status gp_wire_weighted_backward(gp_lowering *lowering, gp_op of_weights, gp_op of_data, gp_error *err)
{
    of_weights.in[0] = lowering->x[0];
    of_weights.in[1] = lowering->dy;
    of_weights.out[0] = lowering->gradients[0];
    of_weights.out[1] = lowering->gradients[1];
    gp_status status = gp_lowering_emit(lowering, &of_weights, err);

    if (status != GP_OK || lowering->dx[0] == GP_NO_VALUE)
        return status;
    of_data.in[0] = lowering->dy;
    of_data.in[1] = lowering->parameters[0];
    of_data.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &of_data, err);
}
