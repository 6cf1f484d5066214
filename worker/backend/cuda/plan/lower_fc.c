/* Lowers fully connected layers: products by cuBLASLt with fused operations, or kernels.
 *
 *   y = x W' + b, relu     stores a mask of y > 0 if the backward pass needs it
 *   dx = dy W              0 where the previous layer's mask is not set
 *   dW = dy' x             and the sums of dy, which are the bias gradient */
#include <stdio.h>

#include "worker/backend/cuda/plan/lower_inside.h"

/* One layer pass: x [rows][F] and y [rows][O] as images, and the weights. */
typedef struct fc_pass {
    gp_conv_pass pass;
    const gp_kernel_image *x, *y;
    float *weights, *bias; /* for WEIGHTS: the gradients of both */
} fc_pass;

static gp_weights_shape weights_shape(const fc_pass *p)
{
    return (gp_weights_shape){
        .outputs = p->y->sample, .inputs = p->x->channels, .stored = p->x->channels, .pixels = p->x->pixels
    };
}

static gp_product_request request_of(const lowering *l, const fc_pass *p)
{
    uint32_t rows = l->plan->options.micro_batch, inputs = p->x->sample, outputs = p->y->sample;
    gp_product_request r = { .tf32 = l->plan->tf32 };

    switch (p->pass) {
    case GP_CONV_FORWARD:
        r.n = rows, r.m = outputs, r.k = inputs;
        r.transpose_b = true;
        r.narrow_a = r.narrow_b = p->x->narrow;
        r.narrow_out = p->y->narrow;
        break;
    case GP_CONV_DATA:
        r.n = rows, r.m = inputs, r.k = outputs;
        r.narrow_a = r.narrow_b = p->y->narrow;
        r.narrow_out = p->x->narrow;
        break;
    case GP_CONV_WEIGHTS:
        r.n = outputs, r.m = inputs, r.k = rows;
        r.transpose_a = true;
        r.narrow_a = p->y->narrow;
        r.narrow_b = p->x->narrow;
        break;
    }
    return r;
}

/* Ask cuBLASLt. Return the plan. NULL: no algorithm.
 *   r  on entry the product alone, on return the granted request */
static gp_device_work *product_ask(lowering *l, gp_product_request *r, const gp_product_request *whole,
                                   size_t *workspace)
{
    bool follows = !l->plan->backend->apart && (whole->bias || whole->relu || whole->mask_in || whole->sums);
    const gp_product_request *q = follows ? whole : r;
    char what[GP_CHOICE_WHAT_BYTES];
    gp_device_work *work;

    snprintf(what, sizeof(what), "product %ux%ux%u%s%s %s %s%s%s%s%s%s", q->n, q->m, q->k,
             q->transpose_a ? " a'" : "", q->transpose_b ? " b'" : "", gp_lower_number(q->narrow_a, q->tf32),
             q->narrow_out ? "narrow" : "wide", q->bias ? " bias" : "", q->relu ? " relu" : "",
             q->mask_out ? " bits" : "", q->mask_in ? " mask" : "", q->sums ? " sums" : "");
    work =
        gp_lower_ask(l, &(plan_question){ .kind = STEP_PRODUCT, .whole = follows ? whole : NULL, .alone = r },
                     what, workspace);
    if (follows && l->site->whole)
        *r = *whole;
    return work;
}

/* Return true if the gradients of weights and bias can be one array: in the blob, where the bias
 * follows the weights in the same order, and in the memory of the library, where the bias must be
 * aligned. */
static bool gradients_are_one(const fc_pass *p, const gp_weights_shape *shape)
{
    const uint64_t count = shape->outputs * shape->inputs * shape->pixels;
    const bool same_order = p->x->channel_stride != 1 || shape->inputs == 1 || shape->pixels == 1;

    return same_order && p->bias == p->weights + count && count * sizeof(float) % GP_LIBRARY_ALIGNMENT == 0 &&
           count + shape->outputs <= INT32_MAX;
}

/* Append library steps; return false if the library has no plan, as does library_values(). */
static bool library_weights(lowering *l, const fc_pass *p)
{
    const gp_weights_shape shape = weights_shape(p);
    gp_product_request r = request_of(l, p), whole = r;
    gp_device_operands at = { .first = p->y->data, .second = p->x->data };
    gp_device_work *work;
    size_t workspace = 0;
    void *sums = NULL;

    if (r.narrow_a != r.narrow_b)
        return false;
    whole.sums = p->bias != NULL;
    work = product_ask(l, &r, &whole, &workspace);
    if (work == NULL)
        return false;
    if (r.sums && gradients_are_one(p, &shape)) {
        const uint32_t count = p->y->sample * (p->x->sample + 1);

        at.out = gp_lower_gradient(l, count * sizeof(float));
        at.vector = (float *)at.out + (size_t)p->y->sample * p->x->sample;
        gp_lower_work(l, STEP_PRODUCT, work, workspace, &at);
        gp_lower_weights_unpack(l, p->weights, &(gp_weights_shape){ 1, count, count, 1 }, p->x, at.out,
                                GP_WIDE);
        return true;
    }
    at.out = gp_lower_gradient(l, (uint64_t)p->y->sample * p->x->sample * sizeof(float));
    if (r.sums)
        at.vector = sums = gp_lower_gradient(l, (uint64_t)p->y->sample * sizeof(float));
    gp_lower_work(l, STEP_PRODUCT, work, workspace, &at);
    gp_lower_weights_unpack(l, p->weights, &shape, p->x, at.out, GP_WIDE);
    if (r.sums)
        gp_lower_weights_unpack(l, p->bias, &(gp_weights_shape){ p->y->sample, 1, 1, 1 }, p->x, sums,
                                GP_WIDE);
    else
        gp_lower_bias_gradient(l, p->y, p->bias);
    return true;
}

static bool library_values(lowering *l, const fc_pass *p)
{
    const bool forward = p->pass == GP_CONV_FORWARD;
    const gp_kernel_image *out = forward ? p->y : p->x;
    const gp_weights_shape shape = weights_shape(p);
    gp_product_request r = request_of(l, p), whole = r;
    gp_device_operands at = { .out = out->data };
    gp_device_work *work;
    gp_kernel_image like = *p->x;
    size_t workspace = 0;
    void *vector = NULL;

    whole.bias = forward && p->bias != NULL;
    whole.relu = forward && l->follow->relu;
    whole.mask_out = whole.relu && l->follow->mask_wanted;
    if (l->follow->masked)
        at.mask = l->plan->values[l->op->in[PLAN_WITH]].product_mask;
    whole.mask_in = at.mask != NULL;
    work = product_ask(l, &r, &whole, &workspace);
    if (work == NULL)
        return false;
    like.narrow = r.narrow_a;
    at.first = forward ? p->x->data : p->y->data;
    at.second = gp_lower_weights_pack(l, p->weights, &shape, &like);
    if (forward)
        vector = gp_lower_vector(l, p->bias, out->sample, r.bias ? r.narrow_out : GP_WIDE, r.bias);
    at.vector = r.bias ? vector : NULL;
    if (r.mask_out) /* reserve the mask of y > 0 for later ops */
        at.mask = l->plan->values[l->op->out[0]].product_mask =
            gp_lower_persistent(l, gp_product_mask_row(r.m) * r.n);
    gp_lower_work(l, STEP_PRODUCT, work, workspace, &at);
    if (forward && !r.bias && !r.relu)
        gp_lower_finish(l, out, vector);
    else if (!forward && !r.mask_in)
        gp_lower_mask(l, out);
    return true;
}

/* Convert a loss's float32 gradient to the layer type, if they differ. */
static void slope_narrow(lowering *l, gp_kernel_image *dy, const gp_kernel_image *like)
{
    gp_kernel_args args = l->args;

    if (dy->narrow || !like->narrow || l->plan->backend->own)
        return;
    args.x[0] = *dy;
    dy->narrow = like->narrow;
    dy->data = gp_lower_scratch(l, gp_lower_elements(l, dy) * 2);
    args.y[0] = *dy;
    gp_lower_kernel(l, GP_KERNEL_reshape, &args, gp_lower_elements(l, dy));
}

void gp_lower_fc(lowering *l)
{
    const gp_op *op = l->op;
    const gp_kernel_image *in = &l->args.x[0], *out = &l->args.y[0];
    const bool library = !l->plan->backend->own;
    float *weights = gp_plan_data(l->plan, op->in[1]), *bias = gp_plan_data(l->plan, op->in[2]);
    gp_kernel_args args = l->args;

    args.f[0] = weights;
    args.f[1] = NULL;
    switch (op->code) {
    case GP_OP_FC:
        args.f[1] = bias;
        if (!library || !library_values(l, &(fc_pass){ GP_CONV_FORWARD, in, out, weights, bias }))
            gp_lower_kernel(l, GP_KERNEL_fc, &args, gp_lower_elements(l, out));
        return;
    case GP_OP_FC_BACKWARD_DATA:
        slope_narrow(l, &args.x[0], out);
        if (!library || !library_values(l, &(fc_pass){ GP_CONV_DATA, out, &args.x[0], weights, NULL }))
            gp_lower_kernel(l, GP_KERNEL_fc_data, &args, gp_lower_elements(l, out));
        return;
    default:
        break;
    }
    weights = gp_plan_data(l->plan, op->out[0]);
    bias = gp_plan_data(l->plan, op->out[1]);
    slope_narrow(l, &args.x[1], in);
    if (weights != NULL && library &&
        library_weights(l, &(fc_pass){ GP_CONV_WEIGHTS, in, &args.x[1], weights, bias }))
        return;
    gp_lower_parts(l, GP_KERNEL_fc_weights, &args, weights, (uint64_t)args.x[1].sample * args.x[0].sample,
                   l->plan->options.micro_batch);
    gp_lower_bias_gradient(l, &l->args.x[1], bias);
}
