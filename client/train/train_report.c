#include "client/train/train_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"

enum { PENDING_MAX = 1 << 16 };

void gp_report_init(gp_train_report *report, const gp_train_events *events, const gp_train_options *options,
                    gp_training_summary *summary)
{
    *report = (gp_train_report){ .events = events, .options = options, .summary = summary };
    summary->validation_loss = summary->validation_accuracy = summary->validation_rmse = NAN;
    summary->loss = NAN;
}

void gp_report_deinit(gp_train_report *report)
{
    gp_free(report->spare.events);
    gp_free(report->early.events);
}

/* ---- the group ---- */

void gp_report_set_group(gp_train_report *report, const gp_pool *pool, uint32_t world)
{
    gp_train_info *info = &report->info;

    report->group_validated = 0;
    info->initial_learn_rate = report->options->initial_learn_rate;
    info->workers = world;
    info->lease = pool->lease;
    for (uint32_t rank = 0; rank < world; rank++)
        info->worker_index[rank] = pool->grant.slots[rank].index;
}

void gp_report_add_ready(gp_train_report *report, uint32_t rank, const gp_train_ready *ready)
{
    gp_train_info *info = &report->info;

    info->batch_rank[rank] = ready->batch_rank;
    info->ready_ms = fmax(info->ready_ms, ready->ready_ms);
    info->data_ms = fmax(info->data_ms, ready->data_ms);
    info->network_ms = fmax(info->network_ms, ready->network_ms);
    if (rank != 0)
        return;
    info->batch = ready->batch;
    info->steps_per_epoch = ready->steps_per_epoch;
    info->epochs = (uint32_t)report->options->max_epochs;
    info->samples = ready->samples;
    info->validation_samples = ready->validation_samples;
    info->parameters = ready->parameters;
    info->memory_bytes = ready->memory_bytes;
    info->classes = ready->classes;
    info->excluded = report->summary->training_excluded;
}

void gp_report_begin(gp_train_report *report)
{
    if (!report->begun && report->events->begin != NULL)
        report->events->begin(report->events->context, &report->info);
    report->begun = true;
}

/* ---- pending events ---- */

/* Append a copy of an event. The event is lost if the list is full or memory is exhausted. */
static void pending_add(gp_pending_list *list, const gp_pending_event *event)
{
    gp_pending_event *events =
        list->count == PENDING_MAX ? NULL : gp_array_grow(list->events, list->count, sizeof(*events));

    if (events == NULL)
        return;
    list->events = events;
    list->events[list->count++] = *event;
}

/* ---- steps and validations ---- */

/* Report a step, unless rank 0 reports it for the second time. */
static void report_step(gp_train_report *report, uint32_t rank, const gp_train_record *r)
{
    gp_training_summary *summary = report->summary;
    const gp_pending_list spare = report->spare;
    size_t kept = 0;

    if (rank == 0) {
        gp_fault_point("train-step");
        if (r->step <= summary->steps)
            return; /* the step was repeated, because every rank with its state failed */
        summary->steps = r->step;
        summary->epochs = r->epoch;
        summary->loss = r->loss;
        summary->seconds = report->seconds_before + r->seconds;
        for (size_t i = 0; i < spare.count; i++)
            if (spare.events[i].is_validation || spare.events[i].step.step > r->step)
                spare.events[kept++] = spare.events[i];
        report->spare.count = kept;
    }
    if (report->events->step == NULL)
        return;
    gp_train_step step = { .worker = report->info.worker_index[rank], .rank = rank };

#define GP_METRIC(type, name, ...) step.name = r->name;
#include "proto/message/step_fields.def"
    step.seconds += report->seconds_before;
    report->events->step(report->events->context, &step);
}

/* Return the last step that was reported, or is in report->spare. */
static uint64_t last_known(const gp_train_report *report)
{
    const gp_pending_list *spare = &report->spare;

    return spare->count > 0 ? spare->events[spare->count - 1].step.step : report->summary->steps;
}

/* Return whether an event from rank 0 has to wait. While earlier events wait, later ones wait too,
 * so that the order is kept. */
static bool is_delayed(const gp_train_report *report, bool early)
{
    return early || report->early.count > 0;
}

uint64_t gp_report_steps(gp_train_report *report, uint32_t rank, const gp_train_steps *steps, bool early)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < steps->records_count; i++) {
        const gp_train_record *r = &steps->records[i];

        report->summary->samples_trained += r->samples;
        if (rank != 0 && r->step > last_known(report))
            pending_add(&report->spare, &(gp_pending_event){ .step = *r });
        if (rank == 0 && is_delayed(report, early)) {
            pending_add(&report->early, &(gp_pending_event){ .step = *r });
            continue;
        }
        report_step(report, rank, r);
        if (rank == 0)
            last = r->step;
    }
    return last;
}

/* Report a validation, unless it was reported before.
 *
 * With population statistics of batch norm, the workers validate the final weights once more after
 * the last step. Only then a group sends two validations for the same step. */
static void report_validation(gp_train_report *report, const gp_train_validation *v)
{
    gp_training_summary *summary = report->summary;
    const bool final = report->options->batch_norm_statistics == GP_STATISTICS_POPULATION &&
                       v->step == report->group_validated && !report->final_validated;

    report->group_validated = v->step;
    if (v->step < report->validated || (v->step == report->validated && !final))
        return;
    report->validated = v->step;
    report->final_validated = report->final_validated || final;
    summary->validation_excluded = report->excluded;

    /* The loss is NaN before the first validation. */
    if (final || !gp_train_keeps_best(report->options) || !(v->loss >= summary->validation_loss)) {
        summary->validation_loss = v->loss;
        summary->validation_accuracy = v->accuracy;
        summary->validation_rmse = v->rmse;
    }
    if (report->events->check == NULL)
        return;
    gp_train_validation_result check = { .excluded = report->excluded };

#define GP_METRIC(type, name, ...) check.name = v->name;
#include "proto/message/validation_fields.def"
    check.seconds += report->seconds_before;
    report->events->check(report->events->context, &check);
}

void gp_report_validation(gp_train_report *report, const gp_train_validation *validation, bool early)
{
    if (is_delayed(report, early))
        pending_add(&report->early, &(gp_pending_event){ .is_validation = true, .validation = *validation });
    else
        report_validation(report, validation);
}

void gp_report_validating(gp_train_report *report, const gp_train_validating *validating, bool early)
{
    const gp_train_events *events = report->events;

    if (validating->done == validating->count)
        report->excluded = validating->excluded;
    else if (!is_delayed(report, early) && events->check_progress != NULL)
        events->check_progress(events->context,
                               &(gp_train_validation_progress){ .step = validating->step,
                                                                .done = validating->done,
                                                                .count = validating->count,
                                                                .seconds = validating->seconds });
}

uint64_t gp_report_pending(gp_train_report *report, gp_pending_list *list)
{
    gp_pending_list pending = *list; /* a copy, because report_step() changes report->spare */
    uint64_t last = 0;

    if (pending.count > 0)
        gp_report_begin(report);
    *list = (gp_pending_list){ 0 };
    for (size_t i = 0; i < pending.count; i++)
        if (pending.events[i].is_validation) {
            report_validation(report, &pending.events[i].validation);
        } else {
            report_step(report, 0, &pending.events[i].step);
            last = pending.events[i].step.step;
        }
    gp_free(pending.events);
    return last;
}

/* ---- the end ---- */

void gp_report_skipped(gp_train_report *report, gp_train_done *done)
{
    char *rest = done->skipped_names, *name;

    report->summary->skipped += done->skipped;
    while ((name = strsep(&rest, "\n")) != NULL) {
        uint32_t i = 0;

        while (i < report->skipped_count &&
               strncmp(report->skipped[i], name, sizeof(report->skipped[i]) - 1) != 0)
            i++;
        if (*name == '\0')
            continue;
        if (i < report->skipped_count)
            report->summary->skipped--;
        else if (i < GP_REPORT_SKIPPED_MAX)
            snprintf(report->skipped[report->skipped_count++], sizeof(report->skipped[i]), "%s", name);
    }
}

void gp_report_done(gp_train_report *report, const gp_train_done *done)
{
    report->last_step = done->step;
    report->last_epoch = done->epoch;
    report->last_loss = done->loss;
    report->last_seconds = done->seconds;
    report->summary->stopped = done->stop_reason == GP_STOP_STOPPED;
    report->summary->early_stopped = done->stop_reason == GP_STOP_EARLY;
}

void gp_report_end(gp_train_report *report)
{
    gp_training_summary *summary = report->summary;

    if (report->last_step <= summary->steps)
        return;
    summary->steps = report->last_step;
    summary->epochs = report->last_epoch;
    summary->loss = report->last_loss;
    if (report->last_seconds > 0)
        summary->seconds = report->seconds_before + report->last_seconds;
}
