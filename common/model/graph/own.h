/* User-defined layer kinds, registered at run time (layer_kind.h). Their operations carry the kind
 * and the layer's settings. Value order:
 *
 *   own           in: x, parameters                  out: y, saved
 *   own_backward  in: x, parameters, y, dy, saved    out: dx, gradients += */
#ifndef GP_OWN_H
#define GP_OWN_H

#include "common/model/graph/layer_kind.h"
#include "common/model/graph/netspec.h"

/* Indexes into gp_op.in and gp_op.out. */
enum {
    GP_OWN_X = 0,
    GP_OWN_PARAMETERS = GP_OWN_X + GP_LAYER_KIND_INPUTS,
    GP_OWN_Y = GP_OWN_PARAMETERS + GP_LAYER_KIND_PARAMETERS,
    GP_OWN_DY,
    GP_OWN_SAVED,
    GP_OWN_OUT_Y = 0, /* outputs of own */
    GP_OWN_OUT_SAVED,
    GP_OWN_OUT_DX = 0, /* outputs of own_backward */
    GP_OWN_OUT_GRADIENTS = GP_OWN_OUT_DX + GP_LAYER_KIND_INPUTS,
};
_Static_assert((int)GP_OWN_SAVED < (int)GP_OP_VALUES_MAX, "an own op has more inputs than an op can have");

/* Return a user-defined kind. NULL: not found. */
const gp_kind *gp_own_find(const char *name);

/* Remove all user-defined kinds. No network may use one of them any more. */
void gp_own_forget(void);

/* Let the network end in GP_OP_OWN_LOSS, which replaces the last loss or is appended. parallel: see
 * own_loss in ops.def. */
gp_status gp_own_loss_end(gp_netspec *spec, bool parallel, gp_error *err);

/* Convert a shape; dimensions beyond GP_LAYER_KIND_DIMS are dropped. */
gp_layer_dims gp_own_dims(const gp_shape *shape);

#endif
