/* tiled_inference.h -- tiled inference: per-pixel classes for an image of any size, from a
 * network with a fixed input size.
 *
 *   image file -> resized, or unchanged -> windows -> scores of each window -> merged
 *   (windows.h)
 *       -> resized to the file's size (bilinear) -> class with the largest score
 *
 * Scores, not classes, are merged and resized. The result depends only on the image, not on the
 * part of the request or on the worker. */
#ifndef GP_TILED_INFERENCE_H
#define GP_TILED_INFERENCE_H

#include "common/data/store/store.h"
#include "worker/predict/pixel_loss.h"

typedef struct gp_tiled_inference gp_tiled_inference;

#define GP_TILED_INFERENCE_BYTES_MAX ((uint64_t)4 << 30) /* maximum score bytes per image */

/* Parameters of gp_tiled_inference_new(). Pointers are borrowed until gp_tiled_inference_free(). */
typedef struct gp_tiled_inference_setup {
    const gp_store *store;
    uint32_t height, width; /* window size: the network's input and score size */
    uint32_t classes;       /* scores per pixel, with sum 1 */
    uint32_t score_count;   /* scores per window: those of all losses, one after the other */
    gp_whole_size read;     /* size to which images are resized */
    uint32_t overlap;       /* minimum overlap between neighboring windows in pixels */
    uint32_t batch;         /* maximum windows per call */
    /* At least one loss. The scores of the first determine the predicted classes; the label that
     * it ignores is excluded. */
    gp_pixel_loss losses[GP_ENDS_MAX];
    uint32_t loss_count;
    /* Compute scores: `count` windows, each [channels, height, width] of the store's dtype, to
     * score_count scores each. */
    gp_status (*run)(void *context, const void *windows, uint32_t count, const float **scores, gp_error *err);
    void *context;
} gp_tiled_inference_setup;

/* Create a tiled predictor. GP_EINVAL: the overlap exceeds half a window. GP_ENOMEM: out of
 * memory. */
gp_status gp_tiled_inference_new(gp_tiled_inference **out, const gp_tiled_inference_setup *setup,
                                 gp_error *err);
void gp_tiled_inference_free(gp_tiled_inference *tiles); /* accepts NULL */

/* Result for one image; borrowed until the next call. */
typedef struct gp_stitched {
    uint32_t height, width;   /* size in the file */
    const int32_t *predicted; /* [height, width] */

    /* [height, width] labels, -1: none; NULL: the data have no labels. Labels outside the network's
     * classes are set to -1 */
    const int32_t *labels;
    /* the image was unreadable and the store skips such images; the other fields are not set */
    bool skipped;
    double loss, weight; /* over the labelled pixels (gp_pixel_sums_finish()) */
} gp_stitched;

/* Predict one image. GP_ELIMIT: the scores would exceed GP_TILED_INFERENCE_BYTES_MAX. */
gp_status gp_tiled_inference_image(gp_tiled_inference *tiles, uint32_t index, gp_stitched *out,
                                   gp_error *err);

#endif
