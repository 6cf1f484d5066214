/* Shared memory between processes: memfds sealed against resizing.
 *
 * If the owner truncates a mapped file, an access causes SIGBUS. A peer's descriptor is therefore
 * mapped only after checking the memfd's seals and size. */
#ifndef GP_COMM_SEALED_H
#define GP_COMM_SEALED_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Create a sealed, zeroed memfd and map it with pages allocated for the first `present` bytes. The
 * caller closes `fd` and unmaps `map`. GP_ENOMEM: not enough memory. */
gp_status gp_sealed_new(const char *name, size_t bytes, size_t present, int *fd, uint8_t **map,
                        gp_error *err);

/* Map the first `bytes` of a peer's memfd. The caller keeps the descriptor. GP_EPROTO: not sealed
 * against resizing, or shorter than `bytes`. */
gp_status gp_sealed_map(int fd, size_t bytes, uint8_t **map, gp_error *err);

/* Allocate the pages now, so that no page fault occurs within a step. Failures are ignored. */
void gp_sealed_populate(uint8_t *map, size_t bytes);

/* Allocate the pages of a range in a sparse mapping, rounded outwards to whole pages. GP_ENOMEM:
 * not enough memory. */
gp_status gp_sealed_take(uint8_t *map, size_t bytes, gp_error *err);

/* Release the pages of a range; all processes that map them then read zeros. */
void gp_sealed_give_back(uint8_t *map, size_t bytes);

void gp_sealed_unmap(uint8_t *map, size_t bytes); /* accepts NULL */

#endif
