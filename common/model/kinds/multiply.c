/* multiply.c -- elementwise product of two layers. The second may have one number per channel,
 * as in squeeze-and-excitation. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/graph/graph.h"

static gp_status multiply_infer(gp_infer *infer, gp_error *err)
{
    const gp_shape *a = &infer->inputs[0], *b = &infer->inputs[1];
    bool channels =
        a->rank == 3 && b->rank == 3 && a->dim[0] == b->dim[0] && b->dim[1] == 1 && b->dim[2] == 1;
    char first[64], second[64];

    if (!gp_shape_equal(a, b) && !channels)
        return gp_fail(err, GP_EINVAL,
                       "its inputs have the shapes %s and %s; the second must have the shape of the first, "
                       "or channels x 1 x 1",
                       gp_shape_format(a, first, sizeof(first)), gp_shape_format(b, second, sizeof(second)));
    return GP_OK;
}

static gp_status multiply_backward(gp_lowering *lowering, gp_error *err)
{
    const gp_value *values = lowering->graph->values;
    bool same = gp_shape_equal(&values[lowering->x[0]].shape, &values[lowering->x[1]].shape);
    gp_status status = GP_OK;
    gp_op op = gp_op_init(GP_OP_MULTIPLY);

    op.in[0] = lowering->dy;
    op.in[1] = lowering->x[1];
    op.out[0] = lowering->dx[0];
    if (lowering->dx[0] != GP_NO_VALUE)
        status = gp_lowering_emit(lowering, &op, err);
    op = gp_op_init(same ? GP_OP_MULTIPLY : GP_OP_MULTIPLY_SUM);
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[1];
    if (lowering->dx[1] != GP_NO_VALUE && status == GP_OK)
        status = gp_lowering_emit(lowering, &op, err);
    return status;
}

static const gp_kind_check multiply_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 2, false },
    { { 1, { 3 } }, NULL, 1, false },
    { { 3, { 19, 1, 1 } }, NULL, 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_multiply = {
    .name = "multiply",
    .onnx = "Mul",
    .help = "elementwise product of the inputs; the second may be [channels, 1, 1]",
    .extra_inputs = 1,
    .settings_table = gp_no_params,
    .checks = multiply_checks,
    .infer = multiply_infer,
    .op = GP_OP_MULTIPLY,
    .backward = multiply_backward,
};
