#include "worker/predict/pixel_loss.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* Sums for one loss. DICE: per class, over the pixels that count. */
typedef struct loss_sums {
    double loss, weight;
    double *overlap, *predicted, *truth; /* [classes] */
} loss_sums;

struct gp_pixel_sums {
    const gp_pixel_loss *losses;
    uint32_t count, classes;
    double *memory;
    loss_sums of[GP_ENDS_MAX];
};

uint32_t gp_pixel_losses_of(const gp_graph *graph, gp_pixel_loss losses[GP_ENDS_MAX])
{
    const gp_ops *ops = &graph->ops[GP_PHASE_INFER];
    const gp_end *ends = graph->ends;

    assert(gp_graph_scores_pixels(graph));
    for (uint32_t i = 0; i < graph->end_count; i++) {
        const gp_op *op = ops->op;

        while (op->layer != ends[i].layer || (op->code != GP_OP_WEIGHTED_XENT && op->code != GP_OP_DICE)) {
            op++;
            assert(op < ops->op + ops->count);
        }
        losses[i] = (gp_pixel_loss){ .kind = op->code == GP_OP_DICE ? GP_PIXEL_DICE : GP_PIXEL_XENT,
                                     .score_first = ends[i].score_first,
                                     .class_weights = op->weights,
                                     .ignored = op->number[0],
                                     .setting = op->factor[0],
                                     .factor = op->loss.factor * ends[i].weight / ends[0].weight };
        for (uint32_t k = 0; k < i; k++)
            if (ends[k].logits == ends[i].logits)
                losses[i].score_first = losses[k].score_first;
    }
    return graph->end_count;
}

gp_status gp_pixel_sums_new(gp_pixel_sums **out, const gp_pixel_loss *losses, uint32_t count,
                            uint32_t classes, gp_error *err)
{
    gp_pixel_sums *sums = gp_calloc(1, sizeof(*sums));

    if (sums != NULL)
        sums->memory = gp_calloc((size_t)3 * GP_ENDS_MAX * classes, sizeof(*sums->memory));
    if (sums == NULL || sums->memory == NULL) {
        gp_free(sums);
        return gp_fail(err, GP_ENOMEM, "no memory for the losses of %" PRIu32 " classes", classes);
    }
    sums->losses = losses;
    sums->count = count;
    sums->classes = classes;
    for (uint32_t i = 0; i < count; i++) {
        sums->of[i].overlap = sums->memory + (size_t)(3 * i) * classes;
        sums->of[i].predicted = sums->of[i].overlap + classes;
        sums->of[i].truth = sums->of[i].predicted + classes;
    }
    *out = sums;
    return GP_OK;
}

void gp_pixel_sums_free(gp_pixel_sums *sums)
{
    if (sums == NULL)
        return;
    gp_free(sums->memory);
    gp_free(sums);
}

void gp_pixel_sums_clear(gp_pixel_sums *sums)
{
    memset(sums->memory, 0, (size_t)3 * GP_ENDS_MAX * sums->classes * sizeof(*sums->memory));
    for (uint32_t i = 0; i < sums->count; i++)
        sums->of[i].loss = sums->of[i].weight = 0;
}

void gp_pixel_sums_add(gp_pixel_sums *sums, uint32_t loss, uint32_t k, const float *scores,
                       const int32_t *labels, size_t count)
{
    const gp_pixel_loss *about = &sums->losses[loss];
    const bool dice = about->kind == GP_PIXEL_DICE;
    loss_sums *of = &sums->of[loss];
    /* Cross-entropy: with label smoothing, a label has probability (1 - smoothing) + smoothing /
     * classes for the label's own class, and smoothing / classes for each other class. */
    const double weight = about->class_weights == NULL ? 1.0 : about->class_weights[k];
    const double own = (1.0 - about->setting) * weight, each = about->setting / sums->classes * weight;

    for (size_t i = 0; i < count; i++) {
        const bool is = labels[i] == (int32_t)k;

        if (labels[i] < 0 || labels[i] == about->ignored)
            continue;
        if (dice) {
            of->predicted[k] += (double)scores[i];
            of->overlap[k] += is ? (double)scores[i] : 0.0;
            of->truth[k] += is;
        } else if (is || each != 0.0) {
            of->loss -= (each + (is ? own : 0.0)) * log((double)fmaxf(scores[i], FLT_MIN));
            of->weight += is ? weight : 0.0;
        }
    }
}

/* Combine several losses: each counts as the mean, in the first loss's unit (lower.c). */
void gp_pixel_sums_finish(const gp_pixel_sums *sums, size_t pixels, double *loss, double *weight)
{
    *loss = *weight = 0;
    for (uint32_t i = 0; i < sums->count; i++) {
        const gp_pixel_loss *about = &sums->losses[i];
        const double unit = about->kind == sums->losses[0].kind ? 1.0
                            : about->kind == GP_PIXEL_DICE      ? (double)pixels
                                                                : 1.0 / (double)pixels;
        loss_sums of = sums->of[i];
        double overlap = 0, size = 0;

        /* Compute the Dice loss as in gp_loop_dice(): 1 - 2 overlap / size, with each class
         * weighted by a power of the true size. */
        for (uint32_t k = 0; about->kind == GP_PIXEL_DICE && k < sums->classes; k++) {
            const double share = of.truth[k] == 0.0 ? 0.0 : pow(of.truth[k], -about->setting);

            overlap += share * of.overlap[k];
            size += share * (of.predicted[k] + of.truth[k]);
        }
        if (about->kind == GP_PIXEL_DICE) {
            of.loss = size == 0.0 ? 0.0 : 1.0 - 2.0 * overlap / size;
            of.weight = size != 0.0;
        }
        *loss += about->factor * unit * of.loss;
        *weight += unit / sums->count * of.weight;
    }
}
