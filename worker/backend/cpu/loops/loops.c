/* Element-wise loops, the table that maps each opcode to a loop, and the segment that runs one
 * loop. */
#include "worker/backend/cpu/loops/loops_inside.h"

#include <assert.h>
#include <math.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

/* ---- element-wise loops ---- */

static size_t element_count(const gp_loop_call *call)
{
    return (size_t)gp_shape_count(&call->out[0].shape) * call->rows;
}

/* Clamp x to [low, high]. NaN stays NaN, so that the loss reports it. */
LOOP_INLINE float clamp(float x, float low, float high)
{
    const float raised = x <= low ? low : x;

    return raised >= high ? high : raised;
}

/* Compute e^x for x <= 0. The relative error is below 2e-7; x below -87 gives e^-87; NaN gives NaN.
 *
 * The compiler vectorizes these operations, unlike calls of expf(), erff() and tanhf(). The
 * function splits x into n ln 2 + r with |r| <= ln 2 / 2, and computes e^x as 2^n times a Taylor
 * series of e^r up to r^7 / 7!. */
LOOP_INLINE float exp_below_zero(float x)
{
    /* 1.5 * 2^23: adding this number rounds to an integer, in the low bits of the mantissa */
    const float rounds = 12582912.0f;
    const float low = x < -87.0f ? -87.0f : x, sum = low * 1.44269504f + rounds, n = sum - rounds;
    const float r = (low - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    float series = 1.0f / 720.0f + r / 5040.0f, power;
    uint32_t bits;

    series = 1.0f / 6.0f + r * (1.0f / 24.0f + r * (1.0f / 120.0f + r * series));
    series = 1.0f + r * (1.0f + r * (0.5f + r * series));
    memcpy(&bits, &sum, sizeof(bits));
    bits = (bits << 23) + (127u << 23); /* 2^n */
    memcpy(&power, &bits, sizeof(power));
    return series * power;
}

/* Return the standard normal density at x. */
LOOP_INLINE float normal_density(float x)
{
    return 0.39894228f * exp_below_zero(-0.5f * x * x);
}

/* Return the probability that a standard normal variable is below x, with an error of at most 1e-7
 * (Abramowitz and Stegun, 1964, formula 26.2.17).
 *   density  normal_density(x) */
LOOP_INLINE float normal_below(float x, float density)
{
    const float t = 1.0f / (1.0f + 0.2316419f * fabsf(x));
    const float tail =
        density * t *
        (0.319381530f + t * (-0.356563782f + t * (1.781477937f + t * (-1.821255978f + t * 1.330274429f))));

    return x > 0.0f ? 1.0f - tail : tail;
}

/* Return tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), the approximation of erf(x / sqrt(2)) in GELU. */
LOOP_INLINE float gelu_tanh(float x)
{
    const float u = 0.79788456f * (x + 0.044715f * x * x * x), e = exp_below_zero(-2.0f * fabsf(u));
    const float t = (1.0f - e) / (1.0f + e);

    return u > 0.0f ? t : -t;
}

/* Apply an activation function to the slice of one thread. */
LOOP_CLONES static void activation_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(element_count(call), 16, thread, threads);
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    const float low = (float)call->op->factor[0], high = (float)call->op->factor[1];

    switch (call->op->function) {
    case GP_ACTIVATION_LEAKY_RELU:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = x[i] > 0.0f ? x[i] : low * x[i];
        break;
    case GP_ACTIVATION_CLIP:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = clamp(x[i], low, high);
        break;
    case GP_ACTIVATION_SIGMOID:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = 1.0f / (1.0f + expf(-x[i]));
        break;
    case GP_ACTIVATION_TANH:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = tanhf(x[i]);
        break;
    case GP_ACTIVATION_SCALE:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = low * x[i];
        break;
    case GP_ACTIVATION_HARD_SIGMOID:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = clamp(low * x[i] + high, 0.0f, 1.0f);
        break;
    case GP_ACTIVATION_HARD_SWISH:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = x[i] * clamp(x[i] * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f);
        break;
    case GP_ACTIVATION_GELU:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = x[i] * normal_below(x[i], normal_density(x[i]));
        break;
    case GP_ACTIVATION_GELU_TANH:
        for (size_t i = range.first; i < range.end; i++)
            y[i] = 0.5f * x[i] * (1.0f + gelu_tanh(x[i]));
        break;
    }
}

/* Compute the input gradient of an activation function for the slice of one thread. in[0] is the
 * output of the activation, or for the last three functions the input. */
LOOP_CLONES static void activation_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(element_count(call), 16, thread, threads);
    const float *y = call->in[0].data, *dy = call->in[1].data;
    float *dx = call->out[0].data;
    const float low = (float)call->op->factor[0], high = (float)call->op->factor[1];

    switch (call->op->function) {
    case GP_ACTIVATION_LEAKY_RELU:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = y[i] > 0.0f ? dy[i] : low * dy[i];
        break;
    case GP_ACTIVATION_CLIP:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = (y[i] > low) & (y[i] < high) ? dy[i] : 0.0f;
        break;
    case GP_ACTIVATION_SIGMOID:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = dy[i] * y[i] * (1.0f - y[i]);
        break;
    case GP_ACTIVATION_TANH:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = dy[i] * (1.0f - y[i] * y[i]);
        break;
    case GP_ACTIVATION_SCALE:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = low * dy[i];
        break;
    case GP_ACTIVATION_HARD_SIGMOID:
        for (size_t i = range.first; i < range.end; i++)
            dx[i] = (y[i] > 0.0f) & (y[i] < 1.0f) ? low * dy[i] : 0.0f;
        break;
    case GP_ACTIVATION_HARD_SWISH: /* here and below, `y` is the input of the activation */
        for (size_t i = range.first; i < range.end; i++) {
            float slope = y[i] > 3.0f ? 1.0f : y[i] * (1.0f / 3.0f) + 0.5f;

            dx[i] = y[i] < -3.0f ? 0.0f : dy[i] * slope;
        }
        break;
    case GP_ACTIVATION_GELU:
        for (size_t i = range.first; i < range.end; i++) {
            float density = normal_density(y[i]);

            dx[i] = dy[i] * (normal_below(y[i], density) + y[i] * density);
        }
        break;
    case GP_ACTIVATION_GELU_TANH:
        for (size_t i = range.first; i < range.end; i++) {
            float t = gelu_tanh(y[i]);

            dx[i] = dy[i] * (0.5f * (1.0f + t) +
                             0.5f * y[i] * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * y[i] * y[i]));
        }
        break;
    }
}

/* Multiply two activations for the slice of one thread. The second may have one value per channel,
 * which applies to all pixels of the channel. */
LOOP_CLONES static void multiply_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image a = loop_image_of(call, &call->in[0]), b = loop_image_of(call, &call->in[1]);
    float *y = call->out[0].data;

    if (b.pixels == a.pixels) {
        loop_range range = loop_range_of(element_count(call), 16, thread, threads);

        for (size_t i = range.first; i < range.end; i++)
            y[i] = a.data[i] * b.data[i];
        return;
    }
    loop_range range = loop_range_of(call->rows, 1, thread, threads);

    for (size_t n = range.first; n < range.end; n++) {
        const float *from = a.data + n * a.sample_stride, *by = b.data + n * a.channels;
        float *to = y + n * a.sample_stride;

        for (size_t i = 0; i < a.sample_stride; i += call->packed ? a.channels : a.pixels)
            if (call->packed)
                for (size_t c = 0; c < a.channels; c++)
                    to[i + c] = from[i + c] * by[c];
            else
                for (size_t p = 0; p < a.pixels; p++)
                    to[i + p] = from[i + p] * by[i / a.pixels];
    }
}

/* Sum the products of two activations over the pixels of each channel, for the channels of one
 * thread. */
static void multiply_sum_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_image a = loop_image_of(call, &call->in[0]);
    loop_range range = loop_range_of(call->rows * a.channels, 1, thread, threads);

    for (size_t i = range.first; i < range.end; i++) {
        size_t at = i / a.channels * a.sample_stride + i % a.channels * a.channel_stride;
        double sum = 0.0;

        for (size_t p = 0; p < a.pixels; p++, at += a.pixel_stride)
            sum += (double)a.data[at] * (double)call->in[1].data[at];
        call->out[0].data[i] = (float)sum;
    }
}

/* ---- loop table ---- */

static const gp_loop activation = { .share = activation_share, .in_place = true };
static const gp_loop activation_backward = { .share = activation_backward_share, .in_place = true };
static const gp_loop multiply = { .share = multiply_share, .in_place = true };
static const gp_loop multiply_sum = { .share = multiply_sum_share };

const gp_loop *gp_loop_find(gp_opcode code)
{
    static const gp_loop *const loops[GP_OP_COUNT] = {
        [GP_OP_BATCHNORM] = &gp_loop_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = &gp_loop_batchnorm_backward,
        [GP_OP_BATCHNORM_INFER] = &gp_loop_batchnorm_infer,
        [GP_OP_GROUPNORM] = &gp_loop_groupnorm,
        [GP_OP_GROUPNORM_BACKWARD] = &gp_loop_groupnorm_backward,
        [GP_OP_LRN] = &gp_loop_lrn,
        [GP_OP_LRN_BACKWARD] = &gp_loop_lrn_backward,
        [GP_OP_TRANSCONV2D] = &gp_loop_transconv2d,
        [GP_OP_TRANSCONV2D_BACKWARD_DATA] = &gp_loop_transconv2d_backward_data,
        [GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS] = &gp_loop_transconv2d_backward_weights,
        [GP_OP_RESIZE] = &gp_loop_resize,
        [GP_OP_RESIZE_BACKWARD] = &gp_loop_resize_backward,
        [GP_OP_WEIGHTED_XENT] = &gp_loop_weighted_xent,
        [GP_OP_DICE] = &gp_loop_dice,
        [GP_OP_MSE] = &gp_loop_value_loss,
        [GP_OP_HUBER] = &gp_loop_value_loss,
        [GP_OP_ACTIVATION] = &activation,
        [GP_OP_ACTIVATION_BACKWARD] = &activation_backward,
        [GP_OP_MULTIPLY] = &multiply,
        [GP_OP_MULTIPLY_SUM] = &multiply_sum,
        [GP_OP_CONCAT] = &gp_loop_concat,
        [GP_OP_SLICE] = &gp_loop_slice,
        [GP_OP_PAD] = &gp_loop_pad,
        [GP_OP_TRANSPOSE] = &gp_loop_transpose,
        [GP_OP_SOFTMAX] = &gp_loop_softmax,
        [GP_OP_SOFTMAX_BACKWARD] = &gp_loop_softmax_backward,
        [GP_OP_CUSTOM] = &gp_loop_custom,
        [GP_OP_CUSTOM_BACKWARD] = &gp_loop_custom_backward,
        [GP_OP_CUSTOM_LOSS] = &gp_loop_custom_loss,
    };

    assert((unsigned)code < GP_OP_COUNT);
    return loops[code];
}

/* Call loop->run; if it is NULL, call loop->share on several threads. */
gp_status gp_loop_compute(const gp_loop *loop, const gp_loop_call *call, gp_error *err)
{
    int64_t in, out;

    if (loop->run != NULL)
        return loop->run(call, err);
    in = gp_shape_count(&call->in[0].shape);
    out = gp_shape_count(&call->out[0].shape);
    loop_shares_run(call, (size_t)(in > out ? in : out) * call->rows, loop->share);
    return GP_OK;
}

/* ---- segment ---- */

/* Segment with one op. */
struct gp_segment {
    gp_loop_call call;
    const gp_loop *loop;
    const gp_graph *graph;
    gp_plan_memory memory;
    bool forward;
};

static gp_loop_operand operand_of(const gp_segment *segment, const gp_segment_request *request,
                                  uint32_t value)
{
    const gp_value *about;
    gp_loop_operand operand = { .data = NULL };

    if (value == GP_NO_VALUE)
        return operand;
    about = &request->graph->values[value];
    operand.shape = about->shape;
    if (about->role == GP_VALUE_PARAMETER) /* loops never write parameters */
        operand.data = (float *)(uintptr_t)segment->memory.parameters +
                       request->graph->parameters[about->parameter].offset;
    else if (about->role == GP_VALUE_PARAMETER_GRADIENT)
        operand.data = segment->memory.gradients + request->graph->parameters[about->parameter].offset;
    else
        operand.data = request->values[value];
    return operand;
}

static gp_status loops_compile(gp_segment **out, const gp_segment_request *request, gp_error *err)
{
    const gp_ops *list = &request->graph->ops[request->phase];
    gp_segment *segment = gp_calloc(1, sizeof(*segment));

    assert(request->count == 1);
    if (segment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a segment");
    segment->graph = request->graph;
    segment->memory = *request->memory;
    segment->loop = gp_loop_find(request->ops->code);
    segment->forward = request->ops < list->op + list->forward_count;
    segment->call = (gp_loop_call){ .op = request->ops,
                                    .memory = &segment->memory,
                                    .rows = request->micro_batch,
                                    .threads = request->threads };
    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        segment->call.in[i] = operand_of(segment, request, request->ops->in[i]);
        segment->call.out[i] = operand_of(segment, request, request->ops->out[i]);
    }
    *out = segment;
    return GP_OK;
}

static void loops_free(gp_segment *segment)
{
    gp_free(segment);
}

static gp_status loops_run(gp_segment *segment, const gp_batch *batch, gp_plan_times *times, gp_error *err)
{
    int64_t start = gp_now_ns();
    gp_status status = GP_OK;

    segment->call.batch = batch;

    /* A rank without samples takes part in the all-reduce, so its parameter gradients must be
     * zeros. */
    for (int i = 0; i < GP_OP_VALUES_MAX && batch->count == 0 && batch->first; i++) {
        uint32_t out = segment->call.op->out[i];

        if (out != GP_NO_VALUE && segment->graph->values[out].role == GP_VALUE_PARAMETER_GRADIENT)
            memset(segment->call.out[i].data, 0,
                   (size_t)gp_shape_count(&segment->call.out[i].shape) * sizeof(float));
    }

    /* Loops also compute the rows beyond the batch. Zero the inputs there, because all rows must
     * contain finite numbers. */
    for (int i = 0; i < GP_OP_VALUES_MAX && batch->count != 0; i++) {
        uint32_t in = segment->call.op->in[i];

        if (in != GP_NO_VALUE && segment->call.in[i].data != NULL &&
            (segment->graph->values[in].role == GP_VALUE_ACTIVATION ||
             segment->graph->values[in].role == GP_VALUE_ACTIVATION_GRADIENT))
            loop_clear_rest(&segment->call, &segment->call.in[i]);
    }
    if (batch->count != 0)
        status = gp_loop_compute(segment->loop, &segment->call, err);
    *(segment->forward ? &times->forward_ns : &times->backward_ns) += gp_now_ns() - start;
    return status;
}

static void loops_rebind(gp_segment *segment, const float *parameters)
{
    const gp_op *op = segment->call.op;

    segment->memory.parameters = parameters;
    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        const gp_value *about = op->in[i] == GP_NO_VALUE ? NULL : &segment->graph->values[op->in[i]];

        if (about != NULL && about->role == GP_VALUE_PARAMETER) /* loops never write parameters */
            segment->call.in[i].data =
                (float *)(uintptr_t)parameters + segment->graph->parameters[about->parameter].offset;
    }
}

static size_t loops_memory_bytes(const gp_segment *segment)
{
    return sizeof(*segment);
}

const gp_segment_ops gp_segment_loops = {
    .name = "loops",
    .reads_samples = false,
    .compile = loops_compile,
    .free = loops_free,
    .run = loops_run,
    .rebind = loops_rebind,
    .memory_bytes = loops_memory_bytes,
};
