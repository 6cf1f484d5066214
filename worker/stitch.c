#include "worker/stitch.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "worker/windows.h"

/* Where a place of the result lies between two of the scores, along one side. */
typedef struct between {
    uint32_t low, high;
    float share; /* of high */
} between;

struct gp_stitch {
    gp_stitch_setup setup;
    gp_whole image;
    gp_window_axis y, x;
    uint8_t *windows;   /* [batch] samples */
    float *map;         /* [classes, read_height, read_width] of the image */
    size_t map_bytes;   /* taken */
    int32_t *predicted; /* [height, width] of the image in its file */
    size_t predicted_bytes;
    between *across;               /* [width] */
    float *row, *largest, *scored; /* [width]: of one class; the largest so far; of the label's class */
    uint32_t width;                /* that these four are for, at most */
};

static void rows_free(gp_stitch *s)
{
    gp_free(s->across);
    gp_free(s->row);
    gp_free(s->largest);
    gp_free(s->scored);
}

void gp_stitch_free(gp_stitch *stitch)
{
    if (stitch == NULL)
        return;
    gp_whole_deinit(&stitch->image);
    gp_window_axis_deinit(&stitch->y);
    gp_window_axis_deinit(&stitch->x);
    gp_free(stitch->windows);
    gp_free(stitch->map);
    gp_free(stitch->predicted);
    rows_free(stitch);
    gp_free(stitch);
}

gp_status gp_stitch_new(gp_stitch **out, const gp_stitch_setup *setup, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(setup->store);
    const size_t window = (size_t)info->channels * setup->height * setup->width * gp_dtype_bytes(info->dtype);
    gp_stitch *s = gp_calloc(1, sizeof(*s));
    gp_status status = GP_OK;

    if (s == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to put windows together");
    s->setup = *setup;
    s->windows = gp_aligned_calloc(64, setup->batch * window);
    if (s->windows == NULL)
        status =
            gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " windows of %zu bytes", setup->batch, window);
    /* What can be wrong with the overlap is told now. */
    if (status == GP_OK)
        status = gp_window_axis_set(&s->y, setup->height, setup->height, setup->overlap, err);
    if (status == GP_OK)
        status = gp_window_axis_set(&s->x, setup->width, setup->width, setup->overlap, err);
    if (status != GP_OK) {
        gp_stitch_free(s);
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

static gp_status rows_reserve(gp_stitch *s, uint32_t width, gp_error *err)
{
    if (width <= s->width)
        return GP_OK;
    rows_free(s);
    s->width = 0;
    s->across = gp_calloc(width, sizeof(*s->across));
    s->row = gp_calloc(width, sizeof(*s->row));
    s->largest = gp_calloc(width, sizeof(*s->largest));
    s->scored = gp_calloc(width, sizeof(*s->scored));
    if (s->across == NULL || s->row == NULL || s->largest == NULL || s->scored == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a row of %" PRIu32 " pixels", width);
    s->width = width;
    return GP_OK;
}

static gp_status image_reserve(gp_stitch *s, uint32_t index, gp_error *err)
{
    const gp_whole *image = &s->image;
    const uint64_t map = (uint64_t)s->setup.classes * image->read_height * image->read_width * sizeof(float);
    gp_status status;

    if (map > GP_STITCH_BYTES_MAX) {
        char name[200];

        return gp_fail(
            err, GP_ELIMIT,
            "%s: the scores of %" PRIu32 " classes for %" PRIu32 "x%" PRIu32
            " pixels take %.1f GiB; at most %.0f GiB are taken: bring images to a smaller --image-size",
            gp_store_name(s->setup.store, index, name, sizeof(name)), s->setup.classes, image->read_height,
            image->read_width, (double)map / (1 << 30), (double)GP_STITCH_BYTES_MAX / (1 << 30));
    }
    status = grow(&s->map, &s->map_bytes, (size_t)map, err);
    if (status == GP_OK)
        status = grow(&s->predicted, &s->predicted_bytes,
                      (size_t)image->height * image->width * sizeof(*s->predicted), err);
    if (status == GP_OK)
        status = rows_reserve(s, image->width, err);
    if (status == GP_OK)
        status = gp_window_axis_set(&s->y, image->read_height, s->setup.height, s->setup.overlap, err);
    return status == GP_OK
               ? gp_window_axis_set(&s->x, image->read_width, s->setup.width, s->setup.overlap, err)
               : status;
}

/* ---- scores ---- */

/* All windows of the image, through the network, into the map. */
static gp_status windows_run(gp_stitch *s, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(s->setup.store);
    const size_t value_bytes = gp_dtype_bytes(info->dtype), plane = (size_t)s->setup.height * s->setup.width;
    const uint32_t count = s->y.count * s->x.count;
    gp_status status = GP_OK;

    memset(s->map, 0,
           (size_t)s->setup.classes * s->image.read_height * s->image.read_width * sizeof(*s->map));
    for (uint32_t done = 0; done < count && status == GP_OK;) {
        const uint32_t part = count - done < s->setup.batch ? count - done : s->setup.batch;
        const float *scores;

        for (uint32_t i = 0; i < part; i++)
            gp_window_cut(s->windows + i * info->channels * plane * value_bytes, s->image.sample,
                          info->channels, value_bytes, &s->y, &s->x, (done + i) / s->x.count,
                          (done + i) % s->x.count);
        status = s->setup.run(s->setup.context, s->windows, part, &scores, err);
        for (uint32_t i = 0; i < part && status == GP_OK; i++)
            gp_window_add(s->map, scores + i * s->setup.classes * plane, s->setup.classes, &s->y, &s->x,
                          (done + i) / s->x.count, (done + i) % s->x.count);
        done += part;
    }
    return status;
}

/* ---- classes ---- */

/* Middles of pixels on middles of pixels. */
static between between_of(uint32_t at, uint32_t length, uint32_t read_length)
{
    const double place = (at + 0.5) * read_length / length - 0.5;
    const uint32_t low = place <= 0 ? 0 : (uint32_t)place;

    return (between){ .low = low,
                      .high = low + 1 < read_length ? low + 1 : low,
                      .share = place <= 0 ? 0 : (float)(place - low) };
}

/* One class's scores of a row of the image in its file. */
static const float *row_of(const gp_stitch *s, uint32_t k, const between *down)
{
    const uint32_t read_width = s->image.read_width, width = s->image.width;
    const float *map = s->map + (size_t)k * s->image.read_height * read_width;
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

/* The first of the largest on ties. */
static void row_predict(gp_stitch *s, uint32_t row, const int32_t *labels)
{
    const uint32_t width = s->image.width;
    const between down = between_of(row, s->image.height, s->image.read_height);
    int32_t *restrict predicted = s->predicted + (size_t)row * width;
    float *restrict largest = s->largest, *restrict scored = s->scored;

    for (uint32_t k = 0; k < s->setup.classes; k++) {
        const float *restrict scores = row_of(s, k, &down);

        for (uint32_t i = 0; i < width; i++) {
            const bool more = k == 0 || scores[i] > largest[i];

            largest[i] = more ? scores[i] : largest[i];
            predicted[i] = more ? (int32_t)k : predicted[i];
        }
        for (uint32_t i = 0; i < width && labels != NULL; i++)
            scored[i] = labels[i] == (int32_t)k ? scores[i] : scored[i];
    }
}

static void row_compare(const gp_stitch *s, const int32_t *labels, gp_stitched *out)
{
    for (uint32_t i = 0; i < s->image.width; i++) {
        if (labels[i] < 0)
            continue;
        const double weight = s->setup.class_weights == NULL ? 1 : s->setup.class_weights[labels[i]];

        out->loss -= weight * log((double)fmaxf(s->scored[i], FLT_MIN));
        out->weight += weight;
    }
}

gp_status gp_stitch_image(gp_stitch *stitch, uint32_t index, gp_stitched *out, gp_error *err)
{
    gp_stitch *s = stitch;
    gp_status status =
        gp_store_read_whole(s->setup.store, index, s->setup.read_height, s->setup.read_width, &s->image, err);

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
    for (size_t i = 0; s->image.labels != NULL && i < (size_t)height * width; i++)
        if (s->image.labels[i] >= (int32_t)s->setup.classes || s->image.labels[i] == s->setup.ignored)
            s->image.labels[i] = -1;
    for (uint32_t i = 0; i < width; i++)
        s->across[i] = between_of(i, width, s->image.read_width);
    for (uint32_t row = 0; row < height; row++) {
        const int32_t *labels = s->image.labels == NULL ? NULL : s->image.labels + (size_t)row * width;

        row_predict(s, row, labels);
        if (labels != NULL)
            row_compare(s, labels, out);
    }
    return GP_OK;
}
