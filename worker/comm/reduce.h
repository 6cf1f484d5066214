/* reduce.h -- the arithmetic of collectives: element-wise combination in rank order, vectorised. */
#ifndef GP_COMM_REDUCE_H
#define GP_COMM_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "worker/comm/comm.h"

/* out := ranks[0] o ranks[1] o ... for elements [first, last) of each.  out points at element `first` and may
 * be ranks[k] + first for one k.  The type is one that comm.h can reduce. */
void gp_reduce_into(void *out, void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                    gp_comm_reduction how);

/* The same, stored to elements [first, last) of all ranks. */
void gp_reduce_to_all(void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                      gp_comm_reduction how);

#endif
