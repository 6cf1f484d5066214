/* `gradpool advise`: recommend a worker count for a training, based on a few timed steps (advice.h,
 * probe.h). */
#include <inttypes.h>
#include <math.h>

#include "client/cli/measure/advice.h"
#include "client/cli/cli.h"
#include "client/cli/measure/probe.h"
#include "client/cli/show.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"

typedef struct advise_options {
    cli_common common;
    char network[512], data[512];
    int64_t steps;
    bool check;
} advise_options;

static const gp_param advise_params[] = {
    { .name = "network", GP_PARAM_FIELD(advise_options, network), .help = "see gradpool train" },
    { .name = "data",
      GP_PARAM_FIELD(advise_options, data),
      .placeholder = "SOURCE",
      .help = "see gradpool train" },
    { .name = "steps",
      GP_PARAM_FIELD(advise_options, steps),
      .fallback = 30,
      .min = 10,
      .max = 1000,
      .help = "steps per measurement; fewer, but at least 10, if they take longer than 10 s" },
    { .name = "check",
      GP_PARAM_FIELD(advise_options, check),
      .help = "also time a training on the recommended number of workers and print the prediction error" },
    CLI_JSON_PARAM(advise_options),
    CLI_COMMON_PARAMS(advise_options),
    { 0 },
};

static const double SECONDS = 10.0; /* approximate measurement duration, in seconds */

/* `gradpool advise` state. */
typedef struct advise {
    const cli_call *call;
    const advise_options *options;
    gp_pool *pool;
    gp_lease_request lease;
    /* most: predict up to this worker count; measured: workers available for measuring */
    uint32_t most, measured;
    advice_model model;
    double commit_s;    /* commit time on one worker; part of model.fixed_s */
    uint32_t best;      /* recommended worker count */
    probe_result check; /* result of --check; steps 0: not run */
    cli_progress progress;
    uint32_t planned, begun; /* measurements: total, and started so far */
} advise;

/* Run one measurement.
 *   workers, batch  batch is the total over all workers
 *   what            purpose, for progress reports */
static gp_status measure(advise *a, uint32_t workers, uint32_t batch, const char *what, probe_result *out,
                         gp_error *err)
{
    const gp_progress reports = cli_progress_reports(&a->progress);
    char activity[64];

    snprintf(activity, sizeof(activity), "measurement %" PRIu32 " of %" PRIu32 ", %s on %" PRIu32 " worker%s",
             ++a->begun, a->planned, what, workers, gp_plural(workers));
    const probe_request request = { .network = a->options->network,
                                    .data = a->options->data,
                                    .options = a->call->train,
                                    .lease = a->lease,
                                    .workers = workers,
                                    .batch = batch,
                                    .steps = (uint32_t)a->options->steps,
                                    .seconds = SECONDS,
                                    .progress = &reports,
                                    .activity = activity };
    gp_status status = probe_run(out, a->pool, &request, err);

    cli_progress_end(&a->progress);

    if (status == GP_OK && !a->options->common.quiet && !a->options->common.json)
        fprintf(stderr,
                "%s on %" PRIu32 " worker%s: %" PRIu32 " steps of %" PRIu32 " samples, %.2f ms each\n", what,
                workers, gp_plural(workers), out->steps, out->batch, out->step_s * 1e3);
    return status;
}

/* Return the second batch size measured on one worker: the share that a worker has in the largest
 * group. */
static uint32_t part_of(const advise *a)
{
    const uint32_t whole = a->model.batch;
    uint32_t part = a->model.per_worker ? whole / 2 : (whole + a->most - 1) / a->most;

    if (part == whole)
        part = whole / 2;
    return part < 1 ? 1 : part;
}

/* Measure one worker with the complete batch and with a share, and fit the model. */
static gp_status measure_one(advise *a, gp_error *err)
{
    const uint32_t whole = a->model.batch, part = part_of(a);
    probe_result first, second;
    gp_status status = measure(a, 1, whole, "compute", &first, err);

    if (status == GP_OK)
        status = part < whole ? measure(a, 1, part, "compute", &second, err) : GP_OK;
    if (status != GP_OK)
        return status;
    if (part == whole)
        second = first;
    a->commit_s = first.commit_s;
    a->model.gradient_bytes = (double)first.parameters * sizeof(float);
    advice_fit(&a->model, &(advice_times){ .share_a = part,
                                           .share_b = whole,
                                           .step_a_s = second.step_s,
                                           .step_b_s = first.step_s,
                                           .memory_a = (double)second.memory_bytes,
                                           .memory_b = (double)first.memory_bytes });
    return GP_OK;
}

/* Return the next worker count to measure: 2, 4, 8, ..., and finally all. */
static uint32_t exchange_next(const advise *a, uint32_t n)
{
    return n < a->measured && 2 * n > a->measured ? a->measured : 2 * n;
}

/* Measure everything, predict, and measure the recommended worker count if --check is given. */
static gp_status advise_measure(advise *a, gp_error *err)
{
    uint32_t pool_workers = 0;
    gp_status status = cli_lease_request(a->call, a->pool, &a->lease, err);

    if (status == GP_OK)
        status = gp_pool_workers(a->pool, &pool_workers, err);
    if (status != GP_OK)
        return status;
    a->most = a->lease.workers_max != 0 ? a->lease.workers_max : pool_workers;
    a->measured = a->most < pool_workers ? a->most : pool_workers;
    a->model.batch = advice_batch(a->call->train, &a->model.per_worker);
    a->planned = (part_of(a) < a->model.batch ? 2 : 1) + a->options->check;
    for (uint32_t n = 2, points = 0; n <= a->measured && points < ADVICE_POINTS_MAX; points++) {
        a->planned++;
        n = exchange_next(a, n);
    }
    cli_progress_begin(a->call, &a->progress, "steps");
    status = measure_one(a, err);

    /* Measure the exchange of the complete gradient on 2, 4, 8, ... and all workers. Each worker
     * gets one sample, so the exchange takes most of the step. If workers share the update, part
     * of the exchange happens in the commit, and each updates fewer parameters; therefore add the
     * difference between the commit times. */
    for (uint32_t n = 2; n <= a->measured && status == GP_OK && a->model.point_count < ADVICE_POINTS_MAX;) {
        probe_result result;

        status = measure(a, n, n, "exchange", &result, err);
        if (status == GP_OK)
            a->model.points[a->model.point_count++] = (struct advice_point){
                n, fmax(0, result.exchange_s + result.wait_s + result.commit_s - a->commit_s)
            };
        n = exchange_next(a, n);
    }
    if (status != GP_OK)
        return status;
    a->best = advice_best(&a->model, a->most);
    if (!a->options->check)
        return GP_OK;
    uint32_t n = a->best < a->measured ? a->best : a->measured;

    return measure(a, n, a->model.per_worker ? n * a->model.batch : a->model.batch, "check", &a->check, err);
}

/* Return the predicted step time's relative error. */
static double check_error(const advise *a)
{
    return advice_predict(&a->model, a->check.workers).step_s / a->check.step_s - 1;
}

static void show_text(const advise *a)
{
    show_table *table =
        show_table_new(8, "workers\tbatch\teach\tstep ms\timages/s\tefficiency\tbatch for 80 %\tmemory each");
    bool guessed = false;

    for (uint32_t n = 1; n <= a->most; n++) {
        const advice_row row = advice_predict(&a->model, n);
        char memory[40];

        show_cells(table, "%s%u%s\t%u\t%u\t%.2f\t%.0f\t%.0f %%\t%.0f\t%s", n == a->best ? "*" : "", n,
                   row.extrapolated ? " ?" : "", row.batch, row.share, row.step_s * 1e3, row.rate,
                   row.efficiency * 100, row.batch_80, cli_bytes(row.memory_bytes, memory, sizeof(memory)));
        guessed |= row.extrapolated;
    }
    show_table_print_free(table);
    printf("\nbest: %" PRIu32 " worker%s\n", a->best, gp_plural(a->best));
    if (guessed)
        printf("?: more workers than this pool has; the exchange time is extrapolated\n");
    if (a->check.steps > 0)
        printf("checked on %" PRIu32 " worker%s: %.2f ms predicted, %.2f ms measured: %+.1f %%\n",
               a->check.workers, gp_plural(a->check.workers),
               advice_predict(&a->model, a->check.workers).step_s * 1e3, a->check.step_s * 1e3,
               check_error(a) * 100);
}

static void show_json(const advise *a)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_integer(writer, "best", a->best);
    gp_json_begin_array(writer, "workers");
    for (uint32_t n = 1; n <= a->most; n++) {
        const advice_row row = advice_predict(&a->model, n);

        gp_json_begin_object(writer, NULL);
        gp_json_put_integer(writer, "workers", n);
        gp_json_put_integer(writer, "batch", row.batch);
        gp_json_put_integer(writer, "share", row.share);
        gp_json_put_number(writer, "step_seconds", row.step_s);
        gp_json_put_number(writer, "images_per_second", row.rate);
        gp_json_put_number(writer, "efficiency", row.efficiency);
        gp_json_put_number(writer, "exchange_seconds", row.exchange_s);
        gp_json_put_number(writer, "batch_for_80_percent", row.batch_80);
        gp_json_put_number(writer, "memory_bytes", row.memory_bytes);
        gp_json_put_bool(writer, "extrapolated", row.extrapolated);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
    gp_json_begin_object(writer, "model");
    advice_put(writer, &a->model);
    gp_json_end_object(writer);
    if (a->check.steps > 0) {
        gp_json_begin_object(writer, "check");
        gp_json_put_integer(writer, "workers", a->check.workers);
        gp_json_put_number(writer, "predicted_seconds", advice_predict(&a->model, a->check.workers).step_s);
        gp_json_put_number(writer, "measured_seconds", a->check.step_s);
        gp_json_put_number(writer, "error", check_error(a));
        gp_json_end_object(writer);
    }
    show_json_print(&json, NULL);
}

static int advise_check(cli_call *call)
{
    const advise_options *options = call->options;

    if (options->network[0] == '\0' || options->data[0] == '\0')
        return cli_usage(call, "--%s is missing", options->network[0] == '\0' ? "network" : "data");
    return CLI_OK;
}

static gp_status advise_run(cli_call *call, gp_error *err)
{
    advise a = { .call = call, .options = call->options, .pool = call->pool };
    advice_key key;
    gp_error saving;

    cli_catch_interrupts();
    gp_status status = advise_measure(&a, err);

    if (status != GP_OK)
        return status;
    if (a.options->common.json)
        show_json(&a);
    else
        show_text(&a);
    advice_key_of(&key, a.options->network, a.options->data, call->train);
    if (advice_save(&key, &a.model, &saving) != GP_OK && !a.options->common.quiet)
        fprintf(stderr, "cannot save the advice for later trainings: %s\n", saving.message);
    return GP_OK;
}

const cli_command cli_command_advise = {
    .name = "advise",
    .summary = "recommend a number of workers for a training, from timed steps",
    .usage = "--network NETWORK --data SOURCE [--workers N:M] [--check] [training options]",
    .description =
        "Time training steps on the workers of the pool and predict the step time, rate, efficiency and "
        "memory for each number of workers. The smallest number within 2 % of the highest rate is marked. "
        "The learning rate is 0, so no model is trained. The options are those of `gradpool train`.",
    .examples =
        "  gradpool advise --network lenet --data fashion-mnist\n"
        "  gradpool advise --network resnet18 --data synthetic:32x32x3:10:4096 --mini-batch-size 64 --check\n"
        "  gradpool advise --network lenet --data digits --mini-batch-size-per-worker 128 --workers 1:16 "
        "--json\n",
    .options = advise_params,
    .options_bytes = sizeof(advise_options),
    .leases = true,
    .trains = true,
    .pool = CLI_POOL_STARTED,
    .check = advise_check,
    .run = advise_run,
};
