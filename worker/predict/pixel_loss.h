/* pixel_loss.h -- the losses of an image of any size, from the scores of its pixels: what a network's loss ops (ops.def)
 * compute from the logits of its samples, where only scores are left. */
#ifndef GP_PIXEL_LOSS_H
#define GP_PIXEL_LOSS_H

#include "common/model/graph/graph.h"

typedef struct gp_pixel_loss {
    enum { GP_PIXEL_XENT, GP_PIXEL_DICE } kind;
    uint32_t
        score_first; /* of its scores among those of a sample, in float32 elements; of equal ones the first */
    const double *class_weights; /* [classes]; NULL: all 1.  Borrowed from the graph */
    int32_t ignored;             /* a label that counts for none; -1: there is no such */
    double setting;              /* XENT: share of a label that is smoothed; DICE: power of a class's size */
    double factor;               /* what it counts among several */
} gp_pixel_loss;

/* gp_pixel_losses_of -- those of a network for which gp_graph_scores_pixels().  Returns how many. */
uint32_t gp_pixel_losses_of(const gp_graph *graph, gp_pixel_loss losses[GP_ENDS_MAX]);

typedef struct gp_pixel_sums gp_pixel_sums;

/* gp_pixel_sums_new -- losses are borrowed. */
gp_status gp_pixel_sums_new(gp_pixel_sums **out, const gp_pixel_loss *losses, uint32_t count,
                            uint32_t classes, gp_error *err);
void gp_pixel_sums_free(gp_pixel_sums *sums); /* accepts NULL */

/* For each image: clear, add every class's scores of every pixel once for each loss, in any order, finish. */
void gp_pixel_sums_clear(gp_pixel_sums *sums);

/* gp_pixel_sums_add -- scores of class k of `count` pixels.
 *   labels  their classes; below 0: none */
void gp_pixel_sums_add(gp_pixel_sums *sums, uint32_t loss, uint32_t k, const float *scores,
                       const int32_t *labels, size_t count);

/* gp_pixel_sums_finish -- the sum of the losses, and the weight that it is to be divided by, as the ops have them for a
 * sample of so many pixels. */
void gp_pixel_sums_finish(const gp_pixel_sums *sums, size_t pixels, double *loss, double *weight);

#endif
