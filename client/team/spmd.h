/* spmd.h -- the group in which the ranks of blocks exchange messages.
 *
 * The first block of a size forms it, and later ones of that size use it again: until a rank fails, messages are left
 * over, or the lease has another generation. */
#ifndef GP_TEAM_SPMD_H
#define GP_TEAM_SPMD_H

#include "client/team/calls.h"

/* The group of the last block; zero-initialise. */
typedef struct spmd_group {
    uint32_t number;     /* on the workers, never 0 once used */
    uint32_t world;      /* ranks; 0: the next block forms another group */
    uint32_t generation; /* of the lease */
} spmd_group;

spmd_group *team_spmd_group(gp_team *team);

#endif
