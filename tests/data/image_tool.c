/* image_tool.c -- one image as raw planes on standard output, for image_oracle.py:  image_tool FILE CHANNELS [HxW [LEFT,TOP,RIGHT,BOTTOM]]
 * With a part, no more is decoded than it needs, at a fraction only where twice the size is left. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/data/image.h"
#include "common/data/resample.h"

int main(int count, char **arguments)
{
    static uint8_t file[16 << 20], planes[16 << 20];
    unsigned height = 0, width = 0;
    gp_image_part part = { 0 };
    gp_image_decoder *decoder;
    gp_resampler *resampler;
    gp_pixels pixels;
    gp_error err = { GP_OK, "usage: image_tool FILE CHANNELS [HxW]" };
    FILE *in = count > 2 ? fopen(arguments[1], "rb") : NULL;

    if (in == NULL || (count > 3 && sscanf(arguments[3], "%ux%u", &height, &width) != 2) ||
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
