/* image_labels.h -- label images: a class for each pixel of an image beside it. */
#ifndef GP_IMAGE_LABELS_H
#define GP_IMAGE_LABELS_H

#include "common/data/source/image_reader.h"

enum { GP_PIXEL_NONE = 255, GP_PIXEL_CLASSES_MAX = 254, GP_PIXEL_COLOURS_MAX = 256 };

/* Label images, one for each image of a list, and what their values mean: a class, or GP_PIXEL_NONE. */
typedef struct gp_pixel_labels {
    gp_image_list list; /* of label images, in the order of the images */
    uint32_t value_count;
    uint8_t meaning[256];                     /* of stored numbers below value_count; 255 always means none */
    uint8_t colours[GP_PIXEL_COLOURS_MAX][3]; /* of those numbers, for label images in colour */
    bool coloured;
    const char *classes_path; /* for errors; "" : built in */
    char *owned;              /* frees with the labels */
} gp_pixel_labels;

void gp_pixel_labels_deinit(gp_pixel_labels *labels);

/* gp_pixel_labels_load -- label image `index` as classes at its own size; pixels are the reader's.
 *   file_width, file_height  of the image that it labels, which it has to have; 0: no matter */
gp_status gp_pixel_labels_load(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t file_width, uint32_t file_height, gp_pixels *pixels, gp_error *err);

/* gp_pixel_labels_read -- the same of height x width, into r->label. */
gp_status gp_pixel_labels_read(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t height, uint32_t width, uint32_t file_width, uint32_t file_height,
                               gp_error *err);

#endif
