/* Disk cache for S3 objects and decoded samples, shared by all processes of a user on a host.
 *
 * Each entry is a file named by a digest. A process writes the file completely, then renames it;
 * afterwards it never changes, because the digest covers the object's ETag. The modification time
 * records the last use, with a resolution of one minute. A counter in a mapped file holds the total
 * size. The process that exceeds the limit removes the least recently used entries until 90 %
 * remains, while other processes continue. Readers have the file open, so eviction cannot take data
 * from them. The cache is optional: a full disk or a damaged entry costs only another fetch. */
#ifndef GP_OBJECT_CACHE_H
#define GP_OBJECT_CACHE_H

#include <sha2.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

enum { GP_OBJECT_BLOCK_BYTES = 4 << 20 }; /* size limit for a block entry */

typedef struct gp_object_cache gp_object_cache;

/* Name of an entry: a SHA-256 digest in hexadecimal. */
typedef struct gp_object_id {
    char text[SHA256_DIGEST_STRING_LENGTH];
} gp_object_id;

/* Open the cache below $XDG_CACHE_HOME (or ~/.cache)/gradpool/name. NULL: bytes_max is 0, or the
 * directory cannot be used, which is logged. */
gp_object_cache *gp_object_cache_open(const char *name, uint64_t bytes_max);
void gp_object_cache_close(gp_object_cache *cache); /* accepts NULL */

/* Append bytes [offset, offset + bytes) of an entry to `out`. Return false if there is no such
 * entry, or it is too short. Thread-safe. A NULL cache is empty. */
bool gp_object_cache_get(gp_object_cache *cache, const gp_object_id *id, uint64_t offset, size_t bytes,
                         gp_buffer *out);

/* Store a block as an entry if possible; errors are ignored. Thread-safe. */
void gp_object_cache_put(gp_object_cache *cache, const gp_object_id *id, const void *data, size_t bytes);

/* Open a whole object as a file that can be mapped. Return a descriptor; -1: the object cannot be
 * cached.
 *   *mine  true: the file is empty and locked. The caller must fill it and call
 *          gp_object_cache_commit(), or give up with gp_object_cache_discard(). Other processes
 *          wait meanwhile. */
int gp_object_cache_file(gp_object_cache *cache, const gp_object_id *id, uint64_t bytes, bool *mine);

/* Publish a filled file with exactly `bytes` bytes, and unlock it. Return false if that failed; the
 * descriptor remains usable. */
bool gp_object_cache_commit(gp_object_cache *cache, const gp_object_id *id, int fd, uint64_t bytes);

/* Remove a damaged object; if it is `mine`, abandon the file being filled. */
void gp_object_cache_discard(gp_object_cache *cache, const gp_object_id *id, bool mine);

/* Return the total size of all entries in bytes, as counted by all processes. */
uint64_t gp_object_cache_used(const gp_object_cache *cache);

#endif
