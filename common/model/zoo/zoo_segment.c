/* Build networks that classify each pixel: DeepLab v3+ and U-Net. Both use cross-entropy per
 * pixel. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "common/model/zoo/zoo.h"

/* ---- DeepLab v3+ (Chen et al., ECCV 2018) ---- */

/* Classifiers that can be the backbone, in the order of `backbones`. */
typedef enum deeplab_backbone {
    BACKBONE_RESNET18,
    BACKBONE_RESNET50,
    BACKBONE_MOBILENETV2,
    BACKBONE_INCEPTIONRESNETV2
} deeplab_backbone;

typedef struct deeplab_settings {
    int backbone, output_stride; /* deeplab_backbone; index in output_strides */
    bool image_pooling;          /* add a branch with the mean of the image */
} deeplab_settings;

static const char *const backbones[] = { "resnet18", "resnet50", "mobilenetv2", "inceptionresnetv2", NULL };
static const char *const output_strides[] = { "8", "16", NULL };

const gp_param gp_zoo_deeplabv3plus_settings[] = {
    { "backbone", NULL, GP_PARAM_WORD, offsetof(deeplab_settings, backbone), .words = backbones,
      .seed_name = "network", .help = "network that the backbone is taken from" },
    { "output-stride", NULL, GP_PARAM_WORD, offsetof(deeplab_settings, output_stride),
      .words = output_strides, .fallback = 1, .seed_name = "DownsamplingFactor",
      .help = "ratio of input size to backbone output size" },
    { "image-pooling", NULL, GP_PARAM_BOOL, offsetof(deeplab_settings, image_pooling),
      .help =
          "add a fifth branch to the pyramid: the mean of the image, as in the paper and in torchvision" },
    { 0 },
};

/* channels after the pyramid and of low-level features */
enum { PYRAMID_CHANNELS = 256, LOW_CHANNELS = 48 };

/* Append a 3x3 convolution of the pyramid or decoder; with the MobileNetV2 backbone, a depthwise
 * and a pointwise convolution.
 *   from  layer to read; NULL: the previous layer
 *   in    channels of that layer */
static void deeplab_conv(gp_zoo_builder *b, const char *from, const char *stem, int in, int dilation)
{
    char name[GP_NAME_MAX];

    if (((const deeplab_settings *)b->settings)->backbone != BACKBONE_MOBILENETV2) {
        gp_zoo_conv_norm(
            b, from, stem,
            (gp_zoo_conv)GP_ZOO_CONV(PYRAMID_CHANNELS, 3, .dilation = dilation, .end = GP_ZOO_RELU));
        return;
    }
    gp_zoo_add(b, from, gp_zoo_named(name, stem, "depth"), "conv2d",
               "channels=%d;kernel=3;dilation=%d;padding=%d;groups=%d;bias=false", in, dilation, dilation,
               in);
    gp_zoo_conv_norm(b, NULL, stem, (gp_zoo_conv)GP_ZOO_CONV(PYRAMID_CHANNELS, 1, .end = GP_ZOO_RELU));
}

/* Append a resize to the input size divided by `shrunk`, rounded up. */
static void deeplab_resize(gp_zoo_builder *b, const char *name, int64_t shrunk)
{
    const gp_shape *input = &b->spec->input;

    gp_zoo_add(b, NULL, name, "resize", "size=%" PRId64 ",%" PRId64 ";mode=bilinear",
               (input->dim[1] + shrunk - 1) / shrunk, (input->dim[2] + shrunk - 1) / shrunk);
}

/* Append atrous spatial pyramid pooling: four convolutions with different dilations, which read the
 * backbone's output, and optionally the mean of that output. */
static void deeplab_pyramid(gp_zoo_builder *b, const gp_zoo_taps *taps, int output_stride, bool image_pooling)
{
    static const char *const inputs[] = { "aspp1_relu", "aspp2_relu", "aspp3_relu", "aspp4_relu",
                                          "aspp_image" };
    char stem[GP_ZOO_STEM_MAX];

    gp_zoo_conv_norm(b, taps->high, "aspp1",
                     (gp_zoo_conv)GP_ZOO_CONV(PYRAMID_CHANNELS, 1, .end = GP_ZOO_RELU));
    for (int i = 1; i < 4; i++) {
        snprintf(stem, sizeof(stem), "aspp%d", i + 1);
        deeplab_conv(b, taps->high, stem, taps->high_channels, i * 6 * (16 / output_stride));
    }
    if (image_pooling) {
        gp_zoo_add(b, taps->high, "aspp5_mean", "globalavgpool", "%s", "");
        gp_zoo_conv_norm(b, NULL, "aspp5", (gp_zoo_conv)GP_ZOO_CONV(PYRAMID_CHANNELS, 1, .end = GP_ZOO_RELU));
        deeplab_resize(b, "aspp_image", output_stride);
    }
    gp_zoo_meet(b, "aspp", "concat", inputs, image_pooling ? 5 : 4);
    gp_zoo_conv_norm(b, NULL, "project", (gp_zoo_conv)GP_ZOO_CONV(PYRAMID_CHANNELS, 1, .end = GP_ZOO_RELU));
}

void gp_zoo_deeplabv3plus(gp_zoo_builder *b)
{
    const deeplab_settings *settings = b->settings;
    const int output_stride = settings->output_stride == 0 ? 8 : 16;
    gp_zoo_taps taps = { "", "", 0 };

    switch ((deeplab_backbone)settings->backbone) {
    case BACKBONE_RESNET18:
    case BACKBONE_RESNET50:
        gp_zoo_resnet_trunk(b, settings->backbone == BACKBONE_RESNET18 ? 18 : 50, output_stride, &taps);
        break;
    case BACKBONE_MOBILENETV2:
        gp_zoo_mobilenetv2_trunk(b, output_stride, &taps);
        break;
    case BACKBONE_INCEPTIONRESNETV2:
        gp_zoo_inceptionresnetv2_trunk(b, true, output_stride, &taps);
        break;
    }
    deeplab_pyramid(b, &taps, output_stride, settings->image_pooling);
    deeplab_resize(b, "up1", 4);
    gp_zoo_conv_norm(b, taps.low, "low", (gp_zoo_conv)GP_ZOO_CONV(LOW_CHANNELS, 1, .end = GP_ZOO_RELU));
    gp_zoo_meet(b, "decode", "concat", (const char *const[]){ "low_relu", "up1" }, 2);
    deeplab_conv(b, NULL, "decode1", PYRAMID_CHANNELS + LOW_CHANNELS, 1);
    deeplab_conv(b, NULL, "decode2", PYRAMID_CHANNELS, 1);
    gp_zoo_add(b, NULL, "scorer", "conv2d", "channels=%u;kernel=1", b->classes);
    deeplab_resize(b, "up2", 1);
    gp_zoo_add(b, NULL, "loss", "pixelclassification", "%s", "");
}

/* ---- U-Net (Ronneberger et al., MICCAI 2015), padded so that every pixel has scores ---- */

/* Limits for the settings. */
enum { UNET_DEPTH_MAX = 8, UNET_WIDTH_MAX = 512 };

/* Settings, described in gp_zoo_unet_settings. */
typedef struct unet_settings {
    int64_t depth, width;
    double dropout;
    bool batch_norm;
} unet_settings;

const gp_param gp_zoo_unet_settings[] = {
    { "depth", NULL, GP_PARAM_I64, offsetof(unet_settings, depth), .fallback = 4, .min = 1,
      .max = UNET_DEPTH_MAX, .seed_name = "EncoderDepth",
      .help = "number of times that the image size is halved" },
    { "width", NULL, GP_PARAM_I64, offsetof(unet_settings, width), .fallback = 64, .min = 1,
      .max = UNET_WIDTH_MAX, .seed_name = "NumFirstEncoderFilters",
      .help = "channels of the first level; each further level has twice as many" },
    { "dropout", NULL, GP_PARAM_F64, offsetof(unet_settings, dropout), .fallback = 0.5, .max = 0.95,
      .help = "fraction of values set to zero after the two lowest levels" },
    { "batch-norm", NULL, GP_PARAM_BOOL, offsetof(unet_settings, batch_norm),
      .help = "add a batch norm after each convolution, which then has no bias" },
    { 0 },
};

/* Append two convolutions with ReLU, "stem_a" and "stem_b". */
static void unet_double(gp_zoo_builder *b, const char *stem, int channels)
{
    char name[GP_NAME_MAX], part[GP_NAME_MAX];

    for (char which = 'a'; which <= 'b'; which++) {
        gp_zoo_named(part, stem, (const char[]){ which, '\0' });
        if (((const unet_settings *)b->settings)->batch_norm) {
            gp_zoo_conv_norm(b, NULL, part, (gp_zoo_conv)GP_ZOO_CONV(channels, 3, .end = GP_ZOO_RELU));
            continue;
        }
        gp_zoo_add(b, NULL, gp_zoo_named(name, part, "conv"), "conv2d", "channels=%d;kernel=3;padding=1",
                   channels);
        gp_zoo_add(b, NULL, gp_zoo_named(name, part, "relu"), "relu", "%s", "");
    }
}

void gp_zoo_unet(gp_zoo_builder *b)
{
    const unet_settings *settings = b->settings;
    const int depth = (int)settings->depth, width = (int)settings->width;
    char stem[GP_ZOO_STEM_MAX], name[GP_NAME_MAX], skips[UNET_DEPTH_MAX][GP_NAME_MAX];

    const int64_t *dim = b->spec->input.dim, multiple = 1LL << depth;

    /* otherwise the sizes of skip connections would differ after upsampling */
    if (dim[1] % multiple != 0 || dim[2] % multiple != 0)
        b->status = gp_fail(b->err, GP_EINVAL,
                            "a U-Net that halves its input %d times needs a height and width that are "
                            "multiples of %" PRId64 ", but they are %" PRId64 " and %" PRId64
                            "; use another depth or size",
                            depth, multiple, dim[1], dim[2]);
    for (int level = 0; level <= depth; level++) {
        snprintf(stem, sizeof(stem), level < depth ? "down%d" : "bridge", level + 1);
        unet_double(b, stem, width << level);
        if (level >= depth - 1 && settings->dropout > 0)
            gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "drop"), "dropout", "rate=%g", settings->dropout);
        if (level == depth)
            break;
        snprintf(skips[level], GP_NAME_MAX, "%s", gp_zoo_here(b));
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "pool"), "maxpool", "kernel=2");
    }
    for (int level = depth - 1; level >= 0; level--) {
        snprintf(stem, sizeof(stem), "up%d", level + 1);
        gp_zoo_add(b, NULL, gp_zoo_named(name, stem, "conv"), "transconv2d", "channels=%d;kernel=2;stride=2",
                   width << level);
        gp_zoo_meet(b, stem, "concat", (const char *const[]){ skips[level], name }, 2);
        unet_double(b, stem, width << level);
    }
    gp_zoo_add(b, NULL, "scorer", "conv2d", "channels=%u;kernel=1", b->classes);
    gp_zoo_add(b, NULL, "loss", "pixelclassification", "%s", "");
}
