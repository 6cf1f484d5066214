/* test_segment.c: semantic segmentation through the command: networks with scores per pixel, label
 * images as targets. */
#include <stdbool.h>

#include "tests/common/data/make_images.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

enum { SIDE = 32, IMAGES = 48, CHECKS = 16 };

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Create dark noise with a bright square, whose pixels have class 1. */
static void square_make(const char *part, int number, uint32_t seed)
{
    uint8_t image[SIDE * SIDE], label[SIDE * SIDE];
    const uint32_t top = noise(&seed) % 16, left = noise(&seed) % 16, side = 8 + noise(&seed) % 8;
    char path[300];

    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        const uint32_t y = i / SIDE, x = i % SIDE;
        const bool inside = y >= top && y < top + side && x >= left && x < left + side;

        image[i] = (uint8_t)(noise(&seed) % 90 + (inside ? 120 : 20));
        label[i] = inside;
    }
    snprintf(path, sizeof(path), "%s/%s/%03d.png", in_w("squares"), part, number);
    make_png(path, &(made_image){ .width = SIDE, .height = SIDE, .channels = 1, .data = image });
    snprintf(path, sizeof(path), "%s/%sannot/%03d.png", in_w("squares"), part, number);
    make_png(path, &(made_image){ .width = SIDE, .height = SIDE, .channels = 1, .data = label });
}

static void squares_make(void)
{
    static const char *const folders[] = { "", "/train", "/trainannot", "/val", "/valannot" };
    char path[300];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", in_w("squares"), folders[i]);
        if (mkdir(path, 0700) != 0)
            abort();
    }
    write_file("w/squares/classes.csv", "background\nsquare\n");
    for (int i = 0; i < IMAGES; i++)
        square_make("train", i, (uint32_t)i + 1);
    for (int i = 0; i < CHECKS; i++)
        square_make("val", i, (uint32_t)i + 1000);
}

/* Predict pixel classes into a numpy array and compare them with the labels. counts:
 * [true][predicted]. */
static void classes_predict(double counts[2][2])
{
    static const char head[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, 'shape': (16, 32, 32,), }";
    static uint8_t file[128 + CHECKS * SIDE * SIDE + 1];
    FILE *array;

    RUN_CODE(1, "predict", "--model", "unet.onnx", "--data", "squares", "--out", "classes.csv");
    CHECK_CONTAINS(err, "use --out FILE.npy");
    RUN_CODE(0, "predict", "--model", "unet.onnx", "--data", "squares", "--out", "classes.npy");
    array = fopen(in_w("classes.npy"), "r");
    REQUIRE(array != NULL);
    CHECK_INT(sizeof(file) - 1, fread(file, 1, sizeof(file), array));
    fclose(array);
    CHECK(memcmp(file, head, sizeof(head) - 1) == 0 && file[127] == '\n');
    for (uint32_t n = 0; n < CHECKS; n++)
        for (uint32_t i = 0; i < SIDE * SIDE; i++) {
            uint32_t seed = n + 1000, y = i / SIDE, x = i % SIDE;
            const uint32_t top = noise(&seed) % 16, left = noise(&seed) % 16, side = 8 + noise(&seed) % 8;

            counts[y >= top && y < top + side && x >= left && x < left + side]
                  [file[128 + n * SIDE * SIDE + i]]++;
        }
}

/* Compare the metrics from evaluate with counts of the predicted pixels. */
static void metrics_check(void)
{
    double counts[2][2] = { { 0 } }, iou[2], truth[2];
    const double accuracy = reported("accuracy"), mean_accuracy = reported("mean_accuracy"),
                 mean_iou = reported("mean_iou"), weighted_iou = reported("weighted_iou");

    CHECK_INT(CHECKS * SIDE * SIDE, (int)reported("pixels"));
    classes_predict(counts);
    for (int k = 0; k < 2; k++) {
        truth[k] = counts[k][0] + counts[k][1];
        iou[k] = counts[k][k] / (truth[k] + counts[1 - k][k]);
    }
    CHECK_NEAR((counts[0][0] + counts[1][1]) / (CHECKS * SIDE * SIDE), accuracy, 1e-12);
    CHECK_NEAR((counts[0][0] / truth[0] + counts[1][1] / truth[1]) / 2, mean_accuracy, 1e-12);
    CHECK_NEAR((iou[0] + iou[1]) / 2, mean_iou, 1e-12);
    CHECK_NEAR((truth[0] * iou[0] + truth[1] * iou[1]) / (CHECKS * SIDE * SIDE), weighted_iou, 1e-12);
}

TEST(u_net_learns_to_segment_squares)
{
    exec_begin();
    squares_make();
    RUN_CODE(0, "train", "--network", "unet:depth=2,width=8,dropout=0", "--data", "squares", "--epochs", "30",
             "--mini-batch-size", "8", "--solver", "adam", "--lr", "0.003", "--weights-initializer", "he",
             "--out", "unet.onnx", "--json");

    /* pixel accuracy; all background would be about 0.87 */
    CHECK(reported("validation_accuracy") > 0.97);
    CHECK(reported("loss") < 0.1);
    RUN_CODE(0, "model", "show", "unet.onnx", "--json");
    CHECK_INT(29330, (int)reported("parameters"));
    RUN_CODE(0, "evaluate", "--model", "unet.onnx", "--data", "squares", "--json");
    CHECK(reported("accuracy") > 0.97);
    CHECK_INT(CHECKS, (int)reported("count"));
    metrics_check();
}

/* ---- images of any size ---- */

static const uint32_t scene_sizes[][2] = { { 70, 50 }, { 41, 64 }, { 24, 24 }, { 18, 91 }, { 33, 25 } };

enum { SCENES = sizeof(scene_sizes) / sizeof(scene_sizes[0]), SCENE_PIXELS = 70 * 91 };

/* Create bright squares on noise, larger than the network input, with a void border; label images
 * in color. */
static void scene_make(int number)
{
    static uint8_t image[SCENE_PIXELS], label[3 * SCENE_PIXELS];
    const uint32_t height = scene_sizes[number][0], width = scene_sizes[number][1];
    uint32_t seed = (uint32_t)number + 77;
    char path[300];

    for (uint32_t i = 0; i < height * width; i++) {
        const uint32_t y = i / width, x = i % width;
        const bool inside = y % 24 >= 8 && y % 24 < 20 && x % 30 >= 10 && x % 30 < 24;
        const bool frame = x == 0 || x == width - 1;

        image[i] = (uint8_t)(noise(&seed) % 90 + (inside ? 120 : 20));
        memcpy(label + 3 * i, frame ? "\0\0\0" : inside ? "\377\0\0" : "\0\0\377", 3);
    }
    snprintf(path, sizeof(path), "%s/images/s%d.png", in_w("scenes"), number);
    make_png(path, &(made_image){ .width = width, .height = height, .channels = 1, .data = image });
    snprintf(path, sizeof(path), "%s/labels/s%d.png", in_w("scenes"), number);
    make_png(path, &(made_image){ .width = width, .height = height, .channels = 3, .data = label });
}

/* Run a shell command that must succeed in the working directory. */
#define SHELL_W(command) CHECK_INT(0, shell("cd w && " command))

static void scenes_make(void)
{
    SHELL_W("mkdir -p scenes/images scenes/labels");
    write_file("w/scenes/classes.csv", "void,0,0,0\nbackground,0,0,255\nsquare,255,0,0\n");
    for (int i = 0; i < SCENES; i++)
        scene_make(i);
}

/* Truncate two scenes: the others are predicted and counted as if these did not exist. */
static void torn_scenes_check(void)
{
    static char counts[2][400];
    double accuracy, loss, pixels;

    SHELL_W("cp -r scenes torn && truncate -s 100 torn/images/s1.png && truncate -s 0 torn/images/s4.png");
    SHELL_W("cp -r scenes rest && rm rest/*/s1.png rest/*/s4.png");
    RUN_CODE(1, "evaluate", "--model", "parts.onnx", "--data", "torn", "--json");
    RUN_CODE(0, "evaluate", "--model", "parts.onnx", "--data", "rest", "--json", "--confusion", "counts.csv");
    accuracy = reported("accuracy");
    loss = reported("loss");
    pixels = reported("pixels");
    slurp(in_w("counts.csv"), counts[0], sizeof(counts[0]));
    RUN_CODE(0, "evaluate", "--model", "parts.onnx", "--data", "torn", "--on-error", "skip", "--json",
             "--confusion", "counts.csv");
    slurp(in_w("counts.csv"), counts[1], sizeof(counts[1]));
    CHECK_TEXT(counts[0], counts[1]);
    CHECK_NEAR(accuracy, reported("accuracy"), 0);
    CHECK_NEAR(loss, reported("loss"), 1e-9);
    CHECK_INT((int)pixels, (int)reported("pixels"));
    CHECK_INT(SCENES - 2, (int)reported("count"));
    CHECK_CONTAINS(out, "\"skipped\": 2, \"skipped_names\": [\"images/s1.png\", \"images/s4.png\"]");
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "torn", "--on-error", "skip", "--out",
             "torn-labels/", "--overlays", "torn-over");
    CHECK_CONTAINS(err, "2 images could not be read and were skipped: images/s1.png, images/s4.png; ");
    CHECK_CONTAINS(err, "3 samples in ");
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "rest", "--out", "rest-labels/", "--overlays",
             "rest-over");
    SHELL_W("diff -r rest-labels torn-labels && diff -r rest-over torn-over");
}

TEST(images_of_any_size_are_predicted_in_tiles_and_each_pixel_counts_once)
{
    static char counts[3][400], count_text[3][8] = { "1", "2", "3" };
    double accuracy[3], loss[3];
    uint32_t pixels = 0;

    exec_begin();
    squares_make();
    scenes_make();
    for (int i = 0; i < SCENES; i++)
        pixels += scene_sizes[i][0] * (scene_sizes[i][1] - 2);
    RUN_CODE(0, "train", "--network", "unet:depth=2,width=8,dropout=0", "--data", "squares", "--augment",
             "crop=random crop-size=24,24 patches-per-image=2", "--epochs", "8", "--mini-batch-size", "8",
             "--solver", "adam", "--lr", "0.003", "--weights-initializer", "he", "--class-weights", "auto",
             "--out", "parts.onnx", "--json");
    RUN_CODE(0, "down");
    RUN_CODE(0, "up", "--workers", "3");
    for (int n = 0; n < 3; n++) {
        RUN_CODE(0, "evaluate", "--model", "parts.onnx", "--data", "scenes", "--json", "--confusion",
                 "counts.csv", "-n", count_text[n]);
        accuracy[n] = reported("accuracy");
        loss[n] = reported("loss");
        CHECK_INT(pixels, (int)reported("pixels"));
        CHECK_INT(SCENES, (int)reported("count"));
        slurp(in_w("counts.csv"), counts[n], sizeof(counts[n]));
        CHECK_TEXT(counts[0], counts[n]);
        CHECK_NEAR(accuracy[0], accuracy[n], 0);
        CHECK_NEAR(loss[0], loss[n], 0);
    }
    CHECK(accuracy[0] > 0.9 && loss[0] > 0 && loss[0] < 0.5);

    /* Predictions used as labels score perfectly: label images contain all information. */
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "scenes", "--out", "labels/", "--overlays",
             "over", "-n", "3");
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "scenes", "--out", "one/", "-n", "1");
    SHELL_W("diff -r labels one && test -s over/images/s3.png");
    SHELL_W("mkdir again && cp -r scenes/images again && cp -r labels/images again/labels && cp "
            "labels/classes.csv again");
    RUN_CODE(0, "evaluate", "--model", "parts.onnx", "--data", "again", "--json");
    CHECK_NEAR(1, reported("accuracy"), 0);
    CHECK_INT(pixels + 2 * (70 + 41 + 24 + 18 + 33), (int)reported("pixels"));

    /* The same images without labels, resized to the network's size or to a given size. */
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "scenes/images", "--out", "bare/",
             "--class-file", "scenes/classes.csv");
    SHELL_W("cmp bare/s0.png labels/images/s0.png");
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "scenes", "--out", "small/", "--image-fit",
             "resize");
    RUN_CODE(0, "predict", "--model", "parts.onnx", "--data", "scenes", "--out", "large/", "--image-size",
             "96,96", "--overlap", "12");
    SHELL_W("! cmp -s small/images/s0.png labels/images/s0.png && ! cmp -s large/images/s0.png "
            "labels/images/s0.png");
    torn_scenes_check();
}

TEST(invalid_segmentation_requests_are_refused)
{
    exec_begin();
    squares_make();
    scenes_make();
    RUN_CODE(0, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--epochs", "1",
             "--mini-batch-size", "16", "--out", "u.onnx", "--json");
    RUN_CODE(0, "train", "--network", "lenet", "--data", "digits:64", "--epochs", "1", "--mini-batch-size",
             "32", "--out", "lenet.onnx", "--json");
    RUN_CODE(1, "predict", "--model", "lenet.onnx", "--data", "digits:8", "--out", "d/");
    CHECK_CONTAINS(err, "has no class for each pixel");
    RUN_CODE(1, "predict", "--model", "u.onnx", "--data", "scenes", "--out", "d/", "--image-fit", "resize",
             "--class-file", "none.csv");
    CHECK_CONTAINS(err, "the class file none.csv does not exist");
    write_file("w/other.csv", "background\nbridge\n");
    RUN_CODE(1, "predict", "--model", "u.onnx", "--data", "scenes", "--out", "d/", "--image-fit", "resize",
             "--class-file", "other.csv");
    CHECK_CONTAINS(err, "other.csv lacks the class 'square' of the model");
    RUN_CODE(1, "evaluate", "--model", "u.onnx", "--data", "scenes", "--image-fit", "windows", "--overlap",
             "17");
    CHECK_CONTAINS(err, "overlap by at most half");
    RUN_CODE(2, "predict", "--model", "u.onnx", "--data", "scenes", "--image-fit", "windows");
    CHECK_CONTAINS(err, "needs --out FOLDER/");
    RUN_CODE(1, "evaluate", "--model", "lenet.onnx", "--data", "digits:8", "--image-fit", "windows");
    CHECK_CONTAINS(err, "fit windows needs a network with scores per pixel");
    RUN_CODE(1, "predict", "--model", "u.onnx", "--data", "scenes", "--out", "scenes.npy", "--image-fit",
             "resize");
    CHECK_CONTAINS(err, "images/s1.png is 41x64 (height x width) after images of 70x50");
    RUN_CODE(2, "evaluate", "--model", "u.onnx", "--data", "scenes", "--image-fit", "resize", "--overlap",
             "8");
    CHECK_CONTAINS(err, "--overlap has no effect with --image-fit");
    SHELL_W("mkdir twins && cp scenes/images/s0.png twins/a.png && cp scenes/images/s1.png twins/a.PNG");
    RUN_CODE(1, "predict", "--model", "u.onnx", "--data", "twins", "--out", "d/", "--image-fit", "resize");
    CHECK_CONTAINS(err, "two images have the name a and different suffixes");
    SHELL_W("cp scenes/labels/s0.png scenes/labels/s1.png");
    RUN_CODE(1, "evaluate", "--model", "u.onnx", "--data", "scenes");
    CHECK_CONTAINS(err, "has 1x70x50 values (channels x height x width), but the network needs 1x32x32");
    RUN_CODE(1, "evaluate", "--model", "u.onnx", "--data", "scenes", "--image-fit", "resize");
    CHECK_CONTAINS(err,
                   "labels/s1.png has 70x50 pixels (height x width), but the image that it labels has 41x64");
}

TEST(data_show_names_validation_and_test_data)
{
    commands_begin();
    squares_make();
    RUN_CODE(0, "data", "show", "squares");
    CHECK_CONTAINS(out, "\ntest: 16 samples, ");
    mkdir(in_root("w/squares/test"), 0700);
    mkdir(in_root("w/squares/testannot"), 0700);
    square_make("test", 0, 7);
    RUN_CODE(0, "data", "show", "squares");
    CHECK_CONTAINS(out, "train: 48 samples, ");
    CHECK_CONTAINS(out, "\nvalidation: 16 samples, ");
    CHECK_CONTAINS(out, "\ntest: 1 sample, ");
}

/* Check that gradpool-runs/latest links to a folder with that name after date and time. */
static void check_latest_run(const char *name)
{
    char target[200] = "";

    CHECK(readlink(in_w("gradpool-runs/latest"), target, sizeof(target) - 1) > 0);
    CHECK_TEXT(name, target + strcspn(target, "_abcdefghijklmnopqrstuvwxyz"));
}

TEST(run_folders_have_the_base_name_of_the_network)
{
    char path[300];

    exec_begin();
    squares_make();
    RUN_CODE(0, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--epochs", "1",
             "--mini-batch-size", "48", "--out", "small.onnx");
    check_latest_run("unet");
    snprintf(path, sizeof(path), "%s", in_w("small.onnx"));
    RUN_CODE(0, "train", "--pretrained", path, "--data", "squares", "--epochs", "1", "--mini-batch-size",
             "48");
    check_latest_run("small");
}

TEST(class_weights_follow_class_frequencies)
{
    static char text[16 << 10];

    exec_begin();
    squares_make();
    RUN_CODE(0, "data", "show", "squares", "--json");
    CHECK_CONTAINS(out, "\"weight\"");
    RUN_CODE(1, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--class-weights",
             "median-freqency");
    CHECK_CONTAINS(err, "did you mean 'median-frequency'?");
    RUN_CODE(1, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--class-weights",
             "1,2,3");
    CHECK_CONTAINS(err, "class-weights has 3 numbers, but there are 2 classes");
    RUN_CODE(0, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--epochs", "1",
             "--mini-batch-size", "16", "--class-weights", "inverse-frequency", "--out", "weighted.onnx",
             "--json");
    RUN_CODE(0, "model", "edit", "weighted.onnx", "-o", "weighted.json");
    RUN_CODE(0, "train", "--network", "unet:depth=1,width=2", "--data", "squares", "--epochs", "1",
             "--mini-batch-size", "16", "--class-weights", "1,4.5", "--out", "given.onnx", "--json");
    RUN_CODE(0, "model", "edit", "given.onnx", "-o", "given.json");
    slurp(in_w("given.json"), text, sizeof(text));
    CHECK_CONTAINS(text, "\"class-weights\": \"1 4.5\"");
    slurp(in_w("weighted.json"), text, sizeof(text));
    CHECK_CONTAINS(text, "\"class-weights\": \"0.5"); /* most pixels are background */
}

TEST(deeplab_trains_and_its_loss_decreases)
{
    exec_begin();
    squares_make();
    RUN_CODE(0, "train", "--network", "deeplabv3plus:backbone=mobilenetv2,output-stride=8", "--data",
             "squares", "--epochs", "2", "--mini-batch-size", "16", "--lr", "0.05", "--seed", "1", "--json");
    CHECK(reported("loss") > 0 && reported("loss") < 0.5); /* log 2 = 0.69 initially */
    CHECK_INT(6, (int)reported("steps"));
}
