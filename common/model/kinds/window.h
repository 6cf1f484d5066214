/* window.h -- the settings that convolution and pooling share, and where a window lands. */
#ifndef GP_WINDOW_H
#define GP_WINDOW_H

#include "common/base/error.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/op.h"

enum { GP_WINDOW_MAX = 4096 }; /* of each number in a window */

/* As a settings struct holds it: parameters are int64. */
typedef struct gp_window_settings {
    int64_t kernel[2], stride[2], dilation[2], padding[4];
    int same;  /* gp_window_same */
    bool ceil; /* pooling only: a last window that is not all there counts too */
} gp_window_settings;

/* Padding that makes the output ceil(input / stride): an odd pixel stands behind or before the input. */
typedef enum gp_window_same {
    GP_WINDOW_SAME_NONE,
    GP_WINDOW_SAME_UPPER,
    GP_WINDOW_SAME_LOWER
} gp_window_same;
extern const char *const gp_window_same_words[];

/* gp_window_resolve -- the window over an input [C, H, W], and height and width of the output:
 * floor((padded - reach) / stride) + 1.  Zero strides and dilations mean the kernel (pooling) and 1; "same" and "ceil"
 * become padding.  With ceil, a window must begin before the end of the input (as in PyTorch and ONNX).
 * GP_EINVAL: the kernel is not given, the input is not [C, H, W], the kernel does not fit, or padding is said twice. */
gp_status gp_window_resolve(gp_window *window, int64_t out[2], const gp_window_settings *settings,
                            int64_t groups, const gp_shape *input, gp_error *err);

/* For pooling: every window must hold at least one pixel that is not padding. */
gp_status gp_window_check_padding(const gp_window *window, const gp_shape *input, const int64_t out[2],
                                  gp_error *err);

#endif
