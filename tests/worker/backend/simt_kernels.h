/* simt_kernels.h: kernels for test_simt.c, half of them with a planted fault. They read f[0] and
 * write f[1] unless the comment says otherwise. */
#ifndef SIMT_KERNELS_H
#define SIMT_KERNELS_H

#include "tests/fake/simt/simt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sum of each block, by shuffles and shared memory. */
void block_sums(const gp_kernel_args args, uint32_t count);

/* The same without the barrier between writing and reading shared memory. */
void block_sums_without_barrier(const gp_kernel_args args, uint32_t count);

/* Reverse each block twice. */
void block_reversed_twice(const gp_kernel_args args, uint32_t count);

/* The same without the barrier between the two times, which write the same shared memory. */
void block_reversed_twice_without_barrier(const gp_kernel_args args, uint32_t count);

/* An element per thread, read from a neighbour thread's output. */
void neighbour_output(const gp_kernel_args args, uint32_t count);

/* All threads reach a barrier, half of them in a different source line. */
void divergent_barrier(const gp_kernel_args args, uint32_t count);

/* Half of the threads exit before a barrier. */
void exit_before_barrier(const gp_kernel_args args, uint32_t count);

/* A shuffle of all lanes that half of them do not reach. */
void divergent_shuffle(const gp_kernel_args args, uint32_t count);

/* A shuffle from a lane that the mask excludes. */
void shuffle_from_excluded_lane(const gp_kernel_args args, uint32_t count);

/* Copy 16 bytes per thread, starting n[0] floats after f[0]. */
void copy_of_16_bytes(const gp_kernel_args args, uint32_t count);

/* Write past the end of shared memory. */
void shared_overflow(const gp_kernel_args args, uint32_t count);

/* f[1]: number of threads, largest index and ballot of the odd lanes; atomic. */
void atomic_counts(const gp_kernel_args args, uint32_t count);

/* f[1]: shuffles of each kind, 4 floats per thread. */
void shuffles(const gp_kernel_args args, uint32_t count);

/* Convert with the device's code: all fp16 values to f[1], the float32 values of f[0] to x[0]
 * (fp16) and y[0] (pairs of bf16). */
void conversions(const gp_kernel_args args, uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
