/* job_view.h -- the picture of a training that another process runs, drawn from its folder.
 *
 * facts.json says how many steps there will be, metrics.jsonl is read by offset, a line a step: history first, then
 * what comes.  Nothing is written and nobody is asked, so any number of terminals may look. */
#ifndef GP_CLI_JOB_VIEW_H
#define GP_CLI_JOB_VIEW_H

#include <stdbool.h>
#include <stdio.h>

typedef struct job_view job_view;

/* NULL: the folder has no facts (yet), or no memory. */
job_view *job_view_new(const char *folder, FILE *out);
/* Draw what came since; true: the training began anew, and this view is over. */
bool job_view_feed(job_view *view);
/* Leaves the last picture standing; accepts NULL. */
void job_view_free(job_view *view);

#endif
