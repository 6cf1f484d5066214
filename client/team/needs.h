/* needs.h: the different needs of a team's calls, and the workers that meet them.
 *
 * Each combination of device kind and resources that calls need is a class of the dispatcher
 * (dispatch.h), which then knows only numbers and sets of workers. Class 0 has no needs. */
#ifndef GP_TEAM_NEEDS_H
#define GP_TEAM_NEEDS_H

#include "client/pool/pool.h"
#include "client/team/calls.h"
#include "common/base/text/resources.h"
#include "proto/message/messages.h"

/* Device and resources that a call needs, or that a worker has. */
typedef struct team_need {
    bool cpu, gpu;
    gp_resource_table resources;
} team_need;

typedef struct team_class {
    team_need need;
    uint64_t workers; /* bit w - 1: worker w of the grant meets the need */
} team_class;

/* Initialize with zeros. */
typedef struct team_needs {
    team_class *classes;  /* [DISPATCH_CLASSES_MAX], by number; NULL: no call has had needs */
    uint32_t class_count; /* entries in use, with entry 0 */
    uint32_t last;        /* class of the last call with resources; 0: none */
    gp_lease_environment last_environment;
    char last_resources[GP_RESOURCES_BYTES]; /* as given by that call */
    team_need lease;                         /* needs of the team's own lease */
    team_need *joining;                      /* elastic: workers of the pool that may join */
    uint32_t joining_count;
    uint64_t asked;   /* correlation of the last request for the workers of the pool */
    int64_t asked_ns; /* when that request was sent; 0: never */
} team_needs;

/* Record the workers of the pool that may join an elastic team with this lease request. */
void team_needs_open(team_needs *needs, const gp_status_reply *pool, const gp_lease_request *lease);
void team_needs_deinit(team_needs *needs);

/* Handle a reply of the scheduler to the request of team_needs_check(). Ignore other messages. */
void team_needs_reply(team_needs *needs, const gp_incoming *in);

/* End the calls whose needs no worker of the team meets, and no worker of the pool that may join.
 * While such calls wait for a worker to join, ask the scheduler each second for the workers of the
 * pool: their number and their resources can change. */
void team_needs_check(gp_team *team);

/* Describe the needs of a class that no worker meets, and the resources of the workers. */
void team_needs_text(const gp_team *team, uint32_t class, char *text, size_t bytes);

/* Implement team_needs_find() for calls with needs. */
gp_status team_needs_search(gp_team *team, gp_lease_environment environment, const char *resources,
                            uint32_t worker, uint32_t *class, gp_error *err);

/* Find the class of calls with these needs.
 *   resources  as in gp_lease_request; NULL: none
 *   worker     the worker that must meet them; 0: any
 *   class      set to the class; 0 with a worker: it meets the needs
 * GP_ENODEV: no worker of the team meets them, and none that may join before the team has its
 * maximum of workers. GP_EINVAL, GP_ELIMIT: malformed resources. GP_ELIMIT: live calls have too
 * many different needs. */
static inline gp_status team_needs_find(gp_team *team, gp_lease_environment environment,
                                        const char *resources, uint32_t worker, uint32_t *class,
                                        gp_error *err)
{
    *class = 0;
    if (environment == GP_ENVIRONMENT_ANY && (resources == NULL || resources[0] == '\0'))
        return GP_OK;
    return team_needs_search(team, environment, resources, worker, class, err);
}

/* Return the number of workers in the team that meet the needs of a class, at least 1. */
uint32_t team_needs_workers(const gp_team *team, uint32_t class);

/* Return the needs of a lease for calls of a class: those of the class and of the team's own lease.
 *   resources  set to the resources as text
 * GP_ELIMIT: together they are too many. */
gp_status team_needs_lease(const gp_team *team, uint32_t class, gp_lease_environment *environment,
                           char resources[GP_RESOURCES_BYTES], gp_error *err);

/* Pass the workers of a new grant to the dispatcher. */
void team_needs_update(gp_team *team);

#endif
