/* Decode JPEG and PNG data to 8-bit pixels, interleaved, grey or RGB.
 *
 * The format is detected from the first bytes, never from the file name. Files are untrusted:
 * width, height and pixel count are checked against limits before memory is allocated. Damage is an
 * error that names the file, the byte position and the cause. */
#ifndef GP_IMAGE_H
#define GP_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_IMAGE_SIDE_MAX = 16384,
    GP_IMAGE_PIXELS_MAX = 1 << 26, /* 8192x8192 */
    GP_IMAGE_FILE_BYTES_MAX = 256 << 20,
    /* limit for a progressive JPEG; each scan costs one pass over the image */
    GP_IMAGE_SCANS_MAX = 200,
};

/* Limit for pixels times scans. Without it a 150 kB file could request 200 passes over 64 million
 * pixels, seconds of work for each channel. It allows 24 passes over the largest image; encoders
 * use up to 18 scans for four channels. */
#define GP_IMAGE_SCANNED_MAX ((uint64_t)24 * GP_IMAGE_PIXELS_MAX)

typedef enum gp_image_format { GP_IMAGE_JPEG, GP_IMAGE_PNG } gp_image_format;

/* Image properties from the file header. */
typedef struct gp_image_info {
    gp_image_format format;
    uint32_t width, height;
    uint32_t channels; /* 1: grey; 3: colour, including palettes and CMYK; alpha is not counted */
    uint32_t bits;     /* bits per sample: 1, 2, 4, 8 or 16 */
    bool palette;
} gp_image_info;

/* Decoded pixels, row by row, channels interleaved. The memory belongs to the decoder and is valid
 * until the next call. */
typedef struct gp_pixels {
    const uint8_t *data;
    uint32_t width, height, channels;
    uint32_t file_width, file_height, file_channels; /* in the file, before scaling by 1/2, 1/4 or 1/8 */
    /* position of the decoded part, in the image scaled by 1/scale */
    uint32_t left, top, scale;
    gp_image_format format;
} gp_pixels;

/* Part of an image in file coordinates: columns left to right - 1, rows top to bottom - 1. */
typedef struct gp_image_part {
    uint32_t left, top, right, bottom;
} gp_image_part;

/* Decoding request. */
typedef struct gp_image_want {
    uint32_t channels; /* 1: grey, 3: RGB, 0: as in the file; alpha is dropped, not blended */
    /* Decode a JPEG at 1/2, 1/4 or 1/8 if the result still has at least this size. The smaller
     * inverse DCT costs less, and averages pixels instead of skipping them. 0: full size. */
    uint32_t width, height;

    /* Part to decode; width and height above then refer to this part. right 0: the whole image. At
     * least this part is decoded, bitwise identical to a full decode. Damage outside the part may
     * remain undetected. */
    gp_image_part part;
} gp_image_want;

/* Return the denominator of the scale (1, 2, 4 or 8) at which an image would be decoded. Always 1
 * for a PNG. */
uint32_t gp_image_scale(const gp_image_want *want, const gp_image_info *info);

/* Decoder with buffers that are reused from image to image. Not thread-safe: use one per thread. */
typedef struct gp_image_decoder gp_image_decoder;

/* Create a decoder. Free it with gp_image_decoder_free(). */
gp_status gp_image_decoder_new(gp_image_decoder **out, gp_error *err);
void gp_image_decoder_free(gp_image_decoder *decoder); /* accepts NULL */

/* Read only the header. `data` is the start of the file, preferably all of it; `name` is used in
 * messages.
 *
 *   GP_EUNSUPPORTED: neither JPEG nor PNG
 *   GP_ECORRUPT: damaged
 *   GP_ELIMIT: over the limits above */
gp_status gp_image_probe(gp_image_decoder *decoder, gp_image_info *info, const void *data, size_t bytes,
                         const char *name, gp_error *err);

/* Decode the pixels. Fails like gp_image_probe(), and also with GP_ECORRUPT for truncated files. */
gp_status gp_image_decode(gp_image_decoder *decoder, gp_pixels *out, const gp_image_want *want,
                          const void *data, size_t bytes, const char *name, gp_error *err);

/* Decode the stored numbers of a one-channel PNG: palette indices or grey values with up to 8 bits,
 * not scaled. out->channels is 1. GP_EUNSUPPORTED: any other image. */
gp_status gp_image_decode_index(gp_image_decoder *decoder, gp_pixels *out, const void *data, size_t bytes,
                                const char *name, gp_error *err);

/* Encode RGB pixels, three bytes each, as a PNG file in memory. Rows start at the top. Free *file
 * with gp_free(). */
gp_status gp_image_to_png(uint8_t **file, size_t *bytes, const uint8_t *rgb, uint32_t width, uint32_t height,
                          gp_error *err);

/* Encode a palette image as a PNG file in memory. Free *file with gp_free().
 *   indices  one byte per pixel, each below colour_count
 *   colours  three bytes per colour, at most 256 colours */
gp_status gp_image_index_to_png(uint8_t **file, size_t *bytes, const uint8_t *indices, const uint8_t *colours,
                                uint32_t colour_count, uint32_t width, uint32_t height, gp_error *err);

#endif
