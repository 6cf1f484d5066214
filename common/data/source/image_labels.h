/* Label images: one class for each pixel of the image they belong to. */
#ifndef GP_IMAGE_LABELS_H
#define GP_IMAGE_LABELS_H

#include "common/data/source/image_reader.h"

enum { GP_PIXEL_NONE = 255, GP_PIXEL_CLASSES_MAX = 254, GP_PIXEL_COLOURS_MAX = 256 };

/* Label images, one for each image in a list, and the meaning of their values: a class, or
 * GP_PIXEL_NONE. */
typedef struct gp_pixel_labels {
    gp_image_list list; /* label images in the order of the images */
    uint32_t value_count;
    /* class for each stored number below value_count; 255 is always GP_PIXEL_NONE */
    uint8_t meaning[256];
    /* colour for each number, for label images in colour */
    uint8_t colours[GP_PIXEL_COLOURS_MAX][3];
    bool coloured;
    const char *classes_path; /* class file, for messages; "": built-in classes */
    char *owned;              /* memory behind classes_path; freed with the labels */
} gp_pixel_labels;

void gp_pixel_labels_deinit(gp_pixel_labels *labels);

/* Decode label image `index` to classes, without resizing. The pixels belong to the reader.
 *   file_width, file_height  required size, that of the labelled image; 0: any */
gp_status gp_pixel_labels_load(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t file_width, uint32_t file_height, gp_pixels *pixels, gp_error *err);

/* Decode label image `index` and resize it to height x width, into r->label. */
gp_status gp_pixel_labels_read(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t height, uint32_t width, uint32_t file_width, uint32_t file_height,
                               gp_error *err);

#endif
