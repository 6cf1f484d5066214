/* results.h -- memory files of large results, used again when the client has let go of them.
 *
 * New pages are what a large result costs: the kernel finds and clears them one by one.  So a file that was sent stays
 * here, mapped, and is given to a later result as soon as nobody else has it open or mapped.  The kernel knows that: the
 * client is sent a description of its own, opened for reading, and a write lease is granted to the only holder of a file
 * (fcntl(2), F_SETLEASE).  Where leases are not supported nothing is used twice.  Compute thread. */
#ifndef GP_RESULTS_H
#define GP_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "worker/task/blobs.h"

enum {
    GP_RESULTS_KEPT = 8,               /* files */
    GP_RESULTS_BYTES_KEPT = 128 << 20, /* and their bytes, all together */
};

/* A memory file, sealed against resizing. */
typedef struct gp_memory {
    int fd;       /* -1 = none */
    void *map;    /* all of it, writable; NULL = not mapped */
    size_t bytes; /* of the file: at least what was asked for */
    bool clean;   /* all zero still */
} gp_memory;

typedef struct gp_results {
    gp_memory kept[GP_RESULTS_KEPT]; /* oldest first */
    uint32_t count;
    size_t bytes;
} gp_results; /* zeroed = empty */

void gp_results_deinit(gp_results *results);

/* gp_results_take -- room for that many bytes, mapped; one that was used before if there is one.  GP_ENOMEM, GP_EIO. */
gp_status gp_results_take(gp_results *results, size_t bytes, gp_memory *out, gp_error *err);

/* gp_results_send -- send it as the next blob, and keep it for later.  It is handed over, whatever is returned.
 * GP_EPEER, GP_ECANCELED, as gp_blobs_send(). */
gp_status gp_results_send(gp_results *results, gp_memory *memory, gp_blobs *blobs, uint64_t *number,
                          gp_error *err);

void gp_memory_close(gp_memory *memory); /* accepts one with fd = -1 */

#endif
