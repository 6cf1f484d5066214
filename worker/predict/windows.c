#include "worker/predict/windows.h"

#include <string.h>

#include "common/base/memory/alloc.h"

void gp_window_axis_deinit(gp_window_axis *axis)
{
    gp_free(axis->start);
    gp_free(axis->weight);
    *axis = (gp_window_axis){ 0 };
}

/* Return the weight of the later window at position `at` of `shared` overlapping pixels. */
static float fade(uint32_t at, uint32_t shared)
{
    const float t = ((float)at + 0.5f) / (float)shared; /* from 0 to 1 over the overlap */

    return t <= 0.25f ? 0 : t >= 0.75f ? 1 : 2 * (t - 0.25f);
}

gp_status gp_window_axis_set(gp_window_axis *axis, uint32_t length, uint32_t size, uint32_t overlap,
                             gp_error *err)
{
    if (2 * (uint64_t)overlap > size)
        return gp_fail(
            err, GP_EINVAL,
            "invalid overlap: windows of %u pixels can overlap by at most half their size, not by %u", size,
            overlap);
    /* n windows cover size + (n - 1) * (size - overlap) pixels. */
    const uint32_t count = length <= size ? 1 : (length - overlap + size - overlap - 1) / (size - overlap);

    if (count > axis->capacity || size != axis->size) {
        gp_window_axis_deinit(axis);
        axis->start = gp_calloc(count, sizeof(*axis->start));
        axis->weight = gp_calloc((size_t)count * size, sizeof(*axis->weight));
        if (axis->start == NULL || axis->weight == NULL) {
            gp_window_axis_deinit(axis);
            return gp_fail(err, GP_ENOMEM, "no memory for %u windows of %u", count, size);
        }
        axis->capacity = count;
        axis->size = size;
    }
    axis->length = length;
    axis->count = count;
    for (uint32_t k = 0; k < count; k++)
        axis->start[k] =
            count == 1 ? 0 : (uint32_t)(((uint64_t)k * (length - size) + (count - 1) / 2) / (count - 1));
    /* Set each window's weights: 1 minus the neighbors' weights. */
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0, start = axis->start[k]; i < size; i++) {
            float *weight = &axis->weight[(size_t)k * size + i];

            *weight = start + i < length;
            if (k > 0 && start + i < axis->start[k - 1] + size)
                *weight *= fade(i, axis->start[k - 1] + size - start);
            if (k + 1 < count && start + i >= axis->start[k + 1])
                *weight *= 1 - fade(start + i - axis->start[k + 1], start + size - axis->start[k + 1]);
        }
    /* Normalize the weights: where three windows overlap, the products do not sum to 1. */
    for (uint32_t at = 0, first = 0; at < length; at++) {
        float sum = 0;

        while (axis->start[first] + size <= at)
            first++;
        for (uint32_t k = first; k < count && axis->start[k] <= at; k++)
            sum += axis->weight[(size_t)k * size + at - axis->start[k]];
        for (uint32_t k = first; k < count && axis->start[k] <= at; k++)
            axis->weight[(size_t)k * size + at - axis->start[k]] /= sum;
    }
    return GP_OK;
}

void gp_window_cut(void *out, const void *image, uint32_t channels, size_t value_bytes,
                   const gp_window_axis *y, const gp_window_axis *x, uint32_t row, uint32_t column)
{
    const uint32_t top = y->start[row], left = x->start[column];
    const uint32_t inside = x->length - left < x->size ? x->length - left : x->size;
    uint8_t *to = out;

    for (uint32_t c = 0; c < channels; c++)
        for (uint32_t i = 0; i < y->size; i++, to += x->size * value_bytes) {
            const uint32_t from_row = top + i < y->length ? top + i : y->length - 1;
            const uint8_t *from = (const uint8_t *)image +
                                  (((size_t)c * y->length + from_row) * x->length + left) * value_bytes;

            memcpy(to, from, inside * value_bytes);
            for (uint32_t j = inside; j < x->size; j++)
                memcpy(to + j * value_bytes, from + (inside - 1) * value_bytes, value_bytes);
        }
}

void gp_window_add(float *map, const float *scores, uint32_t channels, const gp_window_axis *y,
                   const gp_window_axis *x, uint32_t row, uint32_t column)
{
    const uint32_t top = y->start[row], left = x->start[column];
    const uint32_t height = y->length - top < y->size ? y->length - top : y->size;
    const uint32_t width = x->length - left < x->size ? x->length - left : x->size;
    const float *down = y->weight + (size_t)row * y->size;
    const float *restrict across = x->weight + (size_t)column * x->size;

    for (uint32_t c = 0; c < channels; c++)
        for (uint32_t i = 0; i < height; i++) {
            const float *restrict from = scores + ((size_t)c * y->size + i) * x->size;
            float *restrict to = map + ((size_t)c * y->length + top + i) * x->length + left;

            if (down[i] == 0)
                continue;
            for (uint32_t j = 0; j < width; j++)
                to[j] += down[i] * across[j] * from[j];
        }
}
