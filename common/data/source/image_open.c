/* Open a store over a list of images: inspect some of them, determine the sample shape, set up the
 * cache. */

#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/source/image_parts.h"
#include "common/data/source/objects.h"

enum { HEAD_BYTES = 64 << 10 };
enum { EXACT_PROBES = 64 }; /* gp_store_seal() reads the same ones */

/* Read an image header from the start of the file. If a large profile precedes it, read the whole
 * file. */
static gp_status image_inspect(gp_image_store *images, gp_image_reader *r, uint32_t index,
                               gp_image_info *info, gp_error *err)
{
    size_t bytes;
    gp_status status = gp_image_reader_load(r, &images->list, index, HEAD_BYTES, &bytes, err);

    if (status == GP_OK)
        status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    if (status == GP_ECORRUPT && bytes == HEAD_BYTES) {
        status = gp_image_reader_load(r, &images->list, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
        if (status == GP_OK)
            status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    }
    return status;
}

/* Compare an inspected image with options.exact (grey is accepted where colour is required) and
 * with the size of image `first`, or take over its size and channels. sizes, channels  the
 * caller gave none, so the images determine them */
static gp_status shape_take(const gp_image_store *images, gp_store_info *info, uint32_t *first,
                            uint32_t index, const gp_image_info *seen, bool sizes, bool channels,
                            gp_error *err)
{
    const uint32_t *exact = images->options.exact;
    const char *source = images->store.info.source;
    char one[80], other[80];

    if (exact[1] != 0 && (seen->height != exact[1] || seen->width != exact[2] || seen->channels > exact[0]))
        return gp_fail(err, GP_EINVAL,
                       "image %s of %.100s has %ux%ux%u values (channels x height x width), but the network "
                       "needs %ux%ux%u; resize the images with --image-size %u,%u, or with predict and "
                       "evaluate use --image-fit resize or crop",
                       gp_store_name(&images->store, index, one, sizeof(one)), source, seen->channels,
                       seen->height, seen->width, exact[0], exact[1], exact[2], exact[1], exact[2]);
    if (channels && seen->channels > info->channels)
        info->channels = seen->channels;
    if (!sizes || (seen->height == info->height && seen->width == info->width))
        return GP_OK;
    if (info->height == 0) {
        info->height = seen->height;
        info->width = seen->width;
        *first = index;
        return GP_OK;
    }
    info->sizes_differ = true;
    return images->options.any_size
               ? GP_OK
               : gp_fail(err, GP_EINVAL,
                         "the images of %s have several sizes: %s has %ux%u pixels (height x width), %s has "
                         "%ux%u; resize them, for example with --image-size 224,224",
                         source, gp_store_name(&images->store, *first, one, sizeof(one)), info->height,
                         info->width, gp_store_name(&images->store, index, other, sizeof(other)),
                         seen->height, seen->width);
}

/* Inspect evenly spaced images: check them against options.exact, and determine size and channels
 * unless the caller gave them. If both are given, unreadable images are reported later, when they
 * are read. */
static gp_status shape_decide(gp_image_store *images, gp_store_info *info, gp_error *err)
{
    const bool sizes = info->height == 0 || info->width == 0, channels = info->channels == 0;
    const bool given = !sizes && !channels;
    const uint32_t count = images->list.count, most = given                          ? EXACT_PROBES
                                                      : images->list.objects == NULL ? GP_IMAGE_PROBES
                                                                                     : GP_IMAGE_OBJECT_PROBES;
    const uint32_t looked = count < most ? count : most;
    uint32_t first = 0;
    gp_error own = { GP_OK, "" };
    gp_image_reader *r;

    if (given && images->options.exact[1] == 0)
        return GP_OK;
    gp_status status = gp_image_reader_take(&images->readers, 0, &r, err);

    if (status != GP_OK)
        return status;
    info->height = sizes ? 0 : info->height;
    for (uint32_t i = 0; images->list.objects != NULL && i < looked; i++)
        gp_objects_want(images->list.objects, &(uint32_t){ (uint32_t)((uint64_t)i * count / looked) }, 1);
    for (uint32_t i = 0; i < looked && status == GP_OK; i++) {
        const uint32_t index = (uint32_t)((uint64_t)i * count / looked);
        gp_image_info seen;

        status = image_inspect(images, r, index, &seen, &own);
        if (status == GP_OK)
            status = shape_take(images, info, &first, index, &seen, sizes, channels, err);
        else if (given || (!r->unreachable && images->options.on_error == GP_ON_ERROR_SKIP))
            status = GP_OK;
        else if (err != NULL)
            *err = own;
    }
    gp_image_reader_give(&images->readers, r);
    if (status == GP_OK && (info->height == 0 || info->channels == 0))
        status = gp_fail(err, GP_ECORRUPT, "none of the first %u images of %s can be read: %s", looked,
                         info->source, own.message);
    return status;
}

/* Create a store, except for the properties that depend on inspected images. Ownership of list and
 * labels passes to the store. */
static gp_status store_new(gp_image_store **out, const char *source, gp_image_list *list,
                           gp_pixel_labels *labels, const gp_store_options *options, gp_error *err)
{
    gp_image_store *images = gp_calloc(1, sizeof(*images));
    gp_pixel_labels *own = labels == NULL ? NULL : gp_malloc(sizeof(*own));

    if (images == NULL || (labels != NULL && own == NULL)) {
        gp_free(images);
        gp_free(own);
        return gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    }
    images->list = *list;
    if (labels != NULL)
        *own = *labels;
    images->labels = own;
    images->options = *options;
    images->options.progress = NULL; /* valid only during the open */
    images->native = labels == NULL && (options->height == 0 || options->width == 0);
    gp_image_readers_init(&images->readers);
    images->store.ops = &gp_image_store_ops;
    images->store.info.source = source; /* for image names, until gp_store_init() */
    *out = images;
    return GP_OK;
}

/* Initialize the store once the sample shape is known. */
static gp_status store_init(gp_image_store *images, gp_store_info *info, gp_error *err)
{
    const char **names = gp_calloc(images->list.class_count, sizeof(*names));
    gp_status status;

    if (names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u class names", images->list.class_count);
    for (uint32_t i = 0; i < images->list.class_count; i++)
        names[i] = gp_image_list_class(&images->list, i);
    info->class_names = names;
    if (images->labels == NULL && images->list.left_out > 0)
        images->store.class_empty = gp_calloc(images->list.class_count, sizeof(bool));
    if (images->store.class_empty != NULL) {
        memset(images->store.class_empty, true, images->list.class_count);
        for (uint32_t i = 0; i < images->list.count; i++)
            if (images->list.labels[i] >= 0)
                images->store.class_empty[images->list.labels[i]] = false;
    }
    if (images->labels != NULL) {
        info->target_count = 1;
        info->targets[0] = (gp_target){ .dtype = GP_I32, .shape = gp_shape2(info->height, info->width) };
    }
    status = gp_store_init(&images->store, &gp_image_store_ops, info, err);
    gp_free(names);
    return status;
}

gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              gp_pixel_labels *labels, const gp_store_options *options, gp_status status,
                              gp_error *err)
{
    gp_store_info info = { .source = source,
                           .kind = kind,
                           .count = list->count,
                           .channels = options->channels,
                           .height = options->height,
                           .width = options->width,
                           .dtype = GP_U8,
                           .class_count = list->class_count,
                           .decodes = true,
                           .remote = list->objects != NULL,
                           .passed_over = list->others,
                           .left_out = list->left_out,
                           .left_out_first = list->left_out_first };
    gp_image_store *images;

    if (status == GP_OK)
        status = store_new(&images, source, list, labels, options, err);
    if (status != GP_OK) {
        gp_image_list_deinit(list);
        if (labels != NULL)
            gp_pixel_labels_deinit(labels);
        return status;
    }
    images->store.bad = gp_calloc(images->list.count / 8 + 1, sizeof(*images->store.bad));
    if (images->store.bad == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    else if (info.channels > 3 || info.channels == 2)
        status = gp_fail(err, GP_EINVAL, "the images of %s have 1 or 3 channels, but the network needs %u",
                         source, info.channels);
    if (status == GP_OK && images->list.objects != NULL)
        status = gp_objects_start(images->list.objects, &images->list, err);
    if (status == GP_OK && images->labels != NULL && images->labels->list.objects != NULL)
        status = gp_objects_start(images->labels->list.objects, &images->labels->list, err);
    if (status == GP_OK)
        status = shape_decide(images, &info, err);
    if (status == GP_OK)
        status = store_init(images, &info, err);
    if (status == GP_OK) {
        /* Discard readers without room for labels, which were used only for headers. */
        gp_image_readers_deinit(&images->readers);
        gp_image_readers_init(&images->readers);
        images->label_bytes = labels == NULL ? 0 : (size_t)info.height * info.width;
        status =
            gp_image_cache_init(&images->cache, images->list.count,
                                options->cache_bytes == 0 ? GP_STORE_CACHE_BYTES : options->cache_bytes, err);
    }
    return gp_store_seal(out, &images->store, status, err);
}

gp_status gp_store_open_folder(gp_store **out, const char *directory, gp_data_role role,
                               const gp_store_options *options, gp_error *err)
{
    gp_image_list list;
    gp_status status = gp_folder_list(&list, directory, role, options, err);

    return gp_image_store_open(out, "folder", directory, &list, NULL, options, status, err);
}

gp_status gp_store_open_csv(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    gp_image_list list;
    gp_status status = gp_csv_list(&list, path, role, options, err);

    return gp_image_store_open(out, "csv", path, &list, NULL, options, status, err);
}
