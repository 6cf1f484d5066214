/* Descriptors, tensors and steps in a translation, and value forms. */
#include "worker/backend/cpu/onednn/onednn_translate.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

enum { LIST_MAX = 1 << 20 };

void gp_onednn_fail_invalid(gp_onednn_translator *t, const char *what, uint32_t value)
{
    if (going(t))
        t->status = gp_fail(t->err, GP_EINVAL, "oneDNN segment: %s (value %u of layer %u)", what, value,
                            t->request->graph->values[value].layer);
}

bool gp_onednn_done(gp_onednn_translator *t, dnnl_status_t status, const char *what)
{
    if (going(t))
        t->status = gp_onednn_check(status, what, t->err);
    return going(t);
}

/* ---- descriptors and tensors ---- */

shim_md gp_onednn_md_new(gp_onednn_translator *t, int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return gp_onednn_md_typed(t, rank, dims, dnnl_f32, tag);
}

shim_md gp_onednn_md_typed(gp_onednn_translator *t, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag)
{
    shim_md md = NULL;

    if (going(t))
        gp_onednn_done(t, shim_md_tag(&md, rank, dims, type, tag), "a descriptor");
    return going(t) ? md : NULL;
}

shim_md gp_onednn_md_copy(gp_onednn_translator *t, shim_cmd other)
{
    shim_md md = NULL;

    if (going(t))
        gp_onednn_done(t, shim_md_clone(&md, other), "a descriptor");
    return going(t) ? md : NULL;
}

shim_md gp_onednn_md_image(gp_onednn_translator *t, uint32_t value, bool wide, dnnl_format_tag_t tag)
{
    const gp_shape *shape = shape_of(t, value);
    dnnl_dims_t dims = { t->segment->micro_batch, shape->dim[0], shape->dim[1], shape->dim[2] };

    assert(shape->rank == 3);
    return gp_onednn_md_typed(t, 4, dims, type_of(t, wide), tag);
}

shim_md gp_onednn_md_vector(gp_onednn_translator *t, uint32_t value, bool wide)
{
    dnnl_dims_t dims = { t->segment->micro_batch, (dnnl_dim_t)count_of(t, value) };

    return gp_onednn_md_typed(t, 2, dims, type_of(t, wide), dnnl_ab);
}

bool gp_onednn_primitive_fits(gp_onednn_translator *t, dnnl_status_t status, const_dnnl_primitive_desc_t pd,
                              bool wide, const char *what)
{
    const char *kernel = NULL;

    if (!going(t))
        return false;
    if (!wide && status == dnnl_unimplemented)
        return false;
    if (!gp_onednn_done(t, status, what))
        return false;
    return wide ||
           dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&kernel) != dnnl_success ||
           strncmp(kernel, "ref", 3) != 0;
}

bool gp_onednn_grow(gp_onednn_translator *t, void *array, uint32_t count, size_t size, const char *what)
{
    void *grown = NULL, *old;

    memcpy(&old, array, sizeof(old));
    if (going(t) && count < LIST_MAX)
        grown = gp_array_grow(old, count, size);
    if (grown != NULL)
        memcpy(array, &grown, sizeof(grown));
    else if (going(t))
        t->status = gp_fail(t->err, GP_ENOMEM, "no memory for %u %s of a segment", count, what);
    return grown != NULL;
}

uint32_t gp_onednn_buffer_new(gp_onednn_translator *t, gp_onednn_life life, void *data, size_t bytes)
{
    gp_segment *segment = t->segment;

    assert(!going(t) || (life == LIFE_FOREIGN) == (data != NULL));
    if (!gp_onednn_grow(t, &segment->buffers, segment->buffer_count, sizeof(*segment->buffers), "buffers"))
        return ONEDNN_NONE;
    segment->buffers[segment->buffer_count] =
        (gp_onednn_buffer){ .life = life, .data = data, .bytes = bytes, .first = UINT32_MAX };
    return segment->buffer_count++;
}

uint32_t gp_onednn_tensor_new(gp_onednn_translator *t, shim_md md, uint32_t buffer)
{
    gp_segment *segment = t->segment;

    assert(!going(t) || segment->buffers[buffer].bytes >= dnnl_memory_desc_get_size(md));
    if (!gp_onednn_grow(t, &segment->tensors, segment->tensor_count, sizeof(*segment->tensors), "tensors")) {
        shim_md_free(md);
        return ONEDNN_NONE;
    }
    segment->tensors[segment->tensor_count] = (gp_onednn_tensor){ .md = md, .buffer = buffer };
    return segment->tensor_count++;
}

uint32_t gp_onednn_tensor_make(gp_onednn_translator *t, shim_md md, gp_onednn_life life)
{
    uint32_t buffer =
        going(t) ? gp_onednn_buffer_new(t, life, NULL, dnnl_memory_desc_get_size(md)) : ONEDNN_NONE;

    return gp_onednn_tensor_new(t, md, buffer);
}

void gp_onednn_step_emit(gp_onednn_translator *t, const gp_onednn_step *step)
{
    gp_segment *segment = t->segment;
    const uint32_t now = segment->step_count;
    gp_onednn_step *mine;

    if (!gp_onednn_grow(t, &segment->steps, now, sizeof(*segment->steps), "steps"))
        return;
    for (uint32_t i = 0; i < step->argument_count; i++) {
        gp_onednn_buffer *buffer = &segment->buffers[segment->tensors[step->tensors[i]].buffer];

        if (buffer->first == UINT32_MAX)
            buffer->first = now;
        buffer->last = now;
    }
    mine = &segment->steps[segment->step_count++];
    *mine = *step;
    if (mine->what == NULL)
        mine->what = gp_op_name(t->op->code);
    mine->layer = t->op->layer;
}

dnnl_primitive_attr_t gp_onednn_attr_new(gp_onednn_translator *t, gp_onednn_post post)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t chain = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);

    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && post != POST_NONE) {
        status = dnnl_post_ops_create(&chain);
        if (status == dnnl_success)
            status = shim_append_sum(chain);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, chain);
        dnnl_post_ops_destroy(chain);
    }
    gp_onednn_done(t, status, "primitive attributes");
    return attr;
}

void gp_onednn_step_primitive(gp_onednn_translator *t, gp_onednn_step *step, const_dnnl_primitive_desc_t pd,
                              const char *what)
{
    gp_segment *segment = t->segment;
    dnnl_primitive_t primitive = NULL;
    shim_cmd scratch;
    size_t bytes;

    if (!going(t) || !gp_onednn_done(t, dnnl_primitive_create(&primitive, pd), what))
        return;
    if (!gp_onednn_grow(t, &segment->primitives, segment->primitive_count, sizeof(primitive), "primitives")) {
        dnnl_primitive_destroy(primitive);
        return;
    }
    segment->primitives[segment->primitive_count++] = primitive;
    step->primitive = primitive;
    scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    bytes = scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch);
    if (bytes == 0)
        return;
    if (segment->buffers[segment->scratch].bytes < bytes)
        segment->buffers[segment->scratch].bytes = bytes;
    step_argument(step, DNNL_ARG_SCRATCHPAD,
                  gp_onednn_tensor_new(t, gp_onednn_md_copy(t, scratch), segment->scratch));
}

void gp_onednn_reorder_emit(gp_onednn_translator *t, uint32_t from, uint32_t to, gp_onednn_when when,
                            bool add)
{
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, add ? POST_SUM : POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = when, .what = "reorder" };

    if (going(t)) {
        const gp_onednn_tensor *tensors = t->segment->tensors;

        gp_onednn_done(t,
                       dnnl_reorder_primitive_desc_create(&pd, tensors[from].md, t->segment->engine,
                                                          tensors[to].md, t->segment->engine, attr),
                       "a reorder");
        step_argument(&step, DNNL_ARG_FROM, from);
        step_argument(&step, DNNL_ARG_TO, to);
        gp_onednn_step_primitive(t, &step, pd, "a reorder");
        gp_onednn_step_emit(t, &step);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
}

/* ---- values ---- */

/* Map a wide form to the plain form in segments with a single width. */
static gp_onednn_form form_of(const gp_onednn_translator *t, gp_onednn_form form)
{
    return t->segment->narrow ? form : form & PACKED;
}

void gp_onednn_form_attach(gp_onednn_translator *t, uint32_t value, gp_onednn_form form, uint32_t buffer)
{
    bool both = one_order(shape_of(t, value)), wide;
    uint32_t *dense, *packed;

    if (!going(t))
        return;
    form = form_of(t, form);
    wide = form >= WIDE_DENSE;
    dense = &t->forms[value][wide ? WIDE_DENSE : DENSE];
    packed = &t->forms[value][wide ? WIDE_PACKED : PACKED];
    if ((form & PACKED) == DENSE || both)
        *dense = gp_onednn_tensor_new(t, gp_onednn_md_vector(t, value, wide), buffer);
    if (shape_of(t, value)->rank != 3)
        *packed = *dense;
    else if ((form & PACKED) != 0 || both)
        *packed = gp_onednn_tensor_new(t, gp_onednn_md_image(t, value, wide, dnnl_nhwc), buffer);
}

static void form_make(gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    void *crossing = t->request->values[value];
    bool wide = type_of(t, form >= WIDE_DENSE) == dnnl_f32;
    bool there = crossing != NULL && wide && ((form & PACKED) == 0 || one_order(shape_of(t, value)));
    size_t bytes = t->segment->micro_batch * count_of(t, value) * gp_dtype_bytes(wide ? GP_F32 : GP_BF16);

    gp_onednn_form_attach(
        t, value, form,
        gp_onednn_buffer_new(t, there ? LIFE_FOREIGN : LIFE_RUN, there ? crossing : NULL, bytes));
}

/* Return a tensor suitable for a reorder: images keep rank 4 in any order. */
static uint32_t form_view(gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    uint32_t tensor = t->forms[value][form];

    if (!going(t) || (form & PACKED) != 0 || one_order(shape_of(t, value)))
        return tensor;
    return gp_onednn_tensor_new(t, gp_onednn_md_image(t, value, form >= WIDE_DENSE, dnnl_nchw),
                                t->segment->tensors[tensor].buffer);
}

static bool is_there(const gp_onednn_translator *t, uint32_t value)
{
    return lies_in(t, value, DENSE) || lies_in(t, value, PACKED);
}

uint32_t gp_onednn_value_read(gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    /* candidates to reorder from: another order, another width, both */
    static const unsigned others[] = { PACKED, WIDE_DENSE, WIDE_PACKED };
    uint32_t i = 0, from;

    gp_onednn_pending_force(t, value);
    if (going(t) && !is_there(t, value)) {
        /* Create the first form of a value that another segment wrote, or of the samples. */
        gp_segment *segment = t->segment;
        void *crossing = t->request->values[value];

        if (crossing == NULL && value == t->request->graph->input) {
            const gp_shape *shape = shape_of(t, value);
            gp_onednn_step step = { .what = "samples",
                                    .loop = gp_onednn_loop_samples,
                                    .count = count_of(t, value) };

            assert(shape->rank == 3);
            step.channels = (size_t)shape->dim[0];
            step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
            step.narrow = t->segment->narrow;
            form_make(t, value, PACKED);
            step_argument(&step, 0, t->forms[value][PACKED]);
            gp_onednn_step_emit(t, &step);
        } else if (crossing == NULL || t->request->graph->values[value].dtype != GP_F32) {
            gp_onednn_fail_invalid(t, "an op reads a value that no op writes and no buffer holds", value);
        } else if (gp_onednn_grow(t, &segment->entries, segment->entry_count, sizeof(*segment->entries),
                                  "inputs")) {
            segment->entries[segment->entry_count++] = (gp_onednn_entry){ crossing, count_of(t, value) };
            form_make(t, value, WIDE_DENSE);
        }
    }
    if (!going(t))
        return ONEDNN_NONE;
    form = form_of(t, form);
    if (t->forms[value][form] != ONEDNN_NONE)
        return t->forms[value][form];
    while (t->forms[value][form ^ others[i]] == ONEDNN_NONE)
        i++;
    from = form_view(t, value, form ^ others[i]);
    form_make(t, value, form);
    gp_onednn_reorder_emit(t, from, form_view(t, value, form), WHEN_ALWAYS, false);
    return t->forms[value][form];
}

uint32_t gp_onednn_value_write(gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    if (going(t) && is_there(t, value))
        gp_onednn_fail_invalid(t, "a value is written twice", value);
    form = form_of(t, form);
    if (going(t))
        form_make(t, value, form);
    return going(t) ? t->forms[value][form] : ONEDNN_NONE;
}

void gp_onednn_value_written(gp_onednn_translator *t, uint32_t value)
{
    if (going(t) && t->request->values[value] != NULL)
        gp_onednn_value_read(t, value, WIDE_DENSE);
}

gp_onednn_form gp_onednn_common_form(gp_onednn_translator *t, uint32_t a, uint32_t b)
{
    bool dense = true, packed = true;
    const uint32_t values[2] = { a, b };

    for (int i = 0; i < 2; i++) {
        dense = dense && lies_in(t, values[i], DENSE);
        packed = packed && lies_in(t, values[i], PACKED);
    }
    return dense && !packed ? DENSE : PACKED;
}

uint32_t gp_onednn_kept_tensor(gp_onednn_translator *t, uint32_t value)
{
    bool call = t->request->graph->values[value].role == GP_VALUE_CALL;
    void *crossing = t->request->values[value];
    dnnl_dims_t dims = { call ? 1 : t->segment->micro_batch, (dnnl_dim_t)count_of(t, value) };
    size_t bytes = (size_t)(dims[0] * dims[1]) * sizeof(float);

    if (going(t) && t->forms[value][DENSE] == ONEDNN_NONE)
        t->forms[value][DENSE] = gp_onednn_tensor_new(
            t, gp_onednn_md_new(t, 2, dims, dnnl_ab),
            gp_onednn_buffer_new(t, crossing == NULL ? LIFE_RUN : LIFE_FOREIGN, crossing, bytes));
    return going(t) ? t->forms[value][DENSE] : ONEDNN_NONE;
}
