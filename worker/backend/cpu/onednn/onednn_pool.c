/* Translates pooling into steps. */
#include "worker/backend/cpu/onednn/onednn_translate.h"

static const dnnl_alg_kind_t pool_kinds[] = {
    [GP_POOL_MAX] = dnnl_pooling_max,
    [GP_POOL_AVERAGE] = dnnl_pooling_avg_exclude_padding,
    [GP_POOL_AVERAGE_COUNT_PADDING] = dnnl_pooling_avg_include_padding,
};

/* Descriptors of the pooling passes. */
typedef struct pool_mds {
    shim_pool p;
    bool wide;
    dnnl_primitive_desc_t forward, backward; /* `backward` may be NULL */
} pool_mds;

static void pool_mds_deinit(pool_mds *mds)
{
    dnnl_primitive_desc_destroy(mds->backward);
    dnnl_primitive_desc_destroy(mds->forward);
    shim_md_free(mds->p.x);
    shim_md_free(mds->p.y);
    *mds = (pool_mds){ .wide = false };
}

/* Create the descriptors in one width. Return false if oneDNN does not support it. */
static bool pool_try(gp_onednn_translator *t, const gp_op *op, uint32_t x, uint32_t y, bool wide,
                     pool_mds *mds)
{
    /* The workspace stores each maximum's index. Backward average pooling also needs a training
     * hint. */
    uint32_t index = op->code == GP_OP_POOL ? op->out[1] : op->in[1];
    bool train = t->segment->phase == GP_PHASE_TRAIN && (op->pool != GP_POOL_MAX || index != GP_NO_VALUE);
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, POST_NONE);
    dnnl_status_t status = dnnl_success;
    bool fits = false;

    *mds = (pool_mds){ .wide = wide };
    mds->p = (shim_pool){ .window = gp_onednn_window_of(&op->window),
                          .kind = pool_kinds[op->pool],
                          .train = train,
                          .x = gp_onednn_md_image(t, x, wide, dnnl_nhwc),
                          .y = gp_onednn_md_image(t, y, wide, dnnl_nhwc) };
    if (going(t))
        status = shim_pool_pd(&mds->forward, t->segment->engine, &mds->p, NULL, attr);
    fits = gp_onednn_primitive_fits(t, status, mds->forward, wide, "pooling");
    if (fits && train) {
        status = shim_pool_pd(&mds->backward, t->segment->engine, &mds->p, mds->forward, attr);
        fits = gp_onednn_primitive_fits(t, status, mds->backward, wide, "backward pooling");
    }
    dnnl_primitive_attr_destroy(attr);
    return fits;
}

/* Describe both passes, where x and y may be gradients. Both passes use the same width, because
 * they share the index value in a private oneDNN layout. For the same reason the index must not
 * leave the segment. */
static bool pool_describe(gp_onednn_translator *t, const gp_op *op, uint32_t x, uint32_t y, pool_mds *mds)
{
    bool wide = !t->segment->narrow, fits = pool_try(t, op, x, y, wide, mds);

    if (fits || wide || !going(t))
        return fits;
    pool_mds_deinit(mds);
    return pool_try(t, op, x, y, true, mds);
}

void gp_onednn_translate_pool(gp_onednn_translator *t, const gp_op *op)
{
    const bool forward = op->code == GP_OP_POOL;
    const uint32_t in = op->in[0], out = op->out[0], index = forward ? op->out[1] : op->in[1];
    const char *what = forward ? "pooling" : "backward pooling";
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    pool_mds mds;

    if (forward && index != GP_NO_VALUE && t->request->values[index] != NULL)
        gp_onednn_fail_invalid(t, "the index output of a max pooling cannot be used outside its segment",
                               index);
    if (!forward && going(t) && index != GP_NO_VALUE && t->forms[index][PACKED] == ONEDNN_NONE)
        gp_onednn_fail_invalid(t, "the index input of a max pooling gradient must be from the same segment",
                               index);
    if (pool_describe(t, op, forward ? in : out, forward ? out : in, &mds)) {
        const gp_onednn_form form = mds.wide ? WIDE_PACKED : PACKED;

        step_argument(&step, forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, gp_onednn_value_read(t, in, form));
        step_argument(&step, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, gp_onednn_value_write(t, out, form));
        if (forward && index != GP_NO_VALUE && going(t))
            t->forms[index][PACKED] = gp_onednn_tensor_make(
                t,
                gp_onednn_md_copy(t, dnnl_primitive_desc_query_md(mds.forward, dnnl_query_workspace_md, 0)),
                LIFE_RUN);
        if (index != GP_NO_VALUE)
            step_argument(&step, DNNL_ARG_WORKSPACE, t->forms[index][PACKED]);
        gp_onednn_step_primitive(t, &step, forward ? mds.forward : mds.backward, what);
        gp_onednn_step_emit(t, &step);
        gp_onednn_value_written(t, out);
    }
    pool_mds_deinit(&mds);
}
