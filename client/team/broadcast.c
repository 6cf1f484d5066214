
#include "client/team/team.h"
#include "common/base/memory/alloc.h"

enum {
    WAIT_MS = 20,   /* timeout after which the client no longer waits for workers that run a call */
    DEATHS_MAX = 3, /* worker failures caused by one broadcast */
};

static void broadcast_free(team_broadcast *b)
{
    call_free(&b->call, NULL);
    gp_free(b);
}

/* Handle the end of one unit of a broadcast: record the answer, or count the worker failure. Too
 * many failures in a row break the team. */
static void broadcast_done(gp_team *team, void *context, const team_outcome *outcome)
{
    team_broadcast *b = context;

    b->pending--;
    if (b->removed) {
        if (b->pending == 0)
            broadcast_free(b);
        return;
    }
    if (outcome->status == GP_ESTALE && outcome->answer == NULL) {
        b->deaths += outcome->attempts; /* 0: the worker failed before it started the broadcast */

        /* the worker failed: the replacement receives the broadcast again */
        return;
    }
    b->deaths = 0;
    if (outcome->status == GP_EPEER && outcome->answer == NULL && b->status == GP_OK) {
        gp_error why;

        gp_fail(&why, GP_EPEER, "%s", outcome->sentence);
        team_break(team, &why); /* break the team, because every replacement would fail too */
        return;
    }
    if (outcome->status != GP_OK && b->status == GP_ETIMEDOUT) {
        b->status = outcome->status;
        gp_fail(&b->error, outcome->status, "%s", outcome->sentence);
    }
    if (outcome->worker != 0)
        b->answered |= (uint64_t)1 << (outcome->worker - 1);
    if (b->status == GP_ETIMEDOUT && (b->wanted & ~b->answered & UINT64_MAX >> (64 - team->size)) == 0)
        b->status = GP_OK;
}

static gp_status broadcast_send(gp_team *team, team_broadcast *b, uint32_t worker, gp_error *err)
{
    const team_terms terms = { .worker = worker,
                               .urgent = true,
                               .loss = b->deaths + 1 >= DEATHS_MAX ? TEAM_LOSS_FATAL : TEAM_LOSS_STALE,
                               .attempts = 1 };
    gp_status status;

    b->answered &= ~((uint64_t)1 << (worker - 1));
    b->pending++;
    status = team_submit(NULL, team, &b->call, &terms, broadcast_done, b, err);
    if (status != GP_OK)
        b->pending--;
    return status;
}

void broadcasts_replay(gp_team *team, uint32_t worker)
{
    for (team_broadcast *b = team->broadcasts; b != NULL; b = b->next) {
        gp_error err;

        if ((b->wanted >> (worker - 1) & 1) == 0)
            continue;
        if (broadcast_send(team, b, worker, &err) != GP_OK) {
            team_break(team, &err);
            return;
        }
    }
}

gp_status team_broadcast_add(team_broadcast **out, gp_team *team, const team_call *call, uint32_t worker,
                             gp_error *err)
{
    team_broadcast *b, **end = &team->broadcasts;
    gp_status status = team_check(team, err);

    if (status == GP_OK)
        status = team_check_worker(team, worker, err);
    if (status != GP_OK)
        return status;
    b = gp_calloc(1, sizeof(*b));
    if (b == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a call to all workers");
    b->call = *call;
    status = call_own(&b->call, GP_LINK_INLINE_MAX, NULL, err);
    if (status != GP_OK) {
        gp_free(b);
        return status;
    }
    b->status = GP_ETIMEDOUT;
    b->wanted = worker != 0 ? (uint64_t)1 << (worker - 1) : UINT64_MAX;
    while (*end != NULL)
        end = &(*end)->next;
    *end = b;
    EACH_WORKER(team, w)
    if (status == GP_OK && (b->wanted >> (w - 1) & 1) != 0 && worker_of(team, w)->stage == TEAM_UP)
        status = broadcast_send(team, b, w, err);
    if (status != GP_OK) {
        team_broadcast_remove(team, b);
        return status;
    }
    *out = b;
    return GP_OK;
}

static bool broadcast_ended(void *context)
{
    return ((const team_broadcast *)context)->status != GP_ETIMEDOUT;
}

/* Return whether every worker without an answer runs a call. In its ring, that call precedes the
 * broadcast. */
static bool broadcast_behind_calls(const gp_team *team, const team_broadcast *b)
{
    EACH_WORKER(team, w)
    {
        team_unit *first;

        if (((b->wanted & ~b->answered) >> (w - 1) & 1) == 0)
            continue;
        if (team->workers[w - 1].stage != TEAM_UP || dispatch_sent(team->dispatch, w, &first) == 0 ||
            first->loss != TEAM_LOSS_RERUN)
            return false;
    }
    return true;
}

gp_status team_broadcast_wait(gp_team *team, team_broadcast *broadcast, gp_error *err)
{
    for (;;) {
        gp_error why;
        gp_status status = team_poll(team, broadcast_ended, broadcast, WAIT_MS, &why);

        if (status == GP_OK)
            return team_broadcast_refused(broadcast, err);
        if (status != GP_ETIMEDOUT)
            return gp_fail(err, status, "%s", why.message);
        if (broadcast_behind_calls(team, broadcast))
            return GP_OK;
    }
}

gp_status team_broadcast_run(team_broadcast **out, gp_team *team, const team_call *call, gp_error *err)
{
    team_broadcast *broadcast;
    gp_status status = team_broadcast_add(&broadcast, team, call, GP_EVERY_WORKER, err);

    if (status != GP_OK)
        return status;
    status = team_broadcast_wait(team, broadcast, err);
    if (status == GP_OK)
        *out = broadcast;
    else
        team_broadcast_remove(team, broadcast);
    return status;
}

gp_status team_broadcast_refused(const team_broadcast *broadcast, gp_error *err)
{
    if (broadcast->status == GP_OK || broadcast->status == GP_ETIMEDOUT)
        return GP_OK;
    return gp_fail(err, broadcast->status, "%s", broadcast->error.message);
}

void team_broadcast_remove(gp_team *team, team_broadcast *broadcast)
{
    team_broadcast **link = &team->broadcasts;

    if (broadcast == NULL)
        return;
    while (*link != broadcast)
        link = &(*link)->next;
    *link = broadcast->next;
    broadcast->removed = true;
    if (broadcast->pending == 0)
        broadcast_free(broadcast);
}
