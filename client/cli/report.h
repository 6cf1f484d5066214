/* report.h -- what is known of a run that failed, in one JSON document of bounded size: report.json of its folder.
 *
 * Written when a training fails, by its own process; made from what is there when somebody asks for that of a run whose
 * process could not (it was killed).  Values of variables that name a secret, a token, a password or a key are left out. */
#ifndef GP_CLI_REPORT_H
#define GP_CLI_REPORT_H

#include "common/base/buffer.h"
#include "proto/places.h"

enum { REPORT_BYTES_MAX = 1 << 20 };

/* gp_report_make -- the document, appended to out.
 *   folder   of the run: job.json, facts.json, end.json, metrics.jsonl, log, as far as they are there
 *   places   of the pool, for the logs of its scheduler and workers
 *   failure  NULL: not known */
gp_status report_make(gp_buffer *out, const char *folder, const gp_places *places, const gp_error *failure,
                      gp_error *err);

/* The same into the folder's report.json; whatever fails is told on standard error. */
void report_write(const char *folder, const gp_places *places, const gp_error *failure);

#endif
