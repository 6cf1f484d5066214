/* run.c -- the compute thread: the states and the command loop.
 *
 *            .--PREPARE--> PREPARING -------------------------.
 *            .--TRAIN--> TRAINING --last step, stop, failure--.
 *   IDLE <---+------------------------------------------------+      any other command: GP_ESTATE
 *    ^       '--PREDICT_BEGIN--> PREDICTING --PREDICT_ASK--.
 *    |                            |      ^-----------------'
 *    '----PREDICT_END, RESET------'
 *    '--TASKS--> SERVING --link closed, any command--> IDLE
 *
 * - TRAINING (run_train): allocates and frees all memory for the steps. Replies train_ready,
 *   then events, then train_done. Keeps a copy of the training state for the next lease
 *   generation, in case a peer has failed.
 * - PREPARING (run_prepare): builds the objects that a training needs in this lease's next
 *   generation and keeps as many as possible. Replies ok_reply.
 * - PREDICTING (run_predict_begin to run_forget): keeps a predictor.
 * - SERVING (run_tasks): executes calls that arrive over a link (tasks.c). Replies `left`.
 *
 * The control thread stops a training through gp_train_control, never through the mailbox: compute
 * takes commands only between runs. The backend is opened at first need and stays open until the
 * process exits. After GRADPOOL_GPU_IDLE seconds (default 120) without work on a GPU backend, the
 * heartbeats ask the scheduler for a replacement (gp_run_unused), so that other processes can use
 * the GPU memory.
 *
 * The file stays whole: all functions move the compute thread between these states. */
#include "worker/daemon/run.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "common/base/system/metrics_put.h"
#include "common/base/system/fault.h"
#include "common/base/system/seal.h"
#include "common/data/store/store.h"
#include "worker/backend/cpu/base/threads.h"
#include "worker/process/exit_reason.h"
#include "worker/task/object.h"
#include "worker/predict/predictor.h"
#include "worker/task/tasks.h"

enum { COMPUTE_STACK = 16 << 20, GPU_IDLE_MS = 120000, GPU_IDLE_S_MAX = 1000000 };

struct gp_run {
    gp_run_options options;
    pthread_t thread;
    gp_backend *backend; /* NULL until needed */
    /* Group set by control, and group in use by compute. Control may free a group that is in
     * neither field (gp_run_holds). */
    _Atomic(gp_rendezvous *) offered, used;
    _Atomic(struct gp_link_server *) server; /* link server for the next GP_COMMAND_TASKS */
    gp_objects *objects;                     /* task code cache; NULL: not needed yet */
    gp_predictor *predictor;                 /* NULL unless PREDICTING */
    uint32_t rank;                           /* rank in the current training */
    const gp_command *training;              /* command that started the current training */
    gp_carry_over *held;                     /* training state kept from the previous group; NULL: none */
    atomic_bool unused;                      /* a GPU backend has been open without work for idle_ms */
    int idle_ms;                             /* -1: without limit */
    atomic_bool ended;                       /* the thread is about to exit */
};

/* ---- replies ---- */

static gp_reply reply_to(const gp_command *command, const gp_message_type *type)
{
    return (gp_reply){ .type = type,
                       .peer = command->message.peer,
                       .envelope = gp_reply_envelope(&command->message.envelope) };
}

static void reply_error(gp_run *run, const gp_command *command, const gp_error *error, bool idle)
{
    gp_reply reply = reply_to(command, &gp_msg_error_reply);

    reply.body.error.code = error->code;
    snprintf(reply.body.error.message, sizeof(reply.body.error.message), "%s", error->message);
    reply.idle = idle;
    gp_log_event(GP_LOG_WARN, "run-failed", GP_LOG_WITH({ "message", .text = command->message.type->name }),
                 "%s: %s", command->message.type->name, error->message);
    gp_mailbox_reply(run->options.mailbox, &reply);
}

/* ---- backend, group and weights ---- */

/* Open the backend unless it is open. GP_ENODEV: this worker has no backend. */
static gp_status run_warm(gp_run *run, gp_error *err)
{
    const gp_worker_device *device = run->options.device;
    gp_backend_options options = {
        .threads = device->shared || device->core_count == 0 ? 1 : device->core_count,
        .cores = device->shared ? NULL : device->cores,
    };
    char compiled[PATH_MAX];
    int64_t began = gp_now_ns();
    gp_error ignored;
    gp_status status;

    if (run->options.backend_ops == NULL)
        return gp_fail(err, GP_ENODEV, "%s", device->excluded);
    if (run->backend != NULL)
        return GP_OK;
    if (gp_cache_path(compiled, sizeof(compiled), "compiled", NULL, &ignored) == GP_OK)
        options.compiled = compiled;
    status = run->options.backend_ops->open(&run->backend, &options, err);
    if (status == GP_OK)
        gp_log(GP_LOG_DEBUG, "backend-open", "opened backend %s in %.2f ms", run->options.backend_ops->name,
               (double)(gp_now_ns() - began) * 1e-6);
    return status;
}

/* Store the use of device memory for the heartbeats. Compute calls this after it has allocated or
 * freed memory: the control thread must not wait for the device. */
static void run_count_memory(const gp_run *run)
{
    const gp_backend_ops *ops = run->options.backend_ops;

    if (run->backend != NULL && ops->device_memory != NULL)
        atomic_store(&run->options.train->device_memory, ops->device_memory(run->backend));
}

/* Exit the process if the device error is permanent: CUDA then fails every later call, and later
 * clients would get the same error. */
static void run_check_device(const gp_run *run, const char *doing, const gp_error *cause)
{
    gp_error still;

    if (cause->code == GP_EIO && run->backend != NULL && run->options.backend_ops->release_idle &&
        run->options.backend_ops->sync(run->backend, &still) != GP_OK)
        gp_device_lost(doing, cause);
}

/* Implement gp_tasks_host.backend. */
static gp_status host_backend(void *context, const gp_backend_ops **ops, gp_backend **backend, gp_error *err)
{
    gp_run *run = context;
    gp_status status = run_warm(run, err);

    if (status != GP_OK)
        return status;
    *ops = run->options.backend_ops;
    *backend = run->backend;
    return GP_OK;
}

/* Return the group that control assigned last. Control does not free the group before the next
 * call. Implements gp_tasks_host.rendezvous. */
static gp_rendezvous *run_rendezvous(void *context)
{
    gp_run *run = context;
    gp_rendezvous *rendezvous;

    /* Control may check `used` (gp_run_holds) between the load and the store: load `offered`
     * again after `used` is set. */
    do {
        rendezvous = atomic_load(&run->offered);
        atomic_store(&run->used, rendezvous);
    } while (atomic_load(&run->offered) != rendezvous);
    return rendezvous;
}

/* Weights of a message, mapped from the descriptor that the client sent before it. */
typedef struct weights {
    const float *data; /* NULL: none */
    size_t bytes;
} weights;

/* Map the weights; payload `index` holds their size in bytes. GP_EVERSION: the payload is not a
 * size, because an older client sends the weights themselves. */
static gp_status weights_open(weights *out, const gp_incoming *in, uint32_t index, gp_error *err)
{
    const gp_frame *frame = &in->payloads[index];
    const void *data;
    uint64_t bytes;

    if (frame->bytes != sizeof(bytes))
        return gp_fail(err, GP_EVERSION,
                       "%s has weights in a frame of %zu bytes, but this worker expects a descriptor; "
                       "install the same version of gradpool on both sides",
                       in->type->name, frame->bytes);
    memcpy(&bytes, frame->data, sizeof(bytes));
    if (bytes == 0) /* a network without parameters */
        return GP_OK;
    if (bytes % sizeof(float) != 0)
        return gp_fail(err, GP_EPROTO, "weights of %llu bytes are not a multiple of 4 bytes (float32)",
                       (unsigned long long)bytes);
    if (in->fd < 0)
        return gp_fail(err, GP_EPROTO, "no descriptor of weights was received before %s", in->type->name);
    gp_status status = gp_seal_map(&data, in->fd, bytes, err);

    if (status == GP_OK)
        *out = (weights){ .data = data, .bytes = bytes };
    return status;
}

static void weights_close(weights *w)
{
    if (w->data != NULL)
        munmap((void *)(uintptr_t)w->data, w->bytes);
    *w = (weights){ 0 };
}

static gp_status payloads_need(const gp_incoming *in, uint32_t least, const char *what, gp_error *err)
{
    if (in->payload_count >= least)
        return GP_OK;
    return gp_fail(err, GP_EPROTO, "%s has %u payloads; must have %s", in->type->name, in->payload_count,
                   what);
}

/* ---- training ---- */

/* Report a step. Every rank reports: the sums are equal on all ranks, the times are not. */
static void sink_record(void *context, const gp_train_record *record)
{
    const gp_run *run = context;

    gp_mailbox_put_event(run->options.mailbox,
                         &(gp_mailbox_event){ GP_MAILBOX_EVENT_STEPS, .record = *record });
}

/* Report a validation from rank 0 only: the result is equal on all ranks. */
static void sink_validation(void *context, const gp_train_validation *validation)
{
    const gp_run *run = context;

    if (run->rank == 0)
        gp_mailbox_put_event(run->options.mailbox,
                             &(gp_mailbox_event){ GP_MAILBOX_EVENT_VALIDATION, .validation = *validation });
}

static void sink_validating(void *context, const gp_train_validating *validating)
{
    const gp_run *run = context;

    if (run->rank == 0)
        gp_mailbox_put_event(run->options.mailbox,
                             &(gp_mailbox_event){ GP_MAILBOX_EVENT_VALIDATING, .validating = *validating });
}

/* Send a note to the client. A client that does not read must not delay the training: notes that it
 * misses are in the log only. */
static void sink_note(void *context, const char *text, bool warning)
{
    const gp_run *run = context;
    gp_reply reply = reply_to(run->training, &gp_msg_train_note);

    gp_log(warning ? GP_LOG_WARN : GP_LOG_INFO, "note", "%s", text);
    snprintf(reply.body.train_note.text, sizeof(reply.body.train_note.text), "%s", text);
    reply.body.train_note.warning = warning;
    if (!gp_mailbox_try_reply(run->options.mailbox, &reply))
        gp_log(GP_LOG_WARN, "note", "the client does not read; the last note was not sent");
}

static void run_drop_carry_over(gp_run *run)
{
    gp_carry_over_free(run->held);
    run->held = NULL;
}

static gp_trainer_setup train_setup(const gp_run *run, const gp_command *command, const gp_train_begin *begin,
                                    const gp_comm_rendezvous *group)
{
    const gp_incoming *in = &command->message;

    return (gp_trainer_setup){
        .begin = begin,
        .netspec = (const char *)in->payloads[0].data,
        .netspec_bytes = in->payloads[0].bytes,
        .options = (const char *)in->payloads[1].data,
        .options_bytes = in->payloads[1].bytes,
        .classes = in->payload_count > 3 ? (const char *)in->payloads[3].data : NULL,
        .classes_bytes = in->payload_count > 3 ? in->payloads[3].bytes : 0,
        .group = group,
        .backend_ops = run->options.backend_ops,
        .control = run->options.train,
        .held = run->held,
    };
}

static gp_status train_new(gp_run *run, gp_trainer **trainer, gp_train_ready *ready,
                           const gp_command *command, const gp_train_begin *begin,
                           const gp_comm_rendezvous *group, gp_error *err)
{
    const gp_incoming *in = &command->message;
    gp_trainer_setup setup = train_setup(run, command, begin, group);
    weights initial = { 0 };
    gp_status status = run_warm(run, err);

    setup.backend = run->backend;
    if (status == GP_OK && in->payload_count > 2)
        status = weights_open(&initial, in, 2, err);
    setup.weights = initial.data;
    setup.weights_count = initial.bytes / sizeof(float);
    if (status == GP_OK)
        status = gp_trainer_new(trainer, ready, &setup, err);
    weights_close(&initial);
    if (status == GP_OK)
        ready->ready_ms = (double)(gp_now_ns() - command->posted_ns) * 1e-6;
    return status;
}

static void train_steps(gp_run *run, gp_trainer *trainer, gp_rendezvous *rendezvous,
                        const gp_command *command, uint32_t rank)
{
    gp_train_sink sink = { run, sink_record, sink_validation, sink_note, sink_validating };
    gp_reply reply = reply_to(command, &gp_msg_train_done);
    gp_train_done *done = &reply.body.train_done;
    gp_error err;

    gp_fault_point("ready");
    gp_status status = gp_trainer_run(trainer, &sink, done);

    if (status != GP_OK) { /* `gradpool report` searches the log for this event */
        gp_log_event(
            GP_LOG_WARN, "training-ended",
            GP_LOG_WITH({ "step", .number = (int64_t)atomic_load(&run->options.train->step) },
                        { "epoch", .number = atomic_load(&run->options.train->epoch) },
                        { "rank", .number = rank },
                        { "generation", .number = command->message.envelope.generation },
                        { "exchanged", .number = (int64_t)atomic_load(&run->options.train->progress) }),
            "%s", done->message);
        err.code = status;
        snprintf(err.message, sizeof(err.message), "%s", done->message);
        run_check_device(run, "in a training", &err);
    }
    /* Add the trained weights and the class names to train_done. */
    if (status == GP_OK && rank == 0 && done->stop_reason != GP_STOP_PAUSED) {
        const char *classes = gp_trainer_classes(trainer);
        size_t count;
        const float *trained = gp_trainer_weights(trainer, &count);

        reply.payload_count = 2;
        if (gp_blob_new_sealed(&reply.payloads[0], trained, count, &err) != GP_OK ||
            gp_blob_new(&reply.payloads[1], classes, strlen(classes), &err) != GP_OK) {
            gp_blob_unref(reply.payloads[0]);
            reply.payload_count = 0;
            done->status = err.code;
            done->stop_reason = GP_STOP_FAILED;
            snprintf(done->message, sizeof(done->message), "%s", err.message);
        }
    }
    /* Keep a completed training's state too: rank 0 may fail before the client has the result. */
    if (status == GP_OK || status == GP_EPEER || status == GP_ECANCELED)
        run->held = gp_trainer_hold(trainer, command->message.envelope.lease);
    gp_trainer_free(trainer);
    gp_rendezvous_end(rendezvous);
    gp_fault_point("done");
    reply.idle = true;
    gp_mailbox_reply(run->options.mailbox, &reply);
}

static void run_train(gp_run *run, gp_command *command)
{
    gp_reply ready = reply_to(command, &gp_msg_train_ready);
    gp_comm_rendezvous group;
    gp_train_begin begin;
    gp_trainer *trainer;
    gp_error err;
    gp_status status;

    gp_rendezvous *rendezvous = run_rendezvous(run);

    if (run->predictor != NULL || rendezvous == NULL) {
        gp_fail(&err, GP_ESTATE, "this worker cannot train: it %s",
                run->predictor != NULL ? "is predicting" : "has no lease");
        reply_error(run, command, &err, false);
        return;
    }
    gp_mailbox_begin_event(run->options.mailbox);
    status = gp_incoming_decode(&command->message, &begin, &err);
    if (status == GP_OK &&
        (begin.restart == 0 || gp_carry_over_lease(run->held) != command->message.envelope.lease))
        run_drop_carry_over(run);
    if (status == GP_OK)
        status = payloads_need(&command->message, 2, "network, options and optional weights", &err);
    if (status == GP_OK)
        status = gp_rendezvous_begin(rendezvous, begin.workers, !run->options.device->shared, &group, &err);
    if (status == GP_OK)
        status = train_new(run, &trainer, &ready.body.train_ready, command, &begin, &group, &err);
    if (status != GP_OK) {
        run_check_device(run, "before the first step", &err);
        gp_rendezvous_end(rendezvous);
        reply_error(run, command, &err, true);
    } else {
        run_drop_carry_over(run);
        run_count_memory(run);
        gp_mailbox_reply(run->options.mailbox, &ready);
        run->rank = group.rank;
        run->training = command;
        train_steps(run, trainer, rendezvous, command, group.rank);
    }
}

/* Build the objects for the next training in advance. Objects that an earlier preparation kept
 * are reused, even if this one is stopped or fails. */
static void run_prepare(gp_run *run, gp_command *command)
{
    const uint64_t lease = command->message.envelope.lease;
    gp_reply ok = reply_to(command, &gp_msg_ok_reply);
    gp_comm_rendezvous group = { 0 }; /* no group exists yet */
    gp_train_begin begin;
    gp_error err;
    gp_status status = gp_incoming_decode(&command->message, &begin, &err);

    if (gp_carry_over_lease(run->held) != lease)
        run_drop_carry_over(run);
    if (status == GP_OK)
        status = payloads_need(&command->message, 2, "network and options", &err);
    if (status == GP_OK)
        status = run_warm(run, &err);
    if (status == GP_OK) {
        gp_trainer_setup setup = train_setup(run, command, &begin, &group);
        gp_carry_over *held;

        setup.backend = run->backend;
        group.world = begin.workers;
        group.rank = begin.workers - 1;
        status = gp_trainer_prepare(&held, &setup, lease, &err);
        run_drop_carry_over(run);
        run->held = held;
    }
    gp_fault_point("prepared");
    if (status != GP_OK) {
        run_check_device(run, "before the first step", &err);
        reply_error(run, command, &err, true);
    } else {
        ok.idle = true;
        gp_mailbox_reply(run->options.mailbox, &ok);
    }
}

/* ---- predicting ---- */

static void run_forget(gp_run *run)
{
    gp_predictor_free(run->predictor);
    run->predictor = NULL;
}

/* Append a payload. Each payload has a fixed position: a reply without scores has an empty frame
 * there. */
static gp_status reply_add(gp_reply *reply, const void *data, size_t bytes, gp_error *err)
{
    gp_status status = gp_blob_new(&reply->payloads[reply->payload_count], data, bytes, err);

    reply->payload_count += status == GP_OK;
    return status;
}

static void run_predict_begin(gp_run *run, gp_command *command)
{
    const gp_incoming *in = &command->message;
    gp_reply reply = reply_to(command, &gp_msg_predict_ready);
    gp_predict_begin begin;
    gp_predictor_setup setup = { .begin = &begin, .backend_ops = run->options.backend_ops };
    weights model = { 0 };
    char note[500];
    gp_error err;
    gp_status status;

    if (run->predictor != NULL) {
        gp_fail(&err, GP_ESTATE, "a prediction is already open; close it first");
        reply_error(run, command, &err, false);
        return;
    }
    status = gp_incoming_decode(in, &begin, &err);
    if (status == GP_OK)
        status = payloads_need(in, 2, "network and weights", &err);
    if (status == GP_OK)
        status = run_warm(run, &err);
    if (status == GP_OK)
        status = weights_open(&model, in, 1, &err);
    if (status == GP_OK) {
        setup.weights = model.data;
        setup.weights_count = model.bytes / sizeof(float);
        setup.backend = run->backend;
        setup.netspec = (const char *)in->payloads[0].data;
        setup.netspec_bytes = in->payloads[0].bytes;
        if (in->payload_count > 2 && in->payloads[2].bytes > 0) {
            setup.classes = (const char *)in->payloads[2].data;
            setup.classes_bytes = in->payloads[2].bytes;
        }
        status = gp_predictor_new(&run->predictor, &reply.body.predict_ready, &setup, &err);
        if (status != GP_OK)
            run_check_device(run, "in a prediction", &err);
    }
    weights_close(&model);
    if (status == GP_OK && gp_predictor_note(run->predictor, note, sizeof(note))[0] != '\0')
        status = reply_add(&reply, note, strlen(note), &err);
    if (status != GP_OK) {
        run_forget(run);
        reply_error(run, command, &err, true);
    } else {
        gp_mailbox_reply(run->options.mailbox, &reply);
    }
}

static gp_status predict_part(gp_run *run, gp_reply *reply, const gp_predictor_ask *ask, gp_error *err)
{
    gp_predicted predicted;
    gp_buffer names, cells, skipped_names;
    gp_status status = gp_predictor_part(run->predictor, ask, &predicted, err);

    if (status != GP_OK)
        return status;
    reply->body.predict_part = predicted.part;
    gp_buffer_init(&names, 64 << 20);
    gp_buffer_init(&skipped_names, 64 << 20);
    gp_buffer_init(&cells,
                   GP_CONFUSION_CELL_BYTES * (size_t)GP_CONFUSION_CLASSES_MAX * GP_CONFUSION_CLASSES_MAX);
    if (predicted.named)
        status = gp_predictor_names(run->predictor, ask->first, ask->count, NULL, &names, err);
    if (status == GP_OK && predicted.skipped != NULL)
        status = gp_predictor_names(run->predictor, ask->first, ask->count, predicted.skipped, &skipped_names,
                                    err);
    if (status == GP_OK && predicted.confusion != NULL)
        status = gp_confusion_pack(predicted.confusion, &cells, err);
    const gp_payload parts[GP_REPLY_PAYLOADS] = {
        { .data = predicted.scores, .bytes = predicted.scores_bytes },
        { .data = predicted.labels, .bytes = predicted.labels == NULL ? 0 : ask->count * sizeof(int32_t) },
        { .data = names.data, .bytes = names.bytes },
        { .data = cells.data, .bytes = cells.bytes },
        { .data = predicted.skipped, .bytes = ask->count },
        { .data = skipped_names.data, .bytes = skipped_names.bytes },
    };
    for (uint32_t i = 0; i < (predicted.skipped != NULL ? 6 : 4) && status == GP_OK; i++)
        status = reply_add(reply, parts[i].data, parts[i].bytes, err);
    for (; status != GP_OK && reply->payload_count > 0; reply->payload_count--)
        gp_blob_unref(reply->payloads[reply->payload_count - 1]);
    gp_buffer_deinit(&names);
    gp_buffer_deinit(&cells);
    gp_buffer_deinit(&skipped_names);
    return status;
}

static void run_predict_ask(gp_run *run, gp_command *command)
{
    gp_reply reply = reply_to(command, &gp_msg_predict_part);
    const gp_incoming *in = &command->message;
    gp_predict_ask ask;
    gp_error err;
    gp_status status;

    if (run->predictor == NULL)
        status = gp_fail(&err, GP_ESTATE, "no prediction is open; open one first");
    else if (atomic_load(&run->options.train->stop) == 2)
        status = gp_fail(&err, GP_ECANCELED, "the prediction was canceled");
    else
        status = gp_incoming_decode(in, &ask, &err);
    if (status == GP_OK)
        status = predict_part(run, &reply,
                              &(gp_predictor_ask){
                                  .first = ask.first,
                                  .count = ask.count,
                                  .samples = in->payload_count > 0 ? in->payloads[0].data : NULL,
                                  .samples_bytes = in->payload_count > 0 ? in->payloads[0].bytes : 0,
                              },
                              &err);
    if (status == GP_OK)
        gp_mailbox_reply(run->options.mailbox, &reply);
    else
        reply_error(run, command, &err, false);
    atomic_fetch_add(&run->options.train->progress, 1);
}

/* ---- tasks ---- */

static void run_tasks(gp_run *run)
{
    gp_reply left = { .type = NULL, .left = true };
    gp_tasks_setup setup = { .server = atomic_load(&run->server),
                             .mailbox = run->options.mailbox,
                             .host = { run, host_backend, run_rendezvous },
                             .train = run->options.train,
                             .device = run->options.device };
    gp_error err;

    if (run->objects == NULL && gp_objects_new(&run->objects, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "link-unserved", "cannot serve a link: %s", err.message);
    } else {
        setup.objects = run->objects;
        gp_tasks_serve(&setup);
    }
    gp_mailbox_reply(run->options.mailbox, &left);
}

/* ---- the thread ---- */

/* Return the time in ms after which a GPU backend counts as unused. -1: never. */
static int idle_read(void)
{
    const char *text = getenv("GRADPOOL_GPU_IDLE");
    char *end;
    double seconds;

    if (text == NULL || text[0] == '\0')
        return GPU_IDLE_MS;
    seconds = strtod(text, &end);
    if (*end == '\0' && seconds == 0)
        return -1;
    if (*end == '\0' && seconds > 0 && seconds <= GPU_IDLE_S_MAX)
        return seconds < 0.001 ? 1 : (int)(seconds * 1000);
    gp_log(GP_LOG_WARN, "setting-ignored",
           "GRADPOOL_GPU_IDLE is \"%.40s\"; must be 0 (never) or seconds up to %d; using 120", text,
           GPU_IDLE_S_MAX);
    return GPU_IDLE_MS;
}

static void *run_main(void *argument)
{
    static void (*const handlers[])(gp_run * run, gp_command * command) = {
        [GP_COMMAND_TRAIN] = run_train,
        [GP_COMMAND_PREPARE] = run_prepare,
        [GP_COMMAND_PREDICT_BEGIN] = run_predict_begin,
        [GP_COMMAND_PREDICT_ASK] = run_predict_ask,
    };
    gp_run *run = argument;
    const gp_backend_ops *ops = run->options.backend_ops;
    gp_command command;
    gp_reply reply;
    gp_error err;

    for (;;) {
        bool timed =
            run->backend != NULL && ops->release_idle && run->predictor == NULL && !atomic_load(&run->unused);

        if (!gp_mailbox_take(run->options.mailbox, timed ? run->idle_ms : -1, &command)) {
            gp_log(GP_LOG_INFO, "backend-unused",
                   "no work for %g s; asking for a replacement that leaves the GPU closed",
                   run->idle_ms / 1000.0);
            atomic_store(&run->unused, true);
            continue;
        }
        atomic_store(&run->unused, false);
        switch (command.kind) {
        case GP_COMMAND_WARM: /* so that the first training finds the backend threads running */
            if (run_warm(run, &err) != GP_OK) /* the command that needs the backend reports the error */
                gp_log(GP_LOG_WARN, "backend-failed", "cannot open the backend: %s", err.message);
            break;
        case GP_COMMAND_TASKS:
            run_tasks(run);
            break;
        case GP_COMMAND_PREDICT_END:
            run_forget(run);
            reply = reply_to(&command, &gp_msg_ok_reply);
            reply.idle = true;
            gp_mailbox_reply(run->options.mailbox, &reply);
            break;
        case GP_COMMAND_RESET:
            run_forget(run);
            if (gp_carry_over_lease(run->held) != atomic_load(&run->options.train->hold))
                run_drop_carry_over(run);
            gp_mailbox_reply(run->options.mailbox, &(gp_reply){ .type = NULL, .idle = true });
            break;
        case GP_COMMAND_QUIT:
            gp_command_close(&command);
            run_forget(run);
            run_drop_carry_over(run);
            gp_objects_free(run->objects);
            if (run->backend != NULL)
                ops->close(run->backend);
            atomic_store(&run->ended, true);
            return NULL;
        default:
            handlers[command.kind](run, &command);
        }
        if (command.kind != GP_COMMAND_PREDICT_ASK) { /* allocates nothing; more asks follow */
            run_count_memory(run);
            gp_threads_restore();
        }
        gp_command_close(&command);
    }
}

gp_status gp_run_start(gp_run **out, const gp_run_options *options, gp_error *err)
{
    gp_run *run = gp_calloc(1, sizeof(*run));
    pthread_attr_t attributes;
    int problem;

    if (run == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the compute thread");
    run->options = *options;
    run->idle_ms = idle_read();
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, COMPUTE_STACK);
    /* not gp_thread_start(): tasks and their child processes must not inherit blocked signals */
    problem = pthread_create(&run->thread, &attributes, run_main, run);
    pthread_attr_destroy(&attributes);
    if (problem != 0) {
        gp_free(run);
        errno = problem;
        return gp_fail_errno(err, GP_ELIMIT, "cannot start the compute thread");
    }
    pthread_setname_np(run->thread, "compute");
    *out = run;
    return GP_OK;
}

void gp_run_offer(gp_run *run, struct gp_link_server *server)
{
    atomic_store(&run->server, server);
}

bool gp_run_unused(const gp_run *run)
{
    return atomic_load(&run->unused);
}

void gp_run_assign(gp_run *run, gp_rendezvous *rendezvous)
{
    atomic_store(&run->offered, rendezvous);
}

bool gp_run_holds(const gp_run *run, const gp_rendezvous *rendezvous)
{
    return atomic_load(&run->offered) == rendezvous || atomic_load(&run->used) == rendezvous;
}

gp_status gp_run_stop(gp_run *run, int timeout_ms, gp_error *err)
{
    int64_t deadline = gp_now_ms() + timeout_ms;

    if (run == NULL)
        return GP_OK;
    if (gp_mailbox_post(run->options.mailbox, GP_COMMAND_QUIT, NULL, err) != GP_OK)
        return gp_fail(err, GP_ETIMEDOUT, "cannot stop the compute thread: its queue is full");
    while (!atomic_load(&run->ended)) {
        if (gp_now_ms() >= deadline)
            return gp_fail(err, GP_ETIMEDOUT, "the compute thread does not stop");
        nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
    }
    pthread_join(run->thread, NULL);
    gp_free(run);
    return GP_OK;
}
