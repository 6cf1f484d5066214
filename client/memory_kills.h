/* memory_kills.h -- whether a process was killed because memory ran out: told from other kills by the kernel's own count. */
#ifndef GP_MEMORY_KILLS_H
#define GP_MEMORY_KILLS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct memory_kills {
    uint64_t count; /* so far; UINT64_MAX = not known */
    char path[256]; /* who counts: the process's control group, else the whole system */
} memory_kills;

void memory_kills_begin(memory_kills *kills, uint32_t pid); /* while it lives */
bool memory_kills_grew(const memory_kills *kills);          /* since then */

#endif
