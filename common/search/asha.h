/* Early stopping by asynchronous successive halving (Li et al., "A System for Massively Parallel
 * Hyperparameter Tuning", MLSys 2020), as a stopping rule: no trial is paused or resumed.
 *
 * Rungs stand at epochs_min, eta * epochs_min, eta^2 * epochs_min, ... below epochs_max. A trial
 * that reaches a rung continues if its score is not below the quantile 1 - 1/eta of the scores that
 * other trials reached the rung with before, linearly interpolated. The first trial always
 * continues. These are the decisions of Ray's AsyncHyperBandScheduler. */
#ifndef GP_ASHA_H
#define GP_ASHA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { GP_ASHA_ETA_MAX = 16, GP_ASHA_RUNGS_MAX = 32 };

/* Scores of the trials that reached a rung. */
typedef struct gp_rung {
    uint32_t epoch; /* decision after this epoch */
    double *sorted; /* [count], ascending; owned */
    uint32_t count;
} gp_rung;

typedef struct gp_asha {
    uint32_t eta;
    gp_rung rungs[GP_ASHA_RUNGS_MAX]; /* ascending epochs */
    uint32_t rung_count;
} gp_asha;

/* Initialize the rungs; release them with gp_asha_deinit().
 *   eta  2 to GP_ASHA_ETA_MAX: one of eta trials continues at a rung
 * GP_EINVAL: invalid eta, or not 1 <= epochs_min < epochs_max. */
gp_status gp_asha_init(gp_asha *asha, uint32_t eta, uint32_t epochs_min, uint32_t epochs_max, gp_error *err);
void gp_asha_deinit(gp_asha *asha);

/* Return how many rungs a trial has reached after an epoch. */
uint32_t gp_asha_reached(const gp_asha *asha, uint32_t epoch);

/* Record the score (higher is better; finite) of a trial that has reached a rung, and decide about
 * the trial. */
gp_status gp_asha_record(gp_asha *asha, uint32_t rung, double score, bool *stop, gp_error *err);

#endif
