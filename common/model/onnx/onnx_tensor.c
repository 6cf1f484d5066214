/* onnx_tensor.c -- implementation of onnx_tensor.h: the store, conversion from files, element
 * access. */
#include "common/model/onnx/onnx_tensor.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* default limit for computed tensors, against small files that request much memory */
#define STORE_BYTES_MAX ((size_t)1 << 28)

/* ---- the store ---- */

gp_status gp_onnx_store_take(gp_onnx_store *store, size_t bytes, void **out, gp_error *err)
{
    size_t bytes_max = store->bytes_max == 0 ? STORE_BYTES_MAX : store->bytes_max;

    if (bytes > bytes_max - store->bytes)
        return gp_fail(
            err, GP_ELIMIT,
            "computed constants exceed %zu MiB; simplify the model (in Python: onnxsim.simplify(model))",
            bytes_max >> 20);
    void **blocks = gp_array_grow(store->blocks, store->count, sizeof(*blocks));

    if (blocks == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu computed constants", store->count + 1);
    store->blocks = blocks;
    void *block = gp_malloc(bytes);

    if (block == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a constant of %zu bytes", bytes);
    store->blocks[store->count++] = block;
    store->bytes += bytes;
    *out = block;
    return GP_OK;
}

void gp_onnx_store_deinit(gp_onnx_store *store)
{
    for (size_t i = 0; i < store->count; i++)
        gp_free(store->blocks[i]);
    gp_free(store->blocks);
    *store = (gp_onnx_store){ 0 };
}

/* ---- types ---- */

static const struct {
    int32_t type;
    size_t bytes;
    const char *name;
} types[] = {
    { ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, 4, "float32" },
    { ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE, 8, "float64" },
    { ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 8, "int64" },
    { ONNX__TENSOR_PROTO__DATA_TYPE__INT32, 4, "int32" },
    { ONNX__TENSOR_PROTO__DATA_TYPE__BOOL, 1, "bool" },
};

enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

size_t gp_onnx_type_bytes(int32_t type)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].type == type)
            return types[i].bytes;
    return 0;
}

const char *gp_onnx_type_name(int32_t type)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].type == type)
            return types[i].name;
    return "another type";
}

bool gp_onnx_is_whole(const gp_onnx_tensor *tensor)
{
    return tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64 ||
           tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__INT32 ||
           tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL;
}

/* ---- conversion from a file ---- */

gp_status gp_onnx_tensor_check(const Onnx__TensorProto *proto, gp_error *err)
{
    const size_t size = gp_onnx_type_bytes(proto->data_type);
    const size_t typed = proto->n_float_data + proto->n_int32_data + proto->n_string_data +
                         proto->n_int64_data + proto->n_double_data + proto->n_uint64_data;
    const bool counted = proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT ||
                         proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64;
    char name[GP_ONNX_SHOWN_BYTES];
    int64_t count;

    gp_onnx_show(name, proto->name == NULL ? "" : proto->name, SIZE_MAX);
    if (proto->n_dims > GP_ONNX_RANK_MAX)
        return gp_fail(err, GP_ELIMIT, "tensor '%s' has more than %d dimensions", name, GP_ONNX_RANK_MAX);
    if (!gp_onnx_dims_count(&count, (uint32_t)proto->n_dims, proto->dims))
        return gp_fail(err, GP_ELIMIT, "tensor '%s' has more than %" PRId64 " elements", name,
                       GP_ONNX_ELEMENTS_MAX);
    if (proto->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__DEFAULT)
        return !proto->has_raw_data && typed == 0
                   ? GP_OK
                   : gp_fail(err, GP_ECORRUPT, "tensor '%s' has data both in the model and in another file",
                             name);
    if (proto->has_raw_data && typed != 0)
        return gp_fail(err, GP_ECORRUPT, "tensor '%s' has both raw and typed data", name);
    if (proto->has_raw_data && size != 0 && proto->raw_data.len != (size_t)count * size)
        return gp_fail(err, GP_ECORRUPT,
                       "tensor '%s' has %zu bytes of data, but its shape of %" PRId64
                       " elements of %zu bytes needs %zu",
                       name, proto->raw_data.len, count, size, (size_t)count * size);
    if (!proto->has_raw_data && counted && typed != (size_t)count)
        return gp_fail(err, GP_ECORRUPT, "tensor '%s' has %zu numbers, but its shape needs %" PRId64, name,
                       typed, count);
    return GP_OK;
}

gp_status gp_onnx_tensor_of(gp_onnx_tensor *out, const Onnx__TensorProto *proto, gp_error *err)
{
    const char *name = proto->name == NULL ? "" : proto->name;
    const size_t each = gp_onnx_type_bytes(proto->data_type);
    gp_onnx_tensor tensor = {
        .name = name, .type = proto->data_type, .rank = (uint32_t)proto->n_dims, .count = 1
    };
    char shown[GP_ONNX_SHOWN_BYTES];
    size_t typed = 0;

    /* gp_onnx_tensor_check() has limited rank, sizes and product */
    for (uint32_t i = 0; i < tensor.rank; i++)
        tensor.count *= tensor.dims[i] = proto->dims[i];
    gp_onnx_show(shown, name, strlen(name));
    if (each == 0)
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' has ONNX type %" PRId32 "; must be float32 (type 1)",
                       shown, proto->data_type);
    if (proto->has_raw_data) {
        tensor.data = proto->raw_data.data;
        typed = proto->raw_data.len / each;
    } else if (proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT) {
        tensor.data = proto->float_data;
        typed = proto->n_float_data;
    } else if (proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE) {
        tensor.data = proto->double_data;
        typed = proto->n_double_data;
    } else if (proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
        tensor.data = proto->int64_data;
        typed = proto->n_int64_data;

        /* a single bool is the low byte of one int32 */
    } else if (each == 4 || proto->n_int32_data <= 1) {
        tensor.data = proto->int32_data;
        typed = proto->n_int32_data;
    }
    if (typed != (size_t)tensor.count)
        return gp_fail(err, GP_EUNSUPPORTED, "'%s' has %zu numbers of type %s, but its shape needs %" PRId64,
                       shown, typed, gp_onnx_type_name(tensor.type), tensor.count);
    if (tensor.data == NULL)
        tensor.data = ""; /* no elements */
    *out = tensor;
    return GP_OK;
}

/* ---- elements ---- */

static double real_from(const gp_onnx_tensor *tensor, int64_t index)
{
    float number;
    double wide;

    if (gp_onnx_is_float(tensor)) {
        memcpy(&number, (const char *)tensor->data + index * (int64_t)sizeof(number), sizeof(number));
        return (double)number;
    }
    memcpy(&wide, (const char *)tensor->data + index * (int64_t)sizeof(wide), sizeof(wide));
    return wide;
}

static int64_t int_from(const gp_onnx_tensor *tensor, int64_t index)
{
    int64_t wide;
    int32_t number;

    if (tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
        memcpy(&wide, (const char *)tensor->data + index * (int64_t)sizeof(wide), sizeof(wide));
        return wide;
    }
    if (tensor->type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        return ((const uint8_t *)tensor->data)[index] != 0;
    memcpy(&number, (const char *)tensor->data + index * (int64_t)sizeof(number), sizeof(number));
    return number;
}

int64_t gp_onnx_int_at(const gp_onnx_tensor *tensor, int64_t index)
{
    index = tensor->splat ? 0 : index;
    if (gp_onnx_is_whole(tensor))
        return int_from(tensor, index);
    double number = real_from(tensor, index);

    if (!(number > -9.2e18 && number < 9.2e18)) /* clamp, as processors do in conversions */
        return number > 0 ? INT64_MAX : -INT64_MAX;
    return (int64_t)number;
}

double gp_onnx_real_at(const gp_onnx_tensor *tensor, int64_t index)
{
    index = tensor->splat ? 0 : index;
    return gp_onnx_is_whole(tensor) ? (double)int_from(tensor, index) : real_from(tensor, index);
}

bool gp_onnx_dims_count(int64_t *count, uint32_t rank, const int64_t *dims)
{
    int64_t product = 1, zero = 1;

    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || (dims[i] != 0 && product > GP_ONNX_ELEMENTS_MAX / dims[i]))
            return false;
        if (dims[i] == 0)
            zero = 0;
        else
            product *= dims[i];
    }
    *count = product * zero;
    return true;
}
