/* State of a pool in the text formats of Prometheus and OpenMetrics.
 *
 * Formats: Prometheus text format 0.0.4, and OpenMetrics 1.0.0, in which the name of a counter's
 * family has no _total and the text ends with "# EOF". */
#ifndef GP_RUNS_PROMETHEUS_H
#define GP_RUNS_PROMETHEUS_H

#include <stdbool.h>

#include "common/base/memory/buffer.h"
#include "proto/message/messages.h"

/* Append all families of prometheus.def.
 *   version       of the command
 *   jobs          totals of the jobs; NULL: the pool cannot record jobs
 *   open_metrics  write OpenMetrics instead of the Prometheus format
 * GP_ENOMEM or GP_ELIMIT: the buffer is full. */
gp_status prometheus_write(gp_buffer *out, const gp_status_reply *status, const gp_jobs_reply *jobs,
                           const char *version, bool open_metrics, gp_error *err);

#endif
