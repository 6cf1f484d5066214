/* sealed.h -- memory shared between processes: a memfd that nobody can resize any more.
 *
 * A mapping of a file that its owner may cut is a SIGBUS waiting to happen, so a peer's descriptor is mapped
 * only after its seals and its size were seen. */
#ifndef GP_COMM_SEALED_H
#define GP_COMM_SEALED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* A sealed memfd of `bytes`, zeroed, mapped and with all its pages present.  The caller closes and unmaps.
 * GP_ENOMEM: the machine has not that much. */
gp_status gp_sealed_new(const char *name, size_t bytes, int *fd, uint8_t **map, gp_error *err);

/* The same without touching the pages: for sparse use. */
gp_status gp_sealed_new_sparse(const char *name, size_t bytes, int *fd, uint8_t **map, gp_error *err);

/* Map the first `bytes` of a peer's memfd.  The descriptor stays the caller's.  GP_EPROTO: not sealed against
 * resizing, or shorter. */
gp_status gp_sealed_map(int fd, size_t bytes, uint8_t **map, gp_error *err);

/* Take page faults now, not within a step. */
void gp_sealed_populate(uint8_t *map, size_t bytes);

/* The pages of a range of a sparse map, whole ones at least; and back, which makes them zero for all who map them. */
gp_status gp_sealed_take(uint8_t *map, size_t bytes, gp_error *err);
void gp_sealed_give_back(uint8_t *map, size_t bytes);

void gp_sealed_unmap(uint8_t *map, size_t bytes); /* accepts NULL */

#endif
