/* Time the steps in a short training. The first steps are a warm-up and are not counted. */
#include "client/cli/measure/probe.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"

enum { WARM_UP = 5, STEPS_LEAST = 10, STEPS_MAX = 4096, OVERRIDES_MAX = 16 };

/* Training options that the probe replaces: run length, results, checkpoints, and batch size. */
static const char *const replaced[] = {
    "max-epochs",
    "mini-batch-size",
    "mini-batch-size-per-worker",
    "scale-lr",
    "initial-learn-rate",
    "validation-frequency",
    "validation-patience",
    "checkpoint-path",
    "checkpoint-frequency",
    "resume",
    "run-id",
    "output-network",
    "worker-weights",
    "batch-norm-statistics",
    "verbose-frequency",
    NULL,
};

/* Times collected by a probe. */
typedef struct probe {
    const probe_request *request;
    probe_result *out;
    double interval[STEPS_MAX], last_s; /* step times of rank 0 */
    /* sums over ranks, by step: compute, exchange, wait, commit, data */
    double parts[5][STEPS_MAX];
    uint32_t count; /* timed steps of rank 0 */
    bool enough;    /* cli_stop was set by the probe, not by Ctrl-C */
} probe;

static void on_begin(void *context, const gp_train_info *info)
{
    probe *p = context;

    p->out->workers = info->workers;
    p->out->batch = info->batch;
    p->out->memory_bytes = info->memory_bytes;
    p->out->parameters = info->parameters;
    p->out->samples = info->samples;
}

/* Record a step after the warm-up. Stop the training after enough steps, or after enough time and
 * at least STEPS_LEAST steps. */
static void on_step(void *context, const gp_train_step *step)
{
    probe *p = context;
    const uint64_t at = step->step - 1;

    if (step->rank == 0)
        gp_progress_report(p->request->progress, p->request->activity, "steps",
                           at < WARM_UP ? 0 : at - WARM_UP + 1, p->request->steps);
    if (at < WARM_UP || at - WARM_UP >= STEPS_MAX) {
        if (step->rank == 0)
            p->last_s = step->seconds;
        return;
    }
    const double parts[] = { step->forward_ms + step->backward_ms, step->exchange_ms, step->wait_ms,
                             step->commit_ms, step->data_ms };

    for (int i = 0; i < 5; i++)
        p->parts[i][at - WARM_UP] += parts[i] * 1e-3;
    if (step->rank != 0)
        return;
    p->interval[at - WARM_UP] = step->seconds - p->last_s;
    p->last_s = step->seconds;
    p->count = (uint32_t)(at - WARM_UP) + 1;
    if (p->enough || cli_stop != 0 ||
        (p->count < p->request->steps && (p->count < STEPS_LEAST || step->seconds < p->request->seconds)))
        return;
    p->enough = true;
    cli_stop = 1;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Return the median and sort the values. NaN: no values. */
static double probe_median(double *values, size_t count)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

gp_status probe_run(probe_result *out, gp_pool *pool, const probe_request *request, gp_error *err)
{
    const char *options[CLI_WORDS_MAX + OVERRIDES_MAX];
    char batch[64];
    size_t count = 0;
    gp_training *training = NULL;
    probe *p = gp_calloc(1, sizeof(*p));

    if (p == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to time a training");
    *out = (probe_result){ 0 };
    p->request = request;
    p->out = out;
    for (const char *const *option = request->options; *option != NULL; option++) {
        const char *const *name = replaced;

        while (*name != NULL && !cli_option_is(*option, *name))
            name++;
        if (*name == NULL)
            options[count++] = *option;
    }
    snprintf(batch, sizeof(batch), "mini-batch-size=%" PRIu32, request->batch);
    options[count++] = batch;
    options[count++] = "max-epochs=1000000";
    options[count++] = "initial-learn-rate=0";
    if (request->extra != NULL)
        options[count++] = request->extra;
    options[count] = NULL;
    gp_train_request train = { .network = request->network,
                               .data = request->data,
                               .validation_data = "none",
                               .options = options,
                               .lease = request->lease,
                               .events = { on_begin, on_step, NULL, p },
                               .stop = &cli_stop,
                               .data_progress = request->progress };

    train.lease.workers_min = train.lease.workers_max = request->workers;
    gp_status status = gp_train(&training, pool, &train, err);

    gp_training_free(training);
    if (p->enough && cli_stop == 1)
        cli_stop = 0;
    else if (status == GP_OK && cli_stop != 0)
        status = gp_fail(err, GP_ECANCELED, "interrupted");
    if (status == GP_OK && p->count < STEPS_LEAST)
        status = gp_fail(err, GP_ESTATE, "only %" PRIu32 " steps were timed; the minimum is %d", p->count,
                         STEPS_LEAST);
    if (status == GP_OK) {
        double *const fields[] = { &out->compute_s, &out->exchange_s, &out->wait_s, &out->commit_s,
                                   &out->data_s };

        out->steps = p->count;
        out->step_s = probe_median(p->interval, p->count);
        for (int i = 0; i < 5; i++)
            *fields[i] = probe_median(p->parts[i], p->count) / out->workers;
    }
    gp_free(p);
    return status;
}
