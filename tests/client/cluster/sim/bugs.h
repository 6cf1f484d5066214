/* Selection of the bug from bugs.def that the simulation plants. */
#ifndef GP_CLUSTER_SIM_BUGS_H
#define GP_CLUSTER_SIM_BUGS_H

typedef enum sim_bug {
    SIM_BUG_NONE,
#define SIM_BUG(id, name) SIM_BUG_##id,
#include "tests/client/cluster/sim/bugs.def"
#undef SIM_BUG
    SIM_BUG_COUNT,
} sim_bug;

extern sim_bug sim_planted;

#define PLANTED(id) (sim_planted == SIM_BUG_##id)

#endif
