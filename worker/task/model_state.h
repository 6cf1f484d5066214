/* model_state.h -- what the files behind train_task.h share; nobody else includes it.
 *
 *   task_data.c        gp_data: a store, the walk over its batches, the thread that reads ahead
 *   model_open.c       building and freeing a gp_model
 *   model.c            steps: compute, commit, scores, tensors
 *   model_exchange.c   what goes between ranks
 *   model_check.c      gradients against differences
 *
 * A step of a model:
 *
 *   FRESH --compute, forward+backward--> COLLECTED --more of them--> COLLECTED
 *     ^-----------commit, next_step-------'   exchange: totals in place of this rank's sums
 */
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

enum { MODEL_SAMPLES = GP_SUMS, MODEL_SUMS }; /* the plan's sums, then the samples computed */

struct gp_data {
    gp_owned owned; /* first */
    gp_tasks *tasks;
    gp_store *store;
    gp_sampler sampler;
    uint32_t rank, world;
    uint32_t batch, epochs;
    uint32_t share_max; /* samples of this rank's largest share of a batch; 0 without a batch */
    uint32_t read_max;
    gp_loader *loader;       /* of next; NULL without a batch */
    gp_loader_batch *loaded; /* what next gave last */
    struct data_place {
        uint32_t epoch, first, step; /* from 0: of the batch that comes next */
    } now, ahead;                    /* to be given, to be requested */
    uint32_t *index;                 /* [read_max] */
    void *samples, *targets;         /* of read */
};

struct gp_model {
    gp_owned owned; /* first */
    gp_tasks *tasks;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_network network; /* as it was given: what goes out */
    gp_graph *graph;    /* what is computed: its loss may be the user's */
    gp_train_options options;
    gp_optim *optim;
    gp_plan *plan, *inference; /* inference may be NULL */
    uint32_t micro_batch;
    gp_dtype dtype;
    size_t sample_bytes, target_bytes;
    struct gp_model_range {
        size_t first, count;
    } * ranges; /* [range_count]: of the gradients, what is exchanged */
    uint32_t range_count;
    gp_task_group *group; /* whose arena has the next three; NULL: own memory */
    double *sums;         /* [MODEL_SUMS] */
    float *gradients, *parameters;
    double inference_sums[GP_SUMS];
    float *scores;        /* [micro_batch, outputs]: what the inference plan writes */
    gp_coupling coupling; /* of batch norm over the ranks; sums NULL: none */
    gp_custom_loss loss;
    uint64_t step;  /* number of committed steps */
    bool fresh;     /* the present step has no gradients yet */
    gp_buffer onnx; /* what gp_model_onnx() returned last */
};

/* The memory of parameters, gradients and sums, from the arena of the task's group if it has one. */
gp_status gp_model_take_memory(gp_model *model, gp_task *task, bool keep, gp_error *err);
gp_status gp_model_choose_ranges(gp_model *model, gp_error *err);
gp_status gp_model_couple(gp_model *model, gp_error *err); /* after that */
void gp_model_give_back_memory(gp_model *model);

/* One pass of some samples that is no step: the sum of their losses, with gradients or without. */
gp_status gp_model_pass(gp_model *model, const gp_samples *samples, bool gradients, double *loss,
                        gp_error *err);

#endif
