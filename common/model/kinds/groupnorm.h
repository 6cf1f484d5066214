/* groupnorm.h -- lowering of group normalization. layernorm.c uses it with one group per sample
 * or per pixel. */
#ifndef GP_GROUPNORM_H
#define GP_GROUPNORM_H

#include "common/model/graph/graph.h"

/* Request a scale and an offset per channel. */
gp_status gp_groupnorm_infer(gp_infer *infer, gp_error *err);

/* special number of groups: all channels of one pixel form a group */
enum { GP_GROUPNORM_PIXELS = 0 };

/* Set the numbers of an op. The forward pass saves 2 x groups moments; the backward pass needs 2 x
 * channels sums as scratch memory. */
gp_status gp_groupnorm_prepare(gp_lowering *lowering, gp_op *op, int64_t groups, gp_error *err);

#endif
