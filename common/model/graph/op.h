/* op.h -- the primitive ops that kinds lower to and backends run.
 *
 * An op reads and writes values of one graph; N, the number of samples, is implicit: activations have
 * their shape per sample.  Gradients are of the SUM of the losses of all samples, never of a mean.
 * Every op here has a plain-loop oracle in tests/ref/ops.c of the same name. */
#ifndef GP_OP_H
#define GP_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/tensor.h"

#define GP_NO_VALUE UINT32_MAX

typedef enum gp_phase { GP_PHASE_TRAIN, GP_PHASE_INFER, GP_PHASE_COUNT } gp_phase;

typedef enum gp_opcode {
#define GP_OP(code, name) code,
#include "common/model/graph/ops.def"
#undef GP_OP
    GP_OP_COUNT
} gp_opcode;

/* Two-dimensional windows: convolution and pooling.  Order is height, width; padding is top, left,
 * bottom, right, in pixels. */
typedef struct gp_window {
    int32_t kernel[2], stride[2], dilation[2], padding[4];
    int32_t groups; /* convolution only; 1 for pooling */
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

/* Whether the derivative is computed from the input; that of all other functions is from the output. */
static inline bool gp_activation_reads_input(gp_activation function)
{
    return function >= GP_ACTIVATION_HARD_SWISH;
}

/* How positions of the output of a resize map to its input, along an axis of n inputs and m outputs. */
typedef enum gp_resize_mode {
    GP_RESIZE_NEAREST,             /* input floor(o * n / m) */
    GP_RESIZE_BILINEAR,            /* about (o + 1/2) * n / m - 1/2: pixels are squares */
    GP_RESIZE_BILINEAR_CORNERS,    /* about o * (n - 1) / (m - 1): corners fall on corners */
    GP_RESIZE_BILINEAR_ASYMMETRIC, /* about o * n / m */
} gp_resize_mode;

/* Where a loss finds its part of what the samples of a batch are packed with, and how it counts.  A network of one loss
 * has first = 0 and factor = weight = 1. */
typedef struct gp_op_loss {
    uint32_t target_first, target_stride; /* words of 4 bytes: of its target in a sample's, of a sample */
    uint32_t score_first, score_stride;   /* float32: the same in what is written to gp_plan_memory.scores */
    bool scores_as_is;                    /* weighted_xent: scores are the op's input, not its softmax */
    double factor;                        /* of its loss and gradient */
    double weight;                        /* of its weights in the total weight */
} gp_op_loss;

enum { GP_OP_VALUES_MAX = 8, GP_DICE_CLASSES_MAX = 1024 };

typedef struct gp_op {
    gp_opcode code;
    uint32_t layer;
    uint32_t in[GP_OP_VALUES_MAX], out[GP_OP_VALUES_MAX]; /* as ops.def says; GP_NO_VALUE where absent */
    gp_window window;
    gp_pool_kind pool;
    gp_activation function;          /* activation only */
    double rate;                     /* dropout: share zeroed */
    double factor[4];                /* as ops.def says */
    int32_t number[4];               /* as ops.def says */
    const double *weights;           /* of classes; NULL: all 1.  Owned by the graph */
    const struct gp_layer_kind *own; /* own ops only: the kind (layer_kind.h) and the layer's settings */
    const double *settings;
    gp_op_loss loss; /* of losses only */
} gp_op;

/* An op of that code with no values yet: every in and out is GP_NO_VALUE. */
gp_op gp_op_init(gp_opcode code);
const char *gp_op_name(gp_opcode code);

#endif
