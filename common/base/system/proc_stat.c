/* Implement proc_stat.h. */
#include "common/base/system/proc_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/system/file.h"

bool gp_proc_stat_read(gp_proc_stat *out, pid_t pid)
{
    char path[40], text[1024];
    const char *at;
    int parent, group;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    ssize_t got = gp_read_at(fd, text, sizeof(text) - 1, 0);
    int problem = got < 0 ? errno : ESRCH;

    close(fd);
    text[got > 0 ? got : 0] = '\0';

    /* Field 2, the process name in parentheses, can contain any character, including parentheses
     * and spaces. Parse from the last parenthesis. */
    at = strrchr(text, ')');
    *out = (gp_proc_stat){ .state = 'X' };
    if (at != NULL && sscanf(at, ") %c %d %d", &out->state, &parent, &group) == 3) {
        out->parent = parent;
        out->group = group;
        for (int field = 2; at != NULL && field < 22; field++)
            at = strchr(at + 1, ' ');
        if (at != NULL) {
            char *end;

            out->start_time = strtoull(at, &end, 10);
            out->address_bytes = strtoull(end, NULL, 10);
            return true;
        }
    }
    errno = problem;
    return false;
}
