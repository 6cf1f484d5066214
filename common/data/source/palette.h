/* palette.h -- numbers and colours of classes in label images, and pictures with classes laid over them. */
#ifndef GP_PALETTE_H
#define GP_PALETTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_PALETTE_CLASSES_MAX = 254, GP_PALETTE_VALUES_MAX = 256, GP_PALETTE_NAME_MAX = 128 };

typedef struct gp_palette {
    uint32_t class_count;
    uint8_t
        value[GP_PALETTE_VALUES_MAX]; /* [class_count]: the number that stands for a class in a label image */
    /* By number.  Names are those of the class file; a number that is no class's has "" unless the file names it (void). */
    uint32_t value_count;
    uint8_t colours[GP_PALETTE_VALUES_MAX][3];
    char names[GP_PALETTE_VALUES_MAX][GP_PALETTE_NAME_MAX];
} gp_palette;

/* gp_palette_default -- a class's number is its place; colours are those of the PASCAL VOC development kit from 1 on, where
 * nothing is black (Everingham et al., 2010).
 * GP_ELIMIT: more than GP_PALETTE_CLASSES_MAX classes. */
gp_status gp_palette_default(gp_palette *out, const char *const *class_names, uint32_t class_count,
                             gp_error *err);

/* gp_palette_read -- the numbers and colours of a class file, by the names of the classes.
 *   path  the file, or a data set's directory with classes.csv (pixels.c); *found false and *out untouched: no such file in it
 * A file without colours gives those of above.  GP_EINVAL: a class that the file does not name. */
gp_status gp_palette_read(gp_palette *out, bool *found, const char *path, const char *const *class_names,
                          uint32_t class_count, gp_error *err);

/* gp_palette_to_csv -- the class file of what gp_palette_label() writes; freed with gp_free(). */
gp_status gp_palette_to_csv(const gp_palette *palette, char **text, gp_error *err);

/* gp_palette_label -- [height, width] classes as a PNG file with a palette, freed with gp_free().
 *   classes  each below class_count */
gp_status gp_palette_label(const gp_palette *palette, const int32_t *classes, uint32_t height, uint32_t width,
                           uint8_t **file, size_t *bytes, gp_error *err);

/* gp_palette_overlay -- an image with its classes' colours over it, as a PNG file.
 *   image    [channels, height, width], 1 or 3 channels
 *   opacity  of the colours, 0 to 1 */
gp_status gp_palette_overlay(const gp_palette *palette, const int32_t *classes, const uint8_t *image,
                             uint32_t channels, uint32_t height, uint32_t width, double opacity,
                             uint8_t **file, size_t *bytes, gp_error *err);

#endif
