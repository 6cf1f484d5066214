/* Decide which workers a pool has: one per GPU, or CPU workers that divide the allowed cores. */
#ifndef GP_PLAN_H
#define GP_PLAN_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/device/device_list.h"
#include "proto/local/paths.h"
#include "scheduler/core/core.h"

enum { GP_PLAN_CORES_MAX = 4096, GP_PLAN_AUTO_MAX = 16 };

/* Logical cores that this process may use, with the hyperthreads of each core side by side. */
typedef struct gp_plan_cores {
    uint32_t count;    /* allowed cores, limited by the cgroup quota */
    uint32_t physical; /* allowed cores with hyperthreads counted once */
    uint16_t core[GP_PLAN_CORES_MAX];
} gp_plan_cores;

/* Find the allowed cores from sched_getaffinity(), the topology in /sys and cpu.max of the cgroup.
 * Never fails: the result has at least one core. */
void gp_plan_find_cores(gp_plan_cores *out);

/* Requested pool size and devices. */
typedef struct gp_plan_request {
    uint32_t workers; /* 0: one worker per device */
    /* "auto", "cpu", or a list such as "1,3", "cuda:0" or UUIDs; NULL or "": auto */
    const char *devices;
    const char *resources; /* setting for gp_resources_assign(); NULL: none */
    bool strict;           /* refuse resources of workers that the pool does not have */
} gp_plan_request;

/* Fill slots[0 .. *count) with one configuration per worker. "auto" means all GPUs except those
 * that gp_device_left_out() excludes, or the CPU cores if no GPU remains.
 *   GP_ENODEV: a device is missing or unusable, or there are fewer GPUs than workers
 *   GP_EINVAL: more than GP_CORE_SLOTS_MAX workers, or an invalid device list
 *   GP_EINVAL, GP_ELIMIT: as gp_resources_assign() */
gp_status gp_plan_make(gp_core_slot_config slots[GP_CORE_SLOTS_MAX], uint32_t *count,
                       const gp_plan_request *request, const gp_device_list *devices,
                       const gp_plan_cores *cores, const gp_paths *paths, gp_error *err);

/* Format a core list such as "0-3,8", sorted. A list that does not fit ends with "...". Return
 * text. */
char *gp_plan_format_cores(char *text, size_t bytes, const uint16_t *cores, uint32_t count);

#endif
