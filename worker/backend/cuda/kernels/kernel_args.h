/* Arguments of all kernels: one struct, passed by value, so that a step consists of a kernel name,
 * a struct and a number of work items. Compiled as C, as CUDA, and by the host implementation that
 * replaces a device in tests. */
#ifndef GP_CUDA_KERNEL_ARGS_H
#define GP_CUDA_KERNEL_ARGS_H

#include <stdint.h>

#include "worker/backend/loss_scale_rule.h"

/* Array sizes of gp_kernel_args. */
enum { GP_KERNEL_IMAGES = 8, GP_KERNEL_FLOATS = 8, GP_KERNEL_RATES = 16 };

/* Threads of a block, channels whose sums one block of batchnorm_sum adds, and elements of shared
 * memory of the kernels in grids_conv.h. */
enum { GP_KERNEL_THREADS = 256, GP_KERNEL_SUM_CHANNELS = 16, GP_KERNEL_CONV_SHARED = 8192 };

/* Image element type: float32, bfloat16 or float16. */
typedef enum gp_narrow { GP_WIDE, GP_NARROW_BF16, GP_NARROW_F16 } gp_narrow;

/* An activation: samples, channels and pixels. Dense order is [C][H][W], packed order [H][W][C].
 * The vector elements are channels in one pixel, which is both. Work items follow memory
 * order, so that neighbouring items write neighbouring elements. */
typedef struct gp_kernel_image {
    void *data; /* NULL: absent */
    uint32_t channels, height, width, pixels;
    uint32_t channel_stride, pixel_stride, sample; /* elements */
    int32_t narrow;                                /* gp_narrow; nonzero: 2 bytes per element */
} gp_kernel_image;

/* Values that change from call to call. They are stored in device memory, so that a captured graph
 * reads new values in every replay. */
typedef struct gp_kernel_call {
    uint64_t seed;
    uint32_t step, position;
    /* samples in the batch; rows beyond have zero gradients and belong to no sum */
    uint32_t count;
    uint32_t first;   /* overwrite gradients rather than adding */
    uint32_t last;    /* gradients are final after this call */
    uint32_t targets; /* targets are present */
    /* Loss scale: activation gradients are multiplied by `scale`, and parameter gradients by
     * `unscale`. In calls from the host, `scale` is a factor for the loss scale that the device
     * maintains. */
    float scale;
    float unscale;
    /* For device-resident training; the last four only in the last call in a step. */
    uint32_t slot; /* input slot of this call */
    /* resident data: the call uses samples from position `at` of this epoch on */
    uint32_t epoch, at;
    uint32_t samples; /* this rank's samples in the step */
    uint32_t stop, pause;
    float learn_rate;
} gp_kernel_call;

/* Optimizer constants. */
typedef struct gp_kernel_rule {
    double threshold;                      /* clipping threshold for the mean gradient */
    double wide_decay, wide_squared_decay; /* bias correction inputs */
    float learn_rate, momentum, decay, squared_decay, epsilon, correction, squared_correction;
    float l2;
    gp_loss_scale_rule loss_scale;
} gp_kernel_rule;

/* Device-resident training state that passes from step to step, in device memory. */
typedef struct gp_kernel_kept {
    gp_kernel_rule rule;
    uint64_t calls;  /* calls started; selects the input slot */
    uint64_t steps;  /* steps ended, committed or not */
    uint64_t solved; /* steps that changed the parameters */
    uint32_t counts; /* this step counts, even if the weight is 0 */
    uint32_t commit; /* latch result: the commit kernels may write */
    uint32_t bad;    /* a step had a loss that is not finite; no later step counts */
    uint32_t loss_scale_good;
    /* latch results: factor from the sum of gradients to the mean, and clipping threshold for
     * absolute values of the sum */
    float inverse_weight, largest;
    /* loss scale of the next step's mean loss in fp16; 0: each call brings its own */
    double loss_scale;
    uint64_t mark_ns, forward_ns, backward_ns, exchange_ns;
} gp_kernel_kept;

/* Result ring sizes: entry count, and sums per entry. */
enum { GP_KERNEL_REPORTED = 4, GP_KERNEL_REPORTED_SUMS = 16 };

/* Result of one step, written by the device. */
typedef struct gp_kernel_reported {
    double sums[GP_KERNEL_REPORTED_SUMS]; /* reduced over all ranks */
    double loss_scale;                    /* loss scale used in the step */
    uint64_t forward_ns, backward_ns, exchange_ns, commit_ns;
    uint32_t counts, commit;
    uint64_t number; /* step number from 1; written last */
} gp_kernel_reported;

/* Memory shared by host and device while steps are running. */
typedef struct gp_kernel_mail {
    uint32_t go; /* written by the host; 0: commit no further steps */
    uint32_t reserved;
    /* written by the device: steps whose own gradients are complete */
    uint64_t computed;
    gp_kernel_reported reported[GP_KERNEL_REPORTED]; /* result ring, written by the device */
} gp_kernel_mail;

/* Augmentation parameters drawn for a resident sample (common/data/store/augment.h). */
typedef struct gp_kernel_draw {
    double a[2][3];
    float color[3][3], contrast;
    uint32_t recolor, reserved;
} gp_kernel_draw;

/* A parameter tensor, for kernels that process the whole blob. */
typedef struct gp_kernel_tensor {
    uint64_t offset;
    uint64_t variance; /* for a running mean: variance offset */
    float learn_rate_factor, l2_factor;
    double statistic_rate, per_sample;
    uint32_t first_piece, pieces; /* pieces to update; none if the tensor is frozen */
} gp_kernel_tensor;

/* Elements of the blob between two possible ends of a piece. */
enum { GP_KERNEL_PIECE = 1024 };

/* Part of a tensor between two multiples of GP_KERNEL_PIECE in the blob, for one warp. */
typedef struct gp_kernel_piece {
    uint32_t first, end;    /* elements of the blob */
    uint32_t tensor, index; /* index of the tensor, and of the piece in the tensor */
} gp_kernel_piece;

/* Kernel arguments. The comment for each kernel body (bodies*.h) lists the fields that it reads. */
typedef struct gp_kernel_args {
    const gp_kernel_call *call;
    gp_kernel_image x[GP_KERNEL_IMAGES], y[2];
    float *f[GP_KERNEL_FLOATS]; /* parameters, gradients, moments */
    double *d[2];               /* sums and partial sums */
    const void *bytes;
    const gp_kernel_tensor *tensors;
    const gp_kernel_piece *pieces;
    const uint32_t *index; /* resident sample index for each row in a call */
    gp_kernel_kept *kept;
    gp_kernel_mail *mail;
    uint64_t count;
    uint32_t rows;   /* capacity in samples */
    uint32_t chunks; /* partial sum count; one work item computes each */
    uint32_t n[8];
    int32_t kernel[2], stride[2], dilation[2], padding[2], groups;
    int32_t kind, number[4], relu;
    float factor[4], rate;
    double number64[4];
    float scale[GP_KERNEL_RATES], offset[GP_KERNEL_RATES];
} gp_kernel_args;

/* Ways to copy weights: eight inputs at a time, or elements, or a bias. */
enum { GP_KERNEL_COPY_WIDE, GP_KERNEL_COPY_ELEMENTS, GP_KERNEL_COPY_VECTOR };

/* Ways to add to the gradient of a parameter: from the order and type of a library, or the sums of
 * parts_add or parts_add_warp. */
enum { GP_KERNEL_ADD_UNPACKED, GP_KERNEL_ADD_PARTS, GP_KERNEL_ADD_PARTS_WARP };

/* One of the copies of weights that prepare_weights executes, or of the additions that
 * add_gradients executes. args.number[0]: GP_KERNEL_COPY_* or GP_KERNEL_ADD_*. */
typedef struct gp_kernel_copy {
    gp_kernel_args args;
    uint32_t count; /* work items */
    uint32_t first_block, blocks;
} gp_kernel_copy;

/* Set a multiplier and a shift by which a kernel computes value / by without a division, for values
 * below 2^31 (Granlund and Montgomery, 1994). */
static inline void gp_kernel_divisor(uint32_t divisor[2], uint32_t by)
{
    uint32_t bits = 0; /* the logarithm of `by`, rounded up */

    while (bits < 31 && 1u << bits < by)
        bits++;
    divisor[0] = (uint32_t)(((UINT64_C(1) << (31 + bits)) + by - 1) / by);
    divisor[1] = bits;
}

/* Kernel numbers, from kernels.def. */
typedef enum gp_kernel {
#define GP_KERNEL(name) GP_KERNEL_##name,
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL
    GP_KERNEL_COUNT
} gp_kernel;

#endif
