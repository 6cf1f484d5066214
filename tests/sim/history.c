/* Implementation of history.h with two open-addressing tables: operations by (session, seq) and
 * things by id. */
#include "tests/sim/history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct operation {
    /* seq 0: entry for the session itself, with the largest seq in `id` */
    uint64_t session, seq, id;
    bool used, accepted, result, dead; /* dead: the session itself has ended */
} operation;

typedef struct thing {
    uint64_t id, session, seq;
    bool used, owned, finished, ended, forgotten;
    uint32_t limit, starts, attempt;
    int32_t outcome;
} thing;

struct history {
    history_rules rules;
    operation *operations;
    thing *things;
    uint32_t operation_count, operation_room, thing_count, thing_room; /* powers of two */
    history_counts counts;
    char check[32], failure[400];
};

enum { FIRST_ROOM = 1024 };

static const char *const words[HISTORY_KINDS] = { "submit", "accept", "start",   "finish", "cancel",
                                                  "end",    "result", "missing", "forget", "void" };

history *history_new(const history_rules *rules)
{
    history *h = calloc(1, sizeof(*h));

    if (h == NULL)
        return NULL;
    h->rules = *rules;
    h->operation_room = h->thing_room = FIRST_ROOM;
    h->operations = calloc(FIRST_ROOM, sizeof(*h->operations));
    h->things = calloc(FIRST_ROOM, sizeof(*h->things));
    if (h->operations == NULL || h->things == NULL) {
        history_free(h);
        return NULL;
    }
    return h;
}

void history_free(history *h)
{
    if (h == NULL)
        return;
    free(h->operations);
    free(h->things);
    free(h);
}

void history_clear(history *h)
{
    memset(h->operations, 0, h->operation_room * sizeof(*h->operations));
    memset(h->things, 0, h->thing_room * sizeof(*h->things));
    h->operation_count = h->thing_count = 0;
    h->counts = (history_counts){ 0 };
    h->check[0] = h->failure[0] = '\0';
}

const char *history_failure(const history *h)
{
    return h->failure;
}

const char *history_check(const history *h)
{
    return h->check;
}

history_counts history_get_counts(const history *h)
{
    return h->counts;
}

__attribute__((format(printf, 3, 4))) static void broken(history *h, const char *check, const char *format,
                                                         ...)
{
    va_list arguments;

    if (h->check[0] != '\0')
        return;
    snprintf(h->check, sizeof(h->check), "%s", check);
    va_start(arguments, format);
    vsnprintf(h->failure, sizeof(h->failure), format, arguments);
    va_end(arguments);
}

/* ---- tables ---- */

static uint64_t hash(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ b * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

    z = (z ^ z >> 29) * 0x94d049bb133111ebull;
    return z ^ z >> 32;
}

static operation *operation_place(operation *table, uint32_t room, uint64_t session, uint64_t seq)
{
    uint32_t i = (uint32_t)hash(session, seq) & (room - 1);

    while (table[i].used && (table[i].session != session || table[i].seq != seq))
        i = (i + 1) & (room - 1);
    return &table[i];
}

static thing *thing_place(thing *table, uint32_t room, uint64_t id)
{
    uint32_t i = (uint32_t)hash(id, 0) & (room - 1);

    while (table[i].used && table[i].id != id)
        i = (i + 1) & (room - 1);
    return &table[i];
}

static void *grown(size_t room, size_t bytes)
{
    void *table = calloc(room, bytes);

    if (table == NULL) {
        fprintf(stderr, "no memory for a history\n");
        abort();
    }
    return table;
}

static operation *operation_of(history *h, uint64_t session, uint64_t seq)
{
    operation *o;

    if (2 * h->operation_count >= h->operation_room) {
        operation *larger = grown(2 * h->operation_room, sizeof(*larger));

        for (uint32_t i = 0; i < h->operation_room; i++)
            if (h->operations[i].used)
                *operation_place(larger, 2 * h->operation_room, h->operations[i].session,
                                 h->operations[i].seq) = h->operations[i];
        free(h->operations);
        h->operations = larger;
        h->operation_room *= 2;
    }
    o = operation_place(h->operations, h->operation_room, session, seq);
    if (!o->used) {
        *o = (operation){ .session = session, .seq = seq, .used = true };
        h->operation_count++;
    }
    return o;
}

static thing *thing_of(history *h, uint64_t id)
{
    thing *t;

    if (2 * h->thing_count >= h->thing_room) {
        thing *larger = grown(2 * h->thing_room, sizeof(*larger));

        for (uint32_t i = 0; i < h->thing_room; i++)
            if (h->things[i].used)
                *thing_place(larger, 2 * h->thing_room, h->things[i].id) = h->things[i];
        free(h->things);
        h->things = larger;
        h->thing_room *= 2;
    }
    t = thing_place(h->things, h->thing_room, id);
    if (!t->used) {
        *t = (thing){ .id = id, .used = true };
        h->thing_count++;
    }
    return t;
}

/* ---- checks ---- */

static void on_submit(history *h, const history_entry *e)
{
    operation *session = operation_of(h, e->session, 0);

    if (e->seq > session->id) {
        if (h->rules.gapless && e->seq != session->id + 1)
            broken(h, "sequence", "session %" PRIx64 " submitted %" PRIu64 " after %" PRIu64, e->session,
                   e->seq, session->id);
        session->id = e->seq;
    }
}

static void on_accept(history *h, const history_entry *e)
{
    operation *o = operation_of(h, e->session, e->seq);
    thing *t = thing_of(h, e->id);

    if (o->accepted && o->id != e->id)
        broken(h, "two-for-one", "submit %" PRIx64 ":%" PRIu64 " is %" PRIu64 " and was %" PRIu64, e->session,
               e->seq, e->id, o->id);
    if (t->owned && (t->session != e->session || t->seq != e->seq))
        broken(h, "reused-id", "%" PRIu64 " is submit %" PRIx64 ":%" PRIu64 " and was %" PRIx64 ":%" PRIu64,
               e->id, e->session, e->seq, t->session, t->seq);
    o->accepted = true;
    o->id = e->id;
    t->owned = true;
    t->session = e->session;
    t->seq = e->seq;
    if (e->attempt != 0)
        t->limit = e->attempt;
}

static void on_start(history *h, const history_entry *e)
{
    thing *t = thing_of(h, e->id);

    if (t->ended || t->forgotten)
        broken(h, "runs-after-end", "%" PRIu64 " starts (attempt %u) after its end was reported", e->id,
               e->attempt);
    if (t->finished && h->rules.finish_binds)
        broken(h, "runs-again", "%" PRIu64 " starts (attempt %u) although it has succeeded", e->id,
               e->attempt);
    if (t->starts > 0 && (e->attempt < t->attempt || (h->rules.attempts_grow && e->attempt == t->attempt)))
        broken(h, "attempts", "%" PRIu64 " starts as attempt %u after attempt %u", e->id, e->attempt,
               t->attempt);
    if (t->limit != 0 && t->starts >= t->limit)
        broken(h, "too-often", "%" PRIu64 " starts %u times, limit %u", e->id, t->starts + 1, t->limit);
    h->counts.again += t->starts > 0;
    t->starts++;
    t->attempt = e->attempt;
}

static void on_finish(history *h, const history_entry *e)
{
    thing *t = thing_of(h, e->id);

    if (t->starts == 0)
        broken(h, "not-begun", "%" PRIu64 " finished without a start", e->id);
    if (t->finished && h->rules.finish_binds)
        broken(h, "finished-twice", "%" PRIu64 " succeeded and finishes again", e->id);
    t->finished = t->finished || e->outcome == 0;
}

/* Record an end that a client was notified of. */
static void end_thing(history *h, thing *t, int32_t outcome)
{
    if (t->ended && t->outcome != outcome)
        broken(h, "end-changed", "%" PRIu64 " ended with %d, now with %d", t->id, t->outcome, outcome);
    if (outcome == h->rules.good && !t->finished)
        broken(h, "good-for-nothing", "%" PRIu64 " is reported as successful but never succeeded", t->id);
    t->ended = true;
    t->outcome = outcome;
}

static void on_result(history *h, const history_entry *e)
{
    operation *o = operation_of(h, e->session, e->seq);

    if (!o->accepted || o->id != e->id)
        broken(h, "stray-result",
               "a result of %" PRIu64 " for submit %" PRIx64 ":%" PRIu64 ", which is another request", e->id,
               e->session, e->seq);
    if (o->result)
        broken(h, "result-twice", "the result of %" PRIu64 " was seen twice", e->id);
    o->result = true;
    end_thing(h, thing_of(h, e->id), e->outcome);
}

bool history_add(history *h, const history_entry *e)
{
    thing *t;

    if (h->check[0] != '\0')
        return false;
    h->counts.of[e->kind]++;
    switch (e->kind) {
    case HISTORY_SUBMIT:
        on_submit(h, e);
        break;
    case HISTORY_ACCEPT:
        on_accept(h, e);
        break;
    case HISTORY_START:
        on_start(h, e);
        break;
    case HISTORY_FINISH:
        on_finish(h, e);
        break;
    case HISTORY_END:
        end_thing(h, thing_of(h, e->id), e->outcome);
        break;
    case HISTORY_RESULT:
        on_result(h, e);
        break;
    case HISTORY_MISSING:
        t = thing_of(h, e->id);
        if (t->owned && !t->forgotten)
            broken(h, "lost", "%" PRIu64 ", acknowledged as submit %" PRIx64 ":%" PRIu64 ", is not there",
                   e->id, t->session, t->seq);
        break;
    case HISTORY_FORGET:
        t = thing_of(h, e->id);
        if (!t->ended)
            broken(h, "lost", "%" PRIu64 " is forgotten and has not ended", e->id);
        t->forgotten = true;
        break;
    case HISTORY_VOID:
        operation_of(h, e->session, 0)->dead = true;
        break;
    default:
        break;
    }
    return h->check[0] == '\0';
}

bool history_close(history *h)
{
    for (uint32_t i = 0; i < h->operation_room && h->check[0] == '\0'; i++) {
        const operation *o = &h->operations[i];
        const thing *t = o->used && o->seq != 0 && o->accepted ? thing_of(h, o->id) : NULL;

        if (t != NULL && !t->ended && !t->forgotten && !operation_of(h, o->session, 0)->dead)
            broken(h, "never-ends",
                   "submit %" PRIx64 ":%" PRIu64 ", acknowledged as %" PRIu64 ", has never ended", o->session,
                   o->seq, o->id);
    }
    return h->check[0] == '\0';
}

/* ---- files ---- */

bool history_append(const char *path, history_entry entry)
{
    char line[200];
    struct timespec now;
    int length, fd;
    bool written;

    if (entry.at_ns == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        entry.at_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    length = snprintf(line, sizeof(line), "%" PRId64 " %s %" PRIx64 " %" PRIu64 " %" PRIu64 " %u %d\n",
                      entry.at_ns, words[entry.kind], entry.session, entry.seq, entry.id, entry.attempt,
                      (int)entry.outcome);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    written = write(fd, line, (size_t)length) == length;
    close(fd);
    return written;
}

typedef struct line_list {
    history_entry *entries;
    size_t count, room;
} line_list;

static int by_time(const void *a, const void *b)
{
    const history_entry *x = a, *y = b;

    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static bool read_line(const char *line, history_entry *out)
{
    char word[16];
    unsigned attempt;
    int outcome, kind = 0;

    if (sscanf(line, "%" SCNd64 " %15s %" SCNx64 " %" SCNu64 " %" SCNu64 " %u %d", &out->at_ns, word,
               &out->session, &out->seq, &out->id, &attempt, &outcome) != 7)
        return false;
    while (kind < HISTORY_KINDS && strcmp(words[kind], word) != 0)
        kind++;
    out->kind = (history_kind)kind;
    out->attempt = attempt;
    out->outcome = outcome;
    return kind < HISTORY_KINDS;
}

bool history_read(history *h, const char *path)
{
    line_list list = { NULL, 0, 0 };
    char line[256];
    FILE *file = fopen(path, "re");

    if (file == NULL)
        broken(h, "file", "%.200s: %s", path, strerror(errno));
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (list.count == list.room) {
            list.room = list.room == 0 ? 256 : 2 * list.room;
            list.entries = realloc(list.entries, list.room * sizeof(*list.entries));
            if (list.entries == NULL)
                abort();
        }
        if (read_line(line, &list.entries[list.count]))
            list.count++;
        else
            broken(h, "file", "no entry of a history: %.200s", line);
    }
    if (file != NULL)
        fclose(file);
    if (list.count > 0)
        qsort(list.entries, list.count, sizeof(*list.entries), by_time);
    for (size_t i = 0; i < list.count; i++)
        history_add(h, &list.entries[i]);
    free(list.entries);
    return h->check[0] == '\0';
}
