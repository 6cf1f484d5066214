/* Loading and storing samples, fully connected layers, losses, and call completion; included by
 * lanes_kernels.c. */
#ifndef GP_LANES_DENSE_H
#define GP_LANES_DENSE_H

#include <math.h>

#include "worker/backend/cpu/lanes/lanes_conv.h"
#include "worker/backend/cpu/lanes/lanes_generic.h"
#include "worker/backend/cpu/lanes/lanes_winograd.h"

#if LANES == 16
enum { FC_OUTPUTS = 24, PANEL_OUTPUTS = 12 };
#elif LANES == 8
enum { FC_OUTPUTS = 12, PANEL_OUTPUTS = 6 };
#else
enum { FC_OUTPUTS = 8, PANEL_OUTPUTS = 4 };
#endif
enum { PANEL_INPUTS = 2 * LANES };

typedef uint8_t B __attribute__((vector_size(LANES)));

/* Load `count` consecutive pixels of L samples as `count` vectors.
 *   src   address of each sample
 *   from  index of the first pixel */
static void load_pixels(const unsigned char *const *src, gp_dtype dtype, ptrdiff_t from, int count, V scale,
                        V offset, float *to)
{
    for (int i = 0; i < count; i += LANES) {
        int n = count - i < LANES ? count - i : LANES;
        V r[LANES];

        for (int l = 0; l < LANES; l++) {
            if (dtype == GP_U8) {
                B bytes = { 0 };

                if (n == LANES)
                    memcpy(&bytes, src[l] + from + i, LANES);
                else
                    memcpy(&bytes, src[l] + from + i, (size_t)n);
                r[l] = __builtin_convertvector(bytes, V);
            } else {
                r[l] = zero();
                if (n == LANES)
                    memcpy(&r[l], (const float *)src[l] + from + i, sizeof(V));
                else
                    memcpy(&r[l], (const float *)src[l] + from + i, (size_t)n * sizeof(float));
            }
        }
        transpose(r);
        for (int k = 0; k < n; k++)
            store(to + (i + k) * LANES, r[k] * scale + offset);
    }
}

static void step_load_samples(const lanes_step *step, const lanes_block *block)
{
    const lanes_view *y = &step->y;
    const lanes_segment *segment = block->segment;
    int pixels = step->full_height * step->full_width;
    bool dense = y->row == y->width * LANES && y->width == step->full_width;
    const unsigned char *src[LANES];

    /* Lanes beyond the batch repeat the block's first sample; no step uses their results. */
    for (uint32_t l = 0; l < LANES; l++)
        src[l] = (const unsigned char *)block->batch->samples + (block->first + (l < block->count ? l : 0)) *
                                                                    (size_t)y->channels * (size_t)pixels *
                                                                    gp_dtype_bytes(segment->sample_dtype);
    for (int c = 0; c < y->channels; c++) {
        V scale = splat(segment->scale[c]), offset = splat(segment->offset[c]);

        if (dense) {
            load_pixels(src, segment->sample_dtype, (ptrdiff_t)c * pixels, y->height * y->width, scale,
                        offset, row_at(y, block, c, 0));
            continue;
        }
        for (int h = 0; h < y->height; h++)
            load_pixels(src, segment->sample_dtype, (ptrdiff_t)c * pixels + h * step->full_width, y->width,
                        scale, offset, row_at(y, block, c, h));
    }
}

/* Load a value from a plan buffer. Moves 32-bit words without arithmetic, so it also loads
 * indices. */
static void step_load(const lanes_step *step, const lanes_block *block)
{
    const lanes_view *y = &step->y;
    size_t count = (size_t)y->channels * (size_t)(y->height * y->width);
    const float *base = step->crossing;

    for (int c = 0; c < y->channels; c++)
        for (int h = 0; h < y->height; h++)
            for (int w = 0; w < y->width; w++) {
                float *to = row_at(y, block, c, h) + w * LANES;
                size_t element = ((size_t)c * (size_t)y->height + (size_t)h) * (size_t)y->width + (size_t)w;

                for (uint32_t l = 0; l < LANES; l++) {
                    uint32_t sample = block->first + (l < block->count ? l : 0);

                    if (l >= block->count && step->gradient)
                        memset(to + l, 0, sizeof(float));
                    else
                        memcpy(to + l, base + sample * count + element, sizeof(float));
                }
            }
}

static void step_store(const lanes_step *step, const lanes_block *block)
{
    const lanes_view *x = &step->x;
    size_t count = (size_t)x->channels * (size_t)(x->height * x->width);
    float *base = step->crossing;

    for (uint32_t l = 0; l < block->count; l++) {
        float *to = base + (block->first + l) * count;

        for (int c = 0; c < x->channels; c++)
            for (int h = 0; h < x->height; h++)
                for (int w = 0; w < x->width; w++)
                    memcpy(to++, row_at(x, block, c, h) + w * LANES + l, sizeof(float));
    }
}

INLINE void fc_tile(const lanes_step *step, const float *in, float *out, int first, int inputs,
                    ptrdiff_t outputs, const int tile)
{
    const float *weight = step->weight + first;
    V acc[FC_OUTPUTS];

    conv_begin(acc, step->bias, first, tile, 1);
    for (int i = 0; i < inputs; i++, weight += outputs) {
        V x = load(in + i * LANES);

        UNROLL
        for (int t = 0; t < tile; t++)
            acc[t] += splat(weight[t]) * x;
    }
    UNROLL
    for (int t = 0; t < tile; t++)
        store(out + (first + t) * LANES, acc[t]);
}

static int view_count(const lanes_view *view)
{
    return view->channels * view->height * view->width;
}

static void step_fc(const lanes_step *step, const lanes_block *block)
{
    const float *in = at(&step->x, block);
    float *out = at(&step->y, block);
    int inputs = view_count(&step->x), outputs = view_count(&step->y), o = 0;

    for (; o + FC_OUTPUTS <= outputs; o += FC_OUTPUTS)
        fc_tile(step, in, out, o, inputs, outputs, FC_OUTPUTS);
    for (; o + 4 <= outputs; o += 4)
        fc_tile(step, in, out, o, inputs, outputs, 4);
    for (; o < outputs; o++)
        fc_tile(step, in, out, o, inputs, outputs, 1);
}

/* Copy x to panels [input / PANEL_INPUTS][sample][PANEL_INPUTS] and dy to panels [output /
 * PANEL_OUTPUTS][sample][PANEL_OUTPUTS]. Padding in the last panels is zero from allocation. */
static void step_fc_weights(const lanes_step *step, const lanes_block *block)
{
    const float *x = at(&step->x, block), *dy = at(&step->z, block);
    int inputs = view_count(&step->x), outputs = view_count(&step->z);
    size_t rows = (size_t)block->segment->block_count * LANES;

    for (int i = 0; i < inputs; i += LANES) {
        float *panel = step->panel_x + ((size_t)(i / PANEL_INPUTS) * rows + block->first) * PANEL_INPUTS +
                       i % PANEL_INPUTS;
        V r[LANES];

        for (int k = 0; k < LANES; k++)
            r[k] = i + k < inputs ? load(x + (i + k) * LANES) : zero();
        transpose(r);
        for (int l = 0; l < LANES; l++)
            store(panel + l * PANEL_INPUTS, r[l]);
    }
    for (int o = 0; o < outputs; o++) {
        float *panel = step->panel_dy + ((size_t)(o / PANEL_OUTPUTS) * rows + block->first) * PANEL_OUTPUTS +
                       o % PANEL_OUTPUTS;

        for (int l = 0; l < LANES; l++)
            panel[l * PANEL_OUTPUTS] = dy[o * LANES + l];
    }
}

static void step_softmax_xent(const lanes_step *step, const lanes_block *block)
{
    const float *x = at(&step->x, block);
    int classes = view_count(&step->x);
    const int32_t *labels = block->batch->targets;
    float *scores = block->segment->phase == GP_PHASE_INFER ? block->segment->memory.scores : NULL;
    V top = load(x), sum = zero(), inverse;
    I best = splat_int(0), label = splat_int(-1);

    for (int k = 1; k < classes; k++) {
        V v = load(x + k * LANES);
        I more = ~(v <= top);

        top = choose(more, v, top);
        best = (best & ~more) | (splat_int(k) & more);
    }
    for (int k = 0; k < classes; k++)
        sum += exp_negative(load(x + k * LANES) - top);
    inverse = splat(1.0f) / sum;
    for (uint32_t l = 0; l < block->count && labels != NULL; l++) {
        label[l] = labels[block->first + l];
        if (label[l] >= 0) {
            assert(label[l] < classes);
            block->metrics[GP_SUM_LOSS] +=
                log((double)sum[l]) + (double)top[l] - (double)x[(size_t)label[l] * LANES + l];
            block->metrics[GP_SUM_WEIGHT] += 1.0;
            block->metrics[GP_SUM_CLASSED] += 1.0;
            block->metrics[GP_SUM_CORRECT] += best[l] == label[l];
        }
    }
    if (step->y.buffer == LANES_NONE && scores == NULL)
        return;
    for (int k = 0; k < classes; k++) {
        V p = exp_negative(load(x + k * LANES) - top) * inverse;

        if (step->y.buffer != LANES_NONE)
            store(at(&step->y, block) + k * LANES,
                  keep(label >= splat_int(0), p - keep(label == splat_int(k), splat(1.0f))));
        for (uint32_t l = 0; l < block->count && scores != NULL; l++)
            scores[(size_t)(block->first + l) * (size_t)classes + (size_t)k] = p[l];
    }
}

/* Call the custom loss function with sample rows. It gets only batch samples; gradients in the
 * other lanes are zero. */
static void step_custom_loss(const lanes_step *step, const lanes_block *block)
{
    const gp_plan_memory *memory = &block->segment->memory;
    const float *x = at(&step->x, block);
    int size = view_count(&step->x);
    float rows[LANES * LANES_CUSTOM_SCORES_MAX], gradient[LANES * LANES_CUSTOM_SCORES_MAX];
    gp_error err;

    for (uint32_t l = 0; l < block->count; l++)
        for (int k = 0; k < size; k++)
            rows[l * (uint32_t)size + (uint32_t)k] = x[k * LANES + (int)l];
    if (block->segment->phase == GP_PHASE_INFER && memory->scores != NULL)
        memcpy(memory->scores + (size_t)block->first * (size_t)size, rows,
               block->count * (size_t)size * sizeof(float));
    if (step->y.buffer == LANES_NONE || memory->loss == NULL)
        return;
    memset(gradient, 0, LANES * (size_t)size * sizeof(float));
    (void)memory->loss(memory->loss_context,
                       &(gp_plan_loss_call){ .first = block->first,
                                             .count = block->count,
                                             .scores = rows,
                                             .gradient = gradient,
                                             .sums = block->metrics },
                       &err);
    for (int k = 0; k < size; k++)
        for (int l = 0; l < LANES; l++)
            at(&step->y, block)[k * LANES + l] = l < (int)block->count ? gradient[l * size + k] : 0.0f;
}

/* Pack the weights [o][c][k] of one tile: [c][k][tile] for output tiles, [o][k][tile] for input
 * tiles. */
static void pack_tile(const lanes_pack *pack, int first, int tile)
{
    int area = pack->kernel * pack->kernel,
        inner = pack->kind == LANES_PACK_OUTPUTS ? pack->inputs : pack->outputs;
    float *to = pack->to + (ptrdiff_t)first * inner * area;

    for (int i = 0; i < inner; i++)
        for (int k = 0; k < area; k++)
            for (int t = 0; t < tile; t++) {
                int o = pack->kind == LANES_PACK_OUTPUTS ? first + t : i;
                int c = pack->kind == LANES_PACK_OUTPUTS ? i : first + t;

                *to++ = pack->from[((ptrdiff_t)o * pack->inputs + c) * area + k];
            }
}

static void pack_weights(const lanes_pack *pack, uint32_t thread, uint32_t threads)
{
    if (pack->kind == LANES_PACK_TRANSPOSE) {
        /* Transpose a matrix from [o][i] to [i][o], in squares that fit into the L1 cache. */
        enum { EDGE = 16 };

        for (int i0 = (int)thread * EDGE; i0 < pack->inputs; i0 += (int)threads * EDGE) {
            int i1 = i0 + EDGE < pack->inputs ? i0 + EDGE : pack->inputs;

            for (int o = 0; o < pack->outputs; o++)
                for (int i = i0; i < i1; i++)
                    pack->to[(ptrdiff_t)i * pack->outputs + o] = pack->from[(ptrdiff_t)o * pack->inputs + i];
        }
    } else if (pack->kind == LANES_PACK_WINOGRAD_OUTPUTS || pack->kind == LANES_PACK_WINOGRAD_INPUTS)
        pack_winograd(pack, thread, threads);
    else {
        int count = pack->kind == LANES_PACK_OUTPUTS ? pack->outputs : pack->inputs;
        int wide = pack->kind == LANES_PACK_OUTPUTS ? FORWARD_OUTPUTS : DATA_INPUTS;
        uint32_t index = 0;

        for (int i = 0, tile; i < count; i += tile, index++) {
            tile = count - i >= wide ? wide : count - i >= 2 && pack->kind == LANES_PACK_OUTPUTS ? 2 : 1;
            if (index % threads == thread)
                pack_tile(pack, i, tile);
        }
    }
}

INLINE void finish_put(float *to, float value, bool first)
{
    *to = first ? value : *to + value;
}

INLINE float share_sum(const lanes_share *share, size_t index)
{
    float sum = share->sums[0][index];

    for (uint32_t t = 1; t < share->threads; t++)
        sum += share->sums[t][index];
    return sum;
}

INLINE void finish_put_vector(float *to, V v, int count, bool first)
{
    if (count >= LANES) {
        if (!first)
            v += *(V_unaligned *)to;
        *(V_unaligned *)to = v;
        return;
    }
    for (int i = 0; i < count; i++)
        finish_put(to + i, v[i], first);
}

/* Compute one weight gradient tile: dweight[o .. o + PANEL_OUTPUTS)[i .. i + PANEL_INPUTS) is dy
 * times x, summed over all samples. */
static void finish_fc_tile(const lanes_finish *finish, const lanes_share *share, int o, int i)
{
    const float *x = finish->panel_x + (size_t)(i / PANEL_INPUTS) * share->sample_rows * PANEL_INPUTS;
    const float *dy = finish->panel_dy + (size_t)(o / PANEL_OUTPUTS) * share->sample_rows * PANEL_OUTPUTS;
    V acc[2 * PANEL_OUTPUTS];

    UNROLL
    for (int t = 0; t < 2 * PANEL_OUTPUTS; t++)
        acc[t] = zero();
    for (uint32_t s = 0; s < share->samples; s++, x += PANEL_INPUTS, dy += PANEL_OUTPUTS) {
        V left = load(x), right = load(x + LANES);

        UNROLL
        for (int t = 0; t < PANEL_OUTPUTS; t++) {
            V d = splat(dy[t]);

            acc[2 * t] += d * left;
            acc[2 * t + 1] += d * right;
        }
    }
    UNROLL
    for (int t = 0; t < PANEL_OUTPUTS; t++) {
        float *to = finish->weight + (ptrdiff_t)(o + t) * finish->inputs + i;

        if (o + t >= finish->outputs)
            break;
        finish_put_vector(to, acc[2 * t], finish->inputs - i, share->first);
        finish_put_vector(to + LANES, acc[2 * t + 1], finish->inputs - i - LANES, share->first);
    }
}

static void finish_gradients(const lanes_finish *finish, const lanes_share *share)
{
    size_t each = finish->weight_count / (size_t)finish->outputs;

    if (finish->kind == LANES_FINISH_FC) {
        for (int i = (int)share->thread * PANEL_INPUTS; i < finish->inputs;
             i += (int)share->threads * PANEL_INPUTS)
            for (int o = 0; o < finish->outputs; o += PANEL_OUTPUTS)
                finish_fc_tile(finish, share, o, i);
        for (int o = (int)share->thread; o < finish->outputs && finish->bias != NULL;
             o += (int)share->threads) {
            const float *dy =
                finish->panel_dy + (size_t)(o / PANEL_OUTPUTS) * share->sample_rows * PANEL_OUTPUTS;
            float sum = 0;

            for (uint32_t s = 0; s < share->samples; s++)
                sum += dy[(size_t)s * PANEL_OUTPUTS + (size_t)(o % PANEL_OUTPUTS)];
            finish_put(finish->bias + o, sum, share->first);
        }
        return;
    }
    for (int o = (int)share->thread; o < finish->outputs; o += (int)share->threads) {
        if (finish->bias != NULL)
            finish_put(finish->bias + o, share_sum(share, finish->bias_sum + (size_t)o), share->first);
        if (finish->kind == LANES_FINISH_WINOGRAD) {
            finish_winograd_output(finish, share, o);
            continue;
        }
        if (finish->kind == LANES_FINISH_CONV_FAST) {
            /* Sum one output channel's gradient over all threads, from the tile layout of
             * conv_weights_outputs(). */
            static const int outputs[] = { [1] = WEIGHTS_OUTPUTS_1,
                                           [3] = WEIGHTS_OUTPUTS_3,
                                           [5] = WEIGHTS_OUTPUTS_5,
                                           [7] = WEIGHTS_OUTPUTS_7 };
            int kernel = finish->kernel, wide = outputs[kernel], group = weights_group(kernel, wide);
            int tiles = finish->outputs / wide, whole = tiles * wide;
            int tile = o < whole ? o / wide : tiles + o - whole, t = o < whole ? o % wide : 0;
            float *to = finish->weight + (ptrdiff_t)o * finish->inputs * kernel * kernel;
            size_t from = finish->weight_sum + (size_t)tile * (size_t)(finish->inputs * kernel * group);

            for (int row = 0; row < finish->inputs * kernel; row++, from += (size_t)group)
                for (int kx = 0; kx < kernel; kx++)
                    finish_put(to++, share_sum(share, from + (size_t)(t * kernel + kx)), share->first);
            continue;
        }
        for (size_t i = (size_t)o * each; i < (size_t)(o + 1) * each; i++)
            finish_put(finish->weight + i, share_sum(share, finish->weight_sum + i), share->first);
    }
}

#endif
