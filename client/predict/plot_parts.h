/* Drawing functions that the charts share. Coordinates are pixels from the upper left corner; parts
 * outside the picture are ignored. */
#ifndef GP_PLOT_PARTS_H
#define GP_PLOT_PARTS_H

#include <stdbool.h>

#include "client/predict/plot.h"

enum {
    GLYPH_WIDTH = 5,
    GLYPH_HEIGHT = 7,
    SCALE = 2,                           /* pixels per glyph dot */
    ADVANCE = (GLYPH_WIDTH + 1) * SCALE, /* pixels between two letters' left edges */
    LINE = (GLYPH_HEIGHT + 3) * SCALE,   /* pixels between two line tops */
};
enum { PLOT_BLACK = 0x202020, PLOT_GREY = 0xdddddd };

/* Fill a rectangle. */
void plot_box(plot *p, int left, int top, int width, int height, uint32_t colour);

/* Draw a line as a row of squares with side `stroke`, in pixels. */
void plot_segment(plot *p, double x0, double y0, double x1, double y1, int stroke, uint32_t colour);

/* Return the width of a text in pixels. */
int plot_text_width(const char *text);

/* Draw text at (x, y). up: draw upwards from y, rotated by 90 degrees. */
void plot_text(plot *p, int x, int y, bool up, const char *text, uint32_t colour);

#endif
