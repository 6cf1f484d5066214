/* train_task.h -- training loops of your own, in tasks (task.h): the network, its gradients and the data are gradpool's,
 * the loop is yours.
 *
 *     GP_TASK gp_status train(gp_task *task, gp_error *err)             one rank of an spmd block
 *     {
 *         gp_data *data;
 *         gp_model *model;
 *         gp_samples batch;
 *         gp_status status = gp_data_open(&data, task, &(gp_data_options){ .source = "digits", .batch = 256,
 *                                                                          .epochs = 3 }, err);
 *
 *         if (status == GP_OK)
 *             status = gp_model_open(&model, task, &(gp_model_options){ .network = "lenet", .data = data }, err);
 *         while (status == GP_OK && (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
 *             status = gp_model_forward_backward(model, &batch, err);          forward and backward of our share
 *             if (status == GP_OK)
 *                 status = gp_model_all_reduce(model, task, err);       sums over all ranks
 *             if (status == GP_OK)
 *                 status = gp_model_optimizer_step(model, 0.1, err);            the same update on each rank
 *         }
 *         ...
 *     }
 *
 * A step: gradients of the SUM of the losses and the sum of the weights are collected, over any number of calls and, in a
 * block, over the ranks; the commit divides once by the total weight (a sample weighs 1).  So a loop on any number of
 * workers does what it does on one, to rounding.
 *
 * Models and data belong to the task: what is not closed when it returns, or fails, is closed then.  All memory is taken
 * by open; a step allocates nothing.  Like task.h, all of this is for the thread that the task was called on.
 * Calls that compute or read return GP_ECANCELED when the task is to end (gp_task_canceled()).
 *
 * Manual: docs/custom-loops.md. */
#ifndef GP_TRAIN_TASK_H
#define GP_TRAIN_TASK_H

#include <gradpool/layer_kind.h>
#include <gradpool/task.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct gp_data gp_data;
typedef struct gp_model gp_model;

/* ---- data ---- */

typedef struct gp_data_options {
    const char *source; /* as `gradpool train --data`; relative paths are the worker's */
    bool test;          /* its test samples, in their own order; else those to train with */
    /* Of gp_data_next(): */
    uint32_t batch; /* samples of a mini-batch, over all ranks of the block; 0: only gp_data_read() is used */
    uint32_t epochs; /* 0 means 1 */
    /* Of both: */
    const char *shuffle; /* "never", "once", "every-epoch" (NULL: that); with `test` never */
    uint64_t seed;       /* of the order */
    uint32_t read_max;   /* samples of the largest gp_data_read(); 0: what is the larger of `batch` and 1 */
} gp_data_options;

/* What the source holds; valid as long as the data. */
typedef struct gp_data_info {
    uint32_t count; /* samples */
    uint32_t channels, height, width;
    bool bytes;          /* stored values are uint8; else float32 */
    size_t sample_bytes; /* of one sample as stored */
    size_t target_bytes; /* of one sample's target: 4 for a class */
    uint32_t classes;    /* 0: the target is no class */
    const char *const *class_names;
} gp_data_info;

/* Some samples, in the memory of the data they came from (until its next read or next) or yours. */
typedef struct gp_samples {
    const void *samples; /* [count][C][H][W] stored values, uint8 or float32 */
    const void *targets; /* one for each; of classification int32, -1 = without a label */
    uint32_t count;      /* may be 0: a rank without samples takes part all the same */
    uint64_t position;   /* of the first one in the mini-batch of all ranks: dropout draws by it */
    /* gp_data_next() says besides: */
    uint32_t batch; /* samples of the mini-batch over all ranks; the last of an epoch may be smaller */
    uint32_t epoch; /* from 1 */
    uint32_t step;  /* within the epoch, from 1 */
    bool last;      /* of the epoch */
    bool ended;     /* there was no other: all epochs are over, and the rest of this is 0 */
} gp_samples;

/* gp_data_open -- open a SOURCE.  In a block every rank opens the same.
 * Errors as of `gradpool train`: GP_ENOENT, GP_ECORRUPT, GP_EINVAL (also: a batch larger than the data), ... */
gp_status gp_data_open(gp_data **out, gp_task *task, const gp_data_options *options, gp_error *err);
void gp_data_close(gp_data *data); /* accepts NULL */
void gp_data_get_info(const gp_data *data, gp_data_info *out);

/* gp_data_next -- this rank's share of the next mini-batch, read ahead by a thread: shares are floor(batch / ranks), the
 * first ranks have one more.  The walk is that of `gradpool train`. */
gp_status gp_data_next(gp_data *data, gp_samples *out, gp_error *err);

/* gp_data_read -- the samples at positions [first, first + count) of an epoch's order (epochs from 1).
 * GP_EINVAL: beyond the end, or more than read_max. */
gp_status gp_data_read(gp_data *data, uint32_t epoch, uint32_t first, uint32_t count, gp_samples *out,
                       gp_error *err);

/* ---- a model ---- */

/* A loss of your own, called between the forward and the backward pass of some samples. */
typedef struct gp_loss_call {
    const float *scores; /* [count][size]: what the last layer before the loss gives */
    const void *targets; /* of these samples, as they were given */
    uint32_t count;
    size_t size;
    float *gradient; /* [count][size], zero at first: of the SUM of the losses with respect to the scores */
    /* Added to the step's sums: */
    double loss;
    double weight;  /* `count` at first; what the commit divides by */
    double correct; /* 0 at first */
    void *context;
} gp_loss_call;

typedef gp_status (*gp_loss_fn)(gp_loss_call *call, gp_error *err);

typedef struct gp_model_options {
    /* A network of gradpool's by name ("lenet"), a path of FILE.onnx or FILE.json, or the text of such a JSON.  Or the
     * bytes of a JSON or ONNX file.  An ONNX file brings its weights. */
    const char *network;
    const void *content;
    size_t content_bytes;
    /* What samples look like: those of `data`, or these (0: the network's own). */
    const gp_data *data;
    uint32_t channels, height, width, classes;
    bool bytes; /* samples are uint8; else float32.  Not with `data` */
    uint32_t
        micro_batch; /* samples computed at once; larger calls are cut.  0: the rank's share of the data's `batch`,
                           * or its read_max */
    /* Training options by their names on the command line, "solver=adam;l2-regularization=0;weights-initializer=he":
     * solver, momentum, gradient-decay-factor, squared-gradient-decay-factor, epsilon, l2-regularization,
     * gradient-threshold, gradient-threshold-method, weights-initializer, seed, synchronize-batch-norm (then computing
     * is an exchange too: every rank makes the same calls).  NULL: their defaults. */
    const char *options;
    gp_loss_fn loss; /* instead of the network's; NULL: the network's */
    void *loss_context;
    bool
        loss_parallel; /* the loss sees each sample by itself, and may be called by several threads at once, each with
                         * some of the samples: then small networks are computed in one pass.  No gp_model_forward() */
    size_t target_bytes; /* of one sample's target, with `loss`; 0: the data's, or 4 */
    bool train_only;     /* no gp_model_scores(): saves the memory of a second plan */
    bool keep; /* does not end with the task: for gp_task_cached().  Close it yourself.  Its exchange costs
                          * copies, because its memory is not shared with the other ranks */
} gp_model_options;

/* gp_model_open -- build a network and take all memory of its steps.  In a block every rank opens the same models in the
 * same order; initial weights depend on the seed alone, so all ranks begin alike.
 * Errors as of `gradpool train`; GP_EINVAL: an option that does not exist, or has no effect here. */
gp_status gp_model_open(gp_model **out, gp_task *task, const gp_model_options *options, gp_error *err);
void gp_model_close(gp_model *model); /* accepts NULL */

/* All parameters, float32, one after the other, and their gradients in the same places; until the model is closed.  Running
 * statistics (batch norm) stand among them; nothing may be added to those but by gp_model_optimizer_step() or
 * gp_model_next_step(). */
size_t gp_model_count(const gp_model *model); /* numbers in each of the two */
float *gp_model_parameters(gp_model *model);
float *gp_model_gradients(gp_model *model);

typedef struct gp_model_tensor {
    const char *name; /* "conv1.weight" */
    uint32_t rank;
    int64_t dim[6];
    size_t count, first; /* elements; place among all parameters */
    float *parameters, *gradients;
    bool statistic; /* a running statistic, not learned */
    bool frozen;    /* its layer's learn-rate factor is 0: no gradient of it is exchanged, or even computed */
} gp_model_tensor;

uint32_t gp_model_tensor_count(const gp_model *model);
void gp_model_get_tensor(gp_model *model, uint32_t index, gp_model_tensor *out); /* index below the count */
/* GP_ENOENT: none of that name; the sentence says which there are. */
gp_status gp_model_find_tensor(gp_model *model, const char *name, gp_model_tensor *out, gp_error *err);

/* ---- a step ---- */

/* gp_model_forward_backward -- forward, loss and backward of some samples.  The first call of a step begins the gradients and
 * sums, later ones add to them. */
gp_status gp_model_forward_backward(gp_model *model, const gp_samples *samples, gp_error *err);

/* The same in two halves, for models with a `loss`, which is not called: what it would do is done between the two.
 *   scores, gradient  [count][gp_model_outputs()], of the model; gradient is zero at first
 * backward takes the samples of the forward before it and adds loss and weight to the sums.  At most micro_batch samples.
 * GP_ESTATE: no loss, or no forward before. */
gp_status gp_model_forward(gp_model *model, const gp_samples *samples, const float **scores, float **gradient,
                           gp_error *err);
gp_status gp_model_backward(gp_model *model, double loss, double weight, gp_error *err);

/* Sums of the step so far: this rank's, or after gp_model_all_reduce() all ranks'. */
typedef struct gp_model_sums {
    double loss;    /* of all samples; loss / weight is the mean */
    double weight;  /* 1 a sample, unless the loss says otherwise */
    double correct; /* of classes, where the largest score was the label's */
    double classed; /* the weight of all classes: correct / classed is the accuracy */
    double squares; /* of values instead of classes: the sum of squared errors, */
    double values;  /* of so many values */
    double samples;
} gp_model_sums;

void gp_model_get_sums(const gp_model *model, gp_model_sums *out);

/* gp_model_optimizer_step -- update all parameters by the solver, with gradients / weight and this learning rate (layers' own
 * factors, L2 and clipping as in `gradpool train`), move running statistics, and begin the next step.
 * GP_ESTATE: nothing was collected.  GP_EDIVERGED: loss or weight are not finite; nothing is changed. */
gp_status gp_model_optimizer_step(gp_model *model, double learn_rate, gp_error *err);

/* gp_model_next_step -- after an update of your own: moves running statistics and begins the next step.  Without it
 * gradients would go on adding up, and the new parameters might not be seen. */
void gp_model_next_step(gp_model *model);

/* Steps that were begun before this one; may be set, to go on with a training. */
uint64_t gp_model_step_count(const gp_model *model);
void gp_model_set_step(gp_model *model, uint64_t step);

/* ---- between the ranks of a block: all of them call it.  Errors as in task.h; GP_ESTATE outside of a block ---- */

/* Gradients and sums, added up over the ranks in index order: the same bits on all of them. */
gp_status gp_model_all_reduce(gp_model *model, gp_task *task, gp_error *err);

/* The halves of it: after reduce_scatter the rank's own slice of the gradients, and all sums, are total; all_gather brings
 * each rank's slice of the PARAMETERS to all.  Between them every rank updates its slice.
 * GP_EUNSUPPORTED: the network has running statistics. */
gp_status gp_model_reduce_scatter(gp_model *model, gp_task *task, gp_error *err);
gp_status gp_model_all_gather(gp_model *model, gp_task *task, gp_error *err);
/* Of the rank with that index: parameters [*first, *first + *count). */
gp_status gp_model_slice(const gp_model *model, const gp_task *task, uint32_t index, size_t *first,
                         size_t *count, gp_error *err);

/* The parameters of rank `root` reach all ranks. */
gp_status gp_model_broadcast(gp_model *model, gp_task *task, uint32_t root, gp_error *err);

/* ---- inference ---- */

/* Numbers that the network gives for a sample. */
size_t gp_model_outputs(const gp_model *model);

/* gp_model_scores -- what the network says of some samples, as in `gradpool predict`: for classification probabilities.
 *   scores  [count][gp_model_outputs()], yours, written; may be NULL
 *   sums    loss, weight and correct of them, if targets are given; may be NULL.  Of a model with a loss of its own zero
 * Not part of a step.  GP_ESTATE: opened with train_only. */
gp_status gp_model_scores(gp_model *model, const gp_samples *samples, float *scores, gp_model_sums *sums,
                          gp_error *err);

/* ---- out ---- */

/* gp_model_onnx -- the model as the bytes of an ONNX file, for gp_task_result() or gp_task_put(); until the next call of
 * it, or close.  gp_model_save -- the same into a file of this machine, whole or not at all.
 * GP_EUNSUPPORTED: it has layers that ONNX has no form for, such as kinds of your own. */
gp_status gp_model_onnx(gp_model *model, const void **data, size_t *bytes, gp_error *err);
gp_status gp_model_save(gp_model *model, const char *path, gp_error *err);

/* ---- is backward the gradient of forward? ---- */

typedef struct gp_gradient_check {
    double step; /* how far parameters are moved; 0: 1e-2 of a tensor's root mean square, at least 1e-4 */
    double tolerance; /* 0 means 0.02 */
    uint64_t seed;    /* of the directions */
    /* Out: the tensor that is furthest off, the two slopes, and by what share of the larger one they differ. */
    char worst[96];
    double error, slope, measured;
} gp_gradient_check;

/* gp_model_check_gradients -- for each tensor, compare the slope that its gradient claims with the one that the loss has,
 * (L(w + hd) - L(w - hd)) / 2h, along the gradient and along a random direction of signs.  Takes three passes a tensor and
 * direction; the parameters are as before, the step begins anew.  What rounding of the losses can make of a slope is no
 * error.  Frozen tensors are left out.  Not for networks with running statistics.
 * GP_EINVAL: an error above the tolerance; the sentence has the numbers.  The checks' kinks: a ReLU at zero has none. */
gp_status gp_model_check_gradients(gp_model *model, const gp_samples *samples, gp_gradient_check *check,
                                   gp_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
