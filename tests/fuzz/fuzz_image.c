/* fuzz_image.c -- hostile images: a size within the ceilings and all pixels there, or an error with a sentence. */
#include <stdint.h>
#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void decode(gp_image_decoder *decoder, int how, const uint8_t *data, size_t bytes)
{
    const gp_image_want want = { .channels = how == 0   ? 0
                                             : how == 1 ? 1
                                                        : 3,
                                 .width = how * 3u,
                                 .height = how * 3u };
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
    /* Large images are only slow. */
    if (gp_image_probe(decoder, &info, data, bytes, "input", NULL) == GP_OK &&
        (uint64_t)info.width * info.height < 1 << 20)
        for (int how = 0; how < 4; how++)
            decode(decoder, how, data, bytes);
    gp_image_decoder_free(decoder);
    if (gp_alloc_get_stats().live != live)
        abort();
    return 0;
}
