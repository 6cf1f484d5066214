/* plot.h -- charts as PNG files: lines over axes, bars, a legend, a confusion matrix. */
#ifndef GP_PLOT_H
#define GP_PLOT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/metrics.h"

enum { PLOT_COLOURS = 8 }; /* series i has colour i % PLOT_COLOURS */

typedef struct plot plot;

/* A white picture, freed by plot_free(); NULL: no memory. */
plot *plot_new(int width, int height);
void plot_free(plot *picture); /* accepts NULL */

/* The part of a picture that a chart fills, in pixels. */
typedef struct plot_area {
    int left, top, width, height;
} plot_area;

typedef struct plot_words {
    const char *title, *x, *y; /* small letters are drawn as capitals; what the font does not have as a box */
} plot_words;

typedef struct plot_series {
    const char *name;
    const double *x, *y; /* points that are not finite are left out */
    size_t count;
} plot_series;

/* Lines with a mark at each point; both axes have round numbers, the legend stands at the lower right. */
void plot_lines(plot *picture, plot_area area, const plot_words *words, const plot_series *series,
                size_t count);

/* One bar a value, its name below and its value above; the axis begins at 0. */
void plot_bars(plot *picture, plot_area area, const plot_words *words, const char *const *names,
               const double *values, size_t count);

/* A picture of its own: a square for each count, the darker the larger its share of its row, blue on the diagonal and red beside
 * it.  Up to PLOT_MATRIX_NAMES_MAX classes have their names and numbers; of more there are only squares, of a pixel or more.
 * NULL: no memory. */
enum { PLOT_MATRIX_NAMES_MAX = 32 };
plot *plot_matrix_new(const gp_confusion *matrix, const char *title);

int plot_width(const plot *picture);
int plot_height(const plot *picture);

/* Whole or not at all. */
gp_status plot_write(const plot *picture, const char *path, gp_error *err);

/* Round numbers from low to high, both inside: the step is 1, 2 or 5 times a power of ten.  Returns how many there are
 * (at most `most`); *first is the lowest. */
int plot_ticks(double low, double high, int most, double *first, double *step);

/* The colour of a pixel as 0xRRGGBB: for tests. */
uint32_t plot_pixel(const plot *picture, int x, int y);

#endif
