/* wiring.h -- how the operands of most kinds' ops are wired, so that a kind says only what is its own.
 *
 * op is given with its code and numbers; its values are filled in here and it is emitted.  A backward wiring emits nothing
 * for a gradient that nobody needs. */
#ifndef GP_WIRING_H
#define GP_WIRING_H

#include "common/model/graph/graph.h"

/* The output is shaped as the input. */
gp_status gp_wire_infer_same(gp_infer *infer, gp_error *err);

gp_status gp_wire_forward(gp_lowering *lowering, gp_op op, gp_error *err);         /* x -> y */
gp_status gp_wire_backward(gp_lowering *lowering, gp_op op, gp_error *err);        /* dy -> dx */
gp_status gp_wire_backward_input(gp_lowering *lowering, gp_op op, gp_error *err);  /* x, dy -> dx */
gp_status gp_wire_backward_output(gp_lowering *lowering, gp_op op, gp_error *err); /* y, dy -> dx */

/* Kinds with a weight and perhaps a bias. */
void gp_wire_infer_weights(gp_infer *infer, const gp_parameter_need *weight, int64_t outputs, bool bias);
gp_status gp_wire_weighted_forward(gp_lowering *lowering, gp_op op, gp_error *err); /* x, weight, bias -> y */
/* of_weights: x, dy -> their gradients; of_data: dy, weight -> dx. */
gp_status gp_wire_weighted_backward(gp_lowering *lowering, gp_op of_weights, gp_op of_data, gp_error *err);

#endif
