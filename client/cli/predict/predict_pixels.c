/* Write predicted pixel classes as label images and overlays. */
#include "client/cli/predict/predict_pixels.h"

#include <inttypes.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/memory/hash.h"
#include "common/data/s3/s3_source.h"
#include "common/data/source/image_store.h"

/* ---- names ---- */

static int hash_compare(const void *a, const void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* Reserve a file name. GP_EINVAL: another image has the same name without extension. For example,
 * a.jpg and a.png would both be written to a.png. */
static gp_status name_take(pixels_sink *sink, const char *stem, gp_error *err)
{
    const void *hash = (const void *)(uintptr_t)gp_hash_add(GP_HASH_BEGIN, stem, strlen(stem));

    if (tfind(hash, &sink->written, hash_compare) != NULL)
        return gp_fail(err, GP_EINVAL,
                       "two images have the name %s and different suffixes, so their outputs would have the "
                       "same name; rename one of them",
                       stem);
    return tsearch(hash, &sink->written, hash_compare) != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for the names of images");
}

static void hash_free(void *hash)
{
    (void)hash; /* the tree stores the number itself */
}

/* ---- files ---- */

/* Write DIRECTORY/NAME atomically; create missing folders. */
static gp_status file_write(const char *directory, const char *name, const char *ending, const void *data,
                            size_t bytes, gp_error *err)
{
    char path[2 * PATH_MAX];

    if ((size_t)snprintf(path, sizeof(path), "%s/%s%s", directory, name, ending) >= PATH_MAX)
        return gp_fail(err, GP_ELIMIT, "the path %.200s.../%.100s is too long", directory, name);
    gp_status status = gp_directory_make_above(path, 0777, err);

    return status == GP_OK ? gp_file_write(path, data, bytes, err) : status;
}

/* ---- colours ---- */

/* Choose the colors: from --class-file, or else from the source if the class names match, or else
 * the default palette. */
static gp_status palette_choose(pixels_sink *sink, const gp_prediction *p, gp_error *err)
{
    const pixels_request *request = &sink->request;
    gp_palette *palette = gp_malloc(sizeof(*palette));
    char path[PATH_MAX];
    bool found = false;
    gp_status status = GP_OK;

    if (palette == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for colours");
    sink->palette = palette;
    if (request->class_file[0] != '\0') {
        status = gp_palette_read(palette, &found, request->class_file, p->class_names, p->classes, err);
        if (status == GP_OK && !found)
            status = gp_fail(err, GP_ENOENT, "%s has no class file", request->class_file);
        return status;
    }
    const bool direct = gp_s3_is(request->data) || gp_tar_is_file(request->data);
    const bool there = direct || gp_store_find(path, sizeof(path), request->data, NULL) == GP_OK;

    if (there && gp_palette_read(palette, &found, direct ? request->data : path, p->class_names, p->classes,
                                 NULL) != GP_OK)
        found = false;
    return found ? GP_OK : gp_palette_default(palette, p->class_names, p->classes, err);
}

/* ---- images ---- */

/* Write the original image with colored classes. The image is read again on this host, so the size
 * can differ if the file has changed. */
static gp_status overlay_write(pixels_sink *sink, const gp_prediction *p, const char *stem, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(sink->store);
    gp_whole *image = &sink->image;
    uint8_t *png;
    size_t bytes;
    gp_status status =
        gp_store_read_whole(sink->store, (uint32_t)p->index, &(gp_whole_size){ 0 }, image, err);

    if (status == GP_OK &&
        (image->height != p->dims[1] || image->width != p->dims[2] || info->dtype != GP_U8))
        status = gp_fail(err, GP_EINVAL,
                         "%s is %" PRIu32 "x%" PRIu32 " here and %" PRIu64 "x%" PRIu64 " on the workers",
                         p->name, image->height, image->width, p->dims[1], p->dims[2]);
    if (status == GP_OK)
        status = gp_palette_overlay(sink->palette, p->pixels, image->sample, info->channels, image->height,
                                    image->width, sink->request.opacity, &png, &bytes, err);
    if (status != GP_OK)
        return status;
    status = file_write(sink->request.overlays, stem, ".png", png, bytes, err);
    gp_free(png);
    return status;
}

bool pixels_add(void *context, const gp_prediction *p)
{
    pixels_sink *sink = context;
    gp_error seen, *err = &seen;
    char stem[PATH_MAX], *dot, *classes = NULL;
    uint8_t *png;
    size_t bytes;
    gp_status status = GP_OK;

    if (p->pixels == NULL || p->rank != 3)
        status = gp_fail(err, GP_EINVAL,
                         "the model has no class for each pixel, so there are no label images; use --out "
                         "FILE.csv, FILE.jsonl or FILE.npy");
    if (status == GP_OK && sink->palette == NULL) {
        status = palette_choose(sink, p, err);
        /* classes.csv maps the numbers in label images to classes */
        if (status == GP_OK && sink->request.labels[0] != '\0')
            status = gp_palette_to_csv(sink->palette, &classes, err);
        if (status == GP_OK && classes != NULL)
            status = file_write(sink->request.labels, "classes", ".csv", classes, strlen(classes), err);
        gp_free(classes);
    }
    /* The output name: the image name relative to the source, without extension. With ".." in it
     * the file would be outside the output folder. */
    const char *name = p->name + strspn(p->name, "/");

    snprintf(stem, sizeof(stem), "%s", name);
    dot = strrchr(stem, '.');
    if (dot != NULL && dot != stem && strchr(dot, '/') == NULL)
        *dot = '\0';
    if (status == GP_OK &&
        (strcmp(name, "..") == 0 || strncmp(name, "../", 3) == 0 || strstr(name, "/../") != NULL))
        status = gp_fail(err, GP_EINVAL,
                         "the name of image %s has '..', so its output would be outside the folder", name);
    if (status == GP_OK)
        status = name_take(sink, stem, err);
    if (status == GP_OK && sink->request.labels[0] != '\0') {
        status = gp_palette_label(sink->palette, p->pixels, (uint32_t)p->dims[1], (uint32_t)p->dims[2], &png,
                                  &bytes, err);
        if (status == GP_OK) {
            status = file_write(sink->request.labels, stem, ".png", png, bytes, err);
            gp_free(png);
        }
    }
    if (status == GP_OK && sink->request.overlays[0] != '\0')
        status = overlay_write(sink, p, stem, err);
    if (status != GP_OK)
        sink->error = seen;
    return status == GP_OK;
}

gp_status pixels_open(pixels_sink *out, const pixels_request *request, gp_error *err)
{
    *out = (pixels_sink){ .request = *request };
    if (request->overlays[0] == '\0')
        return GP_OK;
    return gp_store_open_with(
        &out->store, request->data, GP_DATA_GIVEN,
        &(gp_store_options){ .any_size = true, .cache_bytes = 1, .on_error = request->on_error }, err);
}

gp_status pixels_close(pixels_sink *sink, gp_status status, gp_error *err)
{
    if (sink->error.code != GP_OK) {
        *err = sink->error;
        status = err->code;
    }
    gp_store_close(sink->store);
    gp_whole_deinit(&sink->image);
    gp_free(sink->palette);
    tdestroy(sink->written, hash_free);
    return status;
}
