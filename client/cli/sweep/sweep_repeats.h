/* Repeats of the best trial with further seeds (`sweep --confirm N`). */
#ifndef GP_CLI_SWEEP_REPEATS_H
#define GP_CLI_SWEEP_REPEATS_H

#include "client/sweep/sweep_core.h"
#include "client/sweep/sweep_folder.h"

/* Values of the repeats of the best trial. */
typedef struct sweep_repeats {
    uint32_t count;   /* repeats that are done */
    double mean, std; /* NaN: too few repeats; std is that of a sample */
} sweep_repeats;

/* Compute the mean and the standard deviation of the repeats. The value of the best trial itself
 * does not count: it was chosen because it is high, so it is higher than that of another seed. */
sweep_repeats sweep_repeats_of(const sweep *core);

/* Print one line about the repeats; nothing if there are none. */
void sweep_repeats_show(const sweep *core, const sweep_plan *plan);

#endif
