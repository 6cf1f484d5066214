/* plan.h -- a graph's ops as steps on a device.  Private to this folder.
 *
 *   fuse.c    which ops one step does together
 *   place.c   which values lie where, from when each is alive
 *   lower*.c  an op becomes one to four kernels, or a library's convolution or product with own kernels around it
 *   choose.c  of several ways in which libraries do that, which
 *   plan.c    compile and run
 *   predict.c, keep.c  predictions and trainings that stay on the device
 *
 * Steps form stretches: forward, backward, and what lies between losses that the host computes.  A stretch is recorded
 * as a graph in its first run and replayed from then on; what changes from call to call lies in device memory. */
#ifndef GP_CUDA_PLAN_H
#define GP_CUDA_PLAN_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/libraries/device.h"

/* Where a fused op has what the ops that it took read: scale, offset, mean and variance of a batch norm, and the second
 * operand of a sum or the output of a ReLU; and a pool's index among the outputs. */
enum { PLAN_NORM = 3, PLAN_WITH = 7, PLAN_INDEX = 4, PLAN_INPUT_CHANNELS = 8 };

/* The sums of a plan: GP_SUMS, then the header of a step that is committed on the device: samples, stop, pause. */
enum { PLAN_STRETCHES = 8, PLAN_SUMS = GP_SUMS + 3, PLAN_CHUNKS_MAX = 512, PLAN_WORKSPACE_MAX = 1 << 30 };

typedef enum step_kind {
    STEP_KERNEL,
    STEP_CONV,
    STEP_PRODUCT,
    STEP_COUPLE,   /* the host adds d[1] up over the ranks, where batch norm is synchronised */
    STEP_OWN_LOSS, /* the host computes a loss; always a stretch by itself */
} step_kind;

typedef struct step {
    step_kind kind;
    gp_kernel kernel;
    gp_kernel_args args; /* of a kernel */
    uint32_t count;
    gp_device_work *work; /* owned; of a library, with its operands: */
    gp_device_operands at;
    double *sums; /* of COUPLE: [doubles] */
    size_t doubles;
    uint32_t op;
} step;

typedef struct stretch {
    const step *steps;
    uint32_t first, count; /* of these */
    bool forward;
    bool after_loss;        /* forward, but behind a loss of the host's: it prepares the way back */
    bool warm;              /* ran once */
    gp_device_graph *graph; /* NULL: not recorded yet */
} stretch;

typedef struct plan_value {
    size_t offset, bytes; /* in the arena; bytes 0: none of its own */
    uint32_t first, last; /* ops between which it is alive */
    uint32_t root;        /* the value whose memory it shares; itself, mostly */
    int32_t narrow;       /* gp_narrow */
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

/* What one op asks of a library, while it is lowered (choose.c). */
enum { PLAN_WAYS_MAX = 12 };

typedef struct plan_way {
    char how[GP_CHOICE_HOW_BYTES];
    bool compiled;
} plan_way;

typedef struct plan_site {
    char what[GP_CHOICE_WHAT_BYTES]; /* "": nothing was asked */
    const char *how;                 /* it shall be done so; NULL: by rule */
    bool known;                      /* `how` is from a choice of the tuning */
    bool refused;                    /* the library has not that engine: it was by rule */
    bool whole;                      /* what was granted does what follows as well */
    bool listing;                    /* `ways` is wanted */
    plan_way ways[PLAN_WAYS_MAX];
    uint32_t way_count;
} plan_site;

struct gp_backend {
    gp_device *device;
    bool dense, packed, own, eager, tf32, fed, apart, moments; /* words of `kernels` (backend.h) */
};

struct gp_plan {
    gp_backend *backend;
    const gp_graph *graph;
    gp_plan_options options;
    gp_plan_memory memory; /* of the host */
    bool packed;
    bool tf32;
    int32_t narrow; /* gp_narrow: of activations and of weights' copies */
    bool eager;     /* never recorded */
    gp_op *ops;     /* of the phase, as they are run */
    plan_follow *follows;
    bool spread_input; /* its pixels are PLAN_INPUT_CHANNELS apart */
    plan_value *values;
    void **
        masks; /* of values: a bit for each number, set where it is above 0, as batch norm's ReLU or a product wrote it */
    void **product_masks; /* the same of products, as device.h has them */
    plan_copy *copies;
    uint32_t copy_count, copy_capacity;
    /* Run when parameters may have changed, before the others: copies of weights, which last till then. */
    step *prepare;
    uint32_t prepare_count, prepare_capacity;
    step *steps;
    uint32_t step_count, step_capacity;
    stretch preparation;
    stretch stretches[PLAN_STRETCHES];
    uint32_t stretch_count;
    /* Device memory.  One arena; the rest is by itself. */
    char *arena, *scratch, *lasting, *workspace;
    size_t arena_bytes, scratch_bytes, lasting_bytes, workspace_bytes;
    size_t taken_bytes;
    void *samples;
    void *targets;
    float *scores, *parameters, *gradients, *class_weights;
    double *sums;
    gp_kernel_call *call;
    float *host_scores, *host_gradient; /* of a loss that the host computes */
    size_t host_bytes;
    gp_batch batch; /* of the present run */
    bool sums_on_host;
    plan_site site;
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

/* lower.c: appends the steps of op `index`; scratch_bytes and workspace_bytes grow to what they need. */
gp_status gp_plan_lower(gp_plan *plan, uint32_t index, gp_error *err);
/* Behind all ops, at the end of the way back: gradients that are not finite are counted. */
gp_status gp_plan_lower_bad(gp_plan *plan, gp_error *err);
bool gp_plan_can(gp_opcode code);
bool gp_plan_asks(gp_opcode code); /* a library, where it has a plan */

/* choose.c: appends the steps of all ops, each lowered in the way that was chosen. */
gp_status gp_plan_lower_all(gp_plan *plan, gp_error *err);

/* plan.c */
/* One more block, counted; its address is stored at `out`. */
gp_status gp_plan_take(gp_plan *plan, void *out, size_t bytes, gp_error *err);
gp_kernel_call gp_plan_call(const gp_plan *plan, const gp_batch *batch);
gp_status gp_plan_step_run(gp_plan *plan, const step *s, gp_error *err);
/* Its pointers into scratch and what lasts become addresses: those that the plan has now. */
void gp_plan_step_move(const gp_plan *plan, step *s);
/* Ends a recording that was begun, whatever became of it: status of what was launched into it. */
gp_status gp_plan_recorded(gp_plan *plan, gp_device_graph **out, gp_status status, gp_error *err);

#endif
