/* tuning.h -- engine choices for GPU libraries (backend.h) as a JSON document, which is sent
 * between ranks and stored in checkpoints and on disk.
 *
 *   {"format": 2, "libraries": "cuDNN 91900, ...; NVIDIA H200, ...", "choices": [{"what": ...,
 *   "how": ..., "us": ...}, ...]}
 *
 * The choices are valid only for the library versions and the device kind in the document. Input
 * is not trusted: sizes, counts and characters are limited, and an engine name that the library
 * does not know is ignored (backend.h: unknown).
 *
 * The cache on disk is $XDG_CACHE_HOME/gradpool/plans (or ~/.cache/...), with one file
 * (common/base/system/cached.h) per device kind and versions. If two processes write at once, one
 * file wins; the other process times the engines again next time. */
#ifndef GP_TUNING_H
#define GP_TUNING_H

#include "common/base/memory/buffer.h"
#include "worker/backend/backend.h"

enum { GP_TUNING_BYTES_MAX = 512 << 10, GP_TUNING_FILES_MAX = 16 };

/* Allocate GP_CHOICES_MAX unused choices. */
gp_status gp_tuning_init(gp_tuning *tuning, gp_error *err);
void gp_tuning_deinit(gp_tuning *tuning);

/* Write the used choices into an empty buffer. */
gp_status gp_tuning_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries, gp_error *err);

/* Replace the choices by those in a document. On failure there are no choices. GP_ESTALE: the
 * document has other library versions or another device kind, which err names. GP_ECORRUPT:
 * malformed document. */
gp_status gp_tuning_read(gp_tuning *tuning, const char *text, size_t bytes, const char *libraries,
                         gp_error *err);

/* Read the choices from the cache file. GP_ENOENT: no file. GP_ECORRUPT, GP_EIO: the file is
 * damaged or has another owner. */
gp_status gp_tuning_load(gp_tuning *tuning, const char *libraries, gp_error *err);

/* Write all choices to the cache file. If they exceed half of GP_CHOICES_MAX, keep the used ones
 * and the newest others. Remove the oldest files beyond GP_TUNING_FILES_MAX. */
gp_status gp_tuning_save(const gp_tuning *tuning, const char *libraries, gp_error *err);

/* Return the cache file path. */
gp_status gp_tuning_path(char *path, size_t path_bytes, const char *libraries, gp_error *err);

#endif
