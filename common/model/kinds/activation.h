/* activation.h -- lowering of the kinds that apply one function to each number: one op per direction. */
#ifndef GP_ACTIVATION_H
#define GP_ACTIVATION_H

#include "common/model/kinds/wiring.h"

/* Emit the op of a function with factor[0] and factor[1] as op.h defines them. */
gp_status gp_activation_forward(gp_lowering *lowering, gp_activation function, double first, double second,
                                gp_error *err);
gp_status gp_activation_backward(gp_lowering *lowering, gp_activation function, double first, double second,
                                 gp_error *err);

#endif
