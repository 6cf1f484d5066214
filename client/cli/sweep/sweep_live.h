/* Live table of a sweep on a terminal, redrawn in place. It lists the running trials first, then
 * the others with the best on top, as many as fit. The last line has counts and the time left. */
#ifndef GP_CLI_SWEEP_LIVE_H
#define GP_CLI_SWEEP_LIVE_H

#include <stdio.h>

#include "client/sweep/sweep_core.h"
#include "client/sweep/sweep_folder.h"

typedef struct sweep_live sweep_live;

/* Create a live table. The plan must outlive the table. GP_EINVAL: a malformed space. GP_ENOMEM. */
gp_status sweep_live_new(sweep_live **out, FILE *file, const sweep_plan *plan, gp_error *err);

/* Draw the trials, at most five times a second.
 *   now_ms  clock of gp_now_ms() */
void sweep_live_draw(sweep_live *live, const sweep *core, int64_t now_ms);

/* Show a message below the table for ten seconds. */
void sweep_live_note(sweep_live *live, const char *text, int64_t now_ms);

/* Erase the table from the terminal and free it; accepts NULL. */
void sweep_live_free(sweep_live *live);

/* Estimate the seconds until all trials have ended, from the progress since the first call of
 * sweep_live_draw(). NaN: too early. */
double sweep_live_seconds_left(const sweep_live *live, const sweep *core, int64_t now_ms);

#endif
