/* Translates convolutions and fully connected layers into steps. */
#include "worker/backend/cpu/onednn/onednn_translate.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

#include <math.h>

/* Layer descriptors, shared by the layer's three primitives. */
typedef struct layer_mds {
    shim_layer l;    /* weight and gradient in the best layout for their primitives */
    shim_md plain;   /* weight in the blob layout */
    bool wide, fits; /* fits: oneDNN supports the layer in this width, as far as known */
    dnnl_primitive_desc_t forward;
} layer_mds;

static void layer_mds_deinit(layer_mds *mds)
{
    dnnl_primitive_desc_destroy(mds->forward);
    shim_md_free(mds->l.x);
    shim_md_free(mds->l.y);
    shim_md_free(mds->plain);
    shim_md_free(mds->l.weight);
    shim_md_free(mds->l.gradient);
    shim_md_free(mds->l.bias);
}

static gp_onednn_form layer_form(const layer_mds *mds, bool conv)
{
    gp_onednn_form form = conv ? PACKED : DENSE;

    return mds->wide ? wide_of(form) : form;
}

shim_window gp_onednn_window_of(const gp_window *window)
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

/* Return the index of the only op that reads a value. request->count: several or none. */
static uint32_t reader_of(const gp_onednn_translator *t, uint32_t value)
{
    const gp_segment_request *request = t->request;

    if (request->values[value] != NULL || t->readers[value] != 1)
        return request->count;
    for (uint32_t i = 0; i < request->count; i++)
        for (int j = 0; j < GP_OP_VALUES_MAX; j++)
            if (request->ops[i].code != GP_OP_RESHAPE && request->ops[i].in[j] != GP_NO_VALUE &&
                t->roots[request->ops[i].in[j]] == value)
                return i;
    return request->count;
}

/* Add an op to the current primitive, and continue after it. */
static void tail_fold(gp_onednn_translator *t, gp_onednn_tail *tail, uint32_t *next)
{
    t->folded[*next] = true;
    tail->y = t->request->ops[*next].out[0];
    *next = reader_of(t, tail->y);
}

/* Return true if the clamp is a plain relu. */
static bool cuts_as_relu(const gp_onednn_tail *tail)
{
    return tail->low == 0.0f && tail->high == INFINITY;
}

/* Collect the ops after a layer that the layer's primitive can include. In training, batch norm
 * separates a convolution from these ops (onednn_pending.c). */
static gp_onednn_tail tail_take(gp_onednn_translator *t, const gp_op *op)
{
    const gp_segment_request *request = t->request;
    gp_onednn_tail tail = { .y = op->out[0], .other = GP_NO_VALUE };
    uint32_t next = reader_of(t, tail.y);

    if (op->code == GP_OP_CONV2D && request->phase == GP_PHASE_INFER) {
        if (next < request->count && request->ops[next].code == GP_OP_BATCHNORM_INFER) {
            tail.norm = &request->ops[next];
            tail_fold(t, &tail, &next);
        }
        if (next < request->count && request->ops[next].code == GP_OP_ADD) {
            uint32_t a = t->roots[request->ops[next].in[0]], b = t->roots[request->ops[next].in[1]];
            uint32_t other = a == tail.y ? b : a;

            if (t->pending[other].count != 0 || lies_in(t, other, PACKED)) { /* it already exists */
                tail.other = other;
                tail_fold(t, &tail, &next);
            }
        }
    }
    if (next < request->count) {
        const gp_op *cut = &request->ops[next];
        bool clip = cut->code == GP_OP_ACTIVATION && cut->function == GP_ACTIVATION_CLIP;

        if (clip || cut->code == GP_OP_RELU) {
            tail.bounded = true;
            tail.low = clip ? (float)cut->factor[0] : 0.0f;
            tail.high = clip ? (float)cut->factor[1] : INFINITY;
            tail_fold(t, &tail, &next);
        }
    }
    return tail;
}

/* Create the primitive attributes for a tail. `tail` may be NULL. */
static dnnl_primitive_attr_t tail_attr(gp_onednn_translator *t, const gp_onednn_tail *tail, bool wide)
{
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, POST_NONE);
    dnnl_post_ops_t chain = NULL;
    dnnl_status_t status;
    shim_md md = NULL;

    if (!going(t) || tail == NULL || (tail->other == GP_NO_VALUE && !tail->bounded))
        return attr;
    status = dnnl_post_ops_create(&chain);
    if (tail->other != GP_NO_VALUE)
        md = gp_onednn_md_image(t, tail->other, wide, dnnl_nhwc);
    if (status == dnnl_success && md != NULL)
        status = dnnl_post_ops_append_binary(chain, dnnl_binary_add, md);
    if (status == dnnl_success && tail->bounded)
        status = cuts_as_relu(tail) ? shim_append_eltwise(chain, dnnl_eltwise_relu, 0.0f, 0.0f)
                                    : shim_append_eltwise(chain, dnnl_eltwise_clip, tail->low, tail->high);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, chain);
    dnnl_post_ops_destroy(chain);
    shim_md_free(md);
    gp_onednn_done(t, status, "primitive attributes");
    return attr;
}

/* Create the descriptor of the forward primitive, which also serves as hint for backward
 * primitives. */
static void forward_describe(gp_onednn_translator *t, layer_mds *mds, uint32_t bias,
                             const gp_onednn_tail *tail, const char *what)
{
    dnnl_primitive_attr_t attr = tail_attr(t, tail, mds->wide);
    dnnl_status_t status = dnnl_success;
    dnnl_dims_t dims = { 0 };

    if (bias != GP_NO_VALUE) {
        dims[0] = (dnnl_dim_t)count_of(t, bias);
        mds->l.bias = gp_onednn_md_new(t, 1, dims, dnnl_a);
    }
    mds->l.train = t->segment->phase == GP_PHASE_TRAIN;
    if (going(t))
        status = shim_layer_pd(&mds->forward, t->segment->engine, &mds->l, SHIM_FORWARD, NULL, attr);
    mds->fits = gp_onednn_primitive_fits(t, status, mds->forward, mds->wide, what);
    dnnl_primitive_attr_destroy(attr);
}

/* Describe a convolution. x and y may be gradients, which have the same shapes. */
static void conv_describe(gp_onednn_translator *t, layer_mds *mds, const gp_op *op, uint32_t x,
                          uint32_t weight, uint32_t bias, uint32_t y, const gp_onednn_tail *tail)
{
    const gp_shape *shape = shape_of(t, weight);
    dnnl_dim_t groups = op->window.groups;
    dnnl_dims_t grouped = { groups, shape->dim[0] / groups, shape->dim[1], shape->dim[2], shape->dim[3] };
    dnnl_dims_t single = { shape->dim[0], shape->dim[1], shape->dim[2], shape->dim[3] };
    const dnnl_dim_t *dims = groups > 1 ? grouped : single;
    int rank = groups > 1 ? 5 : 4;

    mds->l.conv = true;
    mds->l.window = gp_onednn_window_of(&op->window);
    mds->l.x = gp_onednn_md_image(t, x, mds->wide, dnnl_nhwc);
    mds->l.y = gp_onednn_md_image(t, y, mds->wide, dnnl_nhwc);
    mds->plain = gp_onednn_md_new(t, rank, dims, groups > 1 ? dnnl_goihw : dnnl_oihw);
    mds->l.weight = gp_onednn_md_typed(t, rank, dims, type_of(t, mds->wide), dnnl_format_tag_any);
    mds->l.gradient = gp_onednn_md_new(t, rank, dims, dnnl_format_tag_any);
    forward_describe(t, mds, bias, tail, "a convolution");
}

/* Return true if a loss reads the value and therefore needs float32. */
static bool feeds_loss(const gp_onednn_translator *t, uint32_t value)
{
    const gp_segment_request *request = t->request;

    for (const gp_op *op = request->ops; op < request->ops + request->count; op++)
        if (t->roots[op->in[0]] == value &&
            (op->code == GP_OP_CUSTOM_LOSS ||
             (op->in[1] != GP_NO_VALUE && request->graph->values[op->in[1]].role == GP_VALUE_TARGET)))
            return true;
    return false;
}

/* Return true for a convolution that multiplies every pixel by the same matrix. */
static bool is_pointwise(const gp_op *op)
{
    const gp_window *window = &op->window;

    if (op->code != GP_OP_CONV2D_BACKWARD_WEIGHTS || window->groups != 1)
        return false;
    for (int i = 0; i < 2; i++)
        if (window->kernel[i] != 1 || window->stride[i] != 1 || window->padding[i] != 0 ||
            window->padding[i + 2] != 0)
            return false;
    return true;
}

/* Describe a fully connected layer, or a pointwise convolution as a product over the pixels in all
 * samples: for weight gradients, oneDNN's product is faster than its convolution, and the result
 * has the arena layout. Weights keep the blob layout, possibly converted to bfloat16: packing a
 * large matrix costs more memory traffic than the packed product saves. */
static void product_describe(gp_onednn_translator *t, layer_mds *mds, bool pointwise, uint32_t x,
                             uint32_t weight, uint32_t bias, uint32_t y, const gp_onednn_tail *tail)
{
    const gp_shape *from = shape_of(t, x), *to = shape_of(t, y);
    dnnl_dims_t dims = { shape_of(t, weight)->dim[0], (dnnl_dim_t)count_of(t, x) };

    if (pointwise) {
        dnnl_dim_t rows = (dnnl_dim_t)t->segment->micro_batch * from->dim[1] * from->dim[2];
        dnnl_dims_t x_dims = { rows, from->dim[0] }, y_dims = { rows, to->dim[0] };

        dims[1] = from->dim[0];
        mds->l.x = gp_onednn_md_typed(t, 2, x_dims, type_of(t, mds->wide), dnnl_ab);
        mds->l.y = gp_onednn_md_typed(t, 2, y_dims, type_of(t, mds->wide), dnnl_ab);
    } else {
        mds->l.x = gp_onednn_md_vector(t, x, mds->wide);
        mds->l.y = gp_onednn_md_vector(t, y, mds->wide || feeds_loss(t, y));
    }
    mds->plain = gp_onednn_md_new(t, 2, dims, dnnl_ab);
    mds->l.weight = gp_onednn_md_typed(t, 2, dims, type_of(t, mds->wide), dnnl_ab);
    mds->l.gradient = gp_onednn_md_copy(t, mds->plain);
    forward_describe(t, mds, bias, tail, pointwise ? "a product over pixels" : "a fully connected layer");
}

/* Return a tensor for the same buffer with another descriptor. */
static uint32_t tensor_view(gp_onednn_translator *t, uint32_t tensor, shim_cmd md)
{
    return going(t) ? gp_onednn_tensor_new(t, gp_onednn_md_copy(t, md), t->segment->tensors[tensor].buffer)
                    : ONEDNN_NONE;
}

/* Emit a transposed convolution's bias, which the primitive does not support: add it to the image,
 * or sum the image into the bias gradient. */
static void bias_emit(gp_onednn_translator *t, gp_onednn_loop loop, uint32_t bias, uint32_t image,
                      bool gradient)
{
    const gp_shape *shape = shape_of(t, image);
    gp_onednn_step step = { .loop = loop, .channels = (size_t)shape->dim[0] };
    uint32_t number = gp_onednn_flat_parameter(t, bias, gradient), pixels = ONEDNN_NONE;

    step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    if (going(t))
        pixels = gp_onednn_value_read(t, image, WIDE_PACKED);
    step_argument(&step, 0, gradient ? pixels : number);
    step_argument(&step, 0, gradient ? number : pixels);
    gp_onednn_step_emit(t, &step);
}

/* Emit a product with the AVX-512 kernel, which reads the weights from the blob. */
static void product_emit(gp_onednn_translator *t, const gp_op *op, uint32_t y, bool relu)
{
    gp_onednn_step step = { .loop = gp_onednn_loop_product,
                            .count = count_of(t, op->in[0]),
                            .channels = count_of(t, y),
                            .mix.bounded = relu };

    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], WIDE_DENSE));
    step_argument(&step, SLOT_SCALE, gp_onednn_flat_parameter(t, op->in[1], false));
    if (op->in[2] != GP_NO_VALUE)
        step_argument(&step, SLOT_OFFSET, gp_onednn_flat_parameter(t, op->in[2], false));
    step_argument(&step, SLOT_OUT, gp_onednn_value_write(t, y, WIDE_DENSE));
    gp_onednn_step_emit(t, &step);
    gp_onednn_value_written(t, y);
}

void gp_onednn_norm_fold_emit(gp_onednn_translator *t, const gp_op *op, const gp_op *norm, shim_cmd plain,
                              gp_onednn_life life, uint32_t *weight, uint32_t *bias)
{
    size_t outputs = count_of(t, norm->in[1]);
    dnnl_dims_t dims = { (dnnl_dim_t)outputs };
    gp_onednn_step step = { .when = WHEN_FIRST,
                            .what = "norm into weights",
                            .loop = gp_onednn_loop_norm_fold,
                            .channels = outputs,
                            .count = count_of(t, op->in[1]) / outputs,
                            .mix.epsilon = norm->factor[0] };

    *weight = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, plain), life);
    *bias = gp_onednn_tensor_make(t, gp_onednn_md_new(t, 1, dims, dnnl_a), LIFE_KEPT);
    step_argument(&step, SLOT_X, gp_onednn_flat_parameter(t, op->in[1], false));
    if (op->in[2] != GP_NO_VALUE)
        step_argument(&step, SLOT_A, gp_onednn_flat_parameter(t, op->in[2], false));
    step_argument(&step, SLOT_SCALE, gp_onednn_flat_parameter(t, norm->in[1], false));
    step_argument(&step, SLOT_OFFSET, gp_onednn_flat_parameter(t, norm->in[2], false));
    step_argument(&step, SLOT_RUNNING, gp_onednn_flat_parameter(t, norm->in[3], false));
    step_argument(&step, SLOT_SQUARES, gp_onednn_flat_parameter(t, norm->in[4], false));
    step_argument(&step, SLOT_OUT, *weight);
    step_argument(&step, SLOT_KEPT, *bias);
    gp_onednn_step_emit(t, &step);
}

/* Add a layer's weights and bias to a step, in the required layout. */
static void weights_argue(gp_onednn_translator *t, gp_onednn_step *step, const gp_op *op,
                          const gp_onednn_tail *tail, const layer_mds *mds)
{
    shim_cmd wanted = dnnl_primitive_desc_query_md(mds->forward, dnnl_query_weights_md, 0);
    uint32_t weight, bias;
    bool packed;

    if (tail->norm == NULL) {
        step_argument(step, DNNL_ARG_WEIGHTS, gp_onednn_weight_tensor(t, op->in[1], mds->plain, wanted));
        if (op->in[2] != GP_NO_VALUE)
            step_argument(step, DNNL_ARG_BIAS, gp_onednn_parameter_tensor(t, op->in[2], mds->l.bias));
        return;
    }
    packed = going(t) && !dnnl_memory_desc_equal(mds->plain, wanted);
    gp_onednn_norm_fold_emit(t, op, tail->norm, mds->plain, packed ? LIFE_RUN : LIFE_KEPT, &weight, &bias);
    if (packed) {
        uint32_t plain = weight;

        weight = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, wanted), LIFE_KEPT);
        gp_onednn_reorder_emit(t, plain, weight, WHEN_FIRST, false);
    }
    step_argument(step, DNNL_ARG_WEIGHTS, weight);
    step_argument(step, DNNL_ARG_BIAS, bias);
}

/* Emit a layer's forward pass with weights. The three functions below emit one pass each, in
 * bfloat16 or (`wide`) float32. Return false if oneDNN does not support bfloat16 here. */
static bool forward_in(gp_onednn_translator *t, const gp_op *op, const gp_onednn_tail *tail, bool wide)
{
    bool conv = op->code != GP_OP_FC; /* or a transposed convolution's backward data */
    /* A folded batch norm adds a bias if the layer has none; the offset has the right shape. */
    uint32_t bias = tail->norm == NULL ? op->in[2] : tail->norm->in[2];
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .wide = wide };

    if (!conv && wide && gp_wide_usable() && (!tail->bounded || cuts_as_relu(tail))) {
        product_emit(t, op, tail->y, tail->bounded);
        return true;
    }
    if (conv)
        conv_describe(t, &mds, op, op->in[0], op->in[1], bias, tail->y, tail);
    else
        product_describe(t, &mds, false, op->in[0], op->in[1], bias, tail->y, tail);
    if (mds.fits) {
        gp_onednn_form form = layer_form(&mds, conv);

        step_argument(&step, DNNL_ARG_SRC, gp_onednn_value_read(t, op->in[0], form));
        weights_argue(t, &step, op, tail, &mds);
        if (tail->other != GP_NO_VALUE)
            step_argument(&step, DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                          gp_onednn_value_read(t, tail->other, form));
        if (!conv && feeds_loss(t, tail->y))
            form = wide_of(form);
        step_argument(&step, DNNL_ARG_DST, gp_onednn_value_write(t, tail->y, form));
        gp_onednn_step_primitive(t, &step, mds.forward, conv ? "a convolution" : "a fully connected layer");
        gp_onednn_step_emit(t, &step);
        gp_onednn_value_written(t, tail->y);
    }
    layer_mds_deinit(&mds);
    return mds.fits;
}

/* Create the descriptor of a backward primitive. */
static void backward_describe(gp_onednn_translator *t, layer_mds *mds, shim_pass pass,
                              dnnl_primitive_desc_t *pd, const char *what)
{
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, POST_NONE);

    if (mds->fits) {
        /* not an argument of the call below, which reads *pd */
        dnnl_status_t status = shim_layer_pd(pd, t->segment->engine, &mds->l, pass, mds->forward, attr);

        mds->fits = gp_onednn_primitive_fits(t, status, *pd, mds->wide, what);
    }
    dnnl_primitive_attr_destroy(attr);
}

static bool backward_data_in(gp_onednn_translator *t, const gp_op *op, bool wide)
{
    /* or a transposed convolution's forward pass */
    bool conv = op->code != GP_OP_FC_BACKWARD_DATA;
    uint32_t dy = op->in[0], weight = op->in[1], dx = op->out[0];
    const char *what = conv ? "a convolution's backward data" : "a fully connected layer's backward data";
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .wide = wide };

    if (conv)
        conv_describe(t, &mds, op, dx, weight, GP_NO_VALUE, dy, NULL);
    else
        product_describe(t, &mds, false, dx, weight, GP_NO_VALUE, dy, NULL);
    backward_describe(t, &mds, SHIM_DATA, &pd, what);
    if (mds.fits) {
        shim_cmd wanted = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        gp_onednn_form form = layer_form(&mds, conv);

        step_argument(&step, DNNL_ARG_DIFF_DST, gp_onednn_value_read(t, dy, form));
        step_argument(&step, DNNL_ARG_WEIGHTS, gp_onednn_weight_tensor(t, weight, mds.plain, wanted));
        step_argument(&step, DNNL_ARG_DIFF_SRC, gp_onednn_value_write(t, dx, form));
        gp_onednn_step_primitive(t, &step, pd, what);
        gp_onednn_step_emit(t, &step);
        if (op->code == GP_OP_TRANSCONV2D && op->in[2] != GP_NO_VALUE)
            bias_emit(t, gp_onednn_loop_bias, op->in[2], dx, false);
        gp_onednn_value_written(t, dx);
    }
    dnnl_primitive_desc_destroy(pd);
    layer_mds_deinit(&mds);
    return mds.fits;
}

static bool backward_weights_in(gp_onednn_translator *t, const gp_op *op, bool wide)
{
    bool conv = op->code != GP_OP_FC_BACKWARD_WEIGHTS,
         transposed = op->code == GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS, pointwise = is_pointwise(op);
    uint32_t x = op->in[transposed ? 1 : 0], dy = op->in[transposed ? 0 : 1], dweight = op->out[0];
    uint32_t dbias = transposed ? GP_NO_VALUE : op->out[1];
    const char *what =
        conv ? "a convolution's backward weights" : "a fully connected layer's backward weights";
    dnnl_primitive_desc_t pd = NULL;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    layer_mds mds = { .wide = wide };

    if (conv && !pointwise)
        conv_describe(t, &mds, op, x, dweight, dbias, dy, NULL);
    else
        product_describe(t, &mds, pointwise, x, dweight, dbias, dy, NULL);
    backward_describe(t, &mds, SHIM_WEIGHTS, &pd, what);
    if (mds.fits) {
        gp_onednn_form form = layer_form(&mds, conv);

        uint32_t from = gp_onednn_value_read(t, x, form), to = gp_onednn_value_read(t, dy, form);

        step_argument(&step, DNNL_ARG_SRC, pointwise ? tensor_view(t, from, mds.l.x) : from);
        step_argument(&step, DNNL_ARG_DIFF_DST, pointwise ? tensor_view(t, to, mds.l.y) : to);
        gp_onednn_step_primitive(t, &step, pd, what);
        gp_onednn_gradient_emit(t, &step, dweight, dbias, mds.plain,
                                dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0), mds.l.bias);
        if (transposed && op->out[1] != GP_NO_VALUE)
            bias_emit(t, gp_onednn_loop_bias_gradient, op->out[1], x, true);
    }
    dnnl_primitive_desc_destroy(pd);
    layer_mds_deinit(&mds);
    return mds.fits;
}

/* Return true if the layer must use float32: the transposed convolution bias loops do not support
 * bfloat16. */
static bool layer_is_wide(const gp_onednn_translator *t, const gp_op *op)
{
    return !t->segment->narrow || op->code == GP_OP_TRANSCONV2D ||
           op->code == GP_OP_TRANSCONV2D_BACKWARD_DATA || op->code == GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS;
}

void gp_onednn_translate_forward(gp_onednn_translator *t, const gp_op *op)
{
    const gp_onednn_tail tail = tail_take(t, op);

    if (gp_onednn_winograd_forward(t, op, &tail))
        return;
    if (!forward_in(t, op, &tail, layer_is_wide(t, op)) && going(t))
        forward_in(t, op, &tail, true);
}

void gp_onednn_translate_backward_data(gp_onednn_translator *t, const gp_op *op)
{
    if (gp_onednn_winograd_backward_data(t, op))
        return;
    if (!backward_data_in(t, op, layer_is_wide(t, op)) && going(t))
        backward_data_in(t, op, true);
}

void gp_onednn_translate_backward_weights(gp_onednn_translator *t, const gp_op *op)
{
    if (gp_onednn_winograd_backward_weights(t, op))
        return;
    if (!backward_weights_in(t, op, layer_is_wide(t, op)) && going(t))
        backward_weights_in(t, op, true);
}
