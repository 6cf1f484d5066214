/* kernels.c: launches of kernels.cu: queued on a stream of the fake runtime, run by
 * tests/fake/simt. */
#include <assert.h>

#include "tests/fake/gpu/parts.h"
#include "tests/fake/simt/simt.h"

static void run_kernel(void *launch)
{
    simt_run(launch);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    const simt_launch l = simt_launch_of(kernel, grid.x, block.x, args);

    assert(shared == 0);
    return fake_push(stream, FAKE_REACHED(cudaLaunchKernel), run_kernel, NULL, &l, sizeof(l));
}
