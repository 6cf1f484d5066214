/* Places values in scratch memory: views, steps that load and store values, and first-fit
 * allocation of buffers by lifetime. */
#include "worker/backend/cpu/lanes/lanes_planner.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

gp_status gp_lanes_buffer_add(lanes_planner *p, size_t floats, uint32_t *out, gp_error *err)
{
    lanes_buffer *grown = gp_array_grow(p->buffers, p->buffer_count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the plan of a lanes segment");
    p->buffers = grown;
    p->buffers[p->buffer_count] = (lanes_buffer){ .floats = (floats + 15) / 16 * 16, .first = UINT32_MAX };
    *out = p->buffer_count++;
    return GP_OK;
}

static lanes_view no_view(void)
{
    return (lanes_view){ .buffer = LANES_NONE };
}

/* Return the view of a value, without its padding. */
static lanes_view view_of(const lanes_planner *p, uint32_t value)
{
    const lanes_place *at = &p->places[value];
    int32_t lanes = p->segment->isa->lanes;
    ptrdiff_t row = (ptrdiff_t)(at->border[1] + at->live_width + at->border[3]) * lanes;
    ptrdiff_t plane = row * (at->border[0] + at->live_height + at->border[2]);

    return (lanes_view){ .buffer = p->places[at->root].buffer,
                         .offset = (size_t)(at->border[0] * row + at->border[1] * lanes),
                         .channels = at->channels,
                         .height = at->live_height,
                         .width = at->live_width,
                         .row = row,
                         .plane = plane };
}

/* Append a step. */
static gp_status step_add(lanes_planner *p, lanes_step_kind kind, uint32_t op, lanes_step **out,
                          gp_error *err)
{
    lanes_segment *segment = p->segment;
    lanes_step *grown = gp_array_grow(segment->steps, segment->step_count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the steps of a lanes segment");
    segment->steps = grown;
    *out = &segment->steps[segment->step_count++];
    **out = (lanes_step){ .kind = kind,
                          .op = op,
                          .window = p->ops[op].window,
                          .pool = p->ops[op].pool,
                          .x = no_view(),
                          .y = no_view(),
                          .z = no_view(),
                          .v = no_view(),
                          .t = no_view(),
                          .mask = no_view(),
                          .layer = p->ops[op].layer,
                          .weight_parameter = LANES_NONE,
                          .bias_parameter = LANES_NONE,
                          .pack = LANES_NONE,
                          .weight_sum = SIZE_MAX,
                          .bias_sum = SIZE_MAX };
    return GP_OK;
}

gp_status gp_lanes_place_make(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    lanes_place *at = &p->places[value];
    lanes_view view = view_of(p, value);
    lanes_step *step;
    gp_status status =
        gp_lanes_buffer_add(p, (size_t)(view.plane * view.channels), &p->places[at->root].buffer, err);

    if (status != GP_OK || p->graph->values[value].role == GP_VALUE_ACTIVATION_GRADIENT ||
        (at->border[0] | at->border[1] | at->border[2] | at->border[3]) == 0)
        return status;
    status = step_add(p, LANES_BORDER, op, &step, err);
    if (status == GP_OK) {
        step->y = view_of(p, value);
        memcpy(step->window.padding, at->border, sizeof(at->border));
    }
    return status;
}

gp_status gp_lanes_value_read(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    bool input = p->graph->values[value].role == GP_VALUE_INPUT;
    lanes_step *step;
    gp_status status;

    if (p->places[p->places[value].root].buffer != LANES_NONE)
        return GP_OK;
    assert(input || gp_lanes_crosses(p, value));
    status = gp_lanes_place_make(p, value, op, err);
    if (status == GP_OK)
        status = step_add(p, input ? LANES_LOAD_SAMPLES : LANES_LOAD, op, &step, err);
    if (status != GP_OK)
        return status;
    step->y = view_of(p, value);
    step->full_height = p->places[value].height;
    step->full_width = p->places[value].width;
    step->gradient = p->graph->values[value].role == GP_VALUE_ACTIVATION_GRADIENT;
    step->crossing = input ? NULL : p->request->values[value];
    return GP_OK;
}

gp_status gp_lanes_value_store(lanes_planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    lanes_step *step;
    gp_status status;

    if (value == GP_NO_VALUE || !gp_lanes_crosses(p, value))
        return GP_OK;
    status = step_add(p, LANES_STORE, op, &step, err);
    if (status != GP_OK)
        return status;
    step->x = view_of(p, value);
    step->crossing = p->request->values[value];
    return GP_OK;
}

gp_status gp_lanes_step_make(lanes_planner *p, lanes_step_kind kind, uint32_t op, uint32_t x, uint32_t z,
                             uint32_t y, lanes_step **out, gp_error *err)
{
    gp_status status = GP_OK;

    if (x != GP_NO_VALUE)
        status = gp_lanes_value_read(p, x, op, err);
    if (status == GP_OK && z != GP_NO_VALUE)
        status = gp_lanes_value_read(p, z, op, err);
    if (status == GP_OK && y != GP_NO_VALUE && p->places[p->places[y].root].buffer == LANES_NONE)
        status = gp_lanes_place_make(p, y, op, err);
    if (status == GP_OK)
        status = step_add(p, kind, op, out, err);
    if (status != GP_OK)
        return status;
    if (x != GP_NO_VALUE)
        (*out)->x = view_of(p, x);
    if (z != GP_NO_VALUE)
        (*out)->z = view_of(p, z);
    if (y != GP_NO_VALUE)
        (*out)->y = view_of(p, y);
    return GP_OK;
}

/* Extend the lifetime of a buffer to a step. */
static void buffer_use(lanes_planner *p, const lanes_view *view, uint32_t step)
{
    lanes_buffer *b;

    if (view->buffer == LANES_NONE)
        return;
    b = &p->buffers[view->buffer];
    if (b->first == UINT32_MAX)
        b->first = step;
    b->last = step;
}

/* First fit: choose the lowest offset that does not overlap a buffer with an overlapping
 * lifetime. */
static void buffer_place(lanes_planner *p, uint32_t index)
{
    lanes_buffer *b = &p->buffers[index];
    bool moved = true;

    b->offset = 0;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < index; i++) {
            const lanes_buffer *other = &p->buffers[i];

            if (other->first == UINT32_MAX || other->last < b->first || b->last < other->first ||
                other->offset + other->floats <= b->offset || b->offset + b->floats <= other->offset)
                continue;
            b->offset = other->offset + other->floats;
            moved = true;
        }
    }
    if (b->offset + b->floats > p->segment->scratch_floats)
        p->segment->scratch_floats = b->offset + b->floats;
}

void gp_lanes_place_buffers(lanes_planner *p)
{
    lanes_segment *segment = p->segment;

    for (uint32_t i = 0; i < segment->step_count; i++) {
        lanes_step *step = &segment->steps[i];

        buffer_use(p, &step->x, i);
        buffer_use(p, &step->y, i);
        buffer_use(p, &step->z, i);
        buffer_use(p, &step->v, i);
        buffer_use(p, &step->t, i);
        buffer_use(p, &step->mask, i);
    }
    for (uint32_t i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].first != UINT32_MAX)
            buffer_place(p, i);
    for (uint32_t i = 0; i < segment->step_count; i++) {
        lanes_step *step = &segment->steps[i];
        lanes_view *views[] = { &step->x, &step->y, &step->z, &step->v, &step->t, &step->mask };

        for (int k = 0; k < 6; k++)
            if (views[k]->buffer != LANES_NONE)
                views[k]->offset += p->buffers[views[k]->buffer].offset;
    }
}
