/* factors.h -- the gradient of a fully connected layer's weights as what it is the product of.
 *
 * dW = dY^T X: of a mini-batch of 32 samples and a layer of 9216 inputs and 4096 outputs X and dY are 1.7 MB, dW is 151.
 * Ranks of one host write their samples' rows of both where all can read them, and each makes the part of the sum that it
 * updates, a tile at a time, as it needs it: no gradient is ever written to memory, and none is exchanged (sufficient
 * factors: Xie et al. 2015, "Distributed machine learning via sufficient factor broadcasting").
 *
 *     run():   gp_segment_factors writes rows [position, position + count) of x and dy, and the bias' gradient
 *     commit:  gp_factor_product(), rows x columns of dW over all samples of the step
 *
 * Every number of dW is the sum over samples in the order of the mini-batch, whoever computed them. */
#ifndef GP_CPU_FACTORS_H
#define GP_CPU_FACTORS_H

#include "worker/backend/cpu/base/segment.h"

/* Rows of dW that are made together; columns of a panel. */
enum { GP_FACTOR_ROWS = 6, GP_FACTOR_COLUMNS = 64 };

typedef struct gp_factor {
    uint32_t parameter;     /* the weights, [outputs, inputs] */
    size_t outputs, inputs; /* of one sample */
    size_t samples;         /* of a mini-batch, at most */
    float *x;               /* [panels of columns][samples][GP_FACTOR_COLUMNS], the last one's rest zero */
    float *dy;              /* [blocks of rows][samples][GP_FACTOR_ROWS], likewise */
} gp_factor;

/* Of x and dy together. */
size_t gp_factor_bytes(const gp_factor *factor);
/* They lie there: 64-byte aligned, zero. */
void gp_factor_place(gp_factor *factor, void *memory);

/* Rows of a call: x [count, inputs] and dy [count, outputs], dense, become rows [position, position + count). */
void gp_factor_write(const gp_factor *factor, const gp_batch *batch, const float *x, const float *dy,
                     uint32_t threads);

/* gp_factor_product -- a tile of dW over samples [0, samples): a block of rows, a panel of columns.
 *   first   its first column, a multiple of GP_FACTOR_COLUMNS
 *   out     [GP_FACTOR_ROWS][stride], GP_FACTOR_COLUMNS of each overwritten; zeros where dW has no row or column */
void gp_factor_product(const gp_factor *factor, size_t samples, size_t block, size_t first, float *out,
                       size_t stride);

/* Whether that op makes the gradient of a factor's parameter; NULL: it does not. */
const gp_factor *gp_factor_of(const gp_plan_memory *memory, const gp_graph *graph, const gp_op *op);

/* Of ops that gp_factor_of() knows. */
extern const gp_segment_ops gp_segment_factors;

#endif
