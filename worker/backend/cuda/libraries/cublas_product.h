/* Matrix products with fused operations by cuBLASLt. Only this module includes cublasLt.h.
 *
 * cuBLASLt uses column-major order. Rows of out = a' b' here are columns of out' = b' a' there, so
 * A there is b here. Float32 is computed with CUBLAS_COMPUTE_32F unless the request allows TF32.
 * 2-byte types are accumulated in float32. */
#ifndef GP_CUBLAS_PRODUCT_H
#define GP_CUBLAS_PRODUCT_H

#include <cublasLt.h>

#include "worker/backend/cuda/libraries/device.h"

typedef struct gp_cublas_product gp_cublas_product;

/* Create a product. GP_EUNSUPPORTED: no algorithm, or not the named one.
 *   handle  NULL: only describe the product, for tests without a device
 *   engine  algorithm name; NULL: the first one from heuristics */
gp_status gp_cublas_product_new(gp_cublas_product **out, cublasLtHandle_t handle,
                                const gp_product_request *request, const char *engine, size_t *workspace,
                                gp_error *err);
void gp_cublas_product_free(gp_cublas_product *product);

/* Execute a product on the handle's stream. */
gp_status gp_cublas_product_run(gp_cublas_product *product, cublasLtHandle_t handle,
                                const gp_device_operands *at, void *workspace, cudaStream_t stream,
                                gp_error *err);

/* Return the algorithm name in use. */
const char *gp_cublas_product_engine(const gp_cublas_product *product);

/* List the algorithms from heuristics, best first. */
uint32_t gp_cublas_product_engines(cublasLtHandle_t handle, const gp_product_request *request,
                                   gp_engine *engines, uint32_t most);

/* Return the cuBLASLt descriptor, for tests. */
cublasLtMatmulDesc_t gp_cublas_product_description(const gp_cublas_product *product);

#endif
