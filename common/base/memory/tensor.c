/* Implement tensor.h: element types, shapes, and ground-truth descriptions. */
#include "common/base/memory/tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [GP_F32] = { "float32", 4 }, [GP_F64] = { "float64", 8 }, [GP_U8] = { "uint8", 1 },
    [GP_I32] = { "int32", 4 },   [GP_I64] = { "int64", 8 },   [GP_BF16] = { "bfloat16", 2 },
};

const char *const gp_precision_names[] = { "f32", "bf16", "tf32", "fp16", NULL };

size_t gp_dtype_bytes(gp_dtype type)
{
    assert((size_t)type < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[type].bytes != 0);
    return dtypes[type].bytes;
}

const char *gp_dtype_name(gp_dtype type)
{
    return (size_t)type < sizeof(dtypes) / sizeof(dtypes[0]) && dtypes[type].name != NULL ? dtypes[type].name
                                                                                          : "unknown";
}

int64_t gp_shape_count(const gp_shape *shape)
{
    int64_t count = 1;

    for (uint32_t i = 0; i < shape->rank; i++)
        count *= shape->dim[i];
    return count;
}

bool gp_shape_equal(const gp_shape *a, const gp_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

gp_status gp_shape_check(const gp_shape *shape, int64_t count_max, gp_error *err)
{
    int64_t count = 1;

    if (shape->rank > GP_RANK_MAX)
        return gp_fail(err, GP_ELIMIT, "a tensor has %" PRIu32 " dimensions, at most %d are supported",
                       shape->rank, GP_RANK_MAX);
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return gp_fail(err, GP_ELIMIT, "dimension %" PRIu32 " is %" PRId64, i + 1, shape->dim[i]);
        if (__builtin_mul_overflow(count, shape->dim[i], &count) || count > count_max)
            return gp_fail(err, GP_ELIMIT, "a tensor has more than %" PRId64 " elements", count_max);
    }
    return GP_OK;
}

char *gp_shape_format(const gp_shape *shape, char *text, size_t bytes)
{
    size_t used = 0;

    assert(bytes > 0);
    text[0] = '\0';
    for (uint32_t i = 0; i < shape->rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i == 0 ? "%" PRId64 : "x%" PRId64, shape->dim[i]);
    return text;
}

size_t gp_targets_bytes(const gp_target *targets, uint32_t count)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += (size_t)gp_shape_count(&targets[i].shape) * gp_dtype_bytes(targets[i].dtype);
    return bytes;
}

uint64_t gp_targets_missing(const gp_target *targets, uint32_t count, const void *packed)
{
    const uint8_t *at = packed;
    uint64_t missing = 0;

    for (uint32_t i = 0; i < count; i++) {
        const size_t elements = (size_t)gp_shape_count(&targets[i].shape);

        for (size_t e = 0; e < elements && targets[i].dtype == GP_F32; e++)
            missing += isnan(((const float *)(const void *)at)[e]);
        for (size_t e = 0; e < elements && targets[i].dtype == GP_I32; e++)
            missing += ((const int32_t *)(const void *)at)[e] < 0;
        at += elements * gp_dtype_bytes(targets[i].dtype);
    }
    return missing;
}

char *gp_targets_format(const gp_target *targets, uint32_t count, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < bytes; i++) {
        char shape[64] = "per sample";

        if (targets[i].shape.rank > 0)
            gp_shape_format(&targets[i].shape, shape, sizeof(shape));
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", i == 0 ? "" : " and ",
                                 gp_dtype_name(targets[i].dtype), shape);
    }
    return text;
}
