#include "worker/backend/cpu/factors.h"

#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "worker/backend/cpu/loops/loops.h"
#include "worker/backend/cpu/base/threads.h"

enum { ROWS = GP_FACTOR_ROWS, COLUMNS = GP_FACTOR_COLUMNS };

/* With fewer elements, waking the OpenMP team takes longer than the work. */
enum { SHARED_MIN = 65536 };

static size_t panels_of(const gp_factor *factor)
{
    return (factor->inputs + COLUMNS - 1) / COLUMNS;
}

static size_t blocks_of(const gp_factor *factor)
{
    return (factor->outputs + ROWS - 1) / ROWS;
}

static size_t x_count(const gp_factor *factor)
{
    return panels_of(factor) * factor->samples * COLUMNS;
}

size_t gp_factor_bytes(const gp_factor *factor)
{
    return (x_count(factor) + blocks_of(factor) * factor->samples * ROWS) * sizeof(float);
}

void gp_factor_place(gp_factor *factor, void *memory)
{
    factor->x = memory;
    factor->dy = factor->x + x_count(factor);
}

const gp_factor *gp_factor_of(const gp_plan_memory *memory, const gp_graph *graph, const gp_op *op)
{
    if (op->code != GP_OP_FC_BACKWARD_WEIGHTS)
        return NULL;
    for (uint32_t i = 0; i < memory->factor_count; i++)
        if (memory->factors[i].parameter == graph->values[op->out[0]].parameter)
            return &memory->factors[i];
    return NULL;
}

/* ---- the factors ---- */

typedef struct write_call {
    const gp_factor *to;
    const gp_batch *batch;
    const float *x, *dy;
} write_call;

/* Copy one thread's slice: some X panels and some dY blocks. */
static void write_share(void *context, uint32_t thread, uint32_t threads)
{
    const write_call *call = context;
    const gp_factor *to = call->to;
    size_t at = (size_t)call->batch->position, panels = panels_of(to), blocks = blocks_of(to);

    for (size_t p = panels * thread / threads; p < panels * (thread + 1) / threads; p++) {
        size_t first = p * COLUMNS, count = to->inputs - first < COLUMNS ? to->inputs - first : COLUMNS;

        for (size_t s = 0; s < call->batch->count; s++)
            memcpy(to->x + (p * to->samples + at + s) * COLUMNS, call->x + s * to->inputs + first,
                   count * sizeof(float));
    }
    for (size_t b = blocks * thread / threads; b < blocks * (thread + 1) / threads; b++) {
        size_t first = b * ROWS, count = to->outputs - first < ROWS ? to->outputs - first : ROWS;

        for (size_t s = 0; s < call->batch->count; s++)
            memcpy(to->dy + (b * to->samples + at + s) * ROWS, call->dy + s * to->outputs + first,
                   count * sizeof(float));
    }
}

void gp_factor_write(const gp_factor *factor, const gp_batch *batch, const float *x, const float *dy,
                     uint32_t threads)
{
    write_call call = { factor, batch, x, dy };

    gp_threads_run(batch->count * (factor->inputs + factor->outputs) < SHARED_MIN ? 1 : threads, write_share,
                   &call);
}

/* ---- the product ---- */

/* Compute one tile of a panel: out[r][c] = sum over s of dy[s][r] * x[s][c]. */
typedef void (*tile_fn)(const float *dy, const float *x, size_t samples, float *out, size_t stride);

/* Compute one row at a time; the sums stay in the L1 cache. */
static void tile_plain(const float *dy, const float *x, size_t samples, float *out, size_t stride)
{
    for (size_t r = 0; r < ROWS; r++) {
        float sum[COLUMNS] = { 0 };

        for (size_t s = 0; s < samples; s++)
            for (size_t c = 0; c < COLUMNS; c++)
                sum[c] += dy[s * ROWS + r] * x[s * COLUMNS + c];
        memcpy(out + r * stride, sum, sizeof(sum));
    }
}

#if defined(__x86_64__)

/* Compute all rows at once, with the sums in registers: 24 vectors of 16 floats, or 12 of 8. */
#define TILE_IN(name, instructions, lanes, vectors)                                                          \
    typedef float name##_vector __attribute__((vector_size(4 * (lanes)), aligned(4), may_alias));            \
                                                                                                             \
    __attribute__((target(instructions))) static void name(const float *dy, const float *x, size_t samples,  \
                                                           float *out, size_t stride)                        \
    {                                                                                                        \
        for (size_t c = 0; c < COLUMNS; c += (lanes) * (vectors)) {                                          \
            name##_vector sum[ROWS][vectors] = { 0 };                                                        \
                                                                                                             \
            for (size_t s = 0; s < samples; s++)                                                             \
                for (size_t r = 0; r < ROWS; r++)                                                            \
                    for (size_t v = 0; v < (vectors); v++)                                                   \
                        sum[r][v] +=                                                                         \
                            dy[s * ROWS + r] * *(const name##_vector *)(x + s * COLUMNS + c + v * (lanes));  \
            for (size_t r = 0; r < ROWS; r++)                                                                \
                for (size_t v = 0; v < (vectors); v++)                                                       \
                    *(name##_vector *)(out + r * stride + c + v * (lanes)) = sum[r][v];                      \
        }                                                                                                    \
    }

TILE_IN(tile_avx512, "arch=skylake-avx512", 16, 4)
TILE_IN(tile_avx2, "arch=haswell", 8, 2)

/* Select the fastest tile function for this CPU. */
static tile_fn tile_choose(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return tile_avx512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? tile_avx2 : tile_plain;
}

#else

static tile_fn tile_choose(void)
{
    return tile_plain;
}

#endif

void gp_factor_product(const gp_factor *factor, size_t samples, size_t block, size_t first, float *out,
                       size_t stride)
{
    const float *dy = factor->dy + block * factor->samples * ROWS, *x = factor->x + first * factor->samples;

    tile_choose()(dy, x, samples, out, stride);
}

/* ---- the segment ---- */

typedef struct factor_source {
    const gp_factor *factor;
    const float *x, *dy; /* rows of a call, one per sample, dense */
    float *bias;         /* bias gradient; NULL: the layer has none */
} factor_source;

struct gp_segment {
    uint32_t count, threads;
    factor_source *sources;
};

static void factors_free(gp_segment *segment)
{
    if (segment == NULL)
        return;
    gp_free(segment->sources);
    gp_free(segment);
}

static gp_status factors_compile(gp_segment **out, const gp_segment_request *request, gp_error *err)
{
    const gp_graph *graph = request->graph;
    gp_segment *segment = gp_calloc(1, sizeof(*segment));

    if (segment != NULL)
        segment->sources = gp_calloc(request->count, sizeof(*segment->sources));
    if (segment == NULL || segment->sources == NULL) {
        factors_free(segment);
        return gp_fail(err, GP_ENOMEM, "no memory for a segment of %u ops", request->count);
    }
    segment->count = request->count;
    segment->threads = request->threads;
    for (uint32_t i = 0; i < request->count; i++) {
        const gp_op *op = &request->ops[i];

        segment->sources[i] = (factor_source){ .factor = gp_factor_of(request->memory, graph, op),
                                               .x = request->values[op->in[0]],
                                               .dy = request->values[op->in[1]] };
        if (op->out[1] != GP_NO_VALUE)
            segment->sources[i].bias =
                request->memory->gradients + graph->parameters[graph->values[op->out[1]].parameter].offset;
    }
    *out = segment;
    return GP_OK;
}

static gp_status factors_run(gp_segment *segment, const gp_batch *batch, gp_plan_times *times, gp_error *err)
{
    gp_loop_call call = { .batch = batch, .rows = batch->count, .threads = segment->threads, .packed = true };
    int64_t start = gp_now_ns();

    for (uint32_t i = 0; i < segment->count; i++) {
        const factor_source *source = &segment->sources[i];
        const gp_factor *factor = source->factor;
        gp_loop_operand dy = { .data = (float *)(uintptr_t)source->dy,
                               .shape = gp_shape3((int64_t)factor->outputs, 1, 1) };

        if (batch->position + batch->count > factor->samples)
            return gp_fail(err, GP_EINTERNAL, "invalid range: samples up to %llu of a mini-batch of %zu",
                           (unsigned long long)(batch->position + batch->count), factor->samples);
        gp_factor_write(factor, batch, source->x, source->dy, segment->threads);
        if (source->bias != NULL && batch->count != 0)
            gp_loop_bias_gradient(&call, &dy, source->bias);
        else if (source->bias != NULL && batch->first)
            memset(source->bias, 0, factor->outputs * sizeof(float));
    }
    times->backward_ns += gp_now_ns() - start;
    return GP_OK;
}

static void factors_rebind(gp_segment *segment, const float *parameters)
{
    (void)segment, (void)parameters; /* reads no parameters */
}

static size_t factors_memory_bytes(const gp_segment *segment)
{
    return sizeof(*segment) + segment->count * sizeof(*segment->sources);
}

const gp_segment_ops gp_segment_factors = {
    .name = "factors",
    .reads_samples = false,
    .compile = factors_compile,
    .free = factors_free,
    .run = factors_run,
    .rebind = factors_rebind,
    .memory_bytes = factors_memory_bytes,
};
