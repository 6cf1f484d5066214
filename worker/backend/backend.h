/* The interface of a compute backend: one function table per device kind.
 *
 * A backend compiles a graph into a plan, then runs the plan many times. A plan is built for one
 * phase and one micro-batch size. In a training step, each rank processes its slice of the
 * mini-batch in several calls plus a smaller last call. All calls add their gradients to the
 * exchange arena. Samples beyond batch->count have weight 0: the backend may compute or skip them,
 * but they change no gradient, loss or metric. Gradient accumulation, shrinking groups and memory
 * limits all use this mechanism.
 *
 * compile() allocates all memory; run() allocates none. At most one thread at a time uses a
 * backend. */
#ifndef GP_BACKEND_H
#define GP_BACKEND_H

#include <stdatomic.h>

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

/* Opaque; each backend defines both structs. */
typedef struct gp_backend gp_backend;
typedef struct gp_plan gp_plan;

/* Algorithm choices. Libraries such as cuDNN offer several algorithms for the same operation, and a
 * tuning records the algorithm in use for each. compile() first takes the recorded choices. It then
 * times the candidates for other operations until the time budget is used up, and applies the
 * library's default order to the rest. It records everything that it chose. A plan compiled with a
 * complete tuning and no time budget, with the same libraries on the same device kind, computes
 * bitwise identical results. */
enum {
    GP_CHOICES_MAX = 1024,
    GP_CHOICE_WHAT_BYTES = 160,
    GP_CHOICE_HOW_BYTES = 40,
    GP_LIBRARIES_BYTES = 240
};

/* One recorded algorithm choice. */
typedef struct gp_choice {
    char what[GP_CHOICE_WHAT_BYTES]; /* operation and shape: "conv forward 256 x 64x56x56 ..." */
    /* algorithm, for example "whole 62-5d3aa1c0": "whole" if fused with the next operation,
     * otherwise "alone", then the engine */
    char how[GP_CHOICE_HOW_BYTES];
    double us; /* measured run time in microseconds; 0: not timed */
    bool used; /* some plan compiled with this tuning uses the choice */
} gp_choice;

/* Recorded choices and the time budget for further measurements. The caller owns it. */
typedef struct gp_tuning {
    /* [GP_CHOICES_MAX]; once full, further operations take the default and are not recorded */
    gp_choice *choices;
    uint32_t count;
    /* time budget for measurements; compile() subtracts the time used and exceeds it by at most one
     * engine */
    int64_t left_ns;
    const _Atomic uint32_t *stop; /* nonzero: stop measuring; NULL: only left_ns limits it */
    /* Counters of operations without a recorded choice: */
    uint32_t timed;   /* several candidates, measured */
    uint32_t untimed; /* several candidates, not measured because the time budget was used up */
    uint32_t unknown; /* recorded algorithm missing in this library version; the default is used */
} gp_tuning;

/* Settings of gp_backend_ops.open(). */
typedef struct gp_backend_options {
    uint32_t threads; /* compute threads, at least 1 */
    const int *cores; /* core to pin each thread to; NULL: no pinning */
    /* NULL: chosen by rule. Tests and benchmarks pass "lanes", "onednn", or an instruction set for
     * the lanes kernels ("baseline", "avx2", "avx512"). */
    const char *kernels;
    /* cache directory for compiled kernels, which take seconds to build; NULL: no cache */
    const char *compiled;
} gp_backend_options;

/* Settings of gp_backend_ops.compile(). */
typedef struct gp_plan_options {
    gp_phase phase;
    uint32_t micro_batch;  /* maximum sample count per call */
    gp_dtype sample_dtype; /* type of batch->samples: GP_U8 or GP_F32 */
    uint32_t threads;      /* compute threads per call; 0: all backend threads */
    /* Lowest precision allowed. Kernels that would not run faster in it compute in float32: small
     * networks, or processors without bf16 or tf32. The CPU backend rejects fp16
     * (GP_EUNSUPPORTED). */
    gp_precision precision;
    gp_tuning *tuning; /* NULL: take library defaults and record nothing */
} gp_plan_options;

/* Arguments of a custom loss function (GP_OP_CUSTOM_LOSS). The backend calls the function between
 * the forward and the backward pass. By default it passes all samples of a call at once, on the
 * thread that runs the plan. If the op allows parallel calls (number[0]), several threads each pass
 * a sample range. A parallel loss function must record failures itself, because the backend ignores
 * the return value. */
typedef struct gp_plan_loss_call {
    uint32_t first, count; /* samples [first, first + count) of the call */
    const float *scores;   /* [count, elements]: last layer's output */
    /* [count, elements], zero on entry: receives the gradient of the summed (not the mean) loss */
    float *gradient;
    double *sums; /* [GP_SUMS]: the function adds to these */
} gp_plan_loss_call;

/* Compute the loss and the gradient of the samples in `call`. */
typedef gp_status (*gp_plan_loss_fn)(void *context, const gp_plan_loss_call *call, gp_error *err);

struct gp_factor; /* defined in cpu/factors.h */

/* Memory that the caller owns and that outlives the plan. */
typedef struct gp_plan_memory {
    const float *parameters; /* parameter blob (layout: graph.h), read only */
    /* same layout, in the arena; TRAIN only. Entries of frozen layers may stay unwritten. */
    float *gradients;
    double *sums;         /* [GP_SUMS], in the arena */
    float *scores;        /* [micro_batch, graph->score_count]; INFER only; may be NULL */
    gp_plan_loss_fn loss; /* for networks that end in GP_OP_CUSTOM_LOSS; TRAIN only */
    void *loss_context;
    /* Weights whose gradient the plan stores as two factor matrices rather than their product. The
     * plan does not write the corresponding ranges of `gradients`. TRAIN only, and only for
     * backends that can rebind; the ops must be last in the op list (gp_graph_put_last). */
    const struct gp_factor *factors;
    uint32_t factor_count;
} gp_plan_memory;

/* Callback for synchronised batch norm: computes batch-norm moments over the samples on all ranks.
 * Every rank calls it once per batch norm and direction (forward, backward); a rank without samples
 * contributes zeros. */
typedef struct gp_coupling {
    /* [2 * channels of the widest batch norm + 1]: on entry the local sums, on return the global
     * sums */
    double *sums;
    /* Add sums[0, count) over all ranks. */
    gp_status (*reduce)(void *context, size_t count, gp_error *err);
    void *context;
} gp_coupling;

/* Samples and flags of one run() call. */
typedef struct gp_batch {
    const void *samples; /* [count, C, H, W], packed, as stored (before normalisation) */
    const void *targets; /* [count, graph->target_bytes]; NULL in INFER: leave the sums unchanged */
    /* 0 .. micro_batch. 0 with `first`: write zeros (a rank without samples) */
    uint32_t count;
    /* first call in the step: parameters may have changed, outputs are overwritten */
    bool first;
    /* INFER: the parameters are unchanged since the previous call, even if `first` is set */
    bool unchanged;
    bool last; /* last call in the step: gradients are final afterwards */
    /* TRAIN: the caller needs only sums and statistics; a backend may compute more */
    bool forward_only;
    /* TRAIN with GP_OP_CUSTOM_LOSS: backward pass for the samples of a
     * preceding forward_only call */
    bool backward_only;
    uint64_t seed, step; /* random seed and step number for dropout */
    uint64_t position;   /* index of samples[0] in the mini-batch of all ranks */
    /* Loss scale for fp16 training; 0 means 1. Activation gradients are multiplied by this
     * factor, parameter gradients are not. After the last call in a step, GP_SUM_BAD counts
     * parameter gradients that are not finite. If the device maintains the loss scale
     * (gp_resident_request), the total factor is the product of both. */
    double loss_scale;
    const gp_coupling *coupling; /* TRAIN; NULL: batch norm uses only the moments from this call */
} gp_batch;

/* Callback during the last call in a step, on the thread that runs the plan: gradients [0, count)
 * of the blob are final. */
typedef gp_status (*gp_ready_fn)(void *context, size_t count, gp_error *err);

/* Result of gp_backend_ops.take_times(). */
typedef struct gp_plan_times {
    int64_t forward_ns, backward_ns; /* wall time of all calls since the last take_times() */
} gp_plan_times;

/* Device-resident training: parameters, optimizer state and gradient exchange stay on the device.
 * After keep(), the host copies are out of date until fetch(). The host launches all calls of a
 * step. The last call all-reduces gradients and step header and then commits, that is, runs the
 * optimizer. reported() returns a step result; by then the next step may already be running. */
enum { GP_GROUP_ID_BYTES = 128 };

/* A parameter blob range. */
typedef struct gp_range {
    size_t first, count; /* float32 elements */
} gp_range;

/* Training data that the device caches if it fits, and then reads without the host. */
typedef struct gp_resident {
    const struct gp_sampler *sampler; /* sample order of each epoch */
    uint32_t count, patches;          /* stored samples; augmented samples drawn from each */
    /* bytes per stored sample and target */
    size_t sample_bytes, target_bytes;
    uint32_t channels, height, width; /* stored size */
    /* samples are bytes, and each call passes the augmentation draws */
    bool drawn;
    /* pixel value outside the stored image */
    float fill;
    /* Copy stored samples [first, first + count) and their targets to host memory. */
    gp_status (*read)(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                      gp_error *err);
    void *context;
} gp_resident;

/* Arguments of gp_backend_steps.keep(). */
typedef struct gp_resident_request {
    /* optimizer, hyperparameters and gradient clipping; must outlive the plan */
    const gp_train_options *options;
    const float *state; /* optimizer state, [state_blobs][blob_count]; copied by keep() */
    uint32_t state_blobs;
    uint64_t solved; /* optimizer steps so far */
    /* Initial loss scale for fp16 (applied to the mean loss), and the number of good steps since it
     * changed. The device updates both after each counted step (loss_scale_rule.h). 0: every call
     * passes a scale. */
    double loss_scale;
    uint32_t loss_scale_good;
    /* ranges to all-reduce, in the order in which the backward pass completes them; copied by
     * keep() */
    const gp_range *buckets;
    uint32_t bucket_count;
    const gp_resident *resident; /* NULL: calls pass their samples; must outlive the plan */
} gp_resident_request;

/* One call of a device-resident step. */
typedef struct gp_step_call {
    gp_batch batch; /* launch() copies samples and targets; both NULL if the data is resident */
    /* resident data: samples at positions [at, at + count) of the epoch's order */
    uint32_t epoch, at;
    /* resident and augmented data: [count]; copied by launch() */
    const struct gp_augment_draw *draws;
    /* Valid in the last call in a step: */
    double learn_rate;
    uint32_t samples; /* this rank's samples in the step, over all calls */
    bool stop, pause; /* this rank requests a stop or pause */
    /* the step has fewer samples than the first step of an epoch, so a rank may have fewer calls */
    bool shorter;
} gp_step_call;

/* Result of a device-resident step. */
typedef struct gp_step_reported {
    double sums[GP_SUMS], samples; /* sums over all ranks */
    double loss_scale;             /* loss scale used in this step; 0: none */
    bool stop, pause;              /* at least one rank requested a stop or pause */
    /* false: the loss of this or an earlier step is not finite, or the training was halted */
    bool counts;
    bool committed; /* the step counts and had samples: the parameters changed */
    /* exchange_ns: only the part that does not overlap with computation */
    int64_t forward_ns, backward_ns, exchange_ns, commit_ns;
} gp_step_reported;

/* Membership of a device communicator. */
typedef struct gp_group {
    uint8_t id[GP_GROUP_ID_BYTES]; /* from group_id(), the same on all ranks */
    uint32_t rank, world;
    /* Polled several times per millisecond while the device waits for peers. GP_OK: keep waiting.
     * Anything else: the wait is aborted with this error. */
    gp_status (*check)(void *context, gp_error *err);
    void *context;
} gp_group;

enum { GP_STEPS_AHEAD = 2 }; /* maximum number of launched steps whose result is pending */
enum { GP_READS_AHEAD = 2 }; /* maximum number of launched calls whose samples are still read */

/* Operations for device-resident training. All slots are required. */
typedef struct gp_backend_steps {
    /* Copy the training state to the device. *resident: the device caches the data as well. */
    gp_status (*make_resident)(gp_plan *plan, const gp_resident_request *keep, bool *resident, gp_error *err);
    /* Launch one call and return before it completes. After the last call in a step, the device
     * computes statistics, clips the gradients and runs the optimizer, either on all live ranks or
     * on none. */
    gp_status (*launch)(gp_plan *plan, const gp_step_call *call, gp_error *err);
    /* Page-lock the caller's memory. launch() does not copy samples and targets in this memory: the
     * device reads them later, while reading() counts the call. Replaces memory that was locked
     * before. The caller unlocks the memory (NULL) or frees the plan before it frees the memory. */
    gp_status (*lock)(gp_plan *plan, void *memory, size_t bytes, gp_error *err);
    /* Return how many of the latest launched calls still read samples in locked memory, at most
     * GP_READS_AHEAD. */
    uint32_t (*reading)(gp_plan *plan);
    /* Wait for the oldest pending step. Fails with the error of gp_group.check() or with a device
     * error; the caller must then call halt(). */
    gp_status (*reported)(gp_plan *plan, gp_step_reported *reported, gp_error *err);
    /* Stop launching and committing, and wait until the device is idle. reported() still returns
     * the pending steps; a step that counts was committed before the halt. If halt() fails, the
     * device state is lost. */
    gp_status (*halt)(gp_plan *plan, gp_error *err);
    /* Copy parameters and optimizer state to the host. No step may be pending. */
    gp_status (*fetch)(gp_plan *plan, float *parameters, float *state, gp_error *err);
    /* Create the id for a new rank group. GP_EUNSUPPORTED: the device cannot form one, for example
     * because two ranks share it. */
    gp_status (*group_id)(uint8_t id[GP_GROUP_ID_BYTES], gp_error *err);
    /* Join the group; all ranks must call this. */
    gp_status (*join)(gp_backend *backend, const gp_group *group, gp_error *err);
    /* Leave the group. No plan that keep() was called for may exist. */
    void (*leave)(gp_backend *backend);
} gp_backend_steps;

/* Pipelined prediction: the caller launches the next batch before it takes the previous scores.
 * Copies to and from the device then overlap with computation. Only for INFER plans; run() must not
 * be called while predictions are pending. */
enum { GP_PREDICTIONS_AHEAD = 2 }; /* maximum number of launched batches whose scores are pending */

/* Operations for pipelined prediction. All slots are required. */
typedef struct gp_backend_predictions {
    /* Copy samples and targets, start the computation and return before it completes. */
    gp_status (*launch)(gp_plan *plan, const gp_batch *batch, gp_error *err);
    /* Wait for the oldest pending batch. The plan's sums then include all batches up to this one.
     *   scores  scores of the batch, laid out as in gp_plan_memory; valid until the caller has
     *           launched GP_PREDICTIONS_AHEAD more batches
     * GP_ETIMEDOUT: the device took longer than a working device can. After a failed launch() or
     * take(), the caller must free the plan. */
    gp_status (*take)(gp_plan *plan, const float **scores, gp_error *err);
    /* Return the reason why a batch takes many launches rather than one captured graph. "": it
     * takes one, or the plan does not know yet. */
    const char *(*pieces)(const gp_plan *plan);
} gp_backend_predictions;

/* Function table of a backend. All slots except the last six are required. */
typedef struct gp_backend_ops {
    const char *name; /* "cpu", "cuda" */
    /* An open backend holds resources that other processes could use (a GPU context). A worker that
     * has it open without work asks to be replaced. */
    bool release_idle;
    gp_status (*open)(gp_backend **out, const gp_backend_options *options, gp_error *err);
    void (*close)(gp_backend *backend);
    /* Compile one graph phase and allocate all memory. */
    gp_status (*compile)(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                         const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err);
    void (*free)(gp_plan *plan);
    /* Execute one call. If `ready` is not NULL, call it whenever more gradients are final. */
    gp_status (*run)(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context, gp_error *err);
    /* Wait until everything started by run() is complete. */
    gp_status (*sync)(gp_backend *backend, gp_error *err);
    /* Return the times since the last call and reset them. */
    gp_plan_times (*take_times)(gp_plan *plan);
    size_t (*memory_bytes)(const gp_plan *plan);
    /* Describe which kernels run which ops, one line per segment ("lanes-avx2: conv1 .. loss, 24
     * ops"). */
    void (*describe)(const gp_plan *plan, char *text, size_t bytes);
    /* Use another parameter blob with the same layout from the next step on. Cheap; cannot fail.
     * NULL: plans always use the blob that they were compiled with. */
    void (*rebind)(gp_plan *plan, const float *parameters);
    /* Describe library versions and device kind on one line. Recorded choices are valid if this
     * line is the same. NULL: the backend has no choices to make. */
    gp_status (*libraries)(gp_backend *backend, char text[GP_LIBRARIES_BYTES], gp_error *err);
    /* Return the number of ops that no library executes although one was asked, so that slower
     * kernels execute them, and the library's error for the first of them. NULL: never any. */
    uint32_t (*missing)(const gp_plan *plan, const char **why);
    /* Return the memory of the device that all processes use, in bytes; 0: unknown. NULL: the
     * backend computes in host memory. */
    uint64_t (*device_memory)(gp_backend *backend);
    const gp_backend_steps *steps; /* NULL: the host commits and exchanges gradients */
    /* NULL: predictions use run(), one batch at a time */
    const gp_backend_predictions *predictions;
} gp_backend_ops;

extern const gp_backend_ops gp_backend_cpu;

/* Return a value's buffer after run(): dense, in the value's dtype, one row per sample. NULL: the
 * value has no separate memory. For debugging: with the kernels "lanes,split", every value that an
 * op reads has a buffer. */
const void *gp_cpu_peek(const gp_plan *plan, uint32_t value);

#endif
