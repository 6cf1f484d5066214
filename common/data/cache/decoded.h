/* decoded.h -- decoded samples cached on disk, so that a data set is decoded once and not at each training.
 *
 * An entry is a file of an object cache (object_cache.h) below $XDG_CACHE_HOME (or ~/.cache)/gradpool/decoded: it is written
 * whole, mapped read-only by every process that reads it, and removed when it was used longest ago and the cache is over its
 * limit. Processes that ask for an entry while another one decodes it wait for that. An entry has a checksum; a damaged one is
 * removed and decoded again. Without a cache directory, or on a full disk, the samples are decoded into memory. */
#ifndef GP_DECODED_H
#define GP_DECODED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Size of the cache on disk; entries of more than half of it are not cached. */
#define GP_DECODED_CACHE_BYTES ((uint64_t)4 << 30)

enum { GP_DECODED_BYTES_MIN = 1 << 20 }; /* less is decoded in a few milliseconds */

typedef struct gp_decoded {
    const uint8_t *data;
    size_t bytes;
    void *map; /* mapped entry that holds the data; NULL: the data is a heap block */
    size_t map_bytes;
    int64_t decode_ns; /* time spent decoding; 0: read from the cache, or no key was given */
} gp_decoded;

/* Decode all `bytes` bytes into `to`. */
typedef gp_status (*gp_decoder)(void *context, void *to, size_t bytes, gp_error *err);

/* gp_decoded_get -- return the data of a key, from the cache or else by decoding it.
 *   key  everything that the bytes depend on, the version of the decoder included; NULL: do not use the cache
 * Release with gp_decoded_deinit(). GP_ENOMEM, and the decoder's errors. */
gp_status gp_decoded_get(gp_decoded *out, const char *key, size_t bytes, gp_decoder decode, void *context,
                         gp_error *err);
void gp_decoded_deinit(gp_decoded *decoded); /* accepts all zero */

#endif
