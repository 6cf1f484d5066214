/* loops_loss.c -- cross-entropy with weights of classes and smoothed labels; one thread, so that sums have one order. */
#include <math.h>

#include "worker/backend/cpu/loops_inside.h"

typedef struct loss_terms {
    const double *weights; /* per class; NULL: all 1 */
    double smoothing, total;
    size_t classes;
    int64_t ignored;
} loss_terms;

static double weight_of(const loss_terms *t, size_t k)
{
    return t->weights == NULL ? 1.0 : t->weights[k];
}

/* The logarithm of the sum of exponentials, and where the largest logit is. */
static double row_log_sum(const float *logits, size_t classes, size_t *largest)
{
    double sum = 0.0;

    *largest = 0;
    for (size_t k = 1; k < classes; k++)
        if (logits[k] > logits[*largest])
            *largest = k;
    for (size_t k = 0; k < classes; k++)
        sum += exp((double)logits[k] - (double)logits[*largest]);
    return log(sum) + (double)logits[*largest];
}

/* A sample without a label has weight 0: no loss, no gradient. */
static void row_loss(const loss_terms *t, const float *logits, int64_t label, float *dlogits, float *scores,
                     double sums[GP_SUMS])
{
    bool counts = label >= 0 && label != t->ignored;
    double own = counts ? weight_of(t, (size_t)label) : 0.0, share = t->smoothing / (double)t->classes;
    size_t largest;
    double log_sum = row_log_sum(logits, t->classes, &largest);

    for (size_t k = 0; k < t->classes; k++) {
        double log_score = (double)logits[k] - log_sum, score = exp(log_score);
        bool right = counts && k == (size_t)label;
        double target = counts ? share * weight_of(t, k) + (right ? (1.0 - t->smoothing) * own : 0.0) : 0.0;

        if (scores != NULL)
            scores[k] = (float)score;
        sums[GP_SUM_LOSS] -= target * log_score;
        if (dlogits != NULL)
            dlogits[k] =
                counts ? (float)(((1.0 - t->smoothing) * own + share * t->total) * score - target) : 0.0f;
    }
    sums[GP_SUM_WEIGHT] += own;
    sums[GP_SUM_CORRECT] += counts && largest == (size_t)label ? own : 0.0;
}

gp_status gp_loop_weighted_xent(const gp_loop_call *call, gp_error *err)
{
    const gp_batch *batch = call->batch;
    loss_terms t = { .weights = call->op->weights,
                     .smoothing = call->op->factor[0],
                     .classes = (size_t)gp_shape_count(&call->in[0].shape),
                     .ignored = call->op->number[0] };
    double sums[GP_SUMS] = { 0.0 };

    for (uint32_t n = 0; batch->labels != NULL && n < batch->count; n++)
        if (batch->labels[n] != t.ignored &&
            (batch->labels[n] < -1 || (batch->labels[n] >= 0 && (size_t)batch->labels[n] >= t.classes)))
            return gp_fail(err, GP_EINVAL, "sample %u has label %d; the network has %zu classes", n,
                           batch->labels[n], t.classes);
    for (size_t k = 0; k < t.classes; k++)
        t.total += weight_of(&t, k);
    for (uint32_t n = 0; n < batch->count; n++)
        row_loss(&t, call->in[0].data + n * t.classes, batch->labels == NULL ? -1 : batch->labels[n],
                 call->out[0].data == NULL ? NULL : call->out[0].data + n * t.classes,
                 call->op->out[2] == GP_NO_VALUE || call->memory->scores == NULL
                     ? NULL
                     : call->memory->scores + n * t.classes,
                 sums);
    loop_clear_rest(call, &call->out[0]);
    for (int i = 0; i < GP_SUMS && batch->labels != NULL; i++)
        call->memory->sums[i] = (batch->first ? 0.0 : call->memory->sums[i]) + sums[i];
    return GP_OK;
}
