/* plan.h -- which workers a pool has: one per GPU, or CPU workers that share the allowed cores out. */
#ifndef GP_PLAN_H
#define GP_PLAN_H

#include <stdint.h>

#include "common/base/error.h"
#include "proto/device/device_list.h"
#include "proto/local/places.h"
#include "scheduler/core/core.h"

enum { GP_PLAN_CORES_MAX = 4096, GP_PLAN_AUTO_MAX = 16 };

/* The logical cores this process may use, hyperthreads of one core side by side. */
typedef struct gp_plan_cores {
    uint32_t count;    /* allowed, after the cgroup's quota */
    uint32_t physical; /* of these, with hyperthreads counted once */
    uint16_t core[GP_PLAN_CORES_MAX];
} gp_plan_cores;

/* gp_plan_find_cores -- by sched_getaffinity, /sys topology and the cgroup's cpu.max.  Never fails: at least one. */
void gp_plan_find_cores(gp_plan_cores *out);

/* What was asked for. */
typedef struct gp_plan_request {
    uint32_t workers;    /* 0 = as many as there are devices */
    const char *devices; /* "auto", "cpu", or a list "1,3", "cuda:0", UUIDs; NULL or "" = auto */
} gp_plan_request;

/* gp_plan_make -- fill slots[0 .. *count).
 * auto: all GPUs but those that gp_device_left_out() names; the cores when there is none left.
 * GP_ENODEV: a device that is not there or cannot be used (says why), or more workers than GPUs (names what there is).  GP_EINVAL: more workers
 * than GP_CORE_SLOTS_MAX, or a list with a count that is not its length. */
gp_status gp_plan_make(gp_core_slot_config slots[GP_CORE_SLOTS_MAX], uint32_t *count,
                       const gp_plan_request *request, const gp_device_list *devices,
                       const gp_plan_cores *cores, const gp_places *places, gp_error *err);

/* "0-3,8" of count cores, sorted, into text; cut with "..." where it does not fit. */
char *gp_plan_format_cores(char *text, size_t bytes, const uint16_t *cores, uint32_t count);

#endif
