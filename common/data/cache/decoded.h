/* Cache decoded samples on disk, so that a data set is decoded once and not for each training.
 *
 * Entries are files in an object cache (object_cache.h) below $XDG_CACHE_HOME (or
 * ~/.cache)/gradpool/decoded. An entry is written completely, then mapped read-only by every
 * process that uses it. If the cache exceeds its limit, the least recently used entries are
 * removed. While one process decodes an entry, other processes that need it wait. Each entry has a
 * checksum; a damaged entry is removed and decoded again. Without a cache directory, or on a full
 * disk, samples are decoded to memory. */
#ifndef GP_DECODED_H
#define GP_DECODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Size limit of the disk cache in bytes; entries larger than half of it are not cached. */
#define GP_DECODED_CACHE_BYTES ((uint64_t)4 << 30)

/* smaller data is decoded in a few milliseconds and not cached */
enum { GP_DECODED_BYTES_MIN = 1 << 20 };

/* Decoded samples, in a mapped cache entry or on the heap. */
typedef struct gp_decoded {
    const uint8_t *data;
    size_t bytes;
    void *map; /* mapped entry that holds the data; NULL: the data is a heap block */
    size_t map_bytes;
    int64_t decode_ns; /* time spent decoding; 0: from the cache, or no key was given */
} gp_decoded;

/* Decode exactly `bytes` bytes into `to`. */
typedef gp_status (*gp_decoder)(void *context, void *to, size_t bytes, gp_error *err);

/* Get the data for a key from the cache, or decode it. Release with gp_decoded_deinit().
 *   key     everything that determines the bytes, including the decoder version; NULL: bypass the
 *           cache
 *   bytes   size of the decoded data
 *   decode  called if the cache has no entry
 * Errors: GP_ENOMEM, and those of the decoder. */
gp_status gp_decoded_get(gp_decoded *out, const char *key, size_t bytes, gp_decoder decode, void *context,
                         gp_error *err);
void gp_decoded_deinit(gp_decoded *decoded); /* accepts an all-zero struct */

#endif
