/* tensor.h -- shape and element type; the data lives elsewhere.  Dimensions are outermost first. */
#ifndef GP_TENSOR_H
#define GP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum gp_dtype { GP_F32 = 1, GP_F64 = 2, GP_U8 = 3, GP_I32 = 4, GP_I64 = 5, GP_BF16 = 6 } gp_dtype;

enum { GP_RANK_MAX = 6 };

typedef struct gp_shape {
    uint32_t rank;            /* 0 = a scalar */
    int64_t dim[GP_RANK_MAX]; /* each >= 0 */
} gp_shape;

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

/* What a network is computed in; parameters, gradients of parameters, moments, losses and every sum are float32 or wider.
 *   F32   strictly: no product of fewer bits
 *   BF16  activations, their gradients and packed weights have 8 significant bits and the range of float32
 *   TF32  as F32, but the factors of products may be rounded to 11 significant bits
 *   F16   as BF16, but 11 significant bits and a largest number of 65504: gradients of activations are of a scaled loss
 * Numbers go on the wire. */
typedef enum gp_precision {
    GP_PRECISION_F32,
    GP_PRECISION_BF16,
    GP_PRECISION_TF32,
    GP_PRECISION_F16,
    GP_PRECISION_COUNT
} gp_precision;
extern const char *const gp_precision_names[]; /* "f32", "bf16", "tf32", "fp16", NULL: words of options */

size_t gp_dtype_bytes(gp_dtype type);
const char *gp_dtype_name(gp_dtype type); /* "float32" */

/* Number of elements; the shape must have passed gp_shape_check(). */
int64_t gp_shape_count(const gp_shape *shape);
bool gp_shape_equal(const gp_shape *a, const gp_shape *b);

/* GP_ELIMIT when a dimension is negative or the number of elements passes count_max. */
gp_status gp_shape_check(const gp_shape *shape, int64_t count_max, gp_error *err);

/* "20x26x26" into text, which is returned. */
char *gp_shape_format(const gp_shape *shape, char *text, size_t bytes);

/* What a sample is to be answered with: the ground truth that a loss compares with. */
typedef struct gp_target {
    gp_dtype
        dtype; /* GP_I32: indices of classes, -1 where there is none; GP_F32: values, NaN where there is none */
    gp_shape shape;   /* of one sample: [] one for the sample, [H, W] one for each pixel, [C, H, W] ... */
    uint32_t classes; /* that indices are below; 0 of values */
} gp_target;

/* Bytes of one sample's targets, packed one behind the other. */
size_t gp_targets_bytes(const gp_target *targets, uint32_t count);

/* Count the elements of one sample's packed targets that are missing: indices below 0, and NaN. */
uint64_t gp_targets_missing(const gp_target *targets, uint32_t count, const void *packed);

/* "float32 3x8x8", "int32 per sample" into text, which is returned; several with " and " between. */
char *gp_targets_format(const gp_target *targets, uint32_t count, char *text, size_t bytes);

#endif
