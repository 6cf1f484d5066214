/* parfor_chunk.c: chunks of a loop: submit them as calls, and store the contents of their
 * answers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/team/parfor.h"
#include "common/base/memory/alloc.h"

void parfor_begin(parfor *loop)
{
    const gp_parfor_request *request = loop->request;
    bool bounded = request->next != NULL || request->on_result != NULL;

    loop->ordered = request->on_result != NULL && !request->unordered;
    loop->plan = (parfor_plan){
        .total = request->next != NULL ? UINT64_MAX : loop->wire.total,
        .workers = gp_team_size(loop->team),
        .block = loop->wire.reduce_bytes != 0 ? loop->wire.reduce_block : 1,
        .chunk = request->chunk,
        .max_in_flight = request->max_in_flight != 0 ? request->max_in_flight
                         : bounded                   ? PARFOR_WINDOW
                                                     : 0,
        .bytes = request->input_bytes > request->output_bytes ? request->input_bytes : request->output_bytes,
    };
    if (loop->tree != NULL && request->next == NULL)
        gp_tree_close(loop->tree, (loop->wire.total + loop->plan.block - 1) / loop->plan.block);
}

/* ---- items of a source ---- */

static parfor_items *items_of(const parfor *loop, uint64_t position)
{
    parfor_items *items = loop->items;

    while (items != NULL && (position < items->first || position - items->first >= items->count))
        items = items->next;
    return items;
}

/* Record that `count` iterations from `position` have ended. Free the items when all of them
 * have. */
static void items_end(parfor *loop, uint64_t position, uint32_t count)
{
    parfor_items *items = items_of(loop, position), **link = &loop->items;

    if (items == NULL)
        return;
    items->left -= count;
    if (items->left > 0)
        return;
    while (*link != items)
        link = &(*link)->next;
    *link = items->next;
    gp_free(items);
}

/* ---- chunks ---- */

static void chunk_free(parfor_chunk *chunk)
{
    team_bytes_deinit(&chunk->answer);
    gp_free(chunk);
}

void parfor_end(parfor *loop)
{
    while (loop->finished != NULL) {
        parfor_chunk *chunk = loop->finished;

        loop->finished = chunk->next;
        chunk_free(chunk);
    }
    while (loop->items != NULL) {
        parfor_items *items = loop->items;

        loop->items = items->next;
        gp_free(items);
    }
    gp_tree_free(loop->tree);
}

static void flying_remove(parfor *loop, parfor_chunk *chunk)
{
    parfor_chunk **link = &loop->flying;

    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    chunk->next = NULL;
    loop->out--;
}

void parfor_cancel(parfor *loop)
{
    loop->ending = true;
    for (parfor_chunk *chunk = loop->flying; chunk != NULL; chunk = chunk->next)
        if (chunk->unit != NULL)
            team_unit_cancel(loop->team, chunk->unit);
}

/* Count the settled iterations: they have ended, and on_result() has received their results. */
static void settle(parfor *loop)
{
    uint64_t waiting = loop->plan.out + loop->undelivered;

    if (loop->ordered)
        return; /* an ordered loop counts in parfor_deliver() */
    for (size_t k = 0; k < loop->plan.rest_count; k++)
        waiting += loop->plan.rests[k].count;
    loop->plan.settled = loop->plan.next - waiting;
}

/* ---- failures ---- */

static void loop_fail(parfor *loop, uint64_t position, gp_status status, const char *sentence)
{
    bool first = loop->error.code == GP_OK;

    /* A chunk that was canceled because of an earlier failure is not a failure of its own. */
    if ((loop->ending && status == GP_ECANCELED) || (!first && position >= loop->failed))
        return;
    loop->failed = position;
    gp_fail(&loop->error, status, "%s", sentence);
    if (first)
        parfor_cancel(loop);
}

/* Record the failure of a chunk, at the iteration that the answer names, or else for the whole
 * chunk. */
static void chunk_fail(const parfor_chunk *chunk, const team_outcome *outcome)
{
    parfor *loop = chunk->loop;
    uint64_t position = chunk->piece.first, end = position + chunk->piece.count;
    char sentence[GP_ERROR_MESSAGE_MAX];

    if (outcome->answer != NULL && outcome->answer->value >= position && outcome->answer->value < end)
        position = outcome->answer->value;
    if (outcome->answer != NULL || chunk->piece.count == 1)
        snprintf(sentence, sizeof(sentence), "iteration %" PRId64 ": %s", parfor_iteration(loop, position),
                 outcome->sentence);
    else
        snprintf(sentence, sizeof(sentence), "iterations %" PRId64 " to %" PRId64 ": %s",
                 parfor_iteration(loop, position), parfor_iteration(loop, end - 1), outcome->sentence);
    loop_fail(loop, position, outcome->status, sentence);
}

/* ---- answers ---- */

/* Add the accumulators at the end of the answer to the tree: one for each tree node that the chunk
 * covers. Reduce *bytes by their size. GP_EPROTO: the answer is too short. */
static gp_status take_accumulators(parfor *loop, const parfor_chunk *chunk, const unsigned char *data,
                                   size_t *bytes, gp_error *err)
{
    uint32_t block = loop->plan.block, each = loop->wire.reduce_bytes;
    uint64_t first = chunk->piece.first / block, last, group;
    size_t nodes = 0;
    gp_status status = GP_OK;

    if (loop->tree == NULL)
        return GP_OK;
    last = (chunk->piece.first + chunk->done + block - 1) / block;
    for (group = first; group < last; group = gp_tree_end(gp_tree_part(group, last)))
        nodes++;
    if (*bytes / each < nodes)
        return gp_fail(err, GP_EPROTO, "%zu bytes instead of %zu accumulators of %u", *bytes, nodes, each);
    *bytes -= nodes * each;
    data += *bytes;
    for (group = first; status == GP_OK && group < last; data += each) {
        gp_tree_node node = gp_tree_part(group, last);

        status = gp_tree_add(loop->tree, node, data, err);
        group = gp_tree_end(node);
    }
    return status;
}

/* Store an answer: outputs into the array, accumulators into the tree, results for delivery.
 * GP_EPROTO: malformed answer. */
static gp_status answer_take(parfor_chunk *chunk, const team_outcome *outcome, gp_error *err)
{
    parfor *loop = chunk->loop;
    uint32_t done = outcome->answer->count;
    bool whole = done > 0 && done <= chunk->piece.count &&
                 (done == chunk->piece.count || done % loop->plan.block == 0);
    size_t outputs = (size_t)done * loop->wire.output_bytes, bytes = outcome->bytes;
    gp_status status;

    if (!whole || outputs > bytes)
        return gp_fail(err, GP_EPROTO, "%zu bytes for %u of %u iterations", bytes, done, chunk->piece.count);
    chunk->done = done;
    if (outputs > 0)
        memcpy((unsigned char *)loop->request->output + chunk->piece.first * loop->wire.output_bytes,
               outcome->data, outputs);
    bytes -= outputs;
    status = take_accumulators(loop, chunk, (const unsigned char *)outcome->data + outputs, &bytes, err);
    if (status != GP_OK || loop->request->on_result == NULL || bytes == 0)
        return status;
    chunk->items_begin = outputs;
    chunk->items_end = outputs + bytes;
    return team_bytes_take(&chunk->answer, outcome, err);
}

static void chunk_done(gp_team *team, void *context, const team_outcome *outcome)
{
    parfor_chunk *chunk = context;
    parfor *loop = chunk->loop;
    char name[TEAM_NAME_BYTES];
    gp_error error;

    (void)team;
    chunk->unit = NULL;
    loop->changed = true;
    flying_remove(loop, chunk);
    if (outcome->status != GP_OK) {
        chunk_fail(chunk, outcome);
        chunk_free(chunk);
        return;
    }
    if (answer_take(chunk, outcome, &error) != GP_OK) {
        gp_error_prefix(&error, "%s", team_worker_name(loop->team, outcome->worker, name));
        loop_fail(loop, chunk->piece.first, error.code, error.message);
        chunk_free(chunk);
        return;
    }
    parfor_plan_end(&loop->plan, &chunk->piece, chunk->done, outcome->ended_ns - outcome->begun_ns);
    loop->done += chunk->done;
    if (loop->items != NULL)
        items_end(loop, chunk->piece.first, chunk->done);
    if (loop->ordered || chunk->answer.bytes != 0) {
        parfor_chunk **link = &loop->finished;

        /* Keep the chunk until it is delivered. In an ordered loop, a chunk without results keeps
         * its position too. */
        loop->kept_bytes += chunk->answer.bytes;
        loop->undelivered += chunk->done;
        while (*link != NULL && (!loop->ordered || (*link)->piece.first < chunk->piece.first))
            link = &(*link)->next;
        chunk->next = *link;
        *link = chunk;
    } else {
        chunk_free(chunk);
    }
    settle(loop);
}

gp_status parfor_chunk_submit(parfor *loop, const parfor_piece *piece, gp_error *err)
{
    parfor_chunk *chunk = gp_calloc(1, sizeof(*chunk));
    const parfor_items *items = items_of(loop, piece->first);
    size_t at = loop->wire.input_bytes;
    team_call call = { .kind = GP_CALL_LOOP,
                       .function = loop->number,
                       .first = (int64_t)piece->first,
                       .count = piece->count,
                       .value = parfor_plan_budget(&loop->plan),
                       .bytes = at * piece->count,
                       .borrowed = true };
    team_terms terms = { .attempts = loop->request->attempts };
    gp_status status;

    if (chunk == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a chunk of a loop");
    if (at != 0)
        call.payload = loop->request->next == NULL
                           ? (const unsigned char *)loop->request->input + at * piece->first
                           : items->data + at * (piece->first - items->first);
    chunk->loop = loop;
    chunk->piece = *piece;
    chunk->next = loop->flying;
    loop->flying = chunk;
    loop->out++;
    status = team_submit(&chunk->unit, loop->team, &call, &terms, chunk_done, chunk, err);
    if (status != GP_OK) {
        flying_remove(loop, chunk);
        chunk_free(chunk);
    }
    return status;
}

/* ---- delivering results ---- */

/* Read the item at *at and advance *at. Return false if the item is malformed. The check happens at
 * each use, because the worker can still change a mapped answer. */
static bool item_next(const parfor_chunk *chunk, size_t *at, gp_task_item *item)
{
    size_t left = chunk->items_end - *at, room;

    if (left < sizeof(*item))
        return false;
    memcpy(item, (const unsigned char *)chunk->answer.data + *at, sizeof(*item));
    left -= sizeof(*item);
    if (item->bytes > left || item->iteration >= chunk->done)
        return false;
    room = (item->bytes + 15) & ~(size_t)15;
    *at += sizeof(*item) + (room < left ? room : left);
    return true;
}

static void chunk_deliver(parfor *loop, const parfor_chunk *chunk)
{
    const gp_team *before = team_callback_begin(loop->team);
    size_t at = chunk->items_begin;

    while (at < chunk->items_end && !loop->stopped) {
        const unsigned char *data = (const unsigned char *)chunk->answer.data + at + sizeof(gp_task_item);
        gp_task_item item;

        if (!item_next(chunk, &at, &item)) {
            loop_fail(loop, chunk->piece.first, GP_EPROTO, "malformed results from a worker");
            break;
        }
        if (!loop->request->on_result(loop->request->context,
                                      parfor_iteration(loop, chunk->piece.first + item.iteration), data,
                                      item.bytes))
            loop->stopped = loop->ending = true;
    }
    team_callback_end(before);
}

void parfor_deliver(parfor *loop)
{
    while (loop->finished != NULL && !loop->stopped) {
        parfor_chunk *chunk = loop->finished;

        if (loop->ordered && chunk->piece.first != loop->plan.settled)
            break;

        /* After a failure, an ordered loop still delivers the results before the failed
         * position. */
        if (loop->error.code != GP_OK && (!loop->ordered || chunk->piece.first > loop->failed))
            break;
        loop->finished = chunk->next;
        loop->kept_bytes -= chunk->answer.bytes;
        if (loop->ordered)
            loop->plan.settled += chunk->done;
        chunk_deliver(loop, chunk);
        loop->undelivered -= chunk->done;
        settle(loop);
        loop->changed = true; /* the window has room */
        chunk_free(chunk);
    }
}

/* ---- combining with a user function ---- */

static void pairs_done(gp_team *team, void *context, const team_outcome *outcome)
{
    parfor_pairs *pairs = context;
    parfor *loop = pairs->loop;
    const unsigned char *data = outcome->data;
    gp_status status = outcome->status;
    char name[TEAM_NAME_BYTES];
    gp_error error;

    (void)team;
    loop->combining--;
    loop->changed = true;
    if (status != GP_OK)
        gp_fail(&error, status, "combining results: %s", outcome->sentence);
    else if (outcome->bytes != (size_t)pairs->count * loop->wire.reduce_bytes)
        status = gp_fail(&error, GP_EPROTO, "combining results: %s gave %zu bytes for %u",
                         team_worker_name(loop->team, outcome->worker, name), outcome->bytes, pairs->count);
    for (uint32_t k = 0; status == GP_OK && k < pairs->count; k++)
        status =
            gp_tree_set_pair(loop->tree, pairs->nodes[k], data + (size_t)k * loop->wire.reduce_bytes, &error);
    if (status != GP_OK)
        loop_fail(loop, GP_LOOP_ITERATIONS_MAX, status, error.message);
    gp_free(pairs);
}

gp_status parfor_combine(parfor *loop, gp_error *err)
{
    size_t bytes = loop->wire.reduce_bytes;
    uint32_t most;
    parfor_pairs *pairs;
    unsigned char *payload;
    const void *into, *from;
    gp_status status = GP_OK;

    /* While chunks are in flight, combine only after many parts have accumulated: small calls would
     * delay the workers. */
    if (loop->tree == NULL || loop->wire.combine == 0 || loop->ending || loop->combining > 0 ||
        (!parfor_plan_ended(&loop->plan) && gp_tree_count(loop->tree) < PARFOR_GATHERED))
        return GP_OK;
    most = PARFOR_PAIRS_BYTES / (uint32_t)(2 * bytes) + 1;
    pairs = gp_calloc(1, sizeof(*pairs) + most * sizeof(pairs->nodes[0]));
    payload = gp_malloc(2 * most * bytes);
    if (pairs == NULL || payload == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory to combine %u accumulators", 2 * most);
    while (status == GP_OK && pairs->count < most &&
           gp_tree_next_pair(loop->tree, &pairs->nodes[pairs->count], &into, &from)) {
        memcpy(payload + 2 * bytes * pairs->count, into, bytes);
        memcpy(payload + 2 * bytes * pairs->count + bytes, from, bytes);
        pairs->count++;
    }
    if (status == GP_OK && pairs->count > 0) {
        team_call call = { .kind = GP_CALL_COMBINE,
                           .function = loop->number,
                           .count = 2 * pairs->count,
                           .payload = payload,
                           .bytes = 2 * bytes * pairs->count };
        team_terms terms = { .attempts = loop->request->attempts, .priority = 1 };

        pairs->loop = loop;
        loop->combining++;
        status = team_submit(NULL, loop->team, &call, &terms, pairs_done, pairs, err);
        if (status == GP_OK)
            pairs = NULL; /* pairs_done() now owns the pairs */
        else
            loop->combining--;
    }
    gp_free(payload);
    gp_free(pairs);
    return status;
}
