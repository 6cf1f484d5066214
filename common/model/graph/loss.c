/* Implement loss.h. */
#include "common/model/graph/loss.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/base/memory/alloc.h"

gp_op gp_loss_op(const gp_lowering *lowering, gp_opcode code)
{
    const gp_loss_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);

    op.loss = lowering->loss;
    op.loss.factor *= settings->factor;
    op.in[0] = lowering->x[0];
    op.in[1] = lowering->target;
    op.out[0] = lowering->dlogits;
    op.out[1] = lowering->sums;
    op.out[2] = lowering->scores;
    return op;
}

/* ---- classes ---- */

const gp_param gp_xent_params[] = {
    { "class-weights", NULL, GP_PARAM_TEXT, offsetof(gp_xent_settings, weights),
      .count = GP_XENT_WEIGHTS_BYTES, .seed_name = "ClassWeights", .torch_name = "weight",
      .help = "one number per class, separated by spaces: 1 0.5 2 (default: all 1)" },
    { "ignore-label", NULL, GP_PARAM_I64, offsetof(gp_xent_settings, ignored), .fallback = -1, .min = -1,
      .max = INT32_MAX, .torch_name = "ignore_index",
      .help = "label whose samples or pixels are ignored; -1 is always ignored" },
    { "label-smoothing", NULL, GP_PARAM_F64, offsetof(gp_xent_settings, smoothing), .max = 0.99,
      .torch_name = "label_smoothing",
      .help = "fraction of each label that is distributed over all classes" },
    GP_LOSS_PARAMS,
    { 0 },
};

/* Parse class weights. GP_EINVAL: malformed, or not exactly `count` numbers.
 *   weights  [count]; NULL: only check */
static gp_status weights_parse(const char *text, double *weights, int64_t count, gp_error *err)
{
    int64_t found = 0;
    char *end;

    for (const char *at = text; *at != '\0'; at = end) {
        double weight = strtod(at, &end);

        if (end == at || !(weight >= 0.0 && weight <= 1e6))
            return gp_fail(err, GP_EINVAL,
                           "class-weights: \"%.20s\" does not start with a number from 0 to 1e6", at);
        if (weights != NULL && found < count)
            weights[found] = weight;
        found++;
        while (*end == ' ')
            end++;
    }
    if (found != count)
        return gp_fail(err, GP_EINVAL,
                       "class-weights has %" PRId64 " numbers, but there are %" PRId64 " classes", found,
                       count);
    return GP_OK;
}

gp_status gp_xent_infer(gp_infer *infer, gp_error *err)
{
    const gp_xent_settings *settings = infer->settings;
    const gp_shape *x = &infer->inputs[0];

    if (x->dim[0] < 2)
        return gp_fail(err, GP_EINVAL,
                       "its input has one score, but a classification needs at least 2 classes");
    infer->target = (gp_target){ .dtype = GP_I32 };
    infer->target_of = settings->loss.target_of;
    if (x->rank == 3)
        infer->target.shape = gp_shape2(x->dim[1], x->dim[2]);
    infer->target.classes = (uint32_t)x->dim[0];
    infer->weight = (double)gp_shape_count(&infer->target.shape);
    return settings->weights[0] == '\0' ? GP_OK : weights_parse(settings->weights, NULL, x->dim[0], err);
}

gp_status gp_xent_forward(gp_lowering *lowering, gp_error *err)
{
    const gp_xent_settings *settings = lowering->settings;
    const gp_shape *input = &lowering->graph->values[lowering->x[0]].shape;

    /* GP_OP_SOFTMAX_XENT has fast kernels. It can compute this loss if it is the only
     * loss, with one class per sample; no class weights, ignored label or smoothing; and
     * scores are its input's softmax. */
    const bool plain = settings->weights[0] == '\0' && settings->ignored == -1 &&
                       settings->smoothing == 0.0 && settings->loss.factor == 1.0 &&
                       lowering->graph->end_count == 1 && !lowering->loss.scores_as_is && input->rank == 1;
    gp_op op = gp_loss_op(lowering, plain ? GP_OP_SOFTMAX_XENT : GP_OP_WEIGHTED_XENT);

    if (!plain) {
        op.factor[0] = settings->smoothing;
        op.number[0] = (int32_t)settings->ignored;
    }
    if (settings->weights[0] != '\0') {
        double **weights = &lowering->graph->weights[lowering->layer];

        if (*weights == NULL)
            *weights = gp_calloc((size_t)input->dim[0], sizeof(**weights));
        if (*weights == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the weights of %" PRId64 " classes", input->dim[0]);
        gp_status status = weights_parse(settings->weights, *weights, input->dim[0], err);

        if (status != GP_OK)
            return status;
        op.weights = *weights;
    }
    return gp_lowering_emit(lowering, &op, err);
}

/* ---- values ---- */

gp_status gp_values_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->target = (gp_target){ .dtype = GP_F32, .shape = infer->inputs[0] };
    infer->target_of = ((const gp_loss_settings *)infer->settings)->target_of;
    infer->weight = (double)gp_shape_count(&infer->inputs[0]);
    return GP_OK;
}
