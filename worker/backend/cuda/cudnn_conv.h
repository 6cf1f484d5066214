/* cudnn_conv.h -- a convolution, with what follows it, as a plan of cuDNN's backend graph interface (only: cudnn.h).
 *
 * Heuristics name engines in their order; the first that keeps what was asked for (strict float32, equal bits) and whose
 * plan finalises is taken.  Plans can be made without a device, from the properties of one: so a test proves that those
 * of the zoo's networks exist. */
#ifndef GP_CUDNN_CONV_H
#define GP_CUDNN_CONV_H

#include <cudnn.h>

#include "worker/backend/cuda/device.h"

typedef struct gp_cudnn_conv gp_cudnn_conv;

enum { GP_CUDNN_POINTERS = 5 }; /* x, weights, y, vector, image; NULL where the request has none */

/* handle NULL: for the device that `properties` describes (JSON), which cannot run it; an engine whose kernel was compiled
 * and only lacks the device to be loaded on counts as a plan then.  *workspace in bytes.
 * GP_EUNSUPPORTED: no engine; the message has cuDNN's last words. */
gp_status gp_cudnn_conv_new(gp_cudnn_conv **out, cudnnHandle_t handle, const char *properties,
                            const gp_conv_request *request, size_t *workspace, gp_error *err);
void gp_cudnn_conv_free(gp_cudnn_conv *conv);

gp_status gp_cudnn_conv_run(gp_cudnn_conv *conv, cudnnHandle_t handle,
                            void *const pointers[GP_CUDNN_POINTERS], void *workspace, gp_error *err);

/* Which engine, and whether it is of tensor cores; for tests and benchmarks. */
int64_t gp_cudnn_conv_engine(const gp_cudnn_conv *conv, bool *tensor_cores);

#endif
