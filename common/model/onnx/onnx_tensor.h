/* onnx_tensor.h -- uniform representation of tensors that are stored in a model file, in
 * external data, or computed by constant folding. */
#ifndef GP_ONNX_TENSOR_H
#define GP_ONNX_TENSOR_H

#include "common/model/onnx/onnx_proto.h"

enum { GP_ONNX_RANK_MAX = 8 };
#define GP_ONNX_ELEMENTS_MAX ((int64_t)1 << 31) /* maximum elements per tensor */

/* Folded value that stands for the number of samples. ONNX dimensions include the sample axis
 * and netspec dimensions do not, so the number is unknown when a graph is read. */
#define GP_ONNX_SAMPLES INT64_MIN

/* Tensor with borrowed data. */
typedef struct gp_onnx_tensor {
    const char *name; /* borrowed; "": none */
    int32_t type;     /* Onnx__TensorProto__DataType */
    uint32_t rank;
    int64_t dims[GP_ONNX_RANK_MAX], count; /* count: product of dims */
    const void *data;   /* little-endian, unaligned, borrowed or in a store; NULL: no tensor */
    bool splat;         /* data is a single element that represents all elements */
    int64_t per_sample; /* indices (onnx_indices.c): increment per sample; 0: a constant */
} gp_onnx_tensor;

/* Memory for computed tensors, with a limit on the total size; freed at once. */
typedef struct gp_onnx_store {
    void **blocks;
    size_t count;
    size_t bytes, bytes_max; /* bytes_max 0: 256 MiB */
} gp_onnx_store;

/* Allocate a block, which is not zeroed. GP_ELIMIT: the total exceeds the limit. */
gp_status gp_onnx_store_take(gp_onnx_store *store, size_t bytes, void **out, gp_error *err);
void gp_onnx_store_deinit(gp_onnx_store *store);

/* Check the shape of a TensorProto, and that its data fit the shape. GP_ELIMIT: too large.
 * GP_ECORRUPT: the data do not fit. Data in another file are not checked. */
gp_status gp_onnx_tensor_check(const Onnx__TensorProto *proto, gp_error *err);

/* Get the data of a TensorProto that gp_onnx_tensor_check() accepted. GP_EUNSUPPORTED: unsupported
 * type. */
gp_status gp_onnx_tensor_of(gp_onnx_tensor *out, const Onnx__TensorProto *proto, gp_error *err);

/* Return the bytes per element. 0: unsupported type. */
size_t gp_onnx_type_bytes(int32_t type);

/* Return the type name, such as "float32". */
const char *gp_onnx_type_name(int32_t type);

static inline bool gp_onnx_is_float(const gp_onnx_tensor *tensor)
{
    return tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

/* Return one element, converted from any supported type; int_at rounds real numbers towards
 * zero. */
int64_t gp_onnx_int_at(const gp_onnx_tensor *tensor, int64_t index);
double gp_onnx_real_at(const gp_onnx_tensor *tensor, int64_t index);
bool gp_onnx_is_whole(const gp_onnx_tensor *tensor); /* the type is int64, int32 or bool */

/* Multiply dimensions. false: one is negative, or the product of the nonzero dimensions exceeds
 * GP_ONNX_ELEMENTS_MAX. Strides and partial products of accepted dimensions therefore never
 * overflow, even if one of them is 0. */
bool gp_onnx_dims_count(int64_t *count, uint32_t rank, const int64_t *dims);

#endif
