/* Numbers and colours for classes in label images, and images overlaid with classes. */
#ifndef GP_PALETTE_H
#define GP_PALETTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_PALETTE_CLASSES_MAX = 254, GP_PALETTE_VALUES_MAX = 256, GP_PALETTE_NAME_MAX = 128 };

/* Mapping from classes to numbers and colours. */
typedef struct gp_palette {
    uint32_t class_count;
    uint8_t
        /* [class_count]: number that represents each class in a label image */
        value[GP_PALETTE_VALUES_MAX];
    /* The fields below are indexed by number. A number without a class has the name "", unless the
     * class file names it (void). */
    uint32_t value_count;
    uint8_t colours[GP_PALETTE_VALUES_MAX][3];
    char names[GP_PALETTE_VALUES_MAX][GP_PALETTE_NAME_MAX];
} gp_palette;

/* Create a palette in which class k has number k. Colours are those in the PASCAL VOC development
 * kit, starting at colour 1, so no class is black (Everingham et al., 2010). GP_ELIMIT: more than
 * GP_PALETTE_CLASSES_MAX classes. */
gp_status gp_palette_default(gp_palette *out, const char *const *class_names, uint32_t class_count,
                             gp_error *err);

/* Read numbers and colours from a class file, matching classes by name.
 *   path   class file, or a data directory with classes.csv (pixels.c)
 *   found  set to false, and *out is unchanged, if the directory has no class file
 * Without colours in the file, VOC colours are used. GP_EINVAL: the file lacks a class. */
gp_status gp_palette_read(gp_palette *out, bool *found, const char *path, const char *const *class_names,
                          uint32_t class_count, gp_error *err);

/* Format the class file that describes the images from gp_palette_label(). Free *text with
 * gp_free(). */
gp_status gp_palette_to_csv(const gp_palette *palette, char **text, gp_error *err);

/* Encode a [height, width] array of classes, each below class_count, as a PNG file with a palette.
 * Free *file with gp_free(). */
gp_status gp_palette_label(const gp_palette *palette, const int32_t *classes, uint32_t height, uint32_t width,
                           uint8_t **file, size_t *bytes, gp_error *err);

/* Encode an image overlaid with class colours as a PNG file. Free *file with gp_free().
 *   image    [channels, height, width], 1 or 3 channels
 *   opacity  0 (image only) to 1 (colours only) */
gp_status gp_palette_overlay(const gp_palette *palette, const int32_t *classes, const uint8_t *image,
                             uint32_t channels, uint32_t height, uint32_t width, double opacity,
                             uint8_t **file, size_t *bytes, gp_error *err);

#endif
