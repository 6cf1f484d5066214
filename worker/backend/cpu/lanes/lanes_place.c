/* Places values in scratch memory: views, steps that load and store values, and first-fit buffer
 * allocation by lifetime. */
#include "worker/backend/cpu/lanes/lanes_planner.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

uint32_t gp_lanes_buffer_add(lanes_planner *p, size_t floats)
{
    lanes_buffer *grown =
        p->status == GP_OK ? gp_array_grow(p->buffers, p->buffer_count, sizeof(*grown)) : NULL;

    if (grown == NULL) {
        if (p->status == GP_OK)
            p->status = gp_fail(p->err, GP_ENOMEM, "no memory for the plan of a lanes segment");
        return LANES_NONE;
    }
    p->buffers = grown;
    p->buffers[p->buffer_count] = (lanes_buffer){ .floats = (floats + 15) / 16 * 16, .first = UINT32_MAX };
    return p->buffer_count++;
}

static lanes_view no_view(void)
{
    return (lanes_view){ .buffer = LANES_NONE };
}

/* Return a value's view without padding. */
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
static lanes_step *step_add(lanes_planner *p, lanes_step_kind kind, uint32_t op)
{
    lanes_segment *segment = p->segment;
    lanes_step *grown =
        p->status == GP_OK ? gp_array_grow(segment->steps, segment->step_count, sizeof(*grown)) : NULL;
    lanes_step *step = &p->lost;

    if (grown != NULL) {
        segment->steps = grown;
        step = &segment->steps[segment->step_count++];
    } else if (p->status == GP_OK) {
        p->status = gp_fail(p->err, GP_ENOMEM, "no memory for the steps of a lanes segment");
    }
    *step = (lanes_step){ .kind = kind,
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
    return step;
}

void gp_lanes_place_make(lanes_planner *p, uint32_t value, uint32_t op)
{
    lanes_place *at = &p->places[value];
    lanes_view view = view_of(p, value);
    lanes_step *step;

    p->places[at->root].buffer = gp_lanes_buffer_add(p, (size_t)(view.plane * view.channels));
    if (p->graph->values[value].role == GP_VALUE_ACTIVATION_GRADIENT ||
        (at->border[0] | at->border[1] | at->border[2] | at->border[3]) == 0)
        return;
    step = step_add(p, LANES_BORDER, op);
    step->y = view_of(p, value);
    memcpy(step->window.padding, at->border, sizeof(at->border));
}

void gp_lanes_value_read(lanes_planner *p, uint32_t value, uint32_t op)
{
    bool input = p->graph->values[value].role == GP_VALUE_INPUT;
    lanes_step *step;

    if (p->places[p->places[value].root].buffer != LANES_NONE)
        return;
    assert(p->status != GP_OK || input || gp_lanes_crosses(p, value));
    gp_lanes_place_make(p, value, op);
    step = step_add(p, input ? LANES_LOAD_SAMPLES : LANES_LOAD, op);
    step->y = view_of(p, value);
    step->full_height = p->places[value].height;
    step->full_width = p->places[value].width;
    step->gradient = p->graph->values[value].role == GP_VALUE_ACTIVATION_GRADIENT;
    step->crossing = input ? NULL : p->request->values[value];
}

void gp_lanes_value_store(lanes_planner *p, uint32_t value, uint32_t op)
{
    lanes_step *step;

    if (value == GP_NO_VALUE || !gp_lanes_crosses(p, value))
        return;
    step = step_add(p, LANES_STORE, op);
    step->x = view_of(p, value);
    step->crossing = p->request->values[value];
}

lanes_step *gp_lanes_step_make(lanes_planner *p, lanes_step_kind kind, uint32_t op, uint32_t x, uint32_t z,
                               uint32_t y)
{
    lanes_step *step;

    if (x != GP_NO_VALUE)
        gp_lanes_value_read(p, x, op);
    if (z != GP_NO_VALUE)
        gp_lanes_value_read(p, z, op);
    if (y != GP_NO_VALUE && p->places[p->places[y].root].buffer == LANES_NONE)
        gp_lanes_place_make(p, y, op);
    step = step_add(p, kind, op);
    if (x != GP_NO_VALUE)
        step->x = view_of(p, x);
    if (z != GP_NO_VALUE)
        step->z = view_of(p, z);
    if (y != GP_NO_VALUE)
        step->y = view_of(p, y);
    return step;
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

    for (uint32_t pass = 0; pass < 2; pass++) { /* find the lifetimes, then add the offsets */
        for (uint32_t i = 0; pass == 1 && i < p->buffer_count; i++)
            if (p->buffers[i].first != UINT32_MAX)
                buffer_place(p, i);
        for (uint32_t i = 0; i < segment->step_count; i++) {
            lanes_step *step = &segment->steps[i];
            lanes_view *views[] = { &step->x, &step->y, &step->z, &step->v, &step->t, &step->mask };

            for (int k = 0; k < 6; k++) {
                lanes_buffer *b = views[k]->buffer == LANES_NONE ? NULL : &p->buffers[views[k]->buffer];

                if (b == NULL)
                    continue;
                if (pass == 0 && b->first == UINT32_MAX)
                    b->first = i;
                b->last = i;
                views[k]->offset += b->offset;
            }
        }
    }
}
