/* train_task.h -- custom training loops in tasks (task.h): gradpool provides network, gradients
 * and data; the task provides the loop.
 *
 *     GP_TASK gp_status train(gp_task *task, gp_error *err)             one rank of an spmd block
 *     {
 *         gp_data *data;
 *         gp_model *model;
 *         gp_samples batch;
 *         gp_data_options options = { .source = "digits", .batch = 256, .epochs = 3 };
 *         gp_status status = gp_data_open(&data, task, &options, err);
 *
 *         if (status == GP_OK)
 *             status = gp_model_open(&model, task,
 *                                    &(gp_model_options){ .network = "lenet", .data = data }, err);
 *         while (status == GP_OK &&
 *                (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
 *             status = gp_model_forward_backward(model, &batch, err);   this rank's shard
 *             if (status == GP_OK)
 *                 status = gp_model_all_reduce(model, task, err);   sums over all ranks
 *             if (status == GP_OK)
 *                 status = gp_model_optimizer_step(model, 0.1, err);   same update on all ranks
 *         }
 *         ...
 *     }
 *
 * A step collects the gradients of the SUM of the losses and the sum of the weights, over any
 * number of calls and, in a block, over the ranks. The commit divides once by the total weight (1
 * per sample). So the result does not depend on the worker count, except for rounding.
 *
 * Models and data belong to the task and are closed when it ends unless closed earlier. The open
 * functions allocate all memory; a step allocates none. As in task.h, call these functions only on
 * the thread that runs the task. Functions that compute or read return GP_ECANCELED when the task
 * should end (gp_task_canceled()).
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

/* Options of gp_data_open(). */
typedef struct gp_data_options {
    /* as for `gradpool train --data`; relative paths refer to the worker's directory */
    const char *source;
    bool test; /* use the test samples in stored order; otherwise the training samples */
    /* For gp_data_next(): */
    /* samples per mini-batch, over all ranks of the block; 0: only gp_data_read() is used */
    uint32_t batch;
    uint32_t epochs; /* 0 means 1 */
    /* For both: */
    const char *shuffle; /* "never", "once" or "every-epoch" (NULL: that); `test`: always "never" */
    uint64_t seed;       /* sample order seed */
    uint32_t read_max;   /* maximum samples per gp_data_read(); 0: the larger of `batch` and 1 */
} gp_data_options;

/* Source properties; valid as long as the data. */
typedef struct gp_data_info {
    uint32_t count; /* sample count */
    uint32_t channels, height, width;
    bool bytes;          /* stored values are uint8; otherwise float32 */
    size_t sample_bytes; /* bytes per stored sample */
    size_t target_bytes; /* bytes per target: 4 for a class */
    uint32_t classes;    /* 0: the targets are not classes */
    const char *const *class_names;
} gp_data_info;

/* A range of samples, in memory of their gp_data (valid until the next read or next) or the
 * caller's. */
typedef struct gp_samples {
    const void *samples; /* [count][C][H][W] stored values, uint8 or float32 */
    const void *targets; /* [count] targets; classification: int32, -1: no label */
    uint32_t count;      /* may be 0: a rank without samples still takes part */
    uint64_t position;   /* index of the first sample in the mini-batch across all ranks; seeds dropout */
    /* Set by gp_data_next(): */
    /* samples in the mini-batch over all ranks; the last one of an epoch may be smaller */
    uint32_t batch;
    uint32_t epoch; /* from 1 */
    uint32_t step;  /* step within the epoch, from 1 */
    bool last;      /* last mini-batch of the epoch */
    bool ended;     /* all epochs are over; the other fields are 0 */
} gp_samples;

/* Open a data source. In a block, every rank opens the same source. Errors as for `gradpool
 * train`: GP_ENOENT, GP_ECORRUPT, GP_EINVAL (also: the batch is larger than the data), ... */
gp_status gp_data_open(gp_data **out, gp_task *task, const gp_data_options *options, gp_error *err);
void gp_data_close(gp_data *data); /* accepts NULL */
void gp_data_get_info(const gp_data *data, gp_data_info *out);

/* Get this rank's share of the next mini-batch, prefetched by a thread. A share has floor(batch
 * / ranks) samples; the first ranks have one more. The order is that of `gradpool train`. */
gp_status gp_data_next(gp_data *data, gp_samples *out, gp_error *err);

/* Read the samples at positions [first, first + count) in an epoch's order (from 1). GP_EINVAL:
 * beyond the end, or more than read_max. */
gp_status gp_data_read(gp_data *data, uint32_t epoch, uint32_t first, uint32_t count, gp_samples *out,
                       gp_error *err);

/* ---- models ---- */

/* Arguments of a custom loss function, which is called between forward and backward pass. */
typedef struct gp_loss_call {
    const float *scores; /* [count][size] outputs of the last layer before the loss */
    const void *targets; /* targets of these samples, as supplied; NULL: none */
    uint32_t count;
    size_t size;

    /* [count][size], zero at first: gradient of the SUM of the losses with respect to the scores */
    float *gradient;
    /* Added to the step's sums: */
    double loss;
    double weight;  /* `count` at first; the commit divides by the total */
    double correct; /* 0 at first */
    void *context;
} gp_loss_call;

typedef gp_status (*gp_loss_fn)(gp_loss_call *call, gp_error *err);

/* Options of gp_model_open(); NULL and 0 select the defaults. */
typedef struct gp_model_options {
    /* Built-in network name ("lenet"), path of FILE.onnx or FILE.json, or such a JSON file's text.
     * `content` is an alternative: the bytes from a JSON or ONNX file. An ONNX file includes
     * weights. */
    const char *network;
    const void *content;
    size_t content_bytes;
    /* Sample format: that of `data`, or these fields (0: the format in the network). */
    const gp_data *data;
    uint32_t channels, height, width, classes;
    bool bytes; /* samples are uint8; otherwise float32; not with `data` */

    /* maximum samples computed at once; larger calls are split. 0: the rank's share of the data's
     * `batch`, or the data's read_max */
    uint32_t micro_batch;
    /* Training options by their command line names,
     * "solver=adam;l2-regularization=0;weights-initializer=he": solver, momentum,
     * gradient-decay-factor, squared-gradient-decay-factor, epsilon, l2-regularization,
     * gradient-threshold, gradient-threshold-method, weights-initializer, seed,
     * synchronize-batch-norm (computing then includes an exchange: every rank must make the same
     * calls). NULL: defaults. */
    const char *options;
    gp_loss_fn loss; /* replaces the network's loss; NULL: use the network's */
    void *loss_context;

    /* the loss is computed per sample and is thread-safe: several threads may call it at once,
     * each with some samples. Small networks are then computed in one pass. Excludes
     * gp_model_forward() */
    bool loss_parallel;
    size_t target_bytes; /* bytes per target, with `loss`; 0: as in the data, or 4 */
    bool train_only;     /* exclude gp_model_scores(), which saves a second plan's memory */
    /* the model outlives the task, for gp_task_cached(); the caller must close it. The exchange
     * needs copies, because the model's memory is not shared with the other ranks */
    bool keep;
} gp_model_options;

/* Build a network and allocate all memory for the steps. In a block, every rank opens the same
 * models in the same order. Initial weights depend only on the seed, so all ranks start with the
 * same weights. Errors as for `gradpool train`; GP_EINVAL: an option is unknown or has no effect
 * here, or the data have as many classes as the network, but other names or another order. */
gp_status gp_model_open(gp_model **out, gp_task *task, const gp_model_options *options, gp_error *err);
void gp_model_close(gp_model *model); /* accepts NULL */

/* Return all parameters as consecutive float32 numbers, or their gradients in the same layout.
 * Valid until the model is closed. Running statistics (batch normalization) are included; only
 * gp_model_optimizer_step() and gp_model_next_step() may change them. */
size_t gp_model_count(const gp_model *model); /* parameter count */
float *gp_model_parameters(gp_model *model);
float *gp_model_gradients(gp_model *model);

/* One parameter tensor of a model. */
typedef struct gp_model_tensor {
    const char *name; /* "conv1.weight" */
    uint32_t rank;
    int64_t dim[6];
    size_t count, first; /* element count; offset in all parameters */
    float *parameters, *gradients;
    bool statistic; /* a running statistic, not learned */
    /* the layer's learn-rate factor is 0: the gradient is not exchanged and may not be computed */
    bool frozen;
} gp_model_tensor;

uint32_t gp_model_tensor_count(const gp_model *model);

/* index: below the count */
void gp_model_get_tensor(gp_model *model, uint32_t index, gp_model_tensor *out);

/* Find a tensor by name. GP_ENOENT: not found; the message lists the existing names. */
gp_status gp_model_find_tensor(gp_model *model, const char *name, gp_model_tensor *out, gp_error *err);

/* ---- a step ---- */

/* Compute forward pass, loss and backward pass for some samples. The first call of a step sets
 * gradients and sums; later calls add to them. */
gp_status gp_model_forward_backward(gp_model *model, const gp_samples *samples, gp_error *err);

/* Compute forward and backward pass separately, for models with a `loss`. That function is not
 * called; the task computes the loss between the two calls.
 *   scores, gradient  [count][gp_model_outputs()], memory of the model; gradient is zero at
 *                     first
 * gp_model_backward() uses the samples of the preceding forward pass and adds loss and weight to
 * the sums. At most micro_batch samples. GP_ESTATE: the model has no loss, or there is no
 * preceding forward pass. */
gp_status gp_model_forward(gp_model *model, const gp_samples *samples, const float **scores, float **gradient,
                           gp_error *err);
gp_status gp_model_backward(gp_model *model, double loss, double weight, gp_error *err);

/* Current step's sums: for this rank, or after gp_model_all_reduce() for all ranks. */
typedef struct gp_model_sums {
    double loss;    /* sum over all samples; loss / weight is the mean */
    double weight;  /* 1 per sample, unless the loss sets another weight */
    double correct; /* weight of samples whose largest score was the label's */
    double classed; /* total weight of samples with a class: correct / classed is the accuracy */
    double squares; /* regression: sum of squared errors */
    double values;  /* regression: number of values in `squares` */
    double samples;
} gp_model_sums;

void gp_model_get_sums(const gp_model *model, gp_model_sums *out);

/* Update all parameters with gradients / weight and this learning rate, update running
 * statistics, and start the next step. Layer factors, L2 and clipping are applied as in
 * `gradpool train`. GP_ESTATE: no gradients were collected. GP_EDIVERGED: loss or weight is not
 * finite; nothing is changed. */
gp_status gp_model_optimizer_step(gp_model *model, double learn_rate, gp_error *err);

/* Start the next step after an update by the task itself, and update running statistics. Without
 * this call, gradients keep adding up and the new parameters may not take effect. */
void gp_model_next_step(gp_model *model);

/* Get or set the number of steps started before the current one. Set it to continue a training. */
uint64_t gp_model_step_count(const gp_model *model);
void gp_model_set_step(gp_model *model, uint64_t step);

/* ---- exchange between a block's ranks ----
 *
 * All ranks must call the same function. Errors as in task.h; GP_ESTATE: not in a block. */

/* Sum gradients and sums over all ranks in index order. The results are bitwise identical on all
 * ranks. */
gp_status gp_model_all_reduce(gp_model *model, gp_task *task, gp_error *err);

/* Compute the two halves of an all-reduce. After gp_model_reduce_scatter(), this rank's gradient
 * slice and all sums are totals. gp_model_all_gather() copies each rank's slice of the PARAMETERS
 * to all ranks. In between, every rank updates its slice. GP_EUNSUPPORTED: the network has running
 * statistics. */
gp_status gp_model_reduce_scatter(gp_model *model, gp_task *task, gp_error *err);
gp_status gp_model_all_gather(gp_model *model, gp_task *task, gp_error *err);

/* Return the slice of the rank with this index: parameters [*first, *first + *count). */
gp_status gp_model_slice(const gp_model *model, const gp_task *task, uint32_t index, size_t *first,
                         size_t *count, gp_error *err);

/* Copy the parameters of rank `root` to all ranks. */
gp_status gp_model_broadcast(gp_model *model, gp_task *task, uint32_t root, gp_error *err);

/* ---- inference ---- */

/* Return the output count per sample. */
size_t gp_model_outputs(const gp_model *model);

/* Compute scores for some samples, as in `gradpool predict`: probabilities for classification.
 * Not part of a step.
 *   scores  [count][gp_model_outputs()] memory of the caller, written; may be NULL
 *   sums    loss, weight and correct, if the samples have targets; may be NULL. Zero for a model
 *           with a custom loss
 * GP_ESTATE: the model was opened with train_only. */
gp_status gp_model_scores(gp_model *model, const gp_samples *samples, float *scores, gp_model_sums *sums,
                          gp_error *err);

/* ---- export ---- */

/* Export the model as an ONNX file. gp_model_onnx() returns the bytes, for gp_task_result() or
 * gp_task_put(); they are valid until the next call or close. gp_model_save() writes a file on this
 * machine atomically. GP_EUNSUPPORTED: a layer has no ONNX form, such as a custom kind. */
gp_status gp_model_onnx(gp_model *model, const void **data, size_t *bytes, gp_error *err);
gp_status gp_model_save(gp_model *model, const char *path, gp_error *err);

/* ---- gradient check ---- */

/* Options and results of gp_model_check_gradients(). */
typedef struct gp_gradient_check {
    /* step size for parameters; 0: 1e-2 of the tensor's root mean square, at least 1e-4 */
    double step;
    double tolerance; /* 0 means 0.02 */
    uint64_t seed;    /* seed of the random directions */
    /* Results: the tensor with the largest error, the two slopes, and their difference relative
     * to the larger one. */
    char worst[96];
    double error, slope, measured;
} gp_gradient_check;

/* Check each tensor's gradients against finite differences, (L(w + hd) - L(w - hd)) / 2h, along the
 * gradient and along a random direction of signs. Takes three passes per tensor and direction. The
 * parameters are restored, and the step restarts. Differences within the losses' rounding error are
 * ignored. Frozen tensors are skipped. Not for networks with running statistics. At a kink, such as
 * a ReLU at zero, no gradient exists. GP_EINVAL: an error exceeds the tolerance; the message has
 * the numbers. */
gp_status gp_model_check_gradients(gp_model *model, const gp_samples *samples, gp_gradient_check *check,
                                   gp_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
