/* add.c -- elementwise sum of layers with equal shapes, such as the branches in a residual
 * network. */
#include <stddef.h>

#include "common/model/graph/graph.h"
#include "common/model/graph/lower.h"

static gp_status add_infer(gp_infer *infer, gp_error *err)
{
    char first[64], other[64];

    for (uint32_t i = 1; i < infer->input_count; i++)
        if (!gp_shape_equal(&infer->inputs[0], &infer->inputs[i]))
            return gp_fail(err, GP_EINVAL, "its inputs have the shapes %s and %s, but must have equal shapes",
                           gp_shape_format(&infer->inputs[0], first, sizeof(first)),
                           gp_shape_format(&infer->inputs[i], other, sizeof(other)));
    return GP_OK;
}

/* Compute ((x1 + x2) + x3) + ... The op adds two inputs, so further inputs use intermediate
 * values. */
static gp_status add_forward(gp_lowering *lowering, gp_error *err)
{
    uint32_t sum = lowering->x[0];

    for (uint32_t i = 1; i < lowering->input_count; i++) {
        gp_op op = gp_op_init(GP_OP_ADD);

        op.in[0] = sum;
        op.in[1] = lowering->x[i];
        op.out[0] = lowering->y;
        if (i + 1 < lowering->input_count) {
            const gp_value *y = &lowering->graph->values[lowering->y];
            gp_status status = gp_graph_add_value(lowering->graph, GP_VALUE_ACTIVATION, y->dtype, &y->shape,
                                                  lowering->layer, &op.out[0], err);

            if (status != GP_OK)
                return status;
        }
        gp_status status = gp_lowering_emit(lowering, &op, err);

        if (status != GP_OK)
            return status;
        sum = op.out[0];
    }
    return GP_OK;
}

static gp_status add_backward(gp_lowering *lowering, gp_error *err)
{
    for (uint32_t i = 0; i < lowering->input_count; i++) {
        gp_op op = gp_op_init(GP_OP_RESHAPE);

        if (lowering->dx[i] == GP_NO_VALUE)
            continue;
        op.in[0] = lowering->dy;
        op.out[0] = lowering->dx[i];
        gp_status status = gp_lowering_emit(lowering, &op, err);

        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

static const gp_kind_check add_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 2, false },
    { { 1, { 3 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_add = {
    .name = "add",
    .onnx = "Add",
    .help = "elementwise sum of the inputs",
    .extra_inputs = GP_LAYER_INPUTS_MAX - 1,
    .settings_table = gp_no_params,
    .checks = add_checks,
    .infer = add_infer,
    .forward = add_forward,
    .backward = add_backward,
};
