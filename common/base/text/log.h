/* log.h -- one event per line, one write(2) per event, to standard error.
 *
 * Of daemons, whose standard error is their own log file, which every error that a user sees names (log_line.h has the form):
 *
 *   time=2026-11-21T09:30:00.123Z level=warn who=worker-2 pid=4711 event=scheduler-gone lease=3 msg="the lease goes on"
 *
 * Of programs that called no gp_log_setup(), commands and those that use the library, for people: "warning: a sentence".
 *
 * Events are throttled by name (throttle.h): a storm fills no disk, and how many lines were left out is told as
 * event=held-back when its window ends.  A file that has grown too large is put aside, once: FILE.1. */
#ifndef GP_LOG_H
#define GP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_LOG_FILE_BYTES_MAX = 8 << 20 }; /* and as much in FILE.1 */

typedef enum gp_log_level { GP_LOG_DEBUG, GP_LOG_INFO, GP_LOG_WARN, GP_LOG_ERROR } gp_log_level;

/* A word of an event's line. */
typedef struct gp_log_field {
    const char *key; /* of a-z, 0-9 and -; NULL ends a list */
    int64_t number;
    const char *text; /* not NULL: it stands instead of the number */
} gp_log_field;

/* GP_LOG_WITH({ "worker", .number = index }, { "why", .text = reason }) */
#define GP_LOG_WITH(...) ((const gp_log_field[]){ __VA_ARGS__, { .key = NULL } })

/* Who speaks ("scheduler", "worker-2"; copied) and from which level on.  GRADPOOL_LOG=debug|info|
 * warn|error overrides the level.  Default: a command, warn. */
void gp_log_setup(const char *who, gp_log_level level);

/* Whether events of that level are written: for what is costly to find out. */
bool gp_log_tells(gp_log_level level);

/* Standard error is the file `path`, of at most about `bytes_max` bytes: what is written beyond that goes to a new one, and the
 * old one is path.1 from then on.  Nothing happens if standard error is another file.
 *   owner   this process puts the file aside; false: it follows when another has (several may write to one file) */
void gp_log_keep(const char *path, uint64_t bytes_max, bool owner);

/* event: a constant of a-z, 0-9 and -, the same for whatever it happens to; fields: may be NULL; format: a sentence for people. */
void gp_log_event(gp_log_level level, const char *event, const gp_log_field *fields, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define gp_log(level, event, ...) gp_log_event(level, event, NULL, __VA_ARGS__)

/* A piece of what was logged to `path`, as if what was put aside and the present file were one: path.1, then path.
 *   size   of both together; UINT64_MAX: there is neither
 *   file   tells the present one from others; 0 = none.  NULL: not asked
 * Returns how many bytes from `offset` on were read, at most `bytes`; 0 at the end, or where it cannot be read. */
size_t gp_log_read(const char *path, void *to, size_t bytes, uint64_t offset, uint64_t *size, uint64_t *file);

/* What is due: counts of what was held back, a file that is too large.  In each turn of a daemon's loop. */
void gp_log_tick(void);

#endif
