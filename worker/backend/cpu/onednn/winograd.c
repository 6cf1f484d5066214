#include "worker/backend/cpu/onednn/winograd_inside.h"

#include "worker/backend/cpu/base/threads.h"

enum { FORWARD_NUMBERS = 262144, FORWARD_TILES_MIN = 48, FORWARD_TILES_MAX = 96 };

gp_winograd gp_winograd_turned(const gp_winograd *w)
{
    return (gp_winograd){ .images = w->images,
                          .inputs = w->outputs,
                          .outputs = w->inputs,
                          .height = w->out_height,
                          .width = w->out_width,
                          .out_height = w->height,
                          .out_width = w->width,
                          .top = 2 - w->top,
                          .left = 2 - w->left,
                          .turned = !w->turned,
                          .narrow = w->narrow };
}

/* Return the tile count per block. A block is transformed, multiplied and transformed back while it
 * is in the cache. */
static size_t forward_block(const gp_winograd *w)
{
    size_t tiles = FORWARD_NUMBERS / POINTS / (w->inputs + w->outputs) / ROWS * ROWS;

    return tiles < FORWARD_TILES_MIN   ? FORWARD_TILES_MIN
           : tiles > FORWARD_TILES_MAX ? FORWARD_TILES_MAX
                                       : tiles;
}

/* Return true for a convolution with more weights than pixels. It transforms all inputs first, and
 * then the weights panel by panel while each panel is in the cache. */
static bool weighty(const gp_winograd *w, uint32_t threads)
{
    return w->outputs > tiles_of(w) && w->outputs / (PANEL * LANES) >= threads;
}

static size_t common_room(const gp_winograd *w, uint32_t threads)
{
    return weighty(w, threads) ? POINTS * points_stride(tiles_of(w), w->inputs) : POINTS * weights_stride(w);
}

/* Return the scratch memory of one thread in floats. */
static size_t own_room(const gp_winograd *w, uint32_t threads)
{
    size_t tiles = forward_block(w), rest = POINTS * points_stride(tiles, w->outputs);

    if (weighty(w, threads))
        return POINTS *
                   (points_stride(w->inputs, PANEL * LANES) + points_stride(tiles_of(w), PANEL * LANES)) +
               border_room(w);
    return POINTS * points_stride(tiles, w->inputs) + rest + border_room(w);
}

size_t gp_winograd_forward_room(const gp_winograd *w, uint32_t threads)
{
    return common_room(w, threads) + threads * own_room(w, threads);
}

/* Load the nine taps for 16 outputs from `k` and 16 inputs from `c`, with outputs in vector
 * lanes. */
static void taps_take(const gp_winograd *w, const float *weight, size_t c, size_t k, wide taps[LANES][9])
{
    wide v[LANES];

    if (w->turned) {
        for (size_t i = 0; i < LANES; i++) {
            /* with padding, because vector loads read beyond the taps */
            float some[9 * LANES + LANES];

            memcpy(some, weight + ((c + i) * w->outputs + k) * 9, 9 * LANES * sizeof(float));
            memset(some + 9 * LANES, 0, LANES * sizeof(float));
            for (size_t l = 0; l < LANES; l++)
                v[l] = load(some, l * 9, false);
            transpose(v);
            for (size_t tap = 0; tap < 9; tap++)
                taps[i][8 - tap] = v[tap];
        }
        return;
    }
    for (size_t part = 0; part < 9; part++) {
        for (size_t l = 0; l < LANES; l++)
            v[l] = load(weight, ((k + l) * w->inputs + c) * 9 + part * LANES, false);
        transpose(v);
        for (size_t i = 0; i < LANES; i++)
            (&taps[0][0])[part * LANES + i] = v[i];
    }
}

/* Compute u = G w Gt for 16 outputs.
 *   to  address of these outputs, as given by weights_at() */
static void weights_transform(const gp_winograd *w, const float *weight, size_t k, float *to, size_t step,
                              size_t stride)
{
    wide taps[LANES][9];

    for (size_t c = 0; c < w->inputs; c++, to += step) {
        const wide *tap = taps[c % LANES];
        wide half[3][EDGE];

        if (c % LANES == 0)
            taps_take(w, weight, c, k, taps);
        for (size_t i = 0; i < 3; i++)
            row_g(tap + 3 * i, half[i]);
        for (size_t j = 0; j < EDGE; j++) {
            wide d[3] = { half[0][j], half[1][j], half[2][j] }, v[EDGE];

            row_g(d, v);
            for (size_t i = 0; i < EDGE; i++)
                *(wide *)(to + (i * EDGE + j) * stride) = v[i];
        }
    }
}

/* Compute 16 channels in a tile's outputs from the tile's sums. */
LOOP_INLINE void tile_outputs(const gp_winograd *w, const float *m, size_t stride, place at, size_t k,
                              const gp_winograd_tail *tail, void *y, const bool narrow)
{
    const size_t rows = least(TILE, w->out_height - at.row), columns = least(TILE, w->out_width - at.column);
    const wide bias = tail->bias == NULL ? splat(0.0f) : load(tail->bias, k, false);
    wide half[EDGE][TILE];

#pragma GCC unroll 6
    for (size_t i = 0; i < EDGE; i++) {
        wide d[EDGE];

#pragma GCC unroll 6
        for (size_t j = 0; j < EDGE; j++)
            d[j] = *(const wide *)(m + (i * EDGE + j) * stride);
        row_a(d, half[i]);
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < TILE; j++) {
        wide d[EDGE], out[TILE];

        if (j >= columns)
            break;
#pragma GCC unroll 6
        for (size_t i = 0; i < EDGE; i++)
            d[i] = half[i][j];
        row_a(d, out);
#pragma GCC unroll 4
        for (size_t i = 0; i < TILE; i++) {
            size_t to =
                ((at.image * w->out_height + at.row + i) * w->out_width + at.column + j) * w->outputs + k;
            wide v = out[i] + bias;

            if (i >= rows)
                break;
            if (tail->other != NULL)
                v += load(tail->other, to, narrow);
            if (tail->bounded) {
                v = choose((words)(v <= tail->low), splat(tail->low), v); /* keeps NaN */
                v = choose((words)(v >= tail->high), splat(tail->high), v);
            }
            store(y, to, v, narrow);
        }
    }
}

/* Compute outputs [k, end) in a tile range. `row` is the row length in the sums. */
static void outputs_transform(const gp_winograd *w, const float *m, size_t stride, size_t row, range tiles,
                              size_t k, size_t end, const gp_winograd_tail *tail, void *y)
{
    for (size_t t = tiles.first; t < tiles.end; t++, m += row)
        for (size_t at = k; at < end; at += LANES)
            if (w->narrow)
                tile_outputs(w, m + (at - k), stride, place_of(w, t), at, tail, y, true);
            else
                tile_outputs(w, m + (at - k), stride, place_of(w, t), at, tail, y, false);
}

/* Transform the weights; for a convolution with more weights than pixels, transform the inputs. */
static void begin_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_winograd_call *call = context;
    const gp_winograd *w = call->w;

    if (weighty(w, threads)) {
        const range tiles = share(tiles_of(w), thread, threads);
        const size_t own = own_room(w, threads);
        float *border = call->room + common_room(w, threads) + (thread + 1) * own - border_room(w);

        inputs_transform(w, call->x, tiles, tiles.first,
                         (inputs_layout){ call->room, points_stride(tiles_of(w), w->inputs), w->inputs, 0 },
                         border);
    } else {
        const range mine = share(w->outputs / LANES, thread, threads);

        for (size_t k = mine.first * LANES; k < mine.end * LANES; k += LANES)
            weights_transform(w, call->weight, k, call->room + weights_at(w, 0, k),
                              weights_at(w, 1, k) - weights_at(w, 0, k), weights_stride(w));
    }
}

/* Compute some output panels for all tiles. */
static void panels_share(const gp_winograd *w, const float *weight, const gp_winograd_tail *tail, void *y,
                         const float *v, float *u, range panels)
{
    const range tiles = { 0, tiles_of(w) };
    const size_t stride = points_stride(tiles.end, w->inputs),
                 u_stride = points_stride(w->inputs, PANEL * LANES),
                 m_stride = points_stride(tiles.end, PANEL * LANES);
    float *m = u + POINTS * u_stride;

    for (size_t panel = panels.first; panel < panels.end; panel++) {
        const size_t k = panel * PANEL * LANES, width = panel_width(k, w->outputs);

        for (size_t l = 0; l < width; l += LANES)
            weights_transform(w, weight, k + l, u + l, width, u_stride);
        for (size_t point = 0; point < POINTS; point++)
            product(v + point * stride, w->inputs, 1, u + point * u_stride, w->inputs, m + point * m_stride,
                    width, tiles.end, false, width);
        outputs_transform(w, m, m_stride, width, tiles, k, k + width, tail, y);
    }
}

/* Compute all outputs for some tiles. */
static void tiles_share(const gp_winograd *w, const void *x, const gp_winograd_tail *tail, void *y,
                        const float *u, float *v, float *border, range tiles)
{
    const size_t block = forward_block(w), stride = points_stride(block, w->inputs),
                 m_stride = points_stride(block, w->outputs), u_stride = weights_stride(w);
    float *m = v + POINTS * stride;

    for (size_t first = tiles.first; first < tiles.end; first += block) {
        const range some = { first, least(first + block, tiles.end) };

        inputs_transform(w, x, some, 0, (inputs_layout){ v, stride, w->inputs, 0 }, border);
        for (size_t point = 0; point < POINTS; point++)
            for (size_t k = 0, width; k < w->outputs; k += width) {
                width = panel_width(k, w->outputs);
                product(v + point * stride, w->inputs, 1, u + point * u_stride + k * w->inputs, w->inputs,
                        m + point * m_stride + k, w->outputs, some.end - some.first, false, width);
            }
        outputs_transform(w, m, m_stride, w->outputs, some, 0, w->outputs, tail, y);
    }
}

static void end_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_winograd_call *call = context;
    const gp_winograd *w = call->w;
    const size_t own = own_room(w, threads);
    float *mine = call->room + common_room(w, threads) + thread * own;

    if (weighty(w, threads))
        panels_share(w, call->weight, &call->tail, call->y, call->room, mine,
                     share((w->outputs + PANEL * LANES - 1) / (PANEL * LANES), thread, threads));
    else
        tiles_share(w, call->x, &call->tail, call->y, call->room, mine, mine + own - border_room(w),
                    share(tiles_of(w), thread, threads));
}

void gp_winograd_forward(const gp_winograd_call *call, uint32_t threads)
{
    gp_threads_run(threads, begin_share, (void *)(uintptr_t)call);
    gp_threads_run(threads, end_share, (void *)(uintptr_t)call);
}
