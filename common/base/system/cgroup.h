/* cgroup.h -- limits of the control groups of this process: the strictest from its own group up to the mount, which
 * inside a container is its own group.  Versions 1 and 2. */
#ifndef GP_CGROUP_H
#define GP_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return how many processors' worth of time is allowed, at least 1. UINT32_MAX: there is no limit. */
uint32_t gp_cgroup_cpus(void);

/* Bytes; UINT64_MAX: there is no limit. */
typedef struct gp_cgroup_memory {
    uint64_t limit, left;
} gp_cgroup_memory;

gp_cgroup_memory gp_cgroup_memory_read(void);

/* Read the first line of a file, without its end. false: the file cannot be read; text is "". */
bool gp_line_read(const char *path, char *text, size_t bytes);

#endif
