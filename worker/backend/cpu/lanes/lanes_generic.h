/* Steps for all ops with any shape, stride, dilation, padding and grouping; included by
 * lanes_kernels.c.
 *
 * They favour correctness over speed. They execute ops that no fast kernel supports, and tests
 * compare fused steps with them. */
#ifndef GP_LANES_GENERIC_H
#define GP_LANES_GENERIC_H

#include "common/base/rng.h"
#include "worker/backend/cpu/lanes/lanes_vector.h"

/* Return the input position of tap k at output position o. The caller checks that it lies within
 * the input. */
INLINE int window_position(const gp_window *window, int axis, int o, int k)
{
    return o * window->stride[axis] + k * window->dilation[axis] - window->padding[axis];
}

INLINE float *row_at(const lanes_view *view, const lanes_block *block, int channel, int y)
{
    return at(view, block) + channel * view->plane + y * view->row;
}

static void step_conv_any(const lanes_step *step, const lanes_block *block)
{
    for (int o = 0; o < step->y.channels; o++)
        for (int y = 0; y < step->y.height; y++)
            for (int x = 0; x < step->y.width; x++) {
                const gp_window *window = &step->window;
                int inputs = step->x.channels / window->groups, outputs = step->y.channels / window->groups;
                const float *weight =
                    step->weight + (ptrdiff_t)o * inputs * window->kernel[0] * window->kernel[1];
                V acc = step->bias == NULL ? zero() : splat(step->bias[o]);

                for (int c = o / outputs * inputs, end = c + inputs; c < end; c++) {
                    for (int ky = 0; ky < window->kernel[0]; ky++, weight += window->kernel[1]) {
                        int iy = window_position(window, 0, y, ky);

                        if (iy < 0 || iy >= step->x.height)
                            continue;
                        for (int kx = 0; kx < window->kernel[1]; kx++) {
                            int ix = window_position(window, 1, x, kx);

                            if (ix >= 0 && ix < step->x.width)
                                acc += splat(weight[kx]) * load(row_at(&step->x, block, c, iy) + ix * LANES);
                        }
                    }
                }
                store(row_at(&step->y, block, o, y) + x * LANES, step->relu ? keep(positive(acc), acc) : acc);
            }
}

/* Return the output position whose tap k reads input position i along an axis. -1: none. */
INLINE int window_output(const gp_window *window, int axis, int i, int k, int outputs)
{
    int distance = i + window->padding[axis] - k * window->dilation[axis];

    if (distance < 0 || distance % window->stride[axis] != 0)
        return -1;
    distance /= window->stride[axis];
    return distance < outputs ? distance : -1;
}

static V conv_data_pixel(const lanes_step *step, const lanes_block *block, int c, int y, int x)
{
    const gp_window *window = &step->window;
    int inputs = step->y.channels / window->groups, outputs = step->x.channels / window->groups;
    int area = window->kernel[0] * window->kernel[1], group = c / inputs;
    V acc = zero();

    for (int ky = 0; ky < window->kernel[0]; ky++) {
        int oy = window_output(window, 0, y, ky, step->x.height);

        for (int kx = 0; oy >= 0 && kx < window->kernel[1]; kx++) {
            int ox = window_output(window, 1, x, kx, step->x.width);

            for (int o = group * outputs, end = o + outputs; ox >= 0 && o < end; o++)
                acc += splat(step->weight[((ptrdiff_t)o * inputs + c % inputs) * area +
                                          ky * window->kernel[1] + kx]) *
                       load(row_at(&step->x, block, o, oy) + ox * LANES);
        }
    }
    return acc;
}

static void step_conv_data_any(const lanes_step *step, const lanes_block *block)
{
    for (int c = 0; c < step->y.channels; c++)
        for (int y = 0; y < step->y.height; y++)
            for (int x = 0; x < step->y.width; x++)
                store(row_at(&step->y, block, c, y) + x * LANES, conv_data_pixel(step, block, c, y, x));
}

static void sum_bias(const lanes_step *step, const lanes_block *block)
{
    if (step->bias_sum == SIZE_MAX)
        return;
    for (int o = 0; o < step->z.channels; o++) {
        V sum = zero();

        for (int y = 0; y < step->z.height; y++)
            for (int x = 0; x < step->z.width; x++)
                sum += load(row_at(&step->z, block, o, y) + x * LANES);
        block->sums[step->bias_sum + (size_t)o] += sum_lanes(sum);
    }
}

static void step_conv_weights_any(const lanes_step *step, const lanes_block *block)
{
    const gp_window *window = &step->window;
    int inputs = step->x.channels / window->groups, outputs = step->z.channels / window->groups;
    float *sums = block->sums + step->weight_sum;

    sum_bias(step, block);
    for (int o = 0; o < step->z.channels; o++)
        for (int c = o / outputs * inputs, end = c + inputs; c < end; c++)
            for (int ky = 0; ky < window->kernel[0]; ky++)
                for (int kx = 0; kx < window->kernel[1]; kx++) {
                    V acc = zero();

                    for (int y = 0; y < step->z.height; y++) {
                        int iy = window_position(&step->window, 0, y, ky);

                        for (int x = 0; iy >= 0 && iy < step->x.height && x < step->z.width; x++) {
                            int ix = window_position(&step->window, 1, x, kx);

                            if (ix >= 0 && ix < step->x.width)
                                acc += load(row_at(&step->z, block, o, y) + x * LANES) *
                                       load(row_at(&step->x, block, c, iy) + ix * LANES);
                        }
                    }
                    *sums++ += sum_lanes(acc);
                }
}

/* Count the window pixels within the input, or all window pixels if padding counts. */
INLINE float pool_area(const lanes_step *step, const lanes_view *input, int y, int x)
{
    int rows = 0, columns = 0;

    if (step->pool == GP_POOL_AVERAGE_COUNT_PADDING)
        return (float)(step->window.kernel[0] * step->window.kernel[1]);
    for (int ky = 0; ky < step->window.kernel[0]; ky++) {
        int iy = window_position(&step->window, 0, y, ky);

        rows += iy >= 0 && iy < input->height;
    }
    for (int kx = 0; kx < step->window.kernel[1]; kx++) {
        int ix = window_position(&step->window, 1, x, kx);

        columns += ix >= 0 && ix < input->width;
    }
    return (float)(rows * columns);
}

static void pool_pixel(const lanes_step *step, const lanes_block *block, int c, int y, int x)
{
    V sum = zero(), top = splat(-__builtin_inff());
    I index = splat_int(0);
    float *out = row_at(&step->y, block, c, y) + x * LANES;
    bool none = true;

    for (int ky = 0; ky < step->window.kernel[0]; ky++) {
        int iy = window_position(&step->window, 0, y, ky);

        for (int kx = 0; iy >= 0 && iy < step->x.height && kx < step->window.kernel[1]; kx++) {
            int ix = window_position(&step->window, 1, x, kx);

            if (ix < 0 || ix >= step->x.width)
                continue;
            V v = load(row_at(&step->x, block, c, iy) + ix * LANES);
            /* NaN counts as larger than all numbers; the first NaN remains */
            I more = (none ? splat_int(-1) : splat_int(0)) | (~(v <= top) & (top == top));

            sum += v;
            top = choose(more, v, top);
            index = (index & ~more) | (splat_int(iy * step->full_width + ix) & more);
            none = false;
        }
    }
    if (step->pool == GP_POOL_MAX) {
        store(out, top);
        if (step->z.buffer != LANES_NONE)
            *(I *)(row_at(&step->z, block, c, y) + x * LANES) = index;
        return;
    }
    store(out, sum / splat(none ? 1.0f : pool_area(step, &step->x, y, x)));
}

static void step_pool(const lanes_step *step, const lanes_block *block)
{
    for (int c = 0; c < step->y.channels; c++)
        for (int y = 0; y < step->y.height; y++)
            for (int x = 0; x < step->y.width; x++)
                pool_pixel(step, block, c, y, x);
}

static void clear_view(const lanes_view *view, const lanes_block *block)
{
    for (int c = 0; c < view->channels; c++)
        for (int y = 0; y < view->height; y++)
            memset(row_at(view, block, c, y), 0, (size_t)view->width * LANES * sizeof(float));
}

static void unpool_average(const lanes_step *step, const lanes_block *block, int c, int y, int x)
{
    V d = load(row_at(&step->x, block, c, y) + x * LANES) / splat(pool_area(step, &step->y, y, x));

    for (int ky = 0; ky < step->window.kernel[0]; ky++) {
        int iy = window_position(&step->window, 0, y, ky);

        for (int kx = 0; iy >= 0 && iy < step->y.height && kx < step->window.kernel[1]; kx++) {
            int ix = window_position(&step->window, 1, x, kx);

            if (ix >= 0 && ix < step->y.width) {
                float *to = row_at(&step->y, block, c, iy) + ix * LANES;

                store(to, load(to) + d);
            }
        }
    }
}

static void step_pool_backward(const lanes_step *step, const lanes_block *block)
{
    clear_view(&step->y, block);
    for (int c = 0; c < step->x.channels; c++)
        for (int y = 0; y < step->x.height; y++)
            for (int x = 0; x < step->x.width; x++) {
                if (step->pool == GP_POOL_MAX) {
                    /* Add each lane's gradient to the position of that lane's maximum. */
                    const float *d = row_at(&step->x, block, c, y) + x * LANES;
                    I index = *(const I *)(row_at(&step->z, block, c, y) + x * LANES);

                    for (int l = 0; l < LANES; l++) {
                        int iy = index[l] / step->full_width, ix = index[l] % step->full_width;

                        if (iy < step->y.height && ix < step->y.width)
                            row_at(&step->y, block, c, iy)[ix * LANES + l] += d[l];
                    }
                } else
                    unpool_average(step, block, c, y, x);
            }
}

/* Define an element-wise step. It processes whole rows, because all views have the same size. */
#define ELEMENTWISE(name, expression)                                                                        \
    static void name(const lanes_step *step, const lanes_block *block)                                       \
    {                                                                                                        \
        bool binary = step->z.buffer != LANES_NONE;                                                          \
                                                                                                             \
        assert(step->x.height == step->y.height && step->x.width == step->y.width);                          \
        for (int c = 0; c < step->y.channels; c++)                                                           \
            for (int y = 0; y < step->y.height; y++) {                                                       \
                const float *p = row_at(&step->x, block, c, y);                                              \
                const float *q = binary ? row_at(&step->z, block, c, y) : p;                                 \
                float *to = row_at(&step->y, block, c, y);                                                   \
                                                                                                             \
                for (int i = 0; i < step->y.width * LANES; i += LANES) {                                     \
                    V a = load(p + i), b = load(q + i);                                                      \
                                                                                                             \
                    (void)b;                                                                                 \
                    store(to + i, expression);                                                               \
                }                                                                                            \
            }                                                                                                \
    }
ELEMENTWISE(step_relu, keep(positive(a), a))
ELEMENTWISE(step_relu_backward, keep(positive(a), b))
ELEMENTWISE(step_add, a + b)
#undef ELEMENTWISE

static void step_border(const lanes_step *step, const lanes_block *block)
{
    const lanes_view *y = &step->y;
    int top = step->window.padding[0], left = step->window.padding[1];
    int bottom = step->window.padding[2], right = step->window.padding[3];
    size_t row_bytes = (size_t)y->row * sizeof(float);

    for (int c = 0; c < y->channels; c++) {
        float *corner = row_at(y, block, c, -top) - left * LANES;

        memset(corner, 0, (size_t)top * row_bytes);
        memset(corner + (top + y->height) * y->row, 0, (size_t)bottom * row_bytes);
        for (int i = 0; i < y->height; i++) {
            memset(row_at(y, block, c, i) - left * LANES, 0, (size_t)left * LANES * sizeof(float));
            memset(row_at(y, block, c, i) + y->width * LANES, 0, (size_t)right * LANES * sizeof(float));
        }
    }
}

/* Draw random numbers with Philox4x32-10 in all lanes. Lanes are samples: counter words 0, 1, 3 and
 * the key are equal in all lanes. */
static void draw_lanes(U out[4], uint64_t seed, uint32_t stream, uint32_t when, const uint32_t *positions,
                       uint32_t element)
{
    for (int l = 0; l < LANES; l++) {
        uint32_t words[4];

        gp_rng_draw(words, seed, stream, when, positions[l], element);
        for (int i = 0; i < 4; i++)
            out[i][l] = words[i];
    }
}

static void step_dropout(const lanes_step *step, const lanes_block *block)
{
    const float *from = at(&step->x, block);
    float *to = at(&step->y, block);
    int count = step->x.channels * step->x.height * step->x.width;
    uint32_t positions[LANES];
    U word[4];

    for (uint32_t l = 0; l < LANES; l++)
        positions[l] = (uint32_t)(block->batch->position + block->first + l);
    for (int e = 0; e < count; e++) {
        if (e % 4 == 0)
            draw_lanes(word, block->batch->seed, gp_rng_stream(GP_RNG_DROPOUT, step->layer),
                       (uint32_t)block->batch->step, positions, (uint32_t)(e / 4));
        I kept = (I)(word[e % 4] >> 8) >= splat_int((int32_t)step->threshold);

        store(to + e * LANES, keep(kept, load(from + e * LANES) * splat(step->scale)));
    }
}

#endif
