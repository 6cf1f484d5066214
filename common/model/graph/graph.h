/* graph.h -- a netspec resolved: shapes inferred, parameters placed, lowered to primitive ops.
 *
 * Parameters, their gradients (in the exchange arena) and the optimiser's state share one dense layout,
 * the blob: float32 tensors in logical order, without padding, the last layer's first (backward order), so
 * that gradients complete from the front.  ops[TRAIN] is forward, loss, backward; ops[INFER] is forward and
 * loss with scores. */
#ifndef GP_GRAPH_H
#define GP_GRAPH_H

#include "common/model/graph/netspec.h"
#include "common/model/graph/op.h"

typedef enum gp_value_role {
    GP_VALUE_INPUT, /* normalised network input, float32 */
    GP_VALUE_ACTIVATION,
    GP_VALUE_SAVED, /* kept from forward to backward by one layer (pool index) */
    GP_VALUE_CALL,  /* the same, one for all samples of a call (moments); no implicit N */
    GP_VALUE_ACTIVATION_GRADIENT,
    GP_VALUE_PARAMETER, /* shape is the tensor's; no implicit N */
    GP_VALUE_PARAMETER_GRADIENT,
    GP_VALUE_TARGET, /* int32 or float32: what a loss compares with */
    GP_VALUE_SCORES, /* what a loss gives in inference: goes to the caller, not to a buffer */
    GP_VALUE_SUMS,   /* float64 [GP_SUMS], one for the whole step */
} gp_value_role;

/* What a step adds up, over samples, calls and ranks. */
enum {
    GP_SUM_LOSS,
    GP_SUM_WEIGHT, /* that the loss and the gradients are divided by, once */
    GP_SUM_CORRECT, /* classes (of samples or pixels) that were predicted, whatever weight the loss gives them */
    GP_SUM_CLASSED, /* all classes */
    GP_SUM_SQUARES, /* of errors of values */
    GP_SUM_VALUES,  /* count of these values */
    GP_SUM_BAD,     /* gradients that are not finite, where a loss scale may be the reason (fp16); else 0 */
    GP_SUMS
};

typedef struct gp_value {
    gp_value_role role;
    gp_dtype dtype;
    gp_shape shape;     /* per sample, but for parameters */
    uint32_t layer;     /* that makes it; GP_INPUT_LAYER for input and labels */
    uint32_t parameter; /* index into parameters, for the two parameter roles */
} gp_value;

typedef struct gp_parameter {
    char name[GP_NAME_MAX + 16]; /* "conv1.weight" */
    gp_shape shape;
    int64_t count;                   /* elements */
    size_t offset;                   /* in float32 elements, in the blob */
    uint32_t layer, value, gradient; /* layer index; value indices */
    int64_t fan_in, fan_out;
    gp_initializer initializer;
    gp_statistic statistic; /* what it is instead of learned; kind.h says more, as of the next two */
    double statistic_rate;
    int64_t per_sample;
    double learn_rate_factor, l2_factor;
} gp_parameter;

/* Whether a step of the solver moves it.  A factor of 0 freezes it: no gradient of it is exchanged, and none is
 * computed where the whole layer is frozen.  Running statistics are not learned; they move although their layer is
 * frozen, as in MATLAB. */
static inline bool gp_parameter_learns(const gp_parameter *parameter)
{
    return parameter->learn_rate_factor != 0.0 && parameter->statistic == GP_STATISTIC_NONE;
}

/* Meaning of the scores of a loss in inference. */
typedef enum gp_score_type {
    GP_SCORE_VALUES,        /* no classes: the output as it is */
    GP_SCORE_DISTRIBUTION,  /* probabilities of the classes, which add up to 1 */
    GP_SCORE_PROBABILITIES, /* a probability of each class on its own: the network ends in a sigmoid */
} gp_score_type;

/* A loss layer: what it compares with what, and where that stands among the others'. */
typedef struct gp_end {
    uint32_t layer;
    gp_score_type score_type;
    bool scores_as_is; /* scores are the input of the loss; false: as the op of the loss says */
    gp_target target;
    uint32_t target_index;          /* which of the graph's targets that is */
    uint32_t scores_count;          /* elements of its scores, of one sample */
    double weight;                  /* of a sample of which nothing is ignored */
    uint32_t target_first;          /* in a sample's packed targets, in words of 4 bytes */
    uint32_t score_first;           /* in a sample's packed scores, in float32 elements */
    uint32_t logits, truth, scores; /* values; scores is written in INFER only */
} gp_end;

typedef struct gp_ops {
    gp_op *op;
    uint32_t count;
    uint32_t forward_count; /* ops before the first backward op */
} gp_ops;

typedef struct gp_graph {
    gp_netspec *spec; /* owned copy */
    gp_value *values;
    uint32_t value_count;
    gp_parameter *parameters; /* in layer order; offsets run the other way */
    uint32_t parameter_count;
    size_t blob_count;    /* float32 elements of all parameters */
    size_t learned_count; /* of those that are no statistics: what is called the number of parameters */
    gp_ops ops[GP_PHASE_COUNT];
    uint32_t input, sums;  /* values */
    gp_end *ends;          /* the losses, in layer order; at least one */
    uint32_t end_count;    /* at most GP_ENDS_MAX */
    uint32_t target_count; /* at most one a loss: losses may share one */
    gp_target *targets;    /* [target_count] */
    size_t target_bytes;   /* of one sample: the targets, packed */
    uint32_t score_count;  /* of one sample: the scores of all losses, packed */
    uint32_t class_count;  /* of the first loss that has classes; 0: none has */
    gp_shape *outputs;     /* per layer, of one sample */
    double **weights;      /* of classes, per layer: a loss's ops; NULL: all 1 */
    bool couples_samples;  /* some layer has GP_KIND_COUPLES_SAMPLES */
} gp_graph;

/* Resolve and lower.  GP_EINVAL names the layer, its kind, the shapes seen and what would fit.
 * The network must end in losses, one at least. */
gp_status gp_graph_new(gp_graph **out, const gp_netspec *spec, gp_error *err);
void gp_graph_free(gp_graph *graph);

/* Of the ops of TRAIN, the one that makes this parameter's gradient stands last from now on: nothing reads what it writes.
 * Before the graph is compiled. */
void gp_graph_put_last(gp_graph *graph, uint32_t parameter);

/* Fill a blob with initial values: the rule for weights ("glorot", "he": uniform and normal as in MATLAB's
 * glorot and he; "normal:0.01" sets biases too, as d2l does), by Philox (seed; INIT, layer). */
typedef struct gp_init_rule {
    enum { GP_INIT_GLOROT, GP_INIT_HE, GP_INIT_NORMAL } kind;
    double sigma;
} gp_init_rule;
gp_status gp_init_rule_parse(gp_init_rule *out, const char *text, gp_error *err);
void gp_graph_initialize(const gp_graph *graph, gp_init_rule rule, uint64_t seed, float *blob);

/* 64-bit hash of the blob's layout (names, shapes, offsets): equal on all ranks or they must not exchange. */
uint64_t gp_graph_layout_hash(const gp_graph *graph);

/* Multiply-adds of one sample's forward pass. */
int64_t gp_graph_forward_macs(const gp_graph *graph);

/* GP_EINVAL unless a store's targets are what the network compares with; source: the store's name. */
gp_status gp_graph_check_targets(const gp_graph *graph, const gp_target *targets, uint32_t count,
                                 const char *source, gp_error *err);

/* Meaning of the scores of the first end that has classes; GP_SCORE_VALUES: no end has. */
gp_score_type gp_graph_score_type(const gp_graph *graph);

/* "values", "probabilities", "independent_probabilities". */
const char *gp_score_type_name(gp_score_type type);

/* Whether every loss compares a class for each pixel of the network's input, all with the same target: then images of any size
 * can be predicted in windows. */
bool gp_graph_scores_pixels(const gp_graph *graph);

#endif
