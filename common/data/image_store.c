/* image_store.c -- reading: file, decode, resize, and a memory of what was decoded.
 *
 * A read takes a reader (decoder, resampler, the file's bytes) from a stack, or makes one: there are as many as there
 * were threads at once.  Decoded samples are kept for the first cache_count images of the list.  Every image is read
 * once an epoch, so which ones are kept does not matter, and nothing is ever evicted: a place goes from EMPTY to
 * FILLING to FULL, once, and whoever reads it FULL may copy it without a lock. */
#include "common/data/image_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/data/image.h"
#include "common/data/objects.h"
#include "common/data/resample.h"

enum { HEAD_BYTES = 64 << 10, TOLD_MAX = 20 };
enum { EMPTY, FILLING, FULL };

typedef struct reader {
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    uint8_t *file;
    size_t file_bytes; /* taken */
    uint8_t *label;    /* [height, width], if pixels have labels */
    uint8_t *large;    /* the same at the size of the file, of labels in colour */
    size_t large_bytes;
    bool unreachable; /* the network's fault, not the image's */
    char name[2 * PATH_MAX];
    struct reader *next;
} reader;

typedef struct image_store {
    gp_store store;
    gp_image_list list;
    gp_pixel_labels *labels; /* NULL: a class for each sample, in the list */
    size_t label_bytes;      /* of a sample's label image, one byte a pixel; 0 without */
    gp_store_options options;
    pthread_mutex_t lock; /* of the readers */
    reader *readers;
    uint8_t *cache;
    atomic_uchar *cached; /* [cache_count] */
    size_t cache_bytes;
    uint32_t cache_count;
    atomic_uchar *bad; /* one bit per image that could not be read */
    _Atomic uint64_t skipped;
} image_store;

/* ---- readers ---- */

static void reader_free(reader *r)
{
    gp_image_decoder_free(r->decoder);
    gp_resampler_free(r->resampler);
    gp_free(r->file);
    gp_free(r->label);
    gp_free(r->large);
    gp_free(r);
}

static gp_status reader_take(image_store *images, reader **out, gp_error *err)
{
    reader *r;
    gp_status status;

    pthread_mutex_lock(&images->lock);
    r = images->readers;
    if (r != NULL)
        images->readers = r->next;
    pthread_mutex_unlock(&images->lock);
    if (r == NULL) {
        r = gp_calloc(1, sizeof(*r));
        if (r == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a reader of images");
        status = gp_image_decoder_new(&r->decoder, err);
        if (status == GP_OK)
            status = gp_resampler_new(&r->resampler, err);
        r->label = status == GP_OK ? gp_malloc(images->label_bytes) : NULL;
        if (status == GP_OK && r->label == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for a label image of %zu bytes", images->label_bytes);
        if (status != GP_OK) {
            reader_free(r);
            return status;
        }
    }
    *out = r;
    return GP_OK;
}

static void reader_give(image_store *images, reader *r)
{
    pthread_mutex_lock(&images->lock);
    r->next = images->readers;
    images->readers = r;
    pthread_mutex_unlock(&images->lock);
}

static void readers_free(image_store *images)
{
    while (images->readers != NULL) {
        reader *r = images->readers;

        images->readers = r->next;
        reader_free(r);
    }
}

/* ---- bytes ---- */

static void image_path(const gp_image_list *list, uint32_t index, char *path, size_t bytes)
{
    const char *name = gp_image_list_name(list, index);

    if (name[0] == '/' || gp_s3_is(name))
        snprintf(path, bytes, "%s", name);
    else
        snprintf(path, bytes, "%s/%s", gp_image_list_place(list, list->entries[index].place), name);
}

static gp_status reader_reserve(reader *r, size_t bytes, gp_error *err)
{
    if (bytes <= r->file_bytes)
        return GP_OK;
    gp_free(r->file);
    r->file_bytes = 0;
    r->file = gp_malloc(bytes);
    if (r->file == NULL)
        return gp_fail(err, GP_ENOMEM, "%s: no memory for its %zu bytes", r->name, bytes);
    r->file_bytes = bytes;
    return GP_OK;
}

/* Up to `bytes` bytes from the offset, as many as there are. */
static gp_status file_read(reader *r, int fd, uint64_t offset, size_t bytes, size_t *got, gp_error *err)
{
    gp_status status = reader_reserve(r, bytes, err);

    *got = 0;
    while (status == GP_OK && *got < bytes) {
        ssize_t n = pread(fd, r->file + *got, bytes - *got, (off_t)(offset + *got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gp_fail_errno(err, GP_EIO, "cannot read %s", r->name);
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return status;
}

static gp_status file_check(const char *name, const struct stat *stat_, gp_error *err)
{
    if (!S_ISREG(stat_->st_mode))
        return gp_fail(err, GP_EINVAL, "%s is not a file", name);
    if (stat_->st_size > GP_IMAGE_FILE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %lld bytes; at most %d are read", name,
                       (long long)stat_->st_size, GP_IMAGE_FILE_BYTES_MAX);
    return GP_OK;
}

/* The same of an object, into r->file, whose memory is exchanged for that which was fetched ahead. */
static gp_status object_load(const gp_image_list *list, reader *r, uint32_t index, size_t bytes_max,
                             size_t *bytes, gp_error *err)
{
    gp_buffer buffer = { .data = r->file, .capacity = r->file_bytes, .bytes_max = GP_IMAGE_FILE_BYTES_MAX };
    gp_status status = gp_objects_take(list->objects, index, bytes_max, &buffer, err);

    r->file = buffer.data;
    r->file_bytes = buffer.capacity;
    *bytes = buffer.bytes < bytes_max ? buffer.bytes : bytes_max;
    r->unreachable = status != GP_OK && status != GP_ENOENT;
    return status;
}

/* The image's file, or its part of an archive, into r->file: its first bytes_max bytes.  r->name is left with what it
 * is called. */
static gp_status image_load(const gp_image_list *list, reader *r, uint32_t index, size_t bytes_max,
                            size_t *bytes, gp_error *err)
{
    bool member = list->offsets != NULL;
    const char *path = r->name;
    struct stat stat_;
    uint64_t size;
    gp_status status = GP_OK;
    int fd;

    image_path(list, index, r->name, sizeof(r->name));
    if (list->objects != NULL)
        return object_load(list, r, index, bytes_max, bytes, err);
    if (member)
        path = gp_image_list_place(list, list->entries[index].place);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || (!member && fstat(fd, &stat_) != 0))
        status = gp_fail_errno(err,
                               errno == ENOENT   ? GP_ENOENT
                               : errno == EACCES ? GP_EPERM
                                                 : GP_EIO,
                               "cannot open %s", path);
    else if (!member)
        status = file_check(path, &stat_, err);
    if (status == GP_OK) {
        size = member ? list->sizes[index] : (uint64_t)stat_.st_size;
        status = file_read(r, fd, member ? list->offsets[index] : 0, size < bytes_max ? size : bytes_max,
                           bytes, err);
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- samples ---- */

/* Stored numbers to classes, in place of them or elsewhere. */
static gp_status labels_from_numbers(const image_store *images, const reader *r, const gp_pixels *in,
                                     uint8_t *out, gp_error *err)
{
    const gp_pixel_labels *labels = images->labels;
    size_t count = (size_t)in->width * in->height;

    for (size_t i = 0; i < count; i++) {
        uint8_t value = in->data[i];

        if (value >= labels->value_count && value != GP_PIXEL_NONE)
            return gp_fail(
                err, GP_ECORRUPT,
                "%s: the label of pixel %zu,%zu (row, column) is %u; %s has %u lines (0 to %u), and "
                "255 is no class",
                r->name, i / in->width, i % in->width, value, labels->classes_path, labels->value_count,
                labels->value_count - 1);
        out[i] = value == GP_PIXEL_NONE ? GP_PIXEL_NONE : labels->meaning[value];
    }
    return GP_OK;
}

static gp_status labels_from_colours(const image_store *images, const reader *r, const gp_pixels *in,
                                     uint8_t *out, gp_error *err)
{
    const gp_pixel_labels *labels = images->labels;
    size_t count = (size_t)in->width * in->height;
    uint32_t last = 0; /* neighbours are mostly of one class */

    if (!labels->coloured)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s: a label image in colour; %s has to say which colour is which class, a line as "
                       "name,red,green,blue",
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
                    "%s: the colour of pixel %zu,%zu (row, column) is %u,%u,%u, which is no class's "
                    "in %s",
                    r->name, i / in->width, i % in->width, colour[0], colour[1], colour[2],
                    labels->classes_path);
        }
        out[i] = labels->meaning[last];
    }
    return GP_OK;
}

/* Decode the label image in r->file into classes at its own size: *pixels. */
static gp_status label_decode(const image_store *images, reader *r, size_t bytes, gp_pixels *pixels,
                              gp_error *err)
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
    if (count > r->large_bytes) {
        gp_free(r->large);
        r->large = gp_malloc(count);
        r->large_bytes = r->large == NULL ? 0 : count;
        if (r->large == NULL)
            return gp_fail(err, GP_ENOMEM, "%s: no memory for %zu labels", r->name, count);
    }
    status = colour ? labels_from_colours(images, r, pixels, r->large, err)
                    : labels_from_numbers(images, r, pixels, r->large, err);
    pixels->data = r->large;
    pixels->channels = 1;
    return status;
}

/* The label image that belongs to an image of width x height (0: no matter), at its own size. */
static gp_status label_load(const image_store *images, reader *r, uint32_t index, uint32_t width,
                            uint32_t height, gp_pixels *pixels, gp_error *err)
{
    size_t bytes;
    gp_status status = image_load(&images->labels->list, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = label_decode(images, r, bytes, pixels, err);
    if (status == GP_OK && width != 0 && (pixels->width != width || pixels->height != height))
        status =
            gp_fail(err, GP_ECORRUPT, "%s is %ux%u (height x width), but the image that it labels is %ux%u",
                    r->name, pixels->height, pixels->width, height, width);
    return status;
}

/* The same into r->label at the store's size. */
static gp_status label_read(const image_store *images, reader *r, uint32_t index, uint32_t width,
                            uint32_t height, gp_error *err)
{
    const gp_store_info *info = &images->store.info;
    gp_pixels pixels;
    gp_status status = label_load(images, r, index, width, height, &pixels, err);

    if (status == GP_OK)
        gp_resample_nearest(r->label, info->height, info->width, &pixels);
    return status;
}

/* The sample into out, and its pixels' labels, if they have any, into r->label. */
static gp_status sample_decode(const image_store *images, reader *r, uint32_t index, uint8_t *out,
                               gp_error *err)
{
    const gp_store_info *info = &images->store.info;
    gp_image_want want = { .channels = info->channels, .width = info->width, .height = info->height };
    gp_pixels pixels;
    size_t bytes;
    gp_status status = image_load(&images->list, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = gp_image_decode(r->decoder, &pixels, &want, r->file, bytes, r->name, err);
    if (status == GP_OK)
        status = gp_resample(r->resampler, out, info->height, info->width, &pixels, err);
    if (status == GP_OK && images->labels != NULL)
        status = label_read(images, r, index, pixels.file_width, pixels.file_height, err);
    return status;
}

/* A place of the cache holds the sample, then its label image. */
static bool cache_get(const image_store *images, reader *r, uint32_t index, uint8_t *out)
{
    size_t bytes = images->store.info.sample_bytes;
    const uint8_t *place;

    if (index >= images->cache_count ||
        atomic_load_explicit(&images->cached[index], memory_order_acquire) != FULL)
        return false;
    place = images->cache + index * (bytes + images->label_bytes);
    memcpy(out, place, bytes);
    memcpy(r->label, place + bytes, images->label_bytes);
    return true;
}

static void cache_put(const image_store *images, const reader *r, uint32_t index, const uint8_t *sample)
{
    size_t bytes = images->store.info.sample_bytes;
    unsigned char empty = EMPTY;
    uint8_t *place;

    if (index >= images->cache_count ||
        !atomic_compare_exchange_strong(&images->cached[index], &empty, FILLING))
        return;
    place = images->cache + index * (bytes + images->label_bytes);
    memcpy(place, sample, bytes);
    memcpy(place + bytes, r->label, images->label_bytes);
    atomic_store_explicit(&images->cached[index], FULL, memory_order_release);
}

/* Counted and told once, by name, but not too many.  The sample is black, and nothing in it has a class. */
static void sample_skip(image_store *images, reader *r, uint32_t index, uint8_t *out, const gp_error *err)
{
    unsigned char bit = (unsigned char)(1u << index % 8);
    uint64_t before;

    memset(out, 0, images->store.info.sample_bytes);
    memset(r->label, GP_PIXEL_NONE, images->label_bytes);
    if ((atomic_fetch_or(&images->bad[index / 8], bit) & bit) != 0)
        return;
    before = atomic_fetch_add(&images->skipped, 1);
    if (before < TOLD_MAX)
        gp_log(GP_LOG_WARN, "skipped an image: %s", err->message);
    else if (before == TOLD_MAX)
        gp_log(GP_LOG_WARN, "skipped more than %d images; the rest is only counted", TOLD_MAX);
}

static void target_put(const image_store *images, const reader *r, uint32_t index, bool skipped,
                       int32_t *target)
{
    if (images->labels == NULL)
        *target = skipped ? -1 : images->list.labels[index];
    for (size_t i = 0; i < images->label_bytes; i++)
        target[i] = r->label[i] == GP_PIXEL_NONE ? -1 : r->label[i];
}

/* What is not decoded yet is fetched. */
static void image_expect(const gp_store *store, const uint32_t *index, uint32_t count)
{
    const image_store *images = (const image_store *)store;

    for (uint32_t i = 0; images->list.objects != NULL && i < count; i++)
        if (index[i] >= images->cache_count ||
            atomic_load_explicit(&images->cached[index[i]], memory_order_relaxed) != FULL)
            gp_objects_want(images->list.objects, &index[i], 1);
}

static gp_status image_read(const gp_store *store, const uint32_t *index, uint32_t count, void *samples,
                            void *targets, gp_error *err)
{
    image_store *images =
        (image_store *)(uintptr_t)store; /* readers and cache change, what is read does not */
    gp_error own = { GP_OK, "" };
    reader *r;
    gp_status status = reader_take(images, &r, err);

    if (status != GP_OK)
        return status;
    r->unreachable = false;
    if (samples != NULL && count > 1)
        image_expect(store, index, count);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *out = samples == NULL ? NULL : (uint8_t *)samples + i * store->info.sample_bytes;
        bool skipped = false;

        if (out == NULL) {
            status = images->labels == NULL ? GP_OK : label_read(images, r, index[i], 0, 0, &own);
            if (status != GP_OK)
                break;
        } else if (!cache_get(images, r, index[i], out)) {
            status = sample_decode(images, r, index[i], out, &own);
            skipped = status != GP_OK && status != GP_ENOMEM && !r->unreachable &&
                      images->options.on_bad == GP_BAD_SKIP;
            if (skipped)
                sample_skip(images, r, index[i], out, &own);
            else if (status == GP_OK)
                cache_put(images, r, index[i], out);
            else
                break;
        }
        status = GP_OK;
        if (targets != NULL)
            target_put(images, r, index[i], skipped,
                       (int32_t *)((uint8_t *)targets + i * store->info.target_bytes));
    }
    if (status != GP_OK && err != NULL)
        *err = own;
    reader_give(images, r);
    return status;
}

static gp_status whole_decode(const image_store *images, reader *r, uint32_t index, uint32_t height,
                              uint32_t width, gp_whole *whole, gp_error *err)
{
    const uint32_t channels = images->store.info.channels;
    gp_pixels pixels;
    size_t bytes;
    gp_status status = image_load(&images->list, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = gp_image_decode(r->decoder, &pixels,
                                 &(gp_image_want){ .channels = channels, .width = width, .height = height },
                                 r->file, bytes, r->name, err);
    if (status != GP_OK)
        return status;
    whole->height = pixels.file_height;
    whole->width = pixels.file_width;
    whole->read_height = height != 0 ? height : pixels.height;
    whole->read_width = width != 0 ? width : pixels.width;
    const size_t count = (size_t)whole->height * whole->width;

    status = gp_whole_reserve(whole, (size_t)channels * whole->read_height * whole->read_width,
                              images->labels == NULL ? 0 : count * sizeof(int32_t), err);
    if (status == GP_OK)
        status =
            gp_resample(r->resampler, whole->sample, whole->read_height, whole->read_width, &pixels, err);
    if (status == GP_OK && images->labels != NULL)
        status = label_load(images, r, index, whole->width, whole->height, &pixels, err);
    for (size_t i = 0; status == GP_OK && images->labels != NULL && i < count; i++)
        whole->labels[i] = pixels.data[i] == GP_PIXEL_NONE ? -1 : pixels.data[i];
    return status;
}

static gp_status image_read_whole(const gp_store *store, uint32_t index, uint32_t height, uint32_t width,
                                  gp_whole *whole, gp_error *err)
{
    image_store *images = (image_store *)(uintptr_t)store; /* the readers change */
    reader *r;
    gp_status status = reader_take(images, &r, err);

    if (status != GP_OK)
        return status;
    status = whole_decode(images, r, index, height, width, whole, err);
    reader_give(images, r);
    return status;
}

static void image_name(const gp_store *store, uint32_t index, char *text, size_t bytes)
{
    const image_store *images = (const image_store *)store;
    const char *root = store->info.source;
    size_t length = strlen(root);
    char path[2 * PATH_MAX];

    image_path(&images->list, index, path, sizeof(path));
    if (strncmp(path, root, length) == 0 && path[length] == '/')
        snprintf(text, bytes, "%s", path + length + 1);
    else
        snprintf(text, bytes, "%s", path);
}

static uint64_t image_skipped(const gp_store *store)
{
    return atomic_load(&((image_store *)(uintptr_t)store)->skipped);
}

static void image_close(gp_store *store)
{
    image_store *images = (image_store *)store;

    readers_free(images);
    if (images->cache != NULL)
        munmap(images->cache, images->cache_bytes);
    gp_free(images->cached);
    gp_free(images->bad);
    gp_image_list_deinit(&images->list);
    if (images->labels != NULL)
        gp_pixel_labels_deinit(images->labels);
    gp_free(images->labels);
    pthread_mutex_destroy(&images->lock);
    gp_store_deinit(store);
    gp_free(images);
}

static const gp_store_ops image_ops = { .read = image_read,
                                        .read_whole = image_read_whole,
                                        .close = image_close,
                                        .name = image_name,
                                        .skipped = image_skipped,
                                        .expect = image_expect };

/* ---- opening ---- */

void gp_pixel_labels_deinit(gp_pixel_labels *labels)
{
    gp_image_list_deinit(&labels->list);
    gp_free(labels->owned);
}

/* The header, from the file's first bytes; a large profile before it is read through. */
static gp_status image_look(image_store *images, reader *r, uint32_t index, gp_image_info *info,
                            gp_error *err)
{
    size_t bytes;
    gp_status status = image_load(&images->list, r, index, HEAD_BYTES, &bytes, err);

    if (status == GP_OK)
        status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    if (status == GP_ECORRUPT && bytes == HEAD_BYTES) {
        status = image_load(&images->list, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
        if (status == GP_OK)
            status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    }
    return status;
}

/* Size and channels, where the caller leaves them open: of the images looked at. */
static gp_status shape_decide(image_store *images, gp_store_info *info, gp_error *err)
{
    uint32_t most = images->list.objects == NULL ? GP_IMAGE_PROBES : GP_IMAGE_OBJECT_PROBES;
    uint32_t looked = images->list.count < most ? images->list.count : most;
    uint32_t first = 0;
    bool sizes = info->height == 0 || info->width == 0, channels = info->channels == 0;
    gp_status status;
    gp_error own;
    reader *r;

    if (!sizes && !channels)
        return GP_OK;
    status = reader_take(images, &r, err);
    if (status != GP_OK)
        return status;
    info->height = sizes ? 0 : info->height;
    for (uint32_t i = 0; images->list.objects != NULL && i < looked; i++)
        gp_objects_want(images->list.objects,
                        &(uint32_t){ (uint32_t)((uint64_t)i * images->list.count / looked) }, 1);
    for (uint32_t i = 0; i < looked && status == GP_OK; i++) {
        uint32_t index = (uint32_t)((uint64_t)i * images->list.count / looked);
        gp_image_info seen;

        r->unreachable = false;
        status = image_look(images, r, index, &seen, &own);
        if (status != GP_OK && !r->unreachable && images->options.on_bad == GP_BAD_SKIP) {
            status = GP_OK;
            continue;
        }
        if (status != GP_OK) {
            if (err != NULL)
                *err = own;
            break;
        }
        if (channels && seen.channels > info->channels)
            info->channels = seen.channels;
        if (sizes && info->height == 0) {
            info->height = seen.height;
            info->width = seen.width;
            first = index;
        } else if (sizes && images->options.any_size) {
            info->sizes_differ |= seen.height != info->height || seen.width != info->width;
        } else if (sizes && (seen.height != info->height || seen.width != info->width)) {
            char one[80], other[80];

            image_name(&images->store, first, one, sizeof(one));
            image_name(&images->store, index, other, sizeof(other));
            status = gp_fail(
                err, GP_EINVAL,
                "the images of %s have several sizes: %s is %ux%u (height x width), %s is %ux%u; "
                "say what they are brought to, as --image-size 224,224",
                images->store.info.source, one, info->height, info->width, other, seen.height, seen.width);
        }
    }
    reader_give(images, r);
    if (status == GP_OK && (info->height == 0 || info->channels == 0))
        status = gp_fail(err, GP_ECORRUPT, "none of %u images of %s that were looked at can be read: %s",
                         looked, info->source, own.message);
    return status;
}

static gp_status cache_take(image_store *images, gp_error *err)
{
    uint64_t limit = images->options.cache_bytes == 0 ? GP_STORE_CACHE_BYTES : images->options.cache_bytes;
    size_t sample = images->store.info.sample_bytes + images->label_bytes;
    void *cache;

    images->cache_count =
        limit / sample < images->list.count ? (uint32_t)(limit / sample) : images->list.count;
    if (images->cache_count == 0)
        return GP_OK;
    images->cache_bytes = images->cache_count * sample;
    images->cached = gp_calloc(images->cache_count, sizeof(*images->cached));
    /* Pages are taken as they are written. */
    cache = mmap(NULL, images->cache_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (images->cached == NULL || cache == MAP_FAILED) {
        if (cache != MAP_FAILED)
            munmap(cache, images->cache_bytes);
        return gp_fail(err, GP_ENOMEM, "no memory to keep %zu bytes of decoded images", images->cache_bytes);
    }
    images->cache = cache;
    return GP_OK;
}

/* The store without what is decided by looking at images. */
static gp_status store_new(image_store **out, const char *source, gp_image_list *list,
                           gp_pixel_labels *labels, const gp_store_options *options, gp_error *err)
{
    image_store *images = gp_calloc(1, sizeof(*images));
    gp_pixel_labels *own = labels == NULL ? NULL : gp_malloc(sizeof(*own));

    if (images == NULL || (labels != NULL && own == NULL)) {
        gp_free(images);
        gp_free(own);
        gp_image_list_deinit(list);
        if (labels != NULL)
            gp_pixel_labels_deinit(labels);
        return gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    }
    images->list = *list;
    if (labels != NULL)
        *own = *labels;
    images->labels = own;
    images->options = *options;
    pthread_mutex_init(&images->lock, NULL);
    images->store.ops = &image_ops;
    images->store.info.source = source; /* for names, until gp_store_init() */
    *out = images;
    return GP_OK;
}

/* What the samples are, once their shape is known. */
static gp_status store_init(image_store *images, gp_store_info *info, gp_error *err)
{
    const char **names = gp_calloc(images->list.class_count, sizeof(*names));
    gp_status status;

    if (names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u class names", images->list.class_count);
    for (uint32_t i = 0; i < images->list.class_count; i++)
        names[i] = gp_image_list_class(&images->list, i);
    info->class_names = names;
    if (images->labels != NULL) {
        info->target_count = 1;
        info->targets[0] = (gp_target){ .dtype = GP_I32, .shape = gp_shape2(info->height, info->width) };
    }
    status = gp_store_init(&images->store, &image_ops, info, err);
    gp_free(names);
    return status;
}

gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              gp_pixel_labels *labels, const gp_store_options *options, gp_error *err)
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
                           .passed_over = list->others };
    image_store *images;
    gp_status status = store_new(&images, source, list, labels, options, err);

    if (status != GP_OK)
        return status;
    images->bad = gp_calloc(images->list.count / 8 + 1, sizeof(*images->bad));
    if (images->bad == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    else if (info.channels > 3 || info.channels == 2)
        status = gp_fail(err, GP_EINVAL, "the images of %s have 1 or 3 channels; the network takes %u",
                         source, info.channels);
    if (status == GP_OK && images->list.objects != NULL)
        status = gp_objects_start(images->list.objects, &images->list, err);
    if (status == GP_OK)
        status = shape_decide(images, &info, err);
    if (status == GP_OK)
        status = store_init(images, &info, err);
    if (status == GP_OK) {
        /* Readers that only looked at headers have no room for labels. */
        readers_free(images);
        images->label_bytes = labels == NULL ? 0 : (size_t)info.height * info.width;
        status = cache_take(images, err);
    }
    if (status == GP_OK)
        status = gp_store_seal(&images->store, err);
    if (status != GP_OK) {
        image_close(&images->store);
        return status;
    }
    *out = &images->store;
    return GP_OK;
}

/* A store of whatever the lister finds. */
typedef gp_status (*image_lister)(gp_image_list *list, const char *path, gp_data_role role,
                                  const gp_store_options *options, gp_error *err);

static gp_status listed_open(gp_store **out, const char *kind, image_lister lister, const char *path,
                             gp_data_role role, const gp_store_options *options, gp_error *err)
{
    gp_image_list list;
    gp_status status = lister(&list, path, role, options, err);

    if (status != GP_OK) {
        gp_image_list_deinit(&list);
        return status;
    }
    return gp_image_store_open(out, kind, path, &list, NULL, options, err);
}

gp_status gp_store_open_folder(gp_store **out, const char *directory, gp_data_role role,
                               const gp_store_options *options, gp_error *err)
{
    return listed_open(out, "folder", gp_folder_list, directory, role, options, err);
}

gp_status gp_store_open_csv(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    return listed_open(out, "csv", gp_csv_list, path, role, options, err);
}

gp_status gp_store_open_tar(gp_store **out, const char *path, gp_data_role role,
                            const gp_store_options *options, gp_error *err)
{
    return listed_open(out, "tar", gp_tar_list, path, role, options, err);
}
