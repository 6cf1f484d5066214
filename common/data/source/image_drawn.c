/* Read augmented image windows directly into a batch: draw the window first, in file pixels, then
 * decode only the pixels it needs.
 *
 * The window is rounded to whole pixels, as if it were cut out. A JPEG is decoded at 1/2, 1/4 or
 * 1/8 if the window is then still GP_IMAGE_SPARE times as large as the output. The result depends
 * only on the file and the draw. A cached image can therefore serve only windows that are decoded
 * at full size; other windows are decoded from the file. */
#include <math.h>
#include <string.h>

#include "common/data/source/image_parts.h"

bool gp_image_draws(const gp_store *store, const gp_augment *augment)
{
    const gp_image_store *images = (const gp_image_store *)store;

    return images->native && gp_augment_is_window(augment);
}

/* Round one dimension of the window to whole pixels, within the image, at least one pixel wide. */
static void side_round(double low, double high, uint32_t size, uint32_t *begin, uint32_t *end)
{
    double first = rint(fmin(low, high)), last = rint(fmax(low, high));

    *begin = first < 0 ? 0 : first > size - 1 ? size - 1 : (uint32_t)first;
    *end = last < *begin + 1.0 ? *begin + 1 : last > size ? size : (uint32_t)last;
}

/* Resample the window into the batch. Colours are changed while pixels are bytes, before the final
 * format. */
static gp_status drawn_put(const gp_drawing *drawing, gp_image_reader *r, const gp_augment_draw *draw,
                           const gp_pixels *pixels, const gp_image_part *part, void *sample, gp_error *err)
{
    const gp_store_info *shape = drawing->shape;
    const double scale = pixels->scale;
    const gp_pixel_window window = { .left = part->left / scale - pixels->left,
                                     .top = part->top / scale - pixels->top,
                                     .right = fmin(part->right / scale - pixels->left, pixels->width),
                                     .bottom = fmin(part->bottom / scale - pixels->top, pixels->height) };
    gp_pixel_out out = { .data = sample,
                         .height = shape->height,
                         .width = shape->width,
                         .form = drawing->form,
                         .scale = shape->scale,
                         .offset = shape->offset,
                         .mirror_x = draw->a[0][0] < 0,
                         .mirror_y = draw->a[1][1] < 0 };
    gp_status status = GP_OK;

    if (draw->recolor && drawing->form != GP_PIXELS_PLANES) {
        status = gp_image_reader_room(r, &r->planes, &r->plane_bytes, shape->sample_bytes, err);
        out.data = r->planes;
    }
    if (draw->recolor)
        out.form = GP_PIXELS_PLANES;
    if (status == GP_OK)
        status = gp_resample_window(r->resampler, &out, pixels, &window, err);
    if (status != GP_OK || !draw->recolor)
        return status;
    gp_augment_recolor(draw, shape, out.data);
    if (drawing->form != GP_PIXELS_PLANES)
        gp_pixels_form(sample, drawing->form, out.data, shape->channels, (size_t)shape->height * shape->width,
                       shape->scale, shape->offset);
    return GP_OK;
}

/* Read one augmented sample, from the cache if the window is at full size, else from the file. */
static gp_status drawn_read(gp_image_store *images, gp_image_reader *r, const gp_drawing *drawing,
                            uint32_t epoch, uint32_t sample, void *out, gp_error *err)
{
    const uint32_t index = sample / (uint32_t)drawing->augment->patches_per_image;
    const gp_image_kept *kept = gp_image_cache_get(&images->cache, index);
    gp_image_want want = { .channels = images->store.info.channels,
                           .width = GP_IMAGE_SPARE * drawing->shape->width,
                           .height = GP_IMAGE_SPARE * drawing->shape->height };
    gp_image_info image = { 0 };
    gp_augment_draw draw;
    gp_pixels pixels;
    size_t bytes = 0;
    gp_status status = GP_OK;

    if (kept != NULL) {
        pixels = gp_image_kept_pixels(kept);
        image = (gp_image_info){ .format = pixels.format, .width = pixels.width, .height = pixels.height };
    } else {
        status = gp_image_reader_load(r, &images->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
        if (status == GP_OK)
            status = gp_image_probe(r->decoder, &image, r->file, bytes, r->name, err);
        if (status == GP_OK)
            status = gp_image_size_check(images, r->name, &image, err);
    }
    if (status != GP_OK)
        return status;
    gp_augment_draw_window(&draw, drawing, image.width, image.height, epoch, sample);
    side_round(draw.a[0][2], draw.a[0][0] * drawing->shape->width + draw.a[0][2], image.width,
               &want.part.left, &want.part.right);
    side_round(draw.a[1][2], draw.a[1][1] * drawing->shape->height + draw.a[1][2], image.height,
               &want.part.top, &want.part.bottom);
    if (kept != NULL && gp_image_scale(&want, &image) > 1) {
        status = gp_image_reader_load(r, &images->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
        kept = NULL;
    }
    if (status == GP_OK && kept == NULL) {
        /* Decode the whole image at full size if the cache has room for it, else only the part. */
        const bool whole =
            gp_image_scale(&want, &image) == 1 &&
            gp_image_cache_has_room(&images->cache, (size_t)image.width * image.height * want.channels);
        const gp_image_want all = { .channels = want.channels };

        status = gp_image_decode(r->decoder, &pixels, whole ? &all : &want, r->file, bytes, r->name, err);
        if (status == GP_OK && whole)
            gp_image_keep(images, index, &pixels, NULL);
    }
    return status == GP_OK ? drawn_put(drawing, r, &draw, &pixels, &want.part, out, err) : status;
}

gp_status gp_image_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err)
{
    gp_image_store *images = (gp_image_store *)(uintptr_t)store;
    const uint32_t patches = (uint32_t)drawing->augment->patches_per_image;
    gp_error own = { GP_OK, "" };
    gp_image_reader *r;
    gp_status status = gp_image_reader_take(&images->readers, 0, &r, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < count && images->list.objects != NULL; i++)
        gp_store_expect(store, &(uint32_t){ index[i] / patches }, 1);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        uint8_t *sample = (uint8_t *)samples + i * drawing->sample_bytes;
        bool skipped;

        status = drawn_read(images, r, drawing, epoch, index[i], sample, &own);
        skipped = status != GP_OK && gp_image_skip(images, r, index[i] / patches, &own);
        if (skipped) {
            memset(sample, 0, drawing->sample_bytes);
            status = GP_OK;
        }
        if (status == GP_OK)
            ((int32_t *)targets)[i] = skipped ? -1 : images->list.labels[index[i] / patches];
    }
    if (status != GP_OK && err != NULL)
        *err = own;
    gp_image_reader_give(&images->readers, r);
    return status;
}
