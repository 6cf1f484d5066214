/* Convolution, fully connected layers, biases and pooling. Included by bodies.h.
 *
 * These bodies are correct for every shape but slow for large ones. They run where cuDNN and
 * cuBLASLt have no plan, and serve as reference for both on the device. A transposed convolution
 * uses the same bodies with x and y exchanged. */

/* Convolution: x[0] [C,H,W], f[0] weight [O, C / groups, KH, KW], f[1] bias or NULL -> y[0]. */
BODY void body_conv(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0], *y = &a->y[0];
    place at = image_place(y, i);
    uint32_t each = x->channels / (uint32_t)a->groups, group = at.c / (y->channels / (uint32_t)a->groups);
    int32_t top = (int32_t)(at.p / y->width) * a->stride[0] - a->padding[0];
    int32_t left = (int32_t)(at.p % y->width) * a->stride[1] - a->padding[1];
    const float *weight = a->f[0] + (size_t)at.c * each * (uint32_t)(a->kernel[0] * a->kernel[1]);
    float sum = 0.0f;

    for (uint32_t c = 0; c < each; c++)
        for (int32_t ky = 0; ky < a->kernel[0]; ky++) {
            int32_t iy = top + ky * a->dilation[0];

            if (iy < 0 || iy >= (int32_t)x->height)
                continue;
            for (int32_t kx = 0; kx < a->kernel[1]; kx++) {
                int32_t ix = left + kx * a->dilation[1];

                if (ix < 0 || ix >= (int32_t)x->width)
                    continue;
                sum +=
                    weight[((int32_t)c * a->kernel[0] + ky) * a->kernel[1] + kx] *
                    image_get(x, image_at(x, at.n, group * each + c, (uint32_t)iy * x->width + (uint32_t)ix));
            }
        }
    image_put(y, i, followed(a, i, sum + (a->f[1] != NULL ? a->f[1][at.c] : 0.0f)));
}

/* Convolution, input gradient: x[0] dy, f[0] weight, f[1] bias or NULL -> y[0] dx. Sums over the
 * windows that contain the pixel. */
BODY void body_conv_data(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *dy = &a->x[0], *dx = &a->y[0];
    place at = image_place(dx, i);
    uint32_t each = dx->channels / (uint32_t)a->groups, outputs = dy->channels / (uint32_t)a->groups;
    uint32_t group = at.c / each, taps = (uint32_t)(a->kernel[0] * a->kernel[1]);
    int32_t y = (int32_t)(at.p / dx->width) + a->padding[0], x = (int32_t)(at.p % dx->width) + a->padding[1];
    float sum = 0.0f;

    for (int32_t ky = 0; ky < a->kernel[0]; ky++) {
        int32_t down = y - ky * a->dilation[0], oy = down / a->stride[0];

        if (down < 0 || down % a->stride[0] != 0 || oy >= (int32_t)dy->height)
            continue;
        for (int32_t kx = 0; kx < a->kernel[1]; kx++) {
            int32_t right = x - kx * a->dilation[1], ox = right / a->stride[1];
            uint32_t p = (uint32_t)oy * dy->width + (uint32_t)ox;
            const float *weight = a->f[0] + (at.c % each) * taps + (uint32_t)(ky * a->kernel[1] + kx);

            if (right < 0 || right % a->stride[1] != 0 || ox >= (int32_t)dy->width)
                continue;
            for (uint32_t o = group * outputs; o < (group + 1) * outputs; o++)
                sum += weight[(size_t)o * each * taps] * image_get(dy, image_at(dy, at.n, o, p));
        }
    }
    image_put(dx, i, masked(a, i, sum + (a->f[1] != NULL ? a->f[1][at.c] : 0.0f)));
}

/* Convolution, weight gradient: x[0] x, x[1] dy -> f[1] partial sums. Items: (chunk, weight),
 * weights first. A chunk consists of rows of dy. */
BODY void body_conv_weights(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0], *dy = &a->x[1];
    uint32_t chunk = i / (uint32_t)a->count, w = i % (uint32_t)a->count;
    uint32_t each = x->channels / (uint32_t)a->groups;
    int32_t kx = (int32_t)(w % (uint32_t)a->kernel[1]), rest = (int32_t)(w / (uint32_t)a->kernel[1]);
    int32_t ky = rest % a->kernel[0];
    uint32_t c = (uint32_t)(rest / a->kernel[0]) % each, o = (uint32_t)(rest / a->kernel[0]) / each;
    uint32_t channel = o / (dy->channels / (uint32_t)a->groups) * each + c;
    float sum = 0.0f;

    for (uint32_t unit = chunk; unit < a->call->count * dy->height; unit += a->chunks) {
        uint32_t n = unit / dy->height, oy = unit % dy->height;
        int32_t iy = (int32_t)oy * a->stride[0] - a->padding[0] + ky * a->dilation[0];
        float row = 0.0f;

        if (iy < 0 || iy >= (int32_t)x->height)
            continue;
        for (uint32_t ox = 0; ox < dy->width; ox++) {
            int32_t ix = (int32_t)ox * a->stride[1] - a->padding[1] + kx * a->dilation[1];

            if (ix < 0 || ix >= (int32_t)x->width)
                continue;
            row += image_get(x, image_at(x, n, channel, (uint32_t)iy * x->width + (uint32_t)ix)) *
                   image_get(dy, image_at(dy, n, o, oy * dy->width + ox));
        }
        sum += row;
    }
    a->f[1][i] = sum;
}

/* Fully connected: x[0] of any shape, read in CHW order; f[0] weight [O, F], f[1] bias or NULL ->
 * y[0] [O]. */
BODY void body_fc(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t n = i / a->y[0].sample, o = i % a->y[0].sample;
    const float *weight = a->f[0] + (size_t)o * x->sample;
    float sum = 0.0f;

    for (uint32_t c = 0; c < x->channels; c++)
        for (uint32_t p = 0; p < x->pixels; p++)
            sum += weight[c * x->pixels + p] * image_get(x, image_at(x, n, c, p));
    image_put(&a->y[0], i, followed(a, i, sum + (a->f[1] != NULL ? a->f[1][o] : 0.0f)));
}

/* Fully connected, input gradient: x[0] dy [O], f[0] weight -> y[0] dx. */
BODY void body_fc_data(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);
    const float *weight = a->f[0] + at.c * a->y[0].pixels + at.p;
    float sum = 0.0f;

    for (uint32_t o = 0; o < a->x[0].sample; o++)
        sum += weight[(size_t)o * a->y[0].sample] * image_get(&a->x[0], (size_t)at.n * a->x[0].sample + o);
    image_put(&a->y[0], i, masked(a, i, sum));
}

/* Fully connected, weight gradient: x[0] x, x[1] dy -> f[1] partial sums. Items: (chunk, weight). A
 * chunk consists of samples. */
BODY void body_fc_weights(const gp_kernel_args *a, uint32_t i)
{
    uint32_t chunk = i / (uint32_t)a->count, w = i % (uint32_t)a->count;
    uint32_t o = w / a->x[0].sample, f = w % a->x[0].sample;
    float sum = 0.0f;

    for (uint32_t n = chunk; n < a->call->count; n += a->chunks)
        sum += image_get(&a->x[0], image_chw(&a->x[0], n, f)) *
               image_get(&a->x[1], (size_t)n * a->x[1].sample + o);
    a->f[1][i] = sum;
}

/* Complete the result of a library call: add f[0] to each channel of y[0] if not NULL, then apply
 * followed(). */
BODY void body_finish(const gp_kernel_args *a, uint32_t i)
{
    float bias = a->f[0] == NULL ? 0.0f : a->f[0][image_place(&a->y[0], i).c];

    image_put(&a->y[0], i, followed(a, i, image_get(&a->y[0], i) + bias));
}

/* Bias gradient: x[0] dy -> f[1] partial sums. Items: (chunk, channel). A chunk consists of pixels
 * of all samples. */
BODY void body_bias_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *dy = &a->x[0];
    uint32_t chunk = i / dy->channels, c = i % dy->channels;
    float sum = 0.0f;

    for (uint32_t unit = chunk; unit < a->call->count * dy->pixels; unit += a->chunks)
        sum += image_get(dy, image_at(dy, unit / dy->pixels, c, unit % dy->pixels));
    a->f[1][i] = sum;
}

/* ---- pooling; kind: gp_pool_kind ---- */

/* Pixels covered by a window: [top, bottom) x [left, right), in dilation steps. */
typedef struct window_box {
    int32_t top, bottom, left, right;
} window_box;

BODY int32_t first_inside(int32_t at, int32_t step)
{
    return at >= 0 ? at : at + (-at + step - 1) / step * step;
}

BODY window_box window_of(const gp_kernel_args *a, const gp_kernel_image *x, int32_t oy, int32_t ox)
{
    window_box box;
    int32_t y = oy * a->stride[0] - a->padding[0], left = ox * a->stride[1] - a->padding[1];

    box.top = first_inside(y, a->dilation[0]);
    box.left = first_inside(left, a->dilation[1]);
    box.bottom = y + (a->kernel[0] - 1) * a->dilation[0] + 1;
    box.right = left + (a->kernel[1] - 1) * a->dilation[1] + 1;
    box.bottom = box.bottom < (int32_t)x->height ? box.bottom : (int32_t)x->height;
    box.right = box.right < (int32_t)x->width ? box.right : (int32_t)x->width;
    return box;
}

BODY int32_t window_pixels(const gp_kernel_args *a, const window_box *box)
{
    int32_t rows = (box->bottom - box->top + a->dilation[0] - 1) / a->dilation[0];
    int32_t columns = (box->right - box->left + a->dilation[1] - 1) / a->dilation[1];

    return a->kind == 2 ? a->kernel[0] * a->kernel[1] : rows * columns;
}

/* Pooling: x[0] -> y[0]; bytes: int32 index in y order, or NULL. */
BODY void body_pool(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at = image_place(&a->y[0], i);
    window_box box = window_of(a, x, (int32_t)(at.p / a->y[0].width), (int32_t)(at.p % a->y[0].width));
    float sum = 0.0f, largest = 0.0f;
    int32_t index = -1;

    for (int32_t y = box.top; y < box.bottom; y += a->dilation[0])
        for (int32_t column = box.left; column < box.right; column += a->dilation[1]) {
            int32_t p = y * (int32_t)x->width + column;
            float value = image_get(x, image_at(x, at.n, at.c, (uint32_t)p));

            sum += value;
            if (index < 0 || value > largest) {
                largest = value;
                index = p;
            }
        }
    image_put(&a->y[0], i, a->kind == 0 ? largest : sum / (float)window_pixels(a, &box));
    if (a->bytes != NULL)
        ((int32_t *)(uintptr_t)a->bytes)[i] = index;
}

/* Pooling, gradient: x[0] dy, bytes: index from forward -> y[0] dx. Sums over the windows that
 * contain the pixel. */
BODY void body_pool_backward(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *dy = &a->x[0], *dx = &a->y[0];
    place at = image_place(dx, i);
    int32_t y = (int32_t)(at.p / dx->width) + a->padding[0], x = (int32_t)(at.p % dx->width) + a->padding[1];
    float sum = 0.0f;

    for (int32_t ky = 0; ky < a->kernel[0]; ky++) {
        int32_t down = y - ky * a->dilation[0], oy = down / a->stride[0];

        if (down < 0 || down % a->stride[0] != 0 || oy >= (int32_t)dy->height)
            continue;
        for (int32_t kx = 0; kx < a->kernel[1]; kx++) {
            int32_t right = x - kx * a->dilation[1], ox = right / a->stride[1];
            window_box box;
            size_t from;

            if (right < 0 || right % a->stride[1] != 0 || ox >= (int32_t)dy->width)
                continue;
            from = image_at(dy, at.n, at.c, (uint32_t)oy * dy->width + (uint32_t)ox);
            if (a->kind == 0) {
                sum += ((const int32_t *)a->bytes)[from] == (int32_t)at.p ? image_get(dy, from) : 0.0f;
                continue;
            }
            box = window_of(a, dx, oy, ox);
            sum += image_get(dy, from) / (float)window_pixels(a, &box);
        }
    }
    image_put(dx, i, masked(a, i, sum));
}
