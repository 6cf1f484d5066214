/* The input image in packed order with a 2-byte type. Included by grids.h. */

namespace
{

enum { INPUT_CHANNELS = 8, INPUT_PIXELS = 4 * THREADS /* that a block reads of a sample */ };

template <class T, class SAMPLE> PART void normalize(const gp_kernel_args &a)
{
    const gp_kernel_image &y = a.y[0];
    const uint32_t channels = a.n[1], parts = (y.pixels + INPUT_PIXELS - 1) / INPUT_PIXELS;
    const SAMPLE *samples = (const SAMPLE *)((const char *)a.bytes + a.call->slot * a.count);
    float scale[INPUT_CHANNELS], offset[INPUT_CHANNELS];

#pragma unroll
    for (uint32_t k = 0; k < INPUT_CHANNELS; k++) {
        scale[k] = a.scale[k < a.n[0] ? k : 0];
        offset[k] = k < channels ? a.offset[k < a.n[0] ? k : 0] : 0.0f;
    }
    for (uint32_t unit = blockIdx.x; unit < a.rows * parts; unit += gridDim.x) {
        const uint32_t n = unit / parts, first = unit % parts * INPUT_PIXELS;
        const uint32_t end = first + INPUT_PIXELS < y.pixels ? first + INPUT_PIXELS : y.pixels;
        const bool present = n < a.call->count;
        const SAMPLE *sample = samples;

        if (present)
            sample += (size_t)(a.index == NULL ? n : a.index[n]) * channels * y.pixels;
#pragma unroll 1
        for (uint32_t p = first + threadIdx.x; p < end; p += THREADS) {
            SAMPLE values[INPUT_CHANNELS];
            words out = {};

#pragma unroll
            for (uint32_t k = 0; k < INPUT_CHANNELS; k++)
                values[k] = present && k < channels ? __ldg(sample + (k * y.pixels + p)) : (SAMPLE)0;
#pragma unroll
            for (int h = 0; h < 4 && present; h++)
                out.of[h] = T::narrow((float)values[2 * h] * scale[2 * h] + offset[2 * h],
                                      (float)values[2 * h + 1] * scale[2 * h + 1] + offset[2 * h + 1]);
            words_put(y.data, n * y.pixels + p, out);
        }
    }
}

/* feed_turn, and feed_index for `rows` rows. One block, whose threads all read the call that the
 * first one copies. */
GRID grid_feed_begin(GRID_ARGS)
{
    if (threadIdx.x == 0)
        body_feed_turn(&args, 0);
    __syncthreads();
    for (uint32_t row = threadIdx.x; row < args.rows; row += THREADS)
        body_feed_index(&args, row);
}

/* body_normalize() for an image of eight channels, padding included. */
GRID grid_wide_normalize(GRID_ARGS)
{
    if (args.y[0].narrow == GP_NARROW_F16)
        args.kind == 1 ? normalize<two_f16, uint8_t>(args) : normalize<two_f16, float>(args);
    else
        args.kind == 1 ? normalize<two_bf16, uint8_t>(args) : normalize<two_bf16, float>(args);
}

} // namespace
