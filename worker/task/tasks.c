/* tasks.c -- the loop over a link.
 *
 *   next call -> take it -> mark it running -> handler -> commit the answer -> mark idle -> drop it
 *                 '- revoked: drop it
 *
 * Because of this order, a client can determine for each call of a failed worker whether it was
 * answered, was started, or can be treated as never sent.
 *
 * Waking the client costs more than a short call. So the client is woken when there is no more
 * work, before a call that takes longer than an answer may wait, and otherwise when an answer has
 * waited as long as ten calls take: 200 us to 2 ms, or 4 ms if the client waits for many answers.
 * If the prediction is wrong, control wakes the client (gp_link_server_nudge). */
#include "worker/task/tasks.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/model/graph/custom.h"
#include "worker/task/blobs.h"
#include "common/base/system/fault.h"
#include "worker/task/object.h"
#include "worker/task/values.h"

enum {
    SPIN_BUDGET_NS = 200000, /* minimum time that an answer may wait for a wakeup */
    SPIN_BUDGET_MAX_NS = 2000000,
    SPIN_BUDGET_LONG_NS = 4000000, /* maximum if the client waits for many answers */
    FULL_PAUSE_NS = 100000,
};

static const gp_call_handler handlers[] = {
    [GP_CALL_BLOCK] = gp_block_run,
    [GP_CALL_FETCH] = gp_block_fetch,
    [GP_CALL_FORGET] = gp_block_forget,
    [GP_CALL_LOOP_OPEN] = gp_loop_open,
    [GP_CALL_LOOP] = gp_loop_run,
    [GP_CALL_LOOP_CLOSE] = gp_loop_close,
    [GP_CALL_COMBINE] = gp_loop_combine,
    [GP_CALL_OBJECT] = gp_object_load,
    [GP_CALL_FUNCTION] = gp_object_function,
    [GP_CALL_FILE] = gp_value_file,
    [GP_CALL_RUN] = gp_task_run,
    [GP_CALL_PUT] = gp_value_put_call,
    [GP_CALL_GET] = gp_value_get_call,
};

enum { KINDS = sizeof(handlers) / sizeof(handlers[0]) };

/* ---- the link server ---- */

gp_status gp_link_server_new(gp_link_server **out, int segment, int wakeup_fd, int control_socket,
                             gp_mailbox *mailbox, bool spin, gp_error *err)
{
    gp_link_server *server = gp_calloc(1, sizeof(*server));
    gp_status status;

    if (server == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a link");
    server->wakeup_fd = -1;
    status = gp_blobs_new(&server->blobs, control_socket, mailbox, err);
    if (status == GP_OK)
        status = gp_link_map(&server->link, segment, wakeup_fd, spin, err);
    if (status != GP_OK) {
        gp_link_server_free(server);
        return status;
    }
    close(segment);
    server->wakeup_fd = wakeup_fd;
    server->opened_ns = gp_now_ns();
    *out = server;
    return GP_OK;
}

void gp_link_server_free(gp_link_server *server)
{
    if (server == NULL)
        return;
    gp_link_free(server->link);
    gp_blobs_free(server->blobs);
    if (server->wakeup_fd >= 0)
        close(server->wakeup_fd);
    gp_free(server);
}

void gp_link_server_stop(gp_link_server *server)
{
    atomic_store(&server->stop, 1);
    gp_blobs_close(server->blobs);
    gp_link_wake(server->link);
}

void gp_link_server_nudge(gp_link_server *server)
{
    if (atomic_load(&server->unannounced))
        gp_link_ring(server->link);
}

/* ---- waking the client ---- */

static void announce(gp_tasks *t)
{
    if (t->unannounced_ns == 0)
        return;
    t->unannounced_ns = 0;
    atomic_store_explicit(&t->server->unannounced, 0, memory_order_relaxed);
    gp_link_ring(t->link);
}

static void unannounced(gp_tasks *t)
{
    if (t->unannounced_ns != 0)
        return;
    t->unannounced_ns = t->now_ns;
    atomic_store_explicit(&t->server->unannounced, 1, memory_order_relaxed);
}

static bool leaving(const gp_tasks *t)
{
    return t->ended || atomic_load_explicit(&t->server->stop, memory_order_relaxed) != 0;
}

bool gp_tasks_canceled(const gp_tasks *t)
{
    return leaving(t) || gp_link_canceled(t->link);
}

/* ---- answers ---- */

gp_answer *gp_tasks_reserve(gp_tasks *t, size_t payload_bytes, bool until_canceled)
{
    gp_answer *answer;

    gp_capture_lock(t->capture);
    while ((answer = gp_link_reserve(t->link, payload_bytes)) == NULL) {
        gp_capture_unlock(t->capture);
        if (leaving(t) || (until_canceled && gp_tasks_canceled(t)))
            return NULL;
        gp_link_ring(t->link);
        nanosleep(&(struct timespec){ .tv_nsec = FULL_PAUSE_NS }, NULL);
        gp_capture_lock(t->capture);
    }
    return answer;
}

void gp_tasks_commit(gp_tasks *t)
{
    gp_link_commit(t->link);
    gp_capture_unlock(t->capture);
}

void gp_tasks_commit_events(gp_tasks *t)
{
    gp_tasks_commit(t);
    gp_link_ring(t->link);
}

gp_status gp_tasks_send_blob(gp_tasks *t, const void *data, size_t bytes, uint64_t *number, gp_error *err)
{
    int fd = -1;
    gp_status status = gp_blob_file_of(data, bytes, &fd, err);

    if (status != GP_OK)
        return status;
    status = gp_blobs_send(t->server->blobs, fd, number, err);
    close(fd);
    return status;
}

gp_status gp_tasks_error(gp_status status, gp_error *err)
{
    if (!gp_status_known((long)status)) {
        gp_fail(err, GP_EINVAL, "the task returned the unknown status %d", (int)status);
        status = GP_EINVAL;
    }
    if (err->message[0] == '\0')
        gp_fail(err, status, "%s", gp_status_text(status));
    err->message[sizeof(err->message) - 1] = '\0'; /* a task may have written the message */
    return status;
}

static void call_answer(gp_tasks *t, const gp_taken *call, gp_status status, gp_outcome *out, gp_error *err,
                        int64_t begun_ns)
{
    gp_answer *answer;
    uint64_t blob = 0;
    bool inlined;

    /* Send a result that does not fit into the ring as a blob. */
    if (status != GP_OK)
        gp_memory_close(&out->memory);
    else if (out->memory.fd >= 0)
        status = gp_results_send(&t->results, &out->memory, t->server->blobs, &blob, err);
    else if (out->bytes > GP_LINK_INLINE_MAX)
        status = gp_tasks_send_blob(t, out->data, out->bytes, &blob, err);
    if (status != GP_OK) { /* the answer is the error message */
        status = gp_tasks_error(status, err);
        out->data = err->message;
        out->bytes = strlen(err->message);
        out->flags = 0;
        out->count = 0;
    }
    inlined = blob == 0;
    answer = gp_tasks_reserve(t, inlined ? out->bytes : 0, false);
    if (answer == NULL)
        return;
    t->now_ns = gp_now_ns();
    answer->kind = GP_ANSWER_DONE;
    answer->flags = out->flags;
    answer->status = status;
    answer->count = out->count;
    answer->id = call->id;
    answer->begun_ns = (uint64_t)(begun_ns - t->server->opened_ns);
    answer->ended_ns = (uint64_t)(t->now_ns - t->server->opened_ns);
    answer->blob = blob;
    answer->payload_bytes = out->bytes;
    answer->value = out->value;
    if (inlined && out->bytes != 0)
        memcpy(answer->payload, out->data, out->bytes);
    gp_fault_point("task_done");
    gp_tasks_commit(t);
    unannounced(t);
    gp_fault_point("task_answered");
}

/* ---- calls ---- */

static gp_status taken_copy(const gp_tasks *t, const gp_call *record, gp_taken *call, gp_error *err)
{
    size_t behind = gp_link_payload_max(t->link);
    uint64_t payload_bytes = *(const volatile uint64_t *)&record->payload_bytes;

    *call = (gp_taken){ .kind = record->kind,
                        .flags = record->flags,
                        .function = record->function,
                        .count = record->count,
                        .attempt = record->attempt,
                        .id = record->id,
                        .first = record->first,
                        .value = record->value,
                        .blob = record->blob,
                        .inlined = record->payload };
    if (call->blob != 0) {
        call->blob_bytes = payload_bytes;
        call->inlined_bytes = behind;
        if (payload_bytes > GP_LINK_BLOB_BYTES_MAX)
            return gp_fail(err, GP_EPROTO, "the blob of a call has %llu bytes, at most %llu are allowed",
                           (unsigned long long)payload_bytes, (unsigned long long)GP_LINK_BLOB_BYTES_MAX);
    } else {
        call->inlined_bytes = (size_t)payload_bytes;
        if (payload_bytes > behind)
            return gp_fail(err, GP_EPROTO, "malformed call: %llu bytes in a record of %zu",
                           (unsigned long long)payload_bytes, behind);
    }
    return GP_OK;
}

/* Return how long an answer may wait for a wakeup while calls follow. A wakeup costs the worker
 * 8 us and a client on a busy core 16 us, so for short calls it has to serve several answers.
 * The next calls are already in the ring, so neither side idles. */
static int64_t spin_budget_max_ns(const gp_tasks *t)
{
    return gp_link_patient(t->link) ? SPIN_BUDGET_LONG_NS : SPIN_BUDGET_MAX_NS;
}

static int64_t spin_budget_ns(const gp_tasks *t, int64_t call_ns)
{
    int64_t most_ns = spin_budget_max_ns(t), several_ns = call_ns < most_ns / 10 ? 10 * call_ns : most_ns;

    return several_ns > SPIN_BUDGET_NS ? several_ns : SPIN_BUDGET_NS;
}

/* Return whether calls of this kind run functions of the user. */
static bool is_of_user(uint16_t kind)
{
    return kind == GP_CALL_RUN || kind == GP_CALL_BLOCK || kind == GP_CALL_LOOP || kind == GP_CALL_COMBINE;
}

static void call_run(gp_tasks *t, const gp_taken *call, gp_status status, gp_error *err)
{
    gp_call_handler handler = call->kind < KINDS ? handlers[call->kind] : NULL;
    gp_outcome out = { .memory = { .fd = -1 } };
    int64_t begun_ns = t->now_ns, took_ns;
    int64_t last_ns = call->kind == GP_CALL_RUN ? gp_objects_last_ns(t->objects, call->function) : INT64_MAX;

    /* Is the call expected to last until after a waiting answer needs a wakeup? */
    if (t->unannounced_ns != 0 && (last_ns > spin_budget_max_ns(t) ||
                                   t->now_ns - t->unannounced_ns + last_ns > spin_budget_ns(t, last_ns)))
        announce(t);
    gp_link_set_running(t->link, call->id);
    gp_fault_point("task_begin");
    gp_capture_begin_call(t->capture, is_of_user(call->kind) ? call->id : 0);
    if (status == GP_OK)
        status = handler != NULL ? handler(t, call, &out, err)
                                 : gp_fail(err, GP_EUNSUPPORTED, "unknown kind of call: %u", call->kind);
    gp_capture_end(t->capture);
    gp_capture_begin_call(t->capture, 0); /* child processes may print between calls */
    call_answer(t, call, status, &out, err, begun_ns);
    gp_link_set_running(t->link, 0);
    atomic_fetch_add_explicit(&t->train->progress, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->train->calls, 1, memory_order_relaxed);
    took_ns = t->now_ns - begun_ns;
    if (call->kind == GP_CALL_RUN)
        gp_objects_took(t->objects, call->function, took_ns);
    if (t->unannounced_ns != 0 && t->now_ns - t->unannounced_ns >= spin_budget_ns(t, took_ns))
        announce(t);
}

static void call_serve(gp_tasks *t, const gp_call *record)
{
    gp_error err;
    gp_taken call;
    gp_status status;

    err.code = GP_OK;
    err.message[0] = '\0';
    status = taken_copy(t, record, &call, &err);
    if (!gp_call_take(record))
        ; /* revoked: treat it as never sent */
    else if (call.kind == GP_CALL_CLOSE)
        t->ended = true;
    else if (call.kind == GP_CALL_RELEASE)
        gp_blobs_release(t->server->blobs, call.blob);
    else
        call_run(t, &call, status, &err);
    gp_link_drop(t->link);
}

/* ---- the loop ---- */

static void tasks_free(gp_tasks *t)
{
    gp_task_loops_free(t->loops);
    gp_task_blocks_free(t->blocks);
    gp_results_deinit(&t->results);
    gp_objects_forget(t->objects);
    gp_names_free(t->constants);
    gp_names_free(t->values);
    gp_names_free(t->files);
    gp_custom_forget(); /* after the constants, which may be models */
    gp_capture_close(t->capture);
    gp_free(t);
}

static gp_status tasks_new(gp_tasks **out, const gp_tasks_setup *setup, gp_error *err)
{
    gp_tasks *t = gp_aligned_calloc(_Alignof(gp_tasks), sizeof(*t));
    gp_status status;

    if (t == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a link");
    t->server = setup->server;
    t->link = setup->server->link;
    t->host = setup->host;
    t->train = setup->train;
    t->device = setup->device;
    t->objects = setup->objects;
    t->now_ns = gp_now_ns();
    status = gp_names_new(&t->values, GP_TASK_VALUES_MAX, err);
    if (status == GP_OK)
        status = gp_names_new(&t->constants, GP_TASK_VALUES_MAX, err);
    if (status == GP_OK)
        status = gp_names_new(&t->files, GP_TASK_FILES_MAX, err);
    if (status != GP_OK) {
        tasks_free(t);
        return status;
    }
    if (t->server->output && gp_capture_open(&t->capture, t->link, err) != GP_OK)
        gp_log(GP_LOG_WARN, "output-uncaptured", "the client receives no output of tasks: %s", err->message);
    *out = t;
    return GP_OK;
}

void gp_tasks_serve(const gp_tasks_setup *setup)
{
    const void *record;
    gp_tasks *t;
    gp_error err;

    if (tasks_new(&t, setup, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "link-unserved", "cannot serve a link: %s", err.message);
        return;
    }
    gp_mailbox_ring_link(setup->mailbox, t->link);
    while (!leaving(t))
        switch (gp_link_next(t->link, &record, &err)) {
        case GP_OK:
            call_serve(t, record);
            break;
        case GP_ETIMEDOUT:
            announce(t);
            if (gp_mailbox_waiting(setup->mailbox))
                t->ended = true;
            else
                gp_link_wait(t->link, -1);
            t->now_ns = gp_now_ns();
            break;
        default:
            gp_log(GP_LOG_ERROR, "link-failed", "%s; reopen the team", err.message);
            t->ended = true;
        }
    announce(t);
    gp_mailbox_ring_link(setup->mailbox, NULL);
    tasks_free(t);
}

/* ---- services for handlers ---- */

gp_status gp_tasks_view(gp_tasks *t, const gp_taken *call, gp_view *out, gp_error *err)
{
    gp_status status = GP_OK;

    *out = (gp_view){ .bytes = call->blob != 0 ? call->blob_bytes : call->inlined_bytes };
    if (call->blob != 0)
        status = gp_blobs_map(t->server->blobs, call->blob, call->blob_bytes, &out->data, err);
    else if (out->bytes != 0)
        out->data = call->inlined;
    if (status != GP_OK)
        *out = (gp_view){ 0 };
    return status;
}

gp_status gp_view_copy(gp_view *out, const void *data, size_t bytes, gp_error *err)
{
    void *copy = gp_aligned_calloc(64, bytes == 0 ? 64 : bytes);

    if (copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes", bytes);
    if (bytes != 0)
        memcpy(copy, data, bytes);
    *out = (gp_view){ .data = copy, .bytes = bytes, .copy = copy };
    return GP_OK;
}

gp_status gp_tasks_keep(gp_tasks *t, const gp_taken *call, gp_view *out, gp_error *err)
{
    size_t bytes = call->blob_bytes;
    const void *seen;
    void *map;
    int fd;

    if (call->blob == 0 || bytes == 0)
        return gp_view_copy(out, call->inlined, call->blob != 0 ? 0 : call->inlined_bytes, err);
    /* also checks the size and seals */
    gp_status status = gp_blobs_map(t->server->blobs, call->blob, bytes, &seen, err);

    if (status == GP_OK)
        status = gp_blobs_file(t->server->blobs, call->blob, &fd, err);
    if (status != GP_OK)
        return status;
    map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        status = gp_fail_errno(err, GP_ENOMEM, "cannot map %zu bytes", bytes);
    else
        *out = (gp_view){ .data = map, .bytes = bytes, .map = map };
    close(fd);
    return status;
}

void gp_view_close(gp_view *view)
{
    if (view->map != NULL)
        munmap(view->map, view->bytes);
    gp_free(view->copy);
    *view = (gp_view){ 0 };
}

gp_status gp_tasks_name(const gp_taken *call, char name[GP_TASK_NAME_MAX + 1], gp_view *rest_of,
                        gp_error *err)
{
    size_t most = call->inlined_bytes < GP_TASK_NAME_MAX + 1 ? call->inlined_bytes : GP_TASK_NAME_MAX + 1;
    size_t length, after;

    memcpy(name, call->inlined, most < GP_TASK_NAME_MAX + 1 ? most : GP_TASK_NAME_MAX);
    name[most < GP_TASK_NAME_MAX + 1 ? most : GP_TASK_NAME_MAX] = '\0';
    length = strlen(name);
    if (length == 0)
        return gp_fail(err, GP_EPROTO, "the function has no name");
    /* The name ends at a NUL or at the end of the bytes. */
    if (length == GP_TASK_NAME_MAX && most > GP_TASK_NAME_MAX && call->inlined[GP_TASK_NAME_MAX] != '\0')
        return gp_fail(err, GP_EPROTO, "the function name has more than %d bytes: \"%.40s...\"",
                       GP_TASK_NAME_MAX, name);
    after = length < call->inlined_bytes ? length + 1 : length;
    if (rest_of != NULL)
        *rest_of = (gp_view){ .data = call->inlined + after, .bytes = call->inlined_bytes - after };
    return GP_OK;
}
