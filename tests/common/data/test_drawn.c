/* Augmented windows of JPEGs in folders, read through the loader: results must be bitwise identical
 * for every way of reading. */
#include "tests/gp_test.h"

#include <math.h>
#include <sys/stat.h>

#include "common/data/image/image.h"
#include "common/data/loader/loader.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"

enum { IMAGES = 14, CROP = 48, PIXELS = 3 * CROP * CROP };

/* Create JPEGs with several sizes (one large enough to decode at 1/2 or 1/4) and a PNG, in two
 * classes. */
static void photos_make(bool one_size)
{
    static uint8_t rgb[400 * 300 * 3];
    char name[64];

    folder_make();
    mkdir(in_folder("photos"), 0700);
    mkdir(in_folder("photos/cat"), 0700);
    mkdir(in_folder("photos/dog"), 0700);
    for (uint32_t i = 0; i < IMAGES; i++) {
        const uint32_t width = one_size     ? 120
                               : i % 5 == 4 ? 400
                                            : 60 + i * 7,
                       height = one_size     ? 90
                                : i % 5 == 4 ? 300
                                             : 50 + i * 5;
        const made_image image = { width, height, 3, .data = rgb, .progressive = i == 6 };

        for (uint32_t y = 0; y < height; y++)
            for (uint32_t x = 0; x < width * 3; x++)
                rgb[y * width * 3 + x] =
                    (uint8_t)(127.5 + 60 * sin(x * 0.07 * (i + 1)) + 60 * cos(y * 0.13 - x % 3));
        snprintf(name, sizeof(name), "photos/%s/%02u.%s", i % 2 == 0 ? "cat" : "dog", i,
                 i == 3 ? "png" : "jpg");
        if (i == 3)
            make_png(in_folder(name), &image);
        else
            make_jpeg(in_folder(name), &image, 90);
    }
}

static gp_augment augment_of(const char *text)
{
    gp_augment augment;

    if (gp_augment_parse(&augment, text, NULL) != GP_OK)
        abort();
    return augment;
}

static gp_store *photos_open(uint64_t cache_bytes, bool any_size)
{
    const gp_store_options options = { .channels = 3, .any_size = any_size, .cache_bytes = cache_bytes };
    gp_store *store;

    if (gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, NULL) != GP_OK)
        abort();
    return store;
}

/* Read samples [first, first + count) of an epoch, in requests of at most `part` samples. */
static void epoch_read(const gp_store *store, const gp_loader_options *options, uint32_t samples,
                       uint32_t epoch, uint32_t first, uint32_t count, uint32_t part, uint8_t *out,
                       int32_t *labels)
{
    const size_t bytes = PIXELS * gp_pixel_form_bytes(options->form);
    gp_sampler sampler;
    gp_loader *loader;
    gp_error err;

    gp_sampler_init(&sampler, samples, GP_SHUFFLE_EVERY_EPOCH, 3);
    REQUIRE_OK(gp_loader_new(&loader, store, &sampler, options, &err), err);
    for (uint32_t done = 0; done < count; done += part) {
        uint32_t now = count - done < part ? count - done : part;
        gp_loader_batch *batch;

        REQUIRE_OK(gp_loader_request(loader, epoch, first + done, now, &err), err);
        REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
        memcpy(out + (size_t)done * bytes, batch->samples, now * bytes);
        memcpy(labels + done, batch->targets, now * sizeof(*labels));
        gp_loader_release(loader, batch);
    }
    gp_loader_free(loader);
}

TEST(windows_are_identical_for_any_threads_ranks_cache_and_start)
{
    enum { SAMPLES = IMAGES * 3 };
    static uint8_t expected[2][SAMPLES * PIXELS], got[SAMPLES * PIXELS];
    static const uint64_t caches[] = { 1, 200 << 10, 64 << 20 };
    const gp_augment augment = augment_of("crop=resized crop-size=48,48 x-reflection=0.5 y-reflection=0.5 "
                                          "patches-per-image=3 brightness=0.8,1.2");
    gp_loader_options options = {
        .depth = 2, .capacity = SAMPLES, .augment = &augment, .seed = 9, .threads = 1
    };
    int32_t labels[2][SAMPLES], seen[SAMPLES];

    photos_make(false);
    for (size_t kept = 0; kept < 3; kept++) {
        gp_store *store = photos_open(caches[kept], true);

        for (uint32_t epoch = 0; epoch < 2; epoch++) {
            if (kept == 0)
                epoch_read(store, &options, SAMPLES, epoch, 0, SAMPLES, SAMPLES, expected[epoch],
                           labels[epoch]);
            for (uint32_t threads = 1; threads <= 4; threads *= 2)
                for (uint32_t workers = 1; workers <= 3; workers++) {
                    options.threads = threads;
                    /* each rank reads its share, in requests of 5 */
                    for (uint32_t rank = 0; rank < workers; rank++) {
                        uint32_t first, count;

                        gp_split(SAMPLES, workers, rank, &first, &count);
                        epoch_read(store, &options, SAMPLES, epoch, first, count, 5,
                                   got + (size_t)first * PIXELS, seen + first);
                    }
                    CHECK(memcmp(expected[epoch], got, sizeof(got)) == 0);
                    CHECK(memcmp(labels[epoch], seen, sizeof(seen)) == 0);
                }
        }
        /* Start in the middle of an epoch, as a resumed training does. */
        options.threads = 2;
        epoch_read(store, &options, SAMPLES, 1, 17, SAMPLES - 17, 8, got, seen);
        CHECK(memcmp(expected[1] + 17 * PIXELS, got, (SAMPLES - 17) * PIXELS) == 0);
        gp_store_close(store);
    }
    CHECK(memcmp(expected[0], expected[1], sizeof(expected[0])) != 0);
}

TEST(warped_images_and_labels_are_identical_for_any_threads_and_ranks)
{
    enum { SCENES = 9, SAMPLES = SCENES * 2, SIDE = 40, BYTES = 3 * SIDE * SIDE, LABELS = SIDE * SIDE };
    static uint8_t rgb[70 * 60 * 3], label[70 * 60], expected[SAMPLES * BYTES], got[SAMPLES * BYTES];
    static int32_t labels[SAMPLES * LABELS], seen[SAMPLES * LABELS];
    const gp_augment augment = augment_of(
        "crop=random crop-size=40,40 patches-per-image=2 rotation=-20,20 scale=0.8,1.2 x-shear=-5,5 "
        "x-reflection=0.5 y-translation=-3,3 brightness=0.8,1.2 contrast=0.8,1.2 saturation=0.5,1.5 "
        "hue=-20,20");
    const gp_store_options images = { .channels = 3, .height = 50, .width = 64, .cache_bytes = 1 };
    gp_loader_options options = { .depth = 2, .capacity = SAMPLES, .augment = &augment, .seed = 5 };
    gp_sampler sampler;
    gp_store *store;
    gp_error err;

    folder_make();
    mkdir(in_folder("images"), 0700);
    mkdir(in_folder("labels"), 0700);
    for (uint32_t i = 0; i < SCENES; i++) {
        char name[64];

        for (uint32_t k = 0; k < sizeof(label); k++) {
            label[k] = (uint8_t)((k / 7 + i) % 3);
            for (uint32_t c = 0; c < 3; c++)
                rgb[3 * k + c] = (uint8_t)((k * (c + 3) + i * 31) * 2654435761u >> 19);
        }
        snprintf(name, sizeof(name), "images/%u.jpg", i);
        make_jpeg(in_folder(name), &(made_image){ 70, 60, 3, .data = rgb }, 90);
        snprintf(name, sizeof(name), "labels/%u.png", i);
        make_png(in_folder(name), &(made_image){ 70, 60, 1, .data = label });
    }
    FILE *file = fopen(in_folder("classes.csv"), "w");

    REQUIRE(file != NULL && fputs("road\nsky\nvoid\n", file) >= 0 && fclose(file) == 0);
    REQUIRE_OK(gp_store_open_with(&store, folder, GP_DATA_TRAIN, &images, &err), err);
    gp_sampler_init(&sampler, SAMPLES, GP_SHUFFLE_EVERY_EPOCH, 3);
    for (uint32_t threads = 1; threads <= 4; threads *= 2)
        for (uint32_t workers = 1; workers <= 3; workers++)
            for (uint32_t rank = 0; rank < workers; rank++) {
                uint32_t first, count;
                gp_loader_batch *batch;
                gp_loader *loader;

                options.threads = threads;
                gp_split(SAMPLES, workers, rank, &first, &count);
                REQUIRE_OK(gp_loader_new(&loader, store, &sampler, &options, &err), err);
                REQUIRE_OK(gp_loader_request(loader, 1, first, count, &err), err);
                REQUIRE_OK(gp_loader_take(loader, &batch, NULL, &err), err);
                memcpy(got + first * BYTES, batch->samples, count * BYTES);
                memcpy(seen + first * LABELS, batch->targets, count * LABELS * sizeof(*seen));
                gp_loader_release(loader, batch);
                gp_loader_free(loader);
                if (threads == 1 && workers == 1) {
                    memcpy(expected, got, sizeof(got));
                    memcpy(labels, seen, sizeof(seen));
                }
                CHECK(memcmp(expected + first * BYTES, got + first * BYTES, count * BYTES) == 0);
                CHECK(memcmp(labels + first * LABELS, seen + first * LABELS,
                             count * LABELS * sizeof(*seen)) == 0);
            }
    CHECK(memcmp(expected, expected + BYTES, BYTES) != 0);
    gp_store_close(store);
}

TEST(partial_decoding_equals_cropping_the_full_image)
{
    static uint8_t got[IMAGES * PIXELS], stored[3 * 120 * 90], cut[PIXELS];
    gp_augment augment = augment_of("crop=random crop-size=48,48 x-reflection=0.5");
    const gp_loader_options options = {
        .depth = 1, .capacity = IMAGES, .augment = &augment, .seed = 4, .threads = 1
    };
    gp_store_info shape;
    gp_sampler sampler;
    gp_store *store;
    int32_t labels[IMAGES];
    gp_error err;

    photos_make(true);
    store = photos_open(1, false);
    REQUIRE(gp_store_draws(store, &augment));
    REQUIRE_OK(gp_augment_shape(&shape, &augment, gp_store_get_info(store), &err), err);
    epoch_read(store, &options, IMAGES, 2, 0, IMAGES, IMAGES, got, labels);
    gp_sampler_init(&sampler, IMAGES, GP_SHUFFLE_EVERY_EPOCH, 3);
    for (uint32_t i = 0; i < IMAGES; i++) {
        gp_augment_draw draw;
        uint32_t index;
        int32_t label;

        gp_sampler_get(&sampler, 2, i, 1, &index);
        REQUIRE_OK(gp_store_read(store, &index, 1, stored, &label, &err), err);
        gp_augment_draw_sample(&draw, &augment, gp_store_get_info(store), &shape, 4, 2, index);
        gp_augment_image(&draw, gp_store_get_info(store), &shape, 0, stored, cut);
        CHECK(memcmp(cut, got + (size_t)i * PIXELS, PIXELS) == 0);
        CHECK_INT(label, labels[i]);
    }
    gp_store_close(store);
}

TEST(all_pixel_formats_hold_the_same_values)
{
    static const char
        *const texts[] = { "crop=resized crop-size=48,48", /* drawn by the store */
                           "crop=resized crop-size=48,48 contrast=0.5 saturation=0.3",
                           "crop=random crop-size=48,48 rotation=-20,20" /* drawn by the loader */ };
    static uint8_t planes[IMAGES * PIXELS], interleaved[IMAGES * PIXELS];
    static float floats[IMAGES * PIXELS];
    int32_t labels[IMAGES];

    photos_make(true);
    for (size_t k = 0; k < 3; k++) {
        const gp_augment augment = augment_of(texts[k]);
        gp_loader_options options = { .depth = 1, .capacity = IMAGES, .augment = &augment, .seed = 4 };
        gp_store *store = photos_open(0, false);
        const gp_store_info *info = gp_store_get_info(store);

        CHECK_INT(k < 2, gp_store_draws(store, &augment));
        epoch_read(store, &options, IMAGES, 0, 0, IMAGES, IMAGES, planes, labels);
        options.form = GP_PIXELS_INTERLEAVED;
        epoch_read(store, &options, IMAGES, 0, 0, IMAGES, IMAGES, interleaved, labels);
        options.form = GP_PIXELS_FLOAT;
        epoch_read(store, &options, IMAGES, 0, 0, IMAGES, IMAGES, (uint8_t *)floats, labels);
        for (size_t i = 0; i < IMAGES; i++)
            for (size_t c = 0; c < 3; c++)
                for (size_t p = 0; p < CROP * CROP; p++) {
                    const size_t at = i * PIXELS + c * CROP * CROP + p;

                    REQUIRE(planes[at] == interleaved[i * PIXELS + 3 * p + c]);
                    REQUIRE((float)planes[at] * info->scale[c] + info->offset[c] == floats[at]);
                }
        gp_store_close(store);
    }
}

TEST(the_fit_crop_is_centred_for_any_image_size)
{
    static uint8_t got[IMAGES * PIXELS], again[IMAGES * PIXELS];
    const int64_t none[2] = { 0, 0 }, size[2] = { 64, 64 };
    gp_augment augment = augment_of("crop=resized crop-size=48,48"), fixed = gp_augment_fixed(&augment, none);
    gp_loader_options options = { .depth = 1, .capacity = IMAGES, .augment = &fixed, .seed = 4 };
    gp_store_info image = { .width = 400, .height = 300, .channels = 3 },
                  shape = { .width = 48, .height = 48, .channels = 3 };
    int32_t labels[IMAGES];
    gp_augment_draw draw;
    gp_store *store;

    CHECK_INT(GP_CROP_FIT, fixed.crop);
    CHECK_INT(GP_CROP_CENTER, gp_augment_fixed(&augment, size).crop);
    gp_augment_draw_sample(&draw, &fixed, &image, &shape, 1, 2, 3);
    CHECK(fabs(draw.a[0][2] - 50) < 1e-9 && fabs(draw.a[0][0] * 48 + draw.a[0][2] - 350) < 1e-9);
    CHECK(fabs(draw.a[1][2]) < 1e-9 && fabs(draw.a[1][1] * 48 + draw.a[1][2] - 300) < 1e-9);
    photos_make(false);
    store = photos_open(1, true);
    epoch_read(store, &options, IMAGES, 0, 0, IMAGES, IMAGES, got, labels);
    options.seed = 5; /* the seed has no effect: nothing is random */
    epoch_read(store, &options, IMAGES, 0, 0, IMAGES, IMAGES, again, labels);
    CHECK(memcmp(got, again, sizeof(got)) == 0);
    gp_store_close(store);
}

TEST(mixed_sizes_need_a_size_unless_only_windows_are_drawn)
{
    const int64_t none[2] = { 0, 0 };
    const char *const texts[] = { "crop=resized crop-size=48,48 rotation=-5,5",
                                  "crop=random crop-size=48,48" };
    gp_store_options options;
    gp_augment augment;
    gp_store *store;
    gp_error err;

    photos_make(false);
    for (size_t k = 0; k < 2; k++) {
        augment = augment_of(texts[k]);
        REQUIRE_OK(gp_augment_images(&options, &augment, none, NULL, &err), err);
        CHECK_STATUS(GP_EINVAL,
                     gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, &err));
        CHECK_CONTAINS(err.message, "--image-size");
    }
    augment = augment_of("crop=resized crop-size=48,48");
    REQUIRE_OK(gp_augment_images(&options, &augment, none, NULL, &err), err);
    REQUIRE_OK(gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, &err), err);
    gp_store_close(store);
}

TEST(a_bad_image_fails_by_name_or_is_skipped)
{
    static uint8_t got[IMAGES * PIXELS];
    const gp_augment augment = augment_of("crop=resized crop-size=48,48");
    gp_store_options options = { .channels = 3, .any_size = true, .on_error = GP_ON_ERROR_SKIP };
    const gp_loader_options loading = { .depth = 1, .capacity = IMAGES, .augment = &augment };
    int32_t labels[IMAGES];
    gp_loader *loader;
    gp_loader_batch *batch;
    gp_sampler sampler;
    gp_store *store;
    gp_error err;
    int without = 0;

    photos_make(false);
    file_put(in_folder("photos/cat/00.jpg"), "\xff\xd8\xff\xe0 nothing", 12);
    REQUIRE_OK(gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, &err), err);
    epoch_read(store, &loading, IMAGES, 0, 0, IMAGES, IMAGES, got, labels);
    for (int i = 0; i < IMAGES; i++)
        without += labels[i] == -1;
    CHECK_INT(1, without);
    CHECK_INT(1, gp_store_skipped(store));
    gp_store_close(store);
    options.on_error = GP_ON_ERROR_FAIL;
    options.cache_bytes = 1;
    CHECK_STATUS(GP_ECORRUPT, gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, &err));
    CHECK_CONTAINS(err.message, "cat/00.jpg");
    photos_make(false);
    REQUIRE_OK(gp_store_open_with(&store, in_folder("photos"), GP_DATA_TRAIN, &options, &err), err);
    file_put(in_folder("photos/dog/05.jpg"), "", 0); /* changed after the open */
    gp_sampler_init(&sampler, IMAGES, GP_SHUFFLE_NEVER, 3);
    REQUIRE_OK(gp_loader_new(&loader, store, &sampler, &loading, &err), err);
    REQUIRE_OK(gp_loader_request(loader, 0, 0, IMAGES, &err), err);
    CHECK_STATUS(GP_ECORRUPT, gp_loader_take(loader, &batch, NULL, &err));
    CHECK_CONTAINS(err.message, "dog/05.jpg: the file is empty");
    gp_loader_free(loader);
    gp_store_close(store);
}

/* The image is in the cache at full size, and larger windows are decoded from the file. */
TEST(an_image_replaced_by_a_smaller_one_is_reported)
{
    static const uint32_t index = 2; /* cat/04.jpg, 400x300 */
    static uint8_t rgb[20 * 16 * 3], got[PIXELS];
    const gp_augment augment = augment_of("crop=resized crop-size=48,48 crop-area=0.05,1");
    const made_image image = { 20, 16, 3, .data = rgb };
    int32_t label;
    gp_error err;

    for (int kind = 0; kind < 2; kind++) { /* JPEG, PNG */
        int failed = 0;

        photos_make(false);
        gp_store *store = photos_open(0, true);
        gp_store_info shape = *gp_store_get_info(store);

        REQUIRE_OK(gp_augment_shape(&shape, &augment, gp_store_get_info(store), &err), err);
        const gp_drawing drawing = {
            .augment = &augment, .shape = &shape, .seed = 1, .sample_bytes = shape.sample_bytes
        };

        for (uint32_t epoch = 0; epoch < 60; epoch++) {
            if (epoch == 30 && kind == 0)
                make_jpeg(in_folder("photos/cat/04.jpg"), &image, 90);
            else if (epoch == 30)
                make_png(in_folder("photos/cat/04.jpg"), &image);
            const gp_status status =
                gp_store_read_drawn(store, &drawing, epoch, &index, 1, got, &label, &err);

            if (epoch < 30)
                CHECK_STATUS(GP_OK, status);
            if (status == GP_OK)
                continue;
            failed++;
            CHECK_STATUS(GP_ECORRUPT, status);
            CHECK_CONTAINS(err.message, "cat/04.jpg was replaced by a smaller image of 20x16 pixels");
        }
        CHECK(failed > 0);
        gp_store_close(store);
    }
}
