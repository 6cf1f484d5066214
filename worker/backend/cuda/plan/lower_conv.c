/* Lowers convolutions, including transposed ones.
 *
 * If cuDNN has a plan for the convolution and all operations after it, it executes everything.
 * Otherwise it executes the convolution and a kernel executes the rest. A kernel of grids_conv.h
 * executes convolutions with few channels. Without any plan, a kernel executes everything. */
#include <stdio.h>
#include <string.h>

#include "worker/backend/cuda/plan/lower_inside.h"

/* One convolution pass from x to y, independent of the op that it belongs to. */
typedef struct conv_pass {
    gp_conv_pass pass;
    const gp_kernel_image *x, *y;
    float *weights; /* for WEIGHTS: the gradient */
    float *bias;
} conv_pass;

static gp_weights_shape weights_shape(const lowering *l, const conv_pass *p)
{
    const gp_window *window = &l->op->window;

    return (gp_weights_shape){ .outputs = p->y->channels,
                               .inputs = p->x->channels / (uint32_t)window->groups,
                               .stored = gp_conv_channels(p->x) / (uint32_t)window->groups,
                               .pixels = (uint32_t)(window->kernel[0] * window->kernel[1]) };
}

static gp_conv_request request_of(const lowering *l, const conv_pass *p)
{
    const gp_window *window = &l->op->window;
    gp_conv_request request = { .pass = p->pass,
                                .x = *p->x,
                                .y = *p->y,
                                .rows = l->plan->options.micro_batch,
                                .groups = window->groups,
                                .tf32 = l->plan->tf32 };

    memcpy(request.kernel, window->kernel, sizeof(request.kernel));
    memcpy(request.stride, window->stride, sizeof(request.stride));
    memcpy(request.dilation, window->dilation, sizeof(request.dilation));
    memcpy(request.padding, window->padding, sizeof(request.padding));
    return request;
}

/* Set the arguments and the number of threads of a direct_conv kernel. Return false if none
 * supports the pass. */
static bool direct_args(const lowering *l, const conv_pass *p, gp_kernel_args *args, uint64_t *threads)
{
    const bool ours = l->op->code == GP_OP_CONV2D || l->op->code == GP_OP_CONV2D_BACKWARD_DATA ||
                      l->op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS;

    return ours && !l->plan->backend->libraries && gp_lower_direct(l, p->pass, p->x, p->y, args, threads);
}

static bool is_direct(const lowering *l, const conv_pass *p)
{
    gp_kernel_args args = l->args;
    uint64_t threads;

    return direct_args(l, p, &args, &threads);
}

/* Ask cuDNN for the whole request or for the convolution alone. Return the plan. NULL: none. */
static gp_device_work *conv_ask(lowering *l, const conv_pass *p, size_t *workspace, bool *whole)
{
    const gp_kernel_image *with = &l->args.x[PLAN_WITH];
    const gp_conv_request alone = request_of(l, p);
    gp_conv_request request = alone;
    bool ours = l->op->code == GP_OP_CONV2D || l->op->code == GP_OP_CONV2D_BACKWARD_DATA;
    char what[GP_CHOICE_WHAT_BYTES];
    gp_device_work *work;

    if (ours && !l->plan->backend->apart && (with->data == NULL || with->narrow == p->x->narrow)) {
        request.bias = p->pass == GP_CONV_FORWARD && (p->bias != NULL || l->follow->norm);
        request.added = p->pass == GP_CONV_FORWARD && with->data != NULL;
        request.relu = l->follow->relu;
        request.masked = l->follow->masked;
        request.sums = p->pass == GP_CONV_FORWARD && l->follow->moments != 0;
    }
    *whole = request.bias || request.added || request.relu || request.masked || request.sums;

    /* Describe everything that determines an engine's speed and support. */
    static const char *const passes[] = {
        [GP_CONV_FORWARD] = "forward", [GP_CONV_DATA] = "data", [GP_CONV_WEIGHTS] = "weights"
    };

    snprintf(
        what, GP_CHOICE_WHAT_BYTES,
        "conv %s %u of %ux%ux%u, %ux%ux%u kernel %dx%d /%dx%d *%dx%d +%d,%d,%d,%d groups %d %s %s%s%s%s%s%s",
        passes[request.pass], request.rows, gp_conv_channels(&request.x), request.x.height, request.x.width,
        request.y.channels, request.y.height, request.y.width, request.kernel[0], request.kernel[1],
        request.stride[0], request.stride[1], request.dilation[0], request.dilation[1], request.padding[0],
        request.padding[1], request.padding[2], request.padding[3], request.groups,
        gp_lower_number(request.x.narrow, request.tf32), request.x.channel_stride == 1 ? "packed" : "dense",
        request.bias ? " bias" : "", request.added ? " sum" : "", request.relu ? " relu" : "",
        request.masked ? " mask" : "", request.sums ? " moments" : "");
    /* Moments in cuDNN engines are used only if a measurement showed that they are faster. */
    work = gp_lower_ask(l,
                        &(plan_question){ .kind = STEP_CONV,
                                          .whole = *whole ? &request : NULL,
                                          .alone = &alone,
                                          .alone_by_rule = request.sums && !l->plan->backend->moments,
                                          .direct = is_direct(l, p) },
                        what, workspace);
    *whole = *whole && l->site->whole;
    return work;
}

/* Append library steps. Return false if the library has no plan. */
static bool library_conv(lowering *l, const conv_pass *p)
{
    const gp_weights_shape shape = weights_shape(l, p);
    const bool forward = p->pass == GP_CONV_FORWARD;
    const gp_kernel_image *out = forward ? p->y : p->x;
    gp_device_operands at = { 0 };
    gp_device_work *work;
    size_t workspace = 0;
    void *packed, *vector;
    bool whole;

    if (l->plan->backend->own || p->x->narrow != p->y->narrow)
        return false;
    work = conv_ask(l, p, &workspace, &whole);
    if (work == NULL)
        return false;
    if (p->pass == GP_CONV_WEIGHTS) {
        at.first = p->x->data;
        at.second = p->y->data;
        at.out = gp_lower_gradient(l, shape.outputs * shape.stored * shape.pixels * (p->x->narrow ? 2 : 4));
        gp_lower_work(l, STEP_CONV, work, workspace, &at);
        gp_lower_weights_unpack(l, p->weights, &shape, p->x, at.out, p->x->narrow);
        return true;
    }
    packed = gp_lower_weights_pack(l, p->weights, &shape, p->x);
    vector = gp_lower_vector(l, p->bias, out->channels, whole ? out->narrow : GP_WIDE, whole);
    at = (gp_device_operands){ .first = forward ? p->x->data : packed,
                               .second = forward ? packed : p->y->data,
                               .out = out->data };
    if (whole) {
        at.vector = vector;
        at.image = l->args.x[PLAN_WITH].data;
        if (l->follow->moments != 0)
            at.sums = l->known = gp_lower_persistent(l, 2 * (size_t)out->channels * sizeof(float));
    }
    gp_lower_work(l, STEP_CONV, work, workspace, &at);
    if (!whole && l->follow->masked)
        gp_lower_mask(l, out);
    else if (!whole)
        gp_lower_finish(l, out, vector);
    return true;
}

static void conv_values(lowering *l, const conv_pass *p)
{
    const gp_weights_shape shape = weights_shape(l, p);
    bool forward = p->pass == GP_CONV_FORWARD;
    const gp_kernel_image *from = forward ? p->x : p->y, *to = forward ? p->y : p->x;
    gp_kernel_args args = l->args;
    gp_kernel_image plain = { .channel_stride = 2 }; /* blob order and type */
    uint64_t threads;

    if (library_conv(l, p))
        return;
    args.f[0] = p->weights;
    if (l->follow->norm)
        args.f[0] = gp_lower_weights_pack(
            l, p->weights, &(gp_weights_shape){ shape.outputs, shape.inputs, shape.inputs, shape.pixels },
            &plain);
    args.x[0] = *from;
    args.y[0] = *to;
    args.f[1] = gp_lower_vector(l, p->bias, to->channels, GP_WIDE, false);
    if (direct_args(l, p, &args, &threads))
        gp_lower_kernel(l, forward ? GP_KERNEL_direct_conv : GP_KERNEL_direct_conv_data, &args, threads);
    else
        gp_lower_kernel(l, forward ? GP_KERNEL_conv : GP_KERNEL_conv_data, &args, gp_lower_elements(l, to));
}

/* Append the kernels for a weight gradient. Set *bias to NULL if they include the gradient of the
 * bias, which must follow the weights in the blob. */
static void conv_weights(lowering *l, const gp_kernel_image *x, const gp_kernel_image *y, float *gradient,
                         float **bias)
{
    const conv_pass p = { .pass = GP_CONV_WEIGHTS, .x = x, .y = y, .weights = gradient };
    const gp_weights_shape shape = weights_shape(l, &p);
    const uint64_t count = shape.outputs * shape.inputs * shape.pixels;
    gp_kernel_args args = l->args;
    uint64_t threads;

    if (gradient == NULL || library_conv(l, &p))
        return;
    args.x[0] = *x;
    args.x[1] = *y;
    if (!direct_args(l, &p, &args, &threads)) {
        gp_lower_parts(l, GP_KERNEL_conv_weights, &args, gradient, count,
                       (uint64_t)l->plan->options.micro_batch * y->height);
        return;
    }
    args.count = count;
    if (*bias == gradient + count) {
        args.count += shape.outputs;
        *bias = NULL;
    }
    args.f[0] = gradient;
    args.f[1] = gp_lower_gradient(l, args.chunks * args.count * sizeof(float));
    gp_lower_kernel(l, GP_KERNEL_direct_conv_weights, &args, threads);
    gp_lower_parts_add(l, &args);
}

void gp_lower_conv(lowering *l)
{
    const gp_op *op = l->op;
    const gp_kernel_image *in = &l->args.x[0], *out = &l->args.y[0];
    const bool forward = op->code == GP_OP_CONV2D || op->code == GP_OP_TRANSCONV2D_BACKWARD_DATA,
               biased = op->code == GP_OP_CONV2D || op->code == GP_OP_TRANSCONV2D,
               turned = op->code == GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS;

    if (op->code == GP_OP_CONV2D_BACKWARD_WEIGHTS || turned) {
        float *bias = l->follow->bias_summed ? NULL : gp_plan_data(l->plan, op->out[1]);

        /* transposed: dy is the convolution's x */
        conv_weights(l, &l->args.x[turned], &l->args.x[!turned], gp_plan_data(l->plan, op->out[0]), &bias);
        gp_lower_bias_gradient(l, &l->args.x[1], bias);
        return;
    }
    conv_values(l, &(conv_pass){ .pass = forward ? GP_CONV_FORWARD : GP_CONV_DATA,
                                 .x = forward ? in : out,
                                 .y = forward ? out : in,
                                 .weights = gp_plan_data(l->plan, op->in[1]),
                                 .bias = biased ? gp_plan_data(l->plan, op->in[2]) : NULL });
    if (op->code == GP_OP_CONV2D && l->follow->moments != 0)
        gp_lower_batchnorm_sums(l, l->follow->moments);
}
