/* The lanes kernels, for small networks: one vector holds the same pixel from L images.
 *
 * A block of L images (4, 8 or 16, the instruction set's vector length) has the layout
 * [C][H][W][L]. Channels are never padded, and every op is plain vertical arithmetic. A block
 * passes through the whole segment (forward, loss, backward) while its data stays in the L2 cache
 * of one core. A fixed rule assigns blocks to threads.
 *
 *   lanes_plan.c     converts ops to steps; lanes_fuse.c merges ops; lanes_place.c allocates
 *                    buffers
 *   lanes.c          the segment: memory, the parallel loop over blocks, the final sums
 *   lanes_kernels.c  step arithmetic, compiled once per instruction set (from lanes_*.h)
 *
 * Convolution weight gradients are summed in three stages: per block in registers, over the lanes
 * into one scalar per weight and thread, and over the threads when the call ends. Fully connected
 * weight gradients are one matrix product over all samples in the call; the blocks store x and dy
 * in panels for it. */
#ifndef GP_LANES_H
#define GP_LANES_H

#include "worker/backend/cpu/base/segment.h"

#define LANES_NONE UINT32_MAX
/* maximum number of scores per sample for a custom loss; they are copied to the stack */
enum { LANES_CUSTOM_SCORES_MAX = 256 };
/* output channels that a Winograd weights step processes together */
enum { LANES_WINOGRAD_OUTPUTS = 12 };

/* Round up to an odd number of cache lines. Rows with such a stride use all sets in a cache. */
static inline size_t lanes_odd_lines(size_t floats)
{
    return ((floats + 15) / 16 | 1) * 16;
}

/* Location in a thread's scratch memory for a value in one block. Height and width cover only rows
 * and columns that some step reads. `row` and `plane` are strides in floats. */
typedef struct lanes_view {
    uint32_t buffer; /* buffer number during planning; LANES_NONE: no operand */
    /* element [0][0][0] offset in floats: in the scratch memory, or during planning in the
     * buffer */
    size_t offset;
    int32_t channels, height, width;
    ptrdiff_t row, plane;
} lanes_view;

/* Step kind. The comments list operands as lanes_step fields. */
typedef enum lanes_step_kind {
    LANES_LOAD_SAMPLES, /* batch->samples -> y, normalised */
    LANES_LOAD,         /* crossing -> y */
    LANES_STORE,        /* x -> crossing */
    LANES_BORDER,       /* write zeros around y */
    LANES_CONV,         /* x -> y, any window; optional relu */
    /* square odd kernel up to 7, stride 1, packed weights; optional relu */
    LANES_CONV_FAST,
    LANES_CONV_POOL,         /* CONV_FAST, relu, 2x2 pooling -> y, mask */
    LANES_CONV_DATA,         /* dy x -> dx y */
    LANES_CONV_DATA_FAST,    /* CONV_DATA with packed weights */
    LANES_CONV_WEIGHTS,      /* x, dy z -> weight sums */
    LANES_CONV_WEIGHTS_FAST, /* CONV_WEIGHTS for the CONV_FAST windows */
    /* x, pooled dy z, mask -> weight sums; y is scratch memory for a few dy channels */
    LANES_CONV_WEIGHTS_POOL,
    /* CONV_POOL with the Winograd algorithm; v keeps the transformed input, t is scratch memory */
    LANES_WINOGRAD,
    /* pooled dy x, mask -> dx y of the convolution; v and t are scratch memory */
    LANES_WINOGRAD_DATA,
    LANES_WINOGRAD_WEIGHTS, /* x, pooled dy z, mask, v -> weight sums; t is scratch memory */
    LANES_UNPOOL,           /* pooled dy x, mask -> dx y of the relu */
    LANES_FC,               /* x -> y, multiplied by a [J][K] matrix stored as [K][J] */
    LANES_FC_WEIGHTS,       /* x, dy z -> panels */
    LANES_RELU,             /* x -> y */
    LANES_RELU_BACKWARD,    /* y in x, dy in z -> dx y */
    LANES_POOL,             /* x -> y; z: each maximum's index, or absent */
    LANES_POOL_BACKWARD,    /* dy x, index z or absent -> dx y */
    LANES_DROPOUT,          /* x -> y */
    LANES_SOFTMAX_XENT,     /* x -> logit gradient y, or absent */
    LANES_CUSTOM_LOSS,      /* x -> logit gradient y, or absent, by a custom loss function */
    LANES_ADD,              /* x, z -> y */
    LANES_STEP_COUNT
} lanes_step_kind;

/* One step of a segment. Fields marked [bound] are set after all memory has been allocated. */
typedef struct lanes_step {
    lanes_step_kind kind;
    uint32_t op; /* op index in the segment */
    lanes_view x, y, z;
    lanes_view v, t;
    lanes_view mask; /* bits of fused relu and pooling: 4 per pooled pixel and lane */
    gp_window window;
    gp_pool_kind pool;
    int32_t full_height, full_width; /* pool input size, to which an index refers */
    bool relu;
    bool gradient;      /* LANES_LOAD: set rows beyond the batch to zero */
    float scale;        /* factor of dropout and unpooling */
    uint32_t threshold; /* dropout keeps draws >= threshold * 2^-24 */
    uint32_t layer;     /* layer index for the dropout generator */
    uint32_t weight_parameter, bias_parameter,
        /* LANES_NONE: absent. If the weights are packed, `pack` replaces the blob. */
        pack;
    const float *weight;            /* [bound] weights in the blob, or packed by a lanes_pack */
    const float *bias;              /* [bound] NULL: no bias */
    size_t weight_sum, bias_sum;    /* offsets in the thread's sums, in floats; SIZE_MAX: no bias */
    size_t panel_x_at, panel_dy_at; /* FC_WEIGHTS: offsets in the segment's panels */
    float *panel_x, *panel_dy;      /* [bound] */
    void *crossing;                 /* dense buffer of the plan */
} lanes_step;

/* Weights to be repacked once per training step. */
typedef struct lanes_pack {
    enum {
        LANES_PACK_OUTPUTS,
        LANES_PACK_INPUTS,
        LANES_PACK_WINOGRAD_OUTPUTS,
        LANES_PACK_WINOGRAD_INPUTS,
        LANES_PACK_TRANSPOSE
    } kind;
    uint32_t parameter;
    size_t to_at;                    /* offset in the segment's packed weights */
    const float *from;               /* [bound] */
    float *to;                       /* [bound] */
    int32_t outputs, inputs, kernel; /* kernel: edge length of the square; 1 for a matrix */
} lanes_pack;

/* Final sum of a gradient, after all blocks of a call are done. */
typedef struct lanes_finish {
    enum { LANES_FINISH_CONV, LANES_FINISH_CONV_FAST, LANES_FINISH_WINOGRAD, LANES_FINISH_FC } kind;
    uint32_t weight_parameter, bias_parameter; /* LANES_NONE: no bias */
    /* [bound] gradients in the arena; `bias` may be NULL */
    float *weight, *bias;
    int32_t outputs, inputs, kernel;
    size_t weight_count, weight_sum, bias_sum;
    size_t panel_x_at, panel_dy_at;
    const float *panel_x, *panel_dy; /* [bound] */
} lanes_finish;

/* Context of one thread that processes one block. */
typedef struct lanes_block {
    float *scratch;
    float *sums;     /* weight gradient sums */
    double *metrics; /* [GP_SUMS] */
    const struct lanes_segment *segment;
    const gp_batch *batch;
    uint32_t first, count; /* sample range in the block */
} lanes_block;

/* Arguments for finishing a call: each thread sums a slice of the gradients. batch->first decides
 * whether gradients are overwritten or added to. */
typedef struct lanes_share {
    uint32_t thread, threads;
    float *const *sums;   /* per thread */
    uint32_t samples;     /* rows used in the panels, a multiple of the lane count */
    uint32_t sample_rows; /* panel capacity in rows */
    bool first;
} lanes_share;

/* Kernels for one instruction set. */
typedef struct lanes_isa {
    const char *name; /* "avx2" */
    int32_t lanes;
    int32_t data_columns; /* minimum dy width for the fast backward data step */
    /* output channels per tile of the fast backward weights step, by kernel edge */
    int32_t weights_outputs[8];
    int32_t panel_inputs, panel_outputs;
    void (*step[LANES_STEP_COUNT])(const lanes_step *step, const lanes_block *block);
    void (*pack)(const lanes_pack *pack, uint32_t thread, uint32_t threads);
    void (*finish)(const lanes_finish *finish, const lanes_share *share);
} lanes_isa;

extern const lanes_isa gp_lanes_isa_baseline, gp_lanes_isa_avx2, gp_lanes_isa_avx512;

/* A compiled segment; it owns all memory. */
typedef struct lanes_segment {
    const lanes_isa *isa;
    const gp_graph *graph;
    gp_phase phase;
    uint32_t op_count, micro_batch, threads, block_count;
    gp_dtype sample_dtype;
    gp_plan_memory memory;
    lanes_step *steps;
    uint32_t step_count, forward_steps;
    lanes_pack *packs;
    uint32_t pack_count;
    lanes_finish *finishes;
    uint32_t finish_count;
    bool has_loss;
    size_t scratch_floats, sum_floats; /* per thread */
    float *packed, *panels;            /* owned */
    size_t packed_floats, panel_floats;
    float **scratch, **sums; /* per thread */
    double (*metrics)[8];    /* per thread, one cache line each */
    float *scale, *offset;   /* per input channel */
} lanes_segment;

/* Optimisation level: one generic step per op; fused steps; Winograd where it is faster. */
typedef enum lanes_effort { LANES_UNFUSED, LANES_DIRECT, LANES_WHOLE } lanes_effort;

/* Compute steps, packs, finishes and memory sizes from the request and the fields isa, graph and
 * block_count. Pointers marked [bound] remain NULL. After a failure, gp_lanes_plan_free() releases
 * partial results. */
gp_status gp_lanes_plan(lanes_segment *segment, const gp_segment_request *request, lanes_effort effort,
                        gp_error *err);

/* Free everything that gp_lanes_plan() allocated. */
void gp_lanes_plan_free(lanes_segment *segment);

/* Return true if a step exists for the op. */
bool gp_lanes_knows(const gp_graph *graph, const gp_op *op);

/* Return the instruction set and optimisation level that options->kernels requests. GP_EINVAL:
 * unknown. GP_ENODEV: not supported by this CPU.
 *   kernels  NULL or "lanes": best of this CPU; "avx2" etc.; optionally followed by ",unfused" or
 * ",direct" */
gp_status gp_lanes_choose(const lanes_isa **out, lanes_effort *effort, const char *kernels, gp_error *err);

/* Decide whether the network should use these kernels rather than oneDNN; lanes.c has the criteria.
 * GP_ENOMEM: out of memory. */
gp_status gp_lanes_suits(bool *out, const gp_graph *graph, gp_phase phase, gp_error *err);

/* Return the segment implementation of an instruction set from gp_lanes_choose(). */
const gp_segment_ops *gp_segment_lanes(const lanes_isa *isa);

#endif
