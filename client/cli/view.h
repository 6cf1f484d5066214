/* Progress display of a training: a table, or a live picture on a terminal.
 *
 * The table has the form of MATLAB's Verbose output. The picture is redrawn in place at most ten
 * times a second. It shows the progress with the time left, loss and accuracy curves, images per
 * second for each worker, and the time per step phase. */
#ifndef GP_CLI_VIEW_H
#define GP_CLI_VIEW_H

#include <stdio.h>

#include <gradpool/gradpool.h>

typedef struct gp_view gp_view;

/* View settings. */
typedef struct view_options {
    FILE *out;          /* destination of the output; NULL: only the log is written */
    FILE *log;          /* second table destination; may be NULL */
    bool live;          /* draw the picture instead of the table */
    bool terminal;      /* `out` can be redrawn: show progress between table lines */
    uint32_t frequency; /* steps between two table lines */
} view_options;

gp_view *view_new(const view_options *options); /* NULL: out of memory */
void view_free(gp_view *view);                  /* keeps the last picture; accepts NULL */
/* Initialize the view with the training facts; call before view_step(). */
void view_begin(gp_view *view, const gp_train_info *info);

/* Add a step of one rank. Rank 0 provides loss and accuracy, all ranks provide timings. */
void view_step(gp_view *view, const gp_train_step *step);

/* Add a validation result. */
void view_check(gp_view *view, const gp_train_validation_result *check);

/* Show the progress of a running validation in the picture, or on the progress line of a terminal.
 * view_check() ends it. */
void view_check_progress(gp_view *view, const gp_train_validation_progress *progress);

/* Adapt to a change of the worker group: update the worker list and reset the statistics. */
void view_regroup(gp_view *view, const gp_train_rescale *regroup);

/* Show a status message, e.g. "stopping at the next step; press Ctrl-C again to stop at once".
 *   lasting  the picture shows it until the next message; false: for ten seconds */
void view_print(gp_view *view, const char *sentence, bool lasting);

#endif
