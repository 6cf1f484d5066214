/* Translates ops into steps: ops that are loops, and the dispatch to the other files. */
#include "worker/backend/cpu/onednn/onednn_translate.h"

#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* ---- ops that are loops ---- */

/* Emit a loop with inputs a and b (b may be GP_NO_VALUE). The output replaces the first input in
 * the buffer if no later step reads the input. */
static void loop_emit(gp_onednn_translator *t, gp_onednn_loop loop, const gp_op *op, uint32_t a, uint32_t b,
                      uint32_t out)
{
    gp_onednn_form form;
    const gp_shape *shape = shape_of(t, out);
    gp_onednn_step step = { .loop = loop, .count = count_of(t, out), .rate = op->rate };

    if (!going(t))
        return;
    form = gp_onednn_common_form(t, a, b == GP_NO_VALUE ? a : b);
    step.channels = 1;
    step.pixels = step.count;
    if (form == PACKED && !one_order(shape)) {
        step.channels = (size_t)shape->dim[0];
        step.pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    }
    step.narrow = t->segment->narrow && loop == gp_onednn_loop_dropout;
    if (!step.narrow)
        form = wide_of(form);
    step_argument(&step, 0, gp_onednn_value_read(t, a, form));
    if (b != GP_NO_VALUE)
        step_argument(&step, 0, gp_onednn_value_read(t, b, form));
    step_argument(&step, 0, gp_onednn_value_write(t, out, form));
    step.in_place = true;
    gp_onednn_step_emit(t, &step);
    gp_onednn_value_written(t, out);
}

/* Return true if the value is stored per sample, in dense or packed order. */
static bool is_activation(const gp_onednn_translator *t, uint32_t value)
{
    gp_value_role role = t->request->graph->values[value].role;

    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_ACTIVATION_GRADIENT;
}

/* Choose the form for a plain loop: packed if that saves a reorder or if no input has another
 * form. */
static gp_onednn_form plain_form(const gp_onednn_translator *t, const gp_op *op)
{
    bool packed = false, dense = false;

    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        uint32_t value = op->in[i];

        if (value == GP_NO_VALUE || !is_activation(t, value))
            continue;
        packed = packed || (lies_in(t, value, PACKED) && !one_order(shape_of(t, value)));
        dense = dense || (lies_in(t, value, DENSE) && !lies_in(t, value, PACKED));
    }
    return packed || !dense ? PACKED : DENSE;
}

/* Return the tensor of a loop operand. ONEDNN_NONE: targets, scores and sums, which the loop finds
 * in the call. */
static uint32_t plain_operand(gp_onednn_translator *t, uint32_t value, gp_onednn_form form, bool output)
{
    switch (t->request->graph->values[value].role) {
    case GP_VALUE_PARAMETER:
        return gp_onednn_flat_parameter(t, value, false);
    case GP_VALUE_PARAMETER_GRADIENT:
        return gp_onednn_flat_parameter(t, value, true);
    case GP_VALUE_SAVED:
    case GP_VALUE_CALL:
        return gp_onednn_kept_tensor(t, value);
    case GP_VALUE_TARGET:
    case GP_VALUE_SCORES:
    case GP_VALUE_SUMS:
        return ONEDNN_NONE;
    default:
        return output ? gp_onednn_value_write(t, value, form) : gp_onednn_value_read(t, value, form);
    }
}

/* Emit a loop from loops.h. The first output is the last argument, so that it can replace the first
 * input. */
static void translate_plain(gp_onednn_translator *t, const gp_op *op)
{
    const gp_loop *loop = gp_loop_find(op->code);
    gp_onednn_form form = loop->dense ? DENSE : plain_form(t, op);
    gp_onednn_step step = { .loop = gp_onednn_loop_plain,
                            .plain = loop,
                            .op = t->op,
                            .packed = form == PACKED,
                            .in_place = loop->in_place };

    step.narrow = loop->narrow && t->segment->narrow;
    if (!step.narrow)
        form = wide_of(form);
    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        uint32_t tensor = op->in[i] == GP_NO_VALUE ? ONEDNN_NONE : plain_operand(t, op->in[i], form, false);

        if (tensor != ONEDNN_NONE)
            step_argument(&step, i, tensor);
    }
    for (int i = GP_OP_VALUES_MAX; i-- > 0;) {
        uint32_t value = op->out[i];
        uint32_t tensor = value == GP_NO_VALUE ? ONEDNN_NONE : plain_operand(t, value, form, true);

        if (tensor != ONEDNN_NONE)
            step_argument(&step, i + GP_OP_VALUES_MAX, tensor);
    }
    gp_onednn_step_emit(t, &step);
    for (int i = 0; i < GP_OP_VALUES_MAX; i++)
        if (op->out[i] != GP_NO_VALUE && is_activation(t, op->out[i]))
            gp_onednn_value_written(t, op->out[i]);
}

/* Translate a reshape. Needs no step unless the value crosses the segment border or is stored in
 * nhwc order. */
static void translate_reshape(gp_onednn_translator *t, const gp_op *op)
{
    uint32_t x = op->in[0], y = op->out[0];
    bool same = gp_shape_equal(shape_of(t, x), shape_of(t, y));
    gp_onednn_form form = DENSE;
    uint32_t from;

    if (t->roots[t->op->out[0]] != t->op->out[0])
        return; /* an alias of the input */
    if (same) {
        loop_emit(t, gp_onednn_loop_copy, op, x, GP_NO_VALUE, y);
        return;
    }
    /* Use the existing width; values at segment borders are float32. */
    if (t->request->values[y] != NULL || (lies_in(t, x, form) && t->forms[x][form] == ONEDNN_NONE))
        form = wide_of(form);
    from = gp_onednn_value_read(t, x, form);
    if (!going(t))
        return;
    if (t->request->values[y] == NULL) {
        gp_onednn_form_attach(t, y, form, t->segment->tensors[from].buffer);
    } else {
        gp_onednn_step step = { .loop = gp_onednn_loop_copy, .count = count_of(t, y) };

        step_argument(&step, 0, from);
        step_argument(&step, 0, gp_onednn_value_write(t, y, WIDE_DENSE));
        gp_onednn_step_emit(t, &step);
    }
}

static void translate_softmax_xent(gp_onednn_translator *t, const gp_op *op)
{
    uint32_t logits = op->in[0], dlogits = op->out[0];
    gp_onednn_step step = { .loop = gp_onednn_loop_softmax_xent, .count = count_of(t, logits) };

    step_argument(&step, 0, gp_onednn_value_read(t, logits, WIDE_DENSE));
    if (dlogits != GP_NO_VALUE)
        step_argument(&step, 0, gp_onednn_value_write(t, dlogits, WIDE_DENSE));
    gp_onednn_step_emit(t, &step);
    if (dlogits != GP_NO_VALUE)
        gp_onednn_value_written(t, dlogits);
}

static void translate_op(gp_onednn_translator *t, const gp_op *original)
{
    static void (*const translations[GP_OP_COUNT])(gp_onednn_translator *, const gp_op *) = {
        [GP_OP_CONV2D] = gp_onednn_translate_forward,
        [GP_OP_FC] = gp_onednn_translate_forward,
        [GP_OP_TRANSCONV2D_BACKWARD_DATA] = gp_onednn_translate_forward,
        [GP_OP_CONV2D_BACKWARD_DATA] = gp_onednn_translate_backward_data,
        [GP_OP_FC_BACKWARD_DATA] = gp_onednn_translate_backward_data,
        [GP_OP_TRANSCONV2D] = gp_onednn_translate_backward_data,
        [GP_OP_CONV2D_BACKWARD_WEIGHTS] = gp_onednn_translate_backward_weights,
        [GP_OP_FC_BACKWARD_WEIGHTS] = gp_onednn_translate_backward_weights,
        [GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS] = gp_onednn_translate_backward_weights,
        [GP_OP_POOL] = gp_onednn_translate_pool,
        [GP_OP_POOL_BACKWARD] = gp_onednn_translate_pool,
        [GP_OP_ADD] = gp_onednn_translate_add,
        [GP_OP_BATCHNORM] = gp_onednn_translate_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = gp_onednn_translate_batchnorm_backward,
        [GP_OP_RESHAPE] = translate_reshape,
        [GP_OP_SOFTMAX_XENT] = translate_softmax_xent,
    };
    gp_op named = *original;
    const gp_op *op = &named;

    t->op = original;
    for (int i = 0; i < GP_OP_VALUES_MAX; i++)
        if (named.in[i] != GP_NO_VALUE)
            named.in[i] = t->roots[named.in[i]];
    if (translations[op->code] != NULL) {
        translations[op->code](t, op);
        return;
    }
    switch (op->code) {
    case GP_OP_RELU:
        gp_onednn_translate_cut(t, op, 0.0, INFINITY);
        break;
    case GP_OP_RELU_BACKWARD:
        gp_onednn_translate_mask(t, op, op->in[0], op->in[1], 0.0, INFINITY);
        break;
    case GP_OP_DROPOUT:
    case GP_OP_DROPOUT_BACKWARD:
        loop_emit(t, gp_onednn_loop_dropout, op, op->in[0], GP_NO_VALUE, op->out[0]);
        break;
    case GP_OP_ACTIVATION:
        if (op->function == GP_ACTIVATION_CLIP)
            gp_onednn_translate_cut(t, op, op->factor[0], op->factor[1]);
        else
            translate_plain(t, op);
        break;
    case GP_OP_ACTIVATION_BACKWARD:
        if (op->function == GP_ACTIVATION_CLIP)
            gp_onednn_translate_mask(t, op, op->in[0], op->in[1], op->factor[0], op->factor[1]);
        else
            translate_plain(t, op);
        break;
    case GP_OP_SLICE:
        if (!gp_onednn_translate_slice(t, op))
            translate_plain(t, op);
        break;
    default:
        if (gp_loop_find(op->code) != NULL)
            translate_plain(t, op);
        else
            t->status =
                gp_fail(t->err, GP_EUNSUPPORTED, "the oneDNN segment has no kernel for op %d", (int)op->code);
    }
}

/* Find aliases and count readers. A reshape to the same shape creates an alias, unless the value
 * crosses the segment border. */
static void readers_find(gp_onednn_translator *t)
{
    const gp_segment_request *request = t->request;

    for (uint32_t v = 0; v < request->graph->value_count; v++)
        t->roots[v] = v;
    for (const gp_op *op = request->ops; op < request->ops + request->count; op++) {
        if (op->code == GP_OP_RESHAPE && request->values[op->out[0]] == NULL &&
            gp_shape_equal(shape_of(t, op->in[0]), shape_of(t, op->out[0]))) {
            t->roots[op->out[0]] = t->roots[op->in[0]];
            continue;
        }
        for (int i = 0; i < GP_OP_VALUES_MAX; i++)
            if (op->in[i] != GP_NO_VALUE)
                t->readers[t->roots[op->in[i]]]++;
    }
}

gp_status gp_onednn_translate(gp_segment *segment, const gp_segment_request *request, gp_error *err)
{
    gp_onednn_translator t = { .segment = segment, .request = request, .err = err };
    const gp_ops *list = &request->graph->ops[request->phase];
    size_t start = (size_t)(request->ops - list->op);

    t.forms = gp_malloc(request->graph->value_count * sizeof(*t.forms));
    t.roots = gp_calloc(request->graph->value_count, sizeof(*t.roots));
    t.readers = gp_calloc(request->graph->value_count, sizeof(*t.readers));
    t.pending = gp_calloc(request->graph->value_count, sizeof(*t.pending));
    t.folded = gp_calloc(request->count, sizeof(*t.folded));
    if (t.forms == NULL || t.roots == NULL || t.readers == NULL || t.pending == NULL || t.folded == NULL) {
        t.status = gp_fail(err, GP_ENOMEM, "no memory to translate %u ops", request->count);
    } else {
        memset(t.forms, 0xff, request->graph->value_count * sizeof(*t.forms));
        readers_find(&t);
    }
    segment->scratch = gp_onednn_buffer_new(&t, LIFE_KEPT, NULL, 0);
    for (uint32_t i = 0; i < request->count && going(&t); i++) {
        if (!t.folded[i])
            translate_op(&t, &request->ops[i]);
        if (start + i < list->forward_count)
            segment->forward_steps = segment->step_count;
    }
    gp_free(t.forms);
    gp_free(t.roots);
    gp_free(t.readers);
    gp_free(t.pending);
    gp_free(t.folded);
    gp_free(t.packed);
    return t.status;
}
