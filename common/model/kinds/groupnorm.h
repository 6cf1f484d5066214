/* groupnorm.h -- lowering of group normalisation; layer normalisation (layernorm.c) has one group, or one per pixel. */
#ifndef GP_GROUPNORM_H
#define GP_GROUPNORM_H

#include "common/model/graph/graph.h"

/* Shaped as its input, with scale and offset per channel. */
void gp_groupnorm_infer(gp_infer *infer);

enum { GP_GROUPNORM_PIXELS = 0 }; /* in place of a number of groups: all channels of each pixel are a group */

/* Emit the op. Forward saves 2 x groups moments; backward needs 2 x channels sums as scratch memory. */
gp_status gp_groupnorm_forward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);
gp_status gp_groupnorm_backward(gp_lowering *lowering, int64_t groups, double epsilon, gp_error *err);

#endif
