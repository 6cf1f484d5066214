/* loops_shape.c -- ops that move numbers and compute none: boxes of three axes copied from one place to another. */
#include "worker/backend/cpu/loops_inside.h"

#include <assert.h>

/* A value of one sample as a box; a vector is a box of one pixel. */
typedef struct box {
    float *data;
    size_t extent[3], stride[3]; /* channels, height, width */
    size_t sample;               /* floats from one sample to the next */
} box;

static box box_of(const gp_loop_call *call, const gp_loop_operand *operand)
{
    box b = { .data = operand->data, .extent = { 1, 1, 1 } };

    assert(operand->shape.rank <= 3);
    for (uint32_t i = 0; i < operand->shape.rank; i++)
        b.extent[i] = (size_t)operand->shape.dim[i];
    b.stride[0] = call->packed ? 1 : b.extent[1] * b.extent[2];
    b.stride[1] = b.extent[2] * (call->packed ? b.extent[0] : 1);
    b.stride[2] = call->packed ? b.extent[0] : 1;
    b.sample = b.extent[0] * b.extent[1] * b.extent[2];
    return b;
}

static size_t box_offset(const box *b, const int32_t start[3])
{
    return (size_t)start[0] * b->stride[0] + (size_t)start[1] * b->stride[1] +
           (size_t)start[2] * b->stride[2];
}

/* The innermost loop is over the axis along which `to` is dense. */
LOOP_INLINE void box_copy(float *to, const size_t to_stride[3], const float *from,
                          const size_t from_stride[3], const size_t extent[3], bool packed)
{
    const int outer = packed ? 1 : 0, middle = packed ? 2 : 1, inner = packed ? 0 : 2;
    const size_t ts = to_stride[inner], fs = from_stride[inner], count = extent[inner];

    for (size_t a = 0; a < extent[outer]; a++)
        for (size_t b = 0; b < extent[middle]; b++) {
            float *t = to + a * to_stride[outer] + b * to_stride[middle];
            const float *f = from + a * from_stride[outer] + b * from_stride[middle];

            if (ts == 1 && fs == 1)
                memcpy(t, f, count * sizeof(*t));
            else
                for (size_t c = 0; c < count; c++)
                    t[c * ts] = f[c * fs];
        }
}

static size_t written(const gp_loop_call *call)
{
    return (size_t)gp_shape_count(&call->out[0].shape) * call->rows;
}

/* --- concat ------------------------------------------------------------------------------------------ */

static void concat_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box y = box_of(call, &call->out[0]);

    for (size_t n = range.first; n < range.end; n++) {
        size_t at = n * y.sample;

        for (int k = 0; k < GP_OP_VALUES_MAX && call->in[k].data != NULL; k++) {
            box x = box_of(call, &call->in[k]);

            box_copy(y.data + at, y.stride, x.data + n * x.sample, x.stride, x.extent, call->packed);
            at += x.extent[call->op->number[0]] * y.stride[call->op->number[0]];
        }
    }
}

gp_status gp_loop_concat(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, written(call), concat_share);
    return GP_OK;
}

/* --- slice, pad, transpose --------------------------------------------------------------------------- */

static void slice_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t offset = box_offset(&x, call->op->number);

    for (size_t n = range.first; n < range.end; n++)
        box_copy(y.data + n * y.sample, y.stride, x.data + n * x.sample + offset, x.stride, y.extent,
                 call->packed);
}

gp_status gp_loop_slice(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, written(call), slice_share);
    return GP_OK;
}

static void pad_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t offset = box_offset(&y, call->op->number);

    for (size_t n = range.first; n < range.end; n++) {
        memset(y.data + n * y.sample, 0, y.sample * sizeof(float));
        box_copy(y.data + n * y.sample + offset, y.stride, x.data + n * x.sample, x.stride, x.extent,
                 call->packed);
    }
}

gp_status gp_loop_pad(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, written(call), pad_share);
    return GP_OK;
}

static void transpose_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t stride[3];

    for (int i = 0; i < 3; i++)
        stride[i] = x.stride[call->op->number[i]];
    for (size_t n = range.first; n < range.end; n++)
        box_copy(y.data + n * y.sample, y.stride, x.data + n * x.sample, stride, y.extent, call->packed);
}

gp_status gp_loop_transpose(const gp_loop_call *call, gp_error *err)
{
    (void)err;
    loop_shares_run(call, written(call), transpose_share);
    return GP_OK;
}
