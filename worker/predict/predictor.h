/* predictor.h -- predict and evaluate on one worker: a model, a data source, and results for
 * parts on request. */
#ifndef GP_PREDICTOR_H
#define GP_PREDICTOR_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/metrics.h"
#include "proto/message/messages.h"
#include "worker/backend/backend.h"

typedef struct gp_predictor gp_predictor;

/* Parameters of gp_predictor_new(). Pointers are borrowed during the call only, except the
 * backend. */
typedef struct gp_predictor_setup {
    const gp_predict_begin *begin;
    const char *netspec; /* JSON text */
    size_t netspec_bytes;
    const float *weights; /* parameter blob */
    size_t weights_count; /* float32 elements */
    /* JSON array of the model's class names; NULL: labels are compared by number */
    const char *classes;
    size_t classes_bytes;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
} gp_predictor_setup;

/* Create a predictor: open the data and compile the plan. *ready is filled in for the client. */
gp_status gp_predictor_new(gp_predictor **out, gp_predict_ready *ready, const gp_predictor_setup *setup,
                           gp_error *err);
void gp_predictor_free(gp_predictor *predictor);

/* Request for samples [first, first + count) of the data. If the client sends the samples, it
 * chooses the numbers. */
typedef struct gp_predictor_ask {
    uint64_t first;
    uint32_t count;
    const void *samples; /* packed samples, if predict_begin named no data; otherwise NULL */
    size_t samples_bytes;
} gp_predictor_ask;

/* Result for a request; borrowed until the next call. */
typedef struct gp_predicted {
    gp_predict_part part; /* sums */
    /* payload 0 of predict_part, in the format requested by predict_begin; NULL: none */
    const void *scores;
    size_t scores_bytes;

    /* [count] labels; NULL: samples have no single class, or not requested */
    const int32_t *labels;
    /* confusion matrix for these samples or their pixels; NULL: none */
    const gp_confusion *confusion;
    const uint8_t *skipped; /* [count] 1: the sample was unreadable; NULL: all were readable */
    bool named;             /* the reply includes names */
} gp_predicted;

/* Compute one part. GP_EINVAL: the range exceeds the data, count exceeds the limit in
 * predict_begin, or the size does not match count samples. */
gp_status gp_predictor_part(gp_predictor *predictor, const gp_predictor_ask *ask, gp_predicted *out,
                            gp_error *err);

/* Append the names for samples [first, first + count), each with a NUL: gp_store_name(), or sample
 * numbers from 1.
 *   only  [count] append only names of samples with a nonzero entry; NULL: all */
gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count,
                             const uint8_t *only, gp_buffer *names, gp_error *err);

/* Format a note for the user: samples excluded when the data were opened, whether classes were
 * matched by number, and operations that run on slow kernels. "": no note. Return text. */
char *gp_predictor_note(const gp_predictor *predictor, char *text, size_t bytes);

#endif
