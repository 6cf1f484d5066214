/* Reduction kernels for each element type and operator, selected from a table. */
#include "worker/comm/reduce.h"

#include <assert.h>
#include <string.h>

/* Reductions are limited by memory bandwidth, so the widest vectors pay off while a bucket is in
 * cache. The dynamic loader selects the clone before the sanitizer runtimes are initialised, so
 * sanitizer builds use none. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__OPTIMIZE__) && !defined(__clang__) &&             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KERNEL
#endif

#define SUM(a, b)     ((a) + (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))
#define MAX_NAN(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* NaN in either operand wins */

#define T             float
#define COMBINE(a, b) SUM(a, b)
#define NAME(kernel)  f32_sum_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             double
#define COMBINE(a, b) SUM(a, b)
#define NAME(kernel)  f64_sum_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             uint32_t
#define COMBINE(a, b) SUM(a, b)
#define NAME(kernel)  i32_sum_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             uint64_t
#define COMBINE(a, b) SUM(a, b)
#define NAME(kernel)  i64_sum_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             float
#define COMBINE(a, b) MAX_NAN(a, b)
#define NAME(kernel)  f32_max_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             double
#define COMBINE(a, b) MAX_NAN(a, b)
#define NAME(kernel)  f64_max_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             int32_t
#define COMBINE(a, b) MAX(a, b)
#define NAME(kernel)  i32_max_##kernel
#include "worker/comm/reduce_kernels.inc"
#define T             int64_t
#define COMBINE(a, b) MAX(a, b)
#define NAME(kernel)  i64_max_##kernel
#include "worker/comm/reduce_kernels.inc"

enum { BLOCK_BYTES = 8192 }; /* block size that keeps the partial sum in the L1 cache */

/* Kernels for one element type and operator. */
typedef struct kernels {
    void (*block)(void *sum, void *const *ranks, uint32_t world, size_t from, size_t count);
    /* only for 2 or 4 ranks */
    void (*all)(void *const *ranks, uint32_t world, size_t from, size_t count);
} kernels;

/* Return the kernels for a type and an operator. The combination must exist. */
static const kernels *find_kernels(gp_dtype type, gp_comm_reduction how)
{
    static const kernels sum[] = { [GP_F32] = { f32_sum_block, f32_sum_all },
                                   [GP_F64] = { f64_sum_block, f64_sum_all },
                                   [GP_I32] = { i32_sum_block, i32_sum_all },
                                   [GP_I64] = { i64_sum_block, i64_sum_all } };
    static const kernels max[] = { [GP_F32] = { f32_max_block, f32_max_all },
                                   [GP_F64] = { f64_max_block, f64_max_all },
                                   [GP_I32] = { i32_max_block, i32_max_all },
                                   [GP_I64] = { i64_max_block, i64_max_all } };
    const kernels *found = how == GP_COMM_SUM ? &sum[type] : &max[type];

    assert(found->block != NULL);
    return found;
}

void gp_reduce_into(void *out, void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                    gp_comm_reduction how)
{
    const kernels *kernel = find_kernels(type, how);
    size_t size = gp_dtype_bytes(type), block = BLOCK_BYTES / size;
    _Alignas(64) uint8_t sum[BLOCK_BYTES];
    uint8_t *to = out;

    for (size_t from = first; from < last; from += block, to += BLOCK_BYTES) {
        size_t count = last - from < block ? last - from : block;

        kernel->block(sum, ranks, world, from, count);
        memcpy(to, sum, count * size);
    }
}

void gp_reduce_to_all(void *const *ranks, uint32_t world, size_t first, size_t last, gp_dtype type,
                      gp_comm_reduction how)
{
    const kernels *kernel = find_kernels(type, how);
    size_t size = gp_dtype_bytes(type), block = BLOCK_BYTES / size;
    _Alignas(64) uint8_t sum[BLOCK_BYTES];

    if (first >= last)
        return;
    if (world == 2 || world == 4) {
        kernel->all(ranks, world, first, last - first);
        return;
    }
    for (size_t from = first; from < last; from += block) {
        size_t count = last - from < block ? last - from : block;

        kernel->block(sum, ranks, world, from, count);
        for (uint32_t k = 0; k < world; k++)
            memcpy((uint8_t *)ranks[k] + from * size, sum, count * size);
    }
}
