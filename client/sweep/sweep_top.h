/* The N best trials of a sweep, whose models are kept. */
#ifndef GP_SWEEP_TOP_H
#define GP_SWEEP_TOP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

/* Trial among the best ones. */
typedef struct sweep_top_trial {
    double value;
    uint32_t number;
} sweep_top_trial;

/* Initialize with sweep_top_init(). */
typedef struct sweep_top {
    sweep_top_trial *trials; /* [count_max + 1], best first */
    uint32_t count, count_max;
    bool minimize;
} sweep_top;

/* Create an empty list of at most `count_max` trials. GP_ENOMEM: out of memory. */
gp_status sweep_top_init(sweep_top *top, uint32_t count_max, bool minimize, gp_error *err);
void sweep_top_deinit(sweep_top *top);

/* Add a trial. Among equal values, the lower number is better. Return the trial that is not among
 * the best any more, possibly the new one. 0: none, all trials so far are. */
uint32_t sweep_top_add(sweep_top *top, uint32_t number, double value);

#endif
