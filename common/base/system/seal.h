/* Sealed memory files (memfd) whose content can no longer change. */
#ifndef GP_SEAL_H
#define GP_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Add seals (F_SEAL_...) to a memfd. Return 0, or -1 with errno, like fcntl(F_ADD_SEALS).
 *
 * F_SEAL_WRITE fails with EBUSY while the kernel holds a page (page migration), or while a starting
 * child process still has a writable mapping. Both are temporary, so this function retries for up
 * to one second. */
int gp_seal(int fd, int seals);

/* Copy `bytes` bytes into a new memfd, and seal it against writing, growing and shrinking. The
 * caller closes *fd. */
gp_status gp_seal_new(int *fd, const void *data, size_t bytes, gp_error *err);

/* Map another process's memfd for reading.
 *   data   set to the mapping; release it with munmap(). NULL if `bytes` is 0
 *   fd     memfd; remains owned by the caller
 *   bytes  expected size
 * GP_EPROTO: the size differs, or a seal that gp_seal_new() sets is missing. */
gp_status gp_seal_map(const void **data, int fd, size_t bytes, gp_error *err);

#endif
