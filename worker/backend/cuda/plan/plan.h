/* A compiled plan: a graph's ops as steps on a device. Private to this folder.
 *
 *   fuse.c    merges ops into one step
 *   place.c   assigns memory to values by lifetime
 *   lower*.c  converts an op to kernels, or to a library call with kernels before and after it
 *   choose.c  selects among the ways in which libraries can execute an op
 *   plan.c    compile and run
 *   profile.c  times of single steps, for benchmarks
 *   predict.c, resident.c  predictions and device-resident trainings
 *
 * A plan consists of steps, step sequences recorded as graphs, and device memory allocated after
 * lowering (step.h), device memory allocated before it (buffers.h), both from one heap,
 * and custom losses computed on the host (plan_custom_loss).
 *
 * Values that change from call to call are stored in device memory, because stretches are
 * replayed. */
#ifndef GP_CUDA_PLAN_H
#define GP_CUDA_PLAN_H

#include "worker/backend/cuda/plan/buffers.h"
#include "worker/backend/cuda/plan/step.h"

/* Operand positions of a fused op: scale, offset, mean and variance of a batch norm; the second
 * operand of an addition or the relu output; the pool's index among the outputs.
 * PLAN_INPUT_CHANNELS: the input's padded channel count. */
enum { PLAN_NORM = 3, PLAN_WITH = 7, PLAN_INDEX = 4, PLAN_INPUT_CHANNELS = 8 };

/* maximum chunk count of a sum */
enum { PLAN_CHUNKS_MAX = 512 };

/* A value's memory and lifetime. */
typedef struct plan_value {
    size_t offset, bytes; /* position in the arena; bytes 0: no separate memory */
    uint32_t first, last; /* first and last op that use the value */
    uint32_t root;        /* value whose memory this one shares; usually itself */
    int32_t narrow;       /* gp_narrow */
    /* one bit per element, set if it is above 0, written by a relu after batch norm; NULL: none */
    void *mask;
    /* the same mask in matrix product layout (gp_product_request); NULL: none */
    void *product_mask;
} plan_value;

/* Ops that are fused into an op (fuse.c). */
typedef struct plan_follow {
    bool taken; /* another op includes this one; nothing to do */
    bool norm;  /* an inference batch norm is folded into the weights */
    double epsilon;
    /* after the addition of in[PLAN_WITH], if present; in the batch norm backward pass: before
     * it */
    bool relu;
    bool pooled; /* batch norm: max pooling follows, with the index in out[PLAN_INDEX] */
    bool masked; /* backward pass: the result is 0 where in[PLAN_WITH] is not above 0 */
    /* conv: the batch norm op whose sums it computes, in the library or by a kernel; 0: none */
    uint32_t moments;
    double *sums;     /* the batch norm's sums, if the convolution computed them */
    uint32_t bias_of; /* backward pass of a pool: the conv op whose bias gradient it sums; 0: none */
    bool bias_summed; /* conv, gradient of the weights: another op computes that of the bias */
    bool mask_wanted; /* fc with relu: a product of the backward pass needs the mask bits */
} plan_follow;

/* A copy of weights in the order and type that a library needs. */
typedef struct plan_copy {
    const float *of;
    int32_t narrow;
    uint32_t stored; /* inputs including zero padding */
    bool same_order, normed;
    void *at;
} plan_copy;

/* An open device. */
struct gp_backend {
    gp_device *device;
    /* words of the `kernels` option, see backend.h */
    bool dense, packed, own, eager, tf32, fed, apart, moments, libraries;
};

/* Losses that the host computes (GP_OP_CUSTOM_LOSS): scores are downloaded and their gradient is
 * uploaded. */
typedef struct plan_custom_loss {
    bool present; /* the graph has such a loss: the host computes the step sums */
    /* host memory [bytes]; NULL: the graph has no such loss, or the plan is for inference */
    float *scores, *gradient;
    size_t bytes;
} plan_custom_loss;

/* Ops that no library executes although one was asked. */
typedef struct plan_missing {
    uint32_t count;
    char why[200]; /* error of the library for the first of them */
} plan_missing;

/* A compiled plan. */
struct gp_plan {
    gp_backend *backend;
    const gp_graph *graph;
    gp_plan_options options;
    gp_plan_memory memory; /* host memory */
    bool packed;           /* activation order: [H][W][C], otherwise [C][H][W] */
    bool tf32;             /* float32 products may be rounded to TF32 */
    int32_t narrow;        /* gp_narrow: type of activations and weight copies */
    bool spread_input;     /* input pixels are PLAN_INPUT_CHANNELS elements apart */
    gp_op *ops;            /* ops of the phase after fusion, as many as the graph has */
    plan_follow *follows;  /* per op */
    plan_value *values;    /* per graph value */
    plan_copy *copies;     /* at most one per op */
    uint32_t copy_count;
    /* run before the others if parameters may have changed: creates the weight copies */
    step_list prepare;
    step_list steps;
    stretch_table stretches; /* both lists divided into stretches; empty for inference */
    plan_heap heap;          /* all device memory of the plan, including resident.c and predict.c */
    plan_region arena;       /* activations */
    plan_region regions[REGIONS];
    plan_buffers buffers;
    plan_custom_loss custom_loss;
    gp_batch batch;                     /* current call */
    struct gp_resident_state *resident; /* resident.c; NULL: the host commits */
    struct gp_predict *predict;         /* predict.c; NULL: a plan for training */
    plan_missing missing;
    struct plan_profile *profile; /* profile.c; NULL: not profiled */
    gp_plan_times times;
};

/* Return whether calls launch steps one by one, without graphs. */
static inline bool gp_plan_eager(const gp_plan *plan)
{
    return plan->backend->eager || plan->profile != NULL;
}

/* Return whether one step at the end of a call adds to the gradients of all parameters. The
 * gradients are then complete at once, so the plan must be small: an exchange that starts during
 * the backward pass gains nothing, and memory for all of them is cheap. */
static inline bool gp_plan_gradients_wait(const gp_plan *plan)
{
    enum { PARAMETERS_MAX = 1 << 20 };

    return plan->options.phase == GP_PHASE_TRAIN && plan->graph->blob_count <= PARAMETERS_MAX &&
           !plan->backend->apart;
}

/* Fuse ops (fuse.c). */
gp_status gp_plan_fuse(gp_plan *plan, gp_error *err);

/* Assign memory to values (place.c). */
gp_status gp_plan_place(gp_plan *plan, gp_error *err);

/* Return a value's device address. */
void *gp_plan_data(const gp_plan *plan, uint32_t value);
/* Return a value as kernel image; data NULL: absent. */
gp_kernel_image gp_plan_image(const gp_plan *plan, uint32_t value);

/* Append steps after the backward pass that count gradients which are not finite (lower.c). */
gp_status gp_plan_lower_bad(gp_plan *plan, gp_error *err);

bool gp_plan_asks(gp_opcode code); /* Return true if the op uses a library where it has a plan. */

/* Append the steps of all ops, each lowered in the chosen way (choose.c). */
gp_status gp_plan_lower_all(gp_plan *plan, gp_error *err);

/* Return the arguments of the first step, which reads the samples in a call. */
gp_kernel_args *gp_plan_input(gp_plan *plan);

/* Return the call parameters for kernels. */
gp_kernel_call gp_plan_call(const gp_batch *batch);

/* Launch `count` steps of a list, starting at `first`. */
gp_status gp_plan_launch(gp_plan *plan, const step_list *list, uint32_t first, uint32_t count, gp_error *err);

/* End a recording. `status`: launch result; the recording ends even if the launches failed. */
gp_status gp_plan_recorded(gp_plan *plan, gp_device_graph **out, gp_status status, gp_error *err);

/* The backend of plan.c, for a CUDA device in the plugin or for the host implementation in tests.
 *
 * gp_backend_options.kernels, or GRADPOOL_CUDA_KERNELS if that is NULL, contains words separated by
 * commas:
 *   dense, packed   order of activations; by default the precision determines it
 *   own             use neither cuDNN nor cuBLASLt
 *   eager           launch steps one by one, without graphs
 *   fed             feed data from the host even if it would fit on the device
 *   apart           do not fuse ops
 *   libraries       use cuDNN also where a kernel of this backend is the default
 *   tf32            round products of float32 to TF32 */
extern const gp_backend_ops gp_backend_cuda;

#endif
