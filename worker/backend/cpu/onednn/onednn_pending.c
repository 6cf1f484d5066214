/* Deferred ops: normalisation, addition, clamping, masking and slicing are combined into single
 * passes.
 *
 * A deferred op emits no step. Its output is an expression over existing values. The next op of
 * this kind extends the expression if it is the only reader; any other reader forces the
 * computation. Examples:
 *     conv -> batchnorm -> add -> relu -> conv            becomes  conv, moments, mix, conv
 *     add (of gradients) -> relu_backward -> batchnorm_backward     becomes one step with two
 * passes */
#include "worker/backend/cpu/onednn/onednn_translate.h"
#include "worker/backend/cpu/onednn/onednn_wide.h"

#include <math.h>

#include "worker/backend/cpu/base/bf16.h"

#define NORM_LOOP(t, name) ((t)->segment->narrow ? name##_narrow : gp_wide_usable() ? name##_wide : name)

enum { CHUNKS_MAX = 64, CHUNK_ROWS_MIN = 64 };

static bool only_reader(const gp_onednn_translator *t, uint32_t value)
{
    return t->readers[value] == 1 && t->request->values[value] == NULL;
}

static gp_onednn_pending pending_of(uint32_t value)
{
    return (gp_onednn_pending){
        .count = 1,
        .term = { { .value = value, .moments = ONEDNN_NONE, .factor = ONEDNN_NONE, .offset = ONEDNN_NONE } },
        .mask = GP_NO_VALUE
    };
}

/* Return the expression that an op continues: the pending expression of `value` if it has no other
 * reader and is a plain sum with at most `terms` terms, otherwise the value itself. */
static gp_onednn_pending pending_take(gp_onednn_translator *t, uint32_t value, uint32_t terms)
{
    gp_onednn_pending taken = t->pending[value];

    if (taken.count == 0 || taken.count > terms || taken.bounded || taken.mask != GP_NO_VALUE ||
        !only_reader(t, value))
        return pending_of(value);
    t->pending[value].count = 0;
    return taken;
}

static void pending_set(gp_onednn_translator *t, uint32_t value, const gp_onednn_pending *pending)
{
    t->pending[value] = *pending;
    gp_onednn_value_written(t, value);
}

static bool is_norm(const gp_onednn_term *term)
{
    return term->moments != ONEDNN_NONE;
}

/* Set a step's row size, as the loops in onednn_norm.c see the value in this form. */
static void step_rows(const gp_onednn_translator *t, gp_onednn_step *step, uint32_t value,
                      gp_onednn_form form)
{
    const gp_shape *shape = shape_of(t, value);

    step->channels = count_of(t, value);
    step->pixels = 1;
    if (form == PACKED && shape->rank == 3) {
        step->channels = (size_t)shape->dim[0];
        step->pixels = (size_t)(shape->dim[1] * shape->dim[2]);
    }
}

/* Return the form for a computation: dense if all inputs exist only in dense order. */
static gp_onednn_form pending_form(const gp_onednn_translator *t, const gp_onednn_pending *p)
{
    for (uint32_t i = 0; i <= p->count; i++) {
        uint32_t value = i < p->count ? p->term[i].value : p->mask;

        if (value == GP_NO_VALUE)
            continue;
        if (!lies_in(t, value, DENSE) || lies_in(t, value, PACKED))
            return PACKED;
        if (i < p->count && (is_norm(&p->term[i]) || p->term[i].sliced))
            return PACKED;
    }
    return DENSE;
}

/* Add the terms and the mask as arguments. The first term comes first, so that the result can
 * replace it. */
static void step_terms(gp_onednn_translator *t, gp_onednn_step *step, const gp_onednn_pending *p,
                       gp_onednn_form form)
{
    static const gp_onednn_slot slots[PENDING_TERMS] = { SLOT_A, SLOT_B };

    for (uint32_t i = 0; i < p->count; i++) {
        const gp_onednn_term *term = &p->term[i];

        step_argument(step, (int)slots[i], gp_onednn_value_read(t, term->value, form));
        step->mix.stride[i] = term->sliced ? (size_t)shape_of(t, term->value)->dim[0] : step->channels;
        step->mix.channel[i] = term->channel;
    }
    if (p->mask != GP_NO_VALUE)
        step_argument(step, SLOT_MASK, gp_onednn_value_read(t, p->mask, form));
    step->mix.bounded = p->bounded;
    step->mix.low = p->low;
    step->mix.high = p->high;
}

static void step_norm(gp_onednn_step *step, const gp_onednn_term *term, gp_onednn_slot moments,
                      gp_onednn_slot factor, gp_onednn_slot offset)
{
    if (!is_norm(term))
        return;
    step_argument(step, (int)moments, term->moments);
    step_argument(step, (int)factor, term->factor);
    step_argument(step, (int)offset, term->offset);
}

void gp_onednn_pending_force(gp_onednn_translator *t, uint32_t value)
{
    gp_onednn_pending p = t->pending[value];
    gp_onednn_step step = { .what = "mix", .loop = NORM_LOOP(t, gp_onednn_loop_mix), .in_place = true };
    gp_onednn_form form;

    if (!going(t) || p.count == 0)
        return;
    t->pending[value].count = 0;
    form = pending_form(t, &p);
    step_rows(t, &step, value, form);
    step_terms(t, &step, &p, form);
    step_norm(&step, &p.term[0], SLOT_MOMENTS, SLOT_FACTOR, SLOT_OFFSET);
    if (p.count > 1)
        step_norm(&step, &p.term[1], SLOT_MOMENTS_B, SLOT_FACTOR_B, SLOT_OFFSET_B);
    step_argument(&step, SLOT_OUT, gp_onednn_value_write(t, value, form));
    gp_onednn_step_emit(t, &step);
    gp_onednn_value_written(t, value);
}

/* ---- ops ---- */

void gp_onednn_translate_cut(gp_onednn_translator *t, const gp_op *op, double low, double high)
{
    gp_onednn_pending p = pending_take(t, op->in[0], PENDING_TERMS);

    p.bounded = true;
    p.low = (float)low;
    p.high = (float)high;
    pending_set(t, op->out[0], &p);
}

/* Return the value that a saturated output has in memory: narrow segments round it. */
static float bound_stored(const gp_onednn_translator *t, double bound)
{
    return t->segment->narrow ? bf16_float(bf16_of((float)bound)) : (float)bound;
}

void gp_onednn_translate_mask(gp_onednn_translator *t, const gp_op *op, uint32_t y, uint32_t dy, double low,
                              double high)
{
    gp_onednn_pending p = t->pending[dy];

    p = pending_take(t, dy, is_norm(&p.term[0]) ? 0 : PENDING_TERMS);
    p.mask = y;
    p.low = bound_stored(t, low);
    p.high = bound_stored(t, high);
    pending_set(t, op->out[0], &p);
}

void gp_onednn_translate_add(gp_onednn_translator *t, const gp_op *op)
{
    gp_onednn_pending a = pending_take(t, op->in[0], 1), b = pending_take(t, op->in[1], 1);
    /* put the normalised term first */
    gp_onednn_pending sum = is_norm(&b.term[0]) && !is_norm(&a.term[0]) ? b : a;

    sum.term[1] = is_norm(&b.term[0]) && !is_norm(&a.term[0]) ? a.term[0] : b.term[0];
    sum.count = 2;
    pending_set(t, op->out[0], &sum);
}

bool gp_onednn_translate_slice(gp_onednn_translator *t, const gp_op *op)
{
    const gp_shape *x = shape_of(t, op->in[0]), *y = shape_of(t, op->out[0]);
    gp_onednn_pending p = pending_of(op->in[0]);

    if (op->number[1] != 0 || op->number[2] != 0 || x->rank != y->rank)
        return false;
    for (uint32_t i = 1; i < x->rank; i++)
        if (x->dim[i] != y->dim[i])
            return false;
    p.term[0].sliced = true;
    p.term[0].channel = (size_t)op->number[0];
    pending_set(t, op->out[0], &p);
    return true;
}

/* Return a tensor for `count` floats whose lifetime ends with the last step that uses it. */
static uint32_t numbers_make(gp_onednn_translator *t, size_t count)
{
    dnnl_dims_t dims = { (dnnl_dim_t)count };

    return gp_onednn_tensor_make(t, gp_onednn_md_new(t, 1, dims, dnnl_a), LIFE_RUN);
}

/* Choose the chunks for sums over rows, and add memory for them: float64 per chunk, then `more`
 * floats per channel. */
static void step_chunks(gp_onednn_translator *t, gp_onednn_step *step, size_t more)
{
    size_t rows = t->segment->micro_batch * step->pixels, chunk = (rows + CHUNKS_MAX - 1) / CHUNKS_MAX;

    step->mix.chunk_rows = chunk < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : chunk;
    step->mix.chunks = (rows + step->mix.chunk_rows - 1) / step->mix.chunk_rows;
    step_argument(step, SLOT_PARTIALS, numbers_make(t, (step->mix.chunks * 4 + more) * step->channels));
}

void gp_onednn_translate_batchnorm(gp_onednn_translator *t, const gp_op *op)
{
    gp_onednn_step step = { .loop = NORM_LOOP(t, gp_onednn_loop_moments), .mix.epsilon = op->factor[0] };
    gp_onednn_pending p = pending_of(op->in[0]);

    step_rows(t, &step, op->in[0], PACKED);
    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], PACKED));
    step_argument(&step, SLOT_SCALE, gp_onednn_flat_parameter(t, op->in[1], false));
    step_argument(&step, SLOT_RUNNING, gp_onednn_flat_parameter(t, op->in[3], false));
    step_argument(&step, SLOT_SUMS, gp_onednn_flat_parameter(t, op->out[2], true));
    step_argument(&step, SLOT_SQUARES, gp_onednn_flat_parameter(t, op->out[3], true));
    step_chunks(t, &step, 0);
    p.term[0].moments = gp_onednn_kept_tensor(t, op->out[1]);
    p.term[0].factor = numbers_make(t, step.channels);
    p.term[0].offset = gp_onednn_flat_parameter(t, op->in[2], false);
    step_argument(&step, SLOT_MOMENTS, p.term[0].moments);
    step_argument(&step, SLOT_FACTOR, p.term[0].factor);
    gp_onednn_step_emit(t, &step);
    pending_set(t, op->out[0], &p);
}

void gp_onednn_translate_batchnorm_backward(gp_onednn_translator *t, const gp_op *op)
{
    const uint32_t dy = op->in[1], dx = op->out[0];
    gp_onednn_step step = { .loop = NORM_LOOP(t, gp_onednn_loop_norm_backward) };
    gp_onednn_pending p = t->pending[dy];
    bool fits = p.count != 0 && !p.bounded && !is_norm(&p.term[0]), kept = fits && !only_reader(t, dy);

    if (fits)
        t->pending[dy].count = 0;
    else
        p = pending_of(dy);
    step_rows(t, &step, op->in[0], PACKED);
    step_terms(t, &step, &p, PACKED);
    step_argument(&step, SLOT_X, gp_onednn_value_read(t, op->in[0], PACKED));
    step_argument(&step, SLOT_SCALE, gp_onednn_flat_parameter(t, op->in[2], false));
    step_argument(&step, SLOT_MOMENTS, gp_onednn_kept_tensor(t, op->in[3]));
    step_argument(&step, SLOT_SUMS, gp_onednn_flat_parameter(t, op->out[1], true));
    step_argument(&step, SLOT_SQUARES, gp_onednn_flat_parameter(t, op->out[2], true));
    step_chunks(t, &step, 3);
    if (dx != GP_NO_VALUE)
        step_argument(&step, SLOT_OUT, gp_onednn_value_write(t, dx, PACKED));
    if (kept)
        step_argument(&step, SLOT_KEPT, gp_onednn_value_write(t, dy, PACKED));
    step.in_place = kept || dx != GP_NO_VALUE;
    gp_onednn_step_emit(t, &step);
    if (dx != GP_NO_VALUE)
        gp_onednn_value_written(t, dx);
}
