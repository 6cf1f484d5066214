/* Convolution, relu and 2x2 pool with Winograd's minimal filtering; included by lanes_kernels.c.
 *
 * One tile is a pooling window with 2x2 outputs from a KxK convolution (K is 3 or 5):
 *     N = K + 1
 *     y = At [sum over c of (G w Gt) * (Bt x B)] A       * is element-wise
 *
 * This takes N^2 products rather than 4 K^2: for a 5x5 kernel 36 rather than 100 (Winograd,
 * Arithmetic Complexity of Computations (1980); Lavin and Gray, Fast Algorithms for Convolutional
 * Neural Networks (2016)). The backward pass is the transposed algorithm:
 *     dm = A dy At,   dx += B [sum over o of (G w Gt) * dm] Bt,   dw = Gt [sum of dm * (Bt x B)] G
 *
 * The sum for dw is over all tiles. The convolution gradient is never stored: dy is computed from
 * the pool's gradient and mask bits.
 *
 * The interpolation points are 0, 1, -1, 1/2, -2 and infinity. In float32, the relative error of
 * LeNet's second layer is 6e-7 forward, 1.1e-6 for dx and 6e-7 for dw (direct convolution: 3e-7).
 * With points 2 and -2 it is 1.5 times as large.
 *
 * In lanes, the products for each of the N^2 positions form a matrix product over channels,
 * [outputs][inputs] times [inputs][tiles] vectors. Tiles are processed four at a time and output
 * channels in chunks, so that intermediate results stay in the L2 cache. Strides are an odd number
 * of cache lines; otherwise all positions would map to the same cache sets. */
#ifndef GP_LANES_WINOGRAD_H
#define GP_LANES_WINOGRAD_H

#include "worker/backend/cpu/lanes/lanes_conv.h"

enum { WINOGRAD_EDGE_MAX = 6, WINOGRAD_WIDE = FORWARD_OUTPUTS };

static const float winograd_a5[2][6] = { { 1, 1, 1, 1, 1, 0 }, { 0, 1, -1, 0.5f, -2, 1 } };
static const float winograd_b5[6][6] = {
    { 1, -1.5f, -2, 1.5f, 1, 0 }, { 0, -1, 0.5f, 2.5f, 1, 0 },  { 0, 1, -2.5f, 0.5f, 1, 0 },
    { 0, -2, -1, 2, 1, 0 },       { 0, 0.5f, -1, -0.5f, 1, 0 }, { 0, 1, -1.5f, -2, 1.5f, 1 },
};
static const float winograd_g5[6][5] = {
    { 1, 0, 0, 0, 0 },
    { 1 / 3.f, 1 / 3.f, 1 / 3.f, 1 / 3.f, 1 / 3.f },
    { -1 / 3.f, 1 / 3.f, -1 / 3.f, 1 / 3.f, -1 / 3.f },
    { -16 / 15.f, -8 / 15.f, -4 / 15.f, -2 / 15.f, -1 / 15.f },
    { 1 / 15.f, -2 / 15.f, 4 / 15.f, -8 / 15.f, 16 / 15.f },
    { 0, 0, 0, 0, 1 },
};
static const float winograd_a3[2][4] = { { 1, 1, 1, 0 }, { 0, 1, -1, 1 } };
static const float winograd_b3[4][4] = { { -1, 0, 1, 0 }, { 0, 1, 1, 0 }, { 0, -1, 1, 0 }, { 0, -1, 0, 1 } };
static const float winograd_g3[4][3] = {
    { -1, 0, 0 }, { 0.5f, 0.5f, 0.5f }, { 0.5f, -0.5f, 0.5f }, { 0, 0, 1 }
};

/* Return an entry of At, Bt or G. Constant arguments give a constant. */
INLINE float at_of(const int kernel, int i, int j)
{
    return kernel == 5 ? winograd_a5[i][j] : winograd_a3[i][j];
}

INLINE float bt_of(const int kernel, int i, int j)
{
    return kernel == 5 ? winograd_b5[i][j] : winograd_b3[i][j];
}

INLINE float g_of(const int kernel, int i, int j)
{
    return kernel == 5 ? winograd_g5[i][j] : winograd_g3[i][j];
}

/* Return sum + factor * v for a constant factor. `empty`: the sum has no terms yet. */
INLINE V combine(V sum, bool empty, float factor, V v)
{
    if (factor == 0)
        return sum;
    if (factor == -1)
        v = -v;
    else if (factor != 1)
        v = splat(factor) * v;
    if (!empty)
        v = sum + v;
    return v;
}

/* Matrix of transform(); the BACK variants are transposed. */
typedef enum matrix { MATRIX_A, MATRIX_A_BACK, MATRIX_B, MATRIX_B_BACK, MATRIX_G, MATRIX_G_BACK } matrix;

INLINE float entry(const matrix m, const int kernel, int i, int j)
{
    return m == MATRIX_A        ? at_of(kernel, i, j)
           : m == MATRIX_A_BACK ? at_of(kernel, j, i)
           : m == MATRIX_B      ? bt_of(kernel, i, j)
           : m == MATRIX_B_BACK ? bt_of(kernel, j, i)
           : m == MATRIX_G      ? g_of(kernel, i, j)
                                : g_of(kernel, j, i);
}

INLINE void apply(V *to, int to_stride, const V *from, const matrix m, const int kernel, const int rows,
                  const int columns)
{
    UNROLL
    for (int i = 0; i < rows; i++) {
        V sum = zero();
        bool empty = true;

        UNROLL
        for (int j = 0; j < columns; j++) {
            float factor = entry(m, kernel, i, j);

            sum = combine(sum, empty, factor, from[j]);
            empty = empty && factor == 0;
        }
        to[i * to_stride] = sum;
    }
}

/* Compute to [rows][rows] = M from [columns][columns] Mt. */
INLINE void transform(V *to, const V *from, const matrix m, const int kernel, const int rows,
                      const int columns)
{
    V half[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX];

    for (int b = 0; b < columns; b++) {
        V column[WINOGRAD_EDGE_MAX];

        UNROLL
        for (int a = 0; a < columns; a++)
            column[a] = from[a * columns + b];
        apply(half + b, columns, column, m, kernel, rows, columns);
    }
    for (int i = 0; i < rows; i++)
        apply(to + i * rows, 1, half + i * columns, m, kernel, rows, columns);
}

/* Array layout of a step, in floats. */
typedef struct winograd {
    int inputs, outputs, tiles, tile_columns;
    int inputs4, tiles4;                         /* rounded up to multiples of four, zero-padded */
    size_t v_plane, chunk_outputs, chunk_inputs; /* distance between positions */
} winograd;

INLINE winograd winograd_of(int inputs, int outputs, const lanes_view *pooled)
{
    winograd w = { .inputs = inputs, .outputs = outputs, .tiles = pooled->height * pooled->width };

    w.tile_columns = pooled->width;
    w.inputs4 = (inputs + 3) & ~3;
    w.tiles4 = (w.tiles + 3) & ~3;
    w.v_plane = lanes_odd_lines((size_t)(w.inputs4 * w.tiles4 * LANES));
    w.chunk_outputs = lanes_odd_lines((size_t)(outputs * 4 * LANES));
    w.chunk_inputs = lanes_odd_lines((size_t)(inputs * 4 * LANES));
    return w;
}

/* Compute one matrix product tile for a position: m[t][0..4) = sum over k of weight[k][t] *
 * v[k][0..4). */
INLINE void winograd_tile(float *m, const float *weight, const float *v, ptrdiff_t v_row, int depth,
                          const int wide)
{
    V acc[WINOGRAD_WIDE * 4];

    UNROLL
    for (int i = 0; i < wide * 4; i++)
        acc[i] = zero();
    for (int k = 0; k < depth; k++, v += v_row, weight += wide) {
        V w[WINOGRAD_WIDE];

        UNROLL
        for (int t = 0; t < wide; t++)
            w[t] = splat(weight[t]);
        UNROLL
        for (int j = 0; j < 4; j++) {
            V x = load(v + j * LANES);

            UNROLL
            for (int t = 0; t < wide; t++)
                MULTIPLY_ADD(acc[t * 4 + j], w[t], x);
        }
        FORGET_LOADS();
    }
    UNROLL
    for (int i = 0; i < wide * 4; i++)
        store(m + i * LANES, acc[i]);
}

/* Compute m[count][4] = weight [count][depth] (packed in tiles) times v [depth][4]. */
static void winograd_product(float *m, const float *weight, const float *v, ptrdiff_t v_row, int count,
                             int depth)
{
    int i = 0;

    for (; i + WINOGRAD_WIDE <= count; i += WINOGRAD_WIDE)
        winograd_tile(m + i * 4 * LANES, weight + (ptrdiff_t)i * depth, v, v_row, depth, WINOGRAD_WIDE);
    for (; i + 2 <= count; i += 2)
        winograd_tile(m + i * 4 * LANES, weight + (ptrdiff_t)i * depth, v, v_row, depth, 2);
    for (; i < count; i++)
        winograd_tile(m + i * 4 * LANES, weight + (ptrdiff_t)i * depth, v, v_row, depth, 1);
}

/* Transform the input: v[position][channel][tile] = Bt x B. */
INLINE void winograd_inputs(const lanes_step *step, const lanes_block *block, const winograd *w,
                            const int kernel)
{
    const int edge = kernel + 1;
    const float *in = conv_corner(step, block);
    float *v = at(&step->v, block);

    for (int c = 0; c < w->inputs4; c++) {
        for (int t = 0; t < w->tiles4; t++) {
            const float *corner = in + c * step->x.plane + t / w->tile_columns * 2 * step->x.row +
                                  t % w->tile_columns * 2 * LANES;
            float *to = v + (c * w->tiles4 + t) * LANES;
            V x[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX], y[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX];

            if (c >= w->inputs || t >= w->tiles) {
                for (int f = 0; f < edge * edge; f++)
                    store(to + (size_t)f * w->v_plane, zero());
                continue;
            }
            for (int i = 0; i < edge; i++)
                UNROLL
            for (int j = 0; j < edge; j++)
                x[i * edge + j] = load(corner + i * step->x.row + j * LANES);
            transform(y, x, MATRIX_B, kernel, edge, edge);
            for (int f = 0; f < edge * edge; f++)
                store(to + (size_t)f * w->v_plane, y[f]);
        }
    }
}

INLINE void winograd_forward(const lanes_step *step, const lanes_block *block, const int kernel)
{
    const int edge = kernel + 1;
    winograd w = winograd_of(step->x.channels, step->y.channels, &step->y);
    float *v = at(&step->v, block), *chunk = at(&step->t, block), *out = at(&step->y, block);

    winograd_inputs(step, block, &w, kernel);
    for (int first = 0; first < w.tiles4; first += 4) {
        for (int f = 0; f < edge * edge; f++)
            winograd_product(chunk + (size_t)f * w.chunk_outputs,
                             step->weight + (size_t)f * (size_t)(w.outputs * w.inputs),
                             v + (size_t)f * w.v_plane + first * LANES, w.tiles4 * LANES, w.outputs,
                             w.inputs);
        for (int o = 0; o < w.outputs; o++) {
            V bias = step->bias == NULL ? zero() : splat(step->bias[o]);

            for (int t = first; t < first + 4 && t < w.tiles; t++) {
                const float *from = chunk + (o * 4 + t - first) * LANES;
                V m[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX], y[4];

                for (int f = 0; f < edge * edge; f++)
                    m[f] = load(from + (size_t)f * w.chunk_outputs);
                transform(y, m, MATRIX_A, kernel, 2, edge);
                UNROLL
                for (int i = 0; i < 4; i++)
                    y[i] += bias;
                store(out + o * step->y.plane + t / w.tile_columns * step->y.row + t % w.tile_columns * LANES,
                      pool_window(y, step->pool, mask_at(step, block, o, t, w.tiles)));
            }
        }
    }
}

/* Compute A dy At for one tile and store the positions `plane` floats apart. Return the dy sum. */
INLINE V winograd_gradient(const lanes_step *step, const lanes_block *block, const lanes_view *pooled,
                           int channel, int tile, float *to, size_t plane, const int kernel)
{
    const int edge = kernel + 1;
    const float *d = at(pooled, block) + channel * pooled->plane + tile / pooled->width * pooled->row +
                     tile % pooled->width * LANES;
    const mask_bits *mask = mask_at(step, block, channel, tile, pooled->height * pooled->width);
    V scaled = load(d) * splat(step->scale), dy[4], m[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX];

    UNROLL
    for (int i = 0; i < 4; i++)
        dy[i] = keep_bits(mask[i], scaled);
    transform(m, dy, MATRIX_A_BACK, kernel, edge, 2);
    for (int f = 0; f < edge * edge; f++)
        store(to + (size_t)f * plane, m[f]);
    return (dy[0] + dy[1]) + (dy[2] + dy[3]);
}

static void winograd_nothing(float *to, size_t plane, int edge)
{
    for (int f = 0; f < edge * edge; f++)
        store(to + (size_t)f * plane, zero());
}

/* Add B dv Bt for one tile to dx. v holds the tile's positions, `plane` floats apart. */
INLINE void winograd_scatter(float *corner, ptrdiff_t row, const float *v, size_t plane, const int kernel)
{
    const int edge = kernel + 1;
    V from[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX], dx[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX];

    for (int f = 0; f < edge * edge; f++)
        from[f] = load(v + (size_t)f * plane);
    transform(dx, from, MATRIX_B_BACK, kernel, edge, edge);
    for (int i = 0; i < edge; i++)
        UNROLL
    for (int j = 0; j < edge; j++)
        store(corner + i * row + j * LANES, load(corner + i * row + j * LANES) + dx[i * edge + j]);
}

INLINE void winograd_data(const lanes_step *step, const lanes_block *block, const int kernel)
{
    const int edge = kernel + 1;
    winograd w = winograd_of(step->y.channels, step->x.channels, &step->x);
    float *chunk = at(&step->t, block), *v = at(&step->v, block);
    float *out =
        at(&step->y, block) - step->window.padding[0] * step->y.row - step->window.padding[1] * LANES;
    size_t row_bytes = (size_t)(2 * step->x.width + kernel - 1) * LANES * sizeof(float);

    for (int c = 0; c < w.inputs; c++)
        for (int y = 0; y < 2 * step->x.height + kernel - 1; y++)
            memset(out + c * step->y.plane + y * step->y.row, 0, row_bytes);
    for (int first = 0; first < w.tiles4; first += 4) {
        for (int o = 0; o < w.outputs; o++)
            for (int t = 0; t < 4; t++) {
                float *to = chunk + (o * 4 + t) * LANES;

                if (first + t < w.tiles)
                    winograd_gradient(step, block, &step->x, o, first + t, to, w.chunk_outputs, kernel);
                else
                    winograd_nothing(to, w.chunk_outputs, edge);
            }
        for (int f = 0; f < edge * edge; f++)
            winograd_product(v + (size_t)f * w.chunk_inputs,
                             step->weight + (size_t)f * (size_t)(w.outputs * w.inputs),
                             chunk + (size_t)f * w.chunk_outputs, 4 * LANES, w.inputs, w.outputs);
        for (int c = 0; c < w.inputs; c++)
            for (int t = first; t < first + 4 && t < w.tiles; t++)
                winograd_scatter(out + c * step->y.plane + t / w.tile_columns * 2 * step->y.row +
                                     t % w.tile_columns * 2 * LANES,
                                 step->y.row, v + (c * 4 + t - first) * LANES, w.chunk_inputs, kernel);
    }
}

/* Add dm[o][tile] * v[c][tile], summed over tiles and lanes, to sums[o][c .. c + 4). */
INLINE void winograd_weights_tile(float *sums, ptrdiff_t sums_row, const float *m, const float *v, int tiles,
                                  const int wide)
{
    V acc[WINOGRAD_WIDE * 4];

    UNROLL
    for (int i = 0; i < wide * 4; i++)
        acc[i] = zero();
    for (int t = 0; t < tiles; t++, m += LANES, v += LANES) {
        V d[WINOGRAD_WIDE];

        UNROLL
        for (int k = 0; k < wide; k++)
            d[k] = load(m + k * tiles * LANES);
        UNROLL
        for (int j = 0; j < 4; j++) {
            V x = load(v + j * tiles * LANES);

            UNROLL
            for (int k = 0; k < wide; k++)
                MULTIPLY_ADD(acc[k * 4 + j], d[k], x);
        }
        FORGET_LOADS();
    }
    UNROLL
    for (int k = 0; k < wide; k++)
        *(V4_unaligned *)(sums + k * sums_row) +=
            sum_lanes4(acc[4 * k], acc[4 * k + 1], acc[4 * k + 2], acc[4 * k + 3]);
}

/* Update the sums [count][inputs4] at one position for an output channel chunk. */
static void winograd_weights_product(float *sums, const float *m, const float *v, int count, int inputs4,
                                     int tiles)
{
    for (int c = 0; c < inputs4; c += 4) {
        const float *x = v + (ptrdiff_t)c * tiles * LANES;
        int i = 0;

        for (; i + WINOGRAD_WIDE <= count; i += WINOGRAD_WIDE)
            winograd_weights_tile(sums + i * inputs4 + c, inputs4, m + i * tiles * LANES, x, tiles,
                                  WINOGRAD_WIDE);
        for (; i < count; i++)
            winograd_weights_tile(sums + i * inputs4 + c, inputs4, m + i * tiles * LANES, x, tiles, 1);
    }
}

INLINE void winograd_weights(const lanes_step *step, const lanes_block *block, const int kernel)
{
    const int edge = kernel + 1;
    winograd w = winograd_of(step->x.channels, step->z.channels, &step->z);
    float *chunk = at(&step->t, block), *sums = block->sums + step->weight_sum;
    const float *v = at(&step->v, block);
    size_t plane = lanes_odd_lines((size_t)(LANES_WINOGRAD_OUTPUTS * w.tiles4 * LANES));

    for (int first = 0; first < w.outputs; first += LANES_WINOGRAD_OUTPUTS) {
        int count = w.outputs - first < LANES_WINOGRAD_OUTPUTS ? w.outputs - first : LANES_WINOGRAD_OUTPUTS;

        for (int o = 0; o < count; o++) {
            V sum = zero();

            for (int t = 0; t < w.tiles4; t++) {
                float *to = chunk + (o * w.tiles4 + t) * LANES;

                if (t < w.tiles)
                    sum += winograd_gradient(step, block, &step->z, first + o, t, to, plane, kernel);
                else
                    winograd_nothing(to, plane, edge);
            }
            if (step->bias_sum != SIZE_MAX)
                block->sums[step->bias_sum + (size_t)(first + o)] += sum_lanes(sum);
        }
        for (int f = 0; f < edge * edge; f++)
            winograd_weights_product(
                sums + ((size_t)f * (size_t)w.outputs + (size_t)first) * (size_t)w.inputs4,
                chunk + (size_t)f * plane, v + (size_t)f * w.v_plane, count, w.inputs4, w.tiles4);
    }
}

/* Compute G w Gt for LANES input channels at a time, in winograd_product()'s tile layout. */
INLINE void winograd_pack_output(const lanes_pack *pack, int o, const int kernel)
{
    const int edge = kernel + 1, area = kernel * kernel;
    bool by_output = pack->kind == LANES_PACK_WINOGRAD_OUTPUTS;
    int count = by_output ? pack->outputs : pack->inputs, depth = by_output ? pack->inputs : pack->outputs;

    for (int c = 0; c < pack->inputs; c += LANES) {
        int n = pack->inputs - c < LANES ? pack->inputs - c : LANES;
        V w[25], u[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX];

        memset(w, 0, sizeof(w));
        for (int l = 0; l < n; l++)
            for (int k = 0; k < area; k++)
                ((float *)w)[k * LANES + l] = pack->from[((ptrdiff_t)o * pack->inputs + c + l) * area + k];
        transform(u, w, MATRIX_G, kernel, edge, kernel);
        for (int l = 0; l < n; l++) {
            int i = by_output ? o : c + l, k = by_output ? c + l : o;
            int whole = count / WINOGRAD_WIDE * WINOGRAD_WIDE;
            int wide = i < whole ? WINOGRAD_WIDE : i < whole + (count - whole) / 2 * 2 ? 2 : 1;
            int first = i < whole ? i / wide * wide : wide == 2 ? whole + (i - whole) / 2 * 2 : i;
            float *to = pack->to + (ptrdiff_t)first * depth + (ptrdiff_t)k * wide + i - first;

            for (int f = 0; f < edge * edge; f++)
                to[(ptrdiff_t)f * count * depth] = ((const float *)u)[f * LANES + l];
        }
    }
}

/* Compute dw = Gt du G for one output channel from all threads' sums. */
INLINE void winograd_finish_output(const lanes_finish *finish, const lanes_share *share, int o,
                                   const int kernel)
{
    const int edge = kernel + 1, area = kernel * kernel;
    int inputs4 = (finish->inputs + 3) & ~3;

    for (int c = 0; c < finish->inputs; c += LANES) {
        int n = finish->inputs - c < LANES ? finish->inputs - c : LANES;
        V u[WINOGRAD_EDGE_MAX * WINOGRAD_EDGE_MAX], w[25];

        for (int f = 0; f < edge * edge; f++) {
            size_t index = finish->weight_sum +
                           ((size_t)f * (size_t)finish->outputs + (size_t)o) * (size_t)inputs4 + (size_t)c;

            u[f] = *(const V_unaligned *)(share->sums[0] + index);
            for (uint32_t t = 1; t < share->threads; t++)
                u[f] += *(const V_unaligned *)(share->sums[t] + index);
        }
        transform(w, u, MATRIX_G_BACK, kernel, kernel, edge);
        for (int l = 0; l < n; l++)
            for (int k = 0; k < area; k++) {
                float *to = finish->weight + ((ptrdiff_t)o * finish->inputs + c + l) * area + k;
                float value = ((const float *)w)[k * LANES + l];

                *to = share->first ? value : *to + value;
            }
    }
}

#define WINOGRAD_DISPATCH(name)                                                                              \
    static void name##_3(const lanes_step *step, const lanes_block *block)                                   \
    {                                                                                                        \
        name(step, block, 3);                                                                                \
    }                                                                                                        \
    static void name##_5(const lanes_step *step, const lanes_block *block)                                   \
    {                                                                                                        \
        name(step, block, 5);                                                                                \
    }                                                                                                        \
    static void step_##name(const lanes_step *step, const lanes_block *block)                                \
    {                                                                                                        \
        (step->window.kernel[0] == 5 ? name##_5 : name##_3)(step, block);                                    \
    }
WINOGRAD_DISPATCH(winograd_forward)
WINOGRAD_DISPATCH(winograd_data)
WINOGRAD_DISPATCH(winograd_weights)
#undef WINOGRAD_DISPATCH

static void pack_winograd(const lanes_pack *pack, uint32_t thread, uint32_t threads)
{
    for (int o = (int)thread; o < pack->outputs; o += (int)threads) {
        if (pack->kernel == 5)
            winograd_pack_output(pack, o, 5);
        else
            winograd_pack_output(pack, o, 3);
    }
}

static void finish_winograd_output(const lanes_finish *finish, const lanes_share *share, int o)
{
    if (finish->kernel == 5)
        winograd_finish_output(finish, share, o, 5);
    else
        winograd_finish_output(finish, share, o, 3);
}

#endif
