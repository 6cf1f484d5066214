#include "worker/process/exit_reason.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/text/log.h"
#include "proto/message/limits.h"

static char place[GP_TEXT_PATH];

void gp_exit_reason_set_path(const char *path)
{
    snprintf(place, sizeof(place), "%s", path);
}

void gp_exit_reason_write(const char *text)
{
    int file =
        place[0] == '\0' ? -1 : open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (file < 0)
        return;
    if (write(file, text, strlen(text)) < 0)
        unlink(place);
    close(file);
}

_Noreturn void gp_device_lost(const char *doing, const gp_error *cause)
{
    static const char advice[] = "; look for an Xid in dmesg, and run gradpool doctor";
    char begin[100], words[GP_TEXT_WORDS];
    bool cut;
    int room;

    gp_log(GP_LOG_ERROR, "gpu-lost", "GPU failure %s; exiting to be replaced: %s", doing, cause->message);
    snprintf(begin, sizeof(begin), "lost its GPU %.80s: ", doing);
    room = (int)(sizeof(words) - strlen(begin) - sizeof(advice));
    cut = strlen(cause->message) > (size_t)room;
    snprintf(words, sizeof(words), "%s%.*s%s%s", begin, cut ? room - 3 : room, cause->message,
             cut ? "..." : "", advice);
    gp_exit_reason_write(words);
    _exit(GP_EXIT_DEVICE_LOST);
}
