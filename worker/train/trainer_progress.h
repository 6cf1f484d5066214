/* trainer_progress.h -- training progress: a plain value that is copied to later groups and to
 * other ranks. */
#ifndef GP_TRAINER_PROGRESS_H
#define GP_TRAINER_PROGRESS_H

#include "worker/train/loss_scale.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer_exchange.h"

/* A training's position and results. */
typedef struct gp_train_progress {
    uint64_t step;          /* committed steps */
    uint32_t epoch, first;  /* next step's start: epoch from 0, position in the epoch */
    gp_train_ending ending; /* requested by any rank, as of the last committed step */

    /* Rank 0 writes a checkpoint before the next step, or once the disk is idle, and clears the
     * flag. On other ranks the flag stays set, because rank 0 does not report the write. */
    bool checkpoint_due;
    bool validation_due; /* validate before the next step */

    /* 1 + gp_stop_reason; 0: more steps follow. If not 0, the last checkpoint exists, and the
     * weights may be the final ones instead of those of the last step. */
    uint32_t ended;
    bool population_done; /* the final weights have the statistics of the whole training data */
    gp_train_validation last_validation; /* step 0: no validation yet */
    uint64_t excluded;               /* targets without a class or value in that validation, on all ranks */
    double best_loss;                /* lowest validation loss; INFINITY: no validation yet */
    double best_accuracy, best_rmse; /* of that validation; NaN: no classes, no values */
    int64_t validations_since_best;
    int64_t begin_ns;   /* first step's start in this group; 0: not started */
    int64_t elapsed_ns; /* time spent in earlier groups, from the first step */
    double loss;        /* loss of the last committed step that had one */
    double seconds;     /* first step's start to last committed step; 0: no step since a resume */
    gp_loss_scale loss_scale;
} gp_train_progress;

void gp_train_progress_init(gp_train_progress *progress, const gp_train_options *options);

/* Return the progress from which another group continues. */
gp_train_progress gp_train_progress_carry_over(const gp_train_progress *progress);

/* Start this group's clock. */
void gp_train_progress_start(gp_train_progress *progress);

/* seconds since the first step, over all groups */
double gp_train_progress_seconds(const gp_train_progress *progress);

/* Return the last committed step's epoch, from 1. */
uint32_t gp_train_progress_epoch(const gp_train_progress *progress);

/* Count a committed step and fill in the record. call: last call of the step. */
void gp_train_progress_count(gp_train_progress *progress, const gp_train_call *call,
                             const gp_step_result *result, double learn_rate, gp_train_control *control,
                             gp_train_record *record);

/* Update the loss scale after a step. If record->skipped is set, the step must not be committed.
 *   before  steps counted before this one
 * GP_EDIVERGED: too many steps in a row were skipped, so no loss scale helps. */
gp_status gp_train_progress_scale(gp_train_progress *progress, const gp_train_options *options, double bad,
                                  uint64_t before, gp_train_record *record, gp_error *err);

/* Count a validation. Return whether the loss is the lowest so far. */
bool gp_train_progress_improved(gp_train_progress *progress, const gp_step_result *result);

/* Return whether the validation loss has stopped improving (option validation-patience). */
bool gp_train_progress_stops_early(const gp_train_progress *progress, const gp_train_options *options);

#endif
