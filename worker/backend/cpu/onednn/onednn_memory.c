/* Memory for a oneDNN segment: arrays, the arena, and argument binding. */
#include "worker/backend/cpu/onednn/onednn_segment.h"

#include <string.h>

#include "common/base/memory/alloc.h"

enum { HUGE_PAGE = 2 << 20 };

gp_status gp_onednn_check(dnnl_status_t status, const char *what, gp_error *err)
{
    switch (status) {
    case dnnl_success:
        return GP_OK;
    case dnnl_out_of_memory:
        return gp_fail(err, GP_ENOMEM, "oneDNN has no memory for %s", what);
    case dnnl_unimplemented:
        return gp_fail(err, GP_EUNSUPPORTED, "oneDNN %d.%d has no kernel for %s", dnnl_version()->major,
                       dnnl_version()->minor, what);
    default:
        return gp_fail(err, GP_EINTERNAL, "oneDNN %d.%d failed to create %s (status %d)",
                       dnnl_version()->major, dnnl_version()->minor, what, (int)status);
    }
}

/* Buffers in the arena at the current step, sorted by offset. */
typedef struct live_set {
    uint32_t *buffers;
    uint32_t count;
} live_set;

static size_t buffer_room(const gp_onednn_buffer *buffer)
{
    return (buffer->bytes + ONEDNN_ALIGNMENT - 1) / ONEDNN_ALIGNMENT * ONEDNN_ALIGNMENT;
}

/* Place a buffer in the lowest gap that is large enough, so that recently freed memory is reused
 * while it is in the cache. */
static void live_insert(live_set *live, gp_segment *segment, uint32_t index)
{
    gp_onednn_buffer *buffer = &segment->buffers[index];
    size_t end = 0;
    uint32_t at = 0;

    while (at < live->count) {
        const gp_onednn_buffer *other = &segment->buffers[live->buffers[at]];

        if (other->offset >= end && other->offset - end >= buffer_room(buffer))
            break;
        end = other->offset + buffer_room(other);
        at++;
    }
    buffer->offset = end;
    memmove(live->buffers + at + 1, live->buffers + at, (live->count - at) * sizeof(*live->buffers));
    live->buffers[at] = index;
    live->count++;
    if (end + buffer_room(buffer) > segment->arena_bytes)
        segment->arena_bytes = end + buffer_room(buffer);
}

/* Let the output of an in-place step replace the input, if the input's lifetime ends with this
 * step. */
static bool live_take_over(live_set *live, gp_segment *segment, const gp_onednn_step *step, uint32_t now)
{
    uint32_t from = segment->tensors[step->tensors[0]].buffer;
    uint32_t to = segment->tensors[step->tensors[step->argument_count - 1]].buffer;
    const gp_onednn_buffer *input = &segment->buffers[from];
    gp_onednn_buffer *output = &segment->buffers[to];

    if (!step->in_place || from == to || input->life != LIFE_RUN || output->life != LIFE_RUN ||
        input->last != now || output->first != now || input->bytes != output->bytes)
        return false;
    output->offset = input->offset;
    for (uint32_t i = 0; i < live->count; i++)
        if (live->buffers[i] == from)
            live->buffers[i] = to;
    return true;
}

static gp_status arena_lay_out(gp_segment *segment, gp_error *err)
{
    live_set live = { .buffers = gp_calloc(segment->buffer_count + 1, sizeof(uint32_t)) };

    if (live.buffers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to lay out %u buffers", segment->buffer_count);
    for (uint32_t i = 0; i < segment->buffer_count; i++)
        if (segment->buffers[i].life == LIFE_KEPT) {
            segment->buffers[i].last = UINT32_MAX;
            live_insert(&live, segment, i);
        }
    for (uint32_t now = 0; now < segment->step_count; now++) {
        const gp_onednn_step *step = &segment->steps[now];
        uint32_t kept = 0;

        for (uint32_t i = 0; i < live.count; i++)
            if (segment->buffers[live.buffers[i]].last >= now)
                live.buffers[kept++] = live.buffers[i];
        live.count = kept;
        for (uint32_t i = step->argument_count; i-- > 0;) {
            uint32_t index = segment->tensors[step->tensors[i]].buffer;
            gp_onednn_buffer *buffer = &segment->buffers[index];

            if (buffer->life != LIFE_RUN || buffer->first != now)
                continue;
            if (i + 1 != step->argument_count || !live_take_over(&live, segment, step, now))
                live_insert(&live, segment, index);
            buffer->first = UINT32_MAX; /* marks the buffer as placed */
        }
    }
    gp_free(live.buffers);
    return GP_OK;
}

static void step_bind(gp_segment *segment, gp_onednn_step *step)
{
    for (uint32_t i = 0; i < step->argument_count; i++) {
        const gp_onednn_tensor *tensor = &segment->tensors[step->tensors[i]];

        step->data[i] = segment->buffers[tensor->buffer].data;
        step->arguments[i] = (dnnl_exec_arg_t){ .arg = step->roles[i], .memory = tensor->memory };
    }
}

gp_status gp_onednn_place(gp_segment *segment, gp_error *err)
{
    gp_status status = arena_lay_out(segment, err);

    if (status != GP_OK)
        return status;
    segment->arena = gp_aligned_calloc(segment->arena_bytes >= HUGE_PAGE ? HUGE_PAGE : ONEDNN_ALIGNMENT,
                                       segment->arena_bytes);
    if (segment->arena == NULL)
        return gp_fail(err, GP_ENOMEM,
                       "no memory for %zu bytes of activations; a smaller micro-batch needs less",
                       segment->arena_bytes);
    for (uint32_t i = 0; i < segment->buffer_count; i++)
        if (segment->buffers[i].life != LIFE_FOREIGN)
            segment->buffers[i].data = segment->arena + segment->buffers[i].offset;
    for (uint32_t i = 0; i < segment->tensor_count && status == GP_OK; i++) {
        gp_onednn_tensor *tensor = &segment->tensors[i];

        status = gp_onednn_check(dnnl_memory_create(&tensor->memory, tensor->md, segment->engine,
                                                    segment->buffers[tensor->buffer].data),
                                 "a memory object", err);
    }
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < segment->step_count; i++)
        step_bind(segment, &segment->steps[i]);
    return GP_OK;
}

void gp_onednn_rebind(gp_segment *segment, const float *parameters)
{
    uintptr_t from = (uintptr_t)segment->memory.parameters;
    size_t bytes = segment->graph->blob_count * sizeof(float);

    segment->memory.parameters = parameters;
    for (uint32_t i = 0; i < segment->buffer_count; i++) {
        gp_onednn_buffer *buffer = &segment->buffers[i];

        /* the subtraction wraps for addresses below `from`, so the test is false for them */
        if (buffer->life == LIFE_FOREIGN && (uintptr_t)buffer->data - from < bytes)
            buffer->data = (void *)((uintptr_t)parameters + ((uintptr_t)buffer->data - from));
    }
    for (uint32_t i = 0; i < segment->tensor_count; i++) {
        const gp_onednn_tensor *tensor = &segment->tensors[i];

        dnnl_memory_set_data_handle(tensor->memory, segment->buffers[tensor->buffer].data);
    }
    for (uint32_t i = 0; i < segment->step_count; i++)
        step_bind(segment, &segment->steps[i]);
}
