/* probe_cuda.c -- list devices through the CUDA driver, for machines without NVML (small
 * containers, WSL). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/daemon/probe.h"

enum {
    CUDA_NO_DEVICE = 100,
    CUDA_MAJOR = 75,
    CUDA_MINOR = 76,
    CUDA_MODE = 20
}; /* CUresult and CUdevice_attribute values */

typedef struct cuda {
    int (*init)(unsigned);
    int (*driver)(int *);
    int (*text)(int, const char **);
    int (*count)(int *);
    int (*get)(int *, int);
    int (*uuid)(unsigned char *, int);
    int (*name)(char *, int, int);
    int (*memory)(size_t *, int);
    int (*attribute)(int *, int, int);
    int (*bus)(char *, int, int);
} cuda;

static bool cuda_load(cuda *api, gp_device_list *out)
{
    const char *path = getenv("GRADPOOL_CUDA_LIBRARY");
    void *library;

    if (path == NULL || path[0] == '\0')
        path = "libcuda.so.1";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(out->note, sizeof(out->note), "CUDA driver: %.200s", dlerror());
        return false;
    }
#define RESOLVE(slot, symbol) (*(void **)&api->slot = dlsym(library, symbol))
    RESOLVE(init, "cuInit");
    RESOLVE(driver, "cuDriverGetVersion");
    RESOLVE(text, "cuGetErrorString");
    RESOLVE(count, "cuDeviceGetCount");
    RESOLVE(get, "cuDeviceGet");
    RESOLVE(uuid, "cuDeviceGetUuid_v2");
    if (api->uuid == NULL)
        RESOLVE(uuid, "cuDeviceGetUuid");
    RESOLVE(name, "cuDeviceGetName");
    RESOLVE(memory, "cuDeviceTotalMem_v2");
    RESOLVE(attribute, "cuDeviceGetAttribute");
    RESOLVE(bus, "cuDeviceGetPCIBusId");
#undef RESOLVE
    if (api->init == NULL || api->count == NULL || api->get == NULL || api->uuid == NULL) {
        snprintf(out->note, sizeof(out->note), "CUDA driver: %.150s is not the CUDA driver or is too old",
                 path);
        return false;
    }
    return true;
}

static bool device_add(const cuda *api, int ordinal, gp_device_list *out)
{
    gp_device *device = &out->devices[out->count];
    unsigned char uuid[16];
    char *text = device->uuid;
    size_t memory = 0;
    int handle, major = 0, minor = 0, mode = GP_COMPUTE_UNKNOWN;

    memset(device, 0, sizeof(*device));
    if (api->get(&handle, ordinal) != 0 || api->uuid(uuid, handle) != 0)
        return false;
    if (api->name == NULL || api->name(device->name, sizeof(device->name), handle) != 0)
        device->name[0] = '\0';
    /* A card in MIG mode appears as its first instance, with the UUID of the instance. Only the
     * name shows that, for example "NVIDIA H200 MIG 1g.18gb". */
    device->mig = strstr(device->name, " MIG ") != NULL;
    /* "GPU-" or "MIG-" and a UUID, as NVML and CUDA_VISIBLE_DEVICES write it */
    text += sprintf(text, device->mig ? "MIG-" : "GPU-");
    for (int i = 0; i < 16; i++)
        text += sprintf(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    if (api->bus == NULL || api->bus(device->bus, sizeof(device->bus), handle) != 0)
        /* a substitute that keeps the driver's order */
        snprintf(device->bus, sizeof(device->bus), "%08x", (unsigned)ordinal);
    if (api->memory != NULL && api->memory(&memory, handle) == 0)
        device->memory_total = memory;
    if (api->attribute != NULL && api->attribute(&major, CUDA_MAJOR, handle) == 0 &&
        api->attribute(&minor, CUDA_MINOR, handle) == 0) {
        device->major = (uint32_t)major;
        device->minor = (uint32_t)minor;
    }
    if (api->attribute == NULL || api->attribute(&mode, CUDA_MODE, handle) != 0 || mode < 0 ||
        mode > GP_COMPUTE_UNKNOWN)
        mode = GP_COMPUTE_UNKNOWN;
    device->compute_mode = (gp_compute_mode)mode;
    device->index = out->count++;
    return true;
}

bool gp_probe_cuda(gp_device_list *out)
{
    const char *text = NULL;
    cuda api = { 0 };
    int count = 0, version = 0, code;

    if (!cuda_load(&api, out))
        return false;
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    code = api.init(0);
    if (code == 0)
        code = api.count(&count);
    if (code != 0 && code != CUDA_NO_DEVICE) {
        if (api.text != NULL)
            api.text(code, &text);
        snprintf(out->note, sizeof(out->note), "CUDA driver: %.150s (code %d)",
                 text == NULL ? "unknown error" : text, code);
        return false;
    }
    out->source = GP_DEVICES_FROM_CUDA;
    if (api.driver != NULL && api.driver(&version) == 0)
        snprintf(out->driver, sizeof(out->driver), "CUDA %d.%d", version / 1000, version % 1000 / 10);
    snprintf(out->note, sizeof(out->note), "cannot load NVML: processes on the devices are unknown");
    for (int i = 0; i < count && out->count < GP_DEVICES_MAX; i++)
        if (!device_add(&api, i, out))
            snprintf(out->note, sizeof(out->note), "device %d of the CUDA driver is excluded: it has no UUID",
                     i);
    return true;
}
