/* Write one decoded image as raw planes to standard output, for image_oracle.py:
 *
 *   image_tool FILE CHANNELS [HxW [LEFT,TOP,RIGHT,BOTTOM]]  resized; with a part, only the pixels
 *                                                           that it needs are decoded
 *   image_tool FILE CHANNELS 'SETTING=VALUE ...'            augmented; ranges with one number
 *                                                           exclude randomness */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/data/store/augment.h"
#include "common/data/image/image.h"
#include "common/data/image/resample.h"

/* Warp the image as a training does, and write it to standard output. */
static int augmented(const char *text, const gp_pixels *pixels)
{
    const size_t plane = (size_t)pixels->width * pixels->height;
    const gp_store_info info = { .source = "the image",
                                 .count = 1,
                                 .channels = pixels->channels,
                                 .height = pixels->height,
                                 .width = pixels->width,
                                 .dtype = GP_U8,
                                 .sample_bytes = plane * pixels->channels,
                                 .target_count = 1,
                                 .targets = { { .dtype = GP_I32 } } };
    static uint8_t from[16 << 20], to[16 << 20];
    gp_augment_draw draw;
    gp_augment augment;
    gp_store_info shape;
    gp_error err;

    if (gp_augment_parse(&augment, text, &err) != GP_OK ||
        gp_augment_shape(&shape, &augment, &info, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    for (uint32_t c = 0; c < info.channels; c++)
        for (size_t i = 0; i < plane; i++)
            from[c * plane + i] = pixels->data[i * info.channels + c];
    gp_augment_draw_sample(&draw, &augment, &info, &shape, 1, 0, 0);
    gp_augment_image(&draw, &info, &shape, augment.fill, from, to);
    return fwrite(to, 1, shape.sample_bytes, stdout) == shape.sample_bytes ? 0 : 1;
}

int main(int count, char **arguments)
{
    static uint8_t file[16 << 20], planes[16 << 20];
    unsigned height = 0, width = 0;
    gp_image_part part = { 0 };
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    gp_pixels pixels;
    gp_error err = { GP_OK, "usage: image_tool FILE CHANNELS [HxW | AUGMENTATION]" };
    FILE *in = count > 2 ? fopen(arguments[1], "rb") : NULL;

    const bool warps = count == 4 && strchr(arguments[3], '=') != NULL;

    if (in == NULL || (count > 3 && !warps && sscanf(arguments[3], "%ux%u", &height, &width) != 2) ||
        (count > 4 &&
         sscanf(arguments[4], "%u,%u,%u,%u", &part.left, &part.top, &part.right, &part.bottom) != 4) ||
        gp_image_decoder_new(&decoder, &err) != GP_OK || gp_resampler_new(&resampler, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    size_t bytes = fread(file, 1, sizeof(file), in);
    const gp_image_want want = {
        .channels = (uint32_t)atoi(arguments[2]), .width = width, .height = height, .part = part
    };

    if (gp_image_decode(decoder, &pixels, &want, file, bytes, arguments[1], &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (warps) {
        int code = augmented(arguments[3], &pixels);

        gp_resampler_free(resampler);
        gp_image_decoder_free(decoder);
        fclose(in);
        return code;
    }
    height = height == 0 ? pixels.height : height;
    width = width == 0 ? pixels.width : width;
    gp_pixel_window window = { 0, 0, pixels.width, pixels.height };

    if (count > 4)
        window = (gp_pixel_window){ (double)part.left / pixels.scale - pixels.left,
                                    (double)part.top / pixels.scale - pixels.top,
                                    fmin((double)part.right / pixels.scale - pixels.left, pixels.width),
                                    fmin((double)part.bottom / pixels.scale - pixels.top, pixels.height) };
    if (gp_resample_window(resampler, &(gp_pixel_out){ .data = planes, .height = height, .width = width },
                           &pixels, &window, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    fwrite(planes, 1, (size_t)height * width * pixels.channels, stdout);
    gp_resampler_free(resampler);
    gp_image_decoder_free(decoder);
    fclose(in);
    return 0;
}
