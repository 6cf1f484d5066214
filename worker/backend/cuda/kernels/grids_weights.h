/* Weights from the order of the blob to that of a library, and their gradients back. Included by
 * grids.h. */

namespace
{

/* ---- weights ---- */

template <int NARROW> PART void eight_put(void *to, uint32_t at, const float values[8])
{
    if (NARROW == GP_WIDE) {
        ::floats_put((float *)to + at, 4, values);
        ::floats_put((float *)to + at + 4, 4, values + 4);
    } else {
        uint16_t narrow[8];
        uint4 word;

#pragma unroll
        for (int k = 0; k < 8; k++)
            narrow[k] = number_narrow(NARROW, values[k]);
        memcpy(&word, narrow, sizeof(word));
        *(uint4 *)((uint16_t *)to + at) = word;
    }
}

/* Work items of a thread: first, first + step, ... below count. */
struct items {
    uint32_t first, step, count;
};

/* VECTORS: there is one pixel, and f[0] has vectors of four numbers. */
template <int NARROW, bool VECTORS> PART void weights_pack(const gp_kernel_args &a, const items &own)
{
    const uint32_t stored = a.n[0], pixels = VECTORS ? 1 : a.n[1], inputs = a.n[2], eights = (stored + 7) / 8;

    for (uint32_t i = own.first; i < own.count; i += own.step) {
        const uint32_t o = i / eights, first = 8 * (i - o * eights), last = inputs - first;
        const float *from = a.f[0] + (o * inputs + first) * pixels;
        uint32_t at = o * pixels * stored + first;

#pragma unroll 1
        for (uint32_t p = 0; p < pixels; p++, at += stored) {
            float values[8];

            if (VECTORS && first + 8 <= inputs) {
                ::floats_get(values, 4, from);
                ::floats_get(values + 4, 4, from + 4);
            } else {
#pragma unroll
                for (uint32_t k = 0; k < 8; k++)
                    values[k] = first < inputs && k < last ? from[k * pixels + p] : 0.0f;
            }
            eight_put<NARROW>(a.y[0].data, at, values);
        }
    }
}

/* weights_pack for eight inputs at a time, without batch norm. n[0] is a multiple of 8, or there
 * is one output and memory for a multiple of 8. kind 1: P is 1 and f[0] has vectors of 16 bytes.
 * Items: outputs times eights of inputs. */
template <int NARROW> PART void wide_weights_pack(const gp_kernel_args &a, const items &own)
{
    if (a.kind == 1)
        weights_pack<NARROW, true>(a, own);
    else
        weights_pack<NARROW, false>(a, own);
}

PART void weights_copy(const gp_kernel_args &a, const items &own)
{
    switch (a.number[0]) {
    case GP_KERNEL_COPY_WIDE:
        if (a.y[0].narrow == GP_NARROW_BF16)
            wide_weights_pack<GP_NARROW_BF16>(a, own);
        else if (a.y[0].narrow == GP_NARROW_F16)
            wide_weights_pack<GP_NARROW_F16>(a, own);
        else
            wide_weights_pack<GP_WIDE>(a, own);
        break;
    case GP_KERNEL_COPY_ELEMENTS:
        for (uint32_t i = own.first; i < own.count; i += own.step)
            body_weights_pack(&a, i);
        break;
    default:
        for (uint32_t i = own.first; i < own.count; i += own.step)
            body_vector_pack(&a, i);
        break;
    }
}

/* Call f(args, items) with the arguments of each block's copy, and the items of a thread in it.
 * bytes: the copies; index: the copy of each block. */
template <class F> PART void with_copies(const gp_kernel_args &a, uint32_t count, F f)
{
    enum { COPY_WORDS = sizeof(gp_kernel_copy) / sizeof(uint32_t) };
    __shared__ gp_kernel_copy shared;

#pragma unroll 1
    for (uint32_t block = blockIdx.x; block < count / THREADS; block += gridDim.x) {
        const uint32_t *from = (const uint32_t *)((const gp_kernel_copy *)a.bytes + a.index[block]);

        for (uint32_t i = threadIdx.x; i < COPY_WORDS; i += THREADS)
            ((uint32_t *)&shared)[i] = __ldg(from + i);
        __syncthreads();
        f(shared.args, items{ (block - shared.first_block) * THREADS + threadIdx.x, shared.blocks * THREADS,
                              shared.count });
        __syncthreads();
    }
}

/* Copy weights and biases. Arguments: see with_copies(). */
GRID grid_prepare_weights(GRID_ARGS count)
{
    with_copies(args, count, [](const gp_kernel_args &a, const items &own) { weights_copy(a, own); });
}

/* ---- gradients ---- */

/* Index in x[0] of a weight that is given in the order of the blob. */
struct weight_place {
    uint32_t pixel, input, at;
};

PART weight_place weight_place_of(const gp_kernel_args &a, uint32_t e)
{
    const uint32_t inputs = a.n[0], pixels = a.n[1], stored = a.n[2], row = e / pixels, o = row / inputs,
                   p = e - row * pixels, in = row - o * inputs;

    return { p, in, (o * pixels + p) * stored + in };
}

PART void weight_place_next(const gp_kernel_args &a, weight_place &w)
{
    const uint32_t inputs = a.n[0], pixels = a.n[1], stored = a.n[2];

    w.at += stored;
    if (++w.pixel < pixels)
        return;
    w.pixel = 0;
    if (++w.input < inputs) {
        w.at = w.at - pixels * stored + 1;
    } else {
        w.input = 0;
        w.at = w.at - inputs + 1;
    }
}

template <int NARROW> PART float weight_slope(const gp_kernel_args &a, uint32_t at)
{
    return NARROW == GP_WIDE ? ((const float *)a.x[0].data)[at]
                             : number_wide(NARROW, ((const uint16_t *)a.x[0].data)[at]);
}

/* own: the thread and the number of all threads. */
template <int NARROW> PART void weights_unpack(const gp_kernel_args &a, const items &own)
{
    const uint32_t count = (uint32_t)a.count, thread = own.first,
                   before = (uint32_t)(-(uintptr_t)a.f[0] / sizeof(float) % 4),
                   head = before < count ? before : count, vectors = (count - head) / 4,
                   tail = (count - head) % 4;
    const bool first = a.call->first != 0;
    const float unscale = a.call->unscale;

    for (uint32_t v = thread; v < vectors; v += own.step) {
        weight_place w = weight_place_of(a, head + 4 * v);
        float *out = a.f[0] + head + 4 * v, slopes[4], old[4] = {};

#pragma unroll
        for (int k = 0; k < 4; k++) {
            slopes[k] = weight_slope<NARROW>(a, w.at);
            weight_place_next(a, w);
        }
        if (!first)
            ::floats_get(old, 4, out);
#pragma unroll
        for (int k = 0; k < 4; k++)
            slopes[k] = fmaf(slopes[k], unscale, old[k]);
        ::floats_put(out, 4, slopes);
    }
    if (thread < head + tail) {
        const uint32_t e = thread < head ? thread : 4 * vectors + thread;

        a.f[0][e] =
            fmaf(weight_slope<NARROW>(a, weight_place_of(a, e).at), unscale, first ? 0.0f : a.f[0][e]);
    }
}

/* Unpack a weight gradient x[0] [O][P][stored] and add it to f[0] [O][I][P], which has `count`
 * elements and is a part of the blob at any element. n[0]: inputs, n[1]: P, n[2]: stored inputs. */
PART void any_weights_unpack(const gp_kernel_args &a, const items &own)
{
    if (a.x[0].narrow == GP_NARROW_BF16)
        weights_unpack<GP_NARROW_BF16>(a, own);
    else if (a.x[0].narrow == GP_NARROW_F16)
        weights_unpack<GP_NARROW_F16>(a, own);
    else
        weights_unpack<GP_WIDE>(a, own);
}

GRID grid_weights_unpack(GRID_ARGS count)
{
    any_weights_unpack(args, { blockIdx.x * THREADS + threadIdx.x, gridDim.x * THREADS, count });
}

/* Add to the gradients of several parameters. Arguments: see with_copies(). */
GRID grid_add_gradients(GRID_ARGS count)
{
    with_copies(args, count, [](const gp_kernel_args &a, const items &own) {
        if (a.number[0] == GP_KERNEL_ADD_UNPACKED)
            any_weights_unpack(a, own);
        else if (a.number[0] == GP_KERNEL_ADD_PARTS)
            for (uint32_t i = own.first; i < own.count; i += own.step)
                body_parts_add(&a, i);
        else
            for (uint32_t i = own.first; i < own.count; i += own.step)
                body_parts_add_warp(&a, i);
    });
}

} // namespace
