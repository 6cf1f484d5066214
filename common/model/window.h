/* window.h -- the settings that convolution and pooling share, and where a window lands. */
#ifndef GP_WINDOW_H
#define GP_WINDOW_H

#include "common/base/error.h"
#include "common/base/tensor.h"
#include "common/model/op.h"

enum { GP_WINDOW_MAX = 4096 }; /* of each number in a window */

/* As a settings struct holds it: parameters are int64. */
typedef struct gp_window_settings {
    int64_t kernel[2], stride[2], dilation[2], padding[4];
} gp_window_settings;

/* The window of an op; zero strides and dilations mean the kernel (pooling) and 1. */
gp_window gp_window_make(const gp_window_settings *settings, int64_t groups);

/* Height and width of the output over an input [C, H, W]: floor((padded - reach) / stride) + 1.
 * GP_EINVAL: the kernel is not given, the input is not [C, H, W], or the kernel does not fit. */
gp_status gp_window_output(const gp_window *window, const gp_shape *input, int64_t out[2], gp_error *err);

/* For pooling: every window must hold at least one pixel that is not padding. */
gp_status gp_window_check_padding(const gp_window *window, gp_error *err);

#endif
