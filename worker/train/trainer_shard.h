/* trainer_shard.h -- one copy of parameters and optimizer state, shared by all ranks on a host
 * (trainer_shard.c). */
#ifndef GP_TRAINER_SHARD_H
#define GP_TRAINER_SHARD_H

#include "worker/train/trainer_exchange.h"
#include "worker/train/trainer_factors.h"

/* Rank whose arena contains the copies. */
enum { GP_SHARD_OWNER = 0 };

/* Shared copies of parameters and optimizer state. */
typedef struct gp_shards {
    bool active; /* false: each rank has its own copy; the other fields are unused */
    /* two copies in the arena: the committed one and the next one */
    float *parameters[2], *state[2];
    uint32_t now;                        /* committed copy's index in parameters[] and state[] */
    float *gradients[GP_COMM_WORLD_MAX]; /* each rank's gradients, as mapped in this process */
    gp_factor_list factors;
} gp_shards;

/* Decide whether the ranks share one copy, which is faster for large networks. All ranks make
 * the same decision.
 *   minimum  parameter count from which to share; 0: default
 *   batch    samples per step */
gp_status gp_shards_init(gp_shards *shards, const gp_graph *graph, const gp_train_options *options,
                         size_t minimum, uint32_t batch, gp_error *err);
void gp_shards_deinit(gp_shards *shards);

/* Return the arena bytes that gp_shards_place() needs. 0: not active. */
size_t gp_shards_bytes(const gp_shards *shards, const gp_graph *graph, gp_optim *optim);

/* Move the owner's parameters and state into the arena; collective. No effect if not active.
 *   parameters  private copy, freed and replaced by the committed copy; may be NULL except on
 *               the owner */
gp_status gp_shards_place(gp_shards *shards, float **parameters, gp_graph *graph, gp_optim *optim,
                          gp_exchange *exchange, gp_error *err);

/* Sum and update this rank's shard of all tensors, then commit the step on all ranks. On failure
 * no rank has committed. *parameters is set to the committed copy. */
gp_status gp_shards_commit(gp_shards *shards, float **parameters, const gp_graph *graph, gp_optim *optim,
                           gp_exchange *exchange, double learn_rate, gp_error *err);

#endif
