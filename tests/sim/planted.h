/* planted.h -- the bugs that can be planted, in the machines (compiled with GP_CORE_MUTANTS) and in the world around them. */
#ifndef GP_SIM_PLANTED_H
#define GP_SIM_PLANTED_H

#include <string.h>

#include "tests/sim/cluster.h"

typedef struct sim_planted {
    const char *name;
    enum { IN_CORE, IN_JOBS, IN_DISPATCH, IN_REFORM, IN_WORLD } where;
    int number;
} sim_planted;

static const sim_planted sim_planted_bugs[] = {
    { "double-grant", IN_CORE, GP_MUTANT_DOUBLE_GRANT },
    { "lost-release", IN_CORE, GP_MUTANT_LOST_RELEASE },
    { "stale-ack", IN_CORE, GP_MUTANT_STALE_ACK },
    { "partial-gang", IN_CORE, GP_MUTANT_PARTIAL_GANG },
    { "old-incarnation", IN_CORE, GP_MUTANT_OLD_INCARNATION },
    { "deaf-to-eof", IN_CORE, GP_MUTANT_DEAF_TO_EOF },
    { "overtake", IN_CORE, GP_MUTANT_OVERTAKE },
    { "forgotten-deadline", IN_CORE, GP_MUTANT_FORGOTTEN_DEADLINE },
    { "hasty-grant", IN_CORE, GP_MUTANT_HASTY_GRANT },
    { "kept-claim", IN_CORE, GP_MUTANT_KEPT_CLAIM },
    { "blind-claim", IN_CORE, GP_MUTANT_BLIND_CLAIM },
    { "forgotten-holder", IN_CORE, GP_MUTANT_FORGOTTEN_HOLDER },
    { "hasty-revoke", IN_CORE, GP_MUTANT_HASTY_REVOKE },
    { "impatient", IN_CORE, GP_MUTANT_IMPATIENT },
    { "kept-suspicion", IN_CORE, GP_MUTANT_KEPT_SUSPICION },
    { "early-reply", IN_JOBS, GP_JOBS_MUTANT_EARLY_REPLY },
    { "early-go", IN_JOBS, GP_JOBS_MUTANT_EARLY_GO },
    { "amnesia", IN_JOBS, GP_JOBS_MUTANT_AMNESIA },
    { "twice", IN_JOBS, GP_JOBS_MUTANT_TWICE },
    { "reused-id", IN_JOBS, GP_JOBS_MUTANT_REUSED_ID },
    { "retry-failed", IN_JOBS, GP_JOBS_MUTANT_RETRY_FAILED },
    { "overbooked", IN_JOBS, GP_JOBS_MUTANT_OVERBOOKED },
    { "hasty-prune", IN_JOBS, GP_JOBS_MUTANT_HASTY_PRUNE },
    { "early-follower", IN_DISPATCH, DISPATCH_MUTANT_EARLY_FOLLOWER },
    { "free-attempt", IN_DISPATCH, DISPATCH_MUTANT_FREE_ATTEMPT },
    { "left-in-ring", IN_DISPATCH, DISPATCH_MUTANT_LEFT_IN_RING },
    { "cancel-runs", IN_DISPATCH, DISPATCH_MUTANT_CANCEL_RUNS },
    { "forgotten-death", IN_DISPATCH, DISPATCH_MUTANT_FORGOTTEN_DEATH },
    { "hasty-join", IN_REFORM, REFORM_MUTANT_HASTY_JOIN },
    { "idle-newcomer", IN_REFORM, REFORM_MUTANT_IDLE_NEWCOMER },
    { "unfit-joins", IN_REFORM, REFORM_MUTANT_UNFIT_JOINS },
    { "deaf-preparing", IN_REFORM, REFORM_MUTANT_DEAF_PREPARING },
    { "half-pause", IN_REFORM, REFORM_MUTANT_HALF_PAUSE },
    { "asked-once", IN_REFORM, REFORM_MUTANT_ASKED_ONCE },
    { "early-begin", IN_REFORM, REFORM_MUTANT_EARLY_BEGIN },
    { "no-alarm", IN_REFORM, REFORM_MUTANT_NO_ALARM },
    { "kept-ready", IN_REFORM, REFORM_MUTANT_KEPT_READY },
    { "kept-grant", IN_REFORM, REFORM_MUTANT_KEPT_GRANT },
    { "blank-state", IN_REFORM, REFORM_MUTANT_BLANK_STATE },
    { "after-the-end", IN_REFORM, REFORM_MUTANT_AFTER_THE_END },
    { "endless", IN_REFORM, REFORM_MUTANT_ENDLESS },
    { "unread-answers", IN_WORLD, SIM_MUTANT_UNREAD_ANSWERS },
    { "false-revoke", IN_WORLD, SIM_MUTANT_FALSE_REVOKE },
    { "open-gate", IN_WORLD, SIM_MUTANT_OPEN_GATE },
    { "lying-disk", IN_WORLD, SIM_MUTANT_LYING_DISK },
    { "no-fence", IN_WORLD, SIM_MUTANT_NO_FENCE },
    { "spared", IN_WORLD, SIM_MUTANT_SPARED },
    { "sent-again", IN_WORLD, SIM_MUTANT_SENT_AGAIN },
    { "new-key", IN_WORLD, SIM_MUTANT_NEW_KEY },
    { "forgotten-state", IN_WORLD, SIM_MUTANT_FORGOTTEN_STATE },
};

enum { SIM_PLANTED = sizeof(sim_planted_bugs) / sizeof(sim_planted_bugs[0]) };

/* Every machine's list is in the table whole. */
_Static_assert(SIM_PLANTED == GP_MUTANT_COUNT - 1 + GP_JOBS_MUTANT_COUNT - 1 + DISPATCH_MUTANT_COUNT - 1 +
                                  REFORM_MUTANT_COUNT - 1 + SIM_MUTANT_COUNT - 1,
               "a planted bug is missing in the table");

/* NULL: none is planted. */
static inline void sim_plant(const sim_planted *bug)
{
    gp_core_mutation = bug != NULL && bug->where == IN_CORE ? (gp_core_mutant)bug->number : GP_MUTANT_NONE;
    gp_jobs_mutation =
        bug != NULL && bug->where == IN_JOBS ? (gp_jobs_mutant)bug->number : GP_JOBS_MUTANT_NONE;
    dispatch_mutation =
        bug != NULL && bug->where == IN_DISPATCH ? (dispatch_mutant)bug->number : DISPATCH_MUTANT_NONE;
    reform_mutation =
        bug != NULL && bug->where == IN_REFORM ? (reform_mutant)bug->number : REFORM_MUTANT_NONE;
    sim_mutation = bug != NULL && bug->where == IN_WORLD ? (sim_mutant)bug->number : SIM_MUTANT_NONE;
}

static inline const sim_planted *sim_find_planted(const char *name)
{
    for (int i = 0; i < SIM_PLANTED; i++)
        if (strcmp(sim_planted_bugs[i].name, name) == 0)
            return &sim_planted_bugs[i];
    return NULL;
}

#endif
