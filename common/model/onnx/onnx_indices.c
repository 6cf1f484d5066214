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

static int64_t whole_number(gp_onnx_mapping *m, size_t k)
{
    const gp_onnx_tensor *tensor = gp_onnx_node_constant(m, k);

    if (tensor == NULL || !gp_onnx_is_whole(tensor) || tensor->count != 1)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "its input %zu is not a single whole number", k + 1);
    return m->status == GP_OK ? gp_onnx_int_at(tensor, 0) : 0;
}

void gp_onnx_fold_range(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const int64_t first = whole_number(m, 0), limit = whole_number(m, 1), by = whole_number(m, 2);
    const bool samples = limit == GP_ONNX_SAMPLES;
    const int64_t count = samples ? 1 : limit;

    if (first != 0 || by != 1 || count < 0)
        gp_onnx_fail(m, GP_EUNSUPPORTED, "only the range 0, 1, 2 ... is supported");
    char *data = gp_onnx_tensor_new(m, out, INT64_TYPE, 1, &count);

    for (int64_t i = 0; data != NULL && i < count; i++)
        memcpy(data + i * (int64_t)sizeof(i), &i, sizeof(i));
    out->per_sample = samples;
}

/* Multiply indices by a number, or add numbers that are equal for all samples. */
static void combine(gp_onnx_mapping *m, const gp_onnx_tensor *indices, const gp_onnx_tensor *by,
                    gp_onnx_tensor *out)
{
    const bool product = m->arithmetic == GP_ONNX_MUL;
    int64_t per_sample = indices->per_sample;
    bool fits = gp_onnx_is_whole(by) && by->rank <= indices->rank;

    fits = fits && (product ? by->count == 1 : by->rank < indices->rank || by->rank == 0 || by->dims[0] == 1);
    if (fits && product)
        fits = !__builtin_mul_overflow(per_sample, gp_onnx_int_at(by, 0), &per_sample) && per_sample != 0;
    if (!fits)
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "its inputs are not indices and values that are equal for all samples");
    gp_onnx_tensor_combine(m, out, m->arithmetic, indices, by);
    out->per_sample = per_sample;
}

/* Compute the output of a node with one input that has indices. */
static void fold_indices(gp_onnx_mapping *m, gp_onnx_tensor *out)
{
    const gp_onnx_value *a = gp_onnx_node_input(m, 0), *b = gp_onnx_node_input(m, 1);
    const bool arithmetic = m->arithmetic == GP_ONNX_MUL || m->arithmetic == GP_ONNX_ADD;

    if (arithmetic && a != NULL && b != NULL && a->role == GP_ONNX_VALUE_CONSTANT) {
        const gp_onnx_value *swap = a;

        a = b;
        b = swap;
    }
    const bool known = a != NULL && a->role == GP_ONNX_VALUE_INDICES && b != NULL &&
                       b->role == GP_ONNX_VALUE_CONSTANT && b->tensor->data != NULL;

    if (known && arithmetic) {
        combine(m, a->tensor, b->tensor, out);
    } else if (known && strcmp(m->node->op_type, "Unsqueeze") == 0) {
        gp_onnx_fold_unsqueeze_of(m, a->tensor, out); /* axes of size 1 after the sample axis */
        if (out->dims[0] != a->tensor->dims[0])
            gp_onnx_fail(m, GP_EUNSUPPORTED, "it inserts an axis before the sample axis");
    } else {
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it reads indices that depend on the number of samples");
    }
}

void gp_onnx_map_indices(gp_onnx_mapping *m)
{
    gp_onnx_node_fold(m, fold_indices);
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

void gp_onnx_map_gather(gp_onnx_mapping *m)
{
    const gp_onnx_value *flat = gp_onnx_node_input(m, 0), *by = gp_onnx_node_input(m, 1);
    const int64_t axis = gp_onnx_node_int(m, "axis", 0);
    int64_t numbers = 1;

    if (flat == NULL || by == NULL || flat->role != GP_ONNX_VALUE_FLAT) {
        gp_onnx_fail(m, GP_EUNSUPPORTED, "it is supported only for constant inputs");
        return;
    }
    for (uint32_t i = 0; i < flat->rank; i++)
        numbers *= flat->dims[i];
    const bool all = by->role == GP_ONNX_VALUE_INDICES
                         ? by->tensor->per_sample == numbers && in_order(by->tensor, 1, numbers)
                         : by->role == GP_ONNX_VALUE_CONSTANT && by->tensor->data != NULL && m->batch != 0 &&
                               in_order(by->tensor, m->batch, numbers);

    if (axis != 0 || !all) {
        gp_onnx_fail(m, GP_EUNSUPPORTED,
                     "for numbers of all samples it is supported only if it keeps their positions");
        return;
    }
    gp_onnx_value x = *flat;

    x.role = x.layer == GP_INPUT_LAYER ? GP_ONNX_VALUE_INPUT : GP_ONNX_VALUE_LAYER;
    gp_onnx_node_view(m, &x, by->tensor->rank - 1, by->tensor->dims + 1);
}
