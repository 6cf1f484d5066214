/* plot.h: draw charts as PNG files: lines with axes and legend, bars, parallel coordinates, and a
 * confusion matrix. */
#ifndef GP_PLOT_H
#define GP_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/metrics.h"

enum { PLOT_COLOURS = 8 }; /* series i has color i % PLOT_COLOURS */

typedef struct plot {
    int width, height; /* in pixels */
    uint8_t *rgb;      /* rows from the top */
} plot;

/* Create a white picture. Release it with plot_free(). NULL: out of memory, or a size out of
 * range. */
plot *plot_new(int width, int height);
void plot_free(plot *picture); /* accepts NULL */

/* Picture area that a chart fills, in pixels. */
typedef struct plot_area {
    int left, top, width, height;
} plot_area;

typedef struct plot_names {
    /* lower case is drawn as upper case; characters not in the font as a box */
    const char *title, *x, *y;
} plot_names;

typedef struct plot_series {
    const char *name;
    const double *x, *y; /* points that are not finite are skipped */
    size_t count;
    bool marks_only; /* no lines between the points */
} plot_series;

/* Draw lines with a mark at each point, axes with round numbers, and a legend at the lower
 * right. */
void plot_lines(plot *picture, plot_area area, const plot_names *words, const plot_series *series,
                size_t count);

/* Draw one bar per value, with the name below and the value above. The axis starts at 0. */
void plot_bars(plot *picture, plot_area area, const plot_names *words, const char *const *names,
               const double *values, size_t count);

/* Labelled position on a vertical axis. */
typedef struct plot_label {
    double at; /* 0: bottom, 1: top */
    const char *text;
} plot_label;

/* Vertical axis of parallel coordinates. */
typedef struct plot_axis {
    const char *name;
    const plot_label *labels;
    size_t label_count;
} plot_axis;

/* Draw parallel coordinates: one vertical axis per value of a row, and one line per row across all
 * axes. The last row is drawn in a color of its own, on top of the others.
 *   positions  [row_count, axis_count], from 0 to 1 on the axis; NaN: the row has no such value,
 *              and its line has a gap
 *   shades     [row_count], from 0, grey, to 1, blue */
void plot_parallel(plot *picture, plot_area area, const char *title, const plot_axis *axes, size_t axis_count,
                   const double *positions, const double *shades, size_t row_count);

/* Create a picture of a confusion matrix with one square per count. Darker squares have a larger
 * share of their row; the diagonal is blue and the rest red. Up to PLOT_MATRIX_NAMES_MAX classes
 * have names and numbers. With more classes there are only squares, of at least one pixel. NULL:
 * out of memory. */
enum { PLOT_MATRIX_NAMES_MAX = 32 };
plot *plot_matrix_new(const gp_confusion *matrix, const char *title);

/* Write the picture as PNG, completely or not at all. */
gp_status plot_write(const plot *picture, const char *path, gp_error *err);

/* Compute round axis numbers between low and high; the step is 1, 2 or 5 times a power of ten.
 *   most   limit for the count
 *   first  set to the lowest number
 *   step   set to the distance
 * Return the count. */
int plot_ticks(double low, double high, int most, double *first, double *step);

#endif
