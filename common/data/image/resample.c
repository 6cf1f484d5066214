/* Resize images in two passes of integer arithmetic.
 *
 * The vertical pass runs first: it processes whole rows, independent of the channels, and leaves as
 * many rows as the output has. Intermediate values keep GP_ROW_BITS fractional bits, so rounding to
 * bytes happens only once, at the end. Weights have GP_WEIGHT_BITS bits and are rounded
 * cumulatively. They therefore add up to exactly one, and a flat image stays flat at any scale. To
 * mirror an axis, the weights are stored in reverse order. */
#include "common/data/image/resample.h"

#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/image/resample_rows.h"

/* Filter weights for one axis, and the parameters they were computed for. */
typedef struct made_axis {
    gp_axis axis;
    double low, high;
    bool mirror;
    size_t weight_count, first_count; /* allocated elements */
    bool narrows;                     /* axis.fours is needed */
    /* range of input pixels that the axis reads; axis.first counts from begin */
    uint32_t begin, count;
} made_axis;

struct gp_resampler {
    const gp_row_ops *ops;
    made_axis x, y;
    int16_t *row;
    size_t row_count;
};

gp_status gp_resampler_new(gp_resampler **out, gp_error *err)
{
    gp_resampler *resampler = gp_calloc(1, sizeof(*resampler));

    if (resampler == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a resampler");
    resampler->ops = gp_row_ops_find();
    resampler->x.narrows = true;
    *out = resampler;
    return GP_OK;
}

static void axis_deinit(made_axis *a)
{
    gp_free(a->axis.first);
    gp_free(a->axis.weight);
    gp_free(a->axis.fours);
    *a = (made_axis){ .narrows = a->narrows };
}

void gp_resampler_free(gp_resampler *resampler)
{
    if (resampler == NULL)
        return;
    axis_deinit(&resampler->x);
    axis_deinit(&resampler->y);
    gp_free(resampler->row);
    gp_free(resampler);
}

/* Compute the weights for one output position: a triangle around `center`, with `support` on either
 * side. Return how many weights were written. */
static uint32_t axis_fill_one(made_axis *a, uint32_t i, double center, double support)
{
    double low = center - support + 0.5, high = center + support + 0.5, total = 0, running = 0;
    uint32_t first = low > 0 ? (uint32_t)low : 0, end = high < a->count ? (uint32_t)high : a->count;
    uint32_t count = end - first;
    int16_t *weight = a->axis.weight + (size_t)i * a->axis.taps;
    const double slope = 1 / support, start = first + 0.5 - center;
    int32_t given = 0;

    a->axis.first[i] = first;
    for (uint32_t k = 0; k < count; k++)
        total += fmax(0, 1 - fabs((start + k) * slope));
    total = (1 << GP_WEIGHT_BITS) / total;
    for (uint32_t k = 0; k < count; k++) {
        int32_t upto;

        running += fmax(0, 1 - fabs((start + k) * slope));
        upto = (int32_t)(running * total + 0.5);
        weight[k] = (int16_t)(upto - given);
        given = upto;
    }
    memset(weight + count, 0, (a->axis.taps - count) * sizeof(*weight));
    return count;
}

/* Shift positions near the end, so that none reads beyond the last pixel. The added weights are
 * 0. */
static void axis_end(made_axis *a)
{
    uint32_t last = a->count > a->axis.used ? a->count - a->axis.used : 0;

    for (uint32_t i = 0; i < a->axis.to; i++) {
        int16_t *weight = a->axis.weight + (size_t)i * a->axis.taps;
        uint32_t shift = a->axis.first[i] > last ? a->axis.first[i] - last : 0;

        if (shift == 0)
            continue;
        memmove(weight + shift, weight, (a->axis.used - shift) * sizeof(*weight));
        memset(weight, 0, shift * sizeof(*weight));
        a->axis.first[i] = last;
    }
}

static gp_status axis_reserve(made_axis *a, uint32_t to, uint32_t taps, gp_error *err)
{
    size_t weights = (size_t)to * taps;

    if (weights <= a->weight_count && to <= a->first_count)
        return GP_OK;
    axis_deinit(a);
    a->axis.first = gp_malloc(to * sizeof(*a->axis.first));
    a->axis.weight = gp_malloc(weights * sizeof(*a->axis.weight));
    if (a->narrows)
        /* four copies of each pair of weights */
        a->axis.fours = gp_malloc(weights * 2 * sizeof(*a->axis.fours));
    if (a->axis.first == NULL || a->axis.weight == NULL || (a->narrows && a->axis.fours == NULL)) {
        axis_deinit(a);
        return gp_fail(err, GP_ENOMEM, "no memory to resize images to a side of %u", to);
    }
    a->first_count = to;
    a->weight_count = weights;
    return GP_OK;
}

/* Compute the weights for scaling the input range [low, high) to `to` positions. */
static gp_status axis_make(made_axis *a, double low, double high, uint32_t to, bool mirror, gp_error *err)
{
    double scale = (high - low) / to, support = scale > 1 ? scale : 1;
    uint32_t taps = ((uint32_t)ceil(support) * 2 + 2) & ~1u, used = 0;
    gp_status status;

    if (a->low == low && a->high == high && a->axis.to == to && a->mirror == mirror)
        return GP_OK;
    a->axis.to = 0; /* invalid until complete */
    status = axis_reserve(a, to, taps, err);
    if (status != GP_OK)
        return status;
    a->axis.taps = taps;
    a->begin = (uint32_t)low;
    a->count = (uint32_t)ceil(high) - a->begin;
    for (uint32_t i = 0; i < to; i++) {
        uint32_t count =
            axis_fill_one(a, mirror ? to - 1 - i : i, low - a->begin + (i + 0.5) * scale, support);

        used = count > used ? count : used;
    }
    a->axis.used = (used + 1) & ~1u;
    a->low = low;
    a->high = high;
    a->mirror = mirror;
    a->axis.to = to;
    axis_end(a);
    if (a->narrows)
        gp_axis_fours(&a->axis);
    return GP_OK;
}

/* Scale one channel of a vertically mixed row to the output width. */
static void row_narrow(const gp_row_out *out, uint32_t c, const gp_axis *a, const int16_t *row,
                       uint32_t channels)
{
    for (uint32_t x = 0; x < a->to; x++) {
        const int16_t *weight = a->weight + (size_t)x * a->taps,
                      *from = row + (size_t)a->first[x] * channels + c;
        int32_t sum = 1 << (GP_WEIGHT_BITS + GP_ROW_BITS - 1);

        for (uint32_t k = 0; k < a->used; k++)
            sum += from[(size_t)k * channels] * weight[k];
        gp_row_put(out, x, c, gp_row_round(sum));
    }
}

/* Return the input row or column that output position i shows when nothing is scaled. */
static size_t place_of(uint32_t i, uint32_t first, uint32_t count, bool mirror)
{
    return first + (mirror ? count - 1 - i : i);
}

/* Copy a window without scaling, and convert it to the output format. */
static void window_take_apart(const gp_pixel_out *out, gp_row_out row, const gp_pixels *in, uint32_t left,
                              uint32_t top, size_t row_step)
{
    for (uint32_t y = 0; y < out->height; y++) {
        const uint8_t *from =
            in->data + place_of(y, top, out->height, out->mirror_y) * in->width * in->channels;

        for (uint32_t x = 0; x < out->width; x++) {
            const uint8_t *pixel = from + place_of(x, left, out->width, out->mirror_x) * in->channels;

            for (uint32_t c = 0; c < in->channels; c++)
                gp_row_put(&row, x, c, pixel[c]);
        }
        gp_row_move(&row, row_step);
    }
}

gp_status gp_resample_window(gp_resampler *resampler, const gp_pixel_out *out, const gp_pixels *in,
                             const gp_pixel_window *window, gp_error *err)
{
    const bool planes = out->form != GP_PIXELS_INTERLEAVED;
    const size_t stride = (size_t)in->width * in->channels,
                 row_step = planes ? out->width : (size_t)out->width * in->channels;
    gp_row_out row = { .step = planes ? 1 : in->channels,
                       .plane = planes ? (size_t)out->height * out->width : 1,
                       .scale = out->scale,
                       .offset = out->offset };
    const made_axis *x = &resampler->x, *y = &resampler->y;
    gp_status status;

    if (out->form == GP_PIXELS_FLOAT)
        row.floats = out->data;
    else
        row.bytes = out->data;
    if (window->right - window->left == out->width && window->bottom - window->top == out->height &&
        window->left == floor(window->left) && window->top == floor(window->top)) {
        window_take_apart(out, row, in, (uint32_t)window->left, (uint32_t)window->top, row_step);
        return GP_OK;
    }
    status = axis_make(&resampler->x, window->left, window->right, out->width, out->mirror_x, err);
    if (status == GP_OK)
        status = axis_make(&resampler->y, window->top, window->bottom, out->height, out->mirror_y, err);
    const size_t values = (size_t)x->count * in->channels;

    if (status != GP_OK)
        return status;
    if (values > resampler->row_count) {
        gp_free(resampler->row);
        resampler->row = gp_calloc(values + GP_ROW_SPARE * 2, sizeof(*resampler->row));
        resampler->row_count = resampler->row == NULL ? 0 : values;
        if (resampler->row == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a row of %zu pixels", values);
    }
    for (uint32_t i = 0; i < out->height; i++, gp_row_move(&row, row_step)) {
        uint32_t first = y->axis.first[i], left = y->count - first;

        resampler->ops->mix(
            resampler->row, in->data + (y->begin + first) * stride + (size_t)x->begin * in->channels, stride,
            y->axis.used < left ? y->axis.used : left, y->axis.weight + (size_t)i * y->axis.taps, values);
        if (in->channels == 3)
            resampler->ops->narrow_rgb(&row, &x->axis, resampler->row);
        else
            for (uint32_t c = 0; c < in->channels; c++)
                row_narrow(&row, c, &x->axis, resampler->row, in->channels);
    }
    return GP_OK;
}

gp_status gp_resample(gp_resampler *resampler, uint8_t *out, uint32_t height, uint32_t width,
                      const gp_pixels *in, gp_error *err)
{
    const gp_pixel_window whole = { 0, 0, in->width, in->height };

    return gp_resample_window(resampler, &(gp_pixel_out){ .data = out, .height = height, .width = width }, in,
                              &whole, err);
}

size_t gp_pixel_form_bytes(gp_pixel_form form)
{
    return form == GP_PIXELS_FLOAT ? sizeof(float) : 1;
}

void gp_pixels_form(void *out, gp_pixel_form form, const uint8_t *planes, uint32_t channels, size_t plane,
                    const float *scale, const float *offset)
{
    float *floats = out;
    uint8_t *bytes = out;

    if (form == GP_PIXELS_PLANES)
        memcpy(out, planes, channels * plane);
    for (uint32_t c = 0; c < channels && form == GP_PIXELS_FLOAT; c++)
        for (size_t i = 0; i < plane; i++)
            floats[c * plane + i] = (float)planes[c * plane + i] * scale[c] + offset[c];
    for (uint32_t c = 0; c < channels && form == GP_PIXELS_INTERLEAVED; c++)
        for (size_t i = 0; i < plane; i++)
            bytes[i * channels + c] = planes[c * plane + i];
}

void gp_resample_nearest(uint8_t *out, uint32_t height, uint32_t width, const gp_pixels *in)
{
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *row =
            in->data + (size_t)((2 * (uint64_t)y + 1) * in->height / (2 * height)) * in->width;

        for (uint32_t x = 0; x < width; x++)
            *out++ = row[(2 * (uint64_t)x + 1) * in->width / (2 * width)];
    }
}
