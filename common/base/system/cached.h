/* Cache files: written atomically, and verified when they are read.
 *
 *   WORD CHECKSUM       first line; CRC32C over all following bytes, 8 hexadecimal digits
 *   data
 *
 * Files have mode 0600, directories 0700. A file is written under a temporary name and then
 * renamed. If two processes write the same file at the same time, the file is complete and belongs
 * to one of them. */
#ifndef GP_CACHED_H
#define GP_CACHED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_CACHED_WORD_MAX = 40 }; /* longest WORD, in bytes */

/* Read and verify a cache file. *out has a NUL after the data; free it with gp_free().
 *   path       file to read
 *   word       expected WORD, which identifies the format
 *   bytes_max  data size limit
 * GP_ENOENT: no such file. GP_EIO: unreadable, too large, not a regular file, or owned by another
 * user. GP_ECORRUPT: WORD or checksum differ. */
gp_status gp_cached_read(char **out, size_t *bytes, const char *path, const char *word, size_t bytes_max,
                         gp_error *err);

/* Write a cache file; create missing directories. If the directory then has more than files_max
 * files, remove the oldest one. */
gp_status gp_cached_write(const char *path, const char *word, const void *data, size_t bytes,
                          uint32_t files_max, gp_error *err);

/* Build this user's path for a cache entry: gradpool/WHAT/NAME in $XDG_CACHE_HOME, or in ~/.cache.
 * Creates nothing.
 *   what  "data", "models", "decoded", ...
 *   name  file name; NULL: return the directory gradpool/WHAT
 * GP_ENOENT: neither XDG_CACHE_HOME nor HOME is an absolute path. GP_ELIMIT: the path is too
 * long. */
gp_status gp_cache_path(char *path, size_t path_bytes, const char *what, const char *name, gp_error *err);

#endif
