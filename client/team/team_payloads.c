/* team_payloads.c -- which worker has which payload: each is sent once, kept while it is of use, and released.
 *
 *   not there --its descriptor through the door--> there --GP_CALL_RELEASE--> leaving --the ring was empty--> not there
 *
 * A release stands in the ring behind all calls that name the payload, so it may be sent at any time; when the worker
 * has come to it is known for certain only when it has dropped every call.  A worker takes GP_LINK_BLOBS_MAX payloads
 * at most, those that leave included: with more of them, the oldest has to go and is sent again when it is needed. */
#include <inttypes.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"

enum {
    HELD_MAX = GP_LINK_BLOBS_MAX - 64, /* by one worker */
    LEAVE_AT_ONCE = 256,               /* when there are too many */
};

static uint64_t bit_of(uint32_t worker)
{
    return (uint64_t)1 << (worker - 1);
}

static team_given *given_find(gp_team *team, gp_shared *shared)
{
    for (uint32_t i = team->given_count; i > 0; i--)
        if (team->given[i - 1].shared == shared)
            return &team->given[i - 1];
    if (team->given_count == team->given_room) {
        uint32_t room = team->given_room == 0 ? 16 : 2 * team->given_room;
        team_given *grown = gp_realloc_array(team->given, room, sizeof(*grown));

        if (grown == NULL)
            return NULL;
        team->given = grown;
        team->given_room = room;
    }
    shared_keep(shared);
    team->given[team->given_count] = (team_given){ .shared = shared };
    return &team->given[team->given_count++];
}

/* Those that were leaving have left, if the worker has come to the end of its ring. */
static void leaving_settle(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);

    if (worker->leaving == 0 || !gp_link_idle(worker->link))
        return;
    for (uint32_t i = 0; i < team->given_count; i++)
        team->given[i].leaving &= ~bit_of(w);
    worker->held -= worker->leaving;
    worker->leaving = 0;
}

/* False: no room in its ring. */
static bool given_release(gp_team *team, uint32_t w, team_given *given)
{
    team_worker *worker = worker_of(team, w);
    gp_call *call = gp_link_reserve(worker->link, 0);

    if (call == NULL)
        return false;
    call->kind = GP_CALL_RELEASE;
    call->blob = given->shared->number;
    worker->dirty = true;
    worker->leaving++;
    given->workers &= ~bit_of(w);
    given->leaving |= bit_of(w);
    return true;
}

static void oldest_release(gp_team *team, uint32_t w)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < team->given_count && count < LEAVE_AT_ONCE; i++)
        if ((team->given[i].workers & bit_of(w)) != 0) {
            if (!given_release(team, w, &team->given[i]))
                return;
            count++;
        }
}

bool team_give(gp_team *team, uint32_t w, gp_shared *shared)
{
    const gp_door_request request = { .what = GP_DOOR_BLOB, .lease = shared->number };
    team_worker *worker = worker_of(team, w);
    team_given *given = given_find(team, shared);
    gp_error err;

    if (given == NULL)
        return false;
    if ((given->workers & bit_of(w)) != 0)
        return true;
    if (worker->held >= HELD_MAX || (given->leaving & bit_of(w)) != 0)
        leaving_settle(team, w);
    if (worker->held >= HELD_MAX && worker->leaving == 0)
        oldest_release(team, w);
    if (worker->held >= HELD_MAX || (given->leaving & bit_of(w)) != 0)
        return false;
    if (gp_door_send_fd(worker->door, &request, shared->fd, &err) != GP_OK)
        return false; /* its queue is full, or it is dead: the door will say so */
    given->workers |= bit_of(w);
    worker->held++;
    return true;
}

void team_given_forget(gp_team *team, uint32_t w)
{
    for (uint32_t i = 0; i < team->given_count; i++) {
        team->given[i].workers &= ~bit_of(w);
        team->given[i].leaving &= ~bit_of(w);
    }
    worker_of(team, w)->held = worker_of(team, w)->leaving = 0;
}

/* Whether no worker has it any more, or will have when it comes to the release. */
static bool given_release_all(gp_team *team, team_given *given)
{
    EACH_WORKER(team, w)
    if ((given->workers & bit_of(w)) != 0 && worker_of(team, w)->stage == TEAM_UP &&
        !worker_of(team, w)->corrupt && !given_release(team, w, given))
        return false;
    return true;
}

void team_release_unused(gp_team *team)
{
    uint64_t seen = shared_left_count();

    for (uint32_t i = team->given_count; i > 0; i--) {
        team_given *given = &team->given[i - 1];

        if (atomic_load(&given->shared->users) != 0)
            continue;
        if (!given_release_all(team, given)) {
            seen--; /* a ring is full: again when it is looked at next */
            break;
        }
        shared_drop(given->shared);
        *given = team->given[--team->given_count];
    }
    team->left_seen = seen;
    team_flush(team);
}

void team_given_free(gp_team *team)
{
    for (uint32_t i = 0; i < team->given_count; i++)
        shared_drop(team->given[i].shared);
    gp_free(team->given);
    team->given = NULL;
    team->given_count = 0;
}
