/* Ops as plain loops that the compiler vectorises, for ops that neither oneDNN nor the lanes
 * kernels support.
 *
 * A loop accepts activations in dense order [N][C][H][W] or in packed order [N][H][W][C]; all
 * activations of a call have the same order (a vector is both). A loop runs either as a step in a
 * oneDNN segment (onednn_ops.c) or as a separate segment (loops.c), and uses only memory that the
 * caller provides.
 *
 * Threads divide the work by channel, sample or element. One thread computes each sum in a fixed
 * order, so equal calls give bitwise identical results with any thread count. */
#ifndef GP_CPU_LOOPS_H
#define GP_CPU_LOOPS_H

#include "worker/backend/cpu/base/segment.h"
#include "worker/backend/cpu/base/threads.h"

/* An op input or output. */
typedef struct gp_loop_operand {
    /* NULL: absent. Parameters, their gradients and GP_VALUE_CALL values have no sample
     * dimension. */
    float *data;
    gp_shape shape;
} gp_loop_operand;

/* Arguments of a loop. */
typedef struct gp_loop_call {
    const gp_op *op;
    const gp_batch *batch;
    const gp_plan_memory *memory; /* sums and scores, for losses */
    /* activation capacity in samples; the first batch->count samples are present */
    uint32_t rows;
    uint32_t threads;
    /* packed order, not dense order */
    bool packed;
    /* activations are bfloat16, and `data` points to bfloat16 values; only for loops with
     * gp_loop.narrow */
    bool narrow;
    gp_loop_operand in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* operands as listed in ops.def */
} gp_loop_call;

/* Loop that implements an op. */
typedef struct gp_loop {
    /* Compute one thread's slice of the call that `context` points to. NULL: `run` computes the
     * whole call. */
    gp_share_fn share;
    /* Compute the whole call. NULL: `share` is called on several threads. */
    gp_status (*run)(const gp_loop_call *call, gp_error *err);
    bool in_place; /* out[0] may be the first input's memory */
    bool dense;    /* supports dense activations only */
    bool narrow;   /* supports bfloat16 activations */
    bool alone;    /* always a separate segment */
} gp_loop;

/* Return the loop for an op. NULL: the op has none. */
const gp_loop *gp_loop_find(gp_opcode code);

/* Execute a call. Parameter gradients are overwritten if batch->first is set, otherwise added to.
 * Rows beyond batch->count contain finite numbers before and after; in activation gradients they
 * contain zeros. */
gp_status gp_loop_compute(const gp_loop *loop, const gp_loop_call *call, gp_error *err);

/* Add a bias to each channel: y += bias. Reads only rows, threads, packed and batch of the call, as
 * does gp_loop_bias_gradient(). */
void gp_loop_bias_add(const gp_loop_call *call, const gp_loop_operand *y, const float *bias);

/* Sum dy over samples and pixels into the bias gradient, which is overwritten or added to as in
 * gp_loop_compute(). */
void gp_loop_bias_gradient(const gp_loop_call *call, const gp_loop_operand *dy, float *gradient);

/* Segment that executes one op as a loop on dense activations. */
extern const gp_segment_ops gp_segment_loops;

#endif
