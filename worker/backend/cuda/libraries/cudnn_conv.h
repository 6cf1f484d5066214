/* cudnn_conv.h -- a convolution, with what follows it, as a plan of cuDNN's backend graph interface (only: cudnn.h).
 *
 * Heuristics name engines in their order; of those that keep what was asked for (strict float32, equal bits) the first
 * whose plan finalises is taken, or one that is asked for by its name.  Plans can be made without a device, from the properties of one: so a test proves that those
 * of the zoo's networks exist. */
#ifndef GP_CUDNN_CONV_H
#define GP_CUDNN_CONV_H

#include <cudnn.h>

#include "worker/backend/cuda/libraries/compiled.h"
#include "worker/backend/cuda/libraries/device.h"

typedef struct gp_cudnn_conv gp_cudnn_conv;

/* x, weights, y, vector, image, sums, those of squares; NULL where the request has none. */
enum { GP_CUDNN_POINTERS = 7 };

/* What is known of an engine before it has a plan: its number, and of its name also a checksum of how its knobs stand. */
typedef struct gp_cudnn_engine {
    int64_t index;
    bool tensor_cores, compiled;
    bool read; /* its plan was compiled by another process */
    char name[GP_ENGINE_NAME_BYTES];
} gp_cudnn_engine;

/* handle NULL: for the device that `properties` describes (JSON), which cannot run it; an engine whose kernel was compiled
 * and only lacks the device to be loaded on counts as a plan then.  kept: where compiled plans are kept, or NULL.  engine: a
 * name, or NULL: the first that has a plan.  *workspace in bytes.  GP_EUNSUPPORTED: no engine; the message has cuDNN's last words. */
gp_status gp_cudnn_conv_new(gp_cudnn_conv **out, cudnnHandle_t handle, const char *properties,
                            const gp_compiled *kept, const gp_conv_request *request, const char *engine,
                            size_t *workspace, gp_error *err);
void gp_cudnn_conv_free(gp_cudnn_conv *conv);

gp_status gp_cudnn_conv_run(gp_cudnn_conv *conv, cudnnHandle_t handle,
                            void *const pointers[GP_CUDNN_POINTERS], void *workspace, gp_error *err);

const gp_cudnn_engine *gp_cudnn_conv_engine(const gp_cudnn_conv *conv);

/* Those that heuristics name and that keep what was asked for, each once, in their order. */
uint32_t gp_cudnn_conv_engines(cudnnHandle_t handle, const char *properties, const gp_conv_request *request,
                               gp_engine *engines, uint32_t most);

/* All that a plan is made from, on a line of less than GP_COMPILED_WHAT_BYTES, with the engine's name or "by rule". */
void gp_cudnn_conv_describe(const gp_conv_request *request, const char *engine,
                            char what[GP_COMPILED_WHAT_BYTES]);

#endif
