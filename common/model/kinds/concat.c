/* concat.c -- concatenation of layers along one axis, usually the channels. */
#include <inttypes.h>
#include <stddef.h>

#include "common/model/graph/graph.h"

typedef struct concat_settings {
    int64_t axis;
} concat_settings;

static const gp_param concat_params[] = {
    { "axis", NULL, GP_PARAM_I64, offsetof(concat_settings, axis), .max = 2, .torch_name = "dim",
      .help = "0: channels, 1: height, 2: width" },
    { 0 },
};

static gp_status concat_infer(gp_infer *infer, gp_error *err)
{
    const concat_settings *settings = infer->settings;
    gp_shape sum = infer->inputs[0];
    char first[64], other[64];

    if (settings->axis >= (int64_t)sum.rank)
        return gp_fail(err, GP_EINVAL, "its input of shape %s has no axis %" PRId64,
                       gp_shape_format(&sum, first, sizeof(first)), settings->axis);
    for (uint32_t i = 1; i < infer->input_count; i++) {
        gp_shape next = infer->inputs[i];

        next.dim[settings->axis] = infer->inputs[0].dim[settings->axis];
        if (!gp_shape_equal(&next, &infer->inputs[0]))
            return gp_fail(err, GP_EINVAL,
                           "its inputs have the shapes %s and %s, which differ in other axes than %" PRId64,
                           gp_shape_format(&infer->inputs[0], first, sizeof(first)),
                           gp_shape_format(&infer->inputs[i], other, sizeof(other)), settings->axis);
        sum.dim[settings->axis] += infer->inputs[i].dim[settings->axis];
    }
    infer->output = sum;
    return GP_OK;
}

static gp_status concat_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    op->number[0] = (int32_t)((const concat_settings *)lowering->settings)->axis;
    return GP_OK;
}

static gp_status concat_backward(gp_lowering *lowering, gp_error *err)
{
    const int64_t axis = ((const concat_settings *)lowering->settings)->axis;
    int32_t start = 0;

    for (uint32_t i = 0; i < lowering->input_count; i++) {
        gp_op op = gp_op_init(GP_OP_SLICE);
        gp_status status = GP_OK;

        op.in[0] = lowering->dy;
        op.out[0] = lowering->dx[i];
        op.number[axis] = start;
        start += (int32_t)lowering->graph->values[lowering->x[i]].shape.dim[axis];
        if (lowering->dx[i] != GP_NO_VALUE)
            status = gp_lowering_emit(lowering, &op, err);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

static const gp_kind_check concat_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 2, false },
    { { 3, { 2, 3, 4 } }, "axis=2", 2, false },
    { { 1, { 3 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_concat = {
    .name = "concat",
    .onnx = "Concat",
    .help = "concatenation of the inputs",
    .extra_inputs = GP_LAYER_INPUTS_MAX - 1,
    .settings_table = concat_params,
    .settings_bytes = sizeof(concat_settings),
    .checks = concat_checks,
    .infer = concat_infer,
    .op = GP_OP_CONCAT,
    .prepare = concat_prepare,
    .backward = concat_backward,
};
