/* Parameters as tensors, in the blob or packed, and gradient storage in the arena. */
#include "worker/backend/cpu/onednn/onednn_translate.h"

static const gp_parameter *parameter_of(const gp_onednn_translator *t, uint32_t value)
{
    return &t->request->graph->parameters[t->request->graph->values[value].parameter];
}

uint32_t gp_onednn_parameter_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd md)
{
    const gp_parameter *parameter = parameter_of(t, value);
    /* Read only; oneDNN memory objects have no const variant. */
    void *data = (float *)(uintptr_t)(t->segment->memory.parameters + parameter->offset);

    return gp_onednn_tensor_new(
        t, gp_onednn_md_copy(t, md),
        gp_onednn_buffer_new(t, LIFE_FOREIGN, data, parameter->count * sizeof(float)));
}

static uint32_t gradient_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd md)
{
    const gp_parameter *parameter = parameter_of(t, value);
    float *data = t->segment->memory.gradients + parameter->offset;

    return gp_onednn_tensor_new(
        t, gp_onednn_md_copy(t, md),
        gp_onednn_buffer_new(t, LIFE_FOREIGN, data, parameter->count * sizeof(float)));
}

uint32_t gp_onednn_weight_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd plain, shim_cmd wanted)
{
    uint32_t copy;

    if (!going(t))
        return ONEDNN_NONE;
    if (dnnl_memory_desc_equal(plain, wanted))
        return gp_onednn_parameter_tensor(t, value, plain);
    for (uint32_t i = 0; i < t->packed_count; i++)
        if (t->packed[i].value == value &&
            dnnl_memory_desc_equal(t->segment->tensors[t->packed[i].tensor].md, wanted))
            return t->packed[i].tensor;
    copy = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, wanted), LIFE_KEPT);
    gp_onednn_reorder_emit(t, gp_onednn_parameter_tensor(t, value, plain), copy, WHEN_FIRST, false);
    if (gp_onednn_grow(t, &t->packed, t->packed_count, sizeof(*t->packed), "packed weights"))
        t->packed[t->packed_count++] = (gp_onednn_packed){ value, copy };
    return copy;
}

static void gradient_note(gp_onednn_translator *t, uint32_t value)
{
    gp_segment *segment = t->segment;
    const gp_parameter *parameter = parameter_of(t, value);

    if (gp_onednn_grow(t, &segment->gradients, segment->gradient_count, sizeof(*segment->gradients),
                       "gradients"))
        segment->gradients[segment->gradient_count++] =
            (gp_onednn_range){ parameter->offset, (size_t)parameter->count };
}

static void accumulate_emit(gp_onednn_translator *t, uint32_t part, uint32_t gradient, size_t count)
{
    gp_onednn_step step = {
        .when = WHEN_LATER, .what = "accumulate", .loop = gp_onednn_loop_accumulate, .count = count
    };

    step_argument(&step, 0, part);
    step_argument(&step, 0, gradient);
    gp_onednn_step_emit(t, &step);
}

void gp_onednn_gradient_emit(gp_onednn_translator *t, const gp_onednn_step *step, uint32_t dweight,
                             uint32_t dbias, shim_cmd plain, shim_cmd made, shim_cmd bias)
{
    uint32_t weight_out, bias_out = ONEDNN_NONE, weight_part = ONEDNN_NONE, bias_part = ONEDNN_NONE;
    bool direct;

    if (!going(t))
        return;
    direct = dnnl_memory_desc_equal(plain, made);
    gradient_note(t, dweight);
    weight_out = gradient_tensor(t, dweight, plain);
    weight_part = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, made), LIFE_RUN);
    if (dbias != GP_NO_VALUE) {
        gradient_note(t, dbias);
        bias_out = gradient_tensor(t, dbias, bias);
        bias_part = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, bias), LIFE_RUN);
    }
    for (int first = 1; first >= 0 && going(t); first--) {
        gp_onednn_step mine = *step;

        mine.when = first ? WHEN_FIRST : WHEN_LATER;
        step_argument(&mine, DNNL_ARG_DIFF_WEIGHTS, direct && first ? weight_out : weight_part);
        if (dbias != GP_NO_VALUE)
            step_argument(&mine, DNNL_ARG_DIFF_BIAS, first ? bias_out : bias_part);
        gp_onednn_step_emit(t, &mine);
        if (!direct)
            gp_onednn_reorder_emit(t, weight_part, weight_out, mine.when, !first);
        else if (!first)
            accumulate_emit(t, weight_part, weight_out, (size_t)parameter_of(t, dweight)->count);
        if (dbias != GP_NO_VALUE && !first)
            accumulate_emit(t, bias_part, bias_out, (size_t)parameter_of(t, dbias)->count);
    }
}

uint32_t gp_onednn_flat_parameter(gp_onednn_translator *t, uint32_t value, bool gradient)
{
    dnnl_dims_t dims = { (dnnl_dim_t)count_of(t, value) };
    shim_md md = gp_onednn_md_new(t, 1, dims, dnnl_a);
    uint32_t tensor = ONEDNN_NONE;

    if (going(t) && gradient)
        gradient_note(t, value);
    if (going(t))
        tensor = gradient ? gradient_tensor(t, value, md) : gp_onednn_parameter_tensor(t, value, md);
    shim_md_free(md);
    return tensor;
}
