/* task_loop.c -- GP_CALL_LOOP and related calls: parfor iterations, one chunk per call.
 *
 * An iteration may take nanoseconds, so there is no system call, clock read or allocation between
 * iterations. The clock and the stop flag are checked after as many iterations as take some 10 us.
 * A chunk that takes longer than the client's time budget, or whose results exceed one record, ends
 * early; the client assigns the rest to another worker. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/clock.h"
#include "proto/task/reduction.h"
#include "worker/task/object.h"

enum {
    LOOK_NS = 20000,      /* interval between clock reads: below it, double the iteration count */
    LOOK_LONG_NS = 60000, /* above it, halve the iteration count */
    LOOK_MAX = 1 << 16,
    ITEM_ALIGN = 16,
    ITEMS_BYTES = GP_LINK_INLINE_MAX / 2, /* results above this size end a chunk */
    ANSWER_BYTES_MAX = 1 << 30,
};

typedef struct open_loop {
    uint32_t number; /* 0: free entry */
    gp_task_loop plan;
    gp_task_fn function;
    gp_combine_fn combine; /* NULL: not a custom function */
    gp_view argument;
    gp_tree *tree; /* NULL: no reduction; empty between chunks */
    /* accumulators, 64-byte aligned: of the current group, and for combining */
    void *group, *other;
    uint32_t stride; /* iterations between two clock reads */
} open_loop;

struct gp_task_loops {
    open_loop loops[GP_TASK_LOOPS_MAX];

    /* current chunk's results; one buffer becomes the answer */
    gp_buffer outputs, items;
    size_t item; /* current iteration's item offset; SIZE_MAX: none */
};

/* State of the running chunk. */
typedef struct chunk {
    struct gp_task_loops *loops;
    open_loop *loop;
    gp_view input;
    uint64_t first;
    uint32_t count, done;
    int64_t begun_ns, looked_ns;
    int64_t budget_ns; /* 0: no limit */
    bool isolated;     /* a failing iteration ends the chunk, but does not fail it */
    bool ending;       /* end as soon as the reduction allows it */
} chunk;

static void loop_close(open_loop *loop)
{
    gp_view_close(&loop->argument);
    gp_tree_free(loop->tree);
    gp_free(loop->group);
    gp_free(loop->other);
    *loop = (open_loop){ 0 };
}

void gp_task_loops_free(struct gp_task_loops *loops)
{
    if (loops == NULL)
        return;
    for (int k = 0; k < GP_TASK_LOOPS_MAX; k++)
        loop_close(&loops->loops[k]);
    gp_buffer_deinit(&loops->outputs);
    gp_buffer_deinit(&loops->items);
    gp_free(loops);
}

static open_loop *loop_find(struct gp_task_loops *loops, uint32_t number)
{
    for (int k = 0; loops != NULL && k < GP_TASK_LOOPS_MAX; k++)
        if (loops->loops[k].number == number)
            return &loops->loops[k];
    return NULL;
}

static gp_status loop_get(gp_tasks *tasks, uint32_t number, open_loop **out, gp_error *err)
{
    *out = number == 0 ? NULL : loop_find(tasks->loops, number);
    if (*out == NULL)
        return gp_fail(err, GP_EPROTO, "this worker has no open loop %u", number);
    return GP_OK;
}

/* ---- open and close ---- */

/* Combine two accumulators. Implements gp_tree_combine_fn; context is the loop. Custom functions
 * get aligned memory. */
static void loop_combine(void *context, void *into, const void *from, size_t bytes)
{
    const open_loop *loop = context;

    if (loop->combine != NULL)
        loop->combine(into, from, bytes, (void *)(uintptr_t)loop->argument.data);
    else
        gp_reduce_combine((gp_reduce_kind)loop->plan.reduce_kind, into, from, bytes);
}

/* Read the loop plan at the start of the record. The argument follows, or is in the blob. */
static gp_status loop_keep(gp_tasks *tasks, const gp_taken *call, open_loop *loop, gp_error *err)
{
    const gp_task_loop *plan = &loop->plan;
    gp_status status;

    if (call->inlined_bytes < sizeof(loop->plan))
        return gp_fail(err, GP_EPROTO, "malformed description of a loop: %zu bytes", call->inlined_bytes);
    memcpy(&loop->plan, call->inlined, sizeof(loop->plan));
    size_t element = gp_reduce_element_bytes((gp_reduce_kind)plan->reduce_kind);

    if (plan->total > GP_LOOP_ITERATIONS_MAX || plan->output_bytes > ANSWER_BYTES_MAX)
        return gp_fail(err, GP_EPROTO, "invalid loop: %llu iterations with outputs of %u bytes",
                       (unsigned long long)plan->total, plan->output_bytes);
    if (plan->reduce_bytes != 0 &&
        (plan->reduce_bytes > GP_TASK_REDUCE_MAX || plan->reduce_block == 0 ||
         (plan->combine == 0 && (element == 0 || plan->reduce_bytes % element != 0))))
        return gp_fail(err, GP_EPROTO, "invalid reduction: kind %u over %u bytes in groups of %u",
                       plan->reduce_kind, plan->reduce_bytes, plan->reduce_block);
    if (call->blob != 0)
        status = gp_tasks_keep(tasks, call, &loop->argument, err);
    else /* a copy of its own is aligned */
        status = gp_view_copy(&loop->argument, call->inlined + sizeof(loop->plan),
                              call->inlined_bytes - sizeof(loop->plan), err);
    if (status != GP_OK)
        return status;
    if (loop->argument.bytes != loop->plan.argument_bytes)
        return gp_fail(err, GP_EPROTO, "the argument of a loop has %zu bytes, must have %llu",
                       loop->argument.bytes, (unsigned long long)loop->plan.argument_bytes);
    if (loop->argument.bytes == 0)
        loop->argument.data = NULL;
    return GP_OK;
}

gp_status gp_loop_open(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    open_loop *loop;
    gp_status status;

    (void)out;
    if (tasks->loops == NULL) {
        tasks->loops = gp_calloc(1, sizeof(*tasks->loops));
        if (tasks->loops == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a loop");
        gp_buffer_init(&tasks->loops->outputs, (size_t)2 * ANSWER_BYTES_MAX);
        gp_buffer_init(&tasks->loops->items, (size_t)2 * ANSWER_BYTES_MAX);
    }
    if (call->count == 0 || loop_find(tasks->loops, call->count) != NULL)
        return gp_fail(err, GP_EPROTO, "loop %u is already open", call->count);
    loop = loop_find(tasks->loops, 0);
    if (loop == NULL)
        return gp_fail(err, GP_ELIMIT, "the worker has reached its limit of %d open loops",
                       GP_TASK_LOOPS_MAX);
    status = loop_keep(tasks, call, loop, err);
    if (status == GP_OK) {
        *(void **)&loop->function = gp_objects_find(tasks->objects, call->function, err);
        status = loop->function != NULL ? GP_OK : err->code;
    }
    if (status == GP_OK && loop->plan.combine != 0) {
        *(void **)&loop->combine = gp_objects_find(tasks->objects, loop->plan.combine, err);
        status = loop->combine != NULL ? GP_OK : err->code;
    }
    if (status == GP_OK && loop->plan.reduce_bytes != 0) {
        size_t bytes = (loop->plan.reduce_bytes + (size_t)63) & ~(size_t)63;

        loop->group = gp_aligned_calloc(64, bytes);
        loop->other = gp_aligned_calloc(64, bytes);
        status =
            loop->group == NULL || loop->other == NULL
                ? gp_fail(err, GP_ENOMEM, "no memory for accumulators of %u bytes", loop->plan.reduce_bytes)
                : gp_tree_new(&loop->tree, loop->plan.reduce_bytes, loop_combine, loop, err);
    }
    loop->stride = 1;
    if (status == GP_OK)
        loop->number = call->count;
    else
        loop_close(loop);
    return status;
}

gp_status gp_loop_close(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    open_loop *loop;
    gp_status status = loop_get(tasks, call->function, &loop, err);

    (void)out;
    if (status == GP_OK)
        loop_close(loop);
    return status;
}

/* ---- iteration results ---- */

static size_t item_room(size_t bytes)
{
    return sizeof(gp_task_item) + ((bytes + ITEM_ALIGN - 1) & ~(size_t)(ITEM_ALIGN - 1));
}

/* Append an item to the chunk's results, replacing an earlier item of the same iteration.
 * Implements gp_task.room. */
static gp_status loop_room(gp_task *task, size_t bytes, void **out, gp_error *err)
{
    const chunk *c = task->owner;
    gp_buffer *items = &c->loops->items;
    gp_task_item head = { .bytes = bytes, .iteration = c->done };
    gp_status status;

    if (bytes > ANSWER_BYTES_MAX - sizeof(head) - ITEM_ALIGN)
        return gp_fail(err, GP_ELIMIT, "the output of an iteration has %zu bytes, at most %d are allowed",
                       bytes, ANSWER_BYTES_MAX);
    if (c->loops->item != SIZE_MAX)
        items->bytes = c->loops->item;
    c->loops->item = SIZE_MAX;
    status = gp_buffer_reserve(items, item_room(bytes), err);
    if (status != GP_OK)
        return status;
    uint8_t *at = items->data + items->bytes;

    memcpy(at, &head, sizeof(head));
    memset(at + sizeof(head) + bytes, 0, item_room(bytes) - sizeof(head) - bytes);
    c->loops->item = items->bytes;
    items->bytes += item_room(bytes);
    *out = at + sizeof(head);
    return GP_OK;
}

/* ---- a chunk ---- */

/* Return whether the chunk has enough results to end. A reduction group is completed
 * nevertheless. */
static bool items_enough(const chunk *c)
{
    return c->loops->items.bytes >= ITEMS_BYTES;
}

/* Run iterations up to `end`. c->done is set to the next iteration, or to one that failed.
 *   observed  publish the running iteration and attribute output to it. Constant in each caller:
 *             an empty iteration takes about 5 ns, and a test takes part of that */
static inline __attribute__((always_inline)) gp_status chunk_run(chunk *c, gp_task *task, uint32_t end,
                                                                 const bool observed, gp_error *err)
{
    const gp_task_loop *plan = &c->loop->plan;
    gp_task_fn function = c->loop->function;
    const bool grouped = c->loop->tree != NULL;
    const unsigned char *input = c->input.data;
    unsigned char *output = NULL;
    uint64_t position = c->first + c->done;
    uint64_t iteration = (uint64_t)plan->first + position * (uint64_t)plan->step;
    gp_status status = GP_OK;

    if (input != NULL)
        input += (size_t)c->done * plan->input_bytes;
    if (plan->output_bytes != 0)
        output = c->loops->outputs.data + (size_t)c->done * plan->output_bytes;
    while (c->done < end && (grouped || !items_enough(c))) {
        task->position = position;
        task->iteration = (int64_t)iteration;
        task->stream = (gp_task_stream){ .seed = plan->seed, .position = position };
        task->input = input;
        task->output = output;
        c->loops->item = SIZE_MAX;
        if (observed) {
            if (c->isolated)
                gp_link_set_progress(task->tasks->link, c->done);
            gp_capture_begin_iteration(task->tasks->capture, task->iteration);
        }
        status = function(task, err);
        if (task->owned != NULL)
            gp_task_release(task);
        if (observed)
            gp_capture_end(task->tasks->capture);
        if (status != GP_OK)
            return status;
        c->done++;
        position++;
        iteration += (uint64_t)plan->step;
        if (input != NULL)
            input += plan->input_bytes;
        if (output != NULL)
            output += plan->output_bytes;
    }
    if (c->done < end)
        c->ending = true;
    return GP_OK;
}

static gp_status chunk_iterate(chunk *c, gp_task *task, uint32_t end, gp_error *err)
{
    if (c->isolated || task->tasks->capture != NULL)
        return chunk_run(c, task, end, true, err);
    return chunk_run(c, task, end, false, err);
}

/* Run one reduction group, or the whole chunk if there is no reduction. */
static gp_status chunk_group(chunk *c, gp_tasks *tasks, gp_task *task, uint32_t end, gp_error *err)
{
    open_loop *loop = c->loop;
    gp_status status = GP_OK;

    if (loop->tree != NULL && loop->combine == NULL)
        gp_reduce_identity((gp_reduce_kind)loop->plan.reduce_kind, loop->group, loop->plan.reduce_bytes);
    else if (loop->tree != NULL)
        memset(loop->group, 0, loop->plan.reduce_bytes);
    while (status == GP_OK && c->done < end && (loop->tree != NULL || !c->ending)) {
        uint32_t stride = (loop->plan.flags & GP_LOOP_TIMED) != 0 ? 1 : loop->stride;
        uint32_t stop = end - c->done > stride ? c->done + stride : end;

        status = chunk_iterate(c, task, stop, err);
        /* Read the clock, adapt the stride, and check whether the chunk should end. */
        int64_t now_ns = gp_now_ns(), took_ns = now_ns - c->looked_ns;

        if (took_ns < LOOK_NS && loop->stride < LOOK_MAX)
            loop->stride *= 2;
        else if (took_ns > LOOK_LONG_NS && loop->stride > 1)
            loop->stride /= 2;
        c->looked_ns = now_ns;
        if (c->budget_ns != 0 && now_ns - c->begun_ns >= c->budget_ns)
            c->ending = true;
        if (status == GP_OK && gp_tasks_canceled(tasks)) {
            c->ending = true; /* an isolated iteration that ended in time keeps its result */
            if (!c->isolated)
                status = gp_fail(err, GP_ECANCELED, "the loop was canceled");
        }
    }
    return status;
}

/* Append the failure of the iteration after the completed ones to the items. */
static gp_status failure_append(chunk *c, gp_status failed, gp_error *err)
{
    gp_task_failure failure = { .status = (uint32_t)gp_tasks_error(failed, err) };

    memcpy(failure.message, err->message, sizeof(failure.message));
    if (c->loops->item != SIZE_MAX)
        c->loops->items.bytes = c->loops->item; /* the failed iteration has no result */
    return gp_buffer_append(&c->loops->items, &failure, sizeof(failure), err);
}

/* Build the answer: outputs, items and accumulators, one after the other. */
static gp_status chunk_answer(chunk *c, gp_outcome *out, gp_error *err)
{
    const open_loop *loop = c->loop;
    gp_buffer *outputs = &c->loops->outputs, *items = &c->loops->items;
    gp_buffer *whole = loop->plan.output_bytes != 0 ? outputs : items;
    gp_status status = GP_OK;

    if (whole == outputs) {
        outputs->bytes = (size_t)c->done * loop->plan.output_bytes;
        if (items->bytes != 0)
            status = gp_buffer_append(outputs, items->data, items->bytes, err);
    }
    for (size_t k = 0; status == GP_OK && loop->tree != NULL && k < gp_tree_count(loop->tree); k++) {
        const void *data;

        gp_tree_at(loop->tree, k, &data);
        status = gp_buffer_append(whole, data, loop->plan.reduce_bytes, err);
    }
    out->data = whole->data;
    out->bytes = whole->bytes;
    out->count = c->done;
    return status;
}

static gp_status chunk_check(const chunk *c, const gp_taken *call, gp_error *err)
{
    const gp_task_loop *plan = &c->loop->plan;

    if (call->first < 0 || c->first >= GP_LOOP_ITERATIONS_MAX || c->count == 0 ||
        (plan->total != 0 && (c->first >= plan->total || c->count > plan->total - c->first)))
        return gp_fail(err, GP_EPROTO, "invalid chunk: %u iterations from %lld of a loop of %llu", c->count,
                       (long long)call->first, (unsigned long long)plan->total);
    if (c->loop->tree != NULL && c->first % plan->reduce_block != 0)
        return gp_fail(err, GP_EPROTO, "invalid chunk at %lld for a reduction in groups of %u",
                       (long long)call->first, plan->reduce_block);
    if ((uint64_t)c->count * plan->output_bytes > ANSWER_BYTES_MAX ||
        c->input.bytes != (uint64_t)c->count * plan->input_bytes)
        return gp_fail(err, GP_EPROTO,
                       "invalid input: %zu bytes for %u iterations of %u, with %u bytes of output each",
                       c->input.bytes, c->count, plan->input_bytes, plan->output_bytes);
    return GP_OK;
}

gp_status gp_loop_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    chunk c = { .first = (uint64_t)call->first, .count = call->count, .budget_ns = (int64_t)call->value };
    gp_task task;
    gp_status status = loop_get(tasks, call->function, &c.loop, err);

    if (status != GP_OK)
        return status;
    c.loops = tasks->loops;
    c.isolated = (c.loop->plan.flags & GP_LOOP_ISOLATED) != 0;
    out->value = c.first;
    if (c.loop->plan.input_bytes != 0)
        status = gp_tasks_view(tasks, call, &c.input, err);
    if (status == GP_OK)
        status = chunk_check(&c, call, err);
    gp_buffer_clear(&c.loops->items);
    gp_buffer_clear(&c.loops->outputs);
    size_t bytes = (size_t)c.count * c.loop->plan.output_bytes;

    if (status == GP_OK && bytes != 0)
        status = gp_buffer_reserve(&c.loops->outputs, bytes, err);
    if (status != GP_OK)
        return status;
    if (bytes != 0)
        memset(c.loops->outputs.data, 0, bytes); /* outputs start as zero */
    gp_task_begin(&task, tasks, call);
    task.argument = c.loop->argument;
    task.input_bytes = c.loop->plan.input_bytes;
    task.output_bytes = c.loop->plan.output_bytes;
    task.accumulator = c.loop->group;
    task.accumulator_bytes = c.loop->plan.reduce_bytes;
    task.room = loop_room;
    task.owner = &c;
    c.begun_ns = c.looked_ns = gp_now_ns();
    const uint32_t block = c.loop->tree != NULL ? c.loop->plan.reduce_block : c.count;

    while (status == GP_OK && c.done < c.count && !c.ending) {
        uint64_t group = (c.first + c.done) / block;

        status = chunk_group(&c, tasks, &task, c.count - c.done > block ? c.done + block : c.count, err);
        if (status == GP_OK && c.loop->tree != NULL)
            status = gp_tree_add(c.loop->tree, (gp_tree_node){ 0, group }, c.loop->group, err);
        if (items_enough(&c))
            c.ending = true;
    }
    if (status != GP_OK && c.isolated) {
        status = failure_append(&c, status, err);
        out->flags = GP_ANSWER_FAILED;
    }
    if (status == GP_OK)
        status = chunk_answer(&c, out, err);
    if (status != GP_OK)
        out->value = c.first + c.done;
    if (c.loop->tree != NULL)
        gp_tree_clear(c.loop->tree);
    return status;
}

/* ---- combining accumulators for the client ---- */

gp_status gp_loop_combine(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    open_loop *loop;
    gp_view given;
    gp_status status = loop_get(tasks, call->function, &loop, err);

    if (status == GP_OK)
        status = gp_tasks_view(tasks, call, &given, err);
    if (status != GP_OK)
        return status;
    size_t bytes = loop->plan.reduce_bytes;
    gp_buffer *whole = &tasks->loops->items;

    if (bytes == 0 || call->count % 2 != 0 || given.bytes != (uint64_t)call->count * bytes)
        return gp_fail(err, GP_EPROTO, "invalid number of accumulators: %u of %zu bytes in %zu bytes",
                       call->count, bytes, given.bytes);
    gp_buffer_clear(whole);
    for (uint32_t k = 0; status == GP_OK && k < call->count; k += 2) {
        memcpy(loop->group, (const unsigned char *)given.data + k * bytes, bytes);
        memcpy(loop->other, (const unsigned char *)given.data + (k + 1) * bytes, bytes);
        loop_combine(loop, loop->group, loop->other, bytes);
        status = gp_buffer_append(whole, loop->group, bytes, err);
    }
    out->data = whole->data;
    out->bytes = whole->bytes;
    out->count = call->count / 2;
    return status;
}
