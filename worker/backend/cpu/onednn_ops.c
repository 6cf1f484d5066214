/* onednn_ops.c -- ops of a graph to steps of a segment.
 *
 * The first failure sticks in the translator: helpers do nothing after it, so the translation of an op reads
 * as the list of what it makes.  One translator for all ops, in one file though it is long: the ops share its
 * memory descriptors and its sticking failure, and a new op is added here only. */
#include "worker/backend/cpu/onednn_segment.h"

#include <assert.h>
#include <string.h>

#include "common/base/alloc.h"

typedef struct packed_weight {
    uint32_t value, tensor;
} packed_weight;

typedef struct translator {
    gp_segment *segment;
    const gp_segment_request *request;
    gp_status status;
    gp_error *err;
    uint32_t (*forms)[FORMS]; /* [value_count] tensors, ONEDNN_NONE where a form is not there (yet) */
    bool *folded;             /* [request->count] ops that an earlier op's primitive does as well */
    packed_weight *packed;    /* forward and backward-data share a copy where they like the same layout */
    gp_onednn_list packed_list;
} translator;

static bool going(const translator *t)
{
    return t->status == GP_OK;
}

static void fail_invalid(translator *t, const char *what, uint32_t value)
{
    if (going(t))
        t->status = gp_fail(t->err, GP_EINVAL, "oneDNN segment: %s (value %u of layer %u)", what, value,
                            t->request->graph->values[value].layer);
}

static bool check(translator *t, dnnl_status_t status, const char *what)
{
    if (going(t))
        t->status = gp_onednn_check(status, what, t->err);
    return going(t);
}

/* --- descriptors and tensors ------------------------------------------------------------------------ */

static const gp_shape *shape_of(const translator *t, uint32_t value)
{
    return &t->request->graph->values[value].shape;
}

static size_t count_of(const translator *t, uint32_t value)
{
    return (size_t)gp_shape_count(shape_of(t, value));
}

/* Whether logical order and nhwc are the same bytes. */
static bool one_order(const gp_shape *shape)
{
    return shape->rank != 3 || shape->dim[0] == 1 || shape->dim[1] * shape->dim[2] == 1;
}

static shim_md md_new(translator *t, int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    shim_md md = NULL;

    if (going(t))
        check(t, shim_md_tag(&md, rank, dims, tag), "a descriptor");
    return going(t) ? md : NULL;
}

static shim_md md_copy(translator *t, shim_cmd other)
{
    shim_md md = NULL;

    if (going(t))
        check(t, shim_md_clone(&md, other), "a descriptor");
    return going(t) ? md : NULL;
}

/* [micro_batch, C, H, W] of a rank-3 value. */
static shim_md md_image(translator *t, uint32_t value, dnnl_format_tag_t tag)
{
    const gp_shape *shape = shape_of(t, value);
    dnnl_dims_t dims = { t->segment->micro_batch, shape->dim[0], shape->dim[1], shape->dim[2] };

    assert(shape->rank == 3);
    return md_new(t, 4, dims, tag);
}

/* [micro_batch, F] of any value. */
static shim_md md_vector(translator *t, uint32_t value)
{
    dnnl_dims_t dims = { t->segment->micro_batch, (dnnl_dim_t)count_of(t, value) };

    return md_new(t, 2, dims, dnnl_ab);
}

static uint32_t buffer_new(translator *t, gp_onednn_life life, void *data, size_t bytes)
{
    uint32_t buffer = ONEDNN_NONE;

    if (going(t))
        t->status = gp_onednn_buffer_add(t->segment, &buffer, life, data, bytes, t->err);
    return buffer;
}

static uint32_t tensor_new(translator *t, shim_md md, uint32_t buffer)
{
    uint32_t tensor = ONEDNN_NONE;

    if (going(t))
        t->status = gp_onednn_tensor_add(t->segment, &tensor, md, buffer, t->err);
    else
        shim_md_free(md);
    return tensor;
}

/* A tensor of its own. */
static uint32_t tensor_make(translator *t, shim_md md, gp_onednn_life life)
{
    uint32_t buffer = going(t) ? buffer_new(t, life, NULL, dnnl_memory_desc_get_size(md)) : ONEDNN_NONE;

    return tensor_new(t, md, buffer);
}

static void step_argument(gp_onednn_step *step, int role, uint32_t tensor)
{
    assert(step->argument_count < ONEDNN_ARGUMENTS_MAX);
    step->roles[step->argument_count] = role;
    step->tensors[step->argument_count++] = tensor;
}

static void step_emit(translator *t, const gp_onednn_step *step)
{
    if (going(t))
        t->status = gp_onednn_step_add(t->segment, step, t->err);
}

typedef enum attr_post { POST_NONE, POST_RELU, POST_SUM } attr_post;

static dnnl_primitive_attr_t attr_new(translator *t, attr_post post)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t chain = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);

    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && post != POST_NONE) {
        status = dnnl_post_ops_create(&chain);
        if (status == dnnl_success)
            status = post == POST_RELU ? shim_append_relu(chain) : shim_append_sum(chain);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(attr, chain);
        dnnl_post_ops_destroy(chain);
    }
    check(t, status, "primitive attributes");
    return attr;
}

/* Make the primitive of a descriptor the step's, and give it its part of the common scratchpad. */
static void step_primitive(translator *t, gp_onednn_step *step, const_dnnl_primitive_desc_t pd,
                           const char *what)
{
    gp_segment *segment = t->segment;
    dnnl_primitive_t primitive = NULL;
    shim_cmd scratch;
    size_t bytes;

    if (!going(t) || !check(t, dnnl_primitive_create(&primitive, pd), what))
        return;
    if (!gp_onednn_grow((void **)&segment->primitives, &segment->primitive_list, sizeof(primitive))) {
        dnnl_primitive_destroy(primitive);
        t->status = gp_fail(t->err, GP_ENOMEM, "no memory for %u primitives", segment->primitive_list.count);
        return;
    }
    segment->primitives[segment->primitive_list.count++] = primitive;
    step->primitive = primitive;
    scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    bytes = scratch == NULL ? 0 : dnnl_memory_desc_get_size(scratch);
    if (bytes == 0)
        return;
    if (segment->buffers[segment->scratch].bytes < bytes)
        segment->buffers[segment->scratch].bytes = bytes;
    step_argument(step, DNNL_ARG_SCRATCHPAD, tensor_new(t, md_copy(t, scratch), segment->scratch));
}

static void reorder_emit(translator *t, uint32_t from, uint32_t to, gp_onednn_when when, bool add)
{
    dnnl_primitive_attr_t attr = attr_new(t, add ? POST_SUM : POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = when };

    if (going(t)) {
        const gp_onednn_tensor *tensors = t->segment->tensors;

        check(t,
              dnnl_reorder_primitive_desc_create(&pd, tensors[from].md, t->segment->engine, tensors[to].md,
                                                 t->segment->engine, attr),
              "a reorder");
        step_argument(&step, DNNL_ARG_FROM, from);
        step_argument(&step, DNNL_ARG_TO, to);
        step_primitive(t, &step, pd, "a reorder");
        step_emit(t, &step);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
}

/* --- values ----------------------------------------------------------------------------------------- */

/* Give a value a form that lies on that buffer; both forms where they are one. */
static void form_attach(translator *t, uint32_t value, gp_onednn_form form, uint32_t buffer)
{
    bool both = one_order(shape_of(t, value));

    if (!going(t))
        return;
    if (form == DENSE || both)
        t->forms[value][DENSE] = tensor_new(t, md_vector(t, value), buffer);
    if (shape_of(t, value)->rank != 3)
        t->forms[value][PACKED] = t->forms[value][DENSE];
    else if (form == PACKED || both)
        t->forms[value][PACKED] = tensor_new(t, md_image(t, value, dnnl_nhwc), buffer);
}

static void form_make(translator *t, uint32_t value, gp_onednn_form form)
{
    void *crossing = t->request->values[value];
    bool there = crossing != NULL && (form == DENSE || one_order(shape_of(t, value)));
    size_t bytes = t->segment->micro_batch * count_of(t, value) * sizeof(float);

    form_attach(t, value, form,
                buffer_new(t, there ? LIFE_FOREIGN : LIFE_RUN, there ? crossing : NULL, bytes));
}

static void samples_emit(translator *t, uint32_t value)
{
    const gp_shape *shape = shape_of(t, value);
    gp_onednn_step step = { .loop = gp_onednn_loop_samples, .count = count_of(t, value) };

    assert(shape->rank == 3);
    step.channels = (size_t)shape->dim[0];
    step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    form_make(t, value, PACKED);
    step_argument(&step, 0, t->forms[value][PACKED]);
    step_emit(t, &step);
}

/* A value that this segment has not made: the samples, or one that another segment left. */
static void value_enter(translator *t, uint32_t value)
{
    gp_segment *segment = t->segment;
    void *crossing = t->request->values[value];

    if (crossing == NULL && value == t->request->graph->input) {
        samples_emit(t, value);
    } else if (crossing == NULL || t->request->graph->values[value].dtype != GP_F32) {
        fail_invalid(t, "an op reads what no op of the segment writes and no buffer holds", value);
    } else if (!gp_onednn_grow((void **)&segment->entries, &segment->entry_list, sizeof(*segment->entries))) {
        t->status = gp_fail(t->err, GP_ENOMEM, "no memory for the inputs of a segment");
    } else {
        segment->entries[segment->entry_list.count++] = (gp_onednn_entry){ crossing, count_of(t, value) };
        form_make(t, value, DENSE);
    }
}

static uint32_t value_read(translator *t, uint32_t value, gp_onednn_form form)
{
    uint32_t dense, plain, packed;

    if (going(t) && t->forms[value][DENSE] == ONEDNN_NONE && t->forms[value][PACKED] == ONEDNN_NONE)
        value_enter(t, value);
    if (!going(t))
        return ONEDNN_NONE;
    if (t->forms[value][form] != ONEDNN_NONE)
        return t->forms[value][form];
    form_make(t, value, form);
    if (!going(t))
        return ONEDNN_NONE;
    dense = t->forms[value][DENSE];
    packed = t->forms[value][PACKED];
    plain = tensor_new(t, md_image(t, value, dnnl_nchw), t->segment->tensors[dense].buffer);
    reorder_emit(t, form == DENSE ? packed : plain, form == DENSE ? plain : packed, WHEN_ALWAYS, false);
    return t->forms[value][form];
}

/* The tensor an op is to write; value_written() follows the step. */
static uint32_t value_write(translator *t, uint32_t value, gp_onednn_form form)
{
    if (going(t) && (t->forms[value][DENSE] != ONEDNN_NONE || t->forms[value][PACKED] != ONEDNN_NONE))
        fail_invalid(t, "a value is written twice", value);
    if (going(t))
        form_make(t, value, form);
    return going(t) ? t->forms[value][form] : ONEDNN_NONE;
}

static void value_written(translator *t, uint32_t value)
{
    if (going(t) && t->request->values[value] != NULL)
        value_read(t, value, DENSE);
}

/* The form in which an element-wise op reads its inputs: one that all have, else nhwc. */
static gp_onednn_form common_form(translator *t, uint32_t a, uint32_t b)
{
    bool dense = true, packed = true;
    const uint32_t values[2] = { a, b };

    for (int i = 0; i < 2; i++) {
        dense = dense && t->forms[values[i]][DENSE] != ONEDNN_NONE;
        packed = packed && t->forms[values[i]][PACKED] != ONEDNN_NONE;
    }
    return dense && !packed ? DENSE : PACKED;
}

/* --- parameters ------------------------------------------------------------------------------------- */

static const gp_parameter *parameter_of(const translator *t, uint32_t value)
{
    return &t->request->graph->parameters[t->request->graph->values[value].parameter];
}

static uint32_t parameter_tensor(translator *t, uint32_t value, shim_cmd md)
{
    const gp_parameter *parameter = parameter_of(t, value);
    /* Read only: oneDNN's memory objects know no const. */
    void *data = (float *)(uintptr_t)(t->segment->memory.parameters + parameter->offset);

    return tensor_new(t, md_copy(t, md), buffer_new(t, LIFE_FOREIGN, data, parameter->count * sizeof(float)));
}

static uint32_t gradient_tensor(translator *t, uint32_t value, shim_cmd md)
{
    const gp_parameter *parameter = parameter_of(t, value);
    float *data = t->segment->memory.gradients + parameter->offset;

    return tensor_new(t, md_copy(t, md), buffer_new(t, LIFE_FOREIGN, data, parameter->count * sizeof(float)));
}

/* The parameter in the layout `wanted`: the blob's own memory, or a private copy that the first call of each
 * step refreshes. */
static uint32_t weight_tensor(translator *t, uint32_t value, shim_cmd plain, shim_cmd wanted)
{
    uint32_t copy;

    if (!going(t))
        return ONEDNN_NONE;
    if (dnnl_memory_desc_equal(plain, wanted))
        return parameter_tensor(t, value, plain);
    for (uint32_t i = 0; i < t->packed_list.count; i++)
        if (t->packed[i].value == value &&
            dnnl_memory_desc_equal(t->segment->tensors[t->packed[i].tensor].md, wanted))
            return t->packed[i].tensor;
    copy = tensor_make(t, md_copy(t, wanted), LIFE_KEPT);
    reorder_emit(t, parameter_tensor(t, value, plain), copy, WHEN_FIRST, false);
    if (going(t) && !gp_onednn_grow((void **)&t->packed, &t->packed_list, sizeof(*t->packed)))
        t->status = gp_fail(t->err, GP_ENOMEM, "no memory for %u packed weights", t->packed_list.count);
    else if (going(t))
        t->packed[t->packed_list.count++] = (packed_weight){ value, copy };
    return copy;
}

static void gradient_note(translator *t, uint32_t value)
{
    gp_segment *segment = t->segment;
    const gp_parameter *parameter = parameter_of(t, value);

    if (!gp_onednn_grow((void **)&segment->gradients, &segment->gradient_list, sizeof(*segment->gradients))) {
        t->status = gp_fail(t->err, GP_ENOMEM, "no memory for %u gradients", segment->gradient_list.count);
        return;
    }
    segment->gradients[segment->gradient_list.count++] =
        (gp_onednn_range){ parameter->offset, (size_t)parameter->count };
}

static void accumulate_emit(translator *t, uint32_t part, uint32_t gradient, size_t count)
{
    gp_onednn_step step = { .when = WHEN_LATER, .loop = gp_onednn_loop_accumulate, .count = count };

    step_argument(&step, 0, part);
    step_argument(&step, 0, gradient);
    step_emit(t, &step);
}

/* Backward-weights primitives overwrite.  `step` is one without its outputs: here it becomes two, for the
 * first call of a step and for later ones, with what carries the result into the arena.  dbias may be
 * GP_NO_VALUE. */
static void gradient_emit(translator *t, const gp_onednn_step *step, uint32_t dweight, uint32_t dbias,
                          shim_cmd plain, shim_cmd made, shim_cmd bias)
{
    uint32_t weight_out, bias_out = ONEDNN_NONE, weight_part = ONEDNN_NONE, bias_part = ONEDNN_NONE;
    bool direct;

    if (!going(t))
        return;
    direct = dnnl_memory_desc_equal(plain, made);
    gradient_note(t, dweight);
    weight_out = gradient_tensor(t, dweight, plain);
    weight_part = tensor_make(t, md_copy(t, made), LIFE_RUN);
    if (dbias != GP_NO_VALUE) {
        gradient_note(t, dbias);
        bias_out = gradient_tensor(t, dbias, bias);
        bias_part = tensor_make(t, md_copy(t, bias), LIFE_RUN);
    }
    for (int first = 1; first >= 0 && going(t); first--) {
        gp_onednn_step mine = *step;

        mine.when = first ? WHEN_FIRST : WHEN_LATER;
        step_argument(&mine, DNNL_ARG_DIFF_WEIGHTS, direct && first ? weight_out : weight_part);
        if (dbias != GP_NO_VALUE)
            step_argument(&mine, DNNL_ARG_DIFF_BIAS, first ? bias_out : bias_part);
        step_emit(t, &mine);
        if (!direct)
            reorder_emit(t, weight_part, weight_out, mine.when, !first);
        else if (!first)
            accumulate_emit(t, weight_part, weight_out, (size_t)parameter_of(t, dweight)->count);
        if (dbias != GP_NO_VALUE && !first)
            accumulate_emit(t, bias_part, bias_out, (size_t)parameter_of(t, dbias)->count);
    }
}

/* --- convolution and fully connected layers --------------------------------------------------------- */

/* The descriptors that the three primitives of a layer with weights share. */
typedef struct layer_mds {
    shim_md x, y, weight, weight_wanted, bias; /* bias may be NULL; weight is the blob's layout */
    shim_window window;                        /* of convolutions */
    dnnl_primitive_desc_t forward;
} layer_mds;

static void layer_mds_deinit(layer_mds *mds)
{
    dnnl_primitive_desc_destroy(mds->forward);
    shim_md_free(mds->x);
    shim_md_free(mds->y);
    shim_md_free(mds->weight);
    shim_md_free(mds->weight_wanted);
    shim_md_free(mds->bias);
}

/* A window in oneDNN's terms. */
static shim_window window_of(const gp_window *window)
{
    shim_window w = { .kernel = { 0 } };

    for (int i = 0; i < 2; i++) {
        w.kernel[i] = window->kernel[i];
        w.stride[i] = window->stride[i];
        w.dilation[i] = window->dilation[i] - 1;
        w.before[i] = window->padding[i];
        w.after[i] = window->padding[i + 2];
    }
    return w;
}

static void bias_describe(translator *t, layer_mds *mds, uint32_t bias)
{
    dnnl_dims_t dims = { 0 };

    if (bias == GP_NO_VALUE)
        return;
    dims[0] = (dnnl_dim_t)count_of(t, bias);
    mds->bias = md_new(t, 1, dims, dnnl_a);
}

/* x and y may be gradients: the shapes are the same.  The forward primitive descriptor serves backward ones
 * as their hint. */
static void conv_describe(translator *t, layer_mds *mds, const gp_op *op, uint32_t x, uint32_t weight,
                          uint32_t bias, uint32_t y, attr_post post)
{
    const gp_shape *shape = shape_of(t, weight);
    dnnl_dim_t groups = op->window.groups;
    dnnl_dims_t grouped = { groups, shape->dim[0] / groups, shape->dim[1], shape->dim[2], shape->dim[3] };
    dnnl_dims_t single = { shape->dim[0], shape->dim[1], shape->dim[2], shape->dim[3] };
    int rank = groups > 1 ? 5 : 4;
    dnnl_primitive_attr_t attr = attr_new(t, post);

    mds->window = window_of(&op->window);
    mds->x = md_image(t, x, dnnl_nhwc);
    mds->y = md_image(t, y, dnnl_nhwc);
    mds->weight = md_new(t, rank, groups > 1 ? grouped : single, groups > 1 ? dnnl_goihw : dnnl_oihw);
    mds->weight_wanted = md_new(t, rank, groups > 1 ? grouped : single, dnnl_format_tag_any);
    bias_describe(t, mds, bias);
    if (going(t))
        check(t,
              shim_conv_forward(&mds->forward, t->segment->engine, &mds->window,
                                t->segment->phase == GP_PHASE_TRAIN, mds->x, mds->weight_wanted, mds->bias,
                                mds->y, attr),
              "a convolution");
    dnnl_primitive_attr_destroy(attr);
}

/* Weights stay as they are in the blob: a private copy of a large matrix costs more passes over memory than
 * the packed product saves. */
static void fc_describe(translator *t, layer_mds *mds, uint32_t x, uint32_t weight, uint32_t bias, uint32_t y,
                        attr_post post)
{
    dnnl_dims_t dims = { shape_of(t, weight)->dim[0], (dnnl_dim_t)count_of(t, x) };
    dnnl_primitive_attr_t attr = attr_new(t, post);

    mds->x = md_vector(t, x);
    mds->y = md_vector(t, y);
    mds->weight = md_new(t, 2, dims, dnnl_ab);
    mds->weight_wanted = md_copy(t, mds->weight);
    bias_describe(t, mds, bias);
    if (going(t))
        check(t,
              shim_fc_forward(&mds->forward, t->segment->engine, t->segment->phase == GP_PHASE_TRAIN, mds->x,
                              mds->weight_wanted, mds->bias, mds->y, attr),
              "a fully connected layer");
    dnnl_primitive_attr_destroy(attr);
}

/* The relu that is the only reader of `value`, so that the primitive before it can do it: its index among the
 * request's ops, or request->count. */
static uint32_t relu_after(const translator *t, uint32_t value)
{
    const gp_segment_request *request = t->request;
    uint32_t readers = 0, found = request->count;

    if (request->values[value] != NULL)
        return request->count;
    for (uint32_t i = 0; i < request->count; i++)
        for (int j = 0; j < GP_OP_VALUES_MAX; j++)
            if (request->ops[i].in[j] == value) {
                readers++;
                found = request->ops[i].code == GP_OP_RELU ? i : request->count;
            }
    return readers == 1 ? found : request->count;
}

static uint32_t flat_parameter(translator *t, uint32_t value, bool gradient)
{
    dnnl_dims_t dims = { (dnnl_dim_t)count_of(t, value) };
    shim_md md = md_new(t, 1, dims, dnnl_a);
    uint32_t tensor = ONEDNN_NONE;

    if (going(t) && gradient)
        gradient_note(t, value);
    if (going(t))
        tensor = gradient ? gradient_tensor(t, value, md) : parameter_tensor(t, value, md);
    shim_md_free(md);
    return tensor;
}

/* The bias of a transposed convolution, which its primitive does not know: bias to image, or image to its gradient. */
static void bias_emit(translator *t, gp_onednn_loop loop, uint32_t bias, uint32_t image, bool gradient)
{
    const gp_shape *shape = shape_of(t, image);
    gp_onednn_step step = { .loop = loop, .channels = (size_t)shape->dim[0] };
    uint32_t number = flat_parameter(t, bias, gradient), pixels = ONEDNN_NONE;

    step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    if (going(t))
        pixels = t->forms[image][PACKED];
    step_argument(&step, 0, gradient ? pixels : number);
    step_argument(&step, 0, gradient ? number : pixels);
    step_emit(t, &step);
}

static void translate_forward(translator *t, const gp_op *op)
{
    bool conv = op->code != GP_OP_FC; /* or the gradient of a transposed one's input */
    gp_onednn_form form = conv ? PACKED : DENSE;
    uint32_t x = op->in[0], weight = op->in[1], bias = op->in[2], y = op->out[0], relu = relu_after(t, y);
    attr_post post = relu < t->request->count ? POST_RELU : POST_NONE;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .x = NULL };

    if (post == POST_RELU) {
        t->folded[relu] = true;
        y = t->request->ops[relu].out[0];
    }
    if (conv)
        conv_describe(t, &mds, op, x, weight, bias, y, post);
    else
        fc_describe(t, &mds, x, weight, bias, y, post);
    if (going(t)) {
        shim_cmd wanted = dnnl_primitive_desc_query_md(mds.forward, dnnl_query_weights_md, 0);

        step_argument(&step, DNNL_ARG_SRC, value_read(t, x, form));
        step_argument(&step, DNNL_ARG_WEIGHTS, weight_tensor(t, weight, mds.weight, wanted));
        if (bias != GP_NO_VALUE)
            step_argument(&step, DNNL_ARG_BIAS, parameter_tensor(t, bias, mds.bias));
        step_argument(&step, DNNL_ARG_DST, value_write(t, y, form));
        step_primitive(t, &step, mds.forward, conv ? "a convolution" : "a fully connected layer");
        step_emit(t, &step);
        value_written(t, y);
    }
    layer_mds_deinit(&mds);
}

static void translate_backward_data(translator *t, const gp_op *op)
{
    bool conv = op->code != GP_OP_FC_BACKWARD_DATA; /* or a transposed one forward */
    gp_onednn_form form = conv ? PACKED : DENSE;
    uint32_t dy = op->in[0], weight = op->in[1], dx = op->out[0];
    const char *what = conv ? "a convolution's backward data" : "a fully connected layer's backward data";
    dnnl_primitive_attr_t attr = attr_new(t, POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .x = NULL };

    if (conv)
        conv_describe(t, &mds, op, dx, weight, GP_NO_VALUE, dy, POST_NONE);
    else
        fc_describe(t, &mds, dx, weight, GP_NO_VALUE, dy, POST_NONE);
    if (going(t))
        check(t,
              conv
                  ? shim_conv_data(&pd, t->segment->engine, &mds.window, mds.x, mds.weight_wanted, mds.y,
                                   mds.forward, attr)
                  : shim_fc_data(&pd, t->segment->engine, mds.x, mds.weight_wanted, mds.y, mds.forward, attr),
              what);
    if (going(t)) {
        shim_cmd wanted = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);

        step_argument(&step, DNNL_ARG_DIFF_DST, value_read(t, dy, form));
        step_argument(&step, DNNL_ARG_WEIGHTS, weight_tensor(t, weight, mds.weight, wanted));
        step_argument(&step, DNNL_ARG_DIFF_SRC, value_write(t, dx, form));
        step_primitive(t, &step, pd, what);
        step_emit(t, &step);
        if (op->code == GP_OP_TRANSCONV2D && op->in[2] != GP_NO_VALUE)
            bias_emit(t, gp_onednn_loop_bias, op->in[2], dx, false);
        value_written(t, dx);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    layer_mds_deinit(&mds);
}

static void translate_backward_weights(translator *t, const gp_op *op)
{
    bool conv = op->code != GP_OP_FC_BACKWARD_WEIGHTS,
         transposed = op->code == GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS;
    gp_onednn_form form = conv ? PACKED : DENSE;
    uint32_t x = op->in[transposed ? 1 : 0], dy = op->in[transposed ? 0 : 1], dweight = op->out[0];
    uint32_t dbias = transposed ? GP_NO_VALUE : op->out[1];
    const char *what =
        conv ? "a convolution's backward weights" : "a fully connected layer's backward weights";
    dnnl_primitive_attr_t attr = attr_new(t, POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .x = NULL };

    if (conv)
        conv_describe(t, &mds, op, x, dweight, dbias, dy, POST_NONE);
    else
        fc_describe(t, &mds, x, dweight, dbias, dy, POST_NONE);
    if (going(t))
        check(t,
              conv ? shim_conv_weights(&pd, t->segment->engine, &mds.window, mds.x, mds.weight_wanted,
                                       mds.bias, mds.y, mds.forward, attr)
                   : shim_fc_weights(&pd, t->segment->engine, mds.x, mds.weight_wanted, mds.bias, mds.y,
                                     mds.forward, attr),
              what);
    if (going(t)) {
        step_argument(&step, DNNL_ARG_SRC, value_read(t, x, form));
        step_argument(&step, DNNL_ARG_DIFF_DST, value_read(t, dy, form));
        step_primitive(t, &step, pd, what);
        gradient_emit(t, &step, dweight, dbias, mds.weight,
                      dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0), mds.bias);
        if (transposed && op->out[1] != GP_NO_VALUE)
            bias_emit(t, gp_onednn_loop_bias_gradient, op->out[1], x, true);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    layer_mds_deinit(&mds);
}

/* --- pooling ---------------------------------------------------------------------------------------- */

static dnnl_alg_kind_t pool_kind(const gp_op *op)
{
    switch (op->pool) {
    case GP_POOL_MAX:
        return dnnl_pooling_max;
    case GP_POOL_AVERAGE:
        return dnnl_pooling_avg_exclude_padding;
    case GP_POOL_AVERAGE_COUNT_PADDING:
        break;
    }
    return dnnl_pooling_avg_include_padding;
}

/* x and y, or their gradients.  With a workspace, where the maximum was found: our index value in a layout of
 * oneDNN's own, which is why it cannot leave the segment. */
static dnnl_primitive_desc_t pool_forward_desc(translator *t, const gp_op *op, uint32_t x, uint32_t y,
                                               bool workspace, shim_md mds[2])
{
    dnnl_primitive_attr_t attr = attr_new(t, POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    shim_window window = window_of(&op->window);

    mds[0] = md_image(t, x, dnnl_nhwc);
    mds[1] = md_image(t, y, dnnl_nhwc);
    if (going(t))
        check(t,
              shim_pool_forward(&pd, t->segment->engine, &window, pool_kind(op), workspace, mds[0], mds[1],
                                attr),
              "pooling");
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

static void translate_pool(translator *t, const gp_op *op)
{
    uint32_t x = op->in[0], y = op->out[0], index = op->out[1];
    bool workspace = index != GP_NO_VALUE;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    shim_md mds[2] = { NULL, NULL };
    dnnl_primitive_desc_t pd = pool_forward_desc(t, op, x, y, workspace, mds);

    if (workspace && t->request->values[index] != NULL)
        fail_invalid(t, "the index of a max pooling cannot leave the segment", index);
    if (going(t)) {
        step_argument(&step, DNNL_ARG_SRC, value_read(t, x, PACKED));
        step_argument(&step, DNNL_ARG_DST, value_write(t, y, PACKED));
        if (workspace) {
            shim_cmd md = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);

            t->forms[index][PACKED] = tensor_make(t, md_copy(t, md), LIFE_RUN);
            step_argument(&step, DNNL_ARG_WORKSPACE, t->forms[index][PACKED]);
        }
        step_primitive(t, &step, pd, "pooling");
        step_emit(t, &step);
        value_written(t, y);
    }
    dnnl_primitive_desc_destroy(pd);
    shim_md_free(mds[0]);
    shim_md_free(mds[1]);
}

static void translate_pool_backward(translator *t, const gp_op *op)
{
    uint32_t dy = op->in[0], index = op->in[1], dx = op->out[0];
    bool workspace = index != GP_NO_VALUE;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    shim_window window = window_of(&op->window);
    shim_md mds[2] = { NULL, NULL };
    /* Average pooling's backward wants a training hint too. */
    dnnl_primitive_desc_t pd = NULL, hint = pool_forward_desc(t, op, dx, dy, true, mds);
    dnnl_primitive_attr_t attr = attr_new(t, POST_NONE);

    if (workspace && t->forms[index][PACKED] == ONEDNN_NONE)
        fail_invalid(t, "the index of a max pooling cannot come from another segment", index);
    if (going(t) &&
        check(t,
              shim_pool_backward(&pd, t->segment->engine, &window, pool_kind(op), mds[0], mds[1], hint, attr),
              "backward pooling")) {
        step_argument(&step, DNNL_ARG_DIFF_DST, value_read(t, dy, PACKED));
        step_argument(&step, DNNL_ARG_DIFF_SRC, value_write(t, dx, PACKED));
        if (workspace)
            step_argument(&step, DNNL_ARG_WORKSPACE, t->forms[index][PACKED]);
        step_primitive(t, &step, pd, "backward pooling");
        step_emit(t, &step);
        value_written(t, dx);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    shim_md_free(mds[0]);
    shim_md_free(mds[1]);
}

/* --- ops that are loops of ours --------------------------------------------------------------------- */

/* b may be GP_NO_VALUE.  The first input's buffer becomes the output's where nobody reads it later. */
static void loop_emit(translator *t, gp_onednn_loop loop, const gp_op *op, uint32_t a, uint32_t b,
                      uint32_t out)
{
    gp_onednn_form form;
    const gp_shape *shape = shape_of(t, out);
    gp_onednn_step step = { .loop = loop, .count = count_of(t, out), .layer = op->layer, .rate = op->rate };

    if (!going(t))
        return;
    form = common_form(t, a, b == GP_NO_VALUE ? a : b);
    step.channels = 1;
    step.pixels = step.count;
    if (form == PACKED && !one_order(shape)) {
        step.channels = (size_t)shape->dim[0];
        step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    }
    step_argument(&step, 0, value_read(t, a, form));
    if (b != GP_NO_VALUE)
        step_argument(&step, 0, value_read(t, b, form));
    step_argument(&step, 0, value_write(t, out, form));
    step.in_place = true;
    step_emit(t, &step);
    value_written(t, out);
}

/* Whether a value lies as activations do: per sample, in one form or the other. */
static bool is_activation(const translator *t, uint32_t value)
{
    gp_value_role role = t->request->graph->values[value].role;

    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_ACTIVATION_GRADIENT;
}

/* Packed where that saves a reorder, or where nothing speaks for the other. */
static gp_onednn_form plain_form(const translator *t, const gp_op *op)
{
    bool packed = false, dense = false;

    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        uint32_t value = op->in[i];

        if (value == GP_NO_VALUE || !is_activation(t, value))
            continue;
        packed = packed || (t->forms[value][PACKED] != ONEDNN_NONE && !one_order(shape_of(t, value)));
        dense = dense || (t->forms[value][DENSE] != ONEDNN_NONE && t->forms[value][PACKED] == ONEDNN_NONE);
    }
    return packed || !dense ? PACKED : DENSE;
}

/* A value that one layer keeps for its own backward pass, in the order its loop likes. */
static uint32_t kept_tensor(translator *t, uint32_t value)
{
    bool call = t->request->graph->values[value].role == GP_VALUE_CALL;
    void *crossing = t->request->values[value];
    dnnl_dims_t dims = { call ? 1 : t->segment->micro_batch, (dnnl_dim_t)count_of(t, value) };
    size_t bytes = (size_t)(dims[0] * dims[1]) * sizeof(float);

    if (going(t) && t->forms[value][DENSE] == ONEDNN_NONE)
        t->forms[value][DENSE] =
            tensor_new(t, md_new(t, 2, dims, dnnl_ab),
                       buffer_new(t, crossing == NULL ? LIFE_RUN : LIFE_FOREIGN, crossing, bytes));
    return going(t) ? t->forms[value][DENSE] : ONEDNN_NONE;
}

/* ONEDNN_NONE: labels and sums, which a loop finds in its call. */
static uint32_t plain_operand(translator *t, uint32_t value, gp_onednn_form form, bool output)
{
    switch (t->request->graph->values[value].role) {
    case GP_VALUE_PARAMETER:
        return flat_parameter(t, value, false);
    case GP_VALUE_PARAMETER_GRADIENT:
        return flat_parameter(t, value, true);
    case GP_VALUE_SAVED:
    case GP_VALUE_CALL:
        return kept_tensor(t, value);
    case GP_VALUE_LABELS:
    case GP_VALUE_SUMS:
        return ONEDNN_NONE;
    default:
        return output ? value_write(t, value, form) : value_read(t, value, form);
    }
}

/* The first output stands last: it may take over the first input's memory. */
static void translate_plain(translator *t, const gp_op *op)
{
    const gp_loop *loop = gp_loop_find(op->code);
    gp_onednn_form form = loop->dense ? DENSE : plain_form(t, op);
    gp_onednn_step step = { .loop = gp_onednn_loop_plain,
                            .plain = loop,
                            .op = op,
                            .packed = form == PACKED,
                            .in_place = loop->in_place };

    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        uint32_t tensor = op->in[i] == GP_NO_VALUE ? ONEDNN_NONE : plain_operand(t, op->in[i], form, false);

        if (tensor != ONEDNN_NONE)
            step_argument(&step, i, tensor);
    }
    for (int i = GP_OP_VALUES_MAX; i-- > 0;) {
        uint32_t value = op->out[i];
        uint32_t tensor = value == GP_NO_VALUE || value == t->request->graph->scores
                              ? ONEDNN_NONE
                              : plain_operand(t, value, form, true);

        if (tensor != ONEDNN_NONE)
            step_argument(&step, i + GP_OP_VALUES_MAX, tensor);
    }
    step_emit(t, &step);
    t->segment->has_loss = t->segment->has_loss || op->code == GP_OP_WEIGHTED_XENT;
    for (int i = 0; i < GP_OP_VALUES_MAX; i++)
        if (op->out[i] != GP_NO_VALUE && op->out[i] != t->request->graph->scores &&
            is_activation(t, op->out[i]))
            value_written(t, op->out[i]);
}

/* Another shape on the same bytes: no step at all, but where the bytes are to cross, or are in nhwc order. */
static void translate_reshape(translator *t, const gp_op *op)
{
    uint32_t x = op->in[0], y = op->out[0];
    bool same = gp_shape_equal(shape_of(t, x), shape_of(t, y));
    bool packed = same && t->forms[x][PACKED] != ONEDNN_NONE;
    uint32_t from;

    if (t->request->values[y] != NULL && same) {
        loop_emit(t, gp_onednn_loop_copy, op, x, GP_NO_VALUE, y);
        return;
    }
    from = value_read(t, x, packed ? PACKED : DENSE);
    if (!going(t))
        return;
    if (t->request->values[y] == NULL) {
        form_attach(t, y, packed ? PACKED : DENSE, t->segment->tensors[from].buffer);
    } else {
        gp_onednn_step step = { .loop = gp_onednn_loop_copy, .count = count_of(t, y) };

        step_argument(&step, 0, from);
        step_argument(&step, 0, value_write(t, y, DENSE));
        step_emit(t, &step);
    }
}

static void translate_softmax_xent(translator *t, const gp_op *op)
{
    uint32_t logits = op->in[0], dlogits = op->out[0];
    gp_onednn_step step = { .loop = gp_onednn_loop_softmax_xent, .count = count_of(t, logits) };

    step_argument(&step, 0, value_read(t, logits, DENSE));
    if (dlogits != GP_NO_VALUE)
        step_argument(&step, 0, value_write(t, dlogits, DENSE));
    step_emit(t, &step);
    if (dlogits != GP_NO_VALUE)
        value_written(t, dlogits);
    t->segment->has_loss = true;
}

static void translate_op(translator *t, const gp_op *op)
{
    switch (op->code) {
    case GP_OP_CONV2D:
    case GP_OP_FC:
    case GP_OP_TRANSCONV2D_BACKWARD_DATA:
        translate_forward(t, op);
        break;
    case GP_OP_CONV2D_BACKWARD_DATA:
    case GP_OP_FC_BACKWARD_DATA:
    case GP_OP_TRANSCONV2D:
        translate_backward_data(t, op);
        break;
    case GP_OP_CONV2D_BACKWARD_WEIGHTS:
    case GP_OP_FC_BACKWARD_WEIGHTS:
    case GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS:
        translate_backward_weights(t, op);
        break;
    case GP_OP_POOL:
        translate_pool(t, op);
        break;
    case GP_OP_POOL_BACKWARD:
        translate_pool_backward(t, op);
        break;
    case GP_OP_RELU:
        loop_emit(t, gp_onednn_loop_relu, op, op->in[0], GP_NO_VALUE, op->out[0]);
        break;
    case GP_OP_RELU_BACKWARD:
        loop_emit(t, gp_onednn_loop_relu_backward, op, op->in[1], op->in[0], op->out[0]);
        break;
    case GP_OP_DROPOUT:
    case GP_OP_DROPOUT_BACKWARD:
        loop_emit(t, gp_onednn_loop_dropout, op, op->in[0], GP_NO_VALUE, op->out[0]);
        break;
    case GP_OP_ADD:
        loop_emit(t, gp_onednn_loop_add, op, op->in[0], op->in[1], op->out[0]);
        break;
    case GP_OP_RESHAPE:
        translate_reshape(t, op);
        break;
    case GP_OP_SOFTMAX_XENT:
        translate_softmax_xent(t, op);
        break;
    default:
        if (gp_loop_find(op->code) != NULL)
            translate_plain(t, op);
        else
            t->status =
                gp_fail(t->err, GP_EUNSUPPORTED, "the oneDNN segment has no kernel for op %d", (int)op->code);
    }
}

gp_status gp_onednn_translate(gp_segment *segment, const gp_segment_request *request, gp_error *err)
{
    translator t = { .segment = segment, .request = request, .err = err };
    const gp_ops *list = &request->graph->ops[request->phase];
    size_t start = (size_t)(request->ops - list->op);

    t.forms = gp_malloc(request->graph->value_count * sizeof(*t.forms));
    t.folded = gp_calloc(request->count, sizeof(*t.folded));
    if (t.forms == NULL || t.folded == NULL)
        t.status = gp_fail(err, GP_ENOMEM, "no memory to translate %u ops", request->count);
    else
        memset(t.forms, 0xff, request->graph->value_count * sizeof(*t.forms));
    segment->scratch = buffer_new(&t, LIFE_KEPT, NULL, 0);
    for (uint32_t i = 0; i < request->count && going(&t); i++) {
        if (!t.folded[i])
            translate_op(&t, &request->ops[i]);
        if (start + i < list->forward_count)
            segment->forward_steps = segment->step_list.count;
    }
    gp_free(t.forms);
    gp_free(t.folded);
    gp_free(t.packed);
    return t.status;
}
