/* image.h -- JPEG and PNG bytes to pixels: u8, interleaved, grey or RGB.
 *
 * What a file is, its first bytes say, never its name.  Every file is taken for hostile: width, height and pixels have
 * ceilings that are checked before any memory is taken, and damage is an error that names the file, the byte it was
 * seen at and the cause. */
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
    GP_IMAGE_SCANS_MAX = 200, /* of a progressive JPEG; each one costs a pass over the image */
};

/* Pixels times scans: a file of 150 kilobytes can ask for 200 passes over 64 million pixels, seconds of work for each channel.
 * 24 passes over the largest image: those of four channels are written in 18. */
#define GP_IMAGE_SCANNED_MAX ((uint64_t)24 * GP_IMAGE_PIXELS_MAX)

typedef enum gp_image_format { GP_IMAGE_JPEG, GP_IMAGE_PNG } gp_image_format;

/* What the header says. */
typedef struct gp_image_info {
    gp_image_format format;
    uint32_t width, height;
    uint32_t channels; /* 1: grey.  3: colour, palettes and CMYK included.  Alpha is not counted */
    uint32_t bits;     /* of a sample: 1, 2, 4, 8, 16 */
    bool palette;
} gp_image_info;

/* Pixels, row by row, channels interleaved; the decoder's until its next call. */
typedef struct gp_pixels {
    const uint8_t *data;
    uint32_t width, height, channels;
    uint32_t file_width, file_height; /* of the image in the file, before it was decoded at 1/2, 1/4, 1/8 */
    uint32_t left, top, scale;        /* where a part lies in the image as it was decoded, at 1/scale */
    gp_image_format format;
} gp_pixels;

/* Columns left to right - 1 and rows top to bottom - 1 of the image in the file. */
typedef struct gp_image_part {
    uint32_t left, top, right, bottom;
} gp_image_part;

/* What is wanted of an image. */
typedef struct gp_image_want {
    uint32_t channels; /* 1: grey, 3: RGB, 0: as the file is.  Alpha is dropped, never blended */
    /* A JPEG of at least twice these sides is decoded at 1/2, 1/4 or 1/8, the smallest that still has them: the
     * cosine transform is cheaper then, and the sides lost are averaged, not skipped.  0: at full size. */
    uint32_t width, height;
    /* What of it is needed, the sides above being those wanted of the part; right 0: all.  At least this is decoded, to
     * the same bits as in the whole; damage outside of it may stay unseen. */
    gp_image_part part;
} gp_image_want;

/* gp_image_scale -- the 1, 1/2, 1/4, 1/8 that an image would be decoded at, as its denominator; always 1 for a PNG. */
uint32_t gp_image_scale(const gp_image_want *want, const gp_image_info *info);

/* Memory that is kept from image to image.  One thread at a time. */
typedef struct gp_image_decoder gp_image_decoder;

gp_status gp_image_decoder_new(gp_image_decoder **out, gp_error *err);
void gp_image_decoder_free(gp_image_decoder *decoder); /* accepts NULL */

/* gp_image_probe -- read the header only.
 *   data  the file's first bytes, at best all; name: for errors
 * GP_EUNSUPPORTED: neither JPEG nor PNG.  GP_ECORRUPT: damaged.  GP_ELIMIT: over the ceilings above. */
gp_status gp_image_probe(gp_image_decoder *decoder, gp_image_info *info, const void *data, size_t bytes,
                         const char *name, gp_error *err);

/* gp_image_decode -- all pixels.  Errors as above, also for a file that ends too early. */
gp_status gp_image_decode(gp_image_decoder *decoder, gp_pixels *out, const gp_image_want *want,
                          const void *data, size_t bytes, const char *name, gp_error *err);

/* gp_image_decode_index -- the stored numbers of a PNG of one channel: palette indices or grey values of up to 8 bits,
 * not scaled; out->channels is 1.  GP_EUNSUPPORTED: any other image. */
gp_status gp_image_decode_index(gp_image_decoder *decoder, gp_pixels *out, const void *data, size_t bytes,
                                const char *name, gp_error *err);

/* gp_image_to_png -- pixels of three bytes, row by row from the top, as a PNG file in memory (freed with gp_free()). */
gp_status gp_image_to_png(uint8_t **file, size_t *bytes, const uint8_t *rgb, uint32_t width, uint32_t height,
                          gp_error *err);

/* gp_image_index_to_png -- the same of one byte a pixel, an index into colours of three bytes.
 *   indices  each below colour_count; at most 256 colours */
gp_status gp_image_index_to_png(uint8_t **file, size_t *bytes, const uint8_t *indices, const uint8_t *colours,
                                uint32_t colour_count, uint32_t width, uint32_t height, gp_error *err);

#endif
