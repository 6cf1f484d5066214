/* Pooling of images with 2-byte types. Included by grids.h. The bodies in bodies_conv.h and
 * body_batchnorm_pool define the meaning, except that the largest of numbers with NaN is NaN. */

namespace
{

/* What a window computes: the largest number, the largest number after batch norm and relu, or the
 * mean. */
enum { POOL_MAX, POOL_NORM_MAX, POOL_MEAN };

enum { POOL_COLUMNS = 3 }; /* pixels of a window's row that are read at once */

/* The result for eight channels of a window. */
template <class T> struct pooled {
    words largest;
    uint32_t where[4]; /* two offsets in pixels, of the largest numbers */
    float sum[8];
};

/* Add a pixel to the result. offset: its distance from the first pixel of the window. */
template <class T, int POOL>
PART void pool_add(pooled<T> &p, const norm_channels &c, const words &w, uint32_t offset)
{
#pragma unroll
    for (int h = 0; h < 4; h++) {
        uint32_t two = w.of[h], above;

        if (POOL == POOL_MEAN) {
            p.sum[2 * h] += T::low(two);
            p.sum[2 * h + 1] += T::high(two);
            continue;
        }
        if (POOL == POOL_NORM_MAX)
            two = T::larger(
                T::narrow(norm_value(c, 2 * h, T::low(two)), norm_value(c, 2 * h + 1, T::high(two))), 0);
        above = T::above(two, p.largest.of[h]);
        p.largest.of[h] = T::larger(two, p.largest.of[h]);
        p.where[h] = (p.where[h] & ~above) | (offset * 0x10001u & above);
    }
}

/* Store the positions of the largest numbers of eight channels: `first` plus their offsets. */
PART void positions_put(int32_t *index, const uint32_t where[4], int32_t first)
{
    int4 *to = (int4 *)index;

    to[0] = { first + (int32_t)(where[0] & 0xffff), first + (int32_t)(where[0] >> 16),
              first + (int32_t)(where[1] & 0xffff), first + (int32_t)(where[1] >> 16) };
    to[1] = { first + (int32_t)(where[2] & 0xffff), first + (int32_t)(where[2] >> 16),
              first + (int32_t)(where[3] & 0xffff), first + (int32_t)(where[3] >> 16) };
}

template <class T, int POOL> PART void pool(const gp_kernel_args &a)
{
    const gp_kernel_image &x = a.x[0], &y = a.y[0];
    const uint32_t eights = x.channels / 8, rows = a.rows * y.pixels;
    const column at = column_of(eights);
    int32_t *index = (int32_t *)(uintptr_t)a.bytes;
    norm_channels c;

    if (at.row >= rows)
        return;
    if (POOL == POOL_NORM_MAX)
        c = norm_channels_of(a.f[3], a.f[1], a.f[2], x.channels, at.eight);
    for (uint32_t row = at.row; row < rows; row += at.step) {
        const uint32_t n = quotient(row, &a.n[0]), pixel = row - n * y.pixels, oy = quotient(pixel, &a.n[2]),
                       ox = pixel - oy * y.width, i = row * eights + at.eight;
        const int32_t top = (int32_t)oy * a.stride[0] - a.padding[0],
                      left = (int32_t)ox * a.stride[1] - a.padding[1], first = top * (int32_t)x.width + left;
        const uint32_t from = (n * x.pixels + (uint32_t)first) * eights + at.eight;
        bool empty = true;
        pooled<T> p = {};
        words out;

#pragma unroll
        for (int h = 0; h < 4; h++)
            p.largest.of[h] = T::LEAST;
#pragma unroll 1
        for (int32_t ky = 0, iy = top; ky < a.kernel[0]; ky++, iy += a.dilation[0]) {
            uint32_t offset = (uint32_t)(iy - top) * x.width;

            if ((uint32_t)iy >= x.height)
                continue;
#pragma unroll 1
            for (int32_t kx = 0, ix = left; kx < a.kernel[1]; kx += POOL_COLUMNS) {
                words w[POOL_COLUMNS];
                bool inside[POOL_COLUMNS];

#pragma unroll
                for (int k = 0; k < POOL_COLUMNS; k++) {
                    inside[k] = (uint32_t)(ix + k * a.dilation[1]) < x.width && kx + k < a.kernel[1];
                    if (inside[k])
                        w[k] = words_get(x.data, from + (offset + (uint32_t)(k * a.dilation[1])) * eights);
                }
#pragma unroll
                for (int k = 0; k < POOL_COLUMNS; k++)
                    if (inside[k]) {
                        pool_add<T, POOL>(p, c, w[k], offset + (uint32_t)(k * a.dilation[1]));
                        empty = false;
                    }
                ix += POOL_COLUMNS * a.dilation[1];
                offset += (uint32_t)(POOL_COLUMNS * a.dilation[1]);
            }
        }
        if (POOL == POOL_MEAN) {
            const window_box box = window_of(&a, &x, (int32_t)oy, (int32_t)ox);
            const float each = 1.0f / (float)(empty ? 1 : window_pixels(&a, &box));

#pragma unroll
            for (int h = 0; h < 4; h++)
                out.of[h] = T::narrow(p.sum[2 * h] * each, p.sum[2 * h + 1] * each);
        } else {
            out = empty ? words{} : p.largest;
        }
        words_put(y.data, i, out);
        if (POOL != POOL_MEAN && index != NULL)
            positions_put(index + (size_t)i * 8, p.where, empty ? -1 : first);
    }
}

/* x[0] -> y[0]; bytes: int32 index in y order, or NULL. n: divisors by the pixels and the width of
 * y[0]. An offset inside a window is below 65536. */
GRID grid_wide_pool(GRID_ARGS)
{
    if (args.x[0].narrow == GP_NARROW_F16)
        args.kind == 0 ? pool<two_f16, POOL_MAX>(args) : pool<two_f16, POOL_MEAN>(args);
    else
        args.kind == 0 ? pool<two_bf16, POOL_MAX>(args) : pool<two_bf16, POOL_MEAN>(args);
}

/* Batch norm, relu and max pooling: x[0], f[1] scale, f[2] offset, f[3] moments -> y[0]; bytes:
 * int32 index in y order. n and offsets: as above. */
GRID grid_wide_batchnorm_pool(GRID_ARGS)
{
    if (args.x[0].narrow == GP_NARROW_F16)
        pool<two_f16, POOL_NORM_MAX>(args);
    else
        pool<two_bf16, POOL_NORM_MAX>(args);
}

/* ---- gradient ---- */

/* The windows that contain a coordinate: [first, end). */
struct windows {
    int32_t first, end;
};

PART windows windows_of(int32_t at, int32_t kernel, int32_t stride, const uint32_t divisor[2],
                        int32_t padding, uint32_t length)
{
    const int32_t last = at + padding, before = last - kernel + stride;

    return { (int32_t)quotient((uint32_t)max(before, 0), divisor),
             min((int32_t)quotient((uint32_t)last, divisor) + 1, (int32_t)length) };
}

/* Return the number of coordinates below `length` that a window covers. */
PART int32_t covered(int32_t first, int32_t kernel, uint32_t length)
{
    return min(first + kernel, (int32_t)length) - max(first, 0);
}

template <class T, bool MAX> PART void pool_backward(const gp_kernel_args &a)
{
    const gp_kernel_image &dy = a.x[0], &dx = a.y[0];
    const uint32_t eights = dx.channels / 8, rows = a.rows * dx.pixels;
    const column at = column_of(eights);
    const int32_t *index = (const int32_t *)a.bytes;

    if (at.row >= rows)
        return;
    for (uint32_t row = at.row; row < rows; row += at.step) {
        const uint32_t n = quotient(row, &a.n[0]), pixel = row - n * dx.pixels, y = quotient(pixel, &a.n[2]),
                       x = pixel - y * dx.width, i = row * eights + at.eight;
        const windows v = windows_of((int32_t)y, a.kernel[0], a.stride[0], &a.n[4], a.padding[0], dy.height),
                      h = windows_of((int32_t)x, a.kernel[1], a.stride[1], &a.n[6], a.padding[1], dy.width);
        float sum[8] = { 0 };
        words out, relu;

        if (a.x[7].data != NULL)
            relu = words_get(a.x[7].data, i);
#pragma unroll 1
        for (int32_t oy = v.first; oy < v.end; oy++) {
            const int32_t tall =
                a.kind == 2 ? a.kernel[0] : covered(oy * a.stride[0] - a.padding[0], a.kernel[0], dx.height);

#pragma unroll 1
            for (int32_t ox = h.first; ox < h.end; ox++) {
                const uint32_t from =
                    (n * dy.pixels + (uint32_t)oy * dy.width + (uint32_t)ox) * eights + at.eight;
                const words w = words_get(dy.data, from);

                if (MAX) {
                    const int4 low = __ldg((const int4 *)index + 2 * (size_t)from),
                               high = __ldg((const int4 *)index + 2 * (size_t)from + 1);
                    const int32_t mine = (int32_t)pixel;

                    sum[0] += low.x == mine ? T::low(w.of[0]) : 0.0f;
                    sum[1] += low.y == mine ? T::high(w.of[0]) : 0.0f;
                    sum[2] += low.z == mine ? T::low(w.of[1]) : 0.0f;
                    sum[3] += low.w == mine ? T::high(w.of[1]) : 0.0f;
                    sum[4] += high.x == mine ? T::low(w.of[2]) : 0.0f;
                    sum[5] += high.y == mine ? T::high(w.of[2]) : 0.0f;
                    sum[6] += high.z == mine ? T::low(w.of[3]) : 0.0f;
                    sum[7] += high.w == mine ? T::high(w.of[3]) : 0.0f;
                } else {
                    const int32_t wide =
                        a.kind == 2 ? a.kernel[1]
                                    : covered(ox * a.stride[1] - a.padding[1], a.kernel[1], dx.width);
                    const float each = __fdividef(1.0f, (float)(tall * wide));

#pragma unroll
                    for (int k = 0; k < 8; k++)
                        sum[k] += (k % 2 == 0 ? T::low(w.of[k / 2]) : T::high(w.of[k / 2])) * each;
                }
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            out.of[k] = T::narrow(sum[2 * k], sum[2 * k + 1]);
            if (a.x[7].data != NULL)
                out.of[k] &= T::above_0(relu.of[k]);
        }
        words_put(dx.data, i, out);
    }
}

/* x[0] dy, bytes: index from forward -> y[0] dx, 0 where x[7] is not above 0. The dilation is 1. n:
 * divisors by the pixels and the width of y[0], and by the strides. */
GRID grid_wide_pool_backward(GRID_ARGS)
{
    if (args.x[0].narrow == GP_NARROW_F16)
        args.kind == 0 ? pool_backward<two_f16, true>(args) : pool_backward<two_f16, false>(args);
    else
        args.kind == 0 ? pool_backward<two_bf16, true>(args) : pool_backward<two_bf16, false>(args);
}

} // namespace
