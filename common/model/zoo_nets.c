/* zoo_nets.c -- networks of the zoo that are built by rule: blocks that repeat, branches that meet.  Layers are called as
 * the papers call their parts; parameters are counted in tests against the published numbers. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/model/zoo.h"

/* The first failure sticks. */
typedef struct zoo_builder {
    gp_netspec *spec;
    gp_status status;
    gp_error *err;
} zoo_builder;

enum { NAME_BYTES = GP_NAME_MAX };

/* A layer behind `from`, or behind the last one when that is NULL. */
__attribute__((format(printf, 5, 6))) static void add(zoo_builder *b, const char *from, const char *name,
                                                      const char *kind, const char *settings, ...)
{
    char text[160];
    va_list arguments;

    if (b->status != GP_OK)
        return;
    va_start(arguments, settings);
    vsnprintf(text, sizeof(text), settings, arguments);
    va_end(arguments);
    b->status = gp_netspec_add(b->spec, name, kind, text[0] == '\0' ? NULL : text, b->err);
    if (b->status == GP_OK && from != NULL)
        b->status = gp_netspec_connect(b->spec, &from, 1, b->err);
}

static void meet(zoo_builder *b, const char *name, const char *kind, const char *left, const char *right)
{
    add(b, NULL, name, kind, "%s", "");
    if (b->status == GP_OK)
        b->status = gp_netspec_connect(b->spec, (const char *const[]){ left, right }, 2, b->err);
}

static const char *named(char *to, const char *stem, const char *part)
{
    snprintf(to, NAME_BYTES, "%.*s_%s", NAME_BYTES / 2, stem, part); /* names here are short */
    return to;
}

/* The last layer's name. */
static const char *here(const zoo_builder *b)
{
    return b->spec->layer_count == 0 ? "input" : b->spec->layers[b->spec->layer_count - 1].name;
}

/* Convolution and batch norm: "x_conv", "x_bn". */
static void conv_norm(zoo_builder *b, const char *from, const char *stem, int channels, int kernel,
                      int stride, int groups)
{
    char name[NAME_BYTES];

    add(b, from, named(name, stem, "conv"), "conv2d",
        "channels=%d;kernel=%d;stride=%d;padding=%d;groups=%d;bias=false", channels, kernel, stride,
        kernel / 2, groups);
    add(b, NULL, named(name, stem, "bn"), "batchnorm", "%s", "");
}

/* ---- ResNet (He et al., CVPR 2016; stride in the 3x3 of a bottleneck, as its authors' successors do) ---- */

static void resnet_block(zoo_builder *b, const char *stem, bool bottleneck, int channels, int stride,
                         bool project)
{
    const int out = bottleneck ? 4 * channels : channels;
    char from[NAME_BYTES], name[NAME_BYTES], end[NAME_BYTES];

    snprintf(from, sizeof(from), "%s", here(b));
    conv_norm(b, NULL, named(name, stem, "a"), channels, bottleneck ? 1 : 3, bottleneck ? 1 : stride, 1);
    add(b, NULL, named(name, stem, "a_relu"), "relu", "%s", "");
    conv_norm(b, NULL, named(name, stem, "b"), channels, 3, bottleneck ? stride : 1, 1);
    if (bottleneck) {
        add(b, NULL, named(name, stem, "b_relu"), "relu", "%s", "");
        conv_norm(b, NULL, named(name, stem, "c"), out, 1, 1, 1);
    }
    snprintf(end, sizeof(end), "%s", here(b));
    if (project) {
        conv_norm(b, from, named(name, stem, "short"), out, 1, stride, 1);
        snprintf(from, sizeof(from), "%s", here(b));
    }
    meet(b, named(name, stem, "sum"), "add", end, from);
    add(b, NULL, named(name, stem, "relu"), "relu", "%s", "");
}

static void resnet(zoo_builder *b, const int blocks[4], bool bottleneck, uint32_t classes)
{
    char stem[32];

    conv_norm(b, NULL, "stem", 64, 7, 2, 1);
    add(b, NULL, "stem_relu", "relu", "%s", "");
    add(b, NULL, "stem_pool", "maxpool", "kernel=3;stride=2;padding=1");
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++) {
            snprintf(stem, sizeof(stem), "s%d_b%d", stage + 1, i + 1);
            resnet_block(b, stem, bottleneck, 64 << stage, stage > 0 && i == 0 ? 2 : 1,
                         i == 0 && (stage > 0 || bottleneck));
        }
    add(b, NULL, "pool", "globalavgpool", "%s", "");
    add(b, NULL, "fc", "fc", "outputs=%u", classes);
    add(b, NULL, "loss", "crossentropy", "%s", "");
}

gp_status gp_zoo_resnet(gp_netspec *spec, int depth, uint32_t classes, gp_error *err)
{
    static const int blocks[][4] = { { 2, 2, 2, 2 }, { 3, 4, 6, 3 }, { 3, 4, 23, 3 } };
    zoo_builder b = { .spec = spec, .err = err };

    resnet(&b, blocks[depth == 18 ? 0 : depth == 101 ? 2 : 1], depth >= 50, classes);
    return b.status;
}

/* ---- SqueezeNet 1.1 (Iandola et al., 2016) ---- */

static void fire(zoo_builder *b, int number, int squeeze, int expand)
{
    char stem[16], name[NAME_BYTES], middle[NAME_BYTES], left[NAME_BYTES];

    snprintf(stem, sizeof(stem), "fire%d", number);
    add(b, NULL, named(name, stem, "squeeze"), "conv2d", "channels=%d;kernel=1", squeeze);
    add(b, NULL, named(middle, stem, "squeeze_relu"), "relu", "%s", "");
    add(b, NULL, named(name, stem, "expand1"), "conv2d", "channels=%d;kernel=1", expand);
    add(b, NULL, named(left, stem, "expand1_relu"), "relu", "%s", "");
    add(b, middle, named(name, stem, "expand3"), "conv2d", "channels=%d;kernel=3;padding=1", expand);
    add(b, NULL, named(name, stem, "expand3_relu"), "relu", "%s", "");
    meet(b, stem, "concat", left, name);
}

gp_status gp_zoo_squeezenet(gp_netspec *spec, int depth, uint32_t classes, gp_error *err)
{
    zoo_builder b = { .spec = spec, .err = err };
    const char *const pool = "kernel=3;stride=2;ceil=true";

    (void)depth;
    add(&b, NULL, "conv1", "conv2d", "channels=64;kernel=3;stride=2");
    add(&b, NULL, "relu1", "relu", "%s", "");
    add(&b, NULL, "pool1", "maxpool", "%s", pool);
    fire(&b, 2, 16, 64);
    fire(&b, 3, 16, 64);
    add(&b, NULL, "pool3", "maxpool", "%s", pool);
    fire(&b, 4, 32, 128);
    fire(&b, 5, 32, 128);
    add(&b, NULL, "pool5", "maxpool", "%s", pool);
    fire(&b, 6, 48, 192);
    fire(&b, 7, 48, 192);
    fire(&b, 8, 64, 256);
    fire(&b, 9, 64, 256);
    add(&b, NULL, "drop9", "dropout", "%s", "");
    add(&b, NULL, "conv10", "conv2d", "channels=%u;kernel=1", classes);
    add(&b, NULL, "relu10", "relu", "%s", "");
    add(&b, NULL, "pool10", "globalavgpool", "%s", "");
    add(&b, NULL, "flatten", "flatten", "%s", "");
    add(&b, NULL, "loss", "crossentropy", "%s", "");
    return b.status;
}

/* ---- MobileNetV2 (Sandler et al., CVPR 2018) ---- */

static void inverted_residual(zoo_builder *b, int number, int in, int out, int stride, int expansion)
{
    char stem[16], name[NAME_BYTES], from[NAME_BYTES], end[NAME_BYTES];

    snprintf(stem, sizeof(stem), "block%d", number);
    snprintf(from, sizeof(from), "%s", here(b));
    if (expansion != 1) {
        conv_norm(b, NULL, named(name, stem, "expand"), in * expansion, 1, 1, 1);
        add(b, NULL, named(name, stem, "expand_clip"), "clip", "%s", "");
    }
    conv_norm(b, NULL, named(name, stem, "depth"), in * expansion, 3, stride, in * expansion);
    add(b, NULL, named(name, stem, "depth_clip"), "clip", "%s", "");
    conv_norm(b, NULL, named(name, stem, "project"), out, 1, 1, 1);
    snprintf(end, sizeof(end), "%s", here(b));
    if (stride == 1 && in == out)
        meet(b, named(name, stem, "sum"), "add", end, from);
}

gp_status gp_zoo_mobilenetv2(gp_netspec *spec, int depth, uint32_t classes, gp_error *err)
{
    static const int stages[][4] = { /* expansion, channels, blocks, stride of the first */
                                     { 1, 16, 1, 1 }, { 6, 24, 2, 2 },  { 6, 32, 3, 2 }, { 6, 64, 4, 2 },
                                     { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 }
    };
    zoo_builder b = { .spec = spec, .err = err };
    int channels = 32, number = 1;

    (void)depth;
    conv_norm(&b, NULL, "stem", channels, 3, 2, 1);
    add(&b, NULL, "stem_clip", "clip", "%s", "");
    for (size_t s = 0; s < sizeof(stages) / sizeof(stages[0]); s++)
        for (int i = 0; i < stages[s][2]; i++) {
            inverted_residual(&b, number++, channels, stages[s][1], i == 0 ? stages[s][3] : 1, stages[s][0]);
            channels = stages[s][1];
        }
    conv_norm(&b, NULL, "last", 1280, 1, 1, 1);
    add(&b, NULL, "last_clip", "clip", "%s", "");
    add(&b, NULL, "pool", "globalavgpool", "%s", "");
    add(&b, NULL, "drop", "dropout", "rate=0.2");
    add(&b, NULL, "fc", "fc", "outputs=%u", classes);
    add(&b, NULL, "loss", "crossentropy", "%s", "");
    return b.status;
}
