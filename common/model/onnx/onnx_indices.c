/* onnx_indices.c -- indices computed from the number of samples.
 *
 * PyTorch's torch.export exporter writes a change of strides as arithmetic: it flattens the
 * batch, computes the index of each number as Range(0, N, 1) * C + (0 .. C - 1), and gathers.
 * Such indices are stored as those of sample 0 and an increment per sample. Range creates them;
 * Mul, Add and Unsqueeze preserve the form; a Gather that takes every number from its own
 * position is a view of the batch. All other uses are rejected. */
#include <inttypes.h>
#include <string.h>

#include "common/model/onnx/onnx_map.h"

#define INT64_TYPE ONNX__TENSOR_PROTO__DATA_TYPE__INT64

static gp_status whole_number(const gp_onnx_mapping *m, const Onnx__NodeProto *node, size_t k, int64_t *out,
                              gp_error *err)
{
    const gp_onnx_tensor *tensor;
    gp_status status = gp_onnx_node_constant(m, node, k, &tensor, err);

    if (status == GP_OK && (tensor == NULL || !gp_onnx_is_whole(tensor) || tensor->count != 1))
        status = gp_fail(err, GP_EUNSUPPORTED, "its input %zu is not one whole number", k + 1);
    if (status == GP_OK)
        *out = gp_onnx_int_at(tensor, 0);
    return status;
}

gp_status gp_onnx_fold_range(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_onnx_tensor *out,
                             gp_error *err)
{
    int64_t first, limit, step, count = 1;
    void *data;
    gp_status status = whole_number(m, node, 0, &first, err);

    if (status == GP_OK)
        status = whole_number(m, node, 1, &limit, err);
    if (status == GP_OK)
        status = whole_number(m, node, 2, &step, err);
    if (status != GP_OK)
        return status;
    if (first != 0 || step != 1 || (limit < 0 && limit != GP_ONNX_SAMPLES))
        return gp_fail(err, GP_EUNSUPPORTED, "a range other than 0, 1, 2 ... is not supported");
    if (limit != GP_ONNX_SAMPLES)
        count = limit;
    status = gp_onnx_tensor_new(out, m->store, INT64_TYPE, 1, &count, &data, err);
    for (int64_t i = 0; status == GP_OK && i < count; i++)
        memcpy((char *)data + i * (int64_t)sizeof(i), &i, sizeof(i));
    out->per_sample = status == GP_OK && limit == GP_ONNX_SAMPLES ? 1 : 0;
    return status;
}

/* Multiply indices by a number, or add numbers that are equal for all samples. */
static gp_status combine(gp_onnx_mapping *m, const gp_onnx_tensor *indices, const gp_onnx_tensor *by,
                         gp_onnx_tensor *out, gp_error *err)
{
    const bool product = m->arithmetic == GP_ONNX_MUL;
    int64_t per_sample = indices->per_sample;
    bool fits = gp_onnx_is_whole(by) && by->rank <= indices->rank;

    fits = fits && (product ? by->count == 1 : by->rank < indices->rank || by->rank == 0 || by->dims[0] == 1);
    if (fits && product)
        fits = !__builtin_mul_overflow(per_sample, gp_onnx_int_at(by, 0), &per_sample) && per_sample != 0;
    if (!fits)
        return gp_fail(err, GP_EUNSUPPORTED, "its inputs are not indices and what fits each sample alike");
    gp_status status = gp_onnx_tensor_combine(out, m->store, m->arithmetic, indices, by, err);

    out->per_sample = per_sample;
    return status;
}

/* Insert axes of size 1 after the sample axis. */
static gp_status unsqueeze(gp_onnx_mapping *m, const Onnx__NodeProto *node, const gp_onnx_tensor *indices,
                           gp_onnx_tensor *out, gp_error *err)
{
    gp_status status = gp_onnx_fold_unsqueeze_of(m, node, indices, out, err);

    if (status == GP_OK && out->dims[0] != indices->dims[0])
        status = gp_fail(err, GP_EUNSUPPORTED, "it puts an axis before that of the samples");
    return status;
}

gp_status gp_onnx_map_indices(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    gp_onnx_value *made = gp_onnx_value_find(m, node->output[0]), *a, *b = NULL;
    const bool arithmetic = m->arithmetic == GP_ONNX_MUL || m->arithmetic == GP_ONNX_ADD;
    gp_onnx_tensor *out;
    void *block;
    gp_status status = gp_onnx_node_input(m, node, 0, &a, err);

    if (status == GP_OK)
        status = gp_onnx_node_input(m, node, 1, &b, err);
    if (status == GP_OK)
        status = gp_onnx_store_take(m->store, sizeof(*out), &block, err);
    if (status != GP_OK)
        return status;
    out = block;
    if (arithmetic && a != NULL && b != NULL && a->role == GP_ONNX_VALUE_CONSTANT) {
        gp_onnx_value *swap = a;

        a = b;
        b = swap;
    }
    const bool known = a != NULL && a->role == GP_ONNX_VALUE_INDICES && b != NULL &&
                       b->role == GP_ONNX_VALUE_CONSTANT && b->tensor->data != NULL;

    if (known && arithmetic)
        status = combine(m, a->tensor, b->tensor, out, err);
    else if (known && strcmp(node->op_type, "Unsqueeze") == 0)
        status = unsqueeze(m, node, a->tensor, out, err);
    else
        status = gp_fail(err, GP_EUNSUPPORTED, "it reads indices that depend on the number of samples");
    if (status != GP_OK)
        return status;
    out->name = made->name;
    made->role = GP_ONNX_VALUE_INDICES;
    made->tensor = out;
    return GP_OK;
}

/* Return whether the indices enumerate all numbers of a batch in order. samples: 1 for the
 * indices of sample 0. */
static bool in_order(const gp_onnx_tensor *indices, int64_t samples, int64_t numbers)
{
    bool same = gp_onnx_is_whole(indices) && indices->rank >= 2 && indices->dims[0] == samples &&
                indices->count == samples * numbers;

    for (int64_t i = 0; same && i < indices->count; i++)
        same = gp_onnx_int_at(indices, i) == i;
    return same;
}

gp_status gp_onnx_map_gather(gp_onnx_mapping *m, const Onnx__NodeProto *node, gp_error *err)
{
    int64_t axis, numbers = 1;
    gp_onnx_value *flat, *by = NULL;
    gp_status status = gp_onnx_node_input(m, node, 0, &flat, err);

    if (status == GP_OK)
        status = gp_onnx_node_input(m, node, 1, &by, err);
    if (status == GP_OK)
        status = gp_onnx_node_int(node, "axis", 0, &axis, err);
    if (status != GP_OK)
        return status;
    if (flat == NULL || by == NULL || flat->role != GP_ONNX_VALUE_FLAT)
        return gp_fail(err, GP_EUNSUPPORTED, "it is supported where all its inputs are constants");
    for (uint32_t i = 0; i < flat->rank; i++)
        numbers *= flat->dims[i];
    const bool all = by->role == GP_ONNX_VALUE_INDICES
                         ? by->tensor->per_sample == numbers && in_order(by->tensor, 1, numbers)
                         : by->role == GP_ONNX_VALUE_CONSTANT && by->tensor->data != NULL && m->batch != 0 &&
                               in_order(by->tensor, m->batch, numbers);

    if (axis != 0 || !all)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "of the numbers of all samples it is supported where each keeps its place");
    gp_onnx_value x = *flat;

    x.role = x.layer == GP_INPUT_LAYER ? GP_ONNX_VALUE_INPUT : GP_ONNX_VALUE_LAYER;
    return gp_onnx_node_view(m, node, &x, by->tensor->rank - 1, by->tensor->dims + 1, err);
}
