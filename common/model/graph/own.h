/* own.h -- layer kinds that are added while the program runs (layer_kind.h).  Their ops carry the kind and the layer's
 * settings; what stands where:
 *
 *   own           in  x, parameters                  out  y, saved
 *   own_backward  in  x, parameters, y, dy, saved    out  dx, gradients += */
#ifndef GP_OWN_H
#define GP_OWN_H

#include "common/model/graph/layer_kind.h"
#include "common/model/graph/netspec.h"

enum {
    GP_OWN_X = 0,
    GP_OWN_PARAMETERS = GP_OWN_X + GP_LAYER_KIND_INPUTS,
    GP_OWN_Y = GP_OWN_PARAMETERS + GP_LAYER_KIND_PARAMETERS,
    GP_OWN_DY,
    GP_OWN_SAVED,
    /* outputs of own */
    GP_OWN_OUT_Y = 0,
    GP_OWN_OUT_SAVED,
    /* outputs of own_backward */
    GP_OWN_OUT_DX = 0,
    GP_OWN_OUT_GRADIENTS = GP_OWN_OUT_DX + GP_LAYER_KIND_INPUTS,
};
_Static_assert((int)GP_OWN_SAVED < (int)GP_OP_VALUES_MAX, "an own op has more inputs than an op can have");

/* NULL when none of that name was added. */
const gp_kind *gp_own_find(const char *name);

/* Forget all: no network that uses one may be left. */
void gp_own_forget(void);

/* Let the network end in GP_OP_OWN_LOSS: in place of its loss, or as one more layer.  parallel: the
 * op's number[0]. */
gp_status gp_own_loss_end(gp_netspec *spec, bool parallel, gp_error *err);

gp_layer_dims gp_own_dims(const gp_shape *shape);

#endif
