/* backend.h -- a device is one vtable.
 *
 * graph -> compile -> plan -> run, run, ... .  A plan is built for a micro-batch shape and a phase; a rank
 * runs its share of a batch as several calls plus one tail call, accumulating into the exchange arena.
 * Samples of a micro-batch beyond batch->count have weight 0: they are computed or skipped, but reach no
 * gradient, loss or metric.  So accumulation, shrinking groups and memory limits are one mechanism.
 *
 * All memory is taken by compile(); run() allocates nothing.  One thread at a time drives a backend. */
#ifndef GP_BACKEND_H
#define GP_BACKEND_H

#include <stdatomic.h>

#include "common/base/error.h"
#include "common/model/graph/graph.h"
#include "common/model/train_options.h"

typedef struct gp_backend gp_backend;
typedef struct gp_plan gp_plan;

/* Libraries can compute the same thing in several ways; which of them plans take is a choice.  A compile() with a tuning takes
 * those of its choices that are of what it computes, times what else there is while time is left, and leaves the rest to the rule:
 * the libraries' own order.  What was taken is among the choices then, so a plan that is made with these and no time,
 * by the same libraries on the same kind of device, computes the same bits. */
enum {
    GP_CHOICES_MAX = 1024,
    GP_CHOICE_WHAT_BYTES = 160,
    GP_CHOICE_HOW_BYTES = 40,
    GP_LIBRARIES_BYTES = 240
};

typedef struct gp_choice {
    char what[GP_CHOICE_WHAT_BYTES]; /* is computed: "conv forward 256 x 64x56x56 ..." */
    char how[GP_CHOICE_HOW_BYTES];   /* "whole 62-5d3aa1c0": with what follows, or "alone"; then the engine */
    double us;                       /* that it took; 0: it was not timed */
    bool used;                       /* by plans that were compiled with this tuning */
} gp_choice;

typedef struct gp_tuning {
    gp_choice *choices; /* [GP_CHOICES_MAX]; when all are there, the rest is by rule and not noted */
    uint32_t count;
    int64_t left_ns; /* for timing; compile() takes off what it used, and ends one engine late at most */
    const _Atomic uint32_t *stop; /* not 0: nothing more is timed; NULL: only the time counts */
    /* Told, of what was not known: */
    uint32_t timed;   /* had more than one way, and were timed */
    uint32_t untimed; /* would have been, but for the time */
    uint32_t unknown; /* known, but in a way that the library does not have here: by rule */
} gp_tuning;

typedef struct gp_backend_options {
    uint32_t threads;     /* compute threads, >= 1 */
    const int *cores;     /* core per thread to pin to, or NULL: do not pin */
    const char *kernels;  /* NULL = chosen by rule; "lanes", "onednn", or an instruction set of the lanes
                          * kernels ("baseline", "avx2", "avx512"): for tests and benchmarks */
    const char *compiled; /* a directory for what takes seconds to compile, or NULL: nothing is kept */
} gp_backend_options;

typedef struct gp_plan_options {
    gp_phase phase;
    uint32_t micro_batch;  /* samples per call, at most */
    gp_dtype sample_dtype; /* of batch->samples: GP_U8 or GP_F32 */
    uint32_t threads;      /* that a call is computed by; 0 = all of the backend's */
    /* At least: kernels that are no faster in less (small networks, a processor without bf16 or tf32) compute in float32.
     * The CPU refuses fp16 (GP_EUNSUPPORTED). */
    gp_precision precision;
    gp_tuning *tuning; /* NULL: by rule, nothing is noted */
} gp_plan_options;

/* A loss that is not the network's (GP_OP_OWN_LOSS), called between the passes of some samples of a call: of all at once
 * on the driving thread, or, where the op says that it may be (number[0]), of parts on several threads.  Such a one keeps
 * its failures to itself: nobody looks at what it returns. */
typedef struct gp_plan_loss_call {
    uint32_t first, count; /* samples [first, first + count) of the call */
    const float *scores;   /* [count, elements]: what the last layer gave */
    float *gradient;       /* the same, zero at first: of the SUM of the losses */
    double *sums;          /* [GP_SUMS], to be added to */
} gp_plan_loss_call;

typedef gp_status (*gp_plan_loss_fn)(void *context, const gp_plan_loss_call *call, gp_error *err);

struct gp_factor; /* cpu/factors.h */

/* Memory that outlives the plan and belongs to the caller. */
typedef struct gp_plan_memory {
    const float *parameters; /* the blob (graph.h), read */
    float *gradients;     /* the same layout, in the arena; TRAIN only.  Frozen layers' may stay untouched */
    double *sums;         /* [GP_SUMS], in the arena */
    float *scores;        /* [micro_batch, graph->score_count]; INFER only; may be NULL */
    gp_plan_loss_fn loss; /* of networks that end in GP_OP_OWN_LOSS; TRAIN only */
    void *loss_context;
    /* Weights whose gradient the plan leaves to the caller as what it is the product of: their place in `gradients` stays
     * untouched.  TRAIN only, of backends that can rebind; their ops stand last (gp_graph_put_last). */
    const struct gp_factor *factors;
    uint32_t factor_count;
} gp_plan_memory;

/* How the moments of batch norm become those of all ranks' samples (synchronised batch norm): every rank comes to each
 * batch norm once forward and once backward, one without samples with zeros. */
typedef struct gp_coupling {
    double *sums; /* [2 * channels of the widest batch norm + 1]: ours on entry, of all ranks on return */
    gp_status (*reduce)(void *context, size_t count,
                        gp_error *err); /* adds sums[0, count) up over the ranks */
    void *context;
} gp_coupling;

typedef struct gp_batch {
    const void *samples; /* [count, C, H, W] packed, stored values (before normalisation) */
    const void *targets; /* [count, graph->target_bytes]; NULL in INFER: sums are not touched */
    uint32_t count;      /* 0 .. micro_batch; 0 with first = write zeros (a rank without samples) */
    bool first;          /* first call of the step: parameters may have changed, outputs are overwritten */
    bool unchanged;      /* INFER: parameters are those of the call before, even in a first call */
    bool last;           /* last call of the step: gradients are final afterwards */
    bool forward_only;  /* TRAIN: of the outputs only sums and statistics are wanted; a backend may do more */
    bool backward_only; /* TRAIN, GP_OP_OWN_LOSS: goes on behind a call that was forward_only, same samples */
    uint64_t seed, step; /* of dropout */
    uint64_t position;   /* of samples[0] in the global batch */
    /* TRAIN in fp16: gradients of activations are of a loss so many times as large, those of parameters are as ever; where one
     * of these is not finite, GP_SUM_BAD says so behind the step's last call.  0 is 1.  Of a training that stays on a device which
     * keeps the scale (gp_keep): times that one. */
    double loss_scale;
    const gp_coupling *coupling; /* TRAIN; NULL: batch norm's moments are those of this call */
} gp_batch;

/* Told on the last call, from the driving thread: gradients [0, count) of the blob are final. */
typedef gp_status (*gp_ready_fn)(void *context, size_t count, gp_error *err);

typedef struct gp_plan_times {
    int64_t forward_ns, backward_ns; /* wall time of the calls since the last take_times() */
} gp_plan_times;

/* A training whose parameters, solver's state and exchange stay on the device.  The host's blobs are what they were at
 * keep() until fetch().  One step: launch() of its calls, of which the last sums gradients and header over the ranks and
 * commits; what became of it is asked of told(), when the next step may be under way already. */
enum { GP_GROUP_ID_BYTES = 128 };

typedef struct gp_range {
    size_t first, count; /* float32 elements of the blob */
} gp_range;

/* Training data that the device may hold, if they fit, and take its samples from by itself. */
typedef struct gp_resident {
    const struct gp_sampler *sampler; /* the order of the samples of an epoch */
    uint32_t count, patches;          /* stored samples; samples that are drawn of each */
    size_t sample_bytes, target_bytes;
    uint32_t channels, height, width; /* as stored */
    bool drawn;                       /* bytes, and each call brings what was drawn for its samples */
    float fill;
    gp_status (*read)(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                      gp_error *err);
    void *context;
} gp_resident;

typedef struct gp_keep {
    const gp_train_options *options; /* solver, its numbers, clipping; must outlive the plan */
    const float *state;              /* [state_blobs][blob_count], read now */
    uint32_t state_blobs;
    uint64_t solved; /* steps of the solver so far */
    /* In fp16: the scale of the mean loss, which moves by the options' rule (worker/backend/loss_scale_rule.h) behind each step that counts, and
     * how many good ones it has had.  0: calls bring their own. */
    double loss_scale;
    uint32_t loss_scale_good;
    const gp_range *buckets; /* what the ranks add up, in the order in which it is complete; read now */
    uint32_t bucket_count;
    const gp_resident *resident; /* NULL: calls bring their samples; must outlive the plan */
} gp_keep;

typedef struct gp_step_call {
    gp_batch batch;                      /* samples and targets are copied; NULL where they are resident */
    uint32_t epoch, at;                  /* resident: positions [at, at + count) of that epoch's order */
    const struct gp_augment_draw *draws; /* resident and drawn: [count], copied */
    /* Of the last call of a step: */
    double learn_rate;
    uint32_t samples; /* of all its calls */
    bool stop, pause; /* this rank was asked to */
} gp_step_call;

typedef struct gp_step_told {
    double sums[GP_SUMS], samples; /* of all ranks */
    double loss_scale;             /* that the device kept for it; 0: none */
    bool stop, pause;              /* some rank was asked to */
    bool counts;    /* false: its loss is no number, or a step's before it was; or it was halted */
    bool committed; /* and it had weight: parameters moved */
    int64_t forward_ns, backward_ns, exchange_ns, commit_ns; /* exchange: as far as nothing hides it */
} gp_step_told;

typedef struct gp_group {
    uint8_t id[GP_GROUP_ID_BYTES]; /* of group_id(), the same on all ranks */
    uint32_t rank, world;
    /* Asked while the device waits for peers, some times a millisecond: GP_OK, or why waiting is in vain. */
    gp_status (*check)(void *context, gp_error *err);
    void *context;
} gp_group;

enum { GP_STEPS_AHEAD = 2 }; /* launched, and not yet asked for */

typedef struct gp_backend_steps { /* all slots required */
    /* *resident: the device holds the data. */
    gp_status (*keep)(gp_plan *plan, const gp_keep *keep, bool *resident, gp_error *err);
    /* Returns before it is done.  Statistics, clipping and the solver's step come behind the last call, on all ranks or
     * on none that lives. */
    gp_status (*launch)(gp_plan *plan, const gp_step_call *call, gp_error *err);
    /* Waits for the oldest step that was not told of.  Fails with what check() said, or with what is wrong with the
     * device: then comes halt(). */
    gp_status (*told)(gp_plan *plan, gp_step_told *told, gp_error *err);
    /* Nothing more is launched or committed, and the device is at rest.  told() has the steps under way still: those that
     * count were committed before.  On failure the device's state is lost. */
    gp_status (*halt)(gp_plan *plan, gp_error *err);
    /* With no step under way. */
    gp_status (*fetch)(gp_plan *plan, float *parameters, float *state, gp_error *err);
    /* Ranks that add up.  GP_EUNSUPPORTED: this device cannot, such as two ranks on one. */
    gp_status (*group_id)(uint8_t id[GP_GROUP_ID_BYTES], gp_error *err);
    gp_status (*join)(gp_backend *backend, const gp_group *group, gp_error *err);
    void (*leave)(gp_backend *backend); /* when plans that were kept in it are freed, or none was kept */
} gp_backend_steps;

/* Predictions of which the next is launched before the answers of the one before are looked at: its samples travel, and the
 * answers of the one before, while the device computes.  Of plans for INFER; not mixed with run() while some are under way. */
enum { GP_PREDICTIONS_AHEAD = 2 }; /* launched, and not yet taken */

typedef struct gp_backend_predictions { /* all slots required */
    /* Samples and targets are copied; returns before it is done. */
    gp_status (*launch)(gp_plan *plan, const gp_batch *batch, gp_error *err);
    /* Waits for the oldest that was not taken, GP_ETIMEDOUT: for longer than a device that is well takes.  *scores: of its samples, as gp_plan_memory has them, until that many more
     * were launched; the plan's sums are those up to it.  After a failure of either, all that is left is free(). */
    gp_status (*take)(gp_plan *plan, const float **scores, gp_error *err);
    /* Why each is many launches instead of one; "" where it is one, or nobody knows yet. */
    const char *(*pieces)(const gp_plan *plan);
} gp_backend_predictions;

typedef struct gp_backend_ops { /* all slots but the last four required */
    const char *name;           /* "cpu", "cuda" */
    bool
        cools; /* open, it holds what others could use (a context on a GPU): a worker without work closes it */
    gp_status (*open)(gp_backend **out, const gp_backend_options *options, gp_error *err);
    void (*close)(gp_backend *backend);
    /* The longest run starting at ops[0] that this backend runs as one segment; 0 if it cannot run ops[0]. */
    size_t (*claim)(gp_backend *backend, const gp_graph *graph, const gp_op *ops, size_t count);
    gp_status (*compile)(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                         const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err);
    void (*free)(gp_plan *plan);
    gp_status (*run)(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context, gp_error *err);
    gp_status (*sync)(gp_backend *backend, gp_error *err); /* all that run() started is done */
    gp_plan_times (*take_times)(gp_plan *plan);
    size_t (*memory_bytes)(const gp_plan *plan);
    /* What runs where, one line per segment ("lanes-avx2: conv1 .. loss, 24 ops"), into text. */
    void (*describe)(const gp_plan *plan, char *text, size_t bytes);
    /* The parameters lie elsewhere from the next step on, another blob of the same layout.  Cheap; cannot fail.  NULL: plans
     * keep to the blob that they were compiled for. */
    void (*rebind)(gp_plan *plan, const float *parameters);
    /* Versions of the libraries and the kind of device, on one line: choices are good where it is the same.  NULL: there
     * is nothing to choose. */
    gp_status (*libraries)(gp_backend *backend, char text[GP_LIBRARIES_BYTES], gp_error *err);
    const gp_backend_steps *steps;             /* NULL: the host commits and exchanges */
    const gp_backend_predictions *predictions; /* NULL: run() one by one */
} gp_backend_ops;

extern const gp_backend_ops gp_backend_cpu;

/* Where a value of a CPU plan stands after run(): dense, its dtype, a row for each sample; NULL where it has no memory
 * of its own.  For diagnosis: with the kernels "lanes,split" every value that is read again has one. */
const void *gp_cpu_peek(const gp_plan *plan, uint32_t value);

#endif
