/* test_bad_images.c: unreadable images in training, prediction and evaluation: an error with the
 * file name, or skipped, counted and named. */
#include "client/gradpool.h"
#include "tests/service/commands.h"
#include "tests/common/data/make_images.h"

TEARDOWN()
{
    pools_end();
}

static uint8_t noise[30000 * 3 + 64 * 64 * 3];

static void jpeg_put(const char *name, uint32_t width, uint32_t height, uint32_t channels)
{
    make_jpeg(in_root(name), &(made_image){ width, height, channels, .data = noise }, 80);
}

/* Create two classes of valid images of several kinds; tests add unreadable ones. */
static void photos_make(void)
{
    char name[64];

    exec_begin();
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 2654435761u >> 11);
    mkdir(in_root("photos"), 0700);
    mkdir(in_root("photos/cat"), 0700);
    mkdir(in_root("photos/dog"), 0700);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "photos/%s/%02d.jpg", i % 2 == 0 ? "cat" : "dog", i);
        jpeg_put(name, 40, 36, i == 4 ? 4 : i == 6 ? 1 : 3); /* one CMYK, one grayscale */
    }
    make_png(in_root("photos/dog/deep.png"), &(made_image){ 30, 30, 3, .bits = 16, .data = noise });
}

/* Truncate a file to `bytes` bytes. */
static void cut(const char *name, off_t bytes)
{
    if (truncate(in_root(name), bytes) != 0)
        abort();
}

static void bad_ones_put(void)
{
    cut("photos/cat/00.jpg", 300);                               /* truncated */
    cut("photos/dog/01.jpg", 0);                                 /* empty */
    write_file("photos/cat/02.jpg", "<html>not found</html>\n"); /* wrong format */
    jpeg_put("photos/dog/wide.jpg", 30000, 1, 3);

    /* A small PNG that claims 60000x60000 pixels. */
    make_png(in_root("photos/cat/bomb.png"), &(made_image){ 8, 8, 3, .data = noise });
    FILE *file = fopen(in_root("photos/cat/bomb.png"), "r+");

    if (file == NULL || fseek(file, 16, SEEK_SET) != 0 ||
        fwrite("\0\0\xea\x60\0\0\xea\x60", 1, 8, file) != 8 || fclose(file) != 0)
        abort();
}

#define TRAIN "train", "--network", "lenet", "--data", "../photos", "--batch-size", "8", "--epochs", "2"

TEST(skipped_folders_are_counted_and_named_when_a_training_starts)
{
    photos_make();
    mkdir(in_root("photos/emu"), 0700);
    RUN_CODE(1, TRAIN, "--image-size", "28,28");
    CHECK_CONTAINS(err, "class emu has no images");
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--on-error", "skip");
    CHECK_CONTAINS(err, "photos: excluded 1 folder or image: class emu has no images in ");
}

TEST(cmyk_grayscale_and_16_bit_images_are_trained_on)
{
    photos_make();
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--json");
    CHECK_CONTAINS(out, "\"skipped\": 0");
}

TEST(bad_images_are_an_error_or_skipped_and_named)
{
    photos_make();
    bad_ones_put();
    RUN_CODE(1, TRAIN, "--image-size", "28,28");
    CHECK(strstr(err, "photos/cat/") != NULL || strstr(err, "photos/dog/") != NULL);
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--on-error", "skip", "--json");
    CHECK_CONTAINS(out, "\"skipped\": 5");
    CHECK_CONTAINS(err, "5 images could not be read and were skipped: ");
    CHECK(strstr(err, "cat/00.jpg") != NULL || strstr(err, "dog/01.jpg") != NULL ||
          strstr(err, "cat/02.jpg") != NULL || strstr(err, "wide.jpg") != NULL ||
          strstr(err, "bomb.png") != NULL);

    /* Crops decoded directly from the files give the same result. */
    RUN_CODE(0, TRAIN, "--augment", "crop=resized crop-size=28,28", "--on-error", "skip", "--json");
    CHECK_CONTAINS(err, "could not be read");
}

/* ---- predictions ---- */

enum { GOOD = 38, BAD = 5 };

/* in data order */
#define BAD_NAMES "\"cat/00.jpg\", \"cat/02.jpg\", \"cat/bomb.png\", \"dog/01.jpg\", \"dog/wide.jpg\""
#define PREDICT   "predict", "--model", "m.onnx", "--data", "../photos", "--on-error", "skip"
#define EVALUATE  "evaluate", "--model", "m.onnx", "--on-error", "skip", "--json", "--data"

/* Train a model on valid photos, then damage some. The folder `good` has the valid ones only. */
static void predictions_begin(void)
{
    photos_make();
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--quiet", "--out", "m.onnx");
    bad_ones_put();
    CHECK_INT(0, shell("cp -r photos good && cd good && "
                       "rm cat/00.jpg cat/02.jpg cat/bomb.png dog/01.jpg dog/wide.jpg"));
}

/* Read a CSV file: store the sample numbers, and append the rest of each line to one text. */
static int rows_read(const char *name, uint64_t index[GOOD + BAD], char *rest, size_t bytes)
{
    static char text[1 << 16];
    char *lines = text, *line;
    size_t used = 0;
    int count = -1;

    slurp(in_w(name), text, sizeof(text));
    while ((line = strsep(&lines, "\n")) != NULL && *line != '\0' && count < GOOD + BAD) {
        if (count >= 0)
            index[count] = strtoull(line, &line, 10);
        count++;
        used += (size_t)snprintf(rest + used, bytes - used, "%s\n", line);
    }
    return count;
}

/* Check that p.csv has the rows of the valid photos, bitwise identical, with the right sample
 * numbers. */
static void rows_check(void)
{
    static char good[1 << 16], rows[1 << 16];
    uint64_t index[GOOD + BAD] = { 0 }, all[GOOD + BAD] = { 0 };
    const uint64_t bad[BAD] = { 0, 1, 20, 21, 42 }; /* cat/00, cat/02, cat/bomb, dog/01, dog/wide */

    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "../good", "--out", "good.csv");
    CHECK(strstr(err, "left out") == NULL);
    CHECK_INT(GOOD, rows_read("good.csv", all, good, sizeof(good)));
    CHECK_INT(GOOD, rows_read("p.csv", index, rows, sizeof(rows)));
    CHECK_CONTAINS(rows, "index,name,class,score_0");
    CHECK_TEXT(good, rows);
    for (uint64_t i = 0, row = 0, next = 0; i < GOOD + BAD; i++)
        if (next < BAD && bad[next] == i)
            next++;
        else
            CHECK_INT(i, index[row++]);
}

TEST(bad_images_are_skipped_in_predictions_despite_worker_failures)
{
    predictions_begin();
    RUN_CODE(1, "predict", "--model", "m.onnx", "--data", "../photos", "--out", "p.csv");
    CHECK(strstr(err, "photos/cat/") != NULL || strstr(err, "photos/dog/") != NULL);
    RUN_CODE(0, PREDICT, "--out", "p.csv", "--workers", "1");
    CHECK_CONTAINS(err, "5 images could not be read and were skipped: cat/00.jpg, cat/02.jpg, cat/bomb.png, "
                        "...; see the worker logs in /");
    CHECK_CONTAINS(err, "38 samples in ");
    rows_check();
    RUN_CODE(0, PREDICT, "--json", "--quiet");
    CHECK_CONTAINS(out, "\n{\"skipped\": 5, \"skipped_names\": [" BAD_NAMES "]}\n");
    CHECK_TEXT("", err);
    RUN_CODE(0, "down");

    /* 22 calls: one worker reaches the second call and exits; the other or a replacement computes
     * that part again. */
    setenv("GRADPOOL_FAULT", "predict:2:kill@1.1,predict:2:kill@2.1", 1);
    RUN_CODE(0, "up", "--workers", "2");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(0, PREDICT, "--out", "p.csv");
    CHECK_CONTAINS(err, "its samples are sent to other workers");
    CHECK_CONTAINS(err, "5 images could not be read and were skipped: cat/00.jpg, cat/02.jpg, cat/bomb.png, "
                        "...; see the worker logs in /");
    rows_check();
}

TEST(rows_of_a_single_image_have_the_path_given_by_the_user)
{
    predictions_begin();
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "../good/dog/03.jpg", "--top-k", "1");
    CHECK_CONTAINS(out, "\n0,../good/dog/03.jpg,");
}

TEST(evaluate_counts_only_good_images_despite_worker_failures)
{
    static char counts[2][400];
    double accuracy, loss;

    predictions_begin();
    RUN_CODE(1, "evaluate", "--model", "m.onnx", "--data", "../photos");
    RUN_CODE(0, EVALUATE, "../good", "--confusion", "c.csv");
    CHECK_CONTAINS(out, "\"skipped\": 0, \"skipped_names\": []");
    accuracy = reported("accuracy");
    loss = reported("loss");
    CHECK_INT(GOOD, (int)reported("count"));
    slurp(in_w("c.csv"), counts[0], sizeof(counts[0]));
    RUN_CODE(0, "down");
    setenv("GRADPOOL_FAULT", "predict:2:kill@1.1,predict:2:kill@2.1", 1);
    RUN_CODE(0, "up", "--workers", "2");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(0, EVALUATE, "../photos", "--confusion", "c.csv");
    CHECK_CONTAINS(err, "its samples are sent to other workers");
    CHECK_CONTAINS(err, "5 images could not be read and were skipped: ");
    CHECK_CONTAINS(out, "\"skipped\": 5, \"skipped_names\": [" BAD_NAMES "]");
    CHECK_NEAR(accuracy, reported("accuracy"), 0);
    CHECK_NEAR(loss, reported("loss"), 1e-9); /* other parts, hence another order of summation */
    CHECK_INT(GOOD, (int)reported("count"));
    slurp(in_w("c.csv"), counts[1], sizeof(counts[1]));
    CHECK_TEXT(counts[0], counts[1]);

    /* Crops decoded directly from the files give the same result. */
    mkdir(in_root("photos/emu"), 0700);
    RUN_CODE(0, EVALUATE, "../photos", "--image-fit", "crop");
    CHECK_CONTAINS(err, "photos: excluded 1 folder or image: class emu has no images in ");
    CHECK_CONTAINS(out, "\"skipped\": 5, \"skipped_names\": [" BAD_NAMES "]");
    CHECK_INT(GOOD, (int)reported("count"));
}

TEST(prediction_arrays_name_the_samples_of_their_rows)
{
    static char rows[1 << 16];
    uint64_t index[GOOD + BAD] = { 0 };
    int64_t written[GOOD + 1];
    gp_scores scores = { 0 };
    char model[240], photos[240];
    gp_pool *pool;
    gp_error error;

    predictions_begin();
    RUN_CODE(0, PREDICT, "--out", "p.csv");
    CHECK_INT(GOOD, rows_read("p.csv", index, rows, sizeof(rows)));
    RUN_CODE(0, PREDICT, "--out", "p.npy");
    FILE *file = fopen(in_w("p.index.npy"), "r");

    REQUIRE(file != NULL && fread(rows, 1, 128, file) == 128);
    CHECK_CONTAINS(rows + 10, "{'descr': '<i8', 'fortran_order': False, 'shape': (38,), }");
    CHECK_INT(GOOD, fread(written, sizeof(written[0]), GOOD + 1, file));
    fclose(file);
    for (int i = 0; i < GOOD; i++)
        CHECK_INT(index[i], written[i]);
    slurp(in_w("p.npy"), rows, sizeof(rows));
    CHECK_CONTAINS(rows + 10, "'shape': (38, 2,), }");
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "../good", "--out", "whole.npy");
    CHECK_INT(0, shell("cmp w/p.npy w/whole.npy && ! test -e w/whole.index.npy"));
    snprintf(model, sizeof(model), "%s", in_w("m.onnx"));
    snprintf(photos, sizeof(photos), "%s", in_root("photos"));
    REQUIRE_OK(gp_pool_open(&pool, NULL, &error), error);
    gp_predict_request request = { .model = model, .data = photos, .on_error = "skip" };

    REQUIRE_OK(gp_predict_array(&scores, pool, &request, &error), error);
    CHECK_INT(GOOD, scores.count);
    CHECK_INT(GOOD, scores.evaluation.count);
    CHECK_INT(BAD, scores.evaluation.skipped);
    for (int i = 0; i < GOOD; i++)
        CHECK_INT(index[i], scores.index[i]);
    CHECK(memcmp(scores.scores, rows + 128, GOOD * 2 * sizeof(float)) == 0);
    gp_scores_deinit(&scores);
    request.on_error = "ignore";
    CHECK_STATUS(GP_EINVAL, gp_predict_array(&scores, pool, &request, &error));
    CHECK_CONTAINS(error.message, "on-error");
    gp_pool_close(pool);
}

TEST(completely_unreadable_data_are_an_error_even_with_skip)
{
    predictions_begin();
    CHECK_INT(0, shell("mkdir bare && cp photos/cat/00.jpg photos/dog/01.jpg bare"));
    RUN_CODE(1, "predict", "--model", "m.onnx", "--data", "../bare", "--on-error", "skip", "--out", "p.csv");
    CHECK_CONTAINS(err, "could be read: 00.jpg, ...; see the worker logs in /");
    CHECK_INT(0, shell("! test -e w/p.csv"));
}

/* Root may list every folder, so the command runs as another user. */
TEST(unreadable_folder_is_named)
{
    char said[4000];

    if (geteuid() == 0 && system("setpriv --reuid=65534 --clear-groups true 2> /dev/null") != 0)
        SKIP("cannot run as another user here");
    photos_make();
    if (chmod(in_root("photos/dog"), 0) != 0 || chmod(in_root("photos/cat"), 0755) != 0 ||
        chmod(in_root("photos"), 0755) != 0 || chmod(pools_root, 0755) != 0)
        abort();
    CHECK(shell("%s %s data show %s > said 2>&1",
                geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups" : "", in_build("bin/gradpool"),
                in_root("photos")) != 0);
    slurp(in_root("said"), said, sizeof(said));
    CHECK_CONTAINS(said, "cannot list ");
    CHECK_CONTAINS(said, "photos/dog");
    chmod(in_root("photos/dog"), 0700);
}
