/* train_options.h -- every option of a training, once: command line, JSON on the wire, help, the listing
 * of `gradpool options` and the effective values printed at the start all read this table. */
#ifndef GP_TRAIN_OPTIONS_H
#define GP_TRAIN_OPTIONS_H

#include "common/base/error.h"
#include "common/base/params.h"
#include "common/model/graph.h"

typedef enum gp_solver { GP_SOLVER_SGDM } gp_solver;
typedef enum gp_schedule { GP_SCHEDULE_NONE, GP_SCHEDULE_PIECEWISE } gp_schedule;

typedef struct gp_train_options {
    int solver; /* gp_solver */
    int64_t max_epochs;
    int64_t mini_batch_size; /* samples of one step over all workers */
    double initial_learn_rate;
    int learn_rate_schedule; /* gp_schedule */
    double learn_rate_drop_factor;
    int64_t learn_rate_drop_period; /* epochs */
    double momentum;
    double l2_regularization;
    int shuffle;                  /* never, once, every-epoch: the order of gp_shuffle in common/data */
    int64_t validation_frequency; /* steps; 0 = at the end of each epoch */
    int64_t verbose_frequency;    /* steps between two lines of the table */
    int64_t seed;
    char weights_initializer[32];  /* glorot, he, normal:S */
    int64_t micro_batch_size;      /* samples of one call on a worker; 0 = its whole share */
    int64_t exchange_bucket_bytes; /* gradients all-reduced at a time */
} gp_train_options;

extern const gp_param gp_train_options_table[];

/* Options from JSON text (an object of names in the table); the rest are defaults.  Ranges and words are
 * checked, and the weights initialiser parsed. */
gp_status gp_train_options_from_json(gp_train_options *out, const char *text, size_t bytes, gp_error *err);

/* The learning rate of an epoch (from 1): piecewise multiplies by the drop factor every drop period. */
double gp_train_learn_rate(const gp_train_options *options, uint32_t epoch);

#endif
