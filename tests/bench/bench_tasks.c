/* bench_tasks.c: the cost of tasks, compared with raw ZeroMQ (raw_zmq.h) in alternating rounds.
 *
 *   bench_tasks [--rounds N] [--only ROW] [--raw] [--json] [--save FILE]
 *
 * ROW: a row name or a prefix ("round_trip"). --raw: only the reference. --json: print all rounds
 * instead of the table; --save: also write them to a file.
 *
 * Wakeups across cores dominate the cost, so there are two layouts:
 *   one core    client and workers share the first core; a message is a context switch
 *   two cores   client on the first core, one worker on the second, the other with the client
 *
 * Each layout runs in a separate process, in which both sides stay open and sleep while the other
 * side is measured. Values are medians over the rounds. Efficiency is work / (workers x time), with
 * work = count x the CPU time of one task on an idle machine (calibrated first), so a busy machine
 * lowers it. "split by hand" is the efficiency if each worker gets half of the work in one message:
 * an upper bound for the machine at that time.
 *
 * The kill row: 200 tasks that sleep 10 ms, with a worker killed after a quarter of them; the value
 * is the time beyond the ideal of 1 s. The queue row: memory growth of client and daemons together
 * with a million waiting tasks, measured once in a fresh process. */
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/bench_fn.h"
#include "tests/bench/burn.h"
#include "tests/bench/cores.h"
#include "tests/bench/raw_zmq.h"
#include "tests/bench/team_tasks.h"
#include "tests/sort.h"

enum { ROUNDS_MAX = 64, WORKERS = 2, TRIPS = 2000, BULK_BYTES = 64 << 20 };
enum { SUBMITS = 200000, ITERATIONS = 10000000, QUEUED = 1000000 };
enum { OVERDUE_S = 60 };
enum { RAW_WINDOW = 1024, RAW_BATCH = 100, RAW_BATCH_WINDOW = 256, RAW_PREFETCH = 2 };

typedef enum bench_layout { ONE_CORE, TWO_CORES, LAYOUTS } bench_layout;
static const char *const layout_names[] = { "one core", "two cores" };

/* Bound on the ratio to the reference, or on our value; NONE: for comparison only. */
typedef enum bench_promise { NONE, RATIO_AT_MOST, RATIO_AT_LEAST, AT_MOST, AT_LEAST } bench_promise;

typedef struct bench_row {
    const char *name, *title, *unit;
    bench_promise promise;
    double bound, goal; /* goal: stricter than the bound; 0: none */
} bench_row;

enum {
    ROUND_TRIP_P50,
    ROUND_TRIP_P99,
    ROUND_TRIP_ANY,
    SUBMIT,
    PARFOR,
    SPMD,
    BULK,
    BULK_KEPT,
    SPLIT_1MS,
    TASK_1MS,
    SPLIT_100US,
    TASK_100US,
    LOOP_100US,
    KILL_OVER,
    KILL_LOST,
    KILL_TWICE,
    QUEUE_BYTES,
    QUEUE_RATE
};
static const bench_row rows[] = {
    [ROUND_TRIP_P50] = { "round_trip_p50", "one no-op, p50", "us", RATIO_AT_MOST, 1.15, 0 },
    [ROUND_TRIP_P99] = { "round_trip_p99", "one no-op, p99", "us", RATIO_AT_MOST, 1.5, 0 },
    [ROUND_TRIP_ANY] = { "round_trip_any", "one no-op, any worker, p50", "us", NONE, 0, 0 },
    [SUBMIT] = { "submit", "one future per task, no-op", "tasks/s", RATIO_AT_LEAST, 0.6, 3 },
    [PARFOR] = { "parfor", "parfor, no-op", "tasks/s", RATIO_AT_LEAST, 0.6, 1 },
    [SPMD] = { "spmd", "empty spmd on both, p50", "us", RATIO_AT_MOST, 1.2, 0 },
    [BULK] = { "bulk", "64 MiB to both and back", "GB/s", RATIO_AT_LEAST, 2, 0 },
    [BULK_KEPT] = { "bulk_kept", "64 MiB to both and back, malloc keeps its pages", "GB/s", NONE, 0, 0 },
    [SPLIT_1MS] = { "split_1ms", "1000 x 1 ms, split by hand", "efficiency", NONE, 0, 0 },
    [TASK_1MS] = { "task_1ms", "1000 x 1 ms", "efficiency", AT_LEAST, 0.97, 0.99 },
    [SPLIT_100US] = { "split_100us", "5000 x 100 us, split by hand", "efficiency", NONE, 0, 0 },
    [TASK_100US] = { "task_100us", "5000 x 100 us", "efficiency", AT_LEAST, 0.90, 0.97 },
    [LOOP_100US] = { "loop_100us", "5000 x 100 us, parfor", "efficiency", NONE, 0, 0 },
    [KILL_OVER] = { "kill_over", "kill -9 amid 200 x 10 ms, beyond ideal", "ms", AT_MOST, 60, 15 },
    [KILL_LOST] = { "kill_lost", "kill -9 amid 200 x 10 ms, lost", "tasks", AT_MOST, 0, 0 },
    [KILL_TWICE] = { "kill_twice", "kill -9 amid 200 x 10 ms, finished twice", "tasks", AT_MOST, 0, 0 },
    [QUEUE_BYTES] = { "queue_bytes", "1 M tasks waiting, each", "bytes", AT_MOST, 300, 100 },
    [QUEUE_RATE] = { "queue_rate", "1 M waiting tasks, after release", "tasks/s", NONE, 0, 0 },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

enum { RAW, OURS, SIDES };

/* Values shared with the measuring processes; NaN: not measured. */
typedef struct bench_results {
    double value[LAYOUTS][ROWS][SIDES][ROUNDS_MAX];
} bench_results;

/* A measuring process. */
typedef struct bench_process {
    bench_layout layout;
    int cores[2];              /* the first two allowed cores */
    int worker_cores[WORKERS]; /* according to the layout */
    double turn_s;             /* s per bench_burn() turn on an idle core */
    team_bench *team;          /* NULL with --raw */
    raw_pool *raw;
    raw_kept *kept; /* two cores only */
} bench_process;

enum { VALUES_MAX = 3 };
typedef enum bench_place { EITHER_LAYOUT, TWO_CORES_ONLY, FRESH_PROCESS } bench_place;

/* A measurement that fills `count` rows, starting at `first`. */
typedef struct bench_probe {
    int first, count;
    bench_place place;
    void (*measure[SIDES])(bench_process *bench, double *values);
} bench_probe;

/* Compute p50 and p99 in microseconds. */
static void percentiles(int64_t *ns, int count, double *p50, double *p99)
{
    sort_int64s(ns, (size_t)count);
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
    values[0] = SUBMITS / raw_tasks(bench->raw, SUBMITS, 1, RAW_WINDOW, 0);
}

static void raw_measure_parfor(bench_process *bench, double *values)
{
    values[0] = ITERATIONS / raw_tasks(bench->raw, ITERATIONS, RAW_BATCH, RAW_BATCH_WINDOW, 0);
}

static void raw_measure_spmd(bench_process *bench, double *values)
{
    static int64_t ns[TRIPS];
    double p99;

    raw_spmd(bench->raw, ns, TRIPS);
    percentiles(ns, TRIPS, &values[0], &p99);
}

/* Return the rate of payloads sent and received, GB/s. Median over three runs after a discarded
 * one: after other work the kernel must find free pages first. */
static double bulk_rate(double (*once)(bench_process *bench), bench_process *bench)
{
    double seconds[3];

    once(bench);
    for (int i = 0; i < 3; i++)
        seconds[i] = once(bench);
    sort_doubles(seconds, 3);
    return 2.0 * WORKERS * BULK_BYTES / seconds[1] * 1e-9;
}

static double raw_bulk_once(bench_process *bench)
{
    return raw_bulk(bench->raw, BULK_BYTES);
}

static double raw_kept_bulk_once(bench_process *bench)
{
    return raw_kept_bulk(bench->kept, BULK_BYTES);
}

static double team_bulk_once(bench_process *bench)
{
    return team_bulk(bench->team, BULK_BYTES);
}

static void raw_measure_bulk(bench_process *bench, double *values)
{
    values[0] = bulk_rate(raw_bulk_once, bench);
}

static void raw_measure_bulk_kept(bench_process *bench, double *values)
{
    values[0] = bulk_rate(raw_kept_bulk_once, bench);
}

static void raw_measure_tasks(bench_process *bench, int count, double task_s, double *values)
{
    uint64_t turns = (uint64_t)(task_s / bench->turn_s);
    double ideal = count * task_s / WORKERS;

    values[0] = ideal / raw_tasks(bench->raw, (uint64_t)count, (unsigned)count / WORKERS, 1, turns);
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

/* ---- gradpool ---- */

static void team_measure_round_trip(bench_process *bench, double *values)
{
    static int64_t ns[TRIPS];

    double p99;

    team_round_trips(bench->team, ns, TRIPS, false);
    percentiles(ns, TRIPS, &values[0], &values[1]);
    team_round_trips(bench->team, ns, TRIPS, true);
    percentiles(ns, TRIPS, &values[2], &p99);
}

static void team_measure_submit(bench_process *bench, double *values)
{
    values[0] = SUBMITS / team_futures(bench->team, SUBMITS, 0);
}

static void team_measure_parfor(bench_process *bench, double *values)
{
    values[0] = ITERATIONS / team_loop(bench->team, ITERATIONS, 0);
}

static void team_measure_spmd(bench_process *bench, double *values)
{
    static int64_t ns[TRIPS];
    double p99;

    team_spmd(bench->team, ns, TRIPS);
    percentiles(ns, TRIPS, &values[0], &p99);
}

static void team_measure_bulk(bench_process *bench, double *values)
{
    values[0] = bulk_rate(team_bulk_once, bench);
}

static void team_measure_1ms(bench_process *bench, double *values)
{
    values[1] = 1000 * 1e-3 / WORKERS / team_futures(bench->team, 1000, (uint64_t)(1e-3 / bench->turn_s));
}

static void team_measure_100us(bench_process *bench, double *values)
{
    uint64_t turns = (uint64_t)(1e-4 / bench->turn_s);

    values[1] = 5000 * 1e-4 / WORKERS / team_futures(bench->team, 5000, turns);
    values[2] = 5000 * 1e-4 / WORKERS / team_loop(bench->team, 5000, turns);
}

static void team_measure_kill(bench_process *bench, double *values)
{
    team_kill_report report = team_kill(bench->team, 10);

    values[0] = report.seconds * 1e3 - BENCH_NAPS * 10 / WORKERS;
    values[1] = report.lost;
    values[2] = report.twice;
}

static void team_measure_queue(bench_process *bench, double *values)
{
    team_queue_report report = team_queue(bench->team, QUEUED);

    values[0] = report.bytes_each;
    values[1] = report.tasks_second;
}

/* ---- running and printing ---- */

static const bench_probe probes[] = {
    { ROUND_TRIP_P50, 3, EITHER_LAYOUT, { raw_measure_round_trip, team_measure_round_trip } },
    { SUBMIT, 1, EITHER_LAYOUT, { raw_measure_submit, team_measure_submit } },
    { PARFOR, 1, EITHER_LAYOUT, { raw_measure_parfor, team_measure_parfor } },
    { SPMD, 1, EITHER_LAYOUT, { raw_measure_spmd, team_measure_spmd } },
    { BULK, 1, TWO_CORES_ONLY, { raw_measure_bulk, team_measure_bulk } },
    { BULK_KEPT, 1, TWO_CORES_ONLY, { raw_measure_bulk_kept, NULL } },
    { SPLIT_1MS, 2, TWO_CORES_ONLY, { raw_measure_1ms, team_measure_1ms } },
    { SPLIT_100US, 3, TWO_CORES_ONLY, { raw_measure_100us, team_measure_100us } },
    { KILL_OVER, 3, TWO_CORES_ONLY, { NULL, team_measure_kill } },
    { QUEUE_BYTES, 2, FRESH_PROCESS, { NULL, team_measure_queue } },
};
enum { PROBES = sizeof(probes) / sizeof(probes[0]) };

typedef struct bench_options {
    int rounds;
    const char *only; /* NULL: all rows */
    bool raw, json;
    const char *save; /* NULL: none */
} bench_options;

static bool row_wanted(const bench_row *row, const bench_options *options)
{
    return options->only == NULL || strncmp(row->name, options->only, strlen(options->only)) == 0;
}

/* Return whether a process measures this row: there is one process per layout, and a fresh one. */
static bool probe_wanted(const bench_probe *probe, const bench_options *options, bench_layout layout,
                         bool fresh)
{
    if (fresh != (probe->place == FRESH_PROCESS) || (fresh && options->raw) ||
        (probe->place != EITHER_LAYOUT && layout != TWO_CORES))
        return false;
    for (int i = 0; i < probe->count; i++)
        if (row_wanted(&rows[probe->first + i], options))
            return true;
    return false;
}

static bool any_wanted(const bench_options *options, bench_layout layout, bool fresh)
{
    for (int i = 0; i < PROBES; i++)
        if (probe_wanted(&probes[i], options, layout, fresh))
            return true;
    return false;
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Measure the CPU time per turn; includes timer ticks, but no other processes. Median over
 * intervals on both cores. */
static double calibrate(const bench_process *bench)
{
    enum { STRETCHES = 31 };
    const uint64_t turns = 6000000;
    double seconds[STRETCHES];

    for (int i = 0; i < STRETCHES; i++) {
        cores_pin(bench->cores[i % 2]);
        double began = cpu_seconds();
        volatile uint64_t sink = bench_burn(turns);

        (void)sink;
        seconds[i] = (cpu_seconds() - began) / (double)turns;
    }
    sort_doubles(seconds, STRETCHES);
    return seconds[STRETCHES / 2];
}

/* Measurement in progress when the process was ended. */
static const char *volatile running = "opening";

static void overdue(int signal_number)
{
    static const char text[] = "bench_tasks: timeout: ";

    (void)signal_number;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) > 0 &&
        write(STDERR_FILENO, running, strlen(running)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        _exit(1);
    _exit(1);
}

static void probe_measure(bench_results *results, bench_process *bench, const bench_probe *probe, int side,
                          int round)
{
    double values[VALUES_MAX] = { NAN, NAN, NAN };

    if (probe->measure[side] == NULL)
        return;
    running = rows[probe->first].name;
    alarm(OVERDUE_S);
    probe->measure[side](bench, values);
    alarm(0);
    for (int i = 0; round >= 0 && i < probe->count; i++)
        results->value[bench->layout][probe->first + i][side][round] = values[i];
}

static void process_measure(bench_results *results, bench_layout layout, bool fresh, const int cores[2],
                            raw_kept *kept, const bench_options *options)
{
    bench_process bench = { .layout = layout,
                            .cores = { cores[0], cores[1] },
                            .worker_cores = { cores[layout == TWO_CORES ? 1 : 0], cores[0] },
                            .kept = kept };
    cpu_set_t all;

    signal(SIGALRM, overdue);
    alarm(OVERDUE_S);
    sched_getaffinity(0, sizeof(all), &all);
    bench.turn_s = calibrate(&bench);
    cores_pin(cores[0]);
    bench.raw = raw_open(WORKERS, bench.worker_cores);
    if (layout == TWO_CORES)
        sched_setaffinity(0, sizeof(all), &all);
    if (!options->raw)
        bench.team = team_open(WORKERS, cores[0], bench.worker_cores[0]);

    /* Round -1 warms up both sides and is discarded; rows that need a fresh process are measured
     * once. */
    for (int round = fresh ? 0 : -1; round < (fresh ? 1 : options->rounds); round++)
        for (int i = 0; i < PROBES; i++)
            for (int side = RAW; side <= (options->raw ? RAW : OURS); side++)
                if (probe_wanted(&probes[i], options, layout, fresh))
                    probe_measure(results, &bench, &probes[i], side, round);
    running = "closing";
    alarm(OVERDUE_S);
    if (!options->raw)
        team_close(bench.team);
    raw_close(bench.raw);
}

/* Measure in a child process, so that a failure or hang leaves the other rows. Return whether it
 * succeeded. */
static bool process_run(bench_results *results, bench_layout layout, bool fresh, const int cores[2],
                        raw_kept *kept, const bench_options *options)
{
    int status = 0;
    pid_t pid;

    if (!any_wanted(options, layout, fresh))
        return true;
    if (!options->raw)
        team_place_new();
    pid = fork();
    if (pid == 0) {
        process_measure(results, layout, fresh, cores, kept, options);
        exit(0);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (!options->raw)
        team_place_free();
    if (pid < 0 || status != 0)
        fprintf(stderr, "bench_tasks: %s: ended early (status %d)\n", layout_names[layout], status);
    return pid > 0 && status == 0;
}

/* Return the median over the measured rounds; NaN: none. */
static double median(const double *values)
{
    double sorted[ROUNDS_MAX];
    size_t count = 0;

    for (int i = 0; i < ROUNDS_MAX; i++)
        if (!isnan(values[i]))
            sorted[count++] = values[i];
    if (count == 0)
        return NAN;
    sort_doubles(sorted, count);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* Format a number like "1.23 M", with at most four digits. */
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
    if (row->promise != NONE && row->goal > 0)
        snprintf(text, bytes, "%s %g%s, goal %g%s", sign, row->bound, unit, row->goal, unit);
    else if (row->promise != NONE)
        snprintf(text, bytes, "%s %g%s", sign, row->bound, unit);
}

static void print_table(const bench_results *results)
{
    char raw[32], ours[32], ratio[32], bound[64];

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

static void print_rounds(FILE *out, const char *name, const double *values)
{
    const char *comma = "";

    fprintf(out, ", \"%s\": [", name);
    for (int i = 0; i < ROUNDS_MAX; i++)
        if (!isnan(values[i])) {
            fprintf(out, "%s%.6g", comma, values[i]);
            comma = ", ";
        }
    fprintf(out, "]");
}

/* Print one object per line: the rounds on both sides, in the row's unit. */
static void print_json(FILE *out, const bench_results *results)
{
    const char *comma = "";

    fprintf(out, "[");
    for (int i = 0; i < ROWS; i++)
        for (bench_layout layout = 0; layout < LAYOUTS; layout++) {
            const double *raw = results->value[layout][i][RAW], *ours = results->value[layout][i][OURS];
            char bound[64];

            if (isnan(median(raw)) && isnan(median(ours)))
                continue;
            asked(bound, sizeof(bound), &rows[i]);
            fprintf(out, "%s\n{\"row\": \"%s\", \"title\": \"%s\", \"layout\": \"%s\", \"unit\": \"%s\"",
                    comma, rows[i].name, rows[i].title, layout_names[layout], rows[i].unit);
            print_rounds(out, "raw", raw);
            print_rounds(out, "gradpool", ours);
            fprintf(out, ", \"asked\": \"%s\", \"met\": \"%s\"}", bound,
                    verdict(&rows[i], median(ours), median(ours) / median(raw)));
            comma = ",";
        }
    fprintf(out, "\n]\n");
}

static bool save_json(const char *path, const bench_results *results)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        fprintf(stderr, "bench_tasks: %s: %m\n", path);
        return false;
    }
    print_json(file, results);
    return fclose(file) == 0;
}

/* Open the tuned reference with its client on the first core, like ours. */
static raw_kept *kept_open(const int cores[2])
{
    raw_kept *kept;
    cpu_set_t all;

    sched_getaffinity(0, sizeof(all), &all);
    cores_pin(cores[0]);
    kept = raw_kept_open(WORKERS, (const int[]){ cores[1], cores[0] });
    sched_setaffinity(0, sizeof(all), &all);
    return kept;
}

static bool options_parse(bench_options *options, int argc, char **argv)
{
    static const struct option known[] = {
        { "rounds", required_argument, NULL, 'r' }, { "only", required_argument, NULL, 'o' },
        { "raw", no_argument, NULL, 'w' },          { "json", no_argument, NULL, 'j' },
        { "save", required_argument, NULL, 's' },   { 0 }
    };

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
        case 's':
            options->save = optarg;
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
    bool well = true;

    if (!options_parse(&options, argc, argv) || results == MAP_FAILED) {
        fprintf(stderr, "usage: bench_tasks [--rounds 1..%d] [--only ROW] [--raw] [--json] [--save FILE]\n",
                ROUNDS_MAX);
        return 2;
    }
    for (size_t i = 0; i < sizeof(*results) / sizeof(*value); i++)
        value[i] = NAN;
    if (cores_find(cores) < 2) {
        fprintf(stderr, "bench_tasks: one core only: rows for two cores are skipped\n");
    } else {
        raw_kept *kept = kept_open(cores);

        well = process_run(results, TWO_CORES, true, cores, kept, &options) &
               process_run(results, TWO_CORES, false, cores, kept, &options);
        raw_kept_close(kept);
    }
    well &= process_run(results, ONE_CORE, false, cores, NULL, &options);
    if (options.json)
        print_json(stdout, results);
    else
        print_table(results);
    if (options.save != NULL)
        well &= save_json(options.save, results);
    return well ? 0 : 1;
}
