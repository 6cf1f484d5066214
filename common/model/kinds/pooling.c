#include "common/model/kinds/pooling.h"

/* Resolve the window of a pooling. Without settings, it is the whole input. */
static gp_status pooling_window(gp_window *window, int64_t out[2], const gp_kind *kind, const void *settings,
                                const gp_shape *input, gp_error *err)
{
    gp_window_settings whole = { .kernel = { 1, 1 } };

    for (uint32_t i = 1; i < input->rank && i < 3 && kind->settings_bytes == 0; i++) {
        if (input->dim[i] > GP_WINDOW_MAX)
            return gp_fail(err, GP_EINVAL,
                           "its input has %lld pixels along an axis, at most %d are supported",
                           (long long)input->dim[i], GP_WINDOW_MAX);
        whole.kernel[i - 1] = input->dim[i];
    }
    return gp_window_resolve(window, out, kind->settings_bytes == 0 ? &whole : settings, 1, input, err);
}

gp_status gp_pooling_infer(gp_infer *infer, gp_error *err)
{
    const gp_pooling_settings *settings = infer->settings;
    const gp_shape *input = &infer->inputs[0];
    gp_window window;
    int64_t out[2];
    gp_status status = pooling_window(&window, out, infer->kind, settings, input, err);

    if (status == GP_OK)
        status = gp_window_check_padding(&window, input, out, err);
    if (status != GP_OK)
        return status;
    infer->output = gp_shape3(input->dim[0], out[0], out[1]);
    if (infer->kind->settings_bytes != 0 && settings->window.ceil && settings->count_padding &&
        (window.padding[2] != settings->window.padding[2] ||
         window.padding[3] != settings->window.padding[3]))
        return gp_fail(err, GP_EUNSUPPORTED, "ceil cannot be combined with count-padding; remove one");
    return GP_OK;
}

gp_status gp_pooling_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const gp_pooling_settings *settings = lowering->settings;
    const gp_kind *kind = lowering->kind;
    const gp_shape *input = &lowering->graph->values[lowering->x[0]].shape;
    const gp_shape output = lowering->graph->values[lowering->y].shape;
    int64_t out[2];
    gp_status status = pooling_window(&op->window, out, kind, settings, input, err);

    if (kind->settings_bytes != 0 && settings->count_padding)
        op->pool = GP_POOL_AVERAGE_COUNT_PADDING;
    if (lowering->dy != GP_NO_VALUE) {
        op->in[1] = lowering->saved[0];
        return status;
    }
    if (status == GP_OK && op->pool == GP_POOL_MAX && lowering->phase == GP_PHASE_TRAIN)
        status = gp_lowering_save(lowering, 0, false, GP_I32, &output, err);
    op->out[1] = lowering->saved[0];
    return status;
}
