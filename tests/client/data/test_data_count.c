/* test_data_count.c: class counts of a data source and splitting, through gradpool.h. */
#include "client/gradpool.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/common/data/progress_seen.h"
#include "tests/gp_test.h"

static void tile_put(const char *name)
{
    static const uint8_t data[48] = { 0 };
    char command[320];

    snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", in_folder(name));
    if (system(command) != 0)
        abort();
    make_png(in_folder(name), &(made_image){ 4, 4, 3, .data = data });
}

TEST(samples_are_counted_per_class)
{
    gp_dataset *counts;
    const gp_dataset_info *facts;
    char name[64];
    gp_error err;

    folder_make();
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof(name), "train/%s/%d.png", i < 5 ? "cat" : "dog", i);
        tile_put(name);
    }
    tile_put("test/dog/a.png");
    REQUIRE_OK(gp_dataset_inspect(&counts, folder, false, &err), err);
    facts = gp_dataset_get_info(counts);
    CHECK_TEXT("folder", facts->kind);
    CHECK_INT(7, facts->samples);
    CHECK_INT(2, facts->class_count);
    CHECK_TEXT("dog", facts->class_names[1]);
    CHECK_INT(5, facts->counts[0]);
    CHECK_INT(2, facts->counts[1]);
    CHECK_INT(0, facts->counts[2]);
    CHECK(!facts->pixel_labels && !facts->sizes_differ && facts->height == 4);
    gp_dataset_free(counts);
    REQUIRE_OK(gp_dataset_inspect(&counts, folder, true, &err), err);
    CHECK_INT(0, gp_dataset_get_info(counts)->counts[0]);
    CHECK_INT(1, gp_dataset_get_info(counts)->counts[1]);
    gp_dataset_free(counts);
    CHECK_STATUS(GP_ENOENT, gp_dataset_inspect(&counts, "digits-of-nobody", false, &err));
    CHECK_EVERY_ALLOCATION(gp_dataset_inspect(&counts, folder, true, &err), gp_dataset_free(counts));
    folder_remove();
}

TEST(a_source_is_divided_into_lists_by_shares_and_by_numbers)
{
    const double shares[] = { 0.6 }, numbers[] = { 1, 2 };
    char paths[3][96];
    uint32_t samples[3];
    progress_seen seen = { 0 };
    gp_dataset *counts;
    char name[64];
    gp_error err;

    folder_make();
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "photos/%s/%d.png", i < 10 ? "cat" : "dog", i);
        tile_put(name);
    }
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/%d.csv", folder, i);
    const char *const lists[] = { paths[0], paths[1], paths[2] };

    REQUIRE_OK(gp_data_split(in_folder("photos"), shares, lists, 2, 1, samples,
                             &(gp_progress){ progress_seen_report, &seen }, &err),
               err);
    CHECK_PROGRESS(&seen, "listing", "class folders", 2, 2);
    CHECK_PROGRESS(&seen, "writing lists", "samples", 20, 20);
    CHECK_INT(12, samples[0]);
    CHECK_INT(8, samples[1]);
    REQUIRE_OK(gp_dataset_inspect(&counts, paths[0], false, &err), err);
    CHECK_INT(6, gp_dataset_get_info(counts)->counts[0]);
    CHECK_INT(6, gp_dataset_get_info(counts)->counts[1]);
    gp_dataset_free(counts);
    REQUIRE_OK(gp_data_split(in_folder("photos"), numbers, lists, 3, 1, samples, NULL, &err), err);
    CHECK_INT(2, samples[0]);
    CHECK_INT(4, samples[1]);
    CHECK_INT(14, samples[2]);
    CHECK_STATUS(GP_EINVAL,
                 gp_data_split(in_folder("photos"), (double[]){ 11 }, lists, 2, 1, samples, NULL, &err));
    folder_remove();
}
