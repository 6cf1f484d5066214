/* resample.h -- pixels, or a window of them, brought to another size: bilinear, and averaged where it gets smaller.
 *
 * The filter is a triangle as wide as an output pixel is in the input, at least two input pixels: what Pillow calls
 * BILINEAR and torchvision "bilinear with antialias".  Results are within one grey level of theirs, and the same bits on
 * any processor. */
#ifndef GP_RESAMPLE_H
#define GP_RESAMPLE_H

#include "common/data/image/image.h"

/* Weights and rows that are kept from image to image.  One thread at a time. */
typedef struct gp_resampler gp_resampler;

gp_status gp_resampler_new(gp_resampler **out, gp_error *err);
void gp_resampler_free(gp_resampler *resampler); /* accepts NULL */

/* gp_resample -- in, interleaved, to out, planar: in->channels planes of height x width bytes.
 * An image that has the size already is only taken apart. */
gp_status gp_resample(gp_resampler *resampler, uint8_t *out, uint32_t height, uint32_t width,
                      const gp_pixels *in, gp_error *err);

/* A part of an image, counted in pixels from the upper left corner; its sides may lie within pixels. */
typedef struct gp_pixel_window {
    double left, top, right, bottom; /* 0 <= left < right <= width, top and bottom likewise */
} gp_pixel_window;

/* How pixels are left. */
typedef enum gp_pixel_form {
    GP_PIXELS_PLANES,      /* bytes, CHW */
    GP_PIXELS_INTERLEAVED, /* bytes, HWC: what a GPU's convolutions want */
    GP_PIXELS_FLOAT,       /* float32, CHW: byte * scale[channel] + offset[channel] */
} gp_pixel_form;

typedef struct gp_pixel_out {
    void *data;
    uint32_t height, width;
    gp_pixel_form form;
    const float *scale, *offset; /* of GP_PIXELS_FLOAT, [channels] */
    bool mirror_x, mirror_y;     /* left and right, top and bottom are exchanged */
} gp_pixel_out;

/* gp_resample_window -- the same of a window of `in`, and nothing outside it is mixed in, as if it had been cut out before. */
gp_status gp_resample_window(gp_resampler *resampler, const gp_pixel_out *out, const gp_pixels *in,
                             const gp_pixel_window *window, gp_error *err);

/* Bytes of a pixel's channel. */
size_t gp_pixel_form_bytes(gp_pixel_form form);

/* gp_pixels_form -- planes of bytes in another form. */
void gp_pixels_form(void *out, gp_pixel_form form, const uint8_t *planes, uint32_t channels, size_t plane,
                    const float *scale, const float *offset);

/* gp_resample_nearest -- for label images of one channel: no value is mixed with another. */
void gp_resample_nearest(uint8_t *out, uint32_t height, uint32_t width, const gp_pixels *in);

#endif
