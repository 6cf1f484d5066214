/* The IDX file format used by MNIST (yann.lecun.com/exdb/mnist). A file has a magic number,
 * 0x00000801 for labels or 0x00000803 for images, then the dimensions as big-endian 32-bit numbers,
 * then bytes. Files may be gzipped. */
#ifndef GP_IDX_H
#define GP_IDX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/data/cache/decoded.h"

enum { GP_IDX_RANK_MAX = 3 };

/* Contents of an IDX file. */
typedef struct gp_idx {
    uint32_t rank; /* 1: labels; 3: images, as count, height, width */
    uint32_t dim[GP_IDX_RANK_MAX];
    size_t bytes; /* product of the dimensions */
    const uint8_t *data;
    /* memory behind `data` after gp_idx_read(); all zero: `data` belongs to the caller */
    gp_decoded decoded;
} gp_idx;

/* Read a whole file with the given rank (1 or 3) into memory. Release with gp_idx_deinit(). Large
 * gzipped files are unpacked once and cached (decoded.h). Memory use is bounded by the file size,
 * and reading stops one byte behind the announced end.
 *
 *   GP_ENOENT: the file does not exist
 *   GP_ECORRUPT: wrong format or rank, truncated, damaged, or longer than the header announces
 *   GP_ELIMIT: the dimensions exceed the limits in store.h */
gp_status gp_idx_read(gp_idx *out, const char *path, uint32_t rank, gp_error *err);

/* Read from a descriptor positioned at the start of the file; otherwise like gp_idx_read(). The
 * descriptor is always closed. `name` is used in messages. */
gp_status gp_idx_read_fd(gp_idx *out, int fd, const char *name, uint32_t rank, gp_error *err);

void gp_idx_deinit(gp_idx *idx);

/* Write `idx` to `path`, gzipped or plain. The data goes to path.tmp first and is then renamed, so
 * `path` is either complete or unchanged. progress NULL: no reports. */
gp_status gp_idx_write(const char *path, const gp_idx *idx, bool gzip, const gp_progress *progress,
                       gp_error *err);

#endif
