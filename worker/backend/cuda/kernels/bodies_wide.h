/* Wide variants of element-wise kernels that dominate networks with batch norm. They require packed
 * 2-byte types and channel counts that are multiples of 8. An item processes eight neighbouring
 * elements, reading and writing 16 bytes at once. Included by bodies.h.
 *
 * These kernels are limited by memory bandwidth. lower.c uses them where possible and the plain
 * bodies elsewhere; the plain bodies define the meaning. */

typedef struct __attribute__((aligned(16))) eight {
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

/* Return the mask bits of eight elements that are above 0. bytes: mask with one byte per item;
 * NULL: read `output`, the relu output. */
BODY uint32_t wide_mask(const gp_kernel_args *a, const gp_kernel_image *output, uint32_t i)
{
    uint32_t bits = 255;

    if (a->bytes != NULL)
        return ((const uint8_t *)a->bytes)[i];
    if (output->data != NULL) {
        eight y = wide_get(output, i);

        bits = 0;
        for (int k = 0; k < 8; k++)
            bits |= (number_wide(output->narrow, y.of[k]) > 0.0f ? 1u : 0u) << k;
    }
    return bits;
}

BODY void body_wide_relu(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t infinite = a->x[0].narrow == GP_NARROW_F16 ? 0x7c00u : 0x7f80u;
    eight x = wide_get(&a->x[0], i);

    for (int k = 0; k < 8; k++) /* replace negative numbers and minus zero; NaN stays NaN */
        x.of[k] = (uint16_t)((x.of[k] & 0x8000u) != 0 && (x.of[k] & 0x7fffu) <= infinite ? 0 : x.of[k]);
    wide_put(&a->y[0], i, x);
}

BODY void body_wide_relu_backward(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t mask = wide_mask(a, &a->x[0], i);
    eight dy = wide_get(&a->x[1], i);

    for (int k = 0; k < 8; k++)
        dy.of[k] = (uint16_t)((mask >> k & 1) != 0 ? dy.of[k] : 0);
    wide_put(&a->y[0], i, dy);
}

BODY void body_wide_add(const gp_kernel_args *a, uint32_t i)
{
    const int32_t narrow = a->x[0].narrow;
    const uint32_t mask = wide_mask(a, &a->x[7], i);
    eight x = wide_get(&a->x[0], i), y = wide_get(&a->x[1], i);

    for (int k = 0; k < 8; k++) {
        float sum = number_wide(narrow, x.of[k]) + number_wide(narrow, y.of[k]);

        x.of[k] = (uint16_t)((mask >> k & 1) != 0 ? number_narrow(narrow, sum) : 0);
    }
    wide_put(&a->y[0], i, x);
}
