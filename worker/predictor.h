/* predictor.h -- one worker's part of predict and evaluate: a model, a data source, parts on demand. */
#ifndef GP_PREDICTOR_H
#define GP_PREDICTOR_H

#include "common/base/buffer.h"
#include "common/base/error.h"
#include "proto/messages.h"
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
/* The names of samples [first, first + count) of the last part, each with its NUL: gp_store_name(). */
gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count, gp_buffer *names,
                             gp_error *err);
void gp_predictor_free(gp_predictor *predictor);

/* Samples [first, first + count): fills *part and hands out scores (float32 [count, classes]) and labels
 * (int32 [count]; NULL when the data has none), both borrowed until the next call.
 * GP_EINVAL: the range is not within the data or count is over GP_BATCH_MAX. */
gp_status gp_predictor_part(gp_predictor *predictor, uint64_t first, uint32_t count, gp_predict_part *part,
                            const float **scores, const int32_t **labels, gp_error *err);

#endif
