/* fake_gpu.h -- libfake_gpu.so: the CUDA runtime, cuDNN, cuBLASLt and NCCL on the host, for machines without a GPU.
 *
 * It stands in for hardware only: the plugin's own sources are compiled against NVIDIA's headers and linked to it instead of
 * the libraries (CMake: gradpool_cuda_fake, gp_cuda_on_fake).  What it computes is right and slow; what it is for is what a
 * host program does with a device: order, memory, captures, failures, hangs, peers that die.
 *
 *   runtime.c   streams (a queue and a thread each, really asynchronous), events, memory, copies
 *   graphs.c    captures with fork and join, instantiation, launches
 *   cudnn.c     the backend graph interface: convolutions, pointwise, reductions, genstats
 *   cublas.c    cublasLtMatmul with its epilogues
 *   nccl.c      communicators of processes of this host, through a shared file
 *   kernels.c   gp_kernel_launch() of the plugin: bodies*.h in a loop
 *   faults.c    what fails when
 *
 * The environment (also of a daemon):
 *   FAKE_GPU_FAULTS   rules, ';' between them: NAME:N=WHAT (the N-th call of NAME in the process), NAME:N+=WHAT (from
 *                     then on), NAME@FILE=WHAT (while the file is there), NAME!FILE=WHAT (once, in whichever process
 *                     removes the file).  WHAT: a code, "hang", "crash", "exit".
 *                     Names besides those of functions: cudnnPlan (a plan is finalised), cudnnPlanFromText (one that was written
 *                     by cuDNN), ncclCommReclaim (what an aborted group shares with ranks that are gone is given back).
 *                     A hang of what is queued stops its stream for ever; of another call, the caller.  Codes 700 to 799
 *                     of what is queued come as a device's do: later, and then from every call.
 *   FAKE_GPU_MEMORY   MiB of device memory (16384)
 *   FAKE_GPU_DEVICES  how many (1, or as many as CUDA_VISIBLE_DEVICES names)
 *   FAKE_GPU_DRIVER   the driver's CUDA version (13000)
 *   FAKE_GPU_ENGINES  engines that cuDNN's heuristics name (3, at most 8); number 1 uses tensor cores, 2 is not
 *                     deterministic; a call of each has a name of its own: cudnnEngine0, ...
 *   FAKE_GPU_COMPILED number of the engine that is compiled when it is asked for (none)
 *   FAKE_GPU_ENGINE_US  "900,0,50": what a run of each engine takes for those who time it by events.  Where this or one of the next
 *                     two is set, that is all that takes time, but for 1 us for each piece of work: not what the host takes
 *   FAKE_GPU_FUSED_US   and of a plan of several operations
 *   FAKE_GPU_ALGORITHM_US  the same of the three algorithms of cuBLASLt, cublasLtAlgorithm0, ...
 *   FAKE_GPU_ALIGNMENT  0: tensors need not be aligned as they were said to be
 *   FAKE_GPU_NCCL     "remote": a rank whose peer process is gone learns it (ncclRemoteError), as over sockets; otherwise
 *                     it waits until ncclCommAbort, as over NVLink
 *   FAKE_GPU_TRACE    a file that gets a line for each context that is made or destroyed, and for who hangs
 */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H

#include <stddef.h>
#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

/* ---- for tests in the same process ---- */

FAKE_EXPORT uint64_t fake_gpu_count(const char *name); /* calls of it until now */
FAKE_EXPORT void fake_gpu_reset_counts(void);
FAKE_EXPORT void fake_gpu_faults(const char *rules); /* in place of those before; NULL: none */
FAKE_EXPORT size_t fake_gpu_bytes(void);             /* of device memory that are taken */
FAKE_EXPORT uint32_t fake_gpu_blocks(void);          /* of device and pinned memory */
FAKE_EXPORT uint32_t fake_gpu_streams(void);         /* that were not destroyed, events and graphs too */
/* What a real device punishes later or never: a communicator that ended before the graphs that captured it, memory that
 * was freed twice, ...; each is told on standard error. */
FAKE_EXPORT uint32_t fake_gpu_violations(void);

#endif
