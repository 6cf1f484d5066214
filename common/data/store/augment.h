/* Augmentation: a random affine warp and a colour transform between the store and the network.
 *
 * All geometric settings combine into one affine map from output pixels to input positions. The
 * image is therefore resampled only once, and pixel labels move with the image. Ranges are drawn
 * uniformly. Settings have the names of MATLAB's imageDataAugmenter without "Rand". They apply to
 * the input in this order:
 *
 *   crop, reflect, scale, shear, rotate (about the middle), translate;
 *   then brightness, contrast, saturation, hue
 *
 * A draw depends only on seed, epoch and sample index. It is the same on every worker and thread,
 * and after a resume. Each setting has its own random number, so adding a setting does not change
 * other draws. */
#ifndef GP_AUGMENT_H
#define GP_AUGMENT_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/data/image/resample.h"
#include "common/data/store/store.h"

/* Crop mode. */
typedef enum gp_crop {
    GP_CROP_NONE,
    GP_CROP_CENTER, /* a window in the middle */
    GP_CROP_RANDOM, /* a window at a random position within the image */
    /* the largest centred window with the crop's proportions, scaled to the crop size */
    GP_CROP_FIT,
    /* a window with random area, aspect and position, scaled to the crop size (Szegedy et al.,
     * "Going deeper with convolutions", 2015) */
    GP_CROP_RESIZED
} gp_crop;

enum { GP_AUGMENT_TEXT_MAX = 512, GP_PATCHES_MAX = 1 << 20 };

/* Augmentation settings. A range [low, high] is drawn uniformly; equal ends give a fixed value. */
typedef struct gp_augment {
    int crop;             /* a gp_crop value */
    int64_t crop_size[2]; /* output height and width; 0, 0: as stored */
    /* for GP_CROP_RESIZED: fraction of the image area; width / height */
    double crop_area[2], crop_aspect[2];
    /* draws per sample in an epoch; each draw is independent */
    int64_t patches_per_image;
    double x_reflection, y_reflection;         /* probabilities */
    double rotation[2];                        /* degrees, counter-clockwise */
    double scale[2], x_scale[2], y_scale[2];   /* factors; above 1 enlarges */
    double x_shear[2], y_shear[2];             /* degrees */
    double x_translation[2], y_translation[2]; /* output pixels */
    double fill;                               /* stored value for pixels outside the image */
    double brightness[2], contrast[2];         /* factors; contrast scales about the image's mean */
    double saturation[2], hue[2];              /* a factor, and degrees; only with three channels */
} gp_augment;

extern const gp_param gp_augment_table[];

/* Parse settings such as "x-reflection=0.5 rotation=-20,20 crop=random crop-size=24,24", separated
 * by spaces or semicolons. A single number sets both ends of a range. "" sets the identity.
 *
 * GP_EINVAL: an unknown name (the message has the nearest), a number out of range, a range with the
 * larger end first, or crop and crop-size not given together. */
gp_status gp_augment_parse(gp_augment *out, const char *text, gp_error *err);

/* Return whether the settings leave every sample unchanged. */
bool gp_augment_is_identity(const gp_augment *augment);

/* Return whether the geometry only selects an image window, upright or mirrored. */
bool gp_augment_is_window(const gp_augment *augment);

/* Return the settings for validation and prediction, without randomness. A crop becomes
 * GP_CROP_CENTER; a resized crop becomes GP_CROP_FIT if `size` (see below) is 0. All other settings
 * are dropped. */
gp_augment gp_augment_fixed(const gp_augment *augment, const int64_t size[2]);

/* Compute how image files must be read for these settings.
 *   size   image height and width before the crop; 0, 0: the network's input size, or before
 *          a crop the file's own size
 *   input  the network's input shape, [channels, height, width]; NULL: the data decide
 * Without a size or a crop, images must have the network's input size: out->exact is set, and
 * callers that can resize clear it.
 *
 * GP_EINVAL: the size differs from the network's input size, and there is no crop. */
gp_status gp_augment_images(gp_store_options *out, const gp_augment *augment, const int64_t size[2],
                            const gp_shape *input, gp_error *err);

/* Compute the store description after augmentation.
 *   out  copy of `store`, with changed height, width, sample and target sizes; the count is
 *        multiplied by patches_per_image
 * GP_EINVAL: a crop is larger than the images, saturation or hue is used without 3 channels, a
 * target is neither a single number nor an index per pixel, or the images have several sizes but
 * their pixels have labels. GP_ELIMIT: more than GP_STORE_SAMPLES_MAX samples. */
gp_status gp_augment_shape(gp_store_info *out, const gp_augment *augment, const gp_store_info *store,
                           gp_error *err);

/* Random transform for one sample. */
typedef struct gp_augment_draw {
    double a[2][3]; /* input position (x, y) = a * (output column + 1/2, output row + 1/2, 1) */

    /* out = contrast * color * in + (1 - contrast) * mean; without 3 channels
     * only [0][0] is used */
    float color[3][3];
    float contrast;
    bool recolor;
} gp_augment_draw;

/* Draw the transform for sample `index` in an epoch (from 0). With patches, `index` counts patches.
 * store and augmented: the arguments `store` and `out` of gp_augment_shape(). */
void gp_augment_draw_sample(gp_augment_draw *out, const gp_augment *augment, const gp_store_info *store,
                            const gp_store_info *augmented, uint64_t seed, uint32_t epoch, uint32_t index);

/* Apply only the colour transform, in place, to packed CHW bytes. Contrast scales about their
 * mean. */
void gp_augment_recolor(const gp_augment_draw *draw, const gp_store_info *shape, uint8_t *planes);

/* Warp a packed CHW image (bilinear) or [height, width] indices (nearest neighbour). Positions
 * outside the input give `fill`, or index -1. */
void gp_augment_image(const gp_augment_draw *draw, const gp_store_info *store, const gp_store_info *augmented,
                      double fill, const void *from, void *to);
void gp_augment_indices(const gp_augment_draw *draw, const gp_store_info *store,
                        const gp_store_info *augmented, const int32_t *from, int32_t *to);

/* ---- reading samples already augmented ---- */

/* Augmentation request to a store: random draws and result pixel format. */
typedef struct gp_drawing {
    const gp_augment *augment;
    const gp_store_info *shape; /* result of gp_augment_shape() */
    uint64_t seed;
    gp_pixel_form form;
    size_t sample_bytes; /* sample size in that format */
} gp_drawing;

/* Return whether the store can apply the augmentation while it decodes, which skips pixels outside
 * the window. This holds for image files read at their own size, with windows only
 * (gp_augment_is_window()). */
bool gp_store_draws(const gp_store *store, const gp_augment *augment);

/* Read augmented samples; otherwise like gp_store_read(), but samples and targets are required.
 * Indices refer to drawing->shape, so with patches they count patches. */
gp_status gp_store_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err);

/* Draw the transform for an image of width x height, for stores whose images have several sizes. */
void gp_augment_draw_window(gp_augment_draw *out, const gp_drawing *drawing, uint32_t width, uint32_t height,
                            uint32_t epoch, uint32_t index);

#endif
