#include "tests/gp_test.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/data/format/idx.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"

/* Write `count` images of 4x3 pixels, where pixel p of sample i is 10 i + p and the label is i mod
 * 3. */
static void pair_write(const char *prefix, uint32_t count, bool gzip)
{
    uint8_t pixel[12 * 16], label[16];
    gp_idx images = { .rank = 3, .dim = { count, 4, 3 }, .bytes = 12 * count, .data = pixel };
    gp_idx labels = { .rank = 1, .dim = { count }, .bytes = count, .data = label };
    char name[64];
    gp_error err;

    for (uint32_t i = 0; i < 12 * count; i++)
        pixel[i] = (uint8_t)(i / 12 * 10 + i % 12);
    for (uint32_t i = 0; i < count; i++)
        label[i] = (uint8_t)(i % 3);
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte%s", prefix, gzip ? ".gz" : "");
    REQUIRE_OK(gp_idx_write(in_folder(name), &images, gzip, NULL, &err), err);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte%s", prefix, gzip ? ".gz" : "");
    REQUIRE_OK(gp_idx_write(in_folder(name), &labels, gzip, NULL, &err), err);
}

static gp_status open_and_close(const char *source, gp_data_role role, gp_error *err)
{
    gp_store *store;
    gp_status status = gp_store_open(&store, source, role, err);

    if (status == GP_OK)
        gp_store_close(store);
    return status;
}

static gp_status read_bytes(const void *data, size_t bytes, uint32_t rank, gp_error *err)
{
    gp_idx idx;
    gp_status status;

    file_put(in_folder("file"), data, bytes);
    status = gp_idx_read(&idx, in_folder("file"), rank, err);
    if (status == GP_OK)
        gp_idx_deinit(&idx);
    return status;
}

TEST(plain_and_gzipped_files_round_trip)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        static const uint32_t index[] = { 4, 0, 4 };
        uint8_t pixel[3 * 12];
        int32_t label[3];
        gp_store *store;
        gp_error err;

        folder_make();
        pair_write("train", 5, gzip);
        REQUIRE_OK(gp_store_open(&store, folder, GP_DATA_TRAIN, &err), err);
        CHECK_INT(5, gp_store_get_info(store)->count);
        CHECK_INT(1, gp_store_get_info(store)->channels);
        CHECK_INT(4, gp_store_get_info(store)->height);
        CHECK_INT(3, gp_store_get_info(store)->width);
        CHECK_INT(GP_U8, gp_store_get_info(store)->dtype);
        CHECK_INT(12, gp_store_get_info(store)->sample_bytes);
        CHECK_INT(3, gp_store_get_info(store)->class_count);
        CHECK_TEXT("2", gp_store_get_info(store)->class_names[2]);
        CHECK_NEAR(1.0 / 255, gp_store_get_info(store)->scale[0], 1e-9);
        CHECK_NEAR(0, gp_store_get_info(store)->offset[0], 0);
        REQUIRE_OK(gp_store_read(store, index, 3, pixel, label, &err), err);
        for (int i = 0; i < 36; i++)
            CHECK_INT(index[i / 12] * 10 + i % 12, pixel[i]);
        CHECK_INT(1, label[0]);
        CHECK_INT(0, label[1]);
        CHECK_INT(1, label[2]);
        CHECK_STATUS(GP_EINVAL, gp_store_read(store, (const uint32_t[]){ 5 }, 1, pixel, label, &err));
        gp_store_close(store);
    }
}

TEST(image_and_label_files_are_distinguished)
{
    static const uint8_t labels[] = { 0, 0, 8, 1, 0, 0, 0, 2, 7, 9 };
    static const uint8_t images[] = { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9 };
    static const uint8_t doubles[] = { 0, 0, 14, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9 };
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_OK, read_bytes(labels, sizeof(labels), 1, &err));
    CHECK_STATUS(GP_OK, read_bytes(images, sizeof(images), 3, &err));
    CHECK_STATUS(GP_ECORRUPT, read_bytes(labels, sizeof(labels), 3, &err));
    CHECK_CONTAINS(err.message, "is an IDX label file (magic 0x00000801), must be images 0x00000803");
    CHECK_STATUS(GP_ECORRUPT, read_bytes(images, sizeof(images), 1, &err));
    CHECK_CONTAINS(err.message, "is an IDX image file (magic 0x00000803), must be labels 0x00000801");
    CHECK_STATUS(GP_ECORRUPT, read_bytes(doubles, sizeof(doubles), 3, &err));
    CHECK_CONTAINS(err.message, "is an IDX file of another type or rank (magic 0x00000e03)");
    CHECK_STATUS(GP_ECORRUPT, read_bytes("<html>Not Found</html>", 22, 3, &err));
    CHECK_CONTAINS(err.message, "is not an IDX file");
}

TEST(truncated_files_are_rejected)
{
    uint8_t whole[200], damaged[200];
    gp_error err;
    size_t bytes;

    for (int gzip = 0; gzip < 2; gzip++) {
        folder_make();
        pair_write("train", 5, gzip);
        bytes = file_get(in_folder(gzip ? "train-images-idx3-ubyte.gz" : "train-images-idx3-ubyte"), whole,
                         sizeof(whole));
        REQUIRE(bytes > 70 && bytes < sizeof(whole));
        CHECK_STATUS(GP_OK, read_bytes(whole, bytes, 3, &err));
        for (size_t cut = 0; cut < bytes; cut++)
            CHECK_STATUS(GP_ECORRUPT, read_bytes(whole, cut, 3, &err));
        CHECK_CONTAINS(err.message, "truncated");
        /* A flipped byte that changes the unpacked data is detected by deflate or the CRC. */
        for (size_t i = 10; gzip && i < bytes - 4; i++) {
            memcpy(damaged, whole, bytes);
            damaged[i] ^= 0x55;
            CHECK(read_bytes(damaged, bytes, 3, &err) != GP_OK);
        }
    }
}

TEST(trailing_bytes_are_rejected)
{
    static const uint8_t longer[] = { 0, 0, 8, 1, 0, 0, 0, 2, 7, 9, 1 };
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_ECORRUPT, read_bytes(longer, sizeof(longer), 1, &err));
    CHECK_CONTAINS(err.message, "has extra data after the 2 bytes that its header states");
}

TEST(a_false_header_allocates_no_memory)
{
    static const uint8_t huge[] = { 0, 0, 8, 3, 0x3f, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 0, 0, 0x10, 0 };
    static const uint8_t wide[] = { 0, 0, 8, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1 };
    static const uint8_t none[] = { 0, 0, 8, 1, 0, 0, 0, 0 };
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_ECORRUPT, read_bytes(huge, sizeof(huge), 3, &err));
    CHECK_CONTAINS(err.message, "needs 18014398492704768 bytes, but has 16");
    CHECK_STATUS(GP_ELIMIT, read_bytes(wide, sizeof(wide), 3, &err));
    CHECK_CONTAINS(err.message, "dimension 2 is 4294967295; must be between 1 and 8192");
    CHECK_STATUS(GP_ELIMIT, read_bytes(none, sizeof(none), 1, &err));
}

TEST(a_gzip_bomb_is_read_only_to_the_announced_size)
{
    static const uint8_t header[] = { 0, 0, 8, 1, 0, 0, 0, 16 };
    static uint8_t zeros[1 << 20];
    gp_error err;
    gp_idx idx;
    gzFile file;

    folder_make();
    file = gzopen(in_folder("bomb.gz"), "wb9");
    gzwrite(file, header, sizeof(header));
    for (int i = 0; i < 64; i++)
        gzwrite(file, zeros, sizeof(zeros));
    gzclose(file);
    CHECK_STATUS(GP_ECORRUPT, gp_idx_read(&idx, in_folder("bomb.gz"), 1, &err));
    CHECK_CONTAINS(err.message, "has extra data after the 16 bytes");
}

TEST(image_and_label_counts_must_match)
{
    static const uint8_t two[] = { 0, 0, 8, 1, 0, 0, 0, 2, 0, 1 };
    gp_error err;

    folder_make();
    pair_write("t10k", 3, false);
    file_put(in_folder("t10k-labels-idx1-ubyte"), two, sizeof(two));
    CHECK_STATUS(GP_ECORRUPT, open_and_close(folder, GP_DATA_TEST, &err));
    CHECK_CONTAINS(err.message, "has 3 images but");
    CHECK_CONTAINS(err.message, "has 2 labels");
}

TEST(classes_txt_names_the_classes_and_bounds_the_labels)
{
    gp_store *store;
    gp_error err;

    folder_make();
    pair_write("train", 5, false);
    file_put(in_folder("classes.txt"), "cat\r\nhot dog\nape\nbat\n", 21);
    REQUIRE_OK(gp_store_open(&store, folder, GP_DATA_TRAIN, &err), err);
    CHECK_INT(4, gp_store_get_info(store)->class_count);
    CHECK_TEXT("cat", gp_store_get_info(store)->class_names[0]);
    CHECK_TEXT("hot dog", gp_store_get_info(store)->class_names[1]);
    CHECK_TEXT("bat", gp_store_get_info(store)->class_names[3]);
    gp_store_close(store);
    file_put(in_folder("classes.txt"), "cat\ndog", 7);
    CHECK_STATUS(GP_ECORRUPT, open_and_close(folder, GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "the label of sample 2 is 2, but classes.txt has 2 classes (0 to 1)");
    file_put(in_folder("classes.txt"), "", 0);
    CHECK_STATUS(GP_ECORRUPT, open_and_close(folder, GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "has no class names");
}

TEST(both_roles_have_the_same_classes)
{
    gp_store *store;
    gp_error err;

    folder_make();
    pair_write("train", 3, true);
    pair_write("t10k", 2, false); /* only labels 0 and 1 */
    REQUIRE_OK(gp_store_open(&store, folder, GP_DATA_TEST, &err), err);
    CHECK_INT(3, gp_store_get_info(store)->class_count);
    gp_store_close(store);
}

TEST(missing_roles_and_files_are_reported)
{
    gp_error err;

    folder_make();
    CHECK_STATUS(GP_ENOENT, open_and_close(folder, GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(
        err.message,
        "is not a supported data set: it has neither class folders of images nor train-images-idx3");
    pair_write("train", 3, true);
    CHECK_STATUS(GP_ENOENT, open_and_close(folder, GP_DATA_TEST, &err));
    CHECK_CONTAINS(err.message,
                   "has no test data: t10k-images-idx3-ubyte[.gz] does not exist beside train-images");
    CHECK_STATUS(GP_EINVAL, open_and_close(in_folder("train-images-idx3-ubyte.gz"), GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "is a file; pass its directory: /tmp/gradpool-test-");
    CHECK_STATUS(GP_ENOENT, open_and_close("/no/such/place", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "cannot open the data /no/such/place: No such file or directory");
    CHECK_STATUS(GP_EINVAL, open_and_close("s3://b/cats", GP_DATA_TRAIN, &err));
    CHECK_STATUS(GP_EINVAL, open_and_close("", GP_DATA_TRAIN, &err));
}

/* Environment variable and the value to restore. */
typedef struct saved_variable {
    const char *name;
    char *value;
} saved_variable;

static saved_variable variable_set(const char *name, const char *value)
{
    saved_variable saved = { name, getenv(name) == NULL ? NULL : strdup(getenv(name)) };

    setenv(name, value, 1);
    return saved;
}

static void variable_restore(saved_variable saved)
{
    if (saved.value == NULL)
        unsetenv(saved.name);
    else
        setenv(saved.name, saved.value, 1);
    free(saved.value);
}

TEST(names_are_searched_in_the_path_then_the_cache)
{
    char path[256], search[256];
    saved_variable data, cache;
    gp_error err;

    folder_make();
    mkdir(in_folder("a"), 0777);
    mkdir(in_folder("b"), 0777);
    mkdir(in_folder("b/shoes"), 0777);
    mkdir(in_folder("gradpool"), 0777);
    mkdir(in_folder("gradpool/data"), 0777);
    mkdir(in_folder("gradpool/data/shoes"), 0777);
    mkdir(in_folder("gradpool/data/hats"), 0777);
    snprintf(search, sizeof(search), "%s:%s::/no/such", in_folder("a"), in_folder("b"));
    data = variable_set("GRADPOOL_DATA", search);
    cache = variable_set("XDG_CACHE_HOME", folder);
    REQUIRE_OK(gp_store_find(path, sizeof(path), "shoes", &err), err);
    CHECK_TEXT(in_folder("b/shoes"), path);
    REQUIRE_OK(gp_store_find(path, sizeof(path), "hats", &err), err);
    CHECK_TEXT(in_folder("gradpool/data/hats"), path);
    REQUIRE_OK(gp_store_find(path, sizeof(path), folder, &err), err);
    CHECK_TEXT(folder, path);
    CHECK_STATUS(GP_ENOENT, gp_store_find(path, sizeof(path), "shose", &err));
    CHECK_CONTAINS(err.message, "no data set \"shose\": did you mean \"shoes\"?");
    CHECK_CONTAINS(err.message, in_folder("b, "));
    CHECK_CONTAINS(err.message, in_folder("gradpool/data"));
    CHECK_STATUS(GP_ENOENT, gp_store_find(path, sizeof(path), "digit:6000", &err));
    CHECK_CONTAINS(err.message, "no data set \"digit:6000\": did you mean \"digits:6000\"?");
    CHECK_STATUS(GP_ENOENT, gp_store_find(path, sizeof(path), "nosuch.png", &err));
    CHECK_TEXT("cannot open the data nosuch.png: no such file or data set", err.message);
    CHECK_STATUS(GP_ENOENT, gp_store_find(path, sizeof(path), "fashon-mnist", &err));
    CHECK_CONTAINS(err.message,
                   "did you mean \"fashion-mnist\"? download one with `gradpool data get fashion-mnist`");
    variable_restore(data);
    variable_restore(cache);
}

TEST(synthetic_data_is_described_by_its_name)
{
    static const uint32_t index[] = { 49999, 0, 1, 49999 };
    static uint8_t sample[4][3 * 8 * 6], again[3 * 8 * 6];
    int32_t label[4];
    gp_store *store, *test;
    gp_error err;

    REQUIRE_OK(gp_store_open(&store, "synthetic:8x6x3:100:50000", GP_DATA_TRAIN, &err), err);
    CHECK_INT(50000, gp_store_get_info(store)->count);
    CHECK_INT(3, gp_store_get_info(store)->channels);
    CHECK_INT(8, gp_store_get_info(store)->height);
    CHECK_INT(6, gp_store_get_info(store)->width);
    CHECK_INT(100, gp_store_get_info(store)->class_count);
    REQUIRE_OK(gp_store_read(store, index, 4, sample, label, &err), err);
    CHECK(memcmp(sample[0], sample[1], sizeof(again)) != 0);
    CHECK(memcmp(sample[0], sample[3], sizeof(again)) == 0);
    CHECK_INT(label[0], label[3]);
    for (int i = 0; i < 4; i++)
        CHECK(label[i] >= 0 && label[i] < 100);
    REQUIRE_OK(gp_store_open(&test, "synthetic:8x6x3:100:50000", GP_DATA_TEST, &err), err);
    CHECK(gp_store_get_info(store)->fingerprint != gp_store_get_info(test)->fingerprint);
    gp_store_close(test);
    gp_store_close(store);
}

TEST(malformed_synthetic_sources_are_rejected)
{
    static const char *const bad[] = { "synthetic",
                                       "synthetic:",
                                       "synthetic:8x8:10:100",
                                       "synthetic:8x8x3:10",
                                       "synthetic:8x8x3:10:100:1",
                                       "synthetic:-8x8x3:10:100",
                                       "synthetic:8x8x3:10: 100",
                                       "synthetic:8x8x3:10:99999999999" };
    static const char *const beyond[] = { "synthetic:0x8x3:10:100", "synthetic:8x9999x3:10:100",
                                          "synthetic:8x8x65:10:100", "synthetic:8x8x3:0:100",
                                          "synthetic:8x8x3:10:0" };
    gp_error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(GP_EINVAL, open_and_close(bad[i], GP_DATA_TRAIN, &err));
        CHECK_CONTAINS(err.message, "must be synthetic:HxWxC:CLASSES:COUNT");
    }
    for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++)
        CHECK_STATUS(GP_ELIMIT, open_and_close(beyond[i], GP_DATA_TRAIN, &err));
}

TEST(fingerprints_depend_on_pixels_labels_and_count)
{
    float sample[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
    int32_t label[3] = { 0, 1, 0 };
    gp_store_info info = {
        .source = "memory", .channels = 1, .height = 1, .width = 2, .dtype = GP_F32, .class_count = 2
    };
    uint64_t seen[4];
    gp_store *store;
    gp_error err;

    for (int i = 0; i < 4; i++) {
        if (i == 2)
            sample[1][1] = 9;
        if (i == 3)
            label[2] = 1;
        info.count = i == 1 ? 2 : 3;
        REQUIRE_OK(gp_store_open_arrays(&store, &info, sample, label, &err), err);
        seen[i] = gp_store_get_info(store)->fingerprint;
        gp_store_close(store);
        for (int j = 0; j < i; j++)
            CHECK(seen[i] != seen[j]);
    }
    CHECK(seen[0] == 0xaa60806e973a2b7); /* stored in checkpoints: must never change */
    label[0] = 2;
    CHECK_STATUS(GP_ECORRUPT, gp_store_open_arrays(&store, &info, sample, label, &err));
    CHECK_CONTAINS(err.message, "the label of sample 0 is 2");
}

/* Describe two samples of 1x1x2, with an index for each of two pixels, and three values. */
static gp_store_info two_targets(void)
{
    return (gp_store_info){ .source = "memory",
                            .kind = "memory",
                            .count = 2,
                            .channels = 1,
                            .height = 1,
                            .width = 2,
                            .dtype = GP_F32,
                            .target_count = 2,
                            .targets = { { .dtype = GP_I32, .shape = gp_shape2(1, 2) },
                                         { .dtype = GP_F32, .shape = gp_shape1(3) } },
                            .class_count = 4 };
}

TEST(targets_of_any_shape_are_packed_in_order)
{
    struct {
        int32_t label[2];
        float value[3];
    } target[2] = { { { 0, -1 }, { 1, 2, 3 } }, { { 3, 1 }, { 4, 5, NAN } } }, got[3];
    float sample[2][2] = { { 1, 2 }, { 3, 4 } };
    const uint32_t index[] = { 1, 0, 1 };
    gp_store_info info = two_targets();
    uint64_t seen;
    gp_store *store;
    gp_error err;
    char text[80];

    REQUIRE_OK(gp_store_open_arrays(&store, &info, sample, target, &err), err);
    CHECK_INT(2 * sizeof(int32_t) + 3 * sizeof(float), gp_store_get_info(store)->target_bytes);
    CHECK_TEXT("int32 1x2 and float32 3",
               gp_targets_format(gp_store_get_info(store)->targets, 2, text, sizeof(text)));
    REQUIRE_OK(gp_store_read(store, index, 3, (float[6]){ 0 }, got, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(&got[i], &target[index[i]], sizeof(got[i])) == 0);
    seen = gp_store_get_info(store)->fingerprint;
    gp_store_close(store);
    target[1].value[0] = 9;
    REQUIRE_OK(gp_store_open_arrays(&store, &info, sample, target, &err), err);
    CHECK(seen != gp_store_get_info(store)->fingerprint);
    gp_store_close(store);
    target[1].label[0] = 4;
    CHECK_STATUS(GP_ECORRUPT, gp_store_open_arrays(&store, &info, sample, target, &err));
    CHECK_CONTAINS(err.message, "the label of sample 1 is 4, but there are 4 classes");
    info.targets[1].shape = gp_shape1(0);
    CHECK_STATUS(GP_EINVAL, gp_store_open_arrays(&store, &info, sample, target, &err));
}

TEST(value_targets_need_no_classes)
{
    gp_store_info info = two_targets();
    float sample[2][2] = { { 1, 2 }, { 3, 4 } }, target[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
    gp_store *store;
    gp_error err;

    info.target_count = 1;
    info.targets[0] = (gp_target){ .dtype = GP_F32, .shape = gp_shape1(3) };
    info.class_count = 0;
    REQUIRE_OK(gp_store_open_arrays(&store, &info, sample, target, &err), err);
    CHECK_INT(0, gp_store_get_info(store)->class_count);
    CHECK_INT(12, gp_store_get_info(store)->target_bytes);
    gp_store_close(store);
}

TEST(opening_survives_every_failing_allocation)
{
    gp_error err;

    folder_make();
    pair_write("train", 5, true);
    pair_write("t10k", 5, true);
    file_put(in_folder("classes.txt"), "a\nb\nc", 5);
    CHECK_EVERY_ALLOCATION(open_and_close(folder, GP_DATA_TRAIN, &err), (void)0);
    unlink(in_folder("classes.txt"));
    CHECK_EVERY_ALLOCATION(open_and_close(folder, GP_DATA_TRAIN, &err), (void)0);
    CHECK_EVERY_ALLOCATION(open_and_close("synthetic:4x4x1:2:10", GP_DATA_TRAIN, &err), (void)0);
}

TEST(a_failed_write_keeps_the_old_file)
{
    uint8_t label[2] = { 1, 2 }, byte[64];
    gp_idx labels = { .rank = 1, .dim = { 2 }, .bytes = 2, .data = label };
    gp_error err;

    folder_make();
    file_put(in_folder("x"), "old", 3);
    mkdir(in_folder("x.tmp"), 0777); /* a directory blocks the temporary file */
    CHECK_STATUS(GP_EIO, gp_idx_write(in_folder("x"), &labels, false, NULL, &err));
    CHECK_INT(3, file_get(in_folder("x"), byte, sizeof(byte)));
    rmdir(in_folder("x.tmp"));
    REQUIRE_OK(gp_idx_write(in_folder("x"), &labels, false, NULL, &err), err);
    CHECK_INT(10, file_get(in_folder("x"), byte, sizeof(byte)));
    CHECK(memcmp(byte, "\0\0\10\1\0\0\0\2\1\2", 10) == 0);
    CHECK(access(in_folder("x.tmp"), F_OK) != 0);
}

TEST(fashion_mnist_has_60000_and_10000_balanced_samples)
{
    static int32_t label[60000];
    static uint32_t index[60000];
    static const uint32_t expected[] = { 60000, 10000 };
    uint8_t *pixel;
    gp_store *store;
    gp_error err;

    if (getenv("GRADPOOL_DATA") == NULL)
        SKIP("GRADPOOL_DATA is not set");
    for (int role = 0; role < 2; role++) {
        uint32_t per_class[10] = { 0 };
        gp_status status = gp_store_open(&store, "fashion-mnist", (gp_data_role)role, &err);

        if (status == GP_ENOENT)
            SKIP("%s", err.message);
        REQUIRE_OK(status, err);
        CHECK_INT(expected[role], gp_store_get_info(store)->count);
        CHECK_INT(28, gp_store_get_info(store)->height);
        CHECK_INT(10, gp_store_get_info(store)->class_count);
        CHECK_TEXT("T-shirt/top", gp_store_get_info(store)->class_names[0]);
        CHECK_TEXT("Ankle boot", gp_store_get_info(store)->class_names[9]);
        pixel = malloc((size_t)expected[role] * 784);
        for (uint32_t i = 0; i < expected[role]; i++)
            index[i] = i;
        REQUIRE_OK(gp_store_read(store, index, expected[role], pixel, label, &err), err);
        for (uint32_t i = 0; i < expected[role]; i++)
            per_class[label[i]]++;
        for (int i = 0; i < 10; i++)
            CHECK_INT(expected[role] / 10, per_class[i]);
        free(pixel);
        gp_store_close(store);
    }
}

TEST(only_path_sources_become_absolute)
{
    static const char *const names[] = { "digits", "digits:60", "synthetic:4x4x1:2:8", "arrays:1:2" };
    char text[PATH_MAX], expected[PATH_MAX], before[PATH_MAX];
    gp_error err;

    folder_make();
    REQUIRE(getcwd(before, sizeof(before)) != NULL);
    REQUIRE(chdir(folder) == 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK_INT(0, mkdir(names[i], 0700)); /* a directory with this name has no effect */
        CHECK_STATUS(GP_OK, gp_source_absolute(text, sizeof(text), names[i], &err));
        CHECK_TEXT(names[i], text);
    }
    CHECK_STATUS(GP_OK, gp_source_absolute(text, sizeof(text), "no-such-name", &err));
    CHECK_TEXT("no-such-name", text);
    CHECK_INT(0, mkdir("folder", 0700));
    CHECK_STATUS(GP_OK, gp_source_absolute(text, sizeof(text), "folder", &err));
    REQUIRE(getcwd(expected, sizeof(expected) - 8) != NULL);
    strcat(expected, "/folder");
    CHECK_TEXT(expected, text);
    REQUIRE(chdir(before) == 0);
}
