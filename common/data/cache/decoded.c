/* Cache decoded samples as checksummed files in an object cache, and map them read-only. */
#include "common/data/cache/decoded.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/file.h"
#include "common/data/cache/object_cache.h"

/* File header of a cache entry; the data follows. */
typedef struct decoded_head {
    char magic[8];
    uint64_t bytes;
    uint32_t sum; /* CRC32C over the data */
    char unused[44];
} decoded_head;

_Static_assert(sizeof(decoded_head) == 64, "the data of a mapped entry is aligned to 64 bytes");

static const char decoded_magic[8] = "gpdec 1";

/* Map an entry. Return false if it is damaged or cannot be mapped. */
static bool entry_map(gp_decoded *decoded, int fd, size_t bytes)
{
    size_t whole = sizeof(decoded_head) + bytes;
    void *map = mmap(NULL, whole, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    const decoded_head *head = map;

    if (map == MAP_FAILED)
        return false;
    if (memcmp(head->magic, decoded_magic, sizeof(decoded_magic)) != 0 || head->bytes != bytes ||
        head->sum != gp_crc32c(0, head + 1, bytes)) {
        munmap(map, whole);
        return false;
    }
    *decoded =
        (gp_decoded){ .data = (const uint8_t *)(head + 1), .bytes = bytes, .map = map, .map_bytes = whole };
    return true;
}

/* Write decoded data to an empty entry. On success, replace the heap block with a mapping of the
 * entry; otherwise keep the heap block. */
static void entry_fill(gp_decoded *decoded, gp_object_cache *cache, const gp_object_id *id, int fd)
{
    decoded_head head = { .bytes = decoded->bytes, .sum = gp_crc32c(0, decoded->data, decoded->bytes) };
    uint64_t whole = sizeof(head) + decoded->bytes;
    gp_decoded mapped;

    memcpy(head.magic, decoded_magic, sizeof(decoded_magic));
    if (!gp_write_all(fd, &head, sizeof(head)) || !gp_write_all(fd, decoded->data, decoded->bytes)) {
        gp_object_cache_discard(cache, id, true);
        return;
    }
    if (!gp_object_cache_commit(cache, id, fd, whole) || !entry_map(&mapped, fd, decoded->bytes))
        return;
    mapped.decode_ns = decoded->decode_ns;
    gp_decoded_deinit(decoded);
    *decoded = mapped;
}

gp_status gp_decoded_get(gp_decoded *out, const char *key, size_t bytes, gp_decoder decode, void *context,
                         gp_error *err)
{
    enum { TRIES = 2 }; /* a second try, after a damaged entry was discarded */
    gp_object_cache *cache = key == NULL ? NULL : gp_object_cache_open("decoded", GP_DECODED_CACHE_BYTES);
    gp_object_id id;
    SHA2_CTX sum;
    gp_status status = GP_OK;
    bool mapped = false, mine = false;
    int fd = -1;

    if (cache != NULL) {
        SHA256Init(&sum);
        SHA256Update(&sum, (const uint8_t *)key, strlen(key));
        SHA256End(&sum, id.text);
    }
    for (int i = 0; i < TRIES && cache != NULL && !mapped && !mine; i++) {
        if (fd >= 0) {
            close(fd);
            gp_object_cache_discard(cache, &id, false);
        }
        fd = gp_object_cache_file(cache, &id, sizeof(decoded_head) + bytes, &mine);
        if (fd < 0)
            break;
        mapped = !mine && entry_map(out, fd, bytes);
    }
    if (!mapped) {
        const int64_t begin_ns = gp_now_ns();
        uint8_t *data = gp_malloc(bytes);

        status = data == NULL ? gp_fail(err, GP_ENOMEM, "no memory for %zu bytes of decoded samples", bytes)
                              : decode(context, data, bytes, err);
        if (status == GP_OK)
            *out = (gp_decoded){ .data = data,
                                 .bytes = bytes,
                                 .decode_ns = key == NULL ? 0 : gp_now_ns() - begin_ns };
        else
            gp_free(data);
    }
    if (mine && status == GP_OK)
        entry_fill(out, cache, &id, fd);
    else if (mine)
        gp_object_cache_discard(cache, &id, true);
    if (fd >= 0)
        close(fd);
    gp_object_cache_close(cache);
    return status;
}

void gp_decoded_deinit(gp_decoded *decoded)
{
    if (decoded->map != NULL)
        munmap(decoded->map, decoded->map_bytes);
    else
        gp_free((void *)(uintptr_t)decoded->data);
    *decoded = (gp_decoded){ 0 };
}
