#include "worker/train/trainer_exchange.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "worker/train/fixed_point.h"

/* Leading word offsets: GP_SUMS wide sums, then integers. The gradients follow: blob_count high
 * words, then blob_count low words. */
enum { WORD_STOP = GP_FIXED_POINT_WIDE * GP_SUMS, WORD_PAUSE, WORD_SAMPLES, WORD_BAD, WORD_COUNT };

gp_step_result gp_step_result_of(const double sums[GP_SUMS], double samples, bool stop, bool pause)
{
    double mean_square = sums[GP_SUM_SQUARES] / sums[GP_SUM_VALUES];

    return (gp_step_result){ .weight = sums[GP_SUM_WEIGHT],
                             .loss = sums[GP_SUM_LOSS] / sums[GP_SUM_WEIGHT],
                             .accuracy = sums[GP_SUM_CORRECT] / sums[GP_SUM_CLASSED],
                             .rmse = mean_square <= GP_ERROR_MAX ? sqrt(mean_square) : NAN,
                             .samples = samples,
                             .bad = sums[GP_SUM_BAD],
                             .ending = stop    ? GP_ENDING_STOP
                                       : pause ? GP_ENDING_PAUSE
                                               : GP_ENDING_NONE };
}

/* ---- memory ---- */

/* Extend the last bucket to the wanted size, then append more buckets. */
static void bucket_append(gp_exchange *exchange, size_t first, size_t count, size_t wanted)
{
    while (count > 0) {
        gp_range *last = exchange->bucket_count == 0 ? NULL : &exchange->buckets[exchange->bucket_count - 1];
        size_t room = wanted, part;

        if (last != NULL && last->first + last->count == first && last->count < wanted) {
            room -= last->count;
        } else {
            last = &exchange->buckets[exchange->bucket_count++];
            *last = (gp_range){ .first = first };
        }
        part = count < room ? count : room;
        last->count += part;
        first += part;
        count -= part;
    }
}

gp_status gp_exchange_init(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                           gp_train_control *control, bool on_device, gp_error *err)
{
    enum { DEVICE_BUCKET_BYTES = 25 << 20 };
    bool given = gp_params_changed(gp_params_find(gp_train_options_table, "exchange-bucket-bytes"), options);
    /* Sums in shared memory are fastest while a bucket fits a cache. Between GPUs each sum costs
     * some 10 us, and the links saturate from about 10 MiB. */
    size_t wanted =
        (on_device && !given ? DEVICE_BUCKET_BYTES : (size_t)options->exchange_bucket_bytes) / sizeof(float);
    size_t most = graph->blob_count / wanted + graph->parameter_count + 1;

    exchange->control = control;
    exchange->blob_count = graph->blob_count;
    exchange->buckets = gp_calloc(most, sizeof(*exchange->buckets));
    if (exchange->buckets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu buckets", most);
    /* The backward pass completes the last layer first. Within a layer, the tensors keep their
     * order in the blob. */
    for (uint32_t end = graph->parameter_count, first; end > 0; end = first) {
        first = end - 1;
        while (first > 0 && graph->parameters[first - 1].layer == graph->parameters[first].layer)
            first--;
        for (uint32_t p = first; p < end; p++) {
            const gp_parameter *parameter = &graph->parameters[p];

            if (gp_parameter_learns(parameter) || parameter->statistic != GP_STATISTIC_NONE)
                bucket_append(exchange, parameter->offset, (size_t)parameter->count, wanted);
        }
    }
    return GP_OK;
}

void gp_exchange_deinit(gp_exchange *exchange)
{
    if (exchange->comm == NULL || exchange->words != NULL) { /* otherwise they are in the arena */
        gp_free(exchange->header);
        gp_free(exchange->gradients);
    }
    gp_free(exchange->buckets);
    gp_free(exchange->coupling.sums);
}

size_t gp_exchange_arena_bytes(const gp_exchange *exchange, bool reproducible)
{
    enum { ALIGNMENT = 2 * 64 }; /* for two ranges */

    return ALIGNMENT + (reproducible
                            ? (WORD_COUNT + 2 * exchange->blob_count) * sizeof(int64_t)
                            : GP_HEADER_COUNT * sizeof(double) + exchange->blob_count * sizeof(float));
}

static gp_status place_private(gp_exchange *exchange, gp_error *err)
{
    exchange->header = gp_aligned_calloc(64, GP_HEADER_COUNT * sizeof(double));
    exchange->gradients = gp_aligned_calloc(64, exchange->blob_count * sizeof(float));
    return exchange->header != NULL && exchange->gradients != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for gradients of %zu parameters", exchange->blob_count);
}

gp_status gp_exchange_place(gp_exchange *exchange, gp_comm *comm, bool reproducible, bool sharded,
                            gp_error *err)
{
    void *range;
    gp_status status;

    exchange->comm = comm;
    exchange->by_bucket = !reproducible && !sharded;
    if (comm == NULL)
        return place_private(exchange, err);
    if (reproducible) {
        status =
            gp_comm_arena_alloc(comm, (WORD_COUNT + 2 * exchange->blob_count) * sizeof(int64_t), &range, err);
        if (status != GP_OK)
            return status;
        exchange->words = range;
        return place_private(exchange, err);
    }
    status = gp_comm_arena_alloc(comm, GP_HEADER_COUNT * sizeof(double), &range, err);
    if (status != GP_OK)
        return status;
    exchange->header = range;
    status = gp_comm_arena_alloc(comm, exchange->blob_count * sizeof(float), &range, err);
    if (status == GP_OK)
        exchange->gradients = range;
    return status;
}

/* ---- batch normalization moments ---- */

/* Sum the moments over all ranks. Compute waits for the peers here, so the current stretch ends. */
static gp_status sum_moments(void *context, size_t count, gp_error *err)
{
    gp_exchange *exchange = context;
    bool stretch = gp_train_control_span_end(exchange->control);
    gp_status status =
        gp_comm_all_reduce_private(exchange->comm, exchange->coupling.sums, count, GP_F64, GP_COMM_SUM, err);

    if (stretch)
        gp_train_control_span_begin(exchange->control);
    gp_train_control_progress(exchange->control);
    return status;
}

gp_status gp_exchange_couple(gp_exchange *exchange, const gp_graph *graph, const gp_train_options *options,
                             gp_error *err)
{
    int64_t widest = 0;

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        if (parameter->statistic != GP_STATISTIC_NONE && parameter->count > widest)
            widest = parameter->count;
    }
    gp_status status = gp_train_options_check_network(options, graph, err);

    if (status != GP_OK || !options->synchronize_batch_norm)
        return status;
    exchange->coupling = (gp_coupling){ .sums = gp_calloc(2 * (size_t)widest + 1, sizeof(double)),
                                        .reduce = sum_moments,
                                        .context = exchange };
    return exchange->coupling.sums == NULL ? gp_fail(err, GP_ENOMEM, "no memory for moments") : GP_OK;
}

const gp_coupling *gp_exchange_coupling(const gp_exchange *exchange)
{
    return exchange->coupling.sums == NULL ? NULL : &exchange->coupling;
}

/* ---- a step ---- */

void gp_exchange_begin(gp_exchange *exchange, bool gradients)
{
    size_t words = WORD_COUNT + (gradients ? 2 * exchange->blob_count : 0);

    exchange->buckets_done = 0;
    exchange->spent_ns = 0;
    exchange->wait_ns = gp_comm_get_stats(exchange->comm).wait_ns;
    if (exchange->words != NULL)
        memset(exchange->words, 0, words * sizeof(int64_t));
}

gp_status gp_exchange_sum(void *context, size_t final_count, gp_error *err)
{
    gp_exchange *exchange = context;
    int64_t begin_ns = gp_now_ns();
    gp_status status = GP_OK;
    bool stretch = gp_train_control_span_end(exchange->control);

    while (status == GP_OK && exchange->buckets_done < exchange->bucket_count) {
        const gp_range *next = &exchange->buckets[exchange->buckets_done];

        if (next->first + next->count > final_count)
            break;
        if (exchange->buckets_done > 0)
            gp_fault_point("between-buckets");
        gp_fault_point("exchange");
        status = gp_comm_all_reduce(exchange->comm, exchange->gradients + next->first, next->count, GP_F32,
                                    GP_COMM_SUM, err);
        exchange->buckets_done++;
        gp_train_control_progress(exchange->control);
    }
    exchange->spent_ns += gp_now_ns() - begin_ns;
    if (stretch)
        gp_train_control_span_begin(exchange->control);
    return status;
}

void gp_exchange_add_call(gp_exchange *exchange, bool gradients)
{
    size_t count = exchange->blob_count;
    int64_t *words = exchange->words, *high = words + WORD_COUNT;

    words[WORD_BAD] += (int64_t)gp_fixed_point_add_wide(words, exchange->header, GP_SUMS);
    if (gradients)
        words[WORD_BAD] += (int64_t)gp_fixed_point_add(high, high + count, exchange->gradients, count);
}

gp_status gp_exchange_text(gp_exchange *exchange, gp_error *err)
{
    size_t count = exchange->blob_count;
    int64_t *words = exchange->words + WORD_COUNT;
    int64_t begin_ns = gp_now_ns();
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < 2 * exchange->bucket_count && status == GP_OK; i++) {
        const gp_range *part = &exchange->buckets[i / 2];

        gp_fault_point("exchange");
        status = gp_comm_all_reduce(exchange->comm, words + i % 2 * count + part->first, part->count, GP_I64,
                                    GP_COMM_SUM, err);
        gp_train_control_progress(exchange->control);
    }
    exchange->spent_ns += gp_now_ns() - begin_ns;
    if (status == GP_OK)
        gp_fixed_point_get(exchange->gradients, words, words + count, count);
    return status;
}

gp_status gp_exchange_header(gp_exchange *exchange, uint64_t samples, gp_error *err)
{
    int64_t begin_ns = gp_now_ns();
    double *header = exchange->header;
    int64_t *words = exchange->words;
    gp_status status;

    header[GP_HEADER_STOP] = atomic_load(&exchange->control->stop) == 1;
    header[GP_HEADER_PAUSE] = atomic_load(&exchange->control->pause);
    header[GP_HEADER_SAMPLES] = (double)samples;
    if (words == NULL) {
        status = gp_comm_all_reduce(exchange->comm, header, GP_HEADER_COUNT, GP_F64, GP_COMM_SUM, err);
    } else { /* sum the header in fixed point */
        words[WORD_SAMPLES] = (int64_t)header[GP_HEADER_SAMPLES];
        words[WORD_STOP] = (int64_t)header[GP_HEADER_STOP];
        words[WORD_PAUSE] = (int64_t)header[GP_HEADER_PAUSE];
        status = gp_comm_all_reduce(exchange->comm, words, WORD_COUNT, GP_I64, GP_COMM_SUM, err);
        gp_fixed_point_get_wide(header, words, GP_SUMS);
        header[GP_HEADER_STOP] = (double)words[WORD_STOP];
        header[GP_HEADER_PAUSE] = (double)words[WORD_PAUSE];
        header[GP_HEADER_SAMPLES] = (double)words[WORD_SAMPLES];
        if (words[WORD_BAD] != 0)
            header[GP_SUM_LOSS] = NAN;
    }
    exchange->spent_ns += gp_now_ns() - begin_ns;
    return status;
}

gp_status gp_exchange_barrier(gp_exchange *exchange, gp_error *err)
{
    int64_t begin_ns = gp_now_ns();
    gp_status status = gp_comm_barrier(exchange->comm, err);

    exchange->spent_ns += gp_now_ns() - begin_ns;
    return status;
}

gp_step_result gp_exchange_result(const gp_exchange *exchange)
{
    const double *header = exchange->header;

    return gp_step_result_of(header, header[GP_HEADER_SAMPLES], header[GP_HEADER_STOP] > 0,
                             header[GP_HEADER_PAUSE] > 0);
}

void gp_exchange_get_times(const gp_exchange *exchange, gp_train_record *record)
{
    int64_t wait_ns = (int64_t)(gp_comm_get_stats(exchange->comm).wait_ns - exchange->wait_ns);
    int64_t exchange_ns = exchange->spent_ns > wait_ns ? exchange->spent_ns - wait_ns : 0;

    record->wait_ms = (double)wait_ns * 1e-6;
    record->exchange_ms = (double)exchange_ns * 1e-6;
}
