/* spmd.h: the group in which SPMD ranks exchange messages.
 *
 * The first block of a size forms the group. Later blocks of the same size reuse it, until a rank
 * fails, messages are left over, or the lease has a new generation. */
#ifndef GP_TEAM_SPMD_H
#define GP_TEAM_SPMD_H

#include "client/team/calls.h"

/* Group of the last block. Initialize with zeros. */
typedef struct spmd_group {
    uint32_t number;     /* number on the workers; never 0 after the first use */
    uint32_t world;      /* ranks; 0: the next block forms a new group */
    uint32_t generation; /* generation of the lease */
} spmd_group;

#endif
