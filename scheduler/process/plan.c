/* Worker planning: core detection, device selection and slot configurations. */
#include "scheduler/process/plan.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/device/device_holder.h"
#include "common/base/system/cgroup.h"
#include "common/base/text/text.h"

/* ---- cores ---- */

void gp_plan_find_cores(gp_plan_cores *out)
{
    cpu_set_t set[GP_PLAN_CORES_MAX / CPU_SETSIZE] = { 0 };
    uint16_t first[GP_PLAN_CORES_MAX], allowed[GP_PLAN_CORES_MAX];
    uint32_t count = 0, quota = gp_cgroup_cpus();
    char path[96], text[128];
    unsigned lowest;

    *out = (gp_plan_cores){ .count = 0 };
    sched_getaffinity(0, sizeof(set), set);
    for (uint16_t core = 0; core < GP_PLAN_CORES_MAX; core++) {
        if (!CPU_ISSET_S(core, sizeof(set), set))
            continue;
        /* All hyperthreads of a physical core have the same lowest sibling. */
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", core);
        if (!gp_line_read(path, text, sizeof(text)) || sscanf(text, "%u", &lowest) != 1 ||
            lowest >= GP_PLAN_CORES_MAX)
            lowest = core;
        allowed[count] = core;
        first[count++] = (uint16_t)lowest;
    }
    if (count == 0)
        allowed[count] = first[count] = 0, count++;
    for (uint32_t i = 0; i < count && out->count < quota; i++) {
        bool counted = false;

        for (uint32_t j = 0; j < i && !counted; j++)
            counted = first[j] == first[i];
        if (counted)
            continue;
        out->physical++;
        for (uint32_t j = i; j < count && out->count < quota; j++) {
            if (first[j] == first[i])
                out->core[out->count++] = allowed[j];
        }
    }
}

static int compare_cores(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

char *gp_plan_format_cores(char *text, size_t bytes, const uint16_t *cores, uint32_t count)
{
    int sorted[GP_PLAN_CORES_MAX];

    for (uint32_t i = 0; i < count; i++)
        sorted[i] = cores[i];
    qsort(sorted, count, sizeof(*sorted), compare_cores);
    return gp_ranges_text(text, bytes, sorted, count);
}

/* ---- worker slots ---- */

/* Find the requested GPUs, in request order. The result is empty for "cpu", and for "auto" on a
 * machine without usable GPU.
 *   GP_ENODEV: unknown or unusable device
 *   GP_EINVAL: duplicate device, too many devices or an empty list */
static gp_status choose_gpus(const gp_device *chosen[GP_CORE_SLOTS_MAX], uint32_t *count,
                             const gp_plan_request *request, const gp_device_list *devices, gp_error *err)
{
    char list[256], *rest = list, *name, why[GP_DEVICE_REASON + 80];
    const char *asked = request->devices == NULL || request->devices[0] == '\0' ? "auto" : request->devices;

    *count = 0;
    if (strcmp(asked, "cpu") == 0)
        return GP_OK;
    if (strcmp(asked, "auto") == 0) {
        for (uint32_t i = 0; i < devices->count && *count < GP_CORE_SLOTS_MAX; i++)
            if (!gp_device_left_out(devices, i, why, sizeof(why)))
                chosen[(*count)++] = &devices->devices[i];
        return GP_OK;
    }
    snprintf(list, sizeof(list), "%s", asked);
    while ((name = strsep(&rest, ", ")) != NULL) {
        const gp_device *device = NULL;

        if (*name == '\0')
            continue;
        for (uint32_t i = 0; i < devices->count && device == NULL; i++) { /* index, "cuda:N" or UUID */
            const gp_device *at = &devices->devices[i];
            char index[16], cuda[24];

            snprintf(index, sizeof(index), "%u", at->index);
            snprintf(cuda, sizeof(cuda), "cuda:%u", at->ordinal);
            if (strcmp(name, index) == 0 || (!at->mig && strcasecmp(name, cuda) == 0) ||
                strcasecmp(name, at->uuid) == 0)
                device = at;
        }
        if (device == NULL)
            return gp_fail(err, GP_ENODEV, "no device %.60s: this host has %u GPU%s%s%s", name,
                           devices->count, gp_plural(devices->count), devices->note[0] != '\0' ? "; " : "",
                           devices->note);
        if (device->reason[0] != '\0')
            return gp_fail(err, GP_ENODEV, "device %.60s (%.60s) is unusable: %s", name, device->name,
                           device->reason);
        for (uint32_t i = 0; i < *count; i++) {
            if (chosen[i] == device)
                return gp_fail(err, GP_EINVAL, "device %.60s is listed twice in %.100s", name, asked);
        }
        if (*count == GP_CORE_SLOTS_MAX)
            return gp_fail(err, GP_EINVAL, "the device list has more than %d devices", GP_CORE_SLOTS_MAX);
        chosen[(*count)++] = device;
    }
    return *count != 0 ? GP_OK : gp_fail(err, GP_EINVAL, "the device list \"%.100s\" is empty", asked);
}

gp_status gp_plan_make(gp_core_slot_config slots[GP_CORE_SLOTS_MAX], uint32_t *count,
                       const gp_plan_request *request, const gp_device_list *devices,
                       const gp_plan_cores *cores, const gp_paths *paths, gp_error *err)
{
    const gp_device *gpus[GP_CORE_SLOTS_MAX];
    uint32_t gpu_count, workers = request->workers;
    gp_status status;

    if (workers > GP_CORE_SLOTS_MAX)
        return gp_fail(err, GP_EINVAL, "%u workers requested, but a pool has at most %d", workers,
                       GP_CORE_SLOTS_MAX);
    status = choose_gpus(gpus, &gpu_count, request, devices, err);
    if (status != GP_OK)
        return status;
    if (gpu_count != 0 && workers > gpu_count)
        return gp_fail(err, GP_ENODEV,
                       "%u workers requested, but there %s %u GPU%s; to use CPU workers: `gradpool up "
                       "--devices cpu --workers %u`",
                       workers, gpu_count == 1 ? "is" : "are", gpu_count, gp_plural(gpu_count), workers);
    if (workers == 0 && gpu_count != 0)
        workers = gpu_count;
    else if (workers == 0)
        workers = cores->physical < GP_PLAN_AUTO_MAX ? cores->physical : GP_PLAN_AUTO_MAX;
    /* Each worker gets an equal share of the cores. If there are more workers than
     * cores, all workers share all cores. */
    const uint32_t each = workers == 0 ? 0 : cores->count / workers;

    memset(slots, 0, GP_CORE_SLOTS_MAX * sizeof(*slots));
    for (uint32_t s = 0; s < workers; s++) {
        gp_core_slot_config *slot = &slots[s];
        const gp_device *device = gpu_count != 0 ? gpus[s] : NULL;

        slot->shared = each == 0;
        slot->threads = each == 0 ? 1 : each;
        slot->kind = device != NULL ? GP_CORE_GPU : GP_CORE_CPU;
        if (each != 0)
            gp_plan_format_cores(slot->cores, sizeof(slot->cores), &cores->core[s * each], each);
        snprintf(slot->name, sizeof(slot->name), "%s", device != NULL ? device->name : "CPU");
        if (device != NULL) {
            slot->device_index = device->ordinal;
            snprintf(slot->uuid, sizeof(slot->uuid), "%.*s", (int)sizeof(slot->uuid) - 1, device->uuid);
            snprintf(slot->pci, sizeof(slot->pci), "%s", device->bus);
            snprintf(slot->label, sizeof(slot->label), "GPU %u, %.40s", device->index, device->name);
        } else {
            snprintf(slot->label, sizeof(slot->label), each == 0 ? "cpu, shared cores" : "cpu cores %.50s",
                     slot->cores);
        }
        gp_paths_worker_log(paths, s + 1, slot->log);
    }
    status = gp_resources_assign(&slots[0].resources, sizeof(slots[0]), workers, request->resources,
                                 request->strict, err);
    if (status == GP_OK)
        *count = workers;
    return status;
}
