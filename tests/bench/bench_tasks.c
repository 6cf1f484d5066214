/* bench_tasks.c -- what a task costs, beside the raw ZeroMQ reference (raw_zmq.h), round by round in turn.
 *
 *   bench_tasks [--rounds N] [--only ROW] [--raw] [--json]
 *
 * ROW: a row's name or its beginning ("round_trip").  --raw: the reference alone.
 *
 * Two ways to lie on the cores, because a wake-up across cores costs more than everything else together:
 *   one core    client and workers share the first core; a message is a switch
 *   two cores   client on the first core, one worker on the second, the other beside the client
 * Each runs in a process of its own; both sides stay open in it and sleep while the other is measured.  Values are
 * medians over the rounds.  Efficiency is work / (workers x time), the work being count x the calibrated time of one
 * task on an idle core, so that a busy machine lowers the efficiency and never raises it;
 * "split by hand" is what two processes without any messages get of the same work at that moment. */
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/burn.h"
#include "tests/bench/raw_zmq.h"

enum { ROUNDS_MAX = 64, WORKERS = 2, TRIPS = 2000, BULK_BYTES = 64 << 20 };
enum { RAW_WINDOW = 1024, RAW_BATCH = 100, RAW_BATCH_WINDOW = 256, RAW_PREFETCH = 2 };

typedef enum bench_layout { ONE_CORE, TWO_CORES, LAYOUTS } bench_layout;
static const char *const layout_names[] = { "one core", "two cores" };

/* What a row promises: a bound on ours / reference, or on ours alone; NONE: shown for comparison. */
typedef enum bench_promise { NONE, RATIO_AT_MOST, RATIO_AT_LEAST, AT_MOST, AT_LEAST } bench_promise;

typedef struct bench_row {
    const char *name, *title, *unit;
    bench_promise promise;
    double bound, goal; /* goal: 0 = none beyond the bound */
} bench_row;

enum {
    ROUND_TRIP_P50,
    ROUND_TRIP_P99,
    SUBMIT,
    PARFOR,
    SPMD,
    BULK,
    BULK_KEPT,
    SPLIT_1MS,
    TASK_1MS,
    SPLIT_100US,
    TASK_100US
};
static const bench_row rows[] = {
    [ROUND_TRIP_P50] = { "round_trip_p50", "one no-op, p50", "us", RATIO_AT_MOST, 1.15, 0 },
    [ROUND_TRIP_P99] = { "round_trip_p99", "one no-op, p99", "us", RATIO_AT_MOST, 1.5, 0 },
    [SUBMIT] = { "submit", "one future per task, no-op", "tasks/s", RATIO_AT_LEAST, 0.6, 3 },
    [PARFOR] = { "parfor", "parfor, no-op", "tasks/s", RATIO_AT_LEAST, 0.6, 1 },
    [SPMD] = { "spmd", "empty spmd on both, p50", "us", RATIO_AT_MOST, 1.2, 0 },
    [BULK] = { "bulk", "64 MiB to both and back", "GB/s", RATIO_AT_LEAST, 2, 0 },
    [BULK_KEPT] = { "bulk_kept", "64 MiB to both and back, malloc keeps its pages", "GB/s", NONE, 0, 0 },
    [SPLIT_1MS] = { "split_1ms", "1000 x 1 ms, split by hand", "efficiency", NONE, 0, 0 },
    [TASK_1MS] = { "task_1ms", "1000 x 1 ms", "efficiency", AT_LEAST, 0.97, 0.99 },
    [SPLIT_100US] = { "split_100us", "5000 x 100 us, split by hand", "efficiency", NONE, 0, 0 },
    [TASK_100US] = { "task_100us", "5000 x 100 us", "efficiency", AT_LEAST, 0.90, 0.97 },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

enum { RAW, OURS, SIDES };

/* Shared with the processes that measure.  NaN: not measured. */
typedef struct bench_results {
    double value[LAYOUTS][ROWS][SIDES][ROUNDS_MAX];
} bench_results;

/* One process that measures. */
typedef struct bench_process {
    bench_layout layout;
    int cores[2];              /* the first two we may use */
    int worker_cores[WORKERS]; /* of the layout */
    double turn_s;             /* of bench_burn() on a quiet core */
    raw_pool *raw;
    raw_kept *kept; /* only with two cores */
} bench_process;

/* A measurement fills the values of one or two rows, from its first one on. */
typedef struct bench_probe {
    int first, count;
    bool two_cores_only;
    void (*measure[SIDES])(bench_process *bench, double *values);
} bench_probe;

static int order(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static int order_ns(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

/* p50 and p99 in microseconds. */
static void percentiles(int64_t *ns, int count, double *p50, double *p99)
{
    qsort(ns, (size_t)count, sizeof(*ns), order_ns);
    *p50 = (double)ns[count / 2] * 1e-3;
    *p99 = (double)ns[count * 99 / 100] * 1e-3;
}

/* ---- the reference ---- */

static void raw_measure_round_trip(bench_process *bench, double *values)
{
    static int64_t ns[TRIPS];

    raw_round_trips(bench->raw, ns, TRIPS);
    percentiles(ns, TRIPS, &values[0], &values[1]);
}

static void raw_measure_submit(bench_process *bench, double *values)
{
    const uint64_t count = 200000;

    values[0] = (double)count / raw_tasks(bench->raw, count, 1, RAW_WINDOW, 0);
}

static void raw_measure_parfor(bench_process *bench, double *values)
{
    const uint64_t count = 10000000;

    values[0] = (double)count / raw_tasks(bench->raw, count, RAW_BATCH, RAW_BATCH_WINDOW, 0);
}

static void raw_measure_spmd(bench_process *bench, double *values)
{
    static int64_t ns[TRIPS];
    double p99;

    raw_spmd(bench->raw, ns, TRIPS);
    percentiles(ns, TRIPS, &values[0], &p99);
}

static void raw_measure_bulk(bench_process *bench, double *values)
{
    values[0] = 2.0 * WORKERS * BULK_BYTES / raw_bulk(bench->raw, BULK_BYTES) * 1e-9;
}

static void raw_measure_bulk_kept(bench_process *bench, double *values)
{
    values[0] = 2.0 * WORKERS * BULK_BYTES / raw_kept_bulk(bench->kept, BULK_BYTES) * 1e-9;
}

/* The same work by two processes, each on its core, that meet only at the end. */
static double split_by_hand(const bench_process *bench, int count, uint64_t turns)
{
    int64_t began = gp_now_ns();
    pid_t pids[WORKERS];

    for (int i = 0; i < WORKERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            volatile uint64_t sink = 0;

            pin(bench->cores[i]);
            for (int j = 0; j < count / WORKERS; j++)
                sink += bench_burn(turns);
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        waitpid(pids[i], NULL, 0);
    return (double)(gp_now_ns() - began) * 1e-9;
}

static void raw_measure_tasks(bench_process *bench, int count, double task_s, double *values)
{
    uint64_t turns = (uint64_t)(task_s / bench->turn_s);
    double ideal = count * task_s / WORKERS;

    values[0] = ideal / split_by_hand(bench, count, turns);
    values[1] = ideal / raw_tasks(bench->raw, (uint64_t)count, 1, RAW_PREFETCH, turns);
}

static void raw_measure_1ms(bench_process *bench, double *values)
{
    raw_measure_tasks(bench, 1000, 1e-3, values);
}

static void raw_measure_100us(bench_process *bench, double *values)
{
    raw_measure_tasks(bench, 5000, 1e-4, values);
}

/* ---- running and printing ---- */

static const bench_probe probes[] = {
    { ROUND_TRIP_P50, 2, false, { raw_measure_round_trip, NULL } },
    { SUBMIT, 1, false, { raw_measure_submit, NULL } },
    { PARFOR, 1, false, { raw_measure_parfor, NULL } },
    { SPMD, 1, false, { raw_measure_spmd, NULL } },
    { BULK, 1, true, { raw_measure_bulk, NULL } },
    { BULK_KEPT, 1, true, { raw_measure_bulk_kept, NULL } },
    { SPLIT_1MS, 2, true, { raw_measure_1ms, NULL } },
    { SPLIT_100US, 2, true, { raw_measure_100us, NULL } },
};
enum { PROBES = sizeof(probes) / sizeof(probes[0]) };

typedef struct bench_options {
    int rounds;
    const char *only; /* NULL = all rows */
    bool raw, json;
} bench_options;

static bool probe_wanted(const bench_probe *probe, const bench_options *options, bench_layout layout)
{
    if (probe->two_cores_only && layout != TWO_CORES)
        return false;
    for (int i = 0; i < probe->count; i++)
        if (options->only == NULL ||
            strncmp(rows[probe->first + i].name, options->only, strlen(options->only)) == 0)
            return true;
    return false;
}

/* Stretches of 20 ms, so that the timer's ticks are in them; the best of many, so that others' work is not. */
static double calibrate(const bench_process *bench)
{
    const uint64_t turns = 10000000;
    double best = INFINITY;

    for (int i = 0; i < 30; i++) {
        pin(bench->cores[i % 2]);
        int64_t began = gp_now_ns();
        volatile uint64_t sink = bench_burn(turns);

        (void)sink;
        best = fmin(best, (double)(gp_now_ns() - began) * 1e-9 / (double)turns);
    }
    return best;
}

static int cores_find(int cores[2])
{
    cpu_set_t set;
    int found = 0;

    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &set))
            cores[found++] = core;
    return found;
}

static void layout_measure(bench_results *results, bench_layout layout, const int cores[2],
                           const bench_options *options)
{
    bench_process bench = { .layout = layout,
                            .cores = { cores[0], cores[1] },
                            .worker_cores = { cores[layout == TWO_CORES ? 1 : 0], cores[0] } };

    bench.turn_s = calibrate(&bench);
    pin(cores[0]);
    if (layout == TWO_CORES)
        bench.kept = raw_kept_open(WORKERS, bench.worker_cores);
    bench.raw = raw_open(WORKERS, bench.worker_cores);
    /* Round -1 warms both sides up and is thrown away. */
    for (int round = -1; round < options->rounds; round++)
        for (int i = 0; i < PROBES; i++)
            for (int side = RAW; side <= (options->raw ? RAW : OURS); side++) {
                double values[2] = { NAN, NAN };

                if (probes[i].measure[side] == NULL || !probe_wanted(&probes[i], options, layout))
                    continue;
                probes[i].measure[side](&bench, values);
                for (int j = 0; round >= 0 && j < probes[i].count; j++)
                    results->value[layout][probes[i].first + j][side][round] = values[j];
            }
    raw_close(bench.raw);
    if (bench.kept != NULL)
        raw_kept_close(bench.kept);
}

/* Of the rounds that were measured; NaN: none. */
static double median(const double *values)
{
    double sorted[ROUNDS_MAX];
    size_t count = 0;

    for (int i = 0; i < ROUNDS_MAX; i++)
        if (!isnan(values[i]))
            sorted[count++] = values[i];
    if (count == 0)
        return NAN;
    qsort(sorted, count, sizeof(*sorted), order);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* "1.23 M", four digits at most. */
static const char *number(char *text, size_t bytes, double value)
{
    if (isnan(value))
        snprintf(text, bytes, "-");
    else if (value >= 1e6)
        snprintf(text, bytes, "%.2f M", value * 1e-6);
    else if (value >= 1e4)
        snprintf(text, bytes, "%.1f k", value * 1e-3);
    else
        snprintf(text, bytes, value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
    return text;
}

static bool promise_kept(const bench_row *row, double ours, double ratio)
{
    switch (row->promise) {
    case RATIO_AT_MOST:
        return ratio <= row->bound;
    case RATIO_AT_LEAST:
        return ratio >= row->bound;
    case AT_MOST:
        return ours <= row->bound;
    case AT_LEAST:
        return ours >= row->bound;
    case NONE:
        break;
    }
    return true;
}

static const char *verdict(const bench_row *row, double ours, double ratio)
{
    if (row->promise == NONE || isnan(ours))
        return "";
    return promise_kept(row, ours, ratio) ? "yes" : "**no**";
}

static void asked(char *text, size_t bytes, const bench_row *row)
{
    const char *sign = row->promise == RATIO_AT_MOST || row->promise == AT_MOST ? "<=" : ">=";
    const char *unit = row->promise == RATIO_AT_MOST || row->promise == RATIO_AT_LEAST ? "x" : "";

    text[0] = '\0';
    if (row->promise != NONE)
        snprintf(text, bytes, "%s %g%s", sign, row->bound, unit);
}

static void print_table(const bench_results *results)
{
    char raw[32], ours[32], ratio[32], bound[32];

    printf("| | layout | unit | raw ZeroMQ | gradpool | ratio | asked | met "
           "|\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < ROWS; i++)
        for (bench_layout layout = 0; layout < LAYOUTS; layout++) {
            double a = median(results->value[layout][i][RAW]), b = median(results->value[layout][i][OURS]);

            if (isnan(a) && isnan(b))
                continue;
            asked(bound, sizeof(bound), &rows[i]);
            printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", rows[i].title, layout_names[layout],
                   rows[i].unit, number(raw, sizeof(raw), a), number(ours, sizeof(ours), b),
                   number(ratio, sizeof(ratio), b / a), bound, verdict(&rows[i], b, b / a));
        }
}

static void print_rounds(const char *name, const double *values)
{
    const char *comma = "";

    printf(", \"%s\": [", name);
    for (int i = 0; i < ROUNDS_MAX; i++)
        if (!isnan(values[i])) {
            printf("%s%.6g", comma, values[i]);
            comma = ", ";
        }
    printf("]");
}

/* One object a line: the rounds of both sides, in the row's unit. */
static void print_json(const bench_results *results)
{
    const char *comma = "";

    printf("[");
    for (int i = 0; i < ROWS; i++)
        for (bench_layout layout = 0; layout < LAYOUTS; layout++) {
            const double *raw = results->value[layout][i][RAW], *ours = results->value[layout][i][OURS];
            char bound[32];

            if (isnan(median(raw)) && isnan(median(ours)))
                continue;
            asked(bound, sizeof(bound), &rows[i]);
            printf("%s\n{\"row\": \"%s\", \"title\": \"%s\", \"layout\": \"%s\", \"unit\": \"%s\"", comma,
                   rows[i].name, rows[i].title, layout_names[layout], rows[i].unit);
            print_rounds("raw", raw);
            print_rounds("gradpool", ours);
            printf(", \"asked\": \"%s\", \"met\": \"%s\"}", bound,
                   verdict(&rows[i], median(ours), median(ours) / median(raw)));
            comma = ",";
        }
    printf("\n]\n");
}

static bool options_parse(bench_options *options, int argc, char **argv)
{
    static const struct option known[] = { { "rounds", required_argument, NULL, 'r' },
                                           { "only", required_argument, NULL, 'o' },
                                           { "raw", no_argument, NULL, 'w' },
                                           { "json", no_argument, NULL, 'j' },
                                           { 0 } };

    for (int got; (got = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (got) {
        case 'r':
            options->rounds = atoi(optarg);
            break;
        case 'o':
            options->only = optarg;
            break;
        case 'w':
            options->raw = true;
            break;
        case 'j':
            options->json = true;
            break;
        default:
            return false;
        }
    return optind == argc && options->rounds >= 1 && options->rounds <= ROUNDS_MAX;
}

int main(int argc, char **argv)
{
    bench_options options = { .rounds = 5 };
    bench_results *results =
        mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double *value = (double *)results;
    int cores[2] = { 0 };

    if (!options_parse(&options, argc, argv) || results == MAP_FAILED) {
        fprintf(stderr, "usage: bench_tasks [--rounds 1..%d] [--only ROW] [--raw] [--json]\n", ROUNDS_MAX);
        return 2;
    }
    for (size_t i = 0; i < sizeof(*results) / sizeof(*value); i++)
        value[i] = NAN;
    for (bench_layout layout = cores_find(cores) < 2 ? TWO_CORES : LAYOUTS; layout-- > 0;) {
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
            layout_measure(results, layout, cores, &options);
            exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "bench_tasks: the layout \"%s\" ended with status %d\n", layout_names[layout],
                    status);
            return 1;
        }
    }
    if (options.json)
        print_json(results);
    else
        print_table(results);
    return 0;
}
