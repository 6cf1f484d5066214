/* Folders, archives, lists and arrays in S3, compared with the same data on disk; prefetching and
 * the disk cache. */
#include "tests/gp_test.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/data/s3/prefetch.h"
#include "common/data/loader/loader.h"
#include "common/data/cache/object_cache.h"
#include "common/data/source/objects.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/fake/s3.h"

#define NEED(server)                                                                                         \
    s3_server *server = s3_start();                                                                          \
    S3_REQUIRE(server);                                                                                      \
    environment_set();                                                                                       \
    s3_server_run(server, "requests")

__attribute__((constructor)) static void world_begin(void)
{
    folder_make();
}

static void environment_set(void)
{
    static const char *const unset[] = { "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
                                         "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN" };

    for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
        unsetenv(unset[i]);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret-for-tests", 1);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
}

static void shell(const char *format, const char *word)
{
    char command[1024];

    snprintf(command, sizeof(command), format, folder, word);
    if (system(command) != 0)
        abort();
}

/* Create a PNG with 3x2 different pixels. */
static void tile_put(const char *name, uint8_t grey)
{
    uint8_t data[18];

    for (int i = 0; i < 18; i++)
        data[i] = (uint8_t)(grey + i);
    shell("cd '%s' && mkdir -p \"$(dirname '%s')\"", name);
    make_png(in_folder(name), &(made_image){ .width = 3, .height = 2, .channels = 3, .data = data });
}

static void text_put(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

/* Check that two stores have the same samples, labels, classes and fingerprint, and with `names`
 * also the same sample names. */
static void stores_compare(const char *local, const char *remote, gp_data_role role, bool names)
{
    gp_store *stores[2] = { NULL, NULL };
    const gp_store_info *info[2];
    gp_error err;

    if (gp_store_open(&stores[0], local, role, &err) != GP_OK ||
        gp_store_open(&stores[1], remote, role, &err) != GP_OK) {
        GP_TEST_FAIL("%s beside %s: %s", local, remote, err.message);
        gp_store_close(stores[0]);
        return;
    }
    for (int i = 0; i < 2; i++)
        info[i] = gp_store_get_info(stores[i]);
    CHECK_INT(info[0]->count, info[1]->count);
    CHECK_INT(info[0]->sample_bytes, info[1]->sample_bytes);
    CHECK_INT(info[0]->class_count, info[1]->class_count);
    CHECK_INT(info[0]->passed_over, info[1]->passed_over);
    CHECK(info[0]->fingerprint == info[1]->fingerprint);
    for (uint32_t k = 0; k < info[0]->class_count && info[0]->class_count == info[1]->class_count; k++)
        CHECK_TEXT(info[0]->class_names[k], info[1]->class_names[k]);
    for (uint32_t i = 0; i < info[0]->count && info[0]->count == info[1]->count; i++) {
        uint8_t samples[2][4096], targets[2][64];
        char called[2][300];

        for (int s = 0; s < 2; s++) {
            if (gp_store_read(stores[s], &i, 1, samples[s], targets[s], &err) != GP_OK)
                GP_TEST_FAIL("%s", err.message);
            gp_store_name(stores[s], i, called[s], sizeof(called[s]));
        }
        CHECK(memcmp(samples[0], samples[1], info[0]->sample_bytes) == 0);
        CHECK(memcmp(targets[0], targets[1], info[0]->target_bytes) == 0);
        if (names)
            CHECK_TEXT(called[0], called[1]);
    }
    gp_store_close(stores[0]);
    gp_store_close(stores[1]);
}

/* ---- folders ---- */

static void folders_make(s3_server *server)
{
    static const char *const names[] = {
        "photos/train/10/a.png",
        "photos/train/2/z.png",
        "photos/train/2/deep/b.png",
        "photos/train/2/deep.png",
        "photos/train/2-b/a b+c.png",
        "photos/train/2-b/\xc3\xbc&.png",
        "photos/test/10/q.png",
        "photos/test/2-b/sub/sub/e.png",
        "photos/test/2/.hidden/x.png",
        "photos/test/2/one.png",
        "flat/cat/1.png",
        "flat/cat-2/2.png",
        "flat/cat/3.png",
        "flat/dog/4.png",
    };
    static bool made;

    if (made)
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        tile_put(names[i], (uint8_t)(7 * i));
    text_put("photos/train/2/notes.txt", "not an image");
    text_put("flat/README", "not an image");
    s3_server_run(server, "bucket data");
    s3_server_run(server, "upload data photos %s", in_folder("photos"));
    s3_server_run(server, "upload data flat %s", in_folder("flat"));
    s3_server_run(server, "put data flat/empty-marker/");
    made = true;
}

TEST(class_folders_in_s3_equal_the_directory)
{
    NEED(server);
    folders_make(server);
    stores_compare(in_folder("photos"), s3_source(server, "data/photos", "0"), GP_DATA_TRAIN, true);
    stores_compare(in_folder("photos"), s3_source(server, "data/photos/", "0"), GP_DATA_TEST, true);
    stores_compare(in_folder("flat"), s3_source(server, "data/flat", "0"), GP_DATA_TRAIN, true);
    stores_compare(in_folder("flat"), s3_source(server, "data/flat", "0"), GP_DATA_GIVEN, true);
}

TEST(missing_files_in_s3_fail_like_in_a_directory)
{
    NEED(server);
    static const char *const cases[][3] = {
        { "data/nothing", "0", "no objects in s3://data/nothing/" },
        { "data/flat", "1", "has no test images" },
        { "data/photos/train/2", "0", "there is no .jpg or .png" },
        { "data/flat/cat", "0", "has images without labels" },
        { "data/pairs", "0", "but no classes.csv" },
        { "data/bare", "0", "has images without labels" },
    };
    gp_store *store;
    gp_error err;

    folders_make(server);
    s3_server_run(server, "put data pairs/images/a.png x");
    s3_server_run(server, "put data pairs/labels/a.png x");
    s3_server_run(server, "put data bare/a.png x");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_status status = gp_store_open(&store, s3_source(server, cases[i][0], "0"),
                                         cases[i][1][0] == '1' ? GP_DATA_TEST : GP_DATA_TRAIN, &err);

        if (strcmp(cases[i][0], "data/photos/train/2") == 0) {
            CHECK_STATUS(GP_OK, status); /* deep/ is a class here */
            gp_store_close(store);
            continue;
        }
        CHECK(status != GP_OK);
        CHECK_CONTAINS(err.message, cases[i][2]);
    }
}

TEST(damaged_images_are_skipped_but_server_failures_are_not)
{
    NEED(server);
    gp_store_options options = {
        .on_error = GP_ON_ERROR_SKIP, .height = 2, .width = 3, .channels = 3, .cache_bytes = 1
    };
    uint32_t all[3] = { 0, 1, 2 };
    uint8_t samples[3 * 18];
    int32_t labels[3];
    gp_store *store;
    gp_error err;

    tile_put("bad/a/1.png", 1);
    tile_put("bad/a/2.png", 2);
    text_put("bad/a/3.png", "no image");
    s3_server_run(server, "bucket spoilt");
    s3_server_run(server, "upload spoilt bad %s", in_folder("bad"));
    REQUIRE_OK(
        gp_store_open_with(&store, s3_source(server, "spoilt/bad", "0"), GP_DATA_TRAIN, &options, &err), err);
    REQUIRE_OK(gp_store_read(store, all, 3, samples, labels, &err), err);
    CHECK_INT(1, gp_store_skipped(store));
    CHECK_INT(-1, labels[2]);
    s3_server_run(server, "fault 99 403");
    CHECK_STATUS(GP_EPERM, gp_store_read(store, all, 3, samples, labels, &err));
    CHECK_CONTAINS(err.message, "403 AccessDenied");
    CHECK_INT(1, gp_store_skipped(store));
    s3_server_run(server, "requests");
    gp_store_close(store);
}

TEST(an_image_replaced_after_the_listing_is_rejected)
{
    NEED(server);
    gp_store_options options = {
        .on_error = GP_ON_ERROR_SKIP, .height = 2, .width = 3, .channels = 3, .cache_bytes = 1
    };
    uint32_t all[2] = { 0, 1 };
    uint8_t samples[2 * 18];
    gp_store *store;
    gp_error err;

    tile_put("swap/a/1.png", 1);
    tile_put("swap/a/2.png", 2);
    s3_server_run(server, "bucket swapped");
    s3_server_run(server, "upload swapped swap %s", in_folder("swap"));
    REQUIRE_OK(
        gp_store_open_with(&store, s3_source(server, "swapped/swap", "0"), GP_DATA_TRAIN, &options, &err),
        err);
    tile_put("swap/a/2.png", 3);
    s3_server_run(server, "upload swapped swap %s", in_folder("swap"));
    CHECK_STATUS(GP_ECORRUPT, gp_store_read(store, all, 2, samples, NULL, &err));
    CHECK_CONTAINS(err.message, "s3://swapped/swap/a/2.png has changed since it was listed");
    gp_store_close(store);
}

/* ---- images with label images ---- */

/* Create a grey PNG with 3x2 pixels of value 0, 1 or 2. */
static void label_put(const char *name, uint8_t first)
{
    uint8_t data[6];

    for (int i = 0; i < 6; i++)
        data[i] = (uint8_t)((first + i) % 3);
    shell("cd '%s' && mkdir -p \"$(dirname '%s')\"", name);
    make_png(in_folder(name), &(made_image){ .width = 3, .height = 2, .channels = 1, .data = data });
}

static void scenes_make(s3_server *server)
{
    static const char *const names[] = { "train/a", "train/b-c/d e", "train/b/\xc3\xbc",
                                         "train/z", "val/v",         "val/w" };
    static bool made;
    char path[200];

    if (made)
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *slash = strchr(names[i], '/');

        snprintf(path, sizeof(path), "scenes/%s.png", names[i]);
        tile_put(path, (uint8_t)(9 * i));
        snprintf(path, sizeof(path), "scenes/%.*s_labels%s%s.png", (int)(slash - names[i]), names[i], slash,
                 i % 2 == 0 ? "" : "_L");
        label_put(path, (uint8_t)i);
    }
    text_put("scenes/classes.csv", "sky\nvoid\nroad\n");
    text_put("scenes/train/notes.txt", "not an image");
    shell(
        "cd '%s' && mkdir -p whole && cp -r %s whole/images && cp -r scenes/train_labels whole/labels && cp "
        "scenes/classes.csv whole/class_dict.csv",
        "scenes/train");
    s3_server_run(server, "bucket roads");
    s3_server_run(server, "upload roads scenes %s", in_folder("scenes"));
    s3_server_run(server, "upload roads whole %s", in_folder("whole"));
    made = true;
}

TEST(label_images_in_s3_equal_those_on_disk)
{
    NEED(server);
    scenes_make(server);
    stores_compare(in_folder("scenes"), s3_source(server, "roads/scenes", "0"), GP_DATA_TRAIN, true);
    stores_compare(in_folder("scenes"), s3_source(server, "roads/scenes", "64MiB"), GP_DATA_TEST, true);
    stores_compare(in_folder("scenes"), s3_source(server, "roads/scenes", "64MiB"), GP_DATA_GIVEN, true);
    stores_compare(in_folder("whole"), s3_source(server, "roads/whole/", "0"), GP_DATA_TRAIN, true);
}

TEST(each_image_and_label_image_is_fetched_once)
{
    NEED(server);
    const gp_store_options options = { .channels = 3, .height = 2, .width = 3 };
    gp_store *store;
    uint32_t all[4] = { 0, 1, 2, 3 };
    uint8_t samples[4 * 18];
    int32_t labels[4 * 6];
    gp_whole whole = { 0 };
    gp_error err;

    scenes_make(server);
    shell("rm -rf '%s/%s'", "cache");
    REQUIRE_OK(
        gp_store_open_with(&store, s3_source(server, "roads/scenes", "64MiB"), GP_DATA_TRAIN, &options, &err),
        err);
    gp_store_expect(store, all, 4);
    REQUIRE_OK(gp_store_read(store, all, 4, samples, labels, &err), err);
    REQUIRE_OK(gp_store_read(store, all, 4, NULL, labels, &err), err);
    for (uint32_t i = 0; i < 4; i++)
        REQUIRE_OK(gp_store_read_whole(store, i, &(gp_whole_size){ 0 }, &whole, &err), err);
    /* a listing, the class file, 4 images, 4 label images */
    CHECK_TEXT("10 9", s3_server_run(server, "requests"));
    gp_whole_deinit(&whole);
    gp_store_close(store);
}

TEST(mismatched_label_images_fail_by_name_or_are_skipped)
{
    NEED(server);
    gp_store_options options = { .channels = 3, .height = 2, .width = 3 };
    uint32_t all[2] = { 0, 1 };
    uint8_t samples[2 * 18];
    int32_t labels[2 * 6];
    gp_store *store;
    gp_error err;

    tile_put("odd/images/a.png", 1);
    tile_put("odd/images/b.png", 2);
    tile_put("odd/images/c.png", 3);
    label_put("odd/labels/a.png", 1);
    make_png(in_folder("odd/labels/b.png"),
             &(made_image){ .width = 2, .height = 2, .channels = 1, .data = (uint8_t[4]){ 0 } });
    text_put("odd/classes.csv", "sky\nvoid\nroad\n");
    s3_server_run(server, "bucket odd");
    s3_server_run(server, "upload odd odd %s", in_folder("odd"));
    CHECK_STATUS(GP_ENOENT, gp_store_open_with(&store, s3_source(server, "odd/odd", "0"), GP_DATA_TRAIN,
                                               &options, &err));
    CHECK_CONTAINS(err.message, "s3://odd/odd/images/c.png has no label image");
    options.on_error = GP_ON_ERROR_SKIP;
    REQUIRE_OK(gp_store_open_with(&store, s3_source(server, "odd/odd", "0"), GP_DATA_TRAIN, &options, &err),
               err);
    CHECK_INT(2, gp_store_get_info(store)->count);
    REQUIRE_OK(gp_store_read(store, all, 2, samples, labels, &err), err);
    CHECK_INT(1, gp_store_skipped(store));
    for (int i = 0; i < 6; i++)
        CHECK_INT(-1, labels[6 + i]);
    gp_store_close(store);
    options.on_error = GP_ON_ERROR_FAIL;
    s3_server_run(server, "delete odd odd/images/c.png");
    CHECK_STATUS(GP_ECORRUPT, gp_store_open_with(&store, s3_source(server, "odd/odd", "0"), GP_DATA_TRAIN,
                                                 &options, &err));
    CHECK_CONTAINS(err.message,
                   "odd/labels/b.png has 2x2 pixels (height x width), but the image that it labels has 2x3");
}

TEST(unlabelled_images_in_s3_can_be_predicted)
{
    NEED(server);
    tile_put("plain/1.png", 1);
    tile_put("plain/2.png", 2);
    text_put("plain/readme.txt", "not an image");
    s3_server_run(server, "bucket plain");
    s3_server_run(server, "upload plain plain %s", in_folder("plain"));
    stores_compare(in_folder("plain"), s3_source(server, "plain/plain", "0"), GP_DATA_GIVEN, true);
}

/* ---- archives, lists, arrays ---- */

TEST(archives_in_s3_equal_those_on_disk)
{
    NEED(server);
    folders_make(server);
    shell("cd '%s' && mkdir -p tars && tar cf one.tar %s && tar cf tars/a.tar -C photos train/10 train/2 && "
          "tar cf tars/b.tar -C photos train/2-b test",
          "photos");
    s3_server_run(server, "bucket archives");
    s3_server_run(server, "upload archives tars %s", in_folder("tars"));
    shell("cd '%s' && mkdir -p single && cp %s single", "one.tar");
    s3_server_run(server, "upload archives single %s", in_folder("single"));
    stores_compare(in_folder("one.tar"), s3_source(server, "archives/single/one.tar", "0"), GP_DATA_TRAIN,
                   false);
    stores_compare(in_folder("tars"), s3_source(server, "archives/tars", "64MiB"), GP_DATA_TRAIN, false);
    stores_compare(in_folder("tars"), s3_source(server, "archives/tars", "64MiB"), GP_DATA_TEST, false);
}

/* Read as class folders, the images and the label images would be classes. */
TEST(label_images_in_archives_in_s3_are_refused)
{
    NEED(server);
    gp_store *store;
    gp_error err;

    scenes_make(server);
    shell("cd '%s' && mkdir -p %s && tar cf archived/one.tar scenes", "archived");
    s3_server_run(server, "bucket archived");
    s3_server_run(server, "upload archived all %s", in_folder("archived"));
    CHECK_STATUS(GP_EUNSUPPORTED, gp_store_open_with(&store, s3_source(server, "archived/all/one.tar", "0"),
                                                     GP_DATA_TRAIN, &(gp_store_options){ 0 }, &err));
    CHECK_CONTAINS(err.message, "has label images, which are not supported in archives in S3");
}

TEST(csv_lists_use_relative_keys_or_urls)
{
    NEED(server);
    char lines[2000];

    folders_make(server);
    text_put("photos/list.csv", "path,label\ntrain/2/z.png,b\ntrain/10/a.png,a\ntrain/2-b/a b+c.png,b\n");
    s3_server_run(server, "upload data photos %s", in_folder("photos"));
    stores_compare(in_folder("photos/list.csv"), s3_source(server, "data/photos/list.csv", "0"),
                   GP_DATA_TRAIN, false);
    snprintf(lines, sizeof(lines), "path,label\n%s,b\n%s,a\n%s,b\n",
             s3_source(server, "data/photos/train/2/z.png", "0"),
             s3_source(server, "data/photos/train/10/a.png", "0"),
             s3_source(server, "data/photos/train/2-b/a b+c.png", "0"));
    text_put("urls.csv", lines);
    stores_compare(in_folder("photos/list.csv"), in_folder("urls.csv"), GP_DATA_TRAIN, false);
    unlink(in_folder("photos/list.csv"));
}

TEST(a_missing_object_in_a_list_is_reported)
{
    NEED(server);
    gp_store *store;
    gp_error err;

    folders_make(server);
    s3_server_run(server, "put data lists/a.csv path,label%%0Anone.png,a%%0A");
    CHECK_STATUS(GP_ENOENT,
                 gp_store_open(&store, s3_source(server, "data/lists/a.csv", "0"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "s3://data/lists/none.png: no such object");
    s3_server_run(server, "put data lists/b.csv path,label%%0A/etc/passwd,a%%0A");
    CHECK_STATUS(GP_EINVAL,
                 gp_store_open(&store, s3_source(server, "data/lists/b.csv", "0"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "is not relative");
}

TEST(large_archives_are_read_across_block_boundaries)
{
    NEED(server);
    char name[64];

    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof(name), "wide/%s/%d.png", i % 2 == 0 ? "a" : "b", i);
        tile_put(name, (uint8_t)(40 * i));
        snprintf(name, sizeof(name), "wide/%s/%d.txt", i % 2 == 0 ? "a" : "b", i);
        shell("head -c 2097000 /dev/zero > '%s/%s'", name); /* skipped, but part of the archive */
    }
    shell("cd '%s' && mkdir -p large && tar cf large/wide.tar %s", "wide");
    s3_server_run(server, "bucket large");
    s3_server_run(server, "upload large large %s", in_folder("large"));
    stores_compare(in_folder("large/wide.tar"), s3_source(server, "large/large/wide.tar", "0"), GP_DATA_TRAIN,
                   false);
    shell("rm -rf '%s/%s'", "cache");
    s3_server_run(server, "requests");
    stores_compare(in_folder("large/wide.tar"), s3_source(server, "large/large/wide.tar", "64MiB"),
                   GP_DATA_TRAIN, false);
    /* a request for the size, the others for 12.6 MB in blocks of 4 MiB */
    CHECK_TEXT("5 5", s3_server_run(server, "requests"));
    stores_compare(in_folder("large/wide.tar"), s3_source(server, "large/large/wide.tar", "64MiB"),
                   GP_DATA_TRAIN, false);
    CHECK_TEXT("1 1", s3_server_run(server, "requests"));
}

/* Write an array file like numpy.save(). */
static void npy_put(const char *name, const char *header, const void *data, size_t bytes)
{
    FILE *file = fopen(in_folder(name), "w");
    char head[128];

    memset(head, ' ', sizeof(head));
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    memcpy(head + 10, header, strlen(header));
    head[127] = '\n';
    if (file == NULL || fwrite(head, sizeof(head), 1, file) != 1 || fwrite(data, bytes, 1, file) != 1)
        abort();
    fclose(file);
}

TEST(arrays_in_s3_equal_those_on_disk)
{
    NEED(server);
    static uint8_t x[3000000 * 2]; /* larger than one block */
    static int64_t y[1000000];
    static const char *const caches[] = { "64MiB", "64MiB", "0" };

    for (size_t i = 0; i < sizeof(x); i++)
        x[i] = (uint8_t)(i * 31 + i / 256);
    for (size_t i = 0; i < sizeof(y) / sizeof(y[0]); i++)
        y[i] = (int64_t)(i % 7);
    shell("mkdir -p '%s/%s'", "arrays");
    npy_put("arrays/train-x.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 2, 3), }", x,
            sizeof(x));
    npy_put("arrays/train-y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000,), }", y,
            sizeof(y));
    s3_server_run(server, "bucket arrays");
    s3_server_run(server, "upload arrays numbers %s", in_folder("arrays"));
    for (int i = 0; i < 3; i++) {
        const char *at = i == 1 ? "arrays/numbers/train-x.npy" : "arrays/numbers";
        gp_store *local, *remote;
        uint32_t index = 999999;
        uint8_t samples[2][6];
        int32_t labels[2];
        gp_error err;

        s3_server_run(server, "requests");
        REQUIRE_OK(gp_store_open(&local, in_folder("arrays"), GP_DATA_TRAIN, &err), err);
        REQUIRE_OK(gp_store_open(&remote, s3_source(server, at, caches[i]), GP_DATA_TRAIN, &err), err);
        CHECK(gp_store_get_info(local)->fingerprint == gp_store_get_info(remote)->fingerprint);
        REQUIRE_OK(gp_store_read(local, &index, 1, samples[0], &labels[0], &err), err);
        REQUIRE_OK(gp_store_read(remote, &index, 1, samples[1], &labels[1], &err), err);
        CHECK(memcmp(samples[0], samples[1], 6) == 0);
        CHECK_INT(labels[0], labels[1]);
        gp_store_close(local);
        gp_store_close(remote);
        if (i == 0) /* a listing, one probe per array, two blocks per array */
            CHECK_TEXT("7 6", s3_server_run(server, "requests"));
        if (i == 1) /* cached: one probe to find the other array, one per array */
            CHECK_TEXT("3 3", s3_server_run(server, "requests"));
    }
}

/* ---- cache ---- */

TEST(cached_objects_are_not_fetched_again)
{
    NEED(server);
    folders_make(server);
    shell("rm -rf '%s/%s'", "cache");
    stores_compare(in_folder("photos"), s3_source(server, "data/photos", "64MiB"), GP_DATA_TRAIN, true);
    CHECK_TEXT("7 6", s3_server_run(server, "requests"));
    stores_compare(in_folder("photos"), s3_source(server, "data/photos", "64MiB"), GP_DATA_TRAIN, true);
    CHECK_TEXT("1 0", s3_server_run(server, "requests"));
}

/* Fill an entry with bytes that depend on the entry number. */
static void entry_fill(uint8_t *data, size_t bytes, uint32_t number)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(number * 131 + i * 7 + i / 251);
}

static gp_object_id entry_id(uint32_t number)
{
    gp_object_id id;

    memset(&id, 0, sizeof(id));
    snprintf(id.text, sizeof(id.text), "%02x%062u", number % 256, number);
    return id;
}

TEST(cache_entries_are_read_in_parts_and_dropped_if_damaged)
{
    static uint8_t data[200000];
    gp_object_id id = entry_id(5);
    gp_object_cache *cache;
    gp_buffer out;
    char path[600];
    int fd;

    environment_set();
    shell("rm -rf '%s/%s'", "cache");
    cache = gp_object_cache_open("s3", 1 << 20);
    REQUIRE(cache != NULL);
    gp_buffer_init(&out, 1 << 20);
    entry_fill(data, sizeof(data), 5);
    CHECK(!gp_object_cache_get(cache, &id, 0, 10, &out));
    gp_object_cache_put(cache, &id, data, sizeof(data));
    CHECK(gp_object_cache_get(cache, &id, 0, sizeof(data), &out));
    CHECK(memcmp(out.data, data, sizeof(data)) == 0);
    CHECK(gp_object_cache_get(cache, &id, 65530, 100, &out));
    CHECK_INT(sizeof(data) + 100, out.bytes);
    CHECK(memcmp(out.data + sizeof(data), data + 65530, 100) == 0);
    CHECK(!gp_object_cache_get(cache, &id, sizeof(data) - 10, 11, &out));
    snprintf(path, sizeof(path), "%s/gradpool/s3/05/%s", in_folder("cache"), id.text + 2);
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 512 + 150000) == 1);
    close(fd);
    CHECK(gp_object_cache_get(cache, &id, 0, 100, &out));
    CHECK(!gp_object_cache_get(cache, &id, 149990, 100, &out));
    CHECK(access(path, F_OK) != 0);
    gp_buffer_deinit(&out);
    gp_object_cache_close(cache);
}

static uint64_t walked;

static int file_walk(const char *path, const struct stat *stat_, int type, struct FTW *where)
{
    (void)path;
    (void)where;
    walked += type == FTW_F ? (uint64_t)stat_->st_blocks * 512 : 0;
    return 0;
}

TEST(the_cache_evicts_least_recently_used_entries)
{
    enum { BYTES = 100000, LIMIT = 2 << 20 };
    static uint8_t data[BYTES];
    gp_object_cache *cache;
    gp_buffer out;

    environment_set();
    shell("rm -rf '%s/%s'", "cache");
    cache = gp_object_cache_open("s3", LIMIT);
    REQUIRE(cache != NULL);
    gp_buffer_init(&out, BYTES);
    for (uint32_t i = 0; i < 60; i++) {
        gp_object_id id = entry_id(i), first = entry_id(0);
        char path[600];

        entry_fill(data, BYTES, i);
        gp_object_cache_put(cache, &id, data, BYTES);
        CHECK(gp_object_cache_used(cache) <= LIMIT);

        /* Set the last use one minute later for each entry. The first entry is used in every
         * round. */
        snprintf(path, sizeof(path), "%s/gradpool/s3/%.2s/%s", in_folder("cache"), id.text, id.text + 2);
        CHECK(
            utimensat(AT_FDCWD, path,
                      (struct timespec[2]){ { .tv_sec = 1000000 + 60 * i }, { .tv_sec = 1000000 + 60 * i } },
                      0) == 0);
        gp_buffer_clear(&out);
        CHECK(gp_object_cache_get(cache, &first, 0, BYTES, &out));
    }
    for (uint32_t i = 1; i < 60; i++) {
        gp_object_id id = entry_id(i);
        bool there;

        gp_buffer_clear(&out);
        there = gp_object_cache_get(cache, &id, 0, BYTES, &out);
        if (i < 38)
            CHECK(!there);
        if (i > 50)
            CHECK(there);
    }
    walked = 0;
    nftw(in_folder("cache"), file_walk, 8, FTW_PHYS);
    CHECK(walked <= LIMIT + 16384);
    gp_buffer_deinit(&out);
    gp_object_cache_close(cache);
}

/* Put and get entries shared with other processes. Return nonzero if any entry read is wrong. */
static int cache_hammer(uint32_t seed)
{
    enum { BYTES = 30000 };
    gp_object_cache *cache = gp_object_cache_open("s3", 1 << 20);
    uint8_t *data = malloc(BYTES);
    gp_buffer out;
    int wrong = cache == NULL;

    gp_buffer_init(&out, BYTES);
    for (uint32_t i = 0; i < 400 && wrong == 0; i++) {
        uint32_t number = (seed * 7919 + i * 104729) % 97;
        gp_object_id id = entry_id(number);

        entry_fill(data, BYTES, number);
        gp_buffer_clear(&out);
        if (gp_object_cache_get(cache, &id, 0, BYTES, &out))
            wrong = memcmp(out.data, data, BYTES) != 0;
        else
            gp_object_cache_put(cache, &id, data, BYTES);
    }
    gp_buffer_deinit(&out);
    gp_object_cache_close(cache);
    free(data);
    return wrong;
}

TEST(processes_share_the_cache_and_the_limit)
{
    pid_t children[4];

    environment_set();
    shell("rm -rf '%s/%s'", "cache");
    for (uint32_t i = 0; i < 4; i++) {
        fflush(stdout);
        children[i] = fork();
        if (children[i] == 0)
            _exit(cache_hammer(i));
    }
    for (int i = 0; i < 4; i++) {
        int status = 0;

        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    walked = 0;
    nftw(in_folder("cache"), file_walk, 8, FTW_PHYS);
    CHECK(walked <= (1 << 20) + 5 * 36864);
}

/* ---- prefetch queue ---- */

typedef struct prefetch_world {
    pthread_mutex_t lock;
    uint32_t fetches, at_once, most, fetched[100];
} prefetch_world;

static gp_status slow_fetch(void *context, uint32_t number, gp_buffer *out, gp_error *err)
{
    prefetch_world *world = context;

    pthread_mutex_lock(&world->lock);
    world->fetches++;
    world->fetched[number]++;
    world->at_once++;
    world->most = world->at_once > world->most ? world->at_once : world->most;
    /* wait until a second fetch runs concurrently */
    for (int i = 0; i < 12000 && world->most < 2; i++) {
        pthread_mutex_unlock(&world->lock);
        gp_sleep_ms(5);
        pthread_mutex_lock(&world->lock);
    }
    world->at_once--;
    pthread_mutex_unlock(&world->lock);
    if (number == 13)
        return gp_fail(err, GP_EIO, "thirteen");
    return gp_buffer_printf(out, err, "%u", number);
}

TEST(items_are_prefetched_once_and_concurrently)
{
    prefetch_world world = { .lock = PTHREAD_MUTEX_INITIALIZER };
    uint32_t numbers[40];
    gp_prefetch *prefetch;
    gp_buffer out;
    gp_error err;

    REQUIRE_OK(gp_prefetch_new(&prefetch, 8, 64, 100, 1000, slow_fetch, &world, &err), err);
    gp_buffer_init(&out, 100);
    for (uint32_t i = 0; i < 40; i++)
        numbers[i] = i;
    gp_prefetch_want(prefetch, numbers, 40);
    gp_prefetch_want(prefetch, numbers, 40);
    for (uint32_t i = 40; i-- > 0;) {
        char text[16];
        bool there;
        gp_status status = gp_prefetch_take(prefetch, i, &there, &out, &err);

        if (!there)
            status = slow_fetch(&world, i, &out, &err);
        snprintf(text, sizeof(text), "%u", i);
        CHECK_STATUS(i == 13 ? GP_EIO : GP_OK, status);
        if (i == 13)
            CHECK_TEXT("thirteen", err.message);
        else
            CHECK_TEXT(text, gp_buffer_text(&out));
        gp_buffer_clear(&out);
        CHECK_INT(1, world.fetched[i]);
    }
    CHECK_INT(40, world.fetches);
    CHECK(world.most > 1 && world.most <= 9);
    gp_buffer_deinit(&out);
    gp_prefetch_free(prefetch);
}

TEST(prefetching_respects_the_memory_limit)
{
    prefetch_world world = { .lock = PTHREAD_MUTEX_INITIALIZER };
    uint32_t numbers[90];
    gp_prefetch *prefetch;
    gp_error err;

    REQUIRE_OK(gp_prefetch_new(&prefetch, 2, 64, 100, 20, slow_fetch, &world, &err), err);
    for (uint32_t i = 0; i < 90; i++)
        numbers[i] = i + 10 == 13 ? 0 : i + 10 > 99 ? 1 : i + 10;
    gp_prefetch_want(prefetch, numbers, 90);
    /* wait until the count is stable, because the machine may be busy */
    for (uint32_t fetches = 0, before = 1; fetches < 10 || fetches != before;) {
        before = fetches;
        gp_sleep_ms(50);
        pthread_mutex_lock(&world.lock);
        fetches = world.fetches;
        pthread_mutex_unlock(&world.lock);
    }
    pthread_mutex_lock(&world.lock);
    CHECK(world.fetches <= 13); /* two bytes each, plus fetches in flight */
    pthread_mutex_unlock(&world.lock);
    gp_prefetch_free(prefetch);
    CHECK_EVERY_ALLOCATION(gp_prefetch_new(&prefetch, 2, 64, 100, 20, slow_fetch, &world, &err),
                           gp_prefetch_free(prefetch));
}

TEST(batches_from_s3_survive_failing_requests)
{
    NEED(server);
    gp_store *stores[2];
    gp_loader *loaders[2];
    gp_sampler sampler;
    gp_error err;

    folders_make(server);
    REQUIRE_OK(gp_store_open(&stores[0], in_folder("photos"), GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_open(&stores[1], s3_source(server, "data/photos", "0"), GP_DATA_TRAIN, &err), err);
    gp_sampler_init(&sampler, 6, GP_SHUFFLE_EVERY_EPOCH, 3);
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(gp_loader_new(&loaders[i], stores[i], &sampler,
                                 &(gp_loader_options){ .depth = 3, .capacity = 3 }, &err),
                   err);
    s3_server_run(server, "fault 1 503");
    s3_server_run(server, "fault 1 nothing");
    for (uint32_t step = 0; step < 6; step++) {
        gp_loader_batch *batches[2];

        for (int i = 0; i < 2; i++) {
            REQUIRE_OK(gp_loader_request(loaders[i], step / 2, step % 2 * 3, 3, &err), err);
            REQUIRE_OK(gp_loader_take(loaders[i], &batches[i], NULL, &err), err);
        }
        CHECK(memcmp(batches[0]->samples, batches[1]->samples, 3 * 18) == 0);
        CHECK(memcmp(batches[0]->targets, batches[1]->targets, 3 * 4) == 0);
        for (int i = 0; i < 2; i++)
            gp_loader_release(loaders[i], batches[i]);
    }
    for (int i = 0; i < 2; i++) {
        gp_loader_free(loaders[i]);
        gp_store_close(stores[i]);
    }
}
