/* test_edit.c: edits of networks: removed, added and kept layers and their weights. */
#include "common/model/edit.h"

#include <stdlib.h>

#include "common/base/memory/alloc.h"

#include "tests/gp_test.h"
#include "tests/common/model/nets.h"

static const gp_shape image = { 3, { 2, 8, 6 } };
static const gp_init_rule he = { .kind = GP_INIT_HE };

/* A network being edited; the weights count up, so that each one is recognizable. */
typedef struct bench {
    gp_netspec *spec;
    gp_graph *graph;
    float *weights;
    gp_edit *edit;
    gp_edited edited;
} bench;

static void bench_deinit(bench *b)
{
    gp_edited_deinit(&b->edited);
    gp_edit_free(b->edit);
    gp_graph_free(b->graph);
    gp_netspec_free(b->spec);
    free(b->weights);
    *b = (bench){ 0 };
}

/* Begin an edit of the network `net` in place of the previous one. */
static gp_status bench_init(bench *b, const char *net, gp_error *err)
{
    bench_deinit(b);
    gp_status status = net_parse(&b->spec, &image, net, err);

    if (status == GP_OK && b->spec->layer_count > 0 &&
        (b->spec->layers[b->spec->layer_count - 1].kind->flags & GP_KIND_LOSS)) {
        status = gp_graph_new(&b->graph, b->spec, err);
        if (status != GP_OK)
            return status;
        b->weights = malloc(b->graph->blob_count * sizeof(float));
        for (size_t i = 0; i < b->graph->blob_count; i++)
            b->weights[i] = (float)i;
    }
    return status == GP_OK ? gp_edit_new(&b->edit, b->spec, b->weights, err) : status;
}

static gp_status bench_finish(bench *b, gp_error *err)
{
    return gp_edit_finish(b->edit, he, 7, &b->edited, err);
}

/* Format the changes: "removed f (fc) outputs=3, added ...". */
static const char *changes_text(const gp_edited *edited)
{
    static char text[4096];
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < edited->change_count && used < sizeof(text); i++) {
        const gp_edit_change *c = &edited->changes[i];

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s (%s)%s%s", i == 0 ? "" : ", ",
                                 gp_edit_action_name(c->action), c->layer, c->kind,
                                 c->settings[0] == '\0' ? "" : " ", c->settings);
    }
    return text;
}

/* Check that all tensors of kept layers are unchanged, except those whose names start with
 * `but`. */
static void check_kept(const bench *b, const char *but)
{
    for (uint32_t p = 0; p < b->edited.graph->parameter_count; p++) {
        const gp_parameter *now = &b->edited.graph->parameters[p];
        bool found = false;

        for (uint32_t q = 0; q < b->graph->parameter_count; q++) {
            const gp_parameter *old = &b->graph->parameters[q];

            if (strcmp(old->name, now->name) != 0 || strncmp(now->name, but, strlen(but)) == 0)
                continue;
            found = true;
            CHECK(memcmp(b->weights + old->offset, b->edited.weights + now->offset,
                         (size_t)now->count * sizeof(float)) == 0);
        }
        if (!found && strncmp(now->name, but, strlen(but)) != 0)
            GP_TEST_FAIL("%s is new", now->name);
    }
}

static const char *const chain =
    "c conv2d channels=4;kernel=3 | r relu | f fc outputs=5 | s relu | d dropout | "
    "g fc outputs=3 | l crossentropy";

static bench b; /* edit of the running test */

TEARDOWN()
{
    bench_deinit(&b);
}

TEST(head_is_replaced_in_place_and_other_weights_are_kept)
{
    gp_error err;

    REQUIRE_OK(bench_init(&b, chain, &err), err);
    CHECK_INT(3, gp_edit_classes(b.edit));
    REQUIRE_OK(gp_edit_set_head(b.edit, &(gp_edit_head){ 55, 10, 20 }, &err), err);
    CHECK_INT(55, gp_edit_classes(b.edit));
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("removed g (fc) outputs=3, added g (fc) outputs=55 weight-learn-rate-factor=10 "
               "bias-learn-rate-factor=20",
               changes_text(&b.edited));
    CHECK_INT(3 * 6, b.edited.changes[0].parameters);
    CHECK_INT(55 * 6, b.edited.changes[1].parameters);
    check_kept(&b, "g.");
    for (uint32_t p = 0; p < b.edited.graph->parameter_count; p++) {
        const gp_parameter *now = &b.edited.graph->parameters[p];
        const float *values = b.edited.weights + now->offset;

        if (strcmp(now->name, "g.weight") == 0) {
            CHECK_NEAR(10, now->learn_rate_factor, 0);
            CHECK(values[0] != 0 && values[0] > -3 && values[0] < 3 && values[0] != values[1]);
        }
        if (strcmp(now->name, "g.bias") == 0) {
            CHECK_NEAR(20, now->learn_rate_factor, 0);
            CHECK_NEAR(0, values[54], 0);
        }
    }
}

/* As in MATLAB: layers(1:end-3), then fullyConnectedLayer(55, WeightLearnRateFactor=10,
 * BiasLearnRateFactor=20). */
TEST(replaced_last_layers_end_in_a_loss)
{
    gp_error err;

    REQUIRE_OK(bench_init(&b, chain, &err), err);
    REQUIRE_OK(gp_edit_remove_last(b.edit, 2, &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "fc:55,weight-learn-rate-factor=10,bias-learn-rate-factor=20", &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("removed g (fc) outputs=3, removed l (crossentropy), added fc (fc) outputs=55 "
               "weight-learn-rate-factor=10 bias-learn-rate-factor=20, added loss (crossentropy)",
               changes_text(&b.edited));
    check_kept(&b, "fc.");
}

TEST(layers_are_added_with_names_lists_and_several_inputs)
{
    char shape[64];
    gp_error err;

    REQUIRE_OK(bench_init(&b, chain, &err), err);
    REQUIRE_OK(gp_edit_remove_from(b.edit, "f", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "left=conv2d:6,kernel=3,1,padding=1,0,1,0,inputs=r", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "conv2d:6,inputs=r,kernel=1", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "both=add,inputs=left+conv2d", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "relu", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "dropout:0.3", &err), err);
    REQUIRE_OK(gp_edit_add(b.edit, "end=fc:outputs=4,bias=false", &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_CONTAINS(changes_text(&b.edited), "added left (conv2d) channels=6 kernel=3,1 padding=1,0,1,0");
    CHECK_CONTAINS(changes_text(&b.edited),
                   "added dropout (dropout) rate=0.3, added end (fc) outputs=4 bias=false");
    CHECK_TEXT("6x6x4", gp_shape_format(&b.edited.graph->outputs[gp_netspec_find(b.edited.spec, "both")],
                                        shape, sizeof(shape)));
}

TEST(convolution_before_a_global_pool_is_a_head)
{
    gp_error err;

    REQUIRE_OK(
        bench_init(&b,
                   "c conv2d channels=4;kernel=3 | d dropout | h conv2d channels=9;kernel=1 | r relu | "
                   "p globalavgpool | v flatten | l crossentropy",
                   &err),
        err);
    CHECK_INT(9, gp_edit_classes(b.edit));
    REQUIRE_OK(gp_edit_set_head(b.edit, &(gp_edit_head){ 4, 1, 1 }, &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("removed h (conv2d) channels=9 kernel=1,1, added h (conv2d) channels=4 kernel=1,1",
               changes_text(&b.edited));
    CHECK_INT(4, b.edited.graph->class_count);
    CHECK_INT(7, b.edited.spec->layer_count);
    check_kept(&b, "h.");
}

TEST(softmax_before_the_loss_is_removed_and_a_missing_loss_is_added)
{
    gp_error err;

    REQUIRE_OK(bench_init(&b, "f fc outputs=3 | s softmax | l crossentropy", &err), err);
    REQUIRE_OK(gp_edit_set_head(b.edit, &(gp_edit_head){ 4, 1, 1 }, &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("removed f (fc) outputs=3, removed s (softmax), added f (fc) outputs=4",
               changes_text(&b.edited));
    CHECK_INT(2, b.edited.spec->layer_count);

    REQUIRE_OK(bench_init(&b, "f fc outputs=3 | s softmax", &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("removed s (softmax), added loss (crossentropy)", changes_text(&b.edited));
    CHECK(b.edited.weights == NULL);

    REQUIRE_OK(bench_init(&b, "c conv2d channels=3;kernel=1 | s softmax | l pixelclassification", &err), err);
    REQUIRE_OK(gp_edit_set_head(b.edit, &(gp_edit_head){ 4, 1, 1 }, &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_CONTAINS(changes_text(&b.edited), "removed s (softmax), added c (conv2d) channels=4");

    /* A softmax with other readers, or in the middle, is kept. */
    REQUIRE_OK(bench_init(&b,
                          "a conv2d channels=3;kernel=1 | s softmax | m multiply < a,s | f fc outputs=3 | "
                          "l crossentropy",
                          &err),
               err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_INT(0, b.edited.change_count);
}

TEST(class_weights_are_removed_with_their_classes)
{
    gp_shape one = gp_shape3(2, 1, 1);
    gp_netspec *spec;
    gp_edit *edit;
    gp_edited edited;
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&spec, "weighted", &one, &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "f", "fc", "outputs=3", &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "l", "crossentropy", "class-weights=1 2 3;label-smoothing=0.1", &err),
               err);
    REQUIRE_OK(gp_edit_new(&edit, spec, NULL, &err), err);
    REQUIRE_OK(gp_edit_set_head(edit, &(gp_edit_head){ 2, 1, 1 }, &err), err);
    REQUIRE_OK(gp_edit_finish(edit, he, 1, &edited, &err), err);
    CHECK_CONTAINS(changes_text(&edited), "changed l (crossentropy) label-smoothing=0.1");
    gp_edited_deinit(&edited);
    gp_edit_free(edit);
    gp_netspec_free(spec);
}

TEST(the_weights_of_254_classes_fit_into_a_loss_and_into_json)
{
    const gp_shape input = gp_shape3(3, 8, 8);
    char setting[GP_LAYER_SETTINGS_BYTES] = "loss.class-weights=";
    size_t used = strlen(setting);
    gp_netspec *spec, *again;
    gp_edited edited;
    gp_edit *edit;
    gp_buffer json;
    gp_error err;

    for (int i = 0; i < 254; i++)
        used += (size_t)snprintf(setting + used, sizeof(setting) - used, "%s%.6f", i == 0 ? "" : " ",
                                 1 + i / 997.0);
    REQUIRE_OK(gp_zoo_build(&spec, "unet:depth=1,width=1", &input, 254, &err), err);
    REQUIRE_OK(gp_edit_new(&edit, spec, NULL, &err), err);
    REQUIRE_OK(gp_edit_set(edit, setting, &err), err);
    REQUIRE_OK(gp_edit_finish(edit, he, 1, &edited, &err), err);
    gp_buffer_init(&json, GP_NETSPEC_BYTES_MAX);
    REQUIRE_OK(gp_netspec_to_json(edited.spec, &json, false, &err), err);
    CHECK_CONTAINS(gp_buffer_text(&json), "1.001003 1.002006");
    REQUIRE_OK(gp_netspec_from_json(&again, gp_buffer_text(&json), json.bytes, &err), err);
    gp_netspec_free(again);
    gp_edited_deinit(&edited);
    gp_edit_free(edit);
    strcat(setting, " 1"); /* one too many */
    REQUIRE_OK(gp_edit_new(&edit, spec, NULL, &err), err);
    REQUIRE_OK(gp_edit_set(edit, setting, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_edit_finish(edit, he, 1, &edited, &err));
    CHECK_CONTAINS(err.message, "255 numbers, but there are 254 classes");
    gp_buffer_deinit(&json);
    gp_edit_free(edit);
    gp_netspec_free(spec);
}

/* ---- the zoo ---- */

TEST(only_the_head_of_every_zoo_network_is_replaced)
{
    static const struct {
        const char *network, *head;
    } known[] = { { "lenet", "fc2" },    { "alexnet", "fc8" },          { "vgg16", "fc8" },
                  { "resnet18", "fc" },  { "resnet34", "fc" },          { "resnet50", "fc" },
                  { "resnet101", "fc" }, { "squeezenet1.1", "conv10" }, { "mobilenetv2", "fc" },
                  { "googlenet", NULL }, { "inceptionresnetv2", NULL } };
    gp_zoo_info info;
    size_t checked = 0;

    for (size_t n = 0; gp_zoo_describe(n, &info); n++) {
        gp_netspec *spec;
        gp_graph *graph;
        gp_edit *edit;
        gp_edited edited;
        gp_error err;

        REQUIRE_OK(gp_zoo_build(&spec, info.name, NULL, 0, &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        REQUIRE_OK(gp_edit_new(&edit, spec, NULL, &err), err);
        if (gp_edit_classes(edit) != info.classes)
            GP_TEST_FAIL("%s: a head of %u classes, not %u", info.name, gp_edit_classes(edit), info.classes);
        REQUIRE_OK(gp_edit_set_head(edit, &(gp_edit_head){ 55, 10, 20 }, &err), err);
        REQUIRE_OK(gp_edit_finish(edit, he, 1, &edited, &err), err);
        CHECK_INT(2, edited.change_count);
        CHECK_INT(GP_EDIT_REMOVED, edited.changes[0].action);
        CHECK_INT(GP_EDIT_ADDED, edited.changes[1].action);
        CHECK_TEXT(edited.changes[0].layer, edited.changes[1].layer);
        CHECK_INT(spec->layer_count, edited.spec->layer_count);
        CHECK_INT((int64_t)graph->learned_count - edited.changes[0].parameters + edited.changes[1].parameters,
                  edited.graph->learned_count);
        CHECK_NEAR((double)edited.changes[0].parameters / info.classes,
                   (double)edited.changes[1].parameters / 55, 0);
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            if (strcmp(known[k].network, info.name) == 0) {
                checked++;
                if (known[k].head != NULL)
                    CHECK_TEXT(known[k].head, edited.changes[0].layer);
            }
        gp_edited_deinit(&edited);
        gp_edit_free(edit);
        gp_graph_free(graph);
        gp_netspec_free(spec);
    }
    CHECK_INT(sizeof(known) / sizeof(known[0]), checked);
}

/* ---- freezing and settings ---- */

TEST(layers_up_to_one_are_frozen_and_unfrozen)
{
    gp_error err;

    REQUIRE_OK(
        bench_init(&b,
                   "c conv2d channels=4;kernel=3 | n batchnorm | r relu | f fc outputs=5 | g fc outputs=3 | "
                   "l crossentropy",
                   &err),
        err);
    REQUIRE_OK(gp_edit_freeze(b.edit, "r", &err), err);
    REQUIRE_OK(gp_edit_set_head(b.edit, &(gp_edit_head){ 4, 2, 3 }, &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_CONTAINS(changes_text(&b.edited),
                   "frozen c (conv2d) channels=4 kernel=3,3 weight-learn-rate-factor=0 "
                   "bias-learn-rate-factor=0, frozen n (batchnorm)");
    CHECK_INT(4, b.edited.change_count);
    for (uint32_t p = 0; p < b.edited.graph->parameter_count; p++) {
        const gp_parameter *now = &b.edited.graph->parameters[p];

        CHECK(gp_parameter_learns(now) == (now->layer > 2));
    }
    check_kept(&b, "g.");

    gp_edit *again;
    gp_edited edited;

    REQUIRE_OK(gp_edit_new(&again, b.edited.spec, b.edited.weights, &err), err);
    gp_edit_unfreeze(again);
    REQUIRE_OK(gp_edit_finish(again, he, 1, &edited, &err), err);
    CHECK_INT(3, edited.change_count); /* includes the factors of the head */
    CHECK_INT(GP_EDIT_CHANGED, edited.changes[0].action);
    for (uint32_t p = 0; p < edited.graph->parameter_count; p++)
        CHECK_NEAR(1.0, edited.graph->parameters[p].learn_rate_factor, 0);
    gp_edited_deinit(&edited);
    gp_edit_free(again);
}

TEST(settings_of_layers_and_of_the_input_are_changed)
{
    char shape[64];
    gp_error err;

    REQUIRE_OK(
        bench_init(&b, "a.b conv2d channels=4;kernel=3 | p globalavgpool | f fc outputs=3 | l crossentropy",
                   &err),
        err);
    REQUIRE_OK(gp_edit_set(b.edit, "a.b.weight-l2-factor=0.5", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.scale=0.5", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.offset=-1,-2", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.size=2x16x16", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "f.outputs=6", &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_TEXT("changed input () scale=0.5,0.5 offset=-1,-2, changed a.b (conv2d) channels=4 kernel=3,3 "
               "weight-l2-factor=0.5, initialized f (fc) outputs=6",
               changes_text(&b.edited));
    CHECK_TEXT("2x16x16", gp_shape_format(&b.edited.spec->input, shape, sizeof(shape)));
    check_kept(&b, "f.");
}

TEST(normalization_can_be_set_after_the_number_of_channels)
{
    gp_error err;

    REQUIRE_OK(bench_init(&b, chain, &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.scale=1,2", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.size=1x9x9", &err), err);
    REQUIRE_OK(gp_edit_set(b.edit, "input.normalization=0..1", &err), err);
    REQUIRE_OK(bench_finish(&b, &err), err);
    CHECK_INT(1, b.edited.spec->normalize_count);
}

/* ---- refused edits ---- */

typedef enum operation { REMOVE, FROM, ADD, HEAD, SET, FREEZE } operation;

static gp_status operate(gp_edit *edit, operation what, const char *text, gp_error *err)
{
    switch (what) {
    case REMOVE:
        return gp_edit_remove_last(edit, (uint32_t)atoi(text), err);
    case FROM:
        return gp_edit_remove_from(edit, text, err);
    case ADD:
        return gp_edit_add(edit, text, err);
    case HEAD:
        return gp_edit_set_head(edit, &(gp_edit_head){ (uint32_t)atoi(text), 1, 1 }, err);
    case SET:
        return gp_edit_set(edit, text, err);
    default:
        return gp_edit_freeze(edit, text, err);
    }
}

TEST(impossible_edits_are_refused_with_a_message)
{
    static const char *const branched =
        "a conv2d channels=2;kernel=1 | b conv2d channels=2;kernel=1 < input | "
        "s add < a,b | p globalavgpool | v flatten | l crossentropy";
    static const struct {
        const char *net;
        operation what;
        const char *text, *message;
    } cases[] = {
        { NULL, REMOVE, "7", "cannot remove 7 layers: network net has 7" },
        { NULL, FROM, "c", "cannot remove c: it is the first layer" },
        { NULL, FROM, "elsewhere", "network net has no layer 'elsewhere'; list its 7 layers" },
        { NULL, ADD, "fc:3", "no layer can follow the loss l" },
        { NULL, HEAD, "1", "1 class, but a classification needs at least 2" },
        { NULL, HEAD, "0", "0 classes" },
        { branched, HEAD, "4",
          "no classifier found: network net ends in s (add), p (globalavgpool), v (flatten), l" },
        { "c conv2d channels=2;kernel=3 | n batchnorm | p globalavgpool | v flatten | l crossentropy", HEAD,
          "4", "model edit --remove-last N --add fc:CLASSES" },
        { "c conv2d channels=2;kernel=3;groups=2 | p globalavgpool | v flatten | l crossentropy", HEAD, "4",
          "no classifier" },
        { NULL, SET, "c", "'c' must be LAYER.setting=value" },
        { NULL, SET, "c.kernal=3", "did you mean 'kernel'?" },
        { NULL, SET, "c.kernel=many", "kernel" },
        { NULL, SET, "input.scale=0", "the scale not 0" },
        { NULL, SET, "input.scale=1,2,3", "3 values of scale and offset for 2 channels" },
        { NULL, SET, "input.scale=1;2", "must be a number, or one per channel" },
        { NULL, SET, "input.size=3x3", "CHANNELSxHEIGHTxWIDTH" },
        { NULL, SET, "input.color=3", "it has normalization, scale, offset and size" },
        { "r relu | f fc outputs=3 | l crossentropy", FREEZE, "r", "nothing to freeze" },
        { NULL, FREEZE, "conv", "no layer 'conv'" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_error err;

        REQUIRE_OK(bench_init(&b, cases[i].net == NULL ? chain : cases[i].net, &err), err);
        CHECK_STATUS(GP_EINVAL, operate(b.edit, cases[i].what, cases[i].text, &err));
        CHECK_CONTAINS(err.message, cases[i].message);
        REQUIRE_OK(bench_finish(&b, &err), err); /* the refused edit has no effect */
        CHECK_INT(0, b.edited.change_count);
    }
}

TEST(inconsistent_results_are_refused_at_the_end)
{
    static const struct {
        operation what[2];
        const char *text[2], *message;
    } cases[] = {
        { { REMOVE, ADD }, { "2", "fc:3,inputs=nowhere" }, "no earlier layer has the name 'nowhere'" },
        { { REMOVE, ADD }, { "2", "fk:3" }, "did you mean 'fc'?" },
        { { REMOVE, ADD }, { "2", "relu:3" }, "relu has no settings; omit :3" },
        { { REMOVE, ADD }, { "2", "fc:3,outptus=4" }, "did you mean 'outputs'?" },
        { { REMOVE, ADD }, { "2", "f=fc:3" }, "'f' is used twice" },
        { { REMOVE, ADD }, { "2", "fc" }, "set outputs=N" },
        { { REMOVE, ADD }, { "2", "fc:3,inputs=c" }, "no layer reads" },
        { { FREEZE, SET }, { "g", "c.kernel=3" }, "no layer after g" },
        { { SET, SET }, { "c.kernel=9", "c.channels=3" }, "c (conv2d)" },
        { { SET, SET }, { "input.scale=1,2", "input.size=3x9x9" }, "2 values, but input.size is 3x9x9" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_error err = { 0 };
        gp_status status;

        REQUIRE_OK(bench_init(&b, chain, &err), err);
        status = operate(b.edit, cases[i].what[0], cases[i].text[0], &err);
        if (status == GP_OK)
            status = operate(b.edit, cases[i].what[1], cases[i].text[1], &err);
        if (status == GP_OK)
            status = bench_finish(&b, &err);
        CHECK_STATUS(GP_EINVAL, status);
        CHECK_CONTAINS(err.message, cases[i].message);
    }
}

TEST(an_edit_survives_every_failing_allocation)
{
    bool done = false;

    for (uint64_t n = 1; !done; n++) {
        gp_error err;

        REQUIRE_OK(net_parse(&b.spec, &image, chain, &err), err);
        gp_alloc_fail_nth(n);
        gp_status status = gp_edit_new(&b.edit, b.spec, NULL, &err);

        if (status == GP_OK)
            status = gp_edit_remove_last(b.edit, 2, &err);
        if (status == GP_OK)
            status = gp_edit_add(b.edit, "fc:4", &err);
        if (status == GP_OK)
            status = bench_finish(&b, &err);
        gp_alloc_fail_nth(0);
        done = status == GP_OK;
        if (!done)
            CHECK_STATUS(GP_ENOMEM, status);
        bench_deinit(&b);
        REQUIRE(n < 1000);
    }
}
