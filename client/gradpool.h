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
#include <gradpool/metrics.h>
#include <gradpool/progress.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_API __attribute__((visibility("default")))

/* A pool handle, and every handle made from it, belongs to the process that opened it.  In a child made by fork(), calls
 * with it fail at once with GP_ESTATE, and so does gp_pool_open() while the parent had a pool open at fork(): open pools
 * after fork(), or use exec.  Closing a handle there releases memory only. */
typedef struct gp_pool gp_pool;

/* Told what is worth telling while a call waits: "started pool default with 2 workers", "waiting: lease 3 (train
 * lenet, pid 812) holds 2 workers for 3 m 20 s".  Must not call back into the pool. */
typedef void (*gp_message_fn)(void *context, const char *sentence);

/* Zero-initialise; zero means the default everywhere. */
typedef struct gp_pool_options {
    const char *pool;    /* name, or of another host tcp://HOST:PORT; NULL = $GRADPOOL_POOL, else "default" */
    uint32_t workers;    /* of a pool that must be started; 0 = one per GPU, else per share of the cores */
    const char *devices; /* of a pool that must be started: "auto" (NULL), "cpu", "1,3", "cuda:0", a UUID */
    int64_t idle_timeout_ms; /* of a pool that must be started; 0 = 30 minutes, -1 = never */
    int timeout_ms;          /* for finding or starting; 0 = 15,000 */
    bool attach_only;        /* GP_ENOPOOL instead of starting one */
    /* Variables of the environment, "A,B", whose values the pool is told for its life, a running one in place of those that
     * it has; NULL: a pool that is started is told AWS_ACCESS_KEY_ID and what belongs to it, if they are set. */
    const char *secret_env;
    gp_message_fn note;
    void *context; /* of note */
    /* Of a pool that must be started: where other hosts reach it, "tcp://ADDRESS:PORT"; NULL = nowhere. */
    const char *listen;
    /* Of a pool on another host: its public key, and our pair; NULL = $GRADPOOL_SERVER_KEY_FILE, $GRADPOOL_KEY_FILE, or what
     * its profile says.  Such a pool can be looked at, given jobs and ended; it is never started, and leases none of its
     * workers (GP_EUNSUPPORTED). */
    const char *server_key_file, *key_file;
    /* Of a pool that must be started: how long a worker may give no sign of life before it is shown as suspect, and before it
     * is killed and replaced (never while it runs code of its user); 0 = 5 s and 15 s, -1 = for ever. */
    int64_t suspect_ms, silence_ms;
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

/* The state of the pool as the JSON of `gradpool status --json`; freed with gp_buffer_free(). */
GP_API gp_status gp_pool_status_json(gp_pool *pool, char **json, gp_error *err);
GP_API void gp_buffer_free(void *data);

/* gp_pool_resize -- give an idle pool another number of workers (0 = default) or other devices (NULL = as now).
 * GP_EBUSY: leases are held; the sentence names them. */
GP_API gp_status gp_pool_resize(gp_pool *pool, uint32_t workers, const char *devices, gp_error *err);

/* gp_pool_shutdown -- end the pool: now, revoking leases, or after the last one. */
GP_API gp_status gp_pool_shutdown(gp_pool *pool, bool when_idle, gp_error *err);

typedef enum gp_lease_environment {
    GP_ENVIRONMENT_ANY,
    GP_ENVIRONMENT_CPU,
    GP_ENVIRONMENT_GPU
} gp_lease_environment;

/* Which workers a call takes.  All at once or none: until they are free the call waits in the pool's queue. */
typedef struct gp_lease_request {
    uint32_t workers_min, workers_max; /* 0, 0 = every worker of the pool; n, n = exactly n */
    const char *devices;               /* NULL = any; "1,3", "cuda:0", a UUID */
    gp_lease_environment environment;
    bool no_wait;     /* GP_EBUSY instead of waiting */
    int32_t priority; /* -1000 to 1000; higher is served first, equal ones in the order of asking */
} gp_lease_request;

/* ---- data ---- */

/* gp_data_split -- divide the training part of a source at random, each class by itself, into lists of files.
 *   source  a folder of class folders, FILE.csv, s3://bucket/prefix
 *   sizes   [count - 1], of all lists but the last, which gets the rest: below 1 a share of each class, from 1 on so many
 *           samples of each class
 *   paths   [count], at most 16 lists FILE.csv: a header "path,label", then a line a sample; written whole or not at all
 *   samples [count], filled in: how many each list has; may be NULL
 *   progress  of listing the source and writing the lists; NULL: no reports
 * The same seed divides in the same way.  GP_EUNSUPPORTED: a source that does not consist of files.  GP_EINVAL: shares over 1,
 * a class with fewer samples than wanted. */
GP_API gp_status gp_data_split(const char *source, const double *sizes, const char *const *paths,
                               uint32_t count, uint64_t seed, uint32_t *samples, const gp_progress *progress,
                               gp_error *err);

/* What a source has. */
typedef struct gp_dataset_info {
    const char *kind; /* "folder", "csv", "tar", "pixels", "npy", "idx", ... */
    uint32_t samples;
    uint32_t channels, height, width; /* of a sample */
    bool sizes_differ;                /* images of several sizes: height and width are the first's */
    bool pixel_labels;                /* a sample has a class for each pixel, not one */
    uint32_t class_count;             /* 0: its targets are values */
    const char *const *class_names;   /* [class_count], in the order of the labels */
    const uint64_t *counts; /* [class_count + 1]: samples (pixels) of each class; the last: of none */
} gp_dataset_info;

/* gp_dataset_inspect -- look at a source (docs/data.md) and count what each class has.  All labels are read: of label images that is all
 * of them, of other images none is decoded.
 *   test  its test part (of a training that is validation), else its training part
 *   out   released with gp_dataset_free()
 * GP_ENOENT: no such source, or part.  Else as a training on it. */
typedef struct gp_dataset gp_dataset;
GP_API gp_status gp_dataset_inspect(gp_dataset **out, const char *source, bool test, gp_error *err);
GP_API const gp_dataset_info *gp_dataset_get_info(const gp_dataset *counts); /* as long as counts lives */
GP_API void gp_dataset_free(gp_dataset *counts);                             /* accepts NULL */

/* ---- training ---- */

/* One step, as the whole group saw it (loss, accuracy) or as one worker did (times). */
typedef struct gp_train_step {
    uint32_t worker;  /* index, from 1 */
    uint32_t rank;    /* from 0; loss, accuracy and rate are the same on all ranks */
    uint64_t step;    /* from 1 */
    uint32_t epoch;   /* from 1 */
    uint32_t samples; /* of this rank in this step */
    double loss;      /* mean over the mini-batch, nats */
    double accuracy;  /* [0, 1], of the mini-batch while it was trained on; NaN: of values */
    double rmse;      /* root of the mean squared error of values; NaN: of classes */
    double learn_rate;
    double seconds; /* since the first step began */
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms,
        wait_ms;       /* where this rank's step went */
    double loss_scale; /* of precision fp16; 0: none */
    bool skipped;      /* a gradient was not finite at that scale: the step changed nothing */
} gp_train_step;

typedef struct gp_train_validation_result { /* one validation, over all workers, each sample once */
    uint64_t step;
    uint32_t epoch;
    double loss, accuracy; /* means over count */
    double rmse;           /* of values, where accuracy is NaN */
    uint64_t count;
    double seconds;
    uint64_t
        excluded; /* classes (of samples or pixels) or values that are missing in the data: in no metric */
} gp_train_validation_result;

typedef struct gp_train_validation_progress { /* of a validation that takes longer than two seconds */
    uint64_t step;                            /* after which it is made */
    uint64_t done, count; /* samples over all workers; done is estimated from the first worker */
    double seconds;       /* since it began */
} gp_train_validation_progress;

typedef struct gp_train_info { /* known before the first step */
    uint32_t workers;
    uint32_t worker_index[64]; /* of each rank */
    uint32_t batch_rank[64];   /* samples of each rank in a full batch */
    uint32_t batch;            /* samples per step, over all workers */
    uint32_t steps_per_epoch, epochs;
    uint64_t samples, validation_samples, parameters, memory_bytes; /* memory: of rank 0 */
    uint32_t classes;
    double ready_ms; /* of the slowest rank */
    double data_ms;  /* the part of it that opened the data, on the rank where that took longest */
    double
        network_ms; /* the part for weights and plans of the network, on the rank where that took longest */
    double initial_learn_rate; /* that is used: solver's default and scale-lr worked out */
    uint64_t lease;            /* the first lease of the training, as in `gradpool status` and the logs */
    bool pixels;               /* the targets are classes of pixels */
    uint64_t excluded;         /* as training_excluded of the summary */
} gp_train_info;

/* What became of one layer of a network that a training begins with (docs/transfer.md). */
typedef struct gp_layer_change {
    const char *action; /* "removed", "added", "changed", "initialized" (its weights are new) or "frozen" */
    const char *layer, *kind; /* "fc8", "fc"; "input" and "" for the network's input */
    const char *output;       /* of one sample: "55", "64x27x27" */
    const char *settings;     /* "outputs=55 weight-learn-rate-factor=10" */
    int64_t parameters;       /* that it learns, or would */
} gp_layer_change;

/* A training has left its group of workers for another one. */
typedef struct gp_train_rescale {
    uint32_t workers_before, workers;
    uint32_t worker_index[64]; /* of each rank */
    uint64_t step;             /* the last one of the group before */
    double seconds;            /* from the last step, or the death, to when all workers were ready again */
    uint64_t lease;            /* changes when the training is restarted */
    bool died;                 /* a worker died; false: it was resized, by whom or for what */
    const char *cause;
} gp_train_rescale;

typedef struct gp_train_events { /* each may be NULL; called on the calling thread */
    void (*begin)(void *context, const gp_train_info *facts);
    void (*step)(void *context, const gp_train_step *step);
    void (*check)(void *context, const gp_train_validation_result *check);
    void *context;
    /* By gp_training_new(): what a transfer did, one call a layer; what else is worth telling.  Texts are lent. */
    void (*change)(void *context, const gp_layer_change *change);
    void (*note)(void *context, const char *sentence);
    /* Its number of workers changed, or one of them was replaced.  A sentence about it goes to the pool's note as well. */
    void (*regroup)(void *context, const gp_train_rescale *regroup);
    /* A failure that does not end the training: a checkpoint that cannot be written, or a damaged one that was skipped.
     * NULL: the sentence goes to the pool's note. */
    void (*warning)(void *context, const char *sentence);
    /* Progress of a validation, twice a second after its first two seconds. */
    void (*check_progress)(void *context, const gp_train_validation_progress *progress);
} gp_train_events;

/* Arrays of the program as data of a training: given once, they lie in memory once, whatever the number of workers on this
 * machine that read them. */
typedef struct gp_array_dataset gp_array_dataset;

typedef struct gp_array_dataset_info {
    uint32_t count, channels, height, width; /* samples are packed [count, channels, height, width] */
    bool floats;                             /* float32, used as they are; else uint8, divided by 255 */
    /* Targets are int32 classes 0 to class_count - 1, -1 = none: one for each sample or, with pixel_labels, [height,
     * width] of them; class_names: class_count of them, NULL = their numbers.  Or, with values, so many float32 each. */
    uint32_t class_count;
    const char *const *class_names;
    bool pixel_labels;
    uint32_t values;
} gp_array_dataset_info;

/* gp_array_dataset_new -- copies what it is given; the caller's arrays may go.
 * GP_EINVAL, GP_ELIMIT: info, with what is possible.  GP_ENOMEM: the machine has not so much. */
GP_API gp_status gp_array_dataset_new(gp_array_dataset **out, const gp_array_dataset_info *info,
                                      const void *samples, const void *targets, gp_error *err);

/* gp_array_dataset_source -- the SOURCE to give as data or validation_data (they have no test split: name the validation data, or
 * "none"); lives as long as the arrays.  For this machine, this user and this process's life. */
GP_API const char *gp_array_dataset_source(const gp_array_dataset *arrays);

/* gp_array_dataset_free -- accepts NULL.  Workers that are at it keep them until their training ends, then the memory is free. */
GP_API void gp_array_dataset_free(gp_array_dataset *arrays);

typedef struct gp_train_request {
    const char *network;         /* "lenet", FILE.onnx, FILE.json; NULL where pretrained is given */
    const char *data;            /* SOURCE, as on the command line: a folder, a known name, "digits:6000" */
    const char *validation_data; /* NULL = the test split of data where it has one; "none" = no validation */
    /* "name=value", NULL-terminated, of `gradpool options`; NULL = defaults.  checkpoint-path, resume and run-id are
     * described in docs/gradpool.md, "Checkpoints". */
    const char *const *options;
    gp_lease_request lease;
    gp_train_events events;
    /* Looked at all the time, may be set from a signal handler: 1 = stop at a step boundary and keep the model,
     * 2 = stop at once.  NULL = never. */
    const volatile sig_atomic_t *stop;

    /* Transfer learning (docs/transfer.md).  All NULL or 0: none. */
    const char *pretrained; /* FILE.onnx, or a NAME that `model get` has fetched; then network is NULL */
    /* "auto", or as many as the data has: a new head, unless the network's classes are the data's.  NULL: the old one */
    const char *classes;
    double head_learn_rate_factor[2]; /* of a new head's weights and biases; 0 = 1 */
    const char *freeze_up_to;         /* this layer and all before it do not learn */

    /* How pixels become network input: "0..1", "0..255", "imagenet" or "MEAN,STD" (docs/onnx.md). NULL: as the model
     * states. Needed for byte data and a model of another program that does not state it. */
    const char *image_normalization;

    const gp_progress
        *data_progress; /* of listing or drawing the data in gp_training_new(); NULL: no reports */
} gp_train_request;

typedef struct gp_training gp_training; /* what a training leaves: weights, network, numbers */

typedef struct gp_training_summary {
    uint64_t steps;
    uint32_t epochs;    /* begun */
    bool stopped;       /* by request, before the last step */
    double loss;        /* of the last step */
    bool early_stopped; /* ended by validation-patience */
    /* Of the last validation, or with output-network best-validation of the weights kept; NaN = none. */
    double validation_loss, validation_accuracy, validation_rmse;
    double seconds; /* from the first step to the last */
    uint64_t samples_trained;
    /* Images that could not be read and were passed over (on-error skip).  One that several workers met counts once, if it is
     * among the first few of each. */
    uint64_t skipped;
    uint32_t restarts;     /* deaths of workers after which it went on */
    uint32_t resizes;      /* changes of its number of workers for other reasons */
    double paused_seconds; /* that both took */
    uint64_t
        training_excluded; /* classes or values that the training data lacks; pixels of label images are not counted */
    uint64_t
        validation_excluded; /* classes (of samples or pixels) or values of the validation data that are missing */
} gp_training_summary;

/* gp_training_new -- all of a training that needs no pool: options, network and data are read and compared, and what
 * can be refused is refused.
 *   request  must stay valid until gp_training_run() has returned; its lease is not looked at
 * GP_ENOENT, GP_EINVAL: the network, the data or an option, named, with what would do.  GP_EBUSY: checkpoint-path has
 * checkpoints that the training would mix with its own. */
GP_API gp_status gp_training_new(gp_training **out, const gp_train_request *request, gp_error *err);

/* gp_training_run -- train it on the pool's workers and wait for it, once.
 * Every worker computes its share of each mini-batch; gradients go directly between workers.
 *   lease  which workers
 * When a worker dies the others go on from the last step that any of them had taken, at once if they are `min-workers`,
 * else when it is replaced, at most `max-restarts` times in a row without a step between; a note says so.  Workers that
 * are replaced or come free join at a step boundary, up to the lease's workers_max, and gp_training_resize() changes
 * the number, unless max-restarts is 0 or worker-weights is given.  When nobody is left that has the state it begins anew in
 * another lease, after its newest checkpoint if it wrote one, as often; steps and validations are told once all the same.
 * GP_EPEER: workers died more often than that, or max-restarts is 0: which, how, in which step and its log are in the sentence.
 * GP_ECANCELED: stop was 2.  GP_EDIVERGED: the loss is not finite.
 * GP_ENODEV: environment GPU without one.  GP_EBUSY: no_wait, and the workers are leased. */
GP_API gp_status gp_training_run(gp_training *training, gp_pool *pool, const gp_lease_request *lease,
                                 gp_error *err);

/* gp_training_resize -- let a training of this pool, of any client, go on with that many workers, fewer or more than
 * now, from a step boundary soon, or when so many are free.
 *   lease  its number in the pool's status; 0: it is that of the background job
 * Returns when it was asked for.  GP_ESTALE: no such lease or job holds workers.  GP_EINVAL: it cannot change, or was told
 * `min-workers` above that.  GP_ENODEV: the pool has fewer. */
GP_API gp_status gp_training_resize(gp_pool *pool, uint64_t lease, uint64_t job, uint32_t workers,
                                    gp_error *err);

/* gp_train -- both, with request->lease. */
GP_API gp_status gp_train(gp_training **out, gp_pool *pool, const gp_train_request *request, gp_error *err);
GP_API void gp_training_free(gp_training *training); /* accepts NULL */
GP_API void gp_training_summarize(const gp_training *training, gp_training_summary *summary);

/* Write the model as ONNX with class names and normalisation inside; whole or not at all (rename). */
GP_API gp_status gp_training_save(const gp_training *training, const char *path, gp_error *err);

/* ---- prediction ----
 *
 * The samples are cut into parts, the parts fanned out over the leased workers and what comes back is put in order.  Each
 * sample counts exactly once: what a worker had when it died is computed again, with the same bits, by whoever is free.
 * A part on which three workers died ends the call (GP_EPEER).  Memory does not grow with the number of samples: a
 * worker has at most four parts asked for or waiting for their turn, of up to 1024 samples or about 8 MiB of scores each. */

/* One sample; all of it is lent for the call of `each`. */
typedef struct gp_prediction {
    uint64_t index;         /* of the sample in the data, from 0, in order */
    int32_t label;          /* true class, or -1 */
    uint32_t predicted;     /* class with the largest score, the first on ties */
    const char *class_name; /* of predicted; NULL: the model does not give one class for a sample */
    const char *name;       /* of the sample: the image's path below the data, or its number from 1 */
    /* [score_count]: what score_type says. NULL: pixels has the classes. */
    const float *scores;
    /* Meaning of scores, "values" where there are no classes:
     *   "probabilities"              of the classes; they add up to 1. The softmax of the model's logits, or the outputs as
     *                                they are where the model itself ends in a softmax. Scores of pixels always are.
     *   "independent_probabilities"  one of each class on its own, the outputs as they are: the model ends in a sigmoid
     *   "values"                     the outputs as they are */
    const char *score_type;
    uint32_t classes; /* that pixels or the sample may have; 0: values */
    uint32_t score_count;
    /* Of the first output: rank and dimensions of its scores, [classes], [classes, H, W] or as the values are. */
    uint32_t rank;
    uint64_t dims[4];
    const char *const *class_names; /* [classes]; their numbers from 0 where they have no names */
    /* [H, W]: the class of each, with pixel_classes; else NULL.  H and W are the image's own, but with GP_IMAGE_FIT_INPUT. */
    const int32_t *pixels;
} gp_prediction;

/* What of images the network is shown.  The first line is of networks that give one class (or values) for a sample, the second of
 * those that give a class for each pixel, where only classes are wanted (pixel_classes, gp_evaluate()): they are given at the
 * image's own size, and compared there.  Else those are as the first. */
typedef enum gp_image_fit {
    /* As the model was trained (with no crop: GP_IMAGE_FIT_INPUT, and images of another size are refused unless it was trained
     * with an image-size; with crop=center or random: the middle of the images as they
     * are, or were brought to image-size; with crop=fit or resized: GP_IMAGE_FIT_CROP).
     * The same with GP_IMAGE_FIT_RESIZE; GP_IMAGE_FIT_WINDOWS; GP_IMAGE_FIT_CROP. */
    GP_IMAGE_FIT_MODEL,
    /* All of the image, brought to the network's size; with image_size the middle of what it was brought to.
     * The same; classes and labels have that size too. */
    GP_IMAGE_FIT_INPUT,
    /* All of the image, brought to the network's size.
     * The same, and the scores back to the image's. */
    GP_IMAGE_FIT_RESIZE,
    /* GP_EINVAL.
     * Overlapping windows of the network's size (docs/segmentation.md). */
    GP_IMAGE_FIT_WINDOWS,
    /* The largest middle with the network's proportions, scaled to its size.
     * Overlapping windows of the image at that scale. */
    GP_IMAGE_FIT_CROP
} gp_image_fit;

typedef struct gp_predict_request {
    const char *model;     /* FILE.onnx, or a name that `gradpool model get` has fetched */
    const char *data;      /* SOURCE; its test split where it has one; NULL: the samples below */
    const char *precision; /* "f32", "tf32", "bf16", "fp16", as in training options; NULL = "f32" */
    /* "error": an image that cannot be read ends the call.  "skip": it is passed over: no result is of it, nothing is compared
     * with it, no count knows it but `skipped`; of several, and of what was left out of the data, `pool` is told a sentence (its
     * note).  As in training options; NULL = "error". */
    const char *on_error;
    gp_lease_request lease;
    /* Once per sample in the order of the data; returning false ends the call with GP_ECANCELED.  NULL = none. */
    bool (*on_result)(void *context, const gp_prediction *prediction);
    /* Once per image that was passed over, in the order of the data, those of a part before its results.  NULL = none. */
    void (*skip)(void *context, uint64_t index, const char *name);
    void (*progress)(void *context, uint64_t done, uint64_t count); /* done: with what was passed over */
    void (*note)(void *context, const char *text); /* what the user should know: a sentence; NULL = none */
    void *context;
    const volatile sig_atomic_t *stop; /* not 0 = end with GP_ECANCELED; NULL = never */
    /* Samples from memory: sample_count of them, packed [C, H, W] as the model's input, in the unit of the data that it
     * was trained with (0 to 255 of images).  uint8, or float32 with sample_floats.  Borrowed during the call. */
    const void *samples;
    uint64_t sample_count;
    bool sample_floats;
    /* Of networks that score each pixel no scores, but the class of each: a byte a pixel crosses the wire in place of
     * 4 times the number of classes.  Others give scores all the same. */
    bool pixel_classes;
    /* Height and width that images are brought to before their middle of the network's size is taken or windows of it are cut.
     * 0, 0 = as fit says. */
    uint32_t image_size[2];
    gp_image_fit fit;
    uint32_t overlap; /* pixels that neighbouring windows share at least; 0: a quarter of the smaller side */
    const char *image_normalization; /* as in gp_train_request; also for `samples` of bytes */
    bool ignore_labels;              /* predict whatever classes the data have; nothing is compared */
    /* Of listing class folders or drawing digits before the workers read them; NULL: no reports. */
    const gp_progress *data_progress;
} gp_predict_request;

typedef struct gp_evaluation {
    uint64_t count;        /* samples predicted */
    uint64_t skipped;      /* images that could not be read and were passed over (on_error), each once */
    uint64_t labelled;     /* of them with a label */
    uint64_t excluded;     /* labels, pixels' classes or values that are missing in the data: in no metric */
    double accuracy, loss; /* over the labelled, or their pixels; NaN = none */
    double rmse;           /* root of the mean squared error of values; NaN: the model gives classes */
    double seconds;
} gp_evaluation;

/* gp_predict -- fan the samples out over the workers, hand each result to `each` in the order of the data.
 *   out  may be NULL
 * GP_ENOENT, GP_EINVAL: model or data, named, with what would do.  GP_ECANCELED: `each` or stop said so.  GP_EPEER: a sample
 * that no worker survives; the sentence names the part and the log.  GP_ECORRUPT: an image that cannot be read, named; with
 * on_error "skip": none can.  Else as gp_training_run(). */
GP_API gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request,
                            gp_error *err);

/* gp_evaluate -- the same where only the numbers are wanted: neither scores nor names come back, `each` is not called.
 *   confusion  all that is known of the classes (gradpool/metrics.h): every sample, or pixel, with a true class of the model's
 *              counted once; released with gp_confusion_free().  NULL is stored where the model gives values, has more
 *              classes than GP_CONFUSION_CLASSES_MAX, or the data has no such targets.  May be NULL. */
GP_API gp_status gp_evaluate(gp_evaluation *out, gp_confusion **confusion, gp_pool *pool,
                             const gp_predict_request *request, gp_error *err);

/* All scores of a prediction, in memory. */
typedef struct gp_scores {
    uint64_t count;       /* samples that were predicted: without those that were passed over */
    uint32_t score_count; /* of one sample */
    uint32_t classes;     /* as in gp_prediction, and the next two */
    uint32_t rank;
    uint64_t dims[4];
    float *scores;          /* [count, score_count]; NULL: predicted has the pixels' classes */
    const char *score_type; /* as in gp_prediction; a constant */
    /* [count]; with pixel_classes, of networks that score each pixel, [count, H, W]; NULL: the model gives neither. */
    int32_t *predicted;
    uint64_t *
        index; /* [count], with on_error "skip": which samples of the data they are, from 0; else NULL: all, in order */
    gp_evaluation evaluation;
} gp_scores;

/* gp_predict_array -- predict and keep: from request->data, or from memory to memory.
 *   out  released with gp_scores_deinit(); untouched on failure
 * `each` is not called.  GP_ELIMIT: it would be more than 64 GiB; use gp_predict(). */
GP_API gp_status gp_predict_array(gp_scores *out, gp_pool *pool, const gp_predict_request *request,
                                  gp_error *err);
GP_API void gp_scores_deinit(gp_scores *scores); /* accepts NULL */

/* gp_confusion_save -- write a matrix to a file, whole or not at all (rename): a picture FILE.png, its numbers and classes
 * readable for up to 32 classes; FILE.csv or FILE.json (gp_confusion_format()); FILE.txt, the matrix and the metrics of each
 * class for people.  title (may be NULL) stands above the picture.
 * GP_EINVAL: another suffix; GP_EIO: it cannot be written. */
GP_API gp_status gp_confusion_save(const gp_confusion *matrix, const char *path, const char *title,
                                   gp_error *err);

/* ---- a team: workers leased for as long as it is open, to run functions of yours on (gradpool/task.h) ----
 *
 *     gp_team *team;
 *     const gp_function *square;
 *     gp_future *future;
 *
 *     gp_team_open(&team, pool, NULL, &err);
 *     gp_function_find(&square, team, "mytasks.so:square", &err);
 *     gp_parfeval(&future, team, &(gp_parfeval_request){ .function = square, .argument = &x, .bytes = sizeof(x) }, &err);
 *     gp_future_result(future, &data, &bytes, &err);              waits
 *
 * A team has a link of its own to the pool, so the pool handle stays free for other calls.  Its workers are numbered
 * 1 .. size in this team: in requests, infos, callbacks, tasks and messages.  Where the pool has another number for a
 * worker (`gradpool status`), messages add it: "worker 1 (3 in the pool)".  A worker that dies is replaced: its objects, files and put values are given to the new
 * process, what ran on it is run again (see attempts), what only waited there goes elsewhere.  What tasks kept on it
 * is gone.
 *
 * Threads: one thread at a time for a team and all that belongs to it.  Work goes on in the background while no call
 * is made; callbacks come on the calling thread during any call, or on the library's own thread: they must be short
 * and may call nothing of the team but gp_future_get_info(), gp_future_result() of the ended future and gp_parfeval(). */
typedef struct gp_team gp_team;
typedef struct gp_function gp_function;

typedef struct gp_team_options {
    gp_lease_request lease; /* its priority, if not 0, goes before `priority` below */
    const char *purpose; /* shown to those who wait: "sweep of learning rates"; NULL = the program's name */
    int32_t
        priority; /* in the pool's queue for workers; higher is served first.  Calls have priorities of their own */
    void (*log)(void *context, uint32_t worker,
                const char *line); /* gp_task_log(); NULL = the workers' log files only */
    void *context;
    const volatile sig_atomic_t *stop; /* not 0: calls that wait end with GP_ECANCELED; NULL = never */
} gp_team_options;

/* gp_team_open -- lease workers of the pool; waits in its queue.
 *   options  NULL = every worker; read during the call, but log, context and stop are kept
 * GP_ENODEV: the pool can never give what was asked for; the sentence says what it has.  GP_EBUSY: no_wait. */
GP_API gp_status gp_team_open(gp_team **out, gp_pool *pool, const gp_team_options *options, gp_error *err);

/* gp_team_close -- cancels what is queued or runs, gives the workers back; futures, blocks and queues of the team
 * become invalid.  Accepts NULL. */
GP_API void gp_team_close(gp_team *team);
GP_API uint32_t gp_team_size(const gp_team *team);

/* gp_function_find -- "FILE.so:NAME": ships the object to every worker (once per content) and looks the function up.
 *   out  valid until the team is closed
 * GP_ENOENT: no such file, or no such function: the nearest name is said.  GP_EPERM: others than you may write the file
 * or it is not yours.  GP_EVERSION: built for another ABI.  GP_EINVAL: not a task object. */
GP_API gp_status gp_function_find(const gp_function **out, gp_team *team, const char *name, gp_error *err);

/* Make a file readable by tasks as gp_task_file(name); sent once per worker, shared in memory per host. */
GP_API gp_status gp_team_attach(gp_team *team, const char *name, const char *path, gp_error *err);

enum { GP_EVERY_WORKER = 0 };

/* A value by name on a worker (1 .. size) or on every one; bytes = 0 with data NULL removes it. */
GP_API gp_status gp_team_put(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes,
                             gp_error *err);
/* What a worker has under that name; *data is freed with gp_buffer_free().  GP_ENOENT. */
GP_API gp_status gp_team_get(gp_team *team, uint32_t worker, const char *name, void **data, size_t *bytes,
                             gp_error *err);

/* Scatter count elements over the workers as the value `name`: floor(count / size) each, the first ones one more; gather
 * the parts in worker order (freed with gp_buffer_free()). */
GP_API gp_status gp_team_scatter(gp_team *team, const char *name, const void *data, size_t count,
                                 size_t element_bytes, gp_error *err);
GP_API gp_status gp_team_gather(gp_team *team, const char *name, void **data, size_t *bytes, gp_error *err);

/* Bytes that many calls share: copied once, mapped by each worker of the host.  As argument of any call; freed at any
 * time after the calls that use it were made. */
typedef struct gp_broadcast gp_broadcast;
GP_API gp_status gp_broadcast_new(gp_broadcast **out, const void *data, size_t bytes, gp_error *err);
/* The same, to be written by the caller before its first use; *data is valid until then. */
GP_API gp_status gp_broadcast_map(gp_broadcast **out, void **data, size_t bytes, gp_error *err);
GP_API void gp_broadcast_free(gp_broadcast *shared);

/* ---- parfeval: one call on one worker, its future ---- */

typedef struct gp_future gp_future;

typedef enum gp_future_state {
    GP_FUTURE_WAITING, /* for a worker, or for futures it comes after */
    GP_FUTURE_RUNNING, /* begun by a worker */
    GP_FUTURE_DONE,    /* ended: with a result, an error, or canceled */
} gp_future_state;

typedef enum gp_resources { GP_RESOURCES_ANY, GP_RESOURCES_CPU, GP_RESOURCES_GPU } gp_resources;

typedef struct gp_parfeval_request {
    const gp_function *function;
    const void *argument; /* copied */
    size_t bytes;
    const gp_broadcast *shared; /* instead of argument */
    int32_t priority;           /* -1000 to 1000; of the calls that have not begun the highest is next */
    uint32_t worker;            /* only on this one (1 .. size); 0 = any */
    gp_resources needs;         /* of the worker's device */
    uint32_t attempts;          /* begun at most so often when workers die; 0 = 3, 1 = never again */
    uint32_t retries;           /* after an error of its own; 0 = none */
    int64_t queue_timeout_ms;   /* GP_ETIMEDOUT when it has not been begun by then; 0: no limit */
    int64_t timeout_ms;         /* canceled when it runs longer (GP_ETIMELIMIT); 0: no limit */
    gp_future *const *
        depends_on; /* begins when these have ended with a result; one that fails fails it too (GP_ECANCELED) */
    uint32_t depends_on_count;
    gp_future
        *same_worker_as; /* also after this one, on its worker; a `worker` that contradicts this is refused */
    /* Called once when it has ended; may be NULL. */
    void (*done)(void *context, gp_future *future);
    void *context;
} gp_parfeval_request;

/* gp_parfeval -- hand a call to the team; returns at once.
 *   out  released with gp_future_free(); NULL when only `done` or queues matter: the library frees it
 * GP_EINVAL: no such worker, or no worker has the device.  GP_ELIMIT: GP_FUTURES_MAX wait. */
GP_API gp_status gp_parfeval(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                             gp_error *err);
#define GP_FUTURES_MAX 16777216

typedef struct gp_future_info {
    gp_future_state state;
    /* when DONE: GP_OK, the task's own, GP_ECANCELED, GP_ETIMEDOUT (not begun in time), GP_ETIMELIMIT (ran too long),
     * GP_EPEER (workers died) */
    gp_status status;
    uint64_t id;          /* names the call in messages; unique in its team, grows with each call */
    uint32_t worker;      /* of the last attempt: 1 .. size, as in a request; 0 = none yet */
    uint32_t pool_worker; /* the same worker in `gradpool status` and the names of log files; 0 = none yet */
    uint32_t attempts, retries; /* begun so often because of deaths (1 = the first), and because of errors */
    /* Nanoseconds since the team was opened; 0 = not yet. */
    int64_t submitted_ns, started_ns, ended_ns;
} gp_future_info;

GP_API void gp_future_get_info(const gp_future *future, gp_future_info *out);

/* gp_future_wait -- until it has ended.  timeout_ms: -1 = for ever.  GP_ETIMEDOUT; GP_ECANCELED: stop was set. */
GP_API gp_status gp_future_wait(gp_future *future, int timeout_ms, gp_error *err);

/* gp_future_result -- waits, then gives the bytes (valid until gp_future_free()) or the error with which it ended. */
GP_API gp_status gp_future_result(gp_future *future, const void **data, size_t *bytes, gp_error *err);

/* gp_future_cancel -- end a call.  Not begun: it ends at once.  Running: gp_task_canceled() is true in the task from now
 * on; a task that has not returned after a grace period of 1 s loses its worker, which is replaced.  An ended call stays
 * as it is. */
GP_API void gp_future_cancel(gp_future *future);
/* gp_future_cancel_grace -- the same with another grace period: 0 kills the worker of a running call at once.  A second
 * cancel can shorten the period.
 *   grace_ms  0 to GP_CANCEL_GRACE_MS_MAX
 * GP_EINVAL: another grace period. */
GP_API gp_status gp_future_cancel_grace(gp_future *future, int64_t grace_ms, gp_error *err);
#define GP_CANCEL_GRACE_MS_MAX 3600000
/* gp_future_free -- accepts NULL; one that has not ended goes on, and is freed then. */
GP_API void gp_future_free(gp_future *future);

typedef enum gp_wait_for { GP_WAIT_ALL, GP_WAIT_ANY, GP_WAIT_FIRST_ERROR } gp_wait_for;

/* gp_futures_wait -- until all or any of them ended, or (FIRST_ERROR) one failed or all ended. */
GP_API gp_status gp_futures_wait(gp_future *const *futures, size_t count, gp_wait_for what, int timeout_ms,
                                 gp_error *err);

/* gp_team_as_completed -- the next future of the team that has ended and was not given yet, in the order of ending.
 *   timeout_ms   0: takes what has ended, without waiting; -1: as long as it takes
 * GP_ENOENT: none will come: all have been given, or were freed, whatever else the team still does.  GP_ETIMEDOUT: one will,
 * and has not ended. */
GP_API gp_status gp_team_as_completed(gp_team *team, gp_future **out, int timeout_ms, gp_error *err);

/* Cancel all futures of the team. */
GP_API void gp_team_cancel(gp_team *team);

/* What the team has done and holds. */
typedef struct gp_team_info {
    uint64_t submitted, ended, failed, canceled;
    uint64_t waiting, running;     /* calls, chunks of loops and ranks of blocks now: not begun; begun */
    uint64_t worker_deaths, rerun; /* calls begun again because of deaths */
    uint64_t queue_bytes;          /* memory of what waits */
    uint64_t log_dropped;          /* lines and queue items */
} gp_team_info;

GP_API void gp_team_get_info(gp_team *team, gp_team_info *out);

/* ---- spmd: one function on several workers at once, which may talk to each other ---- */

typedef struct gp_spmd_result gp_spmd_result; /* what a block leaves: a result on each worker */

typedef struct gp_spmd_request {
    const gp_function *function;
    const void *argument; /* the same for all */
    size_t bytes;
    const gp_broadcast *shared; /* instead */
    uint32_t workers_min,
        workers_max;    /* 0, 0 = all of the team; n, n = n; as many as there are within [min, max] */
    uint64_t seed;      /* of the ranks' random streams */
    int64_t timeout_ms; /* canceled when it runs longer (GP_ETIMELIMIT); 0: no limit */
} gp_spmd_request;

/* gp_spmd -- run a block and wait for all its workers.  Large results stay on the workers until they are fetched.
 *   out  released with gp_spmd_result_free(); set also when the block failed, so that all errors can be read
 * When one fails the others are told to end, at once where they wait for each other, by gp_task_canceled() elsewhere;
 * one that has not ended 1 s later is replaced.  Returned is the first failure in time, with its worker.
 * GP_EINVAL: more workers than the team has.  GP_ECANCELED: stop was set.  GP_EPEER: a worker died. */
GP_API gp_status gp_spmd(gp_spmd_result **out, gp_team *team, const gp_spmd_request *request, gp_error *err);
GP_API uint32_t gp_spmd_result_size(const gp_spmd_result *block);

/* The result of index 1 .. size (valid until gp_spmd_result_free()), or its error. */
GP_API gp_status gp_spmd_result_get(gp_spmd_result *block, uint32_t index, const void **data, size_t *bytes,
                                    gp_error *err);
GP_API void gp_spmd_result_free(
    gp_spmd_result *block); /* accepts NULL; frees the results on the workers too */

/* ---- parfor: a loop whose iterations go to whoever is free ---- */

typedef enum gp_reduction {
    GP_REDUCTION_NONE,
    GP_REDUCTION_SUM_F64,
    GP_REDUCTION_SUM_F32,
    GP_REDUCTION_SUM_I64,
    GP_REDUCTION_MIN_F64,
    GP_REDUCTION_MAX_F64,
    GP_REDUCTION_PRODUCT_F64,
    GP_REDUCTION_MIN_I64,
    GP_REDUCTION_MAX_I64,
    GP_REDUCTION_COMBINE, /* by the function `combine` */
} gp_reduction;

typedef struct gp_parfor_request {
    const gp_function *function;
    const void *argument; /* broadcast: the same for all iterations, sent once per worker */
    size_t bytes;
    const gp_broadcast *shared; /* instead */

    int64_t first, last, step; /* first, first + step, ... while not beyond last; step 0 = 1 */
    const void *input;         /* sliced: input_bytes per iteration; each worker gets what it needs */
    size_t input_bytes;
    void *output; /* sliced: output_bytes per iteration, in order */
    size_t output_bytes;

    /* Instead of a range: an endless source.  Fills *item (input_bytes of it) and returns true, or false at the end.  Is
     * called on this thread: while it waits for something, results wait too. */
    bool (*next)(void *context, void *item);
    /* What gp_task_result() gave, in the order of the range, or as finished; returning false ends the loop (GP_OK). */
    bool (*on_result)(void *context, int64_t iteration, const void *data, size_t bytes);
    bool unordered;
    void *context;

    /* Into `reduced`.  Iterations are combined in fixed groups and the groups by a fixed tree, so the bits depend on
     * neither schedule nor number of workers. */
    gp_reduction reduction;
    void *reduced;
    size_t reduced_bytes;
    const char
        *combine; /* "FILE.so:NAME" of a gp_combine_fn; its context is the loop's argument, read-only */

    uint64_t seed;  /* of the iterations' random streams */
    uint32_t chunk; /* iterations sent together; 0 = by measured duration */
    /* Iterations at most that were given out, or whose results `each` has not seen; 0: bounded by the library. */
    uint32_t max_in_flight;
    uint32_t attempts;                                              /* as in parfeval */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* total 0 = not known */
} gp_parfor_request;

/* gp_parfor -- run the loop and wait.  The first failing iteration (lowest of those that failed before the rest was
 * stopped) ends it: its sentence begins with the iteration and the worker. */
GP_API gp_status gp_parfor(gp_team *team, const gp_parfor_request *request, gp_error *err);

/* ---- data queues: what tasks send while they run (gp_task_queue) ---- */

typedef struct gp_queue gp_queue;

typedef struct gp_queue_options {
    uint32_t depth;   /* items kept here; 0 = 1024.  A full queue makes its senders wait */
    bool keep_newest; /* a full queue drops its oldest item instead, and counts it */
    /* Called for each item instead of keeping it; NULL = gp_queue_next().  data: 16-byte aligned, valid in the call. */
    void (*on_item)(void *context, uint32_t worker, const void *data, size_t bytes);
    void *context;
} gp_queue_options;

/* One queue per name and team; items for a name without a queue are dropped and counted. */
GP_API gp_status gp_queue_open(gp_queue **out, gp_team *team, const char *name,
                               const gp_queue_options *options, gp_error *err);
GP_API void gp_queue_close(gp_queue *queue); /* accepts NULL */

/* The oldest item: *data is freed with gp_buffer_free().  GP_ETIMEDOUT. */
GP_API gp_status gp_queue_next(gp_queue *queue, uint32_t *worker, void **data, size_t *bytes, int timeout_ms,
                               gp_error *err);
GP_API uint64_t gp_queue_dropped(const gp_queue *queue);

/* ---- background jobs ----
 *
 * A job is a `gradpool` command that the pool runs by itself: written to disk when it is submitted, begun when fewer
 * jobs run than the pool has workers, with its directory, umask and variables those of the submitter.  It outlives the
 * terminal, the client and the scheduler; see docs/gradpool.md, "Background jobs". */

typedef enum gp_job_state {
    GP_JOB_QUEUED = 1,
    GP_JOB_STARTING = 2,
    GP_JOB_RUNNING = 3,
    GP_JOB_STOPPING = 4, /* canceled, its process has yet to end */
    GP_JOB_DONE = 5,
    GP_JOB_FAILED = 6,
    GP_JOB_CANCELED = 7,
    GP_JOB_LOST = 8, /* every attempt ended together with its scheduler */
} gp_job_state;

/* "queued", "starting", "running", "stopping", "done", "failed", "canceled", "lost" */
GP_API const char *gp_job_state_word(gp_job_state state);
/* Whether it is one of the last four. */
GP_API bool gp_job_state_ended(gp_job_state state);

typedef struct gp_job_request {
    const char *const *words; /* the command without "gradpool": "train", "--network", ...; NULL-terminated */
    const char *name;         /* for people; NULL = none */
    int32_t priority;         /* -1000 to 1000; higher begins first */
    const char *directory;    /* absolute; NULL = the current one */
    const char *const
        *environment; /* "NAME=value", NULL-terminated; NULL = those of ours that jobs are given */
    /* Which submit it is: the same key and seq again give the same job, so that a submit whose answer was lost with
     * the scheduler can be repeated.  A key of zeros is drawn anew. */
    uint8_t key[16];
    uint64_t seq;
} gp_job_request;

typedef struct gp_job_info {
    uint64_t id; /* from 1, never used again */
    gp_job_state state;
    char name[64], command[96];
    int32_t priority;
    uint32_t attempts; /* begun */
    bool cancel_asked;
    uint32_t pid;         /* of the last attempt; 0 = none */
    uint32_t workers;     /* it holds, or held at most */
    int exit_code;        /* -1 = none, or not known */
    int signal;           /* that killed it; 0 = none */
    double age_seconds;   /* since it was submitted */
    double run_seconds;   /* of the last attempt, so far or in all */
    char reason[200];     /* why failed, canceled, lost or queued again */
    char folder[200];     /* job.json, log, metrics.jsonl, result/; gp_job_get() only */
    int64_t submitted_ms; /* wall clock of the pool's host, milliseconds since 1970 */
} gp_job_info;

/* gp_job_submit -- returns when the job is on disk: from then on it survives the death of any process.
 * GP_EBUSY: the queue is full.  GP_ELIMIT: too many or too long words or variables.  GP_EIO and others: the pool
 * cannot record jobs; why is in the sentence.  GP_EPEER: the scheduler died; whether the job is recorded is found out
 * by submitting again with the same key and seq. */
GP_API gp_status gp_job_submit(uint64_t *job, gp_pool *pool, const gp_job_request *request, gp_error *err);

/* gp_job_submit_many -- the same for many at once: they share commits, so thousands take little longer than one.
 *   jobs  [count]; those that are on disk when an error is returned are set, the others are 0 */
GP_API gp_status gp_job_submit_many(uint64_t *jobs, gp_pool *pool, const gp_job_request *requests,
                                    size_t count, gp_error *err);

/* GP_ENOENT: there is no such job, or it ended long ago and was forgotten. */
GP_API gp_status gp_job_get(gp_job_info *out, gp_pool *pool, uint64_t job, gp_error *err);

/* gp_job_list -- the newest first, until each() returns false; all: also those that have ended. */
GP_API gp_status gp_job_list(gp_pool *pool, bool all, bool (*on_job)(void *context, const gp_job_info *job),
                             void *context, gp_error *err);

/* gp_job_cancel -- job 0: all that have not ended.  *count: how many this canceled.  A running job is asked to stop
 * (a training keeps its model) and killed after 10 s. */
GP_API gp_status gp_job_cancel(uint32_t *count, gp_pool *pool, uint64_t job, gp_error *err);

/* gp_job_wait -- until all of the jobs have ended, or any of them.
 *   infos       [count], as the jobs are in the end
 *   timeout_ms  -1 = for ever
 *   stop        may be NULL; not 0 ends the wait with GP_ECANCELED
 * GP_ETIMEDOUT.  GP_ENOPOOL: the pool goes down, the jobs stay queued.  GP_EPEER: the scheduler died; open the pool
 * again, which starts the next one, and wait again. */
GP_API gp_status gp_job_wait(gp_job_info *infos, gp_pool *pool, const uint64_t *jobs, size_t count, bool any,
                             int timeout_ms, const volatile sig_atomic_t *stop, gp_error *err);

/* Whether a variable of that name is given to jobs when a request names none. */
GP_API bool gp_job_variable_allowed(const char *name);

/* "gradpool 0.1.0" */
GP_API const char *gp_version(void);

#ifdef __cplusplus
}
#endif
#endif
