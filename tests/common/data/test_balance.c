/* Class weights, compared with values computed by hand. */
#include "common/data/store/balance.h"
#include "common/data/store/subset.h"
#include "tests/gp_test.h"

/* Two images with 4 pixels. The second class occurs in only one of them. */
static const int32_t pixels[2][4] = { { 0, 0, 0, 1 }, { 0, 0, -1, -1 } };

static gp_store *pixels_open(uint32_t classes)
{
    static uint8_t samples[2 * 4];
    const gp_store_info info = {
        .source = "two images",
        .kind = "memory",
        .count = 2,
        .channels = 1,
        .height = 2,
        .width = 2,
        .dtype = GP_U8,
        .target_count = 1,
        .targets = { { .dtype = GP_I32, .shape = gp_shape2(2, 2), .classes = classes } },
        .class_count = classes
    };
    gp_store *store = NULL;
    gp_error e;

    CHECK_STATUS(GP_OK, gp_store_open_arrays(&store, &info, samples, pixels, &e));
    return store;
}

TEST(counts_include_pixels_and_extent_per_class)
{
    gp_store *store = pixels_open(3);
    uint64_t counts[4], within[3];
    gp_error e;

    CHECK_STATUS(GP_OK, gp_store_count_within(store, counts, within, NULL, &e));
    CHECK_INT(5, counts[0]);
    CHECK_INT(1, counts[1]);
    CHECK_INT(0, counts[2]);
    CHECK_INT(2, counts[3]);
    CHECK_INT(8, within[0]);
    CHECK_INT(4, within[1]);
    CHECK_INT(0, within[2]);
    gp_store_close(store);
}

TEST(median_frequency_uses_only_images_with_the_class)
{
    gp_store *store = pixels_open(3);
    double weights[3];
    gp_error e;

    /* frequencies 5/8 and 1/4: the median of two is their mean, 7/16 */
    CHECK_STATUS(GP_OK, gp_balance_store(GP_BALANCE_MEDIAN, store, weights, NULL, &e));
    CHECK_NEAR(0.7, weights[0], 1e-12);
    CHECK_NEAR(1.75, weights[1], 1e-12);
    CHECK_NEAR(1, weights[2], 0); /* a class that does not occur */
    CHECK_STATUS(GP_OK, gp_balance_store(GP_BALANCE_INVERSE, store, weights, NULL, &e));
    CHECK_NEAR(6.0 / (3 * 5), weights[0], 1e-12);
    CHECK_NEAR(6.0 / (3 * 1), weights[1], 1e-12);
    CHECK_NEAR(1, weights[2], 0);
    gp_store_close(store);
}

TEST(single_class_samples_are_balanced_by_count)
{
    const uint64_t counts[] = { 10, 40, 50 };
    double weights[3];

    gp_balance_weights(GP_BALANCE_MEDIAN, counts, NULL, 3, weights);
    CHECK_NEAR(4, weights[0], 1e-12);
    CHECK_NEAR(1, weights[1], 1e-12);
    CHECK_NEAR(0.8, weights[2], 1e-12);
    gp_balance_weights(GP_BALANCE_MEDIAN, (uint64_t[3]){ 0 }, NULL, 3, weights);
    CHECK_NEAR(1, weights[1], 0);
}

TEST(data_without_classes_is_rejected)
{
    const gp_store_info info = { .source = "values",
                                 .kind = "memory",
                                 .count = 1,
                                 .channels = 1,
                                 .height = 1,
                                 .width = 1,
                                 .dtype = GP_F32,
                                 .target_count = 1,
                                 .targets = { { .dtype = GP_F32, .shape = gp_shape1(1) } } };
    float sample = 1, target = 2;
    gp_store *store = NULL;
    double weights[1];
    gp_error e;

    CHECK_STATUS(GP_OK, gp_store_open_arrays(&store, &info, &sample, &target, &e));
    CHECK_STATUS(GP_EINVAL, gp_balance_store(GP_BALANCE_MEDIAN, store, weights, NULL, &e));
    CHECK_CONTAINS(e.message, "no classes");
    gp_store_close(store);
}
