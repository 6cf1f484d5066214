/* Decides which ops are merged into one step, and which values are never read.
 *
 * Fused ops (tests compare each with the unfused ops):
 *   conv, relu, 2x2 pool         one step. It replaces two full-size activations with 4 bits
 *                                per pooled pixel, which mark the pixels that receive a gradient.
 *   pool backward, relu backward one step that spreads the gradient by these bits. If only
 *                                weight gradients follow (first layer), a few channels are
 *                                spread at a time.
 *   conv, relu                   one step
 * Average pools after convolutions with many channels use the Winograd algorithm
 * (lanes_winograd.h).
 *
 * Dead rows and columns: if no window reaches some rows or columns of an activation, neither they
 * nor their gradients, which are zero, are computed. In LeNet, pooling from 9 to 4 never reads row
 * 8 of conv2, so row 12 of pool1 is not needed. */
#include "worker/backend/cpu/lanes/lanes_planner.h"

#include <assert.h>

static bool is_tensor(const lanes_planner *p, uint32_t value)
{
    gp_value_role role;

    if (value == GP_NO_VALUE || value >= p->graph->value_count)
        return false;
    role = p->graph->values[value].role;
    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_SAVED ||
           role == GP_VALUE_ACTIVATION_GRADIENT;
}

bool gp_lanes_crosses(const lanes_planner *p, uint32_t value)
{
    return p->request->values != NULL && p->request->values[value] != NULL;
}

/* Record that dx and dy in a backward op belong to the forward op's input and output. */
static void pair(lanes_planner *p, const gp_op *op, gp_opcode code, uint32_t dy, uint32_t dx)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *forward = &p->ops[i];

        if (forward->code != code || forward->layer != op->layer)
            continue;
        p->places[dy].partner = forward->out[0];
        if (dx != GP_NO_VALUE)
            p->places[dx].partner = forward->in[0];
        return;
    }
}

/* Record for each gradient the value that it belongs to. */
static void find_partners(lanes_planner *p)
{
    /* dy: index of the input that is the gradient of the forward op's output */
    static const struct {
        gp_opcode backward, forward;
        int dy;
        bool writes_dx;
    } pairs[] = {
        { GP_OP_CONV2D_BACKWARD_DATA, GP_OP_CONV2D, 0, true },
        { GP_OP_CONV2D_BACKWARD_WEIGHTS, GP_OP_CONV2D, 1, false },
        { GP_OP_FC_BACKWARD_DATA, GP_OP_FC, 0, true },
        { GP_OP_FC_BACKWARD_WEIGHTS, GP_OP_FC, 1, false },
        { GP_OP_RELU_BACKWARD, GP_OP_RELU, 1, true },
        { GP_OP_POOL_BACKWARD, GP_OP_POOL, 0, true },
    };

    for (uint32_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++)
            if (p->ops[i].code == pairs[k].backward)
                pair(p, &p->ops[i], pairs[k].forward, p->ops[i].in[pairs[k].dy],
                     pairs[k].writes_dx ? p->ops[i].out[0] : GP_NO_VALUE);
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        if (op->code == GP_OP_ADD && p->places[op->out[0]].partner == LANES_NONE)
            p->places[op->out[0]].partner = p->places[op->in[0]].partner;
    }
}

/* Extend a value's live part. */
static void need(lanes_place *at, int32_t height, int32_t width, bool *changed)
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

/* Mark the part in a window op's input that the live outputs read. */
static void need_window(lanes_planner *p, const gp_op *op, bool *changed)
{
    const lanes_place *y = &p->places[op->out[0]];
    const gp_window *w = &op->window;

    need(&p->places[op->in[0]],
         (y->live_height - 1) * w->stride[0] + (w->kernel[0] - 1) * w->dilation[0] + 1 - w->padding[0],
         (y->live_width - 1) * w->stride[1] + (w->kernel[1] - 1) * w->dilation[1] + 1 - w->padding[1],
         changed);
}

/* Element-wise ops: make input and output equally live. */
static void need_same(lanes_planner *p, uint32_t a, uint32_t b, bool *changed)
{
    need(&p->places[a], p->places[b].live_height, p->places[b].live_width, changed);
    need(&p->places[b], p->places[a].live_height, p->places[a].live_width, changed);
}

static void need_by_op(lanes_planner *p, const gp_op *op, bool *changed)
{
    if (op->code == GP_OP_CONV2D || op->code == GP_OP_POOL)
        need_window(p, op, changed);
    if (op->code == GP_OP_POOL && op->out[1] != GP_NO_VALUE)
        need_same(p, op->out[0], op->out[1], changed);
    if (op->code == GP_OP_RELU || op->code == GP_OP_ADD)
        need_same(p, op->in[0], op->out[0], changed);
    if (op->code == GP_OP_ADD)
        need_same(p, op->in[1], op->out[0], changed);
}

/* Return true for ops that read their input as one vector. */
static bool reads_vector(gp_opcode code)
{
    return code == GP_OP_FC || code == GP_OP_FC_BACKWARD_DATA || code == GP_OP_FC_BACKWARD_WEIGHTS ||
           code == GP_OP_RESHAPE || code == GP_OP_DROPOUT || code == GP_OP_DROPOUT_BACKWARD ||
           code == GP_OP_SOFTMAX_XENT || code == GP_OP_CUSTOM_LOSS;
}

static void find_dense(lanes_planner *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        for (uint32_t k = 0; k < GP_OP_VALUES_MAX && reads_vector(op->code); k++) {
            if (is_tensor(p, op->in[k]))
                p->places[op->in[k]].dense = true;
            if (is_tensor(p, op->out[k]))
                p->places[op->out[k]].dense = true;
        }
        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++)
            if (is_tensor(p, op->in[k]))
                p->places[op->in[k]].readers++;
        if (op->code == GP_OP_RESHAPE)
            p->places[op->out[0]].root = p->places[op->in[0]].root;
    }
    for (uint32_t v = 0; v < p->graph->value_count; v++)
        if (gp_lanes_crosses(p, v))
            p->places[v].readers++;
}

static bool window_is_padded(const gp_window *w)
{
    return (w->padding[0] | w->padding[1] | w->padding[2] | w->padding[3]) != 0;
}

/* Return true if the fast kernels support the window. A padded fast convolution needs zeros around
 * the input; a value that is read as a vector has none. */
bool gp_lanes_conv_is_fast(const lanes_planner *p, const gp_window *window, uint32_t x)
{
    const int32_t k = window->kernel[0];
    bool fast = p->fuse && k == window->kernel[1] && (k == 1 || k == 3 || k == 5 || k == 7) &&
                window->groups == 1 && !(window_is_padded(window) && p->places[x].dense);

    for (int i = 0; i < 2; i++)
        fast = fast && window->stride[i] == 1 && window->dilation[i] == 1;
    for (int i = 0; i < 4; i++)
        fast = fast && window->padding[i] >= 0 && window->padding[i] < k;
    return fast;
}

/* Make room for convolution padding. */
static void widen_border(lanes_place *at, const gp_window *window)
{
    for (int k = 0; k < 4; k++)
        if (at->border[k] < window->padding[k])
            at->border[k] = window->padding[k];
}

/* Return the index of the only op that reads a value. p->count: there are several or none, the op's
 * code is not `code`, or the value crosses the segment border. */
static uint32_t only_reader(const lanes_planner *p, uint32_t value, gp_opcode code)
{
    if (p->places[value].readers != 1)
        return p->count;
    for (uint32_t i = 0; i < p->count; i++)
        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++)
            if (p->ops[i].in[k] == value)
                return p->ops[i].code == code ? i : p->count;
    return p->count;
}

/* Return the index of an op that reads the value in `slot`, or p->count. */
static uint32_t reader_with(const lanes_planner *p, uint32_t value, gp_opcode code, uint32_t slot)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (p->ops[i].code == code && p->ops[i].in[slot] == value)
            return i;
    return p->count;
}

/* Return true if the fused kernels support the pool: 2x2 windows at stride 2 without padding. */
static bool pool_is_fast(const gp_op *op)
{
    const gp_window *w = &op->window;
    bool fast = !window_is_padded(w);

    for (int i = 0; i < 2; i++)
        fast = fast && w->kernel[i] == 2 && w->stride[i] == 2 && w->dilation[i] == 1;
    return fast;
}

/* Return true if the fast backward data step can compute dx. The step writes exactly the pixels
 * reached by live pixels of dy. They must cover the live part of dx and stay within its border. */
bool gp_lanes_conv_data_reaches(const lanes_planner *p, const gp_op *op)
{
    const lanes_place *dy = &p->places[op->in[0]], *dx = &p->places[op->out[0]];
    int32_t reach = op->window.kernel[0] - 1;
    int32_t height = dy->live_height + reach - op->window.padding[0];
    int32_t width = dy->live_width + reach - op->window.padding[1];

    return gp_lanes_conv_is_fast(p, &op->window, op->out[0]) && height >= dx->live_height &&
           width >= dx->live_width && height <= dx->live_height + dx->border[2] &&
           width <= dx->live_width + dx->border[3];
}

/* Winograd transforms cost time per channel and save time per channel pair, so direct convolution
 * is faster for few channels. Winograd is never used before a maximum pool: Winograd results for
 * equal patches, such as an image background, differ in the last bit. The pool would then not
 * select the first among equal pixels. */
enum { WINOGRAD_CHANNELS_MIN = 8 };

static bool conv_is_winograd(const lanes_planner *p, uint32_t conv, uint32_t pool)
{
    const gp_op *op = &p->ops[conv];

    return p->winograd && p->ops[pool].pool != GP_POOL_MAX &&
           gp_lanes_conv_is_fast(p, &op->window, op->in[0]) &&
           (op->window.kernel[0] == 3 || op->window.kernel[0] == 5) &&
           p->places[op->in[0]].channels >= WINOGRAD_CHANNELS_MIN &&
           p->places[op->out[0]].channels >= WINOGRAD_CHANNELS_MIN;
}

/* Winograd: check that all ops that read the convolution gradient dy can compute it from the pool's
 * gradient. */
static bool fuse_winograd_backward(lanes_planner *p, uint32_t conv, uint32_t dy, uint32_t pool_backward)
{
    uint32_t readers[2] = { p->count, p->count }, found = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];
        bool data =
            op->code == GP_OP_CONV2D_BACKWARD_DATA && op->in[0] == dy && gp_lanes_conv_data_reaches(p, op);
        bool weights = op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS && op->in[1] == dy;

        if ((data || weights) && op->layer == p->ops[conv].layer && found < 2)
            readers[found++] = i;
    }
    if (found == 0 || p->places[dy].readers != found)
        return false;
    for (uint32_t i = 0; i < found; i++) {
        p->notes[readers[i]] = LANES_NOTE_WINOGRAD;
        p->mates[readers[i]] = pool_backward;
    }
    return true;
}

/* Fuse a pool's backward ops. Both ops must be in this segment, and no other op may read the value
 * between them. */
static bool fuse_pool_backward(lanes_planner *p, uint32_t conv, uint32_t pool, uint32_t relu_backward)
{
    const gp_op *op = &p->ops[relu_backward];
    uint32_t pool_backward = p->count, weights;

    for (uint32_t i = 0; i < p->count; i++)
        if (p->ops[i].code == GP_OP_POOL_BACKWARD && p->ops[i].out[0] == op->in[1])
            pool_backward = i;
    if (pool_backward == p->count || p->ops[pool_backward].layer != p->ops[pool].layer ||
        only_reader(p, op->in[1], GP_OP_RELU_BACKWARD) != relu_backward)
        return false;
    p->notes[pool_backward] = LANES_NOTE_MERGED;
    p->notes[relu_backward] = LANES_NOTE_UNPOOL;
    p->mates[relu_backward] = conv;
    p->mates[pool_backward] = conv;
    if (conv_is_winograd(p, conv, pool) && fuse_winograd_backward(p, conv, op->out[0], pool_backward)) {
        p->notes[relu_backward] = LANES_NOTE_MERGED;
        return true;
    }
    weights = only_reader(p, op->out[0], GP_OP_CONV2D_BACKWARD_WEIGHTS);
    if (weights < p->count && gp_lanes_conv_is_fast(p, &p->ops[weights].window, p->ops[weights].in[0])) {
        p->notes[relu_backward] = LANES_NOTE_MERGED;
        p->notes[weights] = LANES_NOTE_POOL;
        p->mates[weights] = pool_backward;
    }
    return true;
}

/* Fuse a convolution with the relu and the pool that follow it, if possible. */
static void fuse_conv(lanes_planner *p, uint32_t conv)
{
    const gp_op *op = &p->ops[conv];
    uint32_t relu = only_reader(p, op->out[0], GP_OP_RELU), pool, relu_backward;
    uint32_t y, readers;

    if (relu == p->count)
        return;
    p->notes[relu] = LANES_NOTE_MERGED;
    p->notes[conv] = LANES_NOTE_RELU;
    p->mates[conv] = relu;
    y = p->ops[relu].out[0];
    pool = reader_with(p, y, GP_OP_POOL, 0);
    if (pool == p->count || !pool_is_fast(&p->ops[pool]) || !gp_lanes_conv_is_fast(p, &op->window, op->in[0]))
        return;
    if (p->ops[pool].out[1] != GP_NO_VALUE && gp_lanes_crosses(p, p->ops[pool].out[1]))
        return;
    relu_backward = reader_with(p, y, GP_OP_RELU_BACKWARD, 0);
    readers = relu_backward == p->count ? 1 : 2;
    if (p->places[y].readers != readers ||
        (relu_backward < p->count && !fuse_pool_backward(p, conv, pool, relu_backward)))
        return;
    p->notes[pool] = LANES_NOTE_MERGED;
    p->notes[conv] = conv_is_winograd(p, conv, pool) ? LANES_NOTE_WINOGRAD : LANES_NOTE_POOL;
    p->mates[conv] = pool;
}

void gp_lanes_fuse(lanes_planner *p)
{
    for (uint32_t v = 0; v < p->graph->value_count; v++) {
        /* Initialise a value's properties. */
        lanes_place *at = &p->places[v];
        const gp_shape *shape = &p->graph->values[v].shape;

        *at = (lanes_place){ .root = v, .partner = v, .buffer = LANES_NONE };
        if (shape->rank == 3) {
            at->channels = (int32_t)shape->dim[0];
            at->height = (int32_t)shape->dim[1];
            at->width = (int32_t)shape->dim[2];
        } else {
            at->channels = (int32_t)gp_shape_count(shape);
            at->height = at->width = 1;
        }
        if (p->graph->values[v].role == GP_VALUE_ACTIVATION_GRADIENT)
            at->partner = LANES_NONE;
    }
    find_dense(p);
    find_partners(p);

    /* Find each value's live part. Values are live if they leave the segment, if an op reads them
     * as a vector, or if a live value depends on them. */
    bool changed = true;

    for (uint32_t v = 0; v < p->graph->value_count; v++) {
        lanes_place *at = &p->places[v];

        if (!is_tensor(p, v))
            continue;
        if (at->partner == LANES_NONE || gp_lanes_crosses(p, v) || !p->fuse || at->dense ||
            p->graph->values[v].role == GP_VALUE_INPUT) {
            lanes_place *partner = at->partner == LANES_NONE ? at : &p->places[at->partner];

            need(at, at->height, at->width, &changed);
            need(partner, partner->height, partner->width, &changed);
        }
    }
    for (uint32_t round = 0; changed; round++) {
        changed = false;
        assert(round < 100000);
        for (uint32_t i = p->count; i-- > 0;)
            need_by_op(p, &p->ops[i], &changed);
        for (uint32_t v = 0; v < p->graph->value_count; v++) {
            lanes_place *at = &p->places[v];

            if (is_tensor(p, v) && at->partner != LANES_NONE && at->partner != v)
                need_same(p, v, at->partner, &changed);
        }
    }
    for (uint32_t i = 0; i < p->count; i++) {
        const gp_op *op = &p->ops[i];

        if ((op->code == GP_OP_CONV2D || op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS) &&
            gp_lanes_conv_is_fast(p, &op->window, op->in[0]))
            widen_border(&p->places[op->in[0]], &op->window);
        if (op->code == GP_OP_CONV2D_BACKWARD_DATA && gp_lanes_conv_is_fast(p, &op->window, op->out[0]))
            widen_border(&p->places[op->out[0]], &op->window);
    }
    for (uint32_t i = 0; i < p->count && p->fuse; i++)
        if (p->ops[i].code == GP_OP_CONV2D)
            fuse_conv(p, i);
}
