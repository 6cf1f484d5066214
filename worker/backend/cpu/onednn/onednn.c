/* The module gradpool_onednn.so: a segment that computes convolutions, products and pooling with
 * oneDNN.
 *
 * compile() creates all primitives, and run() executes the steps in order. Samples beyond the batch
 * are computed with zero inputs and zero gradients, so that the same primitives work for every
 * batch size. */
#include "worker/backend/cpu/onednn/onednn_segment.h"

#include <assert.h>
#include <omp.h>
#include <string.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

/* ---- claim ---- */

/* Return true if all pool indices that ops[i] writes or reads stay within ops[0 .. count). oneDNN
 * stores indices in a private layout. */
static bool index_stays(const gp_graph *graph, gp_phase phase, const gp_op *ops, size_t count, size_t i)
{
    const gp_ops *all = &graph->ops[phase];
    uint32_t index = ops[i].code == GP_OP_POOL            ? ops[i].out[1]
                     : ops[i].code == GP_OP_POOL_BACKWARD ? ops[i].in[1]
                                                          : GP_NO_VALUE;

    if (index == GP_NO_VALUE)
        return true;
    for (const gp_op *op = all->op; op < all->op + all->count; op++)
        if (op < ops || op >= ops + count)
            for (int j = 0; j < GP_OP_VALUES_MAX; j++)
                if (op->in[j] == index || op->out[j] == index)
                    return false;
    return true;
}

static size_t onednn_claim(const gp_graph *graph, gp_phase phase, const gp_op *ops, size_t count)
{
    size_t known = 0;

    if (!shim_library_fits())
        return 0;
    for (; known < count; known++) {
        const gp_loop *loop = gp_loop_find(ops[known].code);

        if (loop != NULL && loop->alone)
            break;
    }
    for (size_t i = 0; i < known;)
        if (index_stays(graph, phase, ops, known, i)) {
            i++;
        } else { /* check the shorter segment from the start */
            known = i;
            i = 0;
        }
    return known;
}

/* ---- compile ---- */

static void onednn_free(gp_segment *segment)
{
    if (segment == NULL)
        return;
    for (uint32_t i = 0; i < segment->primitive_count; i++)
        dnnl_primitive_destroy(segment->primitives[i]);
    for (uint32_t i = 0; i < segment->tensor_count; i++) {
        dnnl_memory_destroy(segment->tensors[i].memory);
        shim_md_free(segment->tensors[i].md);
    }
    dnnl_stream_destroy(segment->stream);
    if (segment->engine != NULL)
        dnnl_engine_destroy(segment->engine);
    gp_free(segment->arena);
    gp_free(segment->losses);
    gp_free(segment->hits);
    gp_free(segment->gradients);
    gp_free(segment->entries);
    gp_free(segment->step_ns);
    gp_free(segment->steps);
    gp_free(segment->primitives);
    gp_free(segment->tensors);
    gp_free(segment->buffers);
    gp_free(segment);
}

static gp_status segment_build(gp_segment *segment, const gp_segment_request *request, gp_error *err)
{
    gp_status status;

    segment->losses = gp_calloc(segment->micro_batch, sizeof(*segment->losses));
    segment->hits = gp_calloc(segment->micro_batch, sizeof(*segment->hits));
    if (segment->losses == NULL || segment->hits == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the losses of %u samples", segment->micro_batch);
    status = gp_onednn_check(dnnl_engine_create(&segment->engine, dnnl_cpu, 0), "a CPU engine", err);
    if (status == GP_OK)
        status =
            gp_onednn_check(dnnl_stream_create(&segment->stream, segment->engine, dnnl_stream_default_flags),
                            "a stream", err);
    if (status == GP_OK)
        status = gp_onednn_translate(segment, request, err);
    if (status == GP_OK)
        status = gp_onednn_place(segment, err);
    return status;
}

static gp_status onednn_compile(gp_segment **out, const gp_segment_request *request, gp_error *err)
{
    const dnnl_version_t *loaded = dnnl_version();
    const unsigned bf16_isa = dnnl_cpu_isa_avx512_core_bf16;
    gp_segment *segment;
    gp_status status;
    int before;

    assert(request->count >= 1 && request->micro_batch >= 1 && request->threads >= 1);
    if (!shim_library_fits())
        return gp_fail(
            err, GP_EVERSION, "built with oneDNN %d.%d and OpenMP, but loaded oneDNN %d.%d with runtime %u",
            DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, loaded->major, loaded->minor, loaded->cpu_runtime);
    segment = gp_calloc(1, sizeof(*segment));
    if (segment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a segment");
    segment->graph = request->graph;
    segment->memory = *request->memory;
    segment->phase = request->phase;
    segment->micro_batch = request->micro_batch;
    segment->threads = request->threads;
    segment->sample_dtype = request->sample_dtype;
    /* Without bfloat16 multiplication, oneDNN's bfloat16 kernels do not exist or are slower. */
    segment->narrow = request->precision == GP_PRECISION_BF16 &&
                      ((unsigned)dnnl_get_effective_cpu_isa() & bf16_isa) == bf16_isa;
    /* oneDNN reads the thread count when it creates and executes a primitive. */
    before = omp_get_max_threads();
    omp_set_num_threads((int)segment->threads);
    status = segment_build(segment, request, err);
    omp_set_num_threads(before);
    if (status != GP_OK) {
        onednn_free(segment);
        return status;
    }
    *out = segment;
    return GP_OK;
}

/* ---- run ---- */

static int64_t profile_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Execute the steps [first, end) and measure them if requested. */
static gp_status steps_run(const gp_onednn_run *run, uint32_t first, uint32_t end, gp_error *err)
{
    const gp_segment *segment = run->segment;
    gp_onednn_when not_now = run->batch->first && !run->batch->unchanged ? WHEN_LATER : WHEN_FIRST;
    gp_status status = GP_OK;
    int64_t start = 0;

    for (uint32_t i = first; i < end && status == GP_OK; i++) {
        const gp_onednn_step *step = &segment->steps[i];

        if (step->when == not_now)
            continue;
        if (segment->step_ns != NULL)
            start = profile_now();
        if (step->primitive == NULL)
            status = step->loop(step, run, err);
        else
            status = gp_onednn_check(dnnl_primitive_execute(step->primitive, segment->stream,
                                                            (int)step->argument_count, step->arguments),
                                     "a step", err);
        if (segment->step_ns != NULL)
            segment->step_ns[i] += profile_now() - start;
    }
    return status;
}

static gp_status onednn_run(gp_segment *segment, const gp_batch *batch, gp_plan_times *times, gp_error *err)
{
    gp_onednn_run run = { .segment = segment, .batch = batch };
    int64_t start = gp_now_ns(), middle;
    gp_status status;
    int before;

    assert(batch->count <= segment->micro_batch);
    if (batch->count == 0) {
        /* Zero the gradients on a rank without samples, which takes part in the reduction. */
        for (uint32_t i = 0; i < segment->gradient_count && batch->first; i++)
            memset(segment->memory.gradients + segment->gradients[i].offset, 0,
                   segment->gradients[i].count * sizeof(float));
        return GP_OK;
    }
    for (uint32_t i = 0; i < segment->entry_count; i++) {
        const gp_onednn_entry *entry = &segment->entries[i];

        memset(entry->data + batch->count * entry->count, 0,
               (segment->micro_batch - batch->count) * entry->count * sizeof(float));
    }
    before = omp_get_max_threads();
    omp_set_num_threads((int)segment->threads);
    status = steps_run(&run, 0, segment->forward_steps, err);
    middle = gp_now_ns();
    if (status == GP_OK && !batch->forward_only)
        status = steps_run(&run, segment->forward_steps, segment->step_count, err);
    if (status == GP_OK)
        status = gp_onednn_check(dnnl_stream_wait(segment->stream), "the end of a run", err);
    omp_set_num_threads(before);
    times->forward_ns += middle - start;
    times->backward_ns += gp_now_ns() - middle;
    return status;
}

static bool onednn_narrow(const gp_segment *segment)
{
    return segment->narrow;
}

static size_t onednn_memory_bytes(const gp_segment *segment)
{
    return sizeof(*segment) + segment->arena_bytes + segment->step_count * sizeof(*segment->steps) +
           segment->tensor_count * sizeof(*segment->tensors) +
           segment->buffer_count * sizeof(*segment->buffers) +
           segment->micro_batch * (sizeof(*segment->losses) + sizeof(*segment->hits));
}

static void onednn_profile(gp_segment *segment, gp_profile_fn fn, void *context)
{
    if (fn == NULL && segment->step_ns == NULL)
        segment->step_ns = gp_calloc(segment->step_count + 1, sizeof(*segment->step_ns));
    if (fn == NULL || segment->step_ns == NULL)
        return;
    for (uint32_t i = 0; i < segment->step_count; i++) {
        const gp_onednn_step *step = &segment->steps[i];
        gp_profile_line line = { .what = step->what,
                                 .kernel = "loop",
                                 .layer = step->layer,
                                 .forward = i < segment->forward_steps,
                                 .ns = segment->step_ns[i] };
        const_dnnl_primitive_desc_t pd;

        if (step->primitive != NULL &&
            dnnl_primitive_get_primitive_desc(step->primitive, &pd) == dnnl_success)
            dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&line.kernel);
        fn(context, &line);
    }
}

extern const gp_segment_build gp_segment_onednn_build;
__attribute__((visibility("default"))) const gp_segment_build gp_segment_onednn_build = GP_SEGMENT_BUILD;

extern const gp_segment_ops gp_segment_onednn;
__attribute__((visibility("default"))) const gp_segment_ops gp_segment_onednn = {
    .name = DNNL_VERSION_MAJOR >= 3 ? "onednn" : "onednn-2",
    .reads_samples = true,
    .claim = onednn_claim,
    .compile = onednn_compile,
    .free = onednn_free,
    .run = onednn_run,
    .rebind = gp_onednn_rebind,
    .memory_bytes = onednn_memory_bytes,
    .narrow = onednn_narrow,
    .profile = onednn_profile,
};
