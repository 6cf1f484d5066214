/* metrics_line.h -- the lines of steps and validations in metrics.jsonl.
 *
 * step_fields.def and validation_fields.def say which members a line has, in which order and form; the records are those
 * of gradpool.h. */
#ifndef GP_CLI_METRICS_LINE_H
#define GP_CLI_METRICS_LINE_H

#include "common/base/text/json.h"

typedef struct metric metric;

extern const metric *const metrics_of_step;       /* of a gp_train_step */
extern const metric *const metrics_of_validation; /* of a gp_train_validation_result */

/* Write the record as one object. */
void metrics_put(gp_json_writer *writer, const metric *table, const void *record);

/* Fill the members of the record that the table names. One that the line lacks, or has as null, becomes NaN or 0. */
void metrics_get(void *record, const metric *table, const gp_json *line);

#endif
