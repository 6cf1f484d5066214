/* Performance model for a training step on n workers, fitted to measurements.
 *
 *     step(n) = fixed + sample * share(n) + exchange(n)
 *
 * fixed and sample come from two steps on one worker with different shares of the mini-batch. fixed
 * includes the commit and everything else that does not depend on the share. exchange(n) is
 * measured on n workers with the complete gradient. It includes the difference between the commit
 * times on n workers and on one worker. Values between measured n are interpolated linearly.
 *
 * The model assumes no overlap between exchange and computation: on the CPU both use the same
 * cores. docs/advise.md lists cases in which the model is wrong. */
#ifndef GP_CLI_ADVICE_H
#define GP_CLI_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

enum { ADVICE_POINTS_MAX = 16, ADVICE_WORKERS_MAX = 4096 };

/* A fitted model. */
typedef struct advice_model {
    uint32_t batch; /* total batch, or batch per worker if per_worker is set */
    bool per_worker;
    /* seconds per step and per sample */
    double fixed_s, sample_s;
    /* memory per worker: constant part, and per sample of the share */
    double memory_bytes, memory_sample_bytes;
    double gradient_bytes;
    bool compared; /* a training was compared with this model */
    uint32_t point_count;
    struct advice_point {
        uint32_t workers;
        double exchange_s;
    } points[ADVICE_POINTS_MAX]; /* measured exchange times, sorted by workers, all above 1 */
} advice_model;

/* Two measured steps on one worker, with shares a < b. */
typedef struct advice_times {
    uint32_t share_a, share_b;
    double step_a_s, step_b_s, memory_a, memory_b;
} advice_times;

/* Fit a line through both measurements and set the model's times and memory. No parameter is
 * negative, except the constant part of the memory. */
void advice_fit(advice_model *model, const advice_times *times);

/* Prediction for one worker count. */
typedef struct advice_row {
    uint32_t workers, batch, share; /* share: largest share for a worker, in samples */
    /* rate: images/s; efficiency: relative to `workers` times the rate of one worker */
    double step_s, rate, efficiency;
    /* exchange time, and memory per worker */
    double exchange_s, memory_bytes;
    double batch_80;   /* smallest total batch with an efficiency of 0.8; 1 worker: 1 */
    bool extrapolated; /* more workers than measured */
} advice_row;

/* Predict a training on that many workers. */
advice_row advice_predict(const advice_model *model, uint32_t workers);

/* Return the smallest worker count, at most `most`, with a rate within 2 % of the best. */
uint32_t advice_best(const advice_model *model, uint32_t most);

/* ---- cache file ---- */

/* Identity of a prediction. Equal texts have the same prediction. */
typedef struct advice_key {
    char text[2048];
} advice_key;

/* Build the key from host, cores, network, data, batch, and all options that change the step
 * time. */
void advice_key_of(advice_key *out, const char *network, const char *data, const char *const *options);

/* Return the mini-batch size from "name=value" options.
 *   per_worker  set to true if the size is per worker instead of total */
uint32_t advice_batch(const char *const *options, bool *per_worker);

/* Save to or load from the cache directory. GP_ENOENT: there is no advice for the key. GP_ECORRUPT:
 * malformed file. */
gp_status advice_save(const advice_key *key, const advice_model *model, gp_error *err);
gp_status advice_load(const advice_key *key, advice_model *out, gp_error *err);

/* Write the model as members of the current JSON object. */
void advice_put(gp_json_writer *writer, const advice_model *model);

/* ---- comparison of a training with the advice ---- */

/* A running comparison: the advice, and the times measured so far. */
typedef struct advice_watch {
    bool known; /* the cache has advice for this network, data, batch and host */
    bool fresh; /* no training has been compared with this advice yet */
    advice_key key;
    advice_model model;
    advice_row row;
    double last_s, sum_s; /* sum of the times between steps of rank 0 */
    uint64_t count;
    double data_s, compute_s, exchange_s; /* sums over the steps on all ranks */
    /* step records, over all ranks */
    uint64_t records;
    bool skip; /* set by the caller after a validation: skip the next step, whose time includes it */
} advice_watch;

/* Expected and measured rate of a training. */
typedef struct advice_result {
    double expected, measured; /* images/s */
    bool fresh;
    /* e.g. "advise expected 53,320 images/s; this run reached 14,978 (28 %): ..." */
    char text[320];
} advice_result;

/* Load the advice before the first step. true: `text` recommends fewer workers, which are as
 * fast. */
bool advice_watch_begin(advice_watch *watch, const char *network, const char *data,
                        const char *const *options, const gp_train_info *info, char *text, size_t bytes);

/* Add a step of one rank. */
void advice_watch_step(advice_watch *watch, const gp_train_step *step);

/* Compare the training with the advice. false: there is no advice, or the training was too short.
 * Later trainings are compared too, but result->fresh is set only once. */
bool advice_watch_end(const advice_watch *watch, advice_result *result);

#endif
