/* team_size.c: workers that join and leave an elastic team.
 *
 *   grow:    lease_change --lease_form--> lease_grant --team_link.c--> new workers in stage UP
 *   shrink:  lease_change --the last workers run out of calls--> links closed --lease_form-->
 *            lease_grant
 *
 * The scheduler keeps the ranks of a team's lease, so each worker keeps its number. An SPMD block
 * runs in one generation of the lease: no generation is requested while one runs. */
#include "client/team/team.h"
#include "common/base/clock.h"

/* Close the link of a worker that leaves, in an orderly way if it is up. */
static void worker_leave(gp_team *team, team_worker *worker)
{
    if (worker->stage == TEAM_UP) {
        gp_call *call = worker->corrupt ? NULL : gp_link_reserve(worker->link, 0);

        if (call != NULL) {
            call->kind = GP_CALL_CLOSE;
            worker->dirty = true;
            team_flush(team);
        }
        team->up--;
    }
    payloads_forget(&team->payloads, worker);
    worker_close(worker);
    pool_close_worker(team->pool, worker->number - 1);
    worker->stage = TEAM_DOWN;
    worker->dial_ms = INT64_MAX;
}

void team_set_size(gp_team *team, uint32_t size)
{
    for (uint32_t w = size + 1; w <= team->size; w++)
        worker_leave(team, worker_of(team, w));
    for (uint32_t w = team->size + 1; w <= size; w++)
        *worker_of(team, w) = (team_worker){ .pool = team->pool,
                                             .number = w,
                                             .control_socket = -1,
                                             .dial_ms = INT64_MAX,
                                             .replacement = gp_timeout_in(TEAM_REPLACE_MS) };
    team->size = size;
    dispatch_set_workers(team->dispatch, size);
}

static void form(gp_team *team, uint32_t workers)
{
    const gp_lease_form request = { .joining = UINT64_MAX, .workers = workers };
    gp_error err;

    team->membership.forming = team->pool->elastic.kept = workers;
    if (pool_post(team->pool, &gp_msg_lease_form, &request, NULL, &err) != GP_OK)
        team_break(team, &err);
}

void team_form_again(gp_team *team)
{
    if (team->membership.forming != 0)
        form(team, team->membership.forming);
}

/* Return whether a generation can be requested: the team is elastic, and no request is pending. */
static bool may_form(const team_membership *membership)
{
    return membership->elastic && membership->forming == 0;
}

void team_follow_size(gp_team *team)
{
    const uint32_t target = team->pool->elastic.change.workers;

    if (!may_form(&team->membership) || target == 0 || team->failure.code != GP_OK)
        return;
    EACH_WORKER(team, w)
    dispatch_leave(team->dispatch, w, w > target);
    if (target == team->size || team->membership.blocks != 0)
        return;
    for (uint32_t w = target + 1; w <= team->size; w++)
        if (worker_of(team, w)->stage != TEAM_UP || !dispatch_worker_done(team->dispatch, w))
            return;
    if (target < team->size)
        team_set_size(team, target);
    form(team, target);
}
