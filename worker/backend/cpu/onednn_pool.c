/* onednn_pool.c -- pooling as steps of a segment. */
#include "worker/backend/cpu/onednn_translate.h"

static dnnl_alg_kind_t pool_kind(const gp_op *op)
{
    switch (op->pool) {
    case GP_POOL_MAX:
        return dnnl_pooling_max;
    case GP_POOL_AVERAGE:
        return dnnl_pooling_avg_exclude_padding;
    case GP_POOL_AVERAGE_COUNT_PADDING:
        break;
    }
    return dnnl_pooling_avg_include_padding;
}

/* x and y, or their gradients.  With a workspace, where the maximum was found: our index value in a layout of
 * oneDNN's own, which is why it cannot leave the segment. */
static dnnl_primitive_desc_t pool_forward_desc(gp_onednn_translator *t, const gp_op *op, uint32_t x,
                                               uint32_t y, bool workspace, shim_md mds[2])
{
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, POST_NONE);
    dnnl_primitive_desc_t pd = NULL;
    shim_window window = gp_onednn_window_of(&op->window);

    mds[0] = gp_onednn_md_image(t, x, dnnl_nhwc);
    mds[1] = gp_onednn_md_image(t, y, dnnl_nhwc);
    if (going(t))
        gp_onednn_done(t,
                       shim_pool_forward(&pd, t->segment->engine, &window, pool_kind(op), workspace, mds[0],
                                         mds[1], attr),
                       "pooling");
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

void gp_onednn_translate_pool(gp_onednn_translator *t, const gp_op *op)
{
    uint32_t x = op->in[0], y = op->out[0], index = op->out[1];
    bool workspace = index != GP_NO_VALUE;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    shim_md mds[2] = { NULL, NULL };
    dnnl_primitive_desc_t pd = pool_forward_desc(t, op, x, y, workspace, mds);

    if (workspace && t->request->values[index] != NULL)
        gp_onednn_fail_invalid(t, "the index of a max pooling cannot leave the segment", index);
    if (going(t)) {
        step_argument(&step, DNNL_ARG_SRC, gp_onednn_value_read(t, x, PACKED));
        step_argument(&step, DNNL_ARG_DST, gp_onednn_value_write(t, y, PACKED));
        if (workspace) {
            shim_cmd md = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);

            t->forms[index][PACKED] = gp_onednn_tensor_make(t, gp_onednn_md_copy(t, md), LIFE_RUN);
            step_argument(&step, DNNL_ARG_WORKSPACE, t->forms[index][PACKED]);
        }
        gp_onednn_step_primitive(t, &step, pd, "pooling");
        gp_onednn_step_emit(t, &step);
        gp_onednn_value_written(t, y);
    }
    dnnl_primitive_desc_destroy(pd);
    shim_md_free(mds[0]);
    shim_md_free(mds[1]);
}

void gp_onednn_translate_pool_backward(gp_onednn_translator *t, const gp_op *op)
{
    uint32_t dy = op->in[0], index = op->in[1], dx = op->out[0];
    bool workspace = index != GP_NO_VALUE;
    gp_onednn_step step = { .when = WHEN_ALWAYS };
    shim_window window = gp_onednn_window_of(&op->window);
    shim_md mds[2] = { NULL, NULL };
    /* Average pooling's backward wants a training hint too. */
    dnnl_primitive_desc_t pd = NULL, hint = pool_forward_desc(t, op, dx, dy, true, mds);
    dnnl_primitive_attr_t attr = gp_onednn_attr_new(t, POST_NONE);

    if (workspace && t->forms[index][PACKED] == ONEDNN_NONE)
        gp_onednn_fail_invalid(t, "the index of a max pooling cannot come from another segment", index);
    if (going(t) && gp_onednn_done(t,
                                   shim_pool_backward(&pd, t->segment->engine, &window, pool_kind(op), mds[0],
                                                      mds[1], hint, attr),
                                   "backward pooling")) {
        step_argument(&step, DNNL_ARG_DIFF_DST, gp_onednn_value_read(t, dy, PACKED));
        step_argument(&step, DNNL_ARG_DIFF_SRC, gp_onednn_value_write(t, dx, PACKED));
        if (workspace)
            step_argument(&step, DNNL_ARG_WORKSPACE, t->forms[index][PACKED]);
        gp_onednn_step_primitive(t, &step, pd, "backward pooling");
        gp_onednn_step_emit(t, &step);
        gp_onednn_value_written(t, dx);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attr);
    shim_md_free(mds[0]);
    shim_md_free(mds[1]);
}
