#include "tests/gp_test.h"

#include <math.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/augment.h"
#include "common/data/loader/loader.h"

enum { H = 20, W = 30 };

/* Settings, shapes and one draw, for tests with a single image. */
typedef struct fixture {
    gp_augment augment;
    gp_store_info store, shape;
    gp_augment_draw draw;
} fixture;

static gp_store_info info_of(gp_dtype dtype, uint32_t channels)
{
    return (gp_store_info){ .source = "test",
                            .count = 10,
                            .channels = channels,
                            .height = H,
                            .width = W,
                            .dtype = dtype,
                            .sample_bytes = channels * H * W * gp_dtype_bytes(dtype),
                            .target_count = 1,
                            .targets = { { GP_I32, { .rank = 0 } } },
                            .target_bytes = 4,
                            .class_count = 10 };
}

static fixture fixture_of(const char *text, gp_dtype dtype, uint32_t channels, uint32_t index)
{
    fixture f = { .store = info_of(dtype, channels) };
    gp_error err;

    CHECK_STATUS(GP_OK, gp_augment_parse(&f.augment, text, &err));
    CHECK_STATUS(GP_OK, gp_augment_shape(&f.shape, &f.augment, &f.store, &err));
    gp_augment_draw_sample(&f.draw, &f.augment, &f.store, &f.shape, 1, 0, index);
    return f;
}

static void bytes_fill(uint8_t *image, size_t count)
{
    for (size_t i = 0; i < count; i++)
        image[i] = (uint8_t)(i * 37 + i / 7);
}

/* Apply settings to one plane of bytes and return `out`. */
static const uint8_t *moved(const char *text, const uint8_t *image, uint8_t *out)
{
    fixture f = fixture_of(text, GP_U8, 1, 0);

    gp_augment_image(&f.draw, &f.store, &f.shape, f.augment.fill, image, out);
    return out;
}

TEST(empty_settings_leave_images_unchanged)
{
    uint8_t image[H * W], out[H * W];
    gp_augment augment;

    bytes_fill(image, sizeof(image));
    CHECK(memcmp(moved("", image, out), image, sizeof(image)) == 0);
    CHECK_STATUS(GP_OK, gp_augment_parse(&augment, "  ; ", NULL));
    CHECK(gp_augment_is_identity(&augment));
    CHECK_STATUS(GP_OK, gp_augment_parse(&augment, "rotation=0,1", NULL));
    CHECK(!gp_augment_is_identity(&augment));
}

TEST(reflections_rotations_and_shifts_move_pixels)
{
    uint8_t image[H * W], out[H * W];

    bytes_fill(image, sizeof(image));
    moved("x-reflection=1", image, out);
    for (int i = 0; i < H * W; i++)
        CHECK_INT(image[i / W * W + (W - 1 - i % W)], out[i]);
    moved("y-reflection=1", image, out);
    for (int i = 0; i < H * W; i++)
        CHECK_INT(image[(H - 1 - i / W) * W + i % W], out[i]);
    moved("rotation=180", image, out);
    for (int i = 0; i < H * W; i++)
        CHECK(abs(image[H * W - 1 - i] - out[i]) <= 1); /* sin(pi) is not exactly 0 */
    moved("x-translation=3 y-translation=-2 fill=9", image, out);
    for (int r = 0; r < H; r++)
        for (int c = 0; c < W; c++)
            CHECK_INT(c < 3 || r >= H - 2 ? 9 : image[(r + 2) * W + c - 3], out[r * W + c]);
    /* After a quarter turn counter-clockwise, the right edge is on top. */
    moved("crop=center crop-size=20,20 rotation=90", image, out);
    for (int r = 0; r < H; r++)
        for (int c = 0; c < H; c++)
            CHECK(abs(image[c * W + 5 + (H - 1 - r)] - out[r * H + c]) <= 1);
}

/* Bilinear sampling reproduces a linear function exactly. Each output value therefore shows the
 * input position that it came from. */
TEST(combined_maps_equal_the_matrix_product)
{
    static float x_of[H * W], y_of[H * W], x_at[H * W], y_at[H * W];
    const double turn = 25 * M_PI / 180, sx = tan(10 * M_PI / 180), sy = tan(-5 * M_PI / 180);
    fixture f =
        fixture_of("rotation=25 scale=1.25 x-scale=0.9 y-scale=1.1 x-shear=10 y-shear=-5 x-reflection=1 "
                   "x-translation=2.5 y-translation=-1.25 fill=-1000",
                   GP_F32, 1, 0);
    int seen = 0;

    for (int i = 0; i < H * W; i++) {
        x_of[i] = (float)(i % W + 0.5);
        y_of[i] = (float)(i / W + 0.5);
    }
    gp_augment_image(&f.draw, &f.store, &f.shape, f.augment.fill, x_of, x_at);
    gp_augment_image(&f.draw, &f.store, &f.shape, f.augment.fill, y_of, y_at);
    for (int i = 0; i < H * W; i++) {
        double x = (double)x_at[i], y = (double)y_at[i], u, v, t;

        if (x < 0.6 || y < 0.6 || x > W - 0.6 || y > H - 0.6)
            continue; /* outside the image, or near the border, where pixels are repeated */
        seen++;
        u = -(x - W / 2.0) * 1.25 * 0.9; /* apply the forward maps one by one */
        v = (y - H / 2.0) * 1.25 * 1.1;
        t = u + sx * v;
        v = sy * u + v;
        u = t;
        t = cos(turn) * u + sin(turn) * v; /* y points down */
        v = -sin(turn) * u + cos(turn) * v;
        u = t + W / 2.0 + 2.5;
        v += H / 2.0 - 1.25;
        CHECK_NEAR(i % W + 0.5, u, 1e-4);
        CHECK_NEAR(i / W + 0.5, v, 1e-4);
    }
    CHECK(seen > H * W / 3);
}

TEST(random_crops_reach_all_whole_pixel_positions)
{
    uint8_t image[H * W], out[8 * 12];
    bool rows[H] = { false }, columns[W] = { false };

    bytes_fill(image, sizeof(image));
    moved("crop=center crop-size=8,12", image, out);
    for (int i = 0; i < 8 * 12; i++)
        CHECK_INT(image[(6 + i / 12) * W + 9 + i % 12], out[i]);
    for (uint32_t index = 0; index < 400; index++) {
        fixture f = fixture_of("crop=random crop-size=8,12", GP_U8, 1, index);
        double left = f.draw.a[0][2], top = f.draw.a[1][2];

        CHECK(left == floor(left) && left >= 0 && left <= W - 12);
        CHECK(top == floor(top) && top >= 0 && top <= H - 8);
        columns[(int)left] = rows[(int)top] = true;
        gp_augment_image(&f.draw, &f.store, &f.shape, 0, image, out);
        CHECK_INT(image[((int)top + 7) * W + (int)left + 11], out[8 * 12 - 1]);
    }
    for (int i = 0; i <= W - 12; i++)
        CHECK(columns[i]);
    for (int i = 0; i <= H - 8; i++)
        CHECK(rows[i]);
}

TEST(resized_crops_stay_inside_and_have_the_requested_area)
{
    double least = 1, most = 0;

    for (uint32_t index = 0; index < 500; index++) {
        fixture f = fixture_of("crop=resized crop-size=10,10 crop-area=0.25,0.5 crop-aspect=0.8,1.25", GP_U8,
                               1, index);
        double width = 10 * f.draw.a[0][0], height = 10 * f.draw.a[1][1], area = width * height / (H * W);

        CHECK(f.draw.a[0][2] > -1e-9 && f.draw.a[0][2] + width < W + 1e-9);
        CHECK(f.draw.a[1][2] > -1e-9 && f.draw.a[1][2] + height < H + 1e-9);
        CHECK(area > 0.25 - 1e-6 && area < 0.5 + 1e-6);
        least = fmin(least, area);
        most = fmax(most, area);
    }
    CHECK(least < 0.27 && most > 0.48);
}

TEST(pixel_labels_move_with_the_image)
{
    static int32_t labels[H * W], moved_labels[H * W];
    static float image[H * W], moved_image[H * W];
    int compared = 0, outside = 0;

    /* label quarters: away from borders, all neighbours have the same label */
    for (int i = 0; i < H * W; i++) {
        labels[i] = (i / W >= H / 2) * 2 + (i % W >= W / 2);
        image[i] = (float)labels[i];
    }
    for (uint32_t index = 0; index < 50; index++) {
        fixture f = fixture_of("rotation=-180,180 scale=0.7,1.3 x-translation=-5,5 x-reflection=0.5 fill=-1",
                               GP_F32, 1, index);

        gp_augment_image(&f.draw, &f.store, &f.shape, f.augment.fill, image, moved_image);
        gp_augment_indices(&f.draw, &f.store, &f.shape, labels, moved_labels);
        for (int i = 0; i < H * W; i++) {
            CHECK((moved_labels[i] == -1) == (moved_image[i] == -1));
            outside += moved_labels[i] == -1;
            if (moved_image[i] != rintf(moved_image[i]) || moved_image[i] == 1 || moved_image[i] == 2)
                continue; /* between two quarters; a 1 may also be the mean of 0 and 2 */
            compared++;
            CHECK_INT((int)moved_image[i], moved_labels[i]);
        }
    }
    CHECK(compared > 5000 && outside > 1000);
}

/* Each pixel holds the coordinates of that pixel, so bilinear sampling returns the input
 * position. */
TEST(pixels_keep_the_right_label_under_all_settings)
{
    static const char *const settings[] = {
        "crop=center crop-size=9,13",
        "crop=random crop-size=9,13 patches-per-image=5",
        "crop=resized crop-size=11,7",
        "x-reflection=0.5 y-reflection=0.5",
        "rotation=-20,20",
        "rotation=-180,180",
        "scale=0.5,2",
        "x-scale=0.7,1.4 y-scale=0.7,1.4",
        "x-shear=-30,30",
        "y-shear=-30,30",
        "x-translation=-10,10 y-translation=-10,10",
        "crop=random crop-size=12,12 patches-per-image=3 rotation=-20,20 x-translation=-10,10 "
        "y-translation=-10,10",
        "crop=resized crop-size=16,16 x-reflection=0.5 rotation=-45,45 scale=0.8,1.2 x-shear=-10,10",
    };
    static float image[2 * H * W], moved_image[2 * H * W];
    static int32_t labels[H * W], moved_labels[H * W];

    for (int i = 0; i < H * W; i++) {
        labels[i] = i;
        image[i] = (float)(i % W) + 0.5f;
        image[H * W + i] = (float)(i / W) + 0.5f;
    }
    for (size_t n = 0; n < sizeof(settings) / sizeof(settings[0]); n++) {
        int compared = 0;

        for (uint32_t index = 0; index < 20; index++) {
            fixture f = fixture_of(settings[n], GP_F32, 2, index);
            const uint32_t plane = f.shape.height * f.shape.width;

            gp_augment_image(&f.draw, &f.store, &f.shape, -1, image, moved_image);
            gp_augment_indices(&f.draw, &f.store, &f.shape, labels, moved_labels);
            for (uint32_t i = 0; i < plane; i++) {
                const float x = moved_image[i], y = moved_image[plane + i];

                CHECK((moved_labels[i] == -1) == (x == -1)); /* no label outside the image */
                if (moved_labels[i] == -1 || fabsf(x - rintf(x)) < 1e-3f || fabsf(y - rintf(y)) < 1e-3f)
                    continue; /* on the boundary between two pixels, both labels are correct */
                compared++;
                CHECK_INT((int)y * W + (int)x, moved_labels[i]);
            }
        }
        CHECK(compared > 500);
    }
}

TEST(colour_settings_transform_pixels)
{
    static float image[3 * H * W], out[3 * H * W];
    static const char *const settings[] = { "brightness=2", "contrast=0", "saturation=0", "hue=120" };

    for (int i = 0; i < H * W; i++) {
        image[i] = (float)(i % 5);
        image[H * W + i] = (float)(i % 3) * 2;
        image[2 * H * W + i] = (float)(i % 2) * 10;
    }
    for (int k = 0; k < 4; k++) {
        fixture f = fixture_of(settings[k], GP_F32, 3, 0);

        gp_augment_image(&f.draw, &f.store, &f.shape, 0, image, out);
        for (int i = 0; i < H * W; i += 11)
            for (int c = 0; c < 3; c++) {
                float r = image[i], g = image[H * W + i], b = image[2 * H * W + i];
                float grey = 0.299f * r + 0.587f * g + 0.114f * b,
                      mean = 0.299f * 2 + 0.587f * 2 + 0.114f * 5;
                float turned[] = { b, r, g }; /* red became green */
                float expected[] = { 2 * image[c * H * W + i], mean, grey, turned[c] };

                CHECK_NEAR((double)expected[k], (double)out[c * H * W + i], 1e-4);
            }
    }
}

TEST(a_draw_depends_only_on_seed_epoch_and_index)
{
    static const char *const both = "rotation=-20,20 x-translation=-9,9", *const one = "x-translation=-9,9";
    gp_store_info store = info_of(GP_U8, 1);
    gp_augment_draw a, b;
    gp_augment wide, narrow;
    int differ = 0;

    CHECK_STATUS(GP_OK, gp_augment_parse(&wide, both, NULL));
    CHECK_STATUS(GP_OK, gp_augment_parse(&narrow, one, NULL));
    for (uint32_t index = 0; index < 100; index++) {
        gp_augment_draw_sample(&a, &narrow, &store, &store, 3, 7, index);
        gp_augment_draw_sample(&b, &narrow, &store, &store, 3, 7, index);
        CHECK(memcmp(&a.a, &b.a, sizeof(a.a)) == 0);
        gp_augment_draw_sample(&b, &narrow, &store, &store, 3, 8, index);
        differ += a.a[0][2] != b.a[0][2];
        gp_augment_draw_sample(&b, &narrow, &store, &store, 4, 7, index);
        differ += a.a[0][2] != b.a[0][2];
        wide.rotation[0] = wide.rotation[1] = 0;
        gp_augment_draw_sample(&b, &wide, &store, &store, 3, 7, index);
        CHECK(a.a[0][2] == b.a[0][2]); /* an additional rotation does not change the shift */
    }
    CHECK(differ > 190);
}

static void check_refused(const char *text, const char *words)
{
    gp_store_info store = info_of(GP_U8, 1), shape;
    gp_augment augment;
    gp_error err;
    gp_status status = gp_augment_parse(&augment, text, &err);

    if (status == GP_OK)
        status = gp_augment_shape(&shape, &augment, &store, &err);
    CHECK_STATUS(GP_EINVAL, status);
    CHECK_CONTAINS(err.message, words);
}

TEST(invalid_settings_are_rejected_with_a_message)
{
    check_refused("rotaton=3", "did you mean 'rotation'");
    check_refused("rotation", "'rotation' in augment has no value");
    check_refused("rotation=9,-9", "rotation is a range from 9 to -9");
    check_refused("x-reflection=2", "x-reflection");
    check_refused("crop=random", "crop-size=HEIGHT,WIDTH");
    check_refused("crop-size=3,3", "crop-size needs crop");
    check_refused("patches-per-image=4", "patches-per-image needs crop");
    check_refused("crop=random crop-size=21,10", "a crop of 21x10 is larger than the images of test, 20x30");
    check_refused("hue=-10,10", "3 channels");
}

/* ---- through the loader ---- */

TEST(augmented_samples_do_not_depend_on_batch_size)
{
    static const char *const text =
        "crop=random crop-size=20,24 rotation=-10,10 x-reflection=0.5 patches-per-image=3";
    gp_augment augment;
    gp_sampler sampler;
    gp_store *store;
    uint8_t whole[90 * 480];
    int32_t labels[90];
    gp_error err;

    REQUIRE_OK(gp_augment_parse(&augment, text, &err), err);
    REQUIRE_OK(gp_store_open(&store, "digits:30", GP_DATA_TRAIN, &err), err);
    gp_sampler_init(&sampler, 90, GP_SHUFFLE_EVERY_EPOCH, 5);
    for (uint32_t part = 90; part > 0; part = part == 90 ? 7 : 0) {
        gp_loader *loader;

        REQUIRE_OK(
            gp_loader_new(&loader, store, &sampler,
                          &(gp_loader_options){ .depth = 2, .capacity = 90, .augment = &augment, .seed = 11 },
                          &err),
            err);
        for (uint32_t first = 0; first < 90; first += part) {
            uint32_t count = 90 - first < part ? 90 - first : part;
            gp_loader_batch *batch;

            REQUIRE_OK(gp_loader_request(loader, 1, first, count, &err), err);
            REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
            if (part == 90) {
                memcpy(whole, batch->samples, sizeof(whole));
                memcpy(labels, batch->targets, sizeof(labels));
            }
            CHECK(memcmp(whole + first * 480, batch->samples, count * 480) == 0);
            CHECK(memcmp(labels + first, batch->targets, count * sizeof(int32_t)) == 0);
            gp_loader_release(loader, batch);
        }
        gp_loader_free(loader);
    }
    /* each image occurs three times, each time with a different patch */
    for (uint32_t i = 0; i < 90; i++) {
        uint32_t index, other;
        int32_t label;

        gp_sampler_get(&sampler, 1, i, 1, &index);
        index /= 3;
        REQUIRE_OK(gp_store_read(store, &index, 1, (uint8_t[784]){ 0 }, &label, &err), err);
        CHECK_INT(label, labels[i]);
        for (uint32_t k = i + 1; k < 90; k++) {
            gp_sampler_get(&sampler, 1, k, 1, &other);
            CHECK(other / 3 != index || memcmp(whole + i * 480, whole + k * 480, 480) != 0);
        }
    }
    gp_store_close(store);
}
