/* advice.h -- how long a step takes on n workers, from what was measured on one and between them.
 *
 *     step(n) = fixed + sample * share(n) + exchange(n)
 *
 * fixed and sample come from two steps of one worker with different shares of the mini-batch (the commit and all that
 * does not depend on the share is in fixed); exchange(n) is measured with the whole gradient on n workers, with
 * what their commit takes more or less than that of one, and between measured n lies on a straight line.  Nothing of the exchange is hidden: on the CPU it runs on the cores that compute.
 * docs/advise.md says where the model is wrong. */
#ifndef GP_CLI_ADVICE_H
#define GP_CLI_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include <gradpool/gradpool.h>

#include "common/base/text/json.h"

enum { ADVICE_POINTS_MAX = 16, ADVICE_WORKERS_MAX = 4096 };

typedef struct advice_model {
    uint32_t batch; /* of all workers, or of each when per_worker */
    bool per_worker;
    double fixed_s, sample_s;
    double memory_bytes, memory_sample_bytes; /* of a worker: fixed, and by sample of its share */
    double gradient_bytes;
    bool compared; /* a training has been compared with it */
    uint32_t point_count;
    struct advice_point {
        uint32_t workers;
        double exchange_s;
    } points[ADVICE_POINTS_MAX]; /* by workers, rising; above 1 */
} advice_model;

/* Two timed steps on one worker: shares a < b. */
typedef struct advice_times {
    uint32_t share_a, share_b;
    double step_a_s, step_b_s, memory_a, memory_b;
} advice_times;

/* fixed_s, sample_s and memory of the line through both; neither is below 0. */
void advice_fit(advice_model *model, const advice_times *times);

typedef struct advice_row {
    uint32_t workers, batch, share;  /* share: the largest of a worker */
    double step_s, rate, efficiency; /* rate: images/s; efficiency: of as many times one worker's rate */
    double exchange_s, memory_bytes;
    double batch_80;   /* the smallest batch of all workers together with an efficiency of 0.8; 1 worker: 1 */
    bool extrapolated; /* beyond the workers that were measured */
} advice_row;

advice_row advice_predict(const advice_model *model, uint32_t workers);

/* The fewest of 1 .. most workers that come within 2 % of the highest rate. */
uint32_t advice_best(const advice_model *model, uint32_t most);

/* ---- kept for later trainings ---- */

/* What a prediction is for: equal texts, equal advice. */
typedef struct advice_key {
    char text[2048];
} advice_key;

/* network, data, the mini-batch and the options that change a step's time; the machine's name and cores. */
void advice_key_of(advice_key *out, const char *network, const char *data, const char *const *options);

/* The mini-batch of "name=value" options: of all workers, or of each. */
uint32_t advice_batch(const char *const *options, bool *per_worker);

/* In the cache directory, by the key's digest.  load: GP_ENOENT when there is none. */
gp_status advice_save(const advice_key *key, const advice_model *model, gp_error *err);
gp_status advice_load(const advice_key *key, advice_model *out, gp_error *err);

/* The model as the members of an object. */
void advice_put(gp_json_writer *writer, const advice_model *model);

/* ---- a training beside what was advised for it ---- */

typedef struct advice_watch {
    bool known; /* there is advice for this network, data, batch and machine */
    bool fresh; /* and no training has been compared with it */
    advice_key key;
    advice_model model;
    advice_row row;
    double last_s, sum_s; /* time between rank 0's steps */
    uint64_t count;
    double data_s, compute_s, exchange_s; /* sums over the steps of all ranks */
    uint64_t records;
    bool skip; /* the step after a validation is longer by it */
} advice_watch;

typedef struct advice_result {
    double expected, measured; /* images/s */
    bool fresh;
    char text[320]; /* "advise expected 53,320 images/s; this run reached 14,978 (28 %): ..." */
} advice_result;

/* Before the first step.  Returns whether text (a sentence) is worth telling: fewer workers are as fast. */
bool advice_watch_begin(advice_watch *watch, const char *network, const char *data,
                        const char *const *options, const gp_train_info *facts, char *text, size_t bytes);
void advice_watch_step(advice_watch *watch, const gp_train_step *step);
void advice_watch_check(advice_watch *watch);
/* Compare the training with the advice; false: there is no advice, or the training took too few steps.
 * The advice is marked, so that later trainings are not compared with it in text. */
bool advice_watch_end(const advice_watch *watch, advice_result *result);

#endif
