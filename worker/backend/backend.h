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

#include "common/base/error.h"
#include "common/model/graph.h"
#include "common/model/train_options.h"

typedef struct gp_backend gp_backend;
typedef struct gp_plan gp_plan;

typedef struct gp_backend_options {
    uint32_t threads;    /* compute threads, >= 1 */
    const int *cores;    /* core per thread to pin to, or NULL: do not pin */
    const char *kernels; /* NULL = chosen by rule; "lanes", "onednn", or an instruction set of the lanes
                          * kernels ("baseline", "avx2", "avx512"): for tests and benchmarks */
} gp_backend_options;

typedef struct gp_plan_options {
    gp_phase phase;
    uint32_t micro_batch;  /* samples per call, at most */
    gp_dtype sample_dtype; /* of batch->samples: GP_U8 or GP_F32 */
    uint32_t threads;      /* that a call is computed by; 0 = all of the backend's */
    /* At least: kernels that are no faster in less (small networks, a processor without bf16) compute in float32. */
    gp_precision precision;
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
    uint64_t seed, step;         /* of dropout */
    uint64_t position;           /* of samples[0] in the global batch */
    const gp_coupling *coupling; /* TRAIN; NULL: batch norm's moments are those of this call */
} gp_batch;

/* Told on the last call, from the driving thread: gradients [0, count) of the blob are final. */
typedef gp_status (*gp_ready_fn)(void *context, size_t count, gp_error *err);

typedef struct gp_plan_times {
    int64_t forward_ns, backward_ns; /* wall time of the calls since the last take_times() */
} gp_plan_times;

/* A training whose parameters, solver's state and exchange stay on the device.  The host's blobs are what they were at
 * keep() until fetch().  One step: run() of its calls, reduce(), then commit() unless the sums say otherwise. */
enum { GP_GROUP_ID_BYTES = 128 };

typedef struct gp_keep {
    const gp_train_options *options; /* solver, its numbers, clipping; must outlive the plan */
    const float *state;              /* [state_blobs][blob_count], read now */
    uint32_t state_blobs;
} gp_keep;

typedef struct gp_group {
    uint8_t id[GP_GROUP_ID_BYTES]; /* of group_id(), the same on all ranks */
    uint32_t rank, world;
    /* Asked while the device waits for peers, some times a millisecond: true ends the wait with GP_ECANCELED. */
    bool (*stopped)(void *context);
    void *context;
} gp_group;

typedef struct gp_backend_steps { /* all slots required */
    gp_status (*keep)(gp_plan *plan, const gp_keep *keep, gp_error *err);
    /* Gradients and sums of all ranks are added up; waits.  sums [GP_SUMS + 1]: the last is the samples, ours on entry. */
    gp_status (*reduce)(gp_plan *plan, double *sums, gp_error *err);
    /* Statistics, clipping, the solver's step t (from 1) with that rate; returns before it is done. */
    gp_status (*commit)(gp_plan *plan, double learn_rate, uint64_t t, gp_error *err);
    gp_status (*fetch)(gp_plan *plan, float *parameters, float *state, gp_error *err);
    /* Ranks that add up.  GP_EUNSUPPORTED: this device cannot, such as two ranks on one. */
    gp_status (*group_id)(uint8_t id[GP_GROUP_ID_BYTES], gp_error *err);
    gp_status (*join)(gp_backend *backend, const gp_group *group, gp_error *err);
    void (*leave)(gp_backend *backend); /* no plan that was recorded may run after it */
} gp_backend_steps;

typedef struct gp_backend_ops { /* all slots but steps and rebind required */
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
    const gp_backend_steps *steps; /* NULL: the host commits and exchanges */
} gp_backend_ops;

extern const gp_backend_ops gp_backend_cpu;

/* Where a value of a CPU plan stands after run(): dense, its dtype, a row for each sample; NULL where it has no memory
 * of its own.  For diagnosis: with the kernels "lanes,split" every value that is read again has one. */
const void *gp_cpu_peek(const gp_plan *plan, uint32_t value);

#endif
