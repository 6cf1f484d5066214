/* lanes_plan.c -- from ops to steps: what is fused, what is dead, where values live in a thread's scratch.
 *
 * Fused (each tested against the same ops unfused):
 *   conv, relu, 2x2 pool        one step that keeps, instead of two full-size activations, 4 bits per pooled pixel:
 *                               which of its pixels get a gradient
 *   pool backward, relu backward  one step that spreads by those bits; where only weight gradients follow (the first
 *                               layer), not even that: a strip of a few channels at a time
 *   conv, relu                  one step
 * Dead: rows and columns of an activation that no window reaches are not computed, and neither are their
 * gradients, which are zero (LeNet: pooling 9 to 4 never reads row 8 of conv2, so nobody needs row 12 of pool1).
 * Buffers are placed by first fit over the steps in which they live. */
#include "worker/backend/cpu/lanes.h"

#include <assert.h>
#include <string.h>

#include "common/base/alloc.h"

/* What is known of a value while planning. */
typedef struct place {
    int32_t channels, height, width; /* whole */
    int32_t live_height, live_width;
    int32_t border[4]; /* top, left, bottom, right: room for a convolution's padding */
    uint32_t root;     /* the value whose buffer it shares (reshape) */
    uint32_t partner;  /* of a gradient: the value it is of; else itself; LANES_NONE: not in this segment */
    uint32_t buffer;   /* of a root; LANES_NONE until written or loaded */
    uint32_t readers;  /* ops that read it, plus one if it crosses */
    bool dense;        /* read as one vector: no border, nothing dead */
} place;

typedef struct buffer {
    size_t floats, offset;
    uint32_t first, last; /* steps */
} buffer;

typedef enum op_note { NOTE_PLAIN, NOTE_MERGED, NOTE_RELU, NOTE_POOL, NOTE_UNPOOL, NOTE_WINOGRAD } op_note;

typedef struct planner {
    lanes_segment *segment;
    const gp_segment_request *request;
    const gp_graph *graph;
    const gp_op *ops;
    uint32_t count;
    bool fuse, winograd;
    place *places;
    op_note *notes; /* per op */
    uint32_t
        *mates; /* per op: NOTE_RELU, NOTE_POOL: the conv's relu or pool op; of a backward op, the conv op */
    uint32_t *masks; /* per op: of a fused conv, the buffer of its bits */
    uint32_t *kept;  /* per op: of a Winograd conv, the buffer of its transformed input */
    buffer *buffers;
    uint32_t buffer_count, buffer_capacity;
} planner;

static uint32_t input_count(const gp_op *op)
{
    uint32_t count = 0;

    while (count < GP_OP_VALUES_MAX && op->in[count] != GP_NO_VALUE)
        count++;
    return count;
}

static bool is_tensor(const planner *p, uint32_t value)
{
    gp_value_role role;

    if (value == GP_NO_VALUE || value >= p->graph->value_count)
        return false;
    role = p->graph->values[value].role;
    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_SAVED ||
           role == GP_VALUE_ACTIVATION_GRADIENT;
}

static bool crosses(const planner *p, uint32_t value)
{
    return p->request->values != NULL && p->request->values[value] != NULL;
}

static void place_init(place *at, const gp_value *value, uint32_t index)
{
    const gp_shape *shape = &value->shape;

    *at = (place){ .root = index, .partner = index, .buffer = LANES_NONE };
    if (shape->rank == 3) {
        at->channels = (int32_t)shape->dim[0];
        at->height = (int32_t)shape->dim[1];
        at->width = (int32_t)shape->dim[2];
    } else {
        at->channels = (int32_t)gp_shape_count(shape);
        at->height = at->width = 1;
    }
    if (value->role == GP_VALUE_ACTIVATION_GRADIENT)
        at->partner = LANES_NONE;
}

/* The forward op of a backward op's layer. */
static const gp_op *forward_of(const planner *p, const gp_op *backward, gp_opcode code)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->ops[i].code == code && p->ops[i].layer == backward->layer)
            return &p->ops[i];
    return NULL;
}

static void pair(planner *p, const gp_op *op, gp_opcode code, uint32_t dy, uint32_t dx)
{
    const gp_op *forward = forward_of(p, op, code);

    if (forward == NULL)
        return;
    p->places[dy].partner = forward->out[0];
    if (dx != GP_NO_VALUE)
        p->places[dx].partner = forward->in[0];
}

/* Which gradient is of which value. */
static void find_partners(planner *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        switch (op->code) {
        case GP_OP_CONV2D_BACKWARD_DATA:
            pair(p, op, GP_OP_CONV2D, op->in[0], op->out[0]);
            break;
        case GP_OP_CONV2D_BACKWARD_WEIGHTS:
            pair(p, op, GP_OP_CONV2D, op->in[1], GP_NO_VALUE);
            break;
        case GP_OP_FC_BACKWARD_DATA:
            pair(p, op, GP_OP_FC, op->in[0], op->out[0]);
            break;
        case GP_OP_FC_BACKWARD_WEIGHTS:
            pair(p, op, GP_OP_FC, op->in[1], GP_NO_VALUE);
            break;
        case GP_OP_RELU_BACKWARD:
            pair(p, op, GP_OP_RELU, op->in[1], op->out[0]);
            break;
        case GP_OP_POOL_BACKWARD:
            pair(p, op, GP_OP_POOL, op->in[0], op->out[0]);
            break;
        default:
            break;
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        if (op->code == GP_OP_ADD && p->places[op->out[0]].partner == LANES_NONE)
            p->places[op->out[0]].partner = p->places[op->in[0]].partner;
    }
}

static void need(place *at, int32_t height, int32_t width, bool *changed)
{
    height = height > at->height ? at->height : height < 1 ? 1 : height;
    width = width > at->width ? at->width : width < 1 ? 1 : width;
    if (height > at->live_height) {
        at->live_height = height;
        *changed = true;
    }
    if (width > at->live_width) {
        at->live_width = width;
        *changed = true;
    }
}

static void need_all(place *at, bool *changed)
{
    need(at, at->height, at->width, changed);
}

static void need_window(planner *p, const gp_op *op, bool *changed)
{
    const place *y = &p->places[op->out[0]];
    const gp_window *w = &op->window;

    need(&p->places[op->in[0]],
         (y->live_height - 1) * w->stride[0] + (w->kernel[0] - 1) * w->dilation[0] + 1 - w->padding[0],
         (y->live_width - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1 - w->padding[1],
         changed);
}

/* Element-wise: input and output are alive in the same places. */
static void need_same(planner *p, uint32_t a, uint32_t b, bool *changed)
{
    need(&p->places[a], p->places[b].live_height, p->places[b].live_width, changed);
    need(&p->places[b], p->places[a].live_height, p->places[a].live_width, changed);
}

static void need_whole(planner *p, const gp_op *op, bool *changed)
{
    for (uint32_t i = 0; i < GP_OP_VALUES_MAX; i++) {
        if (is_tensor(p, op->in[i]))
            need_all(&p->places[op->in[i]], changed);
        if (is_tensor(p, op->out[i]))
            need_all(&p->places[op->out[i]], changed);
    }
}

static void need_by_op(planner *p, const gp_op *op, bool *changed)
{
    switch (op->code) {
    case GP_OP_CONV2D:
        need_window(p, op, changed);
        return;
    case GP_OP_POOL:
        need_window(p, op, changed);
        if (op->out[1] != GP_NO_VALUE)
            need_same(p, op->out[0], op->out[1], changed);
        return;
    case GP_OP_RELU:
        need_same(p, op->in[0], op->out[0], changed);
        return;
    case GP_OP_ADD:
        need_same(p, op->in[0], op->out[0], changed);
        need_same(p, op->in[1], op->out[0], changed);
        return;
    default:
        return;
    }
}

static bool reads_vector(gp_opcode code)
{
    return code == GP_OP_FC || code == GP_OP_FC_BACKWARD_DATA || code == GP_OP_FC_BACKWARD_WEIGHTS ||
           code == GP_OP_RESHAPE || code == GP_OP_DROPOUT || code == GP_OP_DROPOUT_BACKWARD ||
           code == GP_OP_SOFTMAX_XENT;
}

/* Everything that is not reached from what leaves the segment or is read as a vector is dead. */
static void find_live(planner *p)
{
    bool changed = true;

    for (uint32_t v = 0; v < p->graph->value_count; v++) {
        place *at = &p->places[v];

        if (!is_tensor(p, v))
            continue;
        if (at->partner == LANES_NONE || crosses(p, v) || !p->fuse || at->dense ||
            p->graph->values[v].role == GP_VALUE_INPUT) {
            need_all(at, &changed);
            if (at->partner != LANES_NONE)
                need_all(&p->places[at->partner], &changed);
        }
    }
    for (uint32_t i = 0; i < p->count; i++)
        if (reads_vector(p->ops[i].code))
            need_whole(p, &p->ops[i], &changed);
    for (uint32_t round = 0; changed; round++) {
        changed = false;
        assert(round < 100000);
        for (uint32_t i = p->count; i-- > 0;)
            need_by_op(p, &p->ops[i], &changed);
        for (uint32_t v = 0; v < p->graph->value_count; v++) {
            place *at = &p->places[v];

            if (is_tensor(p, v) && at->partner != LANES_NONE && at->partner != v)
                need_same(p, v, at->partner, &changed);
        }
    }
}

static void find_dense(planner *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        for (uint32_t k = 0; k < GP_OP_VALUES_MAX && reads_vector(op->code); k++) {
            if (is_tensor(p, op->in[k]))
                p->places[op->in[k]].dense = true;
            if (is_tensor(p, op->out[k]))
                p->places[op->out[k]].dense = true;
        }
        for (uint32_t k = 0; k < input_count(op); k++)
            if (is_tensor(p, op->in[k]))
                p->places[op->in[k]].readers++;
        if (op->code == GP_OP_RESHAPE)
            p->places[op->out[0]].root = p->places[op->in[0]].root;
    }
    for (uint32_t v = 0; v < p->graph->value_count; v++)
        if (crosses(p, v))
            p->places[v].readers++;
}

/* Whether the fast kernels know the window at all. */
static bool window_is_fast(const gp_window *w)
{
    int32_t k = w->kernel[0];
    bool fast = k == w->kernel[1] && (k == 1 || k == 3 || k == 5 || k == 7) && w->groups == 1;

    for (int i = 0; i < 2; i++)
        fast = fast && w->stride[i] == 1 && w->dilation[i] == 1;
    for (int i = 0; i < 4; i++)
        fast = fast && w->padding[i] >= 0 && w->padding[i] < k;
    return fast;
}

static bool window_is_padded(const gp_window *w)
{
    return (w->padding[0] | w->padding[1] | w->padding[2] | w->padding[3]) != 0;
}

/* The input of a padded fast convolution has zeros around it, which a vector cannot have. */
static bool conv_is_fast(const planner *p, const gp_window *window, uint32_t x)
{
    return p->fuse && window_is_fast(window) && !(window_is_padded(window) && p->places[x].dense);
}

static void widen_border(place *at, const gp_window *window)
{
    for (int k = 0; k < 4; k++)
        if (at->border[k] < window->padding[k])
            at->border[k] = window->padding[k];
}

static void find_borders(planner *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        if ((op->code == GP_OP_CONV2D || op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS) &&
            conv_is_fast(p, &op->window, op->in[0]))
            widen_border(&p->places[op->in[0]], &op->window);
        if (op->code == GP_OP_CONV2D_BACKWARD_DATA && conv_is_fast(p, &op->window, op->out[0]))
            widen_border(&p->places[op->out[0]], &op->window);
    }
}

/* The only op that reads a value; count when there are several or none, or when it crosses. */
static uint32_t only_reader(const planner *p, uint32_t value, gp_opcode code)
{
    if (p->places[value].readers != 1)
        return p->count;
    for (uint32_t i = 0; i < p->count; i++)
        for (uint32_t k = 0; k < input_count(&p->ops[i]); k++)
            if (p->ops[i].in[k] == value)
                return p->ops[i].code == code ? i : p->count;
    return p->count;
}

static uint32_t reader_with(const planner *p, uint32_t value, gp_opcode code, uint32_t slot)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->ops[i].code == code && p->ops[i].in[slot] == value)
            return i;
    return p->count;
}

static bool pool_is_fast(const gp_op *op)
{
    const gp_window *w = &op->window;
    bool fast = !window_is_padded(w);

    for (int i = 0; i < 2; i++)
        fast = fast && w->kernel[i] == 2 && w->stride[i] == 2 && w->dilation[i] == 1;
    return fast;
}

/* The fast kernels write every pixel that their taps reach, and no other. */
static bool conv_data_reaches(const planner *p, const gp_op *op)
{
    const place *dy = &p->places[op->in[0]], *dx = &p->places[op->out[0]];
    int32_t reach = op->window.kernel[0] - 1;
    int32_t height = dy->live_height + reach - op->window.padding[0];
    int32_t width = dy->live_width + reach - op->window.padding[1];

    return conv_is_fast(p, &op->window, op->out[0]) && height >= dx->live_height && width >= dx->live_width &&
           height <= dx->live_height + dx->border[2] && width <= dx->live_width + dx->border[3];
}

/* Transforms are paid once per channel, products per pair of channels: few channels are faster directly.  Not before
 * a maximum: equal patches (the background of an image) give pixels that differ in the last bit, so that the first
 * of them would not be the one chosen. */
enum { WINOGRAD_CHANNELS_MIN = 8 };

static bool conv_is_winograd(const planner *p, uint32_t conv, uint32_t pool)
{
    const gp_op *op = &p->ops[conv];

    return p->winograd && p->ops[pool].pool != GP_POOL_MAX && conv_is_fast(p, &op->window, op->in[0]) &&
           (op->window.kernel[0] == 3 || op->window.kernel[0] == 5) &&
           p->places[op->in[0]].channels >= WINOGRAD_CHANNELS_MIN &&
           p->places[op->out[0]].channels >= WINOGRAD_CHANNELS_MIN;
}

/* All that read the convolution's gradient dy must be able to make it themselves. */
static bool fuse_winograd_backward(planner *p, uint32_t conv, uint32_t dy, uint32_t pool_backward)
{
    uint32_t readers[2] = { p->count, p->count }, found = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];
        bool data = op->code == GP_OP_CONV2D_BACKWARD_DATA && op->in[0] == dy && conv_data_reaches(p, op);
        bool weights = op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS && op->in[1] == dy;

        if ((data || weights) && op->layer == p->ops[conv].layer && found < 2)
            readers[found++] = i;
    }
    if (found == 0 || p->places[dy].readers != found)
        return false;
    for (uint32_t i = 0; i < found; i++) {
        p->notes[readers[i]] = NOTE_WINOGRAD;
        p->mates[readers[i]] = pool_backward;
    }
    return true;
}

/* Backward of a fused pool: both ops must be here, and nobody else may read what lies between them. */
static bool fuse_pool_backward(planner *p, uint32_t conv, uint32_t pool, uint32_t relu_backward)
{
    const gp_op *op = &p->ops[relu_backward];
    uint32_t pool_backward = p->count, weights;

    for (uint32_t i = 0; i < p->count; i++)
        if (p->ops[i].code == GP_OP_POOL_BACKWARD && p->ops[i].out[0] == op->in[1])
            pool_backward = i;
    if (pool_backward == p->count || p->ops[pool_backward].layer != p->ops[pool].layer ||
        only_reader(p, op->in[1], GP_OP_RELU_BACKWARD) != relu_backward)
        return false;
    p->notes[pool_backward] = NOTE_MERGED;
    p->notes[relu_backward] = NOTE_UNPOOL;
    p->mates[relu_backward] = conv;
    p->mates[pool_backward] = conv;
    if (conv_is_winograd(p, conv, pool) && fuse_winograd_backward(p, conv, op->out[0], pool_backward)) {
        p->notes[relu_backward] = NOTE_MERGED;
        return true;
    }
    weights = only_reader(p, op->out[0], GP_OP_CONV2D_BACKWARD_WEIGHTS);
    if (weights < p->count && conv_is_fast(p, &p->ops[weights].window, p->ops[weights].in[0])) {
        p->notes[relu_backward] = NOTE_MERGED;
        p->notes[weights] = NOTE_POOL;
        p->mates[weights] = pool_backward;
    }
    return true;
}

static void fuse_conv(planner *p, uint32_t conv)
{
    const gp_op *op = &p->ops[conv];
    uint32_t relu = only_reader(p, op->out[0], GP_OP_RELU), pool, relu_backward;
    uint32_t y, readers;

    if (relu == p->count)
        return;
    p->notes[relu] = NOTE_MERGED;
    p->notes[conv] = NOTE_RELU;
    p->mates[conv] = relu;
    y = p->ops[relu].out[0];
    pool = reader_with(p, y, GP_OP_POOL, 0);
    if (pool == p->count || !pool_is_fast(&p->ops[pool]) || !conv_is_fast(p, &op->window, op->in[0]))
        return;
    if (p->ops[pool].out[1] != GP_NO_VALUE && crosses(p, p->ops[pool].out[1]))
        return;
    relu_backward = reader_with(p, y, GP_OP_RELU_BACKWARD, 0);
    readers = relu_backward == p->count ? 1 : 2;
    if (p->places[y].readers != readers ||
        (relu_backward < p->count && !fuse_pool_backward(p, conv, pool, relu_backward)))
        return;
    p->notes[pool] = NOTE_MERGED;
    p->notes[conv] = conv_is_winograd(p, conv, pool) ? NOTE_WINOGRAD : NOTE_POOL;
    p->mates[conv] = pool;
}

/* -- buffers and views ------------------------------------------------------------------------------------ */

static gp_status buffer_add(planner *p, size_t floats, uint32_t *out, gp_error *err)
{
    if (p->buffer_count == p->buffer_capacity) {
        uint32_t capacity = p->buffer_capacity == 0 ? 64 : 2 * p->buffer_capacity;
        buffer *grown = gp_realloc_array(p->buffers, capacity, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the plan of a lanes segment");
        p->buffers = grown;
        p->buffer_capacity = capacity;
    }
    p->buffers[p->buffer_count] = (buffer){ .floats = (floats + 15) / 16 * 16, .first = UINT32_MAX };
    *out = p->buffer_count++;
    return GP_OK;
}

static lanes_view no_view(void)
{
    return (lanes_view){ .buffer = LANES_NONE };
}

static lanes_view view_of(const planner *p, uint32_t value)
{
    const place *at = &p->places[value];
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

static gp_status step_add(planner *p, lanes_step_kind kind, uint32_t op, lanes_step **out, gp_error *err)
{
    lanes_segment *segment = p->segment;

    if (segment->step_count == segment->step_capacity) {
        uint32_t capacity = segment->step_capacity == 0 ? 64 : 2 * segment->step_capacity;
        lanes_step *grown = gp_realloc_array(segment->steps, capacity, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the steps of a lanes segment");
        segment->steps = grown;
        segment->step_capacity = capacity;
    }
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

/* A value's buffer, and zeros around it if a convolution will read them. */
static gp_status place_make(planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    place *at = &p->places[value];
    lanes_view view = view_of(p, value);
    lanes_step *step;
    gp_status status = buffer_add(p, (size_t)(view.plane * view.channels), &p->places[at->root].buffer, err);

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

/* Make sure that a value is in the scratch: those from outside are brought in where first read. */
static gp_status value_read(planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    bool input = p->graph->values[value].role == GP_VALUE_INPUT;
    lanes_step *step;
    gp_status status;

    if (p->places[p->places[value].root].buffer != LANES_NONE)
        return GP_OK;
    assert(input || crosses(p, value));
    status = place_make(p, value, op, err);
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

static gp_status value_store(planner *p, uint32_t value, uint32_t op, gp_error *err)
{
    lanes_step *step;
    gp_status status;

    if (value == GP_NO_VALUE || !crosses(p, value))
        return GP_OK;
    status = step_add(p, LANES_STORE, op, &step, err);
    if (status != GP_OK)
        return status;
    step->x = view_of(p, value);
    step->crossing = p->request->values[value];
    return GP_OK;
}

/* A step that reads x and z and writes y, any of which may be GP_NO_VALUE. */
static gp_status step_make(planner *p, lanes_step_kind kind, uint32_t op, uint32_t x, uint32_t z, uint32_t y,
                           lanes_step **out, gp_error *err)
{
    gp_status status = GP_OK;

    if (x != GP_NO_VALUE)
        status = value_read(p, x, op, err);
    if (status == GP_OK && z != GP_NO_VALUE)
        status = value_read(p, z, op, err);
    if (status == GP_OK && y != GP_NO_VALUE && p->places[p->places[y].root].buffer == LANES_NONE)
        status = place_make(p, y, op, err);
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

/* -- ops -------------------------------------------------------------------------------------------------- */

static uint32_t parameter_of(const planner *p, uint32_t value)
{
    return value == GP_NO_VALUE ? LANES_NONE : p->graph->values[value].parameter;
}

static uint32_t pack_add(planner *p, int kind, uint32_t parameter, int32_t outputs, int32_t inputs,
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

static size_t sums_add(planner *p, size_t floats)
{
    size_t at = p->segment->sum_floats;

    p->segment->sum_floats += (floats + 15) / 16 * 16;
    return at;
}

/* Scratch of the Winograd steps: all N^2 positions of rows x columns vectors. */
static gp_status winograd_buffer(planner *p, int32_t kernel, int32_t rows, int32_t columns, lanes_view *view,
                                 gp_error *err)
{
    size_t plane = lanes_odd_lines((size_t)rows * (size_t)columns * (size_t)p->segment->isa->lanes);

    *view = (lanes_view){ 0 };
    return buffer_add(p, plane * (size_t)((kernel + 1) * (kernel + 1)), &view->buffer, err);
}

static int32_t to_fours(int32_t count)
{
    return (count + 3) / 4 * 4;
}

/* Where the bits of a fused pool go, and with Winograd what else its forward step writes. */
static gp_status plan_conv_pool(planner *p, uint32_t i, lanes_step *step, gp_error *err)
{
    int32_t pixels = step->y.height * step->y.width, kernel = step->window.kernel[0];
    size_t bytes = 4 * (p->segment->isa->lanes == 16 ? 2 : 1) * (size_t)step->y.channels * (size_t)pixels;
    gp_status status = buffer_add(p, (bytes + 3) / 4, &p->masks[i], err);

    step->pool = p->ops[p->mates[i]].pool;
    step->mask = (lanes_view){ .buffer = p->masks[i] };
    if (status != GP_OK || p->notes[i] != NOTE_WINOGRAD)
        return status;
    status = winograd_buffer(p, kernel, to_fours(step->x.channels), to_fours(pixels), &step->v, err);
    p->kept[i] = step->v.buffer;
    return status == GP_OK ? winograd_buffer(p, kernel, step->y.channels, 4, &step->t, err) : status;
}

static gp_status plan_conv(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    bool fast = conv_is_fast(p, &op->window, op->in[0]), winograd = p->notes[i] == NOTE_WINOGRAD;
    bool pooled = p->notes[i] == NOTE_POOL || winograd;
    uint32_t y = p->notes[i] == NOTE_PLAIN ? op->out[0] : p->ops[p->mates[i]].out[0];
    lanes_step_kind kind = LANES_CONV;
    lanes_step *step;
    gp_status status;

    if (fast)
        kind = winograd ? LANES_WINOGRAD : pooled ? LANES_CONV_POOL : LANES_CONV_FAST;
    status = step_make(p, kind, i, op->in[0], GP_NO_VALUE, y, &step, err);
    if (status != GP_OK)
        return status;
    step->relu = p->notes[i] != NOTE_PLAIN;
    step->weight_parameter = parameter_of(p, op->in[1]);
    step->bias_parameter = parameter_of(p, op->in[2]);
    if (fast)
        step->pack =
            pack_add(p, winograd ? LANES_PACK_WINOGRAD_OUTPUTS : LANES_PACK_OUTPUTS, step->weight_parameter,
                     step->y.channels, step->x.channels, op->window.kernel[0]);
    if (pooled)
        status = plan_conv_pool(p, i, step, err);
    return status == GP_OK ? value_store(p, y, i, err) : status;
}

/* What steps that read a pool's gradient in place of the convolution's need to spread it out. */
static void use_pool_gradient(const planner *p, uint32_t i, lanes_step *step)
{
    uint32_t pool_backward = p->mates[i];

    step->scale = p->ops[pool_backward].pool == GP_POOL_MAX ? 1.0f : 0.25f;
    step->mask = (lanes_view){ .buffer = p->masks[p->mates[pool_backward]] };
}

static gp_status plan_winograd_data(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    int32_t kernel = op->window.kernel[0];
    lanes_step *step;
    gp_status status =
        step_make(p, LANES_WINOGRAD_DATA, i, p->ops[p->mates[i]].in[0], GP_NO_VALUE, op->out[0], &step, err);

    if (status != GP_OK)
        return status;
    use_pool_gradient(p, i, step);
    step->weight_parameter = parameter_of(p, op->in[1]);
    step->pack = pack_add(p, LANES_PACK_WINOGRAD_INPUTS, step->weight_parameter, step->x.channels,
                          step->y.channels, kernel);
    status = winograd_buffer(p, kernel, step->y.channels, 4, &step->v, err);
    if (status == GP_OK)
        status = winograd_buffer(p, kernel, step->x.channels, 4, &step->t, err);
    return status == GP_OK ? value_store(p, op->out[0], i, err) : status;
}

static gp_status plan_conv_data(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    bool fast = conv_data_reaches(p, op) && p->places[op->in[0]].live_width >= p->segment->isa->data_columns;
    lanes_step *step;
    gp_status status;

    if (p->notes[i] == NOTE_WINOGRAD)
        return plan_winograd_data(p, i, err);
    status = step_make(p, fast ? LANES_CONV_DATA_FAST : LANES_CONV_DATA, i, op->in[0], GP_NO_VALUE,
                       op->out[0], &step, err);
    if (status != GP_OK)
        return status;
    step->weight_parameter = parameter_of(p, op->in[1]);
    if (fast)
        step->pack = pack_add(p, LANES_PACK_INPUTS, step->weight_parameter, step->x.channels,
                              step->y.channels, op->window.kernel[0]);
    return value_store(p, op->out[0], i, err);
}

/* Floats of a thread's sums for one convolution's weights, laid out as its kind of step likes. */
static size_t weight_sum_floats(const planner *p, const lanes_step *step, size_t weight_count)
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

/* Scratch of the steps that read the pool's gradient. */
static gp_status weights_buffers(planner *p, uint32_t i, lanes_step *step, gp_error *err)
{
    int32_t lanes = p->segment->isa->lanes, kernel = step->window.kernel[0];
    int32_t pixels = step->z.height * step->z.width;

    if (step->kind == LANES_WINOGRAD_WEIGHTS) {
        step->v = (lanes_view){ .buffer = p->kept[p->mates[p->mates[i]]] };
        return winograd_buffer(p, kernel, LANES_WINOGRAD_OUTPUTS, to_fours(pixels), &step->t, err);
    }
    step->y = (lanes_view){ .row = 2 * step->z.width * lanes, .plane = 4 * pixels * lanes };
    return buffer_add(p, (size_t)(p->segment->isa->weights_outputs[kernel] * step->y.plane), &step->y.buffer,
                      err);
}

static gp_status plan_conv_weights(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    bool fast = conv_is_fast(p, &op->window, op->in[0]), winograd = p->notes[i] == NOTE_WINOGRAD;
    bool pooled = p->notes[i] == NOTE_POOL || winograd;
    uint32_t dy = pooled ? p->ops[p->mates[i]].in[0] : op->in[1];
    const gp_parameter *weight = &p->graph->parameters[parameter_of(p, op->out[0])];
    lanes_finish *finish = &p->segment->finishes[p->segment->finish_count++];
    lanes_step_kind kind = LANES_CONV_WEIGHTS;
    lanes_step *step;
    gp_status status;

    if (fast)
        kind = winograd ? LANES_WINOGRAD_WEIGHTS : pooled ? LANES_CONV_WEIGHTS_POOL : LANES_CONV_WEIGHTS_FAST;
    status = step_make(p, kind, i, op->in[0], dy, GP_NO_VALUE, &step, err);
    if (status != GP_OK)
        return status;
    step->weight_sum = sums_add(p, weight_sum_floats(p, step, (size_t)weight->count));
    if (op->out[1] != GP_NO_VALUE)
        step->bias_sum = sums_add(p, (size_t)step->z.channels);
    *finish = (lanes_finish){ .kind = winograd ? LANES_FINISH_WINOGRAD
                                      : fast   ? LANES_FINISH_CONV_FAST
                                               : LANES_FINISH_CONV,
                              .weight_parameter = parameter_of(p, op->out[0]),
                              .bias_parameter = parameter_of(p, op->out[1]),
                              .outputs = step->z.channels,
                              .inputs = step->x.channels,
                              .kernel = op->window.kernel[0],
                              .weight_count = (size_t)weight->count,
                              .weight_sum = step->weight_sum,
                              .bias_sum = step->bias_sum };
    if (!pooled)
        return GP_OK;
    use_pool_gradient(p, i, step);
    return weights_buffers(p, i, step, err);
}

static gp_status plan_relu_backward(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    lanes_step *step;
    gp_status status;

    if (p->notes[i] == NOTE_UNPOOL) {
        const gp_op *pool_backward = NULL;

        for (uint32_t k = 0; k < i; k++)
            if (p->ops[k].code == GP_OP_POOL_BACKWARD && p->ops[k].out[0] == op->in[1])
                pool_backward = &p->ops[k];
        assert(pool_backward != NULL);
        status = step_make(p, LANES_UNPOOL, i, pool_backward->in[0], GP_NO_VALUE, op->out[0], &step, err);
        if (status != GP_OK)
            return status;
        step->scale = pool_backward->pool == GP_POOL_MAX ? 1.0f : 0.25f;
        step->mask = (lanes_view){ .buffer = p->masks[p->mates[i]] };
        return value_store(p, op->out[0], i, err);
    }
    status = step_make(p, LANES_RELU_BACKWARD, i, op->in[0], op->in[1], op->out[0], &step, err);
    return status == GP_OK ? value_store(p, op->out[0], i, err) : status;
}

static gp_status plan_fc(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    bool forward = op->code == GP_OP_FC;
    lanes_step *step;
    gp_status status = step_make(p, LANES_FC, i, op->in[0], GP_NO_VALUE, op->out[0], &step, err);

    if (status != GP_OK)
        return status;
    step->weight_parameter = parameter_of(p, op->in[1]);
    if (forward) {
        const gp_shape *shape = &p->graph->parameters[step->weight_parameter].shape;

        step->bias_parameter = parameter_of(p, op->in[2]);
        step->pack = pack_add(p, LANES_PACK_TRANSPOSE, step->weight_parameter, (int32_t)shape->dim[0],
                              (int32_t)shape->dim[1], 1);
    }
    return value_store(p, op->out[0], i, err);
}

static size_t panels_add(planner *p, int32_t count, int32_t width)
{
    lanes_segment *segment = p->segment;
    size_t at = segment->panel_floats;

    segment->panel_floats +=
        (size_t)((count + width - 1) / width * width) * segment->block_count * (size_t)segment->isa->lanes;
    segment->panel_floats = (segment->panel_floats + 15) / 16 * 16;
    return at;
}

static gp_status plan_fc_weights(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    const gp_parameter *weight = &p->graph->parameters[parameter_of(p, op->out[0])];
    lanes_finish *finish = &p->segment->finishes[p->segment->finish_count++];
    int32_t outputs = (int32_t)weight->shape.dim[0], inputs = (int32_t)weight->shape.dim[1];
    lanes_step *step;
    gp_status status = step_make(p, LANES_FC_WEIGHTS, i, op->in[0], op->in[1], GP_NO_VALUE, &step, err);

    if (status != GP_OK)
        return status;
    step->panel_x_at = panels_add(p, inputs, p->segment->isa->panel_inputs);
    step->panel_dy_at = panels_add(p, outputs, p->segment->isa->panel_outputs);
    *finish = (lanes_finish){ .kind = LANES_FINISH_FC,
                              .weight_parameter = parameter_of(p, op->out[0]),
                              .bias_parameter = parameter_of(p, op->out[1]),
                              .outputs = outputs,
                              .inputs = inputs,
                              .kernel = 1,
                              .weight_count = (size_t)weight->count,
                              .panel_x_at = step->panel_x_at,
                              .panel_dy_at = step->panel_dy_at };
    return GP_OK;
}

static gp_status plan_pool(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    bool backward = op->code == GP_OP_POOL_BACKWARD;
    uint32_t index = backward ? op->in[1] : op->out[1], input = backward ? op->out[0] : op->in[0];
    lanes_step *step;
    gp_status status = GP_OK;

    if (!backward && index != GP_NO_VALUE)
        status = place_make(p, index, i, err);
    if (status == GP_OK)
        status = step_make(p, backward ? LANES_POOL_BACKWARD : LANES_POOL, i, op->in[0],
                           op->pool == GP_POOL_MAX ? index : GP_NO_VALUE, op->out[0], &step, err);
    if (status != GP_OK)
        return status;
    step->full_height = p->places[input].height;
    step->full_width = p->places[input].width;
    status = value_store(p, op->out[0], i, err);
    return status == GP_OK && !backward ? value_store(p, index, i, err) : status;
}

static gp_status plan_dropout(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    double limit = op->rate * 0x1p24;
    lanes_step *step;
    gp_status status = step_make(p, LANES_DROPOUT, i, op->in[0], GP_NO_VALUE, op->out[0], &step, err);

    if (status != GP_OK)
        return status;
    step->scale = (float)(1.0 / (1.0 - op->rate));
    step->threshold = (uint32_t)limit + ((double)(uint32_t)limit < limit);
    return value_store(p, op->out[0], i, err);
}

static gp_status plan_simple(planner *p, lanes_step_kind kind, uint32_t i, uint32_t z, gp_error *err)
{
    const gp_op *op = &p->ops[i];
    lanes_step *step;
    gp_status status = step_make(p, kind, i, op->in[0], z, op->out[0], &step, err);

    return status == GP_OK ? value_store(p, op->out[0], i, err) : status;
}

static gp_status plan_reshape(planner *p, uint32_t i, gp_error *err)
{
    gp_status status = value_read(p, p->ops[i].in[0], i, err);

    return status == GP_OK ? value_store(p, p->ops[i].out[0], i, err) : status;
}

static gp_status plan_op(planner *p, uint32_t i, gp_error *err)
{
    const gp_op *op = &p->ops[i];

    if (p->notes[i] == NOTE_MERGED)
        return GP_OK;
    switch (op->code) {
    case GP_OP_CONV2D:
        return plan_conv(p, i, err);
    case GP_OP_CONV2D_BACKWARD_DATA:
        return plan_conv_data(p, i, err);
    case GP_OP_CONV2D_BACKWARD_WEIGHTS:
        return plan_conv_weights(p, i, err);
    case GP_OP_FC:
    case GP_OP_FC_BACKWARD_DATA:
        return plan_fc(p, i, err);
    case GP_OP_FC_BACKWARD_WEIGHTS:
        return plan_fc_weights(p, i, err);
    case GP_OP_RELU:
        return plan_simple(p, LANES_RELU, i, GP_NO_VALUE, err);
    case GP_OP_RELU_BACKWARD:
        return plan_relu_backward(p, i, err);
    case GP_OP_POOL:
    case GP_OP_POOL_BACKWARD:
        return plan_pool(p, i, err);
    case GP_OP_RESHAPE:
        return plan_reshape(p, i, err);
    case GP_OP_DROPOUT:
    case GP_OP_DROPOUT_BACKWARD:
        return plan_dropout(p, i, err);
    case GP_OP_SOFTMAX_XENT:
        return plan_simple(p, LANES_SOFTMAX_XENT, i, GP_NO_VALUE, err);
    case GP_OP_ADD:
        return plan_simple(p, LANES_ADD, i, op->in[1], err);
    case GP_OP_COUNT:
        break;
    }
    return gp_fail(err, GP_EUNSUPPORTED, "the lanes kernels have no op %d; use another backend",
                   (int)op->code);
}

/* -- placing ---------------------------------------------------------------------------------------------- */

static void buffer_use(planner *p, const lanes_view *view, uint32_t step)
{
    buffer *b;

    if (view->buffer == LANES_NONE)
        return;
    b = &p->buffers[view->buffer];
    if (b->first == UINT32_MAX)
        b->first = step;
    b->last = step;
}

/* First fit: the lowest place that no buffer alive at the same time has. */
static void buffer_place(planner *p, uint32_t index)
{
    buffer *b = &p->buffers[index];
    bool moved = true;

    b->offset = 0;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < index; i++) {
            const buffer *other = &p->buffers[i];

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

static void place_buffers(planner *p)
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

static gp_status planner_init(planner *p, gp_error *err)
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
        return gp_fail(err, GP_ENOMEM, "no memory to plan %u ops", count);
    for (uint32_t v = 0; v < p->graph->value_count; v++)
        place_init(&p->places[v], &p->graph->values[v], v);
    return GP_OK;
}

gp_status gp_lanes_plan(lanes_segment *segment, const gp_segment_request *request, lanes_effort effort,
                        gp_error *err)
{
    planner p = { .segment = segment,
                  .request = request,
                  .graph = request->graph,
                  .ops = request->ops,
                  .count = request->count,
                  .fuse = effort != LANES_UNFUSED,
                  .winograd = effort == LANES_WHOLE };
    uint32_t forward_count = request->graph->ops[request->phase].forward_count;
    const gp_op *backward = request->graph->ops[request->phase].op + forward_count;
    gp_status status = planner_init(&p, err);

    if (status == GP_OK) {
        find_dense(&p);
        find_partners(&p);
        find_live(&p);
        find_borders(&p);
        for (uint32_t i = 0; i < p.count && p.fuse; i++)
            if (p.ops[i].code == GP_OP_CONV2D)
                fuse_conv(&p, i);
    }
    for (uint32_t i = 0; i < p.count && status == GP_OK; i++) {
        status = plan_op(&p, i, err);
        if (&p.ops[i] < backward)
            segment->forward_steps = segment->step_count;
    }
    if (status == GP_OK)
        place_buffers(&p);
    gp_free(p.places);
    gp_free(p.notes);
    gp_free(p.mates);
    gp_free(p.masks);
    gp_free(p.kept);
    gp_free(p.buffers);
    return status;
}

void gp_lanes_plan_free(lanes_segment *segment)
{
    gp_free(segment->steps);
    gp_free(segment->packs);
    gp_free(segment->finishes);
}
