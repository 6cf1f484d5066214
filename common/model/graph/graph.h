/* Compiled network: inferred shapes, parameter layout and primitive operations.
 *
 * Parameters, their gradients (in the exchange arena) and the optimizer state have the same dense
 * layout, the blob: float32 tensors without padding, the last layer first. The backward pass
 * completes gradients in this order, from the front. ops[TRAIN] contains forward, loss and backward
 * operations; ops[INFER] contains forward operations and losses with scores. */
#ifndef GP_GRAPH_H
#define GP_GRAPH_H

#include "common/model/graph/netspec.h"
#include "common/model/graph/op.h"

/* Value roles. Unless noted, a value exists once per sample. */
typedef enum gp_value_role {
    GP_VALUE_INPUT, /* normalized network input, float32 */
    GP_VALUE_ACTIVATION,
    GP_VALUE_SAVED, /* kept by one layer from forward to backward (pool index) */
    GP_VALUE_CALL,  /* kept too, but shared by all samples in a call (moments) */
    GP_VALUE_ACTIVATION_GRADIENT,
    GP_VALUE_PARAMETER, /* not per sample */
    GP_VALUE_PARAMETER_GRADIENT,
    GP_VALUE_TARGET, /* int32 or float32: ground truth for a loss */
    GP_VALUE_SCORES, /* loss output in inference; goes to the caller, has no buffer */
    GP_VALUE_SUMS,   /* float64 [GP_SUMS], one for the whole step */
} gp_value_role;

/* Per-step sums over samples, calls and ranks. */
enum {
    GP_SUM_LOSS,
    GP_SUM_WEIGHT,  /* divisor for loss and gradients */
    GP_SUM_CORRECT, /* correctly predicted samples or pixels, regardless of weights */
    GP_SUM_CLASSED, /* samples or pixels with a class */
    GP_SUM_SQUARES, /* squared errors for values */
    GP_SUM_VALUES,  /* how many values */
    GP_SUM_BAD,     /* gradients that are not finite, possibly due to a loss scale (fp16); else 0 */
    GP_SUMS
};

/* A value that operations read and write. */
typedef struct gp_value {
    gp_value_role role;
    gp_dtype dtype;
    gp_shape shape;     /* per sample, except for parameters */
    uint32_t layer;     /* layer that computes it; GP_INPUT_LAYER for input and labels */
    uint32_t parameter; /* index into parameters, for the two parameter roles */
} gp_value;

/* A parameter tensor, or a running statistic (see gp_statistic). */
typedef struct gp_parameter {
    char name[GP_NAME_MAX + 16]; /* "conv1.weight" */
    gp_shape shape;
    int64_t count;                   /* elements */
    size_t offset;                   /* position in the blob, in float32 elements */
    uint32_t layer, value, gradient; /* layer index; value indexes */
    int64_t fan_in, fan_out;
    gp_initializer initializer;
    /* Statistic instead of a learned parameter; kind.h describes this and the next two fields. */
    gp_statistic statistic;
    double statistic_rate;
    int64_t per_sample;
    double learn_rate_factor, l2_factor;
} gp_parameter;

/* Return whether the optimizer updates a parameter. A factor of 0 freezes it: its gradient is not
 * exchanged, and not even computed if the whole layer is frozen. Running statistics are not
 * learned, but they are updated even in frozen layers, as in MATLAB. */
static inline bool gp_parameter_learns(const gp_parameter *parameter)
{
    return parameter->learn_rate_factor != 0.0 && parameter->statistic == GP_STATISTIC_NONE;
}

/* Meaning of the scores of a loss in inference. */
typedef enum gp_score_type {
    GP_SCORE_VALUES,        /* network output without classes */
    GP_SCORE_DISTRIBUTION,  /* class probabilities that sum to 1 */
    GP_SCORE_PROBABILITIES, /* independent class probabilities: the network ends in a sigmoid */
} gp_score_type;

/* A loss layer, with the position of its target and scores within packed samples. */
typedef struct gp_end {
    uint32_t layer;
    gp_score_type score_type;
    bool scores_as_is; /* scores equal the loss's input; false: the operation computes them */
    gp_target target;
    uint32_t target_index;          /* index in gp_graph.targets */
    uint32_t scores_count;          /* score elements per sample */
    double weight;                  /* weight for a sample without ignored parts */
    uint32_t target_first;          /* offset in a sample's packed targets, in 4-byte words */
    uint32_t score_first;           /* offset in a sample's packed scores, in float32 elements */
    uint32_t logits, truth, scores; /* values; scores is only written in INFER */
} gp_end;

/* Operations for one phase. */
typedef struct gp_ops {
    gp_op *op;
    uint32_t count;
    uint32_t forward_count; /* first backward operation's index */
} gp_ops;

/* Compiled network. */
typedef struct gp_graph {
    gp_netspec *spec; /* owned copy */
    gp_value *values;
    uint32_t value_count;
    gp_parameter *parameters; /* in layer order; offsets are in reverse layer order */
    uint32_t parameter_count;
    size_t blob_count;    /* float32 elements in all parameters and statistics */
    size_t learned_count; /* without statistics: the usual parameter count */
    gp_ops ops[GP_PHASE_COUNT];
    uint32_t input, sums;  /* values */
    gp_end *ends;          /* losses in layer order; at least one */
    uint32_t end_count;    /* at most GP_ENDS_MAX */
    uint32_t target_count; /* losses may share a target */
    gp_target *targets;    /* [target_count] */
    size_t target_bytes;   /* packed target bytes per sample */
    uint32_t score_count;  /* packed scores per sample, over all losses */
    uint32_t class_count;  /* classes in the first loss that has any; 0: none */
    gp_shape *outputs;     /* [layer_count], for one sample */
    double **weights;      /* [layer_count], class weights for losses; NULL: all 1 */
    bool couples_samples;  /* a layer has GP_KIND_COUPLES_SAMPLES */
} gp_graph;

/* Compile a network, which must end in at least one loss. GP_EINVAL: invalid network; the message
 * names the layer, its kind, the shapes, and valid alternatives. */
gp_status gp_graph_new(gp_graph **out, const gp_netspec *spec, gp_error *err);
void gp_graph_free(gp_graph *graph);

/* Move the training operation that computes a parameter's gradient to the end; no other operation
 * reads that gradient. Call before a backend compiles the graph. */
void gp_graph_put_last(gp_graph *graph, uint32_t parameter);

/* Weight initialization. "glorot" (uniform) and "he" (normal) work as in MATLAB. "normal:0.01" also
 * initializes biases, as in d2l. */
typedef struct gp_init_rule {
    enum { GP_INIT_GLOROT, GP_INIT_HE, GP_INIT_NORMAL } kind;
    double sigma; /* standard deviation, for GP_INIT_NORMAL */
} gp_init_rule;

/* Parse "glorot", "he" or "normal:S". GP_EINVAL: anything else. */
gp_status gp_init_rule_parse(gp_init_rule *out, const char *text, gp_error *err);

/* Fill a blob with initial values, drawn by Philox (seed; INIT, layer). */
void gp_graph_initialize(const gp_graph *graph, gp_init_rule rule, uint64_t seed, float *blob);

/* Return a 64-bit hash over the blob layout: names, shapes and offsets. Ranks must have equal
 * hashes to exchange gradients. */
uint64_t gp_graph_layout_hash(const gp_graph *graph);

/* Return the multiply-adds in one sample's forward pass. */
int64_t gp_graph_forward_macs(const gp_graph *graph);

/* Check that a data source provides the targets that the network needs.
 *   targets, count  the source's targets
 *   source          source name, for messages
 * GP_EINVAL: number, shape, type or class count differ. */
gp_status gp_graph_check_targets(const gp_graph *graph, const gp_target *targets, uint32_t count,
                                 const char *source, gp_error *err);

/* Return the meaning of the first scores with classes. GP_SCORE_VALUES: no loss has classes. */
gp_score_type gp_graph_score_type(const gp_graph *graph);

/* Return "values", "probabilities" or "independent_probabilities". */
const char *gp_score_type_name(gp_score_type type);

/* Return whether every loss compares one class per input pixel, all with the same target. If so,
 * tiled inference can predict images of any size. */
bool gp_graph_scores_pixels(const gp_graph *graph);

#endif
