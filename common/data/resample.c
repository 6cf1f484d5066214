/* resample.c -- two passes over small integers.
 *
 * The vertical pass comes first: it runs along whole rows, whatever the channels are, and leaves out-height rows.  Its
 * results keep seven bits behind the point, so that rounding happens once, at the end.  Weights have 14 bits and are
 * rounded by their running sum: they add up to one exactly, so a flat image stays flat at any scale. */
#include "common/data/resample.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"

enum { WEIGHT_BITS = 14, ROW_BITS = 7 };

/* Output i is the sum of weight[i * taps + k] * input[first[i] + k], k < count[i]. */
typedef struct axis {
    uint32_t from, to; /* sides it was made for */
    uint32_t taps;
    uint32_t *first, *count;
    int16_t *weight;
} axis;

struct gp_resampler {
    axis x, y;
    int32_t *sum; /* one row of the input's width */
    int16_t *row;
    size_t row_count;
};

gp_status gp_resampler_new(gp_resampler **out, gp_error *err)
{
    gp_resampler *resampler = gp_calloc(1, sizeof(*resampler));

    if (resampler == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a resampler");
    *out = resampler;
    return GP_OK;
}

static void axis_deinit(axis *a)
{
    gp_free(a->first);
    gp_free(a->count);
    gp_free(a->weight);
    *a = (axis){ 0 };
}

void gp_resampler_free(gp_resampler *resampler)
{
    if (resampler == NULL)
        return;
    axis_deinit(&resampler->x);
    axis_deinit(&resampler->y);
    gp_free(resampler->sum);
    gp_free(resampler->row);
    gp_free(resampler);
}

/* The weights of one output place: a triangle around `center`, `support` to each side. */
static void axis_fill_one(axis *a, uint32_t i, double center, double support)
{
    double low = center - support + 0.5, high = center + support + 0.5, total = 0, running = 0;
    uint32_t first = low > 0 ? (uint32_t)low : 0, end = high < a->from ? (uint32_t)high : a->from;
    int16_t *weight = a->weight + (size_t)i * a->taps;
    int32_t given = 0;

    a->first[i] = first;
    a->count[i] = end - first;
    for (uint32_t k = 0; k < a->count[i]; k++)
        total += fmax(0, 1 - fabs((first + k + 0.5 - center) / support));
    for (uint32_t k = 0; k < a->count[i]; k++) {
        int32_t upto;

        running += fmax(0, 1 - fabs((first + k + 0.5 - center) / support));
        upto = (int32_t)(running / total * (1 << WEIGHT_BITS) + 0.5);
        weight[k] = (int16_t)(upto - given);
        given = upto;
    }
}

static gp_status axis_make(axis *a, uint32_t from, uint32_t to, gp_error *err)
{
    double scale = (double)from / to, support = scale > 1 ? scale : 1;

    if (a->from == from && a->to == to)
        return GP_OK;
    axis_deinit(a);
    a->taps = (uint32_t)ceil(support) * 2 + 1;
    a->first = gp_calloc(to, sizeof(*a->first));
    a->count = gp_calloc(to, sizeof(*a->count));
    a->weight = gp_calloc((size_t)to * a->taps, sizeof(*a->weight));
    if (a->first == NULL || a->count == NULL || a->weight == NULL) {
        axis_deinit(a);
        return gp_fail(err, GP_ENOMEM, "no memory to resize images from a side of %u to %u", from, to);
    }
    a->from = from;
    a->to = to;
    for (uint32_t i = 0; i < to; i++)
        axis_fill_one(a, i, (i + 0.5) * scale, support);
    return GP_OK;
}

static gp_status rows_take(gp_resampler *resampler, size_t count, gp_error *err)
{
    if (count <= resampler->row_count)
        return GP_OK;
    gp_free(resampler->sum);
    gp_free(resampler->row);
    resampler->row_count = 0;
    resampler->sum = gp_malloc(count * sizeof(*resampler->sum));
    resampler->row = gp_malloc(count * sizeof(*resampler->row));
    if (resampler->sum == NULL || resampler->row == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a row of %zu pixels", count);
    resampler->row_count = count;
    return GP_OK;
}

/* One output row, at the input's width. */
static void row_mix(gp_resampler *resampler, const gp_pixels *in, uint32_t y)
{
    size_t stride = (size_t)in->width * in->channels;
    const uint8_t *row = in->data + resampler->y.first[y] * stride;
    const int16_t *weight = resampler->y.weight + (size_t)y * resampler->y.taps;
    int32_t *restrict sum = resampler->sum;
    int16_t *restrict mixed = resampler->row;

    for (size_t x = 0; x < stride; x++)
        sum[x] = 1 << (WEIGHT_BITS - ROW_BITS - 1);
    for (uint32_t k = 0; k < resampler->y.count[y]; k++, row += stride)
        for (size_t x = 0; x < stride; x++)
            sum[x] += (int16_t)row[x] * weight[k];
    for (size_t x = 0; x < stride; x++)
        mixed[x] = (int16_t)(sum[x] >> (WEIGHT_BITS - ROW_BITS));
}

/* The row to the output's width, one channel. */
static void row_narrow(uint8_t *out, const axis *a, const int16_t *row, uint32_t channels)
{
    for (uint32_t x = 0; x < a->to; x++) {
        const int16_t *weight = a->weight + (size_t)x * a->taps, *from = row + (size_t)a->first[x] * channels;
        int32_t sum = 1 << (WEIGHT_BITS + ROW_BITS - 1);

        for (uint32_t k = 0; k < a->count[x]; k++)
            sum += from[k * channels] * weight[k];
        out[x] = (uint8_t)(sum >> (WEIGHT_BITS + ROW_BITS));
    }
}

/* The same for RGB at once: the three planes are `plane` bytes apart. */
static void row_narrow_rgb(uint8_t *out, size_t plane, const axis *a, const int16_t *row)
{
    for (uint32_t x = 0; x < a->to; x++) {
        const int16_t *weight = a->weight + (size_t)x * a->taps, *from = row + (size_t)a->first[x] * 3;
        int32_t red = 1 << (WEIGHT_BITS + ROW_BITS - 1), green = red, blue = red;

        for (uint32_t k = 0; k < a->count[x]; k++, from += 3) {
            red += from[0] * weight[k];
            green += from[1] * weight[k];
            blue += from[2] * weight[k];
        }
        out[x] = (uint8_t)(red >> (WEIGHT_BITS + ROW_BITS));
        out[plane + x] = (uint8_t)(green >> (WEIGHT_BITS + ROW_BITS));
        out[2 * plane + x] = (uint8_t)(blue >> (WEIGHT_BITS + ROW_BITS));
    }
}

static void pixels_take_apart(uint8_t *out, const gp_pixels *in)
{
    size_t count = (size_t)in->width * in->height;

    if (in->channels == 1) {
        memcpy(out, in->data, count);
        return;
    }
    for (uint32_t c = 0; c < in->channels; c++)
        for (size_t i = 0; i < count; i++)
            out[c * count + i] = in->data[i * in->channels + c];
}

gp_status gp_resample(gp_resampler *resampler, uint8_t *out, uint32_t height, uint32_t width,
                      const gp_pixels *in, gp_error *err)
{
    gp_status status;

    if (in->width == width && in->height == height) {
        pixels_take_apart(out, in);
        return GP_OK;
    }
    status = axis_make(&resampler->x, in->width, width, err);
    if (status == GP_OK)
        status = axis_make(&resampler->y, in->height, height, err);
    if (status == GP_OK)
        status = rows_take(resampler, (size_t)in->width * in->channels, err);
    if (status != GP_OK)
        return status;
    for (uint32_t y = 0; y < height; y++) {
        row_mix(resampler, in, y);
        if (in->channels == 3)
            row_narrow_rgb(out + (size_t)y * width, (size_t)height * width, &resampler->x, resampler->row);
        else
            for (uint32_t c = 0; c < in->channels; c++)
                row_narrow(out + ((size_t)c * height + y) * width, &resampler->x, resampler->row + c,
                           in->channels);
    }
    return GP_OK;
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
