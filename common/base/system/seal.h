/* seal.h -- memory files that nobody can change any more. */
#ifndef GP_SEAL_H
#define GP_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Add seals (F_SEAL_...) to a memfd; as fcntl(F_ADD_SEALS), 0 or -1 with errno. F_SEAL_WRITE is
 * refused with EBUSY while the kernel holds a page of the file (page migration), or while a child
 * that is being started still has a mapping. Both pass, so the call is repeated for up to a second.
 */
int gp_seal(int fd, int seals);

/* Copy `bytes` bytes into a new memfd, and seal it against writing, growing and shrinking. The
 * caller closes *fd. */
gp_status gp_seal_new(int *fd, const void *data, size_t bytes, gp_error *err);

/* Map a memfd of another process for reading. The caller keeps fd and unmaps *data with munmap().
 * No bytes: *data is NULL. GP_EPROTO: it has not exactly `bytes` bytes, or lacks a seal of
 * gp_seal_new(). */
gp_status gp_seal_map(const void **data, int fd, size_t bytes, gp_error *err);

#endif
