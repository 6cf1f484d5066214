/* train_report.h: the reports of a training: the begin event, steps, validations and the summary.
 *
 * Each step and each validation is reported once. Other groups and restarted trainings repeat the
 * last ones; these are dropped here. Steps and validations from rank 0 may arrive before the
 * train_ready of all ranks. They stay pending until the begin event or the regroup event was
 * reported. */
#ifndef GP_TRAIN_REPORT_H
#define GP_TRAIN_REPORT_H

#include "client/pool/pool.h"
#include "common/model/train_options.h"

enum { GP_REPORT_SKIPPED_MAX = 64 };

/* Step or validation of rank 0 that was not reported yet. */
typedef struct gp_pending_event {
    bool is_validation;
    union {
        gp_train_record step;
        gp_train_validation validation;
    };
} gp_pending_event;

/* Pending events in arrival order. */
typedef struct gp_pending_list {
    gp_pending_event *events;
    size_t count;
} gp_pending_list;

typedef struct gp_train_report {
    const gp_train_events *events;   /* callbacks of the request */
    const gp_train_options *options; /* options of the run */
    gp_training_summary *summary;    /* summary of the training */
    gp_train_info info;              /* facts about the current group */
    bool begun;                      /* the begin event was reported */
    double seconds_before;           /* time of the steps before the last restart; workers start at 0 */
    uint64_t validated;              /* step of the last reported validation */
    uint64_t group_validated;        /* step of the last validation by the current group; 0: none */
    bool final_validated;            /* the validation with population statistics was reported */

    /* missing targets in the validation data, from the last count of rank 0 */
    uint64_t excluded;

    /* Steps that other ranks reported after the last step of rank 0, each once, in order. They
     * replace steps that rank 0 could not send before it failed, because all ranks compute the same
     * sums. Rank 1 alone would not suffice: it may fail together with rank 0. */
    gp_pending_list spare;
    gp_pending_list early;                    /* delayed events of rank 0, in order of arrival */
    char skipped[GP_REPORT_SKIPPED_MAX][128]; /* names of unreadable images, each once */
    uint32_t skipped_count;
    uint64_t last_step; /* the last step with its epoch, loss and time, from the train_done of rank 0 */
    uint32_t last_epoch;
    double last_loss, last_seconds; /* seconds 0: unknown */
} gp_train_report;

/* Start the report of a training. The pointers must stay valid until gp_report_deinit(). */
void gp_report_init(gp_train_report *report, const gp_train_events *events, const gp_train_options *options,
                    gp_training_summary *summary);
void gp_report_deinit(gp_train_report *report);

/* Use the workers in the current grant as the current group. */
void gp_report_set_group(gp_train_report *report, const gp_pool *pool, uint32_t world);

/* Add the facts from a rank's train_ready message. */
void gp_report_add_ready(gp_train_report *report, uint32_t rank, const gp_train_ready *ready);

/* Report the begin event, unless it was reported before. */
void gp_report_begin(gp_train_report *report);

/* Report steps of a rank, or keep them until gp_report_pending().
 *   early  rank 0 must wait: not all ranks in the current group are ready. Steps of rank 0 also
 *          wait while report->early is not empty.
 * Return the last step of rank 0 that was reported; 0: none. */
uint64_t gp_report_steps(gp_train_report *report, uint32_t rank, const gp_train_steps *steps, bool early);

/* Report the result of a validation, or keep it; `early` as for gp_report_steps(). */
void gp_report_validation(gp_train_report *report, const gp_train_validation *validation, bool early);

/* Report the progress of a validation; `early` as for gp_report_steps(). Progress is dropped
 * while events of rank 0 are delayed. */
void gp_report_validating(gp_train_report *report, const gp_train_validating *validating, bool early);

/* Report all pending events as events from rank 0, after the begin event, and empty the list.
 * Return value: see gp_report_steps().
 *   list  report->early or report->spare */
uint64_t gp_report_pending(gp_train_report *report, gp_pending_list *list);

/* Count the images that a rank skipped. An image in several reports counts once. */
void gp_report_skipped(gp_train_report *report, gp_train_done *done);

/* Record how the training ended, from the train_done of rank 0. */
void gp_report_done(gp_train_report *report, const gp_train_done *done);

/* Complete the summary of a finished training, after all pending events. Rank 0 may report no steps
 * before its end: it resumed a complete run, or dropped steps because this process did not read. */
void gp_report_end(gp_train_report *report);

#endif
