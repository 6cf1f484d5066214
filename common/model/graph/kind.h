/* Layer kind interface: settings, shape inference, and lowering to primitive operations.
 *
 * A kind describes a layer but never executes it. The file <kind>.c defines `const gp_kind
 * gp_kind_<name>`, and a line GP_KIND(name) in kinds.def lists it. Parsing, help, JSON, checks and
 * tests use this list. */
#ifndef GP_KIND_H
#define GP_KIND_H

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/op.h"

enum {
    GP_LAYER_INPUTS_MAX = 8,
    GP_LAYER_PARAMETERS_MAX = 4,    /* learnable tensors per layer */
    GP_LAYER_SAVED_MAX = 2,         /* values kept from forward to backward */
    GP_LAYER_SETTINGS_BYTES = 4096, /* the longest setting holds 254 class weights */
};

/* Kind properties, a bit mask. */
typedef enum gp_kind_flag {
    GP_KIND_LOSS = 1,            /* network end: compares its input with a target (loss.h) */
    GP_KIND_COUPLES_SAMPLES = 2, /* batch norm: a rank must process the whole slice in one call */
    GP_KIND_RESHAPES = 4,        /* inference returns the input's numbers in the same order */
    GP_KIND_DISTRIBUTION = 8,    /* outputs are probabilities that sum to 1 over the channels */
    GP_KIND_PROBABILITIES = 16,  /* each output is an independent probability */
} gp_kind_flag;

typedef enum gp_initializer { GP_INIT_WEIGHTS, GP_INIT_ZEROS, GP_INIT_ONES } gp_initializer;

/* Running statistics, stored in the blob between parameters but not learned. In place of a gradient
 * they have the step's sums about the running mean (ops.def, batchnorm). A step's commit moves them
 * by `rate` toward the whole step's moments. */
typedef enum gp_statistic {
    GP_STATISTIC_NONE,     /* learned parameter */
    GP_STATISTIC_MEAN,     /* the layer's next parameter is the variance */
    GP_STATISTIC_VARIANCE, /* population variance: n / (n - 1) times the step's variance */
} gp_statistic;

/* A parameter tensor that a layer requires. */
typedef struct gp_parameter_need {
    /* Second part of the tensor name. Factors named weight-... apply to "weight" and "scale",
     * factors named bias-... to all other roles. */
    const char *role;
    /* logical: OIHW for convolution, [outputs, inputs] for fully connected layers */
    gp_shape shape;
    int64_t fan_in, fan_out;
    gp_initializer initializer;
    gp_statistic statistic;
    double rate;        /* statistic: see gp_statistic */
    int64_t per_sample; /* statistic: numbers that one sample adds to each sum */
} gp_parameter_need;

/* Input and output for infer(). Shapes are for one sample: [C, H, W] or [F]. */
typedef struct gp_infer {
    const struct gp_kind *kind;
    uint32_t input_count;
    gp_shape inputs[GP_LAYER_INPUTS_MAX];
    const void *settings; /* the kind's settings struct */
    gp_shape output;      /* result; loss: score shape */
    uint32_t parameter_count;
    gp_parameter_need parameters[GP_LAYER_PARAMETERS_MAX];
    /* Loss only: ground truth that one sample's scores are compared with. */
    gp_target target;
    const char *target_of; /* loss: earlier loss with the same target; NULL or "": own target */
    /* loss: a sample's weight without ignored parts, if all class weights are 1 */
    double weight;
} gp_infer;

/* Input for forward() and backward(). Values are indexes into the graph's value table; GP_NO_VALUE:
 * absent. */
typedef struct gp_lowering {
    struct gp_graph *graph; /* graph.h */
    const struct gp_kind *kind;
    gp_phase phase;
    uint32_t layer;
    const void *settings;
    uint32_t input_count;
    uint32_t x[GP_LAYER_INPUTS_MAX]; /* inputs */
    uint32_t y;                      /* output, written by forward */
    uint32_t parameters[GP_LAYER_PARAMETERS_MAX];
    uint32_t target, sums, scores, dlogits; /* loss only; dlogits and scores may be GP_NO_VALUE */
    gp_op_loss loss;
    /* created in forward by gp_lowering_save(), read in backward */
    uint32_t saved[GP_LAYER_SAVED_MAX];
    /* Backward only: complete gradient of the loss sum with respect to y. */
    uint32_t dy;
    /* backward: to be written; GP_NO_VALUE: not needed */
    uint32_t dx[GP_LAYER_INPUTS_MAX];
    uint32_t gradients[GP_LAYER_PARAMETERS_MAX]; /* backward: to be accumulated into */
} gp_lowering;

/* Append an operation to the current phase's list. *op is copied. Operations that only compute
 * frozen parameters' gradients are omitted. */
gp_status gp_lowering_emit(gp_lowering *lowering, const gp_op *op, gp_error *err);

/* Create a value that is kept from forward to backward, as saved[slot].
 *   shared  all samples in a call share the value; else the shape is per sample */
gp_status gp_lowering_save(gp_lowering *lowering, uint32_t slot, bool shared, gp_dtype dtype,
                           const gp_shape *shape, gp_error *err);

/* A test case for tests/common/model/test_kinds.c. */
typedef struct gp_kind_check {
    gp_shape input;
    const char *settings; /* "key=value;key=value"; NULL: defaults */
    uint32_t samples;     /* 0 ends a list */
    bool no_differences;  /* kink (pooling ties) or random mask: only compare with the oracle */
} gp_kind_check;

/* Value of the forward pass that op_backward reads before dy. For activations, see
 * gp_activation_reads_input(). */
typedef enum gp_backward_reads { GP_READS_NOTHING, GP_READS_INPUT, GP_READS_OUTPUT } gp_backward_reads;

/* A layer kind. */
typedef struct gp_kind {
    const char *name;               /* "conv2d", in JSON and on command lines */
    const char *onnx;               /* ONNX operator */
    const char *help;               /* one line */
    unsigned flags;                 /* gp_kind_flag */
    uint32_t extra_inputs;          /* limit for inputs beyond the first; not 0: at least one */
    const gp_param *settings_table; /* terminated by { 0 }; may be gp_no_params */
    size_t settings_bytes;          /* <= GP_LAYER_SETTINGS_BYTES */
    const gp_kind_check *checks;    /* terminated by .samples == 0 */
    /* Determine output shape and parameters. The output is preset to the first input; NULL: it
     * remains so, and there are no parameters. */
    gp_status (*infer)(gp_infer *infer, gp_error *err);

    /* Operations of most kinds. op: inputs, parameters -> y. op_backward: dy, weight (if any) ->
     * dx, and parameter gradients if op_weights is 0. op_weights: x, dy -> parameter gradients. */
    gp_opcode op, op_backward, op_weights;
    gp_backward_reads backward_reads;
    gp_activation function; /* of the operations */
    gp_pool_kind pool;
    uint32_t factors; /* number of doubles in op.factor, which come first in the settings */
    /* Set the operation's other numbers from the settings, and its further values; NULL: none.
     * lowering->dy is GP_NO_VALUE in the forward pass. */
    gp_status (*prepare)(gp_lowering *lowering, gp_op *op, gp_error *err);

    /* Emit other operations; NULL: op, or op_backward and op_weights. Losses have no backward(). */
    gp_status (*forward)(gp_lowering *lowering, gp_error *err);
    gp_status (*backward)(gp_lowering *lowering, gp_error *err);
} gp_kind;

/* Table of a kind without settings. */
extern const gp_param gp_no_params[];

/* Call infer->kind->infer() as described there. */
gp_status gp_kind_infer(gp_infer *infer, gp_error *err);

/* Return the kind with a name, including user-defined kinds (custom.h). NULL: not found. */
const gp_kind *gp_kind_find(const char *name);

/* All built-in kinds, NULL-terminated, in kinds.def order. */
extern const gp_kind *const gp_kinds[];

#endif
