/* `gradpool data preview`: draw samples as stored and as augmented in the first epochs on one
 * PNG. */
#include "client/cli/data/data_preview.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/data/store/augment.h"
#include "common/data/image/image.h"
#include "common/data/store/sampler.h"

/* GAP: pixels between two images. SHEET_BYTES_MAX: limit on the pixel buffer. */
enum { GAP = 2, SHEET_BYTES_MAX = 512 << 20 };

/* Contact sheet state. */
typedef struct sheet {
    const preview_request *request;
    gp_store *store;
    gp_augment augment;
    gp_store_info shape;
    /* image size; bands: 2 with pixel labels, else 1 */
    uint32_t cell_height, cell_width, bands;
    uint32_t height, width;
    uint8_t *pixels;         /* RGB, [height][width][3]; owned */
    uint8_t *stored, *drawn; /* buffers for one sample, as stored and as augmented */
    int32_t *stored_labels, *drawn_labels;
} sheet;

/* Return the first byte of an image line on the sheet.
 *   band  0: image, 1: pixel labels */
static uint8_t *sheet_at(sheet *s, uint32_t row, uint32_t column, uint32_t band, uint32_t y)
{
    size_t line = GAP + (size_t)(row * s->bands + band) * (s->cell_height + GAP) + y;

    return s->pixels + 3 * (line * s->width + GAP + (size_t)column * (s->cell_width + GAP));
}

/* Copy an image to the sheet; one-channel images become gray. */
static void put_image(sheet *s, uint32_t row, uint32_t column, const gp_store_info *info,
                      const uint8_t *image)
{
    const size_t plane = (size_t)info->height * info->width;

    for (uint32_t y = 0; y < info->height; y++)
        for (uint32_t x = 0; x < info->width; x++)
            for (uint32_t c = 0; c < 3; c++) {
                uint32_t channel = info->channels >= 3 ? c : 0;
                const size_t at = channel * plane + (size_t)y * info->width + x;
                float value = image[at];

                if (info->dtype != GP_U8) { /* scaled as if 0 were black and 1 were white */
                    memcpy(&value, image + at * sizeof(value), sizeof(value));
                    value = 255.0f * (value * info->scale[channel] + info->offset[channel]) + 0.5f;
                }
                sheet_at(s, row, column, 0, y)[3 * x + c] = (uint8_t)fminf(fmaxf(value, 0), 255);
            }
}

/* Draw pixel labels as colors. Hues follow the golden ratio, so adjacent classes differ clearly.
 * Pixels without a class are dark gray. */
static void put_labels(sheet *s, uint32_t row, uint32_t column, const gp_store_info *info,
                       const int32_t *labels)
{
    for (uint32_t y = 0; y < info->height; y++)
        for (uint32_t x = 0; x < info->width; x++) {
            int32_t label = labels[(size_t)y * info->width + x];
            uint8_t *to = sheet_at(s, row, column, 1, y) + 3 * x;

            for (int c = 0; c < 3; c++)
                to[c] =
                    label < 0 ? 40 : (uint8_t)(140 + 110 * cos(2 * M_PI * (label * 0.6180339887 + c / 3.0)));
        }
}

/* Draw one row: a sample as stored, then as augmented in epochs 0, 1, ... */
static gp_status sheet_row(sheet *s, uint32_t row, uint32_t index, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(s->store);
    const bool labelled = s->bands == 2;
    gp_status status = gp_store_read(s->store, &index, 1, s->stored, s->stored_labels, err);

    if (status != GP_OK)
        return status;
    put_image(s, row, 0, info, s->stored);
    if (labelled)
        put_labels(s, row, 0, info, s->stored_labels);
    for (uint32_t epoch = 0; epoch + 1 < s->request->columns; epoch++) {
        gp_augment_draw draw;

        const uint32_t sample = index * (uint32_t)s->augment.patches_per_image;

        if (gp_store_draws(s->store, &s->augment)) {
            const gp_drawing drawing = { .augment = &s->augment,
                                         .shape = &s->shape,
                                         .seed = s->request->seed,
                                         .sample_bytes = s->shape.sample_bytes };

            status =
                gp_store_read_drawn(s->store, &drawing, epoch, &sample, 1, s->drawn, s->drawn_labels, err);
            if (status != GP_OK)
                return status;
            put_image(s, row, epoch + 1, &s->shape, s->drawn);
            continue;
        }
        gp_augment_draw_sample(&draw, &s->augment, info, &s->shape, s->request->seed, epoch, sample);
        gp_augment_image(&draw, info, &s->shape, s->augment.fill, s->stored, s->drawn);
        put_image(s, row, epoch + 1, &s->shape, s->drawn);
        if (!labelled)
            continue;
        gp_augment_indices(&draw, info, &s->shape, s->stored_labels, s->drawn_labels);
        put_labels(s, row, epoch + 1, &s->shape, s->drawn_labels);
    }
    return GP_OK;
}

/* Open the source and allocate the sheet. GP_ELIMIT: the sheet is too large. */
static gp_status sheet_open(sheet *s, const preview_request *request, const gp_progress *progress,
                            gp_error *err)
{
    gp_store_options images;
    gp_status status = gp_augment_parse(&s->augment, request->augment, err);

    s->request = request;
    if (status == GP_OK)
        status = gp_augment_images(&images, &s->augment, request->image_size, NULL, err);
    images.progress = progress;
    if (status == GP_OK)
        status = gp_store_open_with(&s->store, request->source, GP_DATA_TRAIN, &images, err);
    if (status == GP_OK)
        status = gp_augment_shape(&s->shape, &s->augment, gp_store_get_info(s->store), err);
    if (status != GP_OK)
        return status;

    const gp_store_info *info = gp_store_get_info(s->store);

    s->cell_height = info->height > s->shape.height ? info->height : s->shape.height;
    s->cell_width = info->width > s->shape.width ? info->width : s->shape.width;
    s->bands = info->target_count == 1 && info->targets[0].dtype == GP_I32 && info->targets[0].shape.rank == 2
                   ? 2
                   : 1;
    uint64_t width = GAP + (uint64_t)request->columns * (s->cell_width + GAP);
    uint64_t height = GAP + (uint64_t)request->rows * s->bands * (s->cell_height + GAP);

    if (3 * width * height > SHEET_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "a sheet of %llu x %llu pixels is too large; reduce --rows or --columns",
                       (unsigned long long)width, (unsigned long long)height);
    s->width = (uint32_t)width;
    s->height = (uint32_t)height;
    s->pixels = gp_calloc(3 * width * height, 1);
    s->stored = gp_aligned_calloc(64, info->sample_bytes);
    s->drawn = gp_aligned_calloc(64, s->shape.sample_bytes);
    s->stored_labels = gp_aligned_calloc(64, info->target_bytes);
    s->drawn_labels = gp_aligned_calloc(64, s->shape.target_bytes);
    if (s->pixels == NULL || s->stored == NULL || s->drawn == NULL || s->stored_labels == NULL ||
        s->drawn_labels == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a sheet of %u x %u pixels", s->width, s->height);
    return GP_OK;
}

gp_status data_preview(cli_call *call, const preview_request *request, gp_error *err)
{
    sheet s = { 0 };
    uint8_t *png = NULL;
    size_t bytes;
    cli_progress progress;
    const gp_progress reports = cli_progress_reports(&progress);

    cli_progress_begin(call, &progress, "files");
    gp_status status = sheet_open(&s, request, &reports, err);

    cli_progress_end(&progress);
    for (uint32_t row = 0; status == GP_OK && row < request->rows; row++) {
        uint32_t count = gp_store_get_info(s.store)->count;

        status = sheet_row(&s, row, (uint32_t)((uint64_t)row * count / (uint64_t)request->rows), err);
    }
    if (status == GP_OK)
        status = gp_image_to_png(&png, &bytes, s.pixels, s.width, s.height, err);
    if (status == GP_OK)
        status = gp_file_write(request->out, png, bytes, err);
    if (status == GP_OK)
        printf("%s\n", request->out);
    gp_free(png);
    gp_free(s.pixels);
    gp_free(s.stored);
    gp_free(s.drawn);
    gp_free(s.stored_labels);
    gp_free(s.drawn_labels);
    gp_store_close(s.store);
    return status;
}
