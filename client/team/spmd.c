/* spmd.c: SPMD blocks: one call on several workers at once.
 *
 *   submitted on each worker --> a rank ends --> ... --> all ranks have ended
 *                                 '-- with an error: the others are canceled, and replaced if they
 *                                     do not end within 1 s
 *
 * A rank that waits for another one detects that the other has returned (comm.h: sections). */
#include <string.h>

#include "client/team/team.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"

enum {
    WORKERS_UP_MS = 30000, /* wait for workers being replaced when a block starts */
    LOOKED_NS = 1000000,   /* check for worker failures if the team was not driven for this long */
    OUTDATED_MS = 5000,    /* wait for the lease's new generation */

    /* wait for the notice of a worker failure after a rank reports that another is gone */
    DEATH_MS = 2000,
};

/* How well a rank error explains the failure of the block, in ascending order. */
typedef enum rank_cause {
    RANK_CANCELED,     /* the rank was canceled */
    RANK_GROUP_FAILED, /* a collective or message failed, possibly because of another rank */
    RANK_FAILED,       /* the rank failed by itself */
    RANK_DIED,         /* no worker answered */
} rank_cause;

typedef struct block_rank {
    gp_spmd_result *block;
    team_unit *unit; /* NULL: ended, or never submitted */
    rank_cause cause;
    bool kept;      /* the result is still on the worker */
    gp_error error; /* code GP_OK: the rank has a result */
    int64_t ended_ns;
    uint64_t bytes;
    team_bytes result;
} block_rank;

struct gp_spmd_result {
    gp_team *team;
    uint64_t id;
    uint32_t size, running;
    bool stopping;    /* the other ranks were canceled */
    bool complained;  /* a rank reported that another is gone; the cause arrives soon */
    bool unclean;     /* the group must not be reused */
    bool outdated;    /* no rank has started: the lease has a newer generation */
    bool died;        /* a worker failed during the block, or before the rank started */
    uint32_t balance; /* messages sent minus messages received, over all ranks */
    block_rank ranks[];
};

/* ---- end of a rank ---- */

static void block_stop(gp_spmd_result *block)
{
    block->stopping = true;
    for (uint32_t k = 0; k < block->size; k++)
        if (block->ranks[k].unit != NULL)
            team_unit_cancel(block->team, block->ranks[k].unit);
}

/* Handle the end of one rank: store the result or error, and cancel the other ranks after a
 * failure. */
static void rank_done(gp_team *team, void *context, const team_outcome *outcome)
{
    block_rank *rank = context;
    gp_spmd_result *block = rank->block;
    char name[TEAM_NAME_BYTES];

    rank->unit = NULL;
    rank->ended_ns = outcome->ended_ns != 0 ? outcome->ended_ns : gp_now_ns();
    if (outcome->answer == NULL && (outcome->status == GP_EPEER || outcome->status == GP_ESTALE))
        rank->cause = RANK_DIED;
    else if (outcome->status == GP_ECANCELED)
        rank->cause = RANK_CANCELED;
    else if (outcome->status == GP_EPEER ||
             (outcome->answer != NULL && outcome->answer->value == GP_BLOCK_GROUP_FAILED))
        rank->cause = RANK_GROUP_FAILED;
    else
        rank->cause = RANK_FAILED;
    block->died |= rank->cause == RANK_DIED;
    team_worker_name(team, (uint32_t)(rank - block->ranks) + 1, name);
    rank->error.code = GP_OK;
    if (outcome->status == GP_OK) {
        block->balance += outcome->answer->count;
        block->unclean |= (outcome->answer->flags & GP_ANSWER_BROKEN) != 0;
        rank->kept = (outcome->answer->flags & GP_ANSWER_KEPT) != 0;
        if (rank->kept)
            rank->bytes = outcome->answer->value;
        else
            team_bytes_take(&rank->result, outcome, &rank->error);
    } else
        gp_fail(&rank->error, outcome->status, "%s", outcome->sentence);
    if (rank->cause == RANK_DIED && outcome->status == GP_ESTALE)
        gp_fail(&rank->error, GP_EPEER, "%s exited before its part of the block started", name);

    /* the rank was not started */
    else if (outcome->status != GP_OK && strncmp(outcome->sentence, "worker ", 7) != 0)
        gp_error_prefix(&rank->error, "%s", name);
    block->running--;
    if (rank->error.code == GP_OK)
        return;
    block->unclean = true;
    if (rank->error.code == GP_ESTALE && outcome->answer != NULL &&
        outcome->answer->value == GP_BLOCK_NOT_FORMED)
        block->outdated = true;

    /* These errors may be a consequence of another failure. Wait for that one before canceling the
     * block. */
    if (rank->cause != RANK_DIED && (rank->error.code == GP_EPEER || rank->error.code == GP_ECANCELED))
        block->complained = true;
    else if (!block->stopping)
        block_stop(block);
}

static bool block_ended(void *context)
{
    const gp_spmd_result *block = context;

    return block->running == 0;
}

static bool block_ended_or_complained(void *context)
{
    const gp_spmd_result *block = context;

    return block->running == 0 || (block->complained && !block->stopping);
}

/* ---- running ---- */

/* Check a request and compute the number of ranks. */
static gp_status size_of(uint32_t *out, gp_team *team, const gp_spmd_request *request, gp_error *err)
{
    uint32_t size = gp_team_size(team), most = request->workers_max;

    if (request->function == NULL)
        return gp_fail(err, GP_EINVAL, "the block has no function; find one with gp_function_find()");
    if (request->function->team != team)
        return gp_fail(err, GP_EINVAL, "the function %s belongs to another team", request->function->name);
    if (team_check_argument(request->argument, request->bytes, request->shared, err) != GP_OK)
        return GP_EINVAL;
    if (most == 0)
        most = request->workers_min > size ? request->workers_min : size;
    if (request->workers_min > most)
        return gp_fail(err, GP_EINVAL,
                       "the block is for %u to %u workers; the minimum must not exceed the maximum",
                       request->workers_min, most);
    if (request->workers_min > size)
        return gp_fail(err, GP_EINVAL, "the block needs %u workers; the team has %u", request->workers_min,
                       size);
    *out = most < size ? most : size;
    return GP_OK;
}

static bool workers_up(void *context)
{
    const gp_spmd_result *block = context;

    for (uint32_t w = 1; w <= block->size; w++)
        if (worker_of(block->team, w)->stage != TEAM_UP)
            return false;
    return true;
}

static gp_status block_submit(gp_spmd_result *block, const gp_spmd_request *request, gp_broadcast *argument,
                              gp_error *err)
{
    gp_team *team = block->team;
    spmd_group *group = &team->group;
    uint32_t generation = team->pool->generation;

    /* Use a new group if the last one does not match. */
    if (group->world != block->size || group->generation != generation)
        *group = (spmd_group){ .number = group->number == UINT32_MAX ? 1 : group->number + 1,
                               .world = block->size,
                               .generation = generation };

    /* a replacement process cannot join the group: a failed rank is not repeated */
    team_terms terms = { .loss = TEAM_LOSS_FATAL,
                         .attempts = 1,
                         .timeout_ms = request->timeout_ms,
                         .cancel_at_once = request->cancel_at_once };
    team_call call = {
        .kind = GP_CALL_BLOCK,
        .function = request->function->number,
        .count = block->size,
        .attempt = group->number,
        .id = block->id,
        .value = request->seed,
        .payload = argument == NULL ? request->argument : NULL,
        .bytes = argument == NULL ? request->bytes : 0,
        .borrowed = true,
        .shared = argument,
    };
    gp_status status = GP_OK;

    for (uint32_t k = 0; status == GP_OK && k < block->size; k++) {
        terms.worker = k + 1;
        call.first = (int64_t)((uint64_t)generation << 32 | k);
        block->running++;
        status = team_submit(&block->ranks[k].unit, team, &call, &terms, rank_done, &block->ranks[k], err);
        if (status != GP_OK)
            block->running--;
    }
    return status;
}

static gp_status block_attempt(gp_spmd_result *block, const gp_spmd_request *request, gp_error *err)
{
    gp_broadcast *own = NULL, *argument = (gp_broadcast *)(uintptr_t)request->shared;
    gp_status status = team_check(block->team, err);

    if (gp_now_ns() - block->team->looked_ns > LOOKED_NS)
        team_check_workers(block->team);
    if (status == GP_OK)
        status = team_poll_extended(block->team, workers_up, block, WORKERS_UP_MS, err);
    if (status == GP_OK && argument == NULL && request->bytes > GP_LINK_INLINE_MAX) {
        /* one copy for all ranks */
        status = gp_broadcast_new(&own, request->argument, request->bytes, err);
        argument = own;
    }
    if (status == GP_OK)
        status = block_submit(block, request, argument, err);
    shared_leave(own);

    /* Wait until all ranks have ended. An error tells why they did not end by themselves. */
    if (status == GP_OK)
        status = team_poll(block->team, block_ended_or_complained, block, -1, err);
    if (status == GP_OK && block->running > 0) {
        status = team_poll_extended(block->team, block_ended, block, DEATH_MS, err);
        if (status == GP_ETIMEDOUT) {
            if (!block->stopping)
                block_stop(block);
            status = team_poll(block->team, block_ended, block, -1, err);
        }
    }
    if (block->running > 0) {
        block_stop(block);
        team_poll_canceled(block->team, block_ended, block);
    }
    if (block->unclean || block->balance != 0 || status != GP_OK)
        block->team->group.world = 0;
    return status;
}

static gp_status block_run(gp_spmd_result *block, const gp_spmd_request *request, gp_error *err)
{
    block->team->membership.blocks++;
    gp_status status = block_attempt(block, request, err);

    block->team->membership.blocks--;
    return status;
}

/* Reset a block to the initial state. */
static void block_reset(gp_spmd_result *block)
{
    block->id = team_new_id(block->team);
    block->balance = 0;
    block->stopping = block->complained = block->unclean = block->outdated = block->died = false;
    for (uint32_t k = 0; k < block->size; k++) {
        team_bytes_deinit(&block->ranks[k].result);
        block->ranks[k] = (block_rank){ .block = block, .ended_ns = INT64_MAX };
        gp_fail(&block->ranks[k].error, GP_ECANCELED, "the block did not start on this worker");
    }
}

static bool generation_changed(void *context)
{
    const gp_spmd_result *block = context;

    return block->team->pool->generation != block->team->group.generation;
}

static gp_status spmd(gp_spmd_result **out, gp_team *team, const gp_spmd_request *request, gp_error *err)
{
    const block_rank *failed = NULL;
    gp_spmd_result *block;
    uint32_t size;
    gp_status status;

    if (team_in_callback(team))
        return gp_fail(err, GP_ESTATE, "a block cannot be run from a callback of its team");
    status = size_of(&size, team, request, err);
    if (status != GP_OK)
        return status;
    block = gp_calloc(1, sizeof(*block) + size * sizeof(block->ranks[0]));
    if (block == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a block on %u workers", size);
    block->team = team;
    block->size = size;
    block_reset(block);
    status = block_run(block, request, err);

    /* Repeat the block up to three times if the lease changed before any rank started: a worker,
     * possibly one outside the block, failed shortly before. If the new generation does not come,
     * the errors of the ranks describe the problem. */
    for (int again = 0; again < 3 && status == GP_OK && block->outdated && !block->died; again++) {
        if (team_poll_extended(team, generation_changed, block, OUTDATED_MS, NULL) != GP_OK)
            break;
        block_reset(block);
        status = block_run(block, request, err);
    }

    /* The cause of the failure is the strongest one, and among equal ones the earliest. */
    for (uint32_t k = 0; k < size; k++) {
        const block_rank *rank = &block->ranks[k];

        if (rank->error.code != GP_OK &&
            (failed == NULL || rank->cause > failed->cause ||
             (rank->cause == failed->cause && rank->ended_ns < failed->ended_ns)))
            failed = rank;
    }

    /* Replace the errors of ranks that ended because of another rank with a message that names that
     * failure. */
    for (uint32_t k = 0; failed != NULL && k < size; k++) {
        block_rank *rank = &block->ranks[k];
        char name[TEAM_NAME_BYTES];

        if (rank->error.code == GP_OK || rank == failed || rank->cause > RANK_GROUP_FAILED ||
            (rank->cause == RANK_GROUP_FAILED && failed->cause == RANK_GROUP_FAILED))
            continue;
        gp_fail(&rank->error, GP_ECANCELED, "%s: ended because another rank failed: %s",
                team_worker_name(team, k + 1, name), failed->error.message);
    }
    if (status == GP_OK && failed != NULL)
        status = gp_fail(err, failed->error.code, "%s", failed->error.message);
    *out = block;
    return status;
}

gp_status gp_spmd(gp_spmd_result **out, gp_team *team, const gp_spmd_request *request, gp_error *err)
{
    gp_status status;

    *out = NULL;
    team_enter(team);
    status = spmd(out, team, request, err);
    team_leave(team);
    return status;
}

/* ---- results ---- */

uint32_t gp_spmd_result_size(const gp_spmd_result *block)
{
    return block->size;
}

/* Fetch a rank's result, if the worker still has it. */
static gp_status rank_fetch(block_rank *rank, uint32_t worker, gp_error *err)
{
    team_call call = { .kind = GP_CALL_FETCH, .first = (int64_t)rank->block->id };
    gp_team *team = rank->block->team;
    gp_status status;

    if (!rank->kept)
        return GP_OK;
    team_enter(team);
    status = team_ask(team, worker, &call, &rank->result, err);
    team_leave(team);
    if (status == GP_OK && rank->result.bytes != rank->bytes)
        status = gp_fail(err, GP_EPROTO, "malformed result from worker %u: %zu bytes, expected %llu", worker,
                         rank->result.bytes, (unsigned long long)rank->bytes);
    if (status == GP_OK)
        rank->kept = false;
    else
        team_bytes_deinit(&rank->result);
    return status;
}

gp_status gp_spmd_result_get(gp_spmd_result *block, uint32_t index, const void **data, size_t *bytes,
                             gp_error *err)
{
    block_rank *rank;
    gp_status status;

    if (index < 1 || index > block->size)
        return gp_fail(err, GP_EINVAL, "index %u is out of range; the block has indices 1 to %u", index,
                       block->size);
    rank = &block->ranks[index - 1];
    if (rank->error.code != GP_OK)
        return gp_fail(err, rank->error.code, "%s", rank->error.message);
    status = rank_fetch(rank, index, err);
    if (status != GP_OK)
        return status;
    *data = rank->result.data;
    *bytes = rank->result.bytes;
    return GP_OK;
}

void gp_spmd_result_free(gp_spmd_result *block)
{
    if (block == NULL)
        return;
    for (uint32_t k = 0; k < block->size; k++) {
        team_call call = { .kind = GP_CALL_FORGET, .first = (int64_t)block->id };
        team_terms terms = { .worker = k + 1, .attempts = 1 };

        if (block->ranks[k].kept) {
            team_enter(block->team);
            team_submit(NULL, block->team, &call, &terms, NULL, NULL, NULL);
            team_leave(block->team);
        }
        team_bytes_deinit(&block->ranks[k].result);
    }
    gp_free(block);
}
