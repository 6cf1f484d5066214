/* fake_gpu.h: libfake_gpu.so: the CUDA runtime, cuDNN, cuBLASLt and NCCL on the host, for machines
 * without a GPU.
 *
 * The library replaces the hardware only: the plugin's own sources are compiled against NVIDIA's
 * headers and linked with it instead of NVIDIA's libraries (CMake: gradpool_cuda_fake,
 * gp_cuda_on_fake). Results are correct but slow. The purpose is to test host code around a device:
 * ordering, memory, captures, failures, hangs, and peer failures.
 *
 *   runtime.c   streams (a queue and a thread each, truly asynchronous), events, memory, copies
 *   graphs.c    captures with fork and join, instantiation, launches
 *   cudnn.c     the backend graph interface: convolutions, pointwise, reductions, genstats
 *   cublas.c    cublasLtMatmul with epilogues
 *   nccl.c      communicators between processes on this host, through a shared file
 *   kernels.c   cudaLaunchKernel() for the plugin: queues kernels that tests/fake/simt runs
 *   faults.c    injected faults
 *
 * Environment variables (daemons read them too):
 *   FAKE_GPU_FAULTS   rules separated by ';':
 *                       NAME:N=ACTION      the N-th call of NAME in the process
 *                       NAME:N+=ACTION     the N-th call and all later ones
 *                       NAME@FILE=ACTION   while FILE exists
 *                       NAME!FILE=ACTION   once, in the first process that removes FILE
 *                     ACTION: an error code, "hang", "crash" or "exit".
 *                     NAME: a function, or cudnnPlan (a plan is finalized), cudnnPlanFromText (a
 *                     plan serialized by cuDNN is loaded), ncclCommReclaim (an aborted group
 *                     releases resources shared with lost ranks).
 *                     A hang of queued work blocks the stream forever; of other calls, the caller.
 *                     Codes 700 to 799 of queued work are asynchronous and sticky, as on a device:
 *                     every later call returns them.
 *   FAKE_GPU_MEMORY   MiB of device memory [16384]
 *   FAKE_GPU_DEVICES  number of devices [1, or the number in CUDA_VISIBLE_DEVICES]
 *   FAKE_GPU_DRIVER   CUDA version of the driver [13000]
 *   FAKE_GPU_ENGINES  engines proposed by cuDNN's heuristics, at most 8 [3]; engine 1 uses tensor
 *                     cores, engine 2 is not deterministic; fault points: cudnnEngine0, ...
 *   FAKE_GPU_TILES    configurations of each engine, at most 8 [2]; they differ in the knob for the
 *                     tile size; fault points: cudnnTile0, ...
 *   FAKE_GPU_COMPILED engine number that is compiled at run time [none]
 *   FAKE_GPU_ENGINE_US  "900,0,50": duration of each engine in event timings, us. If this variable
 *                     or one of the next three is set, other work takes 1 us each in event timings.
 *   FAKE_GPU_TILE_US    additional duration of each tile, us
 *   FAKE_GPU_FUSED_US   additional duration of plans with several operations, us
 *   FAKE_GPU_ALGORITHM_US  durations of the three cuBLASLt algorithms, us; fault points:
 *                     cublasLtAlgorithm0, ...
 *   FAKE_GPU_ALIGNMENT  0: accept tensors without the declared alignment
 *   FAKE_GPU_NCCL     "remote": a peer failure is reported as ncclRemoteError, as over sockets;
 *                     otherwise ranks wait until ncclCommAbort, as over NVLink
 *   FAKE_GPU_TRACE    file for a line per created or destroyed context and per hang */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

/* ---- for tests in the same process ---- */

FAKE_EXPORT uint64_t fake_gpu_count(const char *name); /* calls since the last reset */
FAKE_EXPORT void fake_gpu_reset_counts(void);
FAKE_EXPORT void fake_gpu_faults(const char *rules); /* replaces all rules; NULL: none */
FAKE_EXPORT void fake_gpu_restart(void);    /* clears a failure of the device, as a new process does */
FAKE_EXPORT size_t fake_gpu_bytes(void);    /* allocated device memory */
FAKE_EXPORT uint32_t fake_gpu_blocks(void); /* allocated blocks, device and pinned */

/* streams, events and graphs that are not destroyed */
FAKE_EXPORT uint32_t fake_gpu_streams(void);

/* Number of violations that a real device detects later or never: a communicator freed before the
 * graphs that captured it, a double free, ... Each one is also reported on standard error. */
FAKE_EXPORT uint32_t fake_gpu_violations(void);

#endif
