#include "tests/gp_test.h"
#include "tests/leftovers.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/data/source/digits.h"
#include "common/data/store/store.h"
#include "tests/common/data/progress_seen.h"

TEST(digits_match_the_golden_hash)
{
    uint8_t pixel[GP_DIGITS_PIXELS];
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (uint32_t i = 0; i < 200; i++) {
        int label = gp_digits_draw(pixel, i % 3, i < 100 ? i : GP_DIGITS_TEST_FIRST + i);

        CHECK_INT((i < 100 ? i : GP_DIGITS_TEST_FIRST + i) % 10, label);
        for (int j = 0; j < GP_DIGITS_PIXELS; j++)
            hash = (hash ^ pixel[j]) * 0x100000001b3u;
    }
    CHECK(hash == 0x456f56d912f3aff0);
}

TEST(digits_are_ink_on_a_dark_background_and_differ)
{
    static uint8_t pixel[100][GP_DIGITS_PIXELS];

    for (uint32_t i = 0; i < 100; i++) {
        int inked = 0, corner;

        gp_digits_draw(pixel[i], 5, i);
        for (int j = 0; j < GP_DIGITS_PIXELS; j++)
            inked += pixel[i][j] > 128;
        corner = pixel[i][0] + pixel[i][27] + pixel[i][783];
        CHECK(inked > 20 && inked < 350);
        CHECK(corner < 3 * 40);
        for (uint32_t j = 0; j < i; j++)
            CHECK(memcmp(pixel[i], pixel[j], GP_DIGITS_PIXELS) != 0);
    }
}

/* Classify unseen digits by the nearest class mean. This works far better than chance only if
 * labels match images. */
TEST(labels_match_the_images)
{
    static float mean[10][GP_DIGITS_PIXELS];
    uint8_t pixel[GP_DIGITS_PIXELS];
    int right = 0;

    for (uint32_t i = 0; i < 2000; i++) {
        int label = gp_digits_draw(pixel, 1, i);

        for (int j = 0; j < GP_DIGITS_PIXELS; j++)
            mean[label][j] += pixel[j] / 200.0f;
    }
    for (uint32_t i = 0; i < 500; i++) {
        int label = gp_digits_draw(pixel, 1, GP_DIGITS_TEST_FIRST + i), nearest = 0;
        double best = INFINITY;

        for (int c = 0; c < 10; c++) {
            double far = 0;

            for (int j = 0; j < GP_DIGITS_PIXELS; j++)
                far += (pixel[j] - mean[c][j]) * (pixel[j] - mean[c][j]);
            if (far < best) {
                best = far;
                nearest = c;
            }
        }
        right += nearest == label;
    }
    CHECK(right > 250);
    CHECK(right < 490); /* the task is easy, but not trivial */
}

static gp_status open_and_close(const char *source, gp_data_role role, uint32_t *count, gp_error *err)
{
    gp_store *store;
    gp_status status = gp_store_open(&store, source, role, err);

    if (status != GP_OK)
        return status;
    *count = gp_store_get_info(store)->count;
    gp_store_close(store);
    return GP_OK;
}

TEST(test_digits_are_one_sixth_and_differ_from_training)
{
    gp_store *train, *test;
    uint32_t count;
    gp_error err;

    REQUIRE_OK(gp_store_open(&train, "digits:100", GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_open(&test, "digits:100", GP_DATA_TEST, &err), err);
    CHECK_INT(100, gp_store_get_info(train)->count);
    CHECK_INT(17, gp_store_get_info(test)->count);
    CHECK_INT(28, gp_store_get_info(test)->width);
    CHECK_INT(10, gp_store_get_info(test)->class_count);
    CHECK_TEXT("7", gp_store_get_info(test)->class_names[7]);
    CHECK(gp_store_get_info(train)->fingerprint != gp_store_get_info(test)->fingerprint);
    gp_store_close(train);
    gp_store_close(test);
    for (int i = 0; i < 5; i++) {
        static const char *const bad[] = { "digits:", "digits:0", "digits:10x", "digits:-5",
                                           "digits:99999999" };

        CHECK_STATUS(GP_EINVAL, open_and_close(bad[i], GP_DATA_TRAIN, &count, &err));
        CHECK_CONTAINS(err.message, "must be digits or digits:COUNT");
    }
    CHECK_EVERY_ALLOCATION(open_and_close("digits:10", GP_DATA_TRAIN, &count, &err), (void)0);
}

static int entries_count(const char *path)
{
    DIR *directory = opendir(path);
    int count = -2; /* exclude . and .. */

    while (directory != NULL && readdir(directory) != NULL)
        count++;
    if (directory != NULL)
        closedir(directory);
    return count;
}

static void set_remove(const char *path)
{
    char command[160];

    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    if (system(command) != 0)
        abort();
}

TEST(a_data_set_is_written_completely_or_not_at_all)
{
    char above[64] = "/tmp/gradpool-test-XXXXXX", path[96];
    gp_store *drawn, *read;
    uint32_t count = 0;
    progress_seen seen = { 0 };
    gp_error err;

    REQUIRE(leftovers_make(above) != NULL);
    snprintf(path, sizeof(path), "%s/digits/", above);
    CHECK_EVERY_ALLOCATION(gp_digits_write(path, GP_DIGITS_IDX, 12, 4, 1, NULL, &err), set_remove(path));
    CHECK_INT(0, entries_count(above)); /* failed writes left no files */
    REQUIRE(mkdir(path, 0777) == 0);    /* an empty directory is accepted */
    REQUIRE_OK(gp_digits_write(path, GP_DIGITS_IDX, 60, 10, GP_DIGITS_SEED,
                               &(gp_progress){ progress_seen_report, &seen }, &err),
               err);
    CHECK_PROGRESS(&seen, "drawing", "digits", 70, 70);
    CHECK(progress_seen_find(&seen, "writing", NULL) != NULL);
    CHECK_INT(10 * GP_DIGITS_PIXELS, progress_seen_find(&seen, "writing", NULL)->done);
    CHECK_INT(1, entries_count(above));
    CHECK_INT(4, entries_count(path));
    REQUIRE_OK(gp_store_open(&read, path, GP_DATA_TEST, &err), err);
    REQUIRE_OK(gp_store_open(&drawn, "digits:60", GP_DATA_TEST, &err), err);
    CHECK(gp_store_get_info(read)->fingerprint == gp_store_get_info(drawn)->fingerprint);
    gp_store_close(read);
    gp_store_close(drawn);
    CHECK_STATUS(GP_OK, open_and_close(path, GP_DATA_TRAIN, &count, &err));
    CHECK_INT(60, count);
    CHECK_STATUS(GP_ESTATE, gp_digits_write(path, GP_DIGITS_IDX, 12, 4, 1, NULL, &err));
    CHECK_CONTAINS(err.message, "is not an empty directory");
    CHECK_INT(4, entries_count(path));
    CHECK_STATUS(GP_EINVAL, gp_digits_write(path, GP_DIGITS_IDX, 0, 4, 1, NULL, &err));
    CHECK_STATUS(GP_EIO, gp_digits_write("/no/such/place/digits", GP_DIGITS_IDX, 1, 1, 1, NULL, &err));
    set_remove(above);
}

TEST(png_images_hold_the_drawn_digits)
{
    char above[64] = "/tmp/gradpool-test-XXXXXX", path[96];
    uint8_t drawn[GP_DIGITS_PIXELS], sample[GP_DIGITS_PIXELS];
    gp_store *store;
    int32_t label;
    gp_error err;

    REQUIRE(leftovers_make(above) != NULL);
    snprintf(path, sizeof(path), "%s/digits", above);
    CHECK_EVERY_ALLOCATION(gp_digits_write(path, GP_DIGITS_PNG, 12, 3, 1, NULL, &err), set_remove(path));
    CHECK_INT(0, entries_count(above)); /* failed writes left no files */
    REQUIRE_OK(gp_digits_write(path, GP_DIGITS_PNG, 20, 10, GP_DIGITS_SEED, NULL, &err), err);
    REQUIRE_OK(gp_store_open_with(&store, path, GP_DATA_TEST, &(gp_store_options){ .channels = 1 }, &err),
               err);
    CHECK_INT(10, gp_store_get_info(store)->count);
    for (uint32_t i = 0; i < 10; i++) { /* sorted by class */
        CHECK_STATUS(GP_OK, gp_store_read(store, &i, 1, sample, &label, &err));
        gp_digits_draw(drawn, GP_DIGITS_SEED, GP_DIGITS_TEST_FIRST + (i + 2) % 10);
        CHECK_INT(i, label);
        CHECK(memcmp(sample, drawn, sizeof(drawn)) == 0);
    }
    gp_store_close(store);
    set_remove(above);
}
