/* groupnorm.h -- group normalisation; of one group it is layer normalisation (layernorm.c). */
#ifndef GP_GROUPNORM_H
#define GP_GROUPNORM_H

#include "common/model/graph.h"

/* Shaped as its input, with scale and offset per channel. */
void gp_groupnorm_infer(gp_infer *infer);

/* Forward saves 2 x groups moments, backward works in 2 x channels sums. */
gp_status gp_groupnorm_forward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);
gp_status gp_groupnorm_backward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);

#endif
