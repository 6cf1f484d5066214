#include "client/predict/plot.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/predict/plot_parts.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/image/image.h"

enum { TICKS_MAX = 8, WIDTH_MAX = 1 << 14 };

static const uint32_t colours[PLOT_COLOURS] = { 0x1f6fb4, 0xd9541e, 0x2f9e44, 0x9c36b5,
                                                0xe0a100, 0x0c8599, 0xc2255c, 0x5c5f66 };
static const uint32_t black = PLOT_BLACK, grey = PLOT_GREY;

/* Bitmap font: rows from the top, leftmost dot in bit 4. */
static const struct glyph {
    char letter;
    uint8_t row[GLYPH_HEIGHT];
} glyphs[] = {
    { '0', { 14, 17, 19, 21, 25, 17, 14 } }, { '1', { 4, 12, 4, 4, 4, 4, 14 } },
    { '2', { 14, 17, 1, 6, 8, 16, 31 } },    { '3', { 14, 17, 1, 6, 1, 17, 14 } },
    { '4', { 2, 6, 10, 18, 31, 2, 2 } },     { '5', { 31, 16, 30, 1, 1, 17, 14 } },
    { '6', { 6, 8, 16, 30, 17, 17, 14 } },   { '7', { 31, 1, 2, 4, 8, 8, 8 } },
    { '8', { 14, 17, 17, 14, 17, 17, 14 } }, { '9', { 14, 17, 17, 15, 1, 2, 12 } },
    { 'A', { 14, 17, 17, 31, 17, 17, 17 } }, { 'B', { 30, 17, 17, 30, 17, 17, 30 } },
    { 'C', { 14, 17, 16, 16, 16, 17, 14 } }, { 'D', { 30, 17, 17, 17, 17, 17, 30 } },
    { 'E', { 31, 16, 16, 30, 16, 16, 31 } }, { 'F', { 31, 16, 16, 30, 16, 16, 16 } },
    { 'G', { 14, 17, 16, 23, 17, 17, 15 } }, { 'H', { 17, 17, 17, 31, 17, 17, 17 } },
    { 'I', { 14, 4, 4, 4, 4, 4, 14 } },      { 'J', { 7, 2, 2, 2, 2, 18, 12 } },
    { 'K', { 17, 18, 20, 24, 20, 18, 17 } }, { 'L', { 16, 16, 16, 16, 16, 16, 31 } },
    { 'M', { 17, 27, 21, 21, 17, 17, 17 } }, { 'N', { 17, 25, 21, 19, 17, 17, 17 } },
    { 'O', { 14, 17, 17, 17, 17, 17, 14 } }, { 'P', { 30, 17, 17, 30, 16, 16, 16 } },
    { 'Q', { 14, 17, 17, 17, 21, 18, 13 } }, { 'R', { 30, 17, 17, 30, 20, 18, 17 } },
    { 'S', { 15, 16, 16, 14, 1, 1, 30 } },   { 'T', { 31, 4, 4, 4, 4, 4, 4 } },
    { 'U', { 17, 17, 17, 17, 17, 17, 14 } }, { 'V', { 17, 17, 17, 17, 17, 10, 4 } },
    { 'W', { 17, 17, 17, 21, 21, 27, 17 } }, { 'X', { 17, 17, 10, 4, 10, 17, 17 } },
    { 'Y', { 17, 17, 10, 4, 4, 4, 4 } },     { 'Z', { 31, 1, 2, 4, 8, 16, 31 } },
    { '.', { 0, 0, 0, 0, 0, 12, 12 } },      { ',', { 0, 0, 0, 0, 12, 4, 8 } },
    { ':', { 0, 12, 12, 0, 12, 12, 0 } },    { '-', { 0, 0, 0, 31, 0, 0, 0 } },
    { '+', { 0, 4, 4, 31, 4, 4, 0 } },       { '/', { 1, 1, 2, 4, 8, 16, 16 } },
    { '%', { 24, 25, 2, 4, 8, 19, 3 } },     { '(', { 2, 4, 8, 8, 8, 4, 2 } },
    { ')', { 8, 4, 2, 2, 2, 4, 8 } },        { '=', { 0, 0, 31, 0, 31, 0, 0 } },
    { '_', { 0, 0, 0, 0, 0, 0, 31 } },       { ' ', { 0, 0, 0, 0, 0, 0, 0 } },
};
static const struct glyph unknown = { '?', { 31, 17, 17, 17, 17, 17, 31 } };

/* ---- pixels ---- */

plot *plot_new(int width, int height)
{
    plot *picture = gp_calloc(1, sizeof(*picture));

    if (picture == NULL || width < 1 || width > WIDTH_MAX || height < 1 || height > WIDTH_MAX) {
        gp_free(picture);
        return NULL;
    }
    *picture = (plot){ width, height, gp_malloc((size_t)width * (size_t)height * 3) };
    if (picture->rgb == NULL) {
        gp_free(picture);
        return NULL;
    }
    memset(picture->rgb, 0xff, (size_t)width * (size_t)height * 3);
    return picture;
}

void plot_free(plot *picture)
{
    if (picture == NULL)
        return;
    gp_free(picture->rgb);
    gp_free(picture);
}

void plot_box(plot *p, int left, int top, int width, int height, uint32_t colour)
{
    for (int y = top < 0 ? 0 : top; y < top + height && y < p->height; y++)
        for (int x = left < 0 ? 0 : left; x < left + width && x < p->width; x++) {
            uint8_t *pixel = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;

            pixel[0] = (uint8_t)(colour >> 16);
            pixel[1] = (uint8_t)(colour >> 8);
            pixel[2] = (uint8_t)colour;
        }
}

void plot_segment(plot *p, double x0, double y0, double x1, double y1, int stroke, uint32_t colour)
{
    const int steps = (int)ceil(fmax(fabs(x1 - x0), fabs(y1 - y0))) + 1;

    for (int i = 0; i <= steps; i++) {
        const double t = (double)i / steps;

        plot_box(p, (int)lround(x0 + t * (x1 - x0)) - stroke / 2,
                 (int)lround(y0 + t * (y1 - y0)) - stroke / 2, stroke, stroke, colour);
    }
}

/* Return whether a byte continues a UTF-8 character. Such bytes draw nothing, so an unknown
 * character is one box. */
static bool goes_on(char letter)
{
    return ((unsigned char)letter & 0xc0) == 0x80;
}

int plot_text_width(const char *text)
{
    int width = -SCALE;

    for (; *text != '\0'; text++)
        width += goes_on(*text) ? 0 : ADVANCE;
    return width;
}

void plot_text(plot *p, int x, int y, bool up, const char *text, uint32_t colour)
{
    for (; *text != '\0'; text++) {
        const struct glyph *glyph = &unknown;

        if (goes_on(*text))
            continue;
        for (size_t i = 0; i < sizeof(glyphs) / sizeof(glyphs[0]); i++)
            if (glyphs[i].letter == toupper((unsigned char)*text))
                glyph = &glyphs[i];
        for (int row = 0; row < GLYPH_HEIGHT; row++)
            for (int column = 0; column < GLYPH_WIDTH; column++)
                if (glyph->row[row] >> (GLYPH_WIDTH - 1 - column) & 1)
                    plot_box(p, x + (up ? row : column) * SCALE,
                             up ? y - (column + 1) * SCALE : y + row * SCALE, SCALE, SCALE, colour);
        x += up ? 0 : ADVANCE;
        y -= up ? ADVANCE : 0;
    }
}

/* ---- axes ---- */

int plot_ticks(double low, double high, int most, double *first, double *step)
{
    static const double round_ones[] = { 1, 2, 5, 10 };
    double unit;

    if (!(high > low))
        high = low + 1;
    unit = pow(10, floor(log10((high - low) / most)));
    for (int i = 0; i < 4; i++) {
        *step = unit * round_ones[i];
        *first = ceil(low / *step - 1e-9) * *step;
        int count = (int)floor((high - *first) / *step + 1e-9) + 1;

        if (count <= most)
            return count;
    }
    return 0; /* not reached: a step of ten units always fits */
}

typedef struct axes {
    plot_area frame;
    double x_low, x_high, y_low, y_high;
} axes;

static double place_x(const axes *a, double x)
{
    return a->frame.left + (x - a->x_low) / (a->x_high - a->x_low) * a->frame.width;
}

static double place_y(const axes *a, double y)
{
    return a->frame.top + a->frame.height - (y - a->y_low) / (a->y_high - a->y_low) * a->frame.height;
}

/* Draw the title, the frame, the axis labels and the y axis numbers.
 *   x_numbers  also draw the x axis numbers */
static void axes_draw(plot *p, const axes *a, const plot_area *area, const plot_names *words, bool x_numbers)
{
    const plot_area *f = &a->frame;
    double first, step;
    char text[32];
    int count = plot_ticks(a->y_low, a->y_high, TICKS_MAX, &first, &step);

    plot_text(p, f->left + (f->width - plot_text_width(words->title)) / 2, area->top + SCALE, false,
              words->title, black);
    plot_text(p, area->left + SCALE, area->top + LINE + SCALE, false, words->y, black);
    plot_text(p, f->left + (f->width - plot_text_width(words->x)) / 2, area->top + area->height - LINE, false,
              words->x, black);
    for (int i = 0; i < count; i++) {
        const int y = (int)lround(place_y(a, first + i * step));

        plot_box(p, f->left, y, f->width, 1, grey);
        snprintf(text, sizeof(text), "%.6g", fabs(first + i * step) < step / 2 ? 0.0 : first + i * step);
        plot_text(p, f->left - plot_text_width(text) - 4 * SCALE, y - GLYPH_HEIGHT * SCALE / 2, false, text,
                  black);
    }
    count = x_numbers ? plot_ticks(a->x_low, a->x_high, TICKS_MAX, &first, &step) : 0;
    for (int i = 0; i < count; i++) {
        const int x = (int)lround(place_x(a, first + i * step));

        plot_box(p, x, f->top, 1, f->height, grey);
        snprintf(text, sizeof(text), "%.6g", fabs(first + i * step) < step / 2 ? 0.0 : first + i * step);
        plot_text(p, x - plot_text_width(text) / 2, f->top + f->height + 3 * SCALE, false, text, black);
    }
    plot_box(p, f->left, f->top, SCALE, f->height, black);
    plot_box(p, f->left, f->top + f->height, f->width, SCALE, black);
}

/* Return the area that remains after title, labels and numbers. */
static plot_area frame_of(const plot_area *area)
{
    const int left = 8 * ADVANCE, top = 3 * LINE, right = 2 * ADVANCE, bottom = 3 * LINE;

    return (plot_area){ area->left + left, area->top + top, area->width - left - right,
                        area->height - top - bottom };
}

/* ---- charts ---- */

static void range_add(double value, double *low, double *high)
{
    if (!isfinite(value))
        return;
    *low = value < *low ? value : *low;
    *high = value > *high ? value : *high;
}

static void series_draw(plot *p, const axes *a, const plot_series *series, uint32_t colour)
{
    enum { MARK = 7 };
    bool before = false;
    double last_x = 0, last_y = 0;

    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->x[i]) || !isfinite(series->y[i]))
            continue;
        const double x = place_x(a, series->x[i]), y = place_y(a, series->y[i]);

        if (before && !series->marks_only)
            plot_segment(p, last_x, last_y, x, y, 3, colour);
        plot_box(p, (int)lround(x) - MARK / 2, (int)lround(y) - MARK / 2, MARK, MARK, colour);
        last_x = x;
        last_y = y;
        before = true;
    }
}

void plot_lines(plot *picture, plot_area area, const plot_names *words, const plot_series *series,
                size_t count)
{
    axes a = { frame_of(&area), INFINITY, -INFINITY, INFINITY, -INFINITY };
    int wide = 0, top;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < series[i].count; k++) {
            range_add(series[i].x[k], &a.x_low, &a.x_high);
            range_add(series[i].y[k], &a.y_low, &a.y_high);
        }
    if (!(a.x_high >= a.x_low) || !(a.y_high >= a.y_low))
        a.x_low = a.y_low = 0, a.x_high = a.y_high = 1; /* no points: draw an empty chart */
    a.x_low = a.x_low > 0 ? 0 : a.x_low;
    if (a.x_high <= a.x_low)
        a.x_high = a.x_low + 1;
    if (a.y_high - a.y_low < 1e-9 * fmax(1, fabs(a.y_high)))
        a.y_low -= 0.5, a.y_high += 0.5;
    axes_draw(picture, &a, &area, words, true);

    /* the curves, then the legend */
    for (size_t i = 0; i < count; i++) {
        series_draw(picture, &a, &series[i], colours[i % PLOT_COLOURS]);
        wide = plot_text_width(series[i].name) > wide ? plot_text_width(series[i].name) : wide;
    }
    top = a.frame.top + a.frame.height - (int)count * LINE - LINE / 2;
    for (size_t i = 0; i < count; i++, top += LINE) {
        const int left = a.frame.left + a.frame.width - wide - 2 * ADVANCE;

        plot_box(picture, left - 3 * ADVANCE, top + GLYPH_HEIGHT, 2 * ADVANCE, 4, colours[i % PLOT_COLOURS]);
        plot_text(picture, left, top, false, series[i].name, black);
    }
}

void plot_bars(plot *picture, plot_area area, const plot_names *words, const char *const *names,
               const double *values, size_t count)
{
    axes a = { frame_of(&area), 0, (double)count, 0, 0 };
    char text[32];

    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i]) && values[i] * 1.1 > a.y_high)
            a.y_high = values[i] * 1.1; /* leave room for the number above the bar */
    if (a.y_high <= 0)
        a.y_high = 1;
    axes_draw(picture, &a, &area, words, false);
    for (size_t i = 0; i < count; i++) {
        const int left = (int)place_x(&a, (double)i + 0.2), right = (int)place_x(&a, (double)i + 0.8),
                  middle = (left + right) / 2, bottom = a.frame.top + a.frame.height;
        const int top = isfinite(values[i]) ? (int)lround(place_y(&a, values[i])) : bottom;

        plot_box(picture, left, top, right - left, bottom - top, colours[i % PLOT_COLOURS]);
        snprintf(text, sizeof(text), fabs(values[i]) < 1000 ? "%.3g" : "%.0f", values[i]);
        plot_text(picture, middle - plot_text_width(text) / 2, top - LINE + SCALE, false, text, black);
        plot_text(picture, middle - plot_text_width(names[i]) / 2, bottom + 3 * SCALE, false, names[i],
                  black);
    }
}

/* ---- confusion matrix ---- */

enum { NAME_LETTERS_MAX = 24, CELL_MIN = 40, SQUARES_SIDE = 1024, MARGIN = 8 };

typedef struct matrix_layout {
    int cell;         /* square side in pixels */
    int left, top;    /* position where the first square starts */
    int side;         /* matrix side in pixels */
    bool has_numbers; /* the picture shows numbers and class names */
} matrix_layout;

/* Copy a name, cut to NAME_LETTERS_MAX characters. */
static void name_cut(char *out, size_t bytes, const char *name)
{
    size_t used = 0;
    int letters = 0;

    for (; name[used] != '\0' && used + 1 < bytes; used++) {
        letters += !goes_on(name[used]);
        if (letters > NAME_LETTERS_MAX)
            break;
        out[used] = name[used];
    }
    out[used] = '\0';
}

/* Compute the layout: squares that fit the largest number, or without numbers fill SQUARES_SIDE. */
static matrix_layout layout_of(const gp_confusion *matrix)
{
    const int classes = (int)matrix->class_count;
    matrix_layout m = { .has_numbers = classes <= PLOT_MATRIX_NAMES_MAX };
    char text[4 * NAME_LETTERS_MAX + 1];
    int name = 0;

    if (!m.has_numbers) {
        m.cell = SQUARES_SIDE / classes > 1 ? SQUARES_SIDE / classes : 1;
        m.left = 2 * LINE;
        m.top = 2 * LINE;
    } else {
        m.cell = CELL_MIN;
        for (int i = 0; i < classes * classes; i++) {
            snprintf(text, sizeof(text), "%llu", (unsigned long long)matrix->counts[i]);
            m.cell = plot_text_width(text) + MARGIN > m.cell ? plot_text_width(text) + MARGIN : m.cell;
        }
        for (int i = 0; i < classes; i++) {
            name_cut(text, sizeof(text), matrix->class_names[i]);
            name = plot_text_width(text) > name ? plot_text_width(text) : name;
        }
        m.left = 2 * LINE + name + MARGIN;
        m.top = 2 * LINE;
    }
    m.side = m.cell * classes;
    return m;
}

/* Return the square color: white for share 0 to dark for share 1; blue on the diagonal,
 * red beside it. */
static uint32_t shade_of(double share, bool on_diagonal)
{
    static const int dark[2][3] = { { 0xb0, 0x2a, 0x1a }, { 0x12, 0x4e, 0x8c } };
    uint32_t colour = 0;

    for (int c = 0; c < 3; c++)
        colour = colour << 8 | (uint32_t)lround(255 + share * (dark[on_diagonal][c] - 255));
    return colour;
}

plot *plot_matrix_new(const gp_confusion *matrix, const char *title)
{
    static const char rows[] = "true class", columns[] = "predicted class";
    const matrix_layout m = layout_of(matrix);
    const int names = m.left - 2 * LINE, least = plot_text_width(title) + 2 * MARGIN,
              width = m.left + m.side + MARGIN > least ? m.left + m.side + MARGIN : least;
    plot *p = plot_new(width, m.top + m.side + names + 2 * LINE);
    char text[4 * NAME_LETTERS_MAX + 1];
    const int classes = (int)matrix->class_count;

    if (p == NULL)
        return NULL;
    for (int i = 0; i < classes; i++) {
        const uint64_t *row = matrix->counts + (size_t)i * matrix->class_count;
        double sum = 0;

        for (int j = 0; j < classes; j++)
            sum += (double)row[j];
        for (int j = 0; j < classes; j++) {
            const double share = sum > 0 ? (double)row[j] / sum : 0;
            const int left = m.left + j * m.cell, top = m.top + i * m.cell, gap = m.has_numbers;

            plot_box(p, left, top, m.cell - gap, m.cell - gap, shade_of(share, i == j));
            snprintf(text, sizeof(text), "%llu", (unsigned long long)row[j]);
            if (m.has_numbers)
                plot_text(p, left + (m.cell - plot_text_width(text)) / 2,
                          top + (m.cell - GLYPH_HEIGHT * SCALE) / 2, false, text,
                          share > 0.5 ? 0xffffff : black);
        }
    }
    plot_box(p, m.left - SCALE, m.top - SCALE, m.side + 2 * SCALE, SCALE, black);
    plot_box(p, m.left - SCALE, m.top + m.side, m.side + 2 * SCALE, SCALE, black);
    plot_box(p, m.left - SCALE, m.top, SCALE, m.side, black);
    plot_box(p, m.left + m.side, m.top, SCALE, m.side, black);
    for (int i = 0; i < classes && m.has_numbers; i++) {
        const int middle = i * m.cell + (m.cell - GLYPH_HEIGHT * SCALE) / 2;

        name_cut(text, sizeof(text), matrix->class_names[i]);
        plot_text(p, m.left - MARGIN - plot_text_width(text), m.top + middle, false, text, black);
        plot_text(p, m.left + middle, m.top + m.side + MARGIN + plot_text_width(text), true, text, black);
    }
    plot_text(p, (width - plot_text_width(title)) / 2, SCALE * 2, false, title, black);
    plot_text(p, MARGIN, m.top + (m.side + plot_text_width(rows)) / 2, true, rows, black);
    plot_text(p, m.left + (m.side - plot_text_width(columns)) / 2, p->height - LINE, false, columns, black);
    return p;
}

gp_status plot_write(const plot *picture, const char *path, gp_error *err)
{
    uint8_t *file;
    size_t bytes;
    gp_status status = gp_image_to_png(&file, &bytes, picture->rgb, (uint32_t)picture->width,
                                       (uint32_t)picture->height, err);

    if (status != GP_OK)
        return status;
    status = gp_file_write(path, file, bytes, err);
    gp_free(file);
    return status;
}
