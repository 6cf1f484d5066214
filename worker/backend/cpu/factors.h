/* Gradients of fully connected layers, stored as two factor matrices rather than their product.
 *
 * The weight gradient is dW = dY^T X. For 32 samples and a layer with 9216 inputs and 4096 outputs,
 * X and dY take 1.7 MB, while dW takes 151 MB. Each rank writes its own X and dY rows to memory
 * that all ranks on the host share. Each rank then computes the dW part that it updates, tile by
 * tile. No gradient is ever written to memory or exchanged. This method is sufficient factor
 * broadcasting (Xie et al. 2015, "Distributed machine learning via sufficient factor
 * broadcasting").
 *
 *     run():   gp_segment_factors writes rows [position, position + count) of X and dY, and the
 *              bias gradient
 *     commit:  gp_factor_product() computes rows x columns of dW over all samples of the step
 *
 * Each element of dW is a sum over the samples in mini-batch order, independent of the rank that
 * computed a sample. */
#ifndef GP_CPU_FACTORS_H
#define GP_CPU_FACTORS_H

#include "worker/backend/cpu/base/segment.h"

/* Tile size: dW rows computed together, and columns per panel. */
enum { GP_FACTOR_ROWS = 6, GP_FACTOR_COLUMNS = 64 };

/* Factor matrices of one weight gradient, in memory shared by all ranks of a host. */
typedef struct gp_factor {
    uint32_t parameter;     /* weight parameter index, [outputs, inputs] */
    size_t outputs, inputs; /* layer size */
    size_t samples;         /* maximum sample count in a mini-batch */
    float *x;  /* X, [column panels][samples][GP_FACTOR_COLUMNS]; the last panel is zero-padded */
    float *dy; /* dY, [row blocks][samples][GP_FACTOR_ROWS]; the last block is zero-padded */
} gp_factor;

/* Return the memory size of both matrices in bytes. */
size_t gp_factor_bytes(const gp_factor *factor);

/* Place both matrices in `memory`, which is zero and aligned to 64 bytes. */
void gp_factor_place(gp_factor *factor, void *memory);

/* Write the rows of one call.
 *   batch  the call; the rows are [position, position + count)
 *   x      [count, inputs], dense
 *   dy     [count, outputs], dense */
void gp_factor_write(const gp_factor *factor, const gp_batch *batch, const float *x, const float *dy,
                     uint32_t threads);

/* Compute one dW tile over samples [0, samples).
 *   block   row block of the tile
 *   first   first column, a multiple of GP_FACTOR_COLUMNS
 *   out     [GP_FACTOR_ROWS][stride]; the first GP_FACTOR_COLUMNS elements of each row are
 *           overwritten, with zeros beyond the rows and columns of dW */
void gp_factor_product(const gp_factor *factor, size_t samples, size_t block, size_t first, float *out,
                       size_t stride);

/* Return the factor whose gradient this op computes. NULL: none. */
const gp_factor *gp_factor_of(const gp_plan_memory *memory, const gp_graph *graph, const gp_op *op);

/* Segment that executes the ops known to gp_factor_of(). */
extern const gp_segment_ops gp_segment_factors;

#endif
