/* stitch.h -- the class of each pixel of an image of any size, from a network that scores the pixels of one size.
 *
 *   image in its file -> brought to a size, or as it is -> windows -> scores of each -> put together (windows.h)
 *       -> back to the size in the file (bilinear) -> the class with the largest score
 *
 * Scores, not classes, are put together and resized.  What comes out of an image depends on the image alone, not on the
 * part it is asked for in or on the worker. */
#ifndef GP_STITCH_H
#define GP_STITCH_H

#include "common/data/store/store.h"
#include "worker/predict/pixel_loss.h"

typedef struct gp_stitch gp_stitch;

#define GP_STITCH_BYTES_MAX ((uint64_t)4 << 30) /* scores of one image */

/* All but the numbers is borrowed until gp_stitch_free(). */
typedef struct gp_stitch_setup {
    const gp_store *store;
    uint32_t height, width; /* of a window: what the network takes, and gives scores of */
    uint32_t classes;       /* scores of a pixel, which add up to 1 */
    uint32_t score_count;   /* of a window: those of its losses, one behind the other */
    gp_whole_size read;     /* what images are brought to */
    uint32_t overlap;       /* at least so many pixels of neighbouring windows */
    uint32_t batch;         /* most windows of one call */
    /* At least one; the scores of the first say what is predicted, and the label that it ignores counts for none. */
    gp_pixel_loss losses[GP_ENDS_MAX];
    uint32_t loss_count;
    /* count windows, [channels, height, width] of the store's dtype each, to score_count scores each. */
    gp_status (*run)(void *context, const void *windows, uint32_t count, const float **scores, gp_error *err);
    void *context;
} gp_stitch_setup;

/* gp_stitch_new -- GP_EINVAL: overlap is more than half a window.  GP_ENOMEM. */
gp_status gp_stitch_new(gp_stitch **out, const gp_stitch_setup *setup, gp_error *err);
void gp_stitch_free(gp_stitch *stitch); /* accepts NULL */

/* One image; borrowed until the next. */
typedef struct gp_stitched {
    uint32_t height, width;   /* in its file */
    const int32_t *predicted; /* [height, width] */
    const int32_t *
        labels; /* the same, -1: none; NULL: the data have none.  One that is no class of the network is -1 */
    bool skipped;        /* it could not be read, and the store passes such over: nothing of it is here */
    double loss, weight; /* of the pixels with a label (gp_pixel_sums_finish()) */
} gp_stitched;

/* gp_stitch_image -- GP_ELIMIT: the scores of the image would take more than GP_STITCH_BYTES_MAX. */
gp_status gp_stitch_image(gp_stitch *stitch, uint32_t index, gp_stitched *out, gp_error *err);

#endif
