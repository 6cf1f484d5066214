#include "worker/backend/cuda/libraries/cublas_product.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/crc32c.h"

enum { PRODUCT_WORKSPACE = 32 << 20, ALGORITHMS_MAX = 8 };

struct gp_cublas_product {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    char name[GP_ENGINE_NAME_BYTES]; /* algorithm name */
    size_t workspace;
    bool vector, mask; /* operands used */
};

static cudaDataType_t number_type(int32_t narrow)
{
    return narrow == GP_NARROW_BF16 ? CUDA_R_16BF : narrow == GP_NARROW_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(const gp_product_request *r)
{
    if (r->sums) /* sums over k of a, which is B for cuBLASLt */
        return CUBLASLT_EPILOGUE_BGRADB;
    if (r->mask_in)
        return CUBLASLT_EPILOGUE_DRELU;
    if (r->relu && r->mask_out)
        return r->bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
    if (r->relu)
        return r->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    return r->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t attribute_set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                                    const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(product, name, value, bytes);
}

static cublasStatus_t pointers_set(gp_cublas_product *product, const void *vector, void *mask)
{
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;

    if (product->vector)
        code = attribute_set(product->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof(vector));
    if (code == CUBLAS_STATUS_SUCCESS && product->mask)
        code =
            attribute_set(product->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &mask, sizeof(mask));
    return code;
}

static cublasStatus_t product_describe(gp_cublas_product *product, const gp_product_request *r)
{
    /* Any address with the usual alignment, which the heuristics inspect. */
    static const uintptr_t somewhere = 0x10000;
    const cublasLtEpilogue_t epilogue = epilogue_of(r);
    const int64_t mask_row = (int64_t)gp_product_mask_row(r->m) * 8;
    const cublasOperation_t ta = r->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = r->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t a_rows = r->transpose_b ? r->k : r->m, a_columns = r->transpose_b ? r->m : r->k;
    const uint64_t b_rows = r->transpose_a ? r->n : r->k, b_columns = r->transpose_a ? r->k : r->n;
    cublasStatus_t code = cublasLtMatmulDescCreate(
        &product->product, r->tf32 && !r->narrow_a ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F);

    if (code == CUBLAS_STATUS_SUCCESS)
        code = attribute_set(product->product, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = attribute_set(product->product, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb));
    product->vector = r->bias || r->sums;
    product->mask = r->mask_in || r->mask_out;
    if (code == CUBLAS_STATUS_SUCCESS)
        code = attribute_set(product->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (code == CUBLAS_STATUS_SUCCESS && product->mask)
        code = attribute_set(product->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &mask_row,
                             sizeof(mask_row));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = pointers_set(product, (const void *)somewhere, (void *)somewhere);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatrixLayoutCreate(&product->a, number_type(r->narrow_b), a_rows, a_columns,
                                          (int64_t)a_rows);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatrixLayoutCreate(&product->b, number_type(r->narrow_a), b_rows, b_columns,
                                          (int64_t)b_rows);
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatrixLayoutCreate(&product->out, number_type(r->narrow_out), r->m, r->n, r->m);
    return code;
}

/* Ask the heuristics for algorithms, best first. */
static cublasStatus_t algorithms_find(const gp_cublas_product *product, cublasLtHandle_t handle,
                                      cublasLtMatmulHeuristicResult_t found[ALGORITHMS_MAX], int *count)
{
    /* Exclude in-place partial sums, whose order varies; sums in a workspace are deterministic. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const size_t most = PRODUCT_WORKSPACE;
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t code = cublasLtMatmulPreferenceCreate(&preference);

    *count = 0;
    memset(found, 0, ALGORITHMS_MAX * sizeof(*found));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &most, sizeof(most));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &reductions, sizeof(reductions));
    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmulAlgoGetHeuristic(handle, product->product, product->a, product->b, product->out,
                                              product->out, preference, ALGORITHMS_MAX, found, count);
    if (preference != NULL)
        cublasLtMatmulPreferenceDestroy(preference);
    return code;
}

/* Name an algorithm by a checksum of its 64 opaque bytes. Only bytes from cuBLASLt itself are ever
 * passed to cuBLASLt. */
static void algorithm_name(const cublasLtMatmulAlgo_t *algorithm, char name[GP_ENGINE_NAME_BYTES])
{
    snprintf(name, GP_ENGINE_NAME_BYTES, "%08" PRIx32, gp_crc32c(0, algorithm, sizeof(*algorithm)));
}

static cublasStatus_t product_choose(gp_cublas_product *product, cublasLtHandle_t handle, const char *engine)
{
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS_MAX];
    int count;
    cublasStatus_t code = algorithms_find(product, handle, found, &count);

    if (code != CUBLAS_STATUS_SUCCESS)
        return code;
    for (int i = 0; i < count; i++) {
        algorithm_name(&found[i].algo, product->name);
        if (found[i].state != CUBLAS_STATUS_SUCCESS || (engine != NULL && strcmp(engine, product->name) != 0))
            continue;
        product->algorithm = found[i].algo;
        product->workspace = found[i].workspaceSize;
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

gp_status gp_cublas_product_new(gp_cublas_product **out, cublasLtHandle_t handle,
                                const gp_product_request *request, const char *engine, size_t *workspace,
                                gp_error *err)
{
    gp_cublas_product *product = calloc(1, sizeof(*product));
    cublasStatus_t code;

    if (product == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a product's plan");
    code = product_describe(product, request);
    if (code == CUBLAS_STATUS_SUCCESS && handle != NULL)
        code = product_choose(product, handle, engine);
    if (code != CUBLAS_STATUS_SUCCESS) {
        gp_cublas_product_free(product);
        return gp_fail(err, GP_EUNSUPPORTED, "cuBLASLt has no plan for a product of %u x %u x %u: %s",
                       request->n, request->m, request->k, cublasLtGetStatusString(code));
    }
    *workspace = product->workspace;
    *out = product;
    return GP_OK;
}

uint32_t gp_cublas_product_engines(cublasLtHandle_t handle, const gp_product_request *request,
                                   gp_engine *engines, uint32_t most)
{
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS_MAX];
    gp_cublas_product *product = calloc(1, sizeof(*product));
    uint32_t named = 0;
    int count = 0;

    if (product != NULL && product_describe(product, request) == CUBLAS_STATUS_SUCCESS &&
        algorithms_find(product, handle, found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count && named < most; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS) {
            engines[named].number = i;
            engines[named].compiled = false;
            algorithm_name(&found[i].algo, engines[named++].name);
        }
    gp_cublas_product_free(product);
    return named;
}

const char *gp_cublas_product_engine(const gp_cublas_product *product)
{
    return product->name;
}

gp_status gp_cublas_product_run(gp_cublas_product *product, cublasLtHandle_t handle,
                                const gp_device_operands *at, void *workspace, cudaStream_t stream,
                                gp_error *err)
{
    const float one = 1.0f, zero = 0.0f;
    cublasStatus_t code = pointers_set(product, at->vector, at->mask);

    if (code == CUBLAS_STATUS_SUCCESS)
        code = cublasLtMatmul(handle, product->product, &one, at->second, product->a, at->first, product->b,
                              &zero, at->out, product->out, at->out, product->out, &product->algorithm,
                              workspace, product->workspace, stream);
    if (code == CUBLAS_STATUS_SUCCESS)
        return GP_OK;
    return gp_fail(err, GP_EIO, "cuBLASLt failed: %s", cublasLtGetStatusString(code));
}

cublasLtMatmulDesc_t gp_cublas_product_description(const gp_cublas_product *product)
{
    return product->product;
}

void gp_cublas_product_free(gp_cublas_product *product)
{
    if (product == NULL)
        return;
    if (product->out != NULL)
        cublasLtMatrixLayoutDestroy(product->out);
    if (product->b != NULL)
        cublasLtMatrixLayoutDestroy(product->b);
    if (product->a != NULL)
        cublasLtMatrixLayoutDestroy(product->a);
    if (product->product != NULL)
        cublasLtMatmulDescDestroy(product->product);
    free(product);
}
