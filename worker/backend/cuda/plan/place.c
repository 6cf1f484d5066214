/* Activation memory. A value is alive from the op that writes it to the last op that reads it;
 * values with disjoint lifetimes may share memory. Values are placed in order of decreasing size,
 * each at the lowest free offset. */
#include <stdlib.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/plan.h"

enum { PLACE_ALIGNMENT = 256 };

static bool value_is_placed(gp_value_role role)
{
    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_SAVED ||
           role == GP_VALUE_CALL || role == GP_VALUE_ACTIVATION_GRADIENT;
}

static bool op_is_loss(gp_opcode code)
{
    return code == GP_OP_SOFTMAX_XENT || code == GP_OP_WEIGHTED_XENT || code == GP_OP_DICE ||
           code == GP_OP_MSE || code == GP_OP_HUBER || code == GP_OP_CUSTOM_LOSS;
}

gp_kernel_image gp_plan_image(const gp_plan *plan, uint32_t value)
{
    gp_kernel_image image = { .data = NULL };

    if (value == GP_NO_VALUE)
        return image;
    const gp_shape *shape = &plan->graph->values[value].shape;

    image.channels = shape->rank > 0 ? (uint32_t)shape->dim[0] : 1;
    image.height = shape->rank > 1 ? (uint32_t)shape->dim[1] : 1;
    image.width = shape->rank > 2 ? (uint32_t)shape->dim[2] : 1;
    image.pixels = image.height * image.width;
    image.channel_stride = plan->packed ? 1 : image.pixels;
    image.pixel_stride = plan->packed ? image.channels : 1;
    if (plan->spread_input && value == plan->graph->input)
        image.pixel_stride = PLAN_INPUT_CHANNELS;
    image.sample = (plan->packed ? image.pixel_stride : image.channels) * image.pixels;
    image.narrow = plan->values[value].narrow;
    image.data = gp_plan_data(plan, value);
    return image;
}

void *gp_plan_data(const gp_plan *plan, uint32_t value)
{
    const plan_buffers *buffers = &plan->buffers;
    const gp_value *about;

    if (value == GP_NO_VALUE)
        return NULL;
    about = &plan->graph->values[value];
    switch (about->role) {
    case GP_VALUE_PARAMETER:
        return buffers->parameters + plan->graph->parameters[about->parameter].offset;
    case GP_VALUE_PARAMETER_GRADIENT:
        return buffers->gradients + plan->graph->parameters[about->parameter].offset;
    case GP_VALUE_TARGET:
        return buffers->targets;
    case GP_VALUE_SCORES:
        return buffers->scores;
    case GP_VALUE_SUMS:
        return buffers->sums;
    default:
        return plan->arena.at + plan->values[plan->values[value].root].offset;
    }
}

/* Return true if the value is stored in CHW order. */
static bool image_is_plain(const gp_plan *plan, const gp_kernel_image *image)
{
    return !plan->packed || image->pixels == 1 || image->channels == 1;
}

/* Return true if a reshape from x to y needs no copy: both are stored in CHW order, or have the
 * same shape and layout. The gradients of a sum are such reshapes. */
static bool value_is_same(const gp_plan *plan, uint32_t x, uint32_t y)
{
    const gp_kernel_image from = gp_plan_image(plan, x), to = gp_plan_image(plan, y);

    if (from.narrow != to.narrow)
        return false;
    return (image_is_plain(plan, &from) && image_is_plain(plan, &to)) ||
           (from.channels == to.channels && from.height == to.height && from.width == to.width &&
            from.pixel_stride == to.pixel_stride);
}

static void value_touch(gp_plan *plan, uint32_t value, uint32_t op)
{
    plan_value *at;

    if (value == GP_NO_VALUE || !value_is_placed(plan->graph->values[value].role))
        return;
    at = &plan->values[plan->values[value].root];
    if (at->first == UINT32_MAX)
        at->first = op;
    at->last = op;
}

static gp_status value_measure(gp_plan *plan, uint32_t value, gp_error *err)
{
    const gp_value *about = &plan->graph->values[value];
    plan_value *at = &plan->values[value];
    int64_t rows = about->role == GP_VALUE_CALL ? 1 : plan->options.micro_batch,
            each = gp_shape_count(&about->shape), count;

    if (plan->spread_input && value == plan->graph->input)
        each = each / about->shape.dim[0] * PLAN_INPUT_CHANNELS;
    count = each * rows;

    if (count > INT32_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "a value has %lld elements for %u samples, a GPU supports at most %d; use a smaller "
                       "micro-batch-size or more workers",
                       (long long)count, plan->options.micro_batch, INT32_MAX);
    at->bytes = ((size_t)count * (at->narrow ? 2 : gp_dtype_bytes(about->dtype)) + PLACE_ALIGNMENT - 1) /
                PLACE_ALIGNMENT * PLACE_ALIGNMENT;
    return GP_OK;
}

static int larger_first(const void *a, const void *b, void *context)
{
    const plan_value *values = context, *x = &values[*(const uint32_t *)a],
                     *y = &values[*(const uint32_t *)b];

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* Place a value and insert it into `placed`, the already placed values sorted by offset. Return the
 * offset. */
static size_t value_insert(const plan_value *values, uint32_t *placed, uint32_t count, uint32_t value)
{
    const plan_value *mine = &values[value];
    size_t offset = 0;
    uint32_t at = count;

    for (uint32_t i = 0; i < count; i++) {
        const plan_value *other = &values[placed[i]];

        if (other->last < mine->first || mine->last < other->first)
            continue;
        if (offset + mine->bytes <= other->offset)
            break;
        if (other->offset + other->bytes > offset)
            offset = other->offset + other->bytes;
    }
    while (at > 0 && values[placed[at - 1]].offset > offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = value;
    return offset;
}

gp_status gp_plan_place(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    uint32_t count = plan->graph->value_count, used = 0;
    uint32_t *order = gp_calloc(count + 1, sizeof(*order)), *placed = gp_calloc(count + 1, sizeof(*placed));
    gp_status status = GP_OK;

    plan->values = gp_calloc(count + 1, sizeof(*plan->values));
    if (plan->values == NULL || order == NULL || placed == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a table of %u values", count);
    if (status == GP_OK) {
        /* Choose each value's type. Losses read and write float32 in every precision. */
        for (uint32_t v = 0; v < plan->graph->value_count; v++) {
            gp_value_role role = plan->graph->values[v].role;

            plan->values[v].root = v;
            plan->values[v].first = UINT32_MAX;
            plan->values[v].narrow = plan->graph->values[v].dtype == GP_F32 &&
                                             (role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION ||
                                              role == GP_VALUE_ACTIVATION_GRADIENT)
                                         ? plan->narrow
                                         : GP_WIDE;
        }
        for (uint32_t i = 0; i < ops->count; i++) {
            if (!op_is_loss(plan->ops[i].code))
                continue;
            plan->values[plan->ops[i].in[0]].narrow = GP_WIDE;
            if (plan->ops[i].out[0] != GP_NO_VALUE)
                plan->values[plan->ops[i].out[0]].narrow = GP_WIDE;
        }
        for (uint32_t i = 0; i < ops->count; i++) {
            uint32_t x = plan->ops[i].in[0], y = plan->ops[i].out[0];

            if (plan->ops[i].code == GP_OP_RESHAPE && value_is_same(plan, x, y))
                plan->values[y].root = plan->values[x].root;
        }
    }
    if (status == GP_OK)
        value_touch(plan, plan->graph->input, 0);
    for (uint32_t i = 0; i < ops->count && status == GP_OK; i++)
        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++) {
            value_touch(plan, plan->ops[i].in[k], i);
            value_touch(plan, plan->ops[i].out[k], i);
        }
    for (uint32_t v = 0; v < count && status == GP_OK; v++)
        if (plan->values[v].first != UINT32_MAX && plan->values[v].root == v) {
            status = value_measure(plan, v, err);
            order[used++] = v;
        }
    if (status == GP_OK)
        qsort_r(order, used, sizeof(*order), larger_first, plan->values);
    for (uint32_t i = 0; i < used && status == GP_OK; i++) {
        plan_value *at = &plan->values[order[i]];

        at->offset = value_insert(plan->values, placed, i, order[i]);
        if (at->offset + at->bytes > plan->arena.bytes)
            plan->arena.bytes = at->offset + at->bytes;
    }
    gp_free(order);
    gp_free(placed);
    return status;
}
