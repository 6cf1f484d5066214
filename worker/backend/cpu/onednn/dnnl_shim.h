/* A common interface to the C APIs of oneDNN 2.6 (Debian 12) and 3.x.
 *
 * Three differences matter here. A memory descriptor is a struct in v2 and an opaque pointer in v3.
 * A primitive descriptor is created from an op descriptor in v2 and directly in v3. Some arguments
 * have other positions. Only this file may test DNNL_VERSION_MAJOR.
 *
 * Descriptors are shim_md (owned, released by shim_md_free) and shim_cmd (borrowed). All arrays of
 * dimensions are dnnl_dims_t: v3 declares its parameters with this type, and gcc warns about
 * shorter arrays. Dilations follow oneDNN: 0 is a dense window. */
#ifndef GP_DNNL_SHIM_H
#define GP_DNNL_SHIM_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/memory/alloc.h"

/* Window of a convolution or pooling; entries are height, width. */
typedef struct shim_window {
    dnnl_dims_t kernel, stride, dilation, before, after;
} shim_window;

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t shim_md;
typedef const_dnnl_memory_desc_t shim_cmd;

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

static inline dnnl_status_t shim_conv_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, bool train, shim_cmd x, shim_cmd weight,
                                              shim_cmd bias, shim_cmd y, const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, train ? dnnl_forward_training : dnnl_forward_inference, dnnl_convolution_direct, x,
        weight, bias, y, w->stride, w->dilation, w->before, w->after, attr);
}

static inline dnnl_status_t shim_conv_data(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                           const shim_window *w, shim_cmd dx, shim_cmd weight, shim_cmd dy,
                                           const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_data_primitive_desc_create(out, engine, dnnl_convolution_direct, dx,
                                                                weight, dy, w->stride, w->dilation, w->before,
                                                                w->after, hint, attr);
}

static inline dnnl_status_t shim_conv_weights(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, shim_cmd x, shim_cmd dweight,
                                              shim_cmd dbias, shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                              const_dnnl_primitive_attr_t attr)
{
    return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, dnnl_convolution_direct, x,
                                                                   dweight, dbias, dy, w->stride, w->dilation,
                                                                   w->before, w->after, hint, attr);
}

static inline dnnl_status_t shim_fc_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine, bool train,
                                            shim_cmd x, shim_cmd weight, shim_cmd bias, shim_cmd y,
                                            const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_forward_primitive_desc_create(
        out, engine, train ? dnnl_forward_training : dnnl_forward_inference, x, weight, bias, y, attr);
}

static inline dnnl_status_t shim_fc_data(dnnl_primitive_desc_t *out, dnnl_engine_t engine, shim_cmd dx,
                                         shim_cmd weight, shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_backward_data_primitive_desc_create(out, engine, dx, weight, dy, hint, attr);
}

static inline dnnl_status_t shim_fc_weights(dnnl_primitive_desc_t *out, dnnl_engine_t engine, shim_cmd x,
                                            shim_cmd dweight, shim_cmd dbias, shim_cmd dy,
                                            const_dnnl_primitive_desc_t hint,
                                            const_dnnl_primitive_attr_t attr)
{
    return dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, x, dweight, dbias, dy, hint,
                                                                     attr);
}

static inline dnnl_status_t shim_pool_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, dnnl_alg_kind_t kind, bool workspace,
                                              shim_cmd x, shim_cmd y, const_dnnl_primitive_attr_t attr)
{
    return dnnl_pooling_forward_primitive_desc_create(
        out, engine, workspace ? dnnl_forward_training : dnnl_forward_inference, kind, x, y, w->stride,
        w->kernel, w->dilation, w->before, w->after, attr);
}

static inline dnnl_status_t shim_pool_backward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                               const shim_window *w, dnnl_alg_kind_t kind, shim_cmd dx,
                                               shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                               const_dnnl_primitive_attr_t attr)
{
    return dnnl_pooling_backward_primitive_desc_create(out, engine, kind, dx, dy, w->stride, w->kernel,
                                                       w->dilation, w->before, w->after, hint, attr);
}

static inline dnnl_status_t shim_append_relu(dnnl_post_ops_t chain)
{
    return dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_relu, 0.0f, 0.0f);
}

static inline dnnl_status_t shim_append_clip(dnnl_post_ops_t chain, float low, float high)
{
    return dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_clip, low, high);
}

static inline dnnl_status_t shim_append_sum(dnnl_post_ops_t chain)
{
    return dnnl_post_ops_append_sum(chain, 1.0f, 0, dnnl_data_type_undef);
}

#else /* v2 */

typedef dnnl_memory_desc_t *shim_md;
typedef const dnnl_memory_desc_t *shim_cmd;

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

static inline dnnl_status_t shim_conv_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, bool train, shim_cmd x, shim_cmd weight,
                                              shim_cmd bias, shim_cmd y, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, train ? dnnl_forward_training : dnnl_forward_inference, dnnl_convolution_direct, x, weight, bias,
        y, w->stride, w->dilation, w->before, w->after);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, NULL);
}

static inline dnnl_status_t shim_conv_data(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                           const shim_window *w, shim_cmd dx, shim_cmd weight, shim_cmd dy,
                                           const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &op, dnnl_convolution_direct, dx, weight, dy, w->stride, w->dilation, w->before, w->after);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

static inline dnnl_status_t shim_conv_weights(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, shim_cmd x, shim_cmd dweight,
                                              shim_cmd dbias, shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                              const_dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, x, dweight, dbias, dy, w->stride, w->dilation, w->before, w->after);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

static inline dnnl_status_t shim_fc_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine, bool train,
                                            shim_cmd x, shim_cmd weight, shim_cmd bias, shim_cmd y,
                                            const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status = dnnl_inner_product_forward_desc_init(
        &op, train ? dnnl_forward_training : dnnl_forward_inference, x, weight, bias, y);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, NULL);
}

static inline dnnl_status_t shim_fc_data(dnnl_primitive_desc_t *out, dnnl_engine_t engine, shim_cmd dx,
                                         shim_cmd weight, shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                         const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status = dnnl_inner_product_backward_data_desc_init(&op, dx, weight, dy);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

static inline dnnl_status_t shim_fc_weights(dnnl_primitive_desc_t *out, dnnl_engine_t engine, shim_cmd x,
                                            shim_cmd dweight, shim_cmd dbias, shim_cmd dy,
                                            const_dnnl_primitive_desc_t hint,
                                            const_dnnl_primitive_attr_t attr)
{
    dnnl_inner_product_desc_t op;
    dnnl_status_t status = dnnl_inner_product_backward_weights_desc_init(&op, x, dweight, dbias, dy);

    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

/* The plain pooling of v2 has the fast kernels but no dilation; "pooling_v2" supports dilation. */
static inline bool shim_window_dilated(const shim_window *w)
{
    return w->dilation[0] != 0 || w->dilation[1] != 0;
}

static inline dnnl_status_t shim_pool_forward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                              const shim_window *w, dnnl_alg_kind_t kind, bool workspace,
                                              shim_cmd x, shim_cmd y, const_dnnl_primitive_attr_t attr)
{
    dnnl_prop_kind_t prop = workspace ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_pooling_desc_t op;
    dnnl_pooling_v2_desc_t dilated;
    dnnl_status_t status;

    if (shim_window_dilated(w)) {
        status = dnnl_pooling_v2_forward_desc_init(&dilated, prop, kind, x, y, w->stride, w->kernel,
                                                   w->dilation, w->before, w->after);
        return status != dnnl_success ? status
                                      : dnnl_primitive_desc_create(out, &dilated, attr, engine, NULL);
    }
    status = dnnl_pooling_forward_desc_init(&op, prop, kind, x, y, w->stride, w->kernel, w->before, w->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, NULL);
}

static inline dnnl_status_t shim_pool_backward(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                               const shim_window *w, dnnl_alg_kind_t kind, shim_cmd dx,
                                               shim_cmd dy, const_dnnl_primitive_desc_t hint,
                                               const_dnnl_primitive_attr_t attr)
{
    dnnl_pooling_desc_t op;
    dnnl_pooling_v2_desc_t dilated;
    dnnl_status_t status;

    if (shim_window_dilated(w)) {
        status = dnnl_pooling_v2_backward_desc_init(&dilated, kind, dx, dy, w->stride, w->kernel, w->dilation,
                                                    w->before, w->after);
        return status != dnnl_success ? status
                                      : dnnl_primitive_desc_create(out, &dilated, attr, engine, hint);
    }
    status = dnnl_pooling_backward_desc_init(&op, kind, dx, dy, w->stride, w->kernel, w->before, w->after);
    return status != dnnl_success ? status : dnnl_primitive_desc_create(out, &op, attr, engine, hint);
}

static inline dnnl_status_t shim_append_relu(dnnl_post_ops_t chain)
{
    return dnnl_post_ops_append_eltwise(chain, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
}

static inline dnnl_status_t shim_append_clip(dnnl_post_ops_t chain, float low, float high)
{
    return dnnl_post_ops_append_eltwise(chain, 1.0f, dnnl_eltwise_clip, low, high);
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
