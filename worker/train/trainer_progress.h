/* trainer_progress.h -- how far a training has come: a plain value that outlives a group and goes to other ranks as it is. */
#ifndef GP_TRAINER_PROGRESS_H
#define GP_TRAINER_PROGRESS_H

#include "worker/train/loss_scale.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer_exchange.h"

typedef struct gp_train_progress {
    uint64_t step;          /* committed steps */
    uint32_t epoch, first;  /* where the next step begins: epoch from 0, position in its order */
    gp_train_ending ending; /* requested by any rank of this group, as of the last committed step */
    bool checkpoint_due;    /* it is written before the next step, or as soon as the disk is idle */
    bool validation_due;    /* before the next step */
    gp_train_validation last_validation; /* step 0: no validation yet */
    uint64_t excluded; /* targets of that validation without a class or value, on all ranks */
    double best_loss;  /* of all validations; INFINITY: no validation yet */
    int64_t validations_since_best;
    int64_t begin_ns;   /* when the first step began; 0: no step has begun in this group */
    int64_t elapsed_ns; /* time in earlier groups, since the first step */
    double loss;        /* of the last committed step that had one */
    gp_loss_scale loss_scale;
} gp_train_progress;

void gp_train_progress_init(gp_train_progress *progress, const gp_train_options *options);

/* The progress as another group continues from it. */
gp_train_progress gp_train_progress_carry_over(const gp_train_progress *progress);

/* Start the clock of this group. */
void gp_train_progress_start(gp_train_progress *progress);
double gp_train_progress_seconds(const gp_train_progress *progress); /* since the first step */

/* Epoch of the last committed step, from 1. */
uint32_t gp_train_progress_epoch(const gp_train_progress *progress);

/* Count a committed step, and set the members of the record that follow from its result. call: its last one. */
void gp_train_progress_count(gp_train_progress *progress, const gp_train_call *call,
                             const gp_step_result *result, double learn_rate, gp_train_control *control,
                             gp_train_record *record);

/* Adjust the loss scale to a step. record->skipped: the step must not be committed.
 *   before  steps that were counted before it
 * GP_EDIVERGED: too many steps in a row were skipped; no loss scale helps. */
gp_status gp_train_progress_scale(gp_train_progress *progress, const gp_train_options *options, double bad,
                                  uint64_t before, gp_train_record *record, gp_error *err);

/* Count a validation; true: its loss is the lowest so far. */
bool gp_train_progress_improved(gp_train_progress *progress, double loss);

/* Return whether the validation loss has stopped improving (option validation-patience). */
bool gp_train_progress_stops_early(const gp_train_progress *progress, const gp_train_options *options);

#endif
