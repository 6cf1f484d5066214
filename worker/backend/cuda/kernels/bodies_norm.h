/* Batch norm, group norm, local response norm. Included by bodies.h.
 *
 * Batch norm consists of three kernels: partial sums relative to the running mean, their sum with
 * the moments (grids_norm.h), and the scaling. Synchronised batch norm adds the sums from all ranks
 * and computes the moments again.
 * Sums are float64, because squares cancel if the running mean is far from the mean of the call. */

/* x[0], f[0] running mean -> d[0] partial sums [chunk][2][C]. Items: (chunk, channel). */
BODY void body_batchnorm_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t chunk = i / x->channels, c = i % x->channels;
    float origin = a->f[0][c];
    double sum = 0.0, squares = 0.0;

    if (moments_known(a))
        return;
    for (uint32_t unit = chunk; unit < a->call->count * x->pixels; unit += a->chunks) {
        double shifted =
            (double)image_get(x, image_at(x, unit / x->pixels, c, unit % x->pixels)) - (double)origin;

        sum += shifted;
        squares += shifted * shifted;
    }
    a->d[0][(size_t)chunk * 2 * x->channels + c] = sum;
    a->d[0][((size_t)chunk * 2 + 1) * x->channels + c] = squares;
}

/* Return the batch norm output for x in channel c. All kernels that write the output, or recompute
 * whether a relu clamped it, use this function. */
BODY float batchnorm_value(const float *moments, uint32_t channels, const float *scale, const float *offset,
                           uint32_t c, float x)
{
    return (x - moments[c]) * (moments[channels + c] * scale[c]) + offset[c];
}

/* Return true if the value is above 0 after rounding to the value's type. In fp16, half the
 * smallest number and everything below is 0. */
BODY int is_above_0(int32_t narrow, float value)
{
    return value > (narrow == GP_NARROW_F16 ? 1.0f / 33554432.0f : 0.0f);
}

/* x[0], f[1] scale, f[2] offset, f[3] moments -> y[0]. */
BODY void body_batchnorm_apply(const gp_kernel_args *a, uint32_t i)
{
    uint32_t c = image_place(&a->x[0], i).c;

    image_put(
        &a->y[0], i,
        followed(a, i,
                 batchnorm_value(a->f[3], a->x[0].channels, a->f[1], a->f[2], c, image_get(&a->x[0], i))));
}

/* Batch norm, relu and max pooling. Items: elements of y[0]; bytes: int32 index in y order. */
BODY void body_batchnorm_pool(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at = image_place(&a->y[0], i);
    window_box box = window_of(a, x, (int32_t)(at.p / a->y[0].width), (int32_t)(at.p % a->y[0].width));
    float largest = 0.0f;
    int32_t index = -1;

    for (int32_t row = box.top; row < box.bottom; row += a->dilation[0])
        for (int32_t column = box.left; column < box.right; column += a->dilation[1]) {
            int32_t p = row * (int32_t)x->width + column;
            float value = batchnorm_value(a->f[3], x->channels, a->f[1], a->f[2], at.c,
                                          image_get(x, image_at(x, at.n, at.c, (uint32_t)p)));

            value = value <= 0.0f ? 0.0f : value;
            if (x->narrow)
                value = number_wide(x->narrow, number_narrow(x->narrow, value));
            if (index < 0 || value > largest) {
                largest = value;
                index = p;
            }
        }
    image_put(&a->y[0], i, largest);
    ((int32_t *)(uintptr_t)a->bytes)[i] = index;
}

/* x[0], f[0] mean, f[1] scale, f[2] offset, f[3] variance -> y[0]. */
BODY void body_batchnorm_infer(const gp_kernel_args *a, uint32_t i)
{
    uint32_t c = image_place(&a->x[0], i).c;
    float factor = (float)gp_norm_factor(a->f[1][c], a->f[3][c], a->number64[0]);

    image_put(&a->y[0], i, followed(a, i, (image_get(&a->x[0], i) - a->f[0][c]) * factor + a->f[2][c]));
}

/* Apply a relu's gradient after batch norm by recomputing the relu's input. f[0]: scale, f[5]:
 * offset. */
BODY float cut(const gp_kernel_args *a, uint32_t c, float x, float dy)
{
    return a->relu && !is_above_0(a->x[0].narrow,
                                  batchnorm_value(a->f[3], a->x[0].channels, a->f[0], a->f[5], c, x))
               ? 0.0f
               : dy;
}

/* x[0], x[1] dy, f[3] moments -> d[0] partial sums [chunk][2][C] of dy and of dy * normalised x. */
BODY void body_batchnorm_backward_part(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t chunk = i / x->channels, c = i % x->channels;
    float mean = a->f[3][c], inverse = a->f[3][x->channels + c];
    double sum = 0.0, product = 0.0;

    for (uint32_t unit = chunk; unit < a->call->count * x->pixels; unit += a->chunks) {
        size_t at = image_at(x, unit / x->pixels, c, unit % x->pixels);
        float dy = cut(a, c, image_get(x, at), masked(a, at, image_get(&a->x[1], at)));

        sum += (double)dy;
        product += (double)dy * (double)((image_get(x, at) - mean) * inverse);
    }
    a->d[0][(size_t)chunk * 2 * x->channels + c] = sum;
    a->d[0][((size_t)chunk * 2 + 1) * x->channels + c] = product;
}

/* x[0], x[1] dy, f[0] scale, f[3] moments, d[1] sums -> y[0] dx. */
BODY void body_batchnorm_backward_apply(const gp_kernel_args *a, uint32_t i)
{
    const uint32_t channels = a->x[0].channels;
    place at = image_place(&a->x[0], i);
    double n = a->d[1][2 * channels] > 0.0 ? a->d[1][2 * channels] : 1.0;
    float inverse = a->f[3][channels + at.c];
    float normalised = (image_get(&a->x[0], i) - a->f[3][at.c]) * inverse;
    float dx = a->f[0][at.c] * inverse *
               (cut(a, at.c, image_get(&a->x[0], i), masked(a, i, image_get(&a->x[1], i))) -
                (float)(a->d[1][at.c] / n) - normalised * (float)(a->d[1][channels + at.c] / n));

    image_put(&a->y[0], i, at.n < a->call->count ? dx : 0.0f);
}

/* ---- group norm; number[0]: channel groups; number[1] nonzero: one group per pixel ---- */

BODY uint32_t groupnorm_groups(const gp_kernel_args *a)
{
    return a->number[1] ? a->x[0].pixels : (uint32_t)a->number[0];
}

BODY uint32_t groupnorm_group(const gp_kernel_args *a, place at)
{
    return a->number[1] ? at.p : at.c / (a->x[0].channels / (uint32_t)a->number[0]);
}

/* Channels and pixels of a group, as [first, end). */
typedef struct groupnorm_range {
    uint32_t channel_first, channel_end, pixel_first, pixel_end;
} groupnorm_range;

BODY groupnorm_range groupnorm_range_of(const gp_kernel_args *a, uint32_t g)
{
    uint32_t each = a->x[0].channels / (uint32_t)a->number[0];
    groupnorm_range range;

    range.channel_first = a->number[1] ? 0 : g * each;
    range.channel_end = a->number[1] ? a->x[0].channels : (g + 1) * each;
    range.pixel_first = a->number[1] ? g : 0;
    range.pixel_end = a->number[1] ? g + 1 : a->x[0].pixels;
    return range;
}

/* Return the element count in a group. */
BODY double groupnorm_count(const gp_kernel_args *a)
{
    return (double)a->x[0].channels * (double)a->x[0].pixels / (double)groupnorm_groups(a);
}

/* x[0] -> f[3] moments [n][2][groups]. Items: (sample, group). */
BODY void body_groupnorm_moments(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t groups = groupnorm_groups(a), n = i / groups, g = i % groups;
    groupnorm_range range = groupnorm_range_of(a, g);
    double count = groupnorm_count(a), sum = 0.0, squares = 0.0, mean;

    for (uint32_t c = range.channel_first; c < range.channel_end; c++)
        for (uint32_t p = range.pixel_first; p < range.pixel_end; p++)
            sum += (double)image_get(x, image_at(x, n, c, p));
    mean = sum / count;
    for (uint32_t c = range.channel_first; c < range.channel_end; c++)
        for (uint32_t p = range.pixel_first; p < range.pixel_end; p++) {
            double off = (double)image_get(x, image_at(x, n, c, p)) - mean;

            squares += off * off;
        }
    a->f[3][(size_t)n * 2 * groups + g] = (float)mean;
    a->f[3][((size_t)n * 2 + 1) * groups + g] = (float)(1.0 / sqrt(squares / count + a->number64[0]));
}

BODY float groupnorm_normal(const gp_kernel_args *a, place at, size_t i)
{
    uint32_t groups = groupnorm_groups(a);
    const float *moments = a->f[3] + (size_t)at.n * 2 * groups + groupnorm_group(a, at);

    return (image_get(&a->x[0], i) - moments[0]) * moments[groups];
}

/* x[0], f[1] scale, f[2] offset, f[3] moments -> y[0]. */
BODY void body_groupnorm_apply(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->x[0], i);

    image_put(&a->y[0], i, groupnorm_normal(a, at, i) * a->f[1][at.c] + a->f[2][at.c]);
}

/* x[0], x[1] dy, f[3] moments -> f[4] sums [n][2][C]. Items: (sample, channel). */
BODY void body_groupnorm_backward_channels(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at;
    double sum = 0.0, product = 0.0;

    at.n = i / x->channels;
    at.c = i % x->channels;
    for (at.p = 0; at.p < x->pixels; at.p++) {
        size_t from = image_at(x, at.n, at.c, at.p);
        float dy = image_get(&a->x[1], from);

        sum += (double)dy;
        product += (double)dy * (double)groupnorm_normal(a, at, from);
    }
    a->f[4][(size_t)at.n * 2 * x->channels + at.c] = (float)sum;
    a->f[4][((size_t)at.n * 2 + 1) * x->channels + at.c] = (float)product;
}

/* x[0], x[1] dy, f[0] scale, f[3] moments; f[4] sums for channel groups -> f[5] means
 * [n][2][groups] of the gradient of normalised x. Items: (sample, group). */
BODY void body_groupnorm_backward_groups(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    uint32_t groups = groupnorm_groups(a), n = i / groups, g = i % groups;
    groupnorm_range range = groupnorm_range_of(a, g);
    double count = groupnorm_count(a), sum = 0.0, product = 0.0;
    place at;

    at.n = n;
    at.p = range.pixel_first;
    for (at.c = range.channel_first; at.c < range.channel_end; at.c++) {
        double scale = (double)a->f[0][at.c];

        if (a->number[1]) {
            size_t from = image_at(x, n, at.c, at.p);
            double dy = scale * (double)image_get(&a->x[1], from);

            sum += dy;
            product += dy * (double)groupnorm_normal(a, at, from);
        } else {
            sum += scale * (double)a->f[4][(size_t)n * 2 * x->channels + at.c];
            product += scale * (double)a->f[4][((size_t)n * 2 + 1) * x->channels + at.c];
        }
    }
    a->f[5][(size_t)n * 2 * groups + g] = (float)(sum / count);
    a->f[5][((size_t)n * 2 + 1) * groups + g] = (float)(product / count);
}

/* f[4] sums -> f[1] dscale, f[2] doffset (or NULL). Items: channels. */
BODY void body_groupnorm_backward_parameters(const gp_kernel_args *a, uint32_t c)
{
    for (uint32_t which = 0; which < 2; which++) {
        float *gradient = a->f[2 - which];
        double sum = 0.0;

        if (gradient == NULL)
            continue;
        for (uint32_t n = 0; n < a->call->count; n++)
            sum += (double)a->f[4][((size_t)n * 2 + which) * a->x[0].channels + c];
        gradient_add(a, &gradient[c], sum);
    }
}

/* x[0], x[1] dy, f[0] scale, f[3] moments, f[5] means -> y[0] dx. */
BODY void body_groupnorm_backward_apply(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->x[0], i);
    uint32_t groups = groupnorm_groups(a), g = groupnorm_group(a, at);
    const float *means = a->f[5] + (size_t)at.n * 2 * groups + g;
    float inverse = a->f[3][((size_t)at.n * 2 + 1) * groups + g];

    image_put(&a->y[0], i,
              inverse * (image_get(&a->x[1], i) * a->f[0][at.c] - means[0] -
                         groupnorm_normal(a, at, i) * means[groups]));
}

/* ---- local response norm; number[0]: window size in channels; factor: alpha, beta, k ---- */

/* x[0] -> y[0], y[1] d. */
BODY void body_lrn(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at = image_place(x, i);
    int32_t first = (int32_t)at.c - (a->number[0] - 1) / 2, last = (int32_t)at.c + a->number[0] / 2;
    float squares = 0.0f, d;

    for (int32_t c = first < 0 ? 0 : first; c <= last && c < (int32_t)x->channels; c++) {
        float value = image_get(x, image_at(x, at.n, (uint32_t)c, at.p));

        squares += value * value;
    }
    d = a->factor[2] + a->factor[0] / (float)a->number[0] * squares;
    image_put(&a->y[1], i, d);
    image_put(&a->y[0], i, image_get(x, i) * powf(d, -a->factor[1]));
}

/* x[0], x[1] dy, x[2] d -> y[0] terms. */
BODY void body_lrn_terms(const gp_kernel_args *a, uint32_t i)
{
    image_put(&a->y[0], i,
              image_get(&a->x[1], i) * image_get(&a->x[0], i) *
                  powf(image_get(&a->x[2], i), -a->factor[1] - 1.0f));
}

/* x[0], x[1] dy, x[2] d, x[3] terms -> y[0] dx. Channel j's window contains c if c - n / 2 <= j <=
 * c + (n - 1) / 2. */
BODY void body_lrn_backward(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at = image_place(x, i);
    int32_t first = (int32_t)at.c - a->number[0] / 2, last = (int32_t)at.c + (a->number[0] - 1) / 2;
    float sum = 0.0f;

    for (int32_t c = first < 0 ? 0 : first; c <= last && c < (int32_t)x->channels; c++)
        sum += image_get(&a->x[3], image_at(x, at.n, (uint32_t)c, at.p));
    image_put(&a->y[0], i,
              image_get(&a->x[1], i) * powf(image_get(&a->x[2], i), -a->factor[1]) -
                  2.0f * a->factor[0] * a->factor[1] / (float)a->number[0] * image_get(x, i) * sum);
}
