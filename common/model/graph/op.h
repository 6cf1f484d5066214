/* Primitive operations: layer kinds are lowered to them, and backends execute them.
 *
 * An operation reads and writes values of one graph. N, the number of samples, is implicit:
 * activations have their shape per sample. Gradients always belong to the loss SUM over all
 * samples, never to a mean. For each operation, tests/ref/ops.c has a reference implementation with
 * plain loops and the same name. */
#ifndef GP_OP_H
#define GP_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/tensor.h"

#define GP_NO_VALUE UINT32_MAX /* absent value */

/* Execution modes. Each has a separate operation list. */
typedef enum gp_phase { GP_PHASE_TRAIN, GP_PHASE_INFER, GP_PHASE_COUNT } gp_phase;

/* Operations, specified in ops.def. */
typedef enum gp_opcode {
#define GP_OP(code, name) code,
#include "common/model/graph/ops.def"
#undef GP_OP
    GP_OP_COUNT
} gp_opcode;

/* Two-dimensional window for convolution or pooling. The order is height, width; padding is top,
 * left, bottom, right, in pixels. */
typedef struct gp_window {
    int32_t kernel[2], stride[2], dilation[2], padding[4];
    int32_t groups; /* convolution; 1 for pooling */
} gp_window;

typedef enum gp_pool_kind { GP_POOL_MAX, GP_POOL_AVERAGE, GP_POOL_AVERAGE_COUNT_PADDING } gp_pool_kind;

typedef enum gp_activation {
    GP_ACTIVATION_LEAKY_RELU, /* x > 0 ? x : factor[0] * x */
    GP_ACTIVATION_CLIP,       /* min(max(x, factor[0]), factor[1]) */
    GP_ACTIVATION_SIGMOID,    /* 1 / (1 + exp(-x)) */
    GP_ACTIVATION_TANH,
    GP_ACTIVATION_SCALE,        /* factor[0] * x */
    GP_ACTIVATION_HARD_SIGMOID, /* min(max(factor[0] * x + factor[1], 0), 1) */
    GP_ACTIVATION_HARD_SWISH,   /* x * min(max(x / 6 + 1/2, 0), 1) */
    GP_ACTIVATION_GELU,         /* x * (1 + erf(x / sqrt(2))) / 2 */
    GP_ACTIVATION_GELU_TANH,    /* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2 */
} gp_activation;

/* Return whether the derivative is computed from the input. For all other functions it is computed
 * from the output. */
static inline bool gp_activation_reads_input(gp_activation function)
{
    return function >= GP_ACTIVATION_HARD_SWISH;
}

/* Mapping from output position o to input position, along an axis with n inputs and m outputs. */
typedef enum gp_resize_mode {
    GP_RESIZE_NEAREST,             /* input floor(o * n / m) */
    GP_RESIZE_BILINEAR,            /* around (o + 1/2) * n / m - 1/2: pixels are squares */
    GP_RESIZE_BILINEAR_CORNERS,    /* around o * (n - 1) / (m - 1): corners map to corners */
    GP_RESIZE_BILINEAR_ASYMMETRIC, /* around o * n / m */
} gp_resize_mode;

/* Locates a loss's target and scores in packed samples, and weights it among several losses. In a
 * network with one loss, first = 0 and factor = weight = 1. */
typedef struct gp_op_loss {
    /* 4-byte words: offset in a sample's targets, size of all targets */
    uint32_t target_first, target_stride;
    uint32_t score_first, score_stride; /* float32: same for gp_plan_memory.scores */
    /* weighted_xent: scores are the input instead of the softmax */
    bool scores_as_is;
    double factor; /* multiplies loss and gradient */
    double weight; /* multiplies this loss's weights in the total weight */
} gp_op_loss;

/* Limits: inputs or outputs per operation, Dice loss classes. */
enum { GP_OP_VALUES_MAX = 8, GP_DICE_CLASSES_MAX = 1024 };

/* An operation. */
typedef struct gp_op {
    gp_opcode code;
    uint32_t layer;                                       /* layer it was lowered from */
    uint32_t in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* as in ops.def; GP_NO_VALUE: absent */
    gp_window window;
    gp_pool_kind pool;
    gp_activation function;          /* activation only */
    double rate;                     /* dropout: fraction set to zero */
    double factor[4];                /* as in ops.def */
    int32_t number[4];               /* as in ops.def */
    const double *weights;           /* class weights, owned by the graph; NULL: all 1 */
    const struct gp_layer_kind *own; /* own ops: user-defined kind (layer_kind.h) */
    const double *settings;          /* own ops: the layer's settings */
    gp_op_loss loss;                 /* losses only */
} gp_op;

/* Return an operation without values: all inputs and outputs are GP_NO_VALUE. */
gp_op gp_op_init(gp_opcode code);

/* Return the name in ops.def; "unknown" for an invalid code. */
const char *gp_op_name(gp_opcode code);

#endif
