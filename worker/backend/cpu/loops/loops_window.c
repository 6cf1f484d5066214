/* Transposed convolution and resizing as plain loop nests. oneDNN computes transposed
 * convolutions as a convolution's backward pass (onednn_ops.c), so their speed matters here only
 * without oneDNN. */
#include <math.h>

#include "worker/backend/cpu/loops/loops_inside.h"

/* ---- transposed convolution: a convolution with input y and output x ---- */

/* An activation with height and width. */
typedef struct plane {
    size_t height, width;
    loop_image image;
} plane;

static plane plane_of(const gp_loop_call *call, const gp_loop_operand *operand)
{
    return (plane){ (size_t)operand->shape.dim[1], (size_t)operand->shape.dim[2],
                    loop_image_of(call, operand) };
}

/* Return the address of one channel of a sample. */
static float *plane_at(const plane *p, size_t sample, size_t channel)
{
    return p->image.data + sample * p->image.sample_stride + channel * p->image.channel_stride;
}

/* Compute the y offset for tap (ky, kx) and pixel i in x. Return false if it lies outside y. */
static bool tap_falls(const gp_window *w, const plane *x, const plane *y, size_t i, int ky, int kx,
                      size_t *at)
{
    int64_t row = (int64_t)(i / x->width) * w->stride[0] - w->padding[0] + (int64_t)ky * w->dilation[0];
    int64_t column = (int64_t)(i % x->width) * w->stride[1] - w->padding[1] + (int64_t)kx * w->dilation[1];

    if (row < 0 || row >= (int64_t)y->height || column < 0 || column >= (int64_t)y->width)
        return false;
    *at = ((size_t)row * y->width + (size_t)column) * y->image.pixel_stride;
    return true;
}

/* Operand that transconv_pair() computes from the other two. */
typedef enum transconv_want { WANT_Y, WANT_X, WANT_WEIGHTS } transconv_want;

/* Process one x channel and one y channel, over all pixels and taps. */
LOOP_INLINE void transconv_pair(const gp_window *w, const plane *x, const plane *y, float *xc, float *yc,
                                const float *weight, float *sums, transconv_want want)
{
    for (size_t i = 0; i < x->image.pixels; i++)
        for (int k = 0; k < w->kernel[0] * w->kernel[1]; k++) {
            float *value = xc + i * x->image.pixel_stride;
            size_t at;

            if (!tap_falls(w, x, y, i, k / w->kernel[1], k % w->kernel[1], &at))
                continue;
            if (want == WANT_Y)
                yc[at] += weight[k] * *value;
            else if (want == WANT_X)
                *value += weight[k] * yc[at];
            else
                sums[k] += yc[at] * *value;
        }
}

static void transconv_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    const gp_window *w = &call->op->window;
    plane x = plane_of(call, &call->in[0]), y = plane_of(call, &call->out[0]);
    const size_t inputs = x.image.channels / (size_t)w->groups,
                 outputs = y.image.channels / (size_t)w->groups;
    const size_t taps = (size_t)(w->kernel[0] * w->kernel[1]);
    loop_range range = loop_range_of(call->rows * y.image.channels, 1, thread, threads);

    for (size_t r = range.first; r < range.end; r++) {
        size_t n = r / y.image.channels, o = r % y.image.channels, group = o / outputs;
        float *yc = plane_at(&y, n, o);

        for (size_t i = 0; i < y.image.pixels; i++)
            yc[i * y.image.pixel_stride] = call->in[2].data == NULL ? 0.0f : call->in[2].data[o];
        for (size_t c = group * inputs; c < (group + 1) * inputs; c++)
            transconv_pair(w, &x, &y, plane_at(&x, n, c), yc,
                           call->in[1].data + (c * outputs + o % outputs) * taps, NULL, WANT_Y);
    }
}

const gp_loop gp_loop_transconv2d = { .share = transconv_share };

static void transconv_data_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    const gp_window *w = &call->op->window;
    plane y = plane_of(call, &call->in[0]), x = plane_of(call, &call->out[0]);
    const size_t inputs = x.image.channels / (size_t)w->groups,
                 outputs = y.image.channels / (size_t)w->groups;
    const size_t taps = (size_t)(w->kernel[0] * w->kernel[1]);
    loop_range range = loop_range_of(call->rows * x.image.channels, 1, thread, threads);

    for (size_t r = range.first; r < range.end; r++) {
        size_t n = r / x.image.channels, c = r % x.image.channels, group = c / inputs;
        float *xc = plane_at(&x, n, c);

        for (size_t i = 0; i < x.image.pixels; i++)
            xc[i * x.image.pixel_stride] = 0.0f;
        for (size_t o = 0; o < outputs; o++)
            transconv_pair(w, &x, &y, xc, plane_at(&y, n, group * outputs + o),
                           call->in[1].data + (c * outputs + o) * taps, NULL, WANT_X);
    }
}

const gp_loop gp_loop_transconv2d_backward_data = { .share = transconv_data_share };

static void transconv_weights_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    const gp_window *w = &call->op->window;
    plane x = plane_of(call, &call->in[0]), y = plane_of(call, &call->in[1]);
    const size_t inputs = x.image.channels / (size_t)w->groups,
                 outputs = y.image.channels / (size_t)w->groups;
    const size_t taps = (size_t)(w->kernel[0] * w->kernel[1]);
    loop_range range = loop_range_of(x.image.channels * outputs, 1, thread, threads);

    for (size_t r = range.first; r < range.end; r++) {
        size_t c = r / outputs, o = c / inputs * outputs + r % outputs;
        float *to = call->out[0].data + r * taps;

        if (call->batch->first)
            memset(to, 0, taps * sizeof(float));
        for (size_t n = 0; n < call->batch->count; n++)
            transconv_pair(w, &x, &y, plane_at(&x, n, c), plane_at(&y, n, o), NULL, to, WANT_WEIGHTS);
    }
}

static gp_status transconv2d_backward_weights_run(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    gp_threads_run(call->threads, transconv_weights_share, (void *)(uintptr_t)call);
    if (call->out[1].data != NULL)
        gp_loop_bias_gradient(call, &call->in[1], call->out[1].data);
    return GP_OK;
}

const gp_loop gp_loop_transconv2d_backward_weights = { .run = transconv2d_backward_weights_run };

/* ---- bias: one number per channel ---- */

/* Arguments of the bias loops. */
typedef struct bias_call {
    const gp_loop_call *call;
    loop_image image;
    const float *bias;
    float *gradient;
} bias_call;

LOOP_CLONES static void bias_share(void *context, uint32_t thread, uint32_t threads)
{
    const bias_call *b = context;
    const loop_image *y = &b->image;
    loop_range range = loop_range_of(b->call->rows, 1, thread, threads);

    for (size_t n = range.first; n < range.end; n++)
        for (size_t i = 0; i < y->pixels * y->channels; i++)
            y->data[n * y->sample_stride + i] += b->bias[b->call->packed ? i % y->channels : i / y->pixels];
}

void gp_loop_bias_add(const gp_loop_call *call, const gp_loop_operand *y, const float *bias)
{
    bias_call b = { .call = call, .image = loop_image_of(call, y), .bias = bias };

    gp_threads_run(call->threads, bias_share, &b);
}

static void bias_gradient_share(void *context, uint32_t thread, uint32_t threads)
{
    const bias_call *b = context;
    const loop_image *dy = &b->image;
    loop_range range = loop_range_of(dy->channels, 1, thread, threads);

    for (size_t c = range.first; c < range.end; c++) {
        double sum = b->call->batch->first ? 0.0 : (double)b->gradient[c];

        for (size_t n = 0; n < b->call->batch->count; n++)
            for (size_t p = 0; p < dy->pixels; p++)
                sum +=
                    (double)dy->data[n * dy->sample_stride + c * dy->channel_stride + p * dy->pixel_stride];
        b->gradient[c] = (float)sum;
    }
}

void gp_loop_bias_gradient(const gp_loop_call *call, const gp_loop_operand *dy, float *gradient)
{
    bias_call b = { .call = call, .image = loop_image_of(call, dy), .gradient = gradient };

    gp_threads_run(call->threads, bias_gradient_share, &b);
}

/* ---- resize ---- */

/* Interpolation of one output position along an axis: (1 - share) * input first + share * input
 * second. */
typedef struct resize_source {
    size_t first, second;
    float share;
} resize_source;

/* Return the interpolation for output position `o`.
 *   from, to  input and output size of the axis */
static resize_source source_of(gp_resize_mode mode, int64_t o, int64_t from, int64_t to)
{
    double ratio = (double)from / (double)to, at = 0.0;

    if (mode == GP_RESIZE_NEAREST)
        return (resize_source){ (size_t)(o * from / to), (size_t)(o * from / to), 0.0f };
    if (mode == GP_RESIZE_BILINEAR_CORNERS)
        at = to == 1 ? 0.0 : (double)o * (double)(from - 1) / (double)(to - 1);
    else
        at = mode == GP_RESIZE_BILINEAR_ASYMMETRIC ? (double)o * ratio : ((double)o + 0.5) * ratio - 0.5;
    at = fmin(fmax(at, 0.0), (double)(from - 1));

    size_t first = (size_t)at;

    return (resize_source){ first, first + 1 < (size_t)from ? first + 1 : first,
                            (float)(at - (double)first) };
}

/* Resize one sample. Forward: each y pixel is a weighted sum over four x pixels. Backward: add the
 * weighted dy to these four x pixels. */
LOOP_INLINE void resize_sample(const gp_loop_call *call, const plane *x, const plane *y, size_t n,
                               bool forward)
{
    const gp_resize_mode mode = (gp_resize_mode)call->op->number[0];
    const size_t xp = x->image.pixel_stride, yp = y->image.pixel_stride;

    for (size_t i = 0; i < y->image.pixels; i++) {
        resize_source r = source_of(mode, (int64_t)(i / y->width), (int64_t)x->height, (int64_t)y->height);
        resize_source c = source_of(mode, (int64_t)(i % y->width), (int64_t)x->width, (int64_t)y->width);
        const size_t at[4] = { (r.first * x->width + c.first) * xp, (r.first * x->width + c.second) * xp,
                               (r.second * x->width + c.first) * xp, (r.second * x->width + c.second) * xp };
        const float part[4] = { (1.0f - r.share) * (1.0f - c.share), (1.0f - r.share) * c.share,
                                r.share * (1.0f - c.share), r.share * c.share };

        for (size_t k = 0; k < x->image.channels; k++) {
            float *from = plane_at(x, n, k), *to = plane_at(y, n, k) + i * yp;

            if (forward)
                *to = part[0] * from[at[0]] + part[1] * from[at[1]] + part[2] * from[at[2]] +
                      part[3] * from[at[3]];
            else
                for (int q = 0; q < 4; q++)
                    from[at[q]] += part[q] * *to;
        }
    }
}

LOOP_CLONES static void resize_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    plane x = plane_of(call, &call->in[0]), y = plane_of(call, &call->out[0]);
    loop_range range = loop_range_of(call->rows, 1, thread, threads);

    for (size_t n = range.first; n < range.end; n++)
        resize_sample(call, &x, &y, n, true);
}

const gp_loop gp_loop_resize = { .share = resize_share };

LOOP_CLONES static void resize_backward_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    plane y = plane_of(call, &call->in[0]), x = plane_of(call, &call->out[0]);
    loop_range range = loop_range_of(call->rows, 1, thread, threads);

    for (size_t n = range.first; n < range.end; n++) {
        memset(x.image.data + n * x.image.sample_stride, 0, x.image.sample_stride * sizeof(float));
        resize_sample(call, &x, &y, n, false);
    }
}

const gp_loop gp_loop_resize_backward = { .share = resize_backward_share };
