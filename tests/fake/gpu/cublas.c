/* cublas.c: cublasLtMatmul: D = epilogue(alpha op(A) op(B) + beta C), in float64. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/gpu/number.h"
#include "tests/fake/gpu/parts.h"

enum { ATTRIBUTES = 64, WORKSPACE = 1000 };

/* Attribute values by attribute number; each has at most 8 bytes. */
typedef struct attributes {
    char value[ATTRIBUTES][8];
    bool given[ATTRIBUTES];
} attributes;

static cublasStatus_t attribute_set(attributes *a, int name, const void *value, size_t bytes)
{
    if (name < 0 || name >= ATTRIBUTES || bytes > 8)
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(a->value[name], 0, 8);
    memcpy(a->value[name], value, bytes);
    a->given[name] = true;
    return CUBLAS_STATUS_SUCCESS;
}

static int64_t attribute_get(const attributes *a, int name)
{
    int64_t value;

    memcpy(&value, a->value[name], sizeof(value));
    return value;
}

static void *attribute_pointer(const attributes *a, int name)
{
    return (void *)(uintptr_t)attribute_get(a, name);
}

#define HANDLES(name, type)                                                                                  \
    FAKE_EXPORT cublasStatus_t name##Destroy(type at)                                                        \
    {                                                                                                        \
        free(at);                                                                                            \
        return CUBLAS_STATUS_SUCCESS;                                                                        \
    }                                                                                                        \
    FAKE_EXPORT cublasStatus_t name##SetAttribute(type at, type##_attributes which, const void *value,       \
                                                  size_t bytes)                                              \
    {                                                                                                        \
        FAKE_CALL(name##SetAttribute, cublasStatus_t);                                                       \
        return attribute_set((attributes *)(void *)at, (int)which, value, bytes);                            \
    }

typedef cublasLtMatmulDescAttributes_t cublasLtMatmulDesc_t_attributes;
typedef cublasLtMatrixLayoutAttribute_t cublasLtMatrixLayout_t_attributes;
typedef cublasLtMatmulPreferenceAttributes_t cublasLtMatmulPreference_t_attributes;
HANDLES(cublasLtMatmulDesc, cublasLtMatmulDesc_t)
HANDLES(cublasLtMatrixLayout, cublasLtMatrixLayout_t)
HANDLES(cublasLtMatmulPreference, cublasLtMatmulPreference_t)

FAKE_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    FAKE_CALL(cublasLtCreate, cublasStatus_t);
    if (fake_context() != cudaSuccess || fake_was_reset())
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *out = calloc(1, 16);
    return *out == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT size_t cublasLtGetVersion(void)
{
    return 130100;
}

FAKE_EXPORT const char *cublasLtGetStatusString(cublasStatus_t code)
{
    return code == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
           : code == CUBLAS_STATUS_INVALID_VALUE
               ? "an unsupported value or parameter, or memory that is not aligned"
               : "a failure of the fake cuBLASLt";
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                    cudaDataType_t scale)
{
    attributes *a;

    FAKE_CALL(cublasLtMatmulDescCreate, cublasStatus_t);
    a = calloc(1, sizeof(*a));
    if (a == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    attribute_set(a, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof(compute));
    attribute_set(a, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &scale, sizeof(scale));
    attribute_set(a, CUBLASLT_MATMUL_DESC_EPILOGUE, &(int){ CUBLASLT_EPILOGUE_DEFAULT }, sizeof(int));
    *out = (cublasLtMatmulDesc_t)(void *)a;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                                      uint64_t rows, uint64_t columns, int64_t leading)
{
    attributes *a;

    FAKE_CALL(cublasLtMatrixLayoutCreate, cublasStatus_t);
    a = calloc(1, sizeof(*a));
    if (a == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    attribute_set(a, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type));
    attribute_set(a, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows));
    attribute_set(a, CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof(columns));
    attribute_set(a, CUBLASLT_MATRIX_LAYOUT_LD, &leading, sizeof(leading));
    attribute_set(a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(int32_t){ 1 }, sizeof(int32_t));
    *out = (cublasLtMatrixLayout_t)(void *)a;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    FAKE_CALL(cublasLtMatmulPreferenceCreate, cublasStatus_t);
    *out = calloc(1, sizeof(attributes));
    return *out == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                                          cublasLtMatmulDesc_t product,
                                                          cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                          cublasLtMatmulPreference_t preference, int asked,
                                                          cublasLtMatmulHeuristicResult_t found[], int *count)
{
    (void)handle;
    (void)product;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    const attributes *wish = (const attributes *)(const void *)preference;

    FAKE_CALL(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t);
    *count = 0;
    for (int i = 0; i < asked && i < 3; i++) {
        memset(&found[i], 0, sizeof(found[i]));
        found[i].algo.data[0] = (uint64_t)i;
        for (int k = 0; k < 4; k++) /* alignments of A, B, C and D; default 256 bytes */
            found[i].algo.data[1 + k] =
                wish->given[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + k]
                    ? (uint64_t)attribute_get(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + k)
                    : 256;
        found[i].workspaceSize = WORKSPACE;
        found[i].wavesCount = 1;
        found[i].state = CUBLAS_STATUS_SUCCESS;
        ++*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* A matrix in memory, with rows and columns as in the layout. */
typedef struct matrix {
    char *at;
    number_type type;
    int64_t rows, columns, leading, batch_offset;
    bool by_rows, transposed;
} matrix;

typedef struct product {
    matrix a, b, c, d;
    double alpha, beta;
    int32_t batches;
    int epilogue;
    number_type bias_type;
    void *bias, *aux, *workspace;
    int64_t aux_leading;
    size_t workspace_bytes;
    int64_t algorithm;
} product;

static matrix matrix_of(const void *at, const void *layout, bool transposed)
{
    const attributes *a = layout;

    return (matrix){ .at = (char *)(uintptr_t)at,
                     .type = number_of_cuda((int)attribute_get(a, CUBLASLT_MATRIX_LAYOUT_TYPE)),
                     .rows = attribute_get(a, CUBLASLT_MATRIX_LAYOUT_ROWS),
                     .columns = attribute_get(a, CUBLASLT_MATRIX_LAYOUT_COLS),
                     .leading = attribute_get(a, CUBLASLT_MATRIX_LAYOUT_LD),
                     .batch_offset = attribute_get(a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET),
                     .by_rows = attribute_get(a, CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_ROW,
                     .transposed = transposed };
}

static int64_t place(const matrix *m, int32_t batch, int64_t row, int64_t column)
{
    int64_t r = m->transposed ? column : row, c = m->transposed ? row : column;

    return batch * m->batch_offset + (m->by_rows ? r * m->leading + c : c * m->leading + r);
}

/* ReLU bit masks follow the columns of D; the leading dimension is in bits. */
static bool mask_get(const product *p, int64_t row, int64_t column)
{
    int64_t bit = column * p->aux_leading + row;

    return (((const uint8_t *)p->aux)[bit / 8] >> (bit % 8) & 1) != 0;
}

static void mask_put(const product *p, int64_t row, int64_t column, bool value)
{
    int64_t bit = column * p->aux_leading + row;
    uint8_t *byte = (uint8_t *)p->aux + bit / 8;

    *byte = (uint8_t)((*byte & ~(1u << (bit % 8))) | (unsigned)value << (bit % 8));
}

static double element(const product *p, int32_t batch, int64_t row, int64_t column, int64_t depth)
{
    double sum = 0.0;

    for (int64_t k = 0; k < depth; k++)
        sum += number_get(p->a.at, p->a.type, place(&p->a, batch, row, k)) *
               number_get(p->b.at, p->b.type, place(&p->b, batch, k, column));
    sum *= p->alpha;
    if (p->beta != 0.0)
        sum += p->beta * number_get(p->c.at, p->c.type, place(&p->c, batch, row, column));
    if ((p->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
        sum += number_get(p->bias, p->bias_type, row);
    if ((p->epilogue & CUBLASLT_EPILOGUE_RELU) != 0) {
        if ((p->epilogue & 128) != 0)
            mask_put(p, row, column, sum > 0.0);
        sum = sum > 0.0 ? sum : 0.0;
    }
    if ((p->epilogue & 8) != 0) /* DRELU */
        sum = mask_get(p, row, column) ? sum : 0.0;
    return sum;
}

/* Compute a bias gradient. DRELU_BGRAD sums D over columns; BGRADA and BGRADB sum the factor over
 * the other dimension. */
static void bias_gradient(const product *p, int64_t depth)
{
    if ((p->epilogue & 16) != 0)
        for (int64_t r = 0; r < p->d.rows; r++) {
            double sum = 0.0;

            for (int64_t c = 0; c < p->d.columns; c++)
                sum += number_get(p->d.at, p->d.type, place(&p->d, 0, r, c));
            number_put(p->bias, p->bias_type, r, sum);
        }
    if ((p->epilogue & CUBLASLT_EPILOGUE_BGRADA) != 0)
        for (int64_t r = 0; r < p->d.rows; r++) {
            double sum = 0.0;

            for (int64_t k = 0; k < depth; k++)
                sum += number_get(p->a.at, p->a.type, place(&p->a, 0, r, k));
            number_put(p->bias, p->bias_type, r, sum);
        }
    if ((p->epilogue & CUBLASLT_EPILOGUE_BGRADB) != 0)
        for (int64_t c = 0; c < p->d.columns; c++) {
            double sum = 0.0;

            for (int64_t k = 0; k < depth; k++)
                sum += number_get(p->b.at, p->b.type, place(&p->b, 0, k, c));
            number_put(p->bias, p->bias_type, c, sum);
        }
}

static void run_product(void *args)
{
    const product *p = args;
    int64_t depth = p->a.transposed ? p->a.rows : p->a.columns;

    if (p->workspace != NULL)
        memset(p->workspace, 0x55, p->workspace_bytes < WORKSPACE ? p->workspace_bytes : WORKSPACE);
    for (int32_t batch = 0; batch < p->batches; batch++)
        for (int64_t c = 0; c < p->d.columns; c++)
            for (int64_t r = 0; r < p->d.rows; r++)
                number_put(p->d.at, p->d.type, place(&p->d, batch, r, c), element(p, batch, r, c, depth));
    bias_gradient(p, depth);
    fake_spend(fake_number_at("FAKE_GPU_ALGORITHM_US", p->algorithm));
}

static int algorithm_reached(int64_t algorithm)
{
    static fake_point points[] = { { .name = "cublasLtAlgorithm0" },
                                   { .name = "cublasLtAlgorithm1" },
                                   { .name = "cublasLtAlgorithm2" } };

    return algorithm < 0 || algorithm > 2 ? 0 : fake_reached(&points[algorithm]);
}

FAKE_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                          const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                                          const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                          const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                                          cublasLtMatrixLayout_t d_layout,
                                          const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                          size_t workspace_bytes, cudaStream_t stream)
{
    const attributes *what = (const attributes *)(const void *)description;
    const bool wide = attribute_get(what, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_64F;
    product p = {
        .a = matrix_of(a, a_layout, attribute_get(what, CUBLASLT_MATMUL_DESC_TRANSA) != CUBLAS_OP_N),
        .b = matrix_of(b, b_layout, attribute_get(what, CUBLASLT_MATMUL_DESC_TRANSB) != CUBLAS_OP_N),
        .c = matrix_of(c, c_layout, false),
        .d = matrix_of(d, d_layout, false),
        .alpha = wide ? *(const double *)alpha : (double)*(const float *)alpha,
        .beta = wide ? *(const double *)beta : (double)*(const float *)beta,
        .batches = (int32_t)attribute_get((const attributes *)(const void *)d_layout,
                                          CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT),
        .epilogue = (int)attribute_get(what, CUBLASLT_MATMUL_DESC_EPILOGUE),
        .bias = attribute_pointer(what, CUBLASLT_MATMUL_DESC_BIAS_POINTER),
        .aux = attribute_pointer(what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER),
        .aux_leading = attribute_get(what, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD),
        .workspace = workspace,
        .workspace_bytes = workspace_bytes,
        .algorithm = algorithm == NULL ? -1 : (int64_t)algorithm->data[0],
    };
    int64_t rows = p.a.transposed ? p.a.columns : p.a.rows, columns = p.b.transposed ? p.b.rows : p.b.columns;
    int64_t depth = p.a.transposed ? p.a.rows : p.a.columns, other = p.b.transposed ? p.b.columns : p.b.rows;
    cudaError_t code;
    int reached;

    const void *const at[4] = { a, b, c, d };

    (void)handle;
    for (int k = 0; k < 4 && algorithm != NULL && fake_number("FAKE_GPU_ALIGNMENT", 1) != 0; k++)
        if (algorithm->data[1 + k] != 0 && (uintptr_t)at[k] % algorithm->data[1 + k] != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
    p.bias_type = what->given[CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE]
                      ? number_of_cuda((int)attribute_get(what, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE))
                      : p.d.type;
    if (rows != p.d.rows || columns != p.d.columns || depth != other || p.a.type == NUMBER_NONE ||
        p.b.type == NUMBER_NONE || p.d.type == NUMBER_NONE)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (((p.epilogue & (CUBLASLT_EPILOGUE_BIAS | 16 | 256 | 512)) != 0 && p.bias == NULL) ||
        ((p.epilogue & 128) != 0 && (p.aux == NULL || p.aux_leading % 128 != 0 || p.aux_leading < p.d.rows)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((p.epilogue & (32 | 64)) != 0 || workspace_bytes > ((size_t)1 << 40))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    reached = algorithm_reached(p.algorithm);
    if (reached > 0)
        return (cublasStatus_t)reached;
    code = fake_push(stream, FAKE_REACHED(cublasLtMatmul), run_product, NULL, &p, sizeof(p));
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
