/* User-defined layer kinds, registered at run time (layer_kind.h). Their operations carry the kind
 * and the layer's settings. Value order:
 *
 *   own           in: x, parameters                  out: y, saved
 *   custom_backward  in: x, parameters, y, dy, saved    out: dx, gradients += */
#ifndef GP_CUSTOM_H
#define GP_CUSTOM_H

#include "common/model/graph/layer_kind.h"
#include "common/model/graph/netspec.h"

/* Indexes into gp_op.in and gp_op.out. */
enum {
    GP_CUSTOM_X = 0,
    GP_CUSTOM_PARAMETERS = GP_CUSTOM_X + GP_LAYER_KIND_INPUTS,
    GP_CUSTOM_Y = GP_CUSTOM_PARAMETERS + GP_LAYER_KIND_PARAMETERS,
    GP_CUSTOM_DY,
    GP_CUSTOM_SAVED,
    GP_CUSTOM_OUT_Y = 0, /* outputs of own */
    GP_CUSTOM_OUT_SAVED,
    GP_CUSTOM_OUT_DX = 0, /* outputs of custom_backward */
    GP_CUSTOM_OUT_GRADIENTS = GP_CUSTOM_OUT_DX + GP_LAYER_KIND_INPUTS,
};
_Static_assert((int)GP_CUSTOM_SAVED < (int)GP_OP_VALUES_MAX,
               "a custom op has more inputs than an op can have");

/* Return a user-defined kind. NULL: not found. */
const gp_kind *gp_custom_find(const char *name);

/* Remove all user-defined kinds. No network may use one of them any more. */
void gp_custom_forget(void);

/* Let the network end in GP_OP_CUSTOM_LOSS, which replaces the last loss or is appended.
 * parallel: see custom_loss in ops.def. */
gp_status gp_custom_loss_end(gp_netspec *spec, bool parallel, gp_error *err);

/* Convert a shape; dimensions beyond GP_LAYER_KIND_DIMS are dropped. */
gp_layer_dims gp_custom_dims(const gp_shape *shape);

#endif
