/* gradpool.h: the public C interface of gradpool, a pool of workers with one GPU or one share of
 * the CPU cores each.
 *
 *     gp_pool *pool;
 *     gp_training *training;
 *     gp_error err;
 *
 *     if (gp_pool_open(&pool, NULL, &err) != GP_OK || ...)
 *
 * A pool has a name. Any process of its user can find it by that name, start it and use it, at the
 * same time as others. The pool outlives these processes. It ends with `gradpool down` or after 30
 * idle minutes.
 *
 * One thread at a time may use a handle. Every function that can fail returns a gp_status and
 * writes an error message (cause, value seen, fix) to *err, which may be NULL. Outputs are set only
 * on success. The library never prints, never exits the process and installs no signal handlers. */
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

/* Handle of a pool. A pool handle, and every handle made from it, belongs to the process that
 * opened it.
 *
 * In a child made by fork(), every call with such a handle fails at once with GP_ESTATE.
 * gp_pool_open() fails in the same way if the parent had a pool open at the fork(). Open pools
 * after fork(), or call exec(). Closing a handle in the child only frees memory. */
typedef struct gp_pool gp_pool;

/* Callback for progress messages while a call waits, for example "started pool default with 2
 * workers" or "waiting: lease 3 (train lenet, pid 812) holds 2 workers for 3 m 20 s". The callback
 * must not call functions of the pool. */
typedef void (*gp_message_fn)(void *context, const char *sentence);

/* Options of gp_pool_open(). Initialize the struct with zeros: 0 and NULL select the defaults. "New
 * pool" marks options that apply only if the call has to start the pool. */
typedef struct gp_pool_options {
    /* pool name, or tcp://HOST:PORT for a pool on another host; NULL: $GRADPOOL_POOL, else
     * "default" */
    const char *pool;

    /* new pool: worker count; 0: one per GPU, or one per CPU core share */
    uint32_t workers;
    const char *devices; /* new pool: "auto", "cpu", "1,3", "cuda:0" or a UUID; NULL: "auto" */

    /* new pool: shut down after this idle time; 0: 30 minutes, -1: never */
    int64_t idle_timeout_ms;
    int timeout_ms;   /* time limit to find or start the pool; 0: 15,000 */
    bool attach_only; /* fail with GP_ENOPOOL instead of starting a pool */

    /* Environment variable names ("A,B"), whose values the pool keeps in memory until it shuts
     * down. In a running pool they replace the current values. NULL: a new pool receives
     * AWS_ACCESS_KEY_ID and related variables, if they are set. */
    const char *secret_env;
    gp_message_fn note;
    void *context; /* passed to note */

    /* New pool: address on which other hosts can reach the pool, "tcp://ADDRESS:PORT". NULL:
     * none. */
    const char *listen;

    /* Pool on another host: file with the pool's public key, and file with the key pair of this
     * client. NULL: $GRADPOOL_SERVER_KEY_FILE and $GRADPOOL_KEY_FILE, else the pool's profile. A
     * client can query such a pool, submit jobs and shut the pool down. It can neither start the
     * pool nor lease workers (GP_EUNSUPPORTED). */
    const char *server_key_file, *key_file;

    /* New pool: time without a heartbeat after which a worker is shown as suspect, and after which
     * the scheduler kills and replaces the worker. A worker that runs user code is never killed for
     * silence. 0: 5 s and 15 s; -1: no limit. */
    int64_t suspect_ms, silence_ms;
} gp_pool_options;

/* Connect to the named pool, or start it.
 *   out      set to the handle; release it with gp_pool_close(), which does not end the pool
 *   options  read only during the call, except for note and context; NULL: defaults
 * GP_ENOPOOL: no such pool runs, and attach_only is set. GP_ETIMEDOUT: the pool did not reply in
 * time. GP_EVERSION: the pool runs another version of gradpool. GP_EPERM: other users have access
 * to the pool directory. */
GP_API gp_status gp_pool_open(gp_pool **out, const gp_pool_options *options, gp_error *err);

/* Cancel all work of this handle, return its workers to the pool and free it. Accepts NULL. */
GP_API void gp_pool_close(gp_pool *pool);

/* Count the workers that can be leased. Excluded workers do not count. */
GP_API gp_status gp_pool_workers(gp_pool *pool, uint32_t *count, gp_error *err);

/* Get the pool's state as JSON, as printed by `gradpool status --json`. Free *json with
 * gp_buffer_free(). */
GP_API gp_status gp_pool_status_json(gp_pool *pool, char **json, gp_error *err);

/* Free a buffer that a function of this library returned. Accepts NULL. */
GP_API void gp_buffer_free(void *data);

/* Change the worker count (0: default) or the devices (NULL: unchanged) of an idle pool. GP_EBUSY:
 * clients hold leases; the error message names them. */
GP_API gp_status gp_pool_resize(gp_pool *pool, uint32_t workers, const char *devices, gp_error *err);

/* Shut the pool down: with when_idle after its last lease ends, otherwise at once, which revokes
 * all leases. */
GP_API gp_status gp_pool_shutdown(gp_pool *pool, bool when_idle, gp_error *err);

typedef enum gp_lease_environment {
    GP_ENVIRONMENT_ANY,
    GP_ENVIRONMENT_CPU,
    GP_ENVIRONMENT_GPU
} gp_lease_environment;

/* Request for workers. The pool grants all of them or none: the call waits in the queue until
 * enough workers are free. */
typedef struct gp_lease_request {
    uint32_t workers_min, workers_max; /* 0, 0: every worker in the pool; n, n: exactly n */
    const char *devices;               /* "1,3", "cuda:0" or a UUID; NULL: any device */
    gp_lease_environment environment;
    bool no_wait; /* fail with GP_EBUSY instead of waiting */

    /* -1000 to 1000; higher priorities come first, and equal ones in order of arrival */
    int32_t priority;
} gp_lease_request;

/* ---- data ---- */

/* Divide the training part of a source at random into lists of files. Each class is divided
 * separately.
 *   source    folder of class folders, FILE.csv, or s3://bucket/prefix
 *   sizes     [count - 1] list sizes; the last list receives the rest. Below 1: fraction of each
 *             class; from 1: samples per class
 *   paths     [count] output files FILE.csv, at most 16: a header "path,label", then one line per
 *             sample; each file is written completely or not at all
 *   samples   [count] set to the sample count in each list; may be NULL
 *   progress  receives progress of listing the source and writing the lists; NULL: no reports
 * The same seed gives the same lists. GP_EUNSUPPORTED: the source does not consist of files.
 * GP_EINVAL: the fractions add up to more than 1, or a class has too few samples. */
GP_API gp_status gp_data_split(const char *source, const double *sizes, const char *const *paths,
                               uint32_t count, uint64_t seed, uint32_t *samples, const gp_progress *progress,
                               gp_error *err);

/* Contents of a data source. */
typedef struct gp_dataset_info {
    const char *kind; /* "folder", "csv", "tar", "pixels", "npy", "idx", ... */
    uint32_t samples;
    uint32_t channels, height, width; /* size of a sample */

    /* images differ in size; height and width describe the first one */
    bool sizes_differ;
    bool pixel_labels;              /* a sample has one class per pixel instead of one class */
    uint32_t class_count;           /* 0: the targets are values */
    const char *const *class_names; /* [class_count], in label order */

    /* [class_count + 1]: samples (or pixels) per class; last element: without a class */
    const uint64_t *counts;
} gp_dataset_info;

/* Inspected data source. */
typedef struct gp_dataset gp_dataset;

/* Open a source (docs/data.md) and count the samples per class. The call reads all labels: it
 * decodes every label image, but no other images.
 *   out   set to the result; release it with gp_dataset_free()
 *   test  inspect the test part, which a training uses for validation, instead of the training part
 * GP_ENOENT: the source or that part does not exist. Other errors are those of a training with this
 * source. */
GP_API gp_status gp_dataset_inspect(gp_dataset **out, const char *source, bool test, gp_error *err);

/* valid until gp_dataset_free() */
GP_API const gp_dataset_info *gp_dataset_get_info(const gp_dataset *counts);
GP_API void gp_dataset_free(gp_dataset *counts); /* accepts NULL */

/* ---- training ---- */

/* Record of one step. Loss and accuracy describe the whole group, the times one worker. */
typedef struct gp_train_step {
    uint32_t worker;  /* worker index, from 1 */
    uint32_t rank;    /* from 0; loss, accuracy and learn_rate are equal on all ranks */
    uint64_t step;    /* from 1 */
    uint32_t epoch;   /* from 1 */
    uint32_t samples; /* samples of this rank in this step */
    double loss;      /* mean over the mini-batch, nats */
    double accuracy;  /* [0, 1], on the mini-batch during training; NaN: the targets are values */
    double rmse;      /* root mean squared error of values; NaN: the targets are classes */
    double learn_rate;
    double seconds; /* time since the start of the first step */
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms,
        wait_ms;       /* time that this rank spent in each phase of the step */
    double loss_scale; /* with precision fp16; 0: none */

    /* a gradient was not finite at this loss scale: the step changed no parameters */
    bool skipped;
} gp_train_step;

/* Result of one validation over all workers; every sample counts once. */
typedef struct gp_train_validation_result {
    uint64_t step;
    uint32_t epoch;
    double loss, accuracy; /* means over `count` samples */
    double rmse;           /* root mean squared error of values, for which accuracy is NaN */
    uint64_t count;
    double seconds;

    /* classes (of samples or pixels) or values without a target in the data; no metric includes
     * them */
    uint64_t excluded;
} gp_train_validation_result;

/* Progress of a validation that takes longer than two seconds. */
typedef struct gp_train_validation_progress {
    uint64_t step; /* step after which the validation runs */

    /* samples over all workers; `done` is an estimate from the progress of the first worker */
    uint64_t done, count;
    double seconds; /* time since the start of the validation */
} gp_train_validation_progress;

typedef struct gp_train_info { /* Facts about a training that are known before the first step. */
    uint32_t workers;
    uint32_t worker_index[64]; /* worker index of each rank */
    uint32_t batch_rank[64];   /* samples of each rank in a full mini-batch */
    uint32_t batch;            /* samples per step, over all workers */
    uint32_t steps_per_epoch, epochs;

    /* memory_bytes: device memory of rank 0 */
    uint64_t samples, validation_samples, parameters, memory_bytes;
    uint32_t classes;
    double ready_ms; /* start-up time of the slowest rank */

    /* part of the start-up that opened the data, on the slowest rank in this part */
    double data_ms;

    /* part of the start-up for weights and execution plans, on the slowest rank in this part */
    double network_ms;
    double initial_learn_rate; /* effective rate, after the solver's default and scale-lr */

    /* first lease of the training, as shown by `gradpool status` and in the logs */
    uint64_t lease;
    bool pixels;       /* the targets are one class per pixel */
    uint64_t excluded; /* equals training_excluded of the summary */
} gp_train_info;

/* Change that transfer learning made to one layer of the initial network (docs/transfer.md). */
typedef struct gp_layer_change {
    /* "removed", "added", "changed", "frozen", or "initialized" for new weights */
    const char *action;
    const char *layer, *kind; /* "fc8", "fc"; "input" and "" for the network input */
    const char *output;       /* output shape of one sample: "55", "64x27x27" */
    const char *settings;     /* "outputs=55 weight-learn-rate-factor=10" */

    /* number of parameters that the layer learns; if frozen, that it would learn */
    int64_t parameters;
} gp_layer_change;

/* Change of the worker group of a training: a worker was replaced, or the group was resized. */
typedef struct gp_train_rescale {
    uint32_t workers_before, workers;
    uint32_t worker_index[64]; /* worker index of each rank */
    uint64_t step;             /* last step of the previous group */

    /* time from the last step, or the worker failure, until all workers were ready again */
    double seconds;
    uint64_t lease; /* changes if the training is restarted */

    /* a worker failed; false: `cause` says who resized the group, or for which purpose */
    bool died;
    const char *cause;
} gp_train_rescale;

/* Callbacks of a training. Each may be NULL. They run on the calling thread. */
typedef struct gp_train_events {
    void (*begin)(void *context, const gp_train_info *facts);
    void (*step)(void *context, const gp_train_step *step);
    void (*check)(void *context, const gp_train_validation_result *check);
    void *context;

    /* Called by gp_training_new(): `change` for each layer that transfer learning changes, `note`
     * for other information. The texts are valid only during the call. */
    void (*change)(void *context, const gp_layer_change *change);
    void (*note)(void *context, const char *sentence);

    /* Called when the group was resized or a worker was replaced. The pool's note callback also
     * receives a message. */
    void (*regroup)(void *context, const gp_train_rescale *regroup);

    /* Called after a failure that does not end the training: a checkpoint cannot be written, or a
     * damaged checkpoint was skipped. NULL: the pool's note callback receives the message. */
    void (*warning)(void *context, const char *sentence);

    /* Called twice per second with the progress of a validation, after its first two seconds. */
    void (*check_progress)(void *context, const gp_train_validation_progress *progress);
} gp_train_events;

/* Arrays of the calling program as training data. All workers on this machine share one copy in
 * memory. */
typedef struct gp_array_dataset gp_array_dataset;

typedef struct gp_array_dataset_info {
    /* samples are packed as [count, channels, height, width] */
    uint32_t count, channels, height, width;

    /* float32, used unchanged; false: uint8, divided by 255 */
    bool floats;

    /* Targets with class_count > 0: int32 classes from 0 to class_count - 1, or -1 for no class.
     * There is one per sample, or [height, width] per sample with pixel_labels. class_names has
     * class_count entries; NULL: the class numbers serve as names. Targets with values > 0:
     * `values` float32 numbers per sample. Exactly one of class_count and values is nonzero. */
    uint32_t class_count;
    const char *const *class_names;
    bool pixel_labels;
    uint32_t values;
} gp_array_dataset_info;

/* Copy arrays into shared memory. The caller may free its arrays afterwards. GP_EINVAL, GP_ELIMIT:
 * invalid info; the error message gives the valid range. GP_ENOMEM: not enough memory on this
 * machine. */
GP_API gp_status gp_array_dataset_new(gp_array_dataset **out, const gp_array_dataset_info *info,
                                      const void *samples, const void *targets, gp_error *err);

/* Return the SOURCE string to use as `data` or `validation_data`. Arrays have no test part: name
 * the validation data separately, or use "none". The string is valid until gp_array_dataset_free(),
 * only on this machine, for this user and while this process runs. */
GP_API const char *gp_array_dataset_source(const gp_array_dataset *arrays);

/* Free the arrays. Accepts NULL. Workers that still read them keep the memory until their training
 * ends. */
GP_API void gp_array_dataset_free(gp_array_dataset *arrays);

typedef struct gp_train_request {
    const char *network; /* "lenet", FILE.onnx or FILE.json; NULL with `pretrained` */

    /* SOURCE as on the command line: a folder, a known name, "digits:6000" */
    const char *data;

    /* NULL: the test part of `data`, if it has one; "none": no validation */
    const char *validation_data;

    /* Training options "name=value" as listed by `gradpool options`, NULL-terminated. NULL:
     * defaults. docs/gradpool.md, "Checkpoints", describes checkpoint-path, resume and run-id. */
    const char *const *options;
    gp_lease_request lease;
    gp_train_events events;

    /* Stop request, polled throughout the training; a signal handler may set it. 1: stop at the
     * next step boundary and keep the model; 2: stop at once. NULL: never. */
    const volatile sig_atomic_t *stop;

    /* Transfer learning (docs/transfer.md). All fields NULL or 0: none. */
    const char *pretrained; /* FILE.onnx, or a NAME fetched by `model get`; requires network NULL */

    /* Replace the classifier: "auto" or the number of classes in the data, unless the network
     * already has the same classes. NULL: keep the classifier. */
    const char *classes;
    double head_learn_rate_factor[2]; /* for weights and biases of a new classifier; 0: 1 */

    /* last frozen layer; it and all layers before it do not learn */
    const char *freeze_up_to;

    /* Mapping of pixel values to network input: "0..1", "0..255", "imagenet" or "MEAN,STD"
     * (docs/onnx.md). NULL: as the model states. Byte data with a model from another program that
     * states none requires this option. */
    const char *image_normalization;

    /* receives progress of listing or drawing the data in gp_training_new(); NULL: no reports */
    const gp_progress *data_progress;
} gp_train_request;

typedef struct gp_training gp_training; /* Result of a training: weights, network and metrics. */

typedef struct gp_training_summary {
    uint64_t steps;
    uint32_t epochs;    /* epochs started */
    bool stopped;       /* ended by a stop request before the last step */
    double loss;        /* loss of the last step */
    bool early_stopped; /* ended by the option validation-patience */

    /* Results of the last validation, or with output-network best-validation of the validation that
     * belongs to the kept weights. NaN: none. */
    double validation_loss, validation_accuracy, validation_rmse;
    double seconds; /* time from the first step to the last */
    uint64_t samples_trained;

    /* Unreadable images that were skipped (option on-error skip). An image that several workers met
     * counts once, if it is among the first few of each worker. */
    uint64_t skipped;
    uint32_t restarts;     /* worker failures from which the training recovered */
    uint32_t resizes;      /* changes of the worker count for other reasons */
    double paused_seconds; /* total pause for restarts and resizes */

    /* classes or values missing in the training data; pixels of label images do not count */
    uint64_t training_excluded;

    /* classes (of samples or pixels) or values missing in the validation data */
    uint64_t validation_excluded;
} gp_training_summary;

/* Prepare a training without a pool: read and check the options, the network and the data, and
 * reject every mismatch between them.
 *   request  must stay valid until gp_training_run() returns; request->lease is not used
 * GP_ENOENT, GP_EINVAL: invalid network, data or option; the error message names it and the valid
 * values. GP_EBUSY: checkpoint-path contains checkpoints that
 * this training would mix with its own. */
GP_API gp_status gp_training_new(gp_training **out, const gp_train_request *request, gp_error *err);

/* Run a prepared training on workers in the pool and wait for the end. Call once per training.
 *   lease  workers to use
 * Each worker computes its slice of every mini-batch. The workers exchange gradients directly.
 *
 * When a worker fails, the others continue from the last step that any of them had completed: at
 * once if at least `min-workers` remain, otherwise after the worker was replaced. This happens at
 * most `max-restarts` times in a row without a step in between. The note callback reports each
 * recovery. Replaced workers, and workers that become free, join at a step boundary, up to
 * workers_max of the lease. gp_training_resize() changes the number. Neither is possible if
 * max-restarts is 0 or worker-weights is set.
 *
 * If no remaining worker has the state, the training restarts with a new lease from its newest
 * checkpoint, or from the beginning if it has none. max-restarts limits these restarts too. The
 * callbacks receive each step and validation only once.
 *
 * GP_EPEER: too many worker failures, or a failure with max-restarts 0; the error message names the
 * worker, the exit cause, the step and the log. GP_ECANCELED: the stop request was 2. GP_EDIVERGED:
 * the loss is not finite. GP_ENODEV: the lease requires a GPU and the pool has none. GP_EBUSY:
 * no_wait is set and the workers are leased. */
GP_API gp_status gp_training_run(gp_training *training, gp_pool *pool, const gp_lease_request *lease,
                                 gp_error *err);

/* Request another worker count for a running training of any client of this pool. The training
 * changes at a step boundary, or later when enough workers are free.
 *   lease    lease number as in the pool status; 0: use `job`
 *   job      background job that runs the training
 *   workers  new worker count
 * Returns without waiting for the change. GP_ESTALE: no such lease or job holds workers. GP_EINVAL:
 * this training cannot be resized, or its `min-workers` is larger. GP_ENODEV: the pool has fewer
 * workers. */
GP_API gp_status gp_training_resize(gp_pool *pool, uint64_t lease, uint64_t job, uint32_t workers,
                                    gp_error *err);

/* Call gp_training_new(), then gp_training_run() with request->lease. */
GP_API gp_status gp_train(gp_training **out, gp_pool *pool, const gp_train_request *request, gp_error *err);
GP_API void gp_training_free(gp_training *training); /* accepts NULL */

/* Get the summary of a training. Call it after gp_training_run(). */
GP_API void gp_training_summarize(const gp_training *training, gp_training_summary *summary);

/* Write the model as ONNX, with class names and normalization. The file is written completely or
 * not at all (rename). */
GP_API gp_status gp_training_save(const gp_training *training, const char *path, gp_error *err);

/* ---- prediction ----
 *
 * The client splits the samples into parts, distributes the parts over the leased workers and
 * delivers the results in data order. Each sample counts exactly once: if a worker fails, another
 * worker repeats its parts with bitwise identical results. A part on which three workers failed
 * ends the call (GP_EPEER).
 *
 * Memory use does not depend on the number of samples. Each worker has at most four parts in flight
 * or waiting for delivery, each with up to 1024 samples or about 8 MiB of scores. */

/* Prediction for one sample. All pointers are valid only during the on_result() call. */
typedef struct gp_prediction {
    uint64_t index;     /* sample index in the data, from 0, ascending */
    int32_t label;      /* true class; -1: none */
    uint32_t predicted; /* class with the largest score; on ties the first */

    /* name of the predicted class; NULL: the model does not predict one class per sample */
    const char *class_name;
    const char *name; /* image path relative to the data, or the sample number from 1 */

    /* [score_count], as described by score_type. NULL: `pixels` has the classes. */
    const float *scores;

    /* Meaning of the scores:
     *   "probabilities"              class probabilities with sum 1: the softmax of the model's
     *                                logits, or the unchanged outputs of a model that ends in a
     *                                softmax. Scores of pixels always have this type.
     *   "independent_probabilities"  one probability per class, without a fixed sum: the unchanged
     *                                outputs of a model that ends in a sigmoid
     *   "values"                     the unchanged outputs of a model without classes */
    const char *score_type;

    /* possible classes of the sample or its pixels; 0: the model predicts values */
    uint32_t classes;
    uint32_t score_count;

    /* Shape of the scores (first output): rank and dimensions. [classes], [classes, H, W], or the
     * shape of the values. */
    uint32_t rank;
    uint64_t dims[4];

    /* [classes]; class numbers from 0 if the classes have no names */
    const char *const *class_names;

    /* [H, W]: class of each pixel, with pixel_classes; otherwise NULL. H and W are the size of the
     * original image, except with GP_IMAGE_FIT_INPUT. */
    const int32_t *pixels;
} gp_prediction;

/* Mapping of an image to the network input size.
 *
 * "Class:" describes networks that predict one class, or values, per sample. "Pixels:" describes
 * networks that predict one class per pixel, if the caller needs classes only (pixel_classes, or
 * gp_evaluate()). The library then returns and compares the classes at the original image size. If
 * the caller needs pixel scores, "Class:" applies. */
typedef enum gp_image_fit {
    /* Use the training's mapping.
     *
     * Class: without crop as GP_IMAGE_FIT_INPUT, but reject images of another size unless the
     * training used image-size. With crop=center or random, take the image's center, after resizing
     * to image-size if the training used it. With crop=fit or resized as GP_IMAGE_FIT_CROP.
     *
     * Pixels: without crop as GP_IMAGE_FIT_RESIZE. With crop=center or random as
     * GP_IMAGE_FIT_WINDOWS. With crop=fit or resized as GP_IMAGE_FIT_CROP. */
    GP_IMAGE_FIT_MODEL,

    /* Class: resize the whole image to the input size. With image_size, resize to image_size, then
     * take the center.
     *
     * Pixels: the same; classes and labels also have the input size. */
    GP_IMAGE_FIT_INPUT,

    /* Class: resize the whole image to the input size.
     *
     * Pixels: the same, then resize the scores to the original image size. */
    GP_IMAGE_FIT_RESIZE,

    /* Class: GP_EINVAL.
     *
     * Pixels: tiled inference with overlapping windows of the input size (docs/segmentation.md). */
    GP_IMAGE_FIT_WINDOWS,

    /* Class: take the largest center crop with the aspect ratio of the input, and scale it to the
     * input size.
     *
     * Pixels: tiled inference with overlapping windows of the image at that scale. */
    GP_IMAGE_FIT_CROP
} gp_image_fit;

typedef struct gp_predict_request {
    const char *model; /* FILE.onnx, or a name fetched by `gradpool model get` */

    /* SOURCE; its test part is used, if it has one; NULL: predict `samples` */
    const char *data;

    /* "f32", "tf32", "bf16" or "fp16", as in training options; NULL: "f32" */
    const char *precision;

    /* Handling of unreadable images, as in training options. "error": end the call. "skip": produce
     * no result, exclude the image from all metrics and counts except `skipped`, and report the
     * skipped and excluded images through the pool's note callback. NULL: "error". */
    const char *on_error;
    gp_lease_request lease;

    /* Called once per sample in data order. Return false to end the call with GP_ECANCELED. NULL:
     * no callback. */
    bool (*on_result)(void *context, const gp_prediction *prediction);

    /* Called once per skipped image in data order, before the results of the same part. NULL: no
     * callback. */
    void (*skip)(void *context, uint64_t index, const char *name);

    /* done includes skipped images */
    void (*progress)(void *context, uint64_t done, uint64_t count);

    /* receives information for the user; NULL: no callback */
    void (*note)(void *context, const char *text);
    void *context;
    const volatile sig_atomic_t *stop; /* nonzero: end with GP_ECANCELED; NULL: never */

    /* Samples in memory: sample_count samples, packed as [C, H, W] like the model input, in the
     * units of the training data (0 to 255 for images). uint8, or float32 with sample_floats.
     * Borrowed during the call. */
    const void *samples;
    uint64_t sample_count;
    bool sample_floats;

    /* For networks that score each pixel: return only the class of each pixel. Workers then send
     * one byte per pixel instead of 4 bytes per pixel and class. Other networks return scores
     * anyway. */
    bool pixel_classes;

    /* Height and width to which images are resized before the library takes the center or cuts
     * windows of the input size. 0, 0: as `fit` specifies. */
    uint32_t image_size[2];
    gp_image_fit fit;

    /* minimum overlap between adjacent windows in pixels; 0: smaller side / 4 */
    uint32_t overlap;
    const char *image_normalization; /* as in gp_train_request; also applies to byte `samples` */
    bool ignore_labels;              /* predict data with any classes, and compare nothing */

    /* Receives progress of listing class folders or drawing digits, before the workers read them.
     * NULL: no reports. */
    const gp_progress *data_progress;
} gp_predict_request;

typedef struct gp_evaluation {
    uint64_t count;    /* samples predicted */
    uint64_t skipped;  /* unreadable images that were skipped (on_error), each counted once */
    uint64_t labelled; /* predicted samples with a label */

    /* labels, pixel classes or values missing in the data; no metric includes them */
    uint64_t excluded;
    double accuracy, loss; /* over labelled samples or their pixels; NaN: none */
    double rmse;           /* root mean squared error of values; NaN: the model predicts classes */
    double seconds;
} gp_evaluation;

/* Predict all samples on leased workers and call on_result() for each in data order.
 *   out  set to the metrics; may be NULL
 * GP_ENOENT, GP_EINVAL: invalid model or data; the error message names it and the valid values.
 * GP_ECANCELED: on_result() returned false, or stop was set. GP_EPEER: one part made three workers
 * fail; the error message names the part and the log. GP_ECORRUPT: an unreadable image, named in
 * the error message; with on_error "skip": no image is readable. Other errors are those of
 * gp_training_run(). */
GP_API gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request,
                            gp_error *err);

/* Compute only the metrics of a prediction. Workers return neither scores nor names, and
 * on_result() is not called.
 *   confusion  set to the confusion matrix (gradpool/metrics.h), which counts every sample or pixel
 *              whose true class the model knows; release with gp_confusion_free(). NULL is stored
 *              if the model predicts values, has more than GP_CONFUSION_CLASSES_MAX classes, or the
 *              data has no class targets. May be NULL. */
GP_API gp_status gp_evaluate(gp_evaluation *out, gp_confusion **confusion, gp_pool *pool,
                             const gp_predict_request *request, gp_error *err);

/* Scores of all predicted samples, in memory. */
typedef struct gp_scores {
    uint64_t count;       /* predicted samples, without skipped ones */
    uint32_t score_count; /* scores per sample */
    uint32_t classes;     /* as in gp_prediction, like rank and dims */
    uint32_t rank;
    uint64_t dims[4];
    float *scores;          /* [count, score_count]; NULL: `predicted` has the pixel classes */
    const char *score_type; /* as in gp_prediction; a string constant */

    /* [count]; with pixel_classes and a network that scores each pixel: [count, H, W]. NULL: the
     * model predicts no classes. */
    int32_t *predicted;

    /* [count], with on_error "skip": data index of each predicted sample, from 0. NULL: all
     * samples, in order. */
    uint64_t *index;
    gp_evaluation evaluation;
} gp_scores;

/* Predict request->data, or samples in memory, and store all scores in memory. on_result() is not
 * called.
 *   out  release it with gp_scores_deinit(); unchanged on failure
 * GP_ELIMIT: the scores need more than 64 GiB; use gp_predict(). */
GP_API gp_status gp_predict_array(gp_scores *out, gp_pool *pool, const gp_predict_request *request,
                                  gp_error *err);
GP_API void gp_scores_deinit(gp_scores *scores); /* accepts NULL */

/* Write a confusion matrix to a file, completely or not at all (rename). The suffix selects the
 * format. FILE.png: a picture, with readable counts and class names for up to 32 classes. FILE.csv,
 * FILE.json: see gp_confusion_format(). FILE.txt: the matrix and the metrics per class as a table.
 * `title` (may be NULL) appears above the picture. GP_EINVAL: unknown suffix. GP_EIO: the file
 * cannot be written. */
GP_API gp_status gp_confusion_save(const gp_confusion *matrix, const char *path, const char *title,
                                   gp_error *err);

/* ---- teams ----
 *
 * A team is a lease of workers that run functions of the caller (gradpool/task.h) until the team is
 * closed:
 *
 *     gp_team *team;
 *     const gp_function *square;
 *     gp_future *future;
 *
 *     gp_team_open(&team, pool, NULL, &err);
 *     gp_function_find(&square, team, "mytasks.so:square", &err);
 *     gp_parfeval(&future, team,
 *                 &(gp_parfeval_request){ .function = square, .argument = &x, .bytes = sizeof(x) },
 *                 &err);
 *     gp_future_result(future, &data, &bytes, &err);              blocks until the call has ended
 *
 * A team has its own link to the pool, so the pool handle stays usable for other calls. Requests,
 * infos, callbacks, tasks and messages number the team's workers from 1 to its size. If the pool
 * numbers a worker differently (`gradpool status`), messages add that number: "worker 1 (3 in the
 * pool)".
 *
 * When a worker fails, the pool replaces it. The new process receives the objects, files and put
 * values of the old one. Calls that ran on the failed worker run again (see attempts), and calls
 * that only waited for it move to other workers. Values that tasks had stored on the worker are
 * lost.
 *
 * Only one thread at a time may use a team and its handles. Work continues in the background
 * between calls. Callbacks run on the calling thread during any call, or on a thread of the
 * library. They must be short, and of the functions below they may call only gp_future_get_info(),
 * gp_future_result() of the ended future, and gp_parfeval(). */
typedef struct gp_team gp_team;
typedef struct gp_function gp_function;

typedef struct gp_team_options {
    gp_lease_request lease; /* its priority, if nonzero, overrides `priority` below */

    /* text for clients that wait: "sweep of learning rates"; NULL: the program name */
    const char *purpose;

    /* priority of the lease in the pool's queue; higher comes first. Calls have their own
     * priorities. */
    int32_t priority;

    /* receives gp_task_log() lines; NULL: only the worker logs receive them */
    void (*log)(void *context, uint32_t worker, const char *line);
    void *context;

    /* nonzero: waiting calls end with GP_ECANCELED; NULL: never */
    const volatile sig_atomic_t *stop;
} gp_team_options;

/* Lease workers in the pool for a team. Waits in the pool's queue.
 *   options  read only during the call, except for log, context and stop; NULL: every worker
 * GP_ENODEV: the pool can never grant the request; the error message lists the pool's workers.
 * GP_EBUSY: no_wait is set and workers are leased. */
GP_API gp_status gp_team_open(gp_team **out, gp_pool *pool, const gp_team_options *options, gp_error *err);

/* Cancel queued and running calls, return the workers to the pool and free the team. All futures,
 * SPMD results and queues of the team become invalid. Accepts NULL. */
GP_API void gp_team_close(gp_team *team);

/* Return how many workers the team has. */
GP_API uint32_t gp_team_size(const gp_team *team);

/* Find a function in a task object, "FILE.so:NAME". Send the object to every worker, once per
 * content.
 *   out  valid until the team is closed
 * GP_ENOENT: no such file or function; the error message gives the most similar name. GP_EPERM: the
 * file belongs to another user, or other users can write it. GP_EVERSION: built for another ABI.
 * GP_EINVAL: not a task object. */
GP_API gp_status gp_function_find(const gp_function **out, gp_team *team, const char *name, gp_error *err);

/* Make a file available to tasks as gp_task_file(name). It is sent once per worker and shared in
 * memory on each host. */
GP_API gp_status gp_team_attach(gp_team *team, const char *name, const char *path, gp_error *err);

enum { GP_EVERY_WORKER = 0 };

/* Store a named value on one worker (1 .. size) or on all (GP_EVERY_WORKER). data NULL with bytes 0
 * removes it. */
GP_API gp_status gp_team_put(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes,
                             gp_error *err);

/* Get the value with that name from a worker. Free *data with gp_buffer_free(). GP_ENOENT: no such
 * value. */
GP_API gp_status gp_team_get(gp_team *team, uint32_t worker, const char *name, void **data, size_t *bytes,
                             gp_error *err);

/* Scatter `count` elements over the workers as the named value: floor(count / size) elements each,
 * and one more on the first workers. gp_team_gather() collects the parts in worker order; free
 * *data with gp_buffer_free(). */
GP_API gp_status gp_team_scatter(gp_team *team, const char *name, const void *data, size_t count,
                                 size_t element_bytes, gp_error *err);
GP_API gp_status gp_team_gather(gp_team *team, const char *name, void **data, size_t *bytes, gp_error *err);

/* Read-only bytes that many calls share as their argument: copied once, and mapped by each worker
 * on the host. The caller may free them at any time after it has submitted the calls. */
typedef struct gp_broadcast gp_broadcast;
GP_API gp_status gp_broadcast_new(gp_broadcast **out, const void *data, size_t bytes, gp_error *err);

/* Like gp_broadcast_new(), but the caller writes the bytes itself before the first use. *data is
 * valid until then. */
GP_API gp_status gp_broadcast_map(gp_broadcast **out, void **data, size_t bytes, gp_error *err);

/* Free the handle of a broadcast. Accepts NULL. Calls that use the bytes keep them. */
GP_API void gp_broadcast_free(gp_broadcast *shared);

/* ---- parfeval: run one call on one worker and get a future ---- */

typedef struct gp_future gp_future;

typedef enum gp_future_state {
    GP_FUTURE_WAITING, /* waits for a worker, or for futures that it depends on */
    GP_FUTURE_RUNNING, /* started by a worker */
    GP_FUTURE_DONE,    /* ended with a result, with an error, or canceled */
} gp_future_state;

typedef enum gp_resources { GP_RESOURCES_ANY, GP_RESOURCES_CPU, GP_RESOURCES_GPU } gp_resources;

typedef struct gp_parfeval_request {
    const gp_function *function;
    const void *argument; /* copied */
    size_t bytes;
    const gp_broadcast *shared; /* instead of argument */
    int32_t priority;           /* -1000 to 1000; among calls not yet started the highest is next */
    uint32_t worker;            /* run only on this worker (1 .. size); 0: any */
    gp_resources needs;         /* required device */
    uint32_t attempts;          /* maximum number of starts when workers fail; 0: 3, 1: no rerun */
    uint32_t retries;           /* repeats after an error of the task; 0: none */
    int64_t queue_timeout_ms;   /* end with GP_ETIMEDOUT if not started by then; 0: no limit */
    int64_t timeout_ms;         /* cancel a call that runs longer (GP_ETIMELIMIT); 0: no limit */

    /* start after these ended with a result; if one fails, this call fails too (GP_ECANCELED) */
    gp_future *const *depends_on;
    uint32_t depends_on_count;

    /* start after this future, on the same worker; GP_EINVAL if `worker` contradicts this */
    gp_future *same_worker_as;

    /* Called once when the call has ended. May be NULL. */
    void (*done)(void *context, gp_future *future);
    void *context;
} gp_parfeval_request;

/* Submit a call to the team. Returns at once.
 *   out  release with gp_future_free(). NULL, if only `done` or queues are used: the library frees
 *        the future
 * GP_EINVAL: no such worker, or no worker has the required device. GP_ELIMIT: GP_FUTURES_MAX calls
 * have not ended. */
GP_API gp_status gp_parfeval(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                             gp_error *err);
#define GP_FUTURES_MAX 16777216

typedef struct gp_future_info {
    gp_future_state state;

    /* Final status in state GP_FUTURE_DONE. GP_OK; the task's own error; GP_ECANCELED;
     * GP_ETIMEDOUT: not started in time; GP_ETIMELIMIT: ran too long; GP_EPEER: workers failed. */
    gp_status status;
    uint64_t id;     /* id in messages; unique in the team and ascending */
    uint32_t worker; /* worker of the last attempt, 1 .. size; 0: none yet */

    /* number of the same worker in `gradpool status` and log file names; 0: none yet */
    uint32_t pool_worker;

    /* starts so far, including reruns after worker failures (1: the first), and repeats after
     * errors */
    uint32_t attempts, retries;

    /* Nanoseconds since the team was opened. 0: not yet. */
    int64_t submitted_ns, started_ns, ended_ns;
} gp_future_info;

/* Get the current state of a future. Never waits. */
GP_API void gp_future_get_info(const gp_future *future, gp_future_info *out);

/* Wait until the call has ended. timeout_ms -1: no limit. GP_ETIMEDOUT: not ended in time.
 * GP_ECANCELED: stop was set. */
GP_API gp_status gp_future_wait(gp_future *future, int timeout_ms, gp_error *err);

/* Wait for a call and get its result, valid until gp_future_free(), or fail with the error of the
 * call. */
GP_API gp_status gp_future_result(gp_future *future, const void **data, size_t *bytes, gp_error *err);

/* Cancel a call. A call that has not started ends at once. In a running task gp_task_canceled()
 * becomes true; if the task has not returned after a grace period of 1 s, the pool kills and
 * replaces its worker. An ended call does not change. */
GP_API void gp_future_cancel(gp_future *future);

/* Cancel a call with another grace period. 0 kills the worker of a running call at once. A second
 * cancel can shorten the period.
 *   grace_ms  0 to GP_CANCEL_GRACE_MS_MAX
 * GP_EINVAL: grace_ms is out of range. */
GP_API gp_status gp_future_cancel_grace(gp_future *future, int64_t grace_ms, gp_error *err);
#define GP_CANCEL_GRACE_MS_MAX 3600000
/* Release a future. Accepts NULL. A call that has not ended continues, and the library frees the
 * future at its end. */
GP_API void gp_future_free(gp_future *future);

typedef enum gp_wait_for { GP_WAIT_ALL, GP_WAIT_ANY, GP_WAIT_FIRST_ERROR } gp_wait_for;

/* Wait until all futures or any future have ended, or (GP_WAIT_FIRST_ERROR) one has failed or all
 * have ended. */
GP_API gp_status gp_futures_wait(gp_future *const *futures, size_t count, gp_wait_for what, int timeout_ms,
                                 gp_error *err);

/* Get the next ended future of the team, in the order in which they ended. Each future is returned
 * once.
 *   timeout_ms  0: do not wait; -1: no limit
 * GP_ENOENT: no future is left, even if the team still works: all were returned before or freed.
 * GP_ETIMEDOUT: no future has ended in time. */
GP_API gp_status gp_team_as_completed(gp_team *team, gp_future **out, int timeout_ms, gp_error *err);

/* Cancel all futures of the team. */
GP_API void gp_team_cancel(gp_team *team);

/* Counters and current load of a team. */
typedef struct gp_team_info {
    uint64_t submitted, ended, failed, canceled;

    /* calls, loop chunks and SPMD ranks not yet started, and started */
    uint64_t waiting, running;
    uint64_t worker_deaths, rerun; /* rerun: calls restarted after worker failures */
    uint64_t queue_bytes;          /* memory of queued calls */
    uint64_t log_dropped;          /* dropped log lines and queue items */
} gp_team_info;

/* Get the counters of a team. Never waits. */
GP_API void gp_team_get_info(gp_team *team, gp_team_info *out);

/* ---- spmd: run one function on several workers at once, with communication between them ---- */

typedef struct gp_spmd_result gp_spmd_result; /* Results of one SPMD block, one per worker. */

typedef struct gp_spmd_request {
    const gp_function *function;
    const void *argument; /* the same for all ranks */
    size_t bytes;
    const gp_broadcast *shared; /* instead of argument */

    /* 0, 0: the whole team; n, n: exactly n; otherwise as many as available in [min, max] */
    uint32_t workers_min, workers_max;
    uint64_t seed;      /* seed for the random streams of the ranks */
    int64_t timeout_ms; /* cancel a block that runs longer (GP_ETIMELIMIT); 0: no limit */
} gp_spmd_request;

/* Run a function on several workers and wait for all of them. Large results stay on the workers
 * until they are fetched.
 *   out  release with gp_spmd_result_free(); also set if the block failed, so that the caller can
 *        read all errors
 * If one rank fails, the others are canceled: at once if they wait for each other, otherwise
 * through gp_task_canceled(). The pool replaces a worker that has not returned 1 s later. The call
 * returns the earliest failure and names its worker. GP_EINVAL: the team has fewer workers.
 * GP_ECANCELED: stop was set. GP_EPEER: a worker failed. */
GP_API gp_status gp_spmd(gp_spmd_result **out, gp_team *team, const gp_spmd_request *request, gp_error *err);

/* Return the number of ranks that the block had. */
GP_API uint32_t gp_spmd_result_size(const gp_spmd_result *block);

/* Get the result of rank index 1 .. size, valid until gp_spmd_result_free(), or its error. */
GP_API gp_status gp_spmd_result_get(gp_spmd_result *block, uint32_t index, const void **data, size_t *bytes,
                                    gp_error *err);
GP_API void gp_spmd_result_free(
    gp_spmd_result *block); /* accepts NULL; also frees the results on the workers */

/* ---- parfor: run a loop and distribute its iterations over idle workers ---- */

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
    GP_REDUCTION_COMBINE, /* with the function `combine` */
} gp_reduction;

typedef struct gp_parfor_request {
    const gp_function *function;
    const void *argument; /* broadcast: the same for all iterations, sent once per worker */
    size_t bytes;
    const gp_broadcast *shared; /* instead of argument */

    int64_t first, last, step; /* first, first + step, ... up to last; step 0: 1 */

    /* sliced: input_bytes per iteration; each worker receives only its slices */
    const void *input;
    size_t input_bytes;
    void *output; /* sliced: output_bytes per iteration, in order */
    size_t output_bytes;

    /* Endless source instead of a range: fill *item (input_bytes bytes) and return true, or return
     * false at the end. Runs on the calling thread: results wait while it blocks. */
    bool (*next)(void *context, void *item);

    /* Receives each gp_task_result(), in range order, or with `unordered` as iterations end. Return
     * false to end the loop (GP_OK). */
    bool (*on_result)(void *context, int64_t iteration, const void *data, size_t bytes);
    bool unordered;
    void *context;

    /* Reduction of all results into `reduced`. Iterations are combined in fixed groups, and the
     * groups by a fixed tree, so the result is bitwise independent of the schedule and the worker
     * count. */
    gp_reduction reduction;
    void *reduced;
    size_t reduced_bytes;

    /* "FILE.so:NAME" of a gp_combine_fn; its context is the loop argument, read-only */
    const char *combine;

    uint64_t seed;  /* seed for the random streams of the iterations */
    uint32_t chunk; /* iterations per message; 0: chosen by measured duration */

    /* Maximum number of iterations that were sent, or whose results on_result() has not received.
     * 0: limit of the library. */
    uint32_t max_in_flight;
    uint32_t attempts;                                              /* as in gp_parfeval_request */
    void (*progress)(void *context, uint64_t done, uint64_t total); /* total 0: unknown */
} gp_parfor_request;

/* Run the loop and wait for it. A failing iteration ends the loop. The call returns the error of
 * the lowest iteration that failed before the rest was stopped; the message begins with the
 * iteration and the worker. */
GP_API gp_status gp_parfor(gp_team *team, const gp_parfor_request *request, gp_error *err);

/* ---- data queues: items that tasks send while they run (gp_task_queue) ---- */

typedef struct gp_queue gp_queue;

typedef struct gp_queue_options {
    uint32_t depth;   /* items buffered in the client; 0: 1024. A full queue makes senders wait. */
    bool keep_newest; /* a full queue drops and counts its oldest item instead */

    /* Called for each item instead of buffering it. `data` is 16-byte aligned and valid only during
     * the call. NULL: read items with gp_queue_next(). */
    void (*on_item)(void *context, uint32_t worker, const void *data, size_t bytes);
    void *context;
} gp_queue_options;

/* Open the queue with that name; a team has one per name. Items for a name without a queue are
 * dropped and counted. */
GP_API gp_status gp_queue_open(gp_queue **out, gp_team *team, const char *name,
                               const gp_queue_options *options, gp_error *err);
GP_API void gp_queue_close(gp_queue *queue); /* accepts NULL */

/* Get the oldest item. Free *data with gp_buffer_free(). GP_ETIMEDOUT: no item arrived in time. */
GP_API gp_status gp_queue_next(gp_queue *queue, uint32_t *worker, void **data, size_t *bytes, int timeout_ms,
                               gp_error *err);

/* Return how many items the queue has dropped so far. */
GP_API uint64_t gp_queue_dropped(const gp_queue *queue);

/* ---- background jobs ----
 *
 * A job is a `gradpool` command that the pool runs in the background. The pool writes it to disk at
 * submission and starts it when fewer jobs run than the pool has workers. The job has the working
 * directory, umask and environment variables of the submitter. It outlives the terminal, the client
 * and the scheduler; see docs/gradpool.md, "Background jobs". */

typedef enum gp_job_state {
    GP_JOB_QUEUED = 1,
    GP_JOB_STARTING = 2,
    GP_JOB_RUNNING = 3,
    GP_JOB_STOPPING = 4, /* canceled, but the process has not exited yet */
    GP_JOB_DONE = 5,
    GP_JOB_FAILED = 6,
    GP_JOB_CANCELED = 7,
    GP_JOB_LOST = 8, /* every attempt ended together with its scheduler */
} gp_job_state;

/* Return the name of a state: "queued", "starting", "running", "stopping", "done", "failed",
 * "canceled" or "lost". */
GP_API const char *gp_job_state_word(gp_job_state state);

/* Return whether a state is final: done, failed, canceled or lost. */
GP_API bool gp_job_state_ended(gp_job_state state);

typedef struct gp_job_request {
    /* command without "gradpool": "train", "--network", ...; NULL-terminated */
    const char *const *words;
    const char *name;      /* name for display; NULL: none */
    int32_t priority;      /* -1000 to 1000; higher starts first */
    const char *directory; /* absolute path; NULL: current directory */

    /* "NAME=value", NULL-terminated; NULL: the allowed variables of this process */
    const char *const *environment;

    /* Identity of the submission. A repeated key and seq returns the same job, so a client can
     * repeat a submission whose reply was lost in a scheduler failure. All zeros: a random key. */
    uint8_t key[16];
    uint64_t seq;
} gp_job_request;

typedef struct gp_job_info {
    uint64_t id; /* from 1, never reused */
    gp_job_state state;
    char name[64], command[96];
    int32_t priority;
    uint32_t attempts; /* attempts started */
    bool cancel_asked;
    uint32_t pid;       /* process of the last attempt; 0: none */
    uint32_t workers;   /* workers held now, or the maximum so far */
    int exit_code;      /* -1: none or unknown */
    int signal;         /* signal that killed the process; 0: none */
    double age_seconds; /* time since submission */
    double run_seconds; /* duration of the last attempt so far */

    /* reason why the job failed, was canceled, was lost or returned to the queue */
    char reason[200];

    /* folder with job.json, log, metrics.jsonl and result/; set only by gp_job_get() */
    char folder[200];
    int64_t submitted_ms; /* wall clock on the pool's host, milliseconds since 1970 */
} gp_job_info;

/* Submit a job and wait until the pool has written it to disk. From then on it survives the failure
 * of any process. GP_EBUSY: the queue is full. GP_ELIMIT: too many or too long words or variables.
 * GP_EIO and others: the pool cannot record jobs; the error message gives the reason. GP_EPEER: the
 * scheduler failed, and the job may be recorded or not; submit again with the same key and seq to
 * find out. */
GP_API gp_status gp_job_submit(uint64_t *job, gp_pool *pool, const gp_job_request *request, gp_error *err);

/* Submit many jobs at once. They share disk commits, so thousands take little longer than one.
 *   jobs  [count] set to the ids; on an error 0 for each job that is not confirmed on disk */
GP_API gp_status gp_job_submit_many(uint64_t *jobs, gp_pool *pool, const gp_job_request *requests,
                                    size_t count, gp_error *err);

/* Get the state of one job. GP_ENOENT: no such job, or it ended long ago and its record was
 * deleted. */
GP_API gp_status gp_job_get(gp_job_info *out, gp_pool *pool, uint64_t job, gp_error *err);

/* Call on_job() for each job, newest first, until it returns false. `all`: include ended jobs. */
GP_API gp_status gp_job_list(gp_pool *pool, bool all, bool (*on_job)(void *context, const gp_job_info *job),
                             void *context, gp_error *err);

/* Cancel one job, or with job 0 all jobs that have not ended. *count is set to the number of jobs
 * canceled by this call. A running job receives a stop request (a training keeps its model) and is
 * killed after 10 s. */
GP_API gp_status gp_job_cancel(uint32_t *count, gp_pool *pool, uint64_t job, gp_error *err);

/* Wait until all jobs, or any job, have ended.
 *   infos       [count] set to the final state of each job
 *   timeout_ms  -1: no limit
 *   stop        nonzero ends the wait with GP_ECANCELED; may be NULL
 * GP_ETIMEDOUT: not ended in time. GP_ENOPOOL: the pool shuts down, and the jobs stay queued.
 * GP_EPEER: the scheduler failed; open the pool again, which starts a new scheduler, and repeat the
 * call. */
GP_API gp_status gp_job_wait(gp_job_info *infos, gp_pool *pool, const uint64_t *jobs, size_t count, bool any,
                             int timeout_ms, const volatile sig_atomic_t *stop, gp_error *err);

/* Return whether jobs receive a variable of that name by default, without request->environment. */
GP_API bool gp_job_variable_allowed(const char *name);

/* Return the version, "gradpool 0.1.0". */
GP_API const char *gp_version(void);

#ifdef __cplusplus
}
#endif
#endif
