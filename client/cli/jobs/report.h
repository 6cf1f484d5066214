/* Failure reports: one JSON document of bounded size with everything known about a failed run,
 * stored as report.json in the run folder.
 *
 * A failing training writes the report itself. If the process was killed, `gradpool report` builds
 * the report later from the remaining files. Values of environment variables whose names suggest a
 * secret, token, password or key are masked. */
#ifndef GP_CLI_REPORT_H
#define GP_CLI_REPORT_H

#include "client/pool/remote.h"
#include "common/base/memory/buffer.h"
#include "proto/local/paths.h"

enum { REPORT_BYTES_MAX = 1 << 20 };

/* Location of a run's files: job.json, facts.json, end.json, metrics.jsonl and log in the run
 * folder, and the logs of scheduler and workers. Missing files are skipped. */
typedef struct report_source {
    const char *folder;
    const char *shown; /* path of the folder in the report; NULL, "": folder */
    /* pool paths; NULL: the pool is on another host, and files are read through `pool` */
    const gp_paths *paths;
    /* the run used another pool than that of `paths`, in the allocation of a cluster: the logs of
     * `paths`, and this machine, are not those of the run */
    bool other_pool;
    /* used only if places is NULL */
    gp_pool *pool;
    uint64_t job;
} report_source;

/* Read the last bytes of a file in the run folder; return their number.
 *   size  set to the file size; UINT64_MAX: there is no such file
 *   err   set if a pool on another host cannot be read */
size_t report_tail(const report_source *source, gp_job_file file, uint32_t worker, char *text,
                   size_t bytes_max, uint64_t *size, gp_error *err);

/* Build a report and append it to `out`. For a run on another host, call report_fetch() first: a
 * report written by the run itself is better.
 *   failure  run error; NULL: not known
 *
 * GP_EPEER and other errors: the remote pool could not be read; `out` is still complete JSON. */
gp_status report_make(gp_buffer *out, const report_source *source, const gp_error *failure, gp_error *err);

/* Read report.json for a run on another host and append it to `out`. Appends nothing if the file
 * does not exist. */
gp_status report_fetch(gp_buffer *out, const report_source *source, gp_error *err);

/* Build a report and write it to report.json in the folder. Errors are printed on standard
 * error. */
void report_write(const char *folder, const gp_paths *paths, const gp_error *failure);

#endif
