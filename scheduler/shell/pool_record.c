/* Pool record: a text file with one setting per line, followed by the process attributes. */
#include "scheduler/shell/pool_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "scheduler/core/core.h"

#define MARK "\nsurroundings\n"

/* Copy the rest of a line after the key, which may be empty. False: no such line.
 *   key  includes the preceding line end */
static bool line_of(const char *text, const char *key, char *out, size_t bytes)
{
    const char *line = strstr(text, key);
    size_t length;

    if (line == NULL)
        return false;
    line += strlen(key);
    length = strcspn(line, "\n");
    snprintf(out, bytes, "%.*s", (int)(length < bytes ? length : bytes - 1), line);
    return true;
}

bool gp_pool_record_read(gp_pool_record *out, const gp_paths *paths)
{
    int fd = open(paths->record, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char *text = fd < 0 ? NULL : gp_malloc(GP_POOL_RECORD_BYTES_MAX + 1), *rest;
    ssize_t got = text == NULL ? -1 : read(fd, text, GP_POOL_RECORD_BYTES_MAX);
    gp_core_config config = gp_core_config_default();
    char silence[48];

    *out = (gp_pool_record){ .suspect_ms = config.suspect_ms, .silence_ms = config.beat_ms };
    if (fd >= 0)
        close(fd);
    if (text == NULL)
        return false;
    text[got > 0 ? got : 0] = '\0';
    rest = strstr(text, MARK);
    if (rest != NULL) {
        rest[1] = '\0'; /* the lines after the mark are not parsed here */
        rest += strlen(MARK);
    }
    bool known = !line_of(text, "\nsilence ", silence, sizeof(silence)) ||
                 (sscanf(silence, "%" SCNd64 " %" SCNd64, &out->suspect_ms, &out->silence_ms) == 2 &&
                  out->suspect_ms >= 0 && out->silence_ms >= 0);

    line_of(text, "\nlisten ", out->listen, sizeof(out->listen));
    line_of(text, "\ndevices ", out->devices, sizeof(out->devices));
    line_of(text, "\nresources ", out->resources, sizeof(out->resources));
    out->temporary = line_of(text, "\ntemporary ", out->owner, sizeof(out->owner));
    if (!out->temporary)
        line_of(text, "\nowner ", out->owner, sizeof(out->owner));
    known = known && sscanf(text, "workers %" SCNu32 "\nidle %" SCNd64, &out->workers, &out->idle_ms) == 2 &&
            out->workers >= 1 && out->workers <= GP_CORE_SLOTS_MAX && out->idle_ms >= 0;
    if (known && rest != NULL) {
        memmove(text, rest, strlen(rest) + 1);
        out->process_env = text;
    } else {
        gp_free(text);
    }
    return known;
}

gp_status gp_pool_record_write(const gp_pool_record *record, const gp_paths *paths, gp_error *err)
{
    char aside[GP_TEXT_ENDPOINT + 8];
    gp_buffer text;
    int fd;
    bool written;

    gp_buffer_init(&text, GP_POOL_RECORD_BYTES_MAX);
    gp_status status = gp_buffer_printf(
        &text, err,
        "workers %" PRIu32 "\nidle %" PRId64 "\ndevices %s\nsilence %" PRId64 " %" PRId64 "\n%s%s%s",
        record->workers, record->idle_ms, record->devices, record->suspect_ms, record->silence_ms,
        record->listen[0] != '\0' ? "listen " : "", record->listen, record->listen[0] != '\0' ? "\n" : "");

    if (status == GP_OK && record->resources[0] != '\0')
        status = gp_buffer_printf(&text, err, "resources %s\n", record->resources);
    if (status == GP_OK && record->owner[0] != '\0')
        status =
            gp_buffer_printf(&text, err, "%s %s\n", record->temporary ? "temporary" : "owner", record->owner);
    if (status == GP_OK && record->process_env != NULL)
        status = gp_buffer_printf(&text, err, "%s%s", MARK + 1, record->process_env);

    snprintf(aside, sizeof(aside), "%s.new", paths->record);
    fd = status != GP_OK ? -1 : open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (status == GP_OK && fd < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", aside);
    if (status == GP_OK) {
        errno = ENOSPC;
        written = write(fd, text.data, text.bytes) == (ssize_t)text.bytes;
        close(fd);
        if (!written || rename(aside, paths->record) != 0) {
            status = gp_fail_errno(err, GP_EIO, "cannot write %s", paths->record);
            unlink(aside);
        }
    }
    gp_buffer_deinit(&text);
    return status;
}
