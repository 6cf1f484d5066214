/* train_options.h -- every option of a training, once: command line, JSON on the wire, help, the listing
 * of `gradpool options` and the effective values printed at the start all read this table. */
#ifndef GP_TRAIN_OPTIONS_H
#define GP_TRAIN_OPTIONS_H

#include <stdbool.h>

#include "common/base/error.h"
#include "common/base/text/params.h"
#include "common/model/graph/loss.h"

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

enum { GP_LOADS_MAX = 64 }; /* workers of a training */

typedef struct gp_train_options {
    int solver; /* gp_solver */
    int64_t max_epochs;
    int64_t mini_batch_size;            /* samples of one step over all workers */
    int64_t mini_batch_size_per_worker; /* 0 = mini_batch_size says; else the client multiplies */
    char scale_lr[32];                  /* "linear:BASE_BATCH": the client scales the rate; "" = as given */
    double initial_learn_rate;
    int learn_rate_schedule; /* gp_learn_rate_schedule */
    double learn_rate_drop_factor;
    int64_t learn_rate_drop_period; /* epochs */
    int64_t learn_rate_warmup;      /* steps */
    double learn_rate_final_factor; /* of cosine and polynomial: what the last step has of the initial rate */
    double learn_rate_power;        /* of polynomial */
    double momentum;
    double gradient_decay_factor, squared_gradient_decay_factor, epsilon;
    double l2_regularization;
    double gradient_threshold;     /* 0 = none */
    int gradient_threshold_method; /* gp_clipping */
    int shuffle;                   /* never, once, every-epoch: the order of gp_shuffle in common/data */
    int64_t validation_frequency;  /* steps; 0 = at the end of each epoch */
    int64_t validation_patience;   /* validations without a better loss; 0 = no matter */
    int output_network;            /* gp_output */
    char checkpoint_path[512];     /* a directory; "" = no checkpoints */
    int64_t checkpoint_frequency;  /* every so many of checkpoint_frequency_unit */
    int checkpoint_frequency_unit; /* gp_period */
    char resume[512];          /* a directory of checkpoints, one STEP.json or "auto"; "" = from the start */
    char run_id[40];           /* of the checkpoints; "": none, or chosen by the client */
    int64_t verbose_frequency; /* steps between two lines of the table */
    int64_t seed;
    int precision;     /* gp_precision */
    double loss_scale; /* of fp16, at first */
    double loss_scale_growth, loss_scale_backoff;
    int64_t loss_scale_interval;  /* steps without an overflow until it grows; 0 = never */
    bool reproducible;            /* the same bits on any number of workers */
    char weights_initializer[32]; /* glorot, he, normal:S */
    char worker_load[256];        /* "2,1,1": shares of the workers in a mini-batch; "" = equal */
    int batch_norm_statistics;    /* gp_statistics_from */
    bool synchronize_batch_norm;  /* moments of all workers' samples */
    bool fast_multinode;          /* NCCL's network is chosen and checked (worker/train/multinode.h) */
    /* What each class counts in the loss: a number each, or a word of gp_balance_names, which the client works out; "" =
     * as the network's file says, else all 1. */
    char class_weights[GP_XENT_WEIGHTS_BYTES];
    char augment[512];     /* of training images: gp_augment in common/data */
    int64_t image_size[2]; /* height, width that images are brought to; 0, 0: the network's, or their own */
    int64_t
        max_restarts; /* deaths of workers in a row, without a step between; 0: a death ends the training */
    int64_t min_workers;           /* with fewer it waits for a worker that died to be replaced */
    int on_bad;                    /* error, skip: the order of gp_on_bad in common/data */
    int64_t image_cache;           /* MiB of decoded images that a worker keeps */
    int64_t micro_batch_size;      /* samples of one call on a worker; 0 = its whole share */
    int64_t exchange_bucket_bytes; /* gradients all-reduced at a time */
    double tune_seconds;           /* for timing engines of a GPU's libraries; 0: by rule */
} gp_train_options;

/* Of on-bad, here and of commands that predict: the order of gp_on_bad in common/data. */
extern const char *const gp_on_bad_words[];
#define GP_ON_BAD_HELP                                                                                       \
    "an image that cannot be read: error, or skip (named in the worker's log, counted in no loss)"

extern const gp_param gp_train_options_table[];

/* Options from JSON text (an object of names in the table); the rest are defaults.  Ranges and words are
 * checked, and the weights initialiser parsed. */
gp_status gp_train_options_from_json(gp_train_options *out, const char *text, size_t bytes, gp_error *err);

/* Read options from words "name=value"; the other options are defaults.
 *   words  NULL-terminated; may be NULL
 * GP_EINVAL: a malformed word, an unknown option, a value out of range, or both mini-batch-size and
 * mini-batch-size-per-worker. */
gp_status gp_train_options_from_words(gp_train_options *out, const char *const *words, gp_error *err);
/* Read words that have been checked before, and resolve the options. */
void gp_train_options_from_checked(gp_train_options *out, const char *const *words);

/* Values that depend on others take what is usual for them: initial-learn-rate (0.01 of sgdm, else 0.001) and
 * squared-gradient-decay-factor (0.9 of rmsprop, else 0.999). */
void gp_train_options_resolve(gp_train_options *options);

/* gp_train_options_scale -- what depends on the number of workers: the mini-batch of mini-batch-size-per-worker, then
 * the rate by scale-lr (Goyal et al., "Accurate, large minibatch SGD", 2017: rate x batch / base batch).  Resolves first.
 * GP_EINVAL: scale-lr is not "linear:N"; a mini-batch beyond its ceiling. */
gp_status gp_train_options_scale(gp_train_options *options, uint32_t workers, gp_error *err);

/* gp_train_options_loads -- worker-load as numbers.
 *   loads  [workers], filled; *given false and all 1 where the option is empty
 * GP_EINVAL: not numbers >= 0 separated by commas, all 0, or not one for each worker. */
gp_status gp_train_options_loads(const gp_train_options *options, uint32_t workers, double *loads,
                                 bool *given, gp_error *err);

/* Whether the weights of the lowest validation loss are kept, not the last ones. */
bool gp_train_keeps_best(const gp_train_options *options);

/* Where a step stands in its training. */
typedef struct gp_train_place {
    uint64_t step;  /* from 1 */
    uint32_t epoch; /* from 1 */
    uint64_t steps; /* of the whole training */
} gp_train_place;

/* The learning rate of a step, of resolved options.
 *   warm-up      the first learn-rate-warmup steps rise in a straight line to the initial rate
 *   piecewise    x drop-factor every drop-period epochs           exponential  x drop-factor every epoch
 *   cosine       half a cosine from the initial rate to final-factor of it over the steps after the warm-up
 *                (Loshchilov and Hutter, SGDR, 2017, without restarts)
 *   polynomial   (1 - t)^power over the same, down to final-factor */
double gp_train_learn_rate(const gp_train_options *options, const gp_train_place *place);

#endif
