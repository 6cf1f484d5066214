/* cublas_product.h -- a matrix product with what follows it, by cuBLASLt (only: cublasLt.h).
 *
 * cuBLASLt counts column by column, so that our rows of out' = b' a' are its columns: its A is our b.  Float32 is computed
 * as such (CUBLAS_COMPUTE_32F) unless the request allows TF32; numbers of 2 bytes are added up in float32. */
#ifndef GP_CUBLAS_PRODUCT_H
#define GP_CUBLAS_PRODUCT_H

#include <cublasLt.h>

#include "worker/backend/cuda/libraries/device.h"

typedef struct gp_cublas_product gp_cublas_product;

/* handle NULL: described only, not to be run; for tests where there is no device.  engine: the name of an algorithm, or
 * NULL: the first of heuristics.  GP_EUNSUPPORTED: no algorithm, or not that one. */
gp_status gp_cublas_product_new(gp_cublas_product **out, cublasLtHandle_t handle,
                                const gp_product_request *request, const char *engine, size_t *workspace,
                                gp_error *err);
void gp_cublas_product_free(gp_cublas_product *product);

gp_status gp_cublas_product_run(gp_cublas_product *product, cublasLtHandle_t handle,
                                const gp_device_operands *at, void *workspace, cudaStream_t stream,
                                gp_error *err);

const char *gp_cublas_product_engine(const gp_cublas_product *product);
/* Algorithms that heuristics name, in their order. */
uint32_t gp_cublas_product_engines(cublasLtHandle_t handle, const gp_product_request *request,
                                   gp_engine *engines, uint32_t most);

/* What it was described as; for tests. */
cublasLtMatmulDesc_t gp_cublas_product_description(const gp_cublas_product *product);

#endif
