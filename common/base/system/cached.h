/* cached.h -- files of a cache: whole or not there, and not trusted.
 *
 *   WORD CHECKSUM       a line; CRC32C of all that follows it, 8 hexadecimal digits
 *   what was written
 *
 * Files are of 0600 in directories of 0700, written beside their name and renamed: two that write at once keep one of theirs. */
#ifndef GP_CACHED_H
#define GP_CACHED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_CACHED_WORD_MAX = 40 };

/* gp_cached_read -- what was written, with a NUL behind it; freed with gp_free().
 * GP_ENOENT: there is none.  GP_EIO: no plain file of ours of at most that many bytes.  GP_ECORRUPT: another word or checksum. */
gp_status gp_cached_read(char **out, size_t *bytes, const char *path, const char *word, size_t bytes_max,
                         gp_error *err);

/* gp_cached_write -- makes the directories; then the oldest file of path's goes if there are more than that many. */
gp_status gp_cached_write(const char *path, const char *word, const void *data, size_t bytes,
                          uint32_t files_max, gp_error *err);

/* gp_cache_path -- the path of an entry of the user's cache: $XDG_CACHE_HOME, or ~/.cache, then gradpool/WHAT/NAME.
 *   what  "data", "models", "decoded", ...
 *   name  NULL: the directory gradpool/WHAT
 * Creates nothing. GP_ENOENT: neither XDG_CACHE_HOME nor HOME is an absolute path. GP_ELIMIT: the path does not fit. */
gp_status gp_cache_path(char *path, size_t path_bytes, const char *what, const char *name, gp_error *err);

#endif
