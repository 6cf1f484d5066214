/* predict_fan.h -- parts of a data source over the leased workers, results in order, each part once.
 *
 *            delivered                     delivered + window
 *   ... done |  BACK  ASKED  BACK  TODO  TODO |  not thought of yet ...
 *
 * Only parts of the window exist, in a ring: a worker that is ahead waits for the slowest instead of filling our memory.  Each worker
 * is asked for two parts at a time, so it never waits for us.  When a worker dies the pool replaces it and grants the
 * lease again with the next generation: then every part that is not back is asked for again.  A part is taken once, by
 * its number and the generation it was asked in. */
#ifndef GP_PREDICT_FAN_H
#define GP_PREDICT_FAN_H

#include "client/pool/pool.h"
#include "common/base/metrics.h"
#include "common/model/network.h"

typedef struct gp_fan_part {
    enum { PART_TODO, PART_ASKED, PART_BACK } state;
    uint32_t worker;      /* index, that it was asked of */
    uint32_t deaths;      /* of workers that had it */
    gp_predict_part sums; /* also which samples */
    void *scores;         /* as the answer is; NULL: nothing was asked for */
    int32_t *labels;      /* [count]; NULL: unknown */
    char *names;          /* one behind the other, each with its NUL; NULL: an older worker */
    uint8_t
        *skipped; /* [count], 1: the sample could not be read, and its row means nothing; NULL: all could */
    char *skipped_names; /* of those, as names */
} gp_fan_part;

/* What is the same in every generation, and who takes the results. */
typedef struct gp_fan_plan {
    const gp_predict_request *request;
    const char *data;    /* as the workers find it; "" = request->samples */
    const char *netspec; /* JSON */
    size_t netspec_bytes;
    int weights_fd; /* sealed weights of the model */
    uint64_t weights_bytes;
    const char *class_names; /* JSON; NULL = none */
    size_t class_names_bytes;
    uint32_t precision;
    uint32_t on_error;
    gp_predict_answer answer;
    size_t row_bytes;     /* of an answer for one sample; 0: GP_ANSWER_SUMS */
    uint32_t score_count; /* that the model computes for a sample */
    size_t sample_bytes;  /* of request->samples */
    bool whole;           /* images of any size: a row is its height and width, two u32, and its classes */
    uint32_t class_bytes; /* of a class in such a row */
    uint32_t image_size[2], overlap, crop; /* as in gp_predict_begin */
    bool exact_size;                       /* as in gp_predict_begin */
    /* In order.  Returning false ends the run with GP_ECANCELED. */
    bool (*take)(void *context, const gp_fan_part *part);
    void *context;
    gp_confusion *confusion; /* added to; NULL: not wanted */
} gp_fan_plan;

/* Sums over all samples. */
typedef struct gp_fan_sums {
    uint64_t count, labelled; /* count: without skipped */
    uint64_t skipped;
    uint64_t excluded; /* targets that are missing */
    double loss, weight, correct, classed, squares, values;
} gp_fan_sums;

/* gp_fan_run -- on the pool's lease, until all is back.
 * GP_ECORRUPT: no sample could be read.  GP_ECANCELED: stopped, or the lease was taken away.  GP_EPEER: a part on which GP_FAN_DEATHS_MAX workers died. */
enum { GP_FAN_DEATHS_MAX = 3 };
gp_status gp_fan_run(gp_fan_sums *out, gp_pool *pool, const gp_fan_plan *plan, gp_error *err);

#endif
