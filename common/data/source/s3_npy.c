/* Open arrays in S3: fetch each object completely into a cached file, then map it. */

#include "common/data/source/objects.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/format/npy.h"

enum { CONNECTIONS = 8, AHEAD = 16 }; /* prefetch up to 16 blocks of 4 MiB */

typedef struct npy_objects {
    gp_objects *objects;
    gp_npy_exists exists; /* looks up a path in the listing; NULL: ask the server */
    void *context;
} npy_objects;

/* Array being fetched. */
typedef struct npy_fetch {
    gp_s3 *s3;
    gp_s3_range whole;
} npy_fetch;

/* Return the key in s3://BUCKET/KEY. */
static const char *key_of(const char *path)
{
    return strchr(path + strlen("s3://"), '/') + 1;
}

static bool object_exists(void *context, const char *path)
{
    const npy_objects *from = context;
    gp_s3_range range;

    return from->exists != NULL ? from->exists(from->context, path)
                                : gp_objects_stat(from->objects, key_of(path), &range, NULL) == GP_OK;
}

static gp_status block_fetch(void *context, uint32_t number, gp_buffer *out, gp_error *err)
{
    const npy_fetch *fetch = context;
    gp_s3_range block = gp_object_block(&fetch->whole, number);

    return gp_s3_read(fetch->s3, &block, out, err);
}

/* Write all blocks to a file, fetching several at a time. */
static gp_status object_fill(npy_fetch *fetch, int fd, const char *path, gp_error *err)
{
    uint32_t count =
        (uint32_t)((fetch->whole.object_bytes + GP_OBJECT_BLOCK_BYTES - 1) / GP_OBJECT_BLOCK_BYTES);
    gp_prefetch *prefetch;
    gp_buffer bytes;
    gp_status status = gp_prefetch_new(&prefetch, CONNECTIONS, 2 * AHEAD, GP_OBJECT_BLOCK_BYTES, SIZE_MAX,
                                       block_fetch, fetch, err);

    if (status != GP_OK)
        return status;
    gp_buffer_init(&bytes, GP_OBJECT_BLOCK_BYTES);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        bool there;

        for (uint32_t k = i; k < count && k < i + AHEAD; k++)
            gp_prefetch_want(prefetch, &k, 1);
        status = gp_prefetch_take(prefetch, i, &there, &bytes, err);
        if (!there)
            status = block_fetch(fetch, i, &bytes, err);
        if (status == GP_OK && !gp_write_all(fd, bytes.data, bytes.bytes))
            status = gp_fail_errno(
                err, GP_EIO, "no space on disk for %s; use a smaller cache=SIZE to keep it in memory", path);
    }
    gp_prefetch_free(prefetch);
    gp_buffer_deinit(&bytes);
    return status;
}

/* Fetch an array into a cached file, or into memory if it cannot be cached, and map it. */
static gp_status object_open(void *context, gp_npy *out, const char *path, gp_error *err)
{
    const npy_objects *from = context;
    npy_fetch fetch = { .s3 = gp_objects_s3(from->objects) };
    gp_object_cache *cache = gp_objects_cache(from->objects);
    gp_object_id id;
    bool mine = false;
    gp_status status = gp_objects_stat(from->objects, key_of(path), &fetch.whole, err);
    int fd = -1;

    if (status != GP_OK)
        return status;
    if (fetch.whole.object_bytes > GP_STORE_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "%s has %llu bytes, at most %llu are supported", path,
                       (unsigned long long)fetch.whole.object_bytes, (unsigned long long)GP_STORE_BYTES_MAX);
    gp_objects_id(from->objects, &id, fetch.whole.key, fetch.whole.tag, 0);
    if (fetch.whole.tag != 0)
        fd = gp_object_cache_file(cache, &id, fetch.whole.object_bytes, &mine);
    if (fd < 0) { /* not cacheable: use a file in memory */
        fd = memfd_create("gradpool-array", MFD_CLOEXEC);
        mine = true;
        cache = NULL;
    }
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "no memory for %s", path);
    if (mine)
        status = object_fill(&fetch, fd, path, err);
    if (mine && cache != NULL && status == GP_OK)
        gp_object_cache_commit(cache, &id, fd, fetch.whole.object_bytes);
    else if (mine && cache != NULL)
        gp_object_cache_discard(cache, &id, true);
    if (status == GP_OK)
        status = gp_npy_open_fd(out, fd, path, err);
    close(fd);
    return status;
}

gp_status gp_s3_npy_open(gp_store **out, const char *bare, gp_objects *objects, gp_npy_exists exists,
                         void *context, gp_data_role role, gp_error *err)
{
    npy_objects from = { objects, exists, context };
    gp_npy_files files = { .exists = object_exists, .open = object_open, .context = &from };

    return gp_store_open_npy_files(out, bare, role, &files, err);
}
