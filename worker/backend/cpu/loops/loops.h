/* loops.h -- ops as plain loops that the compiler vectorises: what neither oneDNN nor the lanes kernels have.
 *
 * A loop works on activations in either order of memory, dense [N][C][H][W] or packed [N][H][W][C], whichever its
 * caller has; all activations of a call are in the same one (a vector is both).  It runs as a step of a oneDNN segment
 * (onednn_ops.c) and as a segment by itself (loops.c), so it needs no memory but what it is given.
 *
 * Work is split over threads by channel, by sample or by element, such that every number is summed by one thread in
 * one order: equal calls give equal bits, whatever the number of threads. */
#ifndef GP_CPU_LOOPS_H
#define GP_CPU_LOOPS_H

#include "worker/backend/cpu/base/segment.h"
#include "worker/backend/cpu/base/threads.h"

typedef struct gp_loop_operand {
    float *data; /* NULL: absent.  Parameters, their gradients and values of a call have no samples */
    gp_shape shape;
} gp_loop_operand;

typedef struct gp_loop_call {
    const gp_op *op;
    const gp_batch *batch;
    const gp_plan_memory *memory; /* sums and scores, of losses */
    uint32_t rows;                /* samples that activations have room for; batch->count of them are there */
    uint32_t threads;
    bool packed;
    bool narrow; /* activations are bfloat16, and operands' data points at such; of loops that can */
    gp_loop_operand in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* as ops.def says */
} gp_loop_call;

typedef struct gp_loop {
    /* Compute one thread's slice of the call that `context` points to; NULL: `run` computes the whole call. */
    gp_share_fn share;
    gp_status (*run)(const gp_loop_call *call, gp_error *err);
    bool in_place; /* out[0] may be the memory of the first input */
    bool dense;    /* supports dense activations only */
    bool narrow;   /* supports bfloat16 activations */
    bool alone;    /* is always a segment of its own */
} gp_loop;

/* Return the loop of an op; NULL: the op has none. */
const gp_loop *gp_loop_find(gp_opcode code);

/* Compute a call. Gradients of parameters are overwritten when batch->first, else added to. Rows beyond batch->count
 * hold finite numbers on entry and on return, and zeros in gradients of activations. */
gp_status gp_loop_compute(const gp_loop *loop, const gp_loop_call *call, gp_error *err);

/* y += bias, channel by channel; gradient: the sum of dy over samples and pixels, as gp_loop_compute() treats gradients.  Only rows,
 * threads, packed and batch of the call are read. */
void gp_loop_bias_add(const gp_loop_call *call, const gp_loop_operand *y, const float *bias);
void gp_loop_bias_gradient(const gp_loop_call *call, const gp_loop_operand *dy, float *gradient);

/* One op a segment, everything dense. */
extern const gp_segment_ops gp_segment_loops;

#endif
