/* pooling.h -- shared code for pooling kinds: avgpool and maxpool with windows, globalavgpool
 * and globalmaxpool over the whole image. */
#ifndef GP_POOLING_H
#define GP_POOLING_H

#include "common/model/graph/graph.h"
#include "common/model/kinds/window.h"

/* Settings of avgpool and maxpool. The global kinds have none. */
typedef struct gp_pooling_settings {
    gp_window_settings window;
    bool count_padding; /* avgpool: padding counts as pixels with value 0 */
} gp_pooling_settings;

/* Table entries for the window. */
#define GP_POOLING_PARAM(text, member, ...)                                                                  \
    {                                                                                                        \
        .name = text, GP_PARAM_FIELD(gp_pooling_settings, window.member), __VA_ARGS__                        \
    }
#define GP_POOLING_PARAMS                                                                                    \
    GP_POOLING_PARAM("kernel", kernel, .min = 1, .max = GP_WINDOW_MAX, .seed_name = "PoolSize",              \
                     .torch_name = "kernel_size", .unit = "pixels", .help = "height, width"),                \
        GP_POOLING_PARAM("stride", stride, .min = 1, .max = GP_WINDOW_MAX, .seed_name = "Stride",            \
                         .torch_name = "stride", .unit = "pixels",                                           \
                         .help = "stride: height, width (default: the kernel)"),                             \
        GP_POOLING_PARAM("padding", padding, .max = GP_WINDOW_MAX, .seed_name = "Padding",                   \
                         .torch_name = "padding", .unit = "pixels",                                          \
                         .help = "padding: top, left, bottom, right"),                                       \
        GP_POOLING_PARAM("dilation", dilation, .fallback = 1, .min = 1, .max = GP_WINDOW_MAX,                \
                         .torch_name = "dilation", .unit = "pixels",                                         \
                         .help = "distance of neighboring window elements: height, width"),                  \
        GP_POOLING_PARAM("same", same, .words = gp_window_same_words, .seed_name = "Padding",                \
                         .help = "pad so that the output has ceil(input / stride) pixels: an odd pixel "     \
                                 "after (upper) or before (lower)"),                                         \
        GP_POOLING_PARAM("ceil", ceil, .torch_name = "ceil_mode",                                            \
                         .help = "include a last window that exceeds the input")

/* Set the output shape. GP_EINVAL: the input is not [C, H, W], or exceeds the maximum window size
 * of a global pooling. */
gp_status gp_pooling_infer(gp_infer *infer, gp_error *err);

/* Set the window of an op. Training saves the position of each maximum for the backward pass;
 * inference does not. */
gp_status gp_pooling_prepare(gp_lowering *lowering, gp_op *op, gp_error *err);

#endif
