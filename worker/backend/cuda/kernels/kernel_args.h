/* kernel_args.h -- what a kernel is given: one struct for all of them, by value, so that a step is a name, a struct and
 * a number of work items.  Read by C, by CUDA and by the host that stands in for a device in tests. */
#ifndef GP_CUDA_KERNEL_ARGS_H
#define GP_CUDA_KERNEL_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "worker/backend/loss_scale_rule.h"

enum { GP_KERNEL_IMAGES = 8, GP_KERNEL_FLOATS = 8, GP_KERNEL_RATES = 16 };

typedef enum gp_narrow { GP_WIDE, GP_NARROW_BF16, GP_NARROW_F16 } gp_narrow;

/* An activation: samples of channels of pixels.  Dense is [C][H][W], packed [H][W][C]; a vector's elements are channels
 * of one pixel, which is both.  Memory order is the order of work items, so that neighbours write neighbours. */
typedef struct gp_kernel_image {
    void *data; /* NULL: absent */
    uint32_t channels, height, width, pixels;
    uint32_t channel_stride, pixel_stride, sample; /* elements */
    int32_t narrow;                                /* gp_narrow: of 2 bytes instead of float32 */
} gp_kernel_image;

/* What changes from call to call, in device memory: a captured graph reads it anew. */
typedef struct gp_kernel_call {
    uint64_t seed;
    uint32_t step, position;
    uint32_t count;   /* samples; rows beyond have gradients of zero and are in no sum */
    uint32_t first;   /* gradients are overwritten, not added to */
    uint32_t last;    /* gradients are final after it */
    uint32_t targets; /* there are some */
    /* Of losses' gradients, and so of all but those of parameters: these are times unscale.  As it comes from the host it is times the
     * scale that the device keeps. */
    float scale;
    float unscale;
    /* Of a training that stays on the device; the last four of the last call of a step. */
    uint32_t slot;      /* of the input that has it */
    uint32_t epoch, at; /* resident data: samples are those from position `at` of that epoch on */
    uint32_t samples;   /* of the step, on this rank */
    uint32_t stop, pause;
    float learn_rate;
} gp_kernel_call;

/* Numbers of the optimiser. */
typedef struct gp_kernel_rule {
    double threshold;                      /* of clipping, of the mean gradient */
    double wide_decay, wide_squared_decay; /* what corrections are made of */
    float learn_rate, momentum, decay, squared_decay, epsilon, correction, squared_correction;
    float l2;
    gp_loss_scale_rule loss_scale;
} gp_kernel_rule;

/* Of a training that stays on the device: what its steps hand on, in device memory. */
typedef struct gp_kernel_kept {
    gp_kernel_rule rule;
    uint64_t calls;  /* begun: the slots take turns */
    uint64_t steps;  /* ended, whatever became of them */
    uint64_t solved; /* of them, those that moved the parameters */
    uint32_t counts; /* this step does, although its weight may be 0 */
    uint32_t commit; /* the latch: whether its kernels may write */
    uint32_t bad;    /* a step had a loss that is no number: none counts any more */
    uint32_t loss_scale_good;
    double loss_scale; /* of the next step's mean loss, in fp16; 0: each call brings its own */
    uint64_t mark_ns, forward_ns, backward_ns, exchange_ns;
} gp_kernel_kept;

/* What the device and the host tell each other while steps are under way: memory of the host that both see. */
enum { GP_KERNEL_TOLD = 4, GP_KERNEL_TOLD_SUMS = 16 };

typedef struct gp_kernel_told {
    double sums[GP_KERNEL_TOLD_SUMS]; /* reduced */
    double loss_scale;                /* the step's */
    uint64_t forward_ns, backward_ns, exchange_ns, commit_ns;
    uint32_t counts, commit;
    uint64_t number; /* of the step, from 1; written last */
} gp_kernel_told;

typedef struct gp_kernel_mail {
    uint32_t go; /* the host's: 0 = nothing is committed any more */
    uint32_t reserved;
    uint64_t computed;                   /* the device's: steps of which it has done its own share */
    gp_kernel_told told[GP_KERNEL_TOLD]; /* the device's, in turn */
} gp_kernel_mail;

/* What was drawn for a sample of resident data (common/data/store/augment.h). */
typedef struct gp_kernel_draw {
    double a[2][3];
    float color[3][3], contrast;
    uint32_t recolor, reserved;
} gp_kernel_draw;

/* A tensor of the blob, for kernels over all of them. */
typedef struct gp_kernel_tensor {
    uint64_t offset, count;
    uint64_t variance; /* of a running mean: where its variance is */
    float learn_rate_factor, l2_factor;
    double statistic_rate, per_sample;
    int32_t statistic; /* gp_statistic */
    uint32_t learns;
} gp_kernel_tensor;

/* Each body (bodies*.h) says what it reads of this. */
typedef struct gp_kernel_args {
    const gp_kernel_call *call;
    gp_kernel_image x[GP_KERNEL_IMAGES], y[2];
    float *f[GP_KERNEL_FLOATS]; /* parameters, their gradients, moments */
    double *d[2];               /* sums, and parts of sums */
    const void *bytes;
    const gp_kernel_tensor *tensors;
    const uint32_t *index; /* of resident samples, by row of a call */
    gp_kernel_kept *kept;
    gp_kernel_mail *mail;
    uint64_t count;
    uint32_t rows;   /* samples there is room for */
    uint32_t chunks; /* a sum is cut into so many parts, each of one work item */
    uint32_t n[8];
    int32_t kernel[2], stride[2], dilation[2], padding[2], groups;
    int32_t kind, number[4], relu;
    float factor[4], rate;
    double number64[4];
    float scale[GP_KERNEL_RATES], offset[GP_KERNEL_RATES];
} gp_kernel_args;

typedef enum gp_kernel {
#define GP_KERNEL(name) GP_KERNEL_##name,
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL
    GP_KERNEL_COUNT
} gp_kernel;

#endif
