/* Event log: one line per event, written to standard error with a single write(2).
 *
 * Daemons log in a machine-readable form; log_line.h defines it. A daemon's standard error is a log
 * file, and error messages for users name that file.
 *
 *   time=2026-11-21T09:30:00.123Z level=warn who=worker-2 pid=4711 event=scheduler-gone lease=3 ...
 *
 * Programs that do not call gp_log_setup() (commands, library users) log for people: "warning: "
 * followed by the message.
 *
 * The log is rate-limited by event name (throttle.h), so an event storm cannot fill the disk. The
 * number of suppressed lines is logged as event=held-back when the time window ends. A log file
 * that exceeds the size limit is renamed to FILE.1, replacing an earlier FILE.1. */
#ifndef GP_LOG_H
#define GP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_LOG_FILE_BYTES_MAX = 8 << 20 }; /* FILE size limit; FILE.1 can take as much again */

typedef enum gp_log_level { GP_LOG_DEBUG, GP_LOG_INFO, GP_LOG_WARN, GP_LOG_ERROR } gp_log_level;

/* Additional key=value field of an event. */
typedef struct gp_log_field {
    const char *key;  /* characters a-z, 0-9 and '-'; NULL ends a list */
    int64_t number;   /* value, if text is NULL */
    const char *text; /* value; NULL: use `number` */
} gp_log_field;

/* Build a field list: GP_LOG_WITH({ "worker", .number = index }, { "why", .text = reason }) */
#define GP_LOG_WITH(...) ((const gp_log_field[]){ __VA_ARGS__, { .key = NULL } })

/* Switch this process to the machine-readable form.
 *   who    name of the process, such as "scheduler" or "worker-2"; copied
 *   level  lowest level to log; GRADPOOL_LOG=debug|info|warn|error overrides it
 * Without this call, warnings and errors are logged for people. */
void gp_log_setup(const char *who, gp_log_level level);

/* Return whether events at this level are logged. Use it to skip costly preparations. */
bool gp_log_is_shown(gp_log_level level);

/* Limit the size of the log file. No effect if standard error is not the file `path`.
 *   path       log file; renamed to path.1 when it exceeds the limit
 *   bytes_max  approximate size limit
 *   owner      true: this process renames the file; false: it only reopens the file after another
 *              process has renamed it (several processes can share a log file) */
void gp_log_keep(const char *path, uint64_t bytes_max, bool owner);

/* Write the log to the descriptor `fd` instead of standard error, so that standard error can be
 * redirected. `fd` must stay open while this process logs. gp_log_tick() redirects it when the log
 * file was renamed. STDERR_FILENO: write to standard error again. */
void gp_log_use_fd(int fd);

/* Log an event.
 *   event   constant with characters a-z, 0-9 and '-'; names the event kind and never the object
 *   fields  additional fields; NULL: none
 *   format  printf format for a message to people */
void gp_log_event(gp_log_level level, const char *event, const gp_log_field *fields, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define gp_log(level, event, ...) gp_log_event(level, event, NULL, __VA_ARGS__)

/* Read part of a log. path.1 and path are treated as one file, in this order.
 *   offset  first byte to read
 *   size    set to the total size; UINT64_MAX: neither file exists
 *   file    set to the current file's id, which changes when the file is replaced; 0: none.
 *           NULL: not wanted
 * Return how many bytes were read. 0: end of log, or the files cannot be read. */
size_t gp_log_read(const char *path, void *to, size_t bytes, uint64_t offset, uint64_t *size, uint64_t *file);

/* Do periodic work: report suppressed lines, and check the log file size. Daemons call this
 * function in each event loop iteration. */
void gp_log_tick(void);

#endif
