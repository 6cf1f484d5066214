#include "client/runs/run_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/runs/run_reader.h"
#include "common/base/memory/buffer.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"
#include "common/base/text/json.h"

/* LOCK_MS: how long to wait for another process to append. An append takes less than 1 ms. */
enum { LOCK_MS = 2000 };

/* Lock the index. Another process may hold the lock for the time of an append. */
static gp_status lock(int fd, const char *path, gp_error *err)
{
    const gp_status status = gp_file_lock_wait(fd, LOCK_MS);

    return status == GP_OK ? GP_OK
                           : gp_fail(err, status, "cannot lock %s: %s", path,
                                     status == GP_EBUSY ? "another process holds the lock" : strerror(errno));
}

/* Append a line with one write(). The lock matters on NFS, where O_APPEND is not atomic. */
static gp_status append(int fd, const char *path, const char *line, gp_error *err)
{
    char text[RUN_INDEX_LINE_MAX + 2], last = '\n';
    struct stat info;
    gp_status status = lock(fd, path, err);
    int bytes;

    if (status != GP_OK)
        return status;
    if (fstat(fd, &info) != 0 || (info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) != 1))
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    if (info.st_size > RUN_INDEX_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "%s is larger than %d MiB; rename it to begin a new index (no run folder is lost)",
                       path, RUN_INDEX_BYTES_MAX >> 20);
    bytes = snprintf(text, sizeof(text), "%s%s\n", last == '\n' ? "" : "\n", line);
    if (bytes <= 0 || (size_t)bytes >= sizeof(text))
        return gp_fail(err, GP_ELIMIT, "the path of the run folder is too long for %s", path);
    return gp_write_all(fd, text, (size_t)bytes) ? GP_OK
                                                 : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
}

gp_status run_index_append(const char *state_dir, const char *folder, const char *began, gp_error *err)
{
    char path[600];
    gp_buffer line;
    gp_json_writer writer;
    gp_status status;
    int fd;

    snprintf(path, sizeof(path), "%s/runs.jsonl", state_dir);
    if (!gp_utf8_valid((const uint8_t *)folder, strlen(folder)))
        return gp_fail(err, GP_EINVAL,
                       "the path %s is not valid UTF-8, which the index needs; rename the folder", folder);
    gp_buffer_init(&line, RUN_INDEX_LINE_MAX);
    gp_json_writer_init(&writer, &line, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_text(&writer, "folder", folder);
    gp_json_put_text(&writer, "began", began);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    fd = status == GP_OK ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (status == GP_OK)
        status = fd >= 0 ? append(fd, path, gp_buffer_text(&line), err)
                         : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (fd >= 0 && close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    gp_buffer_deinit(&line);
    return status;
}

gp_status run_index_each(const char *state_dir, bool (*visit)(void *context, const run_entry *entry),
                         void *context, gp_error *err)
{
    run_lines *lines = run_lines_new(state_dir, "runs.jsonl");
    const char *text;
    size_t bytes;
    uint64_t number = 0;
    bool more = true;

    if (lines == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to read the index of runs");
    while (more && (text = run_lines_next(lines, &bytes)) != NULL) {
        run_entry entry;
        run_line line;

        /* Without locks, an append that sees half of another line begins with a newline. */
        if (bytes == 0)
            continue;
        entry = (run_entry){ .number = ++number };
        if (!run_line_parse(&line, text, bytes))
            continue;
        entry.folder = gp_json_text(gp_json_member(line.json, "folder"), "");
        entry.began = gp_json_text(gp_json_member(line.json, "began"), "");
        if (entry.folder[0] == '/')
            more = visit(context, &entry);
        run_line_deinit(&line);
    }
    const bool failed = run_lines_failed(lines);

    run_lines_free(lines);
    return failed ? gp_fail(err, GP_EIO, "cannot read the index of runs, %s/runs.jsonl", state_dir) : GP_OK;
}
