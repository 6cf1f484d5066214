/* Create image files for tests with libjpeg and libpng. */
#ifndef MAKE_IMAGES_H
#define MAKE_IMAGES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

typedef struct made_image {
    /* 1: grey, 2: grey + alpha, 3: RGB, 4: RGB + alpha (PNG) or CMYK (JPEG) */
    uint32_t width, height, channels;
    uint32_t bits;            /* PNG: 1, 2, 4, 8 or 16; 0: 8 */
    bool palette, interlaced; /* PNG with one channel */
    bool progressive;         /* JPEG */
    /* JPEG: chroma subsampling factors; 0: libjpeg's default, 2 and 2 */
    uint32_t halves_x, halves_y;
    const uint8_t *data; /* packed rows, as stored in the file */
} made_image;

/* Create the palette for PNG files: colour i is (i, 255 - i, 7 i). */
static inline void make_palette(png_color colors[256])
{
    for (int i = 0; i < 256; i++)
        colors[i] = (png_color){ (png_byte)i, (png_byte)(255 - i), (png_byte)(7 * i) };
}

static inline void make_png(const char *path, const made_image *image)
{
    static const int types[] = { 0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA };
    uint32_t bits = image->bits == 0 ? 8 : image->bits;
    size_t stride = ((size_t)image->width * image->channels * bits + 7) / 8;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_color colors[256];
    png_bytep *rows = malloc(image->height * sizeof(*rows));
    FILE *file = fopen(path, "wb");

    if (file == NULL || rows == NULL || setjmp(png_jmpbuf(png)))
        abort();
    png_init_io(png, file);
    png_set_IHDR(png, info, image->width, image->height, (int)bits,
                 image->palette ? PNG_COLOR_TYPE_PALETTE : types[image->channels],
                 image->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    make_palette(colors);
    if (image->palette)
        png_set_PLTE(png, info, colors, 1 << bits);
    for (uint32_t y = 0; y < image->height; y++)
        rows[y] = (png_bytep)(uintptr_t)(image->data + y * stride);
    png_set_rows(png, info, rows);
    png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&png, &info);
    free(rows);
    fclose(file);
}

static inline void make_jpeg(const char *path, const made_image *image, int quality)
{
    static const J_COLOR_SPACE spaces[] = { 0, JCS_GRAYSCALE, 0, JCS_RGB, JCS_CMYK };
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr error;
    FILE *file = fopen(path, "wb");

    if (file == NULL)
        abort();
    jpeg.err = jpeg_std_error(&error);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = image->width;
    jpeg.image_height = image->height;
    jpeg.input_components = (int)image->channels;
    jpeg.in_color_space = spaces[image->channels];
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    if (image->halves_x != 0) {
        jpeg.comp_info[0].h_samp_factor = (int)image->halves_x;
        jpeg.comp_info[0].v_samp_factor = (int)image->halves_y;
    }
    if (image->progressive)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(image->data + (size_t)jpeg.next_scanline * image->width * image->channels);

        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

#endif
