/* Remove the records that a resumed training repeats. */
#ifndef GP_RUNS_RUN_TRIM_H
#define GP_RUNS_RUN_TRIM_H

#include <stdint.h>

#include "common/base/error.h"

/* Remove lines of a file in the run folder, so that a training can continue it. Keep validations up
 * to step `validations`, and other lines up to step `steps`. Remove lines without a step, and an
 * incomplete last line. The kept lines are copied to a new file, which is synced and replaces the
 * old one; a reader of the old one is not disturbed. A file that does not exist is no error. Lines
 * longer than RUN_LINE_BYTES_MAX are removed, too. After an error, the file is unchanged. GP_EIO.
 * GP_ESTALE: this process belongs to an outdated attempt of a cluster job.
 *   name  "metrics.jsonl" or "workers.jsonl"
 *   last  set to the step of the last line that is kept; 0: none. May be NULL */
gp_status run_trim(const char *folder, const char *name, uint64_t steps, uint64_t validations, uint64_t *last,
                   gp_error *err);

#endif
