#include "common/base/text/lines.h"

#include <stdbool.h>
#include <string.h>

/* Pass the collected bytes on as one line. */
static void lines_end(gp_lines *lines, gp_line_fn line, void *context)
{
    size_t bytes = lines->used;

    lines->used = 0;
    line(context, lines->text, bytes);
}

void gp_lines_feed(gp_lines *lines, const void *data, size_t bytes, gp_line_fn line, void *context)
{
    const char *at = data;

    while (bytes > 0) {
        const char *newline = memchr(at, '\n', bytes);
        size_t length = newline != NULL ? (size_t)(newline - at) : bytes;
        size_t room = GP_LINE_BYTES_MAX - lines->used;
        size_t taken = length < room ? length : room;
        bool whole = newline != NULL && taken == length;

        if (whole && lines->used == 0) {
            line(context, at, length); /* the usual case needs no copy */
        } else {
            memcpy(lines->text + lines->used, at, taken);
            lines->used += taken;
            if (whole || taken < length)
                lines_end(lines, line, context);
        }
        taken += whole ? 1 : 0;
        at += taken;
        bytes -= taken;
    }
}

void gp_lines_flush(gp_lines *lines, gp_line_fn line, void *context)
{
    if (lines->used > 0)
        lines_end(lines, line, context);
}
