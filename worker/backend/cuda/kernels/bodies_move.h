/* Moving elements: boxes, resizing; and softmax. Included by bodies.h. */

/* Return an element's index in an image, given by the three axes in a box. */
BODY size_t box_at(const gp_kernel_image *image, uint32_t n, const uint32_t at[3])
{
    return image_at(image, n, at[0], at[1] * image->width + at[2]);
}

BODY void box_of(const gp_kernel_image *image, place at, uint32_t box[3])
{
    box[0] = at.c;
    box[1] = at.p / image->width;
    box[2] = at.p % image->width;
}

/* Copy a box with the smaller extent. kind 0: y[0] is the part of x[0] at `number`; kind 1: x[0] is
 * copied into y[0] at `number`. */
BODY void body_copy_box(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *small = a->kind == 0 ? &a->y[0] : &a->x[0];
    place at = image_place(small, i);
    uint32_t box[3];
    size_t large;

    box_of(small, at, box);
    for (int k = 0; k < 3; k++)
        box[k] += (uint32_t)a->number[k];
    large = box_at(a->kind == 0 ? &a->x[0] : &a->y[0], at.n, box);
    if (a->kind == 0)
        image_put(&a->y[0], i, image_get(&a->x[0], large));
    else
        image_put(&a->y[0], large, image_get(&a->x[0], i));
}

/* Pad: y[0] is zero except for x[0] at `number`. */
BODY void body_pad(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    place at = image_place(&a->y[0], i);
    uint32_t box[3], extent[3] = { x->channels, x->height, x->width };
    int inside = 1;

    box_of(&a->y[0], at, box);
    for (int k = 0; k < 3; k++) {
        inside = inside && box[k] >= (uint32_t)a->number[k] && box[k] - (uint32_t)a->number[k] < extent[k];
        box[k] -= (uint32_t)a->number[k];
    }
    image_put(&a->y[0], i, inside ? image_get(x, box_at(x, at.n, box)) : 0.0f);
}

/* Transpose: axis k of y is axis number[k] of x. */
BODY void body_transpose(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);
    uint32_t to[3], from[3];

    box_of(&a->y[0], at, to);
    for (int k = 0; k < 3; k++)
        from[a->number[k]] = to[k];
    image_put(&a->y[0], i, image_get(&a->x[0], box_at(&a->x[0], at.n, from)));
}

/* ---- resizing; kind: gp_resize_mode; number64: inputs per output in height and width
 * ---- */

/* Output interpolation: lower input and the next input's weight. */
typedef struct between {
    uint32_t low, high;
    float share;
} between;

BODY between resize_of(int32_t mode, double ratio, uint32_t o, uint32_t from, uint32_t to)
{
    between at;
    double x = 0.0;

    if (mode == 0) {
        at.low = at.high = (uint32_t)((uint64_t)o * from / to);
        at.share = 0.0f;
        return at;
    }
    x = mode == 1 ? ((double)o + 0.5) * ratio - 0.5 : (double)o * ratio;
    x = x < 0.0 ? 0.0 : x > (double)(from - 1) ? (double)(from - 1) : x;
    at.low = (uint32_t)x;
    at.high = at.low + 1 < from ? at.low + 1 : at.low;
    at.share = (float)(x - (double)at.low);
    return at;
}

BODY void body_resize(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0], *y = &a->y[0];
    place at = image_place(y, i);
    between v = resize_of(a->kind, a->number64[0], at.p / y->width, x->height, y->height);
    between h = resize_of(a->kind, a->number64[1], at.p % y->width, x->width, y->width);
    float upper = image_get(x, image_at(x, at.n, at.c, v.low * x->width + h.low)) * (1.0f - h.share) +
                  image_get(x, image_at(x, at.n, at.c, v.low * x->width + h.high)) * h.share;
    float lower = image_get(x, image_at(x, at.n, at.c, v.high * x->width + h.low)) * (1.0f - h.share) +
                  image_get(x, image_at(x, at.n, at.c, v.high * x->width + h.high)) * h.share;

    image_put(y, i, upper * (1.0f - v.share) + lower * v.share);
}

BODY float resize_weight(int32_t mode, double ratio, uint32_t i, uint32_t o, uint32_t from, uint32_t to)
{
    const uint64_t there = (uint64_t)o * from;

    if (mode == 0) /* as in resize_of(), without a division */
        return there >= (uint64_t)i * to && there < ((uint64_t)i + 1) * to ? 1.0f : 0.0f;

    between at = resize_of(mode, ratio, o, from, to);
    float weight = i == at.low ? 1.0f - at.share : 0.0f;

    return i == at.high ? weight + at.share : weight;
}

/* Compute a range that contains all outputs which read input i, in all modes. */
BODY void resize_readers(uint32_t i, uint32_t from, uint32_t to, uint32_t *first, uint32_t *end)
{
    uint32_t low = i > 2 ? (i - 2) * to / from : 0, high = (i + 2) * to / from + 3;

    *first = low > 2 ? low - 2 : 0;
    *end = high < to ? high : to;
    /* Outputs beyond the edges all read the border pixel. */
    if (i == 0)
        *first = 0;
    if (i + 1 == from)
        *end = to;
}

BODY void body_resize_backward(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *dy = &a->x[0], *dx = &a->y[0];
    place at = image_place(dx, i);
    uint32_t y = at.p / dx->width, x = at.p % dx->width, top, bottom, left, right;
    float sum = 0.0f;

    resize_readers(y, dx->height, dy->height, &top, &bottom);
    resize_readers(x, dx->width, dy->width, &left, &right);
    for (uint32_t oy = top; oy < bottom; oy++) {
        float v = resize_weight(a->kind, a->number64[0], y, oy, dx->height, dy->height), row = 0.0f;

        if (v == 0.0f)
            continue;
        for (uint32_t ox = left; ox < right; ox++) {
            float h = resize_weight(a->kind, a->number64[1], x, ox, dx->width, dy->width);

            if (h != 0.0f)
                row += h * image_get(dy, image_at(dy, at.n, at.c, oy * dy->width + ox));
        }
        sum += v * row;
    }
    image_put(dx, i, sum);
}

/* ---- softmax over the channels in a pixel.  Items: (sample, pixel) ---- */

BODY void body_softmax(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *x = &a->x[0];
    size_t first = image_at(x, i / x->pixels, 0, i % x->pixels);
    float largest = image_get(x, first), sum = 0.0f;

    for (uint32_t c = 1; c < x->channels; c++) {
        float value = image_get(x, first + (size_t)c * x->channel_stride);

        largest = value > largest ? value : largest;
    }
    for (uint32_t c = 0; c < x->channels; c++)
        sum += expf(image_get(x, first + (size_t)c * x->channel_stride) - largest);
    for (uint32_t c = 0; c < x->channels; c++)
        image_put(&a->y[0], first + (size_t)c * x->channel_stride,
                  expf(image_get(x, first + (size_t)c * x->channel_stride) - largest) / sum);
}

/* Softmax, gradient: x[0] y, x[1] dy -> y[0] dx. */
BODY void body_softmax_backward(const gp_kernel_args *a, uint32_t i)
{
    const gp_kernel_image *y = &a->x[0];
    size_t first = image_at(y, i / y->pixels, 0, i % y->pixels);
    float sum = 0.0f;

    for (uint32_t c = 0; c < y->channels; c++) {
        size_t at = first + (size_t)c * y->channel_stride;

        sum += image_get(y, at) * image_get(&a->x[1], at);
    }
    for (uint32_t c = 0; c < y->channels; c++) {
        size_t at = first + (size_t)c * y->channel_stride;

        image_put(&a->y[0], at, image_get(y, at) * (image_get(&a->x[1], at) - sum));
    }
}
