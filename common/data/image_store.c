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
#include "common/data/resample.h"

enum { HEAD_BYTES = 64 << 10, TOLD_MAX = 20 };
enum { EMPTY, FILLING, FULL };

typedef struct reader {
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    uint8_t *file;
    size_t file_bytes; /* taken */
    char name[2 * PATH_MAX];
    struct reader *next;
} reader;

typedef struct image_store {
    gp_store store;
    gp_image_list list;
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

/* ---- bytes ---- */

static void image_path(const image_store *images, uint32_t index, char *path, size_t bytes)
{
    const gp_image_entry *entry = &images->list.entries[index];
    const char *name = gp_image_list_name(&images->list, index);

    if (name[0] == '/')
        snprintf(path, bytes, "%s", name);
    else
        snprintf(path, bytes, "%s/%s", gp_image_list_place(&images->list, entry->place), name);
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

/* The image's file into r->file: its first bytes_max bytes.  r->name is left with what it is called. */
static gp_status image_load(const image_store *images, reader *r, uint32_t index, size_t bytes_max,
                            size_t *bytes, gp_error *err)
{
    struct stat stat_;
    gp_status status;
    int fd;

    image_path(images, index, r->name, sizeof(r->name));
    fd = open(r->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &stat_) != 0)
        status = gp_fail_errno(err,
                               errno == ENOENT   ? GP_ENOENT
                               : errno == EACCES ? GP_EPERM
                                                 : GP_EIO,
                               "cannot open %s", r->name);
    else if (!S_ISREG(stat_.st_mode))
        status = gp_fail(err, GP_EINVAL, "%s is not a file", r->name);
    else if (stat_.st_size > GP_IMAGE_FILE_BYTES_MAX)
        status = gp_fail(err, GP_ELIMIT, "%s has %lld bytes; at most %d are read", r->name,
                         (long long)stat_.st_size, GP_IMAGE_FILE_BYTES_MAX);
    else
        status = file_read(r, fd, 0, (size_t)stat_.st_size < bytes_max ? (size_t)stat_.st_size : bytes_max,
                           bytes, err);
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- samples ---- */

static gp_status sample_decode(const image_store *images, reader *r, uint32_t index, uint8_t *out,
                               gp_error *err)
{
    const gp_store_info *info = &images->store.info;
    gp_image_want want = { info->channels, info->width, info->height };
    gp_pixels pixels;
    size_t bytes;
    gp_status status = image_load(images, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);

    if (status == GP_OK)
        status = gp_image_decode(r->decoder, &pixels, &want, r->file, bytes, r->name, err);
    if (status == GP_OK)
        status = gp_resample(r->resampler, out, info->height, info->width, &pixels, err);
    return status;
}

static bool cache_get(const image_store *images, uint32_t index, uint8_t *out)
{
    size_t bytes = images->store.info.sample_bytes;

    if (index >= images->cache_count ||
        atomic_load_explicit(&images->cached[index], memory_order_acquire) != FULL)
        return false;
    memcpy(out, images->cache + index * bytes, bytes);
    return true;
}

static void cache_put(const image_store *images, uint32_t index, const uint8_t *sample)
{
    size_t bytes = images->store.info.sample_bytes;
    unsigned char empty = EMPTY;

    if (index >= images->cache_count ||
        !atomic_compare_exchange_strong(&images->cached[index], &empty, FILLING))
        return;
    memcpy(images->cache + index * bytes, sample, bytes);
    atomic_store_explicit(&images->cached[index], FULL, memory_order_release);
}

/* Counted and told once, by name, but not too many. */
static void sample_skip(image_store *images, uint32_t index, uint8_t *out, int32_t *label,
                        const gp_error *err)
{
    unsigned char bit = (unsigned char)(1u << index % 8);
    uint64_t before;

    memset(out, 0, images->store.info.sample_bytes);
    if (label != NULL)
        *label = -1;
    if ((atomic_fetch_or(&images->bad[index / 8], bit) & bit) != 0)
        return;
    before = atomic_fetch_add(&images->skipped, 1);
    if (before < TOLD_MAX)
        gp_log(GP_LOG_WARN, "skipped an image: %s", err->message);
    else if (before == TOLD_MAX)
        gp_log(GP_LOG_WARN, "skipped more than %d images; the rest is only counted", TOLD_MAX);
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
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *out = (uint8_t *)samples + i * store->info.sample_bytes;
        int32_t *label = targets == NULL ? NULL : (int32_t *)targets + i;

        if (label != NULL)
            *label = images->list.labels[index[i]];
        if (cache_get(images, index[i], out))
            continue;
        status = sample_decode(images, r, index[i], out, &own);
        if (status == GP_OK) {
            cache_put(images, index[i], out);
        } else if (images->options.on_bad == GP_BAD_SKIP && status != GP_ENOMEM) {
            sample_skip(images, index[i], out, label, &own);
            status = GP_OK;
        } else {
            if (err != NULL)
                *err = own;
            break;
        }
    }
    reader_give(images, r);
    return status;
}

static void image_name(const gp_store *store, uint32_t index, char *text, size_t bytes)
{
    const image_store *images = (const image_store *)store;
    const char *root = store->info.source;
    size_t length = strlen(root);
    char path[2 * PATH_MAX];

    image_path(images, index, path, sizeof(path));
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

    while (images->readers != NULL) {
        reader *r = images->readers;

        images->readers = r->next;
        reader_free(r);
    }
    if (images->cache != NULL)
        munmap(images->cache, images->cache_bytes);
    gp_free(images->cached);
    gp_free(images->bad);
    gp_image_list_deinit(&images->list);
    pthread_mutex_destroy(&images->lock);
    gp_store_deinit(store);
    gp_free(images);
}

static const gp_store_ops image_ops = {
    .read = image_read, .close = image_close, .name = image_name, .skipped = image_skipped
};

/* ---- opening ---- */

/* The header, from the file's first bytes; a large profile before it is read through. */
static gp_status image_look(image_store *images, reader *r, uint32_t index, gp_image_info *info,
                            gp_error *err)
{
    size_t bytes;
    gp_status status = image_load(images, r, index, HEAD_BYTES, &bytes, err);

    if (status == GP_OK)
        status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    if (status == GP_ECORRUPT && bytes == HEAD_BYTES) {
        status = image_load(images, r, index, GP_IMAGE_FILE_BYTES_MAX, &bytes, err);
        if (status == GP_OK)
            status = gp_image_probe(r->decoder, info, r->file, bytes, r->name, err);
    }
    return status;
}

/* Size and channels, where the caller leaves them open: of the images looked at. */
static gp_status shape_decide(image_store *images, gp_store_info *info, gp_error *err)
{
    uint32_t looked = images->list.count < GP_IMAGE_PROBES ? images->list.count : GP_IMAGE_PROBES;
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
    for (uint32_t i = 0; i < looked && status == GP_OK; i++) {
        uint32_t index = (uint32_t)((uint64_t)i * images->list.count / looked);
        gp_image_info seen;

        status = image_look(images, r, index, &seen, &own);
        if (status != GP_OK && images->options.on_bad == GP_BAD_SKIP) {
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
        } else if (sizes && !images->options.any_size &&
                   (seen.height != info->height || seen.width != info->width)) {
            char one[80], other[80];

            image_name(&images->store, first, one, sizeof(one));
            image_name(&images->store, index, other, sizeof(other));
            status = gp_fail(
                err, GP_EINVAL,
                "the images of %s have several sizes: %s is %ux%u (height x width), %s is %ux%u; "
                "say what they are brought to, as --image-size 224x224",
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
    size_t sample = images->store.info.sample_bytes;
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

gp_status gp_image_store_open(gp_store **out, const char *kind, const char *source, gp_image_list *list,
                              const gp_store_options *options, gp_error *err)
{
    gp_store_info info = { .source = source,
                           .kind = kind,
                           .count = list->count,
                           .channels = options->channels,
                           .height = options->height,
                           .width = options->width,
                           .dtype = GP_U8,
                           .class_count = list->class_count };
    image_store *images = gp_calloc(1, sizeof(*images));
    const char **names = gp_calloc(list->class_count, sizeof(*names));
    gp_status status = GP_OK;

    if (images == NULL || names == NULL) {
        gp_free(images);
        gp_free(names);
        gp_image_list_deinit(list);
        return gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    }
    images->list = *list;
    images->options = *options;
    pthread_mutex_init(&images->lock, NULL);
    for (uint32_t i = 0; i < info.class_count; i++)
        names[i] = gp_image_list_class(&images->list, i);
    info.class_names = names;
    images->store.ops = &image_ops;
    images->store.info.source = source; /* for names, until gp_store_init() */
    images->bad = gp_calloc(images->list.count / 8 + 1, sizeof(*images->bad));
    if (images->bad == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the store of %s", source);
    else if (info.channels > 3 || info.channels == 2)
        status = gp_fail(err, GP_EINVAL, "the images of %s have 1 or 3 channels; the network takes %u",
                         source, info.channels);
    if (status == GP_OK)
        status = shape_decide(images, &info, err);
    if (status == GP_OK)
        status = gp_store_init(&images->store, &image_ops, &info, err);
    gp_free(names);
    if (status == GP_OK)
        status = cache_take(images, err);
    if (status == GP_OK)
        status = gp_store_seal(&images->store, err);
    if (status != GP_OK) {
        image_close(&images->store);
        return status;
    }
    *out = &images->store;
    return GP_OK;
}

gp_status gp_store_open_folder(gp_store **out, const char *directory, gp_data_role role,
                               const gp_store_options *options, gp_error *err)
{
    gp_image_list list;
    gp_status status = gp_folder_list(&list, directory, role, options, err);

    if (status != GP_OK) {
        gp_image_list_deinit(&list);
        return status;
    }
    return gp_image_store_open(out, "folder", directory, &list, options, err);
}
