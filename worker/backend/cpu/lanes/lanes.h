/* lanes.h -- "batch in lanes": kernels for small networks, where one vector holds one pixel of L images.
 *
 * A block of L images (4, 8 or 16: the instruction set's vector) is laid out [C][H][W][L].  No channel count is
 * ever padded, every op is plain vertical arithmetic, and a block runs through the whole segment (forward, loss,
 * backward) while its data sits in the level-2 cache of one core; threads take blocks by a fixed rule.
 *
 *   lanes_plan.c     ops -> steps; lanes_fuse.c: what is merged or dead; lanes_place.c: buffers
 *   lanes.c          the segment: memory, the parallel loop over blocks, the sums at its end
 *   lanes_kernels.c  the steps' arithmetic; compiled once per instruction set (lanes_*.h are its parts)
 *
 * Weight gradients of a convolution are summed per block in registers, over lanes into one scalar per weight and
 * thread, over threads at the end of the call.  Those of a fully connected layer are one matrix product over all
 * samples of the call: blocks leave x and dy in panels. */
#ifndef GP_LANES_H
#define GP_LANES_H

#include "worker/backend/cpu/base/segment.h"

#define LANES_NONE UINT32_MAX
enum { LANES_OWN_SCORES_MAX = 256 };  /* of a sample, for a loss of the driver's: they stand on the stack */
enum { LANES_WINOGRAD_OUTPUTS = 12 }; /* output channels that its weights step takes at a time */

/* A stride of at least that many floats that is an odd number of cache lines: equally spaced rows then use all sets
 * of a cache, not a few. */
static inline size_t lanes_odd_lines(size_t floats)
{
    return ((floats + 15) / 16 | 1) * 16;
}

/* A value of one block in a thread's scratch.  Height and width are those anybody reads (dead rows and columns
 * are not even stored); row and plane are strides in floats. */
typedef struct lanes_view {
    uint32_t buffer; /* of the plan, while planning; LANES_NONE: no such operand */
    size_t offset;   /* of element [0][0][0] in the scratch, in floats; in the buffer, while planning */
    int32_t channels, height, width;
    ptrdiff_t row, plane;
} lanes_view;

typedef enum lanes_step_kind {
    LANES_LOAD_SAMPLES,      /* batch->samples -> y, normalised */
    LANES_LOAD,              /* crossing -> y */
    LANES_STORE,             /* x -> crossing */
    LANES_BORDER,            /* zeros around y */
    LANES_CONV,              /* x -> y, any window; relu */
    LANES_CONV_FAST,         /* square odd kernel up to 7, stride 1, packed weights; relu */
    LANES_CONV_POOL,         /* the same, relu, 2x2 pooling -> y, mask */
    LANES_CONV_DATA,         /* dy x -> dx y */
    LANES_CONV_DATA_FAST,    /* packed weights */
    LANES_CONV_WEIGHTS,      /* x, dy z */
    LANES_CONV_WEIGHTS_FAST, /* the same */
    LANES_CONV_WEIGHTS_POOL, /* x, dy of the pool z, mask; y is a strip for a few channels of dy */
    LANES_WINOGRAD,      /* as CONV_POOL by lanes_winograd.h; v keeps the transformed input, t is scratch */
    LANES_WINOGRAD_DATA, /* dy of the pool x, mask -> dx of the convolution y; v and t are scratch */
    LANES_WINOGRAD_WEIGHTS, /* x, dy of the pool z, mask, v; t is scratch */
    LANES_UNPOOL,           /* dy of the pool x, mask -> dx of the relu y */
    LANES_FC,               /* x -> y by a [J][K] matrix stored [K][J] */
    LANES_FC_WEIGHTS,       /* x, dy z -> panels */
    LANES_RELU,             /* x -> y */
    LANES_RELU_BACKWARD,    /* y in x, dy in z -> y */
    LANES_POOL,             /* x -> y, index in z or none */
    LANES_POOL_BACKWARD,    /* dy in x, index in z or none -> y */
    LANES_DROPOUT,          /* x -> y */
    LANES_SOFTMAX_XENT,     /* x -> dlogits y or none */
    LANES_OWN_LOSS,         /* x -> dlogits y or none, by the driver's function */
    LANES_ADD,              /* x, z -> y */
    LANES_STEP_COUNT
} lanes_step_kind;

typedef struct lanes_step {
    lanes_step_kind kind;
    uint32_t op; /* index in the segment that it came from */
    lanes_view x, y, z;
    lanes_view v, t;
    lanes_view mask; /* bits of relu and pooling: 4 per pooled pixel and lane */
    gp_window window;
    gp_pool_kind pool;
    int32_t full_height, full_width; /* of the pool's input: what an index counts in */
    bool relu;
    bool gradient;      /* LOAD: rows beyond the batch are zeros */
    float scale;        /* dropout; unpool */
    uint32_t threshold; /* dropout: keeps draws >= threshold * 2^-24 */
    uint32_t layer;     /* dropout */
    uint32_t weight_parameter, bias_parameter,
        pack;                       /* LANES_NONE where absent; a pack goes before its blob */
    const float *weight;            /* [bound] blob, or packed by a lanes_pack */
    const float *bias;              /* [bound] or NULL */
    size_t weight_sum, bias_sum;    /* places in the thread's sums, in floats; SIZE_MAX: no bias */
    size_t panel_x_at, panel_dy_at; /* of FC_WEIGHTS: places in the segment's panels */
    float *panel_x, *panel_dy;      /* [bound] */
    void *crossing;                 /* dense buffer of the plan */
} lanes_step;

/* Weights repacked once per training step. */
typedef struct lanes_pack {
    enum {
        LANES_PACK_OUTPUTS,
        LANES_PACK_INPUTS,
        LANES_PACK_WINOGRAD_OUTPUTS,
        LANES_PACK_WINOGRAD_INPUTS,
        LANES_PACK_TRANSPOSE
    } kind;
    uint32_t parameter;
    size_t to_at;                    /* place in the segment's packed weights */
    const float *from;               /* [bound] */
    float *to;                       /* [bound] */
    int32_t outputs, inputs, kernel; /* kernel: edge of the square; 1 for TRANSPOSE */
} lanes_pack;

/* What happens to gradients once all blocks are done. */
typedef struct lanes_finish {
    enum { LANES_FINISH_CONV, LANES_FINISH_CONV_FAST, LANES_FINISH_WINOGRAD, LANES_FINISH_FC } kind;
    uint32_t weight_parameter, bias_parameter; /* LANES_NONE: no bias */
    float *weight, *bias;                      /* [bound] in the arena; bias may be NULL */
    int32_t outputs, inputs, kernel;
    size_t weight_count, weight_sum, bias_sum;
    size_t panel_x_at, panel_dy_at;
    const float *panel_x, *panel_dy; /* [bound] */
} lanes_finish;

/* What one thread has while it works on one block. */
typedef struct lanes_block {
    float *scratch;
    float *sums;     /* of weight gradients */
    double *metrics; /* [GP_SUMS] */
    const struct lanes_segment *segment;
    const gp_batch *batch;
    uint32_t first, count; /* samples of the batch in it */
} lanes_block;

/* Run the calling thread's share of a call's sums: gradients are written when first, else added to. */
typedef struct lanes_share {
    uint32_t thread, threads;
    float *const *sums;   /* per thread */
    uint32_t samples;     /* rows in the panels, a multiple of the lanes */
    uint32_t sample_rows; /* rows that a panel has room for */
    bool first;
} lanes_share;

/* One instruction set. */
typedef struct lanes_isa {
    const char *name; /* "avx2" */
    int32_t lanes;
    int32_t data_columns;       /* the narrowest dy that fast backward data can do */
    int32_t weights_outputs[8]; /* output channels per tile of fast backward weights, by kernel */
    int32_t panel_inputs, panel_outputs;
    void (*step[LANES_STEP_COUNT])(const lanes_step *step, const lanes_block *block);
    void (*pack)(const lanes_pack *pack, uint32_t thread, uint32_t threads);
    void (*finish)(const lanes_finish *finish, const lanes_share *share);
} lanes_isa;

extern const lanes_isa gp_lanes_isa_baseline, gp_lanes_isa_avx2, gp_lanes_isa_avx512;

/* A plan of steps; all its memory belongs to it. */
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
    double (*metrics)[8];    /* per thread, a cache line each */
    float *scale, *offset;   /* per input channel */
} lanes_segment;

/* How much may be merged and replaced: every op one generic step; fused steps; Winograd where it pays. */
typedef enum lanes_effort { LANES_UNFUSED, LANES_DIRECT, LANES_WHOLE } lanes_effort;

/* gp_lanes_plan -- fill steps, packs, finishes and the sizes of memory, from the request and the fields isa, graph
 * and block_count.  Pointers marked [bound] stay NULL.  On failure what was made is released by gp_lanes_plan_free(). */
gp_status gp_lanes_plan(lanes_segment *segment, const gp_segment_request *request, lanes_effort effort,
                        gp_error *err);
void gp_lanes_plan_free(lanes_segment *segment);

/* Whether there is a step for the op. */
bool gp_lanes_knows(const gp_graph *graph, const gp_op *op);

/* The instruction set that options->kernels asks for (NULL or "lanes": the best of this CPU; "avx2"; after a comma,
 * "unfused" or "direct").  GP_EINVAL: unknown, GP_ENODEV: not of this CPU. */
gp_status gp_lanes_choose(const lanes_isa **out, lanes_effort *effort, const char *kernels, gp_error *err);

/* Whether the network is one for these kernels rather than oneDNN's: see lanes.c.  Fails when memory is out. */
gp_status gp_lanes_suits(bool *out, const gp_graph *graph, gp_phase phase, gp_error *err);

/* The segment of an instruction set; run only what gp_lanes_choose() returned. */
const gp_segment_ops *gp_segment_lanes(const lanes_isa *isa);

#endif
