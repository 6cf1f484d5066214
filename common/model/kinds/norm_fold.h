/* norm_fold.h -- batch normalization folded into the preceding layer for inference: the weights
 * of output o are multiplied by factor(o), and level(o) replaces the bias. Used by all backends,
 * including GPU kernels. */
#ifndef GP_NORM_FOLD_H
#define GP_NORM_FOLD_H

#include <math.h>

#ifdef __CUDACC__
#define GP_NORM_FOLD static __host__ __device__ __forceinline__
#else
#define GP_NORM_FOLD static inline
#endif

GP_NORM_FOLD double gp_norm_factor(float scale, float variance, double epsilon)
{
    return (double)scale / sqrt((double)variance + epsilon);
}

GP_NORM_FOLD double gp_norm_level(double factor, float bias, float mean, float offset)
{
    return ((double)bias - (double)mean) * factor + (double)offset;
}

#endif
