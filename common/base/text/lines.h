/* Split a stream of bytes into lines of bounded length. Bytes are not interpreted: a line may
 * contain NUL bytes and invalid UTF-8. */
#ifndef GP_LINES_H
#define GP_LINES_H

#include <stddef.h>

enum { GP_LINE_BYTES_MAX = 4096 }; /* a longer line is split into lines of this length */

/* Splitter with the bytes of an incomplete line. Initialize with zeros. */
typedef struct gp_lines {
    size_t used; /* bytes in `text` */
    char text[GP_LINE_BYTES_MAX];
} gp_lines;

/* Callback for each line, without the newline. `text` is valid during the call and not terminated
 * by NUL. */
typedef void (*gp_line_fn)(void *context, const char *text, size_t bytes);

/* Pass each line that these bytes complete to `line`, and keep an incomplete line for the next
 * call. */
void gp_lines_feed(gp_lines *lines, const void *data, size_t bytes, gp_line_fn line, void *context);

/* Pass the incomplete line to `line`, if there is one. */
void gp_lines_flush(gp_lines *lines, gp_line_fn line, void *context);

#endif
