/* Sequences of steps that run without the host: the forward pass, the backward pass, and the parts
 * between losses that the host computes. Private to this folder.
 *
 * The second run records a stretch as a graph, and later runs replay the graph. The first run
 * launches each step, because libraries load kernels at their first use, which cannot be
 * recorded. */
#ifndef GP_CUDA_STRETCH_H
#define GP_CUDA_STRETCH_H

#include "worker/backend/cuda/plan/step.h"

enum { STRETCHES_MAX = 8 };

/* A sequence of steps. */
typedef struct stretch {
    const step_list *list;
    uint32_t first, count; /* range in the list */
    bool forward;
    /* forward, but after a loss that the host computes: it prepares the backward pass */
    bool after_loss;
    bool warm;              /* has run once */
    gp_device_graph *graph; /* NULL: not recorded yet */
} stretch;

/* All stretches of a plan. */
typedef struct stretch_table {
    stretch preparation; /* run before the others if parameters may have changed */
    stretch stretch[STRETCHES_MAX];
    uint32_t count;
} stretch_table;

/* Divide the steps at the end of the forward pass and at losses that the host computes.
 * forward_count: number of ops in the forward pass. */
gp_status gp_stretches_cut(stretch_table *table, const step_list *prepare, const step_list *steps,
                           uint32_t forward_count, gp_error *err);
void gp_stretches_free(stretch_table *table);

/* Return true if the stretch is a loss that the host computes. */
static inline bool gp_stretch_is_loss(const stretch *part)
{
    return part->list->step[part->first].kind == STEP_OWN_LOSS;
}

#endif
