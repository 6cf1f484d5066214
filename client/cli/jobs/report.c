/* Failure reports: collect the files and logs of a run in one JSON document. Each log is cut to the
 * last lines, filtered for the run, and stripped of secrets. */
#include "client/cli/jobs/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <gradpool/gradpool.h>

#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"
#include "common/base/text/log.h"
#include "common/base/text/log_line.h"
#include "proto/message/limits.h"

enum {
    PART_BYTES = 1 << 16,          /* size limit of files read as a whole, such as job.json */
    TAIL_BYTES = 12 << 10,         /* log and scheduler log, last bytes each */
    WORKERS_TAIL_BYTES = 96 << 10, /* all worker logs together */
    STEPS_BYTES = 24 << 10,        /* last bytes of metrics.jsonl */
    STEPS_MAX = 32,                /* lines of metrics.jsonl in the report */
    LOGS_MAX = 64,
    SECRET_BYTES_MIN = 6, /* minimum length of a secret: masking shorter values would mask words */
    /* log lines up to 10 s after the run may still belong to the run's lease */
    LEASE_END_MS = 10000,
};

/* Log event in which a worker reports the state of a training that ended (worker/daemon/run.c). */
static const char exchange_event[] = "training-ended";

extern char **environ;

/* ---- secrets ---- */

/* Replace each occurrence of a secret with asterisks. */
static void mask(char *text, const char *secret)
{
    const size_t bytes = strlen(secret);

    for (char *at = text; (at = strstr(at, secret)) != NULL; at += bytes)
        memset(at, '*', bytes);
}

/* Mask a secret in the form that it has in a string of a JSON file. */
static void mask_quoted(char *text, const char *secret)
{
    gp_json_writer writer;
    gp_buffer quoted;

    gp_buffer_init(&quoted, RUN_DOCUMENT_BYTES_MAX);
    gp_json_writer_init(&writer, &quoted, false);
    gp_json_put_text(&writer, NULL, secret);
    if (gp_json_writer_finish(&writer, NULL) == GP_OK) {
        char *inside = (char *)quoted.data + 1;

        *strrchr(inside, '"') = '\0';
        mask(text, inside);
    }
    gp_buffer_deinit(&quoted);
}

/* Sanitize a text in place: mask the values of secret environment variables, and replace control
 * and non-ASCII characters. */
static void clean(char *text)
{
    static const char *const words[] = { "SECRET", "TOKEN", "PASSW", "KEY", "CREDENTIAL" };
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        const char *value = strchr(*variable, '='), *found;
        const size_t bytes = value == NULL ? 0 : strlen(value + 1);
        bool secret = false; /* the name suggests a secret value */

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && value != NULL; i++)
            secret |= (found = strcasestr(*variable, words[i])) != NULL && found < value;
        /* the path of a file is no secret: it only names the file */
        if (!secret || bytes < SECRET_BYTES_MIN || (value[1] == '/' && access(value + 1, F_OK) == 0))
            continue;
        mask_quoted(text, value + 1); /* first: a part of an escape sequence must not remain */
        mask(text, value + 1);
    }
    for (char *c = text; *c != '\0'; c++)
        if (((unsigned char)*c < ' ' && *c != '\n' && *c != '\t') || (unsigned char)*c >= 127)
            *c = '?';
}

/* ---- files ---- */

/* Access to a run's files, and the first error. */
typedef struct reading {
    const report_source *source;
    gp_error error; /* first read error; a missing file is not an error */
} reading;

static const char *const report_files[] = {
    [GP_JOB_FILE_LOG] = "log",          [GP_JOB_FILE_METRICS] = "metrics.jsonl",
    [GP_JOB_FILE_FACTS] = "facts.json", [GP_JOB_FILE_RECORD] = "job.json",
    [GP_JOB_FILE_END] = "end.json",
};

size_t report_tail(const report_source *from, gp_job_file file, uint32_t worker, char *text, size_t bytes_max,
                   uint64_t *size, gp_error *err)
{
    static pool_piece piece;
    uint64_t offset = INT64_MAX;
    char path[RUN_PATH_BYTES];

    if (from->paths != NULL) {
        if (file == GP_JOB_FILE_SCHEDULER_LOG)
            snprintf(path, sizeof(path), "%s", from->paths->scheduler_log);
        else if (file == GP_JOB_FILE_WORKER_LOG)
            gp_paths_worker_log(from->paths, worker, path);
        else
            snprintf(path, sizeof(path), "%s/%s", from->folder, report_files[file]);
        gp_log_read(path, text, 0, 0, size, NULL);
        offset = *size != UINT64_MAX && *size > bytes_max ? *size - bytes_max : 0;
        return *size == UINT64_MAX ? 0 : gp_log_read(path, text, bytes_max, offset, size, NULL);
    }
    *size = UINT64_MAX;
    /* first get the size, then read the end */
    for (int look = 0; look < 2; look++) {
        gp_error why; /* separate variable, because a successful call may overwrite the message */

        if (pool_job_read(from->pool, from->job, file, worker, offset, &piece, &why) != GP_OK) {
            if (err != NULL)
                *err = why;
            return 0;
        }
        if (piece.at.file == 0)
            return 0;
        *size = piece.at.size;
        offset = *size > bytes_max ? *size - bytes_max : 0;
    }
    size_t bytes = piece.bytes < bytes_max ? piece.bytes : bytes_max; /* the file may have grown */

    memcpy(text, piece.text, bytes);
    return bytes;
}

/* Read the end of a file, starting at a line boundary, and sanitize it. NULL: the file does not
 * exist. The caller frees the result with gp_free(). */
static char *read_tail(reading *r, gp_job_file file, uint32_t worker, size_t bytes_max, uint64_t *size)
{
    char *text = r->error.code == GP_OK ? gp_malloc(bytes_max + 1) : NULL;
    size_t got;

    if (text == NULL)
        return NULL;
    got = report_tail(r->source, file, worker, text, bytes_max, size, &r->error);
    if (*size == UINT64_MAX || r->error.code != GP_OK) {
        gp_free(text);
        return NULL;
    }
    text[got] = '\0';
    if (*size > bytes_max && strchr(text, '\n') != NULL)
        memmove(text, strchr(text, '\n') + 1, strlen(strchr(text, '\n')));
    clean(text);
    return text;
}

/* ---- parts ---- */

/* Read a document that is a member of end.json, as in the folder of a trial of a sweep, and
 * sanitize it. NULL: missing. The caller frees the returned value. */
static gp_json *packed_file(const char *folder, const char *name)
{
    gp_json *packed, *json = NULL;
    gp_json_writer writer;
    gp_buffer text;

    gp_buffer_init(&text, RUN_DOCUMENT_BYTES_MAX);
    if (run_document_read(&packed, folder, name, NULL) == GP_OK) {
        gp_json_writer_init(&writer, &text, false);
        gp_json_put_value(&writer, NULL, packed);
        if (gp_json_writer_finish(&writer, NULL) == GP_OK) {
            clean((char *)text.data);
            gp_json_parse(&json, gp_buffer_text(&text), text.bytes, NULL);
        }
        gp_json_free(packed);
    }
    gp_buffer_deinit(&text);
    return json;
}

/* Write a JSON file of the run folder as member `key`; null: missing or malformed. The caller frees
 * the returned value. */
static gp_json *put_file(gp_json_writer *writer, const char *key, reading *r, gp_job_file file)
{
    uint64_t size = 0;
    gp_json *json = NULL;
    char *text = read_tail(r, file, 0, PART_BYTES, &size);

    if (text == NULL || size > PART_BYTES || gp_json_parse(&json, text, strlen(text), NULL) != GP_OK)
        json = NULL;
    if (text == NULL && r->source->paths != NULL && file != GP_JOB_FILE_END)
        json = packed_file(r->source->folder, report_files[file]);
    gp_json_put_value(writer, key, json);
    gp_free(text);
    return json;
}

/* Write the last lines of metrics.jsonl: steps with their phase times, and validations. */
static void put_steps(gp_json_writer *writer, reading *r)
{
    uint64_t size;
    char *text = read_tail(r, GP_JOB_FILE_METRICS, 0, STEPS_BYTES, &size);
    const char *rest = text != NULL ? text : "";
    run_line last[STEPS_MAX] = { 0 };
    size_t count = 0;

    for (run_line line; run_line_next(&line, &rest); count++) {
        run_line_deinit(&last[count % STEPS_MAX]);
        last[count % STEPS_MAX] = line;
    }
    gp_json_begin_array(writer, "last_steps");
    for (size_t i = count > STEPS_MAX ? count - STEPS_MAX : 0; i < count; i++) {
        gp_json_one_line(writer);
        gp_json_put_value(writer, NULL, last[i % STEPS_MAX].json);
        run_line_deinit(&last[i % STEPS_MAX]);
    }
    gp_json_end_array(writer);
    gp_free(text);
}

/* Filter for a run's daemon log lines. */
typedef struct own_lines {
    const gp_json *leases;      /* lease ids; NULL: no facts.json, keep lines of any lease */
    int64_t began_ms, ended_ms; /* run start and end; began_ms -1: unknown; ended_ms INT64_MAX: not ended */
    int64_t job, pid;           /* the run's process id; job 0: not a background job */
} own_lines;

/* Parse a log timestamp to milliseconds since 1970; -1: malformed. */
static int64_t milliseconds_of(const char *text)
{
    struct tm utc = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);

    if (rest == NULL)
        return -1;
    return (int64_t)timegm(&utc) * 1000 + (*rest == '.' ? strtol(rest + 1, NULL, 10) : 0);
}

/* Build the filter from job.json, facts.json and end.json. */
static own_lines own_lines_of(const gp_json *record, const gp_json *info, const gp_json *end)
{
    own_lines own = { .began_ms = -1, .ended_ms = -1 };

    if (gp_json_is_object(info) && gp_json_is_array(gp_json_member(info, "leases")))
        own.leases = gp_json_member(info, "leases");
    if (own.leases != NULL)
        own.began_ms = milliseconds_of(gp_json_text(gp_json_member(info, "began"), ""));
    if (gp_json_is_object(end))
        own.ended_ms = milliseconds_of(gp_json_text(gp_json_member(end, "ended"), ""));
    if (gp_json_is_object(record)) {
        if (own.began_ms < 0)
            own.began_ms = milliseconds_of(gp_json_text(gp_json_member(record, "began"), ""));
        if (own.ended_ms < 0)
            own.ended_ms = milliseconds_of(gp_json_text(gp_json_member(record, "ended"), ""));
        own.job = gp_json_integer(gp_json_member(record, "job"), 0);
        own.pid = gp_json_integer(gp_json_member(record, "pid"), 0);
    }
    if (own.ended_ms < 0)
        own.ended_ms = INT64_MAX;
    return own;
}

/* Get a numeric field of a log line. false: the line has no such field. */
static bool number_of(const char *line, const char *key, int64_t *value)
{
    char text[24];

    if (!gp_log_line_get(line, key, text, sizeof(text)))
        return false;
    *value = strtoll(text, NULL, 10);
    return true;
}

/* Return whether a log line belongs to the run: the time is within the run, and the lease, job and
 * client named in the line belong to the run. Lease ids restart with each pool, so the time matters
 * for them too. A lease may end up to LEASE_END_MS after the run. Lines without a valid time are
 * kept. */
static bool is_own(const own_lines *own, const char *line)
{
    char text[40] = "";
    int64_t lease, number, time_ms;

    if (!gp_log_line_get(line, "time", text, sizeof(text)) || (time_ms = milliseconds_of(text)) < 0)
        return true;
    if (time_ms < own->began_ms || time_ms - LEASE_END_MS > own->ended_ms)
        return false;
    if (own->leases != NULL && number_of(line, "lease", &lease)) {
        for (size_t i = 0; i < gp_json_count(own->leases); i++)
            if (lease == gp_json_integer(gp_json_element(own->leases, i), -1))
                return true;
        return false;
    }
    if ((number_of(line, "job", &number) && number != own->job) ||
        (number_of(line, "client", &number) && number != own->pid))
        return false;
    return time_ms <= own->ended_ms;
}

/* Remove all lines about other runs from a log, in place. */
static void keep_own(char *text, const own_lines *own)
{
    char *to = text;

    if (own->began_ms < 0)
        return;
    for (char *line = text, *next; *line != '\0'; line = next) {
        size_t bytes = strcspn(line, "\n");

        bytes += line[bytes] == '\n';
        next = line + bytes;
        if (!is_own(own, line))
            continue;
        memmove(to, line, bytes);
        to += bytes;
    }
    *to = '\0';
}

/* Logs of a report, and the filter for their lines. */
typedef struct log_list {
    own_lines own;
    char name[LOGS_MAX][64], *text[LOGS_MAX];
    uint64_t size[LOGS_MAX];
    uint32_t count;
} log_list;

/* Add the end of a log to the list, filtered for the run. */
static void log_add(log_list *list, reading *r, gp_job_file file, uint32_t worker, const char *name,
                    size_t bytes_max)
{
    if (list->count == LOGS_MAX)
        return;
    list->text[list->count] = read_tail(r, file, worker, bytes_max, &list->size[list->count]);
    if (list->text[list->count] != NULL && file != GP_JOB_FILE_LOG)
        keep_own(list->text[list->count], &list->own);
    if (list->text[list->count] != NULL)
        snprintf(list->name[list->count++], sizeof(list->name[0]), "%s", name);
}

/* Add the logs of the run's workers; without facts.json, of workers 1 to 8. */
static void logs_of_workers(log_list *list, reading *r, const gp_json *info)
{
    const gp_json *indices = info != NULL ? gp_json_member(info, "worker_index") : NULL;
    size_t count = indices != NULL ? gp_json_count(indices) : 8;
    char name[32];

    for (size_t i = 0; i < count && i < GP_WORKERS_MAX; i++) {
        int64_t index = indices != NULL ? gp_json_integer(gp_json_element(indices, i), 0) : (int64_t)i + 1;

        /* facts.json belongs to the job and may contain anything */
        if (index < 1 || index > GP_WORKERS_MAX)
            continue;
        snprintf(name, sizeof(name), "worker-%" PRId64 ".log", index);
        log_add(list, r, GP_JOB_FILE_WORKER_LOG, (uint32_t)index, name,
                WORKERS_TAIL_BYTES / (count < 8 ? 8 : count));
    }
}

/* Write one sentence per worker about the step in which the training ended. Without facts.json the
 * run has not trained; a training in the logs is then another run. */
static void put_exchange(gp_json_writer *writer, const log_list *list)
{
    static const char *const words[] = { "step", "epoch", "rank", "generation", "exchanged" };

    gp_json_begin_array(writer, "exchange");
    for (uint32_t i = 0; i < list->count && list->own.leases != NULL; i++) {
        const char *line = NULL; /* the last one with that event */
        char name[64], values[5][24] = { "?", "?", "?", "?", "?" }, message[400] = "", sentence[700];

        for (const char *at = list->text[i]; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n')
            if (gp_log_line_get(at, "event", name, sizeof(name)) && strcmp(name, exchange_event) == 0)
                line = at;
        if (line == NULL || strncmp(list->name[i], "worker-", 7) != 0)
            continue;
        for (size_t w = 0; w < 5; w++)
            gp_log_line_get(line, words[w], values[w], sizeof(values[w]));
        gp_log_line_get(line, "msg", message, sizeof(message));
        clean(message);
        snprintf(sentence, sizeof(sentence),
                 "%.*s: training ended in step %s of epoch %s, rank %s of generation %s, after %s calls, "
                 "buckets and "
                 "batches: %s",
                 (int)strcspn(list->name[i], "."), list->name[i], values[0], values[1], values[2], values[3],
                 values[4], message);
        gp_json_put_text(writer, NULL, sentence);
    }
    gp_json_end_array(writer);
}

gp_status report_make(gp_buffer *out, const report_source *source, const gp_error *failure, gp_error *err)
{
    reading r = { .source = source, .error = { .code = GP_OK } };
    log_list *logs = gp_calloc(1, sizeof(*logs));
    gp_json_writer writer;
    char made[40], text[GP_ERROR_MESSAGE_MAX];
    time_t now = time(NULL);
    struct tm utc;
    struct utsname host;

    if (logs == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a report");
    strftime(made, sizeof(made), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    gp_json_writer_init(&writer, out, true);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "made", made);
    gp_json_put_text(&writer, "folder",
                     source->shown != NULL && source->shown[0] != '\0' ? source->shown : source->folder);
    if (failure == NULL) {
        gp_json_put_null(&writer, "error");
    } else {
        snprintf(text, sizeof(text), "%s", failure->message);
        clean(text);
        gp_json_begin_object(&writer, "error");
        gp_json_put_text(&writer, "status", gp_status_name(failure->code));
        gp_json_put_text(&writer, "message", text);
        gp_json_end_object(&writer);
    }
    gp_json_begin_object(&writer, "versions");
    gp_json_put_text(&writer, "gradpool", gp_version());
    gp_json_put_integer(&writer, "protocol", GP_PROTOCOL);
    if (source->paths != NULL && !source->other_pool && uname(&host) == 0) {
        gp_json_put_text(&writer, "kernel", host.release);
        gp_json_put_text(&writer, "machine", host.machine);
        gp_json_put_integer(&writer, "processors", sysconf(_SC_NPROCESSORS_ONLN));
    }
    gp_json_end_object(&writer);
    gp_json *record = put_file(&writer, "run", &r, GP_JOB_FILE_RECORD);
    gp_json *info = put_file(&writer, "topology", &r, GP_JOB_FILE_FACTS);

    gp_json *end = put_file(&writer, "end", &r, GP_JOB_FILE_END);

    logs->own = own_lines_of(record, info, end);
    put_steps(&writer, &r);
    log_add(logs, &r, GP_JOB_FILE_LOG, 0, "log", TAIL_BYTES);
    if (!source->other_pool) {
        log_add(logs, &r, GP_JOB_FILE_SCHEDULER_LOG, 0, "scheduler.log", TAIL_BYTES);
        logs_of_workers(logs, &r, info);
    }
    put_exchange(&writer, logs);
    gp_json_begin_array(&writer, "logs");
    for (uint32_t i = 0; i < logs->count; i++) {
        gp_json_begin_object(&writer, NULL);
        gp_json_put_text(&writer, "name", logs->name[i]);
        gp_json_put_integer(&writer, "bytes", (int64_t)logs->size[i]);
        gp_json_put_text(&writer, "tail", logs->text[i]);
        gp_json_end_object(&writer);
        gp_free(logs->text[i]);
    }
    gp_json_end_array(&writer);
    gp_json_end_object(&writer);
    gp_json_free(record);
    gp_json_free(info);
    gp_json_free(end);
    gp_free(logs);
    gp_status status = gp_json_writer_finish(&writer, err);

    return r.error.code == GP_OK ? status : gp_fail(err, r.error.code, "%s", r.error.message);
}

gp_status report_fetch(gp_buffer *out, const report_source *source, gp_error *err)
{
    static pool_piece piece;
    gp_status status;

    do {
        status = pool_job_read(source->pool, source->job, GP_JOB_FILE_REPORT, 0, out->bytes, &piece, err);
        if (status == GP_OK)
            status = gp_buffer_append(out, piece.text, piece.bytes, err);
    } while (status == GP_OK && piece.bytes > 0);
    return status;
}

void report_write(const char *folder, const gp_paths *paths, const gp_error *failure)
{
    const report_source source = { .folder = folder, .paths = paths };
    char path[RUN_PATH_BYTES];
    gp_buffer text;
    gp_error err;

    gp_buffer_init(&text, REPORT_BYTES_MAX);
    gp_status status = report_make(&text, &source, failure, &err);

    snprintf(path, sizeof(path), "%s/report.json", folder);
    if (status == GP_OK)
        status = gp_file_write(path, text.data, text.bytes, &err);
    if (status != GP_OK)
        fprintf(stderr, "cannot write a report of the failure: %s\n", err.message);
    gp_buffer_deinit(&text);
}
