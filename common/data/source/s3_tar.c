/* Read the headers of a tar archive in S3, in blocks. Following blocks are prefetched only while
 * the reads are sequential. */

#include "common/data/source/objects.h"

#include <stdio.h>
#include <string.h>

#include "common/data/s3/prefetch.h"
#include "common/data/format/tar.h"
#include "common/data/source/image_store.h"

enum { TAR_PREFETCH = 8 };

#define TAR_BYTES_MAX ((uint64_t)1 << 50) /* keeps block numbers within 32 bits */

/* Archive whose headers are being read, block by block. */
typedef struct tar_object {
    gp_objects *objects;
    gp_s3_range range; /* the whole object */
    gp_prefetch *prefetch;
    gp_buffer window; /* current block */
    uint64_t block;   /* number of the current block */
} tar_object;

static gp_status tar_block_fetch(void *context, uint32_t number, gp_buffer *out, gp_error *err)
{
    const tar_object *tar = context;
    const gp_s3_range block = gp_object_block(&tar->range, number);

    return gp_objects_read(tar->objects, &block, true, out, err);
}

static gp_status tar_block_take(tar_object *tar, uint64_t block, gp_error *err)
{
    uint64_t count = (tar->range.object_bytes + GP_OBJECT_BLOCK_BYTES - 1) / GP_OBJECT_BLOCK_BYTES;
    bool there, follows = tar->window.bytes > 0 && block == tar->block + 1;
    gp_status status;

    for (uint64_t next = block; follows && next < count && next < block + TAR_PREFETCH; next++)
        gp_prefetch_want(tar->prefetch, &(uint32_t){ (uint32_t)next }, 1);
    status = gp_prefetch_take(tar->prefetch, (uint32_t)block, &there, &tar->window, err);
    if (!there)
        status = tar_block_fetch(tar, (uint32_t)block, &tar->window, err);
    tar->block = block;
    return status;
}

/* Read bytes of the archive, block by block; see gp_tar_source. */
static gp_status tar_object_read(void *context, uint64_t at, void *to, size_t bytes, gp_error *err)
{
    tar_object *tar = context;

    while (bytes > 0) {
        uint64_t block = at / GP_OBJECT_BLOCK_BYTES, begin = block * GP_OBJECT_BLOCK_BYTES;
        size_t part;

        if (tar->window.bytes == 0 || tar->block != block) {
            gp_status status = tar_block_take(tar, block, err);

            if (status != GP_OK)
                return status;
        }
        part = begin + tar->window.bytes - at < bytes ? (size_t)(begin + tar->window.bytes - at) : bytes;
        memcpy(to, tar->window.data + (at - begin), part);
        to = (char *)to + part;
        at += part;
        bytes -= part;
    }
    return GP_OK;
}

gp_status gp_s3_tar_take(gp_objects *objects, gp_tar_index *index, const char *bucket, const char *key,
                         uint64_t bytes, uint64_t tag, gp_error *err)
{
    tar_object tar = { .objects = objects,
                       .range = { .key = key, .bytes = bytes, .object_bytes = bytes, .tag = tag } };
    gp_tar_source source = { .read = tar_object_read, .context = &tar, .bytes = bytes };
    char path[GP_S3_KEY_BYTES_MAX + 80];
    gp_status status;

    snprintf(path, sizeof(path), "s3://%s/%s", bucket, key);
    if (bytes > TAR_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes, at most %llu are supported", path,
                       (unsigned long long)bytes, (unsigned long long)TAR_BYTES_MAX);
    status = gp_prefetch_new(&tar.prefetch, TAR_PREFETCH, 2 * TAR_PREFETCH, GP_OBJECT_BLOCK_BYTES, SIZE_MAX,
                             tar_block_fetch, &tar, err);
    if (status != GP_OK)
        return status;
    gp_buffer_init(&tar.window, GP_OBJECT_BLOCK_BYTES);
    status = gp_image_list_add_place(&index->all, path, &index->place, err);
    if (status == GP_OK)
        status = gp_objects_add(objects, bytes, tag, err);
    if (status == GP_OK)
        status = gp_tar_walk_source(&source, path, gp_tar_index_take, index, err);
    gp_prefetch_free(tar.prefetch);
    gp_buffer_deinit(&tar.window);
    return status;
}
