/* predict.c -- fan a data source out over the leased workers, results in input order, each sample once.
 *
 * The source is cut into parts.  Each worker holds up to two parts, so it never waits for us; a part that comes
 * back is kept until those before it were handed out.  When a worker dies the pool replaces it and grants the lease
 * again with the next generation: then every part that is not back is asked for again.  A part is taken once, by
 * its number and the generation it was asked in. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/network.h"
#include "client/pool.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/data/store.h"
#include "common/model/train_options.h"

enum { PART_MAX = 1024, PART_SCORES_MAX = 8 << 20, PARTS_PER_WORKER = 8, WINDOW = 2, GRANT_MS = 20000 };

typedef struct gp_part {
    enum { PART_TODO, PART_ASKED, PART_BACK, PART_DELIVERED } state;
    float *scores;
    int32_t *labels;
    char *names; /* one behind the other, each with its NUL; NULL: an older worker */
} gp_part;

typedef struct gp_fan {
    gp_pool *pool;
    const gp_predict_request *request;
    gp_network network;
    uint32_t precision; /* gp_precision */
    char *netspec;
    size_t netspec_bytes;
    size_t weights_count;
    char data[512];
    uint64_t samples;
    uint32_t classes, scores;                  /* of one sample */
    gp_shape output;                           /* of the first loss's scores */
    uint32_t part_most;                        /* samples of a part at most */
    uint32_t part_size, part_count, delivered; /* delivered: parts handed out, in order */
    gp_part *parts;
    gp_buffer class_names; /* the model's names, a JSON array; empty = it has none */
    int64_t stale_ms; /* when a worker was lost or spoke of another generation; 0 = neither since the grant */
    uint32_t held[GP_MEMBERS_MAX]; /* parts asked of each worker and not back */
    gp_evaluation sum;
    double loss;
    double correct, classed, squares, values;
    double weight;
} gp_fan;

static void fan_deinit(gp_fan *fan)
{
    for (uint32_t i = 0; i < fan->part_count && fan->parts != NULL; i++) {
        gp_free(fan->parts[i].scores);
        gp_free(fan->parts[i].labels);
        gp_free(fan->parts[i].names);
    }
    gp_buffer_deinit(&fan->class_names);
    gp_free(fan->parts);
    gp_free(fan->netspec);
    gp_network_deinit(&fan->network);
}

static uint32_t part_samples(const gp_fan *fan, uint32_t index)
{
    uint64_t first = (uint64_t)index * fan->part_size, left = fan->samples - first;

    return left < fan->part_size ? (uint32_t)left : fan->part_size;
}

/* ---- begin ---- */

/* By the word of the training option. */
static gp_status fan_read_precision(gp_fan *fan, gp_error *err)
{
    gp_train_options options;
    gp_status status = GP_OK;

    gp_params_default(gp_train_options_table, &options);
    if (fan->request->precision != NULL)
        status = gp_params_set(gp_params_find(gp_train_options_table, "precision"), &options,
                               fan->request->precision, err);
    fan->precision = (uint32_t)options.precision;
    return status;
}

/* The names by which the workers number the data's labels. */
static gp_status fan_name_classes(gp_fan *fan, gp_error *err)
{
    gp_json_writer writer;

    gp_buffer_init(&fan->class_names, GP_JSON_BYTES_MAX);
    if (fan->network.class_names == NULL)
        return GP_OK;
    gp_json_writer_init(&writer, &fan->class_names, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < fan->network.class_count; i++)
        gp_json_put_text(&writer, NULL, fan->network.class_names[i]);
    gp_json_end_array(&writer);
    return gp_json_writer_finish(&writer, err);
}

static gp_status fan_load(gp_fan *fan, gp_error *err)
{
    gp_graph *graph;
    gp_buffer buffer;
    gp_status status = fan_read_precision(fan, err);

    if (status == GP_OK)
        status = gp_network_load(&fan->network, fan->request->model, NULL, 0, err);
    if (status != GP_OK)
        return status;
    if (fan->network.weights == NULL)
        return gp_fail(err, GP_EINVAL, "%s has no weights; give a model that was trained (FILE.onnx)",
                       fan->request->model);
    status = gp_graph_new(&graph, fan->network.spec, err);
    if (status != GP_OK)
        return status;
    fan->weights_count = graph->blob_count;
    fan->classes = graph->class_count;
    fan->scores = graph->score_count;
    fan->output = graph->outputs[graph->ends[0].layer];
    fan->part_most = PART_SCORES_MAX / fan->scores < PART_MAX ? PART_SCORES_MAX / fan->scores + 1 : PART_MAX;
    gp_graph_free(graph);
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);
    status = gp_netspec_to_json(fan->network.spec, &buffer, false, err);
    if (status == GP_OK)
        fan->netspec = (char *)gp_buffer_take(&buffer, &fan->netspec_bytes);
    gp_buffer_deinit(&buffer);
    if (status == GP_OK)
        status = fan_name_classes(fan, err);
    if (status == GP_OK)
        status = gp_source_absolute(fan->data, sizeof(fan->data), fan->request->data, err);
    return status;
}

static gp_status fan_begin(gp_fan *fan, gp_error *err)
{
    gp_predict_begin begin = { .batch = fan->part_most, .precision = fan->precision };
    const gp_payload payloads[] = { { .data = fan->netspec, .bytes = fan->netspec_bytes },
                                    { .data = fan->network.weights,
                                      .bytes = fan->weights_count * sizeof(float) },
                                    { .data = fan->class_names.data, .bytes = fan->class_names.bytes } };
    uint32_t payload_count = fan->class_names.bytes > 0 ? 3 : 2;

    snprintf(begin.data, sizeof(begin.data), "%s", fan->data);
    memset(fan->held, 0, sizeof(fan->held));
    for (uint32_t i = 0; i < fan->part_count; i++)
        if (fan->parts[i].state == PART_ASKED)
            fan->parts[i].state = PART_TODO;
    for (uint32_t rank = 0; rank < fan->pool->grant.slots_count; rank++) {
        gp_status status = pool_tell_worker(fan->pool, rank, &gp_msg_predict_begin, &begin, payloads,
                                            payload_count, NULL, err);

        if (status != GP_OK && status != GP_EPEER && status != GP_EBUSY)
            return status; /* a worker that is gone is told of by the scheduler */
    }
    return GP_OK;
}

static gp_status fan_take_ready(gp_fan *fan, const gp_incoming *in, gp_error *err)
{
    gp_predict_ready ready;
    gp_status status = gp_incoming_decode(in, &ready, err);

    if (status != GP_OK)
        return status;
    if (fan->parts != NULL) {
        if (ready.samples != fan->samples)
            return gp_fail(err, GP_EINVAL,
                           "%s has %" PRIu64 " samples on one worker and %" PRIu64 " on another", fan->data,
                           fan->samples, ready.samples);
        return GP_OK;
    }
    uint64_t share = ready.samples / ((uint64_t)fan->pool->grant.slots_count * PARTS_PER_WORKER) + 1;

    fan->samples = ready.samples;
    fan->part_size = share < fan->part_most ? (uint32_t)share : fan->part_most;
    fan->part_count = (uint32_t)((fan->samples + fan->part_size - 1) / fan->part_size);
    fan->parts = gp_calloc(fan->part_count, sizeof(*fan->parts));
    return fan->parts != NULL ? GP_OK
                              : gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " parts", fan->part_count);
}

/* ---- parts ---- */

/* Fill the worker's window with the first parts nobody has. */
static gp_status fan_ask(gp_fan *fan, uint32_t rank, gp_error *err)
{
    for (uint32_t i = fan->delivered; fan->held[rank] < WINDOW && i < fan->part_count; i++) {
        if (fan->parts[i].state != PART_TODO)
            continue;
        gp_predict_ask ask = { .first = (uint64_t)i * fan->part_size, .count = part_samples(fan, i) };
        gp_status status = pool_try_worker(fan->pool, rank, &gp_msg_predict_ask, &ask, err);

        if (status == GP_EPEER || status == GP_EBUSY)
            return GP_OK; /* the scheduler will tell */
        if (status != GP_OK)
            return status;
        fan->parts[i].state = PART_ASKED;
        fan->held[rank]++;
    }
    return GP_OK;
}

/* As many names as samples. */
static gp_status part_take_names(gp_part *part, const gp_incoming *in, uint32_t count, gp_error *err)
{
    const gp_frame *names = in->payload_count > 2 ? &in->payloads[2] : NULL;
    uint32_t ends = 0;

    if (names == NULL)
        return GP_OK;
    for (size_t i = 0; i < names->bytes; i++)
        ends += ((const char *)names->data)[i] == '\0';
    if (ends != count || ((const char *)names->data)[names->bytes - 1] != '\0')
        return gp_fail(err, GP_EPROTO, "a part of %" PRIu32 " predictions came with %" PRIu32 " names", count,
                       ends);
    part->names = gp_malloc(names->bytes);
    if (part->names == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %" PRIu32 " samples", count);
    memcpy(part->names, names->data, names->bytes);
    return GP_OK;
}

static gp_status fan_take_part(gp_fan *fan, uint32_t rank, const gp_incoming *in, gp_error *err)
{
    gp_predict_part got;
    gp_status status = gp_incoming_decode(in, &got, err);

    if (status != GP_OK)
        return status;
    uint32_t index = fan->part_size == 0 ? 0 : (uint32_t)(got.first / fan->part_size);

    if (index >= fan->part_count || got.first != (uint64_t)index * fan->part_size ||
        got.count != part_samples(fan, index) || in->payload_count < 2 ||
        in->payloads[0].bytes != (size_t)got.count * fan->scores * sizeof(float) ||
        (in->payloads[1].bytes != 0 && in->payloads[1].bytes != got.count * sizeof(int32_t)))
        return gp_fail(err, GP_EPROTO, "worker %" PRIu32 " sent a part of predictions that was not asked for",
                       fan->pool->grant.slots[rank].index);
    gp_part *part = &fan->parts[index];

    if (part->state != PART_ASKED)
        return GP_OK; /* a late duplicate */
    part->scores = gp_malloc(in->payloads[0].bytes);
    part->labels = gp_malloc(got.count * sizeof(int32_t));
    if (part->scores == NULL || part->labels == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a part of %" PRIu32 " predictions", got.count);
    memcpy(part->scores, in->payloads[0].data, in->payloads[0].bytes);
    if (in->payloads[1].bytes != 0)
        memcpy(part->labels, in->payloads[1].data, in->payloads[1].bytes);
    else
        memset(part->labels, 0xff, got.count * sizeof(int32_t)); /* -1 each */
    status = part_take_names(part, in, got.count, err);
    if (status != GP_OK)
        return status;
    part->state = PART_BACK;
    fan->held[rank]--;
    fan->loss += got.loss;
    fan->correct += got.correct;
    fan->weight += got.weight;
    fan->classed += got.classed;
    fan->squares += got.squares;
    fan->values += got.values;
    fan->sum.labelled += got.labelled;
    return GP_OK;
}

static bool fan_hand_out(gp_fan *fan, const gp_part *part, uint64_t first, uint32_t count)
{
    const char *name = part->names;

    for (uint32_t i = 0; i < count && fan->request->each != NULL; i++) {
        const float *scores = part->scores + (size_t)i * fan->scores;
        gp_prediction one = { .index = first + i,
                              .label = part->labels[i],
                              .scores = scores,
                              .classes = fan->classes,
                              .score_count = fan->scores,
                              .rank = fan->output.rank < 4 ? fan->output.rank : 4 };
        char number[16], sample[24];

        snprintf(sample, sizeof(sample), "%" PRIu64, one.index + 1);
        one.name = name != NULL ? name : sample;
        for (uint32_t d = 0; d < one.rank; d++)
            one.dims[d] = (uint64_t)fan->output.dim[d];
        for (uint32_t k = 1; k < fan->classes && one.rank == 1; k++)
            if (scores[k] > scores[one.predicted])
                one.predicted = k;
        snprintf(number, sizeof(number), "%" PRIu32, one.predicted);
        if (fan->classes != 0 && one.rank == 1)
            one.class_name =
                fan->network.class_names != NULL ? fan->network.class_names[one.predicted] : number;
        if (!fan->request->each(fan->request->context, &one))
            return false;
        if (name != NULL)
            name += strlen(name) + 1;
    }
    return true;
}

/* Hand out what is complete from the front. */
static gp_status fan_deliver(gp_fan *fan, gp_error *err)
{
    while (fan->delivered < fan->part_count && fan->parts[fan->delivered].state == PART_BACK) {
        gp_part *part = &fan->parts[fan->delivered];
        uint32_t count = part_samples(fan, fan->delivered);

        if (!fan_hand_out(fan, part, (uint64_t)fan->delivered * fan->part_size, count))
            return gp_fail(err, GP_ECANCELED, "ended by the caller");
        gp_free(part->scores);
        gp_free(part->labels);
        gp_free(part->names);
        part->scores = NULL;
        part->labels = NULL;
        part->names = NULL;
        part->state = PART_DELIVERED;
        fan->delivered++;
        fan->sum.count += count;
        if (fan->request->progress != NULL)
            fan->request->progress(fan->request->context, fan->sum.count, fan->samples);
    }
    return GP_OK;
}

/* ---- the loop ---- */

static gp_status fan_take(gp_fan *fan, pool_message *message, gp_error *err)
{
    gp_status status = GP_OK;

    if (message->from != POOL_WORKER || message->in.envelope.generation != fan->pool->generation)
        return GP_OK;
    if (message->in.type == &gp_msg_error_reply) {
        status = pool_error_from(&message->in, err);
        gp_error_prefix(err, "worker %" PRIu32, fan->pool->grant.slots[message->rank].index);
        /* A worker that serves the next generation already, or heard that a peer died, refuses what is of the old
         * one: the new grant is on its way to us. */
        if (status == GP_ESTALE || status == GP_ECANCELED) {
            status = GP_OK;
            if (fan->stale_ms == 0)
                fan->stale_ms = gp_now_ms();
        }
    } else if (message->in.type == &gp_msg_predict_ready) {
        status = fan_take_ready(fan, &message->in, err);
    } else if (message->in.type == &gp_msg_predict_part) {
        status = fan_take_part(fan, message->rank, &message->in, err);
    }
    if (status == GP_OK && fan->parts != NULL &&
        (message->in.type == &gp_msg_predict_ready || message->in.type == &gp_msg_predict_part))
        status = fan_ask(fan, message->rank, err);
    return status == GP_OK && fan->parts != NULL ? fan_deliver(fan, err) : status;
}

static gp_status fan_run(gp_fan *fan, gp_error *err)
{
    gp_status status = fan_begin(fan, err);

    while (status == GP_OK && (fan->parts == NULL || fan->delivered < fan->part_count)) {
        pool_message message;

        if (fan->request->stop != NULL && *fan->request->stop != 0)
            return gp_fail(err, GP_ECANCELED, "stopped after %" PRIu64 " of %" PRIu64 " samples",
                           fan->sum.count, fan->samples);
        if (fan->pool->revoked)
            return gp_fail(err, GP_ECANCELED, "the lease ended: %s", fan->pool->ended.reason);
        if (fan->pool->regranted) {
            pool_note(fan->pool, "%s; its samples go to the others", fan->pool->lost.cause);
            fan->stale_ms = 0;
            status = pool_attach(fan->pool, err);
            if (status == GP_OK)
                status = fan_begin(fan, err);
            continue;
        }
        if (fan->pool->lost.index != 0 && fan->stale_ms == 0)
            fan->stale_ms = gp_now_ms();
        if (fan->stale_ms != 0 && gp_now_ms() - fan->stale_ms > GRANT_MS)
            return gp_fail(err, GP_ETIMEDOUT,
                           "a worker died and was not replaced within %d s; the scheduler's log is %s",
                           GRANT_MS / 1000, fan->pool->places.scheduler_log);
        status = pool_next(fan->pool, &message, 200, err);
        if (status == GP_OK)
            status = fan_take(fan, &message, err);
        if (message.from != POOL_NOBODY)
            pool_message_close(&message);
    }
    return status; /* the release that follows ends the prediction on the workers */
}

gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request, gp_error *err)
{
    gp_fan fan = { .pool = pool, .request = request };
    char purpose[96];
    int64_t begin_ns = gp_now_ns();
    gp_status status = fan_load(&fan, err);

    snprintf(purpose, sizeof(purpose), "predict %.80s", request->model);
    if (status == GP_OK)
        status = pool_lease(pool, &request->lease, purpose, request->stop, err);
    if (status == GP_OK) {
        status = fan_run(&fan, err);
        pool_release(pool);
    }
    if (status == GP_OK) {
        fan.sum.accuracy = fan.classed > 0 ? fan.correct / fan.classed : NAN;
        fan.sum.rmse = fan.values > 0 ? sqrt(fan.squares / fan.values) : NAN;
        fan.sum.loss = fan.weight > 0 ? fan.loss / fan.weight : NAN;
        fan.sum.seconds = (double)(gp_now_ns() - begin_ns) * 1e-9;
        *out = fan.sum;
    }
    fan_deinit(&fan);
    return status;
}
