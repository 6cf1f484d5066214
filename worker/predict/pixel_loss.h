/* pixel_loss.h -- losses for an image of any size, computed from the pixel scores. The results
 * equal those of the network's loss ops (ops.def), which use logits; here only scores are
 * available. */
#ifndef GP_PIXEL_LOSS_H
#define GP_PIXEL_LOSS_H

#include "common/model/graph/graph.h"

/* One loss over the pixels of an image. */
typedef struct gp_pixel_loss {
    enum { GP_PIXEL_XENT, GP_PIXEL_DICE } kind;

    /* offset in the sample's scores, in float32 elements; losses with equal scores share the
     * first offset */
    uint32_t score_first;
    const double *class_weights; /* [classes]; NULL: all 1; borrowed from the graph */
    int32_t ignored;             /* label to ignore; -1: none */
    double setting;              /* XENT: label smoothing; DICE: power of the class size */
    double factor;               /* weight among several losses */
} gp_pixel_loss;

/* Collect the pixel losses of a network that satisfies gp_graph_scores_pixels(). Return their
 * number. */
uint32_t gp_pixel_losses_of(const gp_graph *graph, gp_pixel_loss losses[GP_ENDS_MAX]);

typedef struct gp_pixel_sums gp_pixel_sums;

/* Create sums for `count` losses. *losses is borrowed. */
gp_status gp_pixel_sums_new(gp_pixel_sums **out, const gp_pixel_loss *losses, uint32_t count,
                            uint32_t classes, gp_error *err);
void gp_pixel_sums_free(gp_pixel_sums *sums); /* accepts NULL */

/* Start a new image. Then add each class's scores for every pixel and loss exactly once, in any
 * order, and call gp_pixel_sums_finish(). */
void gp_pixel_sums_clear(gp_pixel_sums *sums);

/* Add class k's scores for `count` pixels to one loss's sums.
 *   labels  pixel classes; negative: none */
void gp_pixel_sums_add(gp_pixel_sums *sums, uint32_t loss, uint32_t k, const float *scores,
                       const int32_t *labels, size_t count);

/* Return the sum of the losses, and the weight by which to divide it. Both equal the loss op
 * results for a sample with as many pixels. */
void gp_pixel_sums_finish(const gp_pixel_sums *sums, size_t pixels, double *loss, double *weight);

#endif
