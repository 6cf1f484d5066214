/* Build ResNet, SqueezeNet and MobileNetV2 from repeated blocks. Layer names follow the papers.
 * Tests compare the parameter counts with the published numbers. */
#include <stdio.h>
#include <string.h>

#include "common/model/zoo/zoo.h"

/* Append a layer that reads two layers. */
static void meet(gp_zoo_builder *b, const char *name, const char *kind, const char *left, const char *right)
{
    gp_zoo_meet(b, name, kind, (const char *const[]){ left, right }, 2);
}

/* Copy the last layer's name to `to`. */
static void remember(char *to, const gp_zoo_builder *b)
{
    snprintf(to, GP_NAME_MAX, "%s", gp_zoo_here(b));
}

/* ---- ResNet (He et al., CVPR 2016; bottlenecks have the stride in the 3x3) ---- */

/* Append a residual block that reads the last layer.
 *   bottleneck  1x1, 3x3, 1x1 with four times the channels; false: two 3x3
 *   stride      stride of the block, before gp_zoo_stride()
 *   project     add a 1x1 convolution to the shortcut, because the shape changes */
static void resnet_block(gp_zoo_builder *b, const char *stem, bool bottleneck, int channels, int stride,
                         gp_zoo_pace *pace, bool project)
{
    const int out = bottleneck ? 4 * channels : channels, before = pace->dilation;
    const int taken = gp_zoo_stride(pace, stride);
    char from[GP_NAME_MAX], name[GP_NAME_MAX], end[GP_NAME_MAX];

    remember(from, b);
    if (bottleneck) {
        gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "a"),
                         (gp_zoo_conv)GP_ZOO_CONV(channels, 1, .end = GP_ZOO_RELU));
        gp_zoo_conv_norm(
            b, NULL, gp_zoo_named(name, stem, "b"),
            (gp_zoo_conv)GP_ZOO_CONV(channels, 3, .stride = taken, .dilation = before, .end = GP_ZOO_RELU));
        gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "c"), (gp_zoo_conv)GP_ZOO_CONV(out, 1));
    } else {
        gp_zoo_conv_norm(
            b, NULL, gp_zoo_named(name, stem, "a"),
            (gp_zoo_conv)GP_ZOO_CONV(channels, 3, .stride = taken, .dilation = before, .end = GP_ZOO_RELU));
        gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "b"),
                         (gp_zoo_conv)GP_ZOO_CONV(channels, 3, .dilation = pace->dilation));
    }
    remember(end, b);
    if (project) {
        gp_zoo_conv_norm(b, from, gp_zoo_named(name, stem, "short"),
                         (gp_zoo_conv)GP_ZOO_CONV(out, 1, .stride = taken));
        remember(from, b);
    }
    meet(b, gp_zoo_named(name, stem, "sum"), "add", end, from);
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "relu"), "relu", "%s", "");
}

void gp_zoo_resnet_trunk(gp_zoo_builder *b, int depth, int output_stride, gp_zoo_taps *taps)
{
    /* blocks per stage: depth 18; 34 and 50; 101 */
    static const int table[][4] = { { 2, 2, 2, 2 }, { 3, 4, 6, 3 }, { 3, 4, 23, 3 } };
    const int *blocks = table[depth == 18 ? 0 : depth == 101 ? 2 : 1];
    const bool bottleneck = depth >= 50;
    gp_zoo_pace pace = { 4, output_stride, 1 }; /* the stem has output stride 4 */
    char stem[GP_ZOO_STEM_MAX];

    gp_zoo_conv_norm(b, NULL, "stem", (gp_zoo_conv)GP_ZOO_CONV(64, 7, .stride = 2, .end = GP_ZOO_RELU));
    gp_zoo_add(b, NULL, "stem_pool", "maxpool", "kernel=3;stride=2;padding=1");
    for (int stage = 0; stage < 4; stage++) {
        for (int i = 0; i < blocks[stage]; i++) {
            snprintf(stem, sizeof(stem), "s%d_b%d", stage + 1, i + 1);
            resnet_block(b, stem, bottleneck, 64 << stage, stage > 0 && i == 0 ? 2 : 1, &pace,
                         i == 0 && (stage > 0 || bottleneck));
        }
        if (stage == 0)
            remember(taps->low, b);
    }
    remember(taps->high, b);
    taps->high_channels = bottleneck ? 2048 : 512;
}

void gp_zoo_resnet(gp_zoo_builder *b)
{
    gp_zoo_taps taps;

    gp_zoo_resnet_trunk(b, b->depth, 32, &taps);
    gp_zoo_add(b, NULL, "pool", "globalavgpool", "%s", "");
    gp_zoo_add(b, NULL, "fc", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* ---- SqueezeNet 1.1 (Iandola et al., 2016) ---- */

/* Append a fire module: a 1x1 "squeeze" convolution, then concatenated 1x1 and 3x3 "expand"
 * convolutions. */
static void fire(gp_zoo_builder *b, int number, int squeeze, int expand)
{
    char stem[16], name[GP_NAME_MAX], middle[GP_NAME_MAX], left[GP_NAME_MAX];

    snprintf(stem, sizeof(stem), "fire%d", number);
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "squeeze"), "conv2d", "channels=%d;kernel=1", squeeze);
    gp_zoo_add(b, NULL, gp_zoo_named(middle, stem, "squeeze_relu"), "relu", "%s", "");
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "expand1"), "conv2d", "channels=%d;kernel=1", expand);
    gp_zoo_add(b, NULL, gp_zoo_named(left, stem, "expand1_relu"), "relu", "%s", "");
    gp_zoo_add(b, middle, gp_zoo_named(name, stem, "expand3"), "conv2d", "channels=%d;kernel=3;padding=1",
               expand);
    gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "expand3_relu"), "relu", "%s", "");
    meet(b, stem, "concat", left, name);
}

void gp_zoo_squeezenet(gp_zoo_builder *b)
{
    const char *const pool = "kernel=3;stride=2;ceil=true";

    gp_zoo_add(b, NULL, "conv1", "conv2d", "channels=64;kernel=3;stride=2");
    gp_zoo_add(b, NULL, "relu1", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool1", "maxpool", "%s", pool);
    fire(b, 2, 16, 64);
    fire(b, 3, 16, 64);
    gp_zoo_add(b, NULL, "pool3", "maxpool", "%s", pool);
    fire(b, 4, 32, 128);
    fire(b, 5, 32, 128);
    gp_zoo_add(b, NULL, "pool5", "maxpool", "%s", pool);
    fire(b, 6, 48, 192);
    fire(b, 7, 48, 192);
    fire(b, 8, 64, 256);
    fire(b, 9, 64, 256);
    gp_zoo_add(b, NULL, "drop9", "dropout", "%s", "");
    gp_zoo_add(b, NULL, "conv10", "conv2d", "channels=%u;kernel=1", b->classes);
    gp_zoo_add(b, NULL, "relu10", "relu", "%s", "");
    gp_zoo_add(b, NULL, "pool10", "globalavgpool", "%s", "");
    gp_zoo_add(b, NULL, "flatten", "flatten", "%s", "");
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}

/* ---- MobileNetV2 (Sandler et al., CVPR 2018) ---- */

/* Append an inverted residual block: 1x1 expansion, depthwise 3x3, 1x1 projection; with a shortcut
 * if input and output have the same shape.
 *   in, out    channels
 *   expansion  channel factor; 1: no expansion */
static void inverted_residual(gp_zoo_builder *b, int number, int in, int out, int stride, gp_zoo_pace *pace,
                              int expansion)
{
    const int before = pace->dilation, taken = gp_zoo_stride(pace, stride);
    char stem[16], name[GP_NAME_MAX], from[GP_NAME_MAX], end[GP_NAME_MAX];

    snprintf(stem, sizeof(stem), "block%d", number);
    remember(from, b);
    if (expansion != 1)
        gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "expand"),
                         (gp_zoo_conv)GP_ZOO_CONV(in * expansion, 1, .end = GP_ZOO_CLIP));
    gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "depth"),
                     (gp_zoo_conv)GP_ZOO_CONV(in * expansion, 3, .stride = taken, .dilation = before,
                                              .groups = in * expansion, .end = GP_ZOO_CLIP));
    gp_zoo_conv_norm(b, NULL, gp_zoo_named(name, stem, "project"), (gp_zoo_conv)GP_ZOO_CONV(out, 1));
    remember(end, b);
    if (stride == 1 && in == out)
        meet(b, gp_zoo_named(name, stem, "sum"), "add", end, from);
}

void gp_zoo_mobilenetv2_trunk(gp_zoo_builder *b, int output_stride, gp_zoo_taps *taps)
{
    /* Columns: expansion, channels, blocks, stride of the first block. */
    static const int stages[][4] = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 },  { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
                                     { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } };
    gp_zoo_pace pace = { 2, output_stride, 1 }; /* the stem has output stride 2 */
    int channels = 32, number = 1;

    gp_zoo_conv_norm(b, NULL, "stem", (gp_zoo_conv)GP_ZOO_CONV(channels, 3, .stride = 2, .end = GP_ZOO_CLIP));
    for (size_t s = 0; s < sizeof(stages) / sizeof(stages[0]); s++)
        for (int i = 0; i < stages[s][2]; i++) {
            inverted_residual(b, number++, channels, stages[s][1], i == 0 ? stages[s][3] : 1, &pace,
                              stages[s][0]);
            channels = stages[s][1];
        }
    /* Use the layer with the most channels at this size. */
    strcpy(taps->low, "block4_expand_clip");
    remember(taps->high, b);
    taps->high_channels = channels;
}

void gp_zoo_mobilenetv2(gp_zoo_builder *b)
{
    gp_zoo_taps taps;

    gp_zoo_mobilenetv2_trunk(b, 32, &taps);
    gp_zoo_conv_norm(b, NULL, "last", (gp_zoo_conv)GP_ZOO_CONV(1280, 1, .end = GP_ZOO_CLIP));
    gp_zoo_add(b, NULL, "pool", "globalavgpool", "%s", "");
    gp_zoo_add(b, NULL, "drop", "dropout", "rate=0.2");
    gp_zoo_add(b, NULL, "fc", "fc", "outputs=%u", b->classes);
    gp_zoo_add(b, NULL, "loss", "crossentropy", "%s", "");
}
