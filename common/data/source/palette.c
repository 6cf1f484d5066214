/* Convert predicted classes to label images and overlays, and write class files. */
#include "common/data/source/palette.h"

#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/data/image/image.h"
#include "common/data/source/image_store.h"

/* Compute VOC colour n: bits 0, 1 and 2 of n are the top bits of red, green and blue, the next
 * three bits come below them, and so on. */
static void voc_colour(uint8_t colour[3], uint32_t n)
{
    memset(colour, 0, 3);
    for (int bit = 7; bit >= 0; bit--, n >>= 3)
        for (int c = 0; c < 3; c++)
            colour[c] |= (uint8_t)((n >> c & 1) << bit);
}

static gp_status classes_check(uint32_t class_count, gp_error *err)
{
    return class_count >= 1 && class_count <= GP_PALETTE_CLASSES_MAX
               ? GP_OK
               : gp_fail(err, GP_ELIMIT, "%u classes exceed the limit of a label image, %d", class_count,
                         GP_PALETTE_CLASSES_MAX);
}

gp_status gp_palette_default(gp_palette *out, const char *const *class_names, uint32_t class_count,
                             gp_error *err)
{
    gp_status status = classes_check(class_count, err);

    if (status != GP_OK)
        return status;
    memset(out, 0, sizeof(*out));
    out->class_count = out->value_count = class_count;
    for (uint32_t k = 0; k < class_count; k++) {
        out->value[k] = (uint8_t)k;
        voc_colour(out->colours[k], k + 1);
        snprintf(out->names[k], GP_PALETTE_NAME_MAX, "%s", class_names[k]);
    }
    return GP_OK;
}

/* Assign the numbers and colours from a class file, whose classes are in `list`, to the model's
 * classes. */
static gp_status palette_match(gp_palette *out, const gp_pixel_labels *labels, const gp_image_list *list,
                               const char *const *class_names, uint32_t class_count, gp_error *err)
{
    int32_t found;

    memset(out, 0, sizeof(*out));
    out->class_count = class_count;
    out->value_count = labels->value_count;
    for (uint32_t v = 0; v < labels->value_count; v++) {
        const uint8_t class = labels->meaning[v];

        snprintf(out->names[v], GP_PALETTE_NAME_MAX, "%s",
                 class == GP_PIXEL_NONE ? "void" : gp_image_list_class(list, class));
        if (labels->coloured)
            memcpy(out->colours[v], labels->colours[v], 3);
        else if (class != GP_PIXEL_NONE)
            voc_colour(out->colours[v], class + 1u);
    }
    for (uint32_t k = 0; k < class_count; k++) {
        found = gp_image_list_find_class(list, class_names[k]);
        if (found < 0)
            return gp_fail(err, GP_EINVAL, "%s lacks the class '%.60s' of the model", labels->classes_path,
                           class_names[k]);
        for (uint32_t v = 0; v < labels->value_count; v++)
            if (labels->meaning[v] == (uint8_t)found)
                out->value[k] = (uint8_t)v;
    }
    return GP_OK;
}

gp_status gp_palette_read(gp_palette *out, bool *found, const char *path, const char *const *class_names,
                          uint32_t class_count, gp_error *err)
{
    gp_pixel_labels labels = { 0 };
    gp_image_list list;
    gp_status status = classes_check(class_count, err);

    *found = false;
    if (status != GP_OK)
        return status;
    gp_image_list_init(&list);
    gp_image_list_init(&labels.list);
    status = gp_pixels_classes(&labels, &list, path, err);
    if (status == GP_OK) {
        *found = true;
        status = palette_match(out, &labels, &list, class_names, class_count, err);
    } else if (status == GP_ENOENT) {
        status = GP_OK;
    }
    gp_image_list_deinit(&list);
    gp_pixel_labels_deinit(&labels);
    return status;
}

gp_status gp_palette_to_csv(const gp_palette *palette, char **text, gp_error *err)
{
    gp_status status;
    gp_buffer lines;
    size_t bytes;

    gp_buffer_init(&lines, 1 << 20);
    status = gp_buffer_append(&lines, "name,r,g,b\n", 11, err);
    for (uint32_t v = 0; v < palette->value_count && status == GP_OK; v++) {
        const uint8_t *colour = palette->colours[v];

        status = gp_buffer_csv_field(&lines, palette->names[v], err);
        if (status == GP_OK)
            status = gp_buffer_printf(&lines, err, ",%u,%u,%u\n", colour[0], colour[1], colour[2]);
    }
    if (status == GP_OK)
        *text = (char *)gp_buffer_take(&lines, &bytes);
    gp_buffer_deinit(&lines);
    return status;
}

gp_status gp_palette_label(const gp_palette *palette, const int32_t *classes, uint32_t height, uint32_t width,
                           uint8_t **file, size_t *bytes, gp_error *err)
{
    const size_t count = (size_t)height * width;
    uint8_t *values = gp_malloc(count);
    gp_status status;

    if (values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a label image of %ux%u", height, width);
    for (size_t i = 0; i < count; i++)
        values[i] = palette->value[classes[i]];
    status = gp_image_index_to_png(file, bytes, values, palette->colours[0], palette->value_count, width,
                                   height, err);
    gp_free(values);
    return status;
}

gp_status gp_palette_overlay(const gp_palette *palette, const int32_t *classes, const uint8_t *image,
                             uint32_t channels, uint32_t height, uint32_t width, double opacity,
                             uint8_t **file, size_t *bytes, gp_error *err)
{
    const size_t plane = (size_t)height * width;
    const uint32_t share = (uint32_t)(opacity * 256 + 0.5); /* in units of 1/256 */
    uint8_t *rgb = gp_malloc(3 * plane);
    gp_status status;

    if (rgb == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an image of %ux%u", height, width);
    for (size_t i = 0; i < plane; i++) {
        const uint8_t *colour = palette->colours[palette->value[classes[i]]];

        for (uint32_t c = 0; c < 3; c++) {
            const uint32_t stored = image[(channels == 3 ? c : 0) * plane + i];

            rgb[3 * i + c] = (uint8_t)((stored * (256 - share) + colour[c] * share + 128) / 256);
        }
    }
    status = gp_image_to_png(file, bytes, rgb, width, height, err);
    gp_free(rgb);
    return status;
}
