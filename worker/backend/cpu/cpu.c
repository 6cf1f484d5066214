/* The CPU backend: divides a graph into segments, allocates buffers for values that cross segment
 * borders, and runs the segments in order.
 *
 * A fixed rule selects the kernels. A small network (gp_lanes_suits) is one lanes segment. In any
 * other network, oneDNN executes the ops that it claims and the lanes kernels execute the rest.
 * Plain loops execute ops that the lanes kernels lack. Without the oneDNN module, the lanes kernels
 * replace oneDNN: results are correct but large networks are slow, so the backend logs a
 * warning. */
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/process.h"
#include "common/base/text/log.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/factors.h"
#include "worker/backend/cpu/lanes/lanes.h"
#include "worker/backend/cpu/loops/loops.h"
#include "worker/backend/cpu/base/profile.h"
#include "worker/backend/cpu/base/segment.h"
#include "worker/backend/cpu/base/threads.h"

enum { CPU_THREADS_MAX = 1024, CPU_MICRO_BATCH_MAX = 1 << 20, CPU_KERNELS_BYTES = 32 };
static const int64_t CPU_VALUE_BYTES_MAX = (int64_t)1 << 40;

/* The backend and the backend settings. */
struct gp_backend {
    uint32_t threads;
    int *cores;                      /* owned; NULL: not pinned */
    char kernels[CPU_KERNELS_BYTES]; /* "": selected by rule */
    /* lanes segment for the selected instruction set */
    const gp_segment_ops *lanes;
    const gp_segment_ops *onednn; /* NULL: not loaded */
    /* the module was searched for, with or without success */
    bool onednn_sought;
    /* restrictions by gp_backend_options.kernels */
    bool only_lanes, only_onednn;
    bool split; /* one segment per op, to test buffers between segments */
};

/* One segment of a plan. */
typedef struct cut {
    const gp_segment_ops *ops;
    gp_segment *segment;
    uint32_t first, count;
    size_t ready; /* after this segment, gradients [0, ready) of the blob are final */
} cut;

/* A compiled plan. */
struct gp_plan {
    gp_backend *backend;
    const gp_graph *graph;
    gp_plan_options options;
    gp_plan_memory memory;
    cut *cuts;
    uint32_t cut_count;
    void **values; /* per value: its buffer (owned); NULL: no buffer */
    size_t value_bytes;
    /* normalised input buffer, one of `values`; NULL: all segments read samples themselves */
    float *input;
    gp_plan_times times;
};

/* ---- opening ---- */

static void cpu_close(gp_backend *backend)
{
    if (backend == NULL)
        return;
    gp_threads_restore();
    gp_free(backend->cores);
    gp_free(backend);
}

/* Parse the kernels option: "avx2", or for tests "avx2,unfused" and "avx2,split". */
static gp_status read_kernels(gp_backend *backend, const char *kernels, gp_error *err)
{
    const lanes_isa *isa;
    lanes_effort effort;
    gp_status status;

    if (kernels != NULL && strlen(kernels) >= sizeof(backend->kernels))
        return gp_fail(err, GP_EINVAL, "unknown kernels \"%.40s...\"", kernels);
    if (kernels != NULL)
        strcpy(backend->kernels, kernels);
    backend->only_onednn = strcmp(backend->kernels, "onednn") == 0;
    backend->only_lanes = kernels != NULL && !backend->only_onednn;
    backend->split = strstr(backend->kernels, ",split") != NULL;
    status = gp_lanes_choose(&isa, &effort, backend->only_lanes ? kernels : NULL, err);
    if (status == GP_OK)
        backend->lanes = gp_segment_lanes(isa);
    return status;
}

static gp_status cpu_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    gp_backend *backend;
    gp_status status;

    if (options->threads < 1 || options->threads > CPU_THREADS_MAX)
        return gp_fail(err, GP_EINVAL, "invalid number of compute threads %u: must be between 1 and %d",
                       options->threads, CPU_THREADS_MAX);
    backend = gp_calloc(1, sizeof(*backend));
    if (backend == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the CPU backend");
    backend->threads = options->threads;
    if (options->cores != NULL) {
        backend->cores = gp_calloc(options->threads, sizeof(*backend->cores));
        if (backend->cores == NULL) {
            cpu_close(backend);
            return gp_fail(err, GP_ENOMEM, "no memory for a list of %u cores", options->threads);
        }
        memcpy(backend->cores, options->cores, options->threads * sizeof(*backend->cores));
    }
    status = read_kernels(backend, options->kernels, err);
    if (status != GP_OK) {
        cpu_close(backend);
        return status;
    }
    *out = backend;
    return GP_OK;
}

/* ---- the oneDNN module ---- */

/* Open the oneDNN module beside the executable, in ../lib or in ../lib/gradpool. NULL: not found or
 * not loadable; `error` says why. */
static void *open_module(char *error, size_t bytes)
{
    static const char *const places[] = { "/../lib/", "/", "/../lib/gradpool/" };
    char program[3072], path[3584];
    void *module = NULL;
    gp_error err;

    if (gp_program_path(program, sizeof(program), &err) != GP_OK) {
        snprintf(error, bytes, "%.200s", err.message);
        return NULL;
    }
    *strrchr(program, '/') = '\0';
    snprintf(error, bytes, "cannot find %s beside %.150s or in ../lib", GP_SEGMENT_ONEDNN_MODULE, program);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && module == NULL; i++) {
        snprintf(path, sizeof(path), "%s%s%s", program, places[i], GP_SEGMENT_ONEDNN_MODULE);
        if (access(path, R_OK) != 0)
            continue;
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (module == NULL)
            snprintf(error, bytes, "%s", dlerror());
    }
    return module;
}

/* Return the segment of a loaded module. GP_EVERSION in *err: the module is from another build. */
static const gp_segment_ops *segment_of(void *module, gp_error *err)
{
    static const gp_segment_build own = GP_SEGMENT_BUILD;
    const gp_segment_build *build = dlsym(module, GP_SEGMENT_ONEDNN_BUILD);

    if (build != NULL && memcmp(build, &own, sizeof(own)) == 0)
        return dlsym(module, GP_SEGMENT_ONEDNN_SYMBOL);
    gp_fail(err, GP_EVERSION,
            "%s on disk is from another build (%.*s) than this worker (%s); restart the pool: gradpool down",
            GP_SEGMENT_ONEDNN_MODULE, (int)sizeof(own.version), build == NULL ? "unknown" : build->version,
            own.version);
    return NULL;
}

/* ---- cutting ---- */

/* Find the next segment without oneDNN, and return the length. Every op that the lanes kernels lack
 * has a loop. */
static size_t custom_segment(const gp_plan *plan, const gp_op *ops, size_t count, const gp_segment_ops **who)
{
    size_t known = 0;

    while (known < count && gp_lanes_knows(plan->graph, &ops[known]))
        known++;
    *who = known == 0 ? &gp_segment_loops : plan->backend->lanes;
    return known == 0 || plan->backend->split ? 1 : known;
}

/* Find the next segment from ops[0] on, and return the length. 0: no implementation can execute it;
 * *err says why.
 *   who  set to the implementation */
static size_t next_segment(const gp_plan *plan, const gp_op *ops, size_t count, const gp_segment_ops **who,
                           gp_error *err)
{
    gp_backend *backend = plan->backend;
    const gp_graph *graph = plan->graph;
    gp_phase phase = plan->options.phase;
    const gp_segment_ops *onednn;
    size_t claimed, alone = 1;
    bool small = backend->only_lanes;

    if (!backend->only_lanes && !backend->only_onednn && gp_lanes_suits(&small, graph, phase, err) != GP_OK)
        return 0;
    if (small)
        return custom_segment(plan, ops, count, who);

    /* Find the oneDNN segment. The module is loaded at most once per backend and never unloaded,
     * because the OpenMP threads keep running. */
    char reason[256];
    void *module;

    if (!backend->onednn_sought) {
        backend->onednn_sought = true;
        module = open_module(reason, sizeof(reason));
        if (module != NULL) {
            backend->onednn = segment_of(module, err);
            backend->onednn_sought = backend->onednn != NULL;
            if (backend->onednn == NULL)
                return 0;
        }
        if (backend->onednn == NULL && backend->only_onednn)
            gp_fail(err, GP_ENODEV, "cannot load the oneDNN kernels: %s", reason);
        else if (backend->onednn == NULL)
            gp_log(GP_LOG_WARN, "onednn-missing",
                   "cannot load the oneDNN kernels (%s); large networks train slower without them", reason);
    } else if (backend->onednn == NULL) {
        gp_fail(err, GP_ENODEV, "cannot load the oneDNN kernels");
    }
    onednn = backend->onednn;
    if (onednn == NULL)
        return backend->only_onednn ? 0 : custom_segment(plan, ops, count, who);
    claimed = onednn->claim(graph, phase, ops, count);
    if (claimed != 0) {
        *who = onednn;
        return claimed;
    }
    claimed = custom_segment(plan, ops, count, who);
    while (alone < claimed && onednn->claim(graph, phase, ops + alone, count - alone) == 0)
        alone++;
    return alone < claimed ? alone : claimed;
}

static bool is_factor(const gp_plan *plan, const gp_op *op)
{
    return gp_factor_of(&plan->memory, plan->graph, op) != NULL;
}

/* Divide the phase's op list into segments. */
static gp_status make_cuts(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    gp_error why = { .code = GP_EINTERNAL };

    plan->cuts = gp_calloc(ops->count, sizeof(*plan->cuts));
    if (plan->cuts == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the segments of %u ops", ops->count);
    for (uint32_t first = 0; first < ops->count;) {
        cut *next = &plan->cuts[plan->cut_count];
        const bool factor = is_factor(plan, ops->op + first);
        uint32_t run = 1; /* ops that are all factor ops, or all not */

        while (first + run < ops->count && is_factor(plan, ops->op + first + run) == factor)
            run++;
        next->first = first;
        next->ops = &gp_segment_factors;
        next->count = factor ? run : (uint32_t)next_segment(plan, ops->op + first, run, &next->ops, &why);
        if (next->count == 0) {
            if (err != NULL)
                *err = why;
            return why.code;
        }
        plan->cut_count++;
        first += next->count;
    }
    return GP_OK;
}

/* Return true if values with this role need a buffer when they cross a segment border. */
static bool lives_in_buffers(gp_value_role role)
{
    return role == GP_VALUE_INPUT || role == GP_VALUE_ACTIVATION || role == GP_VALUE_SAVED ||
           role == GP_VALUE_CALL || role == GP_VALUE_ACTIVATION_GRADIENT;
}

/* Allocate a value's buffer unless it has one. */
static gp_status value_cross(gp_plan *plan, uint32_t value, gp_error *err)
{
    const gp_value *v = &plan->graph->values[value];
    size_t each = (size_t)gp_shape_count(&v->shape) * gp_dtype_bytes(v->dtype), bytes;

    if (plan->values[value] != NULL)
        return GP_OK;
    if (each > (size_t)CPU_VALUE_BYTES_MAX / plan->options.micro_batch)
        return gp_fail(err, GP_ELIMIT, "the activation is too large: %zu bytes for each of %u samples", each,
                       plan->options.micro_batch);
    bytes = each * (v->role == GP_VALUE_CALL ? 1 : plan->options.micro_batch);
    plan->values[value] = gp_aligned_calloc(64, bytes);
    if (plan->values[value] == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes of activations; use a smaller batch", bytes);
    plan->value_bytes += bytes;
    return GP_OK;
}

/* Allocate a buffer for every value that one segment writes and another reads, and for all loop
 * values. */
static gp_status make_values(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    /* segment index + 1; 0: none */
    uint32_t *writer = gp_calloc(plan->graph->value_count, sizeof(*writer));
    gp_status status = GP_OK;

    plan->values = gp_calloc(plan->graph->value_count, sizeof(*plan->values));
    if (writer == NULL || plan->values == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a table of %u values", plan->graph->value_count);
    for (uint32_t c = 0; c < plan->cut_count && status == GP_OK; c++) {
        for (uint32_t i = plan->cuts[c].first; i < plan->cuts[c].first + plan->cuts[c].count; i++) {
            for (uint32_t k = 0; k < GP_OP_VALUES_MAX && status == GP_OK; k++) {
                uint32_t in = ops->op[i].in[k];

                if (in == GP_NO_VALUE || !lives_in_buffers(plan->graph->values[in].role))
                    continue;
                if (plan->graph->values[in].role == GP_VALUE_INPUT ? !plan->cuts[c].ops->reads_samples
                                                                   : writer[in] != c + 1)
                    status = value_cross(plan, in, err);
            }
            for (uint32_t k = 0; k < GP_OP_VALUES_MAX && status == GP_OK; k++) {
                uint32_t out = ops->op[i].out[k];

                if (out == GP_NO_VALUE)
                    continue;
                writer[out] = c + 1;
                /* Loops allocate no memory, so even unread outputs need a buffer. */
                if (plan->cuts[c].ops == &gp_segment_loops && lives_in_buffers(plan->graph->values[out].role))
                    status = value_cross(plan, out, err);
            }
        }
    }
    if (status == GP_OK)
        plan->input = plan->values[plan->graph->input];
    gp_free(writer);
    return status;
}

static void cpu_free(gp_plan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t c = 0; c < plan->cut_count; c++)
        plan->cuts[c].ops->free(plan->cuts[c].segment);
    for (uint32_t v = 0; plan->values != NULL && v < plan->graph->value_count; v++)
        gp_free(plan->values[v]);
    gp_free(plan->values);
    gp_free(plan->cuts);
    gp_free(plan);
}

static gp_status compile_cuts(gp_plan *plan, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t c = 0; c < plan->cut_count && status == GP_OK; c++) {
        cut *at = &plan->cuts[c];
        gp_segment_request request = { .graph = plan->graph,
                                       .phase = plan->options.phase,
                                       .ops = plan->graph->ops[plan->options.phase].op + at->first,
                                       .count = at->count,
                                       .micro_batch = plan->options.micro_batch,
                                       .threads = plan->options.threads,
                                       .sample_dtype = plan->options.sample_dtype,
                                       .precision = plan->options.precision,
                                       .memory = &plan->memory,
                                       .values = plan->values,
                                       .kernels = plan->backend->kernels[0] == '\0'
                                                      ? NULL
                                                      : plan->backend->kernels };

        status = at->ops->compile(&at->segment, &request, err);
    }
    return status;
}

static gp_status cpu_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                             const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    gp_plan *plan;
    gp_status status;

    if (options->micro_batch < 1 || options->micro_batch > CPU_MICRO_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "invalid micro-batch size %u: must be between 1 and %d",
                       options->micro_batch, CPU_MICRO_BATCH_MAX);
    if (options->sample_dtype != GP_U8 && options->sample_dtype != GP_F32)
        return gp_fail(err, GP_EINVAL, "unsupported sample type %s: must be uint8 or float32",
                       gp_dtype_name(options->sample_dtype));
    if (options->precision == GP_PRECISION_F16)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "CPU workers do not support fp16; use --precision bf16, or a worker with a GPU");
    plan = gp_calloc(1, sizeof(*plan));
    if (plan == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a plan");
    plan->backend = backend;
    plan->graph = graph;
    plan->options = *options;
    if (options->threads == 0 || options->threads > backend->threads)
        plan->options.threads = backend->threads;
    plan->memory = *memory;
    status = make_cuts(plan, err);
    if (status == GP_OK)
        status = make_values(plan, err);
    if (status == GP_OK)
        status = compile_cuts(plan, err);
    if (status != GP_OK) {
        cpu_free(plan);
        return status;
    }

    /* Compute the final range of the gradient blob after each segment. It ends at the first
     * gradient that a later segment still writes. */
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    size_t ready = plan->graph->blob_count;

    for (uint32_t c = plan->cut_count; c-- > 0;) {
        plan->cuts[c].ready = ready;
        for (uint32_t i = plan->cuts[c].first; i < plan->cuts[c].first + plan->cuts[c].count; i++)
            for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++) {
                uint32_t v = ops->op[i].out[k];
                const gp_value *value = v == GP_NO_VALUE ? NULL : &plan->graph->values[v];

                if (value == NULL || value->role != GP_VALUE_PARAMETER_GRADIENT)
                    continue;
                if (plan->graph->parameters[value->parameter].offset < ready)
                    ready = plan->graph->parameters[value->parameter].offset;
            }
    }
    *out = plan;
    return GP_OK;
}

/* ---- running ---- */

typedef struct input_call {
    const gp_plan *plan;
    const gp_batch *batch;
} input_call;

/* Normalise one thread's sample slice into the input buffer. */
static void normalize_share(void *context, uint32_t thread, uint32_t threads)
{
    const input_call *call = context;
    const gp_netspec *spec = call->plan->graph->spec;
    size_t each = (size_t)gp_shape_count(&spec->input);
    size_t channels = spec->input.rank == 3 ? (size_t)spec->input.dim[0] : each, plane = each / channels;

    for (size_t i = thread; i < call->batch->count * channels; i += threads) {
        size_t k = i % channels < spec->normalize_count ? i % channels : 0;
        float scale = (float)spec->scale[k], offset = (float)spec->offset[k],
              *to = call->plan->input + i * plane;

        if (call->plan->options.sample_dtype == GP_U8) {
            const uint8_t *from = (const uint8_t *)call->batch->samples + i * plane;

            for (size_t e = 0; e < plane; e++)
                to[e] = (float)from[e] * scale + offset;
        } else {
            const float *from = (const float *)call->batch->samples + i * plane;

            for (size_t e = 0; e < plane; e++)
                to[e] = from[e] * scale + offset;
        }
    }
}

static gp_status cpu_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                         gp_error *err)
{
    gp_backend *backend = plan->backend;
    input_call call = { plan, batch };
    size_t reported = 0;

    assert(batch->count <= plan->options.micro_batch);
    assert(batch->targets != NULL || batch->count == 0 || plan->options.phase == GP_PHASE_INFER ||
           plan->graph->target_bytes == 0);
    gp_threads_prepare(backend->threads, backend->cores);
    if (batch->first && !batch->backward_only &&
        (batch->targets != NULL || plan->options.phase == GP_PHASE_TRAIN))
        memset(plan->memory.sums, 0, GP_SUMS * sizeof(double));
    if (plan->input != NULL && !batch->backward_only)
        gp_threads_run(plan->options.threads, normalize_share, &call);
    for (uint32_t c = 0; c < plan->cut_count; c++) {
        cut *at = &plan->cuts[c];
        gp_status status;

        if (batch->forward_only && at->first >= plan->graph->ops[plan->options.phase].forward_count)
            break;
        if (batch->backward_only && at->first < plan->graph->ops[plan->options.phase].forward_count)
            continue;
        status = at->ops->run(at->segment, batch, &plan->times, err);
        if (status == GP_OK && batch->count == 0 && batch->coupling != NULL) {
            /* Take part in the other ranks' batch-norm reductions with zeros, on a rank without
             * samples. */
            const gp_op *ops = plan->graph->ops[plan->options.phase].op;
            const uint32_t forward = plan->graph->ops[plan->options.phase].forward_count;

            for (uint32_t i = at->first; i < at->first + at->count && status == GP_OK; i++) {
                if ((batch->forward_only && i >= forward) || (batch->backward_only && i < forward))
                    continue; /* the other ranks skip it too */
                if (ops[i].code != GP_OP_BATCHNORM && ops[i].code != GP_OP_BATCHNORM_BACKWARD)
                    continue;
                size_t count = 2 * (size_t)plan->graph->values[ops[i].in[0]].shape.dim[0] + 1;

                memset(batch->coupling->sums, 0, count * sizeof(double));
                status = batch->coupling->reduce(batch->coupling->context, count, err);
            }
        }

        if (status == GP_OK && batch->last && ready != NULL && plan->options.phase == GP_PHASE_TRAIN &&
            at->ready > reported) {
            reported = at->ready;
            status = ready(context, reported, err);
        }
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

static gp_status cpu_sync(gp_backend *backend, gp_error *err)
{
    (void)backend;
    (void)err;
    return GP_OK; /* run() is synchronous */
}

static gp_plan_times cpu_take_times(gp_plan *plan)
{
    gp_plan_times times = plan->times;

    plan->times = (gp_plan_times){ 0 };
    return times;
}

const void *gp_cpu_peek(const gp_plan *plan, uint32_t value)
{
    return plan->values[value];
}

static size_t cpu_memory_bytes(const gp_plan *plan)
{
    size_t bytes = sizeof(*plan) + plan->value_bytes;

    for (uint32_t c = 0; c < plan->cut_count; c++)
        bytes += plan->cuts[c].ops->memory_bytes(plan->cuts[c].segment);
    return bytes;
}

void gp_cpu_profile(const gp_plan *plan, gp_profile_fn fn, void *context)
{
    for (uint32_t c = 0; c < plan->cut_count; c++)
        if (plan->cuts[c].ops->profile != NULL)
            plan->cuts[c].ops->profile(plan->cuts[c].segment, fn, context);
}

static const char *layer_name(const gp_plan *plan, uint32_t op)
{
    uint32_t layer = plan->graph->ops[plan->options.phase].op[op].layer;

    return layer < plan->graph->spec->layer_count ? plan->graph->spec->layers[layer].name : "input";
}

static void cpu_describe(const gp_plan *plan, char *text, size_t bytes)
{
    size_t used = 0;

    if (bytes != 0)
        text[0] = '\0';
    for (uint32_t c = 0; c < plan->cut_count && used < bytes; c++) {
        const cut *at = &plan->cuts[c];
        bool narrow = at->ops->narrow != NULL && at->ops->narrow(at->segment);
        const char *in = plan->options.precision == GP_PRECISION_F32 ? "" : narrow ? " in bf16" : " in f32";
        int length =
            snprintf(text + used, bytes - used, "%s%s: %s .. %s, %u ops\n", at->ops->name, in,
                     layer_name(plan, at->first), layer_name(plan, at->first + at->count - 1), at->count);

        used += length < 0 ? bytes : (size_t)length;
    }
}

static void cpu_rebind(gp_plan *plan, const float *parameters)
{
    plan->memory.parameters = parameters;
    for (uint32_t c = 0; c < plan->cut_count; c++)
        plan->cuts[c].ops->rebind(plan->cuts[c].segment, parameters);
}

const gp_backend_ops gp_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .compile = cpu_compile,
    .free = cpu_free,
    .run = cpu_run,
    .sync = cpu_sync,
    .take_times = cpu_take_times,
    .memory_bytes = cpu_memory_bytes,
    .describe = cpu_describe,
    .rebind = cpu_rebind,
};
