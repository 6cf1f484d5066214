/* trainer_factors.h -- weight gradients that the ranks compute from factors rather than exchanging
 * them. */
#ifndef GP_TRAINER_FACTORS_H
#define GP_TRAINER_FACTORS_H

#include "worker/backend/cpu/factors.h"
#include "worker/comm/comm.h"
#include "worker/optim/optim.h"

/* Weights whose gradients are computed from factors. */
typedef struct gp_factor_list {
    gp_factor *factor; /* [count], owned */
    uint32_t count;
} gp_factor_list;

/* Choose the weights for which factors are faster. Call it before the group forms; the choice is
 * the same on all ranks. batch: samples per step. */
gp_status gp_factor_list_init(gp_factor_list *list, const gp_graph *graph, uint32_t batch, gp_error *err);
void gp_factor_list_deinit(gp_factor_list *list);

/* Return the arena bytes that gp_factor_list_place() needs. */
size_t gp_factor_list_bytes(const gp_factor_list *list);

/* Place the factors in the shared arena, and order the graph ops accordingly; collective. */
gp_status gp_factor_list_place(gp_factor_list *list, gp_graph *graph, gp_comm *comm, gp_error *err);

/* Find the factor for a parameter. NULL: the parameter has a gradient. */
const gp_factor *gp_factor_list_find(const gp_factor_list *list, uint32_t parameter);

/* Compute rows of a gradient and update the weights with them.
 *   samples      samples in the step
 *   part, parts  which of `parts` equal parts to compute */
void gp_factor_update(const gp_factor *factor, const gp_optim_pass *pass, size_t samples, size_t part,
                      size_t parts);

#endif
