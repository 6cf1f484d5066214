/* parfor_answers.c: handle ended chunks of a loop: store results, handle failures, deliver both to
 * the caller. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/team/parfor_state.h"
#include "common/base/memory/alloc.h"

/* ---- items of a source ---- */

parfor_items *parfor_items_of(const parfor *loop, uint64_t position)
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
    parfor_items *items = parfor_items_of(loop, position), **link = &loop->items;

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

void parfor_chunk_free(parfor_chunk *chunk)
{
    team_bytes_deinit(&chunk->answer);
    gp_free(chunk->failure);
    gp_free(chunk);
}

void parfor_chunk_unlink(parfor *loop, parfor_chunk *chunk)
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

/* Return the memory of a chunk that waits for delivery; bytes. */
static size_t chunk_bytes(const parfor_chunk *chunk)
{
    return chunk->answer.bytes + (chunk->failure != NULL ? sizeof(*chunk) + sizeof(*chunk->failure) : 0);
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

void parfor_fail(parfor *loop, uint64_t position, gp_status status, const char *sentence)
{
    bool first = loop->error.code == GP_OK;

    /* A chunk that was canceled because of an earlier failure is not a separate failure. */
    if ((loop->ending && status == GP_ECANCELED) || (!first && position >= loop->failed))
        return;
    loop->failed = position;
    gp_fail(&loop->error, status, "%s", sentence);
    if (first)
        parfor_cancel(loop);
}

/* Keep a chunk until it is delivered. In an ordered loop, a chunk without results keeps its
 * position too. Takes ownership of the chunk. */
static void chunk_keep(parfor *loop, parfor_chunk *chunk)
{
    loop->done += chunk->done;
    if (loop->items != NULL && chunk->done > 0)
        items_end(loop, chunk->piece.first, chunk->done);
    if (chunk->done == 0 || (!loop->ordered && chunk->answer.bytes == 0 && chunk->failure == NULL)) {
        parfor_chunk_free(chunk);
        return;
    }
    loop->kept_bytes += chunk_bytes(chunk);
    loop->undelivered += chunk->done;

    /* Search from the end: chunks end nearly in order, and many may wait for a slow one. */
    parfor_chunk *before = loop->finished_last;

    while (loop->ordered && before != NULL && before->piece.first > chunk->piece.first)
        before = before->previous;
    chunk->previous = before;
    chunk->next = before != NULL ? before->next : loop->finished;
    *(before != NULL ? &before->next : &loop->finished) = chunk;
    *(chunk->next != NULL ? &chunk->next->previous : &loop->finished_last) = chunk;
}

/* Add a failed iteration to the reduction: an accumulator in its initial state, which contributes
 * nothing. */
static gp_status reduce_nothing(parfor *loop, uint64_t position, gp_error *err)
{
    size_t bytes = loop->wire.reduce_bytes;
    void *empty;
    gp_status status;

    if (loop->tree == NULL)
        return GP_OK;
    empty = gp_calloc(1, bytes);
    if (empty == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an accumulator of %zu bytes", bytes);
    if (loop->wire.combine == 0)
        gp_reduce_identity((gp_reduce_kind)loop->wire.reduce_kind, empty, bytes);
    status = gp_tree_add(loop->tree, (gp_tree_node){ 0, position }, empty, err);
    gp_free(empty);
    return status;
}

/* Write "iteration 5" or "iterations 5 to 8" in front of an error message, and end the loop. */
static void piece_fail(parfor *loop, const parfor_piece *piece, gp_status status, const char *why)
{
    int64_t first = parfor_iteration(loop, piece->first);
    int64_t last = parfor_iteration(loop, piece->first + piece->count - 1);
    char sentence[GP_ERROR_MESSAGE_MAX];

    if (piece->count == 1)
        snprintf(sentence, sizeof(sentence), "iteration %" PRId64 ": %s", first, why);
    else
        snprintf(sentence, sizeof(sentence), "iterations %" PRId64 " to %" PRId64 ": %s", first, last, why);
    parfor_fail(loop, piece->first, status, sentence);
}

/* Handle the final failure of isolated iterations: keep it for on_error() and errors, or else end
 * the loop. */
static void piece_end(parfor *loop, const parfor_piece *piece, gp_status status, const char *why)
{
    gp_error error = { .code = GP_OK };
    parfor_chunk *chunk;

    if (!loop->keeps_going || loop->ending) {
        piece_fail(loop, piece, status, why);
        return;
    }
    for (uint32_t k = 0; error.code == GP_OK && k < piece->count; k++)
        reduce_nothing(loop, piece->first + k, &error);
    chunk = gp_calloc(1, sizeof(*chunk));
    if (chunk != NULL)
        chunk->failure = gp_malloc(sizeof(*chunk->failure));
    if (error.code == GP_OK && (chunk == NULL || chunk->failure == NULL))
        gp_fail(&error, GP_ENOMEM, "no memory for the error of an iteration");
    if (error.code != GP_OK) {
        if (chunk != NULL)
            parfor_chunk_free(chunk);
        piece_fail(loop, piece, error.code, error.message);
        return;
    }
    gp_fail(chunk->failure, status, "%s", why);
    chunk->loop = loop;
    chunk->piece = *piece;
    chunk->done = piece->count;
    chunk_keep(loop, chunk);
}

static void piece_again(parfor *loop, const parfor_piece *piece)
{
    gp_error error;

    if (parfor_plan_return(&loop->plan, *piece, &error) != GP_OK)
        parfor_fail(loop, piece->first, error.code, error.message);
}

/* Write why a call exceeded the time limit of an iteration. */
static void limit_text(const parfor *loop, uint32_t worker, bool replaced, char text[GP_ERROR_MESSAGE_MAX])
{
    char name[TEAM_NAME_BYTES];

    snprintf(text, GP_ERROR_MESSAGE_MAX, "%s: exceeded its time limit of %" PRId64 " ms%s",
             team_worker_name(loop->team, worker, name), loop->request->timeout_ms,
             replaced ? " and did not end after the cancel; the worker was replaced" : "");
}

/* Handle an isolated iteration that returned an error, or that was canceled at its time limit. */
static void iteration_failed(parfor *loop, parfor_piece piece, gp_error *failure, const team_outcome *outcome)
{
    char name[TEAM_NAME_BYTES], why[GP_ERROR_MESSAGE_MAX];

    if (outcome->over_limit) {
        limit_text(loop, outcome->worker, false, why);
        piece_end(loop, &piece, GP_ETIMELIMIT, why);
    } else if (piece.retries < loop->request->retries && piece.retries < UINT16_MAX && !loop->ending) {
        piece.retries++;
        piece_again(loop, &piece);
    } else {
        gp_error_prefix(failure, "%s", team_worker_name(loop->team, outcome->worker, name));
        piece_end(loop, &piece, failure->code, failure->message);
    }
}

/* Give iterations that were started back to the plan, or end them if no attempt is left. */
static void piece_lost(parfor *loop, const parfor_piece *piece, const char *why)
{
    uint32_t most = loop->request->attempts == 0 ? DISPATCH_ATTEMPTS : loop->request->attempts;

    if (piece->count == 0)
        return;
    if (piece->attempts < most && piece->attempts < UINT16_MAX)
        piece_again(loop, piece);
    else
        piece_end(loop, piece, GP_EPEER, why);
}

/* Handle the loss of an isolated chunk with its worker. The results of the iterations before the
 * one that ran are lost, and the later ones had not started. */
static void chunk_lost(parfor *loop, const parfor_piece *piece, const team_outcome *outcome)
{
    uint32_t ran = outcome->progress < piece->count ? outcome->progress : piece->count - 1;
    parfor_piece before = *piece, running = *piece, after = *piece;
    char why[GP_ERROR_MESSAGE_MAX];

    parfor_plan_end(&loop->plan, piece, 0, -1);
    before.count = ran;
    running.first += ran;
    running.count = 1;
    after.first += ran + 1;
    after.count -= ran + 1;
    before.attempts++;
    running.attempts++;
    piece_again(loop, &after);
    snprintf(why, sizeof(why), "%s", outcome->sentence);
    if (outcome->over_limit)
        limit_text(loop, outcome->worker, true, why);
    if (outcome->over_limit)
        piece_end(loop, &running, GP_ETIMELIMIT, why);
    else
        piece_lost(loop, &running, why);
    if (outcome->over_limit)
        snprintf(why, sizeof(why),
                 "the result was lost with its worker, because iteration %" PRId64 " exceeded its time limit",
                 parfor_iteration(loop, running.first));
    piece_lost(loop, &before, why);
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

/* Take the failure at the end of the items. Reduce *bytes by its size. */
static gp_status take_failure(const unsigned char *data, size_t *bytes, gp_error *failure, gp_error *err)
{
    gp_task_failure taken;

    if (*bytes < sizeof(taken))
        return gp_fail(err, GP_EPROTO, "the failure of an iteration has %zu bytes", *bytes);
    *bytes -= sizeof(taken);
    memcpy(&taken, data + *bytes, sizeof(taken));
    failure->code =
        taken.status != GP_OK && gp_status_known((long)taken.status) ? (gp_status)taken.status : GP_EINTERNAL;
    team_text_copy(failure->message, sizeof(failure->message), (const unsigned char *)taken.message,
                   sizeof(taken.message));
    return GP_OK;
}

/* Mark the iterations of a chunk as successful. */
static void errors_clear(const parfor_chunk *chunk)
{
    gp_error *errors = chunk->loop->request->errors;

    for (uint32_t k = 0; errors != NULL && k < chunk->done; k++)
        errors[chunk->piece.first + k] = (gp_error){ .code = GP_OK };
}

/* Store an answer: outputs into the array, accumulators into the tree, results for delivery.
 *   failure  set to the error of the iteration after the completed ones; code GP_OK: none
 * GP_EPROTO: malformed answer. */
static gp_status answer_take(parfor_chunk *chunk, const team_outcome *outcome, gp_error *failure,
                             gp_error *err)
{
    parfor *loop = chunk->loop;
    uint32_t done = outcome->answer->count;
    bool failed = loop->isolated && (outcome->answer->flags & GP_ANSWER_FAILED) != 0;
    bool whole = failed ? done < chunk->piece.count
                        : done > 0 && done <= chunk->piece.count &&
                              (done == chunk->piece.count || done % loop->plan.block == 0);
    size_t outputs = (size_t)done * loop->wire.output_bytes, bytes = outcome->bytes;
    const unsigned char *data = outcome->data;
    gp_status status;

    failure->code = GP_OK;
    if (!whole || outputs > bytes)
        return gp_fail(err, GP_EPROTO, "%zu bytes for %u of %u iterations", bytes, done, chunk->piece.count);
    chunk->done = done;
    if (outputs > 0)
        memcpy((unsigned char *)loop->request->output + chunk->piece.first * loop->wire.output_bytes, data,
               outputs);
    errors_clear(chunk);
    bytes -= outputs;
    status = take_accumulators(loop, chunk, data + outputs, &bytes, err);
    if (status == GP_OK && failed)
        status = take_failure(data + outputs, &bytes, failure, err);
    if (status != GP_OK || loop->request->on_result == NULL || bytes == 0)
        return status;
    chunk->items_begin = outputs;
    chunk->items_end = outputs + bytes;
    return team_bytes_take(&chunk->answer, outcome, err);
}

/* Handle the answer to a chunk. Takes ownership of the chunk. */
static void chunk_answered(parfor_chunk *chunk, const team_outcome *outcome)
{
    parfor *loop = chunk->loop;
    parfor_piece rest = chunk->piece, failed = chunk->piece;
    char name[TEAM_NAME_BYTES];
    gp_error error, failure;

    if (answer_take(chunk, outcome, &failure, &error) != GP_OK) {
        gp_error_prefix(&error, "%s", team_worker_name(loop->team, outcome->worker, name));
        parfor_fail(loop, chunk->piece.first, error.code, error.message);
        parfor_chunk_free(chunk);
        return;
    }
    parfor_plan_end(&loop->plan, &chunk->piece, chunk->done, outcome->ended_ns - outcome->begun_ns);
    failed.first += chunk->done;
    failed.count = failure.code != GP_OK;
    rest.first = failed.first + failed.count;
    rest.count -= chunk->done + failed.count;
    piece_again(loop, &rest);
    chunk_keep(loop, chunk);
    if (failed.count != 0)
        iteration_failed(loop, failed, &failure, outcome);
}

void parfor_chunk_done(gp_team *team, void *context, const team_outcome *outcome)
{
    parfor_chunk *chunk = context;
    parfor *loop = chunk->loop;
    parfor_piece piece = chunk->piece;

    chunk->unit = NULL;
    loop->changed = true;
    parfor_chunk_unlink(loop, chunk);
    if (outcome->status == GP_OK) {
        chunk_answered(chunk, outcome);
        settle(loop);
        return;
    }
    parfor_chunk_free(chunk);
    if (loop->isolated && outcome->answer == NULL && outcome->status != GP_ECANCELED &&
        outcome->status != GP_ENODEV && team_check(team, NULL) == GP_OK) {
        chunk_lost(loop, &piece, outcome);
        settle(loop);
        return;
    }

    /* The answer may name the iteration that failed. Otherwise the whole chunk has failed. */
    if (outcome->answer != NULL && outcome->answer->value >= piece.first &&
        outcome->answer->value - piece.first < piece.count)
        piece.first = outcome->answer->value;
    if (outcome->answer != NULL)
        piece.count = 1;
    piece_fail(loop, &piece, outcome->status, outcome->sentence);
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

/* Deliver the failure of each iteration of a chunk. */
static void failure_deliver(parfor *loop, const parfor_chunk *chunk)
{
    const gp_parfor_request *request = loop->request;
    const gp_team *before = team_callback_begin(loop->team);

    for (uint32_t k = 0; k < chunk->done && !loop->stopped; k++) {
        uint64_t position = chunk->piece.first + k;

        if (request->errors != NULL)
            request->errors[position] = *chunk->failure;
        if (request->on_error != NULL &&
            !request->on_error(request->context, parfor_iteration(loop, position), chunk->failure))
            loop->stopped = loop->ending = true;
    }
    team_callback_end(before);
}

static void chunk_deliver(parfor *loop, const parfor_chunk *chunk)
{
    const gp_team *before = team_callback_begin(loop->team);
    size_t at = chunk->items_begin;

    while (at < chunk->items_end && !loop->stopped) {
        const unsigned char *data = (const unsigned char *)chunk->answer.data + at + sizeof(gp_task_item);
        gp_task_item item;

        if (!item_next(chunk, &at, &item)) {
            parfor_fail(loop, chunk->piece.first, GP_EPROTO, "malformed results from a worker");
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
        *(chunk->next != NULL ? &chunk->next->previous : &loop->finished_last) = NULL;
        loop->kept_bytes -= chunk_bytes(chunk);
        if (loop->ordered)
            loop->plan.settled += chunk->done;
        if (chunk->failure != NULL)
            failure_deliver(loop, chunk);
        else
            chunk_deliver(loop, chunk);
        loop->undelivered -= chunk->done;
        settle(loop);
        loop->changed = true; /* the window has room */
        parfor_chunk_free(chunk);
    }
}
