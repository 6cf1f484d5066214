/* activation.h -- what the kinds that are one function of each number have in common: an op either way. */
#ifndef GP_ACTIVATION_H
#define GP_ACTIVATION_H

#include "common/model/wiring.h"

/* The op of that function with factor[0] and factor[1] as op.h says.  Backward reads what forward gave. */
gp_status gp_activation_forward(gp_lowering *lowering, gp_activation function, double first, double second,
                                gp_error *err);
gp_status gp_activation_backward(gp_lowering *lowering, gp_activation function, double first, double second,
                                 gp_error *err);

#endif
