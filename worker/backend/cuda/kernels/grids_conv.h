/* Convolutions with few channels: small float32 images in dense order, stride 1, dilation 1, one
 * group. Included by grids.h. The bodies in bodies_conv.h define the meaning; the order of the
 * additions differs.
 *
 * A library pads the channels to its tile, so it multiplies many zeros. Here a thread multiplies a
 * row of a K x K kernel by a span of SPAN pixels, for four channels, in registers. A block copies
 * its operands to shared memory, slice by slice. The copies include the padding, and zeros after
 * the last pixel of a row, so the loops check no borders.
 *
 *   n[0]       channels or rows of a slice
 *   n[1]       spans of a row
 *   n[2, 3]    divisor by the length of a copied row
 *   n[4, 5]    divisor by the copied rows of a channel
 *   n[6]       blocks of a sample; weights: blocks of a chunk
 *   n[7]       length of a copied row */

namespace
{

enum {
    FEW = 4, /* channels of a thread */
    CONV_SHARED = GP_KERNEL_CONV_SHARED,
    COLUMNS = THREADS / 2 /* columns that a block copies at once; two threads share a column */
};

/* Planes in global memory from element `first` on: rows of `width` elements. Indices of 32 bits
 * from the beginning of the data save instructions. */
struct plane_rows {
    const float *data;
    uint32_t first, height, width;
    int32_t top, left; /* position of the copy in the image */
};

/* Copy `channels` planes to `to`, each with n[4, 5] rows of n[7] elements. Elements outside the
 * image are 0. */
PART void planes_copy(const gp_kernel_args &a, float *to, const plane_rows &from, uint32_t channels,
                      uint32_t rows)
{
    const uint32_t length = a.n[7];

    for (uint32_t e = threadIdx.x; e < channels * rows * length; e += THREADS) {
        const uint32_t row = quotient(e, &a.n[2]), channel = quotient(row, &a.n[4]),
                       y = row - channel * rows + (uint32_t)from.top,
                       x = e - row * length + (uint32_t)from.left,
                       at = from.first + (channel * from.height + y) * from.width + x;
        const bool inside = y < from.height && x < from.width;

        to[e] = inside ? __ldg(&from.data[at]) : 0.0f;
    }
}

/* Vectors of four elements. Element i of vector v is data[at + v * vector_step + i * step]. The
 * first `full` vectors have all elements. Later ones have those with v * shift + i < count, and
 * zeros. */
struct fours {
    const float *data;
    uint32_t at, vector_step, step, full, shift, count;
};

/* Copy vectors first, first + 2, ... below `vectors`: vector v to to[v * to_step]. The two threads
 * of a column have different values of `first`. */
PART void fours_copy(float4 *to, uint32_t to_step, const fours &from, uint32_t first, uint32_t vectors)
{
    enum { EACH = THREADS / COLUMNS };
    uint32_t v = first;

#pragma unroll 2
    for (; v < from.full; v += EACH) {
        const uint32_t at = from.at + v * from.vector_step;

        to[v * to_step] = { __ldg(&from.data[at]), __ldg(&from.data[at + from.step]),
                            __ldg(&from.data[at + 2 * from.step]), __ldg(&from.data[at + 3 * from.step]) };
    }
#pragma unroll 1
    for (; v < vectors; v += EACH) {
        float four[FEW];

#pragma unroll
        for (uint32_t i = 0; i < FEW; i++)
            four[i] = v * from.shift + i < from.count
                          ? __ldg(&from.data[from.at + v * from.vector_step + i * from.step])
                          : 0.0f;
        to[v * to_step] = { four[0], four[1], four[2], four[3] };
    }
}

/* Call f(K, SPAN, block) with the kernel and the span of the arguments, as types, for each block of
 * this block of threads. A large batch needs more blocks than a launch has. */
template <class F> PART void with_kernel_and_span(const gp_kernel_args &a, uint32_t blocks, F f)
{
#pragma unroll 1
    for (uint32_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        if (a.kernel[0] == 3)
            a.kind == 5 ? f(number<3>(), number<5>(), block) : f(number<3>(), number<9>(), block);
        else
            a.kind == 5 ? f(number<5>(), number<5>(), block) : f(number<5>(), number<9>(), block);
        __syncthreads();
    }
}

/* ---- forward ---- */

/* Compute the outputs of the blocks. The items of a sample are (four outputs, row, span), spans
 * first. A block processes one or more samples, or a part of a sample. */
template <int K, int SPAN> PART void direct_conv(const gp_kernel_args &a, uint32_t block, float *shared)
{
    const gp_kernel_image &x = a.x[0], &y = a.y[0];
    const uint32_t channels = x.channels, outputs = y.channels, slice = a.n[0], spans = a.n[1],
                   length = a.n[7], rows = y.height + K - 1, groups = (outputs + FEW - 1) / FEW,
                   items = groups * y.height * spans, blocks = a.n[6],
                   samples = items < THREADS ? THREADS / items : 1, width = slice * K * K | 1,
                   step = channels * K * K, unit = block % blocks * THREADS + threadIdx.x,
                   local = samples == 1 ? 0 : unit / items, item = unit - local * items,
                   first = block / blocks * samples, n = first + local, span = item % spans,
                   oy = item / spans % y.height, group = item / spans / y.height;
    const bool active = item < items && local < samples && n < a.rows;
    float4 *weights = (float4 *)shared;
    float *images = shared + FEW * groups * width;
    float sums[FEW][SPAN] = {};

    for (uint32_t c = 0; c < channels; c += slice) {
        const uint32_t present = channels - c < slice ? channels - c : slice;

        for (uint32_t s = 0; s < samples && first + s < a.rows; s++)
            planes_copy(a, images + s * slice * rows * length,
                        { (const float *)x.data, (first + s) * x.sample + c * x.pixels, x.height, x.width,
                          -a.padding[0], -a.padding[1] },
                        present, rows);
#pragma unroll 1
        for (uint32_t k = threadIdx.x % COLUMNS; k < present * K * K; k += COLUMNS)
            fours_copy(weights + k, width,
                       { a.f[0], c * K * K + k, FEW * step, step, outputs / FEW, FEW, outputs },
                       threadIdx.x / COLUMNS, groups);
        __syncthreads();
        if (active) {
            const float *pixels = images + (local * slice * rows + oy) * length + span * SPAN;
            const float4 *w = weights + group * width;

#pragma unroll 1
            for (uint32_t i = 0; i < present; i++, pixels += (rows - K) * length)
#pragma unroll 1
                for (int ky = 0; ky < K; ky++, pixels += length, w += K) {
                    float row[SPAN + K - 1];

#pragma unroll
                    for (int k = 0; k < SPAN + K - 1; k++)
                        row[k] = pixels[k];
#pragma unroll
                    for (int kx = 0; kx < K; kx++) {
                        const float4 by = w[kx];

#pragma unroll
                        for (int k = 0; k < SPAN; k++) {
                            sums[0][k] = fmaf(by.x, row[k + kx], sums[0][k]);
                            sums[1][k] = fmaf(by.y, row[k + kx], sums[1][k]);
                            sums[2][k] = fmaf(by.z, row[k + kx], sums[2][k]);
                            sums[3][k] = fmaf(by.w, row[k + kx], sums[3][k]);
                        }
                    }
                }
        }
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t o = group * FEW; active && o < (group + 1) * FEW && o < outputs; o++) {
        const float bias = a.f[1] == NULL ? 0.0f : a.f[1][o];
        const uint32_t at = n * y.sample + o * y.pixels + oy * y.width + span * SPAN;

#pragma unroll
        for (int k = 0; k < SPAN; k++) {
            if (span * SPAN + k < y.width)
                ((float *)y.data)[at + k] = followed(&a, at + k, sums[0][k] + bias);
#pragma unroll
            for (int next = 0; next + 1 < FEW; next++)
                sums[next][k] = sums[next + 1][k];
        }
    }
}

/* A kernel with at least `blocks` resident blocks for each multiprocessor. Two give a thread 128
 * registers, three 80. Without a number ptxas allows 64 for sm_80 and sm_100, and spills. */
#define CONV_GRID(blocks) static __global__ void __launch_bounds__(THREADS, blocks)

/* Convolution: x[0], f[0] weights [O, C, K, K], f[1] bias or NULL -> y[0]. */
CONV_GRID(2) grid_direct_conv(GRID_ARGS count)
{
    __shared__ __align__(16) float shared[CONV_SHARED];

    with_kernel_and_span(args, count / THREADS, [&](auto kernel, auto span, uint32_t block) {
        direct_conv<decltype(kernel)::value, decltype(span)::value>(args, block, shared);
    });
}

/* ---- gradient of the input ---- */

/* A block processes some groups of four channels of a sample, which it sums in `tile`. Items:
 * (group, row of the kernel, row of dy, span), spans first. A thread multiplies a row of the kernel
 * by a span of dy; the result belongs to SPAN + K - 1 pixels of a row of dx. */
template <int K, int SPAN> PART void direct_conv_data(const gp_kernel_args &a, uint32_t block, float *shared)
{
    const gp_kernel_image &dy = a.x[0], &dx = a.y[0];
    const uint32_t channels = dx.channels, outputs = dy.channels, slice = a.n[0], spans = a.n[1],
                   length = a.n[7], each = K * dy.height * spans, blocks = a.n[6],
                   groups = ((channels + FEW - 1) / FEW + blocks - 1) / blocks, n = block / blocks,
                   first = block % blocks * groups * FEW, span = threadIdx.x % spans,
                   oy = threadIdx.x / spans % dy.height, ky = threadIdx.x / spans / dy.height % K,
                   group = threadIdx.x / each, tall = dy.height + K - 1, wide = spans * SPAN + K - 1,
                   width = groups * K * K;
    const bool active = group < groups;
    float *tile = shared, *slopes = tile + groups * FEW * tall * wide + FEW * slice * width;
    float4 *weights = (float4 *)(tile + groups * FEW * tall * wide);
    float sums[FEW][SPAN + K - 1] = {};

    for (uint32_t e = threadIdx.x; e < groups * FEW * tall * wide; e += THREADS)
        tile[e] = 0.0f;
    for (uint32_t o = 0; o < outputs; o += slice) {
        const uint32_t present = outputs - o < slice ? outputs - o : slice;

        planes_copy(a, slopes,
                    { (const float *)dy.data, n * dy.sample + o * dy.pixels, dy.height, dy.width, 0, 0 },
                    present, dy.height);
#pragma unroll 1
        for (uint32_t k = threadIdx.x % COLUMNS; k < width; k += COLUMNS) {
            const uint32_t c = first + k / (K * K) * FEW, at = (o * channels + c) * K * K + k % (K * K);

            fours_copy(weights + k, width,
                       { a.f[0], at, channels * K * K, K * K, c + FEW <= channels ? present : 0, 0,
                         c < channels ? channels - c : 0 },
                       threadIdx.x / COLUMNS, present);
        }
        __syncthreads();
        if (active) {
            const float *row = slopes + oy * length + span * SPAN;
            const float4 *w = weights + (group * K + ky) * K;

#pragma unroll 1
            for (uint32_t i = 0; i < present; i++, row += dy.height * length, w += width) {
                float slope[SPAN];

#pragma unroll
                for (int k = 0; k < SPAN; k++)
                    slope[k] = row[k];
#pragma unroll
                for (int kx = 0; kx < K; kx++) {
                    const float4 by = w[kx];

#pragma unroll
                    for (int k = 0; k < SPAN; k++) {
                        sums[0][k + kx] = fmaf(by.x, slope[k], sums[0][k + kx]);
                        sums[1][k + kx] = fmaf(by.y, slope[k], sums[1][k + kx]);
                        sums[2][k + kx] = fmaf(by.z, slope[k], sums[2][k + kx]);
                        sums[3][k + kx] = fmaf(by.w, slope[k], sums[3][k + kx]);
                    }
                }
            }
        }
        __syncthreads();
    }

    /* Threads of equal ky, and spans that are not neighbours, write different pixels. */
    for (uint32_t turn = 0; turn < 2 * K; turn++) {
        if (active && ky == turn / 2 && span % 2 == turn % 2)
#pragma unroll
            for (int c = 0; c < FEW; c++)
#pragma unroll
                for (int k = 0; k < SPAN + K - 1; k++)
                    tile[((group * FEW + c) * tall + oy + ky) * wide + span * SPAN + k] += sums[c][k];
        __syncthreads();
    }
    for (uint32_t e = threadIdx.x; e < groups * FEW * dx.pixels; e += THREADS) {
        const uint32_t c = e / dx.pixels, pixel = e - c * dx.pixels, y = pixel / dx.width + a.padding[0],
                       x = pixel % dx.width + a.padding[1];
        const size_t at = (size_t)n * dx.sample + (size_t)first * dx.pixels + e;

        if (first + c < channels)
            ((float *)dx.data)[at] =
                masked(&a, at, y < tall && x < wide ? tile[(c * tall + y) * wide + x] : 0.0f);
    }
}

/* Convolution, input gradient: x[0] dy, f[0] weights -> y[0] dx, 0 where x[7] is not above 0. */
CONV_GRID(2) grid_direct_conv_data(GRID_ARGS count)
{
    __shared__ __align__(16) float shared[CONV_SHARED];

    with_kernel_and_span(args, count / THREADS, [&](auto kernel, auto span, uint32_t block) {
        direct_conv_data<decltype(kernel)::value, decltype(span)::value>(args, block, shared);
    });
}

/* ---- gradient of the weights ---- */

/* Copy `rows` rows of dy from row `top` on to `to` [row][output][pixel]: `groups` vectors of
 * outputs, each for `length` pixels of a row, `step` vectors apart. */
PART void slopes_copy(const gp_kernel_args &a, float4 *to, uint32_t n, uint32_t top, uint32_t rows,
                      uint32_t groups, uint32_t step, uint32_t length)
{
    const gp_kernel_image &dy = a.x[1];
    const uint32_t first = n * dy.sample + top * dy.width;

#pragma unroll 1
    for (uint32_t p = threadIdx.x % COLUMNS; p < rows * length; p += COLUMNS) {
        const uint32_t y = p / length, x = p - y * length, outputs = x < dy.width ? dy.channels : 0;

        fours_copy(to + y * groups * step + x, step,
                   { (const float *)dy.data, first + y * dy.width + x, FEW * dy.pixels, dy.pixels,
                     outputs / FEW, FEW, outputs },
                   threadIdx.x / COLUMNS, groups);
    }
}

/* Items of a chunk, which consists of samples: (channel, row of the kernel, four outputs), outputs
 * first; then four outputs of the bias. A block processes THREADS items. */
template <int K, int SPAN>
PART void direct_conv_weights(const gp_kernel_args &a, uint32_t block, float *shared)
{
    const gp_kernel_image &x = a.x[0], &dy = a.x[1];
    const uint32_t channels = x.channels, outputs = dy.channels, slice = a.n[0], spans = a.n[1],
                   length = a.n[7], groups = (outputs + FEW - 1) / FEW, each = K * groups, blocks = a.n[6],
                   chunk = block / blocks, begin = block % blocks * THREADS, item = begin + threadIdx.x,
                   first = begin / each, last = (begin + THREADS - 1) / each,
                   some = (last < channels ? last + 1 : channels) - (first < channels ? first : channels),
                   channel = item / each, ky = item / groups % K, group = item % groups, tall = slice + K - 1,
                   wide = spans * SPAN, step = wide | 1;
    const bool weight = channel < channels, bias = !weight && item - channels * each < groups;
    float4 *slopes = (float4 *)shared;
    float *pixels = shared + FEW * slice * groups * step;
    float sums[K][FEW] = {};

    for (uint32_t n = chunk; n < a.call->count; n += a.chunks)
        for (uint32_t top = 0; top < dy.height; top += slice) {
            const uint32_t rows = dy.height - top < slice ? dy.height - top : slice;

            slopes_copy(a, slopes, n, top, rows, groups, step, wide);
            planes_copy(a, pixels,
                        { (const float *)x.data, n * x.sample + first * x.pixels, x.height, x.width,
                          (int32_t)top - a.padding[0], -a.padding[1] },
                        some, tall);
            __syncthreads();
            if (weight) {
                const float *from = pixels + ((channel - first) * tall + ky) * length;
                const float4 *slope = slopes + group * step;

#pragma unroll 1
                for (uint32_t y = 0; y < rows; y++, from += length - wide, slope += groups * step - wide)
#pragma unroll 1
                    for (uint32_t s = 0; s < spans; s++, from += SPAN, slope += SPAN) {
                        float row[SPAN + K - 1];

#pragma unroll
                        for (int k = 0; k < SPAN + K - 1; k++)
                            row[k] = from[k];
#pragma unroll
                        for (int k = 0; k < SPAN; k++) {
                            const float4 by = slope[k];

#pragma unroll
                            for (int kx = 0; kx < K; kx++) {
                                sums[kx][0] = fmaf(by.x, row[k + kx], sums[kx][0]);
                                sums[kx][1] = fmaf(by.y, row[k + kx], sums[kx][1]);
                                sums[kx][2] = fmaf(by.z, row[k + kx], sums[kx][2]);
                                sums[kx][3] = fmaf(by.w, row[k + kx], sums[kx][3]);
                            }
                        }
                    }
            } else if (bias) {
                for (uint32_t y = 0; y < rows; y++)
                    for (uint32_t k = 0; k < wide; k++) {
                        const float4 by = slopes[(y * groups + group) * step + k];

                        sums[0][0] += by.x, sums[0][1] += by.y, sums[0][2] += by.z, sums[0][3] += by.w;
                    }
            }
            __syncthreads();
        }
#pragma unroll
    for (int o = 0; o < FEW; o++) {
        const uint32_t output = group * FEW + o;
        float *to = a.f[1] + (size_t)chunk * a.count;

        if (weight && output < outputs)
#pragma unroll
            for (int kx = 0; kx < K; kx++)
                to[((output * channels + channel) * K + ky) * K + kx] = sums[kx][o];
        else if (bias && output < outputs && a.count > outputs * channels * K * K)
            to[outputs * channels * K * K + output] = sums[0][o];
    }
}

/* Convolution, weight gradient: x[0] x, x[1] dy -> f[1] partial sums [chunks][count]: weights, and
 * bias if `count` includes it. The last block of a chunk, which has few items, must run beside
 * the others. */
CONV_GRID(3) grid_direct_conv_weights(GRID_ARGS count)
{
    __shared__ __align__(16) float shared[CONV_SHARED];

    with_kernel_and_span(args, count / THREADS, [&](auto kernel, auto span, uint32_t block) {
        direct_conv_weights<decltype(kernel)::value, decltype(span)::value>(args, block, shared);
    });
}

} // namespace
