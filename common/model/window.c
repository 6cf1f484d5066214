#include "common/model/window.h"

#include <inttypes.h>

gp_window gp_window_make(const gp_window_settings *settings, int64_t groups)
{
    gp_window window = { .groups = (int32_t)groups };

    for (int i = 0; i < 2; i++) {
        window.kernel[i] = (int32_t)settings->kernel[i];
        window.stride[i] = (int32_t)(settings->stride[i] == 0 ? settings->kernel[i] : settings->stride[i]);
        window.dilation[i] = (int32_t)(settings->dilation[i] == 0 ? 1 : settings->dilation[i]);
    }
    for (int i = 0; i < 4; i++)
        window.padding[i] = (int32_t)settings->padding[i];
    return window;
}

gp_status gp_window_output(const gp_window *window, const gp_shape *input, int64_t out[2], gp_error *err)
{
    char shape[64];
    int64_t reach[2], padded[2];

    if (window->kernel[0] == 0 || window->kernel[1] == 0)
        return gp_fail(err, GP_EINVAL, "no kernel is given; say kernel=3 or kernel=3,5 (height, width)");
    if (input->rank != 3)
        return gp_fail(err, GP_EINVAL, "its input has shape %s; it reads channels x height x width",
                       gp_shape_format(input, shape, sizeof(shape)));
    for (int i = 0; i < 2; i++) {
        reach[i] = (int64_t)window->dilation[i] * (window->kernel[i] - 1) + 1;
        padded[i] = input->dim[1 + i] + window->padding[i] + window->padding[2 + i];
        out[i] = (padded[i] - reach[i]) / window->stride[i] + 1;
    }
    if (reach[0] <= padded[0] && reach[1] <= padded[1])
        return GP_OK;
    const char *dilated = window->dilation[0] != 1 || window->dilation[1] != 1 ? " (with its dilation)" : "";

    if (padded[0] == input->dim[1] && padded[1] == input->dim[2])
        return gp_fail(err, GP_EINVAL,
                       "kernel %" PRId64 "x%" PRId64 "%s does not fit its %" PRId64 "x%" PRId64
                       " input; pad it or use a smaller kernel",
                       reach[0], reach[1], dilated, padded[0], padded[1]);
    return gp_fail(err, GP_EINVAL,
                   "kernel %" PRId64 "x%" PRId64 "%s does not fit its %" PRId64 "x%" PRId64
                   " input padded to %" PRId64 "x%" PRId64 "; pad it more or use a smaller kernel",
                   reach[0], reach[1], dilated, input->dim[1], input->dim[2], padded[0], padded[1]);
}

gp_status gp_window_check_padding(const gp_window *window, gp_error *err)
{
    for (int i = 0; i < 4; i++)
        if (window->padding[i] >= window->kernel[i % 2])
            return gp_fail(err, GP_EINVAL,
                           "padding %" PRId32 " is not below the kernel's %" PRId32
                           ": some windows would hold padding only; use at most %" PRId32,
                           window->padding[i], window->kernel[i % 2], window->kernel[i % 2] - 1);
    return GP_OK;
}
