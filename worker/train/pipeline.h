/* pipeline.h -- training steps on the device: parameters, optimizer state and exchange stay
 * there (backend.h, gp_backend_steps).
 *
 *   launch s+1 | launch s+2, wait for s+1 | launch s+3, wait for s+2 | ...
 *
 * All ranks must launch equally many steps: a rank that launches one more than the others waits for
 * them forever. A rank puts a stop or pause request into the header of the next step that it
 * launches. All ranks receive the request with that step's sums. By then every rank has launched
 * one more step, and that step is the last one. If validation or a checkpoint follows a step, no
 * rank launches the next step before that.
 *
 * The host's parameters are from the last fetch. The ranks sum on the device if the device library
 * connects all of them. If one rank cannot connect, all exchange gradients through shared memory,
 * and the pipeline stays closed. */
#ifndef GP_PIPELINE_H
#define GP_PIPELINE_H

#include "worker/optim/optim.h"
#include "worker/train/trainer_data.h"
#include "worker/train/trainer_notes.h"
#include "worker/train/trainer_progress.h"

/* Location of the current parameters and optimizer state. */
typedef enum gp_residency {
    GP_ON_HOST,      /* pipeline closed: steps use the host's parameters */
    GP_ON_BOTH,      /* the device has parameters and state; the host's copies are of the same step */
    GP_DEVICE_NEWER, /* the device has committed steps since the last fetch */
} gp_residency;

/* A step that was launched and whose result is not known yet. */
typedef struct gp_flight {
    gp_train_call last; /* last call of the step on this rank */
    gp_train_cursor after;
    double learn_rate, data_ms;
    uint32_t samples; /* samples of this rank */
    /* validation or a checkpoint follows on all ranks, before the next step is launched */
    bool barrier;
} gp_flight;

/* Device step pipeline; zero-initialized except the borrowed pointers. */
typedef struct gp_pipeline {
    /* Borrowed from the trainer. */
    const gp_backend_steps *ops; /* NULL: the device does not support resident training */
    gp_backend *backend;
    gp_plan *plan; /* borrowed from the trainer; set by gp_pipeline_open() */
    const gp_train_options *options;
    const gp_schedule *schedule;
    gp_train_data *data;
    gp_exchange *exchange;
    const gp_train_progress *progress;

    gp_residency residency;
    bool data_resident; /* the training data are on the device too */
    gp_resident resident;

    /* [micro_batch] augmentation of one call; NULL unless resident data are augmented */
    gp_augment_draw *draws;
    /* Batches of the loader that the device may still read, oldest first. */
    gp_loader_batch *read[GP_READS_AHEAD + 1];
    uint32_t read_count;
    gp_flight flights[GP_STEPS_AHEAD]; /* oldest first */
    uint32_t count;                    /* steps in flight */
    int64_t join_ns;                   /* when all ranks' devices began to connect; 0: not connecting */
    int64_t left_ns;                   /* first time that a rank was found to have left; 0: none has */
} gp_pipeline;

/* Move the training onto the device, if the device supports it; collective. All ranks make the
 * same decision. */
gp_status gp_pipeline_open(gp_pipeline *pipeline, gp_plan *plan, gp_optim *optim, gp_train_notes *notes,
                           gp_error *err);
void gp_pipeline_close(gp_pipeline *pipeline); /* call it after the plans are freed */

/* Let the device no longer read the memory of the loader, which the caller is about to free. No
 * step may be in flight. */
void gp_pipeline_unlock(gp_pipeline *pipeline);

/* Copy the last committed step's parameters and state to the host, if the host's copies are older.
 * No step may be in flight.
 *   optim  NULL: copy only the parameters */
gp_status gp_pipeline_fetch(gp_pipeline *pipeline, float *parameters, gp_optim *optim, gp_error *err);

/* Launch steps until the pipeline is full or the next step must wait. Then wait for the oldest
 * step.
 *   now       position of the oldest step that is not committed
 *   requests  loader request position; advanced */
gp_status gp_pipeline_step(gp_pipeline *pipeline, const gp_train_cursor *now, gp_train_cursor *requests,
                           gp_flight *out, gp_step_reported *reported, gp_error *err);

/* Wait for all steps in flight and drop their results. */
gp_status gp_pipeline_drain(gp_pipeline *pipeline, gp_error *err);

/* End all steps in flight after a failure. If the device fails to stop, the device state is lost
 * and this process exits; the other ranks have the state. `cause` is the first failure. */
void gp_pipeline_halt(gp_pipeline *pipeline, const gp_error *cause);

/* Get the next step that was committed before the halt. false: no further step was committed. */
bool gp_pipeline_halted_step(gp_pipeline *pipeline, gp_flight *out, gp_step_reported *reported);

#endif
