/* gradpool.h: the public C interface of gradpool. A gradpool pool is a group of worker processes,
 * each with one GPU or an equal slice of the CPU cores.
 *
 *     gp_pool *pool;
 *     gp_training *training;
 *     gp_train_request request = { .network = "lenet", .data = "digits" };
 *     gp_error err;
 *
 *     if (gp_pool_open(&pool, NULL, &err) != GP_OK ||
 *         gp_train(&training, pool, &request, &err) != GP_OK)
 *         fprintf(stderr, "%s\n", err.message);
 *
 * A pool has a name. All processes of one user can start the pool or connect to it by that name,
 * and several of them can use it at the same time. The pool outlives these processes. It shuts down
 * after `gradpool down`, or by default after 30 idle minutes. A program can also own a pool, which
 * then ends with the program: see gp_pool_options.owner_pid.
 *
 * Only one thread at a time may use a handle. Every function that can fail returns a gp_status and
 * writes an error message (cause, value seen, fix) to *err; `err` may be NULL. Outputs are set only
 * on success. The library never prints, never exits the process and installs no signal handlers.
 *
 * One header holds the whole interface, so that it can be read as the manual. */
#ifndef GP_GRADPOOL_H
#define GP_GRADPOOL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gradpool/error.h>
#include <gradpool/tensor.h>
#include <gradpool/metrics.h>
#include <gradpool/progress.h>
#include <gradpool/search.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_API __attribute__((visibility("default")))

/* Handle of a pool. A pool handle, and every handle created from it, belongs to the process that
 * opened it.
 *
 * In a child process created by fork(), every call with such a handle fails at once with GP_ESTATE.
 * gp_pool_open() fails in the same way if the parent had a pool open when it called fork(). Open
 * pools only after fork(), or call exec() in the child. To close a handle in the child only frees
 * memory. */
typedef struct gp_pool gp_pool;

/* Callback for messages to the user during a call, for example "started pool default with 2
 * workers" or "waiting: lease 3 (train lenet, pid 812) holds 2 workers for 3 m 20 s". The callback
 * must not call functions that use the pool. */
typedef void (*gp_message_fn)(void *context, const char *sentence);

/* Options of gp_pool_open(). Initialize the struct with zeros: 0 and NULL select the defaults.
 * Options marked "new pool" apply only if the call starts the pool. */
typedef struct gp_pool_options {
    /* pool name, or tcp://HOST:PORT for a pool on another host; NULL: $GRADPOOL_POOL, else
     * "default" */
    const char *pool;

    /* new pool: worker count; 0: one per GPU, or without GPUs one per CPU core, at most 16 */
    uint32_t workers;
    const char *devices; /* new pool: "auto", "cpu", "1,3", "cuda:0" or a UUID; NULL: "auto" */

    /* new pool: shut down after this idle time; 0: 30 minutes, -1: never */
    int64_t idle_timeout_ms;
    int timeout_ms;   /* time limit to connect to the pool or start it; 0: 15,000 */
    bool attach_only; /* fail with GP_ENOPOOL instead of starting a pool */

    /* Names of environment variables ("A,B"). The pool keeps their values in memory until it shuts
     * down; if the pool already runs, the values replace its current ones. NULL: a new pool
     * receives AWS_ACCESS_KEY_ID and related variables, if they are set. */
    const char *secret_env;
    gp_message_fn note; /* receives messages to the user; NULL: none */
    void *context;      /* passed to note */

    /* new pool: address on which other hosts can reach it, "tcp://ADDRESS:PORT"; NULL: only this
     * host can reach it */
    const char *listen;

    /* Pool on another host: file with the public key of the pool, and file with the key pair of
     * this client. NULL: $GRADPOOL_SERVER_KEY_FILE and $GRADPOOL_KEY_FILE, or else the pool
     * profile. A client can query such a pool, submit jobs and shut the pool down. It can neither
     * start the pool nor lease workers (GP_EUNSUPPORTED). */
    const char *server_key_file, *key_file;

    /* New pool: time without a heartbeat after which a worker is reported as suspect, and after
     * which the scheduler kills and replaces it. A worker that runs user code is never killed for a
     * missing heartbeat. 0: 5 s and 15 s; -1: no limit. */
    int64_t suspect_ms, silence_ms;

    /* New pool: process that owns the pool, usually getpid(). When the process exits, for whatever
     * reason, the pool kills its workers, ends its jobs, removes its files and exits within a
     * second. If this process is the owner, gp_pool_close() of this handle does the same. 0: no
     * owner.
     *
     * With an owner, `pool` NULL selects a new name, see gp_pool_name(); idle_timeout_ms 0 selects
     * no timeout; and the call fails with GP_EBUSY if a pool of that name already runs. Logs and
     * jobs are kept if an earlier pool had the same name. */
    uint32_t owner_pid;

    /* New pool: resources of the workers, for `needs` of leases, calls and loops. Groups are
     * separated by blanks, and a group may name its workers: "license=1 2-3:gpu_memory=80". Names
     * have 1 to 63 letters, digits, '_', '.' and '-'; amounts are whole numbers up to 2^53, 1 if
     * omitted. A worker has at most 16 resources and 511 characters. NULL: none. */
    const char *resources;
} gp_pool_options;

/* Connect to the named pool, or start it.
 *   out      set to the handle; release it with gp_pool_close(), which does not shut the pool down
 *   options  read only during the call, except for note and context; NULL: defaults
 * GP_ENOPOOL: the pool does not run, and attach_only is set. GP_ETIMEDOUT: the pool did not reply
 * in time. GP_EVERSION: the pool runs another version of gradpool. GP_EPERM: other users have
 * access to the pool directory. GP_EBUSY: owner_pid is set, and the pool already runs. */
GP_API gp_status gp_pool_open(gp_pool **out, const gp_pool_options *options, gp_error *err);

/* Cancel all work of this handle, return its workers to the pool and free it. If this handle
 * started a pool that this process owns, shut the pool down and wait for its end. Accepts NULL. */
GP_API void gp_pool_close(gp_pool *pool);

/* Return the name of the pool, or tcp://HOST:PORT for a pool on another host. The string is valid
 * until gp_pool_close(). */
GP_API const char *gp_pool_name(const gp_pool *pool);

/* Get the number of workers in the pool (starting, idle or leased). Excluded and failed workers do
 * not count. */
GP_API gp_status gp_pool_workers(gp_pool *pool, uint32_t *count, gp_error *err);

/* Get the pool's state as JSON, as printed by `gradpool status --json`. Free *json with
 * gp_buffer_free(). */
GP_API gp_status gp_pool_status_json(gp_pool *pool, char **json, gp_error *err);

/* Free a buffer that a function of this library returned. Accepts NULL. */
GP_API void gp_buffer_free(void *data);

/* Change the worker count (0: default) or the devices (NULL: unchanged) of the pool. New workers
 * start at once. A worker that a lease holds changes, or leaves the pool, when the lease gives it
 * back; an elastic team does so after the call that the worker runs. The resources of the pool
 * (gp_pool_options) also apply to new workers. */
GP_API gp_status gp_pool_resize(gp_pool *pool, uint32_t workers, const char *devices, gp_error *err);

/* Shut the pool down.
 *   when_idle  wait until the last lease has ended; false: revoke all leases at once */
GP_API gp_status gp_pool_shutdown(gp_pool *pool, bool when_idle, gp_error *err);

/* Kind of device that a lease or a call requires. */
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

    /* -1000 to 1000; higher priorities are served first, equal priorities in order of arrival */
    int32_t priority;

    /* Minimum resources of each worker, such as "gpu_memory=80,license=1"; "license" means
     * "license=1". GP_ENODEV: too few workers of the pool have them. NULL: none. */
    const char *needs;
} gp_lease_request;

/* ---- data ---- */

/* Split the training part of a data source randomly into lists of files. The split is stratified:
 * each class is divided separately.
 *   source    folder of class folders, FILE.csv, or s3://bucket/prefix
 *   sizes     [count - 1] list sizes; the last list receives the rest. A size below 1 is a fraction
 *             of each class, a size of 1 or more a number of samples per class.
 *   paths     [count] output files FILE.csv, at most 16: a header "path,label", then one line per
 *             sample; each file is written completely or not at all
 *   samples   [count] set to the sample count in each list; may be NULL
 *   progress  receives the progress of listing the source and writing the lists; NULL: none
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
    uint32_t class_count;           /* 0: the targets are values (regression) */
    const char *const *class_names; /* [class_count], in label order */

    /* [class_count + 1]: samples (or pixels) per class; last element: samples without a class */
    const uint64_t *counts;
} gp_dataset_info;

/* Handle of an inspected data source. */
typedef struct gp_dataset gp_dataset;

/* Open a data source (docs/data.md) and count the samples per class. The call reads all labels. It
 * decodes every label image, but no other images.
 *   out   set to the result; release it with gp_dataset_free()
 *   test  inspect the test part, which a training uses for validation; false: the training part
 * GP_ENOENT: the source or that part does not exist. Other errors: as gp_training_new() reports for
 * this source. */
GP_API gp_status gp_dataset_inspect(gp_dataset **out, const char *source, bool test, gp_error *err);

/* Return the contents of the data source, valid until gp_dataset_free(). */
GP_API const gp_dataset_info *gp_dataset_get_info(const gp_dataset *counts);
GP_API void gp_dataset_free(gp_dataset *counts); /* accepts NULL */

/* ---- training ---- */

/* Record of one step. Loss and accuracy describe the whole group, the times describe one worker. */
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

    /* time that this rank spent in each phase of the step */
    double data_ms, forward_ms, backward_ms, exchange_ms, commit_ms, wait_ms;
    double loss_scale; /* loss scale of precision fp16; 0: another precision */

    /* a gradient was not finite at this loss scale: the step changed no parameters */
    bool skipped;
} gp_train_step;

/* Result of one validation over all workers; every sample counts once. */
typedef struct gp_train_validation_result {
    uint64_t step;
    uint32_t epoch;
    double loss, accuracy; /* means over `count` samples */
    double rmse;           /* root mean squared error of values; for values, accuracy is NaN */
    uint64_t count;
    double seconds;

    /* samples or pixels without a class, or missing target values; excluded from all metrics */
    uint64_t excluded;
} gp_train_validation_result;

/* Progress of a validation that takes longer than two seconds. */
typedef struct gp_train_validation_progress {
    uint64_t step; /* step after which the validation runs */

    /* samples over all workers; `done` is an estimate from the progress of the first worker */
    uint64_t done, count;
    double seconds; /* time since the start of the validation */
} gp_train_validation_progress;

/* Properties of a training that are known before its first step. */
typedef struct gp_train_info {
    uint32_t workers;
    uint32_t worker_index[64]; /* worker index of each rank */
    uint32_t batch_rank[64];   /* samples of each rank in a full mini-batch */
    uint32_t batch;            /* samples per step, over all workers */
    uint32_t steps_per_epoch, epochs;

    /* memory_bytes: device memory of rank 0 */
    uint64_t samples, validation_samples, parameters, memory_bytes;
    uint32_t classes;
    double ready_ms; /* start-up time of the slowest rank */

    /* time to open the data, on the rank where it took longest */
    double data_ms;

    /* time to load the weights and create the execution plans, on the rank where it took longest */
    double network_ms;

    /* learning rate of the first step, with the default of the solver and scale-lr applied */
    double initial_learn_rate;

    /* id of the first lease of the training, as shown by `gradpool status` and in the logs */
    uint64_t lease;
    bool pixels;       /* the targets are one class per pixel */
    uint64_t excluded; /* as training_excluded in gp_training_summary */
} gp_train_info;

/* Change that transfer learning made to one layer of the initial network (docs/transfer.md). */
typedef struct gp_layer_change {
    /* "removed", "added", "changed", "frozen", or "initialized" for new weights */
    const char *action;
    const char *layer, *kind; /* "fc8", "fc"; "input" and "" for the network input */
    const char *output;       /* output shape of one sample: "55", "64x27x27" */
    const char *settings;     /* "outputs=55 weight-learn-rate-factor=10" */

    /* number of trainable parameters; for a frozen layer: the number if it were not frozen */
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

    /* true: a worker failed; false: `cause` says who resized the group, or why */
    bool died;
    const char *cause;
} gp_train_rescale;

/* Callbacks of a training. Each may be NULL. They run on the calling thread. */
typedef struct gp_train_events {
    /* called before the first step, after each step and after each validation */
    void (*begin)(void *context, const gp_train_info *info);
    void (*step)(void *context, const gp_train_step *step);
    void (*check)(void *context, const gp_train_validation_result *check);
    void *context; /* passed to all callbacks */

    /* Called by gp_training_new(): `change` for each layer that transfer learning changes, `note`
     * for other information. The texts are valid only during the call. */
    void (*change)(void *context, const gp_layer_change *change);
    void (*note)(void *context, const char *sentence);

    /* Called after the group was resized or a worker was replaced. The note callback of the pool
     * also receives a message. */
    void (*regroup)(void *context, const gp_train_rescale *regroup);

    /* Called after a failure that does not end the training: a checkpoint could not be written, or
     * a damaged checkpoint was skipped. NULL: the note callback of the pool receives the
     * message. */
    void (*warning)(void *context, const char *sentence);

    /* Called twice per second with the progress of a validation that has run for two seconds. */
    void (*check_progress)(void *context, const gp_train_validation_progress *progress);
} gp_train_events;

/* Training data in arrays of the calling program. All workers on this host share one copy in
 * memory. */
typedef struct gp_array_dataset gp_array_dataset;

typedef struct gp_array_dataset_info {
    /* samples are packed as [count, channels, height, width] */
    uint32_t count, channels, height, width;

    /* samples are float32 and used unchanged; false: samples are uint8 and divided by 255 */
    bool floats;

    /* Type of the targets. Exactly one of class_count and values is nonzero.
     *   class_count   targets are int32 classes from 0 to class_count - 1, or -1 for no class
     *   class_names   [class_count]; NULL: the class numbers serve as names
     *   pixel_labels  a sample has [height, width] classes; false: one class
     *   values        a sample has this number of float32 values as targets */
    uint32_t class_count;
    const char *const *class_names;
    bool pixel_labels;
    uint32_t values;
} gp_array_dataset_info;

/* Copy arrays into shared memory. The caller may free the arrays afterwards. GP_EINVAL, GP_ELIMIT:
 * invalid info; the error message gives the valid range. GP_ENOMEM: not enough memory on this
 * host. */
GP_API gp_status gp_array_dataset_new(gp_array_dataset **out, const gp_array_dataset_info *info,
                                      const void *samples, const void *targets, gp_error *err);

/* Return the SOURCE string to use as `data` or `validation_data`. Arrays have no test part, so with
 * arrays as `data`, set validation_data to another source or to "none". The string is valid until
 * gp_array_dataset_free(), only on this host, for this user and while this process runs. */
GP_API const char *gp_array_dataset_source(const gp_array_dataset *arrays);

/* Free the arrays. Accepts NULL. Workers that still read them keep the memory until their training
 * ends. */
GP_API void gp_array_dataset_free(gp_array_dataset *arrays);

typedef struct gp_train_request {
    const char *network; /* "lenet", FILE.onnx or FILE.json; NULL with `pretrained` */

    /* SOURCE as on the command line (docs/data.md): a folder, a file, a data set such as
     * "digits:6000" */
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

    /* Transfer learning (docs/transfer.md): the next four fields. All NULL or 0: no transfer
     * learning. */

    /* FILE.onnx, or a NAME fetched by `gradpool model get`; requires network NULL */
    const char *pretrained;

    /* Replace the classifier: "auto", or the number of classes in the data. A classifier that
     * already has the same classes is kept. NULL: keep the classifier. */
    const char *classes;

    /* learning rate factors for the weights and biases of a new classifier; 0: factor 1 */
    double head_learn_rate_factor[2];

    /* name of the last frozen layer; the layers up to and including this one are not trained */
    const char *freeze_up_to;

    /* Mapping of pixel values to network input: "0..1", "0..255", "imagenet" or "MEAN,STD"
     * (docs/onnx.md). NULL: the mapping that the model contains. Byte data requires this option if
     * the model was exported by another program and contains no mapping. */
    const char *image_normalization;

    /* receives the progress of listing files or generating digits; NULL: none */
    const gp_progress *data_progress;
} gp_train_request;

/* Handle of a training. After gp_training_run() it has the network, the weights and the metrics. */
typedef struct gp_training gp_training;

typedef struct gp_training_summary {
    uint64_t steps;
    uint32_t epochs;    /* epochs started */
    bool stopped;       /* ended by a stop request before the last step */
    double loss;        /* loss of the last step */
    bool early_stopped; /* ended by the option validation-patience */

    /* Metrics of the last validation. With output-network=best-validation: of the validation whose
     * weights are kept. NaN: no validation. */
    double validation_loss, validation_accuracy, validation_rmse;
    double seconds; /* time from the first step to the last */
    uint64_t samples_trained;

    /* Unreadable images that were skipped (on-error=skip). An image that several workers skipped
     * counts once if it is one of the first that each of them skipped. */
    uint64_t skipped;
    uint32_t restarts;     /* worker failures from which the training recovered */
    uint32_t resizes;      /* changes of the worker count for other reasons */
    double paused_seconds; /* total pause for restarts and resizes */

    /* training samples without a class, or missing target values; pixels do not count */
    uint64_t training_excluded;

    /* validation samples or pixels without a class, or missing target values */
    uint64_t validation_excluded;
} gp_training_summary;

/* Prepare a training without a pool: read the options, the network and the data, and check that
 * they are valid and compatible.
 *   request  must stay valid until gp_training_run() returns; request->lease is not used
 * GP_ENOENT, GP_EINVAL: invalid network, data or option; the error message names it and the valid
 * values. GP_EBUSY: checkpoint-path has checkpoints of another run, or checkpoints that this run
 * does not resume. */
GP_API gp_status gp_training_new(gp_training **out, const gp_train_request *request, gp_error *err);

/* Run a prepared training on workers of the pool and wait until it ends. Call once per training.
 *   lease  workers to use
 * Each worker computes its slice of every mini-batch. The workers exchange gradients directly.
 *
 * When a worker fails, the others continue from the last step that any of them has completed. They
 * continue at once if at least `min-workers` remain, otherwise after the scheduler has replaced the
 * worker. The training recovers from at most `max-restarts` consecutive failures without a
 * completed step in between. The note callback reports each recovery.
 *
 * Replaced workers, and workers that become free, join at a step boundary, up to workers_max of the
 * lease. gp_training_resize() changes the number of workers. With max-restarts 0 or worker-weights,
 * this number is fixed.
 *
 * If no remaining worker has the state, the training restarts in a new lease, from its newest
 * checkpoint or, without one, from the beginning. max-restarts also limits these restarts. The
 * callbacks receive each step and validation only once.
 *
 * GP_EPEER: too many worker failures, or a failure with max-restarts 0; the error message names the
 * worker, the exit cause, the step and the log. GP_ECANCELED: the stop request was 2. GP_EDIVERGED:
 * the loss is not finite. GP_ENODEV: the lease requires a GPU and the pool has none. GP_EBUSY:
 * no_wait is set and the workers are leased. */
GP_API gp_status gp_training_run(gp_training *training, gp_pool *pool, const gp_lease_request *lease,
                                 gp_error *err);

/* Request another worker count for a running training of any client of this pool. Returns at once.
 * The training changes its group at a step boundary, once enough workers are free.
 *   lease    lease id as in the pool status; 0: use `job`
 *   job      background job that runs the training
 *   workers  new worker count
 * GP_ESTALE: no such lease or job holds workers. GP_EINVAL: this training cannot be resized, or its
 * `min-workers` is larger. GP_ENODEV: the pool has fewer workers. */
GP_API gp_status gp_training_resize(gp_pool *pool, uint64_t lease, uint64_t job, uint32_t workers,
                                    gp_error *err);

/* Call gp_training_new(), then gp_training_run() with request->lease. */
GP_API gp_status gp_train(gp_training **out, gp_pool *pool, const gp_train_request *request, gp_error *err);
GP_API void gp_training_free(gp_training *training); /* accepts NULL */

/* Get a training's summary. Call it after gp_training_run(). */
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
 * Memory use does not depend on the sample count. Each worker has at most four parts in flight or
 * waiting for delivery, each with up to 1024 samples or about 8 MiB of scores. */

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

/* Mapping of an image to the network input size. Each value has two cases.
 *
 * "Class" applies to networks that predict one class, or values, per sample. "Pixels" applies to
 * networks that predict one class per pixel, if the caller needs classes only (pixel_classes, or
 * gp_evaluate()); the library then returns and compares the classes at the original image size. If
 * the caller needs pixel scores, "Class" applies. */
typedef enum gp_image_fit {
    /* Use the mapping of the training, which depends on its options crop and image-size.
     *
     * Class, by crop:
     *   none            as GP_IMAGE_FIT_INPUT, but images of another size are rejected unless the
     *                   training used image-size
     *   center, random  take the center of the image; if the training used image-size, resize to
     *                   this size first
     *   fit, resized    as GP_IMAGE_FIT_CROP
     *
     * Pixels, by crop:
     *   none            as GP_IMAGE_FIT_RESIZE
     *   center, random  as GP_IMAGE_FIT_WINDOWS
     *   fit, resized    as GP_IMAGE_FIT_CROP */
    GP_IMAGE_FIT_MODEL,

    /* One class per image: resize the whole image to the input size. With image_size, resize it
     * to image_size and take the center.
     *
     * One class per pixel: the same; the predicted classes and the labels have the input size. */
    GP_IMAGE_FIT_INPUT,

    /* Class: resize the whole image to the input size.
     *
     * Pixels: the same, then resize the scores to the original image size. */
    GP_IMAGE_FIT_RESIZE,

    /* Class: not supported (GP_EINVAL).
     *
     * Pixels: tiled inference with overlapping windows of the input size (docs/segmentation.md). */
    GP_IMAGE_FIT_WINDOWS,

    /* Class: take the largest center crop with the aspect ratio of the input, and resize it to the
     * input size.
     *
     * Pixels: resize the image by the same factor, then tiled inference with overlapping
     * windows. */
    GP_IMAGE_FIT_CROP
} gp_image_fit;

typedef struct gp_predict_request {
    const char *model; /* FILE.onnx, or a name fetched by `gradpool model get` */

    /* SOURCE; if it has a test part, only that part is used. NULL: predict `samples` */
    const char *data;

    /* "f32", "tf32", "bf16" or "fp16", as in training options; NULL: "f32" */
    const char *precision;

    /* Handling of unreadable images, as in training options. "error": end the call. "skip": return
     * no result for the image, and exclude it from all metrics and from all counts except
     * `skipped`; the note callback of the pool receives the numbers of skipped and excluded images.
     * NULL: "error". */
    const char *on_error;
    gp_lease_request lease;

    /* Called once per sample in data order. Return false to end the call with GP_ECANCELED. NULL:
     * no callback. */
    bool (*on_result)(void *context, const gp_prediction *prediction);

    /* Called once per skipped image in data order, before the results of the same part. NULL: no
     * callback. */
    void (*skip)(void *context, uint64_t index, const char *name);

    /* called with the number of finished samples, which includes skipped images, and the total */
    void (*progress)(void *context, uint64_t done, uint64_t count);

    /* receives messages to the user; NULL: no callback */
    void (*note)(void *context, const char *text);
    void *context;
    const volatile sig_atomic_t *stop; /* nonzero: end with GP_ECANCELED; NULL: never */

    /* Samples in memory: sample_count samples, packed as [C, H, W] like the model input, in the
     * units of the training data (0 to 255 for images). The type is uint8, or float32 with
     * sample_floats. The array must stay valid during the call. */
    const void *samples;
    uint64_t sample_count;
    bool sample_floats;

    /* For networks that score each pixel: return only the class of each pixel. Workers then send
     * one byte per pixel instead of 4 bytes per pixel and class. Other networks ignore this
     * field. */
    bool pixel_classes;

    /* Height and width to which images are resized before the library takes the center or cuts
     * windows of the input size. 0, 0: as `fit` specifies. */
    uint32_t image_size[2];
    gp_image_fit fit;

    /* minimum overlap between adjacent windows in pixels; 0: smaller side / 4 */
    uint32_t overlap;
    const char *image_normalization; /* as in gp_train_request; also applies to byte `samples` */
    bool ignore_labels;              /* accept data with any classes, and compute no metrics */

    /* receives the progress of listing class folders or generating digits, before the workers read
     * them; NULL: none */
    const gp_progress *data_progress;
} gp_predict_request;

typedef struct gp_evaluation {
    uint64_t count;    /* samples predicted */
    uint64_t skipped;  /* unreadable images that were skipped (on_error), each counted once */
    uint64_t labelled; /* predicted samples with a label */

    /* samples or pixels without a class, or missing target values; excluded from all metrics */
    uint64_t excluded;
    double accuracy, loss; /* means over labelled samples or their pixels; NaN: no labels */
    double rmse;           /* root mean squared error of values; NaN: the model predicts classes */
    double seconds;
} gp_evaluation;

/* Predict all samples on leased workers and call on_result() for each sample in data order.
 *   out  set to the metrics; may be NULL
 * GP_ENOENT, GP_EINVAL: invalid model or data; the error message names it and the valid values.
 * GP_ECANCELED: on_result() returned false, or stop was set. GP_EPEER: three workers failed on the
 * same part; the error message names the part and the log. GP_ECORRUPT: an image is unreadable; the
 * error message names it. With on_error "skip": no image is readable. Other errors: as
 * gp_training_run() reports. */
GP_API gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request,
                            gp_error *err);

/* Compute only the metrics of a prediction. Workers return neither scores nor names, and
 * on_result() is not called.
 *   confusion  set to the confusion matrix (gradpool/metrics.h) of all samples or pixels whose true
 *              class is a class of the model; release with gp_confusion_free(). Set to NULL if the
 *              model predicts values or has more than GP_CONFUSION_CLASSES_MAX classes, or if the
 *              data has no class targets. May be NULL. */
GP_API gp_status gp_evaluate(gp_evaluation *out, gp_confusion **confusion, gp_pool *pool,
                             const gp_predict_request *request, gp_error *err);

/* Scores of all predicted samples, in memory. */
typedef struct gp_scores {
    uint64_t count;       /* predicted samples, without skipped ones */
    uint32_t score_count; /* scores per sample */
    uint32_t classes;     /* as in gp_prediction, also rank and dims */
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
 * format.
 *   FILE.png              image; counts and class names are legible for up to 32 classes
 *   FILE.csv, FILE.json   see gp_confusion_format()
 *   FILE.txt              matrix and metrics per class as a table
 * `title` (may be NULL) appears above the image. GP_EINVAL: unknown suffix. GP_EIO: the file cannot
 * be written. */
GP_API gp_status gp_confusion_save(const gp_confusion *matrix, const char *path, const char *title,
                                   gp_error *err);

/* ---- teams ----
 *
 * A team is a lease of workers that run user functions (gradpool/task.h) until the team is closed:
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
 *     gp_future_result(future, &data, &bytes, &err);   // blocks until the call has ended
 *
 * A team has its own link to the pool, so the pool handle stays usable for other calls. Requests,
 * infos, callbacks, tasks and messages number the team's workers from 1 to its size. If the pool
 * numbers a worker differently (`gradpool status`), messages add that number: "worker 1 (3 in the
 * pool)".
 *
 * When a worker fails, the pool replaces it. The new process receives the task objects, the files
 * and the values of gp_team_put() again. Calls that ran on the failed worker run again (see
 * attempts), and calls that were queued for it move to other workers. Values that tasks stored on
 * the failed worker are lost.
 *
 * Only one thread at a time may use a team and the team's handles. Work continues in the background
 * between calls. Callbacks run on the calling thread during any call, or on a thread of the
 * library. Callbacks must be short. Of the functions below they may call only gp_future_get_info(),
 * gp_parfeval(), and gp_future_result() for the ended future. */
typedef struct gp_team gp_team;
typedef struct gp_function gp_function;

/* Line that a task printed to standard output or standard error. */
typedef struct gp_output_line {
    uint32_t worker; /* worker that ran the task, 1 .. size */

    /* gp_future_info.id of the call that ran; a block and each part of a loop have an id of their
     * own. 0: no call ran */
    uint64_t call;
    bool in_loop;      /* an iteration of a loop printed the line */
    int64_t iteration; /* that iteration; 0 if in_loop is false */

    /* the bytes as printed, without the newline, and a NUL after them; at most
     * GP_OUTPUT_LINE_BYTES_MAX */
    const char *text;
    size_t bytes;
} gp_output_line;
#define GP_OUTPUT_LINE_BYTES_MAX 4096

typedef struct gp_team_options {
    gp_lease_request lease; /* lease.priority, if nonzero, overrides `priority` below */

    /* shown to waiting clients, for example "sweep of learning rates"; NULL: the program name */
    const char *purpose;

    /* priority of the lease in the pool's queue; higher comes first. Calls have their own
     * priorities. */
    int32_t priority;

    /* receives gp_task_log() lines; NULL: only the worker logs receive them */
    void (*log)(void *context, uint32_t worker, const char *line);
    void *context;

    /* nonzero: waiting calls end with GP_ECANCELED; NULL: never */
    const volatile sig_atomic_t *stop;

    /* The team takes workers that become idle, up to lease.workers_max (0: any number), also while
     * loops and calls run. While another client waits, it gives workers back, down to
     * lease.workers_min (0: 1): the last ones leave, each after the call that it runs and the calls
     * that only it may run. Worker numbers do not change. false: the number of workers is fixed. */
    bool elastic;

    /* receives each line that tasks print, in order for each worker; NULL: only the worker logs
     * have what tasks print. *line is valid during the callback.
     *   - Lines arrive while their call runs, and usually before the call ends. An incomplete line
     *     arrives at the end of the call or iteration, and a longer line in several parts.
     *   - A call never waits for this callback. If lines arrive faster than the callback returns,
     *     lines are dropped and counted in gp_team_info.output_dropped. The worker logs have all
     *     lines.
     *   - A line of a thread or child process of a task belongs to the call that runs when it is
     *     printed. */
    void (*output)(void *context, const gp_output_line *line);
} gp_team_options;

/* Lease workers for a team. Waits in the queue of the pool until they are free.
 *   options  read only during the call, except for log, output, context and stop; NULL: every
 *            worker
 * GP_ENODEV: the pool can never grant the request; the error message lists the pool's workers.
 * GP_EBUSY: no_wait is set and workers are leased. */
GP_API gp_status gp_team_open(gp_team **out, gp_pool *pool, const gp_team_options *options, gp_error *err);

/* Cancel queued and running calls, return the workers to the pool and free the team. All futures,
 * SPMD results and queues of the team become invalid. Accepts NULL. */
GP_API void gp_team_close(gp_team *team);

/* Return how many workers the team has now. */
GP_API uint32_t gp_team_size(const gp_team *team);

/* Find a function "FILE.so:NAME" in a task object. Send the object to every worker that does not
 * yet have the same content.
 *   out  valid until the team is closed
 * GP_ENOENT: no such file or function; the error message gives the most similar name. GP_EPERM: the
 * file belongs to another user, or other users can write it. GP_EVERSION: the object was built for
 * another ABI. GP_EINVAL: the file is not a task object. */
GP_API gp_status gp_function_find(const gp_function **out, gp_team *team, const char *name, gp_error *err);

/* Make a file available to tasks as gp_task_file(name). The file is sent once per worker, and the
 * workers of a host share it in memory. */
GP_API gp_status gp_team_attach(gp_team *team, const char *name, const char *path, gp_error *err);

enum { GP_EVERY_WORKER = 0 };

/* Store a named value on one worker (1 .. size) or on all (GP_EVERY_WORKER). data NULL with bytes 0
 * removes the value. */
GP_API gp_status gp_team_put(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes,
                             gp_error *err);

/* Get the value with that name from a worker. Free *data with gp_buffer_free(). GP_ENOENT: no such
 * value. */
GP_API gp_status gp_team_get(gp_team *team, uint32_t worker, const char *name, void **data, size_t *bytes,
                             gp_error *err);

/* Scatter `count` elements over the workers as the named value. Each worker receives floor(count /
 * size) elements, and each of the first count % size workers one more. gp_team_gather()
 * concatenates the slices in worker order; free *data with gp_buffer_free(). */
GP_API gp_status gp_team_scatter(gp_team *team, const char *name, const void *data, size_t count,
                                 size_t element_bytes, gp_error *err);
GP_API gp_status gp_team_gather(gp_team *team, const char *name, void **data, size_t *bytes, gp_error *err);

/* ---- typed arrays as values (gradpool/tensor.h) ----
 *
 * A typed value keeps its element type and shape: uint8, int32, int64, float32 or float64. Its
 * bytes are a .npy file, which gp_team_get() returns as it is. Tasks use gp_task_get_tensor() and
 * gp_task_put_tensor(). The functions that read it take the element type that the caller expects,
 * 0 for any. GP_EINVAL: the value is not a tensor, or has another type or shape. */

/* Store a tensor as a named value on one worker, or on all (GP_EVERY_WORKER). */
GP_API gp_status gp_team_put_tensor(gp_team *team, uint32_t worker, const char *name, const gp_tensor *tensor,
                                    gp_error *err);

/* Get a tensor from a worker. Release it with gp_tensor_deinit(). GP_ENOENT: no such value. */
GP_API gp_status gp_team_get_tensor(gp_tensor *out, gp_team *team, uint32_t worker, const char *name,
                                    gp_dtype dtype, gp_error *err);

/* Scatter a tensor over the workers along its first dimension, like gp_team_scatter(). */
GP_API gp_status gp_team_scatter_tensor(gp_team *team, const char *name, const gp_tensor *tensor,
                                        gp_error *err);

/* Concatenate the tensors of all workers along the first dimension, in worker order. Release the
 * result with gp_tensor_deinit(). GP_EINVAL: the parts differ in type, or in another dimension; the
 * error message names the worker. */
GP_API gp_status gp_team_gather_tensor(gp_tensor *out, gp_team *team, const char *name, gp_dtype dtype,
                                       gp_error *err);

/* Read or write a .npy file; a file is written completely or not at all. Release a loaded tensor
 * with gp_tensor_deinit(). GP_ENOENT: no such file. GP_ECORRUPT, GP_EUNSUPPORTED: the contents. */
GP_API gp_status gp_tensor_load(gp_tensor *out, const char *path, gp_error *err);
GP_API gp_status gp_tensor_save(const gp_tensor *tensor, const char *path, gp_error *err);
GP_API void gp_tensor_deinit(gp_tensor *tensor); /* accepts NULL, and a zeroed tensor */

/* Read-only bytes that many calls share as their argument. The bytes are copied once and mapped by
 * each worker on the host. The caller may free the broadcast at any time after it has submitted the
 * calls. */
typedef struct gp_broadcast gp_broadcast;
GP_API gp_status gp_broadcast_new(gp_broadcast **out, const void *data, size_t bytes, gp_error *err);

/* Like gp_broadcast_new(), but the caller writes the bytes itself before the first use. *data is
 * valid until then. */
GP_API gp_status gp_broadcast_map(gp_broadcast **out, void **data, size_t bytes, gp_error *err);

/* Free the handle of a broadcast. Accepts NULL. The bytes stay valid for calls that use them. */
GP_API void gp_broadcast_free(gp_broadcast *shared);

/* ---- parfeval: run one call on one worker and get a future ---- */

/* Handle of a submitted call and of its result. */
typedef struct gp_future gp_future;

typedef enum gp_future_state {
    GP_FUTURE_WAITING, /* waits for a worker, or for futures that it depends on */
    GP_FUTURE_RUNNING, /* started by a worker */
    GP_FUTURE_DONE,    /* ended with a result, with an error, or canceled */
} gp_future_state;

typedef struct gp_parfeval_request {
    const gp_function *function;
    const void *argument; /* copied */
    size_t bytes;
    const gp_broadcast *shared;       /* instead of argument; bytes: 0 or as broadcast */
    int32_t priority;                 /* -1000 to 1000; the highest waiting call starts next */
    uint32_t worker;                  /* run only on this worker (1 .. size); 0: any */
    gp_lease_environment environment; /* required kind of device */
    const char *needs;                /* minimum resources of the worker, as in gp_lease_request */
    uint32_t attempts;                /* maximum number of starts if workers fail; 0: 3, 1: no rerun */
    uint32_t retries;                 /* repeats after a task error; 0: none */
    int64_t queue_timeout_ms;         /* end with GP_ETIMEDOUT if not started by then; 0: no limit */
    int64_t timeout_ms;               /* cancel a call that runs longer (GP_ETIMELIMIT); 0: no limit */

    /* start after these futures have ended with a result; if one fails, this call fails too
     * (GP_ECANCELED) */
    gp_future *const *depends_on;
    uint32_t depends_on_count;

    /* start after this future, on the same worker; GP_EINVAL: `worker` is another worker, or the
     * worker has left the team */
    gp_future *same_worker_as;

    /* Called once when the call has ended. May be NULL. */
    void (*done)(void *context, gp_future *future);
    void *context;
} gp_parfeval_request;

/* Submit a call to the team. Returns at once.
 *   out  set to the future; release it with gp_future_free(). NULL: the library frees the future;
 *        results then arrive only through `done` or queues
 * GP_EINVAL: no such worker. GP_ENODEV: no worker of the team has the required device or resources,
 * nor one that may join an elastic team; the error message lists the resources. GP_ELIMIT:
 * GP_FUTURES_MAX calls have not ended, or they have more than 63 different needs. */
GP_API gp_status gp_parfeval(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                             gp_error *err);
#define GP_FUTURES_MAX 16777216

typedef struct gp_future_info {
    gp_future_state state;

    /* Final status, in state GP_FUTURE_DONE.
     *   GP_OK          the call has a result
     *   GP_ECANCELED   the call was canceled, or a future that it depends on failed
     *   GP_ETIMEDOUT   the call did not start in time
     *   GP_ETIMELIMIT  the call ran too long
     *   GP_EPEER       workers failed
     *   other          error of the task */
    gp_status status;
    uint64_t id;     /* id in messages; unique in the team and ascending */
    uint32_t worker; /* worker of the last attempt, 1 .. size; 0: none yet */

    /* the same worker's number in `gradpool status` and log file names; 0: none yet */
    uint32_t pool_worker;

    /* attempts: starts so far, including reruns after worker failures; retries: repeats after task
     * errors, which attempts does not count */
    uint32_t attempts, retries;

    /* nanoseconds since the team was opened; 0: the event has not happened yet */
    int64_t submitted_ns, started_ns, ended_ns;
} gp_future_info;

/* Get a future's current state. Never waits. */
GP_API void gp_future_get_info(const gp_future *future, gp_future_info *out);

/* Wait until the call has ended.
 *   timeout_ms  -1: no limit
 * GP_ETIMEDOUT: the call has not ended in time. GP_ECANCELED: stop was set. */
GP_API gp_status gp_future_wait(gp_future *future, int timeout_ms, gp_error *err);

/* Wait for a call and get its result, which is valid until gp_future_free(). If the call failed,
 * return its error. */
GP_API gp_status gp_future_result(gp_future *future, const void **data, size_t *bytes, gp_error *err);

/* Cancel a call. A call that has not started ends at once. In a running task gp_task_canceled()
 * becomes true. If the task has not returned after a grace period of 1 s, the pool kills and
 * replaces its worker. No effect if the call has ended. */
GP_API void gp_future_cancel(gp_future *future);

/* Cancel a call with another grace period. 0 kills the worker of a running call at once. A second
 * cancel can shorten the period.
 *   grace_ms  0 to GP_CANCEL_GRACE_MS_MAX
 * GP_EINVAL: grace_ms is out of range. */
GP_API gp_status gp_future_cancel_grace(gp_future *future, int64_t grace_ms, gp_error *err);
#define GP_CANCEL_GRACE_MS_MAX 3600000

/* Release a future. Accepts NULL. A call that has not ended continues, and the library frees the
 * future afterwards. */
GP_API void gp_future_free(gp_future *future);

typedef enum gp_wait_for { GP_WAIT_ALL, GP_WAIT_ANY, GP_WAIT_FIRST_ERROR } gp_wait_for;

/* Wait for several futures: until all have ended, any has ended, or (GP_WAIT_FIRST_ERROR) one has
 * failed or all have ended. */
GP_API gp_status gp_futures_wait(gp_future *const *futures, size_t count, gp_wait_for what, int timeout_ms,
                                 gp_error *err);

/* Get the next ended future of the team, in the order in which the futures ended. Each future is
 * returned once.
 *   timeout_ms  0: do not wait; -1: no limit
 * GP_ENOENT: all futures have been returned or freed. GP_ETIMEDOUT: no future has ended in time. */
GP_API gp_status gp_team_as_completed(gp_team *team, gp_future **out, int timeout_ms, gp_error *err);

/* Cancel all futures of the team, with a grace period of 1 s, or as gp_future_cancel_grace(). */
GP_API void gp_team_cancel(gp_team *team);
GP_API gp_status gp_team_cancel_grace(gp_team *team, int64_t grace_ms, gp_error *err);

/* ---- detached results: results that another process fetches ----
 *
 * A detached future has a name. Any process of the same user can wait for the result and read it by
 * that name, also after the process that made the call has exited:
 *
 *     gp_future_detach(future, &(gp_detach_options){ .name = "fold-3" }, NULL, &err);
 *
 *     gp_result_fetch(pool, "fold-3", -1, &data, &bytes, &err);   // in another process
 *
 * The pool stores results as files. They survive every process, the scheduler and a shutdown of the
 * pool, but not a power failure within the last seconds.
 *
 * A detached call stays on its team. If the team is closed, or its process exits, before the call
 * has ended, the pool starts the call again in the background. This counts as an attempt. With
 * `attempts` 1, a call that may have started is not started again, and its result is the error
 * GP_EPEER. The new start has the argument, the function and the limits of the call, but neither
 * the values and files of the team nor its worker number. */

#define GP_RESULT_NAME_BYTES 64 /* name of a result, with the final NUL */

typedef struct gp_detach_options {
    const char *name; /* 1 to 63 of A-Z a-z 0-9 . _ -, the first a letter or digit; NULL: random */
    int64_t ttl_ms;   /* how long the result is kept after the call has ended; 0: 1 hour */
    uint32_t reads;   /* the result is removed after that number of reads; 0: no limit */
} gp_detach_options;

/* Give the result of a future a name. The future stays valid, and gp_future_free() does not end the
 * call. To cancel the call stores the error GP_ECANCELED. Not in a callback of the team.
 *   options  NULL: defaults
 *   name     [GP_RESULT_NAME_BYTES] set to the name; may be NULL
 * GP_EINVAL: invalid name, or ttl_ms above 7 days. GP_EBUSY: the pool has a result of that name, or
 * another process has locked the results for 10 s. GP_ELIMIT: the argument has more than 1 GiB, all
 * results of the pool more than 16 GiB, the pool has 10,000 results, or this process has no
 * descriptors left. GP_ESTATE: the call waits for other futures, or was detached before.
 * GP_EUNSUPPORTED: the pool is on another host. GP_ENOPOOL: the pool is shut down. GP_EVERSION: the
 * pool has another version. GP_ETIMEDOUT: no reply from the scheduler. GP_ENOMEM, GP_EIO. After an
 * error the future is not detached. A result of more than 1 GiB is replaced by GP_ELIMIT. */
GP_API gp_status gp_future_detach(gp_future *future, const gp_detach_options *options, char *name,
                                  gp_error *err);

/* Wait for a detached call and read its outcome. Returns only errors of the wait and the read; an
 * error of the call is an outcome, too. If several processes read a result whose reads are limited,
 * exactly that number of them receive it.
 *   timeout_ms  -1: no limit
 *   ended       set to the status of the call
 *   data        set to the result, or to the error message if the call failed (*bytes counts its
 *               final NUL); never NULL; free it with gp_buffer_free()
 * GP_ETIMEDOUT: the call has not ended in time. GP_ENOENT: there is no such result. GP_ESTATE: it
 * was read as often as allowed. GP_ESTALE: it has expired. GP_EPERM: it belongs to another user.
 * GP_EUNSUPPORTED: the pool is on another host. GP_ENOPOOL: no process runs the call, and the pool
 * is shut down. GP_EVERSION: no process runs the call, and the pool has another version.
 * GP_ECORRUPT: the result is incomplete. GP_ENOMEM, GP_EIO. */
GP_API gp_status gp_result_wait(gp_pool *pool, const char *name, int timeout_ms, gp_status *ended,
                                void **data, size_t *bytes, gp_error *err);

/* Wait for a detached call and read the result. If the call failed, return the error of the call;
 * this counts as a read. Only gp_result_wait() distinguishes an error of the call from one of the
 * wait. For example, GP_ETIMEDOUT can mean that the call has not ended, or that the call ended
 * because it had not started within queue_timeout_ms.
 *   timeout_ms  -1: no limit
 *   data        set to the result, never NULL; free it with gp_buffer_free()
 * Other errors: as for gp_result_wait(). */
GP_API gp_status gp_result_fetch(gp_pool *pool, const char *name, int timeout_ms, void **data, size_t *bytes,
                                 gp_error *err);

typedef enum gp_result_state {
    GP_RESULT_PENDING, /* the call has not ended */
    GP_RESULT_READY,
    GP_RESULT_READ, /* read as often as allowed */
    GP_RESULT_EXPIRED,
} gp_result_state;

typedef struct gp_result_info {
    char name[GP_RESULT_NAME_BYTES];
    gp_result_state state;
    gp_status status; /* of the call, in state GP_RESULT_READY */
    uint64_t bytes;   /* size of the result or error message */
    uint32_t reads;   /* reads so far */
    uint32_t reads_max;

    /* wall clock, milliseconds since 1970. ended_ms, expires_ms 0: the call has not ended */
    int64_t detached_ms, ended_ms, expires_ms;
    char function[128]; /* function of the task */
} gp_result_info;

/* Call on_result() for each result, in no order, until it returns false. Results that were read or
 * have expired are listed for another day. */
GP_API gp_status gp_result_list(gp_pool *pool, bool (*on_result)(void *context, const gp_result_info *result),
                                void *context, gp_error *err);

/* Remove a result. A call that has not ended continues, and its result is dropped. GP_ENOENT: there
 * is no such result. */
GP_API gp_status gp_result_remove(gp_pool *pool, const char *name, gp_error *err);

/* Counters and current load of a team. */
typedef struct gp_team_info {
    uint64_t submitted, ended, failed, canceled;

    /* number of calls, loop chunks and SPMD ranks that wait for a worker, and that are running */
    uint64_t waiting, running;
    uint64_t worker_deaths, rerun; /* rerun: calls restarted after worker failures */
    uint64_t queue_bytes;          /* memory for queued calls */
    uint64_t log_dropped;          /* dropped log lines and queue items */
    uint64_t output_dropped;       /* dropped lines of gp_team_options.output */
} gp_team_info;

/* Get the counters of a team. Never waits. */
GP_API void gp_team_get_info(gp_team *team, gp_team_info *out);

/* ---- spmd: run one function on several workers at once, with communication between them ---- */

/* Results of one SPMD block, one per worker. */
typedef struct gp_spmd_result gp_spmd_result;

typedef struct gp_spmd_request {
    const gp_function *function;
    const void *argument; /* the same for all ranks */
    size_t bytes;
    const gp_broadcast *shared; /* instead of argument; bytes: 0 or as broadcast */

    /* 0, 0: the whole team; n, n: exactly n; otherwise as many as are available, from min to max */
    uint32_t workers_min, workers_max;
    uint64_t seed;      /* seed for the random streams of the ranks */
    int64_t timeout_ms; /* cancel a block that runs longer (GP_ETIMELIMIT); 0: no limit */

    /* kill the workers of ranks that are canceled or exceed timeout_ms at once, instead of after
     * 1 s */
    bool cancel_at_once;
} gp_spmd_request;

/* Run a function on several workers and wait for all of them. Large results stay on the workers
 * until they are fetched.
 *   out  release with gp_spmd_result_free(); also set if the block failed, so that the caller can
 *        read all errors
 * If one rank fails, the others are canceled: at once if they wait for each other, otherwise
 * through gp_task_canceled(). The pool replaces a worker whose function has not returned after 1 s.
 * The call returns the earliest failure, and the error message names its worker. GP_EINVAL: the
 * team has fewer workers than requested. GP_ECANCELED: stop was set. GP_EPEER: a worker failed. */
GP_API gp_status gp_spmd(gp_spmd_result **out, gp_team *team, const gp_spmd_request *request, gp_error *err);

/* Return the number of ranks that the block had. */
GP_API uint32_t gp_spmd_result_size(const gp_spmd_result *block);

/* Get the result of rank index 1 .. size, valid until gp_spmd_result_free(), or its error. */
GP_API gp_status gp_spmd_result_get(gp_spmd_result *block, uint32_t index, const void **data, size_t *bytes,
                                    gp_error *err);

/* Free the results, and delete those stored on the workers. Accepts NULL. */
GP_API void gp_spmd_result_free(gp_spmd_result *block);

/* ---- parfor: run a loop and distribute the iterations over idle workers ---- */

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
    const gp_broadcast *shared; /* instead of argument; bytes: 0 or as broadcast */

    int64_t first, last, step; /* first, first + step, ... up to last; step 0: 1 */

    /* sliced: input_bytes per iteration; each worker receives only its slices */
    const void *input;
    size_t input_bytes;
    void *output; /* sliced: output_bytes per iteration, in order */
    size_t output_bytes;

    /* Source of items instead of a range, possibly endless: fill *item (input_bytes bytes) and
     * return true, or return false at the end. The callback runs on the calling thread. While it
     * blocks, no results are delivered. */
    bool (*next)(void *context, void *item);

    /* Called with each result (gp_task_result()), in range order or, with `unordered`, in order of
     * completion. Return false to end the loop (GP_OK). */
    bool (*on_result)(void *context, int64_t iteration, const void *data, size_t bytes);
    bool unordered;
    void *context;

    /* Called with each iteration that failed for good, in the order of on_result. Return false to
     * end the loop (GP_OK). With on_error or errors, a failing iteration does not end the loop: its
     * output stays unchanged, and it does not take part in the reduction.
     *   error  the status and message of the iteration; GP_ETIMELIMIT: it exceeded timeout_ms;
     *          GP_EPEER: its workers failed. Valid only during the call */
    bool (*on_error)(void *context, int64_t iteration, const gp_error *error);

    /* sliced: one per iteration of the range, code GP_OK if it has a result and GP_ECANCELED if the
     * loop ended before it. NULL: none */
    gp_error *errors;

    /* Reduction of all results into `reduced`. The library combines iterations in fixed groups, and
     * the groups in a fixed tree. The result is therefore bitwise identical for any schedule and
     * any number of workers. The groups have one iteration each in a range of up to 65,536
     * iterations, and in any loop with retries, timeout_ms, on_error or errors. In longer ranges
     * and for endless sources, rounding may therefore differ between loops with and without
     * these. */
    gp_reduction reduction;
    void *reduced;
    size_t reduced_bytes;

    /* "FILE.so:NAME" of a gp_combine_fn; its context is the loop argument, read-only */
    const char *combine;

    uint64_t seed; /* seed for the random streams of the iterations */

    /* iterations per message, fewer if they have more than 1 GiB of input or output; 0: chosen by
     * measured duration */
    uint32_t chunk;

    /* maximum number of iterations in flight: sent to a worker, but the result not yet delivered to
     * on_result(); 0: limit of the library */
    uint32_t max_in_flight;

    /* for each iteration, as in gp_parfeval_request; gp_task_attempt() counts all starts */
    uint32_t attempts; /* maximum number of starts if workers fail; 0: 3, 1: no rerun */
    uint32_t retries;  /* repeats after an error of the task; 0: none */

    /* cancel an iteration that runs longer (GP_ETIMELIMIT); it is not repeated. 0: no limit */
    int64_t timeout_ms;
    int32_t priority; /* of the iterations, among the calls of the team: -1000 to 1000 */

    /* run iterations only on workers with these resources; GP_ENODEV: the team has none. NULL: no
     * needs */
    const char *needs;

    /* kill the workers of iterations at once, instead of after 1 s, when the loop ends early or an
     * iteration exceeds timeout_ms */
    bool cancel_at_once;
    void (*progress)(void *context, uint64_t done, uint64_t total); /* total 0: unknown */
} gp_parfor_request;

/* Run the loop and wait for it. Without on_error and errors, a failing iteration ends the loop.
 * The call then returns the error of the lowest iteration that failed before the others were
 * stopped. The error message begins with the iteration and the worker. */
GP_API gp_status gp_parfor(gp_team *team, const gp_parfor_request *request, gp_error *err);

/* ---- data queues: items that tasks send while they run (gp_task_queue) ---- */

typedef struct gp_queue gp_queue;

typedef struct gp_queue_options {
    uint32_t depth;   /* items buffered in the client; 0: 1024. A full queue makes senders wait. */
    bool keep_newest; /* true: a full queue drops and counts its oldest item instead */

    /* Called for each item instead of buffering the item. `data` is 16-byte aligned and valid only
     * during the call. NULL: read items with gp_queue_next(). */
    void (*on_item)(void *context, uint32_t worker, const void *data, size_t bytes);
    void *context;
} gp_queue_options;

/* Open the queue with that name; a team has at most one queue per name. Items that tasks send to
 * any other name are dropped and counted. */
GP_API gp_status gp_queue_open(gp_queue **out, gp_team *team, const char *name,
                               const gp_queue_options *options, gp_error *err);
GP_API void gp_queue_close(gp_queue *queue); /* accepts NULL */

/* Get the oldest item. Free *data with gp_buffer_free(). GP_ETIMEDOUT: no item arrived in time. */
GP_API gp_status gp_queue_next(gp_queue *queue, uint32_t *worker, void **data, size_t *bytes, int timeout_ms,
                               gp_error *err);

/* Return the number of items that the queue has dropped. */
GP_API uint64_t gp_queue_dropped(const gp_queue *queue);

/* ---- background jobs ----
 *
 * A job is a `gradpool` command that the pool runs in the background. The pool writes the job to
 * disk at submission, and starts it once fewer jobs other than sweeps are running than the pool has
 * workers. The job inherits the working directory, umask and environment variables of the
 * submitter. It outlives the terminal, the client and the scheduler; see docs/gradpool.md,
 * "Background jobs". */

typedef enum gp_job_state {
    GP_JOB_QUEUED = 1,
    GP_JOB_STARTING = 2,
    GP_JOB_RUNNING = 3,
    GP_JOB_STOPPING = 4, /* canceled, but the process has not exited yet */
    GP_JOB_DONE = 5,
    GP_JOB_FAILED = 6,
    GP_JOB_CANCELED = 7,
    GP_JOB_LOST = 8, /* every attempt ended when its scheduler failed */
} gp_job_state;

/* Return the name of a state: "queued", "starting", "running", "stopping", "done", "failed",
 * "canceled" or "lost". */
GP_API const char *gp_job_state_word(gp_job_state state);

/* Return whether a state is final: done, failed, canceled or lost. */
GP_API bool gp_job_state_ended(gp_job_state state);

/* Kind of a job. */
typedef enum gp_job_kind {
    GP_JOB_ORDINARY = 0,

    /* Submits trials and waits for them; also the job that starts detached calls of exited programs
     * again. It runs beside the jobs that need workers, at most 16 at once. If a signal kills it,
     * the pool starts it again, up to three attempts in total. */
    GP_JOB_SWEEP = 1,
    GP_JOB_TRIAL = 2, /* submitted by a sweep; the pool keeps only the last 200 ended ones */
} gp_job_kind;

typedef struct gp_job_request {
    /* command line without "gradpool": "train", "--network", ...; NULL-terminated */
    const char *const *words;
    const char *name;      /* name for display; NULL: none */
    int32_t priority;      /* -1000 to 1000; higher starts first */
    const char *directory; /* absolute path; NULL: current directory */

    /* "NAME=value", NULL-terminated; NULL: variables that gp_job_variable_allowed() accepts */
    const char *const *environment;

    /* Identity of the submission. A repeated key and seq returns the same job, so a client can
     * repeat a submission whose reply was lost in a scheduler failure. All zeros: a random key. */
    uint8_t key[16];
    uint64_t seq;
    gp_job_kind kind;
} gp_job_request;

typedef struct gp_job_info {
    uint64_t id; /* from 1, never reused */
    gp_job_state state;
    char name[64], command[96];
    int32_t priority;
    uint32_t attempts; /* attempts started */
    bool cancel_asked;
    uint32_t pid;       /* process of the last attempt; 0: none */
    uint32_t workers;   /* maximum number of workers held in the last attempt */
    int exit_code;      /* -1: none or unknown */
    int signal;         /* signal that killed the process; 0: none */
    double age_seconds; /* time since submission */
    double run_seconds; /* duration of the last attempt so far */

    /* reason why the job failed, was canceled, was lost or returned to the queue */
    char reason[200];

    /* folder with job.json, log, metrics.jsonl and result/; set only by gp_job_get() */
    char folder[200];
    int64_t submitted_ms; /* wall clock on the pool's host, milliseconds since 1970 */
    gp_job_kind kind;
} gp_job_info;

/* Submit a job and wait until the pool has written it to disk. From then on, the job survives the
 * failure of any process. GP_EBUSY: the queue is full. GP_ELIMIT: the words or variables are too
 * many or too long. GP_EIO and others: the pool cannot record jobs; the error message gives the
 * reason. GP_EPEER: the scheduler failed, possibly after it recorded the job; submit again with the
 * same key and seq. */
GP_API gp_status gp_job_submit(uint64_t *job, gp_pool *pool, const gp_job_request *request, gp_error *err);

/* Submit many jobs at once. They share disk commits, so thousands take little longer than one.
 *   jobs  [count] set to the ids; on an error 0 for each job that is not confirmed on disk */
GP_API gp_status gp_job_submit_many(uint64_t *jobs, gp_pool *pool, const gp_job_request *requests,
                                    size_t count, gp_error *err);

/* Get one job's state. GP_ENOENT: no such job, or it ended long ago and its record was deleted. */
GP_API gp_status gp_job_get(gp_job_info *out, gp_pool *pool, uint64_t job, gp_error *err);

/* Call on_job() for each job, newest first, until it returns false.
 *   all  include ended jobs */
GP_API gp_status gp_job_list(gp_pool *pool, bool all, bool (*on_job)(void *context, const gp_job_info *job),
                             void *context, gp_error *err);

/* Cancel one job, or with job 0 all jobs that have not ended. A running job receives a stop request
 * and is killed after 10 s; a stopped training keeps its model.
 *   count  set to the number of jobs that this call canceled */
GP_API gp_status gp_job_cancel(uint32_t *count, gp_pool *pool, uint64_t job, gp_error *err);

/* Cancel jobs with another grace period than 10 s. 0 kills a running job at once: a training then
 * keeps no model. A second cancel can shorten the period, and then counts again.
 *   grace_ms  0 to GP_CANCEL_GRACE_MS_MAX
 * GP_EINVAL: grace_ms is out of range. */
GP_API gp_status gp_job_cancel_grace(uint32_t *count, gp_pool *pool, uint64_t job, int64_t grace_ms,
                                     gp_error *err);

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

/* Return the version, for example "gradpool 0.1.0". */
GP_API const char *gp_version(void);

#ifdef __cplusplus
}
#endif
#endif
