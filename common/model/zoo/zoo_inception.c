/* Build GoogLeNet and Inception-ResNet-v2. Both concatenate branches with different window
 * sizes. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/model/zoo/zoo.h"

/* Limits: branches in a block, convolutions in a branch. */
enum { BRANCHES_MAX = 4, CONVS_MAX = 3 };

/* A branch: an optional pooling layer, then convolutions. */
typedef struct inception_branch {
    const char *pool_kind, *pool_settings; /* NULL: no pooling */
    gp_zoo_conv convs[CONVS_MAX];          /* terminated by channels == 0 */
} inception_branch;

/* ---- GoogLeNet (Szegedy et al., CVPR 2015) ---- */

/* Variants: torchvision uses batch norm and 3x3 windows; caffe follows the paper. */
typedef enum googlenet_form { FORM_TORCHVISION, FORM_CAFFE } googlenet_form;

typedef struct googlenet_settings {
    int form; /* googlenet_form */
} googlenet_settings;

static const char *const googlenet_forms[] = { "torchvision", "caffe", NULL };

const gp_param gp_zoo_googlenet_settings[] = {
    { "form", NULL, GP_PARAM_WORD, offsetof(googlenet_settings, form), .words = googlenet_forms,
      .help = "torchvision: with batch norm, and 3x3 where the paper has 5x5; caffe: local response norm, as "
              "in the paper" },
    { 0 },
};

/* Append a convolution with ReLU; the torchvision form adds batch norm. */
static void google_conv(gp_zoo_builder *b, const char *from, const char *stem, gp_zoo_conv conv)
{
    char name[GP_NAME_MAX];

    if (((const googlenet_settings *)b->settings)->form == FORM_TORCHVISION) {
        conv.epsilon = 1e-3;
        conv.end = GP_ZOO_RELU;
        gp_zoo_conv_norm(b, from, stem, conv);
        return;
    }
    gp_zoo_add(b, from, gp_zoo_named(name, stem, "conv"), "conv2d",
               "channels=%d;kernel=%d;stride=%d;padding=%d", conv.channels, conv.height,
               conv.stride == 0 ? 1 : conv.stride, conv.height / 2);
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "relu"), "relu", "%s", "");
}

/* Append an inception block that reads the last layer.
 *   stem   prefix for layer names
 *   sizes  channels: 1x1; 3x3 reduce, 3x3; 5x5 reduce, 5x5; pool projection (table 1 in the paper)
 *   five   window size in place of 5x5: 5, or 3 as in torchvision */
static void google_inception(gp_zoo_builder *b, const char *stem, const int sizes[6], int five)
{
    char from[GP_NAME_MAX], name[GP_NAME_MAX], ends[4][GP_NAME_MAX];
    const char *inputs[4] = { ends[0], ends[1], ends[2], ends[3] };

    snprintf(from, sizeof(from), "%s", gp_zoo_here(b));
    google_conv(b, from, gp_zoo_named(name, stem, "1x1"), (gp_zoo_conv)GP_ZOO_CONV(sizes[0], 1));
    snprintf(ends[0], GP_NAME_MAX, "%s", gp_zoo_here(b));
    google_conv(b, from, gp_zoo_named(name, stem, "3x3_reduce"), (gp_zoo_conv)GP_ZOO_CONV(sizes[1], 1));
    google_conv(b, NULL, gp_zoo_named(name, stem, "3x3"), (gp_zoo_conv)GP_ZOO_CONV(sizes[2], 3));
    snprintf(ends[1], GP_NAME_MAX, "%s", gp_zoo_here(b));
    google_conv(b, from, gp_zoo_named(name, stem, "5x5_reduce"), (gp_zoo_conv)GP_ZOO_CONV(sizes[3], 1));
    google_conv(b, NULL, gp_zoo_named(name, stem, "5x5"), (gp_zoo_conv)GP_ZOO_CONV(sizes[4], five));
    snprintf(ends[2], GP_NAME_MAX, "%s", gp_zoo_here(b));
    gp_zoo_add(b, from, gp_zoo_named(name, stem, "pool"), "maxpool", "kernel=3;stride=1;padding=1");
    google_conv(b, NULL, gp_zoo_named(name, stem, "pool_project"), (gp_zoo_conv)GP_ZOO_CONV(sizes[5], 1));
    snprintf(ends[3], GP_NAME_MAX, "%s", gp_zoo_here(b));
    gp_zoo_meet(b, stem, "concat", inputs, 4);
}

void gp_zoo_googlenet(gp_zoo_builder *b)
{
    static const struct {
        const char *name; /* inception block; "pool...": max pooling with window sizes[0] */
        int sizes[6];
    } blocks[] = {
        { "3a", { 64, 96, 128, 16, 32, 32 } },
        { "3b", { 128, 128, 192, 32, 96, 64 } },
        { "pool3", { 3 } },
        { "4a", { 192, 96, 208, 16, 48, 64 } },
        { "4b", { 160, 112, 224, 24, 64, 64 } },
        { "4c", { 128, 128, 256, 24, 64, 64 } },
        { "4d", { 112, 144, 288, 32, 64, 64 } },
        { "4e", { 256, 160, 320, 32, 128, 128 } },
        { "pool4", { 2 } },
        { "5a", { 256, 160, 320, 32, 128, 128 } },
        { "5b", { 384, 192, 384, 48, 128, 128 } },
    };
    const bool caffe = ((const googlenet_settings *)b->settings)->form == FORM_CAFFE;
    const char *const pool = "kernel=%d;stride=2;ceil=true";
    char stem[GP_ZOO_STEM_MAX];

    google_conv(b, NULL, "conv1", (gp_zoo_conv)GP_ZOO_CONV(64, 7, .stride = 2));
    gp_zoo_add(b, NULL, "pool1", "maxpool", pool, 3);
    if (caffe)
        gp_zoo_add(b, NULL, "norm1", "crosschannelnorm", "%s", "");
    google_conv(b, NULL, "conv2_reduce", (gp_zoo_conv)GP_ZOO_CONV(64, 1));
    google_conv(b, NULL, "conv2", (gp_zoo_conv)GP_ZOO_CONV(192, 3));
    if (caffe)
        gp_zoo_add(b, NULL, "norm2", "crosschannelnorm", "%s", "");
    gp_zoo_add(b, NULL, "pool2", "maxpool", pool, 3);
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        if (strncmp(blocks[i].name, "pool", 4) == 0) {
            gp_zoo_add(b, NULL, blocks[i].name, "maxpool", pool, caffe ? 3 : blocks[i].sizes[0]);
            continue;
        }
        snprintf(stem, sizeof(stem), "inception_%s", blocks[i].name);
        google_inception(b, stem, blocks[i].sizes, caffe ? 5 : 3);
    }
    gp_zoo_add(b, NULL, "pool5", "globalavgpool", "%s", "");
    gp_zoo_add(b, NULL, "drop", "dropout", "rate=%g", caffe ? 0.4 : 0.2);
    gp_zoo_add(b, NULL, "fc", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* ---- Inception-ResNet-v2 (Szegedy et al., AAAI 2017), widths as in the authors' code ---- */

/* Append a convolution with the settings that all convolutions in Inception-ResNet-v2 share. */
static void resnet_conv(gp_zoo_builder *b, const char *from, const char *stem, gp_zoo_conv conv)
{
    conv.epsilon = 1e-3;
    conv.end = GP_ZOO_RELU;
    gp_zoo_conv_norm(b, from, stem, conv);
}

/* Append branches that read the last layer, and concatenate them as "stem_concat".
 *   dilation  for windows larger than 1 */
static void branches_add(gp_zoo_builder *b, const char *stem, const inception_branch *branches, size_t count,
                         int dilation)
{
    char from[GP_NAME_MAX], name[GP_NAME_MAX], part[32], ends[BRANCHES_MAX][GP_NAME_MAX];
    const char *inputs[BRANCHES_MAX];

    snprintf(from, sizeof(from), "%s", gp_zoo_here(b));
    for (size_t i = 0; i < count; i++) {
        const char *at = from;

        if (branches[i].pool_kind != NULL) {
            snprintf(part, sizeof(part), "b%zu_pool", i);
            gp_zoo_add(b, at, gp_zoo_named(name, stem, part), branches[i].pool_kind, "%s",
                       branches[i].pool_settings);
            at = NULL;
        }
        for (int k = 0; k < CONVS_MAX && branches[i].convs[k].channels != 0; k++) {
            gp_zoo_conv conv = branches[i].convs[k];

            conv.dilation = dilation;
            snprintf(part, sizeof(part), "b%zu%c", i, 'a' + k);
            resnet_conv(b, at, gp_zoo_named(name, stem, part), conv);
            at = NULL;
        }
        snprintf(ends[i], GP_NAME_MAX, "%s", gp_zoo_here(b));
        inputs[i] = ends[i];
    }
    gp_zoo_meet(b, gp_zoo_named(name, stem, "concat"), "concat", inputs, count);
}

/* Append a residual block: branches, a 1x1 convolution back to the input's channels, multiplication
 * by `scale`, and addition to the input.
 *   relu  append ReLU; false only for the last block */
static void residual_add(gp_zoo_builder *b, const char *stem, const inception_branch *branches, size_t count,
                         int dilation, int channels, double scale, bool relu)
{
    char from[GP_NAME_MAX], name[GP_NAME_MAX], scaled[GP_NAME_MAX];

    snprintf(from, sizeof(from), "%s", gp_zoo_here(b));
    branches_add(b, stem, branches, count, dilation);
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "up"), "conv2d", "channels=%d;kernel=1", channels);
    gp_zoo_add(b, NULL, gp_zoo_named(scaled, stem, "scale"), "scale", "factor=%g", scale);
    gp_zoo_meet(b, gp_zoo_named(name, stem, "sum"), "add", (const char *const[]){ scaled, from }, 2);
    if (relu)
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "relu"), "relu", "%s", "");
}

#define AVERAGE "avgpool", "kernel=3;stride=1;padding=1"

/* Branches of the blocks, named as in the authors' code. */
static const inception_branch mixed_5b[] = {
    { NULL, NULL, { GP_ZOO_CONV(96, 1) } },
    { NULL, NULL, { GP_ZOO_CONV(48, 1), GP_ZOO_CONV(64, 5) } },
    { NULL, NULL, { GP_ZOO_CONV(64, 1), GP_ZOO_CONV(96, 3), GP_ZOO_CONV(96, 3) } },
    { AVERAGE, { GP_ZOO_CONV(64, 1) } },
};
static const inception_branch block35[] = {
    { NULL, NULL, { GP_ZOO_CONV(32, 1) } },
    { NULL, NULL, { GP_ZOO_CONV(32, 1), GP_ZOO_CONV(32, 3) } },
    { NULL, NULL, { GP_ZOO_CONV(32, 1), GP_ZOO_CONV(48, 3), GP_ZOO_CONV(64, 3) } },
};
static const inception_branch block17[] = {
    { NULL, NULL, { GP_ZOO_CONV(192, 1) } },
    { NULL, NULL, { GP_ZOO_CONV(128, 1), GP_ZOO_CONV(160, 1, .width = 7), GP_ZOO_CONV(192, 7, .width = 1) } },
};
static const inception_branch block8[] = {
    { NULL, NULL, { GP_ZOO_CONV(192, 1) } },
    { NULL, NULL, { GP_ZOO_CONV(192, 1), GP_ZOO_CONV(224, 1, .width = 3), GP_ZOO_CONV(256, 3, .width = 1) } },
};

/* Return the pooling settings for a reduction block or the stem. */
static const char *reduction_pool(bool same, int stride)
{
    return !same         ? "kernel=3;stride=2"
           : stride == 2 ? "kernel=3;stride=2;padding=1"
                         : "kernel=3;stride=1;padding=1";
}

/* Append the first reduction block. The convolutions in the block use the dilation before the
 * reduction. */
static void mixed_6a(gp_zoo_builder *b, bool same, gp_zoo_pace *pace)
{
    const int before = pace->dilation, stride = gp_zoo_stride(pace, 2);
    const inception_branch branches[] = {
        { NULL, NULL, { GP_ZOO_CONV(384, 3, .stride = stride, .valid = !same) } },
        { NULL,
          NULL,
          { GP_ZOO_CONV(256, 1), GP_ZOO_CONV(256, 3),
            GP_ZOO_CONV(384, 3, .stride = stride, .valid = !same) } },
        { "maxpool", reduction_pool(same, stride), { { 0 } } },
    };

    branches_add(b, "mixed_6a", branches, 3, before);
}

/* Append the second reduction block. */
static void mixed_7a(gp_zoo_builder *b, bool same, gp_zoo_pace *pace)
{
    const int before = pace->dilation, stride = gp_zoo_stride(pace, 2);
    const inception_branch branches[] = {
        { NULL, NULL, { GP_ZOO_CONV(256, 1), GP_ZOO_CONV(384, 3, .stride = stride, .valid = !same) } },
        { NULL, NULL, { GP_ZOO_CONV(256, 1), GP_ZOO_CONV(288, 3, .stride = stride, .valid = !same) } },
        { NULL,
          NULL,
          { GP_ZOO_CONV(256, 1), GP_ZOO_CONV(288, 3),
            GP_ZOO_CONV(320, 3, .stride = stride, .valid = !same) } },
        { "maxpool", reduction_pool(same, stride), { { 0 } } },
    };

    branches_add(b, "mixed_7a", branches, 4, before);
}

void gp_zoo_inceptionresnetv2_trunk(gp_zoo_builder *b, bool same, int output_stride, gp_zoo_taps *taps)
{
    gp_zoo_pace pace = { 8, output_stride, 1 }; /* the stem has output stride 8 */
    char stem[GP_ZOO_STEM_MAX];

    resnet_conv(b, NULL, "conv_1a", (gp_zoo_conv)GP_ZOO_CONV(32, 3, .stride = 2, .valid = !same));
    resnet_conv(b, NULL, "conv_2a", (gp_zoo_conv)GP_ZOO_CONV(32, 3, .valid = !same));
    resnet_conv(b, NULL, "conv_2b", (gp_zoo_conv)GP_ZOO_CONV(64, 3));
    gp_zoo_add(b, NULL, "pool_3a", "maxpool", "%s", reduction_pool(same, 2));
    resnet_conv(b, NULL, "conv_3b", (gp_zoo_conv)GP_ZOO_CONV(80, 1));
    resnet_conv(b, NULL, "conv_4a", (gp_zoo_conv)GP_ZOO_CONV(192, 3, .valid = !same));
    snprintf(taps->low, GP_NAME_MAX, "%s", gp_zoo_here(b));
    gp_zoo_add(b, NULL, "pool_5a", "maxpool", "%s", reduction_pool(same, 2));
    branches_add(b, "mixed_5b", mixed_5b, 4, 1);
    for (int i = 1; i <= 10; i++) {
        snprintf(stem, sizeof(stem), "block35_%d", i);
        residual_add(b, stem, block35, 3, pace.dilation, 320, 0.17, true);
    }
    mixed_6a(b, same, &pace);
    for (int i = 1; i <= 20; i++) {
        snprintf(stem, sizeof(stem), "block17_%d", i);
        residual_add(b, stem, block17, 2, pace.dilation, 1088, 0.1, true);
    }
    mixed_7a(b, same, &pace);
    for (int i = 1; i <= 10; i++) {
        snprintf(stem, sizeof(stem), "block8_%d", i);
        residual_add(b, stem, block8, 2, pace.dilation, 2080, i < 10 ? 0.2 : 1.0, i < 10);
    }
    resnet_conv(b, NULL, "conv_7b", (gp_zoo_conv)GP_ZOO_CONV(1536, 1));
    snprintf(taps->high, GP_NAME_MAX, "%s", gp_zoo_here(b));
    taps->high_channels = 1536;
}

void gp_zoo_inceptionresnetv2(gp_zoo_builder *b)
{
    gp_zoo_taps taps;

    gp_zoo_inceptionresnetv2_trunk(b, false, 32, &taps);
    gp_zoo_add(b, NULL, "pool", "globalavgpool", "%s", "");
    gp_zoo_add(b, NULL, "drop", "dropout", "rate=0.2");
    gp_zoo_add(b, NULL, "fc", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}
