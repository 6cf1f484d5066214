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

/* Get the k-th input, which is required. */
static gp_status input_of(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k,
                          const gp_onnx_tensor **out, gp_error *err)
{
    gp_status status = gp_onnx_node_constant(m, node, k, out, err);

    if (status == GP_OK && *out == NULL)
        return gp_fail(err, GP_ECORRUPT, "its input %zu is missing", k + 1);
    return status;
}

/* Change the dimensions of a tensor without changing the number of elements. */
static gp_status redimension(gp_onnx_tensor *tensor, uint32_t rank, const int64_t *dims, gp_error *err)
{
    int64_t count;

    if (rank > GP_ONNX_RANK_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "over %d dimensions are not supported", GP_ONNX_RANK_MAX);
    if (!gp_onnx_dims_count(&count, rank, dims))
        return gp_fail(err, GP_EINVAL, "its dimensions do not fit the %" PRId64 " numbers", tensor->count);
    memcpy(tensor->dims, dims, rank * sizeof(*dims));
    tensor->rank = rank;
    if (count != tensor->count)
        return gp_fail(err, GP_EINVAL, "its dimensions make %" PRId64 " numbers of %" PRId64, count,
                       tensor->count);
    return GP_OK;
}

static gp_status axis_of(int64_t axis, uint32_t rank, uint32_t *out, gp_error *err)
{
    axis += axis < 0 ? (int64_t)rank : 0;
    if (axis < 0 || axis >= (int64_t)rank)
        return gp_fail(err, GP_EINVAL, "it has no axis %" PRId64, axis);
    *out = (uint32_t)axis;
    return GP_OK;
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

/* Fill out with elements of from, starting at offset `at` with these strides. Both have the same
 * type. */
static void copy_strided(const gp_onnx_tensor *out, void *data, const gp_onnx_tensor *from, int64_t at,
                         const int64_t strides[GP_ONNX_RANK_MAX])
{
    const size_t each = gp_onnx_type_bytes(from->type);
    int64_t index[GP_ONNX_RANK_MAX] = { 0 }, unused = 0;

    for (int64_t i = 0; i < out->count; i++) {
        memcpy((char *)data + (size_t)i * each,
               (const char *)from->data + (from->splat ? 0 : (size_t)at * each), each);
        step(out, index, strides, &at, strides, &unused);
    }
}

/* ---- operators that create tensors ---- */

static gp_status numbers_new(gp_onnx_mapping *m, gp_onnx_tensor *out, int32_t type, uint32_t rank,
                             size_t count, const void *numbers, gp_error *err)
{
    const int64_t length = (int64_t)count;
    void *data;
    gp_status status = gp_onnx_tensor_new(out, m->store, type, rank, &length, &data, err);

    if (status == GP_OK && count > 0)
        memcpy(data, numbers, count * gp_onnx_type_bytes(type));
    return status;
}

gp_status gp_onnx_fold_constant(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                gp_error *err)
{
    const Onnx__AttributeProto *value = node->n_attribute == 1 ? node->attribute[0] : NULL;
    const int32_t real = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;

    if (value == NULL || value->name == NULL)
        return gp_fail(err, GP_ECORRUPT, "it has no value");
    if (strcmp(value->name, "value") == 0 && value->t != NULL)
        return gp_onnx_tensor_of(out, value->t, err);
    if (strcmp(value->name, "value_float") == 0 && value->has_f)
        return numbers_new(m, out, real, 0, 1, &value->f, err);
    if (strcmp(value->name, "value_floats") == 0)
        return numbers_new(m, out, real, 1, value->n_floats, value->floats, err);
    if (strcmp(value->name, "value_int") == 0 && value->has_i)
        return numbers_new(m, out, INT64_TYPE, 0, 1, &value->i, err);
    if (strcmp(value->name, "value_ints") == 0)
        return numbers_new(m, out, INT64_TYPE, 1, value->n_ints, value->ints, err);
    return gp_fail(err, GP_ECORRUPT, "it has no value");
}

gp_status gp_onnx_fold_constant_of_shape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                         gp_error *err)
{
    static const float zero = 0.0f;
    const Onnx__AttributeProto *value = gp_onnx_node_attribute(node, "value");
    int64_t dims[GP_ONNX_LIST_MAX];
    size_t rank;
    gp_status status = gp_onnx_node_list(m, node, 0, "dimensions", dims, &rank, err);

    if (status == GP_OK && value != NULL && value->t == NULL)
        return gp_fail(err, GP_ECORRUPT, "its value is no tensor");
    *out = (gp_onnx_tensor){ .type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, .count = 1, .data = &zero };
    if (status == GP_OK && value != NULL)
        status = gp_onnx_tensor_of(out, value->t, err);
    if (status != GP_OK)
        return status;
    if (out->count != 1)
        return gp_fail(err, GP_ECORRUPT, "its value is not one number");
    out->splat = true;
    if (!gp_onnx_dims_count(&out->count, (uint32_t)rank, dims))
        return gp_fail(err, GP_ELIMIT, "a constant of over %" PRId64 " elements", GP_ONNX_ELEMENTS_MAX);
    return redimension(out, (uint32_t)rank, dims, err);
}

gp_status gp_onnx_fold_shape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                             gp_error *err)
{
    const gp_onnx_tensor *x;
    int64_t start, end;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "start", 0, &start, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "end", x->rank, &end, err);
    if (status != GP_OK)
        return status;
    const int64_t rank = x->rank;

    start = start < -rank ? 0 : start < 0 ? start + rank : start > rank ? rank : start;
    end = end < -rank ? 0 : end < 0 ? end + rank : end > rank ? rank : end;
    return numbers_new(m, out, INT64_TYPE, 1, end > start ? (size_t)(end - start) : 0, x->dims + start, err);
}

/* ---- operators that change dimensions ---- */

gp_status gp_onnx_fold_identity(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                gp_error *err)
{
    const gp_onnx_tensor *x;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        *out = *x;
    return status;
}

gp_status gp_onnx_fold_unsqueeze(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                 gp_error *err)
{
    const gp_onnx_tensor *x;
    gp_status status = input_of(m, node, 0, &x, err);

    return status == GP_OK ? gp_onnx_fold_unsqueeze_of(m, node, x, out, err) : status;
}

gp_status gp_onnx_fold_unsqueeze_of(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_tensor *x,
                                    gp_onnx_tensor *out, gp_error *err)
{
    int64_t axes[GP_ONNX_LIST_MAX], dims[2 * GP_ONNX_RANK_MAX];
    bool added[2 * GP_ONNX_RANK_MAX] = { false };
    size_t count = 0;
    uint32_t axis, from = 0;
    gp_status status = gp_onnx_node_list(m, node, 1, "axes", axes, &count, err);

    for (size_t i = 0; i < count && status == GP_OK; i++) {
        status = axis_of(axes[i], x->rank + (uint32_t)count, &axis, err);
        if (status == GP_OK && added[axis])
            status = gp_fail(err, GP_EINVAL, "axis %" PRId64 " is named twice", axes[i]);
        if (status == GP_OK)
            added[axis] = true;
    }
    if (status != GP_OK)
        return status;
    *out = *x;
    for (uint32_t i = 0; i < x->rank + count; i++)
        dims[i] = added[i] ? 1 : x->dims[from++];
    return redimension(out, x->rank + (uint32_t)count, dims, err);
}

gp_status gp_onnx_fold_squeeze(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                               gp_error *err)
{
    int64_t axes[GP_ONNX_LIST_MAX], dims[GP_ONNX_RANK_MAX];
    bool taken[GP_ONNX_RANK_MAX] = { false };
    size_t count = 0;
    uint32_t axis, rank = 0;
    const gp_onnx_tensor *x;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 1, "axes", axes, &count, err);
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        status = axis_of(axes[i], x->rank, &axis, err);
        if (status == GP_OK)
            taken[axis] = true;
    }
    if (status != GP_OK)
        return status;
    *out = *x;
    for (uint32_t i = 0; i < x->rank; i++)
        if (count == 0 ? x->dims[i] != 1 : !taken[i])
            dims[rank++] = x->dims[i];
    return redimension(out, rank, dims, err);
}

gp_status gp_onnx_fold_flatten(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                               gp_error *err)
{
    const gp_onnx_tensor *x;
    int64_t axis, dims[2] = { 1, 1 };
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", 1, &axis, err);
    if (status != GP_OK)
        return status;
    axis += axis < 0 ? (int64_t)x->rank : 0;
    if (axis < 0 || axis > (int64_t)x->rank)
        return gp_fail(err, GP_EINVAL, "it has no axis %" PRId64, axis);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i >= axis] *= x->dims[i];
    *out = *x;
    return redimension(out, 2, dims, err);
}

gp_status gp_onnx_fold_reshape(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                               gp_error *err)
{
    const gp_onnx_tensor *x;
    int64_t to[GP_ONNX_LIST_MAX], zero, known = 1, *open = NULL;
    size_t count;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 1, "shape", to, &count, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "allowzero", 0, &zero, err);
    if (status != GP_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        if (to[i] == 0 && zero == 0)
            to[i] = i < x->rank ? x->dims[i] : -2;
        if (to[i] == -1 && open == NULL)
            open = &to[i];
        else if (to[i] < 0 || (to[i] != 0 && known > ((int64_t)1 << 31) / to[i]))
            return gp_fail(err, GP_EINVAL, "dimension %zu does not fit the %" PRId64 " numbers", i + 1,
                           x->count);
        else
            known *= to[i];
    }
    if (open != NULL)
        *open = known == 0 ? 0 : x->count / known;
    *out = *x;
    return redimension(out, (uint32_t)count, to, err);
}

/* ---- operators that move elements ---- */

gp_status gp_onnx_fold_gather(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                              gp_error *err)
{
    const gp_onnx_tensor *x, *indices;
    int64_t number, dims[2 * GP_ONNX_RANK_MAX], inner = 1, outer = 1;
    uint32_t axis, rank = 0;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = input_of(m, node, 1, &indices, err);
    if (status == GP_OK && !gp_onnx_is_whole(indices))
        status = gp_fail(err, GP_EINVAL, "its indices are no whole numbers");
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", 0, &number, err);
    if (status == GP_OK)
        status = axis_of(number, x->rank, &axis, err);
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis)
            dims[rank++] = x->dims[i];
        else
            for (uint32_t k = 0; k < indices->rank; k++)
                dims[rank++] = indices->dims[k];
    for (uint32_t i = 0; i < x->rank; i++)
        /* each product is at most 2^31: gp_onnx_dims_count() counts a size of 0 as 1 */
        if (i != axis)
            *(i < axis ? &outer : &inner) *= x->dims[i];
    status = gp_onnx_tensor_new(out, m->store, x->type, rank, dims, &data, err);
    if (status != GP_OK || out->count == 0)
        return status;
    const size_t block = (size_t)inner * gp_onnx_type_bytes(x->type), each = gp_onnx_type_bytes(x->type);
    const int64_t size = x->dims[axis];
    char *to = data;

    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < indices->count; k++, to += block) {
            int64_t index = gp_onnx_int_at(indices, k);

            index += index < 0 && index >= -size ? size : 0;
            if (index < 0 || index >= size)
                return gp_fail(err, GP_EINVAL, "its index %" PRId64 " is outside of 0 to %" PRId64, index,
                               size - 1);
            if (!x->splat)
                memcpy(to, (const char *)x->data + (size_t)(o * size + index) * block, block);
            for (size_t i = 0; x->splat && i < block; i += each)
                memcpy(to + i, x->data, each);
        }
    return GP_OK;
}

gp_status gp_onnx_fold_concat(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                              gp_error *err)
{
    const gp_onnx_tensor *x[GP_ONNX_CONCAT_MAX];
    int64_t number, dims[GP_ONNX_RANK_MAX], at = 0, strides[GP_ONNX_RANK_MAX];
    uint32_t axis = 0;
    void *data;
    gp_status status = gp_onnx_node_int(node, "axis", 0, &number, err);

    assert(node->n_input <= GP_ONNX_CONCAT_MAX); /* checked against the operator table */
    for (size_t k = 0; k < node->n_input && status == GP_OK; k++) {
        status = input_of(m, node, k, &x[k], err);
        if (status == GP_OK && k == 0) {
            status = axis_of(number, x[0]->rank, &axis, err);
            memcpy(dims, x[0]->dims, sizeof(dims));
            continue;
        }
        bool fits = status == GP_OK && x[k]->rank == x[0]->rank && x[k]->type == x[0]->type;

        for (uint32_t i = 0; fits && i < x[0]->rank; i++)
            fits = i == axis || x[k]->dims[i] == dims[i];
        if (status == GP_OK && !fits)
            return gp_fail(err, GP_EINVAL, "its inputs differ along more than axis %" PRIu32, axis);
        if (fits)
            dims[axis] += x[k]->dims[axis];
    }
    if (status == GP_OK)
        status = gp_onnx_tensor_new(out, m->store, x[0]->type, x[0]->rank, dims, &data, err);
    if (status != GP_OK)
        return status;
    const size_t each = gp_onnx_type_bytes(out->type);

    strides_of(out, strides);
    for (size_t k = 0; k < node->n_input; at += x[k++]->dims[axis] * strides[axis]) {
        int64_t index[GP_ONNX_RANK_MAX] = { 0 }, place = at, unused = 0;

        for (int64_t i = 0; i < x[k]->count; i++) {
            memcpy((char *)data + (size_t)place * each,
                   (const char *)x[k]->data + (x[k]->splat ? 0 : (size_t)i * each), each);
            step(x[k], index, strides, &place, strides, &unused);
        }
    }
    return GP_OK;
}

gp_status gp_onnx_fold_transpose(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                 gp_error *err)
{
    const Onnx__AttributeProto *perm = gp_onnx_node_attribute(node, "perm");
    int64_t order[GP_ONNX_RANK_MAX], dims[GP_ONNX_RANK_MAX], from[GP_ONNX_RANK_MAX],
        strides[GP_ONNX_RANK_MAX];
    uint32_t seen = 0;
    const gp_onnx_tensor *x;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_ints(node, "perm", x->rank, 0, order, err);
    if (status != GP_OK)
        return status;
    strides_of(x, from);
    for (uint32_t i = 0; i < x->rank; i++) {
        order[i] = perm == NULL ? (int64_t)(x->rank - 1 - i) : order[i];
        if (order[i] < 0 || order[i] >= (int64_t)x->rank || (seen >> order[i] & 1))
            return gp_fail(err, GP_EINVAL, "its perm has axis %" PRId64 " twice or out of range", order[i]);
        seen |= 1u << order[i];
        dims[i] = x->dims[order[i]];
        strides[i] = from[order[i]];
    }
    status = gp_onnx_tensor_new(out, m->store, x->type, x->rank, dims, &data, err);
    if (status == GP_OK)
        copy_strided(out, data, x, 0, strides);
    return status;
}

/* Clamp a slice bound for this step as ONNX specifies. A negative bound counts from the end. */
static int64_t clamp(int64_t bound, int64_t size, int64_t step_size, bool is_start)
{
    const int64_t low = step_size > 0 ? 0 : is_start ? 0 : -1, high = step_size > 0 ? size : size - 1;

    bound += bound < 0 && bound >= -size ? size : 0;
    return bound < low ? low : bound > high ? high : bound;
}

gp_status gp_onnx_fold_slice(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                             gp_error *err)
{
    int64_t dims[GP_ONNX_RANK_MAX], strides[GP_ONNX_RANK_MAX], at = 0;
    gp_onnx_slices slices;
    uint32_t axis;
    const gp_onnx_tensor *x;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_slices(m, node, &slices, err);
    if (status != GP_OK)
        return status;
    memcpy(dims, x->dims, sizeof(dims));
    strides_of(x, strides);
    for (size_t i = 0; i < slices.count; i++) {
        const int64_t apart = slices.steps[i];

        status = axis_of(slices.axes[i], x->rank, &axis, err);
        if (status != GP_OK)
            return status;
        if (apart == 0 || apart < -INT32_MAX || apart > INT32_MAX || dims[axis] != x->dims[axis])
            return gp_fail(err, GP_EINVAL, "a step of %" PRId64 ", or an axis that is cut twice", apart);
        const int64_t start = clamp(slices.starts[i], x->dims[axis], apart, true);
        const int64_t reach = clamp(slices.ends[i], x->dims[axis], apart, false) - start;
        const int64_t left = apart > 0 ? (reach + apart - 1) / apart : (reach + apart + 1) / apart;

        dims[axis] = left < 0 || x->dims[axis] == 0 ? 0 : left;
        at += start * strides[axis];
        strides[axis] *= apart;
    }
    status = gp_onnx_tensor_new(out, m->store, x->type, x->rank, dims, &data, err);
    if (status == GP_OK)
        copy_strided(out, data, x, at, strides);
    return status;
}

/* Compute the strides of a tensor broadcast to a shape; a repeated axis has stride 0. false: the
 * shapes do not fit. */
static bool broadcast_strides(const gp_onnx_tensor *from, uint32_t rank, const int64_t *dims,
                              int64_t strides[GP_ONNX_RANK_MAX])
{
    int64_t own[GP_ONNX_RANK_MAX];

    if (from->rank > rank)
        return false;
    strides_of(from, own);
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t lead = rank - from->rank;

        strides[i] = i < lead || from->dims[i - lead] == 1 ? 0 : own[i - lead];
        if (i >= lead && from->dims[i - lead] != 1 && from->dims[i - lead] != dims[i])
            return false;
    }
    return true;
}

/* Compute the shape to which two shapes broadcast. */
static gp_status broadcast(const gp_onnx_tensor *a, const int64_t *other, uint32_t other_rank,
                           int64_t dims[GP_ONNX_RANK_MAX], uint32_t *rank, gp_error *err)
{
    *rank = a->rank > other_rank ? a->rank : other_rank;
    for (uint32_t i = 0; i < *rank; i++) {
        int64_t x = i < *rank - a->rank ? 1 : a->dims[i - (*rank - a->rank)];
        int64_t y = i < *rank - other_rank ? 1 : other[i - (*rank - other_rank)];

        if (x != y && x != 1 && y != 1)
            return gp_fail(err, GP_EINVAL, "sizes %" PRId64 " and %" PRId64 " do not broadcast", x, y);
        dims[i] = x == 1 ? y : x;
    }
    return GP_OK;
}

gp_status gp_onnx_fold_expand(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                              gp_error *err)
{
    int64_t to[GP_ONNX_LIST_MAX], dims[GP_ONNX_RANK_MAX], strides[GP_ONNX_RANK_MAX];
    size_t count;
    uint32_t rank;
    const gp_onnx_tensor *x;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_list(m, node, 1, "shape", to, &count, err);
    if (status == GP_OK)
        status = broadcast(x, to, (uint32_t)count, dims, &rank, err);
    if (status != GP_OK)
        return status;
    status = gp_onnx_tensor_new(out, m->store, x->type, rank, dims, &data, err);
    if (status != GP_OK)
        return status;
    if (!broadcast_strides(x, rank, dims, strides))
        return gp_fail(err, GP_EINVAL, "it does not broadcast to its shape");
    copy_strided(out, data, x, 0, strides);
    return GP_OK;
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

static gp_status put_int(int32_t type, void *data, int64_t index, int64_t number, gp_error *err)
{
    const int32_t narrow = (int32_t)number;

    if (type == INT64_TYPE) {
        memcpy((char *)data + index * (int64_t)sizeof(number), &number, sizeof(number));
        return GP_OK;
    }
    if (number < INT32_MIN || number > INT32_MAX)
        return gp_fail(err, GP_EUNSUPPORTED, "%" PRId64 " does not fit %s", number, gp_onnx_type_name(type));
    if (type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        ((uint8_t *)data)[index] = number != 0;
    else
        memcpy((char *)data + index * (int64_t)sizeof(narrow), &narrow, sizeof(narrow));
    return GP_OK;
}

/* Create a tensor with the shape of x, as a single element if x is one. */
static gp_status like_new(gp_onnx_tensor *out, gp_onnx_store *store, const gp_onnx_tensor *x, int32_t type,
                          void **data, int64_t *count, gp_error *err)
{
    *count = x->splat ? 1 : x->count;
    gp_status status = gp_onnx_tensor_new(out, store, type, 1, count, data, err);

    if (status != GP_OK)
        return status;
    const void *numbers = out->data;

    *out = *x;
    out->type = type;
    out->data = numbers;
    return GP_OK;
}

gp_status gp_onnx_fold_cast(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                            gp_error *err)
{
    const gp_onnx_tensor *x;
    int64_t to, count;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK)
        status = gp_onnx_node_int(node, "to", 0, &to, err);
    if (status == GP_OK && (to < 0 || to > INT32_MAX || gp_onnx_type_bytes((int32_t)to) == 0))
        status = gp_fail(err, GP_EUNSUPPORTED, "a cast to ONNX type %" PRId64 " is not supported", to);
    if (status == GP_OK)
        status = like_new(out, m->store, x, (int32_t)to, &data, &count, err);
    for (int64_t i = 0; status == GP_OK && i < count; i++) {
        if (gp_onnx_is_whole(x) && gp_onnx_int_at(x, i) == GP_ONNX_SAMPLES && to != INT64_TYPE)
            return gp_fail(err, GP_EUNSUPPORTED, "the number of samples is not known");
        if (!gp_onnx_is_whole(out))
            put_real(out->type, data, i, gp_onnx_real_at(x, i));
        else if (to == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
            status = put_int(out->type, data, i, gp_onnx_real_at(x, i) != 0.0, err);
        else
            status = put_int(out->type, data, i, gp_onnx_int_at(x, i), err);
    }
    return status;
}

gp_status gp_onnx_fold_unary(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                             gp_error *err)
{
    const gp_onnx_tensor *x;
    int64_t count;
    void *data;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status == GP_OK && gp_onnx_is_whole(x) && m->arithmetic != GP_ONNX_NEG)
        status = gp_fail(err, GP_EINVAL, "it is of whole numbers");
    if (status == GP_OK)
        status = like_new(out, m->store, x, x->type, &data, &count, err);
    for (int64_t i = 0; status == GP_OK && i < count; i++) {
        const double number = gp_onnx_real_at(x, i);

        if (gp_onnx_is_whole(x) && gp_onnx_int_at(x, i) == GP_ONNX_SAMPLES)
            return gp_fail(err, GP_EUNSUPPORTED, "the number of samples is not known");
        if (gp_onnx_is_whole(x))
            status = put_int(x->type, data, i, -gp_onnx_int_at(x, i), err);
        else
            put_real(x->type, data, i,
                     m->arithmetic == GP_ONNX_NEG     ? -number
                     : m->arithmetic == GP_ONNX_SQRT  ? sqrt(number)
                     : m->arithmetic == GP_ONNX_FLOOR ? floor(number)
                                                      : ceil(number));
    }
    return status;
}

static double combine_reals(gp_onnx_arithmetic op, double a, double b)
{
    return op == GP_ONNX_SUB ? a - b : op == GP_ONNX_MUL ? a * b : op == GP_ONNX_DIV ? a / b : a + b;
}

static gp_status combine_ints(gp_onnx_arithmetic op, int64_t a, int64_t b, int64_t *out, gp_error *err)
{
    bool over;

    if (a == GP_ONNX_SAMPLES || b == GP_ONNX_SAMPLES)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "the number of samples is not known, and cannot be computed with");
    if (op == GP_ONNX_DIV && b == 0)
        return gp_fail(err, GP_EINVAL, "a division by zero");
    /* INT64_MIN / -1 cannot occur: INT64_MIN stands for the number of samples. */
    over = op == GP_ONNX_SUB   ? __builtin_sub_overflow(a, b, out)
           : op == GP_ONNX_MUL ? __builtin_mul_overflow(a, b, out)
           : op != GP_ONNX_DIV ? __builtin_add_overflow(a, b, out)
                               : (*out = a / b, false);
    if (over || *out == GP_ONNX_SAMPLES)
        return gp_fail(err, GP_EINVAL, "%" PRId64 " and %" PRId64 " give a number that int64 does not hold",
                       a, b);
    return GP_OK;
}

gp_status gp_onnx_tensor_combine(gp_onnx_tensor *out, gp_onnx_store *store, gp_onnx_arithmetic op,
                                 const gp_onnx_tensor *a, const gp_onnx_tensor *b, gp_error *err)
{
    int64_t dims[GP_ONNX_RANK_MAX], index[GP_ONNX_RANK_MAX] = { 0 }, at_a = 0, at_b = 0, whole;
    int64_t stride_a[GP_ONNX_RANK_MAX], stride_b[GP_ONNX_RANK_MAX];
    gp_onnx_tensor made;
    uint32_t rank;
    void *data;

    if (a->type != b->type || a->type == ONNX__TENSOR_PROTO__DATA_TYPE__BOOL)
        return gp_fail(err, GP_EINVAL, "its inputs are of types %s and %s", gp_onnx_type_name(a->type),
                       gp_onnx_type_name(b->type));
    gp_status status = broadcast(a, b->dims, b->rank, dims, &rank, err);

    if (status == GP_OK)
        status = gp_onnx_tensor_new(&made, store, a->type, rank, dims, &data, err);
    if (status != GP_OK)
        return status;
    made.name = a->name;
    if (!broadcast_strides(a, rank, dims, stride_a) || !broadcast_strides(b, rank, dims, stride_b))
        return gp_fail(err, GP_EINVAL, "its inputs do not broadcast");
    for (int64_t i = 0; i < made.count; i++) {
        if (!gp_onnx_is_whole(a))
            put_real(a->type, data, i, combine_reals(op, gp_onnx_real_at(a, at_a), gp_onnx_real_at(b, at_b)));
        else if ((status = combine_ints(op, gp_onnx_int_at(a, at_a), gp_onnx_int_at(b, at_b), &whole, err)) !=
                     GP_OK ||
                 (status = put_int(a->type, data, i, whole, err)) != GP_OK)
            return status;
        step(&made, index, stride_a, &at_a, stride_b, &at_b);
    }
    *out = made;
    return GP_OK;
}

gp_status gp_onnx_tensor_scale(gp_onnx_tensor *tensor, gp_onnx_store *store, double factor, gp_error *err)
{
    gp_onnx_tensor made;
    int64_t count;
    void *data;

    if (factor == 1.0)
        return GP_OK;
    gp_status status = like_new(&made, store, tensor, tensor->type, &data, &count, err);

    for (int64_t i = 0; status == GP_OK && i < count; i++)
        put_real(made.type, data, i, factor * gp_onnx_real_at(tensor, i));
    if (status == GP_OK)
        *tensor = made;
    return status;
}

gp_status gp_onnx_fold_arithmetic(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                                  gp_error *err)
{
    const gp_onnx_tensor *x;
    gp_status status = input_of(m, node, 0, &x, err);

    if (status != GP_OK)
        return status;
    *out = *x;
    for (size_t k = 1; k < node->n_input; k++) {
        const gp_onnx_tensor before = *out;

        status = input_of(m, node, k, &x, err);
        if (status == GP_OK && m->opset < 7 && before.rank != x->rank &&
            gp_onnx_node_attribute(node, "axis") != NULL)
            status = gp_fail(err, GP_EUNSUPPORTED, "its axis is not supported for constants");
        if (status == GP_OK)
            status = gp_onnx_tensor_combine(out, m->store, m->arithmetic, &before, x, err);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}
