/* Bias gradients of images with 2-byte types. Included by grids.h. */

namespace
{

template <class T> PART void bias_part(const gp_kernel_args &a, double shared[8][THREADS])
{
    enum { ROWS = 4 };
    const uint32_t channels = a.x[0].channels, eights = channels / 8, rows = a.call->count * a.x[0].pixels,
                   segments = (eights + THREADS - 1) / THREADS, width = segments == 1 ? eights : THREADS,
                   part = blockIdx.x / segments, first = blockIdx.x % segments * THREADS;
    const column at = column_of(eights);
    const void *dy = a.x[0].data;
    float sums[8] = {};

    for (uint32_t row = at.row; row < rows; row += ROWS * at.step) {
        words w[ROWS] = {};

#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (r == 0 || row + r * at.step < rows)
                w[r] = words_get(dy, (row + r * at.step) * eights + at.eight);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int h = 0; h < 4; h++) {
                sums[2 * h] += T::low(w[r].of[h]);
                sums[2 * h + 1] += T::high(w[r].of[h]);
            }
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        shared[k][threadIdx.x] = (double)sums[k];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < 8 * width && part < a.chunks; i += THREADS) {
        const uint32_t k = i / width, lane = i % width;
        double sum = 0.0;

        if (first + lane >= eights)
            continue;
        /* threads without rows have sums of 0 */
        for (uint32_t from = lane; from < THREADS; from += width)
            sum += shared[k][from];
        a.f[1][(size_t)part * channels + 8 * (first + lane) + k] = (float)sum;
    }
}

/* x[0] dy -> f[1] partial sums [chunks][C]. A block computes the sums of its rows. */
GRID grid_wide_bias_part(GRID_ARGS)
{
    __shared__ double shared[8][THREADS];

    if (args.x[0].narrow == GP_NARROW_F16)
        bias_part<two_f16>(args, shared);
    else
        bias_part<two_bf16>(args, shared);
}

} // namespace
