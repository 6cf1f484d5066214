/* object_cache.h -- objects fetched from S3, and decoded samples, on disk for every process of the user on this host.
 *
 * An entry is a file named by a digest, written whole and renamed; it never changes afterwards, since the digest is also of
 * the object's ETag.  Its time of change is when it was used last, to a minute.  What is used together stands in one number
 * that all processes map; whoever adds beyond the limit removes the entries that were used longest ago, down to nine tenths of
 * it, while the others go on.  A reader has the file open, so nothing is taken away under it.  Nothing depends on the cache: a
 * full disk or a damaged entry costs a fetch. */
#ifndef GP_OBJECT_CACHE_H
#define GP_OBJECT_CACHE_H

#include <sha2.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

enum { GP_OBJECT_BLOCK_BYTES = 4 << 20 }; /* the largest entry */

typedef struct gp_object_cache gp_object_cache; /* opaque */

/* What an entry is known by. */
typedef struct gp_object_id {
    char text[SHA256_DIGEST_STRING_LENGTH];
} gp_object_id;

/* gp_object_cache_open -- open the cache below $XDG_CACHE_HOME (or ~/.cache)/gradpool/NAME.
 * NULL: bytes_max is 0, or there is no such directory, which is logged. */
gp_object_cache *gp_object_cache_open(const char *name, uint64_t bytes_max);
void gp_object_cache_close(gp_object_cache *cache); /* accepts NULL */

/* gp_object_cache_get -- append bytes [offset, offset + bytes) of an entry to out; false: it is not there, or not so long.
 * Any thread; a NULL cache has nothing. */
bool gp_object_cache_get(gp_object_cache *cache, const gp_object_id *id, uint64_t offset, size_t bytes,
                         gp_buffer *out);

/* gp_object_cache_put -- keep an entry, if it can be.  Any thread. */
void gp_object_cache_put(gp_object_cache *cache, const gp_object_id *id, const void *data, size_t bytes);

/* gp_object_cache_file -- a whole object as a file of its own, to be mapped: an open descriptor, -1: it cannot be kept.
 *   *mine  true: it is empty and locked, the caller fills it and calls gp_object_cache_commit(); others wait for it */
int gp_object_cache_file(gp_object_cache *cache, const gp_object_id *id, uint64_t bytes, bool *mine);
bool gp_object_cache_commit(gp_object_cache *cache, const gp_object_id *id, int fd, uint64_t bytes);

/* gp_object_cache_discard -- remove a whole object that is damaged; if it is `mine`, give up filling it. */
void gp_object_cache_discard(gp_object_cache *cache, const gp_object_id *id, bool mine);

/* The bytes that all entries take, as far as this process knows. */
uint64_t gp_object_cache_used(const gp_object_cache *cache);

#endif
