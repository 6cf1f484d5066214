/* Decode JPEG and PNG images. Only this file uses libjpeg and libpng.
 *
 * Both libraries report errors by longjmp(). Functions that call setjmp() have names ending in
 * _guarded. They keep all state in the decoder, not in local variables, whose values longjmp()
 * could make indeterminate. The decoder is reset after each call. */
#include "common/data/image/image.h"

#include <assert.h>
#include <png.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which uses FILE */

#include <jpeglib.h>

#include <jerror.h>
#include <string.h>

#include "common/base/memory/alloc.h"

struct gp_image_decoder {
    /* Arguments and result of the current call. */
    const uint8_t *data;
    size_t bytes;
    const char *name;
    gp_image_want want;
    bool probe, index; /* read only the header; return palette indices */
    gp_image_info info;
    gp_pixels out;
    gp_error *err;
    gp_status status;

    uint8_t *pixels; /* decoded image; grown as needed, reused by the next call */
    size_t pixels_bytes;
    uint8_t *cmyk; /* row buffer while a CMYK image is decoded */
    jmp_buf jump;

    struct jpeg_decompress_struct jpeg; /* created once, reused for all JPEG images */
    struct jpeg_error_mgr jpeg_error;
    struct jpeg_progress_mgr jpeg_progress;
    bool jpeg_made;

    png_structp png; /* created for each PNG image */
    png_infop png_info;
    size_t png_at;
};

/* ---- shared ---- */

/* Record the status and jump out of the guarded function. */
static _Noreturn void decoder_fail(gp_image_decoder *decoder, gp_status status)
{
    decoder->status = status;
    longjmp(decoder->jump, 1);
}

static _Noreturn void decoder_fail_damaged(gp_image_decoder *decoder, size_t at, const char *cause)
{
    if (errno == ENOMEM) /* the library's own message may not mention memory */
        decoder_fail(decoder, gp_fail(decoder->err, GP_ENOMEM, "%s: no memory for a decoder", decoder->name));
    decoder_fail(decoder,
                 gp_fail(decoder->err, GP_ECORRUPT, "%s: damaged %s at byte %zu of %zu: %s", decoder->name,
                         decoder->info.format == GP_IMAGE_JPEG ? "JPEG" : "PNG", at, decoder->bytes, cause));
}

/* Reject images beyond the limits, before any memory is allocated for pixels. */
static void size_check(gp_image_decoder *decoder)
{
    const gp_image_info *info = &decoder->info;

    if (info->width < 1 || info->height < 1 || info->width > GP_IMAGE_SIDE_MAX ||
        info->height > GP_IMAGE_SIDE_MAX || (uint64_t)info->width * info->height > GP_IMAGE_PIXELS_MAX)
        decoder_fail(decoder, gp_fail(decoder->err, GP_ELIMIT,
                                      "%s: the image has %ux%u pixels (width x height); sides of 1 to %d and "
                                      "at most %d million pixels are supported; reduce it first",
                                      decoder->name, info->width, info->height, GP_IMAGE_SIDE_MAX,
                                      GP_IMAGE_PIXELS_MAX >> 20));
}

/* Reject an image that does not contain the requested part: the file was replaced after the caller
 * read its size. */
static void part_check(gp_image_decoder *decoder)
{
    const gp_image_info *info = &decoder->info;

    if (decoder->want.part.right > info->width || decoder->want.part.bottom > info->height)
        decoder_fail(decoder, gp_fail(decoder->err, GP_ECORRUPT,
                                      "%s was replaced by a smaller image of %ux%u pixels (width x height) "
                                      "while it was read; restart to use the new version",
                                      decoder->name, info->width, info->height));
}

/* Grow the pixel buffer to the size given in decoder->out. */
static void pixels_take(gp_image_decoder *decoder)
{
    size_t bytes = (size_t)decoder->out.width * decoder->out.height * decoder->out.channels;

    if (bytes > decoder->pixels_bytes) {
        gp_free(decoder->pixels);
        decoder->pixels_bytes = 0;
        decoder->pixels = gp_malloc(bytes);
        if (decoder->pixels == NULL)
            decoder_fail(decoder, gp_fail(decoder->err, GP_ENOMEM, "%s: no memory for an image of %zu bytes",
                                          decoder->name, bytes));
        decoder->pixels_bytes = bytes;
    }
    decoder->out.data = decoder->pixels;
}

/* Convert a row to grey with ITU-R BT.601 weights, rounded as in Pillow. */
static void row_to_grey(uint8_t *grey, const uint8_t *rgb, uint32_t width)
{
    for (uint32_t x = 0; x < width; x++, rgb += 3)
        grey[x] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/* ---- JPEG ---- */

static gp_image_decoder *jpeg_decoder(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

static size_t jpeg_at(const gp_image_decoder *decoder)
{
    size_t left = decoder->jpeg.src == NULL ? 0 : decoder->jpeg.src->bytes_in_buffer;

    return left < decoder->bytes ? decoder->bytes - left : decoder->bytes;
}

static void jpeg_fail(j_common_ptr jpeg)
{
    gp_image_decoder *decoder = jpeg_decoder(jpeg);
    char cause[JMSG_LENGTH_MAX];

    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        decoder_fail(decoder, gp_fail(decoder->err, GP_ENOMEM, "%s: no memory for a decoder", decoder->name));
    jpeg->err->format_message(jpeg, cause);
    decoder_fail_damaged(decoder, jpeg_at(decoder), cause);
}

/* Treat a libjpeg warning as an error if pixels are lost. Ignore warnings about odd markers and
 * extra bytes between segments: cameras write such files. */
static void jpeg_warn(j_common_ptr jpeg, int level)
{
    if (level >= 0)
        return;
    switch (jpeg->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_TOO_MUCH_DATA:
        return;
    case JWRN_JPEG_EOF:
        decoder_fail_damaged(jpeg_decoder(jpeg), jpeg_at(jpeg_decoder(jpeg)), "truncated");
    default:
        jpeg_fail(jpeg);
    }
}

/* Limit the number of scans. A progressive file with a few kilobytes can request thousands of
 * passes. */
static void jpeg_count_scans(j_common_ptr jpeg)
{
    gp_image_decoder *decoder = jpeg_decoder(jpeg);

    const uint64_t pixels = (uint64_t)decoder->info.width * decoder->info.height,
                   scans = (uint64_t)decoder->jpeg.input_scan_number;

    if (scans > GP_IMAGE_SCANS_MAX || scans * pixels > GP_IMAGE_SCANNED_MAX)
        decoder_fail(decoder,
                     gp_fail(decoder->err, GP_ELIMIT,
                             "%s: the JPEG of %ux%u (width x height) has more than %d scans, which is the "
                             "limit; re-encode it",
                             decoder->name, decoder->info.width, decoder->info.height, (int)scans - 1));
}

static void jpeg_silence(j_common_ptr jpeg)
{
    (void)jpeg;
}

static gp_status jpeg_make_guarded(gp_image_decoder *decoder)
{
    if (setjmp(decoder->jump) != 0)
        return decoder->status;
    decoder->jpeg.err = jpeg_std_error(&decoder->jpeg_error);
    decoder->jpeg.client_data = decoder;
    decoder->jpeg_error.error_exit = jpeg_fail;
    decoder->jpeg_error.emit_message = jpeg_warn;
    decoder->jpeg_error.output_message = jpeg_silence;
    jpeg_create_decompress(&decoder->jpeg); /* keeps err and client_data */
    decoder->jpeg_made = true;
    decoder->jpeg_progress.progress_monitor = jpeg_count_scans;
    decoder->jpeg.progress = &decoder->jpeg_progress;
    return GP_OK;
}

/* Restrict decoding to the requested part: crop columns and skip the rows above. Return the number
 * of rows to read. A margin of BESIDE columns keeps the result bitwise identical to a full decode,
 * because colours stored at half resolution are blended with their neighbours. */
static uint32_t jpeg_cut(gp_image_decoder *decoder)
{
    enum { BESIDE = 4 };
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    const gp_image_part *part = &decoder->want.part;
    const uint32_t scale = decoder->out.scale;
    JDIMENSION left = part->left / scale, right = (part->right + scale - 1) / scale + BESIDE, width;
    uint32_t bottom = (part->bottom + scale - 1) / scale;

    left = left < BESIDE ? 0 : left - BESIDE;
    width = (right < jpeg->output_width ? right : jpeg->output_width) - left;
    jpeg_crop_scanline(jpeg, &left, &width);
    decoder->out.left = left;
    decoder->out.top = part->top / scale;
    if (decoder->out.top > 0)
        jpeg_skip_scanlines(jpeg, decoder->out.top);
    return (bottom < jpeg->output_height ? bottom : jpeg->output_height) - decoder->out.top;
}

/* Decode a CMYK or YCCK image row by row to RGB or grey. The buffer holds 4 bytes per pixel
 * from the file, and 3 bytes of RGB for the conversion to grey. The stored values are taken
 * as inverted, as Photoshop writes them. All CMYK files seen in practice are inverted, and
 * Pillow makes the same assumption. */
static void jpeg_read_cmyk(gp_image_decoder *decoder)
{
    const uint32_t width = decoder->out.width, channels = decoder->out.channels;

    decoder->cmyk = gp_malloc((size_t)width * 7);
    if (decoder->cmyk == NULL)
        decoder_fail(decoder, gp_fail(decoder->err, GP_ENOMEM, "%s: no memory for a row", decoder->name));
    while (decoder->jpeg.output_scanline < decoder->jpeg.output_height) {
        uint8_t *out = decoder->pixels + (size_t)decoder->jpeg.output_scanline * width * channels;
        uint8_t *cmyk = decoder->cmyk, *to = channels == 3 ? out : cmyk + (size_t)width * 4;

        jpeg_read_scanlines(&decoder->jpeg, &cmyk, 1);
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < 3; c++)
                to[3 * x + c] = (uint8_t)((cmyk[4 * x + c] * cmyk[4 * x + 3] + 127) / 255);
        if (channels == 1)
            row_to_grey(out, to, width);
    }
}

static void jpeg_read_rows(gp_image_decoder *decoder)
{
    enum { ROWS = 16 };
    size_t stride = (size_t)decoder->out.width * decoder->out.channels;
    JSAMPROW rows[ROWS];

    for (uint32_t at = 0; at < decoder->out.height;) {
        uint32_t count = decoder->out.height - at;

        count = count < ROWS ? count : ROWS;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = decoder->pixels + (at + i) * stride;
        at += jpeg_read_scanlines(&decoder->jpeg, rows, count);
    }
}

/* Read the header and, unless probing, decode a JPEG. Errors in libjpeg return through
 * longjmp(). */
static gp_status jpeg_guarded(gp_image_decoder *decoder)
{
    struct jpeg_decompress_struct *jpeg = &decoder->jpeg;
    bool cmyk;

    if (setjmp(decoder->jump) != 0)
        return decoder->status;
    errno = 0;
    jpeg_mem_src(jpeg, decoder->data, decoder->bytes);
    jpeg_read_header(jpeg, TRUE);
    decoder->info.width = jpeg->image_width;
    decoder->info.height = jpeg->image_height;
    decoder->info.channels = jpeg->jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    decoder->info.bits = 8;
    size_check(decoder);
    if (decoder->probe)
        return GP_OK;
    part_check(decoder);
    cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    if (!cmyk && jpeg->jpeg_color_space != JCS_GRAYSCALE && jpeg->jpeg_color_space != JCS_RGB &&
        jpeg->jpeg_color_space != JCS_YCbCr)
        decoder_fail(decoder,
                     gp_fail(decoder->err, GP_EUNSUPPORTED,
                             "%s: unsupported color space of a JPEG with %d channels; save it as RGB",
                             decoder->name, jpeg->num_components));
    decoder->out.channels = decoder->want.channels != 0 ? decoder->want.channels : decoder->info.channels;
    jpeg->out_color_space = cmyk ? JCS_CMYK : decoder->out.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->scale_num = 1;
    jpeg->scale_denom = decoder->out.scale = gp_image_scale(&decoder->want, &decoder->info);
    jpeg_start_decompress(jpeg);
    decoder->out.height = decoder->want.part.right == 0 || cmyk ? jpeg->output_height : jpeg_cut(decoder);
    decoder->out.width = jpeg->output_width;
    pixels_take(decoder);
    if (cmyk)
        jpeg_read_cmyk(decoder);
    else
        jpeg_read_rows(decoder);
    return GP_OK;
}

/* ---- PNG ---- */

static void png_fail(png_structp png, png_const_charp cause)
{
    gp_image_decoder *decoder = png_get_error_ptr(png);

    decoder_fail_damaged(decoder, decoder->png_at, cause);
}

static void png_silence(png_structp png, png_const_charp cause)
{
    (void)png;
    (void)cause;
}

static void png_take(png_structp png, png_bytep to, size_t bytes)
{
    gp_image_decoder *decoder = png_get_io_ptr(png);

    if (bytes > decoder->bytes - decoder->png_at) {
        decoder->png_at = decoder->bytes;
        png_fail(png, "truncated");
    }
    memcpy(to, decoder->data + decoder->png_at, bytes);
    decoder->png_at += bytes;
}

/* Request palette indices or grey values exactly as stored. */
static void png_want_index(gp_image_decoder *decoder)
{
    int type = png_get_color_type(decoder->png, decoder->png_info);

    if ((type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY) || decoder->info.bits > 8)
        decoder_fail(decoder, gp_fail(decoder->err, GP_EUNSUPPORTED,
                                      "%s: unsupported pixel labels: %s with %u bits; must be a palette or "
                                      "grayscale PNG of at most 8 bits",
                                      decoder->name,
                                      type == PNG_COLOR_TYPE_GRAY         ? "grey"
                                      : type == PNG_COLOR_TYPE_GRAY_ALPHA ? "gray with alpha"
                                                                          : "RGB",
                                      decoder->info.bits));
    png_set_packing(decoder->png);
    decoder->out.channels = 1;
}

/* Read all rows. Conversion to grey needs the complete RGB image first, because an interlaced image
 * arrives in several passes. */
static void png_read_pixels(gp_image_decoder *decoder)
{
    int passes = png_set_interlace_handling(decoder->png);
    size_t stride = png_get_rowbytes(decoder->png, decoder->png_info);
    bool to_grey;

    png_read_update_info(decoder->png, decoder->png_info);
    stride = png_get_rowbytes(decoder->png, decoder->png_info);
    to_grey = decoder->out.channels == 1 && stride == (size_t)decoder->out.width * 3;
    assert(to_grey || stride == (size_t)decoder->out.width * decoder->out.channels);
    if (to_grey)
        decoder->out.channels = 3;
    pixels_take(decoder);
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < decoder->out.height; y++)
            png_read_row(decoder->png, decoder->pixels + y * stride, NULL);
    if (!to_grey)
        return;
    /* convert in place: the grey row never overtakes the RGB source row */
    decoder->out.channels = 1;
    for (uint32_t y = 0; y < decoder->out.height; y++)
        row_to_grey(decoder->pixels + (size_t)y * decoder->out.width, decoder->pixels + y * stride,
                    decoder->out.width);
}

/* Read the header and, unless probing, decode a PNG. Errors in libpng return through longjmp(). */
static gp_status png_guarded(gp_image_decoder *decoder)
{
    int type;

    if (setjmp(decoder->jump) != 0)
        return decoder->status;
    errno = 0;
    decoder->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, decoder, png_fail, png_silence);
    if (decoder->png != NULL)
        decoder->png_info = png_create_info_struct(decoder->png);
    if (decoder->png_info == NULL)
        return gp_fail(decoder->err, GP_ENOMEM, "%s: no memory for a decoder", decoder->name);
    png_set_read_fn(decoder->png, decoder, png_take);

    /* Raise libpng's own size limits: size_check() gives a better message. Unknown chunks are not
     * kept. */
    png_set_user_limits(decoder->png, 0x7fffffff, 0x7fffffff);
    png_set_chunk_malloc_max(decoder->png, 4 << 20);
    png_set_keep_unknown_chunks(decoder->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(decoder->png, decoder->png_info);
    type = png_get_color_type(decoder->png, decoder->png_info);
    decoder->info.width = png_get_image_width(decoder->png, decoder->png_info);
    decoder->info.height = png_get_image_height(decoder->png, decoder->png_info);
    decoder->info.bits = png_get_bit_depth(decoder->png, decoder->png_info);
    decoder->info.palette = type == PNG_COLOR_TYPE_PALETTE;
    decoder->info.channels = (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    size_check(decoder);
    if (decoder->probe)
        return GP_OK;
    part_check(decoder);
    decoder->out.width = decoder->info.width;
    decoder->out.height = decoder->info.height;
    if (decoder->index) {
        png_want_index(decoder);
    } else { /* 8 bits per channel, grey or RGB, without alpha */
        if (decoder->info.palette)
            png_set_palette_to_rgb(decoder->png);
        if (decoder->info.channels == 1 && decoder->info.bits < 8)
            png_set_expand_gray_1_2_4_to_8(decoder->png);
        if (decoder->info.bits == 16)
            png_set_scale_16(decoder->png);
        png_set_strip_alpha(decoder->png);
        decoder->out.channels = decoder->want.channels != 0 ? decoder->want.channels : decoder->info.channels;
        if (decoder->info.channels == 1 && decoder->out.channels == 3)
            png_set_gray_to_rgb(decoder->png);
    }
    png_read_pixels(decoder);
    return GP_OK;
}

/* ---- interface ---- */

uint32_t gp_image_scale(const gp_image_want *want, const gp_image_info *info)
{
    uint32_t width = want->part.right == 0 ? info->width : want->part.right - want->part.left;
    uint32_t height = want->part.right == 0 ? info->height : want->part.bottom - want->part.top;
    uint32_t scale = 1;

    if (want->width == 0 || want->height == 0 || info->format != GP_IMAGE_JPEG)
        return 1;
    while (scale < 8 && width / (2 * scale) >= want->width && height / (2 * scale) >= want->height)
        scale *= 2;
    return scale;
}

gp_status gp_image_decoder_new(gp_image_decoder **out, gp_error *err)
{
    gp_image_decoder *decoder = gp_calloc(1, sizeof(*decoder));
    gp_status status;

    if (decoder == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an image decoder");
    decoder->err = err;
    decoder->name = "decoder";
    status = jpeg_make_guarded(decoder);
    if (status != GP_OK) {
        gp_image_decoder_free(decoder);
        return status;
    }
    *out = decoder;
    return GP_OK;
}

void gp_image_decoder_free(gp_image_decoder *decoder)
{
    if (decoder == NULL)
        return;
    if (decoder->jpeg_made)
        jpeg_destroy_decompress(&decoder->jpeg);
    gp_free(decoder->pixels);
    gp_free(decoder);
}

/* Detect the format from the first bytes. */
static gp_status format_find(gp_image_format *format, const uint8_t *data, size_t bytes, const char *name,
                             gp_error *err)
{
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' },
                         jpeg[] = { 0xff, 0xd8, 0xff };

    if (bytes >= sizeof(jpeg) && memcmp(data, jpeg, sizeof(jpeg)) == 0)
        *format = GP_IMAGE_JPEG;
    else if (bytes >= sizeof(png) && memcmp(data, png, sizeof(png)) == 0)
        *format = GP_IMAGE_PNG;
    else if (bytes == 0)
        return gp_fail(err, GP_ECORRUPT, "%s: the file is empty", name);
    else
        return gp_fail(err, GP_EUNSUPPORTED,
                       "%s is neither a JPEG nor a PNG (it starts with %02x %02x %02x %02x)", name, data[0],
                       bytes > 1 ? data[1] : 0, bytes > 2 ? data[2] : 0, bytes > 3 ? data[3] : 0);
    return GP_OK;
}

/* Detect the format, set up the decoder for this call, and run it.
 *   probe  read only the header
 *   index  return palette indices or grey values as stored */
static gp_status decoder_run(gp_image_decoder *decoder, bool probe, bool index, const gp_image_want *want,
                             const void *data, size_t bytes, const char *name, gp_error *err)
{
    gp_image_format format;
    gp_status status = format_find(&format, data, bytes, name, err);

    if (status != GP_OK)
        return status;
    if (index && format != GP_IMAGE_PNG)
        return gp_fail(err, GP_EUNSUPPORTED, "%s: pixel labels cannot be JPEG, which blurs them; use PNG",
                       name);
    decoder->probe = probe;
    decoder->index = index;
    decoder->want = *want;
    decoder->data = data;
    decoder->bytes = bytes;
    decoder->name = name;
    decoder->err = err;
    decoder->info = (gp_image_info){ .format = format };
    decoder->out = (gp_pixels){ .scale = 1, .format = format };
    if (format == GP_IMAGE_JPEG) {
        status = jpeg_guarded(decoder);
        /* jpeg_finish_decompress() would read up to the end marker, which is not needed. */
        jpeg_abort_decompress(&decoder->jpeg);
        gp_free(decoder->cmyk);
        decoder->cmyk = NULL;
    } else {
        decoder->png_at = 0;
        status = png_guarded(decoder);
        png_destroy_read_struct(&decoder->png, &decoder->png_info, NULL);
    }
    decoder->out.file_width = decoder->info.width;
    decoder->out.file_height = decoder->info.height;
    decoder->out.file_channels = decoder->info.channels;
    return status;
}

gp_status gp_image_probe(gp_image_decoder *decoder, gp_image_info *info, const void *data, size_t bytes,
                         const char *name, gp_error *err)
{
    gp_status status = decoder_run(decoder, true, false, &(gp_image_want){ 0 }, data, bytes, name, err);

    if (status == GP_OK)
        *info = decoder->info;
    return status;
}

gp_status gp_image_decode(gp_image_decoder *decoder, gp_pixels *out, const gp_image_want *want,
                          const void *data, size_t bytes, const char *name, gp_error *err)
{
    assert(want->channels == 0 || want->channels == 1 || want->channels == 3);
    assert(want->part.right == 0 ||
           (want->part.left < want->part.right && want->part.top < want->part.bottom));
    gp_status status = decoder_run(decoder, false, false, want, data, bytes, name, err);

    if (status == GP_OK)
        *out = decoder->out;
    return status;
}

gp_status gp_image_decode_index(gp_image_decoder *decoder, gp_pixels *out, const void *data, size_t bytes,
                                const char *name, gp_error *err)
{
    gp_status status = decoder_run(decoder, false, true, &(gp_image_want){ 0 }, data, bytes, name, err);

    if (status == GP_OK)
        *out = decoder->out;
    return status;
}

/* ---- encoding ---- */

/* Encode palette indices, or pixels with three bytes each, as a PNG file in memory. */
static gp_status png_write(uint8_t **file, size_t *bytes, png_image *image, const uint8_t *pixels,
                           const uint8_t *colours, gp_error *err)
{
    png_alloc_size_t size = 0;
    uint8_t *memory = NULL;

    /* The first call only computes the size. */
    errno = 0;
    if (png_image_write_to_memory(image, NULL, &size, 0, pixels, 0, colours) != 0) {
        memory = gp_malloc(size);
        if (memory == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a PNG file of %zu bytes", (size_t)size);
        if (png_image_write_to_memory(image, memory, &size, 0, pixels, 0, colours) != 0) {
            *file = memory;
            *bytes = size;
            return GP_OK;
        }
    }
    gp_free(memory);
    if (errno == ENOMEM)
        return gp_fail(err, GP_ENOMEM, "no memory for a PNG image");
    return gp_fail(err, GP_EINTERNAL, "cannot encode an image of %ux%u as PNG: %s", image->width,
                   image->height, image->message);
}

gp_status gp_image_to_png(uint8_t **file, size_t *bytes, const uint8_t *rgb, uint32_t width, uint32_t height,
                          gp_error *err)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB
    };

    return png_write(file, bytes, &image, rgb, NULL, err);
}

gp_status gp_image_index_to_png(uint8_t **file, size_t *bytes, const uint8_t *indices, const uint8_t *colours,
                                uint32_t colour_count, uint32_t width, uint32_t height, gp_error *err)
{
    png_image image = { .version = PNG_IMAGE_VERSION,
                        .width = width,
                        .height = height,
                        .format = PNG_FORMAT_RGB_COLORMAP,
                        .colormap_entries = colour_count };

    return png_write(file, bytes, &image, indices, colours, err);
}
