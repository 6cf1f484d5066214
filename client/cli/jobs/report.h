/* report.h -- what is known of a run that failed, in one JSON document of bounded size: report.json of its folder.
 *
 * Written when a training fails, by its own process; made from what is there when somebody asks for that of a run whose
 * process could not (it was killed).  Values of variables that name a secret, a token, a password or a key are left out. */
#ifndef GP_CLI_REPORT_H
#define GP_CLI_REPORT_H

#include "client/pool/remote.h"
#include "common/base/memory/buffer.h"
#include "proto/local/places.h"

enum { REPORT_BYTES_MAX = 1 << 20 };

/* Where a run is read from: job.json, facts.json, end.json, metrics.jsonl, log, as far as they are there, and the logs of its
 * pool's scheduler and workers. */
typedef struct report_source {
    const char *folder;
    const gp_places *places; /* NULL: they are on another host, and are asked of */
    gp_pool *pool;
    uint64_t job;
} report_source;

/* report_make -- the document, appended to out.
 *   failure  NULL: not known
 * Of another host, what it wrote itself is preferred: report_fetch().  GP_EPEER and others: its answer did not come. */
gp_status report_make(gp_buffer *out, const report_source *source, const gp_error *failure, gp_error *err);

/* The report.json that was written there, appended to out; nothing, if there is none. */
gp_status report_fetch(gp_buffer *out, const report_source *source, gp_error *err);

/* The same into the folder's report.json; whatever fails is told on standard error. */
void report_write(const char *folder, const gp_places *places, const gp_error *failure);

#endif
