/* Read claim files, and decide which devices `--devices auto` uses (device_holder.h). */
#include "proto/device/device_holder.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/system/proc_stat.h"

enum { FAMILY_MAX = 32 };

void gp_device_claim_name(char out[GP_DEVICE_CLAIM_NAME], const char *uuid)
{
    size_t i = 0;

    for (; uuid[i] != '\0' && i + 1 < GP_DEVICE_CLAIM_NAME; i++)
        out[i] =
            isalnum((unsigned char)uuid[i]) || uuid[i] == '-' || (uuid[i] == '.' && i > 0) ? uuid[i] : '_';
    out[i] = '\0';
}

bool gp_device_claim_read(gp_device_holder *out, const char *record)
{
    return sscanf(record, "pid %" SCNu32 " worker %" SCNu32 " pool %63s", &out->pid, &out->worker,
                  out->pool) == 3;
}

int gp_device_claim_write(char record[GP_DEVICE_CLAIM_RECORD], const gp_device_holder *holder)
{
    return snprintf(record, GP_DEVICE_CLAIM_RECORD, "pid %" PRIu32 " worker %" PRIu32 " pool %.63s\n",
                    holder->pid, holder->worker, holder->pool);
}

/* Read a small file into `text` and return its length; 0: empty or unreadable. */
static size_t file_read(int folder, const char *path, char *text, size_t bytes)
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t got = fd < 0 ? 0 : pread(fd, text, bytes - 1, 0);

    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return strlen(text);
}

/* Return whether the process is a worker, by the name in /proc (at most 15 bytes). The pid in a
 * claim may have been reused. */
static bool is_worker(uint32_t pid)
{
    char path[40], name[32];

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/comm", pid);
    file_read(AT_FDCWD, path, name, sizeof(name));
    name[strcspn(name, "\n")] = '\0';
    return strstr(name, "worker") != NULL;
}

void gp_device_list_holders(gp_device_list *list, const char *device_dir)
{
    int folder = open(device_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (uint32_t i = 0; i < list->count; i++) {
        char name[GP_DEVICE_CLAIM_NAME], record[GP_DEVICE_CLAIM_RECORD + 1];
        gp_device *device = &list->devices[i];
        gp_device_holder holder;

        gp_device_claim_name(name, device->uuid);
        if (folder < 0 || file_read(folder, name, record, sizeof(record)) == 0 ||
            !gp_device_claim_read(&holder, record) || !is_worker(holder.pid))
            holder = (gp_device_holder){ 0 };
        memcpy(device->pool, holder.pool, sizeof(device->pool));
        device->worker = holder.worker;
    }
    if (folder >= 0)
        close(folder);
}

/* Return whether the process is a worker or a descendant of one: commands run as descendants of a
 * worker. */
static bool is_ours(uint32_t pid)
{
    for (int level = 0; level < FAMILY_MAX && pid > 1; level++) {
        gp_proc_stat stat;

        if (is_worker(pid))
            return true;
        if (!gp_proc_stat_read(&stat, (pid_t)pid))
            return false;
        pid = (uint32_t)stat.parent;
    }
    return false;
}

/* Return whether other users' processes compute on the device and use more than a tenth of the
 * memory (or an unknown amount). */
static bool others_compute(const gp_device *device, char *why, size_t bytes)
{
    uint32_t own[GP_DEVICE_PIDS_MAX], count = 0;

    for (uint32_t i = 0; i < device->process_count && i < GP_DEVICE_PIDS_MAX; i++)
        if (device->pids[i] != 0 && is_ours(device->pids[i]))
            own[count++] = device->pids[i];
    return gp_device_busy(device, own, count, why, bytes) &&
           (device->memory_total == 0 || device->memory_used > device->memory_total / 10);
}

bool gp_device_left_out(const gp_device_list *list, uint32_t index, char *why, size_t bytes)
{
    const gp_device *device = &list->devices[index];
    char text[GP_DEVICE_REASON];

    if (device->reason[0] != '\0') {
        snprintf(why, bytes, "%s", device->reason);
        return true;
    }
    if (others_compute(device, text, sizeof(text))) {
        snprintf(why, bytes, "it is %s; `gradpool up --devices %" PRIu32 "` uses it nevertheless", text,
                 device->index);
        return true;
    }
    if (!device->display)
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        if (!list->devices[i].display && list->devices[i].reason[0] == '\0' &&
            !others_compute(&list->devices[i], text, sizeof(text))) {
            snprintf(why, bytes,
                     "it drives a display; `gradpool up --devices %" PRIu32 "` uses it nevertheless",
                     device->index);
            return true;
        }
    return false;
}
