/* Read image samples: load the file, decode it, resize it, cache the result. */
#include "common/data/source/image_store.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "common/data/source/image_parts.h"
#include "common/data/source/objects.h"

enum { TOLD_MAX = 20 };

/* ---- cache ---- */

gp_pixels gp_image_kept_pixels(const gp_image_kept *kept)
{
    return (gp_pixels){ .data = kept->bytes,
                        .width = kept->width,
                        .height = kept->height,
                        .channels = kept->channels,
                        .file_width = kept->width,
                        .file_height = kept->height,
                        .scale = 1,
                        .format = (gp_image_format)kept->format };
}

void gp_image_keep(gp_image_store *images, uint32_t index, const gp_pixels *pixels, const uint8_t *label)
{
    size_t bytes = (size_t)pixels->width * pixels->height * pixels->channels;
    gp_image_kept *kept = gp_image_cache_begin(&images->cache, index, bytes + images->label_bytes);

    if (kept == NULL)
        return;
    kept->width = pixels->width;
    kept->height = pixels->height;
    kept->channels = pixels->channels;
    kept->format = pixels->format;
    memcpy(kept->bytes, pixels->data, bytes);
    if (label != NULL)
        memcpy(kept->bytes + bytes, label, images->label_bytes);
    gp_image_cache_end(&images->cache, index, kept);
}

/* ---- samples ---- */

gp_status gp_image_size_check(const gp_image_store *images, const char *name, const gp_image_info *seen,
                              gp_error *err)
{
    const gp_store_options *options = &images->options;
    const gp_store_info *info = &images->store.info;
    const bool exact = options->exact[1] != 0,
               resizes = !exact && (options->any_size || (options->height != 0 && options->width != 0));

    if (resizes || (seen->height == info->height && seen->width == info->width &&
                    (seen->channels <= info->channels || (!exact && options->channels != 0))))
        return GP_OK;
    return gp_fail(
        err, GP_EINVAL,
        "%s has %ux%ux%u values (channels x height x width), but the %s %ux%ux%u; resize the images "
        "with --image-size %u,%u",
        name, seen->channels, seen->height, seen->width, exact ? "network needs" : "other images have",
        info->channels, info->height, info->width, info->height, info->width);
}

/* Read a sample into `out`, and pixel labels, if any, into r->label. */
static gp_status sample_read(gp_image_store *images, gp_image_reader *r, uint32_t index, uint8_t *out,
                             gp_error *err)
{
    const gp_store_info *info = &images->store.info;
    const gp_image_kept *kept = gp_image_cache_get(&images->cache, index);
    gp_image_want want = { .channels = info->channels };
    gp_pixels pixels;
    size_t bytes;
    gp_status status;

    if (kept != NULL && images->native) {
        pixels = gp_image_kept_pixels(kept);
        return gp_resample(r->resampler, out, info->height, info->width, &pixels, err);
    }
    if (kept != NULL) {
        memcpy(out, kept->bytes, info->sample_bytes);
        memcpy(r->label, kept->bytes + info->sample_bytes, images->label_bytes);
        return GP_OK;
    }
    if (!images->native) {
        want.width = GP_IMAGE_SPARE * info->width;
        want.height = GP_IMAGE_SPARE * info->height;
    }
    status = gp_image_reader_load(r, &images->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
    if (status == GP_OK)
        status = gp_image_decode(r->decoder, &pixels, &want, r->file, bytes, r->name, err);
    if (status == GP_OK)
        status = gp_image_size_check(images, r->name,
                                     &(gp_image_info){ .width = pixels.file_width,
                                                       .height = pixels.file_height,
                                                       .channels = pixels.file_channels },
                                     err);
    if (status == GP_OK)
        status = gp_resample(r->resampler, out, info->height, info->width, &pixels, err);
    if (status == GP_OK && images->native)
        gp_image_keep(images, index, &pixels, NULL);
    if (status == GP_OK && images->labels != NULL)
        status = gp_pixel_labels_read(images->labels, r, index, info->height, info->width, pixels.file_width,
                                      pixels.file_height, err);
    if (status == GP_OK && !images->native) {
        pixels.data = out;
        pixels.width = info->width;
        pixels.height = info->height;
        gp_image_keep(images, index, &pixels, r->label);
    }
    return status;
}

bool gp_image_skip(gp_image_store *images, const gp_image_reader *r, uint32_t index, const gp_error *why)
{
    unsigned char bit = (unsigned char)(1u << index % 8);
    uint64_t before;

    if (images->options.on_error != GP_ON_ERROR_SKIP || why->code == GP_ENOMEM || r->unreachable)
        return false;
    if ((atomic_fetch_or(&images->store.bad[index / 8], bit) & bit) != 0)
        return true;
    before = atomic_fetch_add(&images->store.skipped, 1);
    if (before < GP_SKIPPED_NAMED_MAX)
        atomic_store(&images->store.skipped_first[before], index + 1);
    if (before < TOLD_MAX)
        gp_log(GP_LOG_WARN, "image-skipped", "skipped an unreadable image: %s", why->message);
    else if (before == TOLD_MAX)
        gp_log(GP_LOG_WARN, "image-skipped",
               "skipped more than %d images; further ones are counted but not logged", TOLD_MAX);
    return true;
}

/* Read a sample. If it is unreadable and must be skipped, return a black image without classes. */
static gp_status sample_read_or_skip(gp_image_store *images, gp_image_reader *r, uint32_t index, uint8_t *out,
                                     int32_t *target, gp_error *err)
{
    const gp_store_info *info = &images->store.info;
    gp_error own = { GP_OK, "" };
    gp_status status = GP_OK;
    bool skipped;

    if (out != NULL)
        status = sample_read(images, r, index, out, &own);
    else if (images->labels != NULL)
        status = gp_pixel_labels_read(images->labels, r, index, info->height, info->width, 0, 0, &own);
    skipped = status != GP_OK && gp_image_skip(images, r, index, &own);
    if (status != GP_OK && !skipped) {
        if (err != NULL)
            *err = own;
        return status;
    }
    if (skipped) {
        if (out != NULL)
            memset(out, 0, info->sample_bytes);
        memset(r->label, GP_PIXEL_NONE, images->label_bytes);
    }
    if (target != NULL && images->labels == NULL)
        *target = skipped ? -1 : images->list.labels[index];
    for (size_t i = 0; target != NULL && i < images->label_bytes; i++)
        target[i] = r->label[i] == GP_PIXEL_NONE ? -1 : r->label[i];
    return GP_OK;
}

/* Announce images and label images that are not cached.
 *   samples  the images are needed too, not only their label images */
static void images_expect(const gp_image_store *images, const uint32_t *index, uint32_t count, bool samples)
{
    for (uint32_t i = 0; images->list.objects != NULL && i < count; i++) {
        if (gp_image_cache_get(&images->cache, index[i]) != NULL)
            continue;
        if (samples)
            gp_objects_want(images->list.objects, &index[i], 1);
        if (images->labels != NULL)
            gp_objects_want(images->labels->list.objects, &index[i], 1);
    }
}

static void image_expect(const gp_store *store, const uint32_t *index, uint32_t count)
{
    images_expect((const gp_image_store *)store, index, count, true);
}

/* Read samples and targets. Announce them first, so that remote images arrive in parallel. */
static gp_status image_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                            void *targets, gp_error *err)
{
    /* Only readers and cache change, not the data, so the const cast is safe. */
    gp_image_store *images = (gp_image_store *)(uintptr_t)store;
    gp_image_reader *r;
    gp_status status = gp_image_reader_take(&images->readers, images->label_bytes, &r, err);

    if (status != GP_OK)
        return status;
    if (samples == NULL || count > 1)
        images_expect(images, index, count, samples != NULL);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        status = sample_read_or_skip(
            images, r, index[i], samples == NULL ? NULL : (uint8_t *)samples + i * store->info.sample_bytes,
            targets == NULL ? NULL : (int32_t *)(void *)((uint8_t *)targets + i * store->info.target_bytes),
            err);
    gp_image_reader_give(&images->readers, r);
    return status;
}

/* ---- samples at individual size ---- */

/* Compute the size to which an image is resized. GP_ELIMIT: it would exceed GP_IMAGE_PIXELS_MAX. */
static gp_status whole_size(const gp_whole_size *size, const char *name, gp_whole *whole, gp_error *err)
{
    const double height = whole->height, width = whole->width;

    whole->read_height = size->height != 0 ? size->height : whole->height;
    whole->read_width = size->width != 0 ? size->width : whole->width;
    if (!size->cover)
        return GP_OK;
    const double scale = fmax(size->height / height, size->width / width), tall = rint(scale * height),
                 wide = rint(scale * width);

    if (tall * wide > GP_IMAGE_PIXELS_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "%s has %ux%u pixels (height x width); scaling it to %.0fx%.0f pixels to cover %ux%u "
                       "exceeds the limit of %d million; use --image-fit resize",
                       name, whole->height, whole->width, tall, wide, size->height, size->width,
                       GP_IMAGE_PIXELS_MAX >> 20);
    whole->read_height = tall > size->height ? (uint32_t)tall : size->height;
    whole->read_width = wide > size->width ? (uint32_t)wide : size->width;
    return GP_OK;
}

/* Decode one image and its label image at an individual size. */
static gp_status whole_decode(const gp_image_store *images, gp_image_reader *r, uint32_t index,
                              const gp_whole_size *size, gp_whole *whole, gp_error *err)
{
    const uint32_t channels = images->store.info.channels;
    const gp_image_want want = { .channels = channels,
                                 .width = GP_IMAGE_SPARE * size->width,
                                 .height = GP_IMAGE_SPARE * size->height };
    gp_pixels pixels;
    size_t bytes;
    gp_status status = gp_image_reader_load(r, &images->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = gp_image_decode(r->decoder, &pixels, &want, r->file, bytes, r->name, err);
    if (status != GP_OK)
        return status;
    whole->height = pixels.file_height;
    whole->width = pixels.file_width;
    const size_t count = (size_t)whole->height * whole->width;

    status = whole_size(size, r->name, whole, err);
    if (status == GP_OK)
        status = gp_whole_reserve(whole, (size_t)channels * whole->read_height * whole->read_width,
                                  images->labels == NULL ? 0 : count * sizeof(int32_t), err);
    if (status == GP_OK)
        status =
            gp_resample(r->resampler, whole->sample, whole->read_height, whole->read_width, &pixels, err);
    if (status == GP_OK && images->labels != NULL)
        status = gp_pixel_labels_load(images->labels, r, index, whole->width, whole->height, &pixels, err);
    for (size_t i = 0; status == GP_OK && images->labels != NULL && i < count; i++)
        whole->labels[i] = pixels.data[i] == GP_PIXEL_NONE ? -1 : pixels.data[i];
    return status;
}

static gp_status image_read_whole(const gp_store *store, uint32_t index, const gp_whole_size *size,
                                  gp_whole *whole, gp_error *err)
{
    gp_image_store *images = (gp_image_store *)(uintptr_t)store; /* only the readers change */
    gp_error own = { GP_OK, "" };
    gp_image_reader *r;
    gp_status status = gp_image_reader_take(&images->readers, images->label_bytes, &r, err);

    if (status != GP_OK)
        return status;
    status = whole_decode(images, r, index, size, whole, &own);
    if (status != GP_OK) {
        /* counted and logged; the caller asks gp_store_is_skipped() */
        gp_image_skip(images, r, index, &own);
        if (err != NULL)
            *err = own;
    }
    gp_image_reader_give(&images->readers, r);
    return status;
}

static void image_name(const gp_store *store, uint32_t index, char *text, size_t bytes)
{
    const gp_image_store *images = (const gp_image_store *)store;
    const char *root = store->info.source;
    size_t length = strlen(root);
    char path[2 * PATH_MAX];

    gp_image_list_path(&images->list, index, path, sizeof(path));
    snprintf(text, bytes, "%s",
             strncmp(path, root, length) == 0 && path[length] == '/' ? path + length + 1 : path);
}

static void image_close(gp_store *store)
{
    gp_image_store *images = (gp_image_store *)store;

    gp_image_readers_deinit(&images->readers);
    gp_image_cache_deinit(&images->cache);
    gp_image_list_deinit(&images->list);
    if (images->labels != NULL)
        gp_pixel_labels_deinit(images->labels);
    gp_free(images->labels);
    gp_store_deinit(store);
    gp_free(images);
}

const gp_store_ops gp_image_store_ops = { .read = image_read,
                                          .read_whole = image_read_whole,
                                          .close = image_close,
                                          .name = image_name,
                                          .expect = image_expect,
                                          .draws = gp_image_draws,
                                          .read_drawn = gp_image_read_drawn };
