/* Resample an image: each output pixel looks up its position in the input.
 *
 * The origin is the corner of the first pixel, whose centre is at (1/2, 1/2). Positions outside [0,
 * width) x [0, height) give the fill value. Near the border, missing neighbours are replaced by
 * border pixels. */
#include "common/data/store/augment.h"

#include <math.h>
#include <string.h>

/* Bilinear neighbours and their weights for one position. */
typedef struct warp_place {
    size_t at[4];
    float share[4];
    bool inside;
} warp_place;

/* Compute an output pixel's input position. Return whether it lies within the input. */
static inline bool look_up(const gp_augment_draw *draw, const gp_store_info *store, uint32_t row,
                           uint32_t column, double *x, double *y)
{
    const double u = column + 0.5, v = row + 0.5;

    *x = draw->a[0][0] * u + draw->a[0][1] * v + draw->a[0][2];
    *y = draw->a[1][0] * u + draw->a[1][1] * v + draw->a[1][2];
    return *x >= 0 && *y >= 0 && *x < store->width && *y < store->height;
}

/* Compute neighbours and weights for an output pixel. */
static inline warp_place place_of(const gp_augment_draw *draw, const gp_store_info *store, uint32_t row,
                                  uint32_t column)
{
    double x, y, fx, fy;
    warp_place place = { .inside = look_up(draw, store, row, column, &x, &y) };
    size_t left, right, upper, lower;
    long x0, y0;

    if (!place.inside)
        return place;
    x0 = (long)floor(x - 0.5);
    y0 = (long)floor(y - 0.5);
    fx = x - 0.5 - (double)x0;
    fy = y - 0.5 - (double)y0;
    left = x0 < 0 ? 0 : (size_t)x0;
    upper = y0 < 0 ? 0 : (size_t)y0;
    right = x0 + 1 < (long)store->width ? (size_t)(x0 + 1) : left;
    lower = y0 + 1 < (long)store->height ? (size_t)(y0 + 1) : upper;
    place.at[0] = upper * store->width + left;
    place.at[1] = upper * store->width + right;
    place.at[2] = lower * store->width + left;
    place.at[3] = lower * store->width + right;
    place.share[0] = (float)((1 - fx) * (1 - fy));
    place.share[1] = (float)(fx * (1 - fy));
    place.share[2] = (float)((1 - fx) * fy);
    place.share[3] = (float)(fx * fy);
    return place;
}

static inline float value_get(const void *from, gp_dtype dtype, size_t at)
{
    return dtype == GP_U8 ? (float)((const uint8_t *)from)[at] : ((const float *)from)[at];
}

static inline void value_put(void *to, gp_dtype dtype, size_t at, float value)
{
    if (dtype == GP_U8)
        ((uint8_t *)to)[at] = value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5f);
    else
        ((float *)to)[at] = value;
}

/* Return the recoloured image's mean luma; contrast scales about this value. */
static float color_mean(const gp_augment_draw *draw, const gp_store_info *store, const void *from)
{
    static const double luma[3] = { 0.299, 0.587, 0.114 };
    const size_t plane = (size_t)store->height * store->width;
    double means[3] = { 0 }, mean = 0;

    for (uint32_t c = 0; c < store->channels; c++) {
        double sum = 0;

        for (size_t i = 0; i < plane; i++)
            sum += (double)value_get(from, store->dtype, c * plane + i);
        means[store->channels == 3 ? c : 0] += sum / (double)plane;
    }
    if (store->channels != 3)
        return draw->color[0][0] * (float)(means[0] / store->channels);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            mean += luma[i] * (double)draw->color[i][j] * means[j];
    return (float)mean;
}

static inline void color_apply(const gp_augment_draw *draw, uint32_t channels, float mean, float *pixel)
{
    const float offset = (1 - draw->contrast) * mean;
    float in[3];

    if (channels != 3) {
        for (uint32_t c = 0; c < channels; c++)
            pixel[c] = draw->contrast * (draw->color[0][0] * pixel[c]) + offset;
        return;
    }
    memcpy(in, pixel, sizeof(in));
    for (int i = 0; i < 3; i++)
        pixel[i] = draw->contrast *
                       (draw->color[i][0] * in[0] + draw->color[i][1] * in[1] + draw->color[i][2] * in[2]) +
                   offset;
}

void gp_augment_recolor(const gp_augment_draw *draw, const gp_store_info *shape, uint8_t *planes)
{
    const size_t plane = (size_t)shape->height * shape->width;
    const float mean = draw->contrast != 1 ? color_mean(draw, shape, planes) : 0;
    float pixel[3];

    for (size_t i = 0; i < plane; i++) {
        for (uint32_t c = 0; c < shape->channels; c++)
            pixel[c] = (float)planes[c * plane + i];
        color_apply(draw, shape->channels, mean, pixel);
        for (uint32_t c = 0; c < shape->channels; c++)
            value_put(planes + c * plane, GP_U8, i, pixel[c]);
    }
}

/* Warp one image. dtype and recolor are constants at each call, so inlining removes their
 * branches. */
static inline __attribute__((always_inline)) void warp(const gp_augment_draw *draw,
                                                       const gp_store_info *store,
                                                       const gp_store_info *augmented, double fill,
                                                       const void *from, void *to, gp_dtype dtype,
                                                       bool recolor)
{
    const size_t plane = (size_t)store->height * store->width,
                 out_plane = (size_t)augmented->height * augmented->width;
    const float mean = recolor && draw->contrast != 1 ? color_mean(draw, store, from) : 0;
    float pixel[GP_STORE_CHANNELS_MAX];

    for (uint32_t row = 0; row < augmented->height; row++)
        for (uint32_t column = 0; column < augmented->width; column++) {
            const warp_place place = place_of(draw, store, row, column);
            const size_t at = (size_t)row * augmented->width + column;

            for (uint32_t c = 0; c < store->channels; c++) {
                const size_t base = c * plane;

                pixel[c] = (float)fill;
                if (place.inside)
                    pixel[c] = value_get(from, dtype, base + place.at[0]) * place.share[0] +
                               value_get(from, dtype, base + place.at[1]) * place.share[1] +
                               value_get(from, dtype, base + place.at[2]) * place.share[2] +
                               value_get(from, dtype, base + place.at[3]) * place.share[3];
            }
            if (recolor && place.inside)
                color_apply(draw, store->channels, mean, pixel);
            for (uint32_t c = 0; c < store->channels; c++)
                value_put(to, dtype, c * out_plane + at, pixel[c]);
        }
}

/* Mapping without interpolation: output row r is input row `row` + r * row_step; columns work in
 * the same way. */
typedef struct warp_grid {
    long row, column, row_step, column_step;
} warp_grid;

/* Set *grid if the map moves whole pixels, upright or mirrored. False: interpolation is needed. */
static bool grid_find(warp_grid *grid, const gp_augment_draw *draw)
{
    const double x = draw->a[0][0] * 0.5 + draw->a[0][2] - 0.5, y = draw->a[1][1] * 0.5 + draw->a[1][2] - 0.5;

    if (draw->a[0][1] != 0 || draw->a[1][0] != 0 || fabs(draw->a[0][0]) != 1 || fabs(draw->a[1][1]) != 1 ||
        fabs(x - rint(x)) > 1e-9 || fabs(y - rint(y)) > 1e-9)
        return false;
    *grid = (warp_grid){ .row = lrint(y),
                         .column = lrint(x),
                         .row_step = (long)draw->a[1][1],
                         .column_step = (long)draw->a[0][0] };
    return true;
}

/* Copy planes whose elements have `bytes` bytes. */
static void grid_copy(const warp_grid *grid, const gp_store_info *store, const gp_store_info *augmented,
                      uint32_t planes, size_t bytes, const void *fill, const void *from, void *to)
{
    const size_t width = store->width;
    uint8_t *out = to;

    for (uint32_t c = 0; c < planes; c++)
        for (uint32_t r = 0; r < augmented->height; r++, out += augmented->width * bytes) {
            const long row = grid->row + (long)r * grid->row_step;
            const bool inside = row >= 0 && row < (long)store->height;
            const uint8_t *line = (const uint8_t *)from +
                                  ((size_t)c * store->height + (size_t)(inside ? row : 0)) * width * bytes;

            if (inside && grid->column_step == 1 && grid->column >= 0 &&
                grid->column + (long)augmented->width <= (long)width) {
                memcpy(out, line + (size_t)grid->column * bytes, augmented->width * bytes);
                continue;
            }
            for (uint32_t i = 0; i < augmented->width; i++) {
                const long column = grid->column + (long)i * grid->column_step;
                const bool in_row = inside && column >= 0 && column < (long)width;

                memcpy(out + i * bytes, in_row ? line + (size_t)column * bytes : fill, bytes);
            }
        }
}

void gp_augment_image(const gp_augment_draw *draw, const gp_store_info *store, const gp_store_info *augmented,
                      double fill, const void *from, void *to)
{
    const float value = (float)fill;
    warp_grid grid;
    uint8_t byte;

    value_put(&byte, GP_U8, 0, value);
    if (!draw->recolor && grid_find(&grid, draw))
        grid_copy(&grid, store, augmented, store->channels, gp_dtype_bytes(store->dtype),
                  store->dtype == GP_U8 ? (const void *)&byte : &value, from, to);
    else if (store->dtype == GP_U8 && !draw->recolor)
        warp(draw, store, augmented, fill, from, to, GP_U8, false);
    else if (store->dtype == GP_U8)
        warp(draw, store, augmented, fill, from, to, GP_U8, true);
    else
        warp(draw, store, augmented, fill, from, to, GP_F32, draw->recolor);
}

void gp_augment_indices(const gp_augment_draw *draw, const gp_store_info *store,
                        const gp_store_info *augmented, const int32_t *from, int32_t *to)
{
    const int32_t nothing = -1;
    warp_grid grid;

    if (grid_find(&grid, draw)) {
        grid_copy(&grid, store, augmented, 1, sizeof(*from), &nothing, from, to);
        return;
    }
    for (uint32_t row = 0; row < augmented->height; row++)
        for (uint32_t column = 0; column < augmented->width; column++) {
            double x, y;

            to[(size_t)row * augmented->width + column] = look_up(draw, store, row, column, &x, &y)
                                                              ? from[(size_t)y * store->width + (size_t)x]
                                                              : nothing;
        }
}
