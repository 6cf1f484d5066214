/* groupnorm.h -- lowering of group normalization. layernorm.c uses it with one group per sample
 * or per pixel. */
#ifndef GP_GROUPNORM_H
#define GP_GROUPNORM_H

#include "common/model/graph/graph.h"

/* Set the output shape to the input shape, and request a scale and an offset per channel. */
void gp_groupnorm_infer(gp_infer *infer);

/* special number of groups: all channels of one pixel form a group */
enum { GP_GROUPNORM_PIXELS = 0 };

/* Emit the op. The forward pass saves 2 x groups moments; the backward pass needs 2 x channels
 * sums as scratch memory. */
gp_status gp_groupnorm_forward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);
gp_status gp_groupnorm_backward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);

#endif
