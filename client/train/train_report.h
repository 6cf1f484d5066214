/* train_report.h -- what a training reports: the begin event, steps, validations, and the summary.
 *
 * Each step and each validation is reported once.  Other groups of workers and restarted trainings repeat the last ones,
 * which are dropped here.  Steps and validations of rank 0 may arrive before the train_ready of all ranks; they are pending
 * until the begin event or the regroup event was reported. */
#ifndef GP_TRAIN_REPORT_H
#define GP_TRAIN_REPORT_H

#include "client/pool/pool.h"
#include "common/model/train_options.h"

enum { GP_REPORT_SKIPPED_MAX = 64 };

/* A step or a validation of rank 0 that has not been reported yet. */
typedef struct gp_pending_event {
    bool is_validation;
    union {
        gp_train_record step;
        gp_train_validation validation;
    };
} gp_pending_event;

/* Pending events in the order in which they arrived. */
typedef struct gp_pending_list {
    gp_pending_event *events;
    size_t count;
} gp_pending_list;

typedef struct gp_train_report {
    const gp_train_events *events;   /* of the request */
    const gp_train_options *options; /* of the run */
    gp_training_summary *summary;    /* of the training */
    gp_train_info facts;             /* of the present group */
    bool begun;                      /* the begin event was reported */
    uint64_t validated;              /* step of the last reported validation */
    uint64_t group_validated;        /* step of the last validation that the present group sent; 0: none */
    bool final_validated; /* the validation of the weights with population statistics was reported */
    uint64_t excluded;    /* missing targets of the validation data, as rank 0 last counted them */
    /* Steps that rank 1 reported after the last step of rank 0: they replace those that rank 0 could not send before it
     * failed, because the sums of a step are the same on all ranks. */
    gp_pending_list spare;
    gp_pending_list early; /* steps and validations that arrived before the train_ready of all ranks */
    char skipped[GP_REPORT_SKIPPED_MAX][128]; /* images that some worker could not read, each once */
    uint32_t skipped_count;
} gp_train_report;

void gp_report_init(gp_train_report *report, const gp_train_events *events, const gp_train_options *options,
                    gp_training_summary *summary);
void gp_report_deinit(gp_train_report *report);

/* Take over the workers of the pool's grant as the present group. */
void gp_report_set_group(gp_train_report *report, const gp_pool *pool, uint32_t world);
/* Take over the facts of a rank's train_ready. */
void gp_report_add_ready(gp_train_report *report, uint32_t rank, const gp_train_ready *ready);
/* Report the begin event, unless it was reported before. */
void gp_report_begin(gp_train_report *report);

/* Report steps of a rank, or keep them until gp_report_pending().
 *   early  rank 0 must wait: not all ranks of the present group are ready
 * Returns the last step of rank 0 that was handled; 0: none. */
uint64_t gp_report_steps(gp_train_report *report, uint32_t rank, const gp_train_steps *steps, bool early);
void gp_report_validation(gp_train_report *report, const gp_train_validation *validation, bool early);
void gp_report_validating(gp_train_report *report, const gp_train_validating *validating, bool early);
/* Report all pending events as those of rank 0, after the begin event; the list is empty afterwards.
 *   list  report->early or report->spare
 * Returns as gp_report_steps(). */
uint64_t gp_report_pending(gp_train_report *report, gp_pending_list *list);

/* Count the images that a rank skipped, each once among all ranks. */
void gp_report_skipped(gp_train_report *report, gp_train_done *done);
/* Take over how the training of rank 0 ended. */
void gp_report_done(gp_train_report *report, const gp_train_done *done);

#endif
