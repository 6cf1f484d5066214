/* test_zoo.c: zoo networks: published sizes, shapes, and supported inputs. */
#include "common/model/graph/graph.h"
#include "tests/gp_test.h"

static gp_graph *zoo_graph(const char *name, const gp_shape *input, uint32_t classes)
{
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err;

    if (gp_zoo_build(&spec, name, input, classes, &err) != GP_OK || gp_graph_new(&graph, spec, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    gp_netspec_free(spec);
    return graph;
}

/* Counts published by torchvision (pytorch.org/vision/stable/models, "num_params", "GFLOPS"),
 * except:
 *   lenet              "Dive into Deep Learning", 12.5
 *   googlenet:caffe    netscope of bvlc_googlenet
 *   inceptionresnetv2  timm and Keras. Keras publishes 55,873,736: our 55,843,464 trainable
 *                      parameters, without 30,272 batch norm scales that Keras omits, plus 60,544
 *                      running moments
 *   unet               the paper, with one input channel and two classes; with batch norm
 *                      milesial/Pytorch-UNet, with three channels */
static const struct published {
    const char *text;
    int64_t channels; /* 0: the default input */
    size_t parameters, statistics;
    int64_t mega_macs; /* forward pass of one sample, rounded down; 0: not published */
} published[] = {
    { "lenet", 0, 129068, 0, 2 },
    { "alexnet", 0, 61100840, 0, 714 },
    { "vgg16", 0, 138357544, 0, 15470 },
    { "resnet18", 0, 11689512, 9600, 1814 },
    { "resnet34", 0, 21797672, 17024, 3663 },
    { "resnet50", 0, 25557032, 53120, 4089 },
    { "resnet101", 0, 44549160, 105344, 7801 },
    { "squeezenet1.1", 0, 1235496, 0, 349 },
    { "mobilenetv2", 0, 3504872, 34112, 300 },
    { "googlenet", 0, 6624904, 14560, 1498 },
    { "inceptionresnetv2", 0, 55843464, 60544, 0 },
    { "googlenet:form=caffe", 0, 6998552, 0, 1582 },
    { "unet", 1, 31030658, 0, 0 },
    { "unet:batch-norm=true", 3, 31037698, 11776, 0 },
};

TEST(every_network_has_the_published_number_of_parameters)
{
    for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
        const struct published *p = &published[i];
        const gp_shape input = gp_shape3(p->channels, 256, 256);
        gp_graph *graph = zoo_graph(p->text, p->channels == 0 ? NULL : &input, 0);

        if (graph == NULL)
            continue;
        CHECK_INT(p->parameters, graph->learned_count);
        CHECK_INT(p->statistics, graph->blob_count - graph->learned_count);
        if (p->mega_macs != 0)
            CHECK_INT(p->mega_macs, gp_graph_forward_macs(graph) / 1000000);
        gp_graph_free(graph);
    }
}

/* No count for exactly this DeepLab v3+ is published, so it is computed from parts. The trunk is
 * the classifier without the fc layer (513 or 2049 numbers per class ...). The pyramid with image
 * pooling is torchvision's: deeplabv3_resnet50 has 42,004,074 parameters, including 2,365,205 in
 * the auxiliary head and 595,733 after the pyramid. */
TEST(deeplab_consists_of_trunk_pyramid_and_decoder)
{
    const size_t decoder = 256 * 48 + 2 * 48 + 304 * 256 * 9 + 512 + 256 * 256 * 9 + 512;
    const size_t pyramid = 42004074 - 2365205 - 595733 - (25557032 - 2049 * 1000);
    const size_t mean_branch = 2048 * 256 + 512 + 256 * 256;
    gp_graph *graph = zoo_graph("deeplabv3plus:backbone=resnet50,image-pooling=true", NULL, 0);

    REQUIRE(graph != NULL);
    CHECK_INT(25557032 - 2049 * 1000 + pyramid + decoder + 257 * 21, graph->learned_count);
    gp_graph_free(graph);
    graph = zoo_graph("deeplabv3plus:backbone=resnet50", NULL, 6);
    REQUIRE(graph != NULL);
    CHECK_INT(25557032 - 2049 * 1000 + pyramid - mean_branch + decoder + 257 * 6, graph->learned_count);
    gp_graph_free(graph);
}

TEST(every_listed_network_can_be_built)
{
    gp_zoo_info info;
    size_t count = 0;

    while (gp_zoo_describe(count, &info)) {
        gp_graph *graph = zoo_graph(info.name, NULL, 0);

        REQUIRE(graph != NULL);
        CHECK_INT(info.classes, graph->class_count);
        CHECK(gp_shape_equal(&info.input, &graph->spec->input));
        CHECK(info.about[0] != '\0');
        gp_graph_free(graph);
        count++;
    }
    CHECK_INT(13, count);
}

TEST(invalid_setting_is_named_with_the_nearest_one)
{
    static const struct {
        const char *text;
        gp_status status;
        const char *part;
    } cases[] = {
        { "googlenet:fom=caffe", GP_EINVAL, "googlenet has no setting 'fom'; did you mean 'form'?" },
        { "googlenet:zzz=9", GP_EINVAL, "it has: form" },
        { "googlenet:form=tensorflow", GP_EINVAL, "form is 'tensorflow'; must be one of torchvision, caffe" },
        { "googlenet:form", GP_EINVAL, "'form' must be setting=value" },
        { "googlenet:", GP_EINVAL, "'' must be setting=value" },
        { "googlenet:form=caffe,,form=caffe", GP_EINVAL, "'' must be setting=value" },
        { "deeplabv3plus:output-stride=32", GP_EINVAL, "output-stride is '32'; must be one of 8, 16" },
        { "unet:depth=9", GP_EINVAL, "depth is 9; must be between 1 and 8" },
        { "unet:zzz=9", GP_EINVAL, "it has: depth, width, dropout, batch-norm" },
        { "lenet:depth=3", GP_EINVAL, "lenet has no settings, but 'depth' is set" },
        { "gogglenet:depth=3", GP_ENOENT, "unknown network 'gogglenet'; did you mean 'googlenet'?" },
        { "googlenet:form="
          "33333333333333333333333333333333333333333333333333333333333333333333333333333333333333",
          GP_ELIMIT, "a setting has" },
    };
    gp_error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_netspec *spec = NULL;

        CHECK_STATUS(cases[i].status, gp_zoo_check(cases[i].text, &err));
        CHECK_CONTAINS(err.message, cases[i].part);
        CHECK_STATUS(cases[i].status, gp_zoo_build(&spec, cases[i].text, NULL, 0, &err));
        CHECK_CONTAINS(err.message, cases[i].part);
        CHECK(spec == NULL);
    }
    CHECK_STATUS(GP_OK, gp_zoo_check("googlenet:form=caffe", &err));
}

TEST(u_net_needs_a_size_that_can_be_halved)
{
    const gp_shape odd = gp_shape3(1, 40, 24);
    gp_netspec *spec = NULL;
    gp_error err;

    CHECK_STATUS(GP_EINVAL, gp_zoo_build(&spec, "unet", &odd, 0, &err));
    CHECK_CONTAINS(
        err.message,
        "halves its input 4 times needs a height and width that are multiples of 16, but they are 40 and 24");
    REQUIRE_OK(gp_zoo_build(&spec, "unet:depth=3,width=4", &odd, 0, &err), err);
    gp_netspec_free(spec);
}

static gp_shape shape_of(const gp_graph *graph, const char *layer)
{
    return graph->outputs[gp_netspec_find(graph->spec, layer)];
}

TEST(shapes_match_the_papers)
{
    static const struct {
        const char *name, *layer, *shape;
    } cases[] = {
        { "alexnet", "pool1", "64x27x27" },
        { "alexnet", "pool5", "256x6x6" },
        { "vgg16", "pool5", "512x7x7" },
        { "resnet18", "stem_pool", "64x56x56" },
        { "resnet18", "s4_b2_relu", "512x7x7" },
        { "resnet50", "s2_b1_relu", "512x28x28" },
        { "resnet50", "pool", "2048x1x1" },
        { "squeezenet1.1", "pool1", "64x55x55" },
        { "googlenet", "inception_3a", "256x28x28" },
        { "googlenet:form=caffe", "inception_4e", "832x14x14" },
        { "googlenet", "inception_5b", "1024x7x7" },
        { "inceptionresnetv2", "block35_10_relu", "320x35x35" },
        { "inceptionresnetv2", "mixed_6a_concat", "1088x17x17" },
        { "inceptionresnetv2", "conv_7b_relu", "1536x8x8" },
        { "squeezenet1.1", "fire9", "512x13x13" },
        { "mobilenetv2", "last_clip", "1280x7x7" },
        { "deeplabv3plus", "s4_b2_relu", "512x32x32" },
        { "deeplabv3plus:output-stride=8", "s4_b2_relu", "512x64x64" },
        { "deeplabv3plus", "decode", "304x128x128" },
        { "deeplabv3plus", "up2", "21x512x512" },
        { "deeplabv3plus:backbone=inceptionresnetv2", "conv_7b_relu", "1536x32x32" },
        { "deeplabv3plus:backbone=inceptionresnetv2", "conv_4a_relu", "192x128x128" },
        { "deeplabv3plus:backbone=mobilenetv2", "block4_expand_clip", "144x128x128" },
        { "deeplabv3plus:backbone=mobilenetv2,output-stride=8", "block17_project_bn", "320x64x64" },
        { "unet", "bridge_b_relu", "1024x16x16" },
        { "unet", "scorer", "2x256x256" },
        { "unet:depth=2,width=8", "up1", "16x256x256" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_graph *graph = zoo_graph(cases[i].name, NULL, 0);
        char text[64];

        REQUIRE(graph != NULL);
        gp_shape shape = shape_of(graph, cases[i].layer);

        CHECK_TEXT(cases[i].shape, gp_shape_format(&shape, text, sizeof(text)));
        gp_graph_free(graph);
    }
}

TEST(networks_are_built_for_other_inputs_and_classes)
{
    const gp_shape small = gp_shape3(3, 32, 32), grey = gp_shape3(1, 64, 64);
    gp_graph *graph = zoo_graph("resnet18", &small, 10);

    REQUIRE(graph != NULL);
    CHECK_INT(10, graph->class_count);
    CHECK_INT(11689512 - 513 * 990, graph->learned_count);
    CHECK_INT(3, graph->spec->normalize_count);
    CHECK(graph->couples_samples);
    gp_graph_free(graph);
    graph = zoo_graph("squeezenet1.1", &grey, 7);
    REQUIRE(graph != NULL);
    CHECK_INT(7, graph->class_count);
    CHECK_INT(1, graph->spec->normalize_count);
    CHECK(!graph->couples_samples);
    gp_graph_free(graph);
}
