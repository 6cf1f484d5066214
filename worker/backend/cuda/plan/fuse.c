/* Decides which ops are fused into one step.
 *
 * The plan has a private copy of the ops. If no other op reads the value between two ops, the first
 * op can include the second: it writes the second op's output, reads the second op's other input,
 * and the second op becomes empty.
 *
 *   forward   conv [ -> batch norm, in inference ] [ -> add ] [ -> relu ]
 *             fc [ -> relu ]     batch norm [ -> add ] [ -> relu ]
 *             batch norm -> relu -> max pool, in training: the backward pass recomputes the relu
 *             conv ( -> sums of the following batch norm ), in training, with 2-byte types
 *   backward  relu into batch norm;     conv, fc, pool, or a sum of gradients into relu
 *             pool ( -> bias gradient of the convolution before it )
 *
 * in[PLAN_WITH] is the second operand of the addition, or the relu output. */
#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/plan.h"

/* A value's writer and readers. */
typedef struct link {
    uint32_t writer, reader, readers; /* ops; `reader` is the last of `readers` */
} link;

typedef struct fusing {
    gp_plan *plan;
    uint32_t count, forward_count;
    link *links;
} fusing;

enum { NONE = UINT32_MAX };

static bool reads_with(const gp_op *op)
{
    return op->code != GP_OP_CONCAT && op->in[PLAN_WITH] == GP_NO_VALUE;
}

/* Return the only op that reads a value if it has this code. */
static uint32_t next_of(const fusing *f, uint32_t value, gp_opcode code)
{
    const link *at = &f->links[value];

    return at->readers == 1 && f->plan->ops[at->reader].code == code ? at->reader : NONE;
}

/* Mark op `index` as included in another op. */
static void take(fusing *f, uint32_t index)
{
    gp_op *op = &f->plan->ops[index];

    f->plan->follows[index].taken = true;
    for (int k = 0; k < GP_OP_VALUES_MAX; k++)
        op->in[k] = op->out[k] = GP_NO_VALUE;
}

static void take_norm(fusing *f, uint32_t index)
{
    gp_op *op = &f->plan->ops[index];
    uint32_t norm = next_of(f, op->out[0], GP_OP_BATCHNORM_INFER);

    if (norm == NONE)
        return;
    f->plan->follows[index].norm = true;
    f->plan->follows[index].epsilon = f->plan->ops[norm].factor[0];
    for (int k = 0; k < 4; k++)
        op->in[PLAN_NORM + k] = f->plan->ops[norm].in[1 + k];
    op->out[0] = f->plan->ops[norm].out[0];
    take(f, norm);
}

/* Fuse an addition. The other operand must exist when the fused op runs. */
static void take_sum(fusing *f, uint32_t index)
{
    gp_op *op = &f->plan->ops[index];
    uint32_t sum = next_of(f, op->out[0], GP_OP_ADD), other;

    if (sum == NONE || sum >= f->forward_count || !reads_with(op))
        return;
    other = f->plan->ops[sum].in[0] == op->out[0] ? f->plan->ops[sum].in[1] : f->plan->ops[sum].in[0];
    if (f->links[other].writer != NONE && f->links[other].writer >= index)
        return;
    op->in[PLAN_WITH] = other;
    op->out[0] = f->plan->ops[sum].out[0];
    take(f, sum);
}

static void take_relu(fusing *f, uint32_t index)
{
    gp_op *op = &f->plan->ops[index];
    uint32_t relu = next_of(f, op->out[0], GP_OP_RELU);

    if (relu == NONE)
        return;
    f->plan->follows[index].relu = true;
    op->out[0] = f->plan->ops[relu].out[0];
    take(f, relu);
}

/* Fuse relu and max pool after batch norm. This relu's output, the largest activation in networks
 * with a stem, is then never stored: the pool has the maxima and their positions, and the batch
 * norm backward pass has the relu's input. */
static void take_pool(fusing *f, uint32_t index)
{
    gp_op *op = &f->plan->ops[index];
    uint32_t pool = NONE, relu = NONE, norm;

    if (!f->plan->follows[index].relu || op->in[PLAN_WITH] != GP_NO_VALUE ||
        f->links[op->out[0]].readers != 2)
        return;
    for (uint32_t i = 0; i < f->count; i++) {
        const gp_op *other = &f->plan->ops[i];

        if (other->in[0] == op->out[0] && other->code == GP_OP_POOL && other->pool == GP_POOL_MAX &&
            other->out[1] != GP_NO_VALUE)
            pool = i;
        if (other->in[0] == op->out[0] && other->code == GP_OP_RELU_BACKWARD)
            relu = i;
    }
    if (pool == NONE || relu == NONE)
        return;
    norm = next_of(f, f->plan->ops[relu].out[0], GP_OP_BATCHNORM_BACKWARD);
    if (norm == NONE || f->plan->ops[norm].in[1] != f->plan->ops[relu].out[0] ||
        f->plan->ops[norm].in[3] != op->out[1])
        return;
    f->plan->follows[index].pooled = true;
    op->out[0] = f->plan->ops[pool].out[0];
    op->out[PLAN_INDEX] = f->plan->ops[pool].out[1];
    op->window = f->plan->ops[pool].window;
    f->plan->follows[norm].relu = true;
    f->plan->ops[norm].in[1] = f->plan->ops[relu].in[1];
    f->plan->ops[norm].in[PLAN_NORM + 1] = op->in[2];
    take(f, pool);
    take(f, relu);
}

/* Compute the moments of a convolution's output together with the convolution, where cuDNN may have
 * an engine for that. The output is still stored. */
static void see_moments(fusing *f, uint32_t index)
{
    const gp_op *op = &f->plan->ops[index];

    if (f->plan->options.phase != GP_PHASE_TRAIN || !f->plan->packed || f->plan->narrow == GP_WIDE ||
        op->in[2] != GP_NO_VALUE || f->plan->graph->values[op->out[0]].shape.dim[0] % 8 != 0)
        return;
    for (uint32_t i = index + 1; i < f->forward_count; i++)
        if (f->plan->ops[i].code == GP_OP_BATCHNORM && f->plan->ops[i].in[0] == op->out[0])
            f->plan->follows[index].moments = i;
}

static void fuse_forward(fusing *f, uint32_t index)
{
    const gp_opcode code = f->plan->ops[index].code;
    const bool conv = code == GP_OP_CONV2D, norm = code == GP_OP_BATCHNORM || code == GP_OP_BATCHNORM_INFER;

    if (f->plan->follows[index].taken)
        return;
    if (conv)
        take_norm(f, index);
    if (conv || norm)
        take_sum(f, index);
    if (conv || norm || code == GP_OP_FC)
        take_relu(f, index);
    if (norm)
        take_pool(f, index);
    if (conv)
        see_moments(f, index);
}

/* Let the backward pass of a pool sum the bias gradient of the convolution before the pool: the sum
 * of the values that the pool writes. The convolution decides at lowering whether it does. */
static void see_bias(fusing *f, uint32_t index)
{
    const gp_op *op = &f->plan->ops[index];

    for (uint32_t i = index + 1; op->code == GP_OP_POOL_BACKWARD && i < f->count; i++)
        if (f->plan->ops[i].code == GP_OP_CONV2D_BACKWARD_WEIGHTS && f->plan->ops[i].in[1] == op->out[0])
            f->plan->follows[index].bias_of = i;
}

/* Fuse a relu's backward pass with the batch norm before it, otherwise with the op that computes
 * the gradient. */
static void fuse_back(fusing *f, uint32_t index)
{
    const gp_op relu = f->plan->ops[index];
    uint32_t norm, maker;
    gp_op *other;

    if (relu.code != GP_OP_RELU_BACKWARD || f->plan->follows[index].taken)
        return;
    norm = next_of(f, relu.out[0], GP_OP_BATCHNORM_BACKWARD);
    if (norm != NONE && f->plan->ops[norm].in[1] == relu.out[0] && reads_with(&f->plan->ops[norm])) {
        f->plan->ops[norm].in[1] = relu.in[1];
        f->plan->ops[norm].in[PLAN_WITH] = relu.in[0];
        f->plan->follows[norm].masked = true;
        take(f, index);
        return;
    }
    maker = f->links[relu.in[1]].writer;
    if (maker == NONE || maker < f->forward_count || f->links[relu.in[1]].readers != 1)
        return;
    other = &f->plan->ops[maker];
    if ((other->code != GP_OP_CONV2D_BACKWARD_DATA && other->code != GP_OP_FC_BACKWARD_DATA &&
         other->code != GP_OP_POOL_BACKWARD && other->code != GP_OP_ADD) ||
        other->out[0] != relu.in[1] || !reads_with(other))
        return;
    other->out[0] = relu.out[0];
    other->in[PLAN_WITH] = relu.in[0];
    f->plan->follows[maker].masked = true;
    take(f, index);
    for (uint32_t i = 0; i < f->forward_count && other->code == GP_OP_FC_BACKWARD_DATA; i++)
        if (f->plan->ops[i].out[0] == relu.in[0])
            f->plan->follows[i].mask_wanted = true;
}

/* Return true if the input should be padded to a channel count divisible by 8, as tensor cores
 * need. It has three channels or one, and only convolutions can skip the padding. */
static bool input_is_spread(const gp_plan *plan)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    const gp_shape *shape = &plan->graph->values[plan->graph->input].shape;

    if (!plan->packed || plan->narrow == GP_WIDE || shape->rank != 3 || shape->dim[0] >= PLAN_INPUT_CHANNELS)
        return false;
    for (uint32_t i = 0; i < ops->count; i++)
        for (int k = 0; k < GP_OP_VALUES_MAX; k++)
            if (plan->ops[i].in[k] == plan->graph->input &&
                (k != 0 || ops->op[i].window.groups != 1 ||
                 (ops->op[i].code != GP_OP_CONV2D && ops->op[i].code != GP_OP_CONV2D_BACKWARD_WEIGHTS)))
                return false;
    return true;
}

gp_status gp_plan_fuse(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    fusing f = { .plan = plan, .count = ops->count, .forward_count = ops->forward_count };

    plan->ops = gp_calloc(ops->count + 1, sizeof(*plan->ops));
    plan->follows = gp_calloc(ops->count + 1, sizeof(*plan->follows));
    plan->copies = gp_calloc(ops->count + 1, sizeof(*plan->copies));
    f.links = gp_calloc(plan->graph->value_count + 1, sizeof(*f.links));
    if (plan->ops == NULL || plan->follows == NULL || plan->copies == NULL || f.links == NULL) {
        gp_free(f.links);
        return gp_fail(err, GP_ENOMEM, "no memory for a table of %u ops", ops->count);
    }
    for (uint32_t i = 0; i < ops->count; i++)
        plan->ops[i] = ops->op[i];
    for (uint32_t v = 0; v < f.plan->graph->value_count; v++)
        f.links[v] = (link){ .writer = NONE, .reader = NONE };
    for (uint32_t i = 0; i < f.count; i++)
        for (int k = 0; k < GP_OP_VALUES_MAX; k++) {
            const gp_op *op = &f.plan->ops[i];

            if (op->in[k] != GP_NO_VALUE) {
                f.links[op->in[k]].reader = i;
                f.links[op->in[k]].readers++;
            }
            if (op->out[k] != GP_NO_VALUE)
                f.links[op->out[k]].writer = i;
        }
    for (uint32_t i = 0; i < f.forward_count && !plan->backend->apart; i++)
        fuse_forward(&f, i);
    for (uint32_t i = f.forward_count; i < f.count && !plan->backend->apart; i++)
        fuse_back(&f, i);
    for (uint32_t i = f.forward_count; i < f.count && !plan->backend->apart; i++)
        see_bias(&f, i);
    plan->spread_input = input_is_spread(plan);
    gp_free(f.links);
    return GP_OK;
}
