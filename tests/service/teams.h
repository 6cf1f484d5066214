/* teams.h: a pool with a team on it, and functions of a shared object with tasks. */
#ifndef GP_TEST_TEAMS_H
#define GP_TEST_TEAMS_H

#include "client/gradpool.h"
#include "tests/service/pools.h"

static gp_pool *pool;
static gp_team *team;
static gp_error err;

/* Start a pool of CPU workers in fresh directories, without a team. */
static inline bool team_pool_begin(uint32_t workers)
{
    pools_begin(NULL);
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = workers, .devices = "cpu" }, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

/* Open a team on the pool. */
static inline bool team_open(const gp_team_options *options)
{
    if (gp_team_open(&team, pool, options, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no team: %s", err.message);
    return false;
}

/* Start a pool and open a team on all workers. */
static inline bool team_begin(uint32_t workers, const gp_team_options *options)
{
    return team_pool_begin(workers) && team_open(options);
}

static inline void team_end(void)
{
    gp_team_close(team);
    gp_pool_close(pool);
    team = NULL;
    pool = NULL;
    pools_end();
}

TEARDOWN()
{
    team_end();
}

/* Look up a function. NULL: not found; reported as a failure. */
static inline const gp_function *team_function(const char *object, const char *name)
{
    char path[700];
    const gp_function *found = NULL;

    snprintf(path, sizeof(path), "%s:%s", object, name);
    if (gp_function_find(&found, team, path, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", path, err.message);
    return found;
}

#endif
