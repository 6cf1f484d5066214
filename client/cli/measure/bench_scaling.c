/* Scaling benchmark: train one network on 1, 2, 4, ... workers and compare accuracy over time,
 * throughput, and final accuracy.
 *
 * The experiment follows MATLAB's white paper "Deep learning with MATLAB on multiple GPUs":
 * mini-batch and learning rate grow with the worker count, so that each worker has the same work
 * per step as a single one. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/cli/measure/bench.h"
#include "client/predict/plot.h"
#include "client/cli/measure/probe.h"
#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/model/train_options.h"

enum { POINTS_MAX = 4096, EXTRA_OPTIONS = 4 };

/* A training of the benchmark. */
typedef struct scaling_run {
    uint32_t workers, batch;
    double learn_rate;
    gp_training_summary summary;
    double rate;                /* images/s, excluding validations */
    double *seconds, *accuracy; /* accuracy over time; POINTS_MAX entries each; owned */
    size_t points;
    /* State while the training runs; times are for rank 0. */
    double last_s, steps_s, epoch_sum;
    uint64_t images, pending, epoch_steps;
    uint32_t epoch;
    bool validated, skip;
    uint64_t steps_planned;
    gp_progress progress;
    char activity[64]; /* progress report label */
} scaling_run;

typedef struct scaling {
    const cli_call *call;
    const bench_options *options;
    scaling_run runs[BENCH_COUNTS_MAX];
    uint32_t count;
    cli_progress progress;
} scaling;

static void point_add(scaling_run *run, double seconds, double accuracy)
{
    if (run->points == POINTS_MAX)
        return;
    run->seconds[run->points] = seconds;
    run->accuracy[run->points++] = accuracy;
}

/* End an epoch. Without validation data, the curve shows the mean batch accuracy in each epoch. */
static void epoch_end(scaling_run *run)
{
    if (!run->validated && run->epoch_steps > 0)
        point_add(run, run->last_s, run->epoch_sum / (double)run->epoch_steps);
    run->epoch_sum = 0;
    run->epoch_steps = 0;
}

static void on_begin(void *context, const gp_train_info *info)
{
    scaling_run *run = context;

    run->steps_planned = (uint64_t)info->steps_per_epoch * info->epochs;
}

static void on_step(void *context, const gp_train_step *step)
{
    scaling_run *run = context;

    if (step->rank != 0)
        return;
    gp_progress_report(&run->progress, run->activity, "steps", step->step, run->steps_planned);
    if (step->epoch != run->epoch)
        epoch_end(run);
    run->epoch = step->epoch;
    run->epoch_sum += step->accuracy;
    run->epoch_steps++;
    if (run->last_s > 0 &&
        /* exclude the first step, and steps after a validation: their start time is unknown */
        !run->skip) {
        run->steps_s += step->seconds - run->last_s;
        run->images += run->batch;
    }
    run->last_s = step->seconds;
    run->skip = false;
}

static void on_check(void *context, const gp_train_validation_result *check)
{
    scaling_run *run = context;

    run->validated = true;
    run->skip = true;
    point_add(run, check->seconds, check->accuracy);
}

/* Train with one worker count and collect rate, curve and summary. */
static gp_status run_train(scaling *s, scaling_run *run, gp_pool *pool, gp_error *err)
{
    const bench_options *options = s->options;
    const char *words[CLI_WORDS_MAX + EXTRA_OPTIONS];
    char batch[64], rate[64], devices[256];
    size_t count = 0;
    gp_training *training = NULL;

    for (int i = 0; i < s->call->train_count; i++)
        if (!cli_option_is(s->call->train[i], "mini-batch-size") &&
            !cli_option_is(s->call->train[i], "initial-learn-rate"))
            words[count++] = s->call->train[i];
    snprintf(batch, sizeof(batch), "mini-batch-size=%" PRIu32, run->batch);
    snprintf(rate, sizeof(rate), "initial-learn-rate=%.17g", run->learn_rate);
    words[count++] = batch;
    words[count++] = rate;
    words[count] = NULL;
    const gp_train_request request = {
        .network = options->network,
        .data = options->data,
        .validation_data = options->validation_data[0] != '\0' ? options->validation_data : NULL,
        .options = words,
        .lease = { .workers_min = run->workers,
                   .workers_max = run->workers,
                   .devices = bench_devices(options, run->workers, devices) },
        .events = { on_begin, on_step, on_check, run },
        .stop = &cli_stop,
        .data_progress = &run->progress,
    };

    run->progress = cli_progress_reports(&s->progress);
    snprintf(run->activity, sizeof(run->activity), "training %zu of %" PRIu32 ", %" PRIu32 " worker%s",
             (size_t)(run - s->runs) + 1, s->count, run->workers, gp_plural(run->workers));
    gp_status status = gp_train(&training, pool, &request, err);

    cli_progress_end(&s->progress);
    if (status != GP_OK)
        return status;
    epoch_end(run);
    gp_training_summarize(training, &run->summary);
    gp_training_free(training);
    if (run->summary.stopped)
        return gp_fail(err, GP_ECANCELED, "interrupted while training on %" PRIu32 " worker%s", run->workers,
                       gp_plural(run->workers));
    run->rate = run->steps_s > 0 ? (double)run->images / run->steps_s : NAN;
    return GP_OK;
}

static double final_accuracy(const scaling_run *run)
{
    return run->points > 0 ? run->accuracy[run->points - 1] : NAN;
}

/* Return the throughput relative to one worker. If the smallest run has several workers, divide
 * that run's rate by the worker count. */
static double speedup(const scaling *s, const scaling_run *run)
{
    return run->rate / (s->runs[0].rate / s->runs[0].workers);
}

/* Return the difference between the best and the worst final accuracy. */
static double accuracy_spread(const scaling *s)
{
    double low = INFINITY, high = -INFINITY;

    for (uint32_t i = 0; i < s->count; i++) {
        low = fmin(low, final_accuracy(&s->runs[i]));
        high = fmax(high, final_accuracy(&s->runs[i]));
    }
    return high - low;
}

/* Write the chart: accuracy curves and throughput bars. */
static gp_status draw(const scaling *s, gp_error *err)
{
    plot *picture = plot_new(1300, 560);
    plot_series series[BENCH_COUNTS_MAX];
    char names[BENCH_COUNTS_MAX][32];
    const char *words[BENCH_COUNTS_MAX];
    double rates[BENCH_COUNTS_MAX];

    if (picture == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for an image");
    for (uint32_t i = 0; i < s->count; i++) {
        const scaling_run *run = &s->runs[i];

        snprintf(names[i], sizeof(names[i]), "%" PRIu32 " worker%s", run->workers, gp_plural(run->workers));
        words[i] = names[i];
        rates[i] = run->rate;
        series[i] =
            (plot_series){ .name = names[i], .x = run->seconds, .y = run->accuracy, .count = run->points };
    }
    plot_lines(
        picture, (plot_area){ 0, 0, 760, 560 },
        &(plot_names){ s->runs[0].validated ? "validation accuracy" : "accuracy of the training batches",
                       "seconds", "" },
        series, s->count);
    plot_bars(picture, (plot_area){ 760, 0, 540, 560 }, &(plot_names){ "throughput", "", "images/s" }, words,
              rates, s->count);
    gp_status status = plot_write(picture, s->options->plot, err);

    plot_free(picture);
    return status;
}

static void show_json(const scaling *s)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_begin_array(writer, "runs");
    for (uint32_t i = 0; i < s->count; i++) {
        const scaling_run *run = &s->runs[i];

        gp_json_begin_object(writer, NULL);
        gp_json_put_integer(writer, "workers", run->workers);
        gp_json_put_integer(writer, "batch", run->batch);
        gp_json_put_number(writer, "learn_rate", run->learn_rate);
        gp_json_put_integer(writer, "steps", (int64_t)run->summary.steps);
        gp_json_put_number(writer, "seconds", run->summary.seconds);
        gp_json_put_number(writer, "images_per_second", run->rate);
        gp_json_put_number(writer, "speed_up", speedup(s, run));
        gp_json_put_number(writer, "accuracy", final_accuracy(run));
        gp_json_begin_array(writer, "curve"); /* pairs [seconds, accuracy] */
        for (size_t k = 0; k < run->points; k++) {
            gp_json_begin_array(writer, NULL);
            gp_json_put_number(writer, NULL, run->seconds[k]);
            gp_json_put_number(writer, NULL, run->accuracy[k]);
            gp_json_end_array(writer);
        }
        gp_json_end_array(writer);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
    gp_json_put_number(writer, "accuracy_spread", accuracy_spread(s));
    gp_json_put_bool(writer, "validated", s->runs[0].validated);
    show_json_print(&json, NULL);
}

/* Initialize the runs. Batch and learning rate grow with the workers, except with --fixed-batch. */
static gp_status scaling_prepare(scaling *s, const uint64_t *counts, gp_error *err)
{
    gp_train_options base;

    gp_train_options_from_checked(&base, s->call->train);
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t workers = (uint32_t)counts[i], times = s->options->fixed_batch ? 1 : workers;

        s->runs[i] = (scaling_run){ .workers = workers,
                                    .batch = (uint32_t)base.mini_batch_size * times,
                                    .learn_rate = base.initial_learn_rate * times,
                                    .seconds = gp_calloc(POINTS_MAX, sizeof(double)),
                                    .accuracy = gp_calloc(POINTS_MAX, sizeof(double)) };
        if (s->runs[i].seconds == NULL || s->runs[i].accuracy == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a curve");
    }
    return GP_OK;
}

gp_status bench_scaling(cli_call *call, gp_error *err)
{
    scaling s = { .call = call, .options = call->options };
    const bool quiet = s.options->common.quiet || s.options->common.json;
    uint64_t counts[BENCH_COUNTS_MAX];

    if (s.options->network[0] == '\0' || s.options->data[0] == '\0')
        call->code = cli_usage(call, "--%s is missing", s.options->network[0] == '\0' ? "network" : "data");
    else if (cli_given(call, "mini-batch-size-per-worker") || cli_given(call, "scale-lr"))
        call->code = cli_usage(
            call, "--mini-batch-size-per-worker and --scale-lr have no effect: bench scales mini-batch and "
                  "rate itself; give --mini-batch-size and --lr for one worker, or --fixed-batch");
    else if ((s.count = bench_counts(call, counts)) == 0)
        call->code = CLI_USAGE;
    if (call->code != CLI_OK)
        return GP_OK;
    cli_catch_interrupts();
    gp_status status = scaling_prepare(&s, counts, err);

    if (status == GP_OK)
        status = cli_open(call, false, &call->pool, err);
    cli_progress_begin(call, &s.progress, "steps");
    for (scaling_run *run = s.runs; run < s.runs + s.count && status == GP_OK; run++) {
        if (!quiet)
            fprintf(stderr, "training on %" PRIu32 " worker%s: mini-batch %" PRIu32 ", rate %g\n",
                    run->workers, gp_plural(run->workers), run->batch, run->learn_rate);
        status = run_train(&s, run, call->pool, err);
    }
    if (status == GP_OK && s.options->plot[0] != '\0')
        status = draw(&s, err);
    if (status == GP_OK && s.options->common.json) {
        show_json(&s);
    } else if (status == GP_OK) {
        show_table *table =
            show_table_new(8, "workers\tbatch\trate\tsteps\tseconds\timages/s\tspeed-up\taccuracy");

        for (uint32_t i = 0; i < s.count; i++) {
            const scaling_run *run = &s.runs[i];
            show_cells(table, "%u\t%u\t%.4g\t%" PRIu64 "\t%.2f\t%.0f\t%.2f\t%.2f %%", run->workers,
                       run->batch, run->learn_rate, run->summary.steps, run->summary.seconds, run->rate,
                       speedup(&s, run), final_accuracy(run) * 100);
        }
        show_table_print_free(table);
        printf("\naccuracies lie within %.2f points%s\n", accuracy_spread(&s) * 100,
               s.runs[0].validated ? "" : "; measured on the training batches: there is no validation data");
        if (s.options->plot[0] != '\0')
            printf("chart: %s\n", s.options->plot);
    }
    for (uint32_t i = 0; i < s.count; i++) {
        gp_free(s.runs[i].seconds);
        gp_free(s.runs[i].accuracy);
    }
    return status;
}
