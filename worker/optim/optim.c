#include "worker/optim/optim.h"

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "common/base/memory/alloc.h"
#include "common/model/cost.h"
#include "worker/backend/cpu/base/clones.h"
#include "worker/backend/cpu/base/threads.h"

/* SHARED_MIN: with fewer elements, waking the OpenMP team takes longer than the work. LINE: floats
 * per cache line; threads never write to the same line. */
enum { SHARED_MIN = 65536, LINE = 16 };

/* BLOCK: elements that an update into other blobs computes at once, in the L1 cache. */
enum { BLOCK = 1024, STATE_BLOBS_MAX = 2 };

/* An optimizer and the optimizer state. */
struct gp_optim {
    const gp_graph *graph;
    const gp_train_options *options;
    uint64_t step; /* completed steps */
    float *state;  /* gp_solver_state() blobs */
    bool placed;   /* the caller owns the state memory */
};

gp_status gp_optim_new(gp_optim **out, const gp_graph *graph, const gp_train_options *options, gp_error *err)
{
    gp_optim *optim = gp_calloc(1, sizeof(*optim));

    if (optim == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an optimiser");
    optim->graph = graph;
    optim->options = options;
    optim->state =
        gp_aligned_calloc(64, graph->blob_count * gp_solver_state(options->solver) * sizeof(float));
    if (optim->state == NULL) {
        gp_optim_free(optim);
        return gp_fail(err, GP_ENOMEM, "no memory for the optimiser's state of %zu parameters",
                       graph->blob_count);
    }
    *out = optim;
    return GP_OK;
}

void gp_optim_free(gp_optim *optim)
{
    if (optim == NULL)
        return;
    if (!optim->placed)
        gp_free(optim->state);
    gp_free(optim);
}

void gp_optim_place_state(gp_optim *optim, float *state)
{
    if (!optim->placed)
        gp_free(optim->state);
    optim->state = state;
    optim->placed = true;
}

float *gp_optim_state(gp_optim *optim, uint32_t *blobs, uint64_t **step)
{
    if (blobs != NULL)
        *blobs = gp_solver_state(optim->options->solver);
    if (step != NULL)
        *step = &optim->step;
    return optim->state;
}

/* ---- gradient clipping (on the sum, so the threshold is multiplied by the weight) ---- */

/* Sum the squares in a fixed order, so that all ranks compute bitwise identical norms. */
static double sum_of_squares(const float *values, size_t count)
{
    enum { LANES = 8 };
    double sums[LANES] = { 0 }, sum = 0.0;
    size_t i = 0;

    for (; i + LANES <= count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            sums[lane] += (double)values[i + lane] * values[i + lane];
    for (; i < count; i++)
        sum += (double)values[i] * values[i];
    for (size_t lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

/* Scale the values if their norm exceeds the limit. */
static void scale(float *values, size_t count, double norm, double limit)
{
    const float factor = (float)(limit / norm);

    if (norm <= limit)
        return;
    for (size_t i = 0; i < count; i++)
        values[i] *= factor;
}

/* Clip the gradient by the selected method. Skips frozen tensors and running statistics; the latter
 * store sums rather than gradients. */
static void clip(const gp_optim *optim, float *gradients, double weight)
{
    const gp_graph *graph = optim->graph;
    double limit = optim->options->gradient_threshold * weight, squares = 0.0;
    const int method = optim->options->gradient_threshold_method;
    const float most = (float)limit;

    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[i];
        float *values = gradients + parameter->offset;
        size_t count = (size_t)parameter->count;

        if (!gp_parameter_learns(parameter))
            continue;
        for (size_t k = 0; method == GP_CLIP_ABSOLUTE && k < count; k++)
            values[k] = values[k] > most ? most : values[k] < -most ? -most : values[k];
        if (method == GP_CLIP_L2NORM)
            scale(values, count, sqrt(sum_of_squares(values, count)), limit);
        else if (method == GP_CLIP_GLOBAL_L2NORM)
            squares += sum_of_squares(values, count);
    }
    if (method == GP_CLIP_GLOBAL_L2NORM)
        scale(gradients, graph->blob_count, sqrt(squares), limit);
}

/* ---- the update ---- */

void gp_optim_begin(gp_optim_pass *pass, const gp_optim *optim, float *parameters, double weight,
                    double learn_rate)
{
    const gp_train_options *options = optim->options;
    double t = (double)(optim->step + 1);

    *pass = (gp_optim_pass){ .optim = optim,
                             .parameters = parameters,
                             .state = optim->state,
                             .next_parameters = parameters,
                             .next_state = optim->state,
                             .learn_rate = learn_rate };
    pass->update = (gp_update){
        .state_stride = optim->graph->blob_count,
        .next_stride = optim->graph->blob_count,
        .gradient_scale = (float)(1.0 / weight),
        .momentum = (float)options->momentum,
        .decay = (float)options->gradient_decay_factor,
        .squared_decay = (float)options->squared_gradient_decay_factor,
        .epsilon = (float)options->epsilon,
        .correction = (float)(1.0 / (1.0 - pow(options->gradient_decay_factor, t))),
        .squared_correction = (float)(1.0 / (1.0 - pow(options->squared_gradient_decay_factor, t))),
    };
}

/* Copy with non-temporal stores: keeps other data in the caches and does not read the
 * destination. */
LOOP_CLONES static void stream(float *to, const float *from, size_t count)
{
    size_t i = 0;

#if defined(__SSE2__)
    for (; i < count && (uintptr_t)(to + i) % sizeof(__m128) != 0; i++)
        to[i] = from[i];
    for (; i + 4 <= count; i += 4)
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
    for (; i < count; i++)
        to[i] = from[i];
}

void gp_optim_flush(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Update a range into other blobs: compute each block in the L1 cache, then stream it to the
 * destination. */
static void update_elsewhere(const gp_optim_pass *pass, gp_update *update, size_t at, size_t count,
                             const float *gradients)
{
    const gp_optim *optim = pass->optim;
    size_t blob = optim->graph->blob_count;
    _Alignas(64) float parameters[BLOCK], state[STATE_BLOBS_MAX * BLOCK];

    update->next_parameters = parameters;
    update->next_state = state;
    update->next_stride = BLOCK;
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t part = count - i < BLOCK ? count - i : BLOCK;

        update->parameters = pass->parameters + at + i;
        update->state = pass->state + at + i;
        update->gradients = gradients + i;
        update->count = part;
        gp_optim_rules[optim->options->solver](update);
        stream(pass->next_parameters + at + i, parameters, part);
        for (uint32_t k = 0; k < gp_solver_state(optim->options->solver); k++)
            stream(pass->next_state + k * blob + at + i, state + k * BLOCK, part);
    }
}

void gp_optim_update(const gp_optim_pass *pass, uint32_t parameter, size_t first, size_t count,
                     const float *gradients)
{
    const gp_optim *optim = pass->optim;
    const gp_parameter *about = &optim->graph->parameters[parameter];
    size_t at = about->offset + first;
    gp_update update = pass->update;

    update.learn_rate = (float)(pass->learn_rate * about->learn_rate_factor);
    update.l2 = (float)(optim->options->l2_regularization * about->l2_factor);
    if (pass->next_parameters != pass->parameters) {
        update_elsewhere(pass, &update, at, count, gradients);
        return;
    }
    update.parameters = pass->parameters + at;
    update.state = pass->state + at;
    update.next_parameters = pass->next_parameters + at;
    update.next_state = pass->next_state + at;
    update.gradients = gradients;
    update.count = count;
    gp_optim_rules[optim->options->solver](&update);
}

void gp_optim_end(gp_optim *optim)
{
    optim->step++;
}

/* Thread context in gp_optim_step(). */
typedef struct step_call {
    gp_optim_pass pass;
    const float *gradients;
} step_call;

/* Update one thread's slice of every tensor. The update is limited by memory bandwidth, and
 * elements are independent. */
static void step_share(void *context, uint32_t thread, uint32_t threads)
{
    const step_call *call = context;
    const gp_graph *graph = call->pass.optim->graph;

    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[i];
        size_t lines = ((size_t)parameter->count + LINE - 1) / LINE;
        size_t first = lines * thread / threads * LINE, end = lines * (thread + 1) / threads * LINE;

        end = end > (size_t)parameter->count ? (size_t)parameter->count : end;
        if (gp_parameter_learns(parameter) && first < end)
            gp_optim_update(&call->pass, i, first, end - first, call->gradients + parameter->offset + first);
    }
}

void gp_optim_step(gp_optim *optim, float *parameters, float *gradients, double weight, double learn_rate)
{
    step_call step = { .gradients = gradients };

    if (optim->options->gradient_threshold > 0)
        clip(optim, gradients, weight);
    gp_optim_begin(&step.pass, optim, parameters, weight, learn_rate);
    gp_threads_run(optim->graph->blob_count < SHARED_MIN ? 1 : gp_threads_prepared(), step_share, &step);
    gp_optim_end(optim);
}
