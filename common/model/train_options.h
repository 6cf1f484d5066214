/* All training options, defined in one table. Command-line parsing, JSON for the network, help
 * texts, `gradpool options` and the effective values printed at training start use this table. */
#ifndef GP_TRAIN_OPTIONS_H
#define GP_TRAIN_OPTIONS_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/model/graph/graph.h"
#include "common/model/graph/loss.h"

/* Values for options with the same names, in the same order as the words. */
typedef enum gp_solver { GP_SOLVER_SGDM, GP_SOLVER_ADAM, GP_SOLVER_ADAMW, GP_SOLVER_RMSPROP } gp_solver;
typedef enum gp_learn_rate_schedule {
    GP_SCHEDULE_NONE,
    GP_SCHEDULE_PIECEWISE,
    GP_SCHEDULE_EXPONENTIAL,
    GP_SCHEDULE_COSINE,
    GP_SCHEDULE_POLYNOMIAL,
} gp_learn_rate_schedule;
typedef enum gp_clipping { GP_CLIP_L2NORM, GP_CLIP_GLOBAL_L2NORM, GP_CLIP_ABSOLUTE } gp_clipping;
typedef enum gp_period { GP_PERIOD_EPOCH, GP_PERIOD_ITERATION } gp_period;
typedef enum gp_output { GP_OUTPUT_AUTO, GP_OUTPUT_LAST, GP_OUTPUT_BEST } gp_output;
typedef enum gp_statistics_from { GP_STATISTICS_MOVING, GP_STATISTICS_POPULATION } gp_statistics_from;

enum { GP_LOADS_MAX = 64 }; /* workers in a training */

/* Training options, one member per table entry. */
typedef struct gp_train_options {
    int solver; /* gp_solver */
    int64_t max_epochs;
    int64_t mini_batch_size; /* samples per step, over all workers */
    /* the client multiplies this by the workers; 0: mini_batch_size */
    int64_t mini_batch_size_per_worker;
    char scale_lr[32]; /* "linear:BASE_BATCH": the client scales the rate; "": unscaled */
    double initial_learn_rate;
    int learn_rate_schedule; /* gp_learn_rate_schedule */
    double learn_rate_drop_factor;
    int64_t learn_rate_drop_period; /* epochs */
    int64_t learn_rate_warmup;      /* steps */
    double learn_rate_final_factor; /* cosine, polynomial: rate in the last step / initial rate */
    double learn_rate_power;        /* polynomial */
    double momentum;
    double gradient_decay_factor, squared_gradient_decay_factor, epsilon;
    double l2_regularization;
    double gradient_threshold;     /* 0: no clipping */
    int gradient_threshold_method; /* gp_clipping */
    /* never, once, every-epoch; gp_shuffle in common/data has the same order */
    int shuffle;
    int64_t validation_frequency; /* steps; 0: at each epoch's end */
    /* validations without a better loss before the training stops; 0: never */
    int64_t validation_patience;
    int output_network;            /* gp_output */
    char checkpoint_path[512];     /* directory; "": no checkpoints */
    int64_t checkpoint_frequency;  /* interval in checkpoint_frequency_unit */
    int checkpoint_frequency_unit; /* gp_period */
    /* checkpoint directory, a STEP.json, or "auto"; "": new training */
    char resume[512];
    char run_id[40];           /* for checkpoint records; "": none, or chosen by the client */
    int64_t verbose_frequency; /* steps between two output lines */
    int64_t seed;
    int precision;     /* gp_precision */
    double loss_scale; /* initial value, for fp16 */
    double loss_scale_growth, loss_scale_backoff;
    int64_t loss_scale_interval;  /* steps without overflow before it grows; 0: never */
    bool reproducible;            /* bitwise identical results for any number of workers */
    char weights_initializer[32]; /* glorot, he, normal:S */
    char worker_weights[256];     /* relative mini-batch slices per worker, "2,1,1"; "": equal */
    int batch_norm_statistics;    /* gp_statistics_from */
    bool synchronize_batch_norm;  /* compute moments over all workers' samples */
    /* choose and verify the network for NCCL (worker/train/multinode.h) */
    bool nccl_auto_network;
    /* Class weights in the loss: one number per class, or a word from gp_balance_names that the
     * client converts to numbers. "": as in the network file, otherwise all 1. */
    char class_weights[GP_XENT_WEIGHTS_BYTES];
    char augment[512]; /* training image augmentation, see gp_augment in common/data */
    /* resize images to height, width; 0, 0: network input, or original size */
    int64_t image_size[2];
    /* tolerated consecutive worker failures without a completed step between them; 0: none */
    int64_t max_restarts;
    int64_t min_workers;           /* below this count, wait for failed workers to be replaced */
    int on_error;                  /* error, skip; gp_on_error in common/data has the same order */
    int64_t image_cache;           /* decoded images cached per worker, in MiB */
    int64_t micro_batch_size;      /* samples per call on a worker; 0: the worker's whole slice */
    int64_t exchange_bucket_bytes; /* gradient bytes per all-reduce */
    double autotune_seconds;       /* for timing GPU library algorithms; 0: choose by rule */
} gp_train_options;

/* Values for on-error in trainings and predictions; gp_on_error in
 * common/data has the same order. */
extern const char *const gp_on_error_names[];
#define GP_ON_ERROR_HELP "unreadable images: error, or skip (log the file and exclude it from the loss)"

/* Table with all training options. */
extern const gp_param gp_train_options_table[];

/* Read options from a JSON object and resolve automatic values. Options not named have their
 * defaults. Words, ranges and the weights initializer are checked. */
gp_status gp_train_options_from_json(gp_train_options *out, const char *text, size_t bytes, gp_error *err);

/* Read options from "name=value" words. Options not named have their defaults.
 *   words  NULL-terminated; may be NULL
 * GP_EINVAL: malformed word, unknown option, value out of range, or both mini-batch-size and
 * mini-batch-size-per-worker. */
gp_status gp_train_options_from_words(gp_train_options *out, const char *const *words, gp_error *err);

/* Read options from words that were checked before, and resolve automatic values. */
void gp_train_options_from_checked(gp_train_options *out, const char *const *words);

/* Replace automatic values by the usual defaults: initial-learn-rate (0.01 for sgdm, otherwise
 * 0.001) and squared-gradient-decay-factor (0.9 for rmsprop, otherwise 0.999). */
void gp_train_options_resolve(gp_train_options *options);

/* Set options that depend on the worker count: the mini-batch from mini-batch-size-per-worker, and
 * the learn rate from scale-lr (rate * batch / base batch; Goyal et al., "Accurate, large minibatch
 * SGD", 2017). Resolves automatic values first. GP_EINVAL: scale-lr is not "linear:N", or the
 * mini-batch is too large. */
gp_status gp_train_options_scale(gp_train_options *options, uint32_t workers, gp_error *err);

/* Check the options of a training against its network and its data. GP_EINVAL: an option for batch
 * norm, but the network has none; or fewer samples than a mini-batch, after
 * gp_train_options_scale(). */
gp_status gp_train_options_check_network(const gp_train_options *options, const gp_graph *graph,
                                         gp_error *err);
gp_status gp_train_options_check_samples(const gp_train_options *options, uint32_t samples,
                                         const char *source, gp_error *err);

/* Parse worker-weights.
 *   loads  [workers], set to the loads; all 1 if the option is empty
 *   given  set to whether the option is not empty
 * GP_EINVAL: not a list with numbers >= 0, all numbers are 0, or the count differs from
 * `workers`. */
gp_status gp_train_options_loads(const gp_train_options *options, uint32_t workers, double *loads,
                                 bool *given, gp_error *err);

/* Return whether the training returns the weights with the lowest validation loss instead of the
 * last ones. */
bool gp_train_keeps_best(const gp_train_options *options);

/* A step's position in a training. */
typedef struct gp_train_place {
    uint64_t step;  /* from 1 */
    uint32_t epoch; /* from 1 */
    uint64_t steps; /* total steps in the training */
} gp_train_place;

/* Return a step's learning rate. Options must be resolved.
 *   warm-up      linear increase to the initial rate over the first learn-rate-warmup steps
 *   piecewise    multiplied by drop-factor every drop-period epochs
 *   exponential  multiplied by drop-factor every epoch
 *   cosine       half a cosine from the initial rate to final-factor times that rate, over the
 *                steps after the warm-up (Loshchilov and Hutter, SGDR, 2017, without restarts)
 *   polynomial   (1 - t)^power over the same steps, down to final-factor */
double gp_train_learn_rate(const gp_train_options *options, const gp_train_place *place);

#endif
