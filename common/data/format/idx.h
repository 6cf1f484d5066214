/* idx.h -- the IDX file format of MNIST (yann.lecun.com/exdb/mnist): a magic number 0x00000801 (labels) or
 * 0x00000803 (images), the dimensions as big-endian 32-bit numbers, then bytes.  Plain or gzipped. */
#ifndef GP_IDX_H
#define GP_IDX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/progress.h"
#include "common/data/cache/decoded.h"

enum { GP_IDX_RANK_MAX = 3 };

typedef struct gp_idx {
    uint32_t rank; /* 1: labels; 3: images as count, height, width */
    uint32_t dim[GP_IDX_RANK_MAX];
    size_t bytes; /* the product of the dimensions */
    const uint8_t *data;
    gp_decoded decoded; /* memory that holds data after gp_idx_read(); all zero: data is the caller's */
} gp_idx;

/* gp_idx_read -- read a whole file of that rank (1 or 3) into memory.
 * Never takes more memory than a file of its size can hold, and stops one byte past the expected end.
 * Large gzipped files are unpacked once and cached (decoded.h).
 * GP_ENOENT: no such file.  GP_ECORRUPT: not such a file, truncated, damaged, or longer than its header says.
 * GP_ELIMIT: dimensions beyond the ceilings of store.h.  Release with gp_idx_deinit(). */
gp_status gp_idx_read(gp_idx *out, const char *path, uint32_t rank, gp_error *err);

/* The same from a descriptor at its start, which is closed in any case; name is for messages. */
gp_status gp_idx_read_fd(gp_idx *out, int fd, const char *name, uint32_t rank, gp_error *err);

void gp_idx_deinit(gp_idx *idx);

/* gp_idx_write -- write idx (data borrowed) to path, gzipped or plain, by way of PATH.tmp and a rename: whatever
 * happens, PATH is whole or as it was.
 *   progress  NULL: no reports */
gp_status gp_idx_write(const char *path, const gp_idx *idx, bool gzip, const gp_progress *progress,
                       gp_error *err);

#endif
