/* wiring.h -- parts that layer kinds share. */
#ifndef GP_WIRING_H
#define GP_WIRING_H

#include "common/model/graph/graph.h"

/* Test cases of elementwise functions without settings. */
extern const gp_kind_check gp_elementwise_checks[];

/* Check that an input is [C, H, W]. GP_EINVAL: it is not. */
gp_status gp_wire_check_image(const gp_shape *input, gp_error *err);

/* Request the parameters of a kind that has a weight and optionally a bias. */
void gp_wire_infer_weights(gp_infer *infer, const gp_parameter_need *weight, int64_t outputs, bool bias);

#endif
