/* Pool of unused cuDNN plans, for later requests with the same description: the next prediction or
 * training, another op with the same shape, or the fastest engine after measurements. Belongs to
 * one device and its thread. */
#ifndef GP_CUDA_CONV_POOL_H
#define GP_CUDA_CONV_POOL_H

#include "worker/backend/cuda/libraries/cudnn_conv.h"

enum { GP_CONV_POOL_MAX = 256 };

typedef struct gp_conv_pool gp_conv_pool;

gp_conv_pool *gp_conv_pool_new(void); /* NULL: out of memory */
void gp_conv_pool_free(gp_conv_pool *pool);

/* Take a plan from the pool. Return false if the pool has no entry for the description.
 *   what  from gp_cudnn_conv_describe(), with the engine; at most GP_COMPILED_WHAT_BYTES
 *   conv  set to the plan, which the caller then owns; NULL: cuDNN is known to have no plan */
bool gp_conv_pool_take(gp_conv_pool *pool, const char *what, gp_cudnn_conv **conv, size_t *workspace);

/* Give a plan to the pool, or NULL to record that cuDNN has none. If the pool is full, the oldest
 * entry is freed. */
void gp_conv_pool_put(gp_conv_pool *pool, const char *what, gp_cudnn_conv *conv, size_t workspace);

#endif
