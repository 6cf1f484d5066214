/* task_api.c -- the functions of task.h, except communication between ranks, and the handler of
 * GP_CALL_RUN. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/tensor.h"
#include "common/base/text/log.h"
#include "common/base/rng.h"
#include "common/data/format/npy.h"
#include "worker/task/blobs.h"
#include "worker/task/object.h"
#include "worker/task/values.h"

enum { LOG_LINE_MAX = 1000 };

#define TENSOR_ELEMENTS_MAX ((int64_t)1 << 36)

/* ---- results ---- */

static gp_memory result_memory(const gp_result *result)
{
    return (gp_memory){ .fd = result->fd, .map = result->data, .bytes = result->room };
}

void gp_result_close(gp_result *result)
{
    gp_memory memory = result_memory(result);

    if (result->fd >= 0)
        gp_memory_close(&memory);
    *result = (gp_result){ .fd = -1 };
}

gp_status gp_result_room(gp_task *task, size_t bytes, void **out, gp_error *err)
{
    gp_result *result = &task->result;
    gp_memory memory;
    gp_status status;

    if (bytes <= GP_LINK_INLINE_MAX) {
        gp_result_close(result);
        result->data = task->tasks->scratch;
    } else if (result->fd < 0 || result->room < bytes) {
        gp_result_close(result);
        status = gp_results_take(&task->tasks->results, bytes, &memory, err);
        if (status != GP_OK)
            return status;
        *result =
            (gp_result){ .data = memory.map, .fd = memory.fd, .room = memory.bytes, .clean = memory.clean };
    }
    result->bytes = bytes;
    result->given = true;
    *out = result->data;
    return GP_OK;
}

void gp_result_answer(gp_result *result, gp_outcome *out)
{
    out->data = result->data;
    out->bytes = result->bytes;
    if (result->fd >= 0) {
        out->memory = result_memory(result);
        *result = (gp_result){ .fd = -1 };
    }
}

static gp_status result_room(gp_task *task, void **out, size_t bytes, gp_error *err)
{
    return (task->room != NULL ? task->room : gp_result_room)(task, bytes, out, err);
}

gp_status gp_task_result(gp_task *task, const void *data, size_t bytes, gp_error *err)
{
    void *room;
    gp_status status = result_room(task, &room, bytes, err);

    if (status == GP_OK && bytes != 0)
        memmove(room, data, bytes);
    task->result.clean = false;
    return status;
}

gp_status gp_task_result_new(gp_task *task, void **data, size_t bytes, gp_error *err)
{
    gp_status status = result_room(task, data, bytes, err);

    /* Skip clean memory: touching it would be most of the cost. */
    if (status == GP_OK && bytes != 0 && (task->result.fd < 0 || !task->result.clean))
        memset(*data, 0, bytes);
    task->result.clean = false;
    return status;
}

/* ---- running a task ---- */

void gp_task_begin(gp_task *task, gp_tasks *tasks, const gp_taken *call)
{
    *task = (gp_task){ .tasks = tasks,
                       .call = call->id,
                       .attempt = call->attempt,
                       .stream = { .seed = call->value },
                       .result = { .fd = -1 } };
}

void gp_task_own(gp_task *task, gp_owned *owned)
{
    owned->next = task->owned;
    owned->at = &task->owned;
    if (owned->next != NULL)
        owned->next->at = &owned->next;
    task->owned = owned;
}

void gp_owned_leave(gp_owned *owned)
{
    if (owned->at == NULL)
        return;
    *owned->at = owned->next;
    if (owned->next != NULL)
        owned->next->at = owned->at;
    owned->at = NULL;
}

void gp_task_release(gp_task *task)
{
    while (task->owned != NULL) {
        gp_owned *owned = task->owned;

        gp_owned_leave(owned);
        owned->close(owned);
    }
}

gp_status gp_task_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    void *function = gp_objects_find(tasks->objects, call->function, err);
    gp_task task;
    gp_status status;

    if (function == NULL)
        return err->code;
    gp_task_begin(&task, tasks, call);
    status = gp_tasks_view(tasks, call, &task.argument, err);
    if (status == GP_OK)
        status = ((gp_task_fn)(uintptr_t)function)(&task, err);
    gp_task_release(&task);
    if (status == GP_OK)
        gp_result_answer(&task.result, out);
    else
        gp_result_close(&task.result);
    return status;
}

/* ---- identity ---- */

uint32_t gp_task_index(const gp_task *task)
{
    return task->index != 0 ? task->index : atomic_load(&task->tasks->server->rank) + 1;
}

uint32_t gp_task_size(const gp_task *task)
{
    return task->size != 0 ? task->size : atomic_load(&task->tasks->server->size);
}

uint32_t gp_task_worker(const gp_task *task)
{
    return atomic_load(&task->tasks->server->rank) + 1;
}

int64_t gp_task_iteration(const gp_task *task)
{
    return task->iteration;
}

uint64_t gp_task_position(const gp_task *task)
{
    return task->position;
}

uint32_t gp_task_attempt(const gp_task *task)
{
    return task->attempt;
}

void gp_task_get_device(const gp_task *task, gp_task_device *out)
{
    const gp_worker_device *device = task->tasks->device;
    cpu_set_t set;

    *out = (gp_task_device){ .gpu = device->kind == GP_DEVICE_CUDA,
                             .ordinal = device->ordinal,
                             .uuid = device->uuid,
                             .name = device->name,
                             .cores = device->core_count };
    if (device->shared && sched_getaffinity(0, sizeof(set), &set) == 0)
        out->cores = (uint32_t)CPU_COUNT(&set);
}

bool gp_task_canceled(const gp_task *task)
{
    return gp_tasks_canceled(task->tasks);
}

/* ---- input and output ---- */

const void *gp_task_argument(const gp_task *task, size_t *bytes)
{
    *bytes = task->argument.bytes;
    return task->argument.data;
}

const void *gp_task_input(const gp_task *task, size_t *bytes)
{
    *bytes = task->input_bytes;
    return task->input;
}

void *gp_task_output(const gp_task *task, size_t *bytes)
{
    *bytes = task->output_bytes;
    return task->output;
}

void *gp_task_accumulator(const gp_task *task, size_t *bytes)
{
    *bytes = task->accumulator_bytes;
    return task->accumulator;
}

/* ---- random numbers ---- */

uint64_t gp_task_random(gp_task *task)
{
    gp_task_stream *s = &task->stream;
    uint32_t words[4];

    if (s->has_kept) {
        s->has_kept = false;
        return s->kept;
    }
    /* The upper 32 bits of the counter are passed in the layer argument. */
    gp_rng_draw(words, s->seed, gp_rng_stream(GP_RNG_PARFOR, (uint32_t)(s->next >> 32)),
                (uint32_t)(s->position >> 32), (uint32_t)s->position, (uint32_t)s->next);
    s->next++;
    s->kept = (uint64_t)words[2] << 32 | words[3];
    s->has_kept = true;
    return (uint64_t)words[0] << 32 | words[1];
}

double gp_task_uniform(gp_task *task)
{
    return (double)(gp_task_random(task) >> 11) * 0x1p-53;
}

double gp_task_normal(gp_task *task)
{
    gp_task_stream *s = &task->stream;
    double pair[2];
    uint64_t bits;

    if (s->has_normal) {
        s->has_normal = false;
        return s->normal;
    }
    bits = gp_task_random(task);
    gp_rng_normal(pair, (uint32_t)(bits >> 32), (uint32_t)bits);
    s->normal = pair[1];
    s->has_normal = true;
    return pair[0];
}

/* ---- kept data ---- */

const void *gp_task_get(const gp_task *task, const char *name, size_t *bytes)
{
    const gp_cached_value *kept = gp_names_find(task->tasks->values, name);

    *bytes = kept == NULL ? 0 : kept->view.bytes;
    return kept == NULL ? NULL : kept->view.data;
}

gp_status gp_task_put(gp_task *task, const char *name, const void *data, size_t bytes, gp_error *err)
{
    gp_cached_value kept = { .fd = -1 };
    gp_status status = gp_view_copy(&kept.view, data, bytes, err);

    if (status == GP_OK)
        status = gp_names_set(task->tasks->values, name, &kept, err);
    if (status != GP_OK)
        gp_view_close(&kept.view);
    return status;
}

gp_status gp_task_get_tensor(const gp_task *task, const char *name, gp_dtype dtype, gp_tensor *out,
                             gp_error *err)
{
    size_t bytes;
    const void *data = gp_task_get(task, name, &bytes);
    gp_npy npy;
    gp_error why;

    if (data == NULL)
        return gp_fail(err, GP_ENOENT, "no value \"%s\"", name);
    if (gp_npy_parse(&npy, data, bytes, "it", &why) != GP_OK)
        return gp_fail(err, GP_EINVAL, "the value \"%s\" is not a tensor: %s", name, why.message);
    if (dtype != 0 && npy.dtype != dtype)
        return gp_fail(err, GP_EINVAL, "the value \"%s\" has elements of type %s, not %s", name,
                       gp_dtype_name(npy.dtype), gp_dtype_name(dtype));
    *out = (gp_tensor){ .dtype = npy.dtype, .shape = npy.shape, .data = npy.data };
    return GP_OK;
}

gp_status gp_task_put_tensor(gp_task *task, const char *name, const gp_tensor *tensor, gp_error *err)
{
    gp_cached_value kept = { .fd = -1 };
    unsigned char head[GP_NPY_WRITTEN_MAX];
    gp_status status = gp_shape_check(&tensor->shape, TENSOR_ELEMENTS_MAX, err);
    size_t head_bytes = status == GP_OK ? gp_npy_header(head, tensor->dtype, &tensor->shape) : 0;

    if (status == GP_OK && head_bytes == 0)
        status = gp_fail(err, GP_EINVAL, "a tensor cannot have elements of type %d (%s)", (int)tensor->dtype,
                         gp_dtype_name(tensor->dtype));
    if (status != GP_OK)
        return status;
    size_t bytes = (size_t)gp_shape_count(&tensor->shape) * gp_dtype_bytes(tensor->dtype);
    unsigned char *copy = gp_aligned_calloc(64, head_bytes + bytes);

    if (copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a tensor of %zu bytes", bytes);
    memcpy(copy, head, head_bytes);
    if (bytes != 0)
        memcpy(copy + head_bytes, tensor->data, bytes);
    kept.view = (gp_view){ .data = copy, .bytes = head_bytes + bytes, .copy = copy };
    status = gp_names_set(task->tasks->values, name, &kept, err);
    if (status != GP_OK)
        gp_view_close(&kept.view);
    return status;
}

gp_status gp_task_cached(gp_task *task, const char *name, gp_build_fn build, void (*drop)(void *value),
                         void **out, gp_error *err)
{
    const gp_cached_value *known = gp_names_find(task->tasks->constants, name);
    gp_cached_value kept = { .fd = -1, .drop = drop };
    gp_status status;

    if (known != NULL) {
        *out = known->built;
        return GP_OK;
    }
    status = build(task, &kept.built, err);
    if (status != GP_OK)
        return status;
    status = gp_names_set(task->tasks->constants, name, &kept, err);
    if (status == GP_OK)
        *out = kept.built;
    else if (drop != NULL)
        drop(kept.built);
    return status;
}

const char *gp_task_file(const gp_task *task, const char *name)
{
    const gp_cached_value *kept = gp_names_find(task->tasks->files, name);

    return kept == NULL ? NULL : kept->path;
}

/* ---- messages to the client ---- */

gp_status gp_task_queue(gp_task *task, const char *queue, const void *data, size_t bytes, gp_error *err)
{
    enum { LARGE_AT_ONCE = 64, PAUSE_NS = 100000 };
    gp_tasks *tasks = task->tasks;
    size_t name_bytes = strlen(queue) + 1;
    bool large = bytes > GP_LINK_INLINE_MAX - name_bytes, canceled = false;
    gp_answer *answer = NULL;
    uint64_t blob = 0;

    if (name_bytes == 1 || name_bytes > GP_TASK_NAME_MAX + 1)
        return gp_fail(err, GP_EINVAL, "invalid queue name of %zu bytes: must have 1 to %d", name_bytes - 1,
                       GP_TASK_NAME_MAX);
    /* Limit the large items in flight. Each is a descriptor in the client until it is read, and
     * descriptors are scarce: after LARGE_AT_ONCE items, wait until the client has emptied the
     * ring. */
    if (large && tasks->large_items++ >= LARGE_AT_ONCE) {
        while (!gp_link_idle(tasks->link) && !(canceled = gp_tasks_canceled(tasks))) {
            gp_link_ring(tasks->link);
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        }
        tasks->large_items = canceled ? LARGE_AT_ONCE : 1;
    }
    gp_status status = large && !canceled ? gp_tasks_send_blob(tasks, data, bytes, &blob, err) : GP_OK;

    if (status != GP_OK) /* the task may pass no err */
        return status;
    if (!canceled)
        answer = gp_tasks_reserve(tasks, large ? name_bytes : name_bytes + bytes, true);
    if (answer == NULL)
        return gp_fail(err, GP_ECANCELED, "the task was canceled while it waited for space in queue \"%s\"",
                       queue);
    answer->kind = GP_ANSWER_QUEUE;
    answer->id = task->call;
    memcpy(answer->payload, queue, name_bytes);
    if (large) {
        answer->blob = blob;
        answer->payload_bytes = bytes;
    } else if (bytes != 0) {
        memcpy(answer->payload + name_bytes, data, bytes);
    }
    gp_tasks_commit_events(tasks);
    return GP_OK;
}

void gp_task_log(gp_task *task, const char *format, ...)
{
    gp_tasks *tasks = task->tasks;
    char line[LOG_LINE_MAX];
    gp_answer *answer;
    va_list arguments;
    int wanted;
    size_t length;

    va_start(arguments, format);
    wanted = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (wanted >= (int)sizeof(line))
        memcpy(line + sizeof(line) - 4, "...", 4);
    length = strlen(line);
    while (length > 0 && line[length - 1] == '\n')
        line[--length] = '\0';
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 && *c != '\t')
            *c = ' ';
    gp_log(GP_LOG_INFO, "task", "task: %s", line);
    /* First report how many log lines were dropped because the ring was full. */
    gp_capture_lock(tasks->capture);
    answer = tasks->dropped == 0 ? NULL : gp_link_reserve(tasks->link, 0);
    if (answer != NULL) {
        answer->kind = GP_ANSWER_DROPPED;
        answer->id = task->call;
        answer->value = tasks->dropped;
        tasks->dropped = 0;
    }
    answer = tasks->dropped == 0 ? gp_link_reserve(tasks->link, length) : NULL;
    if (answer == NULL) {
        tasks->dropped++;
    } else {
        answer->kind = GP_ANSWER_LOG;
        answer->id = task->call;
        memcpy(answer->payload, line, length);
    }
    gp_tasks_commit_events(tasks);
}
