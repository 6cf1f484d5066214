/* Gradient exchange benchmark, by gradient size and worker count.
 *
 * The benchmark times a training with one fully connected layer of the requested size, with one
 * sample per worker. It therefore uses the same buffers, buckets and all-reduce as a real training,
 * with little other work. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/measure/bench.h"
#include "client/cli/measure/probe.h"
#include "client/cli/show.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"

enum { SIDE_MAX = 8192, INPUTS_MAX = 32 * SIDE_MAX, LEAST_BYTES = 1024 };
#define MOST_BYTES ((uint64_t)1 << 30)

/* Result for one size and worker count. */
typedef struct exchange_row {
    uint32_t workers;
    uint64_t bytes;
    double seconds, wait;
} exchange_row;

/* Measure one row.
 *   path   file for the network
 *   order  position of the measurement for progress reports, e.g. "3 of 6" */
static gp_status exchange_measure(const cli_call *call, gp_pool *pool, const char *path, exchange_row *row,
                                  const char *order, const gp_progress *progress, gp_error *err)
{
    const bench_options *options = call->options;
    char data[128], devices[256], activity[128], size[40];
    probe_result result;

    /* Write a network file with a layer that has about `bytes` bytes of parameters, and choose
     * matching synthetic data. */
    const uint64_t numbers = row->bytes / sizeof(float);
    const uint64_t outputs = numbers / INPUTS_MAX < 4 ? 4 : numbers / INPUTS_MAX, inputs = numbers / outputs;
    const uint64_t channels = (inputs + SIDE_MAX - 1) / SIDE_MAX, width = inputs / channels;
    char text[400];

    snprintf(text, sizeof(text),
             "{\"name\": \"exchange\", \"input\": [%" PRIu64 ", 1, %" PRIu64
             "], \"layers\": [{\"name\": \"fc\", \"kind\": \"fc\", \"outputs\": %" PRIu64
             "}, {\"name\": \"loss\", \"kind\": \"crossentropy\"}]}",
             channels, width, outputs);
    snprintf(data, sizeof(data), "synthetic:1x%" PRIu64 "x%" PRIu64 ":%" PRIu64 ":%" PRIu32, width, channels,
             outputs, 4 * row->workers);
    gp_status status = gp_file_write(path, text, strlen(text), err);
    snprintf(activity, sizeof(activity), "measurement %s, %s on %" PRIu32 " workers", order,
             cli_bytes((double)row->bytes, size, sizeof(size)), row->workers);
    if (status == GP_OK)
        status =
            probe_run(&result, pool,
                      &(probe_request){ .network = path,
                                        .data = data,
                                        .options = call->train,
                                        .lease = { .devices = bench_devices(options, row->workers, devices) },
                                        /* prevents fusing the all-reduce with the update */
                                        .extra = "gradient-threshold=1e30",
                                        .workers = row->workers,
                                        .batch = row->workers,
                                        .steps = (uint32_t)options->steps,
                                        .seconds = 5,
                                        .progress = progress,
                                        .activity = activity },
                      err);
    if (status != GP_OK)
        return status;
    row->bytes = result.parameters * sizeof(float);
    row->seconds = result.exchange_s;
    row->wait = result.wait_s;
    return GP_OK;
}

/* Rates as defined by nccl-tests. algbw: buffer bytes per second. busbw: algbw times 2 (n - 1) / n,
 * the minimum that each worker has to send and receive; comparable with the link bandwidth for any
 * worker count. */
static double algorithm_rate(const exchange_row *row)
{
    return (double)row->bytes / row->seconds;
}

static double bus_rate(const exchange_row *row)
{
    return 2.0 * (row->workers - 1) / row->workers * algorithm_rate(row);
}

static void show_json(const exchange_row *rows, size_t count)
{
    json_document json;
    gp_json_writer *writer = show_json_array(&json);

    for (size_t i = 0; i < count; i++) {
        gp_json_begin_object(writer, NULL);
        gp_json_put_integer(writer, "workers", rows[i].workers);
        gp_json_put_integer(writer, "bytes", (int64_t)rows[i].bytes);
        gp_json_put_number(writer, "exchange_seconds", rows[i].seconds);
        gp_json_put_number(writer, "wait_seconds", rows[i].wait);
        gp_json_put_number(writer, "algbw", algorithm_rate(&rows[i]) * 1e-9);
        gp_json_put_number(writer, "busbw", bus_rate(&rows[i]) * 1e-9);
        gp_json_end_object(writer);
    }
    show_json_print(&json, NULL);
}

gp_status bench_allreduce(cli_call *call, gp_error *err)
{
    const char *text = ((const bench_options *)call->options)->sizes;
    uint64_t counts[BENCH_COUNTS_MAX], sizes[BENCH_COUNTS_MAX];
    const uint32_t count = bench_counts(call, counts);
    const uint32_t size_count = bench_list(text, LEAST_BYTES, MOST_BYTES, sizes);
    exchange_row rows[BENCH_COUNTS_MAX * BENCH_COUNTS_MAX];
    char path[] = "/tmp/gradpool-exchange-XXXXXX.json", order[32];
    size_t used = 0;
    show_table *table;
    cli_progress progress;
    const gp_progress reports = cli_progress_reports(&progress);

    if (count > 0 && size_count == 0)
        cli_usage(call,
                  "--sizes is '%s'; it must be up to %d numbers of bytes from 1K to 1024M, such as 64K,4M",
                  text, BENCH_COUNTS_MAX);
    if (count == 0 || size_count == 0) {
        call->code = CLI_USAGE;
        return GP_OK;
    }
    int file = mkstemps(path, 5);

    if (file < 0)
        return gp_fail_errno(err, GP_EIO, "cannot make a file in /tmp");
    close(file);
    gp_status status = cli_open(call, false, &call->pool, err);

    cli_catch_interrupts();
    cli_progress_begin(call, &progress, "steps");
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        for (uint32_t k = 0; k < size_count && counts[i] > 1 && status == GP_OK; k++) {
            rows[used] = (exchange_row){ .workers = (uint32_t)counts[i], .bytes = sizes[k] };
            snprintf(order, sizeof(order), "%zu of %" PRIu32, used + 1,
                     (count - (counts[0] == 1)) * size_count);
            status = exchange_measure(call, call->pool, path, &rows[used++], order, &reports, err);
        }
    cli_progress_end(&progress);
    unlink(path);
    if (status != GP_OK)
        return status;
    if (((const bench_options *)call->options)->common.json) {
        show_json(rows, used);
        return GP_OK;
    }
    table = show_table_new(6, "workers\tsize\texchange us\twaiting us\talgbw GB/s\tbusbw GB/s");
    for (size_t i = 0; i < used; i++) {
        char size[40];

        show_cells(table, "%u\t%s\t%.1f\t%.1f\t%.2f\t%.2f", rows[i].workers,
                   cli_bytes((double)rows[i].bytes, size, sizeof(size)), rows[i].seconds * 1e6,
                   rows[i].wait * 1e6, algorithm_rate(&rows[i]) * 1e-9, bus_rate(&rows[i]) * 1e-9);
    }
    show_table_print_free(table);
    return GP_OK;
}
