/* train.c -- one training as the client sees it.
 *
 *   load network and options -> lease -> train_begin to each rank -> all train_ready -> steps, validations
 *        -> train_done of each rank -> release                     (again in another group: reform.h)
 *
 * The client is not in the step loop: it listens, and may ask for a stop.  The first failure by time is the one
 * that is told; a death is told in the scheduler's words (who, how, in which step, which log), because ranks only
 * know that a peer is gone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/seal.h"
#include "common/model/onnx/onnx.h"

enum {
    ENDING_MS = 900,   /* what survivors of a failure are given to say how they ended */
    CAUSE_MS = 10000,  /* for the cause of a failure of which effects are known: the scheduler may be busy */
    LOADING_MS = 2000, /* a longer preparation is reported, */
    LOADING_AGAIN_MS = 10000, /* and again after this time */
};

/* ---- what the workers say ---- */

/* Begin to wait for the cause of a failure and for the end of the other workers. */
static void run_failing(gp_run *run)
{
    run->failed_ms = gp_now_ms();
    run->ending = gp_timeout_in(CAUSE_MS);
}

void gp_run_fail(gp_run *run, const gp_error *failure)
{
    if (run->failure.code != GP_OK)
        return;
    run->failure = *failure;
    run_failing(run);
}

static bool run_has_ended(const gp_run *run, uint32_t rank)
{
    return rank >= run->reform.world || run->reform.end_of[rank] != 0;
}

static void run_end_rank(gp_run *run, uint32_t rank, reform_end end)
{
    gp_run_reform(run, &(reform_event){ .kind = REFORM_ENDED, .rank = rank, .end = end });
}

/* Whether all who have to know it could be told; who could not (its link is busy or not up) is told again. */
static bool run_tell_stop(gp_run *run, bool hard)
{
    gp_train_stop stop = { .hard = hard };
    bool told = true;

    /* A soft stop travels with the gradients: one rank is enough.  A hard one must reach each. */
    for (uint32_t rank = 0; rank < (hard ? run->reform.world : 1); rank++)
        if (!run_has_ended(run, rank) &&
            pool_try_worker(run->pool, rank, &gp_msg_train_stop, &stop, NULL) == GP_EBUSY)
            told = false;
    return told;
}

void gp_run_report_begin(gp_run *run)
{
    if (!run->told_begin && run->request->events.begin != NULL)
        run->request->events.begin(run->request->events.context, &run->facts);
    run->told_begin = true;
}

/* Return whether events of rank 0 are pending: the begin event, or that of the new group, comes first. */
static bool run_is_early(const gp_run *run)
{
    return run->reform.phase == REFORM_BEGIN || !run->told_begin;
}

static void run_take_ready(gp_run *run, uint32_t rank, const gp_train_ready *ready)
{
    gp_train_facts *facts = &run->facts;

    facts->batch_rank[rank] = ready->batch_rank;
    facts->ready_ms = fmax(facts->ready_ms, ready->ready_ms);
    facts->data_ms = fmax(facts->data_ms, ready->data_ms);
    facts->network_ms = fmax(facts->network_ms, ready->network_ms);
    if (rank == 0) {
        facts->batch = ready->batch;
        facts->steps_per_epoch = ready->steps_per_epoch;
        facts->epochs = (uint32_t)run->options.max_epochs;
        facts->samples = ready->samples;
        facts->validation_samples = ready->validation_samples;
        facts->parameters = ready->parameters;
        facts->memory_bytes = ready->memory_bytes;
        facts->classes = ready->classes;
        facts->excluded = run->training->summary.training_excluded;
        facts->pixels = gp_graph_scores_pixels(run->training->graph);
    }
    gp_run_reform(run, &(reform_event){ .kind = REFORM_READY, .rank = rank, .step = ready->step });
    if (!reform_is_stepping(&run->reform) && run->reform.phase != REFORM_PAUSE)
        return;
    if (run->anew)
        gp_run_go_on(run, run->reform.before, ready->step);
    gp_run_report_begin(run);
    gp_run_report_pending(run, &run->early);
}

static void run_tell_step(gp_run *run, uint32_t rank, const gp_train_record *r)
{
    gp_training_summary *summary = &run->training->summary;

    if (rank == 0) {
        gp_fault_point("train-step");
        gp_run_reform(run, &(reform_event){ .kind = REFORM_STEP, .step = r->step });
        run->stepped_ms = gp_now_ms();
        if (r->step <= summary->steps)
            return; /* of a step that is taken again, because nobody who lives had taken it */
        summary->steps = r->step;
        summary->epochs = r->epoch;
        summary->loss = r->loss;
        summary->seconds = r->seconds;
        gp_pending_list_drop(&run->spare, r->step);
    }
    if (run->request->events.step == NULL)
        return;
    gp_train_step step = { .worker = run->facts.worker_index[rank], .rank = rank };

#define GP_METRIC(type, name, ...) step.name = r->name;
#include "proto/message/step_fields.def"
    run->request->events.step(run->request->events.context, &step);
}

static void run_take_steps(gp_run *run, uint32_t rank, const gp_train_steps *steps)
{
    for (uint32_t i = 0; i < steps->records_count; i++) {
        const gp_train_record *r = &steps->records[i];

        run->training->summary.samples_trained += r->samples;
        if (rank == 1 && r->step > run->training->summary.steps && run->options.max_restarts > 0)
            gp_pending_list_add(&run->spare, &(gp_pending_event){ .step = *r });
        if (rank == 0 && run_is_early(run))
            gp_pending_list_add(&run->early, &(gp_pending_event){ .step = *r });
        else
            run_tell_step(run, rank, r);
    }
}

/* Report a validation, unless it was reported before: another group or a restarted training repeats the last ones.
 *
 * With population statistics of batch norm, the final weights are validated once more after the last step. A group sends
 * two validations of one step only then. */
static void run_report_validation(gp_run *run, const gp_train_validation *v)
{
    gp_training_summary *summary = &run->training->summary;
    const bool final = run->options.batch_norm_statistics == GP_STATISTICS_POPULATION &&
                       v->step == run->group_checked && !run->final_checked;

    run->group_checked = v->step;
    if (v->step < run->checked || (v->step == run->checked && !final))
        return;
    run->checked = v->step;
    run->final_checked = run->final_checked || final;
    summary->validation_excluded = run->excluded;
    /* NaN is no loss yet. */
    if (final || !gp_train_keeps_best(&run->options) || !(v->loss >= summary->validation_loss)) {
        summary->validation_loss = v->loss;
        summary->validation_accuracy = v->accuracy;
        summary->validation_rmse = v->rmse;
    }
    if (run->request->events.check == NULL)
        return;
    gp_train_check check = { .excluded = run->excluded };

#define GP_METRIC(type, name, ...) check.name = v->name;
#include "proto/message/validation_fields.def"
    run->request->events.check(run->request->events.context, &check);
}

static void run_take_validation(gp_run *run, const gp_train_validation *v)
{
    if (run_is_early(run))
        gp_pending_list_add(&run->early, &(gp_pending_event){ .is_validation = true, .validation = *v });
    else
        run_report_validation(run, v);
}

static void run_take_validating(gp_run *run, const gp_train_validating *v)
{
    const gp_train_events *events = &run->request->events;

    if (v->done == v->count)
        run->excluded = v->excluded;
    else if (!run_is_early(run) && events->check_progress != NULL)
        events->check_progress(events->context, &(gp_train_check_progress){ .step = v->step,
                                                                            .done = v->done,
                                                                            .count = v->count,
                                                                            .seconds = v->seconds });
}

void gp_run_report_pending(gp_run *run, gp_pending_list *list)
{
    gp_pending_list now = *list; /* run_tell_step() drops from run->spare */

    if (now.count > 0)
        gp_run_report_begin(run);
    *list = (gp_pending_list){ 0 };
    for (size_t i = 0; i < now.count; i++)
        if (now.events[i].is_validation)
            run_report_validation(run, &now.events[i].validation);
        else
            run_tell_step(run, 0, &now.events[i].step);
    gp_free(now.events);
}

static bool has_step(const gp_pending_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (!list->events[i].is_validation)
            return true;
    return false;
}

/* Take the trained weights and the class names from the train_done of rank 0. */
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
                       run->facts.worker_index[0], sent, bytes);
    status = pool_receive_weights(run->pool, 0, bytes, &weights, err);
    if (status != GP_OK)
        return status;
    gp_network_set_weights(network, weights, bytes);
    return gp_network_set_classes(network, (const char *)in->payloads[1].data, in->payloads[1].bytes, err);
}

/* That a peer is gone, or has ended the exchange for all, is an effect: its cause comes from the scheduler or from
 * the rank that failed, and is given a moment. */
static void run_take_failure(gp_run *run, const gp_error *failure)
{
    bool effect = failure->code == GP_EPEER || (failure->code == GP_ECANCELED && run->stop_told < 2);

    if (gp_run_between(run)) /* whatever it is, it comes of the death */
        return;
    if (!effect) {
        gp_run_fail(run, failure);
    } else if (run->failed_ms == 0) {
        run->effect = *failure;
        run_failing(run);
    }
}

/* One that another worker has told of already is not counted again. */
static void run_take_skipped(gp_run *run, gp_train_done *done)
{
    char *rest = done->skipped_names, *name;

    run->training->summary.skipped += done->skipped;
    while ((name = strsep(&rest, "\n")) != NULL) {
        uint32_t i = 0;

        while (i < run->skipped_count && strncmp(run->skipped[i], name, sizeof(run->skipped[i]) - 1) != 0)
            i++;
        if (*name == '\0')
            continue;
        if (i < run->skipped_count)
            run->training->summary.skipped--;
        else if (i < GP_RUN_SKIPPED_MAX)
            snprintf(run->skipped[run->skipped_count++], sizeof(run->skipped[i]), "%s", name);
    }
}

static void run_take_done(gp_run *run, uint32_t rank, const gp_incoming *in)
{
    gp_train_done done;
    gp_error err = { 0 };
    gp_status status = gp_incoming_decode(in, &done, &err);

    if (status == GP_OK)
        run_take_skipped(run, &done);
    if (status == GP_OK && done.status == GP_OK && done.stop_reason == GP_STOP_PAUSED) {
        run_end_rank(run, rank, REFORM_PAUSED);
        return;
    }
    if (status == GP_OK && done.status != GP_OK) {
        status = gp_fail(&err, (gp_status)done.status, "worker %" PRIu32 ": %s",
                         run->facts.worker_index[rank], done.message);
    } else if (status == GP_OK && rank == 0) {
        if (run->training->summary.steps == 0 && !has_step(&run->early)) { /* a complete run was resumed */
            run->training->summary.steps = done.step;
            run->training->summary.epochs = done.epoch;
        }
        run->training->summary.stopped = done.stop_reason == GP_STOP_STOPPED;
        run->training->summary.out_of_patience = done.stop_reason == GP_STOP_PATIENCE;
        status = run_take_result(run, in, &err);
        run->has_result = status == GP_OK;
    }
    if (status != GP_OK)
        run_take_failure(run, &err);
    run_end_rank(run, rank, status == GP_OK ? REFORM_FINISHED : REFORM_FAILED);
}

static void run_take_note(gp_run *run, const gp_train_note *note)
{
    const gp_train_events *events = &run->request->events;

    if (note->warning && events->warning != NULL)
        events->warning(events->context, note->text);
    else
        pool_note(run->pool, "%s", note->text);
}

void gp_run_take(gp_run *run, uint32_t rank, const gp_incoming *in)
{
    union {
        gp_train_ready ready;
        gp_train_steps steps;
        gp_train_validation validation;
        gp_train_validating validating;
        gp_train_note note;
    } message;
    gp_error err = { 0 };

    if (in->type == NULL || run_has_ended(run, rank))
        return;
    switch (in->envelope.message) {
    case GP_ID(error_reply):
        pool_error_from(in, &err);
        gp_error_prefix(&err, "worker %" PRIu32, run->facts.worker_index[rank]);
        run_take_failure(run, &err);
        run_end_rank(run, rank, REFORM_FAILED);
        return;
    case GP_ID(train_ready):
        if (gp_incoming_decode(in, &message, &err) == GP_OK)
            run_take_ready(run, rank, &message.ready);
        break;
    case GP_ID(train_steps):
        if (gp_incoming_decode(in, &message, &err) == GP_OK)
            run_take_steps(run, rank, &message.steps);
        break;
    case GP_ID(train_validation):
        if (rank == 0 && gp_incoming_decode(in, &message, &err) == GP_OK)
            run_take_validation(run, &message.validation);
        break;
    case GP_ID(train_validating):
        if (rank == 0 && gp_incoming_decode(in, &message, &err) == GP_OK)
            run_take_validating(run, &message.validating);
        break;
    case GP_ID(train_note):
        if (gp_incoming_decode(in, &message, &err) == GP_OK)
            run_take_note(run, &message.note);
        break;
    case GP_ID(train_done):
        run_take_done(run, rank, in);
        break;
    default:
        break;
    }
    if (err.code != GP_OK)
        gp_run_fail(run, &err);
}

/* ---- the loop ---- */

/* Move the weights that the training begins with into a sealed memory file, for all ranks and all
 * groups. */
static gp_status run_seal_weights(gp_run *run, gp_error *err)
{
    gp_network *network = &run->training->network;
    gp_status status;

    if (network->weights == NULL || run->weights_fd >= 0)
        return GP_OK;
    status = gp_seal_new(&run->weights_fd, network->weights, run->training->graph->blob_count * sizeof(float),
                         err);
    if (status == GP_OK)
        gp_network_set_weights(network, NULL, 0);
    return status;
}

/* Send train_begin to one rank. After the first reported step a rank has the state, or the training
 * cannot continue: the weights that it began with are of no use then. */
static gp_status run_begin_rank(gp_run *run, uint32_t rank, gp_error *err)
{
    const bool with_weights = run->weights_fd >= 0 && run->reform.told == 0;
    const uint64_t weights_bytes = with_weights ? run->training->graph->blob_count * sizeof(float) : 0;
    const gp_payload payloads[] = {
        { .data = run->netspec, .bytes = run->netspec_bytes },
        { .data = run->options_text, .bytes = run->options_bytes },
        { .data = &weights_bytes, .bytes = sizeof(weights_bytes) },
        { .data = run->classes, .bytes = run->classes_bytes },
    };
    gp_status status = GP_OK;

    if (with_weights || rank == 0) /* rank 0 sends the trained weights */
        status = pool_send_weights(run->pool, rank, with_weights ? run->weights_fd : -1, err);
    if (status == GP_OK)
        status = pool_tell_worker(run->pool, rank, &gp_msg_train_begin, &run->begin, payloads,
                                  run->classes != NULL ? 4
                                  : with_weights       ? 3
                                                       : 2,
                                  NULL, err);
    return status;
}

gp_status gp_run_begin(gp_run *run, gp_error *err)
{
    const uint32_t world = run->reform.world;
    gp_status prepared = run->options_text != NULL ? GP_OK : gp_run_write_options(run, err);

    if (prepared == GP_OK)
        prepared = run_seal_weights(run, err);
    if (prepared != GP_OK)
        return prepared;
    run->begun_ms = gp_now_ms();
    run->group_checked = 0;
    run->facts.initial_learn_rate = run->options.initial_learn_rate;
    run->facts.workers = world;
    run->facts.lease = run->pool->lease;
    run->begin.workers = world;
    for (uint32_t rank = 0; rank < world; rank++)
        run->facts.worker_index[rank] = run->pool->grant.slots[rank].index;
    for (uint32_t rank = 0; rank < world; rank++) {
        gp_status status = run_begin_rank(run, rank, err);

        if (status == GP_EPEER || status == GP_EBUSY) { /* it died: the scheduler tells how */
            run_failing(run);
            continue; /* the others get it, and say how they end */
        }
        if (status != GP_OK)
            return status;
    }
    gp_fault_point("train-begun");
    return GP_OK;
}

/* Report a preparation that takes long: opening the data, verifying the checkpoint, planning the network. */
static void run_report_loading(gp_run *run)
{
    int64_t now_ms = gp_now_ms(), since_ms = now_ms - run->begun_ms;

    if (run->reform.ready >= run->reform.world || run->told_begin || since_ms <= LOADING_MS ||
        (run->loading_noted_ms > run->begun_ms && now_ms - run->loading_noted_ms < LOADING_AGAIN_MS))
        return;
    run->loading_noted_ms = now_ms;
    pool_note(run->pool,
              "waiting for the workers to open the data and build the network: %u of %u ready after %" PRId64
              " s",
              run->reform.ready, run->reform.world, since_ms / 1000);
}

/* What the outside asks for, and what the scheduler has told meanwhile. */
static void run_look_around(gp_run *run)
{
    int wanted = run->request->stop == NULL ? 0 : (int)*run->request->stop;
    bool working = run->reform.ended < run->reform.world || gp_run_between(run);
    gp_error err;

    gp_run_watch(run);
    run_report_loading(run);
    if (run->pool->revoked && run->failure.code == GP_OK) {
        gp_fail(&err, GP_ECANCELED, "%s%sthe lease ended: %s", gp_run_between(run) ? run->cause : "",
                gp_run_between(run) ? "; " : "", run->pool->ended.reason);
        run->lost = gp_run_lost_lease(run, GP_ECANCELED);
        gp_run_fail(run, &err);
    }
    if (wanted >= 2 && run->failure.code == GP_OK && working) { /* answer or not */
        gp_fail(&err, GP_ECANCELED, "stopped at once; the last reported step is %" PRIu64,
                run->training->summary.steps);
        gp_run_fail(run, &err);
    }
    if (run->failure.code != GP_OK)
        wanted = 2; /* nobody goes on alone */
    if (wanted > run->stop_told && !gp_run_between(run)) {
        gp_run_reform(run, &(reform_event){ .kind = REFORM_STOPPED, .hard = wanted >= 2 });
        if (run_tell_stop(run, wanted >= 2))
            run->stop_told = wanted;
    }
}

/* All ranks have ended, or a failure is known by its cause and the rest had its time to end. */
static bool run_is_over(const gp_run *run)
{
    int64_t limit_ms = run->failure.code != GP_OK ? ENDING_MS : CAUSE_MS;
    bool late = run->failed_ms != 0 && CAUSE_MS - gp_timeout_left(run->ending) >= limit_ms;

    if (gp_run_between(run))
        return run->failure.code != GP_OK;
    if (run->reform.ended < run->reform.world && !(run->has_result && run->pool->lost.index != 0))
        return late;
    return run->failed_ms == 0 || run->failure.code != GP_OK || run->has_result || late;
}

static gp_status run_loop(gp_run *run, gp_error *err)
{
    for (run_look_around(run); !run_is_over(run); run_look_around(run)) {
        pool_message message;
        gp_status status = gp_run_form_again(run, err);

        if (status == GP_OK)
            status = pool_next(run->pool, &message, gp_run_between(run) ? 20 : GP_RUN_TURN_MS, err);
        if (status != GP_OK) {
            run->lost = gp_run_lost_lease(run, status);
            return status;
        }
        run->quiet = message.from == POOL_NOBODY;
        if (message.from == POOL_WORKER && message.rank >= run->facts.workers)
            gp_run_join_take(run, message.rank, &message.in);
        else if (message.from == POOL_WORKER)
            gp_run_take(run, message.rank, &message.in);
        if (message.from != POOL_NOBODY)
            pool_message_close(&message);
    }
    /* The train_ready of a rank that exited is lost, or arrived after the news of its exit. */
    gp_run_report_pending(run, &run->early);
    if (run->has_result) { /* whoever failed or died after that had nothing left to do */
        pool_note_skipped(run->pool, run->training->summary.skipped, run->skipped, run->skipped_count);
        return GP_OK;
    }
    if (run->failed_ms != 0 && run->failure.code == GP_OK) {
        run->lost = gp_run_lost_lease(run, run->effect.code);
        return gp_fail(err, run->effect.code, "%s (no cause was told; the scheduler's log is %s)",
                       run->effect.message, run->pool->places.scheduler_log);
    }
    gp_run_say_lost(run);
    if (run->failure.code != GP_OK && err != NULL)
        *err = run->failure;
    pool_note_skipped(run->pool, run->training->summary.skipped, run->skipped, run->skipped_count);
    return run->failure.code;
}

static void run_free(gp_run *run)
{
    if (run == NULL)
        return;
    if (run->weights_fd >= 0)
        close(run->weights_fd);
    gp_free(run->netspec);
    gp_free(run->classes);
    gp_free(run->options_text);
    gp_free(run->spare.events);
    gp_free(run->early.events);
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
    training->summary.validation_loss = training->summary.validation_accuracy = NAN;
    training->summary.validation_rmse = NAN;
    training->summary.loss = NAN;
    run->weights_fd = -1;
    training->run = run;
    run->training = training;
    run->request = request;
    status = gp_run_prepare(run, err);
    if (status != GP_OK) {
        gp_training_free(training);
        return status;
    }
    *out = training;
    return GP_OK;
}

/* The fewest workers it goes on with; 0: with all that it began with, or not at all. */
static uint32_t run_floor(const gp_run *run)
{
    if (run->options.max_restarts == 0 || run->options.worker_load[0] != '\0')
        return 0;
    return (uint32_t)run->options.min_workers;
}

/* In one lease, from its beginning to its end. */
static gp_status run_once(gp_run *run, const gp_lease_request *lease, gp_error *err)
{
    gp_pool *pool = run->pool;
    uint32_t before = run->reform.world;
    char purpose[96];
    gp_status status;

    snprintf(purpose, sizeof(purpose), "train %.80s",
             run->request->pretrained != NULL ? run->request->pretrained : run->request->network);
    pool->floor = run_floor(run);
    status = pool_lease(pool, lease, purpose, run->request->stop, err);
    if (status == GP_OK) {
        reform_init(&run->reform, pool->grant.slots_count, (uint32_t)run->options.max_restarts);
        if (before != 0) /* a lease before this one */
            run->reform.before = before;
        run->reunions = pool->reunions;
        status = gp_run_begin(run, err);
        if (status == GP_OK)
            status = run_loop(run, err);
        gp_fault_point("train-done");
    } else {
        run->lost = gp_run_lost_lease(run, status);
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
        return gp_fail(err, GP_ESTATE, "this training has been run; make another");
    run->pool = pool;
    status = run_once(run, &request, &why);
    while (status != GP_OK && gp_run_may_begin_anew(run)) {
        request.no_wait = false; /* it was not told to wait for its first workers */
        status = gp_run_begin_anew(run, &why, &why);
        if (status == GP_OK)
            status = run_once(run, &request, &why);
    }
    if (status != GP_OK && err != NULL)
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
