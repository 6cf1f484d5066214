/* test_tiled_inference.c: tiled inference over images, with fake networks whose result is known. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gp_test.h"
#include "worker/predict/tiled_inference.h"
#include "worker/predict/windows.h"

enum { H = 37, W = 61, CLASSES = 3, SIDE = 16 };

/* ---- one axis ---- */

static double weight_sum(const gp_window_axis *axis, uint32_t at)
{
    double sum = 0;

    for (uint32_t k = 0; k < axis->count; k++)
        if (at >= axis->start[k] && at < axis->start[k] + axis->size)
            sum += (double)axis->weight[(size_t)k * axis->size + at - axis->start[k]];
    return sum;
}

TEST(windows_cover_every_length_with_weights_that_add_up_to_one)
{
    gp_window_axis axis = { 0 };
    gp_error e;

    for (uint32_t size = 2; size <= 24; size++)
        for (uint32_t overlap = 0; overlap <= size / 2; overlap++)
            for (uint32_t length = 1; length <= 80; length++) {
                REQUIRE_OK(gp_window_axis_set(&axis, length, size, overlap, &e), e);
                CHECK_INT(0, axis.start[0]);
                if (length > size)
                    CHECK_INT(length, axis.start[axis.count - 1] + size);
                for (uint32_t k = 1; k < axis.count; k++)
                    CHECK(axis.start[k] + overlap <= axis.start[k - 1] + size &&
                          axis.start[k] > axis.start[k - 1]);
                for (uint32_t at = 0; at < length; at++)
                    CHECK_NEAR(1, weight_sum(&axis, at), 1e-6);
            }
    CHECK_STATUS(GP_EINVAL, gp_window_axis_set(&axis, 80, 15, 8, &e));
    CHECK_CONTAINS(e.message, "at most half");
    gp_window_axis_deinit(&axis);
}

TEST(outer_quarter_of_an_overlap_has_weight_zero)
{
    gp_window_axis axis = { 0 };
    gp_error e;

    REQUIRE_OK(gp_window_axis_set(&axis, 24, 16, 8, &e), e);
    CHECK_INT(2, axis.count);
    CHECK_INT(8, axis.start[1]);
    for (uint32_t i = 0; i < 16; i++) { /* the first window ends at 16; both contain 8 to 15 */
        const double right = i < 10 ? 1 : i >= 14 ? 0 : 1 - 2 * ((i - 8 + 0.5) / 8 - 0.25);

        CHECK_NEAR(right, axis.weight[i], 1e-6);
    }
    CHECK_NEAR(0, axis.weight[16 + 1], 0);
    CHECK_NEAR(1, axis.weight[16 + 6], 0);
    gp_window_axis_deinit(&axis);
}

/* ---- whole images ---- */

static uint8_t image[H * W];
static int32_t labels[H * W];

static gp_store *image_open(void)
{
    const gp_store_info info = {
        .source = "an image",
        .kind = "memory",
        .count = 1,
        .channels = 1,
        .height = H,
        .width = W,
        .dtype = GP_U8,
        .target_count = 1,
        .targets = { { .dtype = GP_I32, .shape = gp_shape2(H, W), .classes = CLASSES } },
        .class_count = CLASSES
    };
    gp_store *store = NULL;
    gp_error e;

    srand(1);
    for (int i = 0; i < H * W; i++) {
        image[i] = (uint8_t)(rand() % 256);
        labels[i] = i % 5 == 0 ? -1 : i % CLASSES;
    }
    CHECK_STATUS(GP_OK, gp_store_open_arrays(&store, &info, image, labels, &e));
    return store;
}

/* A fake network: the score of a pixel is the mean of its (2 * reach + 1)^2 neighbors, with zeros
 * outside the window, like a padded convolution. */
typedef struct fake {
    int reach, calls, windows;
    uint32_t height, width;
    float *scores;
} fake;

static void fake_scores(const fake *net, const uint8_t *in, float *out)
{
    const int h = (int)net->height, w = (int)net->width;

    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            double sum = 0;

            for (int dy = -net->reach; dy <= net->reach; dy++)
                for (int dx = -net->reach; dx <= net->reach; dx++)
                    if (y + dy >= 0 && y + dy < h && x + dx >= 0 && x + dx < w)
                        sum += in[(y + dy) * w + x + dx];
            sum /= 255.0 * (2 * net->reach + 1) * (2 * net->reach + 1);
            out[y * w + x] = (float)(0.8 * sum);
            out[h * w + y * w + x] = (float)(0.8 * (1 - sum));
            out[2 * h * w + y * w + x] = 0.2f;
        }
}

static gp_status fake_run(void *context, const void *windows, uint32_t count, const float **scores,
                          gp_error *err)
{
    fake *net = context;
    const size_t plane = (size_t)net->height * net->width;

    (void)err;
    net->calls++;
    net->windows += (int)count;
    net->scores = realloc(net->scores, count * CLASSES * plane * sizeof(float));
    for (uint32_t i = 0; i < count; i++)
        fake_scores(net, (const uint8_t *)windows + i * plane, net->scores + i * CLASSES * plane);
    *scores = net->scores;
    return GP_OK;
}

/* Classify the image in tiles of the network's height x width; store the classes in out. */
static gp_stitched tiles(fake *net, const gp_store *store, uint32_t overlap, const double *class_weights,
                         int32_t *out)
{
    gp_tiled_inference *s = NULL;
    gp_stitched got = { 0 };
    gp_error e;

    CHECK_STATUS(GP_OK, gp_tiled_inference_new(
                            &s,
                            &(gp_tiled_inference_setup){
                                .store = store,
                                .height = net->height,
                                .width = net->width,
                                .classes = CLASSES,
                                .score_count = CLASSES * net->height * net->width,
                                .overlap = overlap,
                                .batch = 4,
                                .losses = { { .class_weights = class_weights, .ignored = -1, .factor = 1 } },
                                .loss_count = 1,
                                .run = fake_run,
                                .context = net },
                            &e));
    CHECK_STATUS(GP_OK, gp_tiled_inference_image(s, 0, &got, &e));
    CHECK_INT(H, got.height);
    CHECK_INT(W, got.width);
    memcpy(out, got.predicted, H * W * sizeof(*out));
    gp_tiled_inference_free(s);
    free(net->scores);
    net->scores = NULL;
    return got;
}

TEST(pixelwise_network_gives_the_same_result_in_tiles)
{
    static int32_t whole[H * W], parts[H * W];
    gp_store *store = image_open();
    fake of_all = { .height = H, .width = W }, of_windows = { .height = SIDE, .width = SIDE };
    gp_stitched one = tiles(&of_all, store, 0, NULL, whole), two = tiles(&of_windows, store, 6, NULL, parts);

    CHECK_INT(1, of_all.windows);
    CHECK_INT(4 * 6, of_windows.windows); /* 16 + 3 * 10 >= 37, 16 + 5 * 10 >= 61 */
    CHECK_INT(6, of_windows.calls);       /* at most 4 tiles per call */
    CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
    CHECK_NEAR(one.loss, two.loss, 1e-5 * one.loss);
    CHECK_NEAR(one.weight, two.weight, 0);
    gp_store_close(store);
}

TEST(a_convolution_within_a_quarter_of_the_overlap_is_seamless)
{
    static int32_t whole[H * W], parts[H * W];
    gp_store *store = image_open();
    fake of_all = { .reach = 2, .height = H, .width = W };
    int differ[2] = { 0 };

    tiles(&of_all, store, 0, NULL, whole);
    for (int i = 0; i < 2; i++) {
        fake of_windows = { .reach = 2, .height = 20, .width = 31 }; /* 2 * 31 is W + 1 */

        tiles(&of_windows, store, i == 0 ? 8 : 0, NULL, parts); /* a quarter of 8 is the reach */
        for (int k = 0; k < H * W; k++)
            differ[i] += whole[k] != parts[k];
    }
    CHECK_INT(0, differ[0]);
    CHECK(differ[1] > 0); /* proves that the check can fail: tiles without overlap have seams */
    gp_store_close(store);
}

TEST(the_loss_is_the_weighted_cross_entropy_of_pixels_with_a_label)
{
    static const double weights[CLASSES] = { 0.5, 2, 1 };
    static int32_t predicted[H * W];
    gp_store *store = image_open();
    fake net = { .height = SIDE, .width = SIDE };
    gp_stitched got = tiles(&net, store, 4, weights, predicted);
    double loss = 0, weight = 0;

    for (int i = 0; i < H * W; i++) {
        const double value = image[i] / 255.0;
        const double scores[CLASSES] = { 0.8 * value, 0.8 * (1 - value), 0.2 };
        int best = 0;

        for (int k = 1; k < CLASSES; k++)
            best = scores[k] > scores[best] ? k : best;
        if (fabs(scores[0] - scores[1]) > 1e-5)
            CHECK_INT(best, predicted[i]);
        if (labels[i] < 0)
            continue;
        loss -= weights[labels[i]] * log(scores[labels[i]] > 1e-38 ? scores[labels[i]] : 1.17549435e-38);
        weight += weights[labels[i]];
    }
    CHECK_NEAR(weight, got.weight, 1e-9);
    CHECK_NEAR(loss, got.loss, 1e-4 * loss);
    gp_store_close(store);
}

TEST(image_smaller_than_a_window_is_padded_and_keeps_its_size)
{
    static int32_t whole[H * W], parts[H * W];
    gp_store *store = image_open();
    fake of_all = { .height = H, .width = W }, larger = { .height = 64, .width = 128 };

    tiles(&of_all, store, 0, NULL, whole);
    tiles(&larger, store, 16, NULL, parts);
    CHECK_INT(1, larger.windows);
    CHECK(memcmp(whole, parts, sizeof(whole)) == 0);
    gp_store_close(store);
}
