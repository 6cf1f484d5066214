/* Live picture of a training that runs in another process, drawn from files in the run folder.
 *
 * facts.json holds the planned step count. metrics.jsonl has one line per step and is read from the
 * beginning, so the picture includes the history. Viewers only read, so any number can run. */
#ifndef GP_CLI_JOB_VIEW_H
#define GP_CLI_JOB_VIEW_H

#include <stdbool.h>
#include <stdio.h>

typedef struct job_view job_view;

/* Open a view. NULL: facts.json does not exist yet, or out of memory. */
job_view *job_view_new(const char *folder, FILE *out);

/* Draw all new metrics. true: a new attempt has started; free this view and open another one. */
bool job_view_feed(job_view *view);

/* Free the view and leave the last picture on the screen; accepts NULL. */
void job_view_free(job_view *view);

#endif
