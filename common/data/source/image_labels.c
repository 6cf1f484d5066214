/* Decode label images to classes. */
#include "common/data/source/image_store.h"

#include <string.h>

#include "common/base/memory/alloc.h"

void gp_pixel_labels_deinit(gp_pixel_labels *labels)
{
    gp_image_list_deinit(&labels->list);
    gp_free(labels->classes_path);
}

/* Convert stored numbers to classes. `in` and `out` may be the same memory. */
static gp_status labels_from_numbers(const gp_pixel_labels *labels, const gp_image_reader *r,
                                     const gp_pixels *in, uint8_t *out, gp_error *err)
{
    size_t count = (size_t)in->width * in->height;

    for (size_t i = 0; i < count; i++) {
        uint8_t value = in->data[i];

        if (value >= labels->value_count && value != GP_PIXEL_NONE)
            return gp_fail(err, GP_ECORRUPT,
                           "%s: the label of pixel %zu,%zu (row, column) is %u, but %s has %u lines (0 to "
                           "%u, and 255 for no class)",
                           r->name, i / in->width, i % in->width, value, labels->classes_path,
                           labels->value_count, labels->value_count - 1);
        out[i] = value == GP_PIXEL_NONE ? GP_PIXEL_NONE : labels->meaning[value];
    }
    return GP_OK;
}

/* Convert colours to classes. GP_ECORRUPT: a colour is not in the class file. GP_EUNSUPPORTED: the
 * class file has no colours. */
static gp_status labels_from_colours(const gp_pixel_labels *labels, const gp_image_reader *r,
                                     const gp_pixels *in, uint8_t *out, gp_error *err)
{
    size_t count = (size_t)in->width * in->height;
    uint32_t last = 0; /* class of the previous pixel: neighbours mostly agree */

    if (!labels->coloured)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s is a color label image; %s must state the color of each class, one "
                       "name,red,green,blue per line",
                       r->name, labels->classes_path);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *colour = in->data + 3 * i;

        if (memcmp(colour, labels->colours[last], 3) != 0) {
            for (last = 0; last < labels->value_count; last++)
                if (memcmp(colour, labels->colours[last], 3) == 0)
                    break;
            if (last == labels->value_count)
                return gp_fail(
                    err, GP_ECORRUPT,
                    "%s: the color of pixel %zu,%zu (row, column) is %u,%u,%u, which no class in %s has",
                    r->name, i / in->width, i % in->width, colour[0], colour[1], colour[2],
                    labels->classes_path);
        }
        out[i] = labels->meaning[last];
    }
    return GP_OK;
}

/* Decode the label image in r->file to classes, without resizing. */
static gp_status label_decode(const gp_pixel_labels *labels, gp_image_reader *r, size_t bytes,
                              gp_pixels *pixels, gp_error *err)
{
    gp_image_info info;
    gp_status status = gp_image_probe(r->decoder, &info, r->file, bytes, r->name, err);
    bool colour = status == GP_OK && info.channels == 3 && !info.palette;
    size_t count;

    if (status == GP_OK && colour && info.format == GP_IMAGE_PNG)
        status = gp_image_decode(r->decoder, pixels, &(gp_image_want){ .channels = 3 }, r->file, bytes,
                                 r->name, err);
    else if (status == GP_OK)
        status = gp_image_decode_index(r->decoder, pixels, r->file, bytes, r->name, err);
    if (status != GP_OK)
        return status;
    count = (size_t)pixels->width * pixels->height;
    status = gp_image_reader_room(r, &r->large, &r->large_bytes, count, err);
    if (status == GP_OK)
        status = colour ? labels_from_colours(labels, r, pixels, r->large, err)
                        : labels_from_numbers(labels, r, pixels, r->large, err);
    pixels->data = r->large;
    pixels->channels = 1;
    return status;
}

gp_status gp_pixel_labels_load(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t file_width, uint32_t file_height, gp_pixels *pixels, gp_error *err)
{
    size_t bytes;
    gp_status status = gp_image_reader_load(r, &labels->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = label_decode(labels, r, bytes, pixels, err);
    if (status == GP_OK && file_width != 0 && (pixels->width != file_width || pixels->height != file_height))
        status = gp_fail(err, GP_ECORRUPT,
                         "%s has %ux%u pixels (height x width), but the image that it labels has %ux%u",
                         r->name, pixels->height, pixels->width, file_height, file_width);
    return status;
}

gp_status gp_pixel_labels_read(const gp_pixel_labels *labels, gp_image_reader *r, uint32_t index,
                               uint32_t height, uint32_t width, uint32_t file_width, uint32_t file_height,
                               gp_error *err)
{
    gp_pixels pixels;
    gp_status status = gp_pixel_labels_load(labels, r, index, file_width, file_height, &pixels, err);

    if (status == GP_OK)
        gp_resample_nearest(r->label, height, width, &pixels);
    return status;
}
