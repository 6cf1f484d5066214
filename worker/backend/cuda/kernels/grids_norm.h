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

} // namespace
