/* zoo.h -- within the zoo: what a builder is given, and the blocks that networks are built of.
 *
 * A builder appends the layers of a network to an empty netspec.  The first failure sticks in the builder, so a network
 * reads as the list of its layers. */
#ifndef GP_ZOO_H
#define GP_ZOO_H

#include "common/model/graph/netspec.h"

enum { GP_ZOO_STEM_MAX = GP_NAME_MAX / 2 };

typedef struct gp_zoo_builder {
    gp_netspec *spec;
    uint32_t classes;
    int depth;            /* of the networks that come in several */
    const void *settings; /* the network's struct, filled from its table */
    gp_status status;     /* of the first layer that failed */
    gp_error *err;
} gp_zoo_builder;

/* A layer behind `from`, or behind the last one when that is NULL; its settings by a printf format. */
void gp_zoo_add(gp_zoo_builder *b, const char *from, const char *name, const char *kind, const char *settings,
                ...) __attribute__((format(printf, 5, 6)));

/* A layer that reads several. */
void gp_zoo_meet(gp_zoo_builder *b, const char *name, const char *kind, const char *const *inputs,
                 size_t count);

/* "stem_part" into to (GP_NAME_MAX bytes), which is returned. */
const char *gp_zoo_named(char *to, const char *stem, const char *part);

/* The last layer's name. */
const char *gp_zoo_here(const gp_zoo_builder *b);

typedef enum gp_zoo_end { GP_ZOO_PLAIN, GP_ZOO_RELU, GP_ZOO_CLIP } gp_zoo_end;

/* Convolution, batch norm and activation: "stem_conv", "stem_bn", "stem_relu" or "stem_clip". */
typedef struct gp_zoo_conv {
    int channels;
    int height, width;            /* of the window; a width of 0 is the height */
    int stride, dilation, groups; /* 0 = 1 */
    bool valid;                   /* no padding; else so much that stride 1 keeps the size */
    double epsilon;               /* of the batch norm; 0 = its default */
    gp_zoo_end end;
} gp_zoo_conv;
#define GP_ZOO_CONV(count, size, ...)                                                                        \
    {                                                                                                        \
        .channels = (count), .height = (size), __VA_ARGS__                                                   \
    }
void gp_zoo_conv_norm(gp_zoo_builder *b, const char *from, const char *stem, gp_zoo_conv conv);

/* How far a network has shrunk its input.  Beyond `limit` strides become dilations of what follows (Chen et al.,
 * "Rethinking atrous convolution", 2017), so that a classifier turns into the trunk of a segmentation. */
typedef struct gp_zoo_pace {
    int stride, limit, dilation;
} gp_zoo_pace;

/* The stride that a layer takes in place of `stride`; the layer itself is dilated as before. */
int gp_zoo_stride(gp_zoo_pace *pace, int stride);

/* Where a segmentation taps a trunk: at a quarter of the input's size, and at its end. */
typedef struct gp_zoo_taps {
    char low[GP_NAME_MAX], high[GP_NAME_MAX];
    int high_channels;
} gp_zoo_taps;

/* Trunks without their classifiers.  output_stride: 8, 16 or 32. */
void gp_zoo_resnet_trunk(gp_zoo_builder *b, int depth, int output_stride, gp_zoo_taps *taps);
void gp_zoo_mobilenetv2_trunk(gp_zoo_builder *b, int output_stride, gp_zoo_taps *taps);
/* same: pad, so that each stride halves rounding up; without it as published, for 299 x 299. */
void gp_zoo_inceptionresnetv2_trunk(gp_zoo_builder *b, bool same, int output_stride, gp_zoo_taps *taps);

/* Builders, and the tables of their settings (NULL where there are none). */
void gp_zoo_resnet(gp_zoo_builder *b); /* depth: 18, 34, 50 or 101 */
void gp_zoo_squeezenet(gp_zoo_builder *b);
void gp_zoo_mobilenetv2(gp_zoo_builder *b);
void gp_zoo_googlenet(gp_zoo_builder *b);
void gp_zoo_inceptionresnetv2(gp_zoo_builder *b);
void gp_zoo_deeplabv3plus(gp_zoo_builder *b);
void gp_zoo_unet(gp_zoo_builder *b);
enum { GP_ZOO_SETTINGS_BYTES = 128 }; /* room for any network's settings */
extern const gp_param gp_zoo_googlenet_settings[], gp_zoo_deeplabv3plus_settings[], gp_zoo_unet_settings[];

#endif
