#include "worker/process/device.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "common/base/text/text.h"
#include "worker/process/claim.h"

/* ---- core lists ---- */

/* Parse "3" or "0-3" at *text, advance *text past it, and set the members. */
static bool range_parse(const char **text, bool *member)
{
    unsigned first, last;
    int end = 0;

    if (sscanf(*text, "%5u%n", &first, &end) != 1)
        return false;
    *text += end;
    last = first;
    if (**text == '-') {
        if (sscanf(*text, "-%5u%n", &last, &end) != 1)
            return false;
        *text += end;
    }
    if (first > last || last >= GP_CORES_MAX)
        return false;
    for (unsigned core = first; core <= last; core++)
        member[core] = true;
    return true;
}

gp_status gp_cores_parse(int **out, uint32_t *count, const char *text, gp_error *err)
{
    bool member[GP_CORES_MAX] = { false };
    const char *rest = text;
    uint32_t found = 0;
    int *cores;

    for (;;) {
        if (!range_parse(&rest, member) || (*rest != '\0' && *rest != ','))
            return gp_fail(
                err, GP_EINVAL,
                "invalid core list \"%.60s\": must be numbers and ranges below %u, for example 0-3,8", text,
                GP_CORES_MAX);
        if (*rest == '\0')
            break;
        rest++;
    }
    cores = gp_calloc(GP_CORES_MAX, sizeof(*cores));
    if (cores == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of cores");
    for (int core = 0; core < (int)GP_CORES_MAX; core++)
        if (member[core])
            cores[found++] = core;
    *out = cores;
    *count = found;
    return GP_OK;
}

/* ---- the device ---- */

/* Find the worker's cores, and pin the process to them unless they are shared. */
static gp_status cores_open(gp_worker_device *device, const gp_worker_device_options *options, gp_error *err)
{
    cpu_set_t set[GP_CORES_MAX / CPU_SETSIZE] = { 0 };

    device->shared = options->shared;
    if (options->cores != NULL) {
        gp_status status = gp_cores_parse(&device->cores, &device->core_count, options->cores, err);

        if (status != GP_OK)
            return status;
    } else {
        if (sched_getaffinity(0, sizeof(set), set) != 0)
            return gp_fail_errno(err, GP_EIO, "cannot read the CPU affinity of this process");
        device->cores = gp_calloc(GP_CORES_MAX, sizeof(*device->cores));
        if (device->cores == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a list of cores");
        for (int core = 0; core < (int)GP_CORES_MAX; core++)
            if (CPU_ISSET_S((size_t)core, sizeof(set), set))
                device->cores[device->core_count++] = core;
    }
    if (device->shared)
        return GP_OK;
    gp_ranges_text(device->cores_text, sizeof(device->cores_text), device->cores, device->core_count);
    CPU_ZERO_S(sizeof(set), set);
    for (uint32_t i = 0; i < device->core_count; i++)
        CPU_SET_S((size_t)device->cores[i], sizeof(set), set);
    if (sched_setaffinity(0, sizeof(set), set) != 0)
        return gp_fail_errno(err, GP_EINVAL, "cannot set the CPU affinity to %s", device->cores_text);
    return GP_OK;
}

gp_status gp_worker_device_open(gp_worker_device *out, const gp_worker_device_options *options, gp_error *err)
{
    gp_claim_holder holder = { .pid = (uint32_t)getpid(), .pool = options->pool, .index = options->index };
    gp_error why;
    gp_status status;

    memset(out, 0, sizeof(*out));
    out->claim = -1;
    status = cores_open(out, options, err);
    if (status != GP_OK) {
        gp_worker_device_close(out);
        return status;
    }
    if (strcmp(options->device, "cpu") == 0) {
        out->kind = GP_DEVICE_CPU;
        snprintf(out->uuid, sizeof(out->uuid), "cpu-%s", out->shared ? "shared" : out->cores_text);
        /* The first "model name" line lies within the first 4 KiB on any machine. */
        int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
        char text[4096];
        ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

        if (fd >= 0)
            close(fd);
        text[got > 0 ? got : 0] = '\0';
        const char *name = strstr(text, "model name");

        name = name == NULL ? NULL : strchr(name, ':');
        name = name == NULL ? ": CPU" : name;
        snprintf(out->name, sizeof(out->name), "%.*s", (int)strcspn(name + 2, "\n"), name + 2);
        return GP_OK;
    }
    out->kind = GP_DEVICE_CUDA;
    out->ordinal = options->ordinal;
    snprintf(out->uuid, sizeof(out->uuid), "%s", options->device);
    snprintf(out->name, sizeof(out->name), "%s", options->name == NULL ? "" : options->name);
    if (gp_claim_take(&out->claim, options->device_dir, out->uuid, &holder, options->claim_wait_ms, &why) !=
        GP_OK) {
        out->claim = -1;
        snprintf(out->excluded, sizeof(out->excluded), "%.*s", (int)sizeof(out->excluded) - 1, why.message);
    }
    return GP_OK;
}

void gp_worker_device_close(gp_worker_device *device)
{
    gp_claim_release(device->claim);
    gp_free(device->cores);
    device->cores = NULL;
    device->claim = -1;
}
