/* team_function.h: find the functions in team_tasks.so. */
#ifndef GP_TEST_TEAM_FUNCTION_H
#define GP_TEST_TEAM_FUNCTION_H

#include "client/team/team.h"
#include "tests/service/pools.h"

/* Find a function of team_tasks.so. NULL: it was not found, and the test fails. */
static inline const gp_function *team_function(gp_team *team, const char *name)
{
    const gp_function *found = NULL;
    gp_error err;
    char path[700];

    snprintf(path, sizeof(path), "%s:%s", in_build("tests/service/team_tasks.so"), name);
    if (gp_function_find(&found, team, path, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", path, err.message);
    return found;
}

#endif
