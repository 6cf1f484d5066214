/* view.h -- a training as a person sees it: a table of lines, or on a terminal a live picture.
 *
 * The table is what MATLAB's Verbose prints.  The picture redraws in place at most ten times a second: progress
 * with the time left, loss and accuracy as curves, images per second of each worker, and where the step's time
 * goes. */
#ifndef GP_CLI_VIEW_H
#define GP_CLI_VIEW_H

#include <stdio.h>

#include <gradpool/gradpool.h>

typedef struct gp_view gp_view;

typedef struct view_options {
    FILE *out;          /* where to draw */
    FILE *log;          /* the table also goes here; may be NULL */
    bool live;          /* draw the picture instead of the table */
    bool terminal;      /* out is a terminal: between the table's lines, show progress */
    uint32_t frequency; /* steps between two lines of the table */
} view_options;

gp_view *view_new(const view_options *options); /* NULL: no memory */
void view_free(gp_view *view);                  /* leaves the last picture standing; accepts NULL */
void view_begin(gp_view *view, const gp_train_info *facts);
void view_step(gp_view *view, const gp_train_step *step);
void view_check(gp_view *view, const gp_train_validation_result *check);
/* Show the progress of a validation in the picture, or in a terminal's line of progress, until view_check(). */
void view_check_progress(gp_view *view, const gp_train_validation_progress *progress);
/* Other workers from here on. */
void view_regroup(gp_view *view, const gp_train_rescale *regroup);
/* A word for the state line: "stopping at the next step; press Ctrl-C again to stop at once". */
void view_say(gp_view *view, const char *sentence);
/* The same, but the picture shows the sentence for ten seconds only. */
void view_note(gp_view *view, const char *sentence);

#endif
