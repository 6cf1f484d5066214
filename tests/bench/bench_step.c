/* bench_step.c: images per second in a training step of a zoo network (forward, backward, SGD,
 * batch in memory), or in a prediction.
 *
 *   bench_step [--threads N] [--batch B] [--seconds S] [--kernels NAME] [--network NAME|FILE]
 *              [--momentum M] [--device cpu|cuda] [--phase train|infer]
 *              [--precision f32|tf32|bf16|fp16] [--profile kinds|steps|plan] [--tune S]
 *              [--input resident|copied]
 *
 * --input: a training on a GPU selects the samples of each step from a batch in GPU memory
 * [resident], or copies them from host memory. A prediction copies them.
 *
 * --tune is a training's autotune-seconds [20, or GRADPOOL_AUTOTUNE_SECONDS], for GPUs: engines
 * come from the cache of earlier trainings, or are timed; 0: by rule. --profile also prints the
 * chosen engines.
 *
 * --profile prints where large networks spend time: by operation and kernel, or step by step. A GPU
 * then runs each step without a graph, so the images per second are lower than usual.
 *
 * --profile plan prints the steps of a plan for GPUs, without running it.
 *
 * Pins thread t to the t-th allowed core. Prints the best and the median step: on a shared machine
 * the best one shows the speed of the kernels, and the median shows the influence of other
 * processes. bench_step.py runs the same step in PyTorch. */
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/data/store/sampler.h"
#include "common/data/store/store.h"
#include "common/model/network.h"
#include "tests/sort.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/base/profile.h"
#include "worker/backend/plugin.h"
#include "worker/optim/optim.h"
#include "worker/train/tuning.h"

enum { STEPS_MAX = 100000, CORES_MAX = 1024, KINDS_MAX = 256, BENCH_WARM = 3 };

typedef struct bench_options {
    uint32_t threads, batch;
    double seconds, momentum, tune;
    const char *kernels, *network, *profile;
    bool cuda, copied;
    gp_phase phase;
    gp_precision precision;
} bench_options;

typedef struct bench {
    gp_netspec *spec;
    gp_graph *graph;
    const gp_backend_ops *ops;
    const gp_plugin *plugin; /* NULL: CPU */
    gp_backend *backend;
    gp_plan *plan;
    gp_tuning tuning; /* choices NULL: by rule */
    gp_train_options train;
    gp_optim *optim;
    int64_t commit_ns;
    float *parameters, *gradients;
    double sums[GP_SUMS];
    uint8_t *samples; /* batch_bytes, including the labels */
    int32_t *labels;
    size_t samples_bytes, batch_bytes;
    uint32_t batch, under_way;
    gp_sampler sampler;
    gp_resident data; /* the batch, as a data set */
    bool resident;    /* the batch is in device memory */
} bench;

static gp_precision precision_of(const char *word)
{
    int found = 0;

    for (int i = 0; gp_precision_names[i] != NULL; i++)
        if (strcmp(word, gp_precision_names[i]) == 0)
            found = i;
    return (gp_precision)found;
}

static bool read_options(bench_options *options, int count, char **arguments)
{
    const char *tune = getenv("GRADPOOL_AUTOTUNE_SECONDS");

    *options = (bench_options){
        .threads = 1, .batch = 256, .seconds = 2, .network = "lenet", .tune = tune == NULL ? 20 : atof(tune)
    };
    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];

        if (strcmp(name, "--threads") == 0)
            options->threads = (uint32_t)atoi(value);
        else if (strcmp(name, "--batch") == 0)
            options->batch = (uint32_t)atoi(value);
        else if (strcmp(name, "--seconds") == 0)
            options->seconds = atof(value);
        else if (strcmp(name, "--kernels") == 0)
            options->kernels = value;
        else if (strcmp(name, "--network") == 0)
            options->network = value;
        else if (strcmp(name, "--momentum") == 0)
            options->momentum = atof(value);
        else if (strcmp(name, "--device") == 0)
            options->cuda = strcmp(value, "cuda") == 0;
        else if (strcmp(name, "--tune") == 0)
            options->tune = atof(value);
        else if (strcmp(name, "--profile") == 0)
            options->profile = value;
        else if (strcmp(name, "--input") == 0 && strcmp(value, "copied") == 0)
            options->copied = true;
        else if (strcmp(name, "--input") == 0 && strcmp(value, "resident") == 0)
            options->copied = false;
        else if (strcmp(name, "--precision") == 0)
            options->precision = precision_of(value);
        else if (strcmp(name, "--phase") == 0)
            options->phase = strcmp(value, "infer") == 0 ? GP_PHASE_INFER : GP_PHASE_TRAIN;
        else
            return false;
    }
    return count % 2 == 1 && options->threads >= 1 && options->threads <= CORES_MAX && options->batch >= 1 &&
           options->batch <= 1 << 16;
}

static void own_cores(int *cores, uint32_t threads)
{
    cpu_set_t set;
    uint32_t found = 0;

    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int c = 0; c < CPU_SETSIZE && found < threads; c++)
        if (CPU_ISSET((size_t)c, &set))
            cores[found++] = c;
    for (; found < threads; found++)
        cores[found] = cores[0];
}

/* Compile the plan like a training (worker/train/trainer_tuning.c). */
static gp_status bench_compile_tuned(bench *b, const bench_options *options, gp_plan_options *plan,
                                     const gp_plan_memory *memory, gp_error *err)
{
    char libraries[GP_LIBRARIES_BYTES];
    gp_error ignored;
    gp_status status = gp_tuning_init(&b->tuning, err);

    if (status == GP_OK)
        status = b->ops->libraries(b->backend, libraries, err);
    if (status != GP_OK)
        return status;
    gp_tuning_load(&b->tuning, libraries, &ignored);
    b->tuning.left_ns = (int64_t)(options->tune * 1e9);
    plan->tuning = &b->tuning;
    status = b->ops->compile(&b->plan, b->backend, b->graph, plan, memory, err);
    if (status == GP_OK && b->tuning.timed + b->tuning.untimed > 0)
        gp_tuning_save(&b->tuning, libraries, &ignored);
    return status;
}

static void choices_print(const gp_tuning *tuning)
{
    for (uint32_t i = 0; i < tuning->count; i++)
        if (tuning->choices[i].used)
            printf("%10.1f us  %-20s %s\n", tuning->choices[i].us, tuning->choices[i].how,
                   tuning->choices[i].what);
}

/* Copy samples of the batch. Implements gp_resident.read. */
static gp_status batch_read(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                            gp_error *err)
{
    const bench *b = context;
    const size_t each = b->data.sample_bytes, target = b->data.target_bytes;

    (void)err;
    memcpy(samples, b->samples + first * each, count * each);
    memcpy(targets, (const char *)b->labels + first * target, count * target);
    return GP_OK;
}

/* Move a training's state to the device, and the batch too unless it is to be copied: then from
 * page-locked memory, as in a training. */
static gp_status bench_make_resident(bench *b, bool copied, gp_error *err)
{
    const gp_shape *input = &b->spec->input;
    uint32_t blobs;
    uint64_t *step;
    float *state = gp_optim_state(b->optim, &blobs, &step);

    gp_sampler_init(&b->sampler, b->batch, GP_SHUFFLE_NEVER, 0);
    b->data = (gp_resident){ .sampler = &b->sampler,
                             .count = b->batch,
                             .patches = 1,
                             .sample_bytes = (size_t)gp_shape_count(input),
                             .target_bytes = b->graph->target_bytes,
                             .channels = (uint32_t)input->dim[0],
                             .height = (uint32_t)input->dim[1],
                             .width = (uint32_t)input->dim[2],
                             .read = batch_read,
                             .context = b };
    gp_status status =
        b->ops->steps->make_resident(b->plan,
                                     &(gp_resident_request){ .options = &b->train,
                                                             .state = state,
                                                             .state_blobs = blobs,
                                                             .solved = *step,
                                                             .resident = copied ? NULL : &b->data },
                                     &b->resident, err);
    return status == GP_OK && copied ? b->ops->steps->lock(b->plan, b->samples, b->batch_bytes, err) : status;
}

static gp_status bench_open(bench *b, const bench_options *options, gp_error *err)
{
    static int cores[CORES_MAX];
    gp_backend_options backend = { .threads = options->threads, .cores = cores, .kernels = options->kernels };
    char compiled[PATH_MAX];
    gp_error ignored;
    gp_plan_options plan = { .phase = options->phase,
                             .micro_batch = options->batch,
                             .sample_dtype = GP_U8,
                             .precision = options->precision };
    gp_plan_memory memory;
    size_t pixels;
    gp_status status = GP_OK;
    gp_network network = { 0 };

    b->ops = &gp_backend_cpu;
    if (options->cuda) {
        status = gp_plugin_load_device(&b->plugin, NULL, err);
        if (status != GP_OK)
            return status;
        b->ops = b->plugin->backend;
    }

    if (gp_network_is_file(options->network))
        status = gp_network_load(&network, options->network, NULL, 0, err);
    else
        status = gp_zoo_build(&network.spec, options->network, NULL, 0, err);
    b->spec = network.spec; /* weights in a file are ignored: every network gets random ones */
    network.spec = NULL;
    gp_network_deinit(&network);

    if (status == GP_OK)
        status = gp_graph_new(&b->graph, b->spec, err);
    if (status != GP_OK)
        return status;
    own_cores(cores, options->threads);
    pixels = (size_t)gp_shape_count(&b->spec->input);
    b->batch = options->batch;
    b->parameters = gp_aligned_calloc(64, b->graph->blob_count * sizeof(float));
    b->gradients = gp_aligned_calloc(64, b->graph->blob_count * sizeof(float));
    b->samples_bytes = b->batch * pixels;
    b->samples_bytes += -b->samples_bytes % 64;
    b->batch_bytes = b->samples_bytes + b->batch * b->graph->target_bytes;
    b->samples = gp_aligned_calloc(4096, b->batch_bytes);
    if (b->parameters == NULL || b->gradients == NULL || b->samples == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the benchmark");
    b->labels = (int32_t *)(void *)(b->samples + b->samples_bytes);
    gp_graph_initialize(b->graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 1, b->parameters);
    for (size_t i = 0; i < b->batch * pixels; i++) {
        uint32_t words[4];

        gp_rng_draw(words, 1, 0, 0, 0, (uint32_t)i);
        b->samples[i] = (uint8_t)words[0];
    }
    for (size_t i = 0; i < b->batch * b->graph->target_bytes / sizeof(int32_t) && b->graph->class_count != 0;
         i++)
        b->labels[i] = (int32_t)(i * 2654435761u % b->graph->class_count);
    memory = (gp_plan_memory){ .parameters = b->parameters, .gradients = b->gradients, .sums = b->sums };
    status = gp_train_options_from_json(&b->train, "{}", 2, err);
    b->train.momentum = options->momentum;
    if (status == GP_OK && options->phase == GP_PHASE_TRAIN)
        status = gp_optim_new(&b->optim, b->graph, &b->train, err);
    if (gp_cache_path(compiled, sizeof(compiled), "compiled", NULL, &ignored) == GP_OK)
        backend.compiled = compiled;
    if (status == GP_OK)
        status = b->ops->open(&b->backend, &backend, err);
    if (status == GP_OK && options->tune > 0 && options->phase == GP_PHASE_TRAIN && b->ops->libraries != NULL)
        status = bench_compile_tuned(b, options, &plan, &memory, err);
    else if (status == GP_OK)
        status = b->ops->compile(&b->plan, b->backend, b->graph, &plan, &memory, err);
    if (status == GP_OK && b->optim != NULL && b->ops->steps != NULL)
        status = bench_make_resident(b, options->copied, err);
    if (status == GP_OK && b->data.count > 0 && !options->copied && !b->resident)
        status = gp_fail(err, GP_ENOMEM, "the batch does not fit into GPU memory; use --input copied");
    return status;
}

static void bench_close(bench *b)
{
    gp_error err;

    gp_optim_free(b->optim);
    if (b->ops != NULL) {
        if (b->under_way > 0 && b->optim != NULL)
            b->ops->steps->halt(b->plan, &err);
        b->ops->free(b->plan);
        b->ops->close(b->backend);
    }
    gp_tuning_deinit(&b->tuning);
    gp_free(b->samples);
    gp_free(b->gradients);
    gp_free(b->parameters);
    gp_graph_free(b->graph);
    gp_netspec_free(b->spec);
}

/* Run a step like a trainer with a resident training: launch the next step before the last result
 * is read. */
static gp_status bench_kept(bench *b, const gp_batch *batch, gp_error *err)
{
    gp_step_call call = { .batch = *batch, .learn_rate = 1e-3, .samples = batch->count };
    gp_step_reported reported;
    gp_status status = b->ops->steps->launch(b->plan, &call, err);

    if (status == GP_OK)
        b->under_way++;
    if (status != GP_OK || b->under_way < GP_STEPS_AHEAD)
        return status;
    status = b->ops->steps->reported(b->plan, &reported, err);
    b->under_way--;
    if (status == GP_OK)
        memcpy(b->sums, reported.sums, sizeof(b->sums));
    return status;
}

/* Run a batch like a predictor. */
static gp_status bench_predict(bench *b, const gp_batch *batch, gp_error *err)
{
    const float *scores;
    gp_status status = b->ops->predictions->launch(b->plan, batch, err);

    if (status == GP_OK)
        b->under_way++;
    if (status != GP_OK || b->under_way < GP_PREDICTIONS_AHEAD)
        return status;
    b->under_way--;
    return b->ops->predictions->take(b->plan, &scores, err);
}

static gp_status bench_step(bench *b, uint64_t step, gp_error *err)
{
    gp_batch batch = { .samples = b->resident ? NULL : b->samples,
                       .targets = b->resident ? NULL : b->labels,
                       .count = b->batch,
                       .first = true,
                       .unchanged = b->optim == NULL && step > 0,
                       .last = true,
                       .seed = 1,
                       .step = step };
    int64_t began;
    gp_status status;

    if (b->optim != NULL && b->ops->steps != NULL)
        return bench_kept(b, &batch, err);
    if (b->optim == NULL && b->ops->predictions != NULL)
        return bench_predict(b, &batch, err);
    status = b->ops->run(b->plan, &batch, NULL, NULL, err);
    began = gp_now_ns();
    if (status == GP_OK && b->optim != NULL)
        gp_optim_step(b->optim, b->parameters, b->gradients, (double)b->batch, 1e-3);
    b->commit_ns += gp_now_ns() - began;
    return status;
}

/* Profile lines, merged by kind. */
typedef struct bench_profile {
    const bench *b;
    bool steps;
    int runs;
    gp_profile_line kinds[KINDS_MAX];
    int count, times[KINDS_MAX];
    int64_t total_ns;
} bench_profile;

static void profile_print(const bench_profile *p, const gp_profile_line *line, const char *of)
{
    printf("%9.3f ms %5.1f%%  %-8s %-24s %-28s %s\n", (double)line->ns * 1e-6 / p->runs,
           100.0 * (double)line->ns / (double)p->total_ns, line->forward ? "forward" : "backward", line->what,
           line->kernel, of);
}

static void profile_take(void *context, const gp_profile_line *line)
{
    bench_profile *p = context;
    int k = 0;

    if (line->ns == 0)
        return;
    p->total_ns += line->ns;
    while (k < p->count &&
           (strcmp(p->kinds[k].what, line->what) != 0 || strcmp(p->kinds[k].kernel, line->kernel) != 0 ||
            p->kinds[k].forward != line->forward))
        k++;
    if (k == KINDS_MAX)
        return;
    if (k == p->count)
        p->kinds[p->count++] = *line;
    else
        p->kinds[k].ns += line->ns;
    p->times[k]++;
}

static const char *layer_name(const bench *b, const gp_profile_line *line)
{
    const gp_netspec *spec = b->graph->spec;

    return line->layer < spec->layer_count ? spec->layers[line->layer].name : "input";
}

static void profile_step(void *context, const gp_profile_line *line)
{
    const bench_profile *p = context;

    if (line->ns != 0)
        profile_print(p, line, layer_name(p->b, line));
}

static void plan_step(void *context, const gp_profile_line *line)
{
    if (line->kernel[0] != '\0') /* else a part of a call that is no step */
        printf("%-8s %-24s %-28s %s\n", line->forward ? "forward" : "backward", line->what, line->kernel,
               layer_name(context, line));
}

/* Start the measurement (fn NULL), or report the times. */
static gp_status bench_profile_report(const bench *b, gp_profile_fn fn, void *context, gp_error *err)
{
    if (b->plugin != NULL)
        return b->plugin->profile(b->plan, fn, context, err);
    gp_cpu_profile(b->plan, fn, context);
    return GP_OK;
}

static gp_status bench_profile_print(const bench *b, const char *how, int runs, gp_error *err)
{
    bench_profile p = { .b = b, .runs = runs };
    gp_status status = bench_profile_report(b, profile_take, &p, err);

    if (status == GP_OK && strcmp(how, "steps") == 0)
        status = bench_profile_report(b, profile_step, &p, err);
    for (int done = 0; done < p.count; done++) {
        char of[32];
        int most = 0;

        for (int k = 1; k < p.count; k++)
            if (p.kinds[k].ns > p.kinds[most].ns)
                most = k;
        if (p.kinds[most].ns <= 0)
            break;
        snprintf(of, sizeof(of), "%d steps", p.times[most]);
        profile_print(&p, &p.kinds[most], of);
        p.kinds[most].ns = -1;
    }
    printf("%9.3f ms         all; commit %.3f ms\n", (double)p.total_ns * 1e-6 / runs,
           (double)b->commit_ns * 1e-6 / runs);
    return status;
}

/* Return the CPU time over all threads, ns. On a busy machine, compare this figure with one
 * thread. */
static int64_t cpu_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static gp_status bench_run(bench *b, const bench_options *options, gp_error *err)
{
    static int64_t step_ns[STEPS_MAX];
    int64_t end = gp_now_ns() + (int64_t)(options->seconds * 1e9);
    gp_plan_times times;
    int count = 0;
    int64_t cpu_ns;
    char text[1024];
    gp_status status = GP_OK;

    if (options->profile != NULL && strcmp(options->profile, "plan") == 0) {
        if (b->plugin == NULL)
            return gp_fail(err, GP_EINVAL, "--profile plan needs --device cuda");
        status = bench_profile_report(b, NULL, NULL, err);
        return status == GP_OK ? bench_profile_report(b, plan_step, b, err) : status;
    }
    for (uint64_t warm = 0; warm < BENCH_WARM && status == GP_OK; warm++)
        status = bench_step(b, warm, err);
    b->ops->take_times(b->plan);
    if (status == GP_OK && options->profile != NULL)
        status = bench_profile_report(b, NULL, NULL, err);
    if (status != GP_OK)
        return status;
    b->commit_ns = 0;
    cpu_ns = cpu_now();
    do {
        int64_t began = gp_now_ns();

        status = bench_step(b, (uint64_t)count, err);
        if (status != GP_OK)
            return status;
        step_ns[count++] = gp_now_ns() - began;
    } while (gp_now_ns() < end && count < STEPS_MAX);
    cpu_ns = cpu_now() - cpu_ns;
    times = b->ops->take_times(b->plan);
    sort_int64s(step_ns, (size_t)count);
    b->ops->describe(b->plan, text, sizeof(text));
    printf("%s batch %u%s, %u threads: best %.2f images/s, median %.2f; forward %.2f ms, backward %.2f ms; "
           "loss %.4f; %.1f MB; processor time %.2f ms\n%s",
           options->network, b->batch,
           !options->cuda ? ""
           : b->resident  ? " resident"
                          : " copied",
           options->threads, b->batch * 1e9 / (double)step_ns[0], b->batch * 1e9 / (double)step_ns[count / 2],
           (double)times.forward_ns * 1e-6 / count, (double)times.backward_ns * 1e-6 / count,
           b->sums[GP_SUM_LOSS] / b->sums[GP_SUM_WEIGHT], (double)b->ops->memory_bytes(b->plan) * 1e-6,
           (double)cpu_ns * 1e-6 / count, text);
    if (b->optim == NULL && b->ops->predictions != NULL && b->ops->predictions->pieces(b->plan)[0] != '\0')
        printf("step by step: %s\n", b->ops->predictions->pieces(b->plan));
    if (options->profile != NULL && options->cuda)
        choices_print(&b->tuning);
    return options->profile != NULL ? bench_profile_print(b, options->profile, count, err) : GP_OK;
}

int main(int count, char **arguments)
{
    bench_options options;
    bench b = { 0 };
    gp_error err;
    gp_status status;

    if (!read_options(&options, count, arguments)) {
        fprintf(
            stderr,
            "usage: bench_step [--threads N] [--batch B] [--seconds S] [--kernels K] [--network NAME|FILE]\n"
            "                  [--momentum M] [--device cpu|cuda] [--phase train|infer] [--precision "
            "f32|tf32|bf16|fp16] "
            "[--profile kinds|steps|plan] [--tune S]\n"
            "                  [--input resident|copied]\n");
        return 2;
    }
    status = bench_open(&b, &options, &err);
    if (status == GP_OK)
        status = bench_run(&b, &options, &err);
    if (status != GP_OK)
        fprintf(stderr, "bench_step: %s\n", err.message);
    bench_close(&b);
    return status != GP_OK;
}
