/* Element-wise reductions in rank order, vectorised. */
#ifndef GP_COMM_REDUCE_H
#define GP_COMM_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#include "worker/comm/comm.h"

/* Combine the elements [first, last) of all ranks.
 *   out    receives element `first` onwards; may be ranks[k] + first for one k
 *   ranks  every rank's buffer, [world]
 *   type   GP_F32, GP_F64, GP_I32 or GP_I64 */
void gp_reduce_into(void *out, void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                    gp_comm_reduction how);

/* Combine as above and store the result in elements [first, last) of all ranks. */
void gp_reduce_to_all(void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                      gp_comm_reduction how);

#endif
