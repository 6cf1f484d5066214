/* Fast convolutions: square kernels with edges 1, 3, 5, 7 at stride 1; included by lanes_kernels.c.
 *
 * Each step is an always-inlined tile with constant arguments, so that accumulators stay in
 * registers: at most 12 of 16 with AVX2 and 24 of 32 with AVX-512. The other registers hold weights
 * and one operand. Tiles use each loaded input in at least two multiply-adds; with fewer, loads
 * would limit the speed. */
#ifndef GP_LANES_CONV_H
#define GP_LANES_CONV_H

#include "worker/backend/cpu/lanes/lanes_generic.h"

#if LANES == 16
enum { FORWARD_OUTPUTS = 6, DATA_INPUTS = 4, DATA_COLUMNS = 6 };
enum { WEIGHTS_OUTPUTS_1 = 16, WEIGHTS_OUTPUTS_3 = 8, WEIGHTS_OUTPUTS_5 = 5, WEIGHTS_OUTPUTS_7 = 3 };
#elif LANES == 8
enum { FORWARD_OUTPUTS = 3, DATA_INPUTS = 2, DATA_COLUMNS = 6 };
enum { WEIGHTS_OUTPUTS_1 = 8, WEIGHTS_OUTPUTS_3 = 4, WEIGHTS_OUTPUTS_5 = 2, WEIGHTS_OUTPUTS_7 = 1 };
#else /* without fused multiply-add, products need a register as well */
enum { FORWARD_OUTPUTS = 2, DATA_INPUTS = 1, DATA_COLUMNS = 6 };
enum { WEIGHTS_OUTPUTS_1 = 8, WEIGHTS_OUTPUTS_3 = 3, WEIGHTS_OUTPUTS_5 = 2, WEIGHTS_OUTPUTS_7 = 1 };
#endif

/* Add the contribution of all inputs to acc[t][pixel], for a tile of `outputs` channels and rows x
 * columns pixels. */
INLINE void conv_tile(V *acc, const float *in, ptrdiff_t row, ptrdiff_t plane, int inputs,
                      const float *weight, const int kernel, const int outputs, const int rows,
                      const int columns)
{
    for (int c = 0; c < inputs; c++, in += plane) {
        const float *line = in;

        for (int ky = 0; ky < kernel; ky++, line += row) {
            UNROLL
            for (int kx = 0; kx < kernel; kx++, weight += outputs) {
                V w[FORWARD_OUTPUTS];

                UNROLL
                for (int t = 0; t < outputs; t++)
                    w[t] = splat(weight[t]);
                UNROLL
                for (int i = 0; i < rows; i++) {
                    UNROLL
                    for (int j = 0; j < columns; j++) {
                        V x = load(line + i * row + (j + kx) * LANES);

                        UNROLL
                        for (int t = 0; t < outputs; t++)
                            MULTIPLY_ADD(acc[t * rows * columns + i * columns + j], w[t], x);
                    }
                }
                FORGET_LOADS();
            }
        }
    }
}

INLINE void conv_begin(V *acc, const float *bias, int first, const int outputs, const int pixels)
{
    UNROLL
    for (int t = 0; t < outputs; t++) {
        V b = bias == NULL ? zero() : splat(bias[first + t]);

        UNROLL
        for (int i = 0; i < pixels; i++)
            acc[t * pixels + i] = b;
    }
}

/* Return the padded input's top left corner. */
INLINE const float *conv_corner(const lanes_step *step, const lanes_block *block)
{
    return at(&step->x, block) - step->window.padding[0] * step->x.row - step->window.padding[1] * LANES;
}

INLINE void conv_columns(const lanes_step *step, const float *in, float *out, int first, const float *weight,
                         const int kernel, const int outputs, const int columns)
{
    V acc[FORWARD_OUTPUTS * 4];

    conv_begin(acc, step->bias, first, outputs, columns);
    conv_tile(acc, in, step->x.row, step->x.plane, step->x.channels, weight, kernel, outputs, 1, columns);
    UNROLL
    for (int t = 0; t < outputs; t++) {
        UNROLL
        for (int j = 0; j < columns; j++) {
            V v = acc[t * columns + j];

            store(out + t * step->y.plane + j * LANES, step->relu ? keep(positive(v), v) : v);
        }
    }
}

INLINE void conv_outputs(const lanes_step *step, const lanes_block *block, int first, const int kernel,
                         const int outputs)
{
    const float *weight = step->weight + (ptrdiff_t)first * step->x.channels * kernel * kernel;
    const float *in = conv_corner(step, block);
    float *out = at(&step->y, block) + first * step->y.plane;
    int width = step->y.width;

    for (int y = 0; y < step->y.height; y++, in += step->x.row, out += step->y.row) {
        if (width < 4) {
            for (int x = 0; x < width; x++)
                conv_columns(step, in + x * LANES, out + x * LANES, first, weight, kernel, outputs, 1);
            continue;
        }
        /* the last tile overlaps the previous one and has full width */
        for (int x = 0; x < width; x += 4) {
            int from = x + 4 <= width ? x : width - 4;

            conv_columns(step, in + from * LANES, out + from * LANES, first, weight, kernel, outputs, 4);
        }
    }
}

INLINE mask_bits *mask_at(const lanes_step *step, const lanes_block *block, int channel, int pixel,
                          int pixels)
{
    return (mask_bits *)at(&step->mask, block) + 4 * ((ptrdiff_t)channel * pixels + pixel);
}

/* Pool four pixels and return the result. mask[i]: lanes in which pixel i receives a gradient. If
 * the maximum is NaN, no pixel receives one: the loss is NaN as well, which ends the training. */
INLINE V pool_window(const V *v, gp_pool_kind kind, mask_bits *mask)
{
    V top;
    I taken;

    if (kind != GP_POOL_MAX) {
        V sum = zero();

        UNROLL
        for (int i = 0; i < 4; i++) {
            I m = positive(v[i]);

            mask[i] = (mask_bits)bits_of(m);
            sum += keep(m, v[i]);
        }
        return sum * splat(0.25f);
    }
    top = maximum(maximum(v[0], v[1]), maximum(v[2], v[3]));
    top += keep(unordered(v[0], v[1]) | unordered(v[2], v[3]), splat(__builtin_nanf("")));
    taken = ~positive(top);
    UNROLL
    for (int i = 0; i < 4; i++) {
        I m = (v[i] == top) & ~taken;

        mask[i] = (mask_bits)bits_of(m);
        taken |= m;
    }
    return keep(positive(top), top);
}

INLINE void conv_pool_outputs(const lanes_step *step, const lanes_block *block, int first, const int kernel,
                              const int outputs)
{
    const float *weight = step->weight + (ptrdiff_t)first * step->x.channels * kernel * kernel;
    const float *in = conv_corner(step, block);
    float *out = at(&step->y, block) + first * step->y.plane;
    int pixels = step->y.height * step->y.width;

    for (int y = 0; y < step->y.height; y++, in += 2 * step->x.row, out += step->y.row) {
        for (int x = 0; x < step->y.width; x++) {
            V acc[FORWARD_OUTPUTS * 4];

            conv_begin(acc, step->bias, first, outputs, 4);
            conv_tile(acc, in + 2 * x * LANES, step->x.row, step->x.plane, step->x.channels, weight, kernel,
                      outputs, 2, 2);
            UNROLL
            for (int t = 0; t < outputs; t++)
                store(out + t * step->y.plane + x * LANES,
                      pool_window(acc + 4 * t, step->pool,
                                  mask_at(step, block, first + t, y * step->y.width + x, pixels)));
        }
    }
}

/* Compute the gradient of `inputs` channels x `columns` pixels of one row.
 *
 * A tile in the middle of the row uses all taps. At the left end only taps with kx <= j reach dy;
 * at the right end only taps with kx >= j + kernel - columns.
 *   d      dy in output row 0 below the tile's first column
 *   place  MIDDLE, LEFT or RIGHT */
enum { MIDDLE, LEFT, RIGHT };
INLINE void conv_data_tile(const lanes_step *step, const float *d, float *out, int row, const float *weight,
                           const int kernel, const int inputs, const int columns, const int place)
{
    int last = step->x.height - 1;
    int from = row > last ? row - last : 0, to = row < kernel - 1 ? row : kernel - 1;
    V acc[DATA_INPUTS * DATA_COLUMNS];

    UNROLL
    for (int i = 0; i < inputs * columns; i++)
        acc[i] = zero();
    for (int o = 0; o < step->x.channels; o++, d += step->x.plane, weight += kernel * kernel * inputs) {
        const float *line = d + (row - from) * step->x.row, *w = weight + from * kernel * inputs;

        for (int ky = from; ky <= to; ky++, line -= step->x.row, w += kernel * inputs) {
            UNROLL
            for (int kx = 0; kx < kernel; kx++) {
                V s[DATA_INPUTS];

                UNROLL
                for (int t = 0; t < inputs; t++)
                    s[t] = splat(w[kx * inputs + t]);
                UNROLL
                for (int j = 0; j < columns; j++) {
                    if (place == LEFT ? kx > j : place == RIGHT ? kx < j + kernel - columns : 0)
                        continue;
                    V v = load(line + (j - kx) * LANES);

                    UNROLL
                    for (int t = 0; t < inputs; t++)
                        MULTIPLY_ADD(acc[t * columns + j], s[t], v);
                }
                FORGET_LOADS();
            }
        }
    }
    UNROLL
    for (int t = 0; t < inputs; t++) {
        UNROLL
        for (int j = 0; j < columns; j++)
            store(out + t * step->y.plane + j * LANES, acc[t * columns + j]);
    }
}

INLINE void conv_data_inputs(const lanes_step *step, const lanes_block *block, int first, const int kernel,
                             const int inputs)
{
    const float *weight = step->weight + (ptrdiff_t)first * step->x.channels * kernel * kernel;
    const float *d = at(&step->x, block);
    float *out = at(&step->y, block) - step->window.padding[0] * step->y.row -
                 step->window.padding[1] * LANES + first * step->y.plane;
    int width = step->x.width + kernel - 1, right = width - DATA_COLUMNS;

    for (int y = 0; y < step->x.height + kernel - 1; y++, out += step->y.row) {
        int x = DATA_COLUMNS;

        conv_data_tile(step, d, out, y, weight, kernel, inputs, DATA_COLUMNS, LEFT);
        for (; x + DATA_COLUMNS <= right; x += DATA_COLUMNS)
            conv_data_tile(step, d + x * LANES, out + x * LANES, y, weight, kernel, inputs, DATA_COLUMNS,
                           MIDDLE);
        for (; x < right; x++)
            conv_data_tile(step, d + x * LANES, out + x * LANES, y, weight, kernel, inputs, 1, MIDDLE);
        conv_data_tile(step, d + right * LANES, out + right * LANES, y, weight, kernel, inputs, DATA_COLUMNS,
                       RIGHT);
    }
}

/* Return the floats that one tile takes in the thread's sums: a multiple of four. */
INLINE int weights_group(const int kernel, const int outputs)
{
    return (kernel * outputs + 3) & ~3;
}

/* Accumulate the gradients for one tap row, between `outputs` dy channels (`plane` floats apart)
 * and one input channel. */
INLINE void conv_weights_tile(const float *in, ptrdiff_t in_row, const float *d, ptrdiff_t row,
                              ptrdiff_t plane, int height, int width, float *sums, const int kernel,
                              const int outputs)
{
    V acc[(WEIGHTS_OUTPUTS_1 > 24 ? WEIGHTS_OUTPUTS_1 : 28)];
    const int n = kernel * outputs;

    UNROLL
    for (int i = 0; i < ((n + 3) & ~3); i++)
        acc[i] = zero();
    for (int y = 0; y < height; y++, in += in_row, d += row) {
        const float *p = in, *q = d;

        for (int x = 0; x < width; x++, p += LANES, q += LANES) {
            V v[16];

            UNROLL
            for (int t = 0; t < outputs; t++)
                v[t] = load(q + t * plane);
            UNROLL
            for (int kx = 0; kx < kernel; kx++) {
                V s = load(p + kx * LANES);

                UNROLL
                for (int t = 0; t < outputs; t++)
                    MULTIPLY_ADD(acc[t * kernel + kx], v[t], s);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n; i += 4)
        *(V4_unaligned *)(sums + i) += sum_lanes4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
}

/* Accumulate the gradients for all taps of channels [first, first + outputs), which form tile
 * `tile`.
 *   d  dy for the first such channel */
INLINE void conv_weights_outputs(const lanes_step *step, const lanes_block *block, const float *d,
                                 ptrdiff_t row, ptrdiff_t plane, int height, int width, int tile,
                                 const int kernel, const int outputs, const int tile_outputs)
{
    int group = weights_group(kernel, tile_outputs);
    float *sums = block->sums + step->weight_sum + (ptrdiff_t)tile * step->x.channels * kernel * group;
    const float *in = conv_corner(step, block);

    for (int c = 0; c < step->x.channels; c++, in += step->x.plane)
        for (int ky = 0; ky < kernel; ky++, sums += group)
            conv_weights_tile(in + ky * step->x.row, step->x.row, d, row, plane, height, width, sums, kernel,
                              outputs);
}

INLINE void conv_weights_plain(const lanes_step *step, const lanes_block *block, int first, int tile,
                               const int kernel, const int outputs, const int tile_outputs)
{
    const lanes_view *dy = &step->z;

    if (first == 0)
        sum_bias(step, block);
    conv_weights_outputs(step, block, at(dy, block) + first * dy->plane, dy->row, dy->plane, dy->height,
                         dy->width, tile, kernel, outputs, tile_outputs);
}

/* Spread the pool's gradient of one channel over the pixels marked in the mask, and return their
 * sum. */
INLINE V unpool_channel(const lanes_step *step, const lanes_block *block, const lanes_view *pooled,
                        int channel, float *out, ptrdiff_t row)
{
    const float *d = at(pooled, block) + channel * pooled->plane;
    const mask_bits *mask = mask_at(step, block, channel, 0, pooled->height * pooled->width);
    V scale = splat(step->scale), sum = zero();

    for (int y = 0; y < pooled->height; y++, d += pooled->row, out += 2 * row) {
        for (int x = 0; x < pooled->width; x++, mask += 4) {
            V v = load(d + x * LANES) * scale;

            UNROLL
            for (int i = 0; i < 4; i++) {
                V kept = keep_bits(mask[i], v);

                store(out + (i / 2) * row + (2 * x + i % 2) * LANES, kept);
                sum += kept;
            }
        }
    }
    return sum;
}

/* Accumulate the gradients from the pool's gradient: spread a few channels at a time into scratch
 * memory that stays in the cache. */
INLINE void conv_weights_pool_outputs(const lanes_step *step, const lanes_block *block, int first, int tile,
                                      const int kernel, const int outputs, const int tile_outputs)
{
    float *strip = at(&step->y, block);

    for (int t = 0; t < outputs; t++) {
        V sum = unpool_channel(step, block, &step->z, first + t, strip + t * step->y.plane, step->y.row);

        if (step->bias_sum != SIZE_MAX)
            block->sums[step->bias_sum + (size_t)(first + t)] += sum_lanes(sum);
    }
    conv_weights_outputs(step, block, strip, step->y.row, step->y.plane, 2 * step->z.height,
                         2 * step->z.width, tile, kernel, outputs, tile_outputs);
}

static void step_unpool(const lanes_step *step, const lanes_block *block)
{
    for (int c = 0; c < step->x.channels; c++)
        unpool_channel(step, block, &step->x, c, at(&step->y, block) + c * step->y.plane, step->y.row);
}

/* Define a step for one kernel edge. Channels are processed in tiles with `tile` channels each, the
 * remainder in tiles with 2 (forward only) and 1. pack_conv() in lanes_dense.h uses the same tiles
 * for the weights. */
#define OUTPUTS_FUNCTION(name, tile, K)                                                                      \
    static void name##_##K(const lanes_step *step, const lanes_block *block)                                 \
    {                                                                                                        \
        int o = 0, count = step->y.channels;                                                                 \
                                                                                                             \
        for (; o + FORWARD_OUTPUTS <= count; o += FORWARD_OUTPUTS)                                           \
            tile(step, block, o, K, FORWARD_OUTPUTS);                                                        \
        for (; o + 2 <= count; o += 2)                                                                       \
            tile(step, block, o, K, 2);                                                                      \
        for (; o < count; o++)                                                                               \
            tile(step, block, o, K, 1);                                                                      \
    }
#define INPUTS_FUNCTION(name, tile, K)                                                                       \
    static void name##_##K(const lanes_step *step, const lanes_block *block)                                 \
    {                                                                                                        \
        int c = 0, count = step->y.channels;                                                                 \
                                                                                                             \
        for (; c + DATA_INPUTS <= count; c += DATA_INPUTS)                                                   \
            tile(step, block, c, K, DATA_INPUTS);                                                            \
        for (; c < count; c++)                                                                               \
            tile(step, block, c, K, 1);                                                                      \
    }
#define WEIGHTS_FUNCTION(name, tile, K)                                                                      \
    static void name##_##K(const lanes_step *step, const lanes_block *block)                                 \
    {                                                                                                        \
        int o = 0, index = 0, count = step->z.channels;                                                      \
                                                                                                             \
        for (; o + WEIGHTS_OUTPUTS_##K <= count; o += WEIGHTS_OUTPUTS_##K)                                   \
            tile(step, block, o, index++, K, WEIGHTS_OUTPUTS_##K, WEIGHTS_OUTPUTS_##K);                      \
        for (; o < count; o++)                                                                               \
            tile(step, block, o, index++, K, 1, WEIGHTS_OUTPUTS_##K);                                        \
    }

/* Define a step for all kernel edges. */
#define CONV_STEP(FUNCTION, name, tile)                                                                      \
    FUNCTION(name, tile, 1)                                                                                  \
    FUNCTION(name, tile, 3)                                                                                  \
    FUNCTION(name, tile, 5)                                                                                  \
    FUNCTION(name, tile, 7)                                                                                  \
    static void step_##name(const lanes_step *step, const lanes_block *block)                                \
    {                                                                                                        \
        const int kernel = step->window.kernel[0];                                                           \
                                                                                                             \
        assert(kernel == 1 || kernel == 3 || kernel == 5 || kernel == 7);                                    \
        (kernel == 1 ? name##_1 : kernel == 3 ? name##_3 : kernel == 5 ? name##_5 : name##_7)(step, block);  \
    }
CONV_STEP(OUTPUTS_FUNCTION, conv, conv_outputs)
CONV_STEP(OUTPUTS_FUNCTION, conv_pool, conv_pool_outputs)
CONV_STEP(INPUTS_FUNCTION, conv_data, conv_data_inputs)
CONV_STEP(WEIGHTS_FUNCTION, conv_weights, conv_weights_plain)
CONV_STEP(WEIGHTS_FUNCTION, conv_weights_pool, conv_weights_pool_outputs)
#undef CONV_STEP
#undef OUTPUTS_FUNCTION
#undef INPUTS_FUNCTION
#undef WEIGHTS_FUNCTION

#endif
