/* ops.h: the meaning of every primitive op: plain loops in float64, one function per line in
 * ops.def.
 *
 * The code is slow and shares nothing with a backend: each loop follows the definition in ops.def.
 * All data is float64, even for other dtypes: float64 represents int32 labels and pooling indices
 * exactly. Outputs marked "+=" in ops.def are accumulated, so the caller clears them before the
 * first call. */
#ifndef GP_REF_OPS_H
#define GP_REF_OPS_H

#include "common/model/graph/op.h"

/* An op value: activations are [samples][elements of shape], parameters only the tensor. */
typedef struct gp_ref_tensor {
    gp_shape shape; /* as in the graph: per sample, except for parameters */
    double *data;   /* NULL: absent */
} gp_ref_tensor;

typedef struct gp_ref_call {
    const gp_op *op;
    int64_t samples;
    gp_ref_tensor in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* as in ops.def */
    uint64_t seed;                                             /* dropout seed */

    /* dropout counters; position: first sample */
    uint32_t step, position;
} gp_ref_call;

void gp_ref_conv2d(const gp_ref_call *call);
void gp_ref_conv2d_backward_data(const gp_ref_call *call);
void gp_ref_conv2d_backward_weights(const gp_ref_call *call);
void gp_ref_fc(const gp_ref_call *call);
void gp_ref_fc_backward_data(const gp_ref_call *call);
void gp_ref_fc_backward_weights(const gp_ref_call *call);
void gp_ref_relu(const gp_ref_call *call);
void gp_ref_relu_backward(const gp_ref_call *call);
void gp_ref_pool(const gp_ref_call *call);
void gp_ref_pool_backward(const gp_ref_call *call);
void gp_ref_reshape(const gp_ref_call *call);
void gp_ref_dropout(const gp_ref_call *call);
void gp_ref_dropout_backward(const gp_ref_call *call);
void gp_ref_softmax_xent(const gp_ref_call *call);
void gp_ref_batchnorm(const gp_ref_call *call);
void gp_ref_batchnorm_backward(const gp_ref_call *call);
void gp_ref_batchnorm_infer(const gp_ref_call *call);
void gp_ref_groupnorm(const gp_ref_call *call);
void gp_ref_groupnorm_backward(const gp_ref_call *call);
void gp_ref_lrn(const gp_ref_call *call);
void gp_ref_lrn_backward(const gp_ref_call *call);
void gp_ref_transconv2d(const gp_ref_call *call);
void gp_ref_transconv2d_backward_data(const gp_ref_call *call);
void gp_ref_transconv2d_backward_weights(const gp_ref_call *call);
void gp_ref_resize(const gp_ref_call *call);
void gp_ref_resize_backward(const gp_ref_call *call);
void gp_ref_weighted_xent(const gp_ref_call *call);
void gp_ref_dice(const gp_ref_call *call);
void gp_ref_mse(const gp_ref_call *call);
void gp_ref_huber(const gp_ref_call *call);
void gp_ref_activation(const gp_ref_call *call);
void gp_ref_activation_backward(const gp_ref_call *call);
void gp_ref_multiply(const gp_ref_call *call);
void gp_ref_multiply_sum(const gp_ref_call *call);
void gp_ref_concat(const gp_ref_call *call);
void gp_ref_slice(const gp_ref_call *call);
void gp_ref_pad(const gp_ref_call *call);
void gp_ref_transpose(const gp_ref_call *call);
void gp_ref_softmax(const gp_ref_call *call);
void gp_ref_softmax_backward(const gp_ref_call *call);
void gp_ref_add(const gp_ref_call *call);

/* Return the function for an opcode; asserts that it exists. */
typedef void (*gp_ref_op)(const gp_ref_call *call);
gp_ref_op gp_ref_op_find(gp_opcode code);

#endif
