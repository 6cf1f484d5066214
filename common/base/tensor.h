/* gradpool/tensor.h -- arrays with an element type and a shape.
 *
 * Values of a team can be typed arrays (gp_team_put_tensor(), gp_task_put_tensor()). Such a value
 * consists of the bytes of a NumPy file (.npy), which contain its type and shape. */
#ifndef GP_PUBLIC_TENSOR_H
#define GP_PUBLIC_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: float32, float64, uint8, int32, int64, bfloat16. The numbers start at 1, so that a
 * zeroed value is invalid. */
typedef enum gp_dtype { GP_F32 = 1, GP_F64 = 2, GP_U8 = 3, GP_I32 = 4, GP_I64 = 5, GP_BF16 = 6 } gp_dtype;

enum { GP_RANK_MAX = 6 }; /* maximum rank */

/* Tensor shape. */
typedef struct gp_shape {
    uint32_t rank;            /* number of dimensions; 0: scalar */
    int64_t dim[GP_RANK_MAX]; /* outermost first; each >= 0 */
} gp_shape;

/* Array of elements, packed without gaps, the last dimension fastest (C order). */
typedef struct gp_tensor {
    gp_dtype dtype;
    gp_shape shape;
    const void *data;
    void *memory; /* released by gp_tensor_deinit(); NULL: the caller owns the data */
} gp_tensor;

#ifdef __cplusplus
}
#endif
#endif
