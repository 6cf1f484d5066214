/* log_line.h -- a line of key=value words, as logfmt has them; pure.
 *
 *   time=2026-11-21T09:30:00.123Z level=warn who=worker-2 pid=4711 event=scheduler-gone lease=3 msg="the lease goes on"
 *
 * A value stands as it is if it has one byte or more and all are of ! to ~ without " \ and =.  Else it stands in quotes, with \"
 * \\ \n \r \t, and \xNN for each byte of what else is no character of valid UTF-8, or one that a terminal obeys (controls, ends
 * of lines and turns of direction).  So a line is one line whatever its values are, and no value can look like a word of its own.
 * What is too long is cut at a character and ends with "...". */
#ifndef GP_LOG_LINE_H
#define GP_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_LOG_LINE_BYTES = 2048, GP_LOG_VALUE_BYTES = 200 };

typedef struct gp_log_line {
    char text[GP_LOG_LINE_BYTES];
    size_t bytes;
} gp_log_line;

/* key: of a-z, 0-9 and -.  bytes_max: of the value with its quotes; the line's own end is a ceiling too. */
void gp_log_line_put(gp_log_line *line, const char *key, const char *value, size_t bytes_max);
void gp_log_line_put_integer(gp_log_line *line, const char *key, int64_t value);
/* The newline; nothing is put afterwards. */
void gp_log_line_end(gp_log_line *line);

/* The value of that key as it was put, in out, NUL-terminated and cut to its size.  False: the line, which ends with a
 * newline or a NUL, has none. */
bool gp_log_line_get(const char *line, const char *key, char *out, size_t bytes);

#endif
