/* parfor.c: loops, whose iterations are distributed in chunks to idle workers. parfor_state.h has
 * the picture. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/team/parfor_state.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

enum {
    PARFOR_ELEMENT_MAX = 1 << 30,     /* bytes of one input or output element */
    PARFOR_KEPT_BYTES_MAX = 64 << 20, /* limit for buffered results; above it, send no chunks */

    /* iterations in flight if results are delivered in order, or items come from a source */
    PARFOR_WINDOW = 1 << 18,
    PARFOR_PROGRESS_NS = 50000000,
    PARFOR_PAIRS_BYTES = 256 << 10, /* size of one call that combines accumulators */

    /* parts of a reduction that may accumulate while chunks are still sent */
    PARFOR_GATHERED = 256,
};

/* ---- checks ---- */

/* Count the iterations from first to last; UINT64_MAX if the count does not fit. */
static uint64_t range_count(int64_t first, int64_t last, int64_t step)
{
    uint64_t span = step > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;

    if (step > 0 ? first > last : first < last)
        return 0;
    return span / stride == UINT64_MAX ? UINT64_MAX : span / stride + 1;
}

_Static_assert((int)GP_REDUCTION_SUM_F64 == (int)GP_REDUCE_SUM_F64 &&
                   (int)GP_REDUCTION_SUM_F32 == (int)GP_REDUCE_SUM_F32 &&
                   (int)GP_REDUCTION_SUM_I64 == (int)GP_REDUCE_SUM_I64 &&
                   (int)GP_REDUCTION_MIN_F64 == (int)GP_REDUCE_MIN_F64 &&
                   (int)GP_REDUCTION_MAX_F64 == (int)GP_REDUCE_MAX_F64 &&
                   (int)GP_REDUCTION_PRODUCT_F64 == (int)GP_REDUCE_PRODUCT_F64 &&
                   (int)GP_REDUCTION_MIN_I64 == (int)GP_REDUCE_MIN_I64 &&
                   (int)GP_REDUCTION_MAX_I64 == (int)GP_REDUCE_MAX_I64,
               "a reduction is the same number to users and on the wire");

static gp_status check_reduction(const gp_parfor_request *request, gp_error *err)
{
    size_t element = gp_reduce_element_bytes((gp_reduce_kind)request->reduction);
    bool own = request->reduction == GP_REDUCTION_COMBINE;

    if (request->reduction == GP_REDUCTION_NONE)
        return request->reduced == NULL && request->combine == NULL
                   ? GP_OK
                   : gp_fail(err, GP_EINVAL, "the loop has a buffer for a reduced value but no reduction");
    if (!own && element == 0)
        return gp_fail(err, GP_EINVAL, "unknown reduction %d", (int)request->reduction);
    if (own != (request->combine != NULL))
        return gp_fail(err, GP_EINVAL,
                       own ? "the reduction by a combine function has no function; set its name"
                           : "a built-in reduction and a combine function are both given; give one of them");
    if (request->reduced == NULL || request->reduced_bytes == 0 ||
        request->reduced_bytes > GP_TASK_REDUCE_MAX)
        return gp_fail(err, GP_EINVAL, "the reduced value has %zu bytes; it must have 1 to %d",
                       request->reduced == NULL ? 0 : request->reduced_bytes, GP_TASK_REDUCE_MAX);
    if (!own && request->reduced_bytes % element != 0)
        return gp_fail(err, GP_EINVAL,
                       "the reduced value has %zu bytes, not a multiple of the element size %zu",
                       request->reduced_bytes, element);
    return GP_OK;
}

static gp_status check_request(const gp_team *team, const gp_parfor_request *request, gp_error *err)
{
    if (request->function == NULL)
        return gp_fail(err, GP_EINVAL, "the loop has no function; find one with gp_function_find()");
    if (request->function->team != team)
        return gp_fail(err, GP_EINVAL, "the function %s belongs to another team", request->function->name);
    if (request->next != NULL && (request->input != NULL || request->output != NULL))
        return gp_fail(err, GP_EINVAL,
                       "a loop with `next` takes no input or output array; results go to `on_result`");
    if (request->next == NULL && (request->input == NULL) != (request->input_bytes == 0))
        return gp_fail(err, GP_EINVAL, "sliced input needs both an array and an element size");
    if ((request->output == NULL) != (request->output_bytes == 0))
        return gp_fail(err, GP_EINVAL, "sliced output needs both an array and an element size");
    if (request->input_bytes > PARFOR_ELEMENT_MAX || request->output_bytes > PARFOR_ELEMENT_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "input elements have %zu bytes and output elements %zu; the maximum is %d",
                       request->input_bytes, request->output_bytes, PARFOR_ELEMENT_MAX);
    if (request->errors != NULL && request->next != NULL)
        return gp_fail(err, GP_EINVAL,
                       "a loop with `next` takes no array of errors; errors go to `on_error`");
    if (request->timeout_ms < 0)
        return gp_fail(err, GP_EINVAL, "the time limit of an iteration is negative: %" PRId64 " ms",
                       request->timeout_ms);
    if (request->priority < -GP_PRIORITY_MAX || request->priority > GP_PRIORITY_MAX)
        return gp_fail(err, GP_EINVAL, "the priority is %" PRId32 "; it must be -%d to %d", request->priority,
                       GP_PRIORITY_MAX, GP_PRIORITY_MAX);
    if (team_check_argument(request->argument, request->bytes, request->shared, err) != GP_OK)
        return GP_EINVAL;
    return check_reduction(request, err);
}

/* ---- opening ---- */

/* Fill in the loop's description that workers receive. */
static gp_status loop_describe(parfor *loop, const gp_function *combine, gp_error *err)
{
    const gp_parfor_request *request = loop->request;
    uint64_t total = range_count(request->first, request->last, request->step == 0 ? 1 : request->step);

    if (request->next != NULL)
        total = 0;
    if (total > GP_LOOP_ITERATIONS_MAX)
        return gp_fail(err, GP_ELIMIT, "the loop has %" PRIu64 " iterations; the maximum is %" PRIu64 "",
                       total, GP_LOOP_ITERATIONS_MAX);
    loop->wire = (gp_task_loop){
        .first = request->first,
        .step = request->step == 0 ? 1 : request->step,
        .total = total,
        .seed = request->seed,
        .input_bytes = (uint32_t)request->input_bytes,
        .output_bytes = (uint32_t)request->output_bytes,
        .argument_bytes = request->shared != NULL ? request->shared->bytes : request->bytes,
        .flags = (loop->isolated ? GP_LOOP_ISOLATED : 0u) | (request->timeout_ms > 0 ? GP_LOOP_TIMED : 0u),
    };
    if (request->reduction != GP_REDUCTION_NONE) {
        loop->wire.reduce_bytes = (uint32_t)request->reduced_bytes;
        loop->wire.reduce_block = loop->isolated ? 1 : gp_tree_block(total);
        loop->wire.reduce_kind = combine == NULL ? (uint32_t)request->reduction : GP_REDUCE_NONE;
        loop->wire.combine = combine == NULL ? 0 : combine->number;
    }
    return GP_OK;
}

static void combine_native(void *context, void *into, const void *from, size_t bytes)
{
    const parfor *loop = context;

    gp_reduce_combine((gp_reduce_kind)loop->wire.reduce_kind, into, from, bytes);
}

/* Open the loop on every worker, before the first chunk in its ring. Does not wait for the
 * replies. */
static gp_status loop_open(parfor *loop, gp_error *err)
{
    const gp_parfor_request *request = loop->request;
    gp_broadcast *shared = (gp_broadcast *)(uintptr_t)request->shared, *own = NULL;
    unsigned char payload[GP_LINK_INLINE_MAX];
    size_t bytes = sizeof(loop->wire);
    gp_status status = GP_OK;

    memcpy(payload, &loop->wire, sizeof(loop->wire));
    if (shared == NULL && request->bytes > sizeof(payload) - bytes) {
        status = gp_broadcast_new(&own, request->argument, request->bytes, err);
        shared = own;
    } else if (shared == NULL && request->bytes > 0) {
        memcpy(payload + bytes, request->argument, request->bytes);
        bytes += request->bytes;
    }

    /* The number is the low half of an id. It may wrap, but the loop is closed long before the
     * number is reused. */
    while (loop->number == 0)
        loop->number = (uint32_t)team_new_id(loop->team);
    team_call call = {
        .kind = GP_CALL_LOOP_OPEN,
        .function = request->function->number,
        .count = loop->number,
        .payload = payload,
        .bytes = bytes,
        .shared = shared,
    };

    if (status == GP_OK)
        status = team_broadcast_add(&loop->open, loop->team, &call, GP_EVERY_WORKER, err);
    shared_leave(own);
    return status;
}

static void loop_close(parfor *loop)
{
    team_call call = { .kind = GP_CALL_LOOP_CLOSE, .function = loop->number };

    if (loop->open == NULL)
        return;
    team_broadcast_remove(loop->team, loop->open);
    for (uint32_t w = 1; w <= gp_team_size(loop->team); w++) {
        /* Urgent like the open call: a slow worker must not accumulate finished loops. */
        team_terms terms = { .worker = w, .attempts = 1, .urgent = true };

        if (worker_of(loop->team, w)->stage == TEAM_UP)
            team_submit(NULL, loop->team, &call, &terms, NULL, NULL, NULL);
    }
}

/* ---- chunks ---- */

static void parfor_end(parfor *loop)
{
    while (loop->finished != NULL) {
        parfor_chunk *chunk = loop->finished;

        loop->finished = chunk->next;
        parfor_chunk_free(chunk);
    }
    while (loop->items != NULL) {
        parfor_items *items = loop->items;

        loop->items = items->next;
        gp_free(items);
    }
    gp_tree_free(loop->tree);
    parfor_plan_deinit(&loop->plan);
}

static gp_status parfor_chunk_submit(parfor *loop, const parfor_piece *piece, gp_error *err)
{
    parfor_chunk *chunk = gp_calloc(1, sizeof(*chunk));
    const parfor_items *items = parfor_items_of(loop, piece->first);
    size_t at = loop->wire.input_bytes;
    team_call call = { .kind = GP_CALL_LOOP,
                       .function = loop->number,
                       .first = (int64_t)piece->first,
                       .count = piece->count,
                       .value =
                           loop->request->timeout_ms > 0 ? PARFOR_BUDGET_NS : parfor_plan_budget(&loop->plan),
                       .bytes = at * piece->count,
                       .borrowed = true };
    team_terms terms = { .needs = loop->needs,
                         .attempts = loop->request->attempts,
                         .priority = loop->request->priority,
                         .cancel_at_once = loop->request->cancel_at_once };
    gp_status status;

    if (chunk == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a chunk of a loop");
    if (loop->isolated) {
        terms.attempts = 1; /* parfor_answers.c starts the iterations again */
        call.attempt = 1u + piece->attempts + piece->retries;
    }

    /* A chunk of several iterations ends after the one that exceeds the budget. If it has run for
     * the budget and the time limit, one iteration has exceeded the limit. */
    terms.timeout_ms = loop->request->timeout_ms;
    if (terms.timeout_ms > 0 && terms.timeout_ms < UINT32_MAX && piece->count > 1)
        terms.timeout_ms += PARFOR_BUDGET_NS / 1000000;
    if (at != 0)
        call.payload = loop->request->next == NULL
                           ? (const unsigned char *)loop->request->input + at * piece->first
                           : items->data + at * (piece->first - items->first);
    chunk->loop = loop;
    chunk->piece = *piece;
    chunk->next = loop->flying;
    loop->flying = chunk;
    loop->out++;
    status = team_submit(&chunk->unit, loop->team, &call, &terms, parfor_chunk_done, chunk, err);
    if (status != GP_OK) {
        parfor_chunk_unlink(loop, chunk);
        parfor_chunk_free(chunk);
    }
    return status;
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
        parfor_fail(loop, GP_LOOP_ITERATIONS_MAX, status, error.message);
    gp_free(pairs);
}

static gp_status parfor_combine(parfor *loop, gp_error *err)
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
        team_terms terms = { .needs = loop->needs,
                             .attempts = loop->request->attempts,
                             .priority =
                                 loop->request->priority + (loop->request->priority < GP_PRIORITY_MAX) };

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

/* ---- sending chunks ---- */

/* Get the items of the next chunk from the source. Stop early if the source is slow. */
static gp_status source_fill(parfor *loop, gp_error *err)
{
    uint32_t size = parfor_plan_size(&loop->plan), bytes = loop->wire.input_bytes;
    int64_t begun_ns = gp_now_ns();
    parfor_items *items;

    if (size == 0)
        return GP_OK;
    items = gp_malloc(sizeof(*items) + (size_t)size * bytes);
    if (items == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u items of %u bytes", size, bytes);
    *items = (parfor_items){ .first = loop->plan.next };
    while (items->count < size && !loop->source_ended) {
        /* Only whole reduction groups are sent. Stop at a group boundary, so that no worker waits
         * for a slow source. */
        if (items->count % loop->plan.block == 0 && items->count > 0 &&
            gp_now_ns() - begun_ns > PARFOR_CHUNK_NS)
            break;
        const gp_team *before = team_callback_begin(loop->team);

        loop->source_ended =
            !loop->request->next(loop->request->context, items->data + (size_t)items->count * bytes);
        team_callback_end(before);
        items->count += !loop->source_ended;
    }
    items->left = items->count;
    if (items->count == 0) {
        gp_free(items);
        return GP_OK;
    }
    items->next = loop->items;
    loop->items = items;
    return GP_OK;
}

/* Send chunks until the pipeline is full, results must be delivered first, or no iteration is
 * available. */
static gp_status loop_give_out(parfor *loop, gp_error *err)
{
    const uint32_t workers = team_needs_workers(loop->team, loop->needs); /* elastic: it changes */
    uint32_t limit = workers * PARFOR_DEPTH;
    gp_status status = GP_OK;

    loop->plan.workers = workers;

    while (status == GP_OK && loop->out < limit && !loop->ending &&
           (loop->kept_bytes <= PARFOR_KEPT_BYTES_MAX || parfor_plan_has_rest(&loop->plan))) {
        parfor_piece piece;
        uint32_t most = UINT32_MAX;

        /* Of a source, only iterations whose items are available can be sent. */
        if (loop->request->next != NULL && !parfor_plan_has_rest(&loop->plan)) {
            if (!loop->source_ended && loop->plan.total == UINT64_MAX)
                status = source_fill(loop, err);
            if (status != GP_OK)
                return status;
            most = loop->items != NULL && loop->items->first == loop->plan.next ? loop->items->count : 0;
        }
        if (!parfor_plan_take(&loop->plan, most, &piece))
            break;
        status = parfor_chunk_submit(loop, &piece, err);
    }
    if (loop->source_ended && loop->plan.total == UINT64_MAX) {
        parfor_plan_close(&loop->plan);
        if (loop->tree != NULL)
            gp_tree_close(loop->tree, (loop->plan.total + loop->plan.block - 1) / loop->plan.block);
    }
    return status;
}

/* ---- the loop ---- */

static void loop_progress(parfor *loop, bool last)
{
    int64_t now_ns;

    if (loop->request->progress == NULL)
        return;
    now_ns = gp_now_ns();
    if (!last && now_ns - loop->progress_ns < PARFOR_PROGRESS_NS)
        return;
    loop->progress_ns = now_ns;
    const gp_team *before = team_callback_begin(loop->team);

    loop->request->progress(loop->request->context, loop->done,
                            loop->plan.total == UINT64_MAX ? 0 : loop->plan.total);
    team_callback_end(before);
}

static bool loop_changed(void *context)
{
    return ((const parfor *)context)->changed;
}

static bool loop_empty(void *context)
{
    const parfor *loop = context;

    return loop->out == 0 && loop->combining == 0;
}

static gp_status loop_run(parfor *loop, gp_error *err)
{
    gp_status status = team_check(loop->team, err);

    while (status == GP_OK) {
        loop->changed = false;
        status = loop_give_out(loop, err);
        if (status == GP_OK) {
            parfor_deliver(loop);
            status = parfor_combine(loop, err);
        }
        loop_progress(loop, false);
        if (status != GP_OK || loop->ending ||
            (parfor_plan_ended(&loop->plan) && loop->finished == NULL &&
             (loop->tree == NULL || loop->plan.total == 0 || gp_tree_root(loop->tree) != NULL)))
            break;

        /* Delivered results make room for more chunks: send these before waiting. */
        if (!loop->changed)
            status = team_poll(loop->team, loop_changed, loop, -1, err);
    }
    if (!loop_empty(loop)) {
        parfor_cancel(loop);
        team_poll_canceled(loop->team, loop_empty, loop);
    }
    return status;
}

static gp_status parfor_run(gp_team *team, const gp_parfor_request *request, const gp_function *combine,
                            uint32_t needs, gp_error *err)
{
    const bool keeps_going = request->on_error != NULL || request->errors != NULL;
    parfor loop = { .team = team,
                    .request = request,
                    .needs = needs,
                    .keeps_going = keeps_going,
                    .isolated = keeps_going || request->retries > 0 || request->timeout_ms > 0 };
    gp_status status = loop_describe(&loop, combine, err);

    if (status == GP_OK && loop.wire.reduce_bytes != 0)
        status = gp_tree_new(&loop.tree, loop.wire.reduce_bytes,
                             loop.wire.combine == 0 ? combine_native : NULL, &loop, err);
    if (status != GP_OK)
        return status;
    bool bounded = request->next != NULL || request->on_result != NULL || request->on_error != NULL;

    loop.ordered = (request->on_result != NULL || request->on_error != NULL) && !request->unordered;
    loop.plan = (parfor_plan){
        .total = request->next != NULL ? UINT64_MAX : loop.wire.total,
        .workers = team_needs_workers(loop.team, needs),
        .block = loop.wire.reduce_bytes != 0 ? loop.wire.reduce_block : 1,
        .chunk = request->chunk,
        .max_in_flight = request->max_in_flight != 0 ? request->max_in_flight
                         : bounded                   ? PARFOR_WINDOW
                                                     : 0,
        .bytes = request->input_bytes > request->output_bytes ? request->input_bytes : request->output_bytes,
    };
    if (loop.tree != NULL && request->next == NULL)
        gp_tree_close(loop.tree, (loop.wire.total + loop.plan.block - 1) / loop.plan.block);
    for (uint64_t k = 0; request->errors != NULL && k < loop.wire.total; k++)
        gp_fail(&request->errors[k], GP_ECANCELED, "the loop ended before this iteration");
    status = loop_open(&loop, err);
    if (status == GP_OK)
        status = loop_run(&loop, err);

    /* The rejection by a worker that could not open the loop explains the error
     * of the lowest failed iteration. */
    if (status == GP_OK && loop.error.code != GP_OK) {
        status = team_broadcast_refused(loop.open, err);
        if (status == GP_OK)
            status = gp_fail(err, loop.error.code, "%s", loop.error.message);
    }

    /* Store the reduced value; for a loop without iterations, the identity of the reduction. */
    if (status == GP_OK && !loop.stopped && loop.tree != NULL) {
        const void *root = gp_tree_root(loop.tree);

        if (root != NULL)
            memcpy(request->reduced, root, request->reduced_bytes);
        else
            gp_reduce_identity((gp_reduce_kind)loop.wire.reduce_kind, request->reduced,
                               request->reduced_bytes);
    }
    if (status == GP_OK)
        loop_progress(&loop, true);
    loop_close(&loop);
    parfor_end(&loop);
    return status;
}

gp_status gp_parfor(gp_team *team, const gp_parfor_request *request, gp_error *err)
{
    const gp_function *combine = NULL;
    uint32_t needs;
    gp_status status = check_request(team, request, err);

    if (status == GP_OK && team_in_callback(team))
        status = gp_fail(err, GP_ESTATE, "a loop cannot be run from a callback of its team");
    if (status == GP_OK && request->combine != NULL)
        status = gp_function_find(&combine, team, request->combine, err);
    if (status != GP_OK)
        return status;
    team_enter(team);
    status = team_needs_find(team, GP_ENVIRONMENT_ANY, request->needs, 0, &needs, err);
    if (status == GP_OK) {
        dispatch_hold_class(team->dispatch, needs); /* between two chunks too */
        status = parfor_run(team, request, combine, needs, err);
        dispatch_release_class(team->dispatch, needs);
    }
    team_leave(team);
    return status;
}
