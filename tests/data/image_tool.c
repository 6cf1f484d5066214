/* image_tool.c -- one image as raw planes on standard output, for image_oracle.py:  image_tool FILE CHANNELS [HxW] */
#include <stdio.h>
#include <stdlib.h>

#include "common/data/image.h"
#include "common/data/resample.h"

int main(int count, char **arguments)
{
    static uint8_t file[16 << 20], planes[16 << 20];
    unsigned height = 0, width = 0;
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    gp_pixels pixels;
    gp_error err = { GP_OK, "usage: image_tool FILE CHANNELS [HxW]" };
    FILE *in = count > 2 ? fopen(arguments[1], "rb") : NULL;

    if (in == NULL || (count > 3 && sscanf(arguments[3], "%ux%u", &height, &width) != 2) ||
        gp_image_decoder_new(&decoder, &err) != GP_OK || gp_resampler_new(&resampler, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    size_t bytes = fread(file, 1, sizeof(file), in);
    const gp_image_want want = { .channels = (uint32_t)atoi(arguments[2]), .width = width, .height = height };

    if (gp_image_decode(decoder, &pixels, &want, file, bytes, arguments[1], &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    height = height == 0 ? pixels.height : height;
    width = width == 0 ? pixels.width : width;
    if (gp_resample(resampler, planes, height, width, &pixels, &err) != GP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    fwrite(planes, 1, (size_t)height * width * pixels.channels, stdout);
    gp_resampler_free(resampler);
    gp_image_decoder_free(decoder);
    fclose(in);
    return 0;
}
