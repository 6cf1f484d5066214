#include "tests/ref/ops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/model/graph/graph.h"

/* Return the input position for tap k and output position o along one axis (0: height, 1: width).
 * Positions outside [0, size) are padding. */
static int64_t window_at(const gp_window *window, int axis, int64_t o, int64_t k)
{
    return o * window->stride[axis] - window->padding[axis] + k * window->dilation[axis];
}

/* Planes in one sample with shape [C, H, W]. */
typedef struct planes {
    double *data;
    int64_t c, h, w;
} planes;

static planes planes_of(const gp_ref_tensor *tensor, int64_t sample)
{
    assert(tensor->shape.rank == 3);
    return (planes){ tensor->data + sample * gp_shape_count(&tensor->shape), tensor->shape.dim[0],
                     tensor->shape.dim[1], tensor->shape.dim[2] };
}

static double *planes_at(const planes *p, int64_t c, int64_t y, int64_t x)
{
    assert(c >= 0 && c < p->c && y >= 0 && y < p->h && x >= 0 && x < p->w);
    return &p->data[(c * p->h + y) * p->w + x];
}

/* Function for one product in a convolution: output element (o, y, x), weight element, input
 * element. */
typedef void (*conv_visit)(double *out, double *weight, double *in);

static void conv_forward(double *out, double *weight, double *in)
{
    *out += *weight * *in;
}

static void conv_to_data(double *out, double *weight, double *in)
{
    *in += *weight * *out;
}

static void conv_to_weights(double *out, double *weight, double *in)
{
    *weight += *in * *out;
}

/* Visit every product once. Inlined for each `visit`: tests spend most time here. */
static inline __attribute__((always_inline)) void conv_each(const gp_ref_call *call, const gp_ref_tensor *x,
                                                            const gp_ref_tensor *weight,
                                                            const gp_ref_tensor *y, conv_visit visit)
{
    const gp_window *window = &call->op->window;
    const int64_t *w = weight->shape.dim; /* O, C / groups, KH, KW */
    const int64_t outputs_per_group = w[0] / window->groups;

    for (int64_t n = 0; n < call->samples; n++) {
        planes in = planes_of(x, n), out = planes_of(y, n);

        assert(out.c == w[0] && in.c == w[1] * window->groups);
        for (int64_t o = 0; o < out.c; o++)
            for (int64_t oy = 0; oy < out.h; oy++)
                for (int64_t ox = 0; ox < out.w; ox++) {
                    double *to = planes_at(&out, o, oy, ox);

                    for (int64_t c = 0; c < w[1]; c++)
                        for (int64_t ky = 0; ky < w[2]; ky++) {
                            const int64_t iy = window_at(window, 0, oy, ky);
                            double *taps = &weight->data[((o * w[1] + c) * w[2] + ky) * w[3]], *row;

                            if (iy < 0 || iy >= in.h)
                                continue;
                            row = planes_at(&in, o / outputs_per_group * w[1] + c, iy, 0);
                            for (int64_t kx = 0; kx < w[3]; kx++) {
                                const int64_t ix = window_at(window, 1, ox, kx);

                                if (ix >= 0 && ix < in.w)
                                    visit(to, &taps[kx], &row[ix]);
                            }
                        }
                }
    }
}

static void tensor_clear(const gp_ref_call *call, const gp_ref_tensor *tensor)
{
    memset(tensor->data, 0, (size_t)(call->samples * gp_shape_count(&tensor->shape)) * sizeof(double));
}

void gp_ref_conv2d(const gp_ref_call *call)
{
    const gp_ref_tensor *y = &call->out[0];
    const double *bias = call->in[2].data;

    for (int64_t n = 0; n < call->samples; n++) {
        planes out = planes_of(y, n);

        for (int64_t i = 0; i < out.c * out.h * out.w; i++)
            out.data[i] = bias == NULL ? 0.0 : bias[i / (out.h * out.w)];
    }
    conv_each(call, &call->in[0], &call->in[1], y, conv_forward);
}

void gp_ref_conv2d_backward_data(const gp_ref_call *call)
{
    tensor_clear(call, &call->out[0]);
    conv_each(call, &call->out[0], &call->in[1], &call->in[0], conv_to_data);
}

void gp_ref_conv2d_backward_weights(const gp_ref_call *call)
{
    const gp_ref_tensor *dy = &call->in[1];
    double *dbias = call->out[1].data;

    conv_each(call, &call->in[0], &call->out[0], dy, conv_to_weights);
    for (int64_t n = 0; n < call->samples && dbias != NULL; n++) {
        planes out = planes_of(dy, n);

        for (int64_t i = 0; i < out.c * out.h * out.w; i++)
            dbias[i / (out.h * out.w)] += out.data[i];
    }
}

void gp_ref_fc(const gp_ref_call *call)
{
    const double *weight = call->in[1].data, *bias = call->in[2].data;
    const int64_t outputs = call->in[1].shape.dim[0], inputs = call->in[1].shape.dim[1];

    assert(gp_shape_count(&call->in[0].shape) == inputs && gp_shape_count(&call->out[0].shape) == outputs);
    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t o = 0; o < outputs; o++) {
            double sum = bias == NULL ? 0.0 : bias[o];

            for (int64_t i = 0; i < inputs; i++)
                sum += weight[o * inputs + i] * call->in[0].data[n * inputs + i];
            call->out[0].data[n * outputs + o] = sum;
        }
}

void gp_ref_fc_backward_data(const gp_ref_call *call)
{
    const double *weight = call->in[1].data;
    const int64_t outputs = call->in[1].shape.dim[0], inputs = call->in[1].shape.dim[1];

    assert(gp_shape_count(&call->out[0].shape) == inputs && gp_shape_count(&call->in[0].shape) == outputs);
    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t i = 0; i < inputs; i++) {
            double sum = 0.0;

            for (int64_t o = 0; o < outputs; o++)
                sum += weight[o * inputs + i] * call->in[0].data[n * outputs + o];
            call->out[0].data[n * inputs + i] = sum;
        }
}

void gp_ref_fc_backward_weights(const gp_ref_call *call)
{
    double *dweight = call->out[0].data, *dbias = call->out[1].data;
    const int64_t outputs = call->out[0].shape.dim[0], inputs = call->out[0].shape.dim[1];

    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t o = 0; o < outputs; o++) {
            double dy = call->in[1].data[n * outputs + o];

            for (int64_t i = 0; i < inputs; i++)
                dweight[o * inputs + i] += dy * call->in[0].data[n * inputs + i];
            if (dbias != NULL)
                dbias[o] += dy;
        }
}

static int64_t element_count_of(const gp_ref_call *call, const gp_ref_tensor *tensor)
{
    return call->samples * gp_shape_count(&tensor->shape);
}

static int64_t element_count(const gp_ref_call *call)
{
    assert(gp_shape_count(&call->in[0].shape) == gp_shape_count(&call->out[0].shape));
    return call->samples * gp_shape_count(&call->out[0].shape);
}

void gp_ref_relu(const gp_ref_call *call)
{
    for (int64_t i = 0; i < element_count(call); i++)
        call->out[0].data[i] = call->in[0].data[i] > 0.0 ? call->in[0].data[i] : 0.0;
}

void gp_ref_relu_backward(const gp_ref_call *call)
{
    for (int64_t i = 0; i < element_count(call); i++)
        call->out[0].data[i] = call->in[0].data[i] > 0.0 ? call->in[1].data[i] : 0.0;
}

/* Pooling window: sum, count and first maximum over the pixels inside the plane. */
typedef struct pool_window {
    double sum, largest;
    int64_t pixels, index;
} pool_window;

static pool_window pool_poll(const gp_window *window, const planes *in, int64_t c, int64_t oy, int64_t ox)
{
    pool_window seen = { .largest = -INFINITY, .index = -1 };

    for (int64_t ky = 0; ky < window->kernel[0]; ky++)
        for (int64_t kx = 0; kx < window->kernel[1]; kx++) {
            int64_t y = window_at(window, 0, oy, ky), x = window_at(window, 1, ox, kx);

            if (y < 0 || y >= in->h || x < 0 || x >= in->w)
                continue;
            double value = *planes_at(in, c, y, x);

            seen.sum += value;
            seen.pixels++;
            if (seen.index < 0 || value > seen.largest) {
                seen.largest = value;
                seen.index = y * in->w + x;
            }
        }
    assert(seen.pixels > 0);
    return seen;
}

static double pool_divisor(const gp_op *op, int64_t pixels)
{
    bool whole = op->pool == GP_POOL_AVERAGE_COUNT_PADDING;

    return whole ? (double)op->window.kernel[0] * op->window.kernel[1] : (double)pixels;
}

void gp_ref_pool(const gp_ref_call *call)
{
    const gp_op *op = call->op;

    for (int64_t n = 0; n < call->samples; n++) {
        planes in = planes_of(&call->in[0], n), out = planes_of(&call->out[0], n);

        for (int64_t i = 0; i < out.c * out.h * out.w; i++) {
            pool_window seen = pool_poll(&op->window, &in, i / (out.h * out.w), i / out.w % out.h, i % out.w);

            out.data[i] = op->pool == GP_POOL_MAX ? seen.largest : seen.sum / pool_divisor(op, seen.pixels);
            if (call->out[1].data != NULL)
                call->out[1].data[n * out.c * out.h * out.w + i] = (double)seen.index;
        }
    }
}

/* Distribute dy for one average pooling window over the pixels inside the plane. */
static void pool_spread(const gp_op *op, const planes *dx, int64_t c, int64_t oy, int64_t ox, double dy)
{
    int64_t pixels = pool_poll(&op->window, dx, c, oy, ox).pixels;

    for (int64_t ky = 0; ky < op->window.kernel[0]; ky++)
        for (int64_t kx = 0; kx < op->window.kernel[1]; kx++) {
            int64_t y = window_at(&op->window, 0, oy, ky), x = window_at(&op->window, 1, ox, kx);

            if (y >= 0 && y < dx->h && x >= 0 && x < dx->w)
                *planes_at(dx, c, y, x) += dy / pool_divisor(op, pixels);
        }
}

void gp_ref_pool_backward(const gp_ref_call *call)
{
    const double *index = call->in[1].data;

    assert((call->op->pool == GP_POOL_MAX) == (index != NULL));
    tensor_clear(call, &call->out[0]);
    for (int64_t n = 0; n < call->samples; n++) {
        planes dy = planes_of(&call->in[0], n), dx = planes_of(&call->out[0], n);
        int64_t plane = dy.h * dy.w;

        for (int64_t i = 0; i < dy.c * plane; i++) {
            if (index != NULL)
                dx.data[i / plane * dx.h * dx.w + (int64_t)index[n * dy.c * plane + i]] += dy.data[i];
            else
                pool_spread(call->op, &dx, i / plane, i / dy.w % dy.h, i % dy.w, dy.data[i]);
        }
    }
}

void gp_ref_reshape(const gp_ref_call *call)
{
    memcpy(call->out[0].data, call->in[0].data, (size_t)element_count(call) * sizeof(double));
}

/* Multiply by the dropout mask; the same forward and backward. The mask depends only on element and
 * sample position. */
void gp_ref_dropout(const gp_ref_call *call)
{
    const int64_t elements = gp_shape_count(&call->out[0].shape);
    const double rate = call->op->rate;

    for (int64_t i = 0; i < element_count(call); i++) {
        int64_t e = i % elements;
        uint32_t words[4];

        gp_rng_draw(words, call->seed, gp_rng_stream(GP_RNG_DROPOUT, call->op->layer), call->step,
                    call->position + (uint32_t)(i / elements), (uint32_t)(e / 4));
        call->out[0].data[i] =
            (double)gp_rng_uniform(words[e % 4]) >= rate ? call->in[0].data[i] / (1.0 - rate) : 0.0;
    }
}

void gp_ref_dropout_backward(const gp_ref_call *call)
{
    gp_ref_dropout(call);
}

void gp_ref_softmax_xent(const gp_ref_call *call)
{
    const int64_t classes = gp_shape_count(&call->in[0].shape);
    const double *labels = call->in[1].data;
    double *sums = call->out[1].data;

    for (int64_t n = 0; n < call->samples; n++) {
        const double *logits = call->in[0].data + n * classes;
        int64_t label = labels == NULL ? -1 : (int64_t)labels[n], largest = 0;
        double total = 0.0;

        assert(label >= -1 && label < classes);
        for (int64_t k = 1; k < classes; k++)
            if (logits[k] > logits[largest])
                largest = k;
        for (int64_t k = 0; k < classes; k++)
            total += exp(logits[k] - logits[largest]);
        for (int64_t k = 0; k < classes; k++) {
            double score = exp(logits[k] - logits[largest]) / total;

            if (call->out[0].data != NULL)
                call->out[0].data[n * classes + k] = label < 0 ? 0.0 : score - (k == label ? 1.0 : 0.0);
            if (call->out[2].data != NULL)
                call->out[2].data[n * classes + k] = score;
        }
        if (label < 0)
            continue;
        sums[GP_SUM_LOSS] += log(total) - (logits[label] - logits[largest]);
        sums[GP_SUM_WEIGHT] += 1.0;
        sums[GP_SUM_CLASSED] += 1.0;
        sums[GP_SUM_CORRECT] += label == largest ? 1.0 : 0.0;
    }
}

void gp_ref_add(const gp_ref_call *call)
{
    for (int64_t i = 0; i < element_count(call); i++)
        call->out[0].data[i] = call->in[0].data[i] + call->in[1].data[i];
}

/* Channel layout: elements of a channel are C apart in blocks of `pixels`. A vector has one pixel
 * per channel. */
typedef struct channels {
    int64_t count, pixels;
} channels;

static channels channels_of(const gp_ref_tensor *tensor)
{
    channels c = { tensor->shape.dim[0], 1 };

    for (uint32_t i = 1; i < tensor->shape.rank; i++)
        c.pixels *= tensor->shape.dim[i];
    return c;
}

/* Return the index for element i in channel c, i in [0, samples * pixels). */
static int64_t channel_at(const channels *of, int64_t c, int64_t i)
{
    return (i / of->pixels * of->count + c) * of->pixels + i % of->pixels;
}

void gp_ref_batchnorm(const gp_ref_call *call)
{
    const double *x = call->in[0].data, *scale = call->in[1].data, *offset = call->in[2].data;
    const double *running = call->in[3].data;
    const channels of = channels_of(&call->in[0]);
    const int64_t n = call->samples * of.pixels;

    for (int64_t c = 0; c < of.count; c++) {
        double mean = 0.0, variance = 0.0;

        for (int64_t i = 0; i < n; i++) {
            double shifted = x[channel_at(&of, c, i)] - running[c];

            mean += x[channel_at(&of, c, i)] / (double)n;
            call->out[2].data[c] += shifted;
            call->out[3].data[c] += shifted * shifted;
        }
        for (int64_t i = 0; i < n; i++)
            variance += pow(x[channel_at(&of, c, i)] - mean, 2.0) / (double)n;
        call->out[1].data[c] = mean;
        call->out[1].data[of.count + c] = 1.0 / sqrt(variance + call->op->factor[0]);
        for (int64_t i = 0; i < n; i++)
            call->out[0].data[channel_at(&of, c, i)] =
                (x[channel_at(&of, c, i)] - mean) * call->out[1].data[of.count + c] * scale[c] + offset[c];
    }
}

void gp_ref_batchnorm_infer(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);

    for (int64_t c = 0; c < of.count; c++)
        for (int64_t i = 0; i < call->samples * of.pixels; i++)
            call->out[0].data[channel_at(&of, c, i)] =
                (call->in[0].data[channel_at(&of, c, i)] - call->in[3].data[c]) /
                    sqrt(call->in[4].data[c] + call->op->factor[0]) * call->in[1].data[c] +
                call->in[2].data[c];
}

/* Batch normalization backward: Ioffe & Szegedy, section 3, with sums over samples written as
 * means. */
void gp_ref_batchnorm_backward(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);
    const double *x = call->in[0].data, *dy = call->in[1].data, *scale = call->in[2].data;
    const int64_t n = call->samples * of.pixels;

    for (int64_t c = 0; c < of.count; c++) {
        double mean = call->in[3].data[c], inverse = call->in[3].data[of.count + c], sum = 0.0, product = 0.0;

        for (int64_t i = 0; i < n; i++) {
            int64_t at = channel_at(&of, c, i);

            sum += dy[at];
            product += dy[at] * (x[at] - mean) * inverse;
        }
        call->out[1].data[c] += product;
        call->out[2].data[c] += sum;
        for (int64_t i = 0; i < n && call->out[0].data != NULL; i++) {
            int64_t at = channel_at(&of, c, i);

            call->out[0].data[at] =
                scale[c] * inverse *
                (dy[at] - sum / (double)n - (x[at] - mean) * inverse * product / (double)n);
        }
    }
}

/* Return the group count in one sample: channel groups, or one group per pixel. */
static int64_t groups_of(const gp_ref_call *call)
{
    return call->op->number[1] != 0 ? channels_of(&call->in[0]).pixels : call->op->number[0];
}

/* Return the element count in one group. */
static int64_t group_count(const gp_ref_call *call)
{
    return gp_shape_count(&call->in[0].shape) / groups_of(call);
}

/* Position and channel of a group element within the sample. */
typedef struct group_element {
    int64_t at, channel;
} group_element;

static group_element group_at(const gp_ref_call *call, int64_t k, int64_t i)
{
    const channels of = channels_of(&call->in[0]);

    if (call->op->number[1] != 0) /* group k is pixel k, element i is channel i */
        return (group_element){ i * of.pixels + k, i };
    return (group_element){ k * group_count(call) + i, k * (of.count / call->op->number[0]) + i / of.pixels };
}

void gp_ref_groupnorm(const gp_ref_call *call)
{
    const int64_t groups = groups_of(call), n = group_count(call);

    for (int64_t k = 0; k < call->samples * groups; k++) {
        const int64_t sample = k / groups * groups * n;
        const double *x = call->in[0].data + sample;
        double mean = 0.0, variance = 0.0,
               *moments = call->out[1].data + k / groups * 2 * groups + k % groups;

        for (int64_t i = 0; i < n; i++)
            mean += x[group_at(call, k % groups, i).at] / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += pow(x[group_at(call, k % groups, i).at] - mean, 2.0) / (double)n;
        moments[0] = mean;
        moments[groups] = 1.0 / sqrt(variance + call->op->factor[0]);
        for (int64_t i = 0; i < n; i++) {
            const group_element e = group_at(call, k % groups, i);

            call->out[0].data[sample + e.at] =
                (x[e.at] - mean) * moments[groups] * call->in[1].data[e.channel] +
                call->in[2].data[e.channel];
        }
    }
}

void gp_ref_groupnorm_backward(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);
    const int64_t groups = groups_of(call), n = group_count(call);
    const double *scale = call->in[2].data;

    tensor_clear(call, &call->out[3]);
    for (int64_t k = 0; k < call->samples * groups; k++) {
        const int64_t sample = k / groups * groups * n;
        const double *x = call->in[0].data + sample, *dy = call->in[1].data + sample;
        const double *moments = call->in[3].data + k / groups * 2 * groups + k % groups;
        double sum = 0.0, product = 0.0, *sums = call->out[3].data + k / groups * 2 * of.count;

        for (int64_t i = 0; i < n; i++) {
            const group_element e = group_at(call, k % groups, i);
            const int64_t c = e.channel;
            double normalised = (x[e.at] - moments[0]) * moments[groups];

            call->out[1].data[c] += dy[e.at] * normalised;
            call->out[2].data[c] += dy[e.at];
            sums[c] += dy[e.at];
            sums[of.count + c] += dy[e.at] * normalised;
            sum += dy[e.at] * scale[c] / (double)n;
            product += dy[e.at] * scale[c] * normalised / (double)n;
        }
        for (int64_t i = 0; i < n && call->out[0].data != NULL; i++) {
            const group_element e = group_at(call, k % groups, i);

            call->out[0].data[sample + e.at] =
                moments[groups] *
                (dy[e.at] * scale[e.channel] - sum - (x[e.at] - moments[0]) * moments[groups] * product);
        }
    }
}

/* Return whether channel j is in channel c's window. */
static bool lrn_sees(const gp_op *op, int64_t c, int64_t j)
{
    return j >= c - (op->number[0] - 1) / 2 && j <= c + op->number[0] / 2;
}

void gp_ref_lrn(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);
    const gp_op *op = call->op;

    for (int64_t i = 0; i < call->samples * of.pixels; i++)
        for (int64_t c = 0; c < of.count; c++) {
            double d = op->factor[2];

            for (int64_t j = 0; j < of.count; j++)
                if (lrn_sees(op, c, j))
                    d += op->factor[0] / op->number[0] * pow(call->in[0].data[channel_at(&of, j, i)], 2.0);
            call->out[1].data[channel_at(&of, c, i)] = d;
            call->out[0].data[channel_at(&of, c, i)] =
                call->in[0].data[channel_at(&of, c, i)] * pow(d, -op->factor[1]);
        }
}

void gp_ref_lrn_backward(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);
    const gp_op *op = call->op;
    const double *x = call->in[0].data, *dy = call->in[1].data, *d = call->in[2].data;

    for (int64_t i = 0; i < call->samples * gp_shape_count(&call->in[0].shape); i++)
        call->out[1].data[i] = dy[i] * x[i] * pow(d[i], -op->factor[1] - 1.0);
    for (int64_t i = 0; i < call->samples * of.pixels; i++)
        for (int64_t c = 0; c < of.count; c++) {
            int64_t at = channel_at(&of, c, i);
            double sum = dy[at] * pow(d[at], -op->factor[1]);

            for (int64_t j = 0; j < of.count; j++)
                if (lrn_sees(op, j, c))
                    sum -= 2.0 * op->factor[0] * op->factor[1] / op->number[0] * x[at] *
                           call->out[1].data[channel_at(&of, j, i)];
            call->out[0].data[at] = sum;
        }
}

#define GELU_FACTOR sqrt(2.0 / M_PI)
#define GELU_CUBE   0.044715

static double gelu_tanh_slope(double x)
{
    const double t = tanh(GELU_FACTOR * (x + GELU_CUBE * pow(x, 3.0)));

    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU_FACTOR * (1.0 + 3.0 * GELU_CUBE * x * x);
}

void gp_ref_activation(const gp_ref_call *call)
{
    const double *factor = call->op->factor;

    for (int64_t i = 0; i < element_count(call); i++) {
        double x = call->in[0].data[i], *y = &call->out[0].data[i];

        switch (call->op->function) {
        case GP_ACTIVATION_LEAKY_RELU:
            *y = x > 0.0 ? x : factor[0] * x;
            break;
        case GP_ACTIVATION_CLIP:
            *y = fmin(fmax(x, factor[0]), factor[1]);
            break;
        case GP_ACTIVATION_SIGMOID:
            *y = 1.0 / (1.0 + exp(-x));
            break;
        case GP_ACTIVATION_TANH:
            *y = tanh(x);
            break;
        case GP_ACTIVATION_SCALE:
            *y = factor[0] * x;
            break;
        case GP_ACTIVATION_HARD_SIGMOID:
            *y = fmin(fmax(factor[0] * x + factor[1], 0.0), 1.0);
            break;
        case GP_ACTIVATION_HARD_SWISH:
            *y = x * fmin(fmax(x / 6.0 + 0.5, 0.0), 1.0);
            break;
        case GP_ACTIVATION_GELU:
            *y = 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
            break;
        case GP_ACTIVATION_GELU_TANH:
            *y = 0.5 * x * (1.0 + tanh(GELU_FACTOR * (x + GELU_CUBE * pow(x, 3.0))));
            break;
        }
    }
}

void gp_ref_activation_backward(const gp_ref_call *call)
{
    const double *factor = call->op->factor;

    for (int64_t i = 0; i < element_count(call); i++) {
        double y = call->in[0].data[i], dy = call->in[1].data[i], *dx = &call->out[0].data[i];

        switch (call->op->function) {
        case GP_ACTIVATION_LEAKY_RELU:
            *dx = y > 0.0 ? dy : factor[0] * dy;
            break;
        case GP_ACTIVATION_CLIP:
            *dx = y > factor[0] && y < factor[1] ? dy : 0.0;
            break;
        case GP_ACTIVATION_SIGMOID:
            *dx = dy * y * (1.0 - y);
            break;
        case GP_ACTIVATION_TANH:
            *dx = dy * (1.0 - y * y);
            break;
        case GP_ACTIVATION_SCALE:
            *dx = factor[0] * dy;
            break;
        case GP_ACTIVATION_HARD_SIGMOID:
            *dx = y > 0.0 && y < 1.0 ? factor[0] * dy : 0.0;
            break;
        case GP_ACTIVATION_HARD_SWISH: /* x holds y, here and below */
            *dx = y < -3.0 ? 0.0 : y > 3.0 ? dy : (y / 3.0 + 0.5) * dy;
            break;
        case GP_ACTIVATION_GELU:
            *dx = dy * (0.5 * (1.0 + erf(y / sqrt(2.0))) + y * exp(-0.5 * y * y) / sqrt(2.0 * M_PI));
            break;
        case GP_ACTIVATION_GELU_TANH:
            *dx = dy * gelu_tanh_slope(y);
            break;
        }
    }
}

/* Return element [c, y, x] in sample n for a value with up to three axes. */
static double *box_at(const gp_ref_tensor *tensor, int64_t n, int64_t c, int64_t y, int64_t x)
{
    int64_t extent[3] = { 1, 1, 1 };

    assert(tensor->shape.rank <= 3);
    memcpy(extent, tensor->shape.dim, tensor->shape.rank * sizeof(*extent));
    assert(c >= 0 && c < extent[0] && y >= 0 && y < extent[1] && x >= 0 && x < extent[2]);
    return &tensor->data[((n * extent[0] + c) * extent[1] + y) * extent[2] + x];
}

/* Compute the indices for element i within one sample. */
static void box_indices(const gp_ref_tensor *tensor, int64_t i, int64_t at[3])
{
    int64_t extent[3] = { 1, 1, 1 };

    memcpy(extent, tensor->shape.dim, tensor->shape.rank * sizeof(*extent));
    at[0] = i / (extent[1] * extent[2]);
    at[1] = i / extent[2] % extent[1];
    at[2] = i % extent[2];
}

void gp_ref_multiply(const gp_ref_call *call)
{
    const int64_t a = gp_shape_count(&call->in[0].shape), b = gp_shape_count(&call->in[1].shape);

    for (int64_t i = 0; i < call->samples * a; i++)
        call->out[0].data[i] = call->in[0].data[i] * call->in[1].data[i / (a / b)];
}

void gp_ref_multiply_sum(const gp_ref_call *call)
{
    const int64_t a = gp_shape_count(&call->in[0].shape), b = gp_shape_count(&call->out[0].shape);

    tensor_clear(call, &call->out[0]);
    for (int64_t i = 0; i < call->samples * a; i++)
        call->out[0].data[i / (a / b)] += call->in[0].data[i] * call->in[1].data[i];
}

void gp_ref_concat(const gp_ref_call *call)
{
    int64_t start[3] = { 0, 0, 0 };

    for (int k = 0; k < GP_OP_VALUES_MAX && call->in[k].data != NULL; k++) {
        for (int64_t n = 0; n < call->samples; n++)
            for (int64_t i = 0; i < gp_shape_count(&call->in[k].shape); i++) {
                int64_t at[3];

                box_indices(&call->in[k], i, at);
                *box_at(&call->out[0], n, start[0] + at[0], start[1] + at[1], start[2] + at[2]) =
                    *box_at(&call->in[k], n, at[0], at[1], at[2]);
            }
        start[call->op->number[0]] += call->in[k].shape.dim[call->op->number[0]];
    }
}

void gp_ref_slice(const gp_ref_call *call)
{
    const int32_t *start = call->op->number;

    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t i = 0; i < gp_shape_count(&call->out[0].shape); i++) {
            int64_t at[3];

            box_indices(&call->out[0], i, at);
            *box_at(&call->out[0], n, at[0], at[1], at[2]) =
                *box_at(&call->in[0], n, at[0] + start[0], at[1] + start[1], at[2] + start[2]);
        }
}

void gp_ref_pad(const gp_ref_call *call)
{
    const int32_t *start = call->op->number;

    tensor_clear(call, &call->out[0]);
    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t i = 0; i < gp_shape_count(&call->in[0].shape); i++) {
            int64_t at[3];

            box_indices(&call->in[0], i, at);
            *box_at(&call->out[0], n, at[0] + start[0], at[1] + start[1], at[2] + start[2]) =
                *box_at(&call->in[0], n, at[0], at[1], at[2]);
        }
}

void gp_ref_transpose(const gp_ref_call *call)
{
    for (int64_t n = 0; n < call->samples; n++)
        for (int64_t i = 0; i < gp_shape_count(&call->out[0].shape); i++) {
            int64_t to[3], from[3];

            box_indices(&call->out[0], i, to);
            for (int k = 0; k < 3; k++)
                from[call->op->number[k]] = to[k];
            *box_at(&call->out[0], n, to[0], to[1], to[2]) =
                *box_at(&call->in[0], n, from[0], from[1], from[2]);
        }
}

void gp_ref_softmax(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);

    for (int64_t i = 0; i < call->samples * of.pixels; i++) {
        double sum = 0.0, largest = -INFINITY;

        for (int64_t c = 0; c < of.count; c++)
            largest = fmax(largest, call->in[0].data[channel_at(&of, c, i)]);
        for (int64_t c = 0; c < of.count; c++)
            sum += exp(call->in[0].data[channel_at(&of, c, i)] - largest);
        for (int64_t c = 0; c < of.count; c++)
            call->out[0].data[channel_at(&of, c, i)] =
                exp(call->in[0].data[channel_at(&of, c, i)] - largest) / sum;
    }
}

void gp_ref_softmax_backward(const gp_ref_call *call)
{
    const channels of = channels_of(&call->in[0]);
    const double *y = call->in[0].data, *dy = call->in[1].data;

    for (int64_t i = 0; i < call->samples * of.pixels; i++) {
        double sum = 0.0;

        for (int64_t c = 0; c < of.count; c++)
            sum += dy[channel_at(&of, c, i)] * y[channel_at(&of, c, i)];
        for (int64_t c = 0; c < of.count; c++)
            call->out[0].data[channel_at(&of, c, i)] =
                y[channel_at(&of, c, i)] * (dy[channel_at(&of, c, i)] - sum);
    }
}

void gp_ref_transconv2d(const gp_ref_call *call)
{
    const int64_t pixels = call->out[0].shape.dim[1] * call->out[0].shape.dim[2];

    tensor_clear(call, &call->out[0]);
    conv_each(call, &call->out[0], &call->in[1], &call->in[0], conv_to_data);
    for (int64_t i = 0; i < element_count_of(call, &call->out[0]) && call->in[2].data != NULL; i++)
        call->out[0].data[i] += call->in[2].data[i / pixels % call->out[0].shape.dim[0]];
}

void gp_ref_transconv2d_backward_data(const gp_ref_call *call)
{
    tensor_clear(call, &call->out[0]);
    conv_each(call, &call->in[0], &call->in[1], &call->out[0], conv_forward);
}

void gp_ref_transconv2d_backward_weights(const gp_ref_call *call)
{
    const int64_t pixels = call->in[1].shape.dim[1] * call->in[1].shape.dim[2];

    conv_each(call, &call->in[1], &call->out[0], &call->in[0], conv_to_weights);
    for (int64_t i = 0; i < element_count_of(call, &call->in[1]) && call->out[1].data != NULL; i++)
        call->out[1].data[i / pixels % call->in[1].shape.dim[0]] += call->in[1].data[i];
}

/* Return the weight from input i to output o along an axis with `from` inputs and `to` outputs. */
static double resize_weight(const gp_op *op, int64_t i, int64_t o, int64_t from, int64_t to)
{
    double at = 0.0;

    switch ((gp_resize_mode)op->number[0]) {
    case GP_RESIZE_NEAREST:
        return o * from / to == i;
    case GP_RESIZE_BILINEAR:
        at = ((double)o + 0.5) * (double)from / (double)to - 0.5;
        break;
    case GP_RESIZE_BILINEAR_CORNERS:
        at = to == 1 ? 0.0 : (double)(o * (from - 1)) / (double)(to - 1);
        break;
    case GP_RESIZE_BILINEAR_ASYMMETRIC:
        at = (double)(o * from) / (double)to;
        break;
    }
    at = fmin(fmax(at, 0.0), (double)(from - 1));
    return fmax(0.0, 1.0 - fabs(at - (double)i));
}

static void resize_each(const gp_ref_call *call, const gp_ref_tensor *x, const gp_ref_tensor *y, bool forward)
{
    for (int64_t n = 0; n < call->samples; n++) {
        planes in = planes_of(x, n), out = planes_of(y, n);

        for (int64_t c = 0; c < in.c; c++)
            for (int64_t o = 0; o < out.h * out.w; o++)
                for (int64_t i = 0; i < in.h * in.w; i++) {
                    double weight = resize_weight(call->op, i / in.w, o / out.w, in.h, out.h) *
                                    resize_weight(call->op, i % in.w, o % out.w, in.w, out.w);
                    double *a = planes_at(&in, c, i / in.w, i % in.w),
                           *b = planes_at(&out, c, o / out.w, o % out.w);

                    *(forward ? b : a) += weight * *(forward ? a : b);
                }
    }
}

void gp_ref_resize(const gp_ref_call *call)
{
    tensor_clear(call, &call->out[0]);
    resize_each(call, &call->in[0], &call->out[0], true);
}

void gp_ref_resize_backward(const gp_ref_call *call)
{
    tensor_clear(call, &call->out[0]);
    resize_each(call, &call->out[0], &call->in[0], false);
}

/* Return a sample's target t[k]; 0 for all classes without a label. */
static double xent_target(const gp_op *op, int64_t classes, int64_t label, int64_t k)
{
    const double *w = op->weights;

    if (label < 0 || label == op->number[0])
        return 0.0;
    return op->factor[0] / (double)classes * (w == NULL ? 1.0 : w[k]) +
           (k == label ? (1.0 - op->factor[0]) * (w == NULL ? 1.0 : w[label]) : 0.0);
}

/* Return the pixel count per sample; 1 for a vector. */
static int64_t loss_pixels(const gp_ref_call *call)
{
    return gp_shape_count(&call->in[0].shape) / call->in[0].shape.dim[0];
}

static int64_t loss_label(const gp_ref_call *call, int64_t at)
{
    int64_t label = call->in[1].data == NULL ? -1 : (int64_t)call->in[1].data[at];

    return label == call->op->number[0] ? -1 : label;
}

void gp_ref_weighted_xent(const gp_ref_call *call)
{
    const int64_t classes = call->in[0].shape.dim[0], pixels = loss_pixels(call);
    double *sums = call->out[1].data;

    for (int64_t i = 0; i < call->samples * pixels; i++) {
        const int64_t first = i / pixels * classes * pixels + i % pixels, label = loss_label(call, i);
        const double *logits = call->in[0].data + first;
        int64_t largest = 0;
        double exponentials = 0.0, targets = 0.0;

        for (int64_t k = 0; k < classes; k++) {
            largest = logits[k * pixels] > logits[largest * pixels] ? k : largest;
            targets += xent_target(call->op, classes, label, k);
        }
        for (int64_t k = 0; k < classes; k++)
            exponentials += exp(logits[k * pixels] - logits[largest * pixels]);
        for (int64_t k = 0; k < classes; k++) {
            double score = exp(logits[k * pixels] - logits[largest * pixels]) / exponentials;

            if (call->out[0].data != NULL)
                call->out[0].data[first + k * pixels] =
                    call->op->loss.factor * (targets * score - xent_target(call->op, classes, label, k));
            if (call->out[2].data != NULL)
                call->out[2].data[first + k * pixels] =
                    call->op->loss.scores_as_is ? logits[k * pixels] : score;
            sums[GP_SUM_LOSS] -=
                call->op->loss.factor * xent_target(call->op, classes, label, k) * log(score);
        }
        if (label < 0)
            continue;
        double own = call->op->weights == NULL ? 1.0 : call->op->weights[label];

        sums[GP_SUM_WEIGHT] += call->op->loss.weight * own;
        sums[GP_SUM_CLASSED] += 1.0;
        sums[GP_SUM_CORRECT] += largest == label ? 1.0 : 0.0;
    }
}

/* Return the weight for class k in one sample, derived from the pixel count. */
static double dice_weight(const gp_ref_call *call, int64_t n, int64_t k, int64_t pixels)
{
    double truth = 0.0;

    for (int64_t p = 0; p < pixels; p++)
        truth += loss_label(call, n * pixels + p) == k ? 1.0 : 0.0;
    return truth == 0.0 ? 0.0 : pow(truth, -call->op->factor[0]);
}

void gp_ref_dice(const gp_ref_call *call)
{
    const int64_t classes = call->in[0].shape.dim[0], pixels = loss_pixels(call);
    double *sums = call->out[1].data;

    for (int64_t n = 0; n < call->samples; n++) {
        const double *p = call->in[0].data + n * classes * pixels;
        double overlap = 0.0, sizes = 0.0;

        for (int64_t i = 0; i < classes * pixels; i++) {
            int64_t k = i / pixels, label = loss_label(call, n * pixels + i % pixels);
            double w = dice_weight(call, n, k, pixels), t = label == k ? 1.0 : 0.0;

            if (call->out[2].data != NULL)
                call->out[2].data[n * classes * pixels + i] = p[i];
            if (label < 0)
                continue;
            overlap += w * p[i] * t;
            sizes += w * (p[i] + t);
        }
        for (int64_t i = 0; i < classes * pixels && call->out[0].data != NULL; i++) {
            int64_t k = i / pixels, label = loss_label(call, n * pixels + i % pixels);
            double w = dice_weight(call, n, k, pixels), t = label == k ? 1.0 : 0.0;

            /* Quotient rule applied to 1 - 2 overlap / sizes. */
            call->out[0].data[n * classes * pixels + i] =
                label < 0 ? 0.0
                          : -2.0 * call->op->loss.factor * (w * t * sizes - overlap * w) / (sizes * sizes);
        }
        for (int64_t i = 0; i < pixels; i++) {
            int64_t largest = 0, label = loss_label(call, n * pixels + i);

            for (int64_t k = 1; k < classes; k++)
                largest = p[k * pixels + i] > p[largest * pixels + i] ? k : largest;
            sums[GP_SUM_CLASSED] += label < 0 ? 0.0 : 1.0;
            sums[GP_SUM_CORRECT] += label == largest ? 1.0 : 0.0;
        }
        if (sizes == 0.0)
            continue;
        sums[GP_SUM_LOSS] += call->op->loss.factor * (1.0 - 2.0 * overlap / sizes);
        sums[GP_SUM_WEIGHT] += call->op->loss.weight;
    }
}

static void values_loss(const gp_ref_call *call, double (*loss)(double error, double delta),
                        double (*slope)(double error, double delta))
{
    const double delta = call->op->factor[0];
    double *sums = call->out[1].data;

    for (int64_t i = 0; i < call->samples * gp_shape_count(&call->in[0].shape); i++) {
        double y = call->in[0].data[i], error = call->in[1].data == NULL ? NAN : y - call->in[1].data[i];

        if (call->out[2].data != NULL)
            call->out[2].data[i] = y;
        if (call->out[0].data != NULL)
            call->out[0].data[i] = isnan(error) ? 0.0 : call->op->loss.factor * slope(error, delta);
        if (isnan(error))
            continue;
        sums[GP_SUM_LOSS] += call->op->loss.factor * loss(error, delta);
        sums[GP_SUM_WEIGHT] += call->op->loss.weight;
        sums[GP_SUM_SQUARES] += error * error;
        sums[GP_SUM_VALUES] += 1.0;
    }
}

static double mse_loss(double error, double delta)
{
    (void)delta;
    return error * error;
}

static double mse_slope(double error, double delta)
{
    (void)delta;
    return 2.0 * error;
}

static double huber_loss(double error, double delta)
{
    return fabs(error) <= delta ? error * error / 2.0 : delta * (fabs(error) - delta / 2.0);
}

static double huber_slope(double error, double delta)
{
    return fmax(-delta, fmin(delta, error));
}

void gp_ref_mse(const gp_ref_call *call)
{
    values_loss(call, mse_loss, mse_slope);
}

void gp_ref_huber(const gp_ref_call *call)
{
    values_loss(call, huber_loss, huber_slope);
}

gp_ref_op gp_ref_op_find(gp_opcode code)
{
    static const gp_ref_op ops[GP_OP_COUNT] = {
        [GP_OP_CONV2D] = gp_ref_conv2d,
        [GP_OP_CONV2D_BACKWARD_DATA] = gp_ref_conv2d_backward_data,
        [GP_OP_CONV2D_BACKWARD_WEIGHTS] = gp_ref_conv2d_backward_weights,
        [GP_OP_FC] = gp_ref_fc,
        [GP_OP_FC_BACKWARD_DATA] = gp_ref_fc_backward_data,
        [GP_OP_FC_BACKWARD_WEIGHTS] = gp_ref_fc_backward_weights,
        [GP_OP_RELU] = gp_ref_relu,
        [GP_OP_RELU_BACKWARD] = gp_ref_relu_backward,
        [GP_OP_POOL] = gp_ref_pool,
        [GP_OP_POOL_BACKWARD] = gp_ref_pool_backward,
        [GP_OP_RESHAPE] = gp_ref_reshape,
        [GP_OP_DROPOUT] = gp_ref_dropout,
        [GP_OP_DROPOUT_BACKWARD] = gp_ref_dropout_backward,
        [GP_OP_SOFTMAX_XENT] = gp_ref_softmax_xent,
        [GP_OP_ADD] = gp_ref_add,
        [GP_OP_BATCHNORM] = gp_ref_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = gp_ref_batchnorm_backward,
        [GP_OP_BATCHNORM_INFER] = gp_ref_batchnorm_infer,
        [GP_OP_GROUPNORM] = gp_ref_groupnorm,
        [GP_OP_GROUPNORM_BACKWARD] = gp_ref_groupnorm_backward,
        [GP_OP_LRN] = gp_ref_lrn,
        [GP_OP_LRN_BACKWARD] = gp_ref_lrn_backward,
        [GP_OP_TRANSCONV2D] = gp_ref_transconv2d,
        [GP_OP_TRANSCONV2D_BACKWARD_DATA] = gp_ref_transconv2d_backward_data,
        [GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS] = gp_ref_transconv2d_backward_weights,
        [GP_OP_RESIZE] = gp_ref_resize,
        [GP_OP_RESIZE_BACKWARD] = gp_ref_resize_backward,
        [GP_OP_WEIGHTED_XENT] = gp_ref_weighted_xent,
        [GP_OP_DICE] = gp_ref_dice,
        [GP_OP_MSE] = gp_ref_mse,
        [GP_OP_HUBER] = gp_ref_huber,
        [GP_OP_ACTIVATION] = gp_ref_activation,
        [GP_OP_ACTIVATION_BACKWARD] = gp_ref_activation_backward,
        [GP_OP_MULTIPLY] = gp_ref_multiply,
        [GP_OP_MULTIPLY_SUM] = gp_ref_multiply_sum,
        [GP_OP_CONCAT] = gp_ref_concat,
        [GP_OP_SLICE] = gp_ref_slice,
        [GP_OP_PAD] = gp_ref_pad,
        [GP_OP_TRANSPOSE] = gp_ref_transpose,
        [GP_OP_SOFTMAX] = gp_ref_softmax,
        [GP_OP_SOFTMAX_BACKWARD] = gp_ref_softmax_backward,
    };

    assert((unsigned)code < GP_OP_COUNT);
    return ops[code];
}
