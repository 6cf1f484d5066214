#include "common/model/kinds/wiring.h"

const gp_kind_check gp_elementwise_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

gp_status gp_wire_check_image(const gp_shape *input, gp_error *err)
{
    char shape[64];

    return input->rank == 3
               ? GP_OK
               : gp_fail(err, GP_EINVAL, "its input has shape %s, but must be channels x height x width",
                         gp_shape_format(input, shape, sizeof(shape)));
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
