/* wiring.h -- standard operand wiring for the ops of layer kinds.
 *
 * The caller sets the op code and numbers; these functions set the values and emit the op. A
 * backward function emits no op for a gradient that is not needed. */
#ifndef GP_WIRING_H
#define GP_WIRING_H

#include "common/model/graph/graph.h"

/* Set the output shape to the input shape. */
gp_status gp_wire_infer_same(gp_infer *infer, gp_error *err);

gp_status gp_wire_forward(gp_lowering *lowering, gp_op op, gp_error *err);         /* x -> y */
gp_status gp_wire_backward(gp_lowering *lowering, gp_op op, gp_error *err);        /* dy -> dx */
gp_status gp_wire_backward_input(gp_lowering *lowering, gp_op op, gp_error *err);  /* x, dy -> dx */
gp_status gp_wire_backward_output(gp_lowering *lowering, gp_op op, gp_error *err); /* y, dy -> dx */

/* Wire a kind that has a weight and optionally a bias. */
void gp_wire_infer_weights(gp_infer *infer, const gp_parameter_need *weight, int64_t outputs, bool bias);

/* Emit the forward op: x, weight, bias -> y. */
gp_status gp_wire_weighted_forward(gp_lowering *lowering, gp_op op, gp_error *err);

/* Emit the backward ops. of_weights: x, dy -> weight and bias gradients; of_data: dy, weight ->
 * dx. */
gp_status gp_wire_weighted_backward(gp_lowering *lowering, gp_op of_weights, gp_op of_data, gp_error *err);

#endif
