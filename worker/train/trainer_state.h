/* trainer_state.h -- the trainer and its parts. Private to trainer*.c.
 *
 *   schedule  samples of each call and step on this rank
 *   data      stores, samplers and loaders
 *   exchange  header, gradients and batch normalization moments, summed over the ranks
 *   shards    shared copy of parameters and optimizer state
 *   pipeline  steps in flight, if the training stays on the device
 *   tuning    engine choices for the GPU libraries
 *   progress  step, position, validations, early stopping: the values that another group
 *             continues from
 *   notes     notes for the client, sent when the training starts
 *
 * Each part has its own header and functions, which do not use the trainer. The trainer contains
 * the objects that all parts share (network, plans, parameters, group) and calls the parts in
 * order. */
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
    gp_comm *comm;             /* group communicator, owned */
    bool restarted;            /* an earlier group of this training ended before the last step */
    gp_netspec *spec;
    gp_graph *graph;
    gp_plan *plan, *validation_plan; /* validation_plan: NULL without validation data */
    gp_optim *optim;
    float *parameters; /* parameter blob; owned, or the shards' committed copy */
    /* parameters with the lowest validation loss; NULL: the last parameters are the result */
    float *best;
    bool blank;                /* the state is uninitialized: another rank should have one */
    gp_checkpoint_frame frame; /* borrowed by the saver */
    gp_saver *saver;           /* rank 0 only; NULL: no checkpoints */

    gp_schedule schedule;
    gp_train_data data;
    gp_exchange exchange;
    gp_shards shards;
    gp_pipeline pipeline;
    gp_train_tuning tuning;
    gp_train_progress progress;
    gp_train_notes notes;
};

/* ---- trainer_validation.c ---- */

/* Compute the validation metrics, each sample once over all ranks, and report them; collective. */
gp_status gp_trainer_validate(gp_trainer *trainer, uint32_t epoch, const gp_train_sink *sink, gp_error *err);

/* Report the last validation. The excluded target count is sent first, so that the client has it
 * when the metrics arrive. */
void gp_trainer_report_validation(const gp_trainer *trainer, const gp_train_sink *sink);

/* ---- trainer_diverged.c ---- */

/* Fail because the next step's loss is not finite; collective, as all ranks have the same loss.
 * call: last call of the step. */
gp_status gp_trainer_diverged(gp_trainer *trainer, const gp_train_call *call, double loss, gp_error *err);

/* Fail because a validation loss is not finite. The training ends, and the parameters are not saved
 * as a checkpoint or model.
 *   first, count  this rank's share of the validation data */
gp_status gp_trainer_validation_diverged(gp_trainer *trainer, uint32_t first, uint32_t count, double loss,
                                         gp_error *err);

/* ---- carry_over.c ---- */

/* Take over the state from an earlier group. false: the state does not fit this training. held:
 * may be NULL. */
bool gp_trainer_take(gp_trainer *trainer, const gp_carry_over *held);

/* Move stores that an earlier group left open into *data. held: may be NULL. */
void gp_carry_over_take_stores(gp_carry_over *held, const gp_graph *graph, gp_train_data *data);

/* Move the stores back after a failed start, so that the next group need not open them. held:
 * may be NULL. */
void gp_carry_over_return_stores(gp_carry_over *held, const gp_graph *graph, gp_train_data *data);

/* Keep only the open data, for a training without a group. NULL: not requested, or out of
 * memory. */
gp_carry_over *gp_trainer_hold_data(gp_trainer *trainer, uint64_t lease);

/* Broadcast the most advanced state of any rank to all ranks; collective. */
gp_status gp_trainer_agree(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* ---- trainer_population.c ---- */

/* Replace the running statistics in the final parameters by those over all training data;
 * collective. */
gp_status gp_trainer_population(gp_trainer *trainer, gp_error *err);

/* ---- trainer.c ---- */

/* Set the initial state: of the checkpoint that the options name, or else initial parameters. */
gp_status gp_trainer_initialize(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err);

/* Describe the state; the blobs are borrowed. */
void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out);
/* Continue from a state whose blobs are already in place. */
void gp_trainer_continue(gp_trainer *trainer, const gp_checkpoint *from);

#endif
