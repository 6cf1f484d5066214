/* Image windows: partial decoding, resizing, and conversion to all pixel formats. */
#include "tests/gp_test.h"

#include <math.h>

#include "common/base/rng.h"
#include "common/data/image/image.h"
#include "common/data/image/resample.h"
#include "common/data/image/resample_rows.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"

static uint32_t random_below(uint32_t limit)
{
    static uint32_t turn;
    uint32_t words[4];

    gp_rng_draw(words, 5, 1, 0, 0, turn++);
    return words[0] % limit;
}

/* Draw waves and noise. */
static void picture_draw(uint8_t *data, uint32_t width, uint32_t height, uint32_t channels)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (uint32_t c = 0; c < channels; c++)
                *data++ = (uint8_t)(127.5 + 60 * sin(x * 0.21 + c) + 45 * cos(y * 0.13 - c * 2) +
                                    random_below(30) - 15);
}

TEST(a_decoded_jpeg_part_equals_the_full_decode)
{
    enum { WIDTH = 237, HEIGHT = 171, BYTES = WIDTH * HEIGHT * 3 };
    static uint8_t rgb[BYTES], file[1 << 18], whole[BYTES];
    static const made_image made[] = {
        { WIDTH, HEIGHT, 3, .data = rgb },
        { WIDTH, HEIGHT, 3, .halves_x = 1, .halves_y = 1, .data = rgb },
        { WIDTH, HEIGHT, 3, .halves_x = 2, .halves_y = 1, .data = rgb },
        { WIDTH, HEIGHT, 3, .halves_x = 1, .halves_y = 2, .data = rgb },
        { WIDTH, HEIGHT, 3, .progressive = true, .data = rgb },
        { WIDTH, HEIGHT, 1, .data = rgb },
    };
    gp_image_decoder *decoder;
    gp_pixels pixels;
    gp_error err;

    folder_make();
    REQUIRE_OK(gp_image_decoder_new(&decoder, &err), err);
    picture_draw(rgb, WIDTH, HEIGHT, 3);
    for (size_t kind = 0; kind < sizeof(made) / sizeof(made[0]); kind++) {
        make_jpeg(in_folder("file.jpg"), &made[kind], 88);
        size_t bytes = file_get(in_folder("file.jpg"), file, sizeof(file));

        for (uint32_t scale = 1; scale <= 8; scale *= 2) {
            const gp_image_want all = { .width = scale == 1 ? 0 : WIDTH / scale, .height = HEIGHT / scale };
            uint32_t width;

            REQUIRE_OK(gp_image_decode(decoder, &pixels, &all, file, bytes, "whole", &err), err);
            REQUIRE(pixels.scale == scale && pixels.width == (WIDTH + scale - 1) / scale);
            width = pixels.width;
            memcpy(whole, pixels.data, (size_t)width * pixels.height * pixels.channels);
            for (int turn = 0; turn < 60; turn++) {
                gp_image_part part = { random_below(WIDTH - 16), random_below(HEIGHT - 16), 0, 0 };

                part.right = part.left + 16 + random_below(WIDTH - part.left - 15);
                part.bottom = part.top + 16 + random_below(HEIGHT - part.top - 15);
                const gp_image_want want = { .part = part,
                                             .width = scale == 1 ? 0 : (part.right - part.left) / scale,
                                             .height = (part.bottom - part.top) / scale };
                uint32_t differ = 0;

                REQUIRE_OK(gp_image_decode(decoder, &pixels, &want, file, bytes, "part", &err), err);
                REQUIRE(pixels.scale == scale);
                REQUIRE(pixels.left <= part.left / scale && pixels.top <= part.top / scale);
                REQUIRE((pixels.left + pixels.width) * scale >= part.right);
                REQUIRE((pixels.top + pixels.height) * scale >= part.bottom);
                for (uint32_t y = part.top / scale; y < (part.bottom + scale - 1) / scale; y++)
                    for (uint32_t i = part.left / scale * pixels.channels;
                         i < (part.right + scale - 1) / scale * pixels.channels; i++)
                        differ += whole[(size_t)y * width * pixels.channels + i] !=
                                  pixels.data[(size_t)(y - pixels.top) * pixels.width * pixels.channels + i -
                                              pixels.left * pixels.channels];
                if (differ != 0)
                    GP_TEST_FAIL("kind %zu at 1/%u, part %u,%u to %u,%u: %u values differ", kind, scale,
                                 part.left, part.top, part.right, part.bottom, differ);
            }
        }
    }
    gp_image_decoder_free(decoder);
}

TEST(a_resized_window_equals_a_resized_crop)
{
    enum { WIDTH = 90, HEIGHT = 70, SIDE_MAX = 130 };
    static uint8_t in[WIDTH * HEIGHT * 3], cut[WIDTH * HEIGHT * 3], expected[3 * SIDE_MAX * SIDE_MAX],
        got[3 * SIDE_MAX * SIDE_MAX];
    gp_resampler *resampler;
    gp_error err;

    REQUIRE_OK(gp_resampler_new(&resampler, &err), err);
    picture_draw(in, WIDTH, HEIGHT, 3);
    for (int turn = 0; turn < 300; turn++) {
        uint32_t channels = turn % 4 == 3 ? 1 : 3, left = random_below(WIDTH), top = random_below(HEIGHT);
        uint32_t width = 1 + random_below(WIDTH - left), height = 1 + random_below(HEIGHT - top);
        uint32_t out_width = 1 + random_below(SIDE_MAX), out_height = 1 + random_below(SIDE_MAX);
        gp_pixels pixels = { .data = in, .width = WIDTH, .height = HEIGHT, .channels = channels };
        const gp_pixel_window window = { left, top, left + width, top + height };
        gp_pixel_out out = { .data = got, .height = out_height, .width = out_width };

        for (uint32_t y = 0; y < height; y++)
            memcpy(cut + (size_t)y * width * channels, in + ((top + y) * WIDTH + left) * channels,
                   (size_t)width * channels);
        REQUIRE_OK(
            gp_resample(resampler, expected, out_height, out_width,
                        &(gp_pixels){ .data = cut, .width = width, .height = height, .channels = channels },
                        &err),
            err);
        REQUIRE_OK(gp_resample_window(resampler, &out, &pixels, &window, &err), err);
        REQUIRE(memcmp(expected, got, (size_t)out_width * out_height * channels) == 0);
    }
    gp_resampler_free(resampler);
}

TEST(all_pixel_formats_agree_with_mirroring)
{
    enum { WIDTH = 61, HEIGHT = 47, OUT_WIDTH = 37, OUT_HEIGHT = 31, PLANE = OUT_WIDTH * OUT_HEIGHT };
    static const float scale[3] = { 0.5f, 0.25f, 2 }, offset[3] = { 1, -2, 3 };
    static uint8_t in[WIDTH * HEIGHT * 3], plain[3 * PLANE], bytes[3 * PLANE];
    static float floats[3 * PLANE];
    const gp_pixel_window windows[] = { { 3, 5, 58, 44 }, { 7, 2, 7 + OUT_WIDTH, 2 + OUT_HEIGHT } };
    gp_resampler *resampler;
    gp_error err;

    REQUIRE_OK(gp_resampler_new(&resampler, &err), err);
    picture_draw(in, WIDTH, HEIGHT, 3);
    for (int turn = 0; turn < 16; turn++) {
        const uint32_t channels = turn & 8 ? 1 : 3;
        const gp_pixels pixels = { .data = in, .width = WIDTH, .height = HEIGHT, .channels = channels };
        const gp_pixel_window *window = &windows[turn & 1];
        const bool mirror_x = turn & 2, mirror_y = turn & 4;
        gp_pixel_out out = { .data = plain, .height = OUT_HEIGHT, .width = OUT_WIDTH };

        REQUIRE_OK(gp_resample_window(resampler, &out, &pixels, window, &err), err);
        out.mirror_x = mirror_x;
        out.mirror_y = mirror_y;
        out.data = bytes;
        out.form = GP_PIXELS_INTERLEAVED;
        REQUIRE_OK(gp_resample_window(resampler, &out, &pixels, window, &err), err);
        out.data = floats;
        out.form = GP_PIXELS_FLOAT;
        out.scale = scale;
        out.offset = offset;
        REQUIRE_OK(gp_resample_window(resampler, &out, &pixels, window, &err), err);
        for (uint32_t c = 0; c < channels; c++)
            for (uint32_t y = 0; y < OUT_HEIGHT; y++)
                for (uint32_t x = 0; x < OUT_WIDTH; x++) {
                    uint32_t row = mirror_y ? OUT_HEIGHT - 1 - y : y,
                             column = mirror_x ? OUT_WIDTH - 1 - x : x;
                    uint8_t value = plain[c * PLANE + row * OUT_WIDTH + column];

                    /* A mirrored filter adds weights in the opposite order, so they may be rounded
                     * differently. */
                    REQUIRE(abs(value - bytes[(y * OUT_WIDTH + x) * channels + c]) <= (mirror_x || mirror_y));
                    value = bytes[(y * OUT_WIDTH + x) * channels + c];
                    REQUIRE((float)value * scale[c] + offset[c] == floats[c * PLANE + y * OUT_WIDTH + x]);
                }
    }
    gp_resampler_free(resampler);
}

TEST(simd_and_plain_loops_give_the_same_integers)
{
    enum { COUNT = 700, ROWS = 9, TO = 101, TAPS = 8 };
    const gp_row_ops *all[3];
    int kinds = gp_row_ops_all(all);
    static int32_t fours[TO * TAPS * 2];
    static uint8_t rows[ROWS * COUNT], bytes[2][3 * TO];
    static int16_t mixed[2][COUNT + GP_ROW_SPARE * 2], weights[TO * TAPS];
    static uint32_t first[TO];
    static float floats[2][3 * TO];
    const float scale[3] = { 0.017f, 0.0175f, 0.0171f }, offset[3] = { -2.1f, -2, -1.8f };
    gp_axis axis = { .taps = TAPS, .first = first, .weight = weights, .fours = fours };

    for (size_t i = 0; i < sizeof(rows); i++)
        rows[i] = (uint8_t)random_below(256);
    for (int turn = 0; turn < 400; turn++) {
        const gp_row_ops *ops = all[turn % kinds];
        uint32_t count = 3 + random_below(COUNT - 3), used = 2 + 2 * random_below(TAPS / 2);
        uint32_t taken = used - random_below(2);

        axis.to = 1 + random_below(TO);
        axis.used = used;
        for (uint32_t i = 0; i < axis.to; i++) {
            int32_t left = 1 << GP_WEIGHT_BITS;

            first[i] = count / 3 > used ? random_below(count / 3 - used + 1) : 0;
            memset(weights + i * TAPS, 0, TAPS * sizeof(*weights));
            for (uint32_t k = 0; k < taken; k++) {
                weights[i * TAPS + k] =
                    (int16_t)(k + 1 == taken ? left : (int32_t)random_below((uint32_t)left));
                left -= weights[i * TAPS + k];
            }
        }
        gp_axis_fours(&axis);
        ops->mix(mixed[0], rows, COUNT, taken, weights, count);
        gp_row_ops_plain.mix(mixed[1], rows, COUNT, taken, weights, count);
        REQUIRE(memcmp(mixed[0], mixed[1], count * sizeof(mixed[0][0])) == 0);
        for (int form = 0; form < 3; form++) {
            for (int i = 0; i < 2; i++) {
                const gp_row_out out = { .bytes = form == 2 ? NULL : bytes[i],
                                         .floats = form == 2 ? floats[i] : NULL,
                                         .step = form == 1 ? 3 : 1,
                                         .plane = form == 1 ? 1 : TO,
                                         .scale = scale,
                                         .offset = offset };

                (i == 0 ? ops : &gp_row_ops_plain)->narrow_rgb(&out, &axis, mixed[1]);
            }
            REQUIRE(memcmp(bytes[0], bytes[1], sizeof(bytes[0])) == 0);
            REQUIRE(memcmp(floats[0], floats[1], sizeof(floats[0])) == 0);
        }
    }
}
