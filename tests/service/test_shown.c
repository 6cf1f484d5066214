/* test_shown.c: prediction preprocesses images like training: evaluate gives the loss and accuracy
 * of the last validation, which is computed by different code. */
#include <stdbool.h>

#include "tests/common/data/make_images.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

enum { TRAINED = 24, CHECKED = 11, SIDE_MAX = 70 };

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static void folder_make(const char *name)
{
    if (mkdir(in_w(name), 0700) != 0)
        abort();
}

/* Create a gray ramp with noise; the slope is the class. Stretching, cropping and scaling change
 * the numbers. */
static void photo_make(const char *folder, const char *part, int number, bool sizes)
{
    static uint8_t data[SIDE_MAX * SIDE_MAX];
    uint32_t seed = (uint32_t)number * 7 + 3;
    const uint32_t height = sizes ? 30 + noise(&seed) % 40 : 40, width = sizes ? 30 + noise(&seed) % 40 : 60;
    char path[300];

    for (uint32_t i = 0; i < height * width; i++)
        data[i] = (uint8_t)(noise(&seed) % 100 + (number % 2 == 0 ? i / width : i % width) * 2);
    snprintf(path, sizeof(path), "%s/%s/%s/%03d.png", in_w(folder), part, number % 2 == 0 ? "down" : "right",
             number);
    make_png(path, &(made_image){ .width = width, .height = height, .channels = 1, .data = data });
}

static void photos_make(const char *folder, bool sizes)
{
    static const char *const folders[] = { "",      "/train",     "/train/down", "/train/right",
                                           "/test", "/test/down", "/test/right" };
    char path[300];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", folder, folders[i]);
        folder_make(path);
    }
    for (int i = 0; i < TRAINED + CHECKED; i++)
        photo_make(folder, i < TRAINED ? "train" : "test", i, sizes);
}

/* Train on `data` with this crop, and check that evaluate gives the same result as the
 * validation. */
static void same_as_validated(const char *data, const char *augment, const char *size)
{
    const char *words[] = { "train",  "--network", "lenet", "--data",
                            data,     "--epochs",  "2",     "--mini-batch-size",
                            "8",      "--lr",      "0.01",  "--out",
                            "m.onnx", "--json",    NULL,    NULL,
                            NULL,     NULL,        NULL };
    int count = 14;
    double loss, accuracy;

    if (augment[0] != '\0') {
        words[count++] = "--augment";
        words[count++] = augment;
    }
    if (size[0] != '\0') {
        words[count++] = "--image-size";
        words[count++] = size;
    }
    if (finish(start(-1, -1, words)) != 0)
        GP_TEST_FAIL("%s %s: %s", augment, size, err);
    loss = reported("validation_loss");
    accuracy = reported("validation_accuracy");
    CHECK(loss > 0);
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", data, "--json");
    CHECK_TEXT("", err);
    CHECK_INT(CHECKED, (int)reported("count"));
    CHECK_NEAR(loss, reported("loss"), 1e-6 * loss);
    CHECK_NEAR(accuracy, reported("accuracy"), 1e-12);
}

TEST(evaluate_matches_the_validation_of_a_classifier)
{
    exec_begin();
    photos_make("alike", false);
    photos_make("sizes", true);
    same_as_validated("alike", "crop=random crop-size=28,28", "");
    same_as_validated("alike", "crop=center crop-size=28,28 x-reflection=0.5", "");
    same_as_validated("sizes", "crop=random crop-size=28,28", "33,36");
    same_as_validated("sizes", "crop=resized crop-size=28,28", "33,36");
    same_as_validated("sizes", "x-reflection=0.5", "28,28");
    same_as_validated("sizes", "crop=fit crop-size=28,28", "");
    same_as_validated("sizes", "crop=resized crop-size=28,28", "");
}

TEST(preprocessing_can_be_chosen_and_a_mismatch_is_reported)
{
    double loss;

    exec_begin();
    photos_make("sizes", true);
    same_as_validated("sizes", "crop=resized crop-size=28,28", "");
    loss = reported("loss");
    RUN_CODE(0, "model", "show", "m.onnx");
    CHECK_CONTAINS(out, "trained on images scaled to cover 28x28");
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "sizes", "--json", "--image-fit", "crop");
    CHECK_TEXT("", err);
    CHECK_NEAR(loss, reported("loss"), 0);
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "sizes", "--json", "--image-fit", "resize");
    CHECK_CONTAINS(err, "m.onnx was trained on images scaled to cover 28x28, but gets images "
                        "stretched to 28x28 as requested");
    CHECK(reported("loss") != loss);
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "sizes", "--image-size", "40,40", "--out", "p.csv");
    CHECK_CONTAINS(err, "but gets images resized to 40x40, cropped to 28x28 as requested");
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "sizes", "--image-size", "40,40", "--out", "p.csv",
             "--quiet");
    CHECK_TEXT("", err);
    same_as_validated("sizes", "crop=random crop-size=28,28", "33,36");
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "sizes", "--json", "--image-size", "33,36");
    CHECK_TEXT("", err);
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "sizes", "--json", "--image-fit", "crop");
    CHECK_CONTAINS(err, "was trained on images resized to 33x36, cropped to 28x28");
    RUN_CODE(2, "evaluate", "--model", "m.onnx", "--data", "sizes", "--image-fit", "crop", "--image-size",
             "33,36");
    CHECK_CONTAINS(err, "--image-size has no effect with --image-fit crop");
}

/* ---- pixel classes ---- */

/* Create images of 24x24: half of the pixels are bright (class 2), others are class 1, and one
 * column is class 0, which some losses ignore. */
static void fields_make(void)
{
    static const char *const folders[] = { "fields", "fields/train", "fields/train_labels", "fields/val",
                                           "fields/val_labels" };
    uint8_t image[24 * 24], label[24 * 24];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        folder_make(folders[i]);
    write_file("w/fields/classes.csv", "edge\ndark\nbright\n");
    for (int n = 0; n < TRAINED + CHECKED; n++) {
        const char *part = n < TRAINED ? "train" : "val";
        uint32_t seed = (uint32_t)n + 5;
        char path[300];

        for (int i = 0; i < 24 * 24; i++) {
            const bool bright = (i % 24 + i / 24 + n) % 16 < 8;

            image[i] = (uint8_t)(noise(&seed) % 120 + (bright ? 100 : 0));
            label[i] = i % 24 == 0 ? 0 : bright ? 2 : 1;
        }
        snprintf(path, sizeof(path), "%s/%s/%03d.png", in_w("fields"), part, n);
        make_png(path, &(made_image){ .width = 24, .height = 24, .channels = 1, .data = image });
        snprintf(path, sizeof(path), "%s/%s_labels/%03d.png", in_w("fields"), part, n);
        make_png(path, &(made_image){ .width = 24, .height = 24, .channels = 1, .data = label });
    }
}

TEST(network_trained_on_resized_images_evaluates_resized_images)
{
    double loss;

    exec_begin();
    fields_make();
    RUN_CODE(0, "train", "--network", "unet:depth=1,width=4,dropout=0", "--data", "fields", "--epochs", "1",
             "--mini-batch-size", "8", "--augment", "crop=resized crop-size=16,16 crop-area=0.5,1", "--out",
             "f.onnx", "--json");

    /* whole images of 24x24 at 16x16 */
    RUN_CODE(0, "evaluate", "--model", "f.onnx", "--data", "fields", "--json");
    CHECK_TEXT("", err);
    loss = reported("loss");
    CHECK_INT(CHECKED * 24 * 24, (int)reported("pixels"));
    RUN_CODE(0, "evaluate", "--model", "f.onnx", "--data", "fields", "--json", "--image-fit",
             "resize"); /* the same for square crops */
    CHECK_NEAR(loss, reported("loss"), 0);
    CHECK_CONTAINS(err, "f.onnx was trained on images scaled to cover 16x16");
    RUN_CODE(0, "evaluate", "--model", "f.onnx", "--data", "fields", "--json", "--image-fit", "windows");
    CHECK(reported("loss") != loss);
}

#define NETWORK(losses)                                                                                      \
    "{\"name\": \"fields\", \"input\": [1, 24, 24], \"scale\": [0.004], \"offset\": [0], \"layers\": ["      \
    "{\"name\": \"c\", \"kind\": \"conv2d\", \"channels\": 4, \"kernel\": 3, \"padding\": 1}, "              \
    "{\"name\": \"r\", \"kind\": \"relu\"}, "                                                                \
    "{\"name\": \"s\", \"kind\": \"conv2d\", \"channels\": 3, \"kernel\": 1}, " losses "]}"

TEST(whole_image_loss_matches_the_network_for_all_losses)
{
    static const char *const networks[] = {
        NETWORK("{\"name\": \"l\", \"kind\": \"pixelclassification\"}"),
        NETWORK("{\"name\": \"l\", \"kind\": \"pixelclassification\", \"class-weights\": \"3 1 0.5\", "
                "\"label-smoothing\": 0.2}"),
        NETWORK("{\"name\": \"l\", \"kind\": \"dice\"}"),
        NETWORK("{\"name\": \"l\", \"kind\": \"dice\", \"volume-power\": 1, \"ignore-label\": 0, "
                "\"loss-factor\": "
                "2}"),
        NETWORK("{\"name\": \"l\", \"kind\": \"pixelclassification\", \"label-smoothing\": 0.1}, "
                "{\"name\": \"d\", \"kind\": \"dice\", \"inputs\": [\"s\"], \"loss-factor\": 0.5, "
                "\"ignore-label\": "
                "0, \"target-of\": \"l\"}"),
        NETWORK(
            "{\"name\": \"l\", \"kind\": \"dice\"}, "
            "{\"name\": \"t\", \"kind\": \"conv2d\", \"channels\": 3, \"kernel\": 1, \"inputs\": [\"r\"]}, "
            "{\"name\": \"e\", \"kind\": \"pixelclassification\", \"inputs\": [\"t\"], \"target-of\": "
            "\"l\"}"),
    };
    double whole, shown;

    exec_begin();
    fields_make();
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        write_file("w/n.json", networks[i]);
        if (RUN("train", "--network", "n.json", "--data", "fields", "--epochs", "2", "--mini-batch-size", "8",
                "--lr", "0.05", "--out", "n.onnx", "--json") != 0)
            GP_TEST_FAIL("network %zu: %s", i, err);
        shown = reported("validation_loss");
        CHECK(shown > 0);
        RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "fields", "--json"); /* at the original size */
        whole = reported("loss");
        CHECK_NEAR(shown, whole, 2e-6 * shown);
        CHECK_INT(CHECKED * 24 * 24 - (i == 3 ? CHECKED * 24 : 0), (int)reported("pixels"));
        RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "fields", "--json", "--image-fit", "input");
        CHECK_NEAR(shown, reported("loss"), 1e-6 * shown);
    }
}

/* Write uint8 [3, 24, 48] like numpy.save(). */
static void array_write(const char *name, const uint8_t *data, size_t bytes)
{
    FILE *file = fopen(in_w(name), "w");
    char head[129];

    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(head + 10, sizeof(head) - 10, "%-117s\n",
             "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 24, 48), }");
    if (file == NULL || fwrite(head, 128, 1, file) != 1 || fwrite(data, bytes, 1, file) != 1 ||
        fclose(file) != 0)
        abort();
}

TEST(arrays_of_any_size_are_predicted_in_tiles)
{
    static uint8_t x[3 * 24 * 48], y[3 * 24 * 48];
    char command[900];
    double loss;

    exec_begin();
    fields_make();
    write_file("w/n.json", NETWORK("{\"name\": \"l\", \"kind\": \"pixelclassification\"}"));
    RUN_CODE(0, "train", "--network", "n.json", "--data", "fields", "--epochs", "3", "--mini-batch-size", "8",
             "--lr", "0.05", "--out", "n.onnx", "--json");
    for (uint32_t i = 0; i < sizeof(x); i++) {
        const uint32_t row = i / 48 % 24, column = i % 48;
        const bool bright = (column + row) % 16 < 8;

        x[i] = (uint8_t)((i * 37 + row * 11) % 120 + (bright ? 100 : 0));
        y[i] = bright ? 2 : 1;
    }
    folder_make("wide");
    folder_make("wide/images");
    folder_make("wide/labels");
    write_file("w/wide/classes.csv", "edge\ndark\nbright\n");
    for (int n = 0; n < 3; n++) {
        snprintf(command, sizeof(command), "%s/images/%d.png", in_w("wide"), n);
        make_png(command, &(made_image){ .width = 48, .height = 24, .channels = 1, .data = x + n * 24 * 48 });
        snprintf(command, sizeof(command), "%s/labels/%d.png", in_w("wide"), n);
        make_png(command, &(made_image){ .width = 48, .height = 24, .channels = 1, .data = y + n * 24 * 48 });
    }
    array_write("x.npy", x, sizeof(x));
    array_write("y.npy", y, sizeof(y));
    RUN_CODE(1, "evaluate", "--model", "n.onnx", "--data", "x.npy", "--json");
    CHECK_CONTAINS(err, "arrays of 24x48, which cannot be resized to 24x24; use --image-fit windows");
    RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "x.npy", "--json", "--image-fit", "windows");
    loss = reported("loss");
    CHECK_INT(3 * 24 * 48, (int)reported("pixels"));
    RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "wide", "--json", "--image-fit", "windows");
    CHECK_NEAR(loss, reported("loss"), 0);

    /* At the smallest scale that covers the network input, the images are unchanged. */
    RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "wide", "--json", "--image-fit", "crop");
    CHECK_NEAR(loss, reported("loss"), 0);
    RUN_CODE(0, "predict", "--model", "n.onnx", "--data", "x.npy", "--out", "classes.npy", "--image-fit",
             "windows");
    CHECK_INT(0, shell("cd w && grep -aq \"'shape': (3, 24, 48,)\" classes.npy && mv classes.npy y.npy"));
    RUN_CODE(0, "evaluate", "--model", "n.onnx", "--data", "x.npy", "--json", "--image-fit", "windows");
    CHECK_NEAR(1, reported("accuracy"), 0);
}
