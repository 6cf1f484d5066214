/* Resize images, or windows of them: bilinear when enlarging, averaging when shrinking.
 *
 * The filter is a triangle with the width of two output pixels, but at least two input pixels. This
 * is BILINEAR in Pillow and "bilinear with antialias" in torchvision. Results differ from theirs by
 * at most one grey level, and are bitwise identical on all processors. */
#ifndef GP_RESAMPLE_H
#define GP_RESAMPLE_H

#include "common/data/image/image.h"

/* Weights and row buffers, reused from image to image. Not thread-safe. */
typedef struct gp_resampler gp_resampler;

gp_status gp_resampler_new(gp_resampler **out, gp_error *err);
void gp_resampler_free(gp_resampler *resampler); /* accepts NULL */

/* Resize the interleaved image `in` to planar output: in->channels planes of height x width bytes.
 * If the size is unchanged, only separate the channels. */
gp_status gp_resample(gp_resampler *resampler, uint8_t *out, uint32_t height, uint32_t width,
                      const gp_pixels *in, gp_error *err);

/* Window in an image, in pixels from the upper left corner. Edges may lie within pixels. */
typedef struct gp_pixel_window {
    double left, top, right, bottom; /* 0 <= left < right <= width, 0 <= top < bottom <= height */
} gp_pixel_window;

/* Output pixel format. */
typedef enum gp_pixel_form {
    GP_PIXELS_PLANES,      /* bytes, CHW */
    GP_PIXELS_INTERLEAVED, /* bytes, HWC, for GPU convolutions */
    GP_PIXELS_FLOAT,       /* float32, CHW: byte * scale[channel] + offset[channel] */
} gp_pixel_form;

/* Destination for resized pixels. */
typedef struct gp_pixel_out {
    void *data;
    uint32_t height, width;
    gp_pixel_form form;
    const float *scale, *offset; /* [channels], for GP_PIXELS_FLOAT */
    bool mirror_x, mirror_y;     /* swap left and right; swap top and bottom */
} gp_pixel_out;

/* Resize a window of `in`. Pixels outside the window do not contribute, as if the window had been
 * cut out first. */
gp_status gp_resample_window(gp_resampler *resampler, const gp_pixel_out *out, const gp_pixels *in,
                             const gp_pixel_window *window, gp_error *err);

/* Return the bytes per pixel and channel. */
size_t gp_pixel_form_bytes(gp_pixel_form form);

/* Convert byte planes to another pixel format. scale and offset are used only for
 * GP_PIXELS_FLOAT. */
void gp_pixels_form(void *out, gp_pixel_form form, const uint8_t *planes, uint32_t channels, size_t plane,
                    const float *scale, const float *offset);

/* Resize a one-channel label image to the nearest pixel, so that no values are mixed. */
void gp_resample_nearest(uint8_t *out, uint32_t height, uint32_t width, const gp_pixels *in);

#endif
