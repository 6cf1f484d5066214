/* Read the CPU and memory limits of this process's control groups, versions 1 and 2.
 *
 * The effective limit is the strictest one between the process's own group and the mount point. In
 * a container the mount point usually is the container's own group. */
#ifndef GP_CGROUP_H
#define GP_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return the CPU quota in processors, at least 1. UINT32_MAX: no limit. */
uint32_t gp_cgroup_cpus(void);

/* Memory limit and remaining memory, in bytes. UINT64_MAX: no limit. */
typedef struct gp_cgroup_memory {
    uint64_t limit, left;
} gp_cgroup_memory;

/* Read the memory limit. Limit and remainder may come from different groups. */
gp_cgroup_memory gp_cgroup_memory_read(void);

/* Parse a line of /proc/PID/cgroup, "NUMBER:CONTROLLERS:GROUP", in place. Return the cgroup version
 * of a group that has the controller; 0: it has not. Version 2 lists no controllers. */
int gp_cgroup_line(char *line, const char *controller, const char **group);

/* Read a file's first line, without the newline. false: the file cannot be read, and text is "". */
bool gp_line_read(const char *path, char *text, size_t bytes);

/* Read the id of this boot of the host, a UUID as text; see random(4). "": it cannot be read. */
void gp_boot_id_read(char *text, size_t bytes);

#endif
