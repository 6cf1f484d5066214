/* ops.h -- what every primitive op means: plain loops in float64, one function per line of ops.def.
 *
 * Nothing here is fast or shares code with a backend; each loop is written from the definition in ops.def.
 * All data is float64, whatever the value's dtype is: float64 holds the int32 of labels and pooling indices
 * exactly.  Outputs marked "+=" in ops.def are added to, so the caller clears them before the first call. */
#ifndef GP_REF_OPS_H
#define GP_REF_OPS_H

#include "common/model/graph/op.h"

/* A value of an op: activations are [samples][elements of shape], parameters just the tensor. */
typedef struct gp_ref_tensor {
    gp_shape shape; /* as in the graph: per sample, but for parameters */
    double *data;   /* NULL: absent */
} gp_ref_tensor;

typedef struct gp_ref_call {
    const gp_op *op;
    int64_t samples;
    gp_ref_tensor in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* as ops.def says */
    uint64_t seed;                                             /* of dropout, like the next two */
    uint32_t step, position;                                   /* position of the first sample */
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

/* The function of an opcode; asserts that there is one. */
typedef void (*gp_ref_op)(const gp_ref_call *call);
gp_ref_op gp_ref_op_find(gp_opcode code);

#endif
