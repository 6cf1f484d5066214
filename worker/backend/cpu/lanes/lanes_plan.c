/* Converts ops to steps: one step for each op that lanes_fuse.c has not merged, plus the packed
 * weights and the final sums that the steps need. */
#include "worker/backend/cpu/lanes/lanes_planner.h"

#include <assert.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cpu/loops/loops.h"

static uint32_t parameter_of(const lanes_planner *p, uint32_t value)
{
    return value == GP_NO_VALUE ? LANES_NONE : p->graph->values[value].parameter;
}

/* Add a pack and return the index. */
static uint32_t pack_add(lanes_planner *p, int kind, uint32_t parameter, int32_t outputs, int32_t inputs,
                         int32_t kernel)
{
    lanes_segment *segment = p->segment;
    lanes_pack *pack = &segment->packs[segment->pack_count];

    *pack = (lanes_pack){ .kind = kind,
                          .parameter = parameter,
                          .to_at = segment->packed_floats,
                          .outputs = outputs,
                          .inputs = inputs,
                          .kernel = kernel };
    if (kind == LANES_PACK_WINOGRAD_OUTPUTS || kind == LANES_PACK_WINOGRAD_INPUTS)
        kernel++;
    segment->packed_floats += ((size_t)outputs * (size_t)inputs * (size_t)(kernel * kernel) + 15) / 16 * 16;
    return segment->pack_count++;
}

/* Reserve floats in each thread's sums, and return their offset. */
static size_t sums_add(lanes_planner *p, size_t floats)
{
    size_t at = p->segment->sum_floats;

    p->segment->sum_floats += (floats + 15) / 16 * 16;
    return at;
}

/* Return scratch memory for a Winograd step: rows x columns vectors for all N^2 positions. */
static lanes_view winograd_buffer(lanes_planner *p, int32_t kernel, int32_t rows, int32_t columns)
{
    size_t plane = lanes_odd_lines((size_t)rows * (size_t)columns * (size_t)p->segment->isa->lanes);

    return (lanes_view){ .buffer = gp_lanes_buffer_add(p, plane * (size_t)((kernel + 1) * (kernel + 1))) };
}

static int32_t to_fours(int32_t count)
{
    return (count + 3) / 4 * 4;
}

/* Plan a convolution, possibly fused with relu and pool. Reserve a mask for a fused pool, and for
 * Winograd the transformed input and scratch memory. */
static void plan_conv(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    bool fast = gp_lanes_conv_is_fast(p, &op->window, op->in[0]),
         winograd = p->notes[i] == LANES_NOTE_WINOGRAD;
    bool pooled = p->notes[i] == LANES_NOTE_POOL || winograd;
    uint32_t y = p->notes[i] == LANES_NOTE_PLAIN ? op->out[0] : p->ops[p->mates[i]].out[0];
    lanes_step_kind kind = LANES_CONV;
    int32_t kernel = op->window.kernel[0], pixels;
    lanes_step *step;

    if (fast)
        kind = winograd ? LANES_WINOGRAD : pooled ? LANES_CONV_POOL : LANES_CONV_FAST;
    step = gp_lanes_step_make(p, kind, i, op->in[0], GP_NO_VALUE, y);
    step->relu = p->notes[i] != LANES_NOTE_PLAIN;
    step->weight_parameter = parameter_of(p, op->in[1]);
    step->bias_parameter = parameter_of(p, op->in[2]);
    if (fast)
        step->pack = pack_add(p, winograd ? LANES_PACK_WINOGRAD_OUTPUTS : LANES_PACK_OUTPUTS,
                              step->weight_parameter, step->y.channels, step->x.channels, kernel);
    pixels = step->y.height * step->y.width;
    if (pooled) {
        size_t bytes = 4 * (p->segment->isa->lanes == 16 ? 2 : 1) * (size_t)step->y.channels * (size_t)pixels;

        p->masks[i] = gp_lanes_buffer_add(p, (bytes + 3) / 4);
        step->pool = p->ops[p->mates[i]].pool;
        step->mask = (lanes_view){ .buffer = p->masks[i] };
    }
    if (winograd) {
        step->v = winograd_buffer(p, kernel, to_fours(step->x.channels), to_fours(pixels));
        step->t = winograd_buffer(p, kernel, step->y.channels, 4);
        p->kept[i] = step->v.buffer;
    }
    gp_lanes_value_store(p, y, i);
}

/* Give a step the operands that spread the pool's gradient, if the step reads it rather than the
 * convolution's. */
static void use_pool_gradient(const lanes_planner *p, uint32_t i, lanes_step *step)
{
    uint32_t pool_backward = p->mates[i];

    step->scale = p->ops[pool_backward].pool == GP_POOL_MAX ? 1.0f : 0.25f;
    step->mask = (lanes_view){ .buffer = p->masks[p->mates[pool_backward]] };
}

static void plan_conv_data(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    int32_t kernel = op->window.kernel[0];
    bool winograd = p->notes[i] == LANES_NOTE_WINOGRAD;
    bool fast =
        gp_lanes_conv_data_reaches(p, op) && p->places[op->in[0]].live_width >= p->segment->isa->data_columns;
    uint32_t dy = winograd ? p->ops[p->mates[i]].in[0] : op->in[0];
    lanes_step *step = gp_lanes_step_make(p,
                                          winograd ? LANES_WINOGRAD_DATA
                                          : fast   ? LANES_CONV_DATA_FAST
                                                   : LANES_CONV_DATA,
                                          i, dy, GP_NO_VALUE, op->out[0]);

    step->weight_parameter = parameter_of(p, op->in[1]);
    if (winograd || fast)
        step->pack = pack_add(p, winograd ? LANES_PACK_WINOGRAD_INPUTS : LANES_PACK_INPUTS,
                              step->weight_parameter, step->x.channels, step->y.channels, kernel);
    if (winograd) {
        use_pool_gradient(p, i, step);
        step->v = winograd_buffer(p, kernel, step->y.channels, 4);
        step->t = winograd_buffer(p, kernel, step->x.channels, 4);
    }
    gp_lanes_value_store(p, op->out[0], i);
}

/* Count the floats in a thread's sums for one convolution's weights, in the step layout. */
static size_t weight_sum_floats(const lanes_planner *p, const lanes_step *step, size_t weight_count)
{
    int32_t kernel = step->window.kernel[0], tile, tiles;

    if (step->kind == LANES_CONV_WEIGHTS)
        return weight_count;
    if (step->kind == LANES_WINOGRAD_WEIGHTS)
        return (size_t)((kernel + 1) * (kernel + 1)) * (size_t)step->z.channels *
               (size_t)to_fours(step->x.channels);
    tile = p->segment->isa->weights_outputs[kernel];
    tiles = step->z.channels / tile + step->z.channels % tile;
    return (size_t)tiles * (size_t)(step->x.channels * kernel * to_fours(kernel * tile));
}

static void plan_conv_weights(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    bool fast = gp_lanes_conv_is_fast(p, &op->window, op->in[0]),
         winograd = p->notes[i] == LANES_NOTE_WINOGRAD;
    bool pooled = p->notes[i] == LANES_NOTE_POOL || winograd;
    uint32_t dy = pooled ? p->ops[p->mates[i]].in[0] : op->in[1];
    const gp_parameter *weight = &p->graph->parameters[parameter_of(p, op->out[0])];
    int32_t lanes = p->segment->isa->lanes, kernel = op->window.kernel[0], pixels;
    lanes_step_kind kind = LANES_CONV_WEIGHTS;
    lanes_step *step;

    if (fast)
        kind = winograd ? LANES_WINOGRAD_WEIGHTS : pooled ? LANES_CONV_WEIGHTS_POOL : LANES_CONV_WEIGHTS_FAST;
    step = gp_lanes_step_make(p, kind, i, op->in[0], dy, GP_NO_VALUE);
    step->weight_sum = sums_add(p, weight_sum_floats(p, step, (size_t)weight->count));
    if (op->out[1] != GP_NO_VALUE)
        step->bias_sum = sums_add(p, (size_t)step->z.channels);
    p->segment->finishes[p->segment->finish_count++] =
        (lanes_finish){ .kind = winograd ? LANES_FINISH_WINOGRAD
                                : fast   ? LANES_FINISH_CONV_FAST
                                         : LANES_FINISH_CONV,
                        .weight_parameter = parameter_of(p, op->out[0]),
                        .bias_parameter = parameter_of(p, op->out[1]),
                        .outputs = step->z.channels,
                        .inputs = step->x.channels,
                        .kernel = kernel,
                        .weight_count = (size_t)weight->count,
                        .weight_sum = step->weight_sum,
                        .bias_sum = step->bias_sum };
    pixels = step->z.height * step->z.width;
    if (pooled)
        use_pool_gradient(p, i, step);
    if (winograd) {
        step->v = (lanes_view){ .buffer = p->kept[p->mates[p->mates[i]]] };
        step->t = winograd_buffer(p, kernel, LANES_WINOGRAD_OUTPUTS, to_fours(pixels));
    } else if (pooled) {
        step->y = (lanes_view){ .row = 2 * step->z.width * lanes, .plane = 4 * pixels * lanes };
        step->y.buffer =
            gp_lanes_buffer_add(p, (size_t)(p->segment->isa->weights_outputs[kernel] * step->y.plane));
    }
}

static void plan_relu_backward(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i], *pool_backward = NULL;
    lanes_step *step;

    if (p->notes[i] == LANES_NOTE_UNPOOL) {
        for (uint32_t k = 0; k < i; k++)
            if (p->ops[k].code == GP_OP_POOL_BACKWARD && p->ops[k].out[0] == op->in[1])
                pool_backward = &p->ops[k];
        assert(pool_backward != NULL);
        step = gp_lanes_step_make(p, LANES_UNPOOL, i, pool_backward->in[0], GP_NO_VALUE, op->out[0]);
        step->scale = pool_backward->pool == GP_POOL_MAX ? 1.0f : 0.25f;
        step->mask = (lanes_view){ .buffer = p->masks[p->mates[i]] };
    } else {
        gp_lanes_step_make(p, LANES_RELU_BACKWARD, i, op->in[0], op->in[1], op->out[0]);
    }
    gp_lanes_value_store(p, op->out[0], i);
}

static void plan_fc(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    lanes_step *step = gp_lanes_step_make(p, LANES_FC, i, op->in[0], GP_NO_VALUE, op->out[0]);

    step->weight_parameter = parameter_of(p, op->in[1]);
    if (op->code == GP_OP_FC) {
        const gp_shape *shape = &p->graph->parameters[step->weight_parameter].shape;

        step->bias_parameter = parameter_of(p, op->in[2]);
        step->pack = pack_add(p, LANES_PACK_TRANSPOSE, step->weight_parameter, (int32_t)shape->dim[0],
                              (int32_t)shape->dim[1], 1);
    }
    gp_lanes_value_store(p, op->out[0], i);
}

/* Reserve a panel for `count` sample rows, and return the offset. */
static size_t panels_add(lanes_planner *p, int32_t count, int32_t width)
{
    lanes_segment *segment = p->segment;
    size_t at = segment->panel_floats;

    segment->panel_floats +=
        (size_t)((count + width - 1) / width * width) * segment->block_count * (size_t)segment->isa->lanes;
    segment->panel_floats = (segment->panel_floats + 15) / 16 * 16;
    return at;
}

static void plan_fc_weights(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    const gp_parameter *weight = &p->graph->parameters[parameter_of(p, op->out[0])];
    int32_t outputs = (int32_t)weight->shape.dim[0], inputs = (int32_t)weight->shape.dim[1];
    lanes_step *step = gp_lanes_step_make(p, LANES_FC_WEIGHTS, i, op->in[0], op->in[1], GP_NO_VALUE);

    step->panel_x_at = panels_add(p, inputs, p->segment->isa->panel_inputs);
    step->panel_dy_at = panels_add(p, outputs, p->segment->isa->panel_outputs);
    p->segment->finishes[p->segment->finish_count++] =
        (lanes_finish){ .kind = LANES_FINISH_FC,
                        .weight_parameter = parameter_of(p, op->out[0]),
                        .bias_parameter = parameter_of(p, op->out[1]),
                        .outputs = outputs,
                        .inputs = inputs,
                        .kernel = 1,
                        .weight_count = (size_t)weight->count,
                        .panel_x_at = step->panel_x_at,
                        .panel_dy_at = step->panel_dy_at };
}

static void plan_pool(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    bool backward = op->code == GP_OP_POOL_BACKWARD;
    uint32_t index = backward ? op->in[1] : op->out[1], input = backward ? op->out[0] : op->in[0];
    lanes_step *step;

    if (!backward && index != GP_NO_VALUE)
        gp_lanes_place_make(p, index, i);
    step = gp_lanes_step_make(p, backward ? LANES_POOL_BACKWARD : LANES_POOL, i, op->in[0],
                              op->pool == GP_POOL_MAX ? index : GP_NO_VALUE, op->out[0]);
    step->full_height = p->places[input].height;
    step->full_width = p->places[input].width;
    gp_lanes_value_store(p, op->out[0], i);
    if (!backward)
        gp_lanes_value_store(p, index, i);
}

static void plan_dropout(lanes_planner *p, uint32_t i)
{
    const gp_op *op = &p->ops[i];
    double limit = op->rate * 0x1p24;
    lanes_step *step = gp_lanes_step_make(p, LANES_DROPOUT, i, op->in[0], GP_NO_VALUE, op->out[0]);

    step->scale = (float)(1.0 / (1.0 - op->rate));
    step->threshold = (uint32_t)limit + ((double)(uint32_t)limit < limit);
    gp_lanes_value_store(p, op->out[0], i);
}

static void plan_reshape(lanes_planner *p, uint32_t i)
{
    gp_lanes_value_read(p, p->ops[i].in[0], i);
    gp_lanes_value_store(p, p->ops[i].out[0], i);
}

/* Plan an op without settings. */
static void plan_simple(lanes_planner *p, uint32_t i)
{
    static const lanes_step_kind kinds[GP_OP_COUNT] = { [GP_OP_RELU] = LANES_RELU,
                                                        [GP_OP_SOFTMAX_XENT] = LANES_SOFTMAX_XENT,
                                                        [GP_OP_CUSTOM_LOSS] = LANES_CUSTOM_LOSS,
                                                        [GP_OP_ADD] = LANES_ADD };
    const gp_op *op = &p->ops[i];

    gp_lanes_step_make(p, kinds[op->code], i, op->in[0], op->code == GP_OP_ADD ? op->in[1] : GP_NO_VALUE,
                       op->out[0]);
    gp_lanes_value_store(p, op->out[0], i);
}

/* Custom losses also have a loop, so the lanes kernels execute them only if the op allows calls per
 * block. */
bool gp_lanes_knows(const gp_graph *graph, const gp_op *op)
{
    if (op->code == GP_OP_CUSTOM_LOSS)
        return op->number[0] != 0 &&
               gp_shape_count(&graph->values[op->in[0]].shape) <= LANES_CUSTOM_SCORES_MAX;
    return gp_loop_find(op->code) == NULL;
}

static void planner_init(lanes_planner *p)
{
    uint32_t count = p->count;
    lanes_segment *segment = p->segment;

    p->places = gp_calloc(p->graph->value_count, sizeof(*p->places));
    p->notes = gp_calloc(count, sizeof(*p->notes));
    p->mates = gp_calloc(count, sizeof(*p->mates));
    p->masks = gp_calloc(count, sizeof(*p->masks));
    p->kept = gp_calloc(count, sizeof(*p->kept));
    segment->packs = gp_calloc(count, sizeof(*segment->packs));
    segment->finishes = gp_calloc(count, sizeof(*segment->finishes));
    if (p->places == NULL || p->notes == NULL || p->mates == NULL || p->masks == NULL || p->kept == NULL ||
        segment->packs == NULL || segment->finishes == NULL)
        p->status = gp_fail(p->err, GP_ENOMEM, "no memory to plan %u ops", count);
    else
        gp_lanes_fuse(p);
}

/* Plan the whole segment. */
gp_status gp_lanes_plan(lanes_segment *segment, const gp_segment_request *request, lanes_effort effort,
                        gp_error *err)
{
    lanes_planner p = { .err = err,
                        .segment = segment,
                        .request = request,
                        .graph = request->graph,
                        .ops = request->ops,
                        .count = request->count,
                        .fuse = effort != LANES_UNFUSED,
                        .winograd = effort == LANES_WHOLE };
    uint32_t forward_count = request->graph->ops[request->phase].forward_count;
    const gp_op *backward = request->graph->ops[request->phase].op + forward_count;

    planner_init(&p);
    for (uint32_t i = 0; i < p.count && p.status == GP_OK; i++) {
        static void (*const plans[GP_OP_COUNT])(lanes_planner *, uint32_t) = {
            [GP_OP_CONV2D] = plan_conv,
            [GP_OP_CONV2D_BACKWARD_DATA] = plan_conv_data,
            [GP_OP_CONV2D_BACKWARD_WEIGHTS] = plan_conv_weights,
            [GP_OP_FC] = plan_fc,
            [GP_OP_FC_BACKWARD_DATA] = plan_fc,
            [GP_OP_FC_BACKWARD_WEIGHTS] = plan_fc_weights,
            [GP_OP_RELU] = plan_simple,
            [GP_OP_RELU_BACKWARD] = plan_relu_backward,
            [GP_OP_POOL] = plan_pool,
            [GP_OP_POOL_BACKWARD] = plan_pool,
            [GP_OP_RESHAPE] = plan_reshape,
            [GP_OP_DROPOUT] = plan_dropout,
            [GP_OP_DROPOUT_BACKWARD] = plan_dropout,
            [GP_OP_SOFTMAX_XENT] = plan_simple,
            [GP_OP_CUSTOM_LOSS] = plan_simple,
            [GP_OP_ADD] = plan_simple,
        };
        const gp_opcode code = p.ops[i].code;

        if (plans[code] == NULL)
            p.status = gp_fail(p.err, GP_EUNSUPPORTED,
                               "the lanes kernels do not support op %d; use another backend", (int)code);
        else if (p.notes[i] != LANES_NOTE_MERGED)
            plans[code](&p, i);
        if (&p.ops[i] < backward)
            segment->forward_steps = segment->step_count;
    }
    if (p.status == GP_OK)
        gp_lanes_place_buffers(&p);
    gp_free(p.places);
    gp_free(p.notes);
    gp_free(p.mates);
    gp_free(p.masks);
    gp_free(p.kept);
    gp_free(p.buffers);
    return p.status;
}

void gp_lanes_plan_free(lanes_segment *segment)
{
    gp_free(segment->steps);
    gp_free(segment->packs);
    gp_free(segment->finishes);
}
