/* kind.h -- what a layer kind is: a table, how shapes follow, and how it lowers to primitive ops.
 *
 * A kind says what it is, never how it runs.  One file <kind>.c defines `const gp_kind gp_kind_<name>`,
 * one line GP_KIND(name) in kinds.def lists it; parsing, help, JSON, checks and tests come from there. */
#ifndef GP_KIND_H
#define GP_KIND_H

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/op.h"

enum {
    GP_LAYER_INPUTS_MAX = 8,
    GP_LAYER_PARAMETERS_MAX = 4,    /* learnable tensors of one layer */
    GP_LAYER_SAVED_MAX = 2,         /* values kept from forward to backward */
    GP_LAYER_SETTINGS_BYTES = 4096, /* the weights of 254 classes are the longest */
};

typedef enum gp_kind_flag {
    GP_KIND_LOSS = 1,            /* an end of the network: compares its input with a target (loss.h) */
    GP_KIND_COUPLES_SAMPLES = 2, /* batch norm: a rank's share must run as one call */
    GP_KIND_RESHAPES = 4,        /* inference returns the numbers of the input in the same order */
    GP_KIND_DISTRIBUTION = 8,    /* outputs are probabilities that add up to 1 over the channels */
    GP_KIND_PROBABILITIES = 16,  /* each output is a probability of its own */
} gp_kind_flag;

typedef enum gp_initializer { GP_INIT_WEIGHTS, GP_INIT_ZEROS, GP_INIT_ONES } gp_initializer;

/* Running statistics stand in the blob among the parameters but are not learned: where a parameter has its gradient,
 * they have the step's sums about the running mean (ops.def, batchnorm), and the commit moves them by `rate` towards
 * the moments of the whole step. */
typedef enum gp_statistic {
    GP_STATISTIC_NONE,     /* a parameter */
    GP_STATISTIC_MEAN,     /* the variance is the next parameter of the layer */
    GP_STATISTIC_VARIANCE, /* of the population: n / (n - 1) times the step's */
} gp_statistic;

typedef struct gp_parameter_need {
    const char *role; /* the second half of the tensor's name; factors called weight-... are those of "weight"
                       * and "scale", factors called bias-... of all others */
    gp_shape shape;   /* logical: OIHW for a convolution, [outputs, inputs] for a fully connected layer */
    int64_t fan_in, fan_out;
    gp_initializer initializer;
    gp_statistic statistic;
    double rate;        /* of a statistic */
    int64_t per_sample; /* of a statistic: numbers that one sample adds to each sum */
} gp_parameter_need;

/* What infer is given and what it fills.  Shapes are those of one sample: [C, H, W] or [F]. */
typedef struct gp_infer {
    const struct gp_kind *kind;
    uint32_t input_count;
    gp_shape inputs[GP_LAYER_INPUTS_MAX];
    const void *settings; /* the kind's settings struct */
    gp_shape output;      /* out; a loss: the shape of its scores */
    uint32_t parameter_count;
    gp_parameter_need parameters[GP_LAYER_PARAMETERS_MAX];
    /* A loss: */
    gp_target target;      /* what it compares one sample's scores with */
    const char *target_of; /* the loss whose target that is; NULL or "": its own */
    double weight;         /* of a sample of which nothing is ignored, when all weights of classes are 1 */
} gp_infer;

/* What lower is given.  Values are indices into the graph's table; GP_NO_VALUE where there is none. */
typedef struct gp_lowering {
    struct gp_graph *graph; /* graph.h */
    gp_phase phase;
    uint32_t layer;
    const void *settings;
    uint32_t input_count;
    uint32_t x[GP_LAYER_INPUTS_MAX]; /* inputs */
    uint32_t y;                      /* output, to be written forward */
    uint32_t parameters[GP_LAYER_PARAMETERS_MAX];
    uint32_t target, sums, scores, dlogits; /* loss kinds only; dlogits and scores may be GP_NO_VALUE */
    gp_op_loss loss;
    uint32_t saved[GP_LAYER_SAVED_MAX]; /* made forward by gp_lowering_save(), read backward */
    /* Backward only: */
    uint32_t dy;                                 /* gradient of the loss sum with respect to y, complete */
    uint32_t dx[GP_LAYER_INPUTS_MAX];            /* to be written; GP_NO_VALUE: nobody needs it */
    uint32_t gradients[GP_LAYER_PARAMETERS_MAX]; /* to be accumulated into */
} gp_lowering;

/* Append an op to the phase's list; in and out arrays are copied. */
gp_status gp_lowering_emit(gp_lowering *lowering, const gp_op *op, gp_error *err);

/* Make a value that lives from forward to backward, as saved[slot]. */
gp_status gp_lowering_save(gp_lowering *lowering, uint32_t slot, gp_dtype dtype, const gp_shape *shape,
                           gp_error *err);

/* The same for a value that the samples of a call have in common: no implicit N. */
gp_status gp_lowering_save_call(gp_lowering *lowering, uint32_t slot, const gp_shape *shape, gp_error *err);

/* One case that tests/common/model/test_kinds.c tries: settings as "key=value;key=value". */
typedef struct gp_kind_check {
    gp_shape input;
    const char *settings; /* NULL = defaults */
    uint32_t samples;
    bool no_differences; /* a kink (pooling ties) or a random mask: compare with the oracle only */
} gp_kind_check;

typedef struct gp_kind {
    const char *name; /* "conv2d": in JSON and on command lines */
    const char *onnx; /* ONNX operator */
    const char *help; /* one line */
    unsigned flags;   /* of gp_kind_flag */
    uint32_t inputs_min, inputs_max;
    const gp_param *settings_table; /* { 0 }-ended; may be empty */
    size_t settings_bytes;          /* <= GP_LAYER_SETTINGS_BYTES */
    const gp_kind_check *checks;    /* ended by .samples == 0 */
    gp_status (*infer)(gp_infer *infer, gp_error *err);
    gp_status (*forward)(gp_lowering *lowering, gp_error *err);
    gp_status (*backward)(gp_lowering *lowering, gp_error *err);
} gp_kind;

/* Also among those that were added (own.h).  NULL when there is none. */
const gp_kind *gp_kind_find(const char *name);
/* All kinds, NULL-terminated, in the order of kinds.def. */
extern const gp_kind *const gp_kinds[];

#endif
