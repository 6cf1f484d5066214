/* Implement cgroup.h: walk from this process's group up to the mount point. */
#include "common/base/system/cgroup.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNT "/sys/fs/cgroup"

bool gp_line_read(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(text, (int)bytes, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (!read)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return read;
}

void gp_boot_id_read(char *text, size_t bytes)
{
    gp_line_read("/proc/sys/kernel/random/boot_id", text, bytes);
}

/* Read a file that contains a number. UINT64_MAX: there is no such file, or the content is not a
 * nonnegative number ("max", -1). */
static uint64_t number_read(const char *folder, const char *file)
{
    char path[1200], text[64];

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    if (!gp_line_read(path, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

/* ---- groups ---- */

/* Update *least with one group's limits.
 *   folder   group directory
 *   version  cgroup version, 1 or 2 */
typedef void group_visit(void *least, const char *folder, int version);

int gp_cgroup_line(char *line, const char *controller, const char **group)
{
    char *rest = line, *controllers, *name;

    strsep(&rest, ":");
    controllers = strsep(&rest, ":");
    *group = rest;
    if (rest == NULL || controllers[0] == '\0')
        return rest == NULL ? 0 : 2;
    while ((name = strsep(&controllers, ",")) != NULL && strcmp(name, controller) != 0)
        ;
    return name != NULL;
}

/* Visit a group and all ancestors up to the mount point. */
static void ancestors_visit(const char *mount, const char *group, group_visit *visit, void *least,
                            int version)
{
    char folder[1100];

    if ((size_t)snprintf(folder, sizeof(folder), "%s%s", mount, group) >= sizeof(folder))
        return;
    for (;;) {
        visit(least, folder, version);
        if (strlen(folder) <= strlen(mount))
            return;
        *strrchr(folder, '/') = '\0';
    }
}

/* Visit the groups of this process that have the controller. */
static void groups_visit(const char *controller, group_visit *visit, void *least)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024], mount[64];
    const char *group;

    snprintf(mount, sizeof(mount), MOUNT "/%s", controller);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const int version = gp_cgroup_line(line, controller, &group);

        if (version != 0)
            ancestors_visit(version == 2 ? MOUNT : mount, group, visit, least, version);
    }
    if (file != NULL)
        fclose(file);
}

/* ---- limits ---- */

/* Apply a group's CPU quota: quota divided by period, rounded down to at least 1. */
static void cpus_visit(void *least, const char *folder, int version)
{
    uint32_t *cpus = least;
    char path[1200], text[64];
    long long quota = -1, period = 100000;

    if (version == 2) {
        snprintf(path, sizeof(path), "%s/cpu.max", folder);
        if (!gp_line_read(path, text, sizeof(text)) || sscanf(text, "%lld %lld", &quota, &period) != 2)
            return;
    } else {
        uint64_t given = number_read(folder, "cpu.cfs_quota_us");
        uint64_t of = number_read(folder, "cpu.cfs_period_us");

        quota = given < INT64_MAX ? (long long)given : -1;
        period = of < INT64_MAX ? (long long)of : period;
    }
    if (quota <= 0 || period <= 0)
        return;
    quota = quota < period ? 1 : quota / period;
    *cpus = quota < *cpus ? (uint32_t)quota : *cpus;
}

uint32_t gp_cgroup_cpus(void)
{
    uint32_t cpus = UINT32_MAX;

    groups_visit("cpu", cpus_visit, &cpus);
    return cpus;
}

static void memory_visit(void *least, const char *folder, int version)
{
    gp_cgroup_memory *memory = least;
    uint64_t limit = number_read(folder, version == 2 ? "memory.max" : "memory.limit_in_bytes");
    uint64_t used = number_read(folder, version == 2 ? "memory.current" : "memory.usage_in_bytes");
    uint64_t left = used < limit ? limit - used : 0;

    /* Version 1 reports a very large number if there is no limit. */
    if (limit >= (uint64_t)1 << 60)
        return;
    memory->limit = limit < memory->limit ? limit : memory->limit;
    if (used != UINT64_MAX)
        memory->left = left < memory->left ? left : memory->left;
}

gp_cgroup_memory gp_cgroup_memory_read(void)
{
    gp_cgroup_memory memory = { .limit = UINT64_MAX, .left = UINT64_MAX };

    groups_visit("memory", memory_visit, &memory);
    return memory;
}
