/* trainer_shard.h -- one copy of parameters and optimiser state for all ranks of a host (trainer_shard.c). */
#ifndef GP_TRAINER_SHARD_H
#define GP_TRAINER_SHARD_H

#include "worker/train/trainer_exchange.h"
#include "worker/train/trainer_factors.h"

/* The rank in whose arena the copies lie. */
enum { GP_SHARD_OWNER = 0 };

typedef struct gp_shards {
    bool active;                     /* false: each rank has its own copy, and all that follows is unused */
    float *parameters[2], *state[2]; /* two copies in the arena: the committed one and the next one */
    uint32_t now;                    /* index of the committed copy */
    float *gradients[GP_COMM_WORLD_MAX]; /* of each rank, as mapped here */
    gp_factor_list factors;
} gp_shards;

/* Decide whether the ranks share one copy: it pays for large networks. All ranks decide alike.
 *   minimum  parameters from which on they share; 0: the default
 *   batch    samples of a step */
gp_status gp_shards_init(gp_shards *shards, const gp_graph *graph, const gp_train_options *options,
                         size_t minimum, uint32_t batch, gp_error *err);
void gp_shards_deinit(gp_shards *shards);

/* Bytes that gp_shards_place() takes from the arena; 0: not active. */
size_t gp_shards_bytes(const gp_shards *shards, const gp_graph *graph, gp_optim *optim);

/* Move parameters and state of the owner into the arena; collective. *parameters: private, freed and replaced by the
 * committed copy; NULL is possible on ranks that do not own the copies. Does nothing if not active. */
gp_status gp_shards_place(gp_shards *shards, float **parameters, gp_graph *graph, gp_optim *optim,
                          gp_exchange *exchange, gp_error *err);

/* Sum and update this rank's shard of all tensors, and commit the step with all ranks: on failure no rank has committed.
 * *parameters becomes the committed copy. */
gp_status gp_shards_commit(gp_shards *shards, float **parameters, const gp_graph *graph, gp_optim *optim,
                           gp_exchange *exchange, double learn_rate, gp_error *err);

#endif
