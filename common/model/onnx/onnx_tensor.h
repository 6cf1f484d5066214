/* onnx_tensor.h -- numbers that stand in a model file, beside it, or are made from such by folding: one form for all. */
#ifndef GP_ONNX_TENSOR_H
#define GP_ONNX_TENSOR_H

#include "common/model/onnx/onnx_proto.h"

enum { GP_ONNX_RANK_MAX = 8 };
#define GP_ONNX_ELEMENTS_MAX ((int64_t)1 << 31) /* of one tensor */

/* What a folded number means for "as many as there are samples": ONNX counts the samples among the dimensions, a netspec
 * does not, so the number is not known when a graph is read. */
#define GP_ONNX_SAMPLES INT64_MIN

typedef struct gp_onnx_tensor {
    const char *name; /* borrowed, "" when it has none */
    int32_t type;     /* Onnx__TensorProto__DataType */
    uint32_t rank;
    int64_t dims[GP_ONNX_RANK_MAX], count; /* count: their product */
    const void
        *data;  /* little-endian, aligned to nothing, borrowed or of a store; NULL: there is no such tensor */
    bool splat; /* data is one element, which stands for all */
    int64_t per_sample; /* of indices (onnx_indices.c): what each further sample adds; 0: a constant */
} gp_onnx_tensor;

/* Memory of numbers that stand in no file, with a ceiling on all of it; freed at once. */
typedef struct gp_onnx_store {
    void **blocks;
    size_t count;
    size_t bytes, bytes_max; /* bytes_max 0: 256 MiB */
} gp_onnx_store;

/* GP_ELIMIT past the ceiling.  The block is not zeroed. */
gp_status gp_onnx_store_take(gp_onnx_store *store, size_t bytes, void **out, gp_error *err);
void gp_onnx_store_deinit(gp_onnx_store *store);

/* The numbers of a TensorProto that passed gp_onnx_wire_check().  GP_EUNSUPPORTED: a type that is not read. */
gp_status gp_onnx_tensor_of(gp_onnx_tensor *out, const Onnx__TensorProto *proto, gp_error *err);

/* Bytes of one element; 0: a type that is not read. */
size_t gp_onnx_type_bytes(int32_t type);
/* "float32" */
const char *gp_onnx_type_name(int32_t type);

static inline bool gp_onnx_is_float(const gp_onnx_tensor *tensor)
{
    return tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
}

/* One element, of any of the types that are read; a real number rounded towards zero. */
int64_t gp_onnx_int_at(const gp_onnx_tensor *tensor, int64_t index);
double gp_onnx_real_at(const gp_onnx_tensor *tensor, int64_t index);
bool gp_onnx_is_whole(const gp_onnx_tensor *tensor); /* of int64, int32 or bool */

/* Multiply dimensions. False: one is negative, or the product of those that are not 0 exceeds GP_ONNX_ELEMENTS_MAX.
 * Strides and partial products of accepted dimensions therefore never overflow, even where one of them is 0. */
bool gp_onnx_dims_count(int64_t *count, uint32_t rank, const int64_t *dims);

/* A tensor of that type and shape with data from the store, to be filled through *data. */
gp_status gp_onnx_tensor_new(gp_onnx_tensor *out, gp_onnx_store *store, int32_t type, uint32_t rank,
                             const int64_t *dims, void **data, gp_error *err);

#endif
