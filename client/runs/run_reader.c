#include "client/runs/run_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/runs/metrics_line.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/base/system/json_file.h"

/* ---- lines ---- */

/* Read the change of a worker group. false: malformed. */
static bool rescale_get(gp_train_rescale *out, const gp_json *json)
{
    const gp_json *index = gp_json_member(json, "worker_index");

    *out = (gp_train_rescale){ .workers_before = (uint32_t)run_count(json, "workers_before"),
                               .workers = (uint32_t)run_count(json, "workers"),
                               .step = run_count(json, "step"),
                               .seconds = gp_json_number(gp_json_member(json, "paused_seconds"), NAN),
                               .died = gp_json_bool(gp_json_member(json, "died"), false),
                               .cause = gp_json_text(gp_json_member(json, "cause"), "") };
    if (out->workers == 0 || out->workers > sizeof(out->worker_index) / sizeof(uint32_t))
        return false;
    for (uint32_t i = 0; i < out->workers; i++)
        out->worker_index[i] = (uint32_t)gp_json_integer(gp_json_element(index, i), i + 1);
    return true;
}

bool run_line_parse(run_line *out, const char *text, size_t bytes)
{
    *out = (run_line){ .kind = RUN_LINE_OTHER };
    if (gp_json_parse(&out->json, text, bytes, NULL) != GP_OK)
        return false;
    if (!gp_json_is_object(out->json)) {
        run_line_deinit(out);
        return false;
    }
    if (gp_json_member(out->json, "validation_loss") != NULL) {
        out->kind = RUN_LINE_VALIDATION;
        metrics_get(&out->validation, metrics_of_validation, out->json);
    } else if (gp_json_member(out->json, "workers_before") != NULL) {
        if (rescale_get(&out->rescale, out->json))
            out->kind = RUN_LINE_RESCALE;
    } else if (run_count(out->json, "step") > 0 && gp_json_member(out->json, "time") != NULL) {
        out->kind = RUN_LINE_STEP;
        metrics_get(&out->step, metrics_of_step, out->json);
    }
    return true;
}

void run_line_deinit(run_line *line)
{
    gp_json_free(line->json);
    line->json = NULL;
}

bool run_line_next(run_line *out, const char **text)
{
    const char *line, *end;

    while ((end = strchr(line = *text, '\n')) != NULL) {
        *text = end + 1;
        if (run_line_parse(out, line, (size_t)(end - line)))
            return true;
    }
    return false;
}

bool run_line_last(run_line *out, const char *text)
{
    const char *before;

    for (const char *end = strrchr(text, '\n'); end != NULL; end = before) {
        before = memrchr(text, '\n', (size_t)(end - text));

        const char *line = before != NULL ? before + 1 : text;

        if (run_line_parse(out, line, (size_t)(end - line)))
            return true;
    }
    return false;
}

void run_tail_read(const char *folder, const char *name, char *text, size_t bytes)
{
    char path[RUN_PATH_BYTES];
    struct stat info;
    ssize_t got = -1;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        got = gp_read_at(fd, text, bytes - 1,
                         (size_t)info.st_size >= bytes ? (uint64_t)info.st_size - (bytes - 1) : 0);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
}

bool run_is_torn(const char *path)
{
    char last = '\n';
    size_t bytes;
    int fd;

    if (gp_file_open(&fd, &bytes, path, SIZE_MAX, NULL) != GP_OK)
        return false;
    if (bytes > 0 && gp_read_at(fd, &last, 1, bytes - 1) != 1)
        last = '\n';
    close(fd);
    return last != '\n';
}

/* Parse the last validation of a text.
 *   bytes  set to the length of the incomplete first line, which continues the text before
 * false: no line is a validation. */
static bool find_validation(run_line *out, const char *text, size_t *bytes)
{
    static const char key[] = "\"validation_loss\"";
    const char *end = memrchr(text, '\n', *bytes), *before;

    for (; end != NULL; end = before) {
        before = memrchr(text, '\n', (size_t)(end - text));
        *bytes = (size_t)(end - text) + 1;
        if (before == NULL)
            break;
        if (memmem(before + 1, (size_t)(end - before - 1), key, sizeof(key) - 1) == NULL ||
            !run_line_parse(out, before + 1, (size_t)(end - before - 1)))
            continue;
        if (out->kind == RUN_LINE_VALIDATION)
            return true;
        run_line_deinit(out);
    }
    return false;
}

bool run_validation_last(run_line *out, const char *folder)
{
    char path[RUN_PATH_BYTES], text[1 + (64 << 10)];
    bool found = false;
    struct stat info;
    off_t end = 0, first = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        end = info.st_size;
        first = end > RUN_SEARCH_BYTES_MAX ? end - RUN_SEARCH_BYTES_MAX : 0;
    }
    while (!found && end > first) {
        const off_t from = end - first > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : first;
        size_t bytes = (size_t)(end - from) + (from == 0);

        text[0] = '\n'; /* in front of the first line of the file */
        if (gp_read_at(fd, text + (from == 0), (size_t)(end - from), (uint64_t)from) != end - from)
            break;
        found = find_validation(out, text, &bytes);
        if (from == first || from + (off_t)bytes >= end)
            break;
        end = from + (off_t)bytes;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

struct run_lines {
    char path[RUN_PATH_BYTES];
    int fd; /* -1: the file does not exist yet */
    char buffer[1 << 14];
    size_t begin, end; /* unread bytes in the buffer */
    char line[RUN_LINE_BYTES_MAX + 1];
    size_t used; /* incomplete last line; > RUN_LINE_BYTES_MAX: too long, to be skipped */
    bool failed;
};

run_lines *run_lines_new(const char *folder, const char *name)
{
    run_lines *lines = gp_calloc(1, sizeof(*lines));

    if (lines == NULL)
        return NULL;
    lines->fd = -1;
    snprintf(lines->path, sizeof(lines->path), "%s/%s", folder, name);
    return lines;
}

void run_lines_free(run_lines *lines)
{
    if (lines != NULL && lines->fd >= 0)
        close(lines->fd);
    gp_free(lines);
}

/* Fill the empty buffer. false: end of file, or no file. */
static bool lines_read(run_lines *lines)
{
    ssize_t got;

    if (lines->fd < 0)
        lines->fd = open(lines->path, O_RDONLY | O_CLOEXEC);
    if (lines->fd < 0)
        lines->failed |= errno != ENOENT;
    while ((got = lines->fd < 0 ? 0 : read(lines->fd, lines->buffer, sizeof(lines->buffer))) < 0 &&
           errno == EINTR)
        ;
    lines->failed |= got < 0;
    lines->begin = 0;
    lines->end = got > 0 ? (size_t)got : 0;
    return got > 0;
}

const char *run_lines_next(run_lines *lines, size_t *bytes)
{
    for (;;) {
        const char *from, *newline;
        size_t count;

        if (lines->begin == lines->end && !lines_read(lines))
            return NULL;
        from = lines->buffer + lines->begin;
        newline = memchr(from, '\n', lines->end - lines->begin);
        count = newline != NULL ? (size_t)(newline - from) : lines->end - lines->begin;
        if (lines->used + count <= RUN_LINE_BYTES_MAX)
            memcpy(lines->line + lines->used, from, count);
        lines->used += count;
        lines->begin += count + (newline != NULL);
        if (newline == NULL)
            continue;
        *bytes = lines->used;
        lines->used = 0;
        if (*bytes > RUN_LINE_BYTES_MAX)
            continue;
        lines->line[*bytes] = '\0';
        return lines->line;
    }
}

const char *run_lines_rest(run_lines *lines, size_t *bytes)
{
    if (lines->used == 0 || lines->used > RUN_LINE_BYTES_MAX)
        return NULL;
    *bytes = lines->used;
    lines->used = 0;
    lines->line[*bytes] = '\0';
    return lines->line;
}

bool run_lines_failed(const run_lines *lines)
{
    return lines->failed;
}

bool run_lines_replaced(const run_lines *lines)
{
    struct stat own, named;

    return lines->fd >= 0 && (fstat(lines->fd, &own) != 0 || stat(lines->path, &named) != 0 ||
                              own.st_ino != named.st_ino || own.st_dev != named.st_dev);
}

/* ---- documents ---- */

uint64_t run_count(const gp_json *object, const char *key)
{
    const int64_t count = gp_json_integer(gp_json_member(object, key), 0);

    return count < 0 || count > RUN_COUNT_MAX ? 0 : (uint64_t)count;
}

/* Copy a document from the member "records" of end.json. Errors as for run_document_read(). */
static gp_status packed_document(gp_json **out, const char *folder, const char *name, gp_error *err)
{
    gp_json *end;
    gp_json_writer writer;
    gp_buffer text;
    gp_status status = run_document_read(&end, folder, "end.json", err);
    const gp_json *record = gp_json_member(gp_json_member(end, "records"), name);

    if (status == GP_OK && record == NULL)
        status = gp_fail(err, GP_ENOENT, "%s has no %s", folder, name);
    gp_buffer_init(&text, RUN_DOCUMENT_BYTES_MAX);
    if (status == GP_OK) {
        gp_json_writer_init(&writer, &text, false);
        gp_json_put_value(&writer, NULL, record);
        status = gp_json_writer_finish(&writer, err);
    }
    if (status == GP_OK)
        status = gp_json_parse(out, gp_buffer_text(&text), text.bytes, err);
    gp_buffer_deinit(&text);
    gp_json_free(end);
    return status;
}

gp_status run_document_read(gp_json **out, const char *folder, const char *name, gp_error *err)
{
    char path[RUN_PATH_BYTES];
    gp_status status;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    status = gp_json_file_read(out, path, RUN_DOCUMENT_BYTES_MAX, err);
    return status == GP_ENOENT && strcmp(name, "end.json") != 0 ? packed_document(out, folder, name, err)
                                                                : status;
}

bool run_info_read(gp_train_info *out, const char *folder)
{
    gp_json *json;

    if (run_document_read(&json, folder, "facts.json", NULL) != GP_OK)
        return false;
    const gp_json *index = gp_json_member(json, "worker_index");
    const uint64_t workers = run_count(json, "workers");

    *out = (gp_train_info){ .batch = (uint32_t)run_count(json, "batch"),
                            .steps_per_epoch = (uint32_t)run_count(json, "steps_per_epoch"),
                            .epochs = (uint32_t)run_count(json, "epochs"),
                            .samples = run_count(json, "samples"),
                            .validation_samples = run_count(json, "validation_samples"),
                            .parameters = run_count(json, "parameters"),
                            .classes = (uint32_t)run_count(json, "classes") };
    if (workers <= sizeof(out->worker_index) / sizeof(uint32_t))
        out->workers = (uint32_t)workers;
    for (uint32_t i = 0; i < out->workers; i++)
        out->worker_index[i] = (uint32_t)gp_json_integer(gp_json_element(index, i), i + 1);
    gp_json_free(json);
    return true;
}
