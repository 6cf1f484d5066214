/* slow_step.h -- notice a step that takes several times as long as usual, and name the worker that caused it.
 *
 * All ranks end a step together, so on a slow step the other ranks wait for the slow one: it is the rank that waited
 * least.  Its phase is the one that exceeds the rank's own median most. */
#ifndef GP_CLI_SLOW_STEP_H
#define GP_CLI_SLOW_STEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/gradpool.h>

typedef struct slow_steps slow_steps;

slow_steps *slow_steps_new(uint32_t workers); /* NULL: no memory */
void slow_steps_free(slow_steps *slow);       /* accepts NULL */

/* Forget all ranks: the group has changed. */
void slow_steps_reset(slow_steps *slow, uint32_t workers);

/* Take a rank's record of a step. True: a slow step is complete, and text has a sentence about it; at most one in
 * five seconds of now_ms. */
bool slow_steps_add(slow_steps *slow, const gp_train_step *step, int64_t now_ms, char *text, size_t bytes);

#endif
