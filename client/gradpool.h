/* gradpool.h -- a pool of workers, one per GPU (or CPU share), from C.
 *
 *     gp_pool *pool;
 *     gp_training *training;
 *     gp_error err;
 *
 *     if (gp_pool_open(&pool, NULL, &err) != GP_OK || ...)
 *
 * A pool is found or started by name, used by any number of processes at once, and outlives them all; it ends by
 * `gradpool down` or after 30 idle minutes.  A handle is used by one thread at a time.  Every function that can
 * fail returns a gp_status and writes a sentence (cause, value, fix) to *err, which may be NULL; outputs are set
 * only on success.  Nothing here prints, exits or installs signal handlers. */
#ifndef GP_GRADPOOL_H
#define GP_GRADPOOL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/error.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_API __attribute__((visibility("default")))

typedef struct gp_pool gp_pool;

/* Told what is worth telling while a call waits: "started pool default with 2 workers", "waiting: lease 3 (train
 * lenet, pid 812) holds 2 workers for 3 m 20 s".  Must not call back into the pool. */
typedef void (*gp_note_fn)(void *context, const char *sentence);

/* Zero-initialise; zero means the default everywhere. */
typedef struct gp_pool_options {
    const char *pool;    /* name; NULL = $GRADPOOL_POOL, else "default" */
    uint32_t workers;    /* of a pool that must be started; 0 = one per GPU, else per share of the cores */
    const char *devices; /* of a pool that must be started: "auto" (NULL), "cpu", "1,3", "cuda:0", a UUID */
    int64_t idle_timeout_ms; /* of a pool that must be started; 0 = 30 minutes, -1 = never */
    int timeout_ms;          /* for finding or starting; 0 = 15,000 */
    bool attach_only;        /* GP_ENOPOOL instead of starting one */
    gp_note_fn note;
    void *context; /* of note */
} gp_pool_options;

/* gp_pool_open -- attach to the pool of that name, or start it.
 *   out      the handle, released with gp_pool_close(); the pool itself goes on
 *   options  read during the call only (note and its context are kept); NULL = defaults
 * GP_ENOPOOL: none runs and attach_only is set.  GP_ETIMEDOUT: it did not answer in time.  GP_EVERSION: it runs
 * another version.  GP_EPERM: its directory is not ours alone. */
GP_API gp_status gp_pool_open(gp_pool **out, const gp_pool_options *options, gp_error *err);

/* gp_pool_close -- accepts NULL; ends what this handle runs and gives its workers back. */
GP_API void gp_pool_close(gp_pool *pool);

/* Number of workers of the pool that can be leased (excluded ones are left out). */
GP_API gp_status gp_pool_workers(gp_pool *pool, uint32_t *count, gp_error *err);

/* The state of the pool as the JSON of `gradpool status --json`; freed with gp_text_free(). */
GP_API gp_status gp_pool_status_json(gp_pool *pool, char **json, gp_error *err);
GP_API void gp_text_free(char *text);

/* gp_pool_resize -- give an idle pool another number of workers (0 = default) or other devices (NULL = as now).
 * GP_EBUSY: leases are held; the sentence names them. */
GP_API gp_status gp_pool_resize(gp_pool *pool, uint32_t workers, const char *devices, gp_error *err);

/* gp_pool_shutdown -- end the pool: now, revoking leases, or after the last one. */
GP_API gp_status gp_pool_shutdown(gp_pool *pool, bool when_idle, gp_error *err);

/* Which workers a call takes.  All at once or none: until they are free the call waits in the pool's queue. */
typedef struct gp_lease_request {
    uint32_t workers_min, workers_max; /* 0, 0 = every worker of the pool; n, n = exactly n */
    const char *devices;               /* NULL = any; "1,3", "cuda:0", a UUID */
    enum { GP_ENVIRONMENT_ANY, GP_ENVIRONMENT_CPU, GP_ENVIRONMENT_GPU } environment;
    bool no_wait; /* GP_EBUSY instead of waiting */
} gp_lease_request;

/* ---- training ---- */

/* One step, as the whole group saw it (loss, accuracy) or as one worker did (times). */
typedef struct gp_train_step {
    uint32_t worker;  /* index, from 1 */
    uint32_t rank;    /* from 0; loss, accuracy and rate are the same on all ranks */
    uint64_t step;    /* from 1 */
    uint32_t epoch;   /* from 1 */
    uint32_t samples; /* of this rank in this step */
    double loss;      /* mean over the mini-batch, nats */
    double accuracy;  /* [0, 1], of the mini-batch while it was trained on */
    double learn_rate;
    double seconds; /* since the first step began */
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms,
        wait_ms; /* where this rank's step went */
} gp_train_step;

typedef struct gp_train_check { /* one validation, over all workers, each sample once */
    uint64_t step;
    uint32_t epoch;
    double loss, accuracy; /* means over count */
    uint64_t count;
    double seconds;
} gp_train_check;

typedef struct gp_train_facts { /* known before the first step */
    uint32_t workers;
    uint32_t worker_index[64]; /* of each rank */
    uint32_t batch_rank[64];   /* samples of each rank in a full batch */
    uint32_t batch;            /* samples per step, over all workers */
    uint32_t steps_per_epoch, epochs;
    uint64_t samples, validation_samples, parameters, memory_bytes; /* memory: of rank 0 */
    uint32_t classes;
    double ready_ms; /* of the slowest rank */
} gp_train_facts;

typedef struct gp_train_events { /* each may be NULL; called on the calling thread */
    void (*begin)(void *context, const gp_train_facts *facts);
    void (*step)(void *context, const gp_train_step *step);
    void (*check)(void *context, const gp_train_check *check);
    void *context;
} gp_train_events;

typedef struct gp_train_request {
    const char *network;         /* "lenet", FILE.onnx, FILE.json */
    const char *data;            /* SOURCE, as on the command line: a folder, a known name, "digits:6000" */
    const char *validation_data; /* NULL = the test split of data where it has one; "none" = no validation */
    const char *const *options;  /* "name=value", NULL-terminated, of `gradpool options`; NULL = defaults */
    gp_lease_request lease;
    gp_train_events events;
    /* Looked at all the time, may be set from a signal handler: 1 = stop at a step boundary and keep the model,
     * 2 = stop at once.  NULL = never. */
    const volatile sig_atomic_t *stop;
} gp_train_request;

typedef struct gp_training gp_training; /* what a training leaves: weights, network, numbers */

typedef struct gp_training_summary {
    uint64_t steps;
    uint32_t epochs;                             /* begun */
    bool stopped;                                /* by request, before the last step */
    double loss;                                 /* of the last step */
    double validation_loss, validation_accuracy; /* of the last validation; NaN = none */
    double seconds;                              /* from the first step to the last */
    uint64_t samples_trained;
} gp_training_summary;

/* gp_train -- train one network on the pool's workers and wait for it.
 * Every worker computes its share of each mini-batch; gradients go directly between workers.
 * GP_EPEER: a worker died: which, how, in which step and its log are in the sentence; the pool has replaced it.
 * GP_ECANCELED: stop was 2.  GP_EDIVERGED: the loss is not finite.  GP_EINVAL: an option, named with its range.
 * GP_ENODEV: environment GPU without one.  GP_EBUSY: no_wait, and the workers are leased. */
GP_API gp_status gp_train(gp_training **out, gp_pool *pool, const gp_train_request *request, gp_error *err);
GP_API void gp_training_free(gp_training *training);
GP_API void gp_training_summarize(const gp_training *training, gp_training_summary *summary);

/* Write the model as ONNX with class names and normalisation inside; whole or not at all (rename). */
GP_API gp_status gp_training_save(const gp_training *training, const char *path, gp_error *err);

/* ---- prediction ---- */

typedef struct gp_prediction {
    uint64_t index;         /* of the sample in the data, from 0, in order */
    int32_t label;          /* true class, or -1 */
    uint32_t predicted;     /* class with the largest score, the first on ties */
    const char *class_name; /* of predicted */
    const float *scores;    /* [classes], softmax */
    uint32_t classes;
} gp_prediction;

typedef struct gp_predict_request {
    const char *model; /* FILE.onnx */
    const char *data;  /* SOURCE; its test split where it has one */
    gp_lease_request lease;
    /* Once per sample in the order of the data; returning false ends the call with GP_ECANCELED.  NULL = none. */
    bool (*each)(void *context, const gp_prediction *prediction);
    void (*progress)(void *context, uint64_t done, uint64_t count);
    void *context;
    const volatile sig_atomic_t *stop; /* not 0 = end with GP_ECANCELED; NULL = never */
} gp_predict_request;

typedef struct gp_evaluation {
    uint64_t count;        /* samples predicted */
    uint64_t labelled;     /* of them with a label */
    double accuracy, loss; /* over the labelled; NaN = none */
    double seconds;
} gp_evaluation;

/* gp_predict -- fan the samples out over the workers; each sample counts exactly once, although workers die. */
GP_API gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request,
                            gp_error *err);

/* "gradpool 0.1.0" */
GP_API const char *gp_version(void);

#ifdef __cplusplus
}
#endif
#endif
