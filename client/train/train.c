/* train.c: one training, as seen by the client.
 *
 *   load network and options -> lease -> train_begin to each rank -> all train_ready -> steps
 *        -> train_done of each rank -> release            (again in another group: train_run.h)
 *
 * The client does not take part in the steps: it receives events, and may request a stop. It
 * reports the first cause of a failure. For a worker failure it uses the text of the scheduler
 * (which worker, exit cause, step, log), because the ranks only notice a lost peer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/model/onnx/onnx.h"

enum {
    ENDING_MS = 900, /* wait for the other ranks to report how they ended */

    /* wait for the cause of a failure after its effects are known; the scheduler may be busy */
    CAUSE_MS = 10000,
    LOADING_MS = 2000,        /* report a preparation that takes longer */
    LOADING_AGAIN_MS = 10000, /* repeat the report at this interval */
};

/* ---- messages from the workers ---- */

void gp_run_fail(gp_run *run, gp_run_state state, const gp_error *cause)
{
    if (run->state >= GP_RUN_FAILED)
        return;
    run->state = state;
    run->error = *cause;
    run->deadline = gp_timeout_in(ENDING_MS);
}

/* Record that a rank lost a peer or could not be reached. Another message will report the cause. */
static void run_suspect(gp_run *run, const gp_error *effect)
{
    if (run->state != GP_RUN_WORKING)
        return;
    run->state = GP_RUN_SUSPECT;
    run->error = *effect;
    run->deadline = gp_timeout_in(CAUSE_MS);
    if (run->paused_ms == 0)
        run->paused_ms = gp_now_ms();
}

/* Return whether rank 0 has sent the trained weights. The initial weights were moved out of the
 * network before. */
static bool run_has_result(const gp_run *run)
{
    return run->training->network.weights != NULL;
}

static bool run_has_ended(const gp_run *run, uint32_t rank)
{
    return rank >= run->membership.world || run->membership.end_of[rank] != 0;
}

static void run_end_rank(gp_run *run, uint32_t rank, membership_end end)
{
    gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_ENDED, .rank = rank, .end = end });
}

/* Return whether events from rank 0 must be delayed, because the begin event or the regroup event
 * comes first. */
static bool run_is_early(const gp_run *run)
{
    return run->membership.phase == MEMBERSHIP_BEGIN || !run->report.begun;
}

/* Record that rank 0 reported steps.
 *   step  last reported step; 0: none */
static void run_stepped(gp_run *run, uint64_t step)
{
    if (step == 0)
        return;
    gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_STEP, .step = step });
    run->last_step_ms = gp_now_ms();
}

void gp_run_report_pending(gp_run *run, gp_pending_list *list)
{
    run_stepped(run, gp_report_pending(&run->report, list));
}

/* Take the trained weights and the class names from the train_done message that rank 0 sent. */
static gp_status run_take_result(gp_run *run, const gp_incoming *in, gp_error *err)
{
    gp_network *network = &run->training->network;
    size_t bytes = run->training->graph->blob_count * sizeof(float);
    uint64_t sent = 0;
    float *weights;
    gp_status status;

    if (in->payload_count >= 2 && in->payloads[0].bytes == sizeof(sent))
        memcpy(&sent, in->payloads[0].data, sizeof(sent));
    if (sent != bytes)
        return gp_fail(err, GP_EPROTO, "worker %" PRIu32 " sent weights of %" PRIu64 " bytes; expected %zu",
                       run->report.info.worker_index[0], sent, bytes);
    status = gp_network_set_classes(network, (const char *)in->payloads[1].data, in->payloads[1].bytes, err);
    if (status == GP_OK)
        status = pool_receive_weights(run->pool, 0, bytes, &weights, err);
    if (status == GP_OK)
        gp_network_set_weights(network, weights, bytes);
    return status;
}

/* Handle the failure of a rank. A lost peer, or an exchange that a peer canceled, is only the
 * effect of another failure: wait until the scheduler or the failed rank reports the cause. If the
 * checkpoint of a restart is damaged, another restart with an older one may help. */
static void run_take_failure(gp_run *run, const gp_error *failure)
{
    bool effect = failure->code == GP_EPEER || (failure->code == GP_ECANCELED && run->stop_sent < 2);
    bool damaged =
        failure->code == GP_ECORRUPT && run->resumed_step != 0 && run->membership.phase == MEMBERSHIP_BEGIN;

    if (gp_run_is_between_groups(run)) /* an effect of the worker failure that is being handled */
        return;
    if (effect)
        run_suspect(run, failure);
    else
        gp_run_fail(run, damaged ? GP_RUN_LOST : GP_RUN_FAILED, failure);
}

/* Handle the end of a rank: paused, finished or failed. */
static void run_take_done(gp_run *run, uint32_t rank, const gp_incoming *in)
{
    gp_train_done done;
    gp_error err = { 0 };
    gp_status status = gp_incoming_decode(in, &done, &err);

    if (status == GP_OK)
        gp_report_skipped(&run->report, &done);
    if (status == GP_OK && done.status == GP_OK && done.stop_reason == GP_STOP_PAUSED) {
        run_end_rank(run, rank, MEMBERSHIP_PAUSED);
        return;
    }
    if (status == GP_OK && done.status != GP_OK) {
        status = gp_fail(&err, (gp_status)done.status, "worker %" PRIu32 ": %s",
                         run->report.info.worker_index[rank], done.message);
    } else if (status == GP_OK && rank == 0) {
        gp_report_done(&run->report, &done);
        status = run_take_result(run, in, &err);
    }
    if (status != GP_OK)
        run_take_failure(run, &err);
    run_end_rank(run, rank, status == GP_OK ? MEMBERSHIP_FINISHED : MEMBERSHIP_FAILED);
}

/* Keep the measurements of a worker process for the step events. */
static void run_take_usage(gp_run *run, uint32_t rank, const gp_train_steps *steps)
{
    const uint32_t worker = run->report.info.worker_index[rank];

    if (steps->memory_bytes != 0 && worker <= GP_WORKERS_MAX)
        run->pool->usage[worker] = (pool_usage){ steps->cpu_ms_total, steps->memory_bytes };
}

/* Handle one message from a rank. */
static void run_take(gp_run *run, uint32_t rank, const gp_incoming *in)
{
    union {
        gp_train_ready ready;
        gp_train_steps steps;
        gp_train_validation validation;
        gp_train_validating validating;
        gp_train_note note;
    } message;
    const gp_train_events *events = &run->request->events;
    gp_error err = { 0 };

    if (in->type == NULL || run_has_ended(run, rank))
        return;
    switch (in->envelope.message) {
    case GP_ID(error_reply):
        pool_error_from(in, &err);
        gp_error_prefix(&err, "worker %" PRIu32, run->report.info.worker_index[rank]);
        run_take_failure(run, &err);
        run_end_rank(run, rank, MEMBERSHIP_FAILED);
        return;
    case GP_ID(train_ready):
        if (gp_incoming_decode(in, &message, &err) != GP_OK)
            break;
        gp_report_add_ready(&run->report, rank, &message.ready);
        gp_run_membership(
            run, &(membership_event){ .kind = MEMBERSHIP_READY, .rank = rank, .step = message.ready.step });

        /* When all ranks are ready, report the group and the delayed events. */
        if (!membership_is_stepping(&run->membership) && run->membership.phase != MEMBERSHIP_PAUSE)
            break;
        run->resumed_step = 0; /* its checkpoint was read: a later GP_ECORRUPT has another cause */
        if (run->pause == GP_RUN_RESTARTED)
            gp_run_report_regroup(run, run->membership.before, message.ready.step);
        gp_report_begin(&run->report);
        gp_run_report_pending(run, &run->report.early);
        break;
    case GP_ID(train_steps):
        if (gp_incoming_decode(in, &message, &err) != GP_OK)
            break;
        run_take_usage(run, rank, &message.steps);
        run_stepped(run, gp_report_steps(&run->report, rank, &message.steps, run_is_early(run)));
        break;
    case GP_ID(train_validation):
        if (rank == 0 && gp_incoming_decode(in, &message, &err) == GP_OK)
            gp_report_validation(&run->report, &message.validation, run_is_early(run));
        break;
    case GP_ID(train_validating):
        if (rank == 0 && gp_incoming_decode(in, &message, &err) == GP_OK)
            gp_report_validating(&run->report, &message.validating, run_is_early(run));
        break;
    case GP_ID(train_note):
        if (gp_incoming_decode(in, &message, &err) != GP_OK)
            break;
        if (message.note.warning && events->warning != NULL)
            events->warning(events->context, message.note.text);
        else
            pool_note(run->pool, "%s", message.note.text);
        break;
    case GP_ID(train_done):
        run_take_done(run, rank, in);
        break;
    default:
        break;
    }
    if (err.code != GP_OK)
        gp_run_fail(run, GP_RUN_FAILED, &err);
}

/* ---- the loop ---- */

gp_status gp_run_begin(gp_run *run, gp_error *err)
{
    const uint32_t world = run->membership.world;

    /* After the first reported step a rank has the state, or the training cannot continue. */
    const bool with_weights = run->membership.reported == 0;
    gp_status status = GP_OK;

    /* The first group's size determines the options. */
    run->message.fields.workers = world;
    if (run->message.options.bytes == 0) {
        status = gp_train_options_scale(&run->options, world, err);
        if (status == GP_OK)
            status = gp_begin_message_set_options(&run->message, &run->options, err);
        if (status == GP_OK)
            status = gp_begin_message_set_weights(&run->message, &run->training->network,
                                                  run->training->graph->blob_count * sizeof(float), err);
    }
    if (status != GP_OK)
        return status;
    run->state = GP_RUN_WORKING;
    run->stop_sent = 0;
    run->begun_ms = gp_now_ms();
    gp_joiners_set_group(&run->joiners, world);
    gp_report_set_group(&run->report, run->pool, world);
    for (uint32_t rank = 0; rank < world; rank++) {
        gp_error why;

        status = gp_begin_message_send(&run->message, run->pool, rank, &run->message.fields, with_weights,
                                       NULL, &why);

        /* the worker exited; the other ranks report their end */
        if (status == GP_EPEER || status == GP_EBUSY)
            run_suspect(run, &why);
        else if (status != GP_OK)
            return gp_fail(err, status, "%s", why.message);
    }
    gp_fault_point("train-begun");
    return GP_OK;
}

/* Handle stop requests from the caller and reports from the scheduler.
 *   quiet  no message was pending */
static void run_poll(gp_run *run, bool quiet)
{
    int wanted = run->request->stop == NULL ? 0 : (int)*run->request->stop;
    int64_t now_ms = gp_now_ms(), since_ms = now_ms - run->begun_ms;
    bool working = run->membership.ended < run->membership.world || gp_run_is_between_groups(run);
    gp_error err;

    gp_run_watch(run, quiet);

    /* Report a preparation that takes long: opening the data, verifying the
     * checkpoint, planning the network. */
    if (run->membership.ready < run->membership.world && !run->report.begun && since_ms > LOADING_MS &&
        (run->loading_noted_ms <= run->begun_ms || now_ms - run->loading_noted_ms >= LOADING_AGAIN_MS)) {
        run->loading_noted_ms = now_ms;
        pool_note(run->pool,
                  "waiting for the workers to open the data and build the network: %u of %u ready after "
                  "%" PRId64 " s",
                  run->membership.ready, run->membership.world, since_ms / 1000);
    }
    if (run->pool->revoked) {
        bool between = gp_run_is_between_groups(run);

        gp_fail(&err, GP_ECANCELED, "%s%sthe lease ended: %s", between ? run->cause : "", between ? "; " : "",
                run->pool->ended.reason);
        gp_run_fail(run, gp_run_state_after(run, GP_ECANCELED), &err);
    }
    if (wanted >= 2 && working) { /* do not wait for replies */
        gp_fail(&err, GP_ECANCELED, "stopped at once; the last reported step is %" PRIu64,
                run->training->summary.steps);
        gp_run_fail(run, GP_RUN_FAILED, &err);
    }
    if (run->state >= GP_RUN_FAILED)
        wanted = 2; /* no rank continues alone */
    if (wanted > run->stop_sent && !gp_run_is_between_groups(run)) {
        gp_train_stop stop = { .hard = wanted >= 2 };
        bool sent = true;

        /* A soft stop travels with the gradients: one rank is enough. A hard stop must reach every
         * rank. If a link is busy or not up, repeat the request later. */
        gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_STOPPED, .hard = stop.hard });
        for (uint32_t rank = 0; rank < (stop.hard ? run->membership.world : 1); rank++)
            if (!run_has_ended(run, rank) &&
                pool_try_worker(run->pool, rank, &gp_msg_train_stop, &stop, NULL, NULL, NULL) == GP_EBUSY)
                sent = false;
        if (sent)
            run->stop_sent = wanted;
    }
}

/* Return whether all ranks have ended, or a failure has a known cause and the time for the other
 * ranks to end is over. */
static bool run_is_over(const gp_run *run)
{
    const bool failed = run->state >= GP_RUN_FAILED, suspect = run->state == GP_RUN_SUSPECT;

    /* no limit for a known loss: gp_run_watch() handles it after the messages of that rank */
    const bool waiting = failed || (suspect && run->pool->lost.index == 0);
    const bool late = waiting && gp_timeout_left(run->deadline) == 0;
    const bool result = run_has_result(run);
    const bool lost =
        run->pool->lost.index != 0 || run->state == GP_RUN_RECOVERING || run->state == GP_RUN_REGROUPING;

    if (result && lost)
        return true;
    if (gp_run_is_between_groups(run))
        return failed;
    if (run->membership.ended < run->membership.world)
        return late;
    return !suspect || result || late;
}

static gp_status run_loop(gp_run *run, gp_error *err)
{
    bool quiet = false;

    for (run_poll(run, quiet); !run_is_over(run); run_poll(run, quiet)) {
        pool_message message;
        membership_event event;
        gp_status status = run->state == GP_RUN_REGROUPING ? gp_run_regroup(run, err) : GP_OK;

        if (status == GP_OK)
            status = pool_next(run->pool, &message, gp_run_is_between_groups(run) ? 20 : GP_RUN_POLL_MS, err);
        if (status != GP_OK && run_has_result(run))
            break;
        if (status != GP_OK) {
            run->state = gp_run_state_after(run, status);
            return status;
        }
        quiet = message.from == POOL_NOBODY;
        if (message.from == POOL_WORKER && message.rank < run->joiners.first_rank)
            run_take(run, message.rank, &message.in);
        else if (message.from == POOL_WORKER &&
                 gp_joiners_take(&run->joiners, run->pool, message.rank, &message.in, &event))
            gp_run_membership(run, &event);
        if (message.from != POOL_NOBODY)
            pool_message_close(&message);
    }

    /* The train_ready of an exited rank may be lost or late, so report the delayed events now. The
     * steps of rank 0 are lost, too, if it was killed while this process was suspended. */
    gp_run_report_pending(run, &run->report.early);
    if (run_has_result(run))
        gp_report_end(&run->report);
    else
        gp_run_report_pending(run, &run->report.spare);
    gp_status status = GP_OK;

    if (!run_has_result(run) && run->state == GP_RUN_SUSPECT) {
        run->state = gp_run_state_after(run, run->error.code);
        status = gp_fail(err, run->error.code, "%s (the cause is unknown; the scheduler's log is %s)",
                         run->error.message, run->pool->paths.scheduler_log);
    } else if (!run_has_result(run)) {
        status = run->error.message[0] == '\0' ? gp_run_describe_loss(run, err)
                                               : gp_fail(err, run->error.code, "%s", run->error.message);
    }
    pool_note_skipped(run->pool, run->training->summary.skipped, run->report.skipped,
                      run->report.skipped_count);
    return status;
}

static void run_free(gp_run *run)
{
    if (run == NULL)
        return;
    gp_begin_message_deinit(&run->message);
    gp_report_deinit(&run->report);
    gp_free(run);
}

gp_status gp_training_new(gp_training **out, const gp_train_request *request, gp_error *err)
{
    gp_training *training = gp_calloc(1, sizeof(*training));
    gp_run *run = gp_calloc(1, sizeof(*run));
    gp_status status;

    if (training == NULL || run == NULL) {
        gp_free(training);
        gp_free(run);
        return gp_fail(err, GP_ENOMEM, "no memory for a training");
    }
    training->run = run;
    run->training = training;
    run->request = request;
    gp_begin_message_init(&run->message);
    gp_report_init(&run->report, &request->events, &run->options, &training->summary);
    status = gp_run_prepare(run, err);
    if (status != GP_OK) {
        gp_training_free(training);
        return status;
    }
    *out = training;
    return GP_OK;
}

/* Train with one lease, from grant to release. */
static gp_status run_once(gp_run *run, const gp_lease_request *lease, gp_error *err)
{
    gp_pool *pool = run->pool;
    uint32_t before = membership_reported_size(&run->membership);
    char purpose[96];
    gp_status status;

    snprintf(purpose, sizeof(purpose), "train %.80s",
             run->request->pretrained != NULL ? run->request->pretrained : run->request->network);

    /* Minimum worker count with which the training may continue; 0: all
     * workers of the first group. */
    pool->elastic.floor = run->options.max_restarts == 0 || run->options.worker_weights[0] != '\0'
                              ? 0
                              : (uint32_t)run->options.min_workers;
    status = pool_lease(pool, lease, purpose, run->request->stop, err);
    if (status == GP_OK) {
        membership_init(&run->membership, pool->grant.slots_count, (uint32_t)run->options.max_restarts);
        if (before != 0) /* not the first lease */
            run->membership.before = before;
        run->reunions = pool->reunions;
        status = gp_run_begin(run, err);
        if (status == GP_OK)
            status = run_loop(run, err);
        gp_fault_point("train-done");
    } else {
        run->state = gp_run_state_after(run, status);
    }
    pool_release(pool);
    return status;
}

gp_status gp_training_run(gp_training *training, gp_pool *pool, const gp_lease_request *lease, gp_error *err)
{
    gp_run *run = training->run;
    gp_lease_request request = *lease;
    gp_error why;
    gp_status status;

    if (run == NULL)
        return gp_fail(err, GP_ESTATE, "this training was already run; create a new one");
    run->pool = pool;
    status = run_once(run, &request, &why);
    while (status != GP_OK && gp_run_may_restart(run, &why)) {
        request.no_wait = false; /* no_wait applies only to the first lease */
        status = gp_run_restart(run, &why, &why);
        if (status == GP_OK)
            status = run_once(run, &request, &why);
    }
    const char *checkpoint = run->options.checkpoint_path;
    uint64_t newest;

    if (status == GP_EPEER && gp_run_newest_checkpoint(&newest, run, UINT64_MAX, NULL) == GP_OK &&
        newest != 0)
        gp_fail(err, status, "%s; continue from the last checkpoint with --resume %s", why.message,
                checkpoint);
    else if (status != GP_OK && err != NULL)
        *err = why;
    run_free(run);
    training->run = NULL;
    return status;
}

gp_status gp_train(gp_training **out, gp_pool *pool, const gp_train_request *request, gp_error *err)
{
    gp_training *training;
    gp_status status = gp_training_new(&training, request, err);

    if (status != GP_OK)
        return status;
    status = gp_training_run(training, pool, &request->lease, err);
    if (status == GP_OK)
        *out = training;
    else
        gp_training_free(training);
    return status;
}

/* ---- the result ---- */

void gp_training_free(gp_training *training)
{
    if (training == NULL)
        return;
    run_free(training->run);
    gp_network_deinit(&training->network);
    gp_graph_free(training->graph);
    gp_free(training);
}

void gp_training_summarize(const gp_training *training, gp_training_summary *summary)
{
    *summary = training->summary;
}

gp_status gp_training_save(const gp_training *training, const char *path, gp_error *err)
{
    const gp_network *network = &training->network;

    return gp_onnx_save(path, network->spec, training->graph, network->weights,
                        (const char *const *)network->class_names, network->class_count, 0, err);
}
