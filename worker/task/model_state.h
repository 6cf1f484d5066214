/* model_state.h -- internal structures shared by the files that implement train_task.h. Not for
 * other files.
 *
 *   task_data.c       gp_data: a store, the batch iterator, the prefetch thread
 *   model_open.c      building and freeing a gp_model
 *   model.c           steps: compute, commit, scores, tensors
 *   model_exchange.c  exchange between ranks
 *   model_check.c     gradient check by finite differences
 *
 * States of a step:
 *
 *   FRESH --compute, forward+backward--> COLLECTED --more samples--> COLLECTED
 *     ^-----------commit, next_step-------'   exchange: totals replace the sums of this rank
 *
 * Every function that computes prepares the compute thread (worker/backend/cpu/base/threads.h) and
 * restores it before it returns to the task, whose threads inherit its CPU affinity. */
#ifndef GP_MODEL_STATE_H
#define GP_MODEL_STATE_H

#include "common/base/memory/buffer.h"
#include "common/data/loader/loader.h"
#include "common/model/network.h"
#include "common/model/train_options.h"
#include "worker/backend/backend.h"
#include "worker/optim/optim.h"
#include "worker/task/custom_loss.h"
#include "worker/task/task_block.h"
#include "worker/task/train_task.h"

/* Layout of sums: the plan's sums, then the computed sample count. */
enum { MODEL_SAMPLES = GP_SUMS, MODEL_SUMS };

/* Data source of a task. */
struct gp_data {
    gp_owned owned; /* must be the first member */
    gp_tasks *tasks;
    gp_store *store;
    gp_sampler sampler;
    uint32_t rank, world;
    uint32_t batch, epochs;
    uint32_t share_max; /* samples in this rank's largest batch share; 0: no batch */
    uint32_t read_max;
    gp_loader *loader;       /* prefetches for gp_data_next(); NULL: no batch */
    gp_loader_batch *loaded; /* batch that gp_data_next() returned last */
    struct data_place {
        uint32_t epoch, first, step; /* from 0: next batch position */
    } now, ahead;                    /* now: next batch to return; ahead: next batch to request */
    uint32_t *index;                 /* [read_max] */
    void *samples, *targets;         /* buffers for gp_data_read() */
};

/* Model of a task. */
struct gp_model {
    gp_owned owned; /* must be the first member */
    gp_tasks *tasks;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_network network; /* network as supplied; used for export */
    gp_graph *graph;    /* graph that is computed; the loss may be the custom loss */
    gp_train_options options;
    gp_optim *optim;
    gp_plan *plan, *inference; /* inference may be NULL */
    uint32_t micro_batch;
    gp_dtype dtype;
    size_t sample_bytes, target_bytes;
    struct gp_model_range {
        size_t first, count;
    } * ranges; /* [range_count] gradient parts that are exchanged */
    uint32_t range_count;

    /* group whose arena contains sums, gradients and parameters; NULL: private memory */
    gp_task_group *group;
    double *sums; /* [MODEL_SUMS] */
    float *gradients, *parameters;
    double inference_sums[GP_SUMS];
    float *scores;        /* [micro_batch, outputs] scores from the inference plan */
    gp_coupling coupling; /* batch normalization over the ranks; sums NULL: not coupled */
    gp_custom_loss loss;
    uint64_t step;  /* committed steps */
    bool fresh;     /* the current step has no gradients yet */
    gp_buffer onnx; /* result of the last gp_model_onnx() */
};

/* Allocate parameters, gradients and sums: in the task group's arena if there is one, else
 * privately. */
gp_status gp_model_take_memory(gp_model *model, gp_task *task, bool keep, gp_error *err);

/* Choose the gradient ranges that are exchanged. */
gp_status gp_model_choose_ranges(gp_model *model, gp_error *err);

/* call it after gp_model_choose_ranges() */
gp_status gp_model_couple(gp_model *model, gp_error *err);
void gp_model_give_back_memory(gp_model *model);

/* Compute the summed loss of some samples outside of a step, with or without gradients. */
gp_status gp_model_pass(gp_model *model, const gp_samples *samples, bool gradients, double *loss,
                        gp_error *err);

#endif
