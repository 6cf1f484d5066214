/* simt.h: run CUDA kernels on the host, without a GPU.
 *
 * The host's C++ compiler compiles kernels.cu itself: language.h defines the keywords and functions
 * of CUDA, and cuda/ replaces NVIDIA's headers. simt.c runs the blocks of a launch one after the
 * other. The threads of a block are fibres, so __syncthreads() and warp shuffles work. A thread
 * runs until it waits or exits, and then the next thread runs.
 *
 * Faults that this finds:
 *   misaligned access     UBSan's alignment check, in every build
 *   access out of bounds  AddressSanitizer, also in shared memory
 *   missing barrier       shared memory starts as NaN in each block, and the order of threads and
 *                         blocks differs from launch to launch, so results are wrong or differ
 *   divergent barrier     abort() with the lines and threads, instead of a deadlock
 *
 * Kernels have the parameters of kernels.cu, one-dimensional blocks, and no dynamic shared memory.
 * Launches of several host threads run one after the other. */
#ifndef SIMT_H
#define SIMT_H

#include <stdint.h>

#include "worker/backend/cuda/kernels/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*simt_kernel)(const gp_kernel_args args, uint32_t count);

typedef struct simt_launch {
    simt_kernel kernel;
    uint32_t blocks, threads; /* threads per block, at most 1024 */
    gp_kernel_args args;
    uint32_t count;
} simt_launch;

/* Return the launch that cudaLaunchKernel() describes. Copies the arguments. */
simt_launch simt_launch_of(const void *kernel, uint32_t blocks, uint32_t threads, void **args);

/* Run all threads of a launch. */
void simt_run(const simt_launch *launch);

/* Order in which the blocks of a launch and the threads of a block run. SIMT_EACH, the default:
 * launches use the other three in rotation. */
typedef enum simt_order { SIMT_FORWARDS, SIMT_BACKWARDS, SIMT_SHUFFLED, SIMT_EACH } simt_order;

void simt_set_order(simt_order order);

/* ---- for language.h ---- */

typedef struct simt_index {
    unsigned x, y, z;
} simt_index;

extern simt_index threadIdx, blockIdx, blockDim, gridDim;

/* Wait for all threads of the block. */
void simt_barrier(uint32_t line);

/* Wait for the lanes in `mask` and return their `bits`, indexed by lane. The array is valid until
 * this thread waits again. */
const uint64_t *simt_exchange(uint32_t mask, uint64_t bits, uint32_t line);

/* Report a fault of the running thread and abort. */
void simt_fault(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
