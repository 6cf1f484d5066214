#include "client/memory_kills.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t count_in(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char name[64];
    unsigned long long value;
    uint64_t found = UINT64_MAX;

    if (file == NULL)
        return found;
    while (fscanf(file, "%63s %llu", name, &value) == 2)
        if (strcmp(name, key) == 0)
            found = value;
    fclose(file);
    return found;
}

/* The file that counts the kills where that process lives: its control group's, else the whole system's. */
static void kills_find(char path[256], uint32_t pid)
{
    char source[40], line[300];
    FILE *file;

    snprintf(source, sizeof(source), "/proc/%" PRIu32 "/cgroup", pid);
    snprintf(path, 256, "/proc/vmstat");
    file = fopen(source, "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        char events[256];
        size_t used = strcspn(line, "\n");

        line[used] = '\0';
        if (strncmp(line, "0::/", 4) != 0 ||
            (size_t)snprintf(events, sizeof(events), "/sys/fs/cgroup%.200s%smemory.events", line + 3,
                             line[4] == '\0' ? "" : "/") >= sizeof(events))
            continue;
        if (count_in(events, "oom_kill") != UINT64_MAX)
            memcpy(path, events, sizeof(events));
    }
    fclose(file);
}

void memory_kills_begin(memory_kills *kills, uint32_t pid)
{
    kills_find(kills->path, pid);
    kills->count = count_in(kills->path, "oom_kill");
}

bool memory_kills_grew(const memory_kills *kills)
{
    return kills->count != UINT64_MAX && count_in(kills->path, "oom_kill") > kills->count;
}
