#include "scheduler/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/core.h"

bool gp_record_read(gp_record *out, const gp_places *places)
{
    char text[512];
    int fd = open(places->record, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    *out = (gp_record){ .workers = 0 };
    const char *listen = strstr(text, "\nlisten ");

    if (listen != NULL)
        (void)sscanf(listen, "\nlisten %107[^\n]", out->listen);
    return sscanf(text, "workers %" SCNu32 "\nidle %" SCNd64 "\ndevices %255[^\n]\n", &out->workers,
                  &out->idle_ms, out->devices) >= 2 &&
           out->workers >= 1 && out->workers <= GP_CORE_SLOTS_MAX && out->idle_ms >= 0;
}

gp_status gp_record_write(const gp_record *record, const gp_places *places, gp_error *err)
{
    char aside[GP_TEXT_ENDPOINT + 8], text[512];
    int length = snprintf(text, sizeof(text), "workers %" PRIu32 "\nidle %" PRId64 "\ndevices %s\n%s%s%s",
                          record->workers, record->idle_ms, record->devices,
                          record->listen[0] != '\0' ? "listen " : "", record->listen,
                          record->listen[0] != '\0' ? "\n" : "");
    int fd;
    bool written;

    snprintf(aside, sizeof(aside), "%s.new", places->record);
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", aside);
    errno = ENOSPC;
    written = write(fd, text, (size_t)length) == length;
    close(fd);
    if (written && rename(aside, places->record) == 0)
        return GP_OK;
    gp_status status = gp_fail_errno(err, GP_EIO, "cannot write %s", places->record);

    unlink(aside);
    return status;
}

void gp_record_remove(const gp_places *places)
{
    unlink(places->record);
}
