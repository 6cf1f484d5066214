/* pipeline.h -- a training whose parameters, optimiser state and exchange stay on the device (backend.h, gp_backend_steps).
 *
 *   launch s+1 | launch s+2, wait for s+1 | launch s+3, wait for s+2 | ...
 *
 * Requests to stop or pause go into the header of the next step that a rank launches. All ranks learn of them with the sums
 * of that step, when the next one is in flight on every rank; that one is the last. A step that validation or a checkpoint
 * follows is not overtaken on any rank: a rank that launched one step more than the others would wait for them forever.
 *
 * The host's parameters are as old as the last fetch. The ranks sum on the device if its library connects all of them;
 * if one rank cannot, all exchange gradients through shared memory, and the pipeline stays closed. */
#ifndef GP_PIPELINE_H
#define GP_PIPELINE_H

#include "worker/optim/optim.h"
#include "worker/train/trainer_data.h"
#include "worker/train/trainer_notes.h"
#include "worker/train/trainer_progress.h"

typedef enum gp_residency {
    GP_ON_HOST,      /* closed: steps run on the host's parameters */
    GP_ON_BOTH,      /* the device has parameters and state, and those of the host are of the same step */
    GP_DEVICE_NEWER, /* the device has committed steps since the last fetch */
} gp_residency;

/* A step in flight: launched, and its result is not known yet. */
typedef struct gp_flight {
    gp_train_call last; /* its last call on this rank */
    gp_train_cursor after;
    double learn_rate, data_ms;
    uint32_t samples; /* of this rank */
    bool barrier;     /* validation or a checkpoint follows, on all ranks: no step is launched before */
} gp_flight;

typedef struct gp_pipeline {
    /* Borrowed from the trainer. */
    const gp_backend_steps *ops; /* NULL: the device cannot keep a training */
    gp_backend *backend;
    gp_plan *plan; /* borrowed from the trainer; set by gp_pipeline_open() */
    const gp_train_options *options;
    const gp_schedule *schedule;
    gp_train_data *data;
    gp_exchange *exchange;
    const gp_train_progress *progress;

    gp_residency residency;
    bool data_resident; /* the device has the training data, too */
    gp_resident resident;
    gp_augment_draw *draws;            /* [micro_batch] of a call; NULL unless resident data are augmented */
    gp_flight flights[GP_STEPS_AHEAD]; /* the oldest first */
    uint32_t count;                    /* steps in flight */
    int64_t join_ns;                   /* when the ranks began to connect their devices; 0: not connecting */
    int64_t left_ns;                   /* when a rank was first found to have left; 0: none has */
} gp_pipeline;

/* Move the training onto the device if it can keep it; collective. All ranks decide alike. */
gp_status gp_pipeline_open(gp_pipeline *pipeline, gp_plan *plan, gp_optim *optim, gp_train_notes *notes,
                           gp_error *err);
void gp_pipeline_close(gp_pipeline *pipeline); /* when the plans are freed */

/* Copy parameters and state of the last committed step to the host, if the host's are older; without optim, only the
 * parameters, for computing with them. No step may be in flight. */
gp_status gp_pipeline_fetch(gp_pipeline *pipeline, float *parameters, gp_optim *optim, gp_error *err);

/* Launch steps until the pipeline is full or the next step must wait, then wait for the oldest one.
 *   now       position of the oldest step that is not committed
 *   requests  position of the requests to the loader; advanced */
gp_status gp_pipeline_step(gp_pipeline *pipeline, const gp_train_cursor *now, gp_train_cursor *requests,
                           gp_flight *out, gp_step_told *told, gp_error *err);

/* Wait for all steps in flight and drop their results. */
gp_status gp_pipeline_drain(gp_pipeline *pipeline, gp_error *err);

/* After a failure: end all steps in flight. If the device fails even then, its state is lost and the process exits; the other
 * ranks have the state. cause: the first failure. */
void gp_pipeline_halt(gp_pipeline *pipeline, const gp_error *cause);

/* Get the next step that was committed before the halt; false: no further one was. */
bool gp_pipeline_halted_step(gp_pipeline *pipeline, gp_flight *out, gp_step_told *told);

#endif
