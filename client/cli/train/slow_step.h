/* Detect steps that take several times the usual time, and name the worker that caused the delay.
 *
 * All ranks finish a step together, so the other ranks wait for the slow rank: the slow rank is the
 * one that waited least. The phase reported is the one that exceeds the rank's own median most. */
#ifndef GP_CLI_SLOW_STEP_H
#define GP_CLI_SLOW_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/gradpool.h>

typedef struct slow_steps slow_steps;

slow_steps *slow_steps_new(uint32_t workers); /* freed with gp_free(); NULL: out of memory */

/* Clear all ranks' history when the worker group changes. */
void slow_steps_reset(slow_steps *slow, uint32_t workers);

/* Add a rank's record of a step. true: all ranks reported a slow step, and `text` describes it.
 * Reports are at least five seconds of now_ms apart. */
bool slow_steps_add(slow_steps *slow, const gp_train_step *step, int64_t now_ms, char *text, size_t bytes);

#endif
