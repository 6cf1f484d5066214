/* Read images in S3 through the disk cache, with prefetching. */
#include "common/data/source/objects.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/image/image.h"

enum {
    CONNECTIONS = 32, /* concurrent requests; at 50 ms each, 640 images per second */
    PREFETCH_MAX = 4096,
    /* objects up to this size are fetched completely, even if only a part is requested */
    WHOLE_BYTES = 512 << 10,
};

#define PREFETCH_BYTES_MAX ((size_t)256 << 20)

typedef struct object_info {
    uint64_t bytes;
    _Atomic uint64_t tag; /* 0: tag and size are unknown */
} object_info;

struct gp_objects {
    gp_s3 *s3;
    gp_object_cache *cache;
    object_info *info;
    uint32_t count;
    bool of_places;
    const gp_image_list *list;
    gp_prefetch *prefetch; /* NULL before gp_objects_start() */
    pthread_mutex_t lock;  /* protects entries of `info` whose tag is 0 */
};

gp_status gp_objects_open(gp_objects **out, const gp_s3_source *source, gp_error *err)
{
    gp_objects *objects = gp_calloc(1, sizeof(*objects));
    gp_status status;

    if (objects == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for reading s3://%s", source->bucket);
    pthread_mutex_init(&objects->lock, NULL);
    status = gp_s3_open(&objects->s3, source, NULL, err);
    if (status != GP_OK) {
        gp_objects_close(objects);
        return status;
    }
    objects->cache = gp_object_cache_open("s3", source->cache_bytes);
    *out = objects;
    return GP_OK;
}

void gp_objects_close(gp_objects *objects)
{
    if (objects == NULL)
        return;
    gp_prefetch_free(objects->prefetch);
    gp_s3_close(objects->s3);
    gp_object_cache_close(objects->cache);
    gp_free(objects->info);
    pthread_mutex_destroy(&objects->lock);
    gp_free(objects);
}

gp_s3 *gp_objects_s3(const gp_objects *objects)
{
    return objects->s3;
}

gp_object_cache *gp_objects_cache(const gp_objects *objects)
{
    return objects->cache;
}

gp_status gp_objects_add(gp_objects *objects, uint64_t bytes, uint64_t tag, gp_error *err)
{
    object_info *grown = gp_array_grow(objects->info, objects->count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %u objects", objects->count + 1);
    objects->info = grown;
    objects->info[objects->count].bytes = bytes;
    atomic_init(&objects->info[objects->count++].tag, tag);
    return GP_OK;
}

void gp_objects_of_places(gp_objects *objects)
{
    objects->of_places = true;
}

void gp_objects_id(const gp_objects *objects, gp_object_id *id, const char *key, uint64_t tag, uint64_t block)
{
    const gp_s3_source *source = gp_s3_get_source(objects->s3);
    SHA2_CTX sum;
    char numbers[64];

    SHA256Init(&sum);
    SHA256Update(&sum, (const uint8_t *)source->endpoint, strlen(source->endpoint) + 1);
    SHA256Update(&sum, (const uint8_t *)source->bucket, strlen(source->bucket) + 1);
    SHA256Update(&sum, (const uint8_t *)key, strlen(key) + 1);
    snprintf(numbers, sizeof(numbers), "%016llx %llu", (unsigned long long)tag, (unsigned long long)block);
    SHA256Update(&sum, (const uint8_t *)numbers, strlen(numbers));
    SHA256End(&sum, id->text);
}

gp_status gp_objects_stat(const gp_objects *objects, const char *key, gp_s3_range *range, gp_error *err)
{
    gp_buffer byte;

    *range = (gp_s3_range){ .key = key, .bytes = 1 };
    gp_buffer_init(&byte, 16);
    gp_status status = gp_s3_read(objects->s3, range, &byte, err);

    gp_buffer_deinit(&byte);
    range->bytes = range->object_bytes;
    return status;
}

/* ---- ranges ---- */

/* Fetch bytes from the server, put them into the cache (id NULL: bypass it), and
 * append the requested part to `out`. */
static gp_status bytes_fetch(gp_objects *objects, const gp_s3_range *range, const gp_object_id *id,
                             uint64_t begin, size_t bytes, uint64_t at, size_t part, gp_buffer *out,
                             gp_error *err)
{
    gp_s3_range block = { .key = range->key, .offset = begin, .bytes = bytes, .tag = range->tag };
    gp_buffer whole;
    gp_status status;

    gp_buffer_init(&whole, bytes);
    status = gp_s3_read(objects->s3, &block, &whole, err);
    if (status == GP_OK) {
        if (id != NULL)
            gp_object_cache_put(objects->cache, id, whole.data, whole.bytes);
        status = gp_buffer_append(out, whole.data + (at - begin), part, err);
    }
    gp_buffer_deinit(&whole);
    return status;
}

gp_status gp_objects_read(gp_objects *objects, const gp_s3_range *range, bool whole_blocks, gp_buffer *out,
                          gp_error *err)
{
    uint64_t at = range->offset, end = range->offset + range->bytes;
    gp_status status = GP_OK;

    gp_buffer_clear(out);
    while (at < end && status == GP_OK) {
        uint64_t block = at / GP_OBJECT_BLOCK_BYTES, begin = block * GP_OBJECT_BLOCK_BYTES;
        uint64_t left = range->object_bytes - begin;
        size_t bytes = left < GP_OBJECT_BLOCK_BYTES ? (size_t)left : (size_t)GP_OBJECT_BLOCK_BYTES;
        size_t part = end < begin + bytes ? (size_t)(end - at) : (size_t)(begin + bytes - at);
        gp_object_id id;

        gp_objects_id(objects, &id, range->key, range->tag, block);
        if (gp_object_cache_get(objects->cache, &id, at - begin, part, out)) {
            at += part;
            continue;
        }
        if (!whole_blocks && bytes > WHOLE_BYTES && part < bytes)
            return bytes_fetch(objects, range, NULL, at, end - at, at, end - at, out, err);
        status = bytes_fetch(objects, range, &id, begin, bytes, at, part, out, err);
        at += part;
    }
    return status;
}

/* ---- images ---- */

static const char *key_of(const gp_objects *objects, uint32_t index, char text[GP_IMAGE_NAME_BYTES_MAX * 2])
{
    const gp_image_list *list = objects->list;
    const char *place = gp_image_list_place(list, list->entries[index].place);
    const char *name = gp_image_list_name(list, index);

    if (objects->of_places)
        snprintf(text, (size_t)GP_IMAGE_NAME_BYTES_MAX * 2, "%s", place);
    else if (gp_s3_is(name))
        snprintf(text, (size_t)GP_IMAGE_NAME_BYTES_MAX * 2, "%s", name);
    else
        snprintf(text, (size_t)GP_IMAGE_NAME_BYTES_MAX * 2, "%s/%s", place, name);
    place = strchr(text + strlen("s3://"), '/');
    return place == NULL ? "" : place + 1;
}

/* Fetch a whole object whose size and tag are unknown, and record both. The object must not change
 * from then on. */
static gp_status object_learn(gp_objects *objects, object_info *info, const char *key, gp_buffer *out,
                              gp_error *err)
{
    gp_s3_range range = { .key = key, .bytes = GP_S3_REST };
    gp_status status = gp_s3_read(objects->s3, &range, out, err);
    gp_object_id id;

    if (status != GP_OK || range.tag == 0)
        return status;
    pthread_mutex_lock(&objects->lock);
    if (atomic_load(&info->tag) == 0) {
        info->bytes = out->bytes;
        atomic_store(&info->tag, range.tag);
    }
    pthread_mutex_unlock(&objects->lock);
    gp_objects_id(objects, &id, key, range.tag, 0);
    gp_object_cache_put(objects->cache, &id, out->data, out->bytes);
    return GP_OK;
}

/* Fetch an image through the cache; from an archive, only the member's bytes. */
static gp_status object_fetch(gp_objects *objects, uint32_t index, uint64_t bytes_max, gp_buffer *out,
                              gp_error *err)
{
    const gp_image_list *list = objects->list;
    object_info *info = &objects->info[objects->of_places ? list->entries[index].place : index];
    char text[GP_IMAGE_NAME_BYTES_MAX * 2];
    gp_s3_range range = { .key = key_of(objects, index, text), .tag = atomic_load(&info->tag) };

    if (range.tag == 0 && !objects->of_places)
        return object_learn(objects, info, range.key, out, err);
    range.object_bytes = info->bytes;
    range.bytes = objects->of_places ? list->sizes[index] : info->bytes;
    range.offset = objects->of_places ? list->offsets[index] : 0;
    if (range.bytes > GP_IMAGE_FILE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes, at most %d are supported", text,
                       (unsigned long long)range.bytes, GP_IMAGE_FILE_BYTES_MAX);
    range.bytes = range.bytes < bytes_max ? range.bytes : bytes_max;
    return gp_objects_read(objects, &range, false, out, err);
}

static gp_status prefetch_fetch(void *context, uint32_t number, gp_buffer *out, gp_error *err)
{
    return object_fetch(context, number, UINT64_MAX, out, err);
}

gp_status gp_objects_start(gp_objects *objects, const gp_image_list *list, gp_error *err)
{
    objects->list = list;
    return gp_prefetch_new(&objects->prefetch, CONNECTIONS, PREFETCH_MAX, GP_IMAGE_FILE_BYTES_MAX,
                           PREFETCH_BYTES_MAX, prefetch_fetch, objects, err);
}

void gp_objects_want(gp_objects *objects, const uint32_t *indices, uint32_t count)
{
    gp_prefetch_want(objects->prefetch, indices, count);
}

gp_status gp_objects_take(gp_objects *objects, uint32_t index, uint64_t bytes_max, gp_buffer *out,
                          gp_error *err)
{
    bool there;
    gp_status status = gp_prefetch_take(objects->prefetch, index, &there, out, err);

    return there ? status : object_fetch(objects, index, bytes_max, out, err);
}
