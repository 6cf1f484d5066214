/* window.h -- window settings shared by convolution and pooling, and their resolution for an
 * input. */
#ifndef GP_WINDOW_H
#define GP_WINDOW_H

#include "common/base/error.h"
#include "common/base/memory/tensor.h"
#include "common/model/graph/op.h"

enum { GP_WINDOW_MAX = 4096 }; /* limit for each number in a window */

/* Window settings as parsed; parameters are int64. */
typedef struct gp_window_settings {
    int64_t kernel[2], stride[2], dilation[2], padding[4];
    int same;  /* gp_window_same */
    bool ceil; /* pooling only: include a last window that extends beyond the input */
} gp_window_settings;

/* Padding that makes the output size ceil(input / stride). UPPER, LOWER: an odd pixel is added
 * behind or before the input. */
typedef enum gp_window_same {
    GP_WINDOW_SAME_NONE,
    GP_WINDOW_SAME_UPPER,
    GP_WINDOW_SAME_LOWER
} gp_window_same;
extern const char *const gp_window_same_words[];

/* Resolve the window for an input [C, H, W] and return the output height and width,
 * floor((padded - reach) / stride) + 1. A zero stride means the kernel size (pooling), a zero
 * dilation means 1. "same" and "ceil" are converted to padding. With ceil, a window must start
 * before the end of the input (as in PyTorch and ONNX). GP_EINVAL: the kernel is missing or does
 * not fit, the input is not [C, H, W], or padding is specified twice. */
gp_status gp_window_resolve(gp_window *window, int64_t out[2], const gp_window_settings *settings,
                            int64_t groups, const gp_shape *input, gp_error *err);

/* Check for pooling that every window contains at least one pixel that is not padding. */
gp_status gp_window_check_padding(const gp_window *window, const gp_shape *input, const int64_t out[2],
                                  gp_error *err);

#endif
