/* log.h -- one event per line, one write(2) per event, to standard error.
 *
 *   2026-11-21T09:30:00.123Z warn worker-2[4711] lost the scheduler; exiting
 *
 * Of lines with the same format at most GP_LOG_BURST are written in a second; the others are counted, and the count is told
 * with the next one: a storm fills no disk.
 *
 * Daemons' standard error is their own log file; every error a user sees names that file. */
#ifndef GP_LOG_H
#define GP_LOG_H

enum { GP_LOG_BURST = 100 };

typedef enum gp_log_level { GP_LOG_DEBUG, GP_LOG_INFO, GP_LOG_WARN, GP_LOG_ERROR } gp_log_level;

/* Who speaks ("scheduler", "worker-2"; copied) and from which level on.  GRADPOOL_LOG=debug|info|
 * warn|error overrides the level.  Default: "gradpool", warn. */
void gp_log_setup(const char *who, gp_log_level level);

void gp_log(gp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
