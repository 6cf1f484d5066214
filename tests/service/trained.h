/* trained.h: a trained model as file contents; equal bytes mean equal trainings. */
#ifndef GP_TEST_TRAINED_H
#define GP_TEST_TRAINED_H

#include "client/gradpool.h"
#include "tests/service/pools.h"

typedef struct trained_model {
    unsigned char *data; /* freed with free(); NULL: not read */
    size_t bytes;
} trained_model;

static inline trained_model trained_read(gp_training *training)
{
    enum { BYTES_MAX = 1 << 22 };
    const char *path = in_root("model.onnx");
    trained_model model = { NULL, 0 };
    gp_error e = { .message = "" };
    FILE *file = gp_training_save(training, path, &e) == GP_OK ? fopen(path, "rb") : NULL;

    if (file == NULL) {
        GP_TEST_FAIL("no model at %s: %s", path, e.message);
        return model;
    }
    model.data = malloc(BYTES_MAX);
    model.bytes = fread(model.data, 1, BYTES_MAX, file);
    fclose(file);
    return model;
}

/* Run gp_train() and, on GP_OK, store summary and model. */
static inline gp_status trained_run(trained_model *model, gp_training_summary *summary, gp_pool *pool,
                                    const gp_train_request *request, gp_error *e)
{
    gp_training *training = NULL;
    gp_status status = gp_train(&training, pool, request, e);

    if (status == GP_OK) {
        gp_training_summarize(training, summary);
        *model = trained_read(training);
        gp_training_free(training);
    }
    return status;
}

static inline bool trained_equal(const trained_model *a, const trained_model *b)
{
    return a->bytes > 0 && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

#endif
