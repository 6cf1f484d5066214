/* A common interface to the C APIs of oneDNN 2.6 (Debian 12) and 3.x.
 *
 * Three differences matter here. A memory descriptor is a struct in v2 and an opaque pointer in v3.
 * A primitive descriptor is created from an op descriptor in v2 and directly in v3. Some arguments
 * have other positions. Only this file may test DNNL_VERSION_MAJOR.
 *
 * Descriptors are shim_md (owned, released by shim_md_free) and shim_cmd (borrowed). All dimension
 * arrays are dnnl_dims_t: v3 declares the parameters with this type, and gcc warns about shorter
 * arrays. Dilations follow oneDNN: 0 is a dense window. */
#ifndef GP_DNNL_SHIM_H
#define GP_DNNL_SHIM_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/memory/alloc.h"

/* Convolution or pooling window; entries are height, width. */
typedef struct shim_window {
    dnnl_dims_t kernel, stride, dilation, before, after;
} shim_window;

/* Pass of a layer. */
typedef enum shim_pass { SHIM_FORWARD, SHIM_DATA, SHIM_WEIGHTS } shim_pass;

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t shim_md;
typedef const_dnnl_memory_desc_t shim_cmd;
#else
typedef dnnl_memory_desc_t *shim_md;
typedef const dnnl_memory_desc_t *shim_cmd;
#endif

/* A convolution or fully connected layer. x and y may be gradients. */
typedef struct shim_layer {
    bool conv, train;
    shim_window window;   /* of a convolution */
    shim_md x, y, weight; /* owned */
    shim_md gradient;     /* of the weight; owned */
    shim_md bias;         /* NULL: none; owned */
} shim_layer;

/* A pooling. x and y may be gradients. */
typedef struct shim_pool {
    shim_window window;
    dnnl_alg_kind_t kind;
    bool train;   /* the forward pass writes a workspace */
    shim_md x, y; /* owned */
} shim_pool;

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t shim_md_tag(shim_md *out, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_create_with_tag(out, rank, dims, type, tag);
}

static inline dnnl_status_t shim_md_clone(shim_md *out, shim_cmd md)
{
    return dnnl_memory_desc_clone(out, md);
}

static inline void shim_md_free(shim_md md)
{
    if (md != NULL)
        dnnl_memory_desc_destroy(md);
}

/* Create the descriptor for one layer pass. Backward passes need the forward descriptor as hint. */
static inline dnnl_status_t shim_layer_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                          const shim_layer *l, shim_pass pass,
                                          const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    const shim_window *w = &l->window;
    const dnnl_prop_kind_t prop = l->train ? dnnl_forward_training : dnnl_forward_inference;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;

    switch (pass) {
    case SHIM_FORWARD:
        return l->conv
                   ? dnnl_convolution_forward_primitive_desc_create(out, engine, prop, direct, l->x,
                                                                    l->weight, l->bias, l->y, w->stride,
                                                                    w->dilation, w->before, w->after, attr)
                   : dnnl_inner_product_forward_primitive_desc_create(out, engine, prop, l->x, l->weight,
                                                                      l->bias, l->y, attr);
    case SHIM_DATA:
        return l->conv ? dnnl_convolution_backward_data_primitive_desc_create(
                             out, engine, direct, l->x, l->weight, l->y, w->stride, w->dilation, w->before,
                             w->after, hint, attr)
                       : dnnl_inner_product_backward_data_primitive_desc_create(out, engine, l->x, l->weight,
                                                                                l->y, hint, attr);
    case SHIM_WEIGHTS:
        break;
    }
    return l->conv ? dnnl_convolution_backward_weights_primitive_desc_create(
                         out, engine, direct, l->x, l->gradient, l->bias, l->y, w->stride, w->dilation,
                         w->before, w->after, hint, attr)
                   : dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, l->x, l->gradient,
                                                                               l->bias, l->y, hint, attr);
}

/* Create the descriptor for a pooling, or for the backward pass if `hint`, the forward descriptor,
 * is given. */
static inline dnnl_status_t shim_pool_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const shim_pool *p,
                                         const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    const shim_window *w = &p->window;

    if (hint != NULL)
        return dnnl_pooling_backward_primitive_desc_create(out, engine, p->kind, p->x, p->y, w->stride,
                                                           w->kernel, w->dilation, w->before, w->after, hint,
                                                           attr);
    return dnnl_pooling_forward_primitive_desc_create(
        out, engine, p->train ? dnnl_forward_training : dnnl_forward_inference, p->kind, p->x, p->y,
        w->stride, w->kernel, w->dilation, w->before, w->after, attr);
}

static inline dnnl_status_t shim_append_eltwise(dnnl_post_ops_t chain, dnnl_alg_kind_t kind, float alpha,
                                                float beta)
{
    return dnnl_post_ops_append_eltwise(chain, kind, alpha, beta);
}

static inline dnnl_status_t shim_append_sum(dnnl_post_ops_t chain)
{
    return dnnl_post_ops_append_sum(chain, 1.0f, 0, dnnl_data_type_undef);
}

#else /* v2 */

static inline void shim_md_free(shim_md md)
{
    gp_free(md);
}

static inline dnnl_status_t shim_md_clone(shim_md *out, shim_cmd md)
{
    shim_md copy = gp_malloc(sizeof(*copy));

    if (copy == NULL)
        return dnnl_out_of_memory;
    *copy = *md;
    *out = copy;
    return dnnl_success;
}

static inline dnnl_status_t shim_md_tag(shim_md *out, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                        dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&md, rank, dims, type, tag);

    return status != dnnl_success ? status : shim_md_clone(out, &md);
}

static inline dnnl_status_t shim_layer_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                          const shim_layer *l, shim_pass pass,
                                          const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    const shim_window *w = &l->window;
    const dnnl_prop_kind_t prop = l->train ? dnnl_forward_training : dnnl_forward_inference;
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    union {
        dnnl_convolution_desc_t conv;
        dnnl_inner_product_desc_t fc;
    } op;
    dnnl_status_t status = dnnl_success;

    switch (pass) {
    case SHIM_FORWARD:
        status = l->conv ? dnnl_dilated_convolution_forward_desc_init(&op.conv, prop, direct, l->x, l->weight,
                                                                      l->bias, l->y, w->stride, w->dilation,
                                                                      w->before, w->after)
                         : dnnl_inner_product_forward_desc_init(&op.fc, prop, l->x, l->weight, l->bias, l->y);
        break;
    case SHIM_DATA:
        status = l->conv ? dnnl_dilated_convolution_backward_data_desc_init(&op.conv, direct, l->x, l->weight,
                                                                            l->y, w->stride, w->dilation,
                                                                            w->before, w->after)
                         : dnnl_inner_product_backward_data_desc_init(&op.fc, l->x, l->weight, l->y);
        break;
    case SHIM_WEIGHTS:
        status =
            l->conv ? dnnl_dilated_convolution_backward_weights_desc_init(&op.conv, direct, l->x, l->gradient,
                                                                          l->bias, l->y, w->stride,
                                                                          w->dilation, w->before, w->after)
                    : dnnl_inner_product_backward_weights_desc_init(&op.fc, l->x, l->gradient, l->bias, l->y);
        break;
    }
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

/* Plain pooling in v2 has the fast kernels but no dilation; "pooling_v2" supports dilation. */
static inline dnnl_status_t shim_pool_pd(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const shim_pool *p,
                                         const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    const shim_window *w = &p->window;
    const dnnl_prop_kind_t prop = p->train ? dnnl_forward_training : dnnl_forward_inference;
    const bool dilated = w->dilation[0] != 0 || w->dilation[1] != 0;
    union {
        dnnl_pooling_desc_t plain;
        dnnl_pooling_v2_desc_t dilated;
    } op;
    dnnl_status_t status;

    if (dilated && hint != NULL)
        status = dnnl_pooling_v2_backward_desc_init(&op.dilated, p->kind, p->x, p->y, w->stride, w->kernel,
                                                    w->dilation, w->before, w->after);
    else if (dilated)
        status = dnnl_pooling_v2_forward_desc_init(&op.dilated, prop, p->kind, p->x, p->y, w->stride,
                                                   w->kernel, w->dilation, w->before, w->after);
    else if (hint != NULL)
        status = dnnl_pooling_backward_desc_init(&op.plain, p->kind, p->x, p->y, w->stride, w->kernel,
                                                 w->before, w->after);
    else
        status = dnnl_pooling_forward_desc_init(&op.plain, prop, p->kind, p->x, p->y, w->stride, w->kernel,
                                                w->before, w->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

static inline dnnl_status_t shim_append_eltwise(dnnl_post_ops_t chain, dnnl_alg_kind_t kind, float alpha,
                                                float beta)
{
    return dnnl_post_ops_append_eltwise(chain, 1.0f, kind, alpha, beta);
}

static inline dnnl_status_t shim_append_sum(dnnl_post_ops_t chain)
{
    return dnnl_post_ops_append_sum(chain, 1.0f);
}

#endif

/* Return true if the loaded library is compatible with these headers and uses OpenMP: same major
 * version, at least the same minor version. */
static inline bool shim_library_fits(void)
{
    const dnnl_version_t *loaded = dnnl_version();

    return loaded->major == DNNL_VERSION_MAJOR && loaded->minor >= DNNL_VERSION_MINOR &&
           loaded->cpu_runtime == DNNL_RUNTIME_OMP;
}

#endif
