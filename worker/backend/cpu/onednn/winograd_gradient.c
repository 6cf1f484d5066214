/* Winograd weight and bias gradients, one tile block after the other. */
#include "worker/backend/cpu/onednn/winograd_inside.h"

#include "worker/backend/cpu/base/threads.h"

enum {
    GRADIENT_TILES = 128,
    /* inputs summed together, because their values for one tile share cache lines */
    SUMS_INPUTS = 48,
    BIAS_PIXELS = 64, /* pixels summed in float32 before the sum is added to a float64 */
};

typedef double doubles __attribute__((vector_size(128)));

/* A call and the current tile block. */
typedef struct gradient_stage {
    const gp_winograd_call *call;
    size_t block;
} gradient_stage;

static size_t gradient_block(const gp_winograd *w)
{
    size_t tiles = tiles_of(w), blocks = (tiles + GRADIENT_TILES - 1) / GRADIENT_TILES;

    return (tiles + blocks - 1) / blocks;
}

static size_t gradient_input_room(const gp_winograd *w)
{
    return POINTS * points_stride(gradient_block(w), w->inputs);
}

static size_t gradient_output_room(const gp_winograd *w)
{
    return POINTS * points_stride(gradient_block(w), w->outputs);
}

static size_t gradient_blocks(const gp_winograd *w)
{
    size_t block = gradient_block(w);

    return (tiles_of(w) + block - 1) / block;
}

/* Return the scratch memory for the sums over some inputs and a panel, which are finished at once
 * if there is only one block. */
static size_t sums_own_room(void)
{
    return POINTS * points_stride(SUMS_INPUTS, PANEL * LANES);
}

static size_t sums_room(const gp_winograd *w, uint32_t threads)
{
    return gradient_blocks(w) == 1 ? threads * sums_own_room() : POINTS * weights_stride(w);
}

size_t gp_winograd_gradient_room(const gp_winograd *w, uint32_t threads)
{
    return gradient_input_room(w) + gradient_output_room(w) + sums_room(w, threads) +
           threads * border_room(w);
}

/* Transform 16 channels from `k` of a tile's gradient to 6x6. */
LOOP_INLINE void tile_gradients(patch from, size_t channels, size_t k, float *to, size_t stride,
                                const bool narrow)
{
    wide half[TILE][EDGE];

#pragma GCC unroll 4
    for (size_t i = 0; i < TILE; i++) {
        wide d[TILE];

#pragma GCC unroll 4
        for (size_t j = 0; j < TILE; j++)
            d[j] = load(from.data, from.at + i * from.row + j * channels + k, narrow);
        row_a_back(d, half[i]);
    }
#pragma GCC unroll 6
    for (size_t j = 0; j < EDGE; j++) {
        wide d[TILE], v[EDGE];

#pragma GCC unroll 4
        for (size_t i = 0; i < TILE; i++)
            d[i] = half[i][j];
        row_a_back(d, v);
#pragma GCC unroll 6
        for (size_t i = 0; i < EDGE; i++)
            *(wide *)(to + (i * EDGE + j) * stride) = v[i];
    }
}

/* Transform a tile's gradients into output panels, as tile `t` of `count`. */
LOOP_INLINE void gradients_of(const gp_winograd *w, const void *dy, place at, float *to, size_t stride,
                              size_t t, size_t count, float *room, const bool narrow)
{
    const size_t numbers = w->out_height * w->out_width * w->outputs;
    const patch from = patch_of(image_at(dy, at.image * numbers, narrow), w->out_height, w->out_width,
                                w->outputs, at.row, at.column, TILE, room, narrow);

    for (size_t panel = 0, width; panel < w->outputs; panel += width) {
        width = panel_width(panel, w->outputs);
        for (size_t k = 0; k < width; k += LANES)
            tile_gradients(from, w->outputs, panel + k, to + panel * count + t * width + k, stride, narrow);
    }
}

static void transform_share(void *context, uint32_t thread, uint32_t threads)
{
    const gradient_stage *stage = context;
    const gp_winograd *w = stage->call->w;
    float *room = stage->call->room;
    const size_t first = stage->block * gradient_block(w),
                 count = least(gradient_block(w), tiles_of(w) - first);
    const range mine = share(count, thread, threads);
    float *d = room + gradient_input_room(w),
          *border = d + gradient_output_room(w) + sums_room(w, threads) + thread * border_room(w);

    inputs_transform(w, stage->call->x, (range){ first + mine.first, first + mine.end }, mine.first,
                     (inputs_layout){ room, points_stride(gradient_block(w), w->inputs), SUMS_INPUTS, count },
                     border);
    for (size_t t = mine.first; t < mine.end; t++)
        if (w->narrow)
            gradients_of(w, stage->call->dy, place_of(w, first + t), d,
                         points_stride(gradient_block(w), w->outputs), t, count, border, true);
        else
            gradients_of(w, stage->call->dy, place_of(w, first + t), d,
                         points_stride(gradient_block(w), w->outputs), t, count, border, false);
}

/* Sum over the tiles in a block at one point, for contiguous inputs and one output panel. */
static void sums_make(const gp_winograd *w, const float *room, size_t count, size_t point, size_t c, size_t k,
                      bool add, float *to)
{
    const float *v = room + point * points_stride(gradient_block(w), w->inputs) + c * count;
    const float *d = room + gradient_input_room(w) + point * points_stride(gradient_block(w), w->outputs);
    const size_t width = panel_width(k, w->outputs), inputs = least(SUMS_INPUTS, w->inputs - c);

    product(v, 1, inputs, d + k * count, count, to, width, inputs, add, width);
}

static void products_share(void *context, uint32_t thread, uint32_t threads)
{
    const gradient_stage *stage = context;
    const gp_winograd *w = stage->call->w;
    float *room = stage->call->room;
    const size_t first = stage->block * gradient_block(w),
                 count = least(gradient_block(w), tiles_of(w) - first);
    const range mine = share(POINTS, thread, threads);
    float *sums = room + gradient_input_room(w) + gradient_output_room(w);

    for (size_t point = mine.first; point < mine.end; point++)
        for (size_t k = 0; k < w->outputs; k += PANEL * LANES)
            for (size_t c = 0; c < w->inputs; c += SUMS_INPUTS)
                sums_make(w, room, count, point, c, k, stage->block > 0,
                          sums + point * weights_stride(w) + weights_at(w, c, k));
}

/* Store the nine taps for 16 outputs from `k` and 16 inputs from `c`. */
static void taps_give(const gp_winograd *w, const wide taps[LANES][9], size_t c, size_t k, float *dweight,
                      bool add)
{
    for (size_t part = 0; part < 9; part++) {
        wide v[LANES];

        for (size_t i = 0; i < LANES; i++)
            v[i] = (&taps[0][0])[part * LANES + i];
        transpose(v);
        for (size_t l = 0; l < LANES; l++) {
            float *to = dweight + ((k + l) * w->inputs + c) * 9 + part * LANES;

            if (add)
                v[l] += load(to, 0, false);
            store(to, 0, v[l], false);
        }
    }
}

/* Compute dw = Gt sums G for 16 outputs.
 *   from  sums of the first input */
static void sums_finish(const gp_winograd *w, const float *from, size_t step, size_t stride, range inputs,
                        size_t k, float *dweight, bool add)
{
    wide taps[LANES][9];

    for (size_t c = inputs.first; c < inputs.end; c++, from += step) {
        wide *tap = taps[c % LANES], half[EDGE][3];

        for (size_t i = 0; i < EDGE; i++) {
            wide s[EDGE];

            for (size_t j = 0; j < EDGE; j++)
                s[j] = *(const wide *)(from + (i * EDGE + j) * stride);
            row_g_back(s, half[i]);
        }
        for (size_t j = 0; j < 3; j++) {
            wide s[EDGE], column[3];

            for (size_t i = 0; i < EDGE; i++)
                s[i] = half[i][j];
            row_g_back(s, column);
            for (size_t i = 0; i < 3; i++)
                tap[3 * i + j] = column[i];
        }
        if (c % LANES == LANES - 1)
            taps_give(w, taps, c + 1 - LANES, k, dweight, add);
    }
}

/* Transform the summed weight gradients back. */
static void finish_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_winograd_call *call = context;
    const gp_winograd *w = call->w;
    float *room = call->room;
    const size_t some = (w->inputs + SUMS_INPUTS - 1) / SUMS_INPUTS,
                 panels = (w->outputs + PANEL * LANES - 1) / (PANEL * LANES);
    const bool whole = gradient_blocks(w) > 1;
    const size_t stride = whole ? weights_stride(w) : points_stride(SUMS_INPUTS, PANEL * LANES);
    const range mine = share(panels * some, thread, threads);
    float *sums = room + gradient_input_room(w) + gradient_output_room(w);

    for (size_t unit = mine.first; unit < mine.end; unit++) {
        const size_t k = unit / some * PANEL * LANES, first = unit % some * SUMS_INPUTS;
        const size_t width = panel_width(k, w->outputs);
        const range inputs = { first, least(first + SUMS_INPUTS, w->inputs) };
        float *from = whole ? sums + weights_at(w, first, k) : sums + thread * sums_own_room();

        for (size_t point = 0; point < POINTS && !whole; point++)
            sums_make(w, room, tiles_of(w), point, first, k, false, from + point * stride);
        for (size_t l = 0; l < width; l += LANES)
            sums_finish(w, from + l, width, stride, inputs, k + l, call->dweight, call->add);
    }
}

static void bias_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_winograd_call *call = context;
    const gp_winograd *w = call->w;
    const size_t pixels = w->images * w->out_height * w->out_width;
    const range mine = share(w->outputs / LANES, thread, threads);

    for (size_t k = mine.first * LANES; k < mine.end * LANES; k += LANES) {
        doubles sum = { 0.0 };

        for (size_t p = 0; p < pixels; p += BIAS_PIXELS) {
            wide some = { 0.0f };

            for (size_t at = p; at < pixels && at < p + BIAS_PIXELS; at++)
                some += load(call->dy, at * w->outputs + k, w->narrow);
            sum += __builtin_convertvector(some, doubles);
        }
        for (size_t l = 0; l < LANES; l++)
            call->dbias[k + l] = (float)((call->add ? (double)call->dbias[k + l] : 0.0) + sum[l]);
    }
}

void gp_winograd_gradient(const gp_winograd_call *call, uint32_t threads)
{
    const size_t blocks = gradient_blocks(call->w);

    for (gradient_stage stage = { .call = call }; stage.block < blocks; stage.block++) {
        gp_threads_run(threads, transform_share, &stage);
        if (blocks > 1)
            gp_threads_run(threads, products_share, &stage);
    }
    gp_threads_run(threads, finish_share, (void *)(uintptr_t)call);
    if (call->dbias != NULL)
        gp_threads_run(threads, bias_share, (void *)(uintptr_t)call);
}
