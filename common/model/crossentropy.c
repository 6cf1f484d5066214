/* Softmax and cross-entropy in one: the loss of classification, and the end of the network. */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/model/graph.h"
#include "common/model/lower.h"

enum { WEIGHTS_BYTES = 448 }; /* of their text */

typedef struct crossentropy_settings {
    double smoothing;
    int64_t ignored;
    char weights[WEIGHTS_BYTES];
} crossentropy_settings;

static const gp_param crossentropy_params[] = {
    { "class-weights", NULL, GP_PARAM_TEXT, offsetof(crossentropy_settings, weights), .count = WEIGHTS_BYTES,
      .seed_name = "ClassWeights", .torch_name = "weight",
      .help = "a number per class, with spaces between: 1 0.5 2 (default: all 1)" },
    { "ignore-label", NULL, GP_PARAM_I64, offsetof(crossentropy_settings, ignored), .fallback = -1, .min = -1,
      .max = INT32_MAX, .torch_name = "ignore_index", .help = "samples with this label have no weight" },
    { "label-smoothing", NULL, GP_PARAM_F64, offsetof(crossentropy_settings, smoothing), .max = 0.99,
      .torch_name = "label_smoothing", .help = "share of each label that is spread over all classes" },
    { 0 },
};

static bool is_plain(const crossentropy_settings *settings)
{
    return settings->weights[0] == '\0' && settings->ignored == -1 && settings->smoothing == 0.0;
}

/* The numbers of a text into weights (room for count, or NULL to count only); GP_EINVAL unless there are `count`. */
static gp_status weights_parse(const char *text, double *weights, int64_t count, gp_error *err)
{
    int64_t found = 0;
    char *end;

    for (const char *at = text; *at != '\0'; at = end) {
        double weight = strtod(at, &end);

        if (end == at || !(weight >= 0.0 && weight <= 1e6))
            return gp_fail(err, GP_EINVAL,
                           "class-weights: \"%.20s\" does not begin with a number from 0 to 1e6", at);
        if (weights != NULL && found < count)
            weights[found] = weight;
        found++;
        while (*end == ' ')
            end++;
    }
    if (found != count)
        return gp_fail(err, GP_EINVAL, "class-weights has %" PRId64 " numbers for %" PRId64 " classes", found,
                       count);
    return GP_OK;
}

static gp_status crossentropy_infer(gp_infer *infer, gp_error *err)
{
    const crossentropy_settings *settings = infer->settings;
    char shape[64];

    if (infer->inputs[0].rank != 1)
        return gp_fail(
            err, GP_EINVAL,
            "its input has shape %s; it reads one score per class: put an fc or flatten layer before",
            gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
    if (infer->inputs[0].dim[0] < 2)
        return gp_fail(err, GP_EINVAL, "its input has 1 score; a classification needs at least 2 classes");
    infer->output = infer->inputs[0];
    return settings->weights[0] == '\0'
               ? GP_OK
               : weights_parse(settings->weights, NULL, infer->inputs[0].dim[0], err);
}

/* The gradient of its input is a by-product, so there is no backward op. */
static gp_status crossentropy_forward(gp_lowering *lowering, gp_error *err)
{
    const crossentropy_settings *settings = lowering->settings;
    gp_op op = gp_op_init(is_plain(settings) ? GP_OP_SOFTMAX_XENT : GP_OP_WEIGHTED_XENT);

    if (op.code == GP_OP_WEIGHTED_XENT) {
        op.factor[0] = settings->smoothing;
        op.number[0] = (int32_t)settings->ignored;
    }
    if (settings->weights[0] != '\0') {
        const int64_t classes = lowering->graph->values[lowering->x[0]].shape.dim[0];
        double *weights;
        gp_status status = gp_graph_add_weights(lowering->graph, (size_t)classes, &weights, err);

        if (status == GP_OK)
            status = weights_parse(settings->weights, weights, classes, err);
        if (status != GP_OK)
            return status;
        op.weights = weights;
    }

    op.in[0] = lowering->x[0];
    op.in[1] = lowering->labels;
    op.out[0] = lowering->dlogits;
    op.out[1] = lowering->sums;
    op.out[2] = lowering->scores;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status crossentropy_backward(gp_lowering *lowering, gp_error *err)
{
    (void)lowering;
    (void)err;
    return GP_OK;
}

static const gp_kind_check crossentropy_checks[] = {
    { { 1, { 10 } }, NULL, 4, false },
    { { 1, { 2 } }, NULL, 1, false },
    { { 1, { 4 } }, "label-smoothing=0.2;class-weights=0.5 1 2 0", 5, false },
    { { 1, { 3 } }, "ignore-label=1;label-smoothing=0.1", 6, false },
    { .samples = 0 },
};

const gp_kind gp_kind_crossentropy = {
    .name = "crossentropy",
    .onnx = "Softmax",
    .help = "softmax and cross-entropy: the loss of classification",
    .flags = GP_KIND_LOSS,
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = crossentropy_params,
    .settings_bytes = sizeof(crossentropy_settings),
    .checks = crossentropy_checks,
    .infer = crossentropy_infer,
    .forward = crossentropy_forward,
    .backward = crossentropy_backward,
};
