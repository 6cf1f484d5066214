/* Helpers of winograd.c and winograd_gradient.c: tile transforms, products and memory layout.
 * Private to winograd*.c. */
#ifndef GP_WINOGRAD_INSIDE_H
#define GP_WINOGRAD_INSIDE_H

#include <string.h>

#include "worker/backend/cpu/base/clones.h"
#include "worker/backend/cpu/onednn/winograd.h"

enum {
    LANES = GP_WINOGRAD_LANES,
    POINTS = 36,
    EDGE = 6,  /* input tile edge length */
    TILE = 4,  /* output tile edge length */
    ROWS = 6,  /* product tile rows in registers */
    PANEL = 4, /* vectors per product tile row */
};

/* 16 floats at any address, as 32-bit words, and 16 bfloat16 values. */
typedef float wide __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));

/* ---- memory layout ---- */

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t tiles_down(const gp_winograd *w)
{
    return (w->out_height + TILE - 1) / TILE;
}

static inline size_t tiles_across(const gp_winograd *w)
{
    return (w->out_width + TILE - 1) / TILE;
}

static inline size_t tiles_of(const gp_winograd *w)
{
    return w->images * tiles_down(w) * tiles_across(w);
}

/* Return the distance between the 36 matrices in floats: an odd number of cache lines, so that they
 * do not map to the same cache sets. */
static inline size_t points_stride(size_t tiles, size_t channels)
{
    return (tiles * channels / LANES | 1) * LANES;
}

static inline size_t weights_stride(const gp_winograd *w)
{
    return points_stride(w->inputs, w->outputs);
}

/* Return the zero-padded tile size at an image border, in floats. */
static inline size_t border_room(const gp_winograd *w)
{
    return EDGE * EDGE * (w->inputs > w->outputs ? w->inputs : w->outputs);
}

static inline size_t panel_width(size_t first, size_t channels)
{
    return least(PANEL * LANES, channels - first);
}

typedef struct range {
    size_t first, end;
} range;

static inline range share(size_t count, uint32_t thread, uint32_t threads)
{
    return (range){ count * thread / threads, count * (thread + 1) / threads };
}

/* Return the offset of 16 outputs for an input channel among the transformed weights of one point.
 * The layout is output panels, each with all inputs. */
static inline size_t weights_at(const gp_winograd *w, size_t c, size_t k)
{
    size_t panel = k / (PANEL * LANES) * (PANEL * LANES);

    return panel * w->inputs + c * panel_width(panel, w->outputs) + (k - panel);
}

/* ---- vectors ---- */

LOOP_INLINE wide splat(float value)
{
    return value - (wide){ 0 };
}

LOOP_INLINE wide load(const void *data, size_t at, const bool narrow)
{
    if (narrow) {
        words bits = __builtin_convertvector(*(const halves *)((const uint16_t *)data + at), words);

        return (wide)(bits << 16);
    }
    return *(const wide *)((const float *)data + at);
}

LOOP_INLINE wide choose(words which, wide yes, wide no)
{
    return (wide)((which & (words)yes) | (~which & (words)no));
}

/* Store a vector, as bfloat16 if `narrow`: rounded to nearest, ties to even. */
LOOP_INLINE void store(void *data, size_t at, wide value, const bool narrow)
{
    words bits = (words)value;

    if (narrow)
        *(halves *)((uint16_t *)data + at) =
            __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, halves);
    else
        *(wide *)((float *)data + at) = value;
}

typedef int32_t places __attribute__((vector_size(64)));

/* Exchange blocks of two rows in a transposition: lanes that are `apart` lanes off the diagonal. */
LOOP_INLINE void exchange(wide *a, wide *b, const int apart)
{
    places first, second;
    wide x = *a, y = *b;

#pragma GCC unroll 16
    for (int l = 0; l < LANES; l++) {
        first[l] = (l & apart) == 0 ? l : l - apart + LANES;
        second[l] = (l & apart) == 0 ? l + apart : l + LANES;
    }
    *a = __builtin_shuffle(x, y, first);
    *b = __builtin_shuffle(x, y, second);
}

/* Transpose a 16x16 matrix. */
LOOP_INLINE void transpose(wide v[LANES])
{
#pragma GCC unroll 4
    for (int apart = 1; apart < LANES; apart *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if ((i & apart) == 0)
                exchange(&v[i], &v[i + apart], apart);
}

/* ---- row transforms by Bt, At, A, G and Gt ---- */

static const float P = 0.625f, Q = 1.5f, PP = 0.390625f, QQ = 2.25f, PPQQ = 0.87890625f,
                   PP_AND_QQ = 2.640625f;

/* 1 / product of a point's distances from the other points */
static const float AT_0 = (float)(1 / 0.87890625), AT_P = (float)(1 / (2 * 0.390625 * (0.390625 - 2.25))),
                   AT_Q = (float)(1 / (2 * 2.25 * (2.25 - 0.390625)));

LOOP_INLINE void row_b(const wide d[EDGE], wide to[EDGE])
{
    wide even = d[4] - QQ * d[2], odd = P * (d[3] - QQ * d[1]);
    wide even_q = d[4] - PP * d[2], odd_q = Q * (d[3] - PP * d[1]);

    to[0] = PPQQ * d[0] - PP_AND_QQ * d[2] + d[4];
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = PPQQ * d[1] - PP_AND_QQ * d[3] + d[5];
}

LOOP_INLINE void row_a(const wide m[EDGE], wide to[TILE])
{
    wide sum = m[1] + m[2], difference = P * (m[1] - m[2]);
    wide sum_q = m[3] + m[4], difference_q = Q * (m[3] - m[4]);

    to[0] = m[0] + sum + sum_q;
    to[1] = difference + difference_q;
    to[2] = PP * sum + QQ * sum_q;
    to[3] = PP * difference + QQ * difference_q + m[5];
}

LOOP_INLINE void row_a_back(const wide y[TILE], wide to[EDGE])
{
    wide even = y[0] + PP * y[2], odd = P * (y[1] + PP * y[3]);
    wide even_q = y[0] + QQ * y[2], odd_q = Q * (y[1] + QQ * y[3]);

    to[0] = y[0];
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = y[3];
}

LOOP_INLINE void row_g(const wide g[3], wide to[EDGE])
{
    wide even = AT_P * (g[0] + PP * g[2]), odd = (AT_P * P) * g[1];
    wide even_q = AT_Q * (g[0] + QQ * g[2]), odd_q = (AT_Q * Q) * g[1];

    to[0] = AT_0 * g[0];
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = even_q + odd_q;
    to[4] = even_q - odd_q;
    to[5] = g[2];
}

LOOP_INLINE void row_g_back(const wide s[EDGE], wide to[3])
{
    wide sum = AT_P * (s[1] + s[2]), sum_q = AT_Q * (s[3] + s[4]);

    to[0] = AT_0 * s[0] + sum + sum_q;
    to[1] = (AT_P * P) * (s[1] - s[2]) + (AT_Q * Q) * (s[3] - s[4]);
    to[2] = PP * sum + QQ * sum_q + s[5];
}

/* ---- tiles ---- */

/* Tile position: image and first output. */
typedef struct place {
    size_t image, row, column;
} place;

static inline place place_of(const gp_winograd *w, size_t tile)
{
    size_t across = tiles_across(w), each = tiles_down(w) * across;

    return (place){ tile / each, tile % each / across * TILE, tile % across * TILE };
}

/* A tile's input pixels: they start at data + at, with `row` elements between rows. */
typedef struct patch {
    const void *data;
    size_t at, row;
} patch;

/* Return the patch of `edge` x `edge` pixels from (row, column), which may be negative and wrap
 * around. At the image border, the patch is a zero-padded copy in `room`. */
LOOP_INLINE patch patch_of(const void *image, size_t height, size_t width, size_t channels, size_t row,
                           size_t column, const size_t edge, float *room, const bool narrow)
{
    const size_t bytes = channels * (narrow ? sizeof(uint16_t) : sizeof(float));

    if (row < height && row + edge <= height && column < width && column + edge <= width)
        return (patch){ image, (row * width + column) * channels, width * channels };
    for (size_t i = 0; i < edge; i++)
        for (size_t j = 0; j < edge; j++) {
            char *to = (char *)room + (i * edge + j) * bytes;

            if (row + i < height && column + j < width)
                memcpy(to, (const char *)image + ((row + i) * width + column + j) * bytes, bytes);
            else
                memset(to, 0, bytes);
        }
    return (patch){ room, 0, edge * channels };
}

LOOP_INLINE const void *image_at(const void *images, size_t numbers, const bool narrow)
{
    return (const char *)images + numbers * (narrow ? sizeof(uint16_t) : sizeof(float));
}

/* Transform 16 channels from `c` of a tile's inputs. */
LOOP_INLINE void tile_inputs(patch from, size_t channels, size_t c, float *to, size_t stride,
                             const bool narrow)
{
    wide half[EDGE][EDGE];

#pragma GCC unroll 6
    for (size_t i = 0; i < EDGE; i++) {
        wide d[EDGE];

#pragma GCC unroll 6
        for (size_t j = 0; j < EDGE; j++)
            d[j] = load(from.data, from.at + i * from.row + j * channels + c, narrow);
        row_b(d, half[i]);
    }
#pragma GCC unroll 6
    for (size_t j = 0; j < EDGE; j++) {
        wide d[EDGE], v[EDGE];

#pragma GCC unroll 6
        for (size_t i = 0; i < EDGE; i++)
            d[i] = half[i][j];
        row_b(d, v);
#pragma GCC unroll 6
        for (size_t i = 0; i < EDGE; i++)
            *(wide *)(to + (i * EDGE + j) * stride) = v[i];
    }
}

/* Transformed input layout: channel panels, each with all `count` tiles. */
typedef struct inputs_layout {
    float *to;
    size_t stride, panel, count; /* count may be 0 if there is only one panel */
} inputs_layout;

LOOP_INLINE void inputs_of(const gp_winograd *w, const void *x, place at, const inputs_layout *l, size_t t,
                           float *room, const bool narrow)
{
    const size_t numbers = w->height * w->width * w->inputs;
    const patch from = patch_of(image_at(x, at.image * numbers, narrow), w->height, w->width, w->inputs,
                                at.row - w->top, at.column - w->left, EDGE, room, narrow);

    for (size_t panel = 0, width; panel < w->inputs; panel += width) {
        width = least(l->panel, w->inputs - panel);
        for (size_t c = 0; c < width; c += LANES)
            tile_inputs(from, w->inputs, panel + c, l->to + panel * l->count + t * width + c, l->stride,
                        narrow);
    }
}

/* Transform the inputs for some tiles. `t` is the first tile's index in the destination. */
static inline void inputs_transform(const gp_winograd *w, const void *x, range tiles, size_t t,
                                    inputs_layout layout, float *border)
{
    for (size_t tile = tiles.first; tile < tiles.end; tile++, t++)
        if (w->narrow)
            inputs_of(w, x, place_of(w, tile), &layout, t, border, true);
        else
            inputs_of(w, x, place_of(w, tile), &layout, t, border, false);
}

/* ---- products ---- */

/* Compute to[r][.] = sum over d of a[r * a_row + d * a_step] * b[d][.], `columns` vectors wide.
 * `add`: add to `to`. */
LOOP_INLINE void product_tile(const float *a, size_t a_row, size_t a_step, const float *b, size_t depth,
                              float *to, size_t to_row, bool add, const int rows, const int columns)
{
    wide acc[ROWS][PANEL];

#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int n = 0; n < columns; n++)
            acc[r][n] = add ? *(const wide *)(to + (size_t)r * to_row + (size_t)n * LANES) : splat(0.0f);
    for (size_t d = 0; d < depth; d++) {
        wide v[PANEL];

#pragma GCC unroll 4
        for (int n = 0; n < columns; n++)
            v[n] = *(const wide *)(b + (d * (size_t)columns + (size_t)n) * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            wide s = splat(a[(size_t)r * a_row + d * a_step]);

#pragma GCC unroll 4
            for (int n = 0; n < columns; n++)
                acc[r][n] += s * v[n];
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int n = 0; n < columns; n++)
            *(wide *)(to + (size_t)r * to_row + (size_t)n * LANES) = acc[r][n];
}

/* Compute all rows of one panel. */
LOOP_INLINE void product_panel(const float *a, size_t a_row, size_t a_step, const float *b, size_t depth,
                               float *to, size_t to_row, size_t rows, bool add, const int columns)
{
    size_t r = 0;

    for (; r + ROWS <= rows; r += ROWS)
        product_tile(a + r * a_row, a_row, a_step, b, depth, to + r * to_row, to_row, add, ROWS, columns);
    if (r + 4 <= rows) {
        product_tile(a + r * a_row, a_row, a_step, b, depth, to + r * to_row, to_row, add, 4, columns);
        r += 4;
    }
    for (; r + 2 <= rows; r += 2)
        product_tile(a + r * a_row, a_row, a_step, b, depth, to + r * to_row, to_row, add, 2, columns);
    for (; r < rows; r++)
        product_tile(a + r * a_row, a_row, a_step, b, depth, to + r * to_row, to_row, add, 1, columns);
}

static void product(const float *a, size_t a_row, size_t a_step, const float *b, size_t depth, float *to,
                    size_t to_row, size_t rows, bool add, size_t width)
{
    switch (width / LANES) {
    case 1:
        product_panel(a, a_row, a_step, b, depth, to, to_row, rows, add, 1);
        break;
    case 2:
        product_panel(a, a_row, a_step, b, depth, to, to_row, rows, add, 2);
        break;
    case 3:
        product_panel(a, a_row, a_step, b, depth, to, to_row, rows, add, 3);
        break;
    default:
        product_panel(a, a_row, a_step, b, depth, to, to_row, rows, add, 4);
        break;
    }
}

#endif
