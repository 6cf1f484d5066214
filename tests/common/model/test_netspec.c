/* test_netspec.c: networks as data: construction, canonical JSON, and hostile JSON. */
#include "common/model/graph/normalization.h"
#include "common/model/graph/netspec.h"

#include <dirent.h>

#include "common/model/graph/graph.h"
#include "tests/gp_test.h"
#include "tests/common/model/nets.h"

static const gp_shape image = { 3, { 1, 8, 8 } };

static gp_status parse(gp_netspec **out, const char *text, gp_error *err)
{
    return gp_netspec_from_json(out, text, strlen(text), err);
}

/* Check the canonical JSON of a network. */
static void check_json(const char *expected, const gp_netspec *spec)
{
    gp_buffer buffer;
    gp_error err;

    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    CHECK_STATUS(GP_OK, gp_netspec_to_json(spec, &buffer, false, &err));
    CHECK_TEXT(expected, gp_buffer_text(&buffer));
    gp_buffer_deinit(&buffer);
}

static const char *const lenet_json =
    "{\"name\": \"lenet\", \"input\": [1, 28, 28], \"scale\": [0.00392156862745098], \"offset\": [0], "
    "\"layers\": ["
    "{\"name\": \"conv1\", \"kind\": \"conv2d\", \"channels\": 20, \"kernel\": [3, 3]}, "
    "{\"name\": \"relu1\", \"kind\": \"relu\"}, "
    "{\"name\": \"pool1\", \"kind\": \"avgpool\", \"kernel\": [2, 2]}, "
    "{\"name\": \"conv2\", \"kind\": \"conv2d\", \"channels\": 50, \"kernel\": [5, 5]}, "
    "{\"name\": \"relu2\", \"kind\": \"relu\"}, "
    "{\"name\": \"pool2\", \"kind\": \"avgpool\", \"kernel\": [2, 2]}, "
    "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 128}, "
    "{\"name\": \"relu3\", \"kind\": \"relu\"}, "
    "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 10}, "
    "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}";

/* Covers all syntax: branches, all window settings, factors, numbers per channel. */
static const char *const rich_json =
    "{\"name\": \"rich\", \"input\": [3, 9, 7], \"scale\": [0.1, 1, 1e-20], \"offset\": [-0.5, 0, 3], "
    "\"layers\": ["
    "{\"name\": \"c\", \"kind\": \"conv2d\", \"channels\": 6, \"kernel\": [3, 2], \"stride\": [2, 1], "
    "\"dilation\": [1, 2], \"padding\": [1, 0, 2, 3], \"groups\": 3, \"bias\": false, "
    "\"weight-learn-rate-factor\": 0}, "
    "{\"name\": \"r\", \"kind\": \"relu\"}, "
    "{\"name\": \"s\", \"kind\": \"dropout\", \"inputs\": [\"c\"], \"rate\": 0.3}, "
    "{\"name\": \"a\", \"kind\": \"add\", \"inputs\": [\"s\", \"r\", \"c\"]}, "
    "{\"name\": \"p\", \"kind\": \"avgpool\", \"kernel\": [2, 2], \"stride\": [1, 1], \"count-padding\": "
    "true}, "
    "{\"name\": \"g\", \"kind\": \"flatten\", \"inputs\": [\"input\"]}, "
    "{\"name\": \"v\", \"kind\": \"fc\", \"outputs\": 4, \"weight-l2-factor\": 0.25, \"bias-l2-factor\": 1}, "
    "{\"name\": \"w\", \"kind\": \"fc\", \"inputs\": [\"p\"], \"outputs\": 4}, "
    "{\"name\": \"b\", \"kind\": \"add\", \"inputs\": [\"v\", \"w\"]}, "
    "{\"name\": \"l\", \"kind\": \"crossentropy\"}]}";

TEST(lenet_has_the_expected_canonical_json)
{
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&spec, "lenet", NULL, 0, &err), err);
    check_json(lenet_json, spec);
    gp_netspec_free(spec);
}

TEST(canonical_json_is_read_back_to_the_same_bytes)
{
    const char *const texts[] = { lenet_json, rich_json };

    for (int i = 0; i < 2; i++) {
        gp_netspec *spec, *copy;
        gp_graph *graph;
        gp_error err;

        REQUIRE_OK(parse(&spec, texts[i], &err), err);
        check_json(texts[i], spec);
        REQUIRE_OK(gp_netspec_copy(&copy, spec, &err), err);
        gp_netspec_free(spec);
        check_json(texts[i], copy);
        REQUIRE_OK(gp_graph_new(&graph, copy, &err), err);
        check_json(texts[i], graph->spec);
        gp_graph_free(graph);
        gp_netspec_free(copy);
    }
}

TEST(loose_json_becomes_canonical)
{
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(
        parse(&spec,
              "{\"layers\": [{\"kernel\": 3, \"kind\": \"conv2d\", \"name\": \"c\", \"channels\": \"2\",\n"
              "  \"weight_l2_factor\": 1, \"stride\": 1.0, \"bias\": \"yes\", \"inputs\": [\"input\"]},\n"
              " {\"name\": \"r\", \"kind\": \"relu\", \"inputs\": [\"c\"]}],\n"
              " \"offset\": -0.0, \"input\": [1, 8, 8]}",
              &err),
        err);
    check_json("{\"name\": \"network\", \"input\": [1, 8, 8], \"scale\": [1], \"offset\": [0], \"layers\": ["
               "{\"name\": \"c\", \"kind\": \"conv2d\", \"channels\": 2, \"kernel\": [3, 3]}, "
               "{\"name\": \"r\", \"kind\": \"relu\"}]}",
               spec);
    gp_netspec_free(spec);
}

TEST(networks_trained_on_crops_record_it)
{
    static const char text[] = "{\"name\": \"parts\", \"input\": [3, 8, 8], \"scale\": [1], \"offset\": [0], "
                               "\"windows\": [16, 24], \"layers\": [{\"name\": \"r\", \"kind\": \"relu\"}]}";
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(parse(&spec, text, &err), err);
    CHECK(spec->windows);
    CHECK_INT(16, spec->window_image[0]);
    CHECK_INT(24, spec->window_image[1]);
    check_json(text, spec);
    gp_netspec_free(spec);
    CHECK_STATUS(GP_EINVAL, parse(&spec, "{\"input\": [3, 8, 8], \"windows\": [8], \"layers\": []}", &err));
    CHECK_CONTAINS(err.message, "list of 2 whole numbers");
    CHECK_STATUS(GP_EINVAL,
                 parse(&spec, "{\"input\": [3, 8, 8], \"windows\": [8, 9000], \"layers\": []}", &err));
}

TEST(networks_trained_on_scaled_images_record_it)
{
    static const char text[] = "{\"name\": \"fits\", \"input\": [3, 8, 8], \"scale\": [1], \"offset\": [0], "
                               "\"fitted\": true, \"layers\": [{\"name\": \"r\", \"kind\": \"relu\"}]}";
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(parse(&spec, text, &err), err);
    CHECK(spec->fitted && !spec->windows);
    check_json(text, spec);
    gp_netspec_free(spec);
    CHECK_STATUS(GP_EINVAL, parse(&spec, "{\"input\": [3, 8, 8], \"fitted\": 1, \"layers\": []}", &err));
    CHECK_CONTAINS(err.message, "true or false");
    CHECK_STATUS(
        GP_EINVAL,
        parse(&spec, "{\"input\": [3, 8, 8], \"fitted\": true, \"windows\": [8, 8], \"layers\": []}", &err));
    CHECK_CONTAINS(err.message, "cannot have both");
}

TEST(normalization_text_sets_scale_and_offset_and_survives_a_round_trip)
{
    static const struct {
        const char *text, *shown;
        double scale, offset; /* last channel */
    } good[] = {
        { "0..1", "0..1", 1.0 / 255, 0 },
        { "0..255", "0..255", 1, 0 },
        { "imagenet", "imagenet", 1 / (255 * 0.225), -0.406 / 0.225 },
        { "0.45,1", "0.45,1", 1.0 / 255, -0.45 },
        { "0,1", "0..1", 1.0 / 255, 0 },
        { "0.1:0.2:0.3,0.5", "0.1:0.2:0.3,0.5", 1 / (255 * 0.5), -0.6 },
        { "0.485:0.456:0.406,0.229:0.224:0.225", "imagenet", 1 / (255 * 0.225), -0.406 / 0.225 },
    };
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "0-1", "MEAN,STD" },
        { "0.5", "MEAN,STD" },
        { "0.5,0.5,0.5", "MEAN,STD" },
        { "0.5,0", "must be above 0" },
        { "nan,1", "MEAN,STD" },
        { "0.5:0.5,1", "has 2 channels" },
        { "1:2,1:2:3", "2 means and 3" },
        { "", "MEAN,STD" },
    };
    const gp_shape input = gp_shape3(3, 8, 8);
    char text[GP_NORMALIZATION_TEXT];
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&spec, "net", &input, &err), err);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        REQUIRE_OK(gp_normalization_set(spec, good[i].text, &err), err);
        CHECK_TEXT(good[i].shown, gp_normalization_format(spec, text));
        CHECK_NEAR(good[i].scale, spec->scale[spec->normalize_count - 1], 1e-12);
        CHECK_NEAR(good[i].offset, spec->offset[spec->normalize_count - 1], 1e-12);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_normalization_set(spec, bad[i].text, &err));
        CHECK_CONTAINS(err.message, bad[i].message);
    }

    /* A trained network keeps the normalization in its file; the file may state it with fewer
     * digits. */
    REQUIRE_OK(gp_normalization_set(spec, "0.45,1", &err), err);
    CHECK_STATUS(GP_EINVAL, gp_normalization_apply(spec, "0..1", true, &err));
    CHECK_CONTAINS(err.message, "has 0.45,1");
    spec->scale[0] = 0.00392157;
    REQUIRE_OK(gp_normalization_apply(spec, "0.45,1", true, &err), err);
    CHECK_NEAR(0.00392157, spec->scale[0], 0);
    REQUIRE_OK(gp_normalization_apply(spec, "0..1", false, &err), err);
    CHECK_TEXT("0..1", gp_normalization_format(spec, text));
    gp_netspec_free(spec);
}

TEST(bytes_are_refused_if_the_input_scale_is_unknown)
{
    static const char text[] =
        "{\"name\": \"far\", \"input\": [3, 8, 8], \"scale\": [1], \"offset\": [0], "
        "\"scale_unknown\": true, \"layers\": [{\"name\": \"r\", \"kind\": \"relu\"}]}";
    const gp_shape colour = gp_shape3(3, 8, 8), grey = gp_shape3(1, 8, 8);
    char shown[GP_NORMALIZATION_TEXT];
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(parse(&spec, text, &err), err);
    check_json(text, spec);
    CHECK_TEXT("unknown", gp_normalization_format(spec, shown));
    REQUIRE_OK(gp_netspec_check_samples(spec, &colour, GP_F32, "floats", &err), err);
    CHECK_STATUS(GP_EINVAL, gp_netspec_check_samples(spec, &colour, GP_U8, "photos", &err));
    CHECK_CONTAINS(err.message, "photos has bytes from 0 to 255; set --image-normalization to 0..1");
    REQUIRE_OK(gp_normalization_apply(spec, NULL, true, &err), err);
    CHECK(spec->scale_unknown);
    REQUIRE_OK(gp_normalization_apply(spec, "0..255", true, &err), err);
    REQUIRE_OK(gp_netspec_check_samples(spec, &colour, GP_U8, "photos", &err), err);
    CHECK_STATUS(GP_EINVAL, gp_netspec_check_samples(spec, &grey, GP_U8, "photos", &err));
    CHECK_CONTAINS(err.message, "are 1x8x8 (channels x height x width), but network far takes 3x8x8");
    gp_netspec_free(spec);
    CHECK_STATUS(GP_EINVAL,
                 parse(&spec, "{\"input\": [3, 8, 8], \"scale_unknown\": 1, \"layers\": []}", &err));
    CHECK_CONTAINS(err.message, "true or false");
}

TEST(several_inputs_become_layers_that_unpack_the_sample)
{
    static const char text[] =
        "{\"name\": \"two\", \"inputs\": [{\"name\": \"image\", \"shape\": [2, 3, 4], \"scale\": 0.5}, "
        "{\"name\": \"place\", \"shape\": [5]}], \"layers\": [{\"name\": \"c\", \"kind\": \"conv2d\", "
        "\"inputs\": [\"image\"], \"channels\": 2, \"kernel\": 2}, {\"name\": \"v\", \"kind\": \"flatten\"}, "
        "{\"name\": \"b\", \"kind\": \"concat\", \"inputs\": [\"v\", \"place\"]}, "
        "{\"name\": \"f\", \"kind\": \"fc\", \"outputs\": 2}, {\"name\": \"l\", \"kind\": \"mse\"}]}";
    static const struct {
        const char *inputs, *part;
    } wrong[] = {
        { "[]", "a list of 1 to 8 inputs" },
        { "[{\"name\": \"a\", \"shape\": [2, 2]}]", "element 1 of \"inputs\" must be an object" },
        { "[{\"name\": \"a\", \"shape\": [2], \"offset\": 1}]", "has the unknown member 'offset'" },
        { "[{\"name\": \"a\", \"shape\": [0]}]", "whole numbers from 1 on" },
        { "[{\"name\": \"a\", \"shape\": [2]}, {\"name\": \"a\", \"shape\": [2]}]", "a_part" },
        { "[{\"name\": \"a\", \"shape\": [2]}], \"input\": [1, 1, 2]",
          "cannot have input, scale and offset" },
    };
    gp_shape image_and_place = gp_shape1(29), other = gp_shape1(28);
    gp_netspec *spec;
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(gp_netspec_from_json(&spec, text, strlen(text), &err), err);
    CHECK_INT(29, spec->input.dim[0]);
    CHECK(gp_netspec_takes(spec, &image_and_place) && !gp_netspec_takes(spec, &other));
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    CHECK_INT(24, gp_shape_count(&graph->outputs[gp_netspec_find(spec, "image")]));
    CHECK_INT(3, graph->outputs[gp_netspec_find(spec, "image")].rank);
    CHECK_INT(5, graph->outputs[gp_netspec_find(spec, "place")].dim[0]);
    gp_graph_free(graph);
    gp_netspec_free(spec);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char json[256];

        snprintf(json, sizeof(json), "{\"inputs\": %s, \"layers\": []}", wrong[i].inputs);
        CHECK_STATUS(GP_EINVAL, gp_netspec_from_json(&spec, json, strlen(json), &err));
        CHECK_CONTAINS(err.message, wrong[i].part);
    }
}

TEST(pretty_json_is_equivalent)
{
    gp_netspec *spec, *again;
    gp_buffer buffer;
    gp_error err;

    REQUIRE_OK(parse(&spec, rich_json, &err), err);
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    REQUIRE_OK(gp_netspec_to_json(spec, &buffer, true, &err), err);
    CHECK(strchr(gp_buffer_text(&buffer), '\n') != NULL);
    REQUIRE_OK(parse(&again, gp_buffer_text(&buffer), &err), err);
    check_json(rich_json, again);
    gp_buffer_deinit(&buffer);
    gp_netspec_free(spec);
    gp_netspec_free(again);
}

TEST(json_over_a_buffers_ceiling_is_refused)
{
    gp_netspec *spec;
    gp_buffer buffer;
    gp_error err;

    REQUIRE_OK(parse(&spec, lenet_json, &err), err);
    gp_buffer_init(&buffer, 100);
    CHECK_STATUS(GP_ELIMIT, gp_netspec_to_json(spec, &buffer, false, &err));
    gp_buffer_deinit(&buffer);
    gp_netspec_free(spec);
}

TEST(default_factors_are_those_of_matlab)
{
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(net_parse(&spec, &image, "f fc outputs=2 | g fc outputs=2;bias-l2-factor=1", &err), err);
    CHECK_NEAR(1.0, spec->layers[0].factors.weight_learn_rate, 0.0);
    CHECK_NEAR(1.0, spec->layers[0].factors.bias_learn_rate, 0.0);
    CHECK_NEAR(1.0, spec->layers[0].factors.weight_l2, 0.0);
    CHECK_NEAR(0.0, spec->layers[0].factors.bias_l2, 0.0);
    CHECK_NEAR(1.0, spec->layers[1].factors.bias_l2, 0.0);
    gp_netspec_free(spec);
}

TEST(error_for_a_mistyped_name_suggests_the_nearest)
{
    static const struct {
        const char *layer, *part;
    } cases[] = {
        { "{\"name\": \"c\", \"kind\": \"con2d\"}", "did you mean 'conv2d'" },
        { "{\"name\": \"c\", \"kind\": \"conv2d\", \"chanels\": 2}", "did you mean 'channels'" },
        { "{\"name\": \"c\", \"kind\": \"conv2d\", \"bias-l2-facter\": 2}", "did you mean 'bias-l2-factor'" },
        { "{\"name\": \"first\", \"kind\": \"relu\"}, {\"name\": \"r\", \"kind\": \"relu\", \"inputs\": "
          "[\"frist\"]}",
          "did you mean 'first'" },
        { "{\"name\": \"r\", \"kind\": \"relu\", \"inputs\": [\"imput\"]}", "did you mean 'input'" },
        { "{\"name\": \"r\", \"kind\": \"transformer\"}", "available: conv2d, transconv2d, fc" },
        { "{\"name\": \"p\", \"kind\": \"maxpool\", \"width\": 2}", "it has: kernel, stride, padding" },
        { "{\"name\": \"r\", \"kind\": \"relu\", \"slope\": 2}", "it has: none" },
    };
    gp_netspec *spec = NULL;
    gp_error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[512];

        snprintf(text, sizeof(text), "{\"input\": [1, 8, 8], \"layers\": [%s]}", cases[i].layer);
        CHECK_STATUS(GP_EINVAL, parse(&spec, text, &err));
        CHECK_CONTAINS(err.message, cases[i].part);
        CHECK(spec == NULL);
    }
    CHECK_STATUS(GP_EINVAL, parse(&spec, "{\"input\": [1, 8, 8], \"layer\": []}", &err));
    CHECK_CONTAINS(err.message, "did you mean 'layers'");
    CHECK_STATUS(GP_ENOENT, gp_zoo_build(&spec, "lennet", NULL, 0, &err));
    CHECK_CONTAINS(err.message, "did you mean 'lenet'");
    CHECK_STATUS(GP_ENOENT, gp_zoo_build(&spec, "transformer", NULL, 0, &err));
    CHECK_CONTAINS(err.message, "available: lenet");
}

/* Errors name the layer. */
TEST(rejected_layer_leaves_the_network_unchanged)
{
    static const char *const bad[][4] = {
        { "r", "relu", NULL, "'r' is used twice" },
        { "input", "relu", NULL, "the layer name 'input' is used twice" },
        { "a b", "relu", NULL, "0x20" },
        { "", "relu", NULL, "0 bytes" },
        { "c", "conv3d", NULL, "c: unknown layer kind" },
        { "c", "conv2d", "channels=2;kernel", "c (conv2d): 'kernel' must be setting=value" },
        { "c", "conv2d", "channels=0", "c (conv2d): channels is 0" },
        { "c", "conv2d", "channels=2;kernel=3,", "c (conv2d)" },
        { "c", "conv2d", "kernel=1,2,3", "at most 2 numbers" },
        { "d", "dropout", "rate=1", "rate is 1; must be between 0 and 0.95" },
        { "d", "dropout", "rate=nan", "rate" },
        { "c", "conv2d", "bias=maybe", "true or false" },
    };
    gp_netspec *spec;
    gp_error err;

    REQUIRE_OK(net_parse(&spec, &image, "r relu", &err), err);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_netspec_add(spec, bad[i][0], bad[i][1], bad[i][2], &err));
        CHECK_CONTAINS(err.message, bad[i][3]);
        CHECK_INT(1, spec->layer_count);
    }
    CHECK_STATUS(GP_OK, gp_netspec_add(spec, "c", "conv2d", "channels=2;kernel=3;", &err));
    check_json("{\"name\": \"net\", \"input\": [1, 8, 8], \"scale\": [1], \"offset\": [0], \"layers\": ["
               "{\"name\": \"r\", \"kind\": \"relu\"}, "
               "{\"name\": \"c\", \"kind\": \"conv2d\", \"channels\": 2, \"kernel\": [3, 3]}]}",
               spec);
    CHECK_INT(1, gp_netspec_find(spec, "c"));
    CHECK_INT(2, gp_netspec_find(spec, "d"));
    gp_netspec_free(spec);
}

TEST(inputs_and_numbers_of_a_network_are_limited)
{
    const double ones[GP_NORMALIZE_MAX] = { 1, 1, 1 }, zero = 0.0, infinite = INFINITY;
    const gp_shape wrong[] = { gp_shape1(3), gp_shape3(0, 8, 8), gp_shape3(1, (1 << 24) + 1, 1),
                               gp_shape3(65536, 65536, 65536) };
    const char *const none = "nobody";
    gp_netspec *spec = NULL;
    gp_error err;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        gp_status status = gp_netspec_new(&spec, "n", &wrong[i], &err);

        CHECK(status == GP_EINVAL || status == GP_ELIMIT);
        CHECK(spec == NULL);
    }
    CHECK_STATUS(GP_EINVAL, gp_netspec_new(&spec, "two words", &image, &err));
    REQUIRE_OK(net_parse(&spec, &image, "r relu", &err), err);
    CHECK_STATUS(GP_EINVAL, gp_netspec_normalize(spec, ones, ones, 3, &err));
    CHECK_CONTAINS(err.message, "3 values of scale and offset for 1 channels");
    CHECK_STATUS(GP_EINVAL, gp_netspec_normalize(spec, &zero, ones, 1, &err));
    CHECK_STATUS(GP_EINVAL, gp_netspec_normalize(spec, ones, &infinite, 1, &err));
    CHECK_STATUS(GP_EINVAL, gp_netspec_connect(spec, &none, 1, &err));
    CHECK_STATUS(GP_EINVAL, gp_netspec_connect(spec, &none, 0, &err));
    CHECK_NEAR(1.0, spec->scale[0], 0.0);
    gp_netspec_free(spec);
}

TEST(network_has_at_most_4096_layers)
{
    gp_netspec *spec, *copy;
    gp_error err;
    char name[16];

    REQUIRE_OK(gp_netspec_new(&spec, "deep", &image, &err), err);
    for (int i = 0; i < GP_LAYERS_MAX; i++) {
        snprintf(name, sizeof(name), "r%d", i);
        REQUIRE_OK(gp_netspec_add(spec, name, "relu", NULL, &err), err);
    }
    CHECK_STATUS(GP_ELIMIT, gp_netspec_add(spec, "more", "relu", NULL, &err));
    CHECK_CONTAINS(err.message, "at most 4096");
    REQUIRE_OK(gp_netspec_copy(&copy, spec, &err), err);
    gp_netspec_free(spec);
    CHECK_STATUS(GP_ELIMIT, gp_netspec_add(copy, "more", "relu", NULL, &err));
    gp_netspec_free(copy);
}

/* A copy can grow like the original: its memory has exactly the size of its layers. */
TEST(layers_can_be_added_to_a_copy_of_any_size)
{
    for (int size = 0; size < 34; size++) {
        gp_netspec *spec, *copy;
        gp_error err;
        char name[16];

        REQUIRE_OK(gp_netspec_new(&spec, "n", &image, &err), err);
        for (int i = 0; i < size; i++) {
            snprintf(name, sizeof(name), "r%d", i);
            REQUIRE_OK(gp_netspec_add(spec, name, "relu", NULL, &err), err);
        }
        REQUIRE_OK(gp_netspec_copy(&copy, spec, &err), err);
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof(name), "s%d", i);
            REQUIRE_OK(gp_netspec_add(copy, name, "relu", NULL, &err), err);
        }
        CHECK_INT(size + 20, copy->layer_count);
        CHECK_INT(size, spec->layer_count);
        gp_netspec_free(spec);
        gp_netspec_free(copy);
    }
}

TEST(the_zoo_builds_for_other_inputs_and_classes)
{
    const gp_shape colour = gp_shape3(3, 32, 32), tiny = gp_shape3(1, 8, 8);
    gp_netspec *spec;
    gp_graph *graph = NULL;
    gp_error err;

    gp_zoo_info info;

    for (size_t i = 0; gp_zoo_describe(i, &info); i++) {
        REQUIRE_OK(gp_zoo_build(&spec, info.name, NULL, 0, &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        gp_graph_free(graph);
        gp_netspec_free(spec);
    }
    REQUIRE_OK(gp_zoo_build(&spec, "lenet", &colour, 100, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    CHECK_INT(100, graph->class_count);
    CHECK_INT(3 * 20 * 9 + 20 + 20 * 50 * 25 + 50 + (50 * 5 * 5) * 128 + 128 + 128 * 100 + 100,
              graph->blob_count);
    gp_graph_free(graph);
    gp_netspec_free(spec);
    graph = NULL;
    REQUIRE_OK(gp_zoo_build(&spec, "lenet", &tiny, 0, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_graph_new(&graph, spec, &err));
    CHECK_CONTAINS(err.message, "conv2 (conv2d): kernel 5x5 is larger than the input of 3x3");
    gp_netspec_free(spec);
}

static gp_status build_twenty(gp_netspec **out)
{
    gp_netspec *spec;
    gp_status status = gp_netspec_new(&spec, "n", &image, NULL);

    if (status != GP_OK)
        return status;
    for (int i = 0; i < 20 && status == GP_OK; i++) {
        char name[16];

        snprintf(name, sizeof(name), "r%d", i);
        status = gp_netspec_add(spec, name, "relu", NULL, NULL);
    }
    if (status != GP_OK)
        gp_netspec_free(spec);
    else
        *out = spec;
    return status;
}

TEST(networks_survive_every_failing_allocation)
{
    gp_netspec *spec, *copy;
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_netspec_new(&spec, "n", &image, NULL), gp_netspec_free(spec));
    CHECK_EVERY_ALLOCATION(build_twenty(&spec), gp_netspec_free(spec));
    CHECK_EVERY_ALLOCATION(parse(&spec, rich_json, NULL), gp_netspec_free(spec));
    CHECK_EVERY_ALLOCATION(gp_zoo_build(&spec, "lenet", NULL, 0, NULL), gp_netspec_free(spec));
    REQUIRE_OK(parse(&spec, rich_json, &err), err);
    CHECK_EVERY_ALLOCATION(gp_netspec_copy(&copy, spec, NULL), gp_netspec_free(copy));
    gp_netspec_free(spec);
}

/* Read a file into a block of exactly its size, so that a sanitizer detects reads past the end. */
static char *file_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;

    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    text = malloc(*bytes == 0 ? 1 : *bytes);
    if (fread(text, 1, *bytes, file) != *bytes)
        *bytes = 0;
    fclose(file);
    return text;
}

/* Check that a file is accepted or refused as its name states, with one printable line; accepted
 * networks survive a round trip. */
static void replay(const char *name, const char *text, size_t bytes)
{
    const bool good = strncmp(name, "ok-", 3) == 0;
    gp_netspec *spec = NULL, *again = NULL;
    gp_graph *graph = NULL;
    gp_buffer buffer;
    gp_error err = { .message = "" };
    gp_status status = gp_netspec_from_json(&spec, text, bytes, &err);

    if (good != (status == GP_OK))
        GP_TEST_FAIL("%s: %s: %s", name, gp_status_name(status), err.message);
    if (status != GP_OK) {
        if (status != GP_EINVAL && status != GP_ELIMIT)
            GP_TEST_FAIL("%s: %s", name, gp_status_name(status));
        if (spec != NULL || err.message[0] == '\0' || strchr(err.message, '\n') != NULL)
            GP_TEST_FAIL("%s: \"%s\"", name, err.message);
        return;
    }
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    CHECK_STATUS(GP_OK, gp_netspec_to_json(spec, &buffer, false, &err));
    CHECK_STATUS(GP_OK, parse(&again, gp_buffer_text(&buffer), &err));
    if (again != NULL)
        check_json(gp_buffer_text(&buffer), again);
    status = gp_graph_new(&graph, spec, &err);
    CHECK(status == GP_OK || status == GP_EINVAL || status == GP_ELIMIT);
    gp_graph_free(graph);
    gp_netspec_free(spec);
    gp_netspec_free(again);
    gp_buffer_deinit(&buffer);
}

TEST(hostile_networks_are_refused_in_one_line_each)
{
    const char *source = getenv("GP_SOURCE_DIR");
    char folder[1024], path[2048];
    int replayed = 0;

    snprintf(folder, sizeof(folder), "%s/tests/common/model/corpus/netspec", source == NULL ? "." : source);
    DIR *dir = opendir(folder);

    REQUIRE(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        size_t bytes = 0;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        char *text = file_read(path, &bytes);

        if (text == NULL)
            GP_TEST_FAIL("cannot read %s", path);
        else
            replay(entry->d_name, text, bytes);
        free(text);
        replayed++;
    }
    closedir(dir);
    CHECK(replayed >= 80);
}

/* The network in docs/networks.md is valid and formatted like the output. */
TEST(network_in_the_documentation_is_read_and_written_one_layer_per_line)
{
    const char *source = getenv("GP_SOURCE_DIR"), *fence = "```";
    char path[1100];
    size_t bytes = 0;
    gp_netspec *spec;
    gp_graph *graph;
    gp_buffer buffer;
    gp_error err;

    snprintf(path, sizeof(path), "%s/docs/networks.md", source == NULL ? "." : source);
    char *text = file_read(path, &bytes);

    REQUIRE(text != NULL);
    text = realloc(text, bytes + 1);
    text[bytes] = '\0';
    char *first = strstr(text, "```json\n"), *end = first == NULL ? NULL : strstr(first + 8, fence);

    REQUIRE(end != NULL);
    *end = '\0';
    REQUIRE_OK(gp_netspec_from_json(&spec, first + 8, strlen(first + 8), &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    REQUIRE_OK(gp_netspec_to_json(spec, &buffer, true, &err), err);
    end[-1] = '\0'; /* end of line */
    CHECK_TEXT(first + 8, gp_buffer_text(&buffer));
    gp_buffer_deinit(&buffer);
    gp_graph_free(graph);
    gp_netspec_free(spec);
    free(text);
}

/* Every prefix and every replaced byte of a valid network gives an error or a network. */
TEST(damaged_network_gives_an_error_or_a_network)
{
    static const char replacements[] = { '\0', '"', '{', '}',  '[',  ']',       ',',
                                         ':',  '-', '9', '\\', '\n', (char)0x80 };
    const size_t bytes = strlen(rich_json);
    int accepted = 0, refused = 0;

    for (size_t i = 0; i < bytes; i++) {
        for (size_t r = 0; r <= sizeof(replacements); r++) {
            size_t length = r == sizeof(replacements) ? i : bytes;
            char *text = malloc(length == 0 ? 1 : length);
            gp_netspec *spec = NULL;
            gp_graph *graph = NULL;

            memcpy(text, rich_json, length);
            if (r < sizeof(replacements))
                text[i] = replacements[r];
            gp_status status = gp_netspec_from_json(&spec, text, length, NULL);

            CHECK(status == GP_OK || status == GP_EINVAL || status == GP_ELIMIT);
            CHECK((status == GP_OK) == (spec != NULL));
            if (spec != NULL) {
                status = gp_graph_new(&graph, spec, NULL);
                CHECK(status == GP_OK || status == GP_EINVAL || status == GP_ELIMIT);
            }
            accepted += graph != NULL;
            refused += graph == NULL;
            gp_graph_free(graph);
            gp_netspec_free(spec);
            free(text);
        }
    }
    CHECK(accepted > 100 && refused > 10000);
}

TEST(json_over_four_mebibytes_is_refused_unparsed)
{
    const size_t bytes = GP_NETSPEC_BYTES_MAX + 1;
    char *text = malloc(bytes);
    gp_netspec *spec = NULL;
    gp_error err;

    memset(text, ' ', bytes);
    CHECK_STATUS(GP_ELIMIT, gp_netspec_from_json(&spec, text, bytes, &err));
    CHECK_CONTAINS(err.message, "4194305 bytes");
    free(text);
}
