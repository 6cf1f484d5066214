/* tuning.h -- choices of a GPU's libraries (backend.h) as a document: from rank to rank, in checkpoints, on disk.
 *
 *   {"format": 1, "libraries": "cuDNN 91900, ...; NVIDIA H200, ...", "choices": [{"what": ..., "how": ..., "us": ...}, ...]}
 *
 * They are good for the libraries and the kind of device that it names, and for nothing else.  What is read is not trusted:
 * sizes, counts and characters have ceilings, and a name that no library knows is only a name (backend.h: unknown).
 *
 * On disk: $XDG_CACHE_HOME/gradpool/plans (or ~/.cache/...), a file of a cache (common/base/system/cached.h) for each kind of device and
 * versions.  Two that write at once keep one of theirs: the other times once more. */
#ifndef GP_TUNING_H
#define GP_TUNING_H

#include "common/base/memory/buffer.h"
#include "worker/backend/backend.h"

enum { GP_TUNING_BYTES_MAX = 512 << 10, GP_TUNING_FILES_MAX = 16 };

/* choices: GP_CHOICES_MAX of them, none used. */
gp_status gp_tuning_init(gp_tuning *tuning, gp_error *err);
void gp_tuning_deinit(gp_tuning *tuning);

/* The document of those that are used, into an empty buffer. */
gp_status gp_tuning_write(gp_buffer *out, const gp_tuning *tuning, const char *libraries, gp_error *err);

/* gp_tuning_read -- the document's choices, in place of those that are there.  On failure there are none.
 * GP_ESTALE: it is of other libraries or of another kind of device, which err names.  GP_ECORRUPT: it is no such document. */
gp_status gp_tuning_read(gp_tuning *tuning, const char *text, size_t bytes, const char *libraries,
                         gp_error *err);

/* The same of the file on disk.  GP_ENOENT: there is none.  GP_ECORRUPT, GP_EIO: it is damaged, or not ours; in words. */
gp_status gp_tuning_load(gp_tuning *tuning, const char *libraries, gp_error *err);

/* gp_tuning_save -- all choices; of more than half of GP_CHOICES_MAX those that are used and the newest of the others.  The
 * oldest files beyond GP_TUNING_FILES_MAX go. */
gp_status gp_tuning_save(const gp_tuning *tuning, const char *libraries, gp_error *err);

/* Where that file is. */
gp_status gp_tuning_path(char *path, size_t path_bytes, const char *libraries, gp_error *err);

#endif
