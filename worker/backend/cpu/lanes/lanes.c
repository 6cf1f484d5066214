/* The lanes segment: instruction set selection, memory, and call execution. */
#include "worker/backend/cpu/lanes/lanes.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "worker/backend/cpu/base/labels.h"
#include "worker/backend/cpu/base/threads.h"

/* ---- selection ---- */

static bool isa_supported(const lanes_isa *isa)
{
#if defined(__x86_64__)
    if (isa == &gp_lanes_isa_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (isa == &gp_lanes_isa_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return isa == &gp_lanes_isa_baseline;
}

gp_status gp_lanes_choose(const lanes_isa **out, lanes_effort *effort, const char *kernels, gp_error *err)
{
    static const lanes_isa *const all[] = { &gp_lanes_isa_avx512, &gp_lanes_isa_avx2,
                                            &gp_lanes_isa_baseline };
    size_t name = kernels == NULL ? 0 : strcspn(kernels, ",");

    *effort = LANES_WHOLE;
    if (kernels != NULL && strstr(kernels, ",direct") != NULL)
        *effort = LANES_DIRECT;
    if (kernels != NULL && strstr(kernels, ",unfused") != NULL)
        *effort = LANES_UNFUSED;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bool asked = name != 0 && strlen(all[i]->name) == name && strncmp(kernels, all[i]->name, name) == 0;
        bool any = name == 0 || (name == 5 && strncmp(kernels, "lanes", 5) == 0);

        if (asked && !isa_supported(all[i]))
            return gp_fail(err, GP_ENODEV,
                           "this CPU does not support the %s kernels; leave the choice to gradpool",
                           all[i]->name);
        if (asked || (any && isa_supported(all[i]))) {
            *out = all[i];
            return GP_OK;
        }
    }
    return gp_fail(err, GP_EINVAL, "unknown kernels \"%s\"; must be lanes, onednn, baseline, avx2 or avx512",
                   kernels);
}

/* Limits of a small network. Blocks should stay in the L2 cache together with the data that streams
 * through it. 64 KiB per lane are 512 KiB with AVX2 and 1 MiB with AVX-512, which such CPUs have;
 * LeNet needs 53 KiB.
 *
 * A convolution's weight sums (one float per weight and thread) and both packed weight copies are
 * read once per block. Beyond 100,000 weights they exceed the block itself, and such layers have
 * enough channels for the oneDNN layouts. Fully connected weights are read twice per block: one
 * million take 4 MiB, about one core's part of the L3 cache.
 *
 * Custom ops need buffers for activations between passes. Fewer ops are fused and a block may take
 * up to CROSSING times as much memory, but this is still faster than oneDNN: 18 ms against 24 ms
 * for LeNet with a custom loss. */
enum { SCRATCH_PER_LANE_MAX = 64 << 10, CONV_WEIGHTS_MAX = 100000, FC_WEIGHTS_MAX = 1000000, CROSSING = 4 };

/* Return true for a custom op that no lanes kernel executes. */
static bool is_own(const gp_graph *graph, const gp_op *op)
{
    return (op->code == GP_OP_CUSTOM || op->code == GP_OP_CUSTOM_BACKWARD || op->code == GP_OP_CUSTOM_LOSS) &&
           !gp_lanes_knows(graph, op);
}

/* Return the part number for the op. Custom ops separate the parts; each is a part by itself. */
static uint32_t part_of(const gp_segment_request *whole, uint32_t op)
{
    uint32_t part = 0;

    for (uint32_t i = 0; i <= op; i++)
        part += is_own(whole->graph, &whole->ops[i]) || (i > 0 && is_own(whole->graph, &whole->ops[i - 1]));
    return part;
}

/* Compute the largest scratch memory that a segment needs between custom ops. */
static gp_status scratch_around(size_t *out, const gp_segment_request *whole, gp_error *err)
{
    void **values = gp_calloc(whole->graph->value_count, sizeof(*values));
    gp_segment_request part = *whole;
    gp_status status = values == NULL ? gp_fail(err, GP_ENOMEM, "no memory to plan segments") : GP_OK;

    /* Mark the values that one part writes and another reads with a non-NULL address. */
    for (uint32_t i = 0; i < whole->count && status == GP_OK; i++)
        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++) {
            uint32_t value = whole->ops[i].out[k];

            for (uint32_t r = i + 1; value != GP_NO_VALUE && r < whole->count; r++)
                for (uint32_t j = 0; j < GP_OP_VALUES_MAX; j++)
                    if (whole->ops[r].in[j] == value && part_of(whole, r) != part_of(whole, i))
                        values[value] = values;
        }
    part.values = values;
    for (uint32_t i = 0; i < whole->count && status == GP_OK; i += part.count + 1) {
        lanes_segment segment = { .isa = &gp_lanes_isa_avx2, .block_count = 1 };

        part.ops = whole->ops + i;
        for (part.count = 0; i + part.count < whole->count && !is_own(part.graph, &part.ops[part.count]);)
            part.count++;
        if (part.count == 0)
            continue;
        status = gp_lanes_plan(&segment, &part, LANES_DIRECT, err);
        *out = segment.scratch_floats > *out ? segment.scratch_floats : *out;
        gp_lanes_plan_free(&segment);
    }
    gp_free(values);
    return status;
}

gp_status gp_lanes_suits(bool *out, const gp_graph *graph, gp_phase phase, gp_error *err)
{
    gp_segment_request request = {
        .graph = graph, .phase = phase, .ops = graph->ops[phase].op, .count = graph->ops[phase].count
    };
    int64_t conv = 0, fc = 0;
    size_t scratch_floats = 0;
    bool own = false;
    gp_status status;

    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[i];

        *(parameter->shape.rank == 4 ? &conv : &fc) += parameter->count;
    }
    *out = false;
    for (uint32_t i = 0; i < request.count; i++) {
        own = own || is_own(graph, &request.ops[i]);
        if (!gp_lanes_knows(graph, &request.ops[i]) && !is_own(graph, &request.ops[i]))
            return GP_OK;
    }
    if (conv > CONV_WEIGHTS_MAX || fc > FC_WEIGHTS_MAX)
        return GP_OK;
    status = scratch_around(&scratch_floats, &request, err);
    *out = scratch_floats * sizeof(float) <=
           (size_t)SCRATCH_PER_LANE_MAX * (own ? CROSSING : 1) * (size_t)gp_lanes_isa_avx2.lanes;
    return status;
}

/* ---- memory ---- */

static void lanes_free(gp_segment *base)
{
    lanes_segment *segment = (lanes_segment *)base;

    if (segment == NULL)
        return;
    gp_lanes_plan_free(segment);
    for (uint32_t t = 0; t < segment->threads && segment->scratch != NULL; t++)
        gp_free(segment->scratch[t]);
    gp_free(segment->scratch);
    gp_free(segment->sums);
    gp_free(segment->packed);
    gp_free(segment->panels);
    gp_free(segment->metrics);
    gp_free(segment->scale);
    gp_free(segment->offset);
    gp_free(segment);
}

/* Allocate memory for all threads. */
static gp_status take_memory(lanes_segment *segment, gp_error *err)
{
    size_t thread_floats = segment->scratch_floats + segment->sum_floats;

    segment->scratch = gp_calloc(segment->threads, sizeof(*segment->scratch));
    segment->sums = gp_calloc(segment->threads, sizeof(*segment->sums));
    segment->metrics = gp_aligned_calloc(64, segment->threads * sizeof(*segment->metrics));
    segment->packed = gp_aligned_calloc(64, (segment->packed_floats + 16) * sizeof(float));
    segment->panels = gp_aligned_calloc(64, (segment->panel_floats + 16) * sizeof(float));
    if (segment->scratch == NULL || segment->sums == NULL || segment->metrics == NULL ||
        segment->packed == NULL || segment->panels == NULL)
        goto fail;
    for (uint32_t t = 0; t < segment->threads; t++) {
        segment->scratch[t] = gp_aligned_calloc(4096, (thread_floats + 16) * sizeof(float));
        if (segment->scratch[t] == NULL)
            goto fail;
        segment->sums[t] = segment->scratch[t] + segment->scratch_floats;
    }
    return GP_OK;
fail:
    return gp_fail(err, GP_ENOMEM,
                   "no memory for %u threads of %zu bytes and %zu bytes of panels; use a smaller batch",
                   segment->threads, thread_floats * sizeof(float), segment->panel_floats * sizeof(float));
}

/* Compute normalisation factors per input channel. */
static gp_status set_normalization(lanes_segment *segment, gp_error *err)
{
    const gp_netspec *spec = segment->graph->spec;
    size_t channels =
        spec->input.rank == 3 ? (size_t)spec->input.dim[0] : (size_t)gp_shape_count(&spec->input);

    segment->scale = gp_calloc(channels, sizeof(float));
    segment->offset = gp_calloc(channels, sizeof(float));
    if (segment->scale == NULL || segment->offset == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the normalisation of %zu channels", channels);
    for (size_t c = 0; c < channels; c++) {
        size_t k = c < spec->normalize_count ? c : 0;

        segment->scale[c] = (float)spec->scale[k];
        segment->offset[c] = (float)spec->offset[k];
    }
    return GP_OK;
}

static const float *blob_at(const lanes_segment *segment, uint32_t parameter)
{
    return parameter == LANES_NONE
               ? NULL
               : segment->memory.parameters + segment->graph->parameters[parameter].offset;
}

static float *gradient_at(const lanes_segment *segment, uint32_t parameter)
{
    return parameter == LANES_NONE ? NULL
                                   : segment->memory.gradients + segment->graph->parameters[parameter].offset;
}

/* Convert offsets to pointers, after all memory has been allocated. */
static void bind(lanes_segment *segment)
{
    for (uint32_t i = 0; i < segment->pack_count; i++) {
        segment->packs[i].from = blob_at(segment, segment->packs[i].parameter);
        segment->packs[i].to = segment->packed + segment->packs[i].to_at;
    }
    for (uint32_t i = 0; i < segment->step_count; i++) {
        lanes_step *step = &segment->steps[i];

        step->weight = step->pack == LANES_NONE ? blob_at(segment, step->weight_parameter)
                                                : segment->packs[step->pack].to;
        step->bias = blob_at(segment, step->bias_parameter);
        step->panel_x = segment->panels + step->panel_x_at;
        step->panel_dy = segment->panels + step->panel_dy_at;
        segment->has_loss =
            segment->has_loss || step->kind == LANES_SOFTMAX_XENT || step->kind == LANES_CUSTOM_LOSS;
    }
    for (uint32_t i = 0; i < segment->finish_count; i++) {
        lanes_finish *finish = &segment->finishes[i];

        finish->weight = gradient_at(segment, finish->weight_parameter);
        finish->bias = gradient_at(segment, finish->bias_parameter);
        finish->panel_x = segment->panels + finish->panel_x_at;
        finish->panel_dy = segment->panels + finish->panel_dy_at;
    }
}

static gp_status lanes_compile(gp_segment **out, const gp_segment_request *request, const lanes_isa *isa,
                               gp_error *err)
{
    lanes_segment *segment = gp_calloc(1, sizeof(*segment));
    const lanes_isa *chosen;
    lanes_effort effort;
    gp_status status = gp_lanes_choose(&chosen, &effort, request->kernels, NULL);

    (void)chosen; /* the caller selected it by this function table */
    if (status != GP_OK)
        effort = LANES_WHOLE; /* the kernels option names another implementation */
    if (segment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a lanes segment");
    segment->isa = isa;
    segment->graph = request->graph;
    segment->phase = request->phase;
    segment->op_count = request->count;
    segment->micro_batch = request->micro_batch;
    segment->threads = request->threads;
    segment->block_count = (request->micro_batch + (uint32_t)isa->lanes - 1) / (uint32_t)isa->lanes;
    segment->sample_dtype = request->sample_dtype;
    segment->memory = *request->memory;
    status = gp_lanes_plan(segment, request, effort, err);
    if (status == GP_OK)
        status = set_normalization(segment, err);
    if (status == GP_OK)
        status = take_memory(segment, err);
    if (status != GP_OK) {
        lanes_free((gp_segment *)segment);
        return status;
    }
    bind(segment);
    *out = (gp_segment *)segment;
    return GP_OK;
}

static void lanes_rebind(gp_segment *base, const float *parameters)
{
    lanes_segment *segment = (lanes_segment *)base;

    segment->memory.parameters = parameters;
    bind(segment);
}

static size_t lanes_memory_bytes(const gp_segment *base)
{
    const lanes_segment *segment = (const lanes_segment *)base;

    return sizeof(*segment) + segment->step_count * sizeof(lanes_step) +
           sizeof(float) * (segment->packed_floats + segment->panel_floats +
                            segment->threads * (segment->scratch_floats + segment->sum_floats));
}

/* ---- execution ---- */

/* Thread arguments in lanes_run(). */
typedef struct lanes_call {
    lanes_segment *segment;
    const gp_batch *batch;
    int64_t forward_ns; /* measured on thread 0 */
} lanes_call;

static void share_pack(void *context, uint32_t thread, uint32_t threads)
{
    const lanes_segment *segment = ((lanes_call *)context)->segment;

    for (uint32_t i = 0; i < segment->pack_count; i++)
        segment->isa->pack(&segment->packs[i], thread, threads);
}

/* Process blocks thread, thread + threads, ... of the call. The assignment depends on nothing else,
 * so results are reproducible. */
static void share_blocks(void *context, uint32_t thread, uint32_t threads)
{
    lanes_call *call = context;
    lanes_segment *segment = call->segment;
    uint32_t lanes = (uint32_t)segment->isa->lanes, count = call->batch->count;
    lanes_block block = { .scratch = segment->scratch[thread],
                          .sums = segment->sums[thread],
                          .metrics = segment->metrics[thread],
                          .segment = segment,
                          .batch = call->batch };

    memset(block.sums, 0, segment->sum_floats * sizeof(float));
    memset(block.metrics, 0, sizeof(segment->metrics[thread]));
    for (uint32_t b = thread; b * lanes < count; b += threads) {
        int64_t began = thread == 0 ? gp_now_ns() : 0;

        block.first = b * lanes;
        block.count = count - block.first < lanes ? count - block.first : lanes;
        for (uint32_t i = 0; i < segment->step_count; i++) {
            if (thread == 0 && i == segment->forward_steps)
                call->forward_ns += gp_now_ns() - began;
            segment->isa->step[segment->steps[i].kind](&segment->steps[i], &block);
        }
    }
}

static void share_finish(void *context, uint32_t thread, uint32_t threads)
{
    lanes_call *call = context;
    lanes_segment *segment = call->segment;
    uint32_t lanes = (uint32_t)segment->isa->lanes;
    lanes_share share = { .thread = thread,
                          .threads = threads,
                          .sums = segment->sums,
                          .samples = (call->batch->count + lanes - 1) / lanes * lanes,
                          .sample_rows = segment->block_count * lanes,
                          .first = call->batch->first };

    for (uint32_t i = 0; i < segment->finish_count; i++)
        segment->isa->finish(&segment->finishes[i], &share);
}

/* Check the labels of a classification, which the threads use as indices. */
static gp_status classes_check(const lanes_segment *segment, const gp_batch *batch, gp_error *err)
{
    for (uint32_t i = 0; i < segment->step_count; i++) {
        const lanes_view *x = &segment->steps[i].x;

        if (segment->steps[i].kind == LANES_SOFTMAX_XENT)
            return labels_check(batch->targets, batch->count, (size_t)(x->channels * x->height * x->width),
                                err);
    }
    return GP_OK;
}

static gp_status lanes_run(gp_segment *base, const gp_batch *batch, gp_plan_times *times, gp_error *err)
{
    lanes_call call = { .segment = (lanes_segment *)base, .batch = batch };
    lanes_segment *segment = call.segment;
    int64_t began = gp_now_ns(), packed, ended;
    gp_status status = classes_check(segment, batch, err);

    if (status != GP_OK)
        return status;
    assert(batch->count <= segment->micro_batch);
    if (batch->first && segment->pack_count != 0)
        gp_threads_run(segment->threads, share_pack, &call);
    packed = gp_now_ns();
    gp_threads_run(segment->threads, share_blocks, &call);
    if (segment->finish_count != 0)
        gp_threads_run(segment->threads, share_finish, &call);
    for (int i = 0; segment->has_loss && batch->targets != NULL && i < GP_SUMS; i++)
        for (uint32_t t = 0; t < segment->threads; t++)
            segment->memory.sums[i] += segment->metrics[t][i];
    ended = gp_now_ns();
    call.forward_ns += packed - began;
    if (segment->forward_steps == segment->step_count)
        call.forward_ns = ended - began;
    times->forward_ns += call.forward_ns;
    times->backward_ns += ended - began - call.forward_ns;
    return GP_OK;
}

/* ---- function tables ---- */

#define LANES_VTABLE(ISA)                                                                                    \
    static gp_status compile_##ISA(gp_segment **out, const gp_segment_request *request, gp_error *err)       \
    {                                                                                                        \
        return lanes_compile(out, request, &gp_lanes_isa_##ISA, err);                                        \
    }                                                                                                        \
    static const gp_segment_ops segment_##ISA = {                                                            \
        .name = "lanes-" #ISA,                                                                               \
        .reads_samples = true,                                                                               \
        .compile = compile_##ISA,                                                                            \
        .free = lanes_free,                                                                                  \
        .run = lanes_run,                                                                                    \
        .rebind = lanes_rebind,                                                                              \
        .memory_bytes = lanes_memory_bytes,                                                                  \
    };
LANES_VTABLE(baseline)
LANES_VTABLE(avx2)
LANES_VTABLE(avx512)
#undef LANES_VTABLE

const gp_segment_ops *gp_segment_lanes(const lanes_isa *isa)
{
    return isa == &gp_lanes_isa_avx512 ? &segment_avx512
           : isa == &gp_lanes_isa_avx2 ? &segment_avx2
                                       : &segment_baseline;
}
