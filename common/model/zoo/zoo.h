/* Internal interface of the network zoo: builder state, and building blocks shared by the networks.
 *
 * A builder function appends layers to an empty netspec. The first error is stored in the builder,
 * and further calls do nothing. Builder functions therefore need no error checks and read like
 * layer lists. */
#ifndef GP_ZOO_H
#define GP_ZOO_H

#include "common/model/graph/netspec.h"

/* longest stem of a layer name; gp_zoo_named() cuts longer ones */
enum { GP_ZOO_STEM_MAX = GP_NAME_MAX / 2 };

/* Builder of a network. */
typedef struct gp_zoo_builder {
    gp_netspec *spec; /* network under construction */
    uint32_t classes;
    int depth;            /* variant, for networks that exist in several depths */
    const void *settings; /* the network's settings struct */
    gp_status status;     /* first error */
    gp_error *err;        /* message for the first error */
} gp_zoo_builder;

/* Append a layer.
 *   from      layer to read; NULL: the previous layer
 *   settings  printf format for "name=value;..."; the result may be "" */
void gp_zoo_add(gp_zoo_builder *b, const char *from, const char *name, const char *kind, const char *settings,
                ...) __attribute__((format(printf, 5, 6)));

/* Append a layer that reads several layers. */
void gp_zoo_meet(gp_zoo_builder *b, const char *name, const char *kind, const char *const *inputs,
                 size_t count);

/* Write "stem_part" to `to`, which has GP_NAME_MAX bytes. Return `to`. */
const char *gp_zoo_named(char *to, const char *stem, const char *part);

/* Return the last layer's name; "input" before the first layer. */
const char *gp_zoo_here(const gp_zoo_builder *b);

/* Activation after a convolution. */
typedef enum gp_zoo_end { GP_ZOO_PLAIN, GP_ZOO_RELU, GP_ZOO_CLIP } gp_zoo_end;

/* A convolution followed by batch norm and activation. Layer names are "stem_conv", "stem_bn" and
 * "stem_relu" or "stem_clip". */
typedef struct gp_zoo_conv {
    int channels;
    int height, width;            /* window size; width 0: same as height */
    int stride, dilation, groups; /* 0 means 1 */
    bool valid;                   /* no padding; false: padding that keeps the size at stride 1 */
    double epsilon;               /* for batch norm; 0: default */
    gp_zoo_end end;
} gp_zoo_conv;

/* Initialize a gp_zoo_conv: channels, window height, and further fields by name. */
#define GP_ZOO_CONV(count, size, ...)                                                                        \
    {                                                                                                        \
        .channels = (count), .height = (size), __VA_ARGS__                                                   \
    }

/* Append a convolution with batch norm and activation.
 *   from  layer to read; NULL: the previous layer
 *   stem  prefix for layer names */
void gp_zoo_conv_norm(gp_zoo_builder *b, const char *from, const char *stem, gp_zoo_conv conv);

/* Tracks the output stride (input size / current size). Beyond `limit`, strides are converted to
 * dilations of the following layers (Chen et al., "Rethinking atrous convolution", 2017). This
 * turns a classifier into a segmentation backbone. */
typedef struct gp_zoo_pace {
    int stride, limit, dilation; /* current output stride; its maximum; current dilation */
} gp_zoo_pace;

/* Return the stride to use instead of `stride`: either the same, or 1. In the second case
 * `dilation` grows for all later layers; the current layer uses the previous dilation. */
int gp_zoo_stride(gp_zoo_pace *pace, int stride);

/* Backbone layers that a segmentation network reads. */
typedef struct gp_zoo_taps {
    /* layers at 1/4 of the input size, and at the end of the backbone */
    char low[GP_NAME_MAX], high[GP_NAME_MAX];
    int high_channels;
} gp_zoo_taps;

/* Append a backbone: a classification network without its last layers.
 *   output_stride  8, 16 or 32
 *   taps           set to the layers for segmentation */
void gp_zoo_resnet_trunk(gp_zoo_builder *b, int depth, int output_stride, gp_zoo_taps *taps);
void gp_zoo_mobilenetv2_trunk(gp_zoo_builder *b, int output_stride, gp_zoo_taps *taps);

/* Append the Inception-ResNet-v2 backbone. Parameters as above, and:
 *   same  true: pad so that each stride halves the size, rounded up;
 *         false: pad as in the paper, for inputs of 299 x 299 */
void gp_zoo_inceptionresnetv2_trunk(gp_zoo_builder *b, bool same, int output_stride, gp_zoo_taps *taps);

/* Builder functions. Some networks have a settings table. */
void gp_zoo_resnet(gp_zoo_builder *b); /* depth: 18, 34, 50 or 101 */
void gp_zoo_squeezenet(gp_zoo_builder *b);
void gp_zoo_mobilenetv2(gp_zoo_builder *b);
void gp_zoo_googlenet(gp_zoo_builder *b);
void gp_zoo_inceptionresnetv2(gp_zoo_builder *b);
void gp_zoo_deeplabv3plus(gp_zoo_builder *b);
void gp_zoo_unet(gp_zoo_builder *b);
enum { GP_ZOO_SETTINGS_BYTES = 128 }; /* large enough for every network's settings struct */
extern const gp_param gp_zoo_googlenet_settings[], gp_zoo_deeplabv3plus_settings[], gp_zoo_unet_settings[];

#endif
