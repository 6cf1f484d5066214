/* Images and image folders. The tests create all files. */
#include "tests/gp_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/data/image/image.h"
#include "common/data/source/image_index.h"
#include "common/data/source/image_reader.h"
#include "common/data/source/image_store.h"
#include "common/data/image/resample.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/common/data/progress_seen.h"

/* Draw a picture with frequencies that survive JPEG compression. */
static void picture_draw(uint8_t *data, uint32_t width, uint32_t height, uint32_t channels)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < channels; c++)
                *data++ = (uint8_t)(127.5 + 60 * sin(x * 0.21 + c) + 60 * cos(y * 0.13 - c * 2));
}

static gp_status decode_file(gp_image_decoder *decoder, gp_pixels *pixels, gp_image_want want,
                             const char *path, gp_error *err)
{
    static uint8_t data[1 << 20];

    return gp_image_decode(decoder, pixels, &want, data, file_get(path, data, sizeof(data)), "file", err);
}

TEST(pngs_of_all_depths_decode_to_eight_bits)
{
    static const uint8_t rgb[] = { 1, 2, 3, 40, 50, 60, 255, 0, 9, 7, 7, 7 };
    static const uint8_t rgba[] = { 1, 2, 3, 0, 40, 50, 60, 255, 255, 0, 9, 1, 7, 7, 7, 128 };
    static const uint8_t grey[] = { 0, 85, 170, 255 }, grey_alpha[] = { 0, 9, 85, 9, 170, 9, 255, 9 };
    static const uint8_t two_bits[] = { 0x10, 0xb0 }, index[] = { 3, 0, 1, 200 };
    static const uint8_t deep[] = { 0, 0, 0x55, 0x55, 0xaa, 0xaa, 0xff, 0xff };
    static const uint8_t palette[] = { 3, 252, 21, 0, 255, 0, 1, 254, 7, 200, 55, 120 };
    static const uint8_t grey_rgb[] = { 0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255 };
    const struct {
        made_image image;
        uint32_t want;
        const uint8_t *expected;
        uint32_t channels;
    } cases[] = {
        { { 2, 2, 3, .data = rgb }, 0, rgb, 3 },
        { { 2, 2, 3, .data = rgb, .interlaced = true }, 3, rgb, 3 },
        { { 2, 2, 4, .data = rgba }, 3, rgb, 3 },
        { { 2, 2, 1, .data = grey }, 0, grey, 1 },
        { { 2, 2, 1, .data = grey }, 3, grey_rgb, 3 },
        { { 2, 2, 2, .data = grey_alpha }, 1, grey, 1 },
        { { 2, 2, 1, .bits = 2, .data = two_bits }, 0, grey, 1 },
        { { 2, 2, 1, .bits = 16, .data = deep }, 0, grey, 1 },
        { { 2, 2, 1, .bits = 16, .data = deep }, 3, grey_rgb, 3 },
        { { 2, 2, 1, .palette = true, .data = index }, 0, palette, 3 },
    };
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_png(in_folder("file.png"), &cases[i].image);
        REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = cases[i].want },
                               in_folder("file.png"), &err),
                   err);
        CHECK_INT(cases[i].channels, pixels.channels);
        CHECK_INT(2, pixels.width);
        CHECK(memcmp(cases[i].expected, pixels.data, 4 * cases[i].channels) == 0);
    }
    /* Colour to grey: 0.299 R + 0.587 G + 0.114 B. */
    make_png(in_folder("file.png"), &(made_image){ 2, 2, 3, .data = rgb });
    REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 1, .width = 0, .height = 0 },
                           in_folder("file.png"), &err),
               err);
    CHECK_INT(2, pixels.data[0]);
    CHECK_INT(48, pixels.data[1]);
    CHECK_INT(77, pixels.data[2]);
    CHECK_INT(7, pixels.data[3]);
    gp_image_decoder_free(decoder);
}

TEST(label_pngs_decode_to_the_stored_numbers)
{
    static const uint8_t index[] = { 3, 0, 1, 200 }, four_bits[] = { 0x0b, 0xf1 }, deep[8], rgb[12];
    static uint8_t data[1 << 16];
    const made_image bad[] = { { 2, 2, 1, .bits = 16, .data = deep }, { 2, 2, 3, .data = rgb } };
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;
    size_t bytes;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    make_png(in_folder("file.png"), &(made_image){ 2, 2, 1, .palette = true, .data = index });
    bytes = file_get(in_folder("file.png"), data, sizeof(data));
    REQUIRE_OK(gp_image_decode_index(decoder, &pixels, data, bytes, "file", &err), err);
    CHECK(memcmp(index, pixels.data, 4) == 0);
    make_png(in_folder("file.png"), &(made_image){ 2, 2, 1, .bits = 4, .data = four_bits });
    bytes = file_get(in_folder("file.png"), data, sizeof(data));
    REQUIRE_OK(gp_image_decode_index(decoder, &pixels, data, bytes, "file", &err), err);
    CHECK(memcmp("\x00\x0b\x0f\x01", pixels.data, 4) == 0);
    for (int i = 0; i < 2; i++) {
        make_png(in_folder("file.png"), &bad[i]);
        bytes = file_get(in_folder("file.png"), data, sizeof(data));
        CHECK_STATUS(GP_EUNSUPPORTED, gp_image_decode_index(decoder, &pixels, data, bytes, "file", &err));
    }
    make_jpeg(in_folder("file.jpg"), &(made_image){ 2, 2, 1, .data = index }, 90);
    bytes = file_get(in_folder("file.jpg"), data, sizeof(data));
    CHECK_STATUS(GP_EUNSUPPORTED, gp_image_decode_index(decoder, &pixels, data, bytes, "file", &err));
    CHECK_CONTAINS(err.message, "cannot be JPEG");
    gp_image_decoder_free(decoder);
}

/* Return the largest difference between two blocks of bytes. */
static int bytes_differ(const uint8_t *a, const uint8_t *b, size_t count)
{
    int most = 0;

    for (size_t i = 0; i < count; i++)
        if (abs(a[i] - b[i]) > most)
            most = abs(a[i] - b[i]);
    return most;
}

TEST(jpegs_of_all_colour_spaces_decode_correctly)
{
    enum { WIDTH = 61, HEIGHT = 47, COUNT = WIDTH * HEIGHT };
    static uint8_t rgb[COUNT * 3], grey[COUNT], cmyk[COUNT * 4], expected[COUNT * 3];
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    picture_draw(rgb, WIDTH, HEIGHT, 3);
    picture_draw(grey, WIDTH, HEIGHT, 1);
    for (int progressive = 0; progressive < 2; progressive++) {
        make_jpeg(in_folder("rgb.jpg"),
                  &(made_image){ WIDTH, HEIGHT, 3, .data = rgb, .progressive = progressive }, 95);
        REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 0, .width = 0, .height = 0 },
                               in_folder("rgb.jpg"), &err),
                   err);
        CHECK_INT(3, pixels.channels);
        CHECK_INT(WIDTH, pixels.width);
        CHECK_INT(HEIGHT, pixels.height);
        CHECK(bytes_differ(rgb, pixels.data, sizeof(rgb)) < 20);
    }
    make_jpeg(in_folder("grey.jpg"), &(made_image){ WIDTH, HEIGHT, 1, .data = grey }, 95);
    REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 0, .width = 0, .height = 0 },
                           in_folder("grey.jpg"), &err),
               err);
    CHECK_INT(1, pixels.channels);
    CHECK(bytes_differ(grey, pixels.data, sizeof(grey)) < 10);
    REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 3, .width = 0, .height = 0 },
                           in_folder("grey.jpg"), &err),
               err);
    CHECK_INT(3, pixels.channels);
    CHECK(abs(grey[COUNT / 2] - pixels.data[COUNT / 2 * 3 + 2]) < 10);
    /* CMYK is stored inverted, so RGB is the product of a colour and black. */
    for (int i = 0; i < COUNT; i++) {
        memcpy(cmyk + 4 * i, rgb + 3 * i, 3);
        cmyk[4 * i + 3] = (uint8_t)(128 + i % 61);
        for (int c = 0; c < 3; c++)
            expected[3 * i + c] = (uint8_t)(rgb[3 * i + c] * cmyk[4 * i + 3] / 255);
    }
    make_jpeg(in_folder("cmyk.jpg"), &(made_image){ WIDTH, HEIGHT, 4, .data = cmyk }, 98);
    REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 0, .width = 0, .height = 0 },
                           in_folder("cmyk.jpg"), &err),
               err);
    CHECK_INT(3, pixels.channels);
    CHECK(bytes_differ(expected, pixels.data, sizeof(expected)) < 12);
    REQUIRE_OK(decode_file(decoder, &pixels, (gp_image_want){ .channels = 1, .width = 0, .height = 0 },
                           in_folder("cmyk.jpg"), &err),
               err);
    CHECK_INT(1, pixels.channels);
    gp_image_decoder_free(decoder);
}

TEST(large_jpegs_decode_at_the_smallest_sufficient_scale)
{
    enum { WIDTH = 400, HEIGHT = 300 };
    static uint8_t rgb[WIDTH * HEIGHT * 3];
    const struct {
        uint32_t width, height, expected;
    } cases[] = { { 0, 0, 400 },    { 201, 100, 400 }, { 200, 150, 200 },
                  { 101, 20, 200 }, { 50, 37, 50 },    { 2, 2, 50 } };
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    picture_draw(rgb, WIDTH, HEIGHT, 3);
    make_jpeg(in_folder("file.jpg"), &(made_image){ WIDTH, HEIGHT, 3, .data = rgb }, 90);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        REQUIRE_OK(
            decode_file(decoder, &pixels,
                        (gp_image_want){ .channels = 3, .width = cases[i].width, .height = cases[i].height },
                        in_folder("file.jpg"), &err),
            err);
        CHECK_INT(cases[i].expected, pixels.width);
    }
    gp_image_decoder_free(decoder);
}

TEST(truncated_images_fail_with_the_file_name)
{
    enum { SIDE = 40 };
    static uint8_t rgb[SIDE * SIDE * 3], data[1 << 16];
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    picture_draw(rgb, SIDE, SIDE, 3);
    make_jpeg(in_folder("0"), &(made_image){ SIDE, SIDE, 3, .data = rgb }, 90);
    make_jpeg(in_folder("1"), &(made_image){ SIDE, SIDE, 3, .data = rgb, .progressive = true }, 90);
    make_png(in_folder("2"), &(made_image){ SIDE, SIDE, 3, .data = rgb });
    for (int kind = 0; kind < 3; kind++) {
        char name[2] = { (char)('0' + kind), '\0' };
        size_t bytes = file_get(in_folder(name), data, sizeof(data));

        /* The last twelve bytes are the PNG end marker, the last two the JPEG one. Without them,
         * the pixels are still complete. */
        for (size_t cut = 0; cut + 16 < bytes; cut += cut < 700 ? 1 : 13) {
            gp_status status =
                gp_image_decode(decoder, &pixels, &(gp_image_want){ 0 }, data, cut, "kitten.jpg", &err);

            CHECK(status == GP_ECORRUPT || (cut < 8 && status == GP_EUNSUPPORTED));
            CHECK_CONTAINS(err.message, "kitten.jpg");
        }
        REQUIRE_OK(gp_image_decode(decoder, &pixels, &(gp_image_want){ 0 }, data, bytes, "whole", &err), err);
    }
    gp_image_decoder_free(decoder);
}

TEST(oversized_images_are_rejected_before_allocation)
{
    static uint8_t row[30000 * 3], data[1 << 16];
    gp_image_decoder *decoder;
    gp_image_info info;
    gp_pixels pixels;
    gp_error err;
    size_t bytes;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    make_png(in_folder("wide.png"), &(made_image){ 30000, 1, 3, .data = row });
    bytes = file_get(in_folder("wide.png"), data, sizeof(data));
    CHECK_STATUS(GP_ELIMIT,
                 gp_image_decode(decoder, &pixels, &(gp_image_want){ 0 }, data, bytes, "wide.png", &err));
    CHECK_CONTAINS(err.message, "30000x1");
    make_jpeg(in_folder("wide.jpg"), &(made_image){ 30000, 1, 3, .data = row }, 50);
    bytes = file_get(in_folder("wide.jpg"), data, sizeof(data));
    CHECK_STATUS(GP_ELIMIT, gp_image_probe(decoder, &info, data, bytes, "wide.jpg", &err));

    /* A decompression bomb: the header announces 16000x16000, with a valid checksum, but only a few
     * kilobytes follow. */
    make_png(in_folder("bomb.png"), &(made_image){ 100, 1, 3, .data = row });
    bytes = file_get(in_folder("bomb.png"), data, sizeof(data));
    data[18] = data[22] = 0x3e;
    data[19] = data[23] = 0x80;
    {
        uint32_t crc = (uint32_t)crc32(0, data + 12, 17);

        for (int i = 0; i < 4; i++)
            data[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    CHECK_STATUS(GP_ELIMIT,
                 gp_image_decode(decoder, &pixels, &(gp_image_want){ 0 }, data, bytes, "bomb", &err));
    CHECK_CONTAINS(err.message, "16000x16000");
    gp_image_decoder_free(decoder);
}

/* ---- excessive work for few bytes ---- */

static size_t bytes_put(uint8_t *out, size_t at, const void *bytes, size_t count)
{
    memcpy(out + at, bytes, count);
    return at + count;
}

/* Append `pattern` `times` times as bits, highest bit first. Put a zero byte behind each 0xff, and
 * fill the last byte with ones. */
static size_t bits_put(uint8_t *out, size_t at, const char *pattern, size_t times)
{
    uint32_t byte = 0, held = 0;

    for (size_t i = 0; i < times * strlen(pattern) || held != 0; i++) {
        const bool more = i < times * strlen(pattern);

        byte = byte << 1 | (!more || pattern[i % strlen(pattern)] == '1');
        if (++held < 8)
            continue;
        out[at++] = (uint8_t)byte;
        if ((uint8_t)byte == 0xff)
            out[at++] = 0;
        held = 0;
        if (!more)
            break;
    }
    return at;
}

/* Create a progressive grey JPEG of one colour, side x side pixels, with `scans` scans over all
 * blocks. The first scan has one bit per block; the others cover runs of 32767 blocks with 15
 * bits. */
static size_t scans_make(uint8_t *out, uint32_t side, uint32_t scans)
{
    static const uint8_t tables[] = { 0xff, 0xc4, 0, 20, 0x00, 1, 0, 0,    0,    0, 0,  0,    0, 0,   0,
                                      0,    0,    0, 0,  0,    0, 0, 0xff, 0xc4, 0, 20, 0x10, 1, 0,   0,
                                      0,    0,    0, 0,  0,    0, 0, 0,    0,    0, 0,  0,    0, 0xe0 },
                         first[] = { 0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0 },
                         other[] = { 0xff, 0xda, 0, 8, 1, 1, 0, 1, 63, 0 };
    const uint8_t frame[] = {
        0xff,          0xc2, 0, 11,   8, (uint8_t)(side >> 8), (uint8_t)side, (uint8_t)(side >> 8),
        (uint8_t)side, 1,    1, 0x11, 0
    };
    const size_t blocks = (size_t)((side + 7) / 8) * ((side + 7) / 8);
    uint8_t quantisation[69] = { 0xff, 0xdb, 0, 67, 0 };
    size_t at = bytes_put(out, 0, "\xff\xd8", 2);

    memset(quantisation + 5, 1, 64);
    at = bytes_put(out, at, quantisation, sizeof(quantisation));
    at = bytes_put(out, at, frame, sizeof(frame));
    at = bytes_put(out, at, tables, sizeof(tables));
    at = bytes_put(out, at, first, sizeof(first));
    at = bits_put(out, at, "0", blocks);
    for (uint32_t i = 1; i < scans; i++) {
        at = bytes_put(out, at, other, sizeof(other));
        at = bits_put(out, at, "011111111111111", (blocks + 32766) / 32767);
    }
    return bytes_put(out, at, "\xff\xd9", 2);
}

TEST(jpegs_with_too_many_scans_are_rejected)
{
    static uint8_t data[1 << 18];
    static const struct {
        uint32_t side, scans;
        const char *refused; /* NULL: accepted */
    } cases[] = {
        { 64, 200, NULL },
        { 64, 201, "has more than 200 scans" },
        { 4096, 90, NULL },
        { 4096, 97, "the JPEG of 4096x4096 (width x height) has more than 96 scans" },
        { 8192, 25, "has more than 24 scans" },
    };
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const size_t bytes = scans_make(data, cases[i].side, cases[i].scans);
        const gp_status status = gp_image_decode(
            decoder, &pixels, &(gp_image_want){ .width = 8, .height = 8 }, data, bytes, "bomb.jpg", &err);

        CHECK(bytes < sizeof(data));
        CHECK_STATUS(cases[i].refused == NULL ? GP_OK : GP_ELIMIT, status);
        if (status == GP_OK)
            CHECK_INT(128, pixels.data[0]);
        else
            CHECK_CONTAINS(err.message, cases[i].refused);
    }
    gp_image_decoder_free(decoder);
}

/* Resample directly from the definition, in double precision. */
static double resampled(const uint8_t *row, uint32_t from, size_t step, uint32_t to, uint32_t at)
{
    double scale = (double)from / to, support = scale > 1 ? scale : 1, sum = 0, total = 0;

    for (uint32_t i = 0; i < from; i++) {
        double weight = fmax(0, 1 - fabs((i + 0.5 - (at + 0.5) * scale) / support));

        sum += weight * row[i * step];
        total += weight;
    }
    return sum / total;
}

TEST(resized_images_match_the_reference_within_one_level)
{
    enum { WIDTH = 73, HEIGHT = 58 };
    static const uint32_t sizes[][2] = { { 58, 73 },  { 20, 20 }, { 7, 150 },
                                         { 116, 30 }, { 1, 1 },   { 224, 224 } };
    static uint8_t in[WIDTH * HEIGHT * 3], out[224 * 224 * 3], column[HEIGHT];
    gp_pixels pixels = { .data = in, .width = WIDTH, .height = HEIGHT, .channels = 3 };
    gp_resampler *resampler;
    gp_error err;

    REQUIRE_OK(gp_resampler_new(&resampler, &err), err);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t height = sizes[i][0], width = sizes[i][1];
        double worst = 0;

        REQUIRE_OK(gp_resample(resampler, out, height, width, &pixels, &err), err);
        for (uint32_t c = 0; c < 3; c++)
            for (uint32_t x = 0; x < width; x++) {
                /* Rows first, then the column: the filter is separable. */
                double sums[HEIGHT];

                for (uint32_t y = 0; y < HEIGHT; y++)
                    sums[y] = resampled(in + (size_t)y * WIDTH * 3 + c, WIDTH, 3, width, x);
                for (uint32_t y = 0; y < height; y++) {
                    double scale = (double)HEIGHT / height, support = scale > 1 ? scale : 1, sum = 0,
                           total = 0;

                    for (uint32_t k = 0; k < HEIGHT; k++) {
                        double weight = fmax(0, 1 - fabs((k + 0.5 - (y + 0.5) * scale) / support));

                        sum += weight * sums[k];
                        total += weight;
                    }
                    worst = fmax(worst, fabs(sum / total - out[((size_t)c * height + y) * width + x]));
                }
            }
        CHECK(worst < 0.75);
    }
    /* A flat image stays flat at any scale. */
    memset(in, 201, sizeof(in));
    for (uint32_t side = 1; side < 150; side += 7) {
        REQUIRE_OK(gp_resample(resampler, out, side, side, &pixels, &err), err);
        for (uint32_t i = 0; i < side * side * 3; i++)
            REQUIRE(out[i] == 201);
    }
    for (uint32_t y = 0; y < HEIGHT; y++)
        column[y] = (uint8_t)y;
    gp_resample_nearest(out, 29, 2,
                        &(gp_pixels){ .data = column, .width = 1, .height = HEIGHT, .channels = 1 });
    CHECK_INT(1, out[0]);
    CHECK_INT(1, out[1]);
    CHECK_INT(57, out[57]);
    gp_resampler_free(resampler);
}

/* ---- folders ---- */

/* Create a PNG of one colour, side x side pixels, and any missing directories. */
static void tile_put(const char *name, uint32_t side, uint8_t red)
{
    uint8_t data[64 * 64 * 3];
    char command[320];

    for (size_t i = 0; i < (size_t)side * side * 3; i += 3) {
        data[i] = red;
        data[i + 1] = (uint8_t)(red + 1);
        data[i + 2] = (uint8_t)(red + 2);
    }
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", in_folder(name));
    if (system(command) != 0)
        abort();
    make_png(in_folder(name), &(made_image){ side, side, 3, .data = data });
}

static gp_store_options sized(uint32_t channels, uint32_t height, uint32_t width)
{
    return (gp_store_options){ .channels = channels, .height = height, .width = width };
}

static gp_status open_with(gp_store **store, const char *name, gp_data_role role, gp_store_options options,
                           gp_error *err)
{
    return gp_store_open_with(store, in_folder(name), role, &options, err);
}

static gp_status open_and_close(const char *name, gp_data_role role, gp_store_options options, gp_error *err)
{
    gp_store *store;
    gp_status status = open_with(&store, name, role, options, err);

    if (status == GP_OK)
        gp_store_close(store);
    return status;
}

TEST(class_folders_become_labels_in_name_order)
{
    static uint8_t samples[5][3 * 16];
    const uint32_t index[] = { 4, 0, 1, 2, 3 };
    int32_t labels[5];
    char name[64];
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("dog/2.png", 4, 60);
    tile_put("dog/10.PNG", 4, 50);
    tile_put("cat/b.png", 4, 20);
    tile_put("cat/a.jpg", 4, 10); /* actually a PNG, as its first bytes show */
    tile_put("cat/sub/a.jpeg", 4, 30);
    file_put(in_folder("cat/notes.txt"), "x", 1);
    file_put(in_folder("cat/.hidden.png"), "x", 1);
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err), err);
    CHECK_TEXT("folder", gp_store_get_info(store)->kind);
    CHECK_INT(5, gp_store_get_info(store)->count);
    CHECK_INT(3, gp_store_get_info(store)->channels);
    CHECK_INT(4, gp_store_get_info(store)->height);
    CHECK_INT(2, gp_store_get_info(store)->class_count);
    CHECK_TEXT("cat", gp_store_get_info(store)->class_names[0]);
    CHECK_TEXT("dog", gp_store_get_info(store)->class_names[1]);
    REQUIRE_OK(gp_store_read(store, index, 5, samples, labels, &err), err);
    CHECK_INT(60, samples[0][0]);
    CHECK_INT(61, samples[0][16]);
    CHECK_INT(62, samples[0][47]);
    for (uint8_t i = 1; i < 5; i++) {
        CHECK_INT(10 * i + (i == 4 ? 10 : 0), samples[i][0]);
        CHECK_INT(i == 4, labels[i]);
    }
    CHECK_INT(1, labels[0]);
    CHECK_TEXT("cat/sub/a.jpeg", gp_store_name(store, 2, name, sizeof(name)));
    gp_store_close(store);
    CHECK_STATUS(GP_ENOENT, open_and_close("", GP_DATA_TEST, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "no test images");
    CHECK_STATUS(GP_OK, open_and_close("", GP_DATA_GIVEN, (gp_store_options){ 0 }, &err));
}

TEST(train_and_test_folders_become_parts)
{
    gp_store *store;
    gp_error err;
    uint8_t sample[3 * 16];
    int32_t label;

    folder_make();
    tile_put("train/cat/1.png", 4, 10);
    tile_put("train/dog/1.png", 4, 20);
    tile_put("train/eel/1.png", 4, 30);
    tile_put("val/dog/1.png", 4, 40);
    for (int role = GP_DATA_TEST; role <= GP_DATA_GIVEN; role++) {
        REQUIRE_OK(open_with(&store, "", (gp_data_role)role, (gp_store_options){ 0 }, &err), err);
        CHECK_INT(1, gp_store_get_info(store)->count);
        CHECK_INT(3, gp_store_get_info(store)->class_count);
        REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, sample, &label, &err), err);
        CHECK_INT(1, label);
        CHECK_INT(40, sample[0]);
        gp_store_close(store);
    }
    tile_put("val/fox/1.png", 4, 40);
    CHECK_STATUS(GP_ECORRUPT, open_and_close("", GP_DATA_TEST, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "fox");
    /* A test part may have images without classes; they are for prediction only. */
    tile_put("pets/train/cat/1.png", 4, 10);
    tile_put("pets/train/dog/1.png", 4, 20);
    tile_put("pets/test/1.png", 4, 30);
    REQUIRE_OK(open_with(&store, "pets", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->class_count);
    CHECK_TEXT("cat", gp_store_get_info(store)->class_names[0]);
    gp_store_close(store);
    CHECK_STATUS(GP_ENOENT, open_and_close("pets", GP_DATA_TEST, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "pets/test");
    tile_put("pets/unlabeled/1.png", 4, 30);
    CHECK_STATUS(GP_ECORRUPT, open_and_close("pets", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "pets has the parts train/ and test/, and also unlabeled/");

    /* Folders with these names that contain images directly are classes. */
    tile_put("toys/train/1.png", 4, 10);
    tile_put("toys/test/1.png", 4, 20);
    REQUIRE_OK(open_with(&store, "toys", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err), err);
    CHECK_TEXT("test", gp_store_get_info(store)->class_names[0]);
    gp_store_close(store);
}

TEST(mixed_sizes_are_resized_to_the_requested_size)
{
    static uint8_t rgb[64 * 48 * 3], grey[2 * 20 * 30];
    static const uint32_t index[] = { 0, 1 };
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("a/1.png", 32, 99);
    picture_draw(rgb, 64, 48, 3);
    make_jpeg(in_folder("a/2.jpg"), &(made_image){ 64, 48, 3, .data = rgb }, 90);
    CHECK_STATUS(GP_EINVAL, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "a/1.png has 32x32");
    CHECK_CONTAINS(err.message, "a/2.jpg has 48x64");
    CHECK_CONTAINS(err.message, "--image-size");
    CHECK_STATUS(GP_OK, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ .any_size = true }, &err));
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, sized(1, 20, 30), &err), err);
    CHECK_INT(600, gp_store_get_info(store)->sample_bytes);
    REQUIRE_OK(gp_store_read(store, index, 2, grey, NULL, &err), err);
    CHECK_INT(100, grey[0]); /* 99, 100, 101 */
    CHECK_INT(100, grey[599]);
    gp_store_close(store);
    CHECK_STATUS(GP_EINVAL, open_and_close("", GP_DATA_TRAIN, sized(4, 20, 30), &err));
}

/* A kind of invalid image file, and the expected part of the error message. */
typedef struct bad_kind {
    const char *what, *said;
    void (*put)(const char *path);
} bad_kind;

static uint8_t noise[30000 * 3];

static void png_cut(const char *path)
{
    make_png(path, &(made_image){ 30, 30, 3, .data = noise });
    if (truncate(path, 300) != 0)
        abort();
}

static void jpeg_cut(const char *path)
{
    make_jpeg(path, &(made_image){ 60, 60, 3, .data = noise }, 90);
    if (truncate(path, 900) != 0)
        abort();
}

static void nothing_put(const char *path)
{
    file_put(path, "", 0);
}

static void other_put(const char *path)
{
    file_put(path, "GIF89a\1\0\1\0", 10);
}

static void wide_put(const char *path)
{
    make_png(path, &(made_image){ 30000, 1, 3, .data = noise });
}

static void wide_jpeg_put(const char *path)
{
    make_jpeg(path, &(made_image){ 30000, 1, 1, .data = noise }, 90);
}

static void bomb_put(const char *path)
{
    static uint8_t data[1 << 12];
    size_t bytes;

    make_png(path, &(made_image){ 8, 8, 1, .data = noise });
    bytes = file_get(path, data, sizeof(data));
    data[18] = data[22] = 0xea; /* 59904x59904 */
    uint32_t crc = (uint32_t)crc32(0, data + 12, 17);

    for (int i = 0; i < 4; i++)
        data[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    file_put(path, data, bytes);
}

static void scans_put(const char *path)
{
    static uint8_t data[1 << 18];

    file_put(path, data, scans_make(data, 4096, 97));
}

static const bad_kind bad_kinds[] = {
    { "a PNG cut off", "truncated", png_cut },
    { "a JPEG cut off", "truncated", jpeg_cut },
    { "nothing", "damaged", nothing_put },
    { "another format", "is neither a JPEG nor a PNG", other_put },
    { "30000 pixels wide", "30000x1", wide_put },
    { "30000 pixels wide, JPEG", "30000x1", wide_jpeg_put },
    { "a bomb", "the image has 59", bomb_put },
    { "a bomb of scans", "more than 96 scans", scans_put },
};

TEST(bad_image_files_fail_by_name_or_are_skipped)
{
    static const uint32_t index[] = { 0, 1, 2 };
    const gp_store_options error = sized(3, 4, 4);
    gp_store_options skip = error;
    uint8_t samples[3][48];
    int32_t labels[3];
    gp_store *store;
    gp_error err;

    skip.on_error = GP_ON_ERROR_SKIP;
    folder_make();
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 2654435761u >> 11);
    tile_put("a/1.png", 4, 10);
    tile_put("b/3.png", 4, 30);
    for (size_t kind = 0; kind < sizeof(bad_kinds) / sizeof(bad_kinds[0]); kind++) {
        uint32_t first[GP_SKIPPED_NAMED_MAX];
        char name[64];

        bad_kinds[kind].put(in_folder("a/2.png"));
        CHECK(open_and_close("", GP_DATA_TRAIN, error, &err) != GP_OK);
        CHECK_CONTAINS(err.message, "a/2.png");
        CHECK_CONTAINS(err.message, kind == 2 ? "a/2.png" : bad_kinds[kind].said);
        REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
        REQUIRE_OK(gp_store_read(store, index, 3, samples, labels, &err), err);
        CHECK_INT(0, labels[0]);
        CHECK_INT(-1, labels[1]);
        CHECK_INT(0, samples[1][0]);
        CHECK_INT(1, labels[2]);
        CHECK_INT(30, samples[2][0]);
        REQUIRE_OK(gp_store_read(store, index, 3, samples, labels, &err), err);
        CHECK_INT(1, gp_store_skipped(store));
        REQUIRE(gp_store_skipped_first(store, first) == 1);
        CHECK_TEXT("a/2.png", gp_store_name(store, first[0], name, sizeof(name)));
        gp_store_close(store);
    }
}

/* The next images would fail too, and other workers would not skip them. */
TEST(images_are_not_skipped_because_of_failures_of_the_host)
{
    gp_store_options skip = sized(3, 4, 4);
    struct rlimit old, none;
    uint8_t sample[48];
    int32_t label;
    gp_store *store;
    gp_error err;

    skip.on_error = GP_ON_ERROR_SKIP;
    skip.cache_bytes = 1; /* no cache */
    folder_make();
    tile_put("a/1.png", 4, 10);
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
    getrlimit(RLIMIT_NOFILE, &old);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = old.rlim_max };
    setrlimit(RLIMIT_NOFILE, &none);
    const gp_status status = gp_store_read(store, &(uint32_t){ 0 }, 1, sample, &label, &err);

    setrlimit(RLIMIT_NOFILE, &old);
    CHECK_STATUS(GP_EIO, status);
    CHECK_INT(0, gp_store_skipped(store));
    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, sample, &label, &err), err);
    CHECK_INT(0, label);
    gp_store_close(store);
}

TEST(readable_images_of_any_kind_are_not_skipped)
{
    static const uint32_t index[] = { 0, 1, 2, 3, 4 };
    gp_store_options skip = sized(3, 4, 4);
    uint8_t samples[5][48];
    int32_t labels[5];
    gp_store *store;
    gp_error err;

    skip.on_error = GP_ON_ERROR_SKIP;
    folder_make();
    tile_put("a/tile.png", 4, 10);
    make_jpeg(in_folder("a/cmyk.jpg"), &(made_image){ 20, 20, 4, .data = noise }, 90);
    make_png(in_folder("a/deep.png"), &(made_image){ 20, 20, 3, .bits = 16, .data = noise });
    make_jpeg(in_folder("a/grey.jpg"), &(made_image){ 20, 20, 1, .data = noise }, 90);
    make_jpeg(in_folder("a/named-so.png"), &(made_image){ 20, 20, 3, .data = noise },
              90); /* actually a JPEG */
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
    CHECK_INT(5, gp_store_get_info(store)->count);
    REQUIRE_OK(gp_store_read(store, index, 5, samples, labels, &err), err);
    CHECK_INT(0, gp_store_skipped(store));
    for (int i = 0; i < 5; i++)
        CHECK_INT(0, labels[i]);
    gp_store_close(store);
}

TEST(empty_classes_link_loops_and_unreadable_folders_are_reported)
{
    gp_store_options skip = { .on_error = GP_ON_ERROR_SKIP };
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("data/a/1.png", 4, 10);
    REQUIRE(mkdir(in_folder("data/b"), 0755) == 0);
    CHECK_STATUS(GP_ECORRUPT, open_and_close("data", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "class b has no images");
    REQUIRE_OK(open_with(&store, "data", GP_DATA_TRAIN, skip, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->class_count);
    CHECK_INT(1, gp_store_get_info(store)->left_out);
    CHECK_CONTAINS(gp_store_get_info(store)->left_out_first, "class b has no images");
    gp_store_close(store);
    REQUIRE(symlink("../a", in_folder("data/b/link")) == 0); /* a link to a directory is followed */
    REQUIRE(symlink("nowhere.png", in_folder("data/b/dangling.png")) == 0);
    REQUIRE_OK(open_with(&store, "data", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->count);
    gp_store_close(store);
    REQUIRE(symlink("..", in_folder("data/a/up")) == 0);
    REQUIRE(symlink("../a", in_folder("data/a/self")) == 0);
    CHECK_STATUS(GP_ECORRUPT, open_and_close("data", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "data/a/self is a symbolic link to one of its parents");
    REQUIRE_OK(open_with(&store, "data", GP_DATA_TRAIN, skip, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->count);
    CHECK(gp_store_get_info(store)->left_out >= 2);
    CHECK_CONTAINS(gp_store_get_info(store)->left_out_first, "is a symbolic link to one of its parents");
    gp_store_close(store);
    unlink(in_folder("data/a/up"));
    unlink(in_folder("data/a/self"));
    if (geteuid() == 0 && (chmod(folder, 0755) != 0 || seteuid(65534) != 0))
        abort();
    if (geteuid() != 0) {
        int owner = seteuid(0); /* succeeds only if the process belongs to root */

        REQUIRE(chmod(in_folder("data/b"), 0) == 0);
        if (owner == 0)
            REQUIRE(seteuid(65534) == 0);
        CHECK_STATUS(GP_EPERM, open_and_close("data", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
        CHECK_CONTAINS(err.message, "data/b: Permission denied");
        CHECK_STATUS(GP_OK, open_with(&store, "data", GP_DATA_TRAIN, skip, &err));
        CHECK_CONTAINS(gp_store_get_info(store)->left_out_first, "data/b: Permission denied");
        gp_store_close(store);
        if (owner == 0)
            REQUIRE(seteuid(0) == 0);
    }
}

/* Opening inspects only some images of a source. */
TEST(an_image_of_another_size_is_never_resized_without_a_request)
{
    static const uint32_t index = 3;
    gp_store_options exact = sized(1, 4, 4), given = exact;
    char command[200];
    uint8_t sample[16];
    int32_t label;
    gp_store *store;
    gp_error err;

    memcpy(exact.exact, (const uint32_t[3]){ 1, 4, 4 }, sizeof(exact.exact));
    folder_make();
    make_png(in_folder("grey.png"), &(made_image){ 4, 4, 1, .data = noise });
    snprintf(command, sizeof(command),
             "cd '%s' && mkdir -p s/a && for i in $(seq -w 0 1499); do ln grey.png s/a/$i.png; done", folder);
    REQUIRE(system(command) == 0);
    for (int kind = 0; kind < 2; kind++) { /* another size, then a colour image */
        unlink(in_folder("s/a/0003.png"));
        make_png(in_folder("s/a/0003.png"), kind == 0 ? &(made_image){ 8, 4, 1, .data = noise }
                                                      : &(made_image){ 4, 4, 3, .data = noise });
        REQUIRE_OK(open_with(&store, "s", GP_DATA_TRAIN, exact, &err), err);
        CHECK_STATUS(GP_EINVAL, gp_store_read(store, &index, 1, sample, &label, &err));
        CHECK_CONTAINS(err.message, kind == 0 ? "0003.png has 1x4x8 values" : "0003.png has 3x4x4 values");
        CHECK_CONTAINS(err.message, "but the network needs 1x4x4; resize the images with --image-size 4,4");
        gp_store_close(store);
        REQUIRE_OK(open_with(&store, "s", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err), err);
        CHECK_STATUS(GP_EINVAL, gp_store_read(store, &index, 1, sample, &label, &err));
        CHECK_CONTAINS(err.message, "but the other images have 1x4x4");
        gp_store_close(store);
        REQUIRE_OK(open_with(&store, "s", GP_DATA_TRAIN, given, &err), err);
        CHECK_STATUS(GP_OK, gp_store_read(store, &index, 1, sample, &label, &err));
        gp_store_close(store);
    }
}

/* ---- pixel labels ---- */

/* Create a picture and a label image, side x side pixels. Label columns are 0, 1, 2, 0, 1, 2,
 * ... */
static void scene_put(const char *image, const char *label, uint32_t side, bool coloured)
{
    static const uint8_t colours[3][3] = { { 10, 20, 30 }, { 0, 0, 0 }, { 200, 0, 0 } };
    uint8_t numbers[64 * 64], rgb[64 * 64 * 3];
    char command[320];

    tile_put(image, side, 50);
    for (uint32_t i = 0; i < side * side; i++) {
        numbers[i] = (uint8_t)(i % side % 3);
        memcpy(rgb + 3 * i, colours[numbers[i]], 3);
    }
    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", in_folder(label));
    if (system(command) != 0)
        abort();
    make_png(in_folder(label), coloured ? &(made_image){ side, side, 3, .data = rgb }
                                        : &(made_image){ side, side, 1, .palette = true, .data = numbers });
}

static void text_put(const char *name, const char *text)
{
    file_put(in_folder(name), text, strlen(text));
}

TEST(label_images_are_paired_by_name_and_void_is_ignored)
{
    static const char *const layouts[][4] = {
        { "train/a.png", "trainannot/a.png", "val/b.png", "valannot/b.png" },
        { "train/a.png", "train_labels/a_L.png", "val/b.png", "val_labels/b_L.png" },
        { "train/images/x/a.png", "train/labels/x/a_mask.png", "test/images/b.png", "test/labels/b.png" },
        { "images/train/a.png", "labels/train/a.png", "images/test/b.png", "labels/test/b.png" }
    };
    static uint8_t samples[6 * 6 * 3];
    int32_t targets[36];
    gp_store *store;
    gp_error err;

    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        for (int coloured = 0; coloured < 2; coloured++) {
            folder_make();
            scene_put(layouts[i][0], layouts[i][1], 6, coloured);
            scene_put(layouts[i][2], layouts[i][3], 6, coloured);
            text_put("classes.csv", "\nname,r,g,b\nroad,10,20,30\nVoid,0,0,0\n\"sky, blue\",200,0,0\n");
            for (int role = GP_DATA_TRAIN; role <= GP_DATA_GIVEN; role++) {
                REQUIRE_OK(open_with(&store, "", (gp_data_role)role, (gp_store_options){ 0 }, &err), err);
                CHECK_TEXT("pixels", gp_store_get_info(store)->kind);
                CHECK_INT(1, gp_store_get_info(store)->count);
                CHECK_INT(2, gp_store_get_info(store)->class_count);
                CHECK_TEXT("sky, blue", gp_store_get_info(store)->class_names[1]);
                CHECK_INT(36 * 4, gp_store_get_info(store)->target_bytes);
                for (int again = 0; again < 2; again++) { /* decoded first, then from the cache */
                    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, samples, targets, &err), err);
                    CHECK_INT(50, samples[0]);
                    for (int k = 0; k < 36; k++)
                        CHECK_INT(k % 3 == 0 ? 0 : k % 3 == 1 ? -1 : 1, targets[k]);
                }
                gp_store_close(store);
            }
            /* Labels are resized to the nearest pixel: columns 1 and 4 of six. */
            REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, sized(3, 2, 2), &err), err);
            REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, samples, targets, &err), err);
            CHECK_INT(-1, targets[0]);
            CHECK_INT(-1, targets[1]);
            gp_store_close(store);
        }
}

TEST(invalid_pixel_labels_are_reported)
{
    static uint8_t samples[2 * 6 * 6 * 3];
    static int32_t targets[2 * 36];
    gp_store_options skip = sized(3, 6, 6);
    gp_store *store;
    gp_error err;

    skip.on_error = GP_ON_ERROR_SKIP;

    folder_make();
    scene_put("images/a.png", "labels/a.png", 6, false);
    CHECK_STATUS(GP_ENOENT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "classes.csv");
    text_put("classes.csv", "road\nvoid\n");
    CHECK_STATUS(GP_ECORRUPT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "labels/a.png: the label of pixel 0,2 (row, column) is 2,");
    text_put("classes.csv", "road\nvoid\nsky\n");
    CHECK_STATUS(GP_OK, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_STATUS(GP_ENOENT, open_and_close("", GP_DATA_TEST, (gp_store_options){ 0 }, &err));
    scene_put("images/b.png", "labels/b.png", 6, true);
    CHECK_STATUS(GP_EUNSUPPORTED, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "name,red,green,blue");
    text_put("classes.csv", "road,1,2,3\nvoid,0,0,0\nsky,200,0,0\n");
    CHECK_STATUS(GP_ECORRUPT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "the color of pixel 0,0 (row, column) is 10,20,30");
    scene_put("images/c.png", "labels/b.png", 8, false);
    CHECK_STATUS(GP_ENOENT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "images/c.png has no label image");
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
    CHECK_INT(1, gp_store_get_info(store)->left_out);
    CHECK_CONTAINS(gp_store_get_info(store)->left_out_first, "images/c.png has no label image");
    gp_store_close(store);
    unlink(in_folder("images/c.png"));
    CHECK_STATUS(GP_ECORRUPT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message,
                   "labels/b.png has 8x8 pixels (height x width), but the image that it labels has 6x6");
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
    REQUIRE_OK(gp_store_read(store, (uint32_t[]){ 0, 1 }, 2, samples, targets, &err), err);
    CHECK_INT(1, gp_store_skipped(store));
    for (int i = 0; i < 36; i++)
        CHECK_INT(-1, targets[36 + i]);
    gp_store_close(store);

    /* to count the classes, the label images are read alone */
    text_put("labels/b.png", "no image");
    REQUIRE_OK(open_with(&store, "", GP_DATA_TRAIN, skip, &err), err);
    REQUIRE_OK(gp_store_read(store, (uint32_t[]){ 0, 1 }, 2, NULL, targets, &err), err);
    CHECK_INT(1, gp_store_skipped(store));
    CHECK_INT(-1, targets[36]);
    gp_store_close(store);
    text_put("classes.csv", "road,1,2,3\nsky,1,2,300\n");
    CHECK_STATUS(GP_ECORRUPT, open_and_close("", GP_DATA_TRAIN, (gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "line 2");
}

static gp_store *shared;
static uint8_t shared_expected[40 * 48];

static void *reads_all(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    intptr_t wrong = 0;

    for (int i = 0; i < 2000; i++) {
        uint32_t index = (uint32_t)rand_r(&seed) % 40;
        uint8_t sample[48];
        int32_t label;
        gp_error err;

        if (gp_store_read(shared, &index, 1, sample, &label, &err) != GP_OK || label != (int32_t)index / 20 ||
            memcmp(sample, shared_expected + index * 48, 48) != 0)
            wrong++;
    }
    return (void *)wrong;
}

TEST(concurrent_reads_agree_for_any_cache_size)
{
    uint32_t index[40];
    gp_error err;

    folder_make();
    for (int i = 0; i < 40; i++) {
        char name[32];

        index[i] = (uint32_t)i;
        snprintf(name, sizeof(name), "%c/%02d.png", 'a' + i / 20, i);
        tile_put(name, 4, (uint8_t)(i * 5));
    }
    /* No cache, then room for half of the images, then for all. */
    for (uint64_t cache = 1; cache < 4096; cache = cache == 1 ? 20 * 48 : cache + 20 * 48) {
        pthread_t threads[4];
        unsigned seeds[4] = { 1, 2, 3, 4 };

        REQUIRE_OK(open_with(&shared, "", GP_DATA_TRAIN, (gp_store_options){ .cache_bytes = cache }, &err),
                   err);
        REQUIRE_OK(gp_store_read(shared, index, 40, shared_expected, NULL, &err), err);
        CHECK_INT(39 * 5, shared_expected[39 * 48]);
        gp_store_close(shared);
        REQUIRE_OK(open_with(&shared, "", GP_DATA_TRAIN, (gp_store_options){ .cache_bytes = cache }, &err),
                   err);
        for (int i = 0; i < 4; i++)
            if (pthread_create(&threads[i], NULL, reads_all, &seeds[i]) != 0)
                abort();
        for (int i = 0; i < 4; i++) {
            void *wrong;

            pthread_join(threads[i], &wrong);
            CHECK_INT(0, (intptr_t)wrong);
        }
        gp_store_close(shared);
    }
}

TEST(an_image_list_takes_few_bytes_per_image)
{
    gp_image_list list;
    uint32_t place;
    gp_error err;

    gp_image_list_init(&list);
    REQUIRE_OK(gp_image_list_add_place(&list, "/data/imagenet/train/n01440764", &place, &err), err);
    for (int i = 0; i < 100000; i++) {
        char name[64];

        snprintf(name, sizeof(name), "n01440764_%08d.JPEG", i);
        REQUIRE_OK(gp_image_list_add(&list, place, name, 0, &err), err);
    }
    gp_image_list_trim(&list);
    CHECK(gp_image_list_bytes(&list) <= 100000 * 50);
    CHECK_TEXT("n01440764_00099999.JPEG", gp_image_list_name(&list, 99999));
    gp_image_list_deinit(&list);
}

/* Set back all directories' modification times, so that lists are cached. */
static void folders_age(void)
{
    char command[200];

    snprintf(command, sizeof(command), "find '%s/data' -type d -exec touch -d 2020-02-02 {} +", folder);
    if (system(command) != 0)
        abort();
}

/* Open the cached list for in_folder("data") by the name `source`. The paths must start with that
 * name. */
static void cached_list_check(const char *source, const char *first_path)
{
    const gp_store_options options = { 0 };
    gp_image_list list;
    char path[500];
    gp_error err;

    REQUIRE_OK(gp_folder_list(&list, source, GP_DATA_TRAIN, &options, &err), err);
    CHECK(list.from_index);
    gp_image_list_path(&list, 0, path, sizeof(path));
    CHECK_TEXT(first_path, path);
    gp_image_list_deinit(&list);
}

/* The list was cached under an absolute path. Check that relative names find it, too. */
static void cached_lists_check(void)
{
    char here[400];

    REQUIRE(getcwd(here, sizeof(here)) != NULL && chdir(folder) == 0);
    cached_list_check("data", "data/a/00000.jpg");
    cached_list_check("./data/", "./data//a/00000.jpg");
    cached_list_check(in_folder("data"), in_folder("data/a/00000.jpg"));
    REQUIRE(chdir(here) == 0);
}

TEST(a_long_list_is_cached_until_a_folder_changes)
{
    progress_seen seen = { 0 };
    const gp_progress progress = { progress_seen_report, &seen };
    const gp_store_options options = { .progress = &progress };
    gp_image_list list;
    char path[160];
    gp_error err;

    folder_make();
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    REQUIRE(mkdir(in_folder("data"), 0755) == 0 && mkdir(in_folder("data/a"), 0755) == 0 &&
            mkdir(in_folder("data/b"), 0755) == 0);
    for (int i = 0; i < GP_IMAGE_INDEX_COUNT_MIN; i++) {
        snprintf(path, sizeof(path), "data/%c/%05d.jpg", 'a' + i % 2, i);
        close(open(in_folder(path), O_CREAT | O_WRONLY, 0644));
    }
    for (int turn = 0; turn < 3; turn++) {
        REQUIRE_OK(gp_folder_list(&list, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
        /* the first time, the folders were too recently changed */
        CHECK_INT(turn == 2, list.from_index);
        CHECK_INT(turn != 2, progress_seen_find(&seen, "listing", "class folders") != NULL);
        if (turn != 2)
            CHECK_PROGRESS(&seen, "listing", "class folders", 2, 2);
        memset(&seen, 0, sizeof(seen));
        CHECK_INT(GP_IMAGE_INDEX_COUNT_MIN, list.count);
        CHECK_TEXT("00003.jpg", gp_image_list_name(&list, GP_IMAGE_INDEX_COUNT_MIN / 2 + 1));
        CHECK_INT(1, list.labels[GP_IMAGE_INDEX_COUNT_MIN / 2 + 1]);
        CHECK_TEXT("b", gp_image_list_class(&list, 1));
        CHECK(gp_image_list_bytes(&list) < 60ull * GP_IMAGE_INDEX_COUNT_MIN);
        gp_image_list_deinit(&list);
        folders_age();
    }
    cached_lists_check();
    close(open(in_folder("data/b/new.jpg"), O_CREAT | O_WRONLY, 0644));

    /* gp_store_prepare(), which the client calls before workers open the source, caches the new
     * list. */
    folders_age();
    /* the old list would be valid again with this modification time */
    snprintf(path, sizeof(path), "rm -r '%s/cache'", folder);
    REQUIRE(system(path) == 0);
    gp_store_prepare(in_folder("data"), GP_DATA_TRAIN, &progress);
    CHECK_PROGRESS(&seen, "listing", "class folders", 2, 2);
    REQUIRE_OK(gp_folder_list(&list, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    CHECK(list.from_index);
    gp_image_list_deinit(&list);
    /* A source without class folders is reported in files, whose total is unknown. */
    REQUIRE_OK(gp_folder_list_all(&list, in_folder("data/a"), &options, &err), err);
    CHECK_PROGRESS(&seen, "listing", "files", GP_IMAGE_INDEX_COUNT_MIN / 2 / 1024 * 1024, 0);
    gp_image_list_deinit(&list);
    close(open(in_folder("data/b/other.jpg"), O_CREAT | O_WRONLY, 0644));
    REQUIRE_OK(gp_folder_list(&list, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    CHECK(!list.from_index);
    CHECK_INT(GP_IMAGE_INDEX_COUNT_MIN + 2, list.count);
    gp_image_list_deinit(&list);
    /* A truncated index is ignored. */
    folders_age();
    REQUIRE_OK(gp_folder_list(&list, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    gp_image_list_deinit(&list);
    snprintf(path, sizeof(path), "truncate -s -9 '%s'/cache/gradpool/data/.index/*", folder);
    REQUIRE(system(path) == 0);
    REQUIRE_OK(gp_folder_list(&list, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    CHECK(!list.from_index);
    gp_image_list_deinit(&list);
    unsetenv("XDG_CACHE_HOME");
}

TEST(opening_survives_every_failing_allocation)
{
    gp_error err;
    gp_status status = GP_ENOMEM;
    int64_t live;

    folder_make();
    tile_put("a/1.png", 4, 10);
    tile_put("b/1.png", 8, 10);
    live = gp_alloc_get_stats().live;
    for (uint64_t n = 1; status != GP_OK && n < 1000; n++) {
        gp_alloc_fail_nth(n);
        status = open_and_close("", GP_DATA_TRAIN, sized(3, 4, 4), &err);
        gp_alloc_fail_nth(0);
        CHECK_INT(live, gp_alloc_get_stats().live);
    }
    CHECK_STATUS(GP_OK, status);
}
