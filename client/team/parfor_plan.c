#include "client/team/parfor_plan.h"

#include <string.h>

#include "common/base/memory/alloc.h"
#include "proto/task/link.h"

/* a chunk is at most 1/SHARES of a worker's share of the remaining iterations */
enum { SHARES = 3 };

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Return the number of iterations that take about PARFOR_CHUNK_NS. */
static uint64_t size_by_duration(const parfor_plan *plan)
{
    double size = plan->ns > 0 ? PARFOR_CHUNK_NS / plan->ns : 1;

    return size >= PARFOR_CHUNK_MAX ? PARFOR_CHUNK_MAX : size < 1 ? 1 : (uint64_t)size;
}

/* Return how many more iterations may be in flight. */
static uint64_t window_room(const parfor_plan *plan)
{
    /* at least one group must fit, or the loop would never send a chunk */
    uint64_t window = plan->max_in_flight > plan->block ? plan->max_in_flight : plan->block;
    uint64_t used = plan->next - plan->settled;

    if (plan->max_in_flight == 0)
        return UINT64_MAX;
    return used < window ? window - used : 0;
}

uint32_t parfor_plan_size(const parfor_plan *plan)
{
    uint64_t left = plan->total - plan->next, room = window_room(plan);
    uint64_t size = plan->chunk != 0 ? plan->chunk : size_by_duration(plan);

    if (plan->chunk == 0 && plan->total != UINT64_MAX)
        size = smaller(size, left / ((uint64_t)SHARES * plan->workers) + 1);
    if (plan->chunk == 0 && plan->bytes != 0)
        size = smaller(size, GP_LINK_INLINE_MAX / plan->bytes);
    size = smaller(size, PARFOR_CHUNK_MAX);
    if (plan->chunk != 0)
        size = (size + plan->block - 1) / plan->block * plan->block;
    if (plan->bytes != 0)
        size = smaller(size, PARFOR_CHUNK_BYTES_MAX / plan->bytes);
    size = smaller(size, room) / plan->block * plan->block;
    if (size == 0 && room >= plan->block)
        size = plan->block;
    return (uint32_t)smaller(size, left);
}

bool parfor_plan_has_rest(const parfor_plan *plan)
{
    return plan->rest_count > 0;
}

bool parfor_plan_take(parfor_plan *plan, uint32_t most, parfor_piece *out)
{
    uint32_t size;

    /* Take a rest first: iterations that a worker returned because their chunk took too long.
     * Divide it by the duration measured now. */
    if (plan->rest_count > 0) {
        uint64_t part = smaller(size_by_duration(plan), plan->rests[0].count);

        part = (part + plan->block - 1) / plan->block * plan->block;
        *out = plan->rests[0];
        if (part < out->count && plan->chunk == 0) {
            out->count = (uint32_t)part;
            plan->rests[0].first += part;
            plan->rests[0].count -= (uint32_t)part;
        } else {
            plan->rest_count--;
            memmove(plan->rests, plan->rests + 1, plan->rest_count * sizeof(plan->rests[0]));
        }
        plan->out += out->count;
        return true;
    }
    size = parfor_plan_size(plan);
    if (size > most)
        size = most;
    if (size == 0)
        return false;
    *out = (parfor_piece){ .first = plan->next, .count = size };
    plan->next += size;
    plan->out += size;
    return true;
}

void parfor_plan_end(parfor_plan *plan, const parfor_piece *piece, uint32_t done, int64_t took_ns)
{
    plan->out -= piece->count;
    if (done == 0 || took_ns < 0)
        return;

    /* The latest chunk counts at least half, and more if it had more iterations than the one
     * before. */
    double past = (double)smaller(plan->weight, done);

    plan->ns = (plan->ns * past + (double)took_ns) / (past + done);
    plan->weight = done;
}

gp_status parfor_plan_return(parfor_plan *plan, parfor_piece rest, gp_error *err)
{
    size_t k = plan->rest_count;
    parfor_piece *grown;

    if (rest.count == 0)
        return GP_OK;
    grown = gp_array_grow(plan->rests, k, sizeof(*grown));
    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the iterations of a loop that start again");
    plan->rests = grown;
    plan->rest_count++;
    for (; k > 0 && plan->rests[k - 1].first > rest.first; k--)
        plan->rests[k] = plan->rests[k - 1];
    plan->rests[k] = rest;
    return GP_OK;
}

void parfor_plan_deinit(parfor_plan *plan)
{
    gp_free(plan->rests);
}

void parfor_plan_close(parfor_plan *plan)
{
    plan->total = plan->next;
}

uint64_t parfor_plan_budget(const parfor_plan *plan)
{
    return plan->chunk != 0 ? 0 : PARFOR_BUDGET_NS;
}

bool parfor_plan_ended(const parfor_plan *plan)
{
    return plan->next == plan->total && plan->out == 0 && plan->rest_count == 0;
}
