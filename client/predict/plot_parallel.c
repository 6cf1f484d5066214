/* Parallel coordinates: rows of values as lines across vertical axes (Inselberg, The plane with
 * parallel coordinates, 1985). */
#include <math.h>
#include <stdio.h>

#include "client/predict/plot_parts.h"

enum { MARK = 7, NAME_LETTERS_MAX = 64, LAST_ROW = 0xd9541e };

/* Return the x coordinate of an axis. */
static int axis_x(const plot_area *frame, size_t axis, size_t count)
{
    return count < 2 ? frame->left + frame->width / 2
                     : frame->left + (int)lround((double)frame->width * (double)axis / (double)(count - 1));
}

static double axis_y(const plot_area *frame, double at)
{
    return frame->top + (1 - at) * frame->height;
}

/* Draw a text centred at x, cut to `width` pixels, inside the picture. */
static void text_centre(plot *p, int x, int y, int width, const char *text)
{
    char cut[NAME_LETTERS_MAX + 1];
    int letters = width / ADVANCE < NAME_LETTERS_MAX ? width / ADVANCE : NAME_LETTERS_MAX;

    int left;

    snprintf(cut, sizeof(cut), "%.*s", letters, text);
    left = x - plot_text_width(cut) / 2;
    if (left + plot_text_width(cut) > p->width)
        left = p->width - plot_text_width(cut);
    plot_text(p, left < 0 ? 0 : left, y, false, cut, PLOT_BLACK);
}

/* Mix two colors. share: 0: the first one, 1: the second one. */
static uint32_t mix(uint32_t a, uint32_t b, double share)
{
    uint32_t colour = 0;

    for (int shift = 16; shift >= 0; shift -= 8) {
        const double x = a >> shift & 0xff, y = b >> shift & 0xff;

        colour |= (uint32_t)lround(x + share * (y - x)) << shift;
    }
    return colour;
}

/* Draw the line of a row. A value between two gaps is drawn as a mark only. */
static void row_draw(plot *p, const plot_area *frame, const double *positions, size_t count, int stroke,
                     uint32_t colour)
{
    for (size_t i = 0; i < count; i++) {
        const int x = axis_x(frame, i, count);
        const double y = axis_y(frame, positions[i]);

        if (isnan(positions[i]))
            continue;
        if (i > 0 && !isnan(positions[i - 1]))
            plot_segment(p, axis_x(frame, i - 1, count), axis_y(frame, positions[i - 1]), x, y, stroke,
                         colour);
        else if (i + 1 == count || isnan(positions[i + 1]))
            plot_box(p, x - MARK / 2, (int)lround(y) - MARK / 2, MARK, MARK, colour);
    }
}

void plot_parallel(plot *picture, plot_area area, const char *title, const plot_axis *axes, size_t axis_count,
                   const double *positions, const double *shades, size_t row_count)
{
    const int margin = 8 * ADVANCE, top = 4 * LINE, bottom = LINE;
    const plot_area frame = { area.left + margin, area.top + top, area.width - 2 * margin,
                              area.height - top - bottom };
    const int room = axis_count < 2 ? area.width : frame.width / (int)(axis_count - 1);

    text_centre(picture, area.left + area.width / 2, area.top + SCALE, area.width, title);
    for (size_t row = 0; row < row_count; row++) {
        const double shade = fmin(fmax(isnan(shades[row]) ? 0 : shades[row], 0), 1);
        const bool last = row + 1 == row_count;

        row_draw(picture, &frame, positions + row * axis_count, axis_count, last ? 5 : 2,
                 last ? LAST_ROW : mix(PLOT_GREY, 0x1f6fb4, shade));
    }
    for (size_t i = 0; i < axis_count; i++) {
        const int x = axis_x(&frame, i, axis_count);

        plot_box(picture, x - SCALE / 2, frame.top, SCALE, frame.height, PLOT_BLACK);
        /* The names alternate between two lines, so that each has twice the width. */
        text_centre(picture, x, frame.top - (i % 2 == 0 ? 2 : 1) * LINE - SCALE * 3, 2 * room - ADVANCE,
                    axes[i].name);
        for (size_t k = 0; k < axes[i].label_count; k++) {
            const int y = (int)lround(axis_y(&frame, axes[i].labels[k].at));
            const int width = plot_text_width(axes[i].labels[k].text) + 2 * SCALE;

            plot_box(picture, x - 2 * SCALE, y, 4 * SCALE, SCALE, PLOT_BLACK);
            /* Draw a white background, so that the lines of the rows do not cross the text. */
            plot_box(picture, x + 3 * SCALE, y - LINE / 2, width, LINE, 0xffffff);
            plot_text(picture, x + 4 * SCALE, y - GLYPH_HEIGHT * SCALE / 2, false, axes[i].labels[k].text,
                      PLOT_BLACK);
        }
    }
}
