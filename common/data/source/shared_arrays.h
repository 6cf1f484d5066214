/* Shared arrays: samples that a program on this machine provides to all workers as a sealed memory
 * file. Every reader maps the same file, so the memory is used only once.
 *
 * A source has the form arrays:PID:DESCRIPTOR:TOKEN, with the process that holds the file,
 * its descriptor number there, and a random token. The file contains the token, too, so a
 * later process with the same PID is not mistaken for it. The owner passes the descriptor to
 * other processes on request (gp_shared_arrays_serve()). If it does not serve, the file is
 * opened through /proc. Contents are untrusted and therefore checked; the seals ensure that
 * they cannot change afterwards. */
#ifndef GP_SHARED_ARRAYS_H
#define GP_SHARED_ARRAYS_H

#include "common/data/store/store.h"

enum { GP_SHARED_ARRAYS_SOURCE_BYTES = 80 };

/* Create a memory file with arrays, and format a source name, valid while this process has the file
 * open.
 *   fd       set to the file, owned by the caller; after it is closed, the memory is freed when
 *            the last reader closes the store
 *   info     count, shape, dtype, targets[0] (exactly one), class_count and class_names are read
 *   samples  packed samples
 *   targets  NULL: no sample has a class
 * GP_ELIMIT: a size in `info` exceeds its limit. GP_ENOMEM: not enough memory. */
gp_status gp_shared_arrays_make(int *fd, char source[GP_SHARED_ARRAYS_SOURCE_BYTES],
                                const gp_store_info *info, const void *samples, const void *targets,
                                gp_error *err);

/* Thread that passes the descriptor of shared arrays to other processes. */
typedef struct gp_lender gp_lender;

/* Pass the descriptor to each process of this user that asks for the source's token
 * (shared_arrays.c), on a thread, until gp_shared_arrays_serve_end(). The caller keeps fd and
 * closes it afterwards. GP_ELIMIT: no descriptor or thread available. */
gp_status gp_shared_arrays_serve(gp_lender **out, int fd, const char *source, gp_error *err);
void gp_shared_arrays_serve_end(gp_lender *lender); /* accepts NULL */

#endif
