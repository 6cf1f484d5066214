/* activation.h -- lowering of elementwise activation functions: one op per direction. */
#ifndef GP_ACTIVATION_H
#define GP_ACTIVATION_H

#include "common/model/kinds/wiring.h"

/* Emit the forward or backward op for a function. first, second: factor[0] and factor[1] as
 * defined in op.h. */
gp_status gp_activation_forward(gp_lowering *lowering, gp_activation function, double first, double second,
                                gp_error *err);
gp_status gp_activation_backward(gp_lowering *lowering, gp_activation function, double first, double second,
                                 gp_error *err);

#endif
