/* bodies_wide.h -- the element-wise kernels that a network with batch norm spends its time in, for packed bfloat16 whose
 * channels come in eights: an item is eight neighbours, 16 bytes, read and written at once.  Part of bodies.h.
 *
 * These move memory and nothing else, so bytes in flight are what counts; lower.c takes them where they fit and the plain
 * bodies, which say what they mean, elsewhere. */

#ifdef __CUDACC__
#define EIGHT_ALIGNED __align__(16)
#else
#define EIGHT_ALIGNED
#endif

typedef struct EIGHT_ALIGNED eight {
    uint16_t of[8];
} eight;

BODY eight wide_get(const gp_kernel_image *image, size_t i)
{
    return ((const eight *)image->data)[i];
}

BODY void wide_put(const gp_kernel_image *image, size_t i, eight value)
{
    ((eight *)image->data)[i] = value;
}

BODY void body_wide_relu(const gp_kernel_args *a, uint32_t i)
{
    eight x = wide_get(&a->x[0], i);

    for (int k = 0; k < 8; k++) /* negative numbers and minus zero; a NaN stays */
        x.of[k] = (uint16_t)((x.of[k] & 0x8000u) != 0 && (x.of[k] & 0x7fffu) <= 0x7f80u ? 0 : x.of[k]);
    wide_put(&a->y[0], i, x);
}

BODY void body_wide_relu_backward(const gp_kernel_args *a, uint32_t i)
{
    eight y = wide_get(&a->x[0], i), dy = wide_get(&a->x[1], i);

    for (int k = 0; k < 8; k++)
        dy.of[k] = (uint16_t)(bf16_wide(y.of[k]) > 0.0f ? dy.of[k] : 0);
    wide_put(&a->y[0], i, dy);
}

BODY void body_wide_add(const gp_kernel_args *a, uint32_t i)
{
    eight x = wide_get(&a->x[0], i), y = wide_get(&a->x[1], i);

    for (int k = 0; k < 8; k++)
        x.of[k] = bf16_narrow(bf16_wide(x.of[k]) + bf16_wide(y.of[k]));
    wide_put(&a->y[0], i, x);
}

/* As batchnorm_part and batchnorm_backward_part (kind 1), eight channels an item.  Items: (chunk, channels / 8). */
BODY void body_wide_batchnorm_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    const uint32_t eights = x->channels / 8, chunk = i / eights, e = i % eights,
                   rows = a->call->count * x->pixels;
    const float *origin = a->kind == 1 ? a->f[3] + 8 * e : a->f[0] + 8 * e;
    double sums[8] = { 0 }, products[8] = { 0 };
    float near[8], part[8], square[8];

    for (int k = 0; k < 8; k++)
        near[k] = origin[k];
    /* Sixteen rows in float32, then their sum in float64. */
    for (uint32_t row = chunk; row < rows;) {
        for (int k = 0; k < 8; k++)
            part[k] = square[k] = 0.0f;
        for (int turn = 0; turn < 16 && row < rows; turn++, row += a->chunks) {
            eight value = wide_get(x, (size_t)row * eights + e), dy = value;

            if (a->kind == 1)
                dy = wide_get(&a->x[1], (size_t)row * eights + e);
            for (int k = 0; k < 8; k++) {
                float shifted = bf16_wide(value.of[k]) - near[k], with = shifted;

                if (a->kind == 1)
                    with = bf16_wide(dy.of[k]);
                part[k] += with;
                square[k] += with * shifted;
            }
        }
        for (int k = 0; k < 8; k++) {
            sums[k] += (double)part[k];
            products[k] += (double)square[k];
        }
    }
    for (uint32_t k = 0; k < 8; k++) {
        double scale = a->kind == 1 ? (double)a->f[3][x->channels + 8 * e + k] : 1.0;

        a->d[0][(size_t)chunk * 2 * x->channels + 8 * e + k] = sums[k];
        a->d[0][((size_t)chunk * 2 + 1) * x->channels + 8 * e + k] = products[k] * scale;
    }
}

BODY void body_wide_batchnorm_apply(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t channels = a->x[0].channels, first = 8 * (i % (channels / 8));
    eight x = wide_get(&a->x[0], i);

    for (uint32_t k = 0; k < 8; k++) {
        uint32_t c = first + k;

        x.of[k] = bf16_narrow((bf16_wide(x.of[k]) - a->f[3][c]) * (a->f[3][channels + c] * a->f[1][c]) +
                              a->f[2][c]);
    }
    wide_put(&a->y[0], i, x);
}

BODY void body_wide_batchnorm_backward_apply(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t channels = a->x[0].channels, first = 8 * (i % (channels / 8));
    const double n = a->d[1][2 * channels] > 0.0 ? a->d[1][2 * channels] : 1.0;
    const float each = (float)(1.0 / n);
    const int counts = i / (a->x[0].sample / 8) < a->call->count;
    eight x = wide_get(&a->x[0], i), dy = wide_get(&a->x[1], i);

    for (uint32_t k = 0; k < 8; k++) {
        uint32_t c = first + k;
        float inverse = a->f[3][channels + c], normalised = (bf16_wide(x.of[k]) - a->f[3][c]) * inverse;
        float dx = a->f[0][c] * inverse *
                   (bf16_wide(dy.of[k]) - (float)a->d[1][c] * each -
                    normalised * ((float)a->d[1][channels + c] * each));

        x.of[k] = (uint16_t)(counts ? bf16_narrow(dx) : 0);
    }
    wide_put(&a->y[0], i, x);
}
