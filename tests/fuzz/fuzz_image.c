/* fuzz_image.c: hostile images give all pixels and a size within the limits, or an error
 * message. */
#include <stdint.h>
#include <stdlib.h>

#include "common/base/memory/alloc.h"
#include "common/data/image/image.h"
#include "common/data/image/resample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Choose an arbitrary part of the image. */
static gp_image_part part_of(const gp_image_info *info, const uint8_t *data, size_t bytes)
{
    gp_image_part part = { .left = data[bytes - 1] * info->width / 256,
                           .top = data[bytes / 2] * info->height / 256 };

    part.right = part.left + 1 + data[bytes - 2] * (info->width - part.left - 1) / 255;
    part.bottom = part.top + 1 + data[bytes / 3] * (info->height - part.top - 1) / 255;
    return part;
}

/* Resize the decoded pixels. */
static void resize(const gp_pixels *pixels)
{
    static uint8_t out[3 * 40 * 40];
    const gp_pixel_window window = { 0, 0, pixels->width, pixels->height };
    gp_resampler *resampler;

    if (gp_resampler_new(&resampler, NULL) != GP_OK ||
        gp_resample_window(resampler,
                           &(gp_pixel_out){ .data = out, .height = 40, .width = 40, .mirror_x = true },
                           pixels, &window, NULL) != GP_OK)
        abort();
    gp_resampler_free(resampler);
}

static void decode(gp_image_decoder *decoder, int how, const gp_image_info *info, const uint8_t *data,
                   size_t bytes)
{
    const gp_image_want want = { .channels = how == 0   ? 0
                                             : how == 1 ? 1
                                                        : 3,
                                 .width = how * 3u,
                                 .height = how * 3u,
                                 .part = how == 4 ? part_of(info, data, bytes) : (gp_image_part){ 0 } };
    gp_error err = { GP_OK, "" };
    gp_pixels pixels;
    uint64_t sum = 0;
    gp_status status = how == 3 ? gp_image_decode_index(decoder, &pixels, data, bytes, "input", &err)
                                : gp_image_decode(decoder, &pixels, &want, data, bytes, "input", &err);

    if (status != GP_OK && err.message[0] == '\0')
        abort();
    if (status != GP_OK)
        return;
    if (pixels.width < 1 || pixels.height < 1 ||
        (uint64_t)pixels.width * pixels.height > GP_IMAGE_PIXELS_MAX ||
        (want.channels != 0 && how != 3 && pixels.channels != want.channels))
        abort();
    if (how >= 2 && how != 3)
        resize(&pixels);
    for (size_t i = 0; i < (size_t)pixels.width * pixels.height * pixels.channels; i++)
        sum += pixels.data[i];
    if (sum > 255ull * pixels.width * pixels.height * pixels.channels)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t live = gp_alloc_get_stats().live;
    gp_image_decoder *decoder;
    gp_image_info info;

    if (gp_image_decoder_new(&decoder, NULL) != GP_OK)
        abort();

    /* Skip large images: they only take time. */
    if (gp_image_probe(decoder, &info, data, bytes, "input", NULL) == GP_OK &&
        (uint64_t)info.width * info.height < 1 << 20)
        for (int how = 0; how < 5; how++)
            decode(decoder, how, &info, data, bytes);
    gp_image_decoder_free(decoder);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
