/* Helpers shared by the loops*.c files. */
#ifndef GP_CPU_LOOPS_INSIDE_H
#define GP_CPU_LOOPS_INSIDE_H

#include <string.h>

#include "worker/backend/cpu/base/clones.h"
#include "worker/backend/cpu/loops/loops.h"
#include "worker/backend/cpu/base/threads.h"

enum {
    LOOP_LANES = 32, /* elements per strip row (loops_strip.h) */
    /* with fewer elements, waking the OpenMP team takes longer than the work */
    LOOP_SHARED_MIN = 16384,
    LOOP_ROWS_MAX = 64, /* rows summed in float32 before the sum is added to a float64 */
    /* channels per cache line in packed order; threads never share a line */
    LOOP_CHANNELS_ALIGNMENT = 16,
};

/* Activation view as samples, channels and pixels. The vector elements are channels of one
 * pixel. */
typedef struct loop_image {
    float *data;
    size_t channels, pixels, channel_stride, pixel_stride, sample_stride;
} loop_image;

/* Return an operand's view in the call's order. */
static inline loop_image loop_image_of(const gp_loop_call *call, const gp_loop_operand *operand)
{
    loop_image image = { .data = operand->data, .channels = 1, .pixels = 1 };

    if (operand->shape.rank > 0)
        image.channels = (size_t)operand->shape.dim[0];
    for (uint32_t i = 1; i < operand->shape.rank; i++)
        image.pixels *= (size_t)operand->shape.dim[i];
    image.sample_stride = image.channels * image.pixels;
    image.channel_stride = call->packed ? 1 : image.pixels;
    image.pixel_stride = call->packed ? image.channels : 1;
    return image;
}

/* Indices [first, end). */
typedef struct loop_range {
    size_t first, end;
} loop_range;

/* Return the slice of [0, count) for one thread. Slices start at multiples of `alignment`. */
static inline loop_range loop_range_of(size_t count, size_t alignment, uint32_t thread, uint32_t threads)
{
    size_t units = (count + alignment - 1) / alignment;
    loop_range range = { units * thread / threads * alignment, units * (thread + 1) / threads * alignment };

    if (range.end > count)
        range.end = count;
    if (range.first > range.end)
        range.first = range.end;
    return range;
}

/* Call `share` on all threads of the call, or only on the calling thread if there are few
 * elements. */
static inline void loop_shares_run(const gp_loop_call *call, size_t elements, gp_share_fn share)
{
    gp_threads_run(elements < LOOP_SHARED_MIN ? 1 : call->threads, share, (void *)(uintptr_t)call);
}

/* Fill the rows beyond the batch with zeros, as required for gradients. */
static inline void loop_clear_rest(const gp_loop_call *call, const gp_loop_operand *operand)
{
    size_t each = (size_t)gp_shape_count(&operand->shape);

    if (operand->data != NULL)
        memset(operand->data + call->batch->count * each, 0,
               (call->rows - call->batch->count) * each * sizeof(float));
}

/* ---- loops by file; loops.c maps opcodes to them ---- */

extern const gp_loop gp_loop_batchnorm, gp_loop_batchnorm_backward, gp_loop_batchnorm_infer, gp_loop_softmax,
    gp_loop_softmax_backward;
extern const gp_loop gp_loop_concat, gp_loop_slice, gp_loop_pad, gp_loop_transpose;
extern const gp_loop gp_loop_groupnorm, gp_loop_groupnorm_backward, gp_loop_lrn, gp_loop_lrn_backward;
extern const gp_loop gp_loop_transconv2d, gp_loop_transconv2d_backward_data,
    gp_loop_transconv2d_backward_weights, gp_loop_resize, gp_loop_resize_backward;
extern const gp_loop gp_loop_custom, gp_loop_custom_backward, gp_loop_custom_loss;
extern const gp_loop gp_loop_weighted_xent, gp_loop_dice, gp_loop_value_loss;

#endif
