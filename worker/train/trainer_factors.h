/* trainer_factors.h -- weights whose gradients the ranks compute from factors instead of exchanging them. */
#ifndef GP_TRAINER_FACTORS_H
#define GP_TRAINER_FACTORS_H

#include "worker/backend/cpu/factors.h"
#include "worker/comm/comm.h"
#include "worker/optim/optim.h"

typedef struct gp_factor_list {
    gp_factor *factor; /* [count], owned */
    uint32_t count;
} gp_factor_list;

/* Choose the weights for which factors pay; before the group forms, the same on all ranks. batch: samples of a step. */
gp_status gp_factor_list_init(gp_factor_list *list, const gp_graph *graph, uint32_t batch, gp_error *err);
void gp_factor_list_deinit(gp_factor_list *list);

/* Bytes that gp_factor_list_place() takes from the arena. */
size_t gp_factor_list_bytes(const gp_factor_list *list);

/* Place the factors in the arena where all ranks read and write them, and order the ops of the graph for it; collective. */
gp_status gp_factor_list_place(gp_factor_list *list, gp_graph *graph, gp_comm *comm, gp_error *err);

/* Find the factor of a parameter; NULL: the parameter has a gradient. */
const gp_factor *gp_factor_list_find(const gp_factor_list *list, uint32_t parameter);

/* Compute part `part` of `parts` of the gradient's rows and update the weights with it. samples: of the step. */
void gp_factor_update(const gp_factor *factor, const gp_optim_pass *pass, size_t samples, size_t part,
                      size_t parts);

#endif
