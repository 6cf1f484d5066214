/* Lower convolutions with few channels to the kernels of grids_conv.h.
 *
 * In strict float32 a library pads the channels to multiples of 32, for example 20 or 50, and
 * cannot use tensor cores. These kernels pad to multiples of 4. Convolutions with more channels
 * waste nothing in a library, and their operands do not fit in shared memory. */
#include "worker/backend/cuda/plan/lower_inside.h"

enum {
    FEW = 4, /* channels of a thread, as in grids_conv.h */
    THREADS = GP_KERNEL_THREADS,
    SHARED = GP_KERNEL_CONV_SHARED,
    LIBRARY_TILE = 32,
    CHANNELS_MAX = 2 * LIBRARY_TILE,
    INPUTS_MIN = FEW, /* with fewer, memory limits a library's kernel too */
    BLOCKS = 2 * 132  /* of a weight gradient: a multiple of the multiprocessors */
};

/* A convolution that the kernels support. */
typedef struct shape {
    uint32_t kernel, span, spans;
    const gp_kernel_image *x, *y;
} shape;

static uint32_t blocks_of(uint64_t count, uint32_t each)
{
    return (uint32_t)((count + each - 1) / each);
}

static bool is_dense(const gp_kernel_image *image)
{
    return !image->narrow && image->pixel_stride == 1 && image->channel_stride == image->pixels;
}

/* Return true if a library's tile has at least a quarter more channels. */
static bool is_padded(uint32_t channels)
{
    return channels <= CHANNELS_MAX && 4 * blocks_of(channels, LIBRARY_TILE) * LIBRARY_TILE >= 5 * channels;
}

static bool shape_of(shape *out, const lowering *l, gp_conv_pass pass, const gp_kernel_image *x,
                     const gp_kernel_image *y)
{
    const gp_window *w = &l->op->window;
    const uint32_t nines = blocks_of(y->width, 9), fives = blocks_of(y->width, 5);

    if (l->plan->tf32 || !is_dense(x) || !is_dense(y) || w->groups != 1 || w->stride[0] != 1 ||
        w->stride[1] != 1 || w->dilation[0] != 1 || w->dilation[1] != 1 || w->kernel[0] != w->kernel[1] ||
        (w->kernel[0] != 3 && w->kernel[0] != 5) || x->channels < INPUTS_MIN ||
        !is_padded(pass == GP_CONV_DATA ? x->channels : y->channels) || x->channels > CHANNELS_MAX ||
        y->channels > CHANNELS_MAX)
        return false;
    *out = (shape){ .kernel = (uint32_t)w->kernel[0], .x = x, .y = y };
    out->span = 9 * nines <= 5 * fives ? 9 : 5;
    out->spans = out->span == 9 ? nines : fives;
    return true;
}

/* Set the arguments that all passes have. slice 0: shared memory is too small. */
static bool args_set(gp_kernel_args *args, const shape *s, uint32_t slice, uint32_t length, uint32_t rows,
                     uint32_t blocks)
{
    args->kind = (int32_t)s->span;
    args->n[0] = slice;
    args->n[1] = s->spans;
    gp_kernel_divisor(&args->n[2], length);
    gp_kernel_divisor(&args->n[4], rows);
    args->n[6] = blocks;
    args->n[7] = length;
    return slice != 0;
}

/* Divide `channels` into slices of equal size, with at most `most` in each. */
static uint32_t slice_of(uint32_t channels, uint32_t most)
{
    return most == 0 ? 0 : blocks_of(channels, blocks_of(channels, most));
}

/* Threads read a row of different images and spans at once, so an odd length avoids conflicts
 * between banks of shared memory. */
static uint32_t odd(uint32_t length)
{
    return length | 1;
}

static bool forward_args(const lowering *l, const shape *s, gp_kernel_args *args, uint64_t *threads)
{
    const uint32_t length = odd(s->spans * s->span + s->kernel - 1), rows = s->y->height + s->kernel - 1,
                   groups = blocks_of(s->y->channels, FEW), taps = s->kernel * s->kernel;
    const uint64_t items = (uint64_t)groups * s->y->height * s->spans;
    const uint32_t blocks = blocks_of(items, THREADS),
                   samples = items < THREADS ? THREADS / (uint32_t)items : 1;
    const uint64_t each = (uint64_t)samples * rows * length + groups * FEW * taps;

    *threads = (uint64_t)blocks_of(l->plan->options.micro_batch, samples) * blocks * THREADS;
    return args_set(args, s, slice_of(s->x->channels, (uint32_t)((SHARED - groups * FEW) / each)), length,
                    rows, blocks);
}

static bool data_args(const lowering *l, const shape *s, gp_kernel_args *args, uint64_t *threads)
{
    const uint32_t length = odd(s->spans * s->span), all = blocks_of(s->x->channels, FEW),
                   tall = s->y->height + s->kernel - 1, wide = s->spans * s->span + s->kernel - 1;
    const uint64_t items = (uint64_t)s->kernel * s->y->height * s->spans; /* of four channels */
    uint32_t groups, blocks;
    uint64_t tile, each;

    if (items > THREADS)
        return false;
    groups = THREADS / (uint32_t)items;
    blocks = blocks_of(all, groups < all ? groups : all);
    groups = blocks_of(all, blocks);
    tile = (uint64_t)groups * FEW * tall * wide;
    each = (uint64_t)s->y->height * length + groups * FEW * s->kernel * s->kernel;
    *threads = (uint64_t)l->plan->options.micro_batch * blocks * THREADS;
    return tile < SHARED && args_set(args, s, slice_of(s->y->channels, (uint32_t)((SHARED - tile) / each)),
                                     length, s->y->height, blocks);
}

static bool weights_args(const lowering *l, const shape *s, gp_kernel_args *args, uint64_t *threads)
{
    const uint32_t wide = s->spans * s->span, length = odd(wide + s->kernel - 1),
                   groups = blocks_of(s->y->channels, FEW), each = s->kernel * groups,
                   items = s->x->channels * each + groups, blocks = blocks_of(items, THREADS),
                   busy = items > THREADS ? items : THREADS, rows = l->plan->options.micro_batch;
    /* channels of x whose items a block has */
    const uint32_t some = (THREADS - 1) / each + 2, loaded = some < s->x->channels ? some : s->x->channels;
    const uint64_t row = (uint64_t)odd(wide) * groups * FEW + (uint64_t)loaded * length,
                   border = (uint64_t)loaded * (s->kernel - 1) * length;
    const uint32_t slice = border >= SHARED ? 0 : slice_of(s->y->height, (uint32_t)((SHARED - border) / row)),
                   samples = blocks_of((uint64_t)rows * busy, BLOCKS * THREADS);

    args->chunks = blocks_of(rows, samples);
    *threads = (uint64_t)args->chunks * blocks * THREADS;
    return args_set(args, s, slice, length, slice + s->kernel - 1, blocks);
}

bool gp_lower_direct(const lowering *l, gp_conv_pass pass, const gp_kernel_image *x, const gp_kernel_image *y,
                     gp_kernel_args *args, uint64_t *threads)
{
    shape s;

    if (!shape_of(&s, l, pass, x, y))
        return false;
    switch (pass) {
    case GP_CONV_FORWARD:
        return forward_args(l, &s, args, threads);
    case GP_CONV_DATA:
        return data_args(l, &s, args, threads);
    case GP_CONV_WEIGHTS:
        return weights_args(l, &s, args, threads);
    }
    return false;
}
