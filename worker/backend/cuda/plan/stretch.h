/* stretch.h -- steps of a plan that run without the host in between: forward, backward, and what is between losses
 * that the host computes.  Private to this folder.
 *
 * A stretch is recorded as a graph of the device in its second run and replayed from then on.  The first run launches
 * step by step, because libraries load their kernels when first used, which cannot be recorded. */
#ifndef GP_CUDA_STRETCH_H
#define GP_CUDA_STRETCH_H

#include "worker/backend/cuda/plan/step.h"

enum { STRETCHES_MAX = 8 };

typedef struct stretch {
    const step_list *list;
    uint32_t first, count; /* of the steps in the list */
    bool forward;
    bool after_loss; /* forward, but behind a loss that the host computes: it prepares the backward pass */
    bool warm;       /* ran once */
    gp_device_graph *graph; /* NULL: not recorded yet */
} stretch;

typedef struct stretch_table {
    stretch preparation; /* run when parameters may have changed, before the others */
    stretch stretch[STRETCHES_MAX];
    uint32_t count;
} stretch_table;

/* Cut the steps where the passes meet and where the host has a loss.  forward_count: ops of the forward pass. */
gp_status gp_stretches_cut(stretch_table *table, const step_list *prepare, const step_list *steps,
                           uint32_t forward_count, gp_error *err);
void gp_stretches_free(stretch_table *table);
/* Return whether the stretch is a loss that the host computes. */
static inline bool gp_stretch_is_loss(const stretch *part)
{
    return part->list->step[part->first].kind == STEP_OWN_LOSS;
}

#endif
