#include "worker/backend/cuda/libraries/conv_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the pool. */
typedef struct pooled {
    char what[GP_COMPILED_WHAT_BYTES]; /* "": free */
    gp_cudnn_conv *conv;
    size_t workspace;
    uint64_t put;
} pooled;

struct gp_conv_pool {
    pooled plans[GP_CONV_POOL_MAX];
    uint64_t puts;
};

gp_conv_pool *gp_conv_pool_new(void)
{
    return calloc(1, sizeof(gp_conv_pool));
}

void gp_conv_pool_free(gp_conv_pool *pool)
{
    for (int i = 0; pool != NULL && i < GP_CONV_POOL_MAX; i++)
        gp_cudnn_conv_free(pool->plans[i].conv);
    free(pool);
}

bool gp_conv_pool_take(gp_conv_pool *pool, const char *what, gp_cudnn_conv **conv, size_t *workspace)
{
    for (int i = 0; i < GP_CONV_POOL_MAX; i++) {
        pooled *at = &pool->plans[i];

        if (strcmp(at->what, what) != 0)
            continue;
        *conv = at->conv;
        *workspace = at->workspace;
        if (at->conv != NULL) /* the knowledge that no plan exists stays in the pool */
            *at = (pooled){ .conv = NULL };
        return true;
    }
    return false;
}

void gp_conv_pool_put(gp_conv_pool *pool, const char *what, gp_cudnn_conv *conv, size_t workspace)
{
    pooled *to = &pool->plans[0];

    for (int i = 1; i < GP_CONV_POOL_MAX && to->what[0] != '\0'; i++)
        if (pool->plans[i].what[0] == '\0' || pool->plans[i].put < to->put)
            to = &pool->plans[i];
    gp_cudnn_conv_free(to->conv);
    *to = (pooled){ .conv = conv, .workspace = workspace, .put = ++pool->puts };
    snprintf(to->what, sizeof(to->what), "%s", what);
}
