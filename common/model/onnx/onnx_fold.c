/* onnx_fold.c -- constant folding: nodes with only constant inputs are computed when the graph
 * is read.
 *
 * Exporters write shapes as small programs (Shape, Gather, Concat, Reshape), and the light
 * models of the onnx package create weights with ConstantOfShape. A tensor of equal elements is
 * stored as one element (gp_onnx_tensor.splat), so a file that declares a terabyte of zeros
 * needs no memory until a layer uses them. All other results are allocated in the store, which
 * has a size limit. The number of samples is unknown in a graph and represented by
 * GP_ONNX_SAMPLES: it may be moved and used in shapes, but not in arithmetic.
 *
 * The file is long but not divided: one function per operator, with shared helpers for strides
 * and broadcasting. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

#define INT64_TYPE ONNX__TENSOR_PROTO__DATA_TYPE__INT64

/* ---- helpers ---- */

/* Get the k-th input, which is required. After a failure: an empty tensor. */
static const gp_onnx_tensor *input_of(gp_onnx_mapping *m, size_t k)
{
    static const gp_onnx_tensor none;
    const gp_onnx_tensor *x = gp_onnx_node_constant(m, k);

    if (x == NULL)
        gp_onnx_fail(m, GP_ECORRUPT, "its input %zu is missing", k + 1);
    return x == NULL ? &none : x;
}

/* Set *out to x with other dimensions for the same number of elements. */
static void redimension(gp_onnx_mapping *m, gp_onnx_tensor *out, const gp_onnx_tensor *x, uint32_t rank,
                        const int64_t *dims)
{
    int64_t count;

    if (rank > GP_ONNX_RANK_MAX)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "more than %d dimensions are not supported", GP_ONNX_RANK_MAX);
    else if (!gp_onnx_dims_count(&count, rank, dims))
        gp_onnx_fail(m, GP_EINVAL, "its dimensions do not match the %" PRId64 " numbers", x->count);
    else if (count != x->count)
        gp_onnx_fail(m, GP_EINVAL, "its dimensions need %" PRId64 " numbers, but it has %" PRId64, count,
                     x->count);
    if (m->status != GP_OK)
        return;
    *out = *x;
    memcpy(out->dims, dims, rank * sizeof(*dims));
    out->rank = rank;
}

/* Return an axis as an index. After a failure: 0. */
static uint32_t axis_of(gp_onnx_mapping *m, int64_t axis, uint32_t rank)
{
    const int64_t index = axis < 0 ? axis + (int64_t)rank : axis;

    if (index < 0 || index >= (int64_t)rank)
        gp_onnx_fail(m, GP_EINVAL, "it has no axis %" PRId64, axis);
    return m->status == GP_OK ? (uint32_t)index : 0;
}

void *gp_onnx_tensor_new(gp_onnx_mapping *m, gp_onnx_tensor *out, int32_t type, uint32_t rank,
                         const int64_t *dims)
{
    gp_onnx_tensor tensor = { .name = "", .type = type, .rank = rank };
    void *data = NULL;

    if (rank > GP_ONNX_RANK_MAX)
        gp_onnx_fail(m, GP_ELIMIT, "a constant has %" PRIu32 " dimensions, at most %d are supported", rank,
                     GP_ONNX_RANK_MAX);
    else if (!gp_onnx_dims_count(&tensor.count, rank, dims))
        gp_onnx_fail(m, GP_ELIMIT, "a constant has more than %" PRId64 " elements", GP_ONNX_ELEMENTS_MAX);
    if (m->status == GP_OK)
        m->status =
            gp_onnx_store_take(m->store, (size_t)tensor.count * gp_onnx_type_bytes(type) + 1, &data, m->err);
    if (m->status != GP_OK)
        return NULL;
    if (rank > 0)
        memcpy(tensor.dims, dims, rank * sizeof(*dims));
    tensor.data = data;
    *out = tensor;
    return data;
}

/* Compute the strides of a tensor in elements. */
static void strides_of(const gp_onnx_tensor *tensor, int64_t strides[GP_ONNX_RANK_MAX])
{
    int64_t stride = 1;

    for (uint32_t i = tensor->rank; i-- > 0; stride *= tensor->dims[i])
        strides[i] = stride;
}

/* Advance to the next element in row-major order, and update its offset in up to two tensors. */
static void step(const gp_onnx_tensor *shape, int64_t index[GP_ONNX_RANK_MAX], const int64_t *stride_a,
                 int64_t *a, const int64_t *stride_b, int64_t *b)
{
    for (uint32_t i = shape->rank; i-- > 0;) {
        *a += stride_a[i];
        *b += stride_b[i];
        if (++index[i] < shape->dims[i])
            return;
        *a -= stride_a[i] * shape->dims[i];
        *b -= stride_b[i] * shape->dims[i];
        index[i] = 0;
    }
}

/* Create a tensor with the type of `from`, and fill it with elements of `from`, starting at offset
 * `at` with these strides. */
static void gather_strided(gp_onnx_mapping *m, gp_onnx_tensor *out, uint32_t rank, const int64_t *dims,
                           const gp_onnx_tensor *from, int64_t at, const int64_t strides[GP_ONNX_RANK_MAX])
{
    const size_t each = gp_onnx_type_bytes(from->type);
    int64_t index[GP_ONNX_RANK_MAX] = { 0 }, unused = 0;
    char *data = gp_onnx_tensor_new(m, out, from->type, rank, dims);

    for (int64_t i = 0; data != NULL && i < out->count; i++) {
        memcpy(data + (size_t)i * each, (const char *)from->data + (from->splat ? 0 : (size_t)at * each),
               each);
        step(out, index, strides, &at, strides, &unused);
    }
}

/* ---- operators that create tensors ---- */

static void numbers_new(gp_onnx_mapping *m, gp_onnx_tensor *out, int32_t type, uint32_t rank, size_t count,
                        const void *numbers)
{
    const int64_t length = (int64_t)count;
    void *data = gp_onnx_tensor_new(m, out, type, rank, &length);

    if (data != NULL && count > 0)
        memcpy(data, numbers, count * gp_onnx_type_bytes(type));
}

void gp_onnx_fold_constant(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const Onnx__AttributeProto *value = m->node->n_attribute == 1 ? m->node->attribute[0] : NULL;
    const char *name = value == NULL || value->name == NULL ? "" : value->name;
    const int32_t real = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;

    if (strcmp(name, "value") == 0 && value->t != NULL)
        m->status = gp_onnx_tensor_of(out, value->t, m->err);
    else if (strcmp(name, "value_float") == 0 && value->has_f)
        numbers_new(m, out, real, 0, 1, &value->f);
    else if (strcmp(name, "value_floats") == 0)
        numbers_new(m, out, real, 1, value->n_floats, value->floats);
    else if (strcmp(name, "value_int") == 0 && value->has_i)
        numbers_new(m, out, INT64_TYPE, 0, 1, &value->i);
    else if (strcmp(name, "value_ints") == 0)
        numbers_new(m, out, INT64_TYPE, 1, value->n_ints, value->ints);
    else
        gp_onnx_fail(m, GP_ECORRUPT, "it has no value");
}

void gp_onnx_fold_constant_of_shape(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    static const float zero = 0.0f;
    const Onnx__AttributeProto *value = gp_onnx_node_attribute(m, "value");
    gp_onnx_tensor one = { .type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, .count = 1, .data = &zero };
    int64_t dims[GP_ONNX_LIST_MAX];
    const uint32_t rank = (uint32_t)gp_onnx_node_list(m, 0, "dimensions", dims);

    if (value != NULL && value->t == NULL)
        gp_onnx_fail(m, GP_ECORRUPT, "its value is not a tensor");
    else if (value != NULL && m->status == GP_OK)
        m->status = gp_onnx_tensor_of(&one, value->t, m->err);
    if (one.count != 1)
        gp_onnx_fail(m, GP_ECORRUPT, "its value is not one number");
    one.splat = true;
    if (!gp_onnx_dims_count(&one.count, rank, dims))
        gp_onnx_fail(m, GP_ELIMIT, "a constant has more than %" PRId64 " elements", GP_ONNX_ELEMENTS_MAX);
    redimension(m, out, &one, rank, dims);
}

void gp_onnx_fold_shape(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_value *value = gp_onnx_node_input(m, 0);
    int64_t dims[GP_ONNX_RANK_MAX] = { GP_ONNX_SAMPLES }, rank;

    if (value != NULL && value->role != GP_ONNX_VALUE_CONSTANT) { /* a layer; see gp_onnx_value */
        rank = 1 + (int64_t)value->rank;
        memcpy(dims + 1, value->dims, sizeof(value->dims));
    } else {
        const gp_onnx_tensor *x = input_of(m, 0);

        rank = x->rank;
        memcpy(dims, x->dims, sizeof(dims));
    }
    const int64_t start = gp_onnx_slice_bound(gp_onnx_node_int(m, "start", 0), rank, 1, true);
    const int64_t end = gp_onnx_slice_bound(gp_onnx_node_int(m, "end", rank), rank, 1, false);

    numbers_new(m, out, INT64_TYPE, 1, end > start ? (size_t)(end - start) : 0, dims + start);
}

/* ---- operators that change dimensions ---- */

void gp_onnx_fold_identity(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    *out = *input_of(m, 0);
}

void gp_onnx_fold_unsqueeze(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    gp_onnx_fold_unsqueeze_of(m, input_of(m, 0), out);
}

void gp_onnx_fold_unsqueeze_of(gp_onnx_mapping *m, const gp_onnx_tensor *x, gp_onnx_tensor *out)
{
    int64_t axes[GP_ONNX_LIST_MAX], dims[2 * GP_ONNX_RANK_MAX];
    bool added[2 * GP_ONNX_RANK_MAX] = { false };
    const uint32_t count = (uint32_t)gp_onnx_node_list(m, 1, "axes", axes);
    uint32_t from = 0;

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t axis = axis_of(m, axes[i], x->rank + count);

        if (added[axis])
            gp_onnx_fail(m, GP_EINVAL, "axis %" PRId64 " is present twice", axes[i]);
        added[axis] = true;
    }
    if (m->status != GP_OK)
        return;
    for (uint32_t i = 0; i < x->rank + count; i++)
        dims[i] = added[i] ? 1 : x->dims[from++];
    redimension(m, out, x, x->rank + count, dims);
}

void gp_onnx_fold_squeeze(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    int64_t axes[GP_ONNX_LIST_MAX], dims[GP_ONNX_RANK_MAX];
    bool taken[GP_ONNX_RANK_MAX] = { false };
    uint32_t rank = 0;
    const gp_onnx_tensor *x = input_of(m, 0);
    const size_t count = gp_onnx_node_list(m, 1, "axes", axes);

    for (size_t i = 0; i < count; i++)
        taken[axis_of(m, axes[i], x->rank)] = true;
    for (uint32_t i = 0; i < x->rank; i++)
        if (count == 0 ? x->dims[i] != 1 : !taken[i])
            dims[rank++] = x->dims[i];
    redimension(m, out, x, rank, dims);
}

void gp_onnx_fold_flatten(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    int64_t dims[2] = { 1, 1 };
    const gp_onnx_tensor *x = input_of(m, 0);
    const int64_t number = gp_onnx_node_int(m, "axis", 1), axis = number < 0 ? number + x->rank : number;

    if (axis < 0 || axis > (int64_t)x->rank)
        gp_onnx_fail(m, GP_EINVAL, "it has no axis %" PRId64, number);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i >= axis] *= x->dims[i];
    redimension(m, out, x, 2, dims);
}

void gp_onnx_fold_reshape(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_tensor *x = input_of(m, 0);
    int64_t to[GP_ONNX_LIST_MAX], known = 1, *open = NULL;
    const size_t count = gp_onnx_node_list(m, 1, "shape", to);
    const bool keeps = gp_onnx_node_int(m, "allowzero", 0) == 0;

    for (size_t i = 0; i < count; i++) {
        if (to[i] == 0 && keeps)
            to[i] = i < x->rank ? x->dims[i] : -2;
        if (to[i] == -1 && open == NULL)
            open = &to[i];
        else if (to[i] < 0 || (to[i] != 0 && known > ((int64_t)1 << 31) / to[i]))
            gp_onnx_fail(m, GP_EINVAL, "dimension %zu does not match the %" PRId64 " numbers", i + 1,
                         x->count);
        else
            known *= to[i];
    }
    if (open != NULL)
        *open = known == 0 ? 0 : x->count / known;
    redimension(m, out, x, (uint32_t)count, to);
}

/* ---- operators that move elements ---- */

void gp_onnx_fold_gather(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_tensor *x = input_of(m, 0), *indices = input_of(m, 1);
    int64_t dims[2 * GP_ONNX_RANK_MAX], inner = 1, outer = 1;
    uint32_t rank = 0;

    if (!gp_onnx_is_whole(indices))
        gp_onnx_fail(m, GP_EINVAL, "its indices are not whole numbers");
    const uint32_t axis = axis_of(m, gp_onnx_node_int(m, "axis", 0), x->rank);

    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis) {
            /* each product is at most 2^31: gp_onnx_dims_count() counts a size of 0 as 1 */
            *(i < axis ? &outer : &inner) *= x->dims[i];
            dims[rank++] = x->dims[i];
        } else {
            for (uint32_t k = 0; k < indices->rank; k++)
                dims[rank++] = indices->dims[k];
        }
    const size_t each = gp_onnx_type_bytes(x->type), block = (size_t)inner * each;
    const int64_t size = x->dims[axis];
    char *to = gp_onnx_tensor_new(m, out, x->type, rank, dims);

    if (to == NULL || out->count == 0)
        return;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < indices->count; k++, to += block) {
            int64_t index = gp_onnx_int_at(indices, k);

            index += index < 0 && index >= -size ? size : 0;
            if (index < 0 || index >= size) {
                gp_onnx_fail(m, GP_EINVAL, "its index %" PRId64 " is not between 0 and %" PRId64, index,
                             size - 1);
                return;
            }
            if (!x->splat)
                memcpy(to, (const char *)x->data + (size_t)(o * size + index) * block, block);
            for (size_t i = 0; x->splat && i < block; i += each)
                memcpy(to + i, x->data, each);
        }
}

void gp_onnx_fold_concat(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_tensor *x[GP_ONNX_CONCAT_MAX];
    int64_t dims[GP_ONNX_RANK_MAX], at = 0, strides[GP_ONNX_RANK_MAX];
    const size_t count = m->node->n_input;

    assert(count <= GP_ONNX_CONCAT_MAX); /* checked against the operator table */
    x[0] = input_of(m, 0);
    const uint32_t axis = axis_of(m, gp_onnx_node_int(m, "axis", 0), x[0]->rank);

    memcpy(dims, x[0]->dims, sizeof(dims));
    for (size_t k = 1; k < count; k++) {
        x[k] = input_of(m, k);
        bool fits = x[k]->rank == x[0]->rank && x[k]->type == x[0]->type;

        for (uint32_t i = 0; fits && i < x[0]->rank; i++)
            fits = i == axis || x[k]->dims[i] == dims[i];
        if (!fits)
            gp_onnx_fail(m, GP_EINVAL, "its inputs differ along more than axis %" PRIu32, axis);
        dims[axis] += x[k]->dims[axis];
    }
    const size_t each = gp_onnx_type_bytes(x[0]->type);
    char *data = gp_onnx_tensor_new(m, out, x[0]->type, x[0]->rank, dims);

    if (data == NULL)
        return;
    strides_of(out, strides);
    for (size_t k = 0; k < count; at += x[k++]->dims[axis] * strides[axis]) {
        int64_t index[GP_ONNX_RANK_MAX] = { 0 }, place = at, unused = 0;

        for (int64_t i = 0; i < x[k]->count; i++) {
            memcpy(data + (size_t)place * each,
                   (const char *)x[k]->data + (x[k]->splat ? 0 : (size_t)i * each), each);
            step(x[k], index, strides, &place, strides, &unused);
        }
    }
}

void gp_onnx_fold_transpose(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const Onnx__AttributeProto *perm = gp_onnx_node_attribute(m, "perm");
    int64_t order[GP_ONNX_RANK_MAX], dims[GP_ONNX_RANK_MAX], from[GP_ONNX_RANK_MAX],
        strides[GP_ONNX_RANK_MAX];
    uint32_t seen = 0;
    const gp_onnx_tensor *x = input_of(m, 0);

    gp_onnx_node_ints(m, "perm", x->rank, 0, order);
    strides_of(x, from);
    for (uint32_t i = 0; i < x->rank && m->status == GP_OK; i++) {
        order[i] = perm == NULL ? (int64_t)(x->rank - 1 - i) : order[i];
        if (order[i] < 0 || order[i] >= (int64_t)x->rank || (seen >> order[i] & 1)) {
            gp_onnx_fail(m, GP_EINVAL, "its perm has axis %" PRId64 " twice or out of range", order[i]);
            return;
        }
        seen |= 1u << order[i];
        dims[i] = x->dims[order[i]];
        strides[i] = from[order[i]];
    }
    gather_strided(m, out, x->rank, dims, x, 0, strides);
}

/* Clamp a slice bound for this step as ONNX specifies. A negative bound counts from the end. */
int64_t gp_onnx_slice_bound(int64_t bound, int64_t size, int64_t step_size, bool is_start)
{
    const int64_t low = step_size > 0 || is_start ? 0 : -1, high = step_size > 0 ? size : size - 1;

    bound += bound < 0 && bound >= -size ? size : 0;
    return bound < low ? low : bound > high ? high : bound;
}

void gp_onnx_fold_slice(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    int64_t dims[GP_ONNX_RANK_MAX], strides[GP_ONNX_RANK_MAX], at = 0;
    gp_onnx_slices slices;
    const gp_onnx_tensor *x = input_of(m, 0);

    gp_onnx_node_slices(m, &slices);
    memcpy(dims, x->dims, sizeof(dims));
    strides_of(x, strides);
    for (size_t i = 0; i < slices.count && m->status == GP_OK; i++) {
        const int64_t apart = slices.steps[i];
        const uint32_t axis = axis_of(m, slices.axes[i], x->rank);

        if (apart == 0 || apart < -INT32_MAX || apart > INT32_MAX || dims[axis] != x->dims[axis])
            gp_onnx_fail(m, GP_EINVAL, "invalid step %" PRId64 ", or an axis that is present twice", apart);
        if (m->status != GP_OK)
            return;
        const int64_t start = gp_onnx_slice_bound(slices.starts[i], x->dims[axis], apart, true);
        const int64_t reach = gp_onnx_slice_bound(slices.ends[i], x->dims[axis], apart, false) - start;
        const int64_t left = apart > 0 ? (reach + apart - 1) / apart : (reach + apart + 1) / apart;

        dims[axis] = left < 0 || x->dims[axis] == 0 ? 0 : left;
        at += start * strides[axis];
        strides[axis] *= apart;
    }
    gather_strided(m, out, x->rank, dims, x, at, strides);
}

/* Compute the strides of a tensor broadcast to a shape from broadcast(); a repeated axis has
 * stride 0. */
static void broadcast_strides(const gp_onnx_tensor *from, uint32_t rank, int64_t strides[GP_ONNX_RANK_MAX])
{
    const uint32_t lead = rank - from->rank;
    int64_t own[GP_ONNX_RANK_MAX];

    strides_of(from, own);
    for (uint32_t i = 0; i < rank; i++)
        strides[i] = i < lead || from->dims[i - lead] == 1 ? 0 : own[i - lead];
}

/* Compute the shape to which two shapes broadcast. Return its rank. */
static uint32_t broadcast(gp_onnx_mapping *m, const gp_onnx_tensor *a, const int64_t *other,
                          uint32_t other_rank, int64_t dims[GP_ONNX_RANK_MAX])
{
    const uint32_t rank = a->rank > other_rank ? a->rank : other_rank;

    for (uint32_t i = 0; i < rank; i++) {
        int64_t x = i < rank - a->rank ? 1 : a->dims[i - (rank - a->rank)];
        int64_t y = i < rank - other_rank ? 1 : other[i - (rank - other_rank)];

        if (x != y && x != 1 && y != 1)
            gp_onnx_fail(m, GP_EINVAL, "sizes %" PRId64 " and %" PRId64 " do not broadcast", x, y);
        dims[i] = x == 1 ? y : x;
    }
    return rank;
}

void gp_onnx_fold_expand(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    int64_t to[GP_ONNX_LIST_MAX], dims[GP_ONNX_RANK_MAX], strides[GP_ONNX_RANK_MAX];
    const gp_onnx_tensor *x = input_of(m, 0);
    const uint32_t count = (uint32_t)gp_onnx_node_list(m, 1, "shape", to);
    const uint32_t rank = broadcast(m, x, to, count, dims);

    broadcast_strides(x, rank, strides);
    gather_strided(m, out, rank, dims, x, 0, strides);
}

/* ---- operators that compute elements ---- */

static void put_real(int32_t type, void *data, int64_t index, double number)
{
    float narrow = (float)number;

    if (type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        memcpy((char *)data + index * (int64_t)sizeof(narrow), &narrow, sizeof(narrow));
    else
        memcpy((char *)data + index * (int64_t)sizeof(number), &number, sizeof(number));
}

static void put_int(gp_onnx_mapping *m, int32_t type, void *data, int64_t index, int64_t number)
{
    const int32_t narrow = (int32_t)number;

    if (type == INT64_TYPE)
        memcpy((char *)data + index * (int64_t)sizeof(number), &number, sizeof(number));
    else if (number < INT32_MIN || number > INT32_MAX)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "%" PRId64 " does not fit in %s", number, gp_onnx_type_name(type));
    else if (type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        ((uint8_t *)data)[index] = number != 0;
    else
        memcpy((char *)data + index * (int64_t)sizeof(narrow), &narrow, sizeof(narrow));
}

/* Create a tensor with the shape of x, as a single element if x is one. Return its memory for
 * *count elements. */
static void *like_new(gp_onnx_mapping *m, gp_onnx_tensor *out, const gp_onnx_tensor *x, int32_t type,
                      int64_t *count)
{
    int64_t elements = x->splat ? 1 : x->count;
    gp_onnx_tensor made;
    void *data = gp_onnx_tensor_new(m, &made, type, 1, &elements);

    *count = data == NULL ? 0 : elements;
    *out = *x;
    out->type = type;
    out->data = data;
    return data;
}

void gp_onnx_fold_cast(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_tensor *x = input_of(m, 0);
    const int64_t to = gp_onnx_node_int(m, "to", 0);
    int64_t count;

    if (to < 0 || to > INT32_MAX || gp_onnx_type_bytes((int32_t)to) == 0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "a cast to ONNX type %" PRId64 " is not supported", to);
    void *data = like_new(m, out, x, (int32_t)to, &count);

    for (int64_t i = 0; i < count && m->status == GP_OK; i++) {
        if (gp_onnx_is_whole(x) && gp_onnx_int_at(x, i) == GP_ONNX_SAMPLES && to != INT64_TYPE)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "the number of samples is unknown");
        else if (!gp_onnx_is_whole(out))
            put_real(out->type, data, i, gp_onnx_real_at(x, i));
        else
            put_int(m, out->type, data, i,
                    to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL ? gp_onnx_real_at(x, i) != 0.0
                                                              : gp_onnx_int_at(x, i));
    }
}

void gp_onnx_fold_unary(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_tensor *x = input_of(m, 0);
    int64_t count;

    if (gp_onnx_is_whole(x) && m->arithmetic != GP_ONNX_NEG)
        gp_onnx_fail(m, GP_EINVAL, "it has whole numbers");
    void *data = like_new(m, out, x, x->type, &count);

    for (int64_t i = 0; i < count && m->status == GP_OK; i++) {
        const double number = gp_onnx_real_at(x, i);

        if (gp_onnx_is_whole(x) && gp_onnx_int_at(x, i) == GP_ONNX_SAMPLES)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "the number of samples is unknown");
        else if (gp_onnx_is_whole(x))
            put_int(m, x->type, data, i, -gp_onnx_int_at(x, i));
        else
            put_real(x->type, data, i,
                     m->arithmetic == GP_ONNX_NEG     ? -number
                     : m->arithmetic == GP_ONNX_SQRT  ? sqrt(number)
                     : m->arithmetic == GP_ONNX_FLOOR ? floor(number)
                                                      : ceil(number));
    }
}

static double combine_reals(gp_onnx_arithmetic op, double a, double b)
{
    return op == GP_ONNX_SUB ? a - b : op == GP_ONNX_MUL ? a * b : op == GP_ONNX_DIV ? a / b : a + b;
}

static int64_t combine_ints(gp_onnx_mapping *m, gp_onnx_arithmetic op, int64_t a, int64_t b)
{
    int64_t result = 0;

    if (a == GP_ONNX_SAMPLES || b == GP_ONNX_SAMPLES)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "the number of samples is unknown and cannot be used in a computation");
    else if (op == GP_ONNX_DIV && b == 0)
        gp_onnx_fail(m, GP_EINVAL, "division by zero");
    if (m->status != GP_OK)
        return 0;
    /* INT64_MIN / -1 cannot occur: INT64_MIN stands for the number of samples. */
    bool over = op == GP_ONNX_SUB   ? __builtin_sub_overflow(a, b, &result)
                : op == GP_ONNX_MUL ? __builtin_mul_overflow(a, b, &result)
                : op != GP_ONNX_DIV ? __builtin_add_overflow(a, b, &result)
                                    : (result = a / b, false);

    if (over || result == GP_ONNX_SAMPLES)
        gp_onnx_fail(m, GP_EINVAL, "%" PRId64 " and %" PRId64 " cause an int64 overflow", a, b);
    return result;
}

void gp_onnx_tensor_combine(gp_onnx_mapping *m, gp_onnx_tensor *out, gp_onnx_arithmetic op,
                            const gp_onnx_tensor *a, const gp_onnx_tensor *b)
{
    int64_t dims[GP_ONNX_RANK_MAX], index[GP_ONNX_RANK_MAX] = { 0 }, at_a = 0, at_b = 0;
    int64_t stride_a[GP_ONNX_RANK_MAX], stride_b[GP_ONNX_RANK_MAX];
    const bool whole = gp_onnx_is_whole(a);
    gp_onnx_tensor made;

    if (a->type != b->type || a->type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        gp_onnx_fail(m, GP_EINVAL, "its inputs are of types %s and %s", gp_onnx_type_name(a->type),
                     gp_onnx_type_name(b->type));
    const uint32_t rank = broadcast(m, a, b->dims, b->rank, dims);
    void *data = gp_onnx_tensor_new(m, &made, a->type, rank, dims);

    if (data == NULL)
        return;
    made.name = a->name;
    broadcast_strides(a, rank, stride_a);
    broadcast_strides(b, rank, stride_b);
    for (int64_t i = 0; i < made.count && m->status == GP_OK; i++) {
        if (whole)
            put_int(m, a->type, data, i,
                    combine_ints(m, op, gp_onnx_int_at(a, at_a), gp_onnx_int_at(b, at_b)));
        else
            put_real(a->type, data, i, combine_reals(op, gp_onnx_real_at(a, at_a), gp_onnx_real_at(b, at_b)));
        step(&made, index, stride_a, &at_a, stride_b, &at_b);
    }
    *out = made;
}

void gp_onnx_tensor_scale(gp_onnx_mapping *m, gp_onnx_tensor *tensor, double factor)
{
    const gp_onnx_tensor from = *tensor;
    int64_t count;

    if (factor == 1.0 || m->status != GP_OK)
        return;
    void *data = like_new(m, tensor, &from, from.type, &count);

    for (int64_t i = 0; i < count; i++)
        put_real(from.type, data, i, factor * gp_onnx_real_at(&from, i));
}

void gp_onnx_fold_arithmetic(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    *out = *input_of(m, 0);
    for (size_t k = 1; k < m->node->n_input; k++) {
        const gp_onnx_tensor before = *out, *x = input_of(m, k);

        if (m->opset < 7 && before.rank != x->rank && gp_onnx_node_attribute(m, "axis") != NULL)
            gp_onnx_fail(m, GP_EUNSUPPORTED, "its axis is not supported for constants");
        gp_onnx_tensor_combine(m, out, m->arithmetic, &before, x);
    }
}
