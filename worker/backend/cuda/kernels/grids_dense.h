/* Pooling and bias gradients of float32 images in dense order. Included by grids.h. The bodies in
 * bodies_conv.h define the meaning. */

namespace
{

/* ---- pooling with windows of 2 x 2 pixels and stride 2, without padding ---- */

/* A window: its sample and channel, and its position in the smaller image. */
struct window_place {
    uint32_t plane, y, x;
};

PART window_place window_place_of(const gp_kernel_args &a, uint32_t i, uint32_t width, uint32_t height)
{
    const uint32_t row = quotient(i, &a.n[2]), plane = quotient(row, &a.n[4]);

    return { plane, row - plane * height, i - row * width };
}

/* Pool windows.
 *   PAIRS  rows of the larger image can be read as vectors of two elements */
template <bool MAX, bool PAIRS> PART void window_pool(const gp_kernel_args &a)
{
    const gp_kernel_image &x = a.x[0], &y = a.y[0];
    const uint32_t count = a.rows * y.sample;
    int32_t *index = (int32_t *)(uintptr_t)a.bytes;

    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
        const window_place at = window_place_of(a, i, y.width, y.height);
        const uint32_t pixel = 2 * (at.y * x.width + at.x);
        const float *from = (const float *)x.data + at.plane * x.pixels + pixel;
        float of[4];

        if (PAIRS) {
            const float2 above = __ldg((const float2 *)from), below = __ldg((const float2 *)(from + x.width));

            of[0] = above.x, of[1] = above.y, of[2] = below.x, of[3] = below.y;
        } else {
            of[0] = __ldg(from), of[1] = __ldg(from + 1);
            of[2] = __ldg(from + x.width), of[3] = __ldg(from + x.width + 1);
        }
        if (MAX) {
            uint32_t best = 0;

#pragma unroll
            for (uint32_t k = 1; k < 4; k++)
                if (of[k] > of[0]) {
                    of[0] = of[k];
                    best = k;
                }
            ((float *)y.data)[i] = of[0];
            if (index != NULL)
                index[i] = (int32_t)(pixel + best / 2 * x.width + best % 2);
        } else {
            ((float *)y.data)[i] = (of[0] + of[1] + of[2] + of[3]) * 0.25f;
        }
    }
}

/* x[0] -> y[0]; bytes: int32 index in y order, or NULL. n[2]: divisors by the width and the height
 * of y[0]. */
GRID grid_window_pool(GRID_ARGS)
{
    if (args.x[0].width % 2 == 0)
        args.kind == 0 ? window_pool<true, true>(args) : window_pool<false, true>(args);
    else
        args.kind == 0 ? window_pool<true, false>(args) : window_pool<false, false>(args);
}

/* Compute the input gradient of a window, and return the sum of its elements. The windows cover all
 * of dx. In the last row or column of an odd size they have no element of dy, so dx is 0 there. */
template <bool MAX, bool PAIRS> PART float window_back(const gp_kernel_args &a, const window_place &at)
{
    const gp_kernel_image &dy = a.x[0], &dx = a.y[0];
    const uint32_t pixel = 2 * (at.y * dx.width + at.x), to = at.plane * dx.pixels + pixel,
                   from = at.plane * dy.pixels + at.y * dy.width + at.x;
    const float *relu = (const float *)a.x[7].data;
    const bool inside = at.y < dy.height && at.x < dy.width, below = 2 * at.y + 1 < dx.height;
    const float slope = inside ? __ldg((const float *)dy.data + from) * (MAX ? 1.0f : 0.25f) : 0.0f;
    const int32_t best = MAX && inside ? __ldg((const int32_t *)a.bytes + from) : -1;
    float sum = 0.0f;

#pragma unroll
    for (uint32_t v = 0; v < 2; v++) {
        const uint32_t first = pixel + v * dx.width;
        float *out = (float *)dx.data + to + v * dx.width;
        float2 two = { !MAX || best == (int32_t)first ? slope : 0.0f,
                       !MAX || best == (int32_t)first + 1 ? slope : 0.0f };

        if (v == 1 && !below)
            break;
        if (PAIRS) {
            const float2 mask =
                relu == NULL ? float2{ 1.0f, 1.0f } : __ldg((const float2 *)(relu + to + v * dx.width));

            two.x = mask.x > 0.0f ? two.x : 0.0f;
            two.y = mask.y > 0.0f ? two.y : 0.0f;
            *(float2 *)out = two;
        } else {
            two.x = relu == NULL || __ldg(relu + to + v * dx.width) > 0.0f ? two.x : 0.0f;
            out[0] = two.x;
            if (2 * at.x + 1 < dx.width) {
                two.y = relu == NULL || __ldg(relu + to + v * dx.width + 1) > 0.0f ? two.y : 0.0f;
                out[1] = two.y;
            } else {
                two.y = 0.0f;
            }
        }
        sum += two.x + two.y;
    }
    return sum;
}

template <bool MAX, bool PAIRS> PART void window_pool_backward(const gp_kernel_args &a)
{
    const gp_kernel_image &dx = a.y[0];
    const uint32_t width = (dx.width + 1) / 2, height = (dx.height + 1) / 2,
                   count = a.rows * dx.channels * height * width;

    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS)
        window_back<MAX, PAIRS>(a, window_place_of(a, i, width, height));
}

/* x[0] dy, bytes: index from forward -> y[0] dx, 0 where x[7] is not above 0. n[2]: divisors by
 * half the width and half the height of y[0], rounded up. */
GRID grid_window_pool_backward(GRID_ARGS)
{
    if (args.y[0].width % 2 == 0)
        args.kind == 0 ? window_pool_backward<true, true>(args) : window_pool_backward<false, true>(args);
    else
        args.kind == 0 ? window_pool_backward<true, false>(args) : window_pool_backward<false, false>(args);
}

/* ---- bias gradient ---- */

/* The samples that a block adds up for one channel: first, ..., first + count - 1 of `rows`. */
struct bias_share {
    uint32_t channel, chunk, first, count;
};

PART bias_share bias_share_of(const gp_kernel_args &a, uint32_t channels, uint32_t rows)
{
    const uint32_t chunk = blockIdx.x / channels, each = (rows + a.chunks - 1) / a.chunks,
                   first = chunk * each;

    return { blockIdx.x % channels, chunk, first,
             first >= rows         ? 0
             : rows - first < each ? rows - first
                                   : each };
}

/* Store the sum of a block's values as a partial sum f[1] [chunks][C]. */
PART void bias_put(const gp_kernel_args &a, const bias_share &share, uint32_t channels, float sum)
{
    __shared__ double shared[WARPS];
    double total = warp_sum((double)sum);

    if (threadIdx.x % WARP == 0)
        shared[threadIdx.x / WARP] = total;
    __syncthreads();
    if (threadIdx.x != 0 || share.chunk >= a.chunks)
        return;
    for (int w = 1; w < WARPS; w++)
        total += shared[w];
    a.f[1][(size_t)share.chunk * channels + share.channel] = (float)total;
}

/* x[0] dy, whose planes have vectors of four elements -> f[1] partial sums [chunks][C]. A block
 * adds up a channel of some samples. n[0]: divisor by the vectors of a plane. */
GRID grid_plane_bias_part(GRID_ARGS)
{
    enum { LOADS = 4 };
    const gp_kernel_image &dy = args.x[0];
    const bias_share share = bias_share_of(args, dy.channels, args.call->count);
    const uint32_t vectors = dy.pixels / 4, count = share.count * vectors;
    const float *from = (const float *)dy.data + (size_t)share.first * dy.sample + share.channel * dy.pixels;
    float sum = 0.0f;

    for (uint32_t v = threadIdx.x; v < count; v += LOADS * THREADS) {
        float4 four[LOADS] = {};

#pragma unroll
        for (uint32_t k = 0; k < LOADS; k++)
            if (v + k * THREADS < count) {
                const uint32_t n = quotient(v + k * THREADS, &args.n[0]);

                four[k] = __ldg((const float4 *)(from + n * dy.sample) + (v + k * THREADS - n * vectors));
            }
#pragma unroll
        for (uint32_t k = 0; k < LOADS; k++)
            sum += four[k].x + four[k].y + four[k].z + four[k].w;
    }
    bias_put(args, share, dy.channels, sum);
}

template <bool MAX, bool PAIRS> PART float window_pool_bias(const gp_kernel_args &a, const bias_share &share)
{
    const gp_kernel_image &dx = a.y[0];
    const uint32_t width = (dx.width + 1) / 2, windows = (dx.height + 1) / 2 * width;
    float sum = 0.0f;

    for (uint32_t i = threadIdx.x; i < share.count * windows; i += THREADS) {
        const uint32_t n = quotient(i, &a.n[0]), window = i - n * windows, y = quotient(window, &a.n[2]);

        sum += window_back<MAX, PAIRS>(
            a, { (share.first + n) * dx.channels + share.channel, y, window - y * width });
    }
    return sum;
}

/* window_pool_backward, and partial sums f[1] [chunks][C] of dx, which are the gradient of the bias
 * of a convolution. A block processes a channel of some samples. n[0], n[2]: divisors by the
 * windows of a plane and of a row. */
GRID grid_window_pool_bias(GRID_ARGS)
{
    const gp_kernel_image &dx = args.y[0];
    const bias_share share = bias_share_of(args, dx.channels, args.rows);

    bias_put(args, share, dx.channels,
             dx.width % 2 == 0 ? args.kind == 0 ? window_pool_bias<true, true>(args, share)
                                                : window_pool_bias<false, true>(args, share)
             : args.kind == 0 ? window_pool_bias<true, false>(args, share)
                               : window_pool_bias<false, false>(args, share));
}

} // namespace
