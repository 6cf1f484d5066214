/* augment.h -- what is done to a sample between the store and the network: one random draw, one warp, one colour map.
 *
 * All geometry of a sample is one affine map from pixels of the output to places in the input, so it is sampled once, and
 * an image and its pixel labels are moved alike.  Ranges are drawn uniformly; the names are those of MATLAB's
 * imageDataAugmenter without "Rand".  The order, from the input on:
 *   crop, reflect, scale, shear, rotate (about the middle), translate; then brightness, contrast, saturation, hue
 *
 * A draw is a pure function of (seed; epoch, sample's index): the same on any worker, thread, or after a resume; and each
 * setting has its own random number, so that adding one does not change what the others draw. */
#ifndef GP_AUGMENT_H
#define GP_AUGMENT_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/data/image/resample.h"
#include "common/data/store/store.h"

typedef enum gp_crop {
    GP_CROP_NONE,
    GP_CROP_CENTER, /* the middle */
    GP_CROP_RANDOM, /* anywhere within the image */
    GP_CROP_FIT,    /* the largest window in the middle that has the crop's proportions, scaled to its size */
    GP_CROP_RESIZED /* a window of random area and aspect anywhere, scaled to the crop's size (Szegedy et al., "Going
                     * deeper with convolutions", 2015) */
} gp_crop;

enum { GP_AUGMENT_TEXT_MAX = 512, GP_PATCHES_MAX = 1 << 20 };

typedef struct gp_augment {
    int crop;                            /* gp_crop */
    int64_t crop_size[2];                /* height, width of what comes out; 0, 0 = as it is stored */
    double crop_area[2], crop_aspect[2]; /* of CROP_RESIZED: share of the image, width / height */
    int64_t patches_per_image;           /* an epoch has every sample so many times, each a draw of its own */
    double x_reflection, y_reflection;   /* probability */
    double rotation[2];                  /* degrees, counter-clockwise */
    double scale[2], x_scale[2], y_scale[2];   /* factors: above 1 enlarges */
    double x_shear[2], y_shear[2];             /* degrees */
    double x_translation[2], y_translation[2]; /* pixels of the output */
    double fill;                               /* stored value of what lies outside the image */
    double brightness[2], contrast[2];         /* factors; contrast is about the image's mean */
    double saturation[2], hue[2];              /* factor, degrees; of three channels only */
} gp_augment;

extern const gp_param gp_augment_table[];

/* gp_augment_parse -- "x-reflection=0.5 rotation=-20,20 crop=random crop-size=24,24": settings apart by spaces or
 * semicolons; one number for a range is both ends; "" = nothing is done.
 * GP_EINVAL: an unknown name (with the nearest), a number out of its range, a range whose ends are the wrong way round, a
 * crop-size without a crop or the reverse. */
gp_status gp_augment_parse(gp_augment *out, const char *text, gp_error *err);

/* Whether it leaves every sample as it is. */
bool gp_augment_is_identity(const gp_augment *augment);

/* Whether all that it does to a place is to show a window of the image, upright or mirrored. */
bool gp_augment_is_window(const gp_augment *augment);

/* The same without chance, for validation and prediction: a crop is the middle one (of a resized crop, where no size was
 * given that images are brought to before it, the fitting one); everything else is left out.  size: as below. */
gp_augment gp_augment_fixed(const gp_augment *augment, const int64_t size[2]);

/* gp_augment_images -- how images of files are to be read for it.
 *   size   height and width that they are brought to before the crop; 0, 0: as the network takes them, or, before a crop,
 *          as they are
 *   input  the network's, [channels, height, width]; NULL where the data say what it is
 * Without a size or a crop, images must have the network's size: out->exact is set, and callers with other means clear it.
 * GP_EINVAL: a size that is not the network's, without a crop that would make up for it. */
gp_status gp_augment_images(gp_store_options *out, const gp_augment *augment, const int64_t size[2],
                            const gp_shape *input, gp_error *err);

/* gp_augment_shape -- what comes out for a store: height, width, bytes of a sample and targets, in *out.
 *   out  a copy of the store's info with these changed; count is multiplied by patches_per_image
 * GP_EINVAL: a crop larger than the images; saturation or hue of other than three channels; targets that are neither one
 * for the sample nor indices for each of its pixels; more samples than GP_STORE_SAMPLES_MAX. */
gp_status gp_augment_shape(gp_store_info *out, const gp_augment *augment, const gp_store_info *store,
                           gp_error *err);

/* What was drawn for one sample. */
typedef struct gp_augment_draw {
    double a[2][3]; /* input place (x, y) = a * (output column + 1/2, output row + 1/2, 1) */
    float color
        [3]
        [3]; /* out = contrast * color * in + (1 - contrast) * its mean; of other than 3 channels: [0][0] */
    float contrast;
    bool recolor;
} gp_augment_draw;

/* For sample `index` (of the patches, where there are some) in an epoch (from 0).  store, out: as of gp_augment_shape(). */
void gp_augment_draw_sample(gp_augment_draw *out, const gp_augment *augment, const gp_store_info *store,
                            const gp_store_info *augmented, uint64_t seed, uint32_t epoch, uint32_t index);

/* gp_augment_recolor -- the colour map alone, on packed CHW bytes in place; contrast is about their own mean. */
void gp_augment_recolor(const gp_augment_draw *draw, const gp_store_info *shape, uint8_t *planes);

/* gp_augment_image -- from one packed CHW image to another, bilinear; places outside the image get fill.
 * gp_augment_indices -- of [height, width] indices, the nearest; outside: -1. */
void gp_augment_image(const gp_augment_draw *draw, const gp_store_info *store, const gp_store_info *augmented,
                      double fill, const void *from, void *to);
void gp_augment_indices(const gp_augment_draw *draw, const gp_store_info *store,
                        const gp_store_info *augmented, const int32_t *from, int32_t *to);

/* ---- samples read as they were drawn ---- */

/* What a loader wants of a store: the draw of each sample, and how its pixels are left. */
typedef struct gp_drawing {
    const gp_augment *augment;
    const gp_store_info *shape; /* of gp_augment_shape() */
    uint64_t seed;
    gp_pixel_form form;
    size_t sample_bytes; /* of the form */
} gp_drawing;

/* gp_store_draws -- whether the store can do it itself, which spares it what no draw shows: images of files whose size is
 * left as it is, and windows of them (gp_augment_is_window). */
bool gp_store_draws(const gp_store *store, const gp_augment *augment);

/* gp_store_read_drawn -- as gp_store_read(), of samples of drawing->shape (patches, where there are some). */
gp_status gp_store_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err);

/* gp_augment_draw_window -- the draw for an image of width x height, where the store's images have several sizes. */
void gp_augment_draw_window(gp_augment_draw *out, const gp_drawing *drawing, uint32_t width, uint32_t height,
                            uint32_t epoch, uint32_t index);

#endif
