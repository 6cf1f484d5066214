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

enum { PATH_BYTES = 700 };

/* Return a nonnegative integer member; 0: missing or negative. */
static uint64_t whole(const gp_json *object, const char *key)
{
    int64_t value = gp_json_integer(gp_json_member(object, key), 0);

    return value < 0 ? 0 : (uint64_t)value;
}

/* ---- lines ---- */

/* Read the change of a worker group. false: malformed. */
static bool rescale_get(gp_train_rescale *out, const gp_json *json)
{
    const gp_json *index = gp_json_member(json, "worker_index");

    *out = (gp_train_rescale){ .workers_before = (uint32_t)whole(json, "workers_before"),
                               .workers = (uint32_t)whole(json, "workers"),
                               .step = whole(json, "step"),
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
    } else if (whole(out->json, "step") > 0 && gp_json_member(out->json, "time") != NULL) {
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

struct run_lines {
    char path[PATH_BYTES];
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

gp_json *run_document_read(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    gp_json *json = NULL;
    uint8_t *data;
    size_t bytes;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (gp_file_read(&data, &bytes, path, RUN_DOCUMENT_BYTES_MAX, NULL) != GP_OK)
        return NULL;
    if (gp_json_parse(&json, (const char *)data, bytes, NULL) != GP_OK)
        json = NULL;
    gp_free(data);
    return json;
}

bool run_info_read(gp_train_info *out, const char *folder)
{
    gp_json *json = run_document_read(folder, "facts.json");

    if (json == NULL)
        return false;
    const gp_json *index = gp_json_member(json, "worker_index");
    const uint64_t workers = whole(json, "workers");

    *out = (gp_train_info){ .batch = (uint32_t)whole(json, "batch"),
                            .steps_per_epoch = (uint32_t)whole(json, "steps_per_epoch"),
                            .epochs = (uint32_t)whole(json, "epochs"),
                            .samples = whole(json, "samples"),
                            .validation_samples = whole(json, "validation_samples"),
                            .parameters = whole(json, "parameters"),
                            .classes = (uint32_t)whole(json, "classes") };
    if (workers <= sizeof(out->worker_index) / sizeof(uint32_t))
        out->workers = (uint32_t)workers;
    for (uint32_t i = 0; i < out->workers; i++)
        out->worker_index[i] = (uint32_t)gp_json_integer(gp_json_element(index, i), i + 1);
    gp_json_free(json);
    return true;
}
