#include "worker/predict/tiled_inference.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/predict/windows.h"

/* Pixel interpolation between two scores along one axis. */
typedef struct between {
    uint32_t low, high;
    float share; /* weight of high */
} between;

struct gp_tiled_inference {
    gp_tiled_inference_setup setup;
    gp_whole image;
    gp_window_axis y, x;
    uint8_t *windows; /* [batch] samples */
    /* [map_count, classes, read_height, read_width] image scores; losses with the same scores share
     * a map */
    float *map;
    size_t map_bytes; /* allocated size */
    /* map_first: score offset of a map; map_of: map of a loss */
    uint32_t map_count, map_first[GP_ENDS_MAX], map_of[GP_ENDS_MAX];
    gp_pixel_sums *sums;
    int32_t *predicted; /* [height, width] of the image file */
    size_t predicted_bytes;
    between *across;      /* [width] interpolation along a row */
    float *row, *largest; /* [width] scores of one class; largest scores so far */
    uint32_t width;       /* allocated width of these three arrays */
};

static void rows_free(gp_tiled_inference *s)
{
    gp_free(s->across);
    gp_free(s->row);
    gp_free(s->largest);
}

void gp_tiled_inference_free(gp_tiled_inference *tiles)
{
    if (tiles == NULL)
        return;
    gp_whole_deinit(&tiles->image);
    gp_window_axis_deinit(&tiles->y);
    gp_window_axis_deinit(&tiles->x);
    gp_free(tiles->windows);
    gp_free(tiles->map);
    gp_free(tiles->predicted);
    gp_pixel_sums_free(tiles->sums);
    rows_free(tiles);
    gp_free(tiles);
}

gp_status gp_tiled_inference_new(gp_tiled_inference **out, const gp_tiled_inference_setup *setup,
                                 gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(setup->store);
    const size_t window = (size_t)info->channels * setup->height * setup->width * gp_dtype_bytes(info->dtype);
    gp_tiled_inference *s = gp_calloc(1, sizeof(*s));
    gp_status status = GP_OK;

    if (s == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to put windows together");
    s->setup = *setup;
    for (uint32_t i = 0; i < s->setup.loss_count; i++) { /* assign the losses to score maps */
        uint32_t m = 0;

        while (m < s->map_count && s->map_first[m] != s->setup.losses[i].score_first)
            m++;
        s->map_first[m] = s->setup.losses[i].score_first;
        s->map_of[i] = m;
        s->map_count += m == s->map_count;
    }
    s->windows = gp_aligned_calloc(64, setup->batch * window);
    if (s->windows == NULL)
        status =
            gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " windows of %zu bytes", setup->batch, window);
    /* Report invalid overlap values at creation. */
    if (status == GP_OK)
        status = gp_window_axis_set(&s->y, setup->height, setup->height, setup->overlap, err);
    if (status == GP_OK)
        status = gp_window_axis_set(&s->x, setup->width, setup->width, setup->overlap, err);
    if (status == GP_OK)
        status = gp_pixel_sums_new(&s->sums, s->setup.losses, setup->loss_count, setup->classes, err);
    if (status != GP_OK) {
        gp_tiled_inference_free(s);
        return status;
    }
    *out = s;
    return GP_OK;
}

/* ---- memory ---- */

static gp_status grow(void *out, size_t *taken, size_t bytes, gp_error *err)
{
    void *block;

    if (bytes <= *taken)
        return GP_OK;
    memcpy(&block, out, sizeof(block));
    gp_free(block);
    *taken = 0;
    block = gp_malloc(bytes);
    memcpy(out, &block, sizeof(block));
    if (block == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an image's scores of %zu bytes", bytes);
    *taken = bytes;
    return GP_OK;
}

static uint64_t map_elements(const gp_tiled_inference *s)
{
    return (uint64_t)s->setup.classes * s->image.read_height * s->image.read_width;
}

static gp_status image_reserve(gp_tiled_inference *s, uint32_t index, gp_error *err)
{
    const gp_whole *image = &s->image;
    const uint64_t map = map_elements(s) * s->map_count * sizeof(float);
    gp_status status;

    if (map > GP_TILED_INFERENCE_BYTES_MAX) {
        char name[200];

        return gp_fail(
            err, GP_ELIMIT,
            "%s: the scores of %" PRIu32 " classes for %" PRIu32 "x%" PRIu32
            " pixels need %.1f GiB, at most %.0f GiB are allowed; reduce the images with --image-size",
            gp_store_name(s->setup.store, index, name, sizeof(name)), s->setup.classes, image->read_height,
            image->read_width, (double)map / (1 << 30), (double)GP_TILED_INFERENCE_BYTES_MAX / (1 << 30));
    }
    status = grow(&s->map, &s->map_bytes, (size_t)map, err);
    if (status == GP_OK)
        status = grow(&s->predicted, &s->predicted_bytes,
                      (size_t)image->height * image->width * sizeof(*s->predicted), err);
    if (status == GP_OK && image->width > s->width) {
        rows_free(s);
        s->width = image->width;
        s->across = gp_calloc(image->width, sizeof(*s->across));
        s->row = gp_calloc(image->width, sizeof(*s->row));
        s->largest = gp_calloc(image->width, sizeof(*s->largest));
        if (s->across == NULL || s->row == NULL || s->largest == NULL) {
            s->width = 0;
            return gp_fail(err, GP_ENOMEM, "no memory for a row of %" PRIu32 " pixels", image->width);
        }
    }
    if (status == GP_OK)
        status = gp_window_axis_set(&s->y, image->read_height, s->setup.height, s->setup.overlap, err);
    return status == GP_OK
               ? gp_window_axis_set(&s->x, image->read_width, s->setup.width, s->setup.overlap, err)
               : status;
}

/* ---- scores ---- */

/* Run the network on all image windows and merge the scores into the map. */
static gp_status windows_run(gp_tiled_inference *s, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(s->setup.store);
    const size_t value_bytes = gp_dtype_bytes(info->dtype), plane = (size_t)s->setup.height * s->setup.width;
    const uint32_t count = s->y.count * s->x.count;
    gp_status status = GP_OK;

    memset(s->map, 0, (size_t)map_elements(s) * s->map_count * sizeof(*s->map));
    for (uint32_t done = 0; done < count && status == GP_OK;) {
        const uint32_t part = count - done < s->setup.batch ? count - done : s->setup.batch;
        const float *scores;

        for (uint32_t i = 0; i < part; i++)
            gp_window_cut(s->windows + i * info->channels * plane * value_bytes, s->image.sample,
                          info->channels, value_bytes, &s->y, &s->x, (done + i) / s->x.count,
                          (done + i) % s->x.count);
        status = s->setup.run(s->setup.context, s->windows, part, &scores, err);
        for (uint32_t i = 0; i < part * s->map_count && status == GP_OK; i++)
            gp_window_add(s->map + map_elements(s) * (i % s->map_count),
                          scores + (size_t)(i / s->map_count) * s->setup.score_count +
                              s->map_first[i % s->map_count],
                          s->setup.classes, &s->y, &s->x, (done + i / s->map_count) / s->x.count,
                          (done + i / s->map_count) % s->x.count);
        done += part;
    }
    return status;
}

/* ---- classes ---- */

/* Compute the interpolation for one pixel, with pixel centers aligned. */
static between between_of(uint32_t at, uint32_t length, uint32_t read_length)
{
    const double place = (at + 0.5) * read_length / length - 0.5;
    const uint32_t low = place <= 0 ? 0 : (uint32_t)place;

    return (between){ .low = low,
                      .high = low + 1 < read_length ? low + 1 : low,
                      .share = place <= 0 ? 0 : (float)(place - low) };
}

/* Return class k's scores for one image file row, interpolated from map m. */
static const float *row_of(const gp_tiled_inference *s, uint32_t m, uint32_t k, const between *down)
{
    const uint32_t read_width = s->image.read_width, width = s->image.width;
    const float *map = s->map + map_elements(s) * m + (size_t)k * s->image.read_height * read_width;
    const float *upper = map + (size_t)down->low * read_width, *lower = map + (size_t)down->high * read_width;

    if (s->image.height == s->image.read_height && width == read_width)
        return upper;
    for (uint32_t i = 0; i < width; i++) {
        const between *a = &s->across[i];
        const float high = upper[a->low] + a->share * (upper[a->high] - upper[a->low]);
        const float deep = lower[a->low] + a->share * (lower[a->high] - lower[a->low]);

        s->row[i] = high + down->share * (deep - high);
    }
    return s->row;
}

/* Update a row's predicted classes with class k. The first class wins ties. */
static void row_predict(gp_tiled_inference *s, uint32_t row, uint32_t k, const float *restrict scores)
{
    const uint32_t width = s->image.width;
    int32_t *restrict predicted = s->predicted + (size_t)row * width;
    float *restrict largest = s->largest;

    for (uint32_t i = 0; i < width; i++) {
        const bool more = k == 0 || scores[i] > largest[i];

        largest[i] = more ? scores[i] : largest[i];
        predicted[i] = more ? (int32_t)k : predicted[i];
    }
}

/* Remove labels that are greater than `most` or equal to `this`. */
static void labels_drop(gp_tiled_inference *s, int32_t most, int32_t this)
{
    const size_t count = (size_t)s->image.height * s->image.width;

    for (size_t i = 0; s->image.labels != NULL && i < count; i++)
        if (s->image.labels[i] > most || s->image.labels[i] == this)
            s->image.labels[i] = -1;
}

gp_status gp_tiled_inference_image(gp_tiled_inference *tiles, uint32_t index, gp_stitched *out, gp_error *err)
{
    gp_tiled_inference *s = tiles;
    gp_status status = gp_store_read_whole(s->setup.store, index, &s->setup.read, &s->image, err);

    if (status != GP_OK && gp_store_is_skipped(s->setup.store, index)) {
        *out = (gp_stitched){ .skipped = true };
        return GP_OK;
    }
    if (status == GP_OK)
        status = image_reserve(s, index, err);
    if (status == GP_OK)
        status = windows_run(s, err);
    if (status != GP_OK)
        return status;
    const uint32_t height = s->image.height, width = s->image.width;

    *out = (gp_stitched){
        .height = height, .width = width, .predicted = s->predicted, .labels = s->image.labels
    };
    gp_pixel_sums_clear(s->sums);
    labels_drop(s, (int32_t)s->setup.classes - 1, -1);
    for (uint32_t i = 0; i < width; i++)
        s->across[i] = between_of(i, width, s->image.read_width);
    /* Compute each row's classes and add the row's scores to the losses. */
    for (uint32_t row = 0; row < height; row++) {
        const between down = between_of(row, height, s->image.read_height);
        const int32_t *labels = s->image.labels == NULL ? NULL : s->image.labels + (size_t)row * width;

        for (uint32_t m = 0; m < s->map_count; m++)
            for (uint32_t k = 0; k < s->setup.classes; k++) {
                const float *scores = row_of(s, m, k, &down);

                if (m == 0)
                    row_predict(s, row, k, scores);
                for (uint32_t i = 0; i < s->setup.loss_count && labels != NULL; i++)
                    if (s->map_of[i] == m)
                        gp_pixel_sums_add(s->sums, i, k, scores, labels, width);
            }
    }
    gp_pixel_sums_finish(s->sums, (size_t)height * width, &out->loss, &out->weight);
    labels_drop(s, (int32_t)s->setup.classes - 1, s->setup.losses[0].ignored);
    return GP_OK;
}
