/* team_answers.c: process the records that workers send: results, queue items, log lines and lines
 * of output. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "common/base/text/lines.h"

enum { DRAIN_MAX = 1024, BLOB_READ_MAX = 256 << 10 };

_Static_assert((int)GP_OUTPUT_LINE_BYTES_MAX == (int)GP_LINE_BYTES_MAX, "lines have one limit");

/* ---- bytes from workers ---- */

void team_bytes_deinit(team_bytes *bytes)
{
    if (bytes->mapped != 0)
        munmap(bytes->data, bytes->mapped);
    else
        gp_free(bytes->data);
    *bytes = (team_bytes){ 0 };
}

gp_status team_bytes_take(team_bytes *out, const team_outcome *outcome, gp_error *err)
{
    if (outcome->blob != NULL && outcome->blob->data != NULL) {
        *out = *outcome->blob;
        *outcome->blob = (team_bytes){ 0 };
        return GP_OK;
    }
    out->data = gp_malloc(outcome->bytes);
    if (out->data == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a result of %zu bytes", outcome->bytes);
    if (outcome->bytes != 0)
        memcpy(out->data, outcome->data, outcome->bytes);
    out->bytes = outcome->bytes;
    out->mapped = 0;
    return GP_OK;
}

/* Open a blob that an answer names. A small one is read into memory: the number of mappings per
 * process is limited, and a mapping costs more than this copy. GP_EPROTO: the worker has not
 * sent it, or the file is unsealed or too short. GP_EIO: no free descriptor. GP_ENOMEM: out of
 * memory. */
static gp_status blob_map(team_worker *worker, uint64_t number, uint64_t bytes, team_bytes *out,
                          gp_error *err)
{
    struct stat info;
    int fd, seals;
    gp_status received = worker_take_blob(worker, number, &fd, err);

    if (received != GP_OK)
        return received;
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0 || info.st_size < 0 ||
        (uint64_t)info.st_size < bytes || bytes == 0) {
        close(fd);
        return gp_fail(err, GP_EPROTO, "blob %" PRIu64 " is not sealed or too short", number);
    }
    bool small = bytes <= BLOB_READ_MAX;
    void *memory = small ? gp_malloc(bytes) : mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    gp_status status = memory == NULL || memory == MAP_FAILED
                           ? gp_fail(err, GP_ENOMEM, "no memory to map a result of %" PRIu64 " bytes", bytes)
                           : GP_OK;

    if (status == GP_OK && small && gp_read_at(fd, memory, bytes, 0) != (ssize_t)bytes) {
        gp_free(memory);
        status = gp_fail(err, GP_EPROTO, "cannot read blob %" PRIu64, number);
    }
    close(fd);
    if (status == GP_OK)
        *out = (team_bytes){ .data = memory, .bytes = bytes, .mapped = small ? 0 : bytes };
    return status;
}

/* ---- answers ---- */

/* Record from a worker: a copy of the header, and the payload's location. */
typedef struct taken {
    gp_answer head;
    const unsigned char *inlined;
    size_t inlined_bytes;
} taken;

/* Start an error message with the worker's name. Return the length. */
static size_t sentence_begin(const gp_team *team, uint32_t w, char *sentence, size_t room)
{
    char name[TEAM_NAME_BYTES];

    return (size_t)snprintf(sentence, room, "%s: ", team_worker_name(team, w, name));
}

void team_text_copy(char *out, size_t room, const unsigned char *text, size_t bytes)
{
    size_t used = 0;

    for (; used < bytes && used + 1 < room && text[used] != '\0'; used++)
        out[used] = text[used] < ' ' ? ' ' : (char)text[used];
    out[used] = '\0';
}

/* Process the answer to a call: map the blob, find the unit, and end it. */
static void on_done(gp_team *team, uint32_t w, const taken *t)
{
    team_bytes blob = { 0 };
    char sentence[GP_ERROR_MESSAGE_MAX];
    gp_status status = gp_status_known((long)t->head.status) ? (gp_status)t->head.status : GP_EINTERNAL;
    int64_t ran_ns = (int64_t)(t->head.ended_ns - t->head.begun_ns);
    team_unit *unit;
    gp_error why;
    gp_status mapped = t->head.blob == 0
                           ? GP_OK
                           : blob_map(worker_of(team, w), t->head.blob, t->head.payload_bytes, &blob, &why);

    if (mapped == GP_EPROTO) {
        worker_mark_corrupt(worker_of(team, w), "malformed result: its payload is missing");
        return;
    }
    int64_t begun_ns, ended_ns;

    sentence[0] = '\0'; /* an initializer would clear the whole array for each answer */
    if (ran_ns < 0)
        ran_ns = 0;
    worker_clock_estimate(worker_of(team, w), &t->head, ran_ns, team_now(team), &begun_ns, &ended_ns);
    if (dispatch_answered(team->dispatch, w, t->head.id, status, ran_ns, team_now(team), &unit) != GP_OK) {
        team_bytes_deinit(&blob);
        return; /* the unit is retried, or has already ended */
    }
    if (mapped != GP_OK) {
        status = mapped;
        memcpy(sentence, why.message, sizeof(sentence));
    } else if (status != GP_OK && unit->canceled &&
               (unit->call.kind != GP_CALL_BLOCK || status == GP_ECANCELED ||
                unit->over_limit)) { /* ranks in a block may fail by themselves */
        size_t used = sentence_begin(team, w, sentence, sizeof(sentence));

        status = dispatch_canceled_status(unit);
        if (unit->over_limit)
            snprintf(sentence + used, sizeof(sentence) - used,
                     "exceeded its time limit of %" PRIu32 " ms; canceled after %" PRId64 " ms",
                     unit->timeout_ms, ran_ns / 1000000);
        else
            snprintf(sentence + used, sizeof(sentence) - used, "canceled while running");
    } else if (status != GP_OK) {
        size_t used = sentence_begin(team, w, sentence, sizeof(sentence));

        team_text_copy(sentence + used, sizeof(sentence) - used, t->inlined, t->inlined_bytes);
    }
    team_outcome outcome = { .status = status,
                             .sentence = sentence,
                             .worker = w,
                             .attempts = unit->attempts,
                             .over_limit = unit->over_limit,
                             .answer = &t->head,
                             .data = blob.data != NULL ? blob.data : (const void *)t->inlined,
                             .bytes = blob.data != NULL ? blob.bytes : t->inlined_bytes,
                             .ended_ns = ended_ns,
                             .begun_ns = begun_ns,
                             .blob = &blob };

    if (status != GP_OK)
        outcome.bytes = 0;
    team_end(team, unit, &outcome);
    team_bytes_deinit(&blob);
}

/* Deliver an item to the named queue. Return false if the queue is full: the record stays in the
 * ring until there is room. */
static bool on_item(gp_team *team, uint32_t w, const taken *t)
{
    char name[GP_TASK_NAME_MAX + 1];
    size_t length = strnlen((const char *)t->inlined, t->inlined_bytes);
    team_bytes blob = { 0 };

    if (length == 0 || length > GP_TASK_NAME_MAX || (t->head.blob == 0 && length == t->inlined_bytes)) {
        worker_mark_corrupt(worker_of(team, w), "malformed queue item: no name");
        return true;
    }
    memcpy(name, t->inlined, length);
    name[length] = '\0';
    if (worker_of(team, w)->stage == TEAM_UP && queue_blocks(team, name))
        return false;
    if (t->head.blob == 0) {
        queue_take(team, w, name, t->inlined + length + 1, t->inlined_bytes - length - 1);
        return true;
    }
    gp_status status = blob_map(worker_of(team, w), t->head.blob, t->head.payload_bytes, &blob, NULL);

    if (status == GP_EPROTO)
        worker_mark_corrupt(worker_of(team, w), "malformed queue item: its payload is missing");
    else if (status != GP_OK)
        team->info.log_dropped++;
    else
        queue_take(team, w, name, blob.data, blob.bytes);
    team_bytes_deinit(&blob);
    return true;
}

/* Pass on a line of gp_task_log(). */
static void on_log(gp_team *team, uint32_t w, const taken *t)
{
    const gp_team *before;
    char line[4096];

    if (team->lines.log == NULL)
        return;
    before = team_callback_begin(team);
    team_text_copy(line, sizeof(line), t->inlined, t->inlined_bytes);
    team->lines.log(team->lines.context, w, line);
    team_callback_end(before);
}

/* Pass on a line that a task printed. */
static void on_output(gp_team *team, uint32_t w, const taken *t)
{
    char text[GP_OUTPUT_LINE_BYTES_MAX + 1];
    gp_output_line line = { .worker = w,
                            .call = t->head.id,
                            .in_loop = (t->head.flags & GP_ANSWER_ITERATION) != 0,
                            .text = text,
                            .bytes = t->inlined_bytes };
    const gp_team *before;

    if (team->lines.output == NULL)
        return;
    if (line.bytes > GP_OUTPUT_LINE_BYTES_MAX)
        line.bytes = GP_OUTPUT_LINE_BYTES_MAX;
    if (line.in_loop)
        line.iteration = (int64_t)t->head.value;
    memcpy(text, t->inlined, line.bytes);
    text[line.bytes] = '\0';
    before = team_callback_begin(team);
    team->lines.output(team->lines.context, &line);
    team_callback_end(before);
}

/* Process one record. Return false if it must stay in the ring. */
static bool on_record(gp_team *team, uint32_t w, const gp_answer *record, size_t payload_max)
{
    taken t = { .inlined = record->payload, .inlined_bytes = payload_max };

    memcpy((void *)&t.head, (const void *)record, sizeof(t.head));
    if (t.head.blob == 0) {
        /* the worker changed the record after the check */
        if (t.head.payload_bytes > t.inlined_bytes) {
            worker_mark_corrupt(worker_of(team, w), "malformed record: wrong length");
            return true;
        }
        t.inlined_bytes = t.head.payload_bytes;
    }
    switch (t.head.kind) {
    case GP_ANSWER_DONE:
        on_done(team, w, &t);
        return true;
    case GP_ANSWER_QUEUE:
        return on_item(team, w, &t);
    case GP_ANSWER_LOG:
        on_log(team, w, &t);
        return true;
    case GP_ANSWER_OUTPUT:
        on_output(team, w, &t);
        return true;
    case GP_ANSWER_DROPPED:
        *(t.head.count == GP_ANSWER_OUTPUT ? &team->info.output_dropped : &team->info.log_dropped) +=
            t.head.value;
        return true;
    default:
        worker_mark_corrupt(worker_of(team, w), "malformed record: unknown kind");
        return true;
    }
}

bool team_drain(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);
    bool any = false;

    for (int count = 0; count < DRAIN_MAX && !worker->corrupt; count++) {
        const void *record;
        gp_error err;
        gp_status status = gp_link_next(worker->link, &record, &err);

        if (status == GP_ETIMEDOUT)
            break;
        if (status != GP_OK) {
            worker_mark_corrupt(worker, err.message);
            break;
        }
        if (count == 0)
            worker_clock_bound(worker, record);
        if (!on_record(team, w, record, gp_link_payload_max(worker->link))) {
            worker->blocked = true;
            break;
        }
        gp_link_drop(worker->link);
        any = true;
    }
    return any;
}
