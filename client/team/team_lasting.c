/* team_lasting.c -- what is said to every worker of a team, and again to each that replaces one: objects, functions, values. */
#include <inttypes.h>
#include <string.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"

enum { LASTING_MS = 20 };

static void lasting_free(team_lasting *l)
{
    if (l->call.payload != NULL) {
        void *payload;

        memcpy(&payload, &l->call.payload, sizeof(payload));
        gp_free(payload);
    }
    shared_leave(l->shared);
    gp_free(l);
}

static void lasting_done(gp_team *team, void *context, const team_outcome *outcome)
{
    team_lasting *l = context;

    l->pending--;
    if (l->removed) {
        if (l->pending == 0)
            lasting_free(l);
        return;
    }
    if (outcome->status == GP_ESTALE && outcome->answer == NULL) {
        l->deaths += outcome->attempts; /* 0: it was not begun */
        return;                         /* its worker died: said again to the next */
    }
    l->deaths = 0;
    if (outcome->status == GP_EPEER && outcome->answer == NULL && l->status == GP_OK) {
        gp_error why;

        gp_fail(&why, GP_EPEER, "%s", outcome->sentence);
        team_break(team, &why); /* no new worker would live */
        return;
    }
    if (outcome->status != GP_OK && l->status == GP_ETIMEDOUT) {
        l->status = outcome->status;
        gp_fail(&l->error, outcome->status, "%s", outcome->sentence);
    }
    if (outcome->worker != 0)
        l->answered |= (uint64_t)1 << (outcome->worker - 1);
    if (l->status == GP_ETIMEDOUT && (l->answered & l->wanted) == l->wanted)
        l->status = GP_OK;
    (void)team;
}

static gp_status lasting_say(gp_team *team, team_lasting *l, uint32_t worker, gp_error *err)
{
    const team_terms terms = { .worker = worker, .urgent = true, .attempts = 1 };
    team_unit *unit;
    team_call call = l->call;
    gp_status status;

    call.id = 0;
    call.borrowed = false;
    l->answered &= ~((uint64_t)1 << (worker - 1));
    l->pending++;
    status = team_submit(&unit, team, &call, &terms, lasting_done, l, err);
    if (status == GP_OK) {
        unit->once = true;
        unit->fatal = l->deaths + 1 >= TEAM_DEATHS_MAX;
    } else {
        l->pending--;
    }
    return status;
}

void team_lasting_replay(gp_team *team, uint32_t worker)
{
    for (team_lasting *l = team->lasting; l != NULL; l = l->next) {
        gp_error err;

        if ((l->wanted >> (worker - 1) & 1) == 0)
            continue;
        if (lasting_say(team, l, worker, &err) != GP_OK) {
            team_break(team, &err);
            return;
        }
    }
}

static gp_status lasting_copy(team_lasting **out, const team_call *call, gp_error *err)
{
    team_lasting *l = gp_calloc(1, sizeof(*l));
    gp_status status = GP_OK;

    if (l == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a call to all workers");
    l->call = *call;
    l->call.payload = NULL;
    l->status = GP_ETIMEDOUT;
    if (call->bytes > GP_LINK_INLINE_MAX) {
        status = gp_shared_new(&l->shared, call->payload, call->bytes, err);
        l->call.bytes = 0;
    } else if (call->bytes > 0) {
        void *copy = gp_malloc(call->bytes);

        if (copy == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for %zu bytes", call->bytes);
        else
            l->call.payload = memcpy(copy, call->payload, call->bytes);
    }
    if (status == GP_OK && call->shared != NULL) {
        l->shared = (gp_shared *)call->shared;
        shared_use(l->shared);
    }
    l->call.shared = l->shared;
    if (status != GP_OK) {
        lasting_free(l);
        return status;
    }
    *out = l;
    return GP_OK;
}

gp_status team_lasting_add(team_lasting **out, gp_team *team, const team_call *call, uint32_t worker,
                           gp_error *err)
{
    team_lasting *l = NULL;
    gp_status status = team_check(team, err);

    if (status == GP_OK && worker > team->size)
        status = gp_fail(err, GP_EINVAL, "there is no worker %" PRIu32 "; the team has %" PRIu32, worker,
                         team->size);
    if (status == GP_OK && call->bytes > GP_LINK_INLINE_MAX && call->shared != NULL)
        status = gp_fail(err, GP_ELIMIT, "%zu bytes beside a shared payload; at most %d", call->bytes,
                         GP_LINK_INLINE_MAX);
    if (status == GP_OK)
        status = lasting_copy(&l, call, err);
    if (status != GP_OK)
        return status;
    l->team = team;
    l->wanted = worker != 0 ? (uint64_t)1 << (worker - 1) : UINT64_MAX >> (64 - team->size);
    l->previous = team->lasting_last;
    if (team->lasting_last != NULL)
        team->lasting_last->next = l;
    else
        team->lasting = l;
    team->lasting_last = l;
    EACH_WORKER(team, w)
    if (status == GP_OK && (l->wanted >> (w - 1) & 1) != 0 && team_worker_up(team, w))
        status = lasting_say(team, l, w, err);
    if (status != GP_OK) {
        team_lasting_remove(team, l);
        return status;
    }
    *out = l;
    return GP_OK;
}

static bool lasting_known(void *context)
{
    return ((const team_lasting *)context)->status != GP_ETIMEDOUT;
}

/* Whether only those have not answered that run a call, behind which it lies in their rings. */
static bool lasting_behind_calls(const gp_team *team, const team_lasting *l)
{
    EACH_WORKER(team, w)
    {
        const team_unit *first;

        if (((l->wanted & ~l->answered) >> (w - 1) & 1) == 0)
            continue;
        if (!team_worker_up(team, w) || dispatch_sent(team->dispatch, w, &first) == 0 || first->once)
            return false;
    }
    return true;
}

gp_status team_lasting_wait(gp_team *team, team_lasting *lasting, gp_error *err)
{
    for (;;) {
        gp_error why;
        gp_status status = team_drive(team, lasting_known, lasting, LASTING_MS, &why);

        if (status == GP_OK)
            return team_lasting_check(lasting, err);
        if (status != GP_ETIMEDOUT) /* that the time is over is no error, and says nothing */
            return gp_fail(err, status, "%s", why.message);
        if (lasting_behind_calls(team, lasting))
            return GP_OK;
    }
}

gp_status team_lasting_check(const team_lasting *lasting, gp_error *err)
{
    if (lasting->status == GP_OK)
        return GP_OK;
    return gp_fail(err, lasting->status, "%s",
                   lasting->status == GP_ETIMEDOUT ? "not every worker has answered yet"
                                                   : lasting->error.message);
}

void team_lasting_remove(gp_team *team, team_lasting *lasting)
{
    if (lasting == NULL)
        return;
    if (lasting->previous != NULL)
        lasting->previous->next = lasting->next;
    else
        team->lasting = lasting->next;
    if (lasting->next != NULL)
        lasting->next->previous = lasting->previous;
    else
        team->lasting_last = lasting->previous;
    lasting->removed = true;
    if (lasting->pending == 0)
        lasting_free(lasting);
}
