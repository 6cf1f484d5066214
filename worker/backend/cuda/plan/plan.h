/* plan.h -- a graph's ops as steps on a device.  Private to this folder.
 *
 *   fuse.c    which ops one step does together
 *   place.c   which values lie where, from when each is alive
 *   lower*.c  an op becomes one to four kernels, or a library's convolution or product with own kernels around it
 *   choose.c  of several ways in which libraries do that, which
 *   plan.c    compile and run
 *   predict.c, keep.c  predictions and trainings that stay on the device
 *
 * Parts of a plan, each with a header: steps (step.h), runs of them (stretch.h), device memory that is known before
 * lowering (buffers.h) and after it (region.h), where it comes from (heap.h), and losses of the host (own_loss.h).
 *
 * What changes from call to call lies in device memory, because stretches are replayed. */
#ifndef GP_CUDA_PLAN_H
#define GP_CUDA_PLAN_H

#include "worker/backend/cuda/plan/buffers.h"
#include "worker/backend/cuda/plan/own_loss.h"
#include "worker/backend/cuda/plan/stretch.h"

/* Where a fused op has what the ops that it took read: scale, offset, mean and variance of a batch norm, and the second
 * operand of a sum or the output of a ReLU; and a pool's index among the outputs. */
enum { PLAN_NORM = 3, PLAN_WITH = 7, PLAN_INDEX = 4, PLAN_INPUT_CHANNELS = 8 };

enum { PLAN_CHUNKS_MAX = 512 };

typedef struct plan_value {
    size_t offset, bytes; /* in the arena; bytes 0: none of its own */
    uint32_t first, last; /* ops between which it is alive */
    uint32_t root;        /* the value whose memory it shares; itself, mostly */
    int32_t narrow;       /* gp_narrow */
    void *mask; /* a bit for each number, set where it is above 0, written by a ReLU of batch norm; or NULL */
    void *product_mask; /* the same as a matrix product writes it (gp_product_request); or NULL */
} plan_value;

/* What an op does besides itself (fuse.c). */
typedef struct plan_follow {
    bool taken; /* nothing: another does it */
    bool norm;  /* batch norm of inference in its weights, with: */
    double epsilon;
    bool relu;   /* after what is added, in[PLAN_WITH], if it is there; of batch norm's way back: before it */
    bool pooled; /* batch norm: then max pooling, with the index in out[PLAN_INDEX] */
    bool masked; /* of the way back: 0 where in[PLAN_WITH] is not above 0 */
    uint32_t
        moments;  /* conv: the batch norm whose sums it leaves, by itself or by a kernel behind it; 0: none */
    double *sums; /* and of that: where they are, if the convolution has left them */
    bool mask_wanted; /* fc, relu: some product on the way back wants to know where y is above 0 */
} plan_follow;

/* Weights in the order and type of a library. */
typedef struct plan_copy {
    const float *of;
    int32_t narrow;
    uint32_t stored; /* inputs, with those that are zeros */
    bool same_order, normed;
    void *at;
} plan_copy;

struct gp_backend {
    gp_device *device;
    bool dense, packed, own, eager, tf32, fed, apart, moments; /* words of `kernels` (backend.h) */
};

struct gp_plan {
    gp_backend *backend;
    const gp_graph *graph;
    gp_plan_options options;
    gp_plan_memory memory; /* of the host */
    bool packed;           /* the order of activations: [H][W][C], else [C][H][W] */
    bool tf32;             /* products of float32 may be rounded to TF32 */
    int32_t narrow;        /* gp_narrow: of activations and of weights' copies */
    bool spread_input;     /* the input's pixels are PLAN_INPUT_CHANNELS apart */
    gp_op *ops;            /* of the phase, as they are run; as many as the graph has */
    plan_follow *follows;  /* of each op */
    plan_value *values;    /* of each value of the graph */
    plan_copy *copies;     /* at most one for each op */
    uint32_t copy_count;
    step_list prepare; /* run when parameters may have changed, before the others: copies of weights */
    step_list steps;
    stretch_table stretches; /* of both lists; empty: a plan for inference */
    plan_heap heap;          /* all device memory of the plan, of keep.c and of predict.c */
    plan_region arena;       /* of activations */
    plan_region regions[REGIONS];
    plan_buffers buffers;
    plan_own_loss own_loss;
    gp_batch batch;             /* of the present run */
    struct gp_kept *kept;       /* keep.c; NULL: the host commits */
    struct gp_predict *predict; /* predict.c; NULL: a plan for training */
    gp_plan_times times;
};

/* fuse.c */
gp_status gp_plan_fuse(gp_plan *plan, gp_error *err);

/* place.c */
gp_status gp_plan_place(gp_plan *plan, gp_error *err);
void *gp_plan_data(const gp_plan *plan, uint32_t value);
gp_kernel_image gp_plan_image(const gp_plan *plan, uint32_t value); /* data NULL: absent */

/* lower.c: behind all ops, at the end of the way back: count gradients that are not finite. */
gp_status gp_plan_lower_bad(gp_plan *plan, gp_error *err);
bool gp_plan_can(gp_opcode code);
bool gp_plan_asks(gp_opcode code); /* a library, where it has a plan */

/* choose.c: append the steps of all ops, each lowered in the way that was chosen. */
gp_status gp_plan_lower_all(gp_plan *plan, gp_error *err);

/* plan.c */
/* Return the arguments of the first step, which reads the samples of a call. */
gp_kernel_args *gp_plan_input(gp_plan *plan);
/* Return what kernels are given of a call. */
gp_kernel_call gp_plan_call(const gp_batch *batch);
/* Launch `count` steps of a list, from `first` on. */
gp_status gp_plan_launch(gp_plan *plan, const step_list *list, uint32_t first, uint32_t count, gp_error *err);
/* End a recording.  status: of what was launched into it; the recording ends even if that failed. */
gp_status gp_plan_recorded(gp_plan *plan, gp_device_graph **out, gp_status status, gp_error *err);

#endif
