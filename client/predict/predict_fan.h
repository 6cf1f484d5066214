/* predict_fan.h: distribute a data source in parts over leased workers, and deliver the results
 * in order, each once.
 *
 *            delivered                     delivered + window
 *   ... done |  BACK  ASKED  BACK  TODO  TODO |  not requested yet ...
 *
 * Only the parts inside the window exist, in a ring. Thus a fast worker waits for the slowest one
 * instead of filling the client's memory. Two parts are requested from each worker at a time, so
 * that it never waits for the client. When a worker fails, the pool replaces it and grants the
 * lease again with the next generation. The client then requests all missing parts again. A part is
 * accepted once, by its number and the generation of its request. */
#ifndef GP_PREDICT_FAN_H
#define GP_PREDICT_FAN_H

#include "client/pool/pool.h"
#include "common/base/metrics.h"

typedef struct gp_fan_part {
    enum { PART_TODO, PART_ASKED, PART_BACK } state;
    uint32_t worker;      /* worker that computes the part, by index */
    uint32_t deaths;      /* workers that failed while computing the part */
    gp_predict_part sums; /* metrics; also identifies the samples */
    void *scores;         /* scores or classes as received; NULL: only metrics were requested */
    int32_t *labels;      /* [count]; NULL: unknown */

    /* sample names, each terminated by NUL; NULL: an older worker sent none */
    char *names;

    /* [count]; 1: the sample was skipped and the row is invalid; NULL: no sample was skipped */
    uint8_t *skipped;
    char *skipped_names; /* skipped samples' names, in the same form */
} gp_fan_part;

/* Constant parameters for a prediction, and the callback that receives the results. */
typedef struct gp_fan_plan {
    const gp_predict_request *request;

    /* all fields but batch; data "": use request->samples. With `whole`, images keep their size:
     * a row has height and width (two uint32_t), then the classes */
    gp_predict_begin begin;
    const char *netspec; /* JSON */
    size_t netspec_bytes;
    int weights_fd; /* sealed model weights */
    uint64_t weights_bytes;
    const char *class_names; /* JSON; NULL: none */
    size_t class_names_bytes;
    size_t row_bytes;     /* answer bytes per sample; 0: GP_ANSWER_SUMS */
    uint32_t score_count; /* scores that the model computes per sample */
    size_t sample_bytes;  /* bytes per sample in request->samples */
    uint32_t class_bytes; /* bytes per class in a row of classes */

    /* Receives the parts in data order; NULL: not needed. Return false to end the run with
     * GP_ECANCELED. */
    bool (*take)(void *context, const gp_fan_part *part);
    void *context;
    gp_confusion *confusion; /* receives the counts; NULL: not needed */
} gp_fan_plan;

/* Sums over all samples. */
typedef struct gp_fan_sums {
    uint64_t count, labelled; /* count: excludes skipped samples */
    uint64_t skipped;
    uint64_t excluded; /* missing targets */
    double loss, weight, correct, classed, squares, values;
} gp_fan_sums;

/* Run a prediction with the pool's current lease, until all parts have returned. GP_ECORRUPT:
 * no sample could be read. GP_ECANCELED: stopped, or the lease was revoked. GP_EPEER:
 * GP_FAN_DEATHS_MAX workers failed on the same part. */
enum { GP_FAN_DEATHS_MAX = 3 };
gp_status gp_fan_run(gp_fan_sums *out, gp_pool *pool, const gp_fan_plan *plan, gp_error *err);

#endif
