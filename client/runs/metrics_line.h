/* Lines of metrics.jsonl, one per step or validation.
 *
 * step_fields.def and validation_fields.def list the members of a line with order and format. The
 * records are declared in gradpool.h. */
#ifndef GP_RUNS_METRICS_LINE_H
#define GP_RUNS_METRICS_LINE_H

#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

typedef struct metric metric;

extern const metric *const metrics_of_step;       /* fields of gp_train_step */
extern const metric *const metrics_of_validation; /* fields of gp_train_validation_result */

/* Write a record as one JSON object. */
void metrics_put(gp_json_writer *writer, const metric *table, const void *record);

/* Fill in a record from a parsed line. Metrics missing in the line, or null, are set to NaN or
 * 0. */
void metrics_get(void *record, const metric *table, const gp_json *line);

/* ---- phases of a step ---- */

/* clang-format off */
#define STEP_PHASE_HEAD(name)
#define STEP_PHASE_BODY(name)
#define STEP_PHASE_TIME(name) STEP_PHASE_##name,

/* Phases of a training step: the rows of step_fields.def with the place TIME, in their order. */
typedef enum step_phase {
#define GP_METRIC(type, name, place, ...) STEP_PHASE_##place(name)
#include "proto/message/step_fields.def"
    STEP_PHASES /* number of phases */
} step_phase;

/* clang-format on */

extern const char *const step_phase_names[STEP_PHASES]; /* as in a line: "data", "forward", ... */

/* Add the times of a step, in milliseconds, to a sum per phase. */
void step_phases_add(double sums[STEP_PHASES], const gp_train_step *step);

#endif
