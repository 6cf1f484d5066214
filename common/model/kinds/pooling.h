/* pooling.h -- shared code for pooling kinds: avgpool and maxpool with windows, globalavgpool
 * and globalmaxpool over the whole image. */
#ifndef GP_POOLING_H
#define GP_POOLING_H

#include "common/model/graph/graph.h"
#include "common/model/kinds/window.h"

/* Define the window parameters of a pooling kind. settings: its settings type, with a
 * gp_window_settings member `window`. */
#define GP_POOLING_PARAMS(settings)                                                                          \
    { "kernel",                                                                                              \
      NULL,                                                                                                  \
      GP_PARAM_I64,                                                                                          \
      offsetof(settings, window.kernel),                                                                     \
      .count = 2,                                                                                            \
      .min = 1,                                                                                              \
      .max = GP_WINDOW_MAX,                                                                                  \
      .seed_name = "PoolSize",                                                                               \
      .torch_name = "kernel_size",                                                                           \
      .unit = "pixels",                                                                                      \
      .help = "height, width" },                                                                             \
        { "stride",                                                                                          \
          NULL,                                                                                              \
          GP_PARAM_I64,                                                                                      \
          offsetof(settings, window.stride),                                                                 \
          .count = 2,                                                                                        \
          .min = 1,                                                                                          \
          .max = GP_WINDOW_MAX,                                                                              \
          .seed_name = "Stride",                                                                             \
          .torch_name = "stride",                                                                            \
          .unit = "pixels",                                                                                  \
          .help = "step between windows: height, width (default: the kernel)" },                             \
        { "padding",                                                                                         \
          NULL,                                                                                              \
          GP_PARAM_I64,                                                                                      \
          offsetof(settings, window.padding),                                                                \
          .count = 4,                                                                                        \
          .max = GP_WINDOW_MAX,                                                                              \
          .seed_name = "Padding",                                                                            \
          .torch_name = "padding",                                                                           \
          .unit = "pixels",                                                                                  \
          .help = "around the input: top, left, bottom, right" },                                            \
        { "dilation",                                                                                        \
          NULL,                                                                                              \
          GP_PARAM_I64,                                                                                      \
          offsetof(settings, window.dilation),                                                               \
          .count = 2,                                                                                        \
          .fallback = 1,                                                                                     \
          .min = 1,                                                                                          \
          .max = GP_WINDOW_MAX,                                                                              \
          .torch_name = "dilation",                                                                          \
          .unit = "pixels",                                                                                  \
          .help = "distance of neighbouring taps: height, width" },                                          \
        { "same",                                                                                            \
          NULL,                                                                                              \
          GP_PARAM_WORD,                                                                                     \
          offsetof(settings, window.same),                                                                   \
          .words = gp_window_same_words,                                                                     \
          .seed_name = "Padding",                                                                            \
          .help = "pad so that the output is ceil(input / stride): an odd pixel behind (upper) or before "   \
                  "(lower)" },                                                                               \
    {                                                                                                        \
        "ceil", NULL, GP_PARAM_BOOL, offsetof(settings, window.ceil),                                        \
            .torch_name = "ceil_mode",                                                                       \
            .help = "also take a last window that reaches over the end of the input"                         \
    }

/* Set the output shape of a pooling with windows, and resolve *window. */
gp_status gp_pooling_infer(gp_infer *infer, const gp_window_settings *settings, gp_window *window,
                           gp_error *err);

/* Emit the forward or backward op. settings NULL: the window is the whole input, [C, H, W]. */
gp_status gp_pooling_forward(gp_lowering *lowering, gp_pool_kind pool, const gp_window_settings *settings,
                             gp_error *err);
gp_status gp_pooling_backward(gp_lowering *lowering, gp_pool_kind pool, const gp_window_settings *settings,
                              gp_error *err);

/* Set the output shape of a global pooling. GP_EINVAL: the input is not [C, H, W], or exceeds
 * the maximum window size. */
gp_status gp_pooling_global_infer(gp_infer *infer, gp_error *err);

#endif
