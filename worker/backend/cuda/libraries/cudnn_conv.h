/* Convolutions with fused operations as plans of the cuDNN backend graph API. Only this module
 * includes cudnn.h.
 *
 * Heuristics list engines in order. Engines that do not meet the requirements (strict float32,
 * reproducible results) are excluded; then the first engine with a working plan is used, or the one
 * requested by name. Plans can be created without a device, from device properties, so a test
 * checks that plans exist for all networks of the zoo. */
#ifndef GP_CUDNN_CONV_H
#define GP_CUDNN_CONV_H

#include <cudnn.h>

#include "worker/backend/cuda/libraries/compiled.h"
#include "worker/backend/cuda/libraries/device.h"

typedef struct gp_cudnn_conv gp_cudnn_conv;

/* Pointer count: x, weights, y, vector, image, sums, sums of squares. NULL: not in the request. */
enum { GP_CUDNN_POINTERS = 7 };

/* Engine properties that are known before the engine has a plan. The name contains the engine
 * number and a checksum over the knobs. */
typedef struct gp_cudnn_engine {
    int64_t index;
    bool tensor_cores, compiled;
    bool read; /* the plan was compiled by another process and read from the cache */
    char name[GP_ENGINE_NAME_BYTES];
} gp_cudnn_engine;

/* Create a plan. GP_EUNSUPPORTED: no engine has one; the message includes the last error from
 * cuDNN.
 *   handle      NULL: plan for the device that `properties` describes, which cannot be executed.
 *               An engine whose kernel compiles and only lacks the device counts as having a
 *               plan.
 *   properties  JSON; used if handle is NULL
 *   kept        compiled-plan cache; NULL: none
 *   engine      name; NULL: the first engine that has a plan
 *   workspace   set to the required bytes */
gp_status gp_cudnn_conv_new(gp_cudnn_conv **out, cudnnHandle_t handle, const char *properties,
                            const gp_compiled *kept, const gp_conv_request *request, const char *engine,
                            size_t *workspace, gp_error *err);
void gp_cudnn_conv_free(gp_cudnn_conv *conv);

/* Execute a plan on the handle's stream. `pointers`: see GP_CUDNN_POINTERS. */
gp_status gp_cudnn_conv_run(gp_cudnn_conv *conv, cudnnHandle_t handle,
                            void *const pointers[GP_CUDNN_POINTERS], void *workspace, gp_error *err);

/* Return a plan's engine. */
const gp_cudnn_engine *gp_cudnn_conv_engine(const gp_cudnn_conv *conv);

/* List the engine configurations from heuristics that meet the requirements, each once, in
 * order. */
uint32_t gp_cudnn_conv_engines(cudnnHandle_t handle, const char *properties, const gp_conv_request *request,
                               gp_engine *engines, uint32_t most);

/* Describe everything that determines a plan on one line, with the engine name or "by rule". */
void gp_cudnn_conv_describe(const gp_conv_request *request, const char *engine,
                            char what[GP_COMPILED_WHAT_BYTES]);

#endif
