/* test_transfer.c: transfer learning through the command and the library, with real workers. */
#include "common/base/system/file.h"
#include "common/model/network.h"
#include "tests/common/data/make_images.h"
#include "tests/common/model/onnx_bytes.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

static char cache[300];

/* Start a pool of two, train LeNet on drawn digits as pre.onnx, and create the folder `other`
 * with other classes. */
static void transfer_begin(void)
{
    exec_begin();
    snprintf(cache, sizeof(cache), "%s/cache", pools_root);
    setenv("XDG_CACHE_HOME", cache, 1);
    RUN_CODE(0, "train", "--network", "lenet", "--data", "digits:3000", "--epochs", "2", "--lr", "0.1",
             "--batch-size", "64", "--quiet", "--out", "pre.onnx");
    RUN_CODE(0, "data", "make", "digits", "other", "--count", "600", "--test-count", "200");
    write_file("w/other/classes.txt", "zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
}

#define TRANSFER "train", "--pretrained", "pre.onnx", "--data", "other"

typedef struct tensors {
    gp_network network;
    gp_graph *graph;
} tensors;

static bool tensors_load(tensors *t, const char *name)
{
    gp_error error;

    *t = (tensors){ 0 };
    if (gp_network_load(&t->network, in_w(name), NULL, 0, &error) == GP_OK &&
        gp_graph_new(&t->graph, t->network.spec, &error) == GP_OK)
        return true;
    GP_TEST_FAIL("%s", error.message);
    return false;
}

static void tensors_free(tensors *t)
{
    gp_graph_free(t->graph);
    gp_network_deinit(&t->network);
}

/* Return whether a tensor is bitwise identical in both models. */
static bool same_bits(const tensors *a, const tensors *b, const char *name)
{
    for (uint32_t p = 0; p < a->graph->parameter_count; p++)
        for (uint32_t q = 0; q < b->graph->parameter_count; q++) {
            const gp_parameter *x = &a->graph->parameters[p], *y = &b->graph->parameters[q];

            if (strcmp(x->name, name) == 0 && strcmp(y->name, name) == 0)
                return x->count == y->count &&
                       memcmp(a->network.weights + x->offset, b->network.weights + y->offset,
                              (size_t)x->count * sizeof(float)) == 0;
        }
    GP_TEST_FAIL("there is no %s", name);
    return false;
}

TEST(new_head_learns_other_classes_and_frozen_layers_are_bitwise_unchanged)
{
    static const char *const frozen[] = { "conv1.weight", "conv1.bias", "conv2.weight",
                                          "conv2.bias",   "fc1.weight", "fc1.bias" };
    tensors before, after;

    transfer_begin();
    RUN_CODE(0, TRANSFER, "--classes", "auto", "--head-learn-rate-factor", "10,20", "--freeze-up-to", "fc1",
             "--epochs", "3", "--lr", "0.005", "--batch-size", "50", "--out", "after.onnx", "--plots",
             "none");
    CHECK_CONTAINS(out, "removed  fc2 ");
    CHECK_CONTAINS(out, "outputs=10 weight-learn-rate-factor=10 bias-learn-rate-factor=20");
    CHECK_CONTAINS(out, "frozen   conv1 .. fc1 ");
    CHECK(strstr(out, "removed") < strstr(out, "3 epochs of 12 steps")); /* reported before the first step */
    if (tensors_load(&before, "pre.onnx") && tensors_load(&after, "after.onnx")) {
        for (size_t i = 0; i < sizeof(frozen) / sizeof(frozen[0]); i++)
            if (!same_bits(&before, &after, frozen[i]))
                GP_TEST_FAIL("%s has changed", frozen[i]);
        CHECK(!same_bits(&before, &after, "fc2.weight"));
        REQUIRE(after.network.class_count == 10);
        CHECK_TEXT("seven", after.network.class_names[7]);
        tensors_free(&before);
        tensors_free(&after);
    }
    RUN_CODE(0, "evaluate", "--model", "after.onnx", "--data", "other", "--json");
    CHECK(strstr(out, "\"accuracy\":") != NULL && atof(strstr(out, "\"accuracy\":") + 11) > 0.7);
}

TEST(network_with_the_same_classes_keeps_its_head_and_useless_options_are_refused)
{
    transfer_begin();
    RUN_CODE(0, "train", "--pretrained", "pre.onnx", "--data", "digits:500", "--classes", "auto", "--epochs",
             "1", "--lr", "0.001", "--json");
    CHECK_CONTAINS(out, "\"changes\": []");
    RUN_CODE(2, "train", "--pretrained", "pre.onnx", "--data", "digits:500", "--classes", "auto",
             "--head-learn-rate-factor", "10,20");
    CHECK_CONTAINS(err, "the classes of the network and the data are equal, so the head is not replaced");
    CHECK_CONTAINS(err, "\n  gradpool train --pretrained pre.onnx --data digits:500 --classes auto\n");
    RUN_CODE(0, "train", "--pretrained", "pre.onnx", "--data", "digits:500", "--classes", "auto", "--epochs",
             "1", "--head-learn-rate-factor=10,20", "--lint", "warn", "--quiet");
    CHECK_CONTAINS(err, "has no effect");
    RUN_CODE(2, "train", "--network", "lenet", "--data", "other", "--classes=auto");
    CHECK_CONTAINS(err, "\n  gradpool train --pretrained lenet --data other --classes=auto\n");
    RUN_CODE(2, TRANSFER, "--head-learn-rate-factor", "10");
    CHECK_CONTAINS(err, "--head-learn-rate-factor 10 --classes auto\n");
    RUN_CODE(2, TRANSFER, "--network", "lenet", "--classes", "auto");
    CHECK_CONTAINS(err, "\n  gradpool train --pretrained pre.onnx --data other --classes auto\n");
    RUN_CODE(0, TRANSFER, "--classes", "auto", "--freeze-up-to", "conv2", "--epochs", "1", "--quiet", "--out",
             "frozen.onnx");
    RUN_CODE(2, "train", "--pretrained", "frozen.onnx", "--data", "other", "--freeze-up-to", "conv2");
    CHECK_CONTAINS(err, "already frozen in the file");
}

TEST(cached_name_is_a_pretrained_network)
{
    transfer_begin();
    REQUIRE(shell("mkdir -p cache/gradpool/models && cp w/pre.onnx cache/gradpool/models/mine.onnx") == 0);
    RUN_CODE(0, "train", "--pretrained", "mine", "--data", "other", "--classes", "10", "--epochs", "1",
             "--quiet");
    RUN_CODE(0, "evaluate", "--model", "mine", "--data", "digits:200");
    RUN_CODE(1, "train", "--pretrained", "yours", "--data", "other");
    CHECK_CONTAINS(err, "unknown trained network 'yours'");
    RUN_CODE(1, "train", "--pretrained", "resnet18", "--data", "other");
    CHECK_CONTAINS(err, "run: gradpool model get resnet18");
}

TEST(incompatible_networks_are_refused_before_a_pool_is_started)
{
    static const struct {
        const char *message, *words[12];
    } cases[] = {
        { "did you mean 'lenet'?", { "train", "--network", "lenett", "--data", "other" } },
        { "network lenet takes 1x28x28",
          { "train", "--pretrained", "pre.onnx", "--data", "synthetic:8x8x3:4:100" } },
        { "classes is 3, and", { TRANSFER, "--classes", "3" } },
        { "classes is 'many'", { TRANSFER, "--classes", "many" } },
        { "1 class in synthetic",
          { "train", "--pretrained", "pre.onnx", "--data", "synthetic:28x28x1:1:100", "--classes", "auto" } },
        { "has 4 classes; network lenet ends in 10",
          { "train", "--pretrained", "pre.onnx", "--data", "synthetic:28x28x1:4:100" } },
        { "did you mean 'conv1'?", { TRANSFER, "--freeze-up-to", "conv3" } },
        { "no layer after loss has learnable weights", { TRANSFER, "--freeze-up-to", "loss" } },
        { "cannot open none.onnx", { "train", "--pretrained", "none.onnx", "--data", "other" } },
        { "plain.json has no weights", { "train", "--pretrained", "plain.json", "--data", "other" } },
        { "the samples of synthetic:9x9x1:10:50 are 1x9x9",
          { TRANSFER, "--validation-data", "synthetic:9x9x1:10:50" } },
        { "no classifier found",
          { "train", "--pretrained", "headless.onnx", "--data", "other", "--classes", "auto" } },
    };

    transfer_begin();
    RUN_CODE(0, "model", "edit", "lenet", "--remove-last", "1", "-o", "plain.json");
    RUN_CODE(0, "model", "edit", "pre.onnx", "--remove-from", "conv2", "--add", "a=globalavgpool", "--add",
             "b=globalmaxpool,inputs=relu1", "--add", "both=concat,inputs=a+b", "--add", "flatten", "-o",
             "headless.onnx");
    RUN_CODE(0, "down");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int code = finish(start(-1, -1, cases[i].words));

        if (code != 1)
            GP_TEST_FAIL("exit code %d for: %s", code, cases[i].message);
        CHECK_CONTAINS(err, cases[i].message);
        CHECK(strstr(err, "started pool") == NULL);
    }
    RUN_CODE(1, "status");
}

/* ---- models of other programs ---- */

/* Write a classifier of 3x4x4 pixels with unnamed outputs, as another program would. */
static void foreign_write(const char *name, int classes)
{
    gp_buffer graph = message(), file;
    char dims[16];
    gp_error error;

    put_text(&graph, 2, "far");
    put_port(&graph, 11, "x", "N 3 4 4");
    snprintf(dims, sizeof(dims), "N %d", classes);
    put_port(&graph, 12, "y", dims);
    snprintf(dims, sizeof(dims), "48 %d", classes);
    put_tensor(&graph, "w", dims, -0.02f, 0.0005f);
    put_node(&graph, "Flatten", "flat", "x", "f", "");
    put_node(&graph, "MatMul", "head", "f w", "y", "");
    file = model_of(&graph, 13);
    if (gp_file_write(in_w(name), file.data, file.bytes, &error) != GP_OK)
        GP_TEST_FAIL("%s", error.message);
    gp_buffer_deinit(&file);
}

TEST(a_foreign_model_needs_its_normalization_for_bytes_and_keeps_it)
{
#define UNNAMED "--data", "synthetic:4x4x3:3:60"
    static const char *const refused[][9] = {
        { "train", "--network", "far.onnx", UNNAMED, NULL },
        { "train", "--pretrained", "far.onnx", UNNAMED, "--classes", "auto", NULL },
        { "evaluate", "--model", "far.onnx", UNNAMED, NULL },
        { "predict", "--model", "far.onnx", UNNAMED, NULL },
    };
    double loss;

    exec_begin();
    foreign_write("far.onnx", 3);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK_INT(1, finish(start(-1, -1, refused[i])));
        CHECK_CONTAINS(err, "set --image-normalization to 0..1, 0..255, imagenet or MEAN,STD");
    }
    RUN_CODE(0, "evaluate", "--model", "far.onnx", UNNAMED, "--image-normalization", "0..1", "--json");
    loss = reported("loss");
    CHECK(loss > 0);
    RUN_CODE(0, "evaluate", "--model", "far.onnx", UNNAMED, "--image-normalization", "0..255", "--json");
    CHECK(reported("loss") > loss);

    /* A file with a normalization needs no option, and trainings keep it. */
    RUN_CODE(0, "model", "edit", "far.onnx", "--set", "input.normalization=0..1", "-o", "near.onnx");
    RUN_CODE(0, "evaluate", "--model", "near.onnx", UNNAMED, "--json");
    CHECK_NEAR(loss, reported("loss"), 0);
    RUN_CODE(0, "model", "show", "near.onnx");
    CHECK_CONTAINS(out, "image normalization: 0..1\n");
    RUN_CODE(0, "model", "show", "far.onnx");
    CHECK_CONTAINS(out, "image normalization: unknown; images require --image-normalization\n");
    RUN_CODE(0, "model", "edit", "far.onnx", "--set", "head.bias=true", "-o", "edited.onnx");
    RUN_CODE(1, "evaluate", "--model", "edited.onnx", UNNAMED);
    RUN_CODE(0, "train", "--network", "far.onnx", UNNAMED, "--image-normalization", "0.5,0.25", "--epochs",
             "1", "--batch-size", "20", "--quiet", "--out", "ours.onnx");
    RUN_CODE(0, "model", "show", "ours.onnx");
    CHECK_CONTAINS(out, "image normalization: 0.5,0.25\n");
    RUN_CODE(0, "predict", "--model", "ours.onnx", UNNAMED);
    RUN_CODE(1, "predict", "--model", "ours.onnx", UNNAMED, "--image-normalization", "0..1");
    CHECK_CONTAINS(err, "has 0.5,0.25; omit it");
}

/* Write `count` color images of one size into a class folder. */
static void photos_write(const char *folder, int count, uint32_t side)
{
    uint8_t pixels[16 * 16 * 3];
    char name[80];

    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 37);
    snprintf(name, sizeof(name), "w/%s", folder);
    for (char *slash = name + 1; (slash = strchr(slash + 1, '/')) != NULL; *slash = '/') {
        *slash = '\0';
        mkdir(in_root(name), 0700);
    }
    mkdir(in_root(name), 0700);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "w/%s/%d.png", folder, i);
        make_png(in_root(name), &(made_image){ side, side, 3, .data = pixels });
    }
}

TEST(classes_are_matched_by_name_and_a_mismatch_is_an_error)
{
#define NAMED "--model", "named.onnx", "--data"
    exec_begin();
    foreign_write("far.onnx", 3);
    photos_write("all/ant", 2, 4);
    photos_write("all/bee", 3, 4);
    photos_write("all/cow", 4, 4);
    photos_write("two/ant", 1, 4);
    photos_write("two/cow", 1, 4);
    photos_write("new/ant", 1, 4);
    photos_write("new/dog", 1, 4);
    photos_write("plain", 2, 4);
    write_file("w/list.csv", "path,label\nall/ant/0.png,ant\nall/bee/0.png,\n");

    /* Unnamed outputs are matched in order if their number is equal, which is reported; otherwise
     * they are refused. */
    RUN_CODE(0, "evaluate", "--model", "far.onnx", "--data", "all", "--image-normalization", "0..1");
    CHECK_CONTAINS(err, "assuming the order of the data's classes: ant, bee, cow");
    RUN_CODE(1, "evaluate", "--model", "far.onnx", "--data", "two", "--image-normalization", "0..1");
    CHECK_CONTAINS(err, "has 2 classes (ant, cow) and the model 3 outputs without names");

    /* Named outputs, in another order than the folders. */
    RUN_CODE(1, "model", "edit", "far.onnx", "--class-names", "cow,ant", "-o", "named.onnx");
    CHECK_CONTAINS(err, "2 class names for a network of 3 classes");
    RUN_CODE(0, "model", "edit", "far.onnx", "--set", "input.normalization=0..1", "--class-names",
             "cow,ant,bee", "-o", "named.onnx");
    RUN_CODE(0, "predict", NAMED, "all", "--json");
    CHECK_CONTAINS(out, "\"name\": \"bee/2.png\", ");
    CHECK_CONTAINS(out, "\"label\": \"bee\", \"score_type\": \"probabilities\", \"scores\": [");
    CHECK_CONTAINS(err, "; scores: probabilities (softmax)");
    RUN_CODE(0, "evaluate", NAMED, "all", "--per-class");
    CHECK_CONTAINS(out, "\ncow              4 ");
    CHECK_CONTAINS(out, "\nant              2 ");
    RUN_CODE(0, "evaluate", NAMED, "two");
    CHECK_CONTAINS(out, "classes of the model that the data lacks: bee (1 of 3)\n");
    RUN_CODE(1, "evaluate", NAMED, "new");
    CHECK_CONTAINS(err, "lacks: dog; the model has cow, ant, bee");
    RUN_CODE(1, "predict", NAMED, "new");
    RUN_CODE(0, "predict", NAMED, "new", "--ignore-labels", "--json");
    CHECK(strstr(out, "label") == NULL);

    /* Samples excluded from a metric are reported, and a metric without samples is an error. */
    RUN_CODE(0, "evaluate", NAMED, "list.csv");
    CHECK_CONTAINS(out, "excluded: 1 sample without a class\n");
    RUN_CODE(1, "evaluate", NAMED, "plain");
    CHECK_CONTAINS(err, "no sample was evaluated: plain has no labels");
    RUN_CODE(0, "predict", NAMED, "plain");

    /* Trainings that keep the head, and their validation. */
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "all", "--validation-data", "two", "--epochs",
             "1", "--batch-size", "9", "--lr", "1e-9", "--quiet", "--out", "ours.onnx");
    RUN_CODE(0, "evaluate", NAMED, "all", "--json");
    const double loss = reported("loss");

    RUN_CODE(0, "evaluate", "--model", "ours.onnx", "--data", "all", "--json");
    CHECK_NEAR(loss, reported("loss"), 1e-4);

    /* The weights of the classes have the order of the outputs: 4 cows, 2 ants, 3 bees. */
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "all", "--epochs", "1", "--batch-size", "9",
             "--class-weights", "inverse-frequency", "--quiet", "--out", "weighted.onnx");
    RUN_CODE(0, "model", "edit", "weighted.onnx", "-o", "weighted.json");
    slurp(in_w("weighted.json"), out, sizeof(out));
    CHECK_CONTAINS(out, "\"class-weights\": \"0.75 1.5 1\"");
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "all", "--validation-data", "list.csv",
             "--epochs", "2", "--batch-size", "9", "--workers", "2", "--metrics", "m.jsonl");
    const char *excluded = strstr(err, "excluded from validation: 1 sample without a class\n");

    CHECK(excluded != NULL && strstr(excluded + 1, "excluded from validation") == NULL);
    slurp(in_root("w/m.jsonl"), out, sizeof(out));
    CHECK_CONTAINS(out, "\"step\": 2, \"epoch\": 2, \"seconds\": ");
    CHECK_CONTAINS(out, "\"count\": 2, \"excluded\": 1}\n");
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "all", "--validation-data", "list.csv",
             "--epochs", "1", "--batch-size", "9", "--json");
    CHECK_CONTAINS(out, "\"validation_excluded\": 1,");
    write_file("w/some.csv",
               "path,label\nall/ant/0.png,ant\nall/bee/0.png,bee\nall/cow/0.png,cow\nall/cow/1.png,\n");
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "some.csv", "--epochs", "2", "--batch-size",
             "4", "--workers", "2");
    excluded = strstr(err, "excluded from training: 1 sample without a class\n");
    CHECK(excluded != NULL && strstr(excluded + 1, "excluded from training") == NULL);
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "some.csv", "--validation-data", "all",
             "--epochs", "1", "--batch-size", "4", "--json");
    CHECK_CONTAINS(out, "\"training_excluded\": 1,");
    CHECK_CONTAINS(out, "\"validation_excluded\": 0,");
    RUN_CODE(1, "train", "--network", "named.onnx", "--data", "all", "--validation-data", "plain",
             "--batch-size", "9");
    CHECK_CONTAINS(err, "none of the 2 samples of ");
    CHECK_CONTAINS(err, "plain has a label");
    RUN_CODE(1, "train", "--network", "named.onnx", "--data", "all", "--validation-data", "new",
             "--batch-size", "9");
    CHECK_CONTAINS(err, "lacks: dog");
    RUN_CODE(0, "train", "--pretrained", "named.onnx", "--classes", "auto", "--data", "all", "--epochs", "1",
             "--batch-size", "9", "--json");
    CHECK_CONTAINS(out, "\"changes\": []");
}

TEST(images_of_another_size_or_with_colour_for_a_grey_model_need_an_option)
{
    exec_begin();
    foreign_write("far.onnx", 2);
    RUN_CODE(0, "model", "edit", "far.onnx", "--set", "input.normalization=0..1", "--class-names", "ant,bee",
             "-o", "named.onnx");
    photos_write("large/ant", 2, 16);
    photos_write("large/bee", 2, 16);
    RUN_CODE(1, "evaluate", NAMED, "large");
    CHECK_CONTAINS(err, "has 3x16x16 values (channels x height x width), but the network needs 3x4x4; resize "
                        "the images with --image-size 4,4");
    RUN_CODE(0, "evaluate", NAMED, "large", "--image-fit", "resize");
    RUN_CODE(0, "evaluate", NAMED, "large", "--image-size", "4,4");

    /* A model trained with --image-size stores the size. */
    RUN_CODE(1, "train", "--network", "named.onnx", "--data", "large");
    CHECK_CONTAINS(err, "--image-size 4,4");
    RUN_CODE(0, "train", "--network", "named.onnx", "--data", "large", "--image-size", "4,4", "--epochs", "1",
             "--batch-size", "4", "--quiet", "--out", "ours.onnx");
    RUN_CODE(0, "evaluate", "--model", "ours.onnx", "--data", "large");
    RUN_CODE(0, "model", "show", "ours.onnx");
    CHECK_CONTAINS(out, "trained on images stretched to 4x4\n");

    RUN_CODE(1, "train", "--network", "alexnet", "--data", "large");
    CHECK_CONTAINS(err, "alexnet is designed for images of 224x224; give --image-size 224,224");

    RUN_CODE(0, "train", "--network", "lenet", "--data", "synthetic:16x16x1:2:20", "--epochs", "1",
             "--batch-size", "20", "--quiet", "--out", "grey.onnx");
    RUN_CODE(1, "predict", "--model", "grey.onnx", "--data", "large");
    CHECK_CONTAINS(err, "has 3x16x16 values (channels x height x width), but the network needs 1x16x16");
}

/* ---- by the library ---- */

typedef struct seen {
    int removed, added, frozen;
    char order[32];
} seen;

static void seen_change(void *context, const gp_layer_change *change)
{
    seen *s = context;

    s->removed += strcmp(change->action, "removed") == 0;
    s->added += strcmp(change->action, "added") == 0;
    s->frozen += strcmp(change->action, "frozen") == 0;
    strcpy(s->order, "change");
}

static void seen_begin(void *context, const gp_train_info *facts)
{
    seen *s = context;

    if (facts->workers == 2)
        strcat(s->order, ", begin");
}

TEST(library_trains_from_a_pretrained_network)
{
    static const char *const options[] = { "max-epochs=1", "mini-batch-size=50", NULL };
    char model[300], data[300];
    gp_training *training = NULL;
    gp_pool *pool;
    gp_error error;
    seen s = { 0 };

    transfer_begin();
    snprintf(model, sizeof(model), "%s", in_w("pre.onnx"));
    snprintf(data, sizeof(data), "%s", in_w("other"));
    gp_train_request request = { .pretrained = model,
                                 .data = data,
                                 .options = options,
                                 .classes = "auto",
                                 .head_learn_rate_factor = { 10, 20 },
                                 .freeze_up_to = "relu2",
                                 .events = { .change = seen_change, .begin = seen_begin, .context = &s } };

    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, &error), error);
    REQUIRE_OK(gp_training_new(&training, &request, &error), error);
    CHECK_TEXT("change", s.order);
    REQUIRE_OK(gp_training_run(training, pool, &(gp_lease_request){ 0 }, &error), error);
    CHECK_TEXT("change, begin", s.order);
    CHECK_INT(1, s.removed);
    CHECK_INT(1, s.added);
    CHECK_INT(2, s.frozen);
    CHECK_STATUS(GP_ESTATE, gp_training_run(training, pool, &(gp_lease_request){ 0 }, &error));
    gp_training_free(training);
    gp_pool_close(pool);
}

/* ---- model edit ---- */

TEST(model_edit_prints_its_changes_and_writes_a_trainable_network)
{
    tensors before, after;

    transfer_begin();
    RUN_CODE(0, "model", "edit", "pre.onnx", "--remove-last", "2", "--add",
             "new=fc:12,weight-learn-rate-factor=10,bias-learn-rate-factor=20", "--add=drop=dropout:0.25",
             "--add", "fc:10", "--set", "conv1.weight-l2-factor=2", "--set", "input.offset=-0.5", "-o",
             "edited.onnx");
    CHECK_CONTAINS(out, "removed  fc2 ");
    CHECK_CONTAINS(out, "removed  loss ");
    CHECK_CONTAINS(out, "added    new ");
    CHECK_CONTAINS(out, "added    drop ");
    CHECK_CONTAINS(out, "added    fc ");
    CHECK_CONTAINS(out, "added    loss ");
    CHECK_CONTAINS(out, "changed  input ");
    CHECK_CONTAINS(out, "changed  conv1 ");
    if (tensors_load(&before, "pre.onnx") && tensors_load(&after, "edited.onnx")) {
        CHECK(same_bits(&before, &after, "fc1.weight"));
        CHECK_NEAR(-0.5, after.network.spec->offset[0], 0);

        /* the number of classes is unchanged: the names stay */
        CHECK_INT(10, after.network.class_count);
        tensors_free(&before);
        tensors_free(&after);
    }
    RUN_CODE(0, "train", "--network", "edited.onnx", "--data", "digits:500", "--epochs", "1", "--quiet");
    RUN_CODE(0, "model", "edit", "pre.onnx", "--classes", "4", "--freeze-up-to", "relu1", "--json", "-o",
             "four.json");
    CHECK_CONTAINS(out, "\"classes\": 4");
    CHECK_CONTAINS(out, "\"change\": \"frozen\"");
    RUN_CODE(0, "model", "show", "four.json");
    RUN_CODE(0, "model", "edit", "four.json", "--unfreeze", "-o", "free.json");
    CHECK_CONTAINS(out, "changed  conv1 ");
    RUN_CODE(0, "model", "edit", "pre.onnx", "--classes", "auto", "--data", "other", "-o", "named.onnx");
    if (tensors_load(&after, "named.onnx")) {
        CHECK_TEXT("nine", after.network.class_names[9]);
        tensors_free(&after);
    }
}

TEST(model_edit_refuses_invalid_changes_with_a_message)
{
    static const struct {
        int code;
        const char *message, *words[10];
    } cases[] = {
        { 2, "--out is missing", { "model", "edit", "pre.onnx", "--classes", "4" } },
        { 2, "it must end in .onnx or .json", { "model", "edit", "pre.onnx", "-o", "x.bin" } },
        { 2,
          "--remove-last and --remove-from",
          { "model", "edit", "pre.onnx", "--remove-last", "1", "--remove-from", "fc1", "-o", "x.onnx" } },
        { 2,
          "--classes auto needs --data",
          { "model", "edit", "pre.onnx", "--classes", "auto", "-o", "x.onnx" } },
        { 2,
          "without --classes: the head is not replaced",
          { "model", "edit", "pre.onnx", "--head-learn-rate-factor", "2", "-o", "x.onnx" } },
        { 2, "--data has no effect", { "model", "edit", "pre.onnx", "--data", "other", "-o", "x.onnx" } },
        { 1, "lenet has no weights", { "model", "edit", "lenet", "--classes", "4", "-o", "x.onnx" } },
        { 1, "1 class; a classification", { "model", "edit", "pre.onnx", "--classes", "1", "-o", "x.onnx" } },
        { 1, "did you mean 'fc1'?", { "model", "edit", "pre.onnx", "--remove-from", "fc3", "-o", "x.onnx" } },
        { 1,
          "no layer can follow the loss",
          { "model", "edit", "pre.onnx", "--add", "fc:3", "-o", "x.onnx" } },
        { 1, /* the size is set first */
          "has 2 channels, but network lenet takes 3",
          { "model", "edit", "pre.onnx", "--set", "input.normalization=0.5:0.4,1", "--set",
            "input.size=3x28x28", "-o", "x.onnx" } },
        { 2, "--add needs a value", { "model", "edit", "pre.onnx", "-o", "x.onnx", "--add" } },
    };

    transfer_begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int code = finish(start(-1, -1, cases[i].words));

        if (code != cases[i].code)
            GP_TEST_FAIL("exit code %d for: %s", code, cases[i].message);
        CHECK_CONTAINS(err, cases[i].message);
        CHECK(access(in_w("x.onnx"), F_OK) != 0);
    }
}
