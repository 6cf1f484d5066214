/* predictor.h -- one worker's part of predict and evaluate: a model, a data source, parts on demand. */
#ifndef GP_PREDICTOR_H
#define GP_PREDICTOR_H

#include "common/base/memory/buffer.h"
#include "common/base/error.h"
#include "common/base/metrics.h"
#include "proto/message/messages.h"
#include "worker/backend/backend.h"

typedef struct gp_predictor gp_predictor;

/* Borrowed during the call only, but for the backend. */
typedef struct gp_predictor_setup {
    const gp_predict_begin *begin;
    const char *netspec; /* JSON text */
    size_t netspec_bytes;
    const float *weights; /* blob */
    size_t weights_count; /* float32 elements */
    const char *classes;  /* the model's, a JSON array of names; NULL: labels are compared by number */
    size_t classes_bytes;
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
} gp_predictor_setup;

gp_status gp_predictor_new(gp_predictor **out, gp_predict_ready *ready, const gp_predictor_setup *setup,
                           gp_error *err);
void gp_predictor_free(gp_predictor *predictor);

/* Samples [first, first + count) of the data; or those that the client sent, which it numbers so. */
typedef struct gp_predictor_ask {
    uint64_t first;
    uint32_t count;
    const void *samples; /* where predict_begin named no data: packed; else NULL */
    size_t samples_bytes;
} gp_predictor_ask;

/* What came of them; borrowed until the next call. */
typedef struct gp_predicted {
    gp_predict_part part; /* the sums */
    const void *scores;   /* as predict_begin's answer says: payload 0 of predict_part; NULL: nothing */
    size_t scores_bytes;
    const int32_t *labels;         /* [count]; NULL: samples have no one class, or nobody asked */
    const gp_confusion *confusion; /* of these samples or their pixels; NULL: none */
    const uint8_t *skipped;        /* [count]: 1: it could not be read; NULL: all were */
    bool named;                    /* the answer has names */
} gp_predicted;

/* GP_EINVAL: the range is not within the data, count is over that of predict_begin, or the bytes are not those of
 * count samples. */
gp_status gp_predictor_part(gp_predictor *predictor, const gp_predictor_ask *ask, gp_predicted *out,
                            gp_error *err);

/* The names of samples [first, first + count), each with its NUL: gp_store_name(), or their numbers from 1.
 *   only  [count]: of those that are not 0; NULL: of all */
gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count,
                             const uint8_t *only, gp_buffer *names, gp_error *err);

/* Format what the user should know about the data: what was left out of them when they were opened, and whether classes
 * were matched by number. "": nothing. Returns text. */
char *gp_predictor_note(const gp_predictor *predictor, char *text, size_t bytes);

#endif
