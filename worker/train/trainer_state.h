/* trainer_state.h -- the trainer and its parts. Private to trainer*.c.
 *
 *   schedule    the samples of each call and step of this rank
 *   data        stores, samplers and loaders
 *   exchange    header, gradients and moments of batch normalisation that the ranks sum
 *   shards      one copy of parameters and optimiser state for all ranks
 *   pipeline    steps in flight of a training that stays on its device
 *   tuning      the engines of a GPU's libraries
 *   progress    step, position, validations, early stopping: what another group continues from
 *   notes       for the client, when the training begins
 *
 * Each part has a header with its functions, which do not know the trainer. The trainer holds what all parts work on (network,
 * plans, parameters, group), and its functions call the parts in order. */
#ifndef GP_TRAINER_STATE_H
#define GP_TRAINER_STATE_H

#include "worker/train/checkpoint.h"
#include "worker/train/pipeline.h"
#include "worker/train/trainer_shard.h"
#include "worker/train/trainer_tuning.h"

struct gp_trainer {
    gp_train_options options;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;       /* borrowed */
    gp_train_control *control; /* borrowed */
    gp_comm *comm;             /* the group, owned */
    bool restarted;            /* an earlier group of this training ended before its last step */
    gp_netspec *spec;
    gp_graph *graph;
    gp_plan *plan, *validation_plan; /* validation_plan: NULL without validation data */
    gp_optim *optim;
    float *parameters; /* blob; owned, or with shards the committed copy */
    float *best;       /* blob of the lowest validation loss; NULL: the last parameters are the result */
    bool blank;        /* parameters are not initialised: another rank should have them */
    gp_checkpoint_frame frame; /* borrowed by the saver */
    gp_saver *saver;           /* of rank 0; NULL: no checkpoints */

    gp_schedule schedule;
    gp_train_data data;
    gp_exchange exchange;
    gp_shards shards;
    gp_pipeline pipeline;
    gp_train_tuning tuning;
    gp_train_progress progress;
    gp_train_notes notes;
};

/* ---- trainer_group.c ---- */

gp_status gp_trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err);
gp_status gp_trainer_check_layout(gp_trainer *trainer, gp_error *err);
/* Compile the plans; collective. */
gp_status gp_trainer_compile(gp_trainer *trainer, gp_error *err);
/* Compile the plans that a rank of a future group will have, without a group. */
gp_status gp_trainer_rehearse(gp_trainer *trainer, gp_error *err);

/* ---- trainer_validation.c ---- */

/* Compute the metrics of the validation data, each sample once over all ranks, and report them; collective. */
gp_status gp_trainer_validate(gp_trainer *trainer, uint32_t epoch, const gp_train_sink *sink, gp_error *err);
/* Report the last validation. The number of excluded targets comes first, so that the client has it with the metrics. */
void gp_trainer_report_validation(const gp_trainer *trainer, const gp_train_sink *sink);

/* ---- trainer_diverged.c ---- */

/* Fail because the loss of the next step is not finite; collective, all ranks have the same loss. call: its last one. */
gp_status gp_trainer_diverged(gp_trainer *trainer, const gp_train_call *call, double loss, gp_error *err);
/* The same for a validation: the training ends, and neither a checkpoint nor a model is made of these parameters.
 * first, count: this rank's share of the validation data. */
gp_status gp_trainer_validation_diverged(gp_trainer *trainer, uint32_t first, uint32_t count, double loss,
                                         gp_error *err);

/* ---- trainer_held.c ---- */

/* Take over the state of an earlier group; false: it does not fit this training. held: may be NULL. */
bool gp_trainer_take(gp_trainer *trainer, const gp_train_held *held);
/* Move the stores that an earlier group of the same training has left open into *data. held: may be NULL. */
void gp_train_held_take_stores(gp_train_held *held, const gp_graph *graph, gp_train_data *data);
/* Move the stores back after a group that failed to start, so that the next one need not open them. held: may be NULL. */
void gp_train_held_return_stores(gp_train_held *held, const gp_graph *graph, gp_train_data *data);
/* Carry over the open data alone, of a training that has no group yet. NULL: not wanted, or no memory. */
gp_train_held *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease);
/* Make the most advanced state of any rank the state of all; collective. */
gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* ---- trainer_population.c ---- */

/* Replace the running statistics of the resulting parameters by those of all training data; collective. */
gp_status gp_trainer_population(gp_trainer *trainer, gp_error *err);

/* ---- trainer.c ---- */

/* Set the parameters that a training begins with. */
gp_status gp_trainer_initialize(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* Describe the state; the blobs are borrowed. */
void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out);
/* Continue from a state whose blobs are already in place. */
void gp_trainer_continue(gp_trainer *trainer, const gp_checkpoint *from);

#endif
