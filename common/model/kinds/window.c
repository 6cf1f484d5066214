#include "common/model/kinds/window.h"

#include <inttypes.h>

#include "common/model/kinds/wiring.h"

const char *const gp_window_same_words[] = { "none", "upper", "lower", NULL };

/* Return the number of pixels from the first to the last tap of a window along one axis. */
static int64_t window_reach(const gp_window *window, int axis)
{
    return (int64_t)window->dilation[axis] * (window->kernel[axis] - 1) + 1;
}

static void window_pad_same(gp_window *window, int axis, int64_t size, bool before)
{
    int64_t outputs = (size + window->stride[axis] - 1) / window->stride[axis];
    int64_t wanted = (outputs - 1) * window->stride[axis] + window_reach(window, axis) - size;
    int64_t all = wanted > 0 ? wanted : 0, half = all / 2;

    window->padding[axis] = (int32_t)(before ? all - half : half);
    window->padding[axis + 2] = (int32_t)(all - window->padding[axis]);
}

/* Add padding after the input for the window that rounding down would drop, if it starts before
 * the end of the input. */
static void window_pad_ceil(gp_window *window, int axis, int64_t size)
{
    int64_t padded = size + window->padding[axis] + window->padding[axis + 2];
    int64_t stride = window->stride[axis], rest = padded - window_reach(window, axis);

    if (rest <= 0 || rest % stride == 0 || (rest / stride + 1) * stride >= size + window->padding[axis])
        return;
    window->padding[axis + 2] += (int32_t)(stride - rest % stride);
}

static gp_status window_output(const gp_window *window, const gp_shape *input, int64_t out[2], gp_error *err)
{
    int64_t reach[2], padded[2];

    for (int i = 0; i < 2; i++) {
        reach[i] = window_reach(window, i);
        padded[i] = input->dim[1 + i] + window->padding[i] + window->padding[2 + i];
        out[i] = (padded[i] - reach[i]) / window->stride[i] + 1;
    }
    if (reach[0] <= padded[0] && reach[1] <= padded[1])
        return GP_OK;
    const char *dilated = window->dilation[0] != 1 || window->dilation[1] != 1 ? " (with its dilation)" : "";

    if (padded[0] == input->dim[1] && padded[1] == input->dim[2])
        return gp_fail(err, GP_EINVAL,
                       "kernel %" PRId64 "x%" PRId64 "%s is larger than the input of %" PRId64 "x%" PRId64
                       "; add padding or use a smaller kernel",
                       reach[0], reach[1], dilated, padded[0], padded[1]);
    return gp_fail(err, GP_EINVAL,
                   "kernel %" PRId64 "x%" PRId64 "%s is larger than the input of %" PRId64 "x%" PRId64
                   ", padded to %" PRId64 "x%" PRId64 "; add padding or use a smaller kernel",
                   reach[0], reach[1], dilated, input->dim[1], input->dim[2], padded[0], padded[1]);
}

gp_status gp_window_resolve(gp_window *window, int64_t out[2], const gp_window_settings *settings,
                            int64_t groups, const gp_shape *input, gp_error *err)
{
    if (settings->kernel[0] == 0 || settings->kernel[1] == 0)
        return gp_fail(err, GP_EINVAL, "kernel is missing; set kernel=3 or kernel=3,5 (height, width)");
    if (gp_wire_check_image(input, err) != GP_OK)
        return GP_EINVAL;
    *window = (gp_window){ .groups = (int32_t)groups };
    for (int i = 0; i < 4; i++) {
        window->padding[i] = (int32_t)settings->padding[i];
        if (settings->padding[i] != 0 && settings->same != GP_WINDOW_SAME_NONE)
            return gp_fail(err, GP_EINVAL,
                           "same=%s cannot be combined with a padding of %" PRId64 "; remove one",
                           gp_window_same_words[settings->same], settings->padding[i]);
    }
    for (int i = 0; i < 2; i++) {
        window->kernel[i] = (int32_t)settings->kernel[i];
        window->stride[i] = (int32_t)(settings->stride[i] == 0 ? settings->kernel[i] : settings->stride[i]);
        window->dilation[i] = (int32_t)(settings->dilation[i] == 0 ? 1 : settings->dilation[i]);
        if (settings->same != GP_WINDOW_SAME_NONE)
            window_pad_same(window, i, input->dim[1 + i], settings->same == GP_WINDOW_SAME_LOWER);
        if (settings->ceil)
            window_pad_ceil(window, i, input->dim[1 + i]);
    }
    return window_output(window, input, out, err);
}

/* Return whether the window of output o has a tap in the input, along one axis. */
static bool window_sees(const gp_window *window, int axis, int64_t o, int64_t size)
{
    int64_t dilation = window->dilation[axis], first = o * window->stride[axis] - window->padding[axis];

    /* number of taps before the input */
    int64_t skipped = first < 0 ? (-first + dilation - 1) / dilation : 0;

    return skipped < window->kernel[axis] && first + skipped * dilation < size;
}

/* Return whether all windows have a tap in the input, along one axis. Only windows that extend
 * beyond the input can miss it, so only these are checked. */
static bool windows_see(const gp_window *window, int axis, int64_t outputs, int64_t size)
{
    const int64_t stride = window->stride[axis], padding = window->padding[axis];
    bool see = true;

    for (int64_t o = 0; o < outputs && o * stride < padding && see; o++)
        see = window_sees(window, axis, o, size);
    for (int64_t o = outputs - 1; o >= 0 && o * stride - padding + window_reach(window, axis) > size && see;
         o--)
        see = window_sees(window, axis, o, size);
    return see;
}

gp_status gp_window_check_padding(const gp_window *window, const gp_shape *input, const int64_t out[2],
                                  gp_error *err)
{
    for (int i = 0; i < 4; i++)
        if (window->padding[i] >= window->kernel[i % 2] && window->dilation[i % 2] == 1)
            return gp_fail(err, GP_EINVAL,
                           "padding %" PRId32 " must be less than the kernel size %" PRId32
                           ", otherwise some windows contain only padding; use at most %" PRId32,
                           window->padding[i], window->kernel[i % 2], window->kernel[i % 2] - 1);
    for (int i = 0; i < 2; i++)
        if (!windows_see(window, i, out[i], input->dim[1 + i]))
            return gp_fail(
                err, GP_EINVAL,
                "padding %" PRId32 " and %" PRId32 " with dilation %" PRId32
                " is too large: some windows would contain only padding; reduce padding or dilation",
                window->padding[i], window->padding[i + 2], window->dilation[i]);
    return GP_OK;
}
