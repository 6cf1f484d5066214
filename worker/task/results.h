/* results.h -- memory files for large results, reused after the client has released them.
 *
 * Most of the cost of a large result is new pages, which the kernel allocates and clears one by
 * one. So a file that was sent is kept and stays mapped. It is reused for a later result once no
 * other process has it open or mapped. The kernel provides this check: the client receives its
 * own open file description, opened read-only, and a write lease is granted only to the sole
 * holder of a file (fcntl(2), F_SETLEASE). Without lease support, files are not reused. All
 * functions run on the compute thread. */
#ifndef GP_RESULTS_H
#define GP_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/task/blobs.h"

enum {
    GP_RESULTS_KEPT = 8,               /* maximum number of kept files */
    GP_RESULTS_BYTES_KEPT = 128 << 20, /* maximum bytes of all kept files */
};

/* Memory file, sealed against resizing. */
typedef struct gp_memory {
    int fd;       /* -1: none */
    void *map;    /* writable mapping of the whole file; NULL: not mapped */
    size_t bytes; /* file size: at least the requested size */
    bool clean;   /* the contents are still all zero */
} gp_memory;

/* Memory files kept for reuse. */
typedef struct gp_results {
    gp_memory kept[GP_RESULTS_KEPT]; /* oldest first */
    uint32_t count;
    size_t bytes;
} gp_results; /* zero-initialized: empty */

void gp_results_deinit(gp_results *results);

/* Get a mapped memory file of at least `bytes` bytes, a kept one if possible. GP_ENOMEM, GP_EIO:
 * no file. */
gp_status gp_results_take(gp_results *results, size_t bytes, gp_memory *out, gp_error *err);

/* Send a memory file as the next blob and keep it for reuse. *memory is always taken over.
 * Errors as for gp_blobs_send(). */
gp_status gp_results_send(gp_results *results, gp_memory *memory, gp_blobs *blobs, uint64_t *number,
                          gp_error *err);

void gp_memory_close(gp_memory *memory); /* no effect if fd is -1 */

#endif
