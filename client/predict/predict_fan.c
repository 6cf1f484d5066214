#include "client/predict/predict_fan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/metrics_put.h"
#include "common/base/system/timeout.h"

enum {
    PART_MAX = 1024,           /* samples per part */
    PART_SCORES_MAX = 2 << 20, /* approximate float32 scores per part; at most one sample more */

    /* approximate sample bytes sent per part; at most one sample more */
    PART_SAMPLES_MAX = 8 << 20,

    /* images with their own size per part: each with up to 64 MiB for its classes */
    PART_IMAGES_MAX = 2,
    PARTS_PER_WORKER = 8, /* for small data: workers finish at about the same time */
    ASKED_MAX = 2,        /* requested parts per worker */
    WINDOW_PER_WORKER = 4,
    GRANT_MS = 20000,
    SKIPPED_TOLD = 3,
};

typedef struct gp_fan {
    gp_pool *pool;
    const gp_fan_plan *plan;
    uint64_t samples, part_count, delivered; /* parts in total, and parts delivered in order */

    /* maximum samples per part, and samples in every part except the last */
    uint32_t part_most, part_size;
    uint32_t window;

    /* [window] ring; part i is parts[i % window]; NULL: the sample count is unknown */
    gp_fan_part *parts;
    bool ready[GP_MEMBERS_MAX];
    uint32_t held[GP_MEMBERS_MAX]; /* parts requested from each worker and not returned */

    /* a worker failed, or replied for another generation, since the last grant */
    bool stale;
    gp_timeout grant; /* with `stale`: time limit for the next grant */
    gp_fan_sums sums;
    char skipped[SKIPPED_TOLD][128]; /* first names among the skipped samples */
} gp_fan;

static void part_clear(gp_fan_part *part)
{
    gp_free(part->scores);
    gp_free(part->labels);
    gp_free(part->names);
    gp_free(part->skipped);
    gp_free(part->skipped_names);
    *part = (gp_fan_part){ .state = PART_TODO };
}

static gp_fan_part *part_at(const gp_fan *fan, uint64_t index)
{
    return &fan->parts[index % fan->window];
}

/* Return the index after the last part in the window. */
static uint64_t window_end(const gp_fan *fan)
{
    const uint64_t left = fan->part_count - fan->delivered;

    return fan->delivered + (left < fan->window ? left : fan->window);
}

static uint32_t part_samples(const gp_fan *fan, uint64_t index)
{
    const uint64_t left = fan->samples - index * fan->part_size;

    return left < fan->part_size ? (uint32_t)left : fan->part_size;
}

/* ---- starting ---- */

/* Send predict_begin to all workers in the current grant, and mark parts in flight as
 * unassigned. */
static gp_status fan_begin(gp_fan *fan, gp_error *err)
{
    const gp_fan_plan *plan = fan->plan;
    gp_predict_begin begin = plan->begin;
    const gp_payload payloads[] = {
        { .data = plan->netspec, .bytes = plan->netspec_bytes },
        { .data = &plan->weights_bytes, .bytes = sizeof(plan->weights_bytes) },
        { .data = plan->class_names, .bytes = plan->class_names_bytes },
    };

    begin.batch = fan->part_most;
    memset(fan->held, 0, sizeof(fan->held));
    memset(fan->ready, 0, sizeof(fan->ready));
    for (uint64_t i = fan->delivered; fan->parts != NULL && i < window_end(fan); i++)
        if (part_at(fan, i)->state == PART_ASKED)
            part_at(fan, i)->state = PART_TODO;
    for (uint32_t rank = 0; rank < fan->pool->grant.slots_count; rank++) {
        gp_status status = pool_send_weights(fan->pool, rank, plan->weights_fd, err);

        if (status == GP_OK)
            status = pool_post_to_worker(fan->pool, rank, &gp_msg_predict_begin, &begin, payloads,
                                         plan->class_names_bytes > 0 ? 3 : 2, NULL, err);
        if (status != GP_OK && status != GP_EPEER && status != GP_EBUSY)
            return status; /* the scheduler reports that the worker failed */
    }
    return GP_OK;
}

static gp_status fan_take_ready(gp_fan *fan, uint32_t rank, const gp_incoming *in, gp_error *err)
{
    gp_predict_ready ready;
    gp_status status = gp_incoming_decode(in, &ready, err);

    if (status != GP_OK)
        return status;
    if (fan->plan->begin.data[0] == '\0')
        ready.samples = fan->plan->request->sample_count;
    if (fan->parts == NULL && in->payload_count > 0 &&
        in->payloads[0].bytes > 0) /* all workers send the same note: report it once */
        pool_note(fan->pool, "%.*s", (int)(in->payloads[0].bytes < 500 ? in->payloads[0].bytes : 500),
                  (const char *)in->payloads[0].data);
    if (fan->parts == NULL) {
        /* Split the samples into parts. The first ready worker reports the sample count and its
         * micro-batch size. */
        const uint32_t workers = fan->pool->grant.slots_count,
                       most = fan->part_most > ready.micro_batch
                                  ? fan->part_most - fan->part_most % ready.micro_batch
                                  : fan->part_most;
        const uint64_t share = ready.samples / ((uint64_t)workers * PARTS_PER_WORKER) + 1,
                       whole = (share + ready.micro_batch - 1) / ready.micro_batch * ready.micro_batch;

        fan->samples = ready.samples;
        fan->part_size = whole < most ? (uint32_t)whole : most;
        fan->part_count = (ready.samples + fan->part_size - 1) / fan->part_size;
        fan->window = workers * WINDOW_PER_WORKER;
        fan->parts = gp_calloc(fan->window, sizeof(*fan->parts));
        status = fan->parts != NULL ? GP_OK
                                    : gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " parts", fan->window);
    } else if (ready.samples != fan->samples) {
        status =
            gp_fail(err, GP_EINVAL, "%s has %" PRIu64 " samples on one worker and %" PRIu64 " on another",
                    fan->plan->begin.data, fan->samples, ready.samples);
    }
    fan->ready[rank] = status == GP_OK;
    return status;
}

/* ---- parts ---- */

/* Request the first unassigned parts from a worker, unless it has failed. */
static gp_status fan_ask(gp_fan *fan, uint32_t rank, gp_error *err)
{
    const gp_predict_request *request = fan->plan->request;

    if (fan->pool->is_lost[fan->pool->grant.slots[rank].index])
        return GP_OK;
    for (uint64_t i = fan->delivered; fan->held[rank] < ASKED_MAX && i < window_end(fan); i++) {
        gp_fan_part *part = part_at(fan, i);

        if (part->state != PART_TODO)
            continue;
        gp_predict_ask ask = { .first = i * fan->part_size, .count = part_samples(fan, i) };
        const gp_payload samples = {
            .data = (const uint8_t *)request->samples + ask.first * fan->plan->sample_bytes,
            .bytes = ask.count * fan->plan->sample_bytes,
        };
        gp_status status = pool_try_worker(fan->pool, rank, &gp_msg_predict_ask, &ask,
                                           fan->plan->begin.data[0] == '\0' ? &samples : NULL, NULL, err);

        if (status == GP_EPEER || status == GP_EBUSY)
            return GP_OK; /* try again later: the worker is slow, or its failure will be reported */
        if (status != GP_OK)
            return status;
        part->state = PART_ASKED;
        part->worker = fan->pool->grant.slots[rank].index;
        fan->held[rank]++;
    }
    return GP_OK;
}

/* Copy one message payload. An empty or missing payload gives NULL. */
static gp_status frame_keep(void *out, const gp_incoming *in, uint32_t index, gp_error *err)
{
    const size_t bytes = index < in->payload_count ? in->payloads[index].bytes : 0;
    void *copy = bytes > 0 ? gp_malloc(bytes) : NULL;

    if (bytes > 0 && copy == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes of predictions", bytes);
    if (bytes > 0)
        memcpy(copy, in->payloads[index].data, bytes);
    memcpy(out, &copy, sizeof(copy));
    return GP_OK;
}

/* Check that there are `count` names, each with its NUL. */
static gp_status names_check(const gp_frame *names, uint32_t count, gp_error *err)
{
    uint32_t ends = 0;

    for (size_t i = 0; i < names->bytes; i++)
        ends += ((const char *)names->data)[i] == '\0';
    return ends == count && ((const char *)names->data)[names->bytes - 1] == '\0'
               ? GP_OK
               : gp_fail(err, GP_EPROTO, "malformed part: %" PRIu32 " predictions, %" PRIu32 " names", count,
                         ends);
}

static const gp_frame *frame_at(const gp_incoming *in, uint32_t index)
{
    return index < in->payload_count && in->payloads[index].bytes > 0 ? &in->payloads[index] : NULL;
}

static uint32_t marks_count(const uint8_t *marks, uint32_t count)
{
    uint32_t marked = 0;

    for (uint32_t i = 0; i < count && marks != NULL; i++)
        marked += marks[i];
    return marked;
}

/* Return whether the answer has exactly one row per sample, for `count` samples. */
static bool rows_fit(const gp_fan_plan *plan, const gp_frame *frame, const gp_frame *marks, uint32_t count)
{
    const uint8_t *at = frame->data;
    size_t left = frame->bytes;

    if (!plan->begin.whole || plan->begin.answer != GP_ANSWER_CLASSES)
        return left == count * plan->row_bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size[2];

        if (left < sizeof(size))
            return false;
        memcpy(size, at, sizeof(size));
        left -= sizeof(size);
        at += sizeof(size);
        const uint64_t bytes = (uint64_t)size[0] * size[1] * plan->class_bytes;

        if (marks != NULL && ((const uint8_t *)marks->data)[i] != 0) {
            if (size[0] != 0 || size[1] != 0)
                return false;
            continue;
        }
        if (size[0] == 0 || size[1] == 0 || (uint64_t)size[0] * size[1] > GP_PAYLOAD_BYTES_MAX ||
            bytes > left)
            return false;
        at += bytes;
        left -= bytes;
    }
    return left == 0;
}

/* Return the part to which a valid answer belongs. NULL: malformed, or not requested from this
 * worker. */
static gp_fan_part *part_find(const gp_fan *fan, uint32_t rank, const gp_predict_part *got,
                              const gp_incoming *in)
{
    const uint64_t index = got->first / fan->part_size;
    const gp_frame *marks = frame_at(in, 4); /* of skipped samples: 0 or 1; may be missing */

    if (index < fan->delivered || index >= window_end(fan) || got->first != index * fan->part_size ||
        got->count != part_samples(fan, index) || in->payload_count < 2 ||
        (marks != NULL && (fan->plan->begin.on_bad == 0 || marks->bytes != got->count)))
        return NULL;
    for (uint32_t i = 0; marks != NULL && i < got->count; i++)
        if (((const uint8_t *)marks->data)[i] > 1)
            return NULL;
    if (!rows_fit(fan->plan, &in->payloads[0], marks, got->count) ||
        (in->payloads[1].bytes != 0 && in->payloads[1].bytes != got->count * sizeof(int32_t)))
        return NULL;
    gp_fan_part *part = part_at(fan, index);

    return part->state == PART_ASKED && part->worker == fan->pool->grant.slots[rank].index ? part : NULL;
}

/* Check and store a returned part. */
static gp_status fan_take_part(gp_fan *fan, uint32_t rank, const gp_incoming *in, gp_error *err)
{
    gp_predict_part got;
    gp_status status = gp_incoming_decode(in, &got, err);

    if (status != GP_OK)
        return status;
    gp_fan_part *part = fan->parts != NULL ? part_find(fan, rank, &got, in) : NULL;

    if (part == NULL)
        return gp_fail(err, GP_EPROTO, "worker %" PRIu32 " sent predictions that were not requested",
                       fan->pool->grant.slots[rank].index);
    const gp_frame *names = frame_at(in, 2), *marks = frame_at(in, 4), *skipped_names = frame_at(in, 5);

    if (names != NULL)
        status = names_check(names, got.count, err);
    if (status == GP_OK && marks != NULL && skipped_names == NULL)
        status = gp_fail(err, GP_EPROTO, "malformed part: skipped samples have no names");
    if (status == GP_OK && marks != NULL)
        status = names_check(skipped_names, marks_count(marks->data, got.count), err);
    void *const kept[] = { &part->scores, &part->labels,  &part->names,
                           NULL,          &part->skipped, &part->skipped_names };

    for (uint32_t i = 0; i < (marks != NULL ? 6 : 5) && status == GP_OK; i++)
        if (kept[i] != NULL)
            status = frame_keep(kept[i], in, i, err);
    if (status == GP_OK && fan->plan->confusion != NULL && in->payload_count > 3)
        status = gp_confusion_unpack(fan->plan->confusion, in->payloads[3].data, in->payloads[3].bytes, err);
    if (status != GP_OK)
        return status;
    part->state = PART_BACK;
    part->sums = got;
    fan->held[rank]--;
    return GP_OK;
}

/* Deliver the completed parts at the window start. */
static gp_status fan_deliver(gp_fan *fan, gp_error *err)
{
    gp_fan_sums *sums = &fan->sums;
    const gp_predict_request *request = fan->plan->request;

    while (fan->delivered < fan->part_count && part_at(fan, fan->delivered)->state == PART_BACK) {
        gp_fan_part *part = part_at(fan, fan->delivered);

        /* Report the skipped samples in a part, and keep the first names. */
        const char *name = part->skipped_names;
        uint64_t reported = fan->sums.skipped;

        for (uint32_t i = 0; i < part->sums.count && part->skipped != NULL; i++) {
            if (part->skipped[i] == 0)
                continue;
            if (reported < SKIPPED_TOLD)
                snprintf(fan->skipped[reported++], sizeof(fan->skipped[0]), "%s", name);
            if (request->skip != NULL)
                request->skip(request->context, part->sums.first + i, name);
            name += strlen(name) + 1;
        }
        if (fan->plan->take != NULL && !fan->plan->take(fan->plan->context, part))
            return gp_fail(err, GP_ECANCELED, "stopped by the caller");

        /* Parts are added in data order, so that floating-point sums are bitwise identical in every
         * run. */
        const gp_predict_part *add = &part->sums;
        const uint32_t skipped = marks_count(part->skipped, add->count);

        sums->count += add->count - skipped;
        sums->skipped += skipped;
        sums->loss += add->loss;
        sums->weight += add->weight;
        sums->correct += add->correct;
        sums->classed += add->classed;
        sums->squares += add->squares;
        sums->values += add->values;
        sums->labelled += add->labelled;
        sums->excluded += add->excluded;
        part_clear(part);
        fan->delivered++;
        if (request->progress != NULL)
            request->progress(request->context, fan->sums.count + fan->sums.skipped, fan->samples);
    }
    return GP_OK;
}

/* ---- worker failures ---- */

/* Count a worker failure for the part that may have caused it. A worker computes its parts in
 * order, so this is the first of them. GP_EPEER: the part has caused too many failures. */
static gp_status fan_blame(gp_fan *fan, gp_error *err)
{
    const gp_worker_lost *lost = &fan->pool->lost;

    for (uint64_t i = fan->delivered; fan->parts != NULL && i < window_end(fan); i++) {
        gp_fan_part *part = part_at(fan, i);

        if (part->state != PART_ASKED || part->worker != lost->index)
            continue;
        part->deaths++;
        if (part->deaths < GP_FAN_DEATHS_MAX)
            return GP_OK;
        return gp_fail(err, GP_EPEER,
                       "%" PRIu32 " workers failed on samples %" PRIu64 " to %" PRIu64
                       ", the last one (worker %" PRIu32 "): %s; its log is %s",
                       part->deaths, i * fan->part_size + 1, i * fan->part_size + part_samples(fan, i),
                       lost->index, lost->cause, lost->log);
    }
    return GP_OK;
}

static void fan_await_grant(gp_fan *fan)
{
    if (!fan->stale)
        fan->grant = gp_timeout_in(GRANT_MS);
    fan->stale = true;
}

static gp_status fan_take(gp_fan *fan, pool_message *message, gp_error *err)
{
    const uint32_t rank = message->rank;
    gp_status status = GP_OK;

    if (message->from != POOL_WORKER || message->in.envelope.generation != fan->pool->generation)
        return GP_OK;
    if (message->in.type == &gp_msg_error_reply) {
        status = pool_error_from(&message->in, err);
        gp_error_prefix(err, "worker %" PRIu32, fan->pool->grant.slots[rank].index);

        /* A worker that already serves the next generation, or that detected another worker's
         * failure, rejects requests for the old generation. Wait for the new grant. */
        if (status == GP_ESTALE || status == GP_ECANCELED) {
            status = GP_OK;
            fan_await_grant(fan);
        }
        return status;
    }
    if (message->in.type == &gp_msg_predict_ready)
        status = fan_take_ready(fan, rank, &message->in, err);
    else if (message->in.type == &gp_msg_predict_part)
        status = fan_take_part(fan, rank, &message->in, err);
    else
        return GP_OK;

    /* Send new requests before delivering results: workers compute while the caller processes
     * them. */
    if (status == GP_OK)
        status = fan_ask(fan, rank, err);
    if (status == GP_OK)
        status = fan_deliver(fan, err);

    /* Request parts from all ready workers: the returned part may have moved the window. */
    for (uint32_t i = 0; i < fan->pool->grant.slots_count && status == GP_OK; i++)
        if (fan->ready[i])
            status = fan_ask(fan, i, err);
    return status;
}

static gp_status fan_step(gp_fan *fan, gp_error *err)
{
    const gp_predict_request *request = fan->plan->request;
    pool_message message;

    if (request->stop != NULL && *request->stop != 0)
        return gp_fail(err, GP_ECANCELED, "stopped after %" PRIu64 " of %" PRIu64 " samples",
                       fan->sums.count + fan->sums.skipped, fan->samples);
    if (fan->pool->revoked)
        return gp_fail(err, GP_ECANCELED, "the lease ended: %s", fan->pool->ended.reason);

    /* Continue with the lease's next generation after a worker failure. */
    if (fan->pool->regranted) {
        gp_status blamed = fan_blame(fan, err);

        if (fan->pool->lost.index != 0)
            pool_note(fan->pool, "%s; its samples are sent to other workers", fan->pool->lost.cause);
        fan->stale = false;
        if (blamed == GP_OK)
            blamed = pool_attach(fan->pool, request->stop, err);
        return blamed == GP_OK ? fan_begin(fan, err) : blamed;
    }
    if (fan->pool->lost.index != 0)
        fan_await_grant(fan);
    if (fan->stale && gp_timeout_left(fan->grant) == 0)
        return gp_fail(err, GP_ETIMEDOUT,
                       "a worker exited and was not replaced within %d s; the scheduler's log is %s",
                       GRANT_MS / 1000, fan->pool->paths.scheduler_log);
    gp_status status = pool_next(fan->pool, &message, GP_TIMEOUT_SLICE_MS, err);

    if (status == GP_OK)
        status = fan_take(fan, &message, err);
    if (message.from != POOL_NOBODY)
        pool_message_close(&message);
    return status;
}

gp_status gp_fan_run(gp_fan_sums *out, gp_pool *pool, const gp_fan_plan *plan, gp_error *err)
{
    gp_fan fan = { .pool = pool, .plan = plan };
    size_t most = PART_SCORES_MAX / plan->score_count + 1;

    /* The maximum sample count per part does not depend on the worker count, because workers build
     * their execution plans for it. */
    if (plan->sample_bytes > 0 && most > PART_SAMPLES_MAX / plan->sample_bytes + 1)
        most = PART_SAMPLES_MAX / plan->sample_bytes + 1;
    fan.part_most = plan->begin.whole ? PART_IMAGES_MAX : most < PART_MAX ? (uint32_t)most : PART_MAX;
    gp_status status = fan_begin(&fan, err);

    while (status == GP_OK && (fan.parts == NULL || fan.delivered < fan.part_count))
        status = fan_step(&fan, err);
    if (status == GP_OK && fan.sums.count == 0 && fan.sums.skipped > 0)
        status = gp_fail(
            err, GP_ECORRUPT, "no image of %.200s could be read: %s%s; see the worker logs in %s",
            plan->begin.data, fan.skipped[0], fan.sums.skipped > 1 ? ", ..." : "", pool_log_place(pool));
    else if (status == GP_OK)
        pool_note_skipped(pool, fan.sums.skipped, fan.skipped,
                          fan.sums.skipped < SKIPPED_TOLD ? (uint32_t)fan.sums.skipped : SKIPPED_TOLD);
    for (uint32_t i = 0; i < fan.window && fan.parts != NULL; i++)
        part_clear(&fan.parts[i]);
    gp_free(fan.parts);
    if (status == GP_OK)
        *out = fan.sums;
    return status; /* releasing the lease ends the prediction on the workers */
}
