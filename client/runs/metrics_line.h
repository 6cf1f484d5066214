/* Lines of metrics.jsonl, one per step or validation.
 *
 * step_fields.def and validation_fields.def list the members of a line with order and format. The
 * records are declared in gradpool.h. */
#ifndef GP_RUNS_METRICS_LINE_H
#define GP_RUNS_METRICS_LINE_H

#include "common/base/text/json.h"

typedef struct metric metric;

extern const metric *const metrics_of_step;       /* fields of gp_train_step */
extern const metric *const metrics_of_validation; /* fields of gp_train_validation_result */

/* Write a record as one JSON object. */
void metrics_put(gp_json_writer *writer, const metric *table, const void *record);

/* Fill in a record from a parsed line. Metrics missing in the line, or null, are set to NaN or
 * 0. */
void metrics_get(void *record, const metric *table, const gp_json *line);

#endif
