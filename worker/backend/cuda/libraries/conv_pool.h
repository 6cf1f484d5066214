/* conv_pool.h -- plans of cuDNN that are not in use, for who asks for the same again: the next prediction, the next training, an
 * op of the same shape, the winner of a race.  Of one device, and of its thread. */
#ifndef GP_CUDA_CONV_POOL_H
#define GP_CUDA_CONV_POOL_H

#include "worker/backend/cuda/libraries/cudnn_conv.h"

enum { GP_CONV_POOL_MAX = 256 };

typedef struct gp_conv_pool gp_conv_pool;

gp_conv_pool *gp_conv_pool_new(void); /* NULL: no memory */
void gp_conv_pool_free(gp_conv_pool *pool);

/* what: of gp_cudnn_conv_describe(), and by which engine; at most GP_COMPILED_WHAT_BYTES.  false: there is none.  *conv NULL: cuDNN
 * is known to have none.  The plan is the caller's. */
bool gp_conv_pool_take(gp_conv_pool *pool, const char *what, gp_cudnn_conv **conv, size_t *workspace);
/* The plan, or NULL, is the pool's; the one that was put longest ago goes. */
void gp_conv_pool_put(gp_conv_pool *pool, const char *what, gp_cudnn_conv *conv, size_t workspace);

#endif
