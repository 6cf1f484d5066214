/* resample.h -- pixels brought to another size: bilinear, and averaged where it gets smaller.
 *
 * The filter is a triangle as wide as an output pixel is in the input, at least two input pixels: what Pillow calls
 * BILINEAR and torchvision "bilinear with antialias".  Results are within one grey level of theirs. */
#ifndef GP_RESAMPLE_H
#define GP_RESAMPLE_H

#include "common/data/image.h"

/* Weights and rows that are kept from image to image.  One thread at a time. */
typedef struct gp_resampler gp_resampler;

gp_status gp_resampler_new(gp_resampler **out, gp_error *err);
void gp_resampler_free(gp_resampler *resampler); /* accepts NULL */

/* gp_resample -- in, interleaved, to out, planar: in->channels planes of height x width bytes.
 * An image that has the size already is only taken apart. */
gp_status gp_resample(gp_resampler *resampler, uint8_t *out, uint32_t height, uint32_t width,
                      const gp_pixels *in, gp_error *err);

/* gp_resample_nearest -- the same for label images of one channel: no value is mixed with another. */
void gp_resample_nearest(uint8_t *out, uint32_t height, uint32_t width, const gp_pixels *in);

#endif
