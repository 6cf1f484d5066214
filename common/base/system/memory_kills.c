/* Implement memory_kills.h. */
#include "common/base/system/memory_kills.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/system/cgroup.h"

/* interval between readings; limit for /proc/PID/cgroup */
enum { WATCH_MS = 1000, CGROUPS_BYTES = 4096 };

/* Return N from the line "oom_kill N" in a file. UINT64_MAX: the file has no such line. */
static uint64_t kills_in(const char *path)
{
    FILE *file = fopen(path, "re");
    char name[64];
    unsigned long long value;
    uint64_t found = UINT64_MAX;

    if (file == NULL)
        return found;
    while (fscanf(file, "%63s %llu", name, &value) == 2)
        if (strcmp(name, "oom_kill") == 0)
            found = value;
    fclose(file);
    return found;
}

/* Choose root/folder/GROUP/file if it contains a count. false: it does not. */
static bool path_try(gp_memory_kills *out, const char *root, const char *folder, const char *group,
                     const char *file)
{
    char path[sizeof(out->path)];

    if ((size_t)snprintf(path, sizeof(path), "%s%s%s%s%s", root, folder, group,
                         strcmp(group, "/") == 0 ? "" : "/", file) >= sizeof(path) ||
        kills_in(path) == UINT64_MAX)
        return false;
    strcpy(out->path, path);
    return true;
}

void gp_memory_kills_find(gp_memory_kills *out, const char *cgroups, const char *root)
{
    char copy[CGROUPS_BYTES], *rest = copy, *line;
    const char *group;

    strcpy(out->path, "/proc/vmstat");
    snprintf(copy, sizeof(copy), "%s", cgroups);
    while ((line = strsep(&rest, "\n")) != NULL) {
        const int version = gp_cgroup_line(line, "memory", &group);

        if ((version == 2 && (path_try(out, root, "", group, "memory.events") ||
                              path_try(out, root, "/unified", group, "memory.events"))) ||
            (version == 1 && path_try(out, root, "/memory", group, "memory.oom_control")))
            return;
    }
}

/* Choose the file for a running process; see gp_memory_kills_find(). */
static void kills_find(gp_memory_kills *out, uint32_t pid)
{
    char path[40], cgroups[CGROUPS_BYTES];
    size_t bytes = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/cgroup", pid);
    file = fopen(path, "re");
    if (file != NULL) {
        bytes = fread(cgroups, 1, sizeof(cgroups) - 1, file);
        fclose(file);
    }
    cgroups[bytes] = '\0';
    gp_memory_kills_find(out, cgroups, "/sys/fs/cgroup");
}

void gp_memory_kills_begin(gp_memory_kills *kills, uint32_t pid)
{
    kills_find(kills, pid);
    kills->earlier = kills->latest = kills_in(kills->path);
    kills->latest_ms = gp_now_ms();
}

void gp_memory_kills_watch(gp_memory_kills *kills, uint32_t pid, int64_t now_ms)
{
    gp_memory_kills now;

    if (now_ms - kills->latest_ms < WATCH_MS)
        return;
    kills_find(&now, pid);
    now.latest = kills_in(now.path);
    now.earlier = strcmp(now.path, kills->path) == 0 ? kills->latest : now.latest;
    now.latest_ms = now_ms;
    *kills = now;
}

bool gp_memory_kills_grew(const gp_memory_kills *kills)
{
    uint64_t count = kills_in(kills->path);

    return kills->earlier != UINT64_MAX && count != UINT64_MAX && count > kills->earlier;
}
