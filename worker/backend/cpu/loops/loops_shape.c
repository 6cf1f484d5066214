/* Ops that move elements without arithmetic: they copy three-dimensional boxes. */
#include "worker/backend/cpu/loops/loops_inside.h"

#include <assert.h>

/* Sample view as a three-dimensional box. A vector is a box with one pixel. */
typedef struct box {
    char *data;
    size_t bytes;                /* element size */
    size_t extent[3], stride[3]; /* extent and stride of channels, height and width, in elements */
    size_t sample;               /* elements between samples */
} box;

static box box_of(const gp_loop_call *call, const gp_loop_operand *operand)
{
    box b = { .data = (char *)operand->data,
              .bytes = call->narrow ? sizeof(uint16_t) : sizeof(float),
              .extent = { 1, 1, 1 } };

    assert(operand->shape.rank <= 3);
    for (uint32_t i = 0; i < operand->shape.rank; i++)
        b.extent[i] = (size_t)operand->shape.dim[i];
    b.stride[0] = call->packed ? 1 : b.extent[1] * b.extent[2];
    b.stride[1] = b.extent[2] * (call->packed ? b.extent[0] : 1);
    b.stride[2] = call->packed ? b.extent[0] : 1;
    b.sample = b.extent[0] * b.extent[1] * b.extent[2];
    return b;
}

/* Return an element's offset in elements. */
static size_t box_offset(const box *b, const int32_t start[3])
{
    return (size_t)start[0] * b->stride[0] + (size_t)start[1] * b->stride[1] +
           (size_t)start[2] * b->stride[2];
}

static char *box_at(const box *b, size_t offset)
{
    return b->data + offset * b->bytes;
}

/* Copy a box. The innermost loop runs over the axis along which `to` is dense. */
LOOP_INLINE void box_copy(char *to, const size_t to_stride[3], const char *from, const size_t from_stride[3],
                          const size_t extent[3], bool packed, size_t bytes)
{
    const int outer = packed ? 1 : 0, middle = packed ? 2 : 1, inner = packed ? 0 : 2;
    const size_t ts = to_stride[inner], fs = from_stride[inner], count = extent[inner];

    for (size_t a = 0; a < extent[outer]; a++)
        for (size_t b = 0; b < extent[middle]; b++) {
            char *t = to + (a * to_stride[outer] + b * to_stride[middle]) * bytes;
            const char *f = from + (a * from_stride[outer] + b * from_stride[middle]) * bytes;

            if (ts == 1 && fs == 1)
                memcpy(t, f, count * bytes);
            else
                for (size_t c = 0; c < count; c++)
                    memcpy(t + c * ts * bytes, f + c * fs * bytes, bytes);
        }
}

/* Copy a box with an element size that the compiler knows. */
static void box_move(const gp_loop_call *call, char *to, const size_t to_stride[3], const char *from,
                     const size_t from_stride[3], const size_t extent[3])
{
    if (call->narrow)
        box_copy(to, to_stride, from, from_stride, extent, call->packed, sizeof(uint16_t));
    else
        box_copy(to, to_stride, from, from_stride, extent, call->packed, sizeof(float));
}

/* ---- concat ---- */

static void concat_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box y = box_of(call, &call->out[0]);

    for (size_t n = range.first; n < range.end; n++) {
        size_t at = n * y.sample;

        for (int k = 0; k < GP_OP_VALUES_MAX && call->in[k].data != NULL; k++) {
            box x = box_of(call, &call->in[k]);

            box_move(call, box_at(&y, at), y.stride, box_at(&x, n * x.sample), x.stride, x.extent);
            at += x.extent[call->op->number[0]] * y.stride[call->op->number[0]];
        }
    }
}

const gp_loop gp_loop_concat = { .share = concat_share, .narrow = true };

/* ---- slice, pad, transpose ---- */

static void slice_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t offset = box_offset(&x, call->op->number);

    for (size_t n = range.first; n < range.end; n++)
        box_move(call, box_at(&y, n * y.sample), y.stride, box_at(&x, n * x.sample + offset), x.stride,
                 y.extent);
}

const gp_loop gp_loop_slice = { .share = slice_share, .narrow = true };

static void pad_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t offset = box_offset(&y, call->op->number);

    for (size_t n = range.first; n < range.end; n++) {
        memset(box_at(&y, n * y.sample), 0, y.sample * y.bytes);
        box_move(call, box_at(&y, n * y.sample + offset), y.stride, box_at(&x, n * x.sample), x.stride,
                 x.extent);
    }
}

const gp_loop gp_loop_pad = { .share = pad_share, .narrow = true };

static void transpose_share(void *context, uint32_t thread, uint32_t threads)
{
    const gp_loop_call *call = context;
    loop_range range = loop_range_of(call->rows, 1, thread, threads);
    box x = box_of(call, &call->in[0]), y = box_of(call, &call->out[0]);
    size_t stride[3];

    for (int i = 0; i < 3; i++)
        stride[i] = x.stride[call->op->number[i]];
    for (size_t n = range.first; n < range.end; n++)
        box_move(call, box_at(&y, n * y.sample), y.stride, box_at(&x, n * x.sample), stride, y.extent);
}

const gp_loop gp_loop_transpose = { .share = transpose_share, .narrow = true };
