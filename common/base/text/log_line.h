/* Format and parse a log line with key=value words (logfmt). Pure functions, no I/O.
 *
 *   time=2026-11-21T09:30:00.123Z level=warn who=worker-2 pid=4711 event=scheduler-gone lease=3 ...
 *
 * A value is written unquoted if it is not empty and only has characters '!' to '~' without quote,
 * backslash and '='. Other values are quoted. In quotes, \" \\ \n \r \t are escapes, and \xNN
 * stands for each byte in invalid UTF-8 and in characters that terminals interpret (controls, line
 * separators, direction changes). A value can therefore never end the line or imitate another word.
 * A value that is too long is cut at a character boundary and ends with "...". */
#ifndef GP_LOG_LINE_H
#define GP_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* limits for a line and for a usual value */
enum { GP_LOG_LINE_BYTES = 2048, GP_LOG_VALUE_BYTES = 200 };

/* A line under construction. Initialize `bytes` with 0. */
typedef struct gp_log_line {
    char text[GP_LOG_LINE_BYTES];
    size_t bytes;
} gp_log_line;

/* Append a word. A word that does not fit in the line is omitted.
 *   key        characters a-z, 0-9 and '-'
 *   value      any text
 *   bytes_max  written value limit, without quotes */
void gp_log_line_put(gp_log_line *line, const char *key, const char *value, size_t bytes_max);

/* Append a word with a number as value. */
void gp_log_line_put_integer(gp_log_line *line, const char *key, int64_t value);

/* Append the newline. No word may follow. */
void gp_log_line_end(gp_log_line *line);

/* Find a word in a line and copy its unescaped value, truncated to `bytes` with the NUL.
 *   line  ends with a newline or a NUL
 * false: the line has no such word, or is not a log line. */
bool gp_log_line_get(const char *line, const char *key, char *out, size_t bytes);

#endif
