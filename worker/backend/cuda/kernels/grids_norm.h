/* Batch norm of images with 2-byte types. Included by grids.h. The bodies in bodies_norm.h define
 * the meaning. */

namespace
{

/* Parameters of eight channels. The output is (x - mean) * factor + offset, as in
 * batchnorm_value(). */
struct norm_channels {
    float mean[8], factor[8], offset[8];
};

PART norm_channels norm_channels_of(const float *moments, const float *scale, const float *offset,
                                    uint32_t channels, uint32_t eight)
{
    norm_channels c;
    float by[8];

    floats_get(c.mean, moments + 8 * eight);
    floats_get(c.factor, moments + channels + 8 * eight);
    floats_get(by, scale + 8 * eight);
    floats_get(c.offset, offset + 8 * eight);
#pragma unroll
    for (int k = 0; k < 8; k++)
        c.factor[k] *= by[k];
    return c;
}

PART float norm_value(const norm_channels &c, int k, float x)
{
    return (x - c.mean[k]) * c.factor[k] + c.offset[k];
}

template <class T, bool ADD> PART void batchnorm_apply(const gp_kernel_args &a)
{
    enum { ROWS = 2 };
    const uint32_t eights = a.x[0].channels / 8, rows = a.rows * a.x[0].pixels, least = a.relu ? 0 : T::LEAST;
    const column at = column_of(eights);
    const void *x = a.x[0].data, *added = a.x[7].data;
    void *y = a.y[0].data;
    uint8_t *mask = (uint8_t *)(uintptr_t)a.bytes;
    norm_channels c;

    if (at.row >= rows)
        return;
    c = norm_channels_of(a.f[3], a.f[1], a.f[2], 8 * eights, at.eight);
    for (uint32_t row = at.row; row < rows; row += ROWS * at.step) {
        words w[ROWS], other[ROWS];
        uint32_t i[ROWS];

#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            i[r] = (row + r * at.step) * eights + at.eight;
            if (r == 0 || row + r * at.step < rows) {
                w[r] = words_get(x, i[r]);
                if (ADD)
                    other[r] = words_get(added, i[r]);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r != 0 && row + r * at.step >= rows)
                break;
#pragma unroll
            for (int h = 0; h < 4; h++) {
                float low = norm_value(c, 2 * h, T::low(w[r].of[h])),
                      high = norm_value(c, 2 * h + 1, T::high(w[r].of[h]));

                if (ADD) {
                    low += T::low(other[r].of[h]);
                    high += T::high(other[r].of[h]);
                }
                w[r].of[h] = T::larger(T::narrow(low, high), least);
            }
            words_put(y, i[r], w[r]);
            if (mask != NULL)
                mask[i[r]] = (uint8_t)mask_of<T>(w[r]);
        }
    }
}

/* batchnorm_apply, then the operations after it. bytes: mask to write, one byte for eight channels,
 * or NULL. */
GRID grid_wide_batchnorm_apply(GRID_ARGS)
{
    if (args.x[0].narrow == GP_NARROW_F16)
        args.x[7].data != NULL ? batchnorm_apply<two_f16, true>(args) : batchnorm_apply<two_f16, false>(args);
    else
        args.x[7].data != NULL ? batchnorm_apply<two_bf16, true>(args)
                               : batchnorm_apply<two_bf16, false>(args);
}

/* ---- sums ---- */

/* Sums of eight channels. `part` and `square` hold those of a few rows. */
struct norm_sums {
    double sum[8], product[8];
    float part[8], square[8];
};

PART void sums_add(norm_sums &s)
{
#pragma unroll
    for (int k = 0; k < 8; k++) {
        s.sum[k] += (double)s.part[k];
        s.product[k] += (double)s.square[k];
        s.part[k] = s.square[k] = 0.0f;
    }
}

/* Add the sums of all threads of a block that process the same channels, in order of the rows, and
 * store them as one part of d[0]. Each product is multiplied by factor[channel], or 1 if NULL. */
PART void sums_put(const gp_kernel_args &a, const norm_sums &s, double shared[16][THREADS],
                   const float *factor)
{
    const uint32_t channels = a.x[0].channels, eights = channels / 8,
                   segments = (eights + THREADS - 1) / THREADS, part = blockIdx.x / segments,
                   first = blockIdx.x % segments * THREADS, width = segments == 1 ? eights : THREADS;

#pragma unroll
    for (int k = 0; k < 8; k++) {
        shared[k][threadIdx.x] = s.sum[k];
        shared[8 + k][threadIdx.x] = s.product[k];
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < 16 * width && part < a.chunks; i += THREADS) {
        const uint32_t k = i / width, lane = i % width, channel = 8 * (first + lane) + k % 8;
        double sum = 0.0;

        if (first + lane >= eights)
            continue;
        for (uint32_t from = lane; from + width <= THREADS + lane; from += width)
            sum += shared[k][from];
        if (k >= 8 && factor != NULL)
            sum *= (double)factor[channel];
        a.d[0][((size_t)part * 2 + k / 8) * channels + channel] = sum;
    }
}

enum { ROWS_ADDED = 16 }; /* rows whose sums are float32 */

template <class T> PART void batchnorm_part(const gp_kernel_args &a, double shared[16][THREADS])
{
    enum { ROWS = 4 };
    const uint32_t eights = a.x[0].channels / 8, rows = a.call->count * a.x[0].pixels;
    const column at = column_of(eights);
    const void *x = a.x[0].data;
    norm_sums s = {};
    float origin[8];
    uint32_t row = at.row;

    if (row < rows)
        floats_get(origin, a.f[0] + 8 * at.eight);
    while (row < rows) {
#pragma unroll 1
        for (int turn = 0; turn < ROWS_ADDED / ROWS && row < rows; turn++, row += ROWS * at.step) {
            words w[ROWS];

#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (r == 0 || row + r * at.step < rows)
                    w[r] = words_get(x, (row + r * at.step) * eights + at.eight);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r != 0 && row + r * at.step >= rows)
                    break;
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    const uint32_t two = w[r].of[k / 2];
                    const float shifted = (k % 2 == 0 ? T::low(two) : T::high(two)) - origin[k];

                    s.part[k] += shifted;
                    s.square[k] += shifted * shifted;
                }
            }
        }
        sums_add(s);
    }
    sums_put(a, s, shared, NULL);
}

/* x[0], f[0] running mean -> d[0] partial sums [chunks][2][C] of x and x squared, relative to the
 * mean. */
GRID grid_wide_batchnorm_part(GRID_ARGS)
{
    __shared__ double shared[16][THREADS];

    if (args.f[4] != NULL && args.call->count == args.rows) /* moments_known() */
        return;
    if (args.x[0].narrow == GP_NARROW_F16)
        batchnorm_part<two_f16>(args, shared);
    else
        batchnorm_part<two_bf16>(args, shared);
}

/* Rows row, row + step, ... of input and gradient, and the masks of the gradient. */
template <int ROWS> struct gradient_rows {
    words x[ROWS], dy[ROWS], mask[ROWS];
    uint32_t index[ROWS];
};

/* Load the rows whose index is below `rows`. That of the first row always is. */
template <int ROWS, int MASK>
PART gradient_rows<ROWS> gradient_rows_get(const gp_kernel_args &a, const column &at, uint32_t row,
                                           uint32_t rows)
{
    const uint32_t eights = a.x[0].channels / 8;
    gradient_rows<ROWS> g;

#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        g.index[r] = (row + r * at.step) * eights + at.eight;
        if (r == 0 || row + r * at.step < rows) {
            g.x[r] = words_get(a.x[0].data, g.index[r]);
            g.dy[r] = words_get(a.x[1].data, g.index[r]);
            g.mask[r] = mask_get<MASK>(a, g.index[r]);
        }
    }
    return g;
}

/* Return elements 2 h and 2 h + 1 of a row of the gradient, or 0 where the mask is 0.
 *   low, high  the same elements of x */
template <class T, int MASK, int ROWS>
PART uint32_t gradient_passed(const gradient_rows<ROWS> &g, const norm_channels &c, int r, int h, float low,
                              float high)
{
    const uint32_t passes =
        MASK == MASK_NORM ? T::above_0(T::narrow(norm_value(c, 2 * h, low), norm_value(c, 2 * h + 1, high)))
                          : mask_word<T, MASK>(g.mask[r], h);

    return g.dy[r].of[h] & passes;
}

template <class T, int MASK>
PART void batchnorm_backward_part(const gp_kernel_args &a, double shared[16][THREADS])
{
    enum { ROWS = 2 };
    const uint32_t channels = a.x[0].channels, rows = a.call->count * a.x[0].pixels;
    const column at = column_of(channels / 8);
    norm_sums s = {};
    norm_channels c;
    uint32_t row = at.row;

    if (row < rows && MASK == MASK_NORM)
        c = norm_channels_of(a.f[3], a.f[0], a.f[5], channels, at.eight);
    else if (row < rows)
        floats_get(c.mean, a.f[3] + 8 * at.eight);
    while (row < rows) {
#pragma unroll 1
        for (int turn = 0; turn < ROWS_ADDED / ROWS && row < rows; turn++, row += ROWS * at.step) {
            const gradient_rows<ROWS> g = gradient_rows_get<ROWS, MASK>(a, at, row, rows);

#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r != 0 && row + r * at.step >= rows)
                    break;
#pragma unroll
                for (int h = 0; h < 4; h++) {
                    const float low = T::low(g.x[r].of[h]), high = T::high(g.x[r].of[h]);
                    const uint32_t slopes = gradient_passed<T, MASK>(g, c, r, h, low, high);

                    s.part[2 * h] += T::low(slopes);
                    s.part[2 * h + 1] += T::high(slopes);
                    s.square[2 * h] += T::low(slopes) * (low - c.mean[2 * h]);
                    s.square[2 * h + 1] += T::high(slopes) * (high - c.mean[2 * h + 1]);
                }
            }
        }
        sums_add(s);
    }
    sums_put(a, s, shared, a.f[3] + channels);
}

/* x[0], x[1] dy, f[3] moments -> d[0] partial sums [chunks][2][C] of dy and of
 * dy * normalised x. */
GRID grid_wide_batchnorm_backward_part(GRID_ARGS)
{
    __shared__ double shared[16][THREADS];

    with_type_and_mask(args, [&](auto type, auto mask) {
        batchnorm_backward_part<decltype(type), decltype(mask)::value>(args, shared);
    });
}

/* ---- moments ---- */

/* Return the sum over chunks of d[0], for the channel and the sum of this lane of the block's first
 * warp. All threads call. */
PART double parts_sum(const gp_kernel_args &a, uint32_t c, uint32_t which, double shared[WARPS][WARP])
{
    const uint32_t channels = a.x[0].channels, lane = threadIdx.x % WARP;
    double sum = 0.0;

    if (c < channels)
#pragma unroll 8
        for (uint32_t k = threadIdx.x / WARP; k < a.chunks; k += WARPS)
            sum += a.d[0][((size_t)k * 2 + which) * channels + c];
    shared[threadIdx.x / WARP][lane] = sum;
    __syncthreads();
    sum = 0.0;
#pragma unroll
    for (int k = 0; k < WARPS; k++)
        sum += shared[k][lane];
    return sum;
}

/* d[0] partial sums -> d[1] sums [2 C + 1], the last being the count; added to f[1] and f[2] (or
 * NULL); then, unless f[3] is NULL, the moments f[3] [2][C]. chunks 0: d[1] holds the sums. If
 * moments_known(), f[4] [2][C] (sums of x and x squared) replaces the partial sums; it is converted
 * to sums relative to the running mean f[0] and cleared. A block processes 16 channels. */
GRID grid_batchnorm_sum(GRID_ARGS)
{
    __shared__ double shared[WARPS][WARP];
    const uint32_t channels = args.x[0].channels, which = threadIdx.x % WARP / GP_KERNEL_SUM_CHANNELS,
                   c = blockIdx.x * GP_KERNEL_SUM_CHANNELS + threadIdx.x % GP_KERNEL_SUM_CHANNELS;
    const bool given = args.chunks == 0, known = !given && moments_known(&args), mine = c < channels;
    double n = (double)args.call->count * (double)args.x[0].pixels, sum = 0.0, squares;

    if (!given && !known)
        sum = parts_sum(args, c, which, shared);
    if (threadIdx.x >= WARP)
        return;
    if (given) {
        n = args.d[1][2 * channels];
        sum = mine ? args.d[1][which * channels + c] : 0.0;
    } else if (mine) {
        float *statistic = args.f[1 + which];

        if (known) {
            const double origin = (double)args.f[0][c], all = (double)args.f[4][c];

            sum = which == 0 ? all - n * origin
                             : (double)args.f[4][channels + c] + origin * (n * origin - 2.0 * all);
        }
        args.d[1][which * channels + c] = sum;
        if (statistic != NULL)
            statistic[c] = (float)((args.call->first ? 0.0 : (double)statistic[c]) + sum);
        if (c == 0 && which == 0)
            args.d[1][2 * channels] = n;
    }
    squares = __shfl_down_sync(UINT32_MAX, sum, GP_KERNEL_SUM_CHANNELS);
    if (!mine)
        return;
    if (!given && args.f[4] != NULL)
        args.f[4][which * channels + c] = 0.0f; /* after the shuffle: both sums have been read */
    if (which == 0 && args.f[3] != NULL) {
        const double count = n > 0.0 ? n : 1.0, shift = sum / count;
        double variance = squares / count - shift * shift;

        variance = variance > 0.0 ? variance : variance != variance ? variance : 0.0;
        args.f[3][c] = (float)((double)args.f[0][c] + shift);
        args.f[3][channels + c] = (float)(1.0 / sqrt(variance + args.number64[0]));
    }
}

/* d[0] partial sums -> d[1] sums [2 C + 1]; added to f[1] dscale and f[2] doffset (or NULL); then
 * f[6] [2][C], from which batchnorm_backward_apply computes dx: the mean of dy, and the mean of
 * dy * normalised x, divided by the standard deviation. f[3]: moments. chunks 0: d[1] holds the
 * sums. A block processes 16 channels. */
GRID grid_batchnorm_backward_sum(GRID_ARGS)
{
    __shared__ double shared[WARPS][WARP];
    const uint32_t channels = args.x[0].channels, which = threadIdx.x % WARP / GP_KERNEL_SUM_CHANNELS,
                   c = blockIdx.x * GP_KERNEL_SUM_CHANNELS + threadIdx.x % GP_KERNEL_SUM_CHANNELS;
    const bool given = args.chunks == 0;
    double n = (double)args.call->count * (double)args.x[0].pixels, sum = 0.0;

    if (!given)
        sum = parts_sum(args, c, which, shared);
    if (threadIdx.x >= WARP || c >= channels)
        return;
    if (given) {
        n = args.d[1][2 * channels];
        sum = args.d[1][which * channels + c];
    } else {
        float *gradient = args.f[2 - which];

        args.d[1][which * channels + c] = sum;
        if (gradient != NULL)
            gradient_add(&args, &gradient[c], sum);
        if (c == 0 && which == 0)
            args.d[1][2 * channels] = n;
    }
    sum /= n > 0.0 ? n : 1.0;
    args.f[6][which * channels + c] = (float)(which == 0 ? sum : sum * (double)args.f[3][channels + c]);
}

/* ---- gradient ---- */

template <class T, int MASK> PART void batchnorm_backward_apply(const gp_kernel_args &a)
{
    enum { ROWS = 2 };
    const uint32_t channels = a.x[0].channels, rows = a.rows * a.x[0].pixels,
                   present = a.call->count * a.x[0].pixels;
    const column at = column_of(channels / 8);
    void *dx = a.y[0].data;
    float mean_dy[8], slope[8];
    norm_channels c;

    if (at.row >= rows)
        return;
    c = norm_channels_of(a.f[3], a.f[0], MASK == MASK_NORM ? a.f[5] : a.f[0], channels, at.eight);
    floats_get(mean_dy, a.f[6] + 8 * at.eight);
    floats_get(slope, a.f[6] + channels + 8 * at.eight);
    for (uint32_t row = at.row; row < rows; row += ROWS * at.step) {
        const gradient_rows<ROWS> g = gradient_rows_get<ROWS, MASK>(a, at, row, rows);

#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            words out;

            if (r != 0 && row + r * at.step >= rows)
                break;
#pragma unroll
            for (int h = 0; h < 4; h++) {
                const float low = T::low(g.x[r].of[h]), high = T::high(g.x[r].of[h]);
                const uint32_t slopes = gradient_passed<T, MASK>(g, c, r, h, low, high);

                out.of[h] = T::narrow(c.factor[2 * h] * (T::low(slopes) - mean_dy[2 * h] -
                                                         (low - c.mean[2 * h]) * slope[2 * h]),
                                      c.factor[2 * h + 1] * (T::high(slopes) - mean_dy[2 * h + 1] -
                                                             (high - c.mean[2 * h + 1]) * slope[2 * h + 1]));
            }
            words_put(dx, g.index[r], row + r * at.step < present ? out : words{});
        }
    }
}

/* x[0], x[1] dy, f[0] scale, f[3] moments, f[6] from batchnorm_backward_sum -> y[0] dx. */
GRID grid_wide_batchnorm_backward_apply(GRID_ARGS)
{
    with_type_and_mask(args, [&](auto type, auto mask) {
        batchnorm_backward_apply<decltype(type), decltype(mask)::value>(args);
    });
}

} // namespace
