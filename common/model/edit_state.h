/* Internal state shared by edit.c, which edits the layers, and edit_finish.c, which builds the
 * result. */
#ifndef GP_EDIT_STATE_H
#define GP_EDIT_STATE_H

#include "common/model/edit.h"

#define EDIT_NEW UINT32_MAX /* origin for a new layer */

struct gp_edit {
    gp_netspec *spec;               /* edited network */
    gp_graph *before;               /* original network's graph, with a loss added if it had none */
    uint32_t given_count;           /* layers in the original network, without an added loss */
    const float *weights;           /* in the layout of `before`, borrowed; NULL: none */
    uint32_t origin[GP_LAYERS_MAX]; /* by layer in spec: index in `before`, or EDIT_NEW */
    uint32_t frozen;                /* layers [0, frozen) will be frozen by gp_edit_finish() */
};

/* Complete the network's end: append a loss if there is none, and remove a softmax layer that a
 * loss repeats. */
gp_status gp_edit_end(gp_edit *edit, gp_error *err);

#endif
