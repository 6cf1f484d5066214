/* Functions for the shapes and element types of common/base/tensor.h. Dimensions are ordered from
 * the outermost to the innermost. */
#ifndef GP_TENSOR_H
#define GP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/base/tensor.h"

/* Return a shape with the given dimensions. */
static inline gp_shape gp_shape1(int64_t a)
{
    return (gp_shape){ 1, { a } };
}
static inline gp_shape gp_shape2(int64_t a, int64_t b)
{
    return (gp_shape){ 2, { a, b } };
}
static inline gp_shape gp_shape3(int64_t a, int64_t b, int64_t c)
{
    return (gp_shape){ 3, { a, b, c } };
}
static inline gp_shape gp_shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (gp_shape){ 4, { a, b, c, d } };
}

/* Arithmetic of a network. Parameters, their gradients, optimizer moments, losses and sums are
 * always float32 or wider.
 *   F32   float32; no product is computed with fewer bits
 *   BF16  activations, their gradients and packed weights have 8 significant bits and float32's
 *         exponent range
 *   TF32  like F32, but factors in products may be rounded to 11 significant bits
 *   F16   like BF16 with 11 significant bits and largest value 65504; activation gradients
 *         therefore belong to a scaled loss
 * The numbers appear in the network protocol. */
typedef enum gp_precision {
    GP_PRECISION_F32,
    GP_PRECISION_BF16,
    GP_PRECISION_TF32,
    GP_PRECISION_F16,
    GP_PRECISION_COUNT
} gp_precision;

/* option values "f32", "bf16", "tf32", "fp16"; NULL */
extern const char *const gp_precision_names[];

size_t gp_dtype_bytes(gp_dtype type);     /* size of one element */
const char *gp_dtype_name(gp_dtype type); /* "float32"; "unknown" for an invalid type */

/* Return the number of elements. Shapes from outside must have passed gp_shape_check(), which
 * excludes an overflow. */
int64_t gp_shape_count(const gp_shape *shape);

/* Return whether rank and all dimensions are equal. */
bool gp_shape_equal(const gp_shape *a, const gp_shape *b);

/* Check a shape received from outside. GP_ELIMIT: the rank exceeds GP_RANK_MAX, a dimension is
 * negative, or there are more than count_max elements. */
gp_status gp_shape_check(const gp_shape *shape, int64_t count_max, gp_error *err);

/* Write a shape such as "20x26x26" into text, and return text. */
char *gp_shape_format(const gp_shape *shape, char *text, size_t bytes);

/* Ground truth of one sample, which a loss compares with the network's output. */
typedef struct gp_target {
    gp_dtype dtype;   /* GP_I32: class indexes, -1: missing. GP_F32: values, NaN: missing */
    gp_shape shape;   /* per sample: [] one value, [H, W] one per pixel, [C, H, W] ... */
    uint32_t classes; /* class count (GP_I32); 0: values (GP_F32) */
} gp_target;

/* Return the size of one sample's targets, packed without gaps. */
size_t gp_targets_bytes(const gp_target *targets, uint32_t count);

/* Count the missing elements in one sample's packed targets: negative class indexes and NaN. */
uint64_t gp_targets_missing(const gp_target *targets, uint32_t count, const void *packed);

/* Write a description such as "float32 3x8x8 and int32 per sample" into text, and return text. */
char *gp_targets_format(const gp_target *targets, uint32_t count, char *text, size_t bytes);

#endif
