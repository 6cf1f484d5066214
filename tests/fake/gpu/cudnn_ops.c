/* cudnn_ops.c: graph operations, executed in order in float64; each result is rounded to the tensor
 * type. */
#include <assert.h>
#include <stdlib.h>

#include "tests/fake/gpu/cudnn_parts.h"

static const tensor *operand(const execution *e, const bag *op, int name)
{
    const bag *b = bag_link(op, name, 0);
    int64_t id = b == NULL ? 0 : bag_integer(b, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0, 0);

    for (int i = 0; b != NULL && i < e->tensor_count; i++)
        if (e->tensors[i].id == id)
            return &e->tensors[i];
    return NULL;
}

/* Compute the offset of an element. A dimension of 1 is broadcast. */
static int64_t offset(const tensor *t, const int64_t *index)
{
    int64_t at = 0;

    for (int64_t i = 0; i < t->rank; i++)
        at += t->dim[i] == 1 ? 0 : index[i] * t->stride[i];
    return at;
}

static double get(const tensor *t, const int64_t *index)
{
    return t->at == NULL ? t->by_value : number_get(t->at, t->type, offset(t, index));
}

static void put(const tensor *t, const int64_t *index, double value)
{
    number_put(t->at, t->type, offset(t, index), value);
}

/* Advance to the next index within dim, last axis fastest. Return false after the last one. */
static bool step(int64_t *index, const int64_t *dim, int64_t rank)
{
    for (int64_t i = rank; i-- > 0;) {
        if (++index[i] < dim[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static int64_t elements(const tensor *t)
{
    int64_t count = 1;

    for (int64_t i = 0; i < t->rank; i++)
        count *= t->dim[i];
    return count;
}

/* ---- convolutions ---- */

typedef struct conv {
    const tensor *x, *w, *y;
    const bag *window;
    double alpha, beta;
    int64_t stride[2], dilation[2], padding[2]; /* of the window */
} conv;

static void window_read(conv *c)
{
    for (int i = 0; i < 2; i++) {
        c->stride[i] = bag_integer(c->window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i, 1);
        c->dilation[i] = bag_integer(c->window, CUDNN_ATTR_CONVOLUTION_DILATIONS, i, 1);
        c->padding[i] = bag_integer(c->window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i, 0);
    }
}

/* Read all tensor elements in dimension order, so that convolutions do not convert them for every
 * tap. */
static double *numbers(const tensor *t)
{
    double *all = calloc((size_t)elements(t), sizeof(*all));
    int64_t index[TENSOR_DIMS] = { 0 };
    size_t n = 0;

    assert(all != NULL);
    do
        all[n++] = get(t, index);
    while (step(index, t->dim, t->rank));
    return all;
}

typedef enum pass { FORWARD, DATA, WEIGHTS } pass;

/* Visit all taps of output y, in the order of w. Return the sum of products, add dy times w to x,
 * or add dy times x to w, depending on the pass. */
static inline double taps(const conv *c, pass what, double *x, double *w, const int64_t y[4], double dy)
{
    const int64_t *xd = c->x->dim, *wd = c->w->dim, *stride = c->stride, *padding = c->padding;
    const int64_t outputs = wd[0] / (xd[1] / wd[1]), first = y[1] / outputs * wd[1];
    double sum = 0.0;

    for (int64_t i = 0; i < wd[1]; i++)
        for (int64_t r = 0; r < wd[2]; r++) {
            int64_t h = y[2] * stride[0] + r * c->dilation[0] - padding[0];
            int64_t row = ((y[0] * xd[1] + first + i) * xd[2] + h) * xd[3];
            int64_t of = ((y[1] * wd[1] + i) * wd[2] + r) * wd[3];

            for (int64_t s = 0; s < wd[3] && h >= 0 && h < xd[2]; s++) {
                int64_t v = y[3] * stride[1] + s * c->dilation[1] - padding[1];

                if (v < 0 || v >= xd[3])
                    continue;
                if (what == FORWARD)
                    sum += x[row + v] * w[of + s];
                else if (what == DATA)
                    x[row + v] += dy * w[of + s];
                else
                    w[of + s] += dy * x[row + v];
            }
        }
    return sum;
}

static void conv_forward(conv *c)
{
    double *x = numbers(c->x), *w = numbers(c->w);
    int64_t y[TENSOR_DIMS] = { 0 };

    window_read(c);
    do
        put(c->y, y,
            c->alpha * taps(c, FORWARD, x, w, y, 0.0) + (c->beta != 0.0 ? c->beta * get(c->y, y) : 0.0));
    while (step(y, c->y->dim, 4));
    free(x);
    free(w);
}

/* Compute the gradient of x or of w with the same taps. Sums stay in float64 until the end. */
static void conv_backward(conv *c, const tensor *out)
{
    double *sums = calloc((size_t)elements(out), sizeof(*sums)), *other = numbers(out == c->x ? c->w : c->x);
    int64_t y[TENSOR_DIMS] = { 0 }, index[TENSOR_DIMS] = { 0 };
    size_t n = 0;

    assert(sums != NULL);
    window_read(c);
    do {
        if (out == c->x)
            taps(c, DATA, sums, other, y, get(c->y, y));
        else
            taps(c, WEIGHTS, other, sums, y, get(c->y, y));
    } while (step(y, c->y->dim, 4));
    do {
        put(out, index, c->alpha * sums[n] + (c->beta != 0.0 ? c->beta * get(out, index) : 0.0));
        n++;
    } while (step(index, out->dim, 4));
    free(sums);
    free(other);
}

static conv conv_of(const tensor *x, const tensor *w, const tensor *y, const bag *window, double alpha,
                    double beta)
{
    conv c = { .x = x, .w = w, .y = y, .window = window, .alpha = alpha, .beta = beta };

    return c;
}

static void run_conv_forward(const execution *e, const bag *op)
{
    conv c = conv_of(operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y),
                     bag_link(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0));

    conv_forward(&c);
}

static void run_conv_data(const execution *e, const bag *op)
{
    conv c = conv_of(operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY),
                     bag_link(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0));

    conv_backward(&c, c.x);
}

static void run_conv_weights(const execution *e, const bag *op)
{
    conv c = conv_of(operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW),
                     operand(e, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY),
                     bag_link(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0),
                     bag_real(op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0));

    conv_backward(&c, c.w);
}

/* ---- pointwise ---- */

static double clip(const bag *how, double x)
{
    double lower = bag_real(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0);
    double upper = bag_real(how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);
    double slope = bag_real(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0.0);

    return x < lower ? lower + slope * (x - lower) : x > upper ? upper : x;
}

static double clip_slope(const bag *how, double x)
{
    double lower = bag_real(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0);
    double upper = bag_real(how, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);

    return x > lower && x < upper ? 1.0 : bag_real(how, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0.0);
}

/* Apply a pointwise mode of one or two operands; backward modes take dy and x. */
static double combine(const bag *how, int64_t mode, double x, double b)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE:
        return x + b * b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_MAX:
        return x > b ? x : b;
    case CUDNN_POINTWISE_MIN:
        return x < b ? x : b;
    case CUDNN_POINTWISE_POW:
        return pow(x, b);
    case CUDNN_POINTWISE_CMP_EQ:
        return x == b;
    case CUDNN_POINTWISE_CMP_NEQ:
        return x != b;
    case CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_CMP_LT:
        return x < b;
    case CUDNN_POINTWISE_CMP_LE:
        return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND:
        return x != 0.0 && b != 0.0;
    case CUDNN_POINTWISE_LOGICAL_OR:
        return x != 0.0 || b != 0.0;
    case CUDNN_POINTWISE_LOGICAL_NOT:
        return x == 0.0;
    case CUDNN_POINTWISE_ABS:
        return fabs(x);
    case CUDNN_POINTWISE_NEG:
        return -x;
    case CUDNN_POINTWISE_EXP:
        return exp(x);
    case CUDNN_POINTWISE_LOG:
        return log(x);
    case CUDNN_POINTWISE_SQRT:
        return sqrt(x);
    case CUDNN_POINTWISE_RSQRT:
        return 1.0 / sqrt(x);
    case CUDNN_POINTWISE_RECIPROCAL:
        return 1.0 / x;
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_RELU_FWD:
        return clip(how, x);
    case CUDNN_POINTWISE_RELU_BWD: /* x is dy here */
        return x * clip_slope(how, b);
    case CUDNN_POINTWISE_TANH_FWD:
        return tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD:
        return 1.0 / (1.0 + exp(-x));
    default:
        return NAN;
    }
}

static bool mode_known(int64_t mode)
{
    return mode == CUDNN_POINTWISE_BINARY_SELECT || !isnan(combine(NULL, mode, 0.5, 0.5));
}

static void run_pointwise(const execution *e, const bag *op)
{
    const bag *how = bag_link(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    int64_t mode = bag_integer(how, CUDNN_ATTR_POINTWISE_MODE, 0, -1);
    bool backward = mode >= 200 && mode < 300;
    const tensor *x = operand(e, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const tensor *b = operand(e, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const tensor *t = operand(e, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const tensor *y = operand(
        e, op, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    double alpha1 = bag_real(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0);
    double alpha2 = bag_real(op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0);
    int64_t index[TENSOR_DIMS] = { 0 };

    if (backward) {
        b = x;
        x = operand(e, op, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC);
    }
    do {
        double left = alpha1 * get(x, index), right = b == NULL ? 0.0 : alpha2 * get(b, index);

        if (mode == CUDNN_POINTWISE_BINARY_SELECT)
            put(y, index, get(t, index) != 0.0 ? left : right);
        else
            put(y, index, combine(how, mode, left, right));
    } while (step(index, y->dim, y->rank));
}

/* ---- sums ---- */

static void run_reduction(const execution *e, const bag *op)
{
    const bag *how = bag_link(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0);
    int64_t kind = bag_integer(how, CUDNN_ATTR_REDUCTION_OPERATOR, 0, CUDNN_REDUCE_TENSOR_ADD);
    const tensor *x = operand(e, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const tensor *y = operand(e, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    double *sums = calloc((size_t)elements(y), sizeof(*sums));
    int64_t index[TENSOR_DIMS] = { 0 }, out[TENSOR_DIMS] = { 0 };
    size_t n = 0;

    assert(sums != NULL);
    do {
        double value = get(x, index);
        int64_t place = 0;

        for (int64_t i = 0; i < y->rank; i++)
            place = place * y->dim[i] + (y->dim[i] == 1 ? 0 : index[i]);
        sums[place] = kind == CUDNN_REDUCE_TENSOR_AMAX ? fmax(sums[place], fabs(value)) : sums[place] + value;
    } while (step(index, x->dim, x->rank));
    do {
        put(y, out,
            kind == CUDNN_REDUCE_TENSOR_AVG ? sums[n] * (double)elements(y) / (double)elements(x) : sums[n]);
        n++;
    } while (step(out, y->dim, y->rank));
    free(sums);
}

static void run_genstats(const execution *e, const bag *op)
{
    const tensor *x = operand(e, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
    const tensor *outs[2] = { operand(e, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
                              operand(e, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC) };
    double *sums = calloc((size_t)x->dim[1] * 2, sizeof(*sums));
    int64_t index[TENSOR_DIMS] = { 0 };

    assert(sums != NULL);
    do {
        double value = get(x, index);

        sums[2 * index[1]] += value;
        sums[2 * index[1] + 1] += value * value;
    } while (step(index, x->dim, x->rank));
    for (int k = 0; k < 2; k++)
        for (int64_t c = 0; c < x->dim[1]; c++)
            put(outs[k], (int64_t[TENSOR_DIMS]){ 0, c }, sums[2 * c + k]);
    free(sums);
}

static void run_matmul(const execution *e, const bag *op)
{
    const tensor *a = operand(e, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    const tensor *b = operand(e, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    const tensor *c = operand(e, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    int64_t index[TENSOR_DIMS] = { 0 };

    do {
        int64_t left[TENSOR_DIMS], right[TENSOR_DIMS];
        double sum = 0.0;

        memcpy(left, index, sizeof(left));
        memcpy(right, index, sizeof(right));
        for (int64_t k = 0; k < a->dim[a->rank - 1]; k++) {
            left[a->rank - 1] = right[b->rank - 2] = k;
            sum += get(a, left) * get(b, right);
        }
        put(c, index, sum);
    } while (step(index, c->dim, c->rank));
}

/* ---- a graph ---- */

typedef void (*op_run)(const execution *e, const bag *op);

static op_run op_find(const bag *op)
{
    switch ((int)op->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return run_conv_forward;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return run_conv_data;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return run_conv_weights;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return mode_known(bag_integer(bag_link(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0),
                                      CUDNN_ATTR_POINTWISE_MODE, 0, -1))
                   ? run_pointwise
                   : NULL;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return run_reduction;
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return run_genstats;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return run_matmul;
    default:
        return NULL;
    }
}

bool cudnn_ops_known(const bag *graph)
{
    const bag *op;

    for (int64_t i = 0; (op = bag_link(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i)) != NULL; i++)
        if (op_find(op) == NULL)
            return false;
    return true;
}

void cudnn_ops_run(execution *e)
{
    const bag *op;

    for (int64_t i = 0; (op = bag_link(e->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i)) != NULL; i++)
        op_find(op)(e, op);
}
