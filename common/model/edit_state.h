/* edit_state.h -- what edit.c does and edit_finish.c looks at.  Private to these two files. */
#ifndef GP_EDIT_STATE_H
#define GP_EDIT_STATE_H

#include "common/model/edit.h"

#define EDIT_NEW UINT32_MAX

struct gp_edit {
    gp_netspec *spec;               /* as it is now */
    gp_graph *before;               /* of the network as it was, with a loss where it had none */
    uint32_t given_count;           /* layers that it had: `before` has one more where the loss was missing */
    const float *weights;           /* in the layout of `before`; NULL */
    uint32_t origin[GP_LAYERS_MAX]; /* of each layer of spec: which of `before` it is, or EDIT_NEW */
    uint32_t frozen;                /* layers [0, frozen) are to be frozen */
};

/* Let it end as a network must: with a loss, and no softmax before a crossentropy. */
gp_status gp_edit_end(gp_edit *edit, gp_error *err);

#endif
