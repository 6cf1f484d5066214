/* Selection of the bug from bugs.def that the simulation plants. */
#ifndef GP_SIM_BUGS_H
#define GP_SIM_BUGS_H

#include <string.h>

typedef enum sim_bug {
    SIM_BUG_NONE,
#define SIM_BUG(id, name) SIM_BUG_##id,
#include "tests/sim/bugs.def"
#undef SIM_BUG
    SIM_BUG_COUNT,
} sim_bug;

static const char *const sim_bug_names[SIM_BUG_COUNT] = {
#define SIM_BUG(id, name) [SIM_BUG_##id] = name,
#include "tests/sim/bugs.def"
#undef SIM_BUG
};

extern sim_bug sim_planted;

#define PLANTED(id) (sim_planted == SIM_BUG_##id)

/* Find a bug by name. SIM_BUG_NONE: no such bug. */
static inline sim_bug sim_find_bug(const char *name)
{
    for (int bug = 1; bug < SIM_BUG_COUNT; bug++)
        if (strcmp(sim_bug_names[bug], name) == 0)
            return (sim_bug)bug;
    return SIM_BUG_NONE;
}

#endif
